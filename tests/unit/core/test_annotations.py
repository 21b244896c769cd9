"""Tests that samples and ratings are read as they were written."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.core import annotations as annotated
from eval_factory.core.annotations import Annotations, Question, Rating, RatingChoice, Sample
from eval_factory.core.errors import PrerequisiteError
from facts import naming

KEY = annotated.AnswerKey('od"d\ud800', 1)
QUESTIONS = (Question("first", 5.0), Question("second", -2.0))
ANSWER = annotated.SampledAnswer("bcdfg", KEY, "a" * 64, 1, 0.25, QUESTIONS)
SAMPLE = Sample(
    "sheet",
    "criteria",
    ("1", "2"),
    (RatingChoice(1.0, "yes"), RatingChoice(0.0, "no")),
    "score",
    (0.0, 1.0),
    ("low", "high"),
    {KEY.as_text(): 1},
    (ANSWER,),
)


def rating(value: float = 1.0, **changes: object) -> Rating:
    return replace(Rating("sheet", "bcdfg", 1, "1", value), **changes)  # type: ignore[arg-type]


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    kept = Annotations(
        (SAMPLE, replace(SAMPLE, id="other", scale=None)), (rating(), rating(0.0, comment="why"))
    )
    file = tmp_path / "ratings.jsonl"
    file.write_text("".join(kept.as_lines()), "utf-8")
    assert annotated.read_annotations(file) == kept
    assert annotated.read_annotations(tmp_path / "none") == Annotations()


@pytest.mark.parametrize(
    "line", ["{", "[]", '{"rating": {"sheet": "x"}}', '{"sample": {"sheet": "x"}}', "{}", "1"]
)
def test_a_line_that_is_neither_is_named(tmp_path: Path, line: str) -> None:
    file = tmp_path / "ratings.jsonl"
    file.write_text("".join(Annotations((SAMPLE,)).as_lines()) + line + "\n", "utf-8")
    with pytest.raises(PrerequisiteError, match=naming("ratings.jsonl: line 2", "nor a rating")):
        annotated.read_annotations(file)


def test_a_sample_that_is_none_is_named(tmp_path: Path) -> None:
    (tmp_path / "sample-x.json").write_text('{"sheet": "x"}', "utf-8")
    with pytest.raises(
        PrerequisiteError, match=naming("sample-x.json: ", "is not a sample", "annotate export")
    ):
        annotated.read_sample(tmp_path / "sample-x.json")
    (tmp_path / "folder").mkdir()
    with pytest.raises(PrerequisiteError, match="cannot be read"):
        annotated.read_annotations(tmp_path / "folder")


def test_the_same_sheet_again_replaces_its_raters_ratings() -> None:
    second = replace(SAMPLE, id="second")
    before = Annotations((SAMPLE,), (rating(1.0), rating(1.0, number=2), rating(0.0, rater="2")))
    after = before.with_returned(
        {"sheet": SAMPLE, "second": second}, [rating(0.0), rating(1.0, sheet="second")]
    )
    assert after.ratings == (rating(1.0, sheet="second"), rating(0.0), rating(0.0, rater="2"))
    assert after.samples == (SAMPLE, second)  # in the order of their first ratings
    assert after.with_returned({}, [rating(1.0)]).samples == after.samples
    assert Annotations((SAMPLE,), (rating(),)).rated_answers == {KEY}
    assert Annotations((SAMPLE,), (rating(code="other"),)).rated_answers == frozenset()
