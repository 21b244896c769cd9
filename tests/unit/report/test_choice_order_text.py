"""The sentence about the order of choices, and where it stands."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eval_factory.core.results import ALL_ORDERS, ChoiceOrders, Share, TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.report.markdown_report import markdown_report
from eval_factory.report.reader import load_result
from eval_factory.report.screen import result_summary
from eval_factory.report.sentences import choice_order_line
from stored_results import instance, result, written

CHANGED = Share(0.4, 30, 0.2512345678, 0.571)
ORDERS = ChoiceOrders(
    3, 30, {"a choice refers to others": 2}, {"1": 0.5, "2": 1 / 3, "3": None}, CHANGED, Share(0.3, 30), {"A": 9}
)


def made(record: ChoiceOrders | None = ORDERS, scores: tuple[str, ...] = ("exact_match",)) -> TaskResult:
    plain = result([instance("q0", 1.0)], scores)
    return replace(plain, validity=replace(plain.validity, choice_orders=record))


def test_without_it_nothing_is_said() -> None:
    assert choice_order_line(made(None)) is None
    assert "rder of the choices" not in markdown_report(made(None)) + result_summary(made(None), RunDir(Path("x")))


def test_the_line() -> None:
    assert choice_order_line(made(scores=("exact_match", f"exact_match{ALL_ORDERS}"))) == (
        "order of the choices (3 orders, 30 questions): the answer changes with it for 40 %"
        " (95 % interval 25 % .. 57 %), 30 % right in every order; exact_match over all orders 0.5000"
        "; 2 questions left as they are"
    )


def test_what_is_not_known_is_left_out() -> None:
    one = replace(ORDERS, kept={}, changed=Share(0.0, 1), right_in_all=None)
    assert choice_order_line(made(one)) == (
        "order of the choices (3 orders, 1 question): the answer changes with it for 0 %"
    )
    none = choice_order_line(made(replace(ORDERS, kept={"x": 1}, changed=None)))
    assert none == "order of the choices: no question was answered in two orders; 1 question left as they are"


def test_it_stands_on_the_screen_and_in_the_markdown() -> None:
    line = choice_order_line(made())
    assert line is not None
    assert f"\n  {line}\n" in result_summary(made(), RunDir(Path("x")))
    assert "\nOrder of the choices (3 orders, 30 questions)" in markdown_report(made())


def test_it_is_written_rounded_and_read_again(tmp_path: Path) -> None:
    folder = written(tmp_path / "x", made())
    found = load_result(folder).result.validity.choice_orders
    assert found == replace(
        ORDERS, by_order={"1": 0.5, "2": 0.333333, "3": None}, changed=replace(CHANGED, ci_low=0.251235)
    )
    plain = (written(tmp_path / "y", made(None)) / "evaluation_config.yaml").read_text("utf-8")
    assert "choice_orders" not in plain
