"""What scripts/validity_table.py counts as a difference or a surprise, and how it says why; the runs are in integration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from scripts.validity.fed_answers import FLOORS, KINDS, OF_OPEN_TEXT, answer_of
from scripts.validity.measured_row import NO_CORRECTION, NO_FORM, NO_OPTIONS, RANDOM_ADVICE, Parity, Row, parity
from scripts.validity.our_runs import Result
from scripts.validity.questions import Question
from scripts.validity.validity_page import Explanation, page, unexplained

from eval_factory.tasks.framework import Task, load_framework

HELMS = "exact_match"
FOUR = [Question(f"q{number}", gold, ("A", "B")) for number, gold in enumerate("AABA")]


def task(name: str) -> Task:
    found = load_framework().task(name)
    assert found is not None
    return found


def result(scores: Mapping[str, float], main: str = HELMS, floors: Any = None) -> Result:
    shown = {
        name: {"value": value, "metric": name, "split": "test", "perturbation": None} for name, value in scores.items()
    }
    tasks = {"t": {"metrics": {"score": {"scores": shown}}}}
    return Result({"main_metric": main, "results": {"tasks": tasks}, "validity": {"floors": floors} if floors else {}})


def row(kinds: Mapping[str, Mapping[str, float]], name: str = "pubmed_qa", metric: str = HELMS, **changed: Any) -> Row:
    """Of scores by kind of answer."""
    results = {kind: result(scores, metric) for kind, scores in kinds.items()}
    made = {"questions": FOUR, "parities": {}, "results": results, **changed}
    return Row(task(name), metric, **made)


EXPECTED = {
    **{kind: {HELMS: 0.0} for kind in FLOORS}, "gold": {HELMS: 1.0, f"{HELMS}.corrected": 1.0},
    "empty": {HELMS: 0.0, f"{HELMS}.corrected": 0.0}, "unparsed": {HELMS: 0.0, f"{HELMS}.lenient": 1.0},
}  # fmt: skip


def stat(name: str, mean: float, split: str = "test", **more: Any) -> dict[str, Any]:
    return {"name": {"name": name, "split": split, **more}, "mean": mean}


def test_scores_are_compared_to_the_last_digit() -> None:
    ours = result({HELMS: 0.1 + 0.2, "other": 1.0}).scores
    assert parity(ours, [stat(HELMS, 0.1 + 0.2), stat("not ours", 3.0)], HELMS) == Parity(1, ())
    found = parity(ours, [stat(HELMS, 0.3), stat("other", 1.0)], HELMS)
    assert found == Parity(2, ("exact_match is 0.30000000000000004, of bare helm-run 0.3",))


def test_a_main_metric_that_was_not_compared_is_a_difference() -> None:
    found = parity(result({HELMS: 1.0, "other": 1.0}).scores, [stat("other", 1.0)], HELMS)
    assert (found.compared, found.differences) == (1, ("exact_match is missing from one of the two",))
    (problem,) = row(EXPECTED, parities={"gold": Parity(0, ())}).problems()
    assert problem == "pubmed_qa, gold: no score could be compared with bare helm-run"


@pytest.mark.parametrize(("column", "label", "value"), [
    ("gold", HELMS, 0.999), ("gold, corrected", f"{HELMS}.corrected", 0.999), ("empty", HELMS, 0.101),
    ("refusal", HELMS, 0.101), ("constant", HELMS, 0.101), ("random", HELMS, 0.101), ("unparsed", HELMS, 0.101),
    ("empty, corrected", f"{HELMS}.corrected", 0.101), ("unparsed, lenient", f"{HELMS}.lenient", 0.999),
])  # fmt: skip
def test_what_a_reader_does_not_expect_has_to_be_explained(column: str, label: str, value: float) -> None:
    kind = column.partition(",")[0]
    surprising = row({**EXPECTED, kind: {**EXPECTED[kind], label: value}})
    assert list(surprising.surprises()) == [column]
    (told,) = unexplained([surprising], [])
    assert told.endswith(f", {column}: {value:.4f} is not what a reader expects: say why in explanations.yml")
    reason = Explanation("pubmed_qa", HELMS, (column,), "it is so")
    assert list(unexplained([surprising], [reason])) == []
    usual = row({**EXPECTED, "random": {HELMS: 0.1}})
    (stale,) = unexplained([usual], [Explanation("pubmed_qa", HELMS, ("random",), "why")])
    assert stale == f"pubmed_qa, {HELMS}, random: explained, but as a reader expects"
    assert list(unexplained([surprising], [Explanation("medec", HELMS, (column,), "it is so")])) == [told]


def test_chance_is_counted_before_it_explains() -> None:
    always_a = row({**EXPECTED, "constant": {HELMS: 0.75}})
    assert always_a.known_reason("constant") == "3 of 4 right answers are A."
    assert row({**EXPECTED, "constant": {HELMS: 0.5}}).known_reason("constant") is None
    drawn = [answer_of("random", task("pubmed_qa"), question) == question.gold for question in FOUR]
    chance = row({**EXPECTED, "random": {HELMS: sum(drawn) / 4}})
    assert chance.known_reason("random") == f"{sum(drawn)} of 4 letters that were drawn among the options are right."
    nothing = [Question("a", "", ()), Question("b", "SELECT 1", ()), Question("c", "", (), test=False)]
    silent = row({**EXPECTED, "empty": {HELMS: 0.5}}, name="ehr_sql", questions=nothing)
    assert silent.known_reason("empty") == "1 of 2 questions are such that nothing is the right answer."
    assert silent.known_reason("gold") is None


def test_missing_cells_have_reasons() -> None:
    bare = {kind: {HELMS: 0.0} for kind in KINDS}
    options, words = row(bare), row(bare, name="medcalc_bench", questions=[Question("q", "1.5", ())])
    assert options.known_reason("gold, corrected") == options.known_reason("empty, corrected") == NO_CORRECTION
    assert options.known_reason("unparsed, lenient") is None
    assert words.known_reason("unparsed, lenient") == NO_OPTIONS
    jury = row({kind: {HELMS: 1.0} for kind in OF_OPEN_TEXT}, name="aci_bench", questions=[Question("q", "plan", ())])
    assert [jury.known_reason(column) for column in ("constant", "unparsed", "unparsed, lenient")] == [NO_FORM] * 3
    assert jury.known_reason("random") == RANDOM_ADVICE
    assert (jury.full, jury.low) == (5.0, 1.0)


@pytest.mark.parametrize(("stated", "problems"), [
    ({HELMS: {"answers": {"empty": 0.0, "always A": 0.75, "random": 0.3}}}, []),
    ({HELMS: {"answers": {"always A": 0.7}}}, [f"says 0.7 of always A in {HELMS}, measured: 0.75"]),
    ({HELMS: {"answers": {"refusal": 0.2}}}, [f"says 0.2 of refusal in {HELMS}, measured: 0.0"]),
    ({f"{HELMS}.corrected": {"answers": {"empty": 0.2}}}, [f"says 0.2 of empty in {HELMS}.corrected, measured: 0.0"]),
    (None, []),
])  # fmt: skip
def test_floors_that_the_program_states_have_to_be_what_was_measured(stated: Any, problems: list[str]) -> None:
    made = row({**EXPECTED, "constant": {HELMS: 0.75}})
    gold = result(EXPECTED["gold"], floors=stated)
    made = row({}, results={**made.results, "gold": gold})
    assert list(made.problems()) == [f"pubmed_qa: validity.floors {problem}" for problem in problems]


def test_the_page_numbers_each_reason_once() -> None:
    constant = row(
        {**EXPECTED, "constant": {HELMS: 0.75}}, parities={"gold": Parity(8, ()), "empty": Parity(8, ("x",))}
    )
    text = page([constant, constant], {"medhallu": "no data"}, [], {"crfm-helm": "0.5.16"})
    line = f"| `pubmed_qa` | `{HELMS}` | 4 | 1 of 16 differ | 1.0000 | 1.0000 | 0.0000 | 0.0000 | 0.7500 (1) | 0.0000 | 0.0000 | 0.0000 | 1.0000 |"
    assert text.splitlines().count(line) == 2
    assert text.count("3 of 4 right answers are A.") == 1
    assert "- `medhallu`: no data\n" in text
    assert "crfm-helm 0.5.16" in text
