"""A comparison as data frames and in a line."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.analysis.comparison import compare
from eval_factory.analysis.comparison_reasons import Reason
from eval_factory.analysis.comparison_records import FLIP_COLUMNS, PAIR_COLUMNS, Compared, Model
from facts import says
from stored_results import PROVENANCE, right_or_wrong


def types_of(found: object) -> dict[str, str]:
    return {name: str(kind).partition("[")[0] for name, kind in found.dtypes.items()}  # type: ignore[attr-defined]


@pytest.fixture
def folders(tmp_path: Path) -> list[Path]:
    """Of 40: b has 20 more right than a; c is a."""
    other = replace(PROVENANCE, target="org/other")
    return [
        right_or_wrong(tmp_path / "a", "1" * 10 + "0" * 29 + "x"),
        right_or_wrong(tmp_path / "b", "1" * 30 + "0" * 10, provenance=other),
        right_or_wrong(tmp_path / "c", "1" * 10 + "0" * 30),
    ]


def test_a_row_a_pair(folders: list[Path]) -> None:
    compared = compare(folders[:2])
    (one,) = compared.comparisons
    found = compared.to_frame()
    assert types_of(found) == dict(PAIR_COLUMNS)
    (row,) = found.to_dict("records")
    assert one.bounds is not None
    assert one.bounds[0] < one.bounds[1]
    measured = (
        "n",
        "value_a",
        "value_b",
        "difference",
        "ci_low",
        "ci_high",
        "p_value",
        "method",
        "mde",
    )
    expected = {name: getattr(one.paired, name) for name in measured} | {
        "task": "pubmed_qa",
        "metric": "exact_match",
        "a": "A",
        "b": "B",
        "model_a": "org/model",
        "model_b": "org/other",
        "bound_low": one.bounds[0],
        "bound_high": one.bounds[1],
        "significant": True,
        "higher_is_better": True,
        "failed": 1,
        "folder_a": str(folders[0]),
        "folder_b": str(folders[1]),
    }
    assert {name: row[name] for name in expected} == expected
    assert found["p_holm"].isna().all()


def test_a_row_for_each_instance_that_changed(folders: list[Path]) -> None:
    compared = compare(folders[:2])
    found = compared.instances_frame()
    assert types_of(found) == dict(FLIP_COLUMNS)
    assert list(found["id"]) == [f"q{number}" for number in range(10, 30)]
    assert set(found["better"]) == {"B"}
    assert set(compare(folders[1::-1]).instances_frame()["better"]) == {"A"}


def test_the_p_value_of_several_is_the_corrected_one(tmp_path: Path) -> None:
    few = [
        right_or_wrong(tmp_path / values, values) for values in ("1101101", "1111101", "0001101")
    ]
    (*_, last) = compare(few).comparisons
    assert (last.paired.p_value, last.p_holm) == (0.25, 0.75)
    assert list(compare(few).to_frame()["significant"]) == [False] * 3


def refused() -> Compared:
    text = "<img src=x onerror=alert(1)>"
    reason = Reason("metric", f"because {text}")
    models = (Model("A", Path(text), text), Model("B", Path("b"), "org/b\x1b[2J"))
    return Compared(models, (reason,))


def test_what_cannot_be_compared_says_why_and_has_no_rows() -> None:
    compared = refused()
    assert repr(compared).isprintable()
    says(repr(compared), "not comparable", "because <img")
    assert len(compared.to_frame()) == len(compared.instances_frame()) == 0
    assert types_of(compared.to_frame()) == dict(PAIR_COLUMNS)
    assert types_of(compared.instances_frame()) == dict(FLIP_COLUMNS)


def test_a_line(folders: list[Path]) -> None:
    says(repr(compare(folders[:2])), "A org/model", "B org/other", "A = +0.5128")
    four = compare([*folders, folders[0]])
    assert repr(four).endswith("...>")
    says(repr(four), "C - A =", "D - A =", "A = +0.0000")
    assert not repr(compare(folders)).endswith("...>")
