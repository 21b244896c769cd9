"""The file of trivial answers' scores."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.helm import names
from eval_factory.helm.trivial_answers import VERSION, StrategyScores, TrivialScores, read_trivial_scores


def test_it_is_read_as_it_was_written(tmp_path: Path) -> None:
    same = StrategyScores(name="always A", answer="A", values={"exact_match": [1.0, None]})
    drawn = StrategyScores(name="random", answers=["A", "B"], values={})
    made = TrivialScores(run="r", questions=[("a", 0, "test"), ("b", 0, None)], strategies=[same, drawn])
    made.write(tmp_path)
    assert read_trivial_scores(tmp_path) == made
    written = json.loads((tmp_path / names.TRIVIAL_SCORES_FILE).read_text())
    assert written == {
        "version": VERSION,
        "run": "r",
        "questions": [["a", 0, "test"], ["b", 0, None]],
        "strategies": [
            {"name": "always A", "answer": "A", "values": {"exact_match": [1, None]}},
            {"name": "random", "answers": ["A", "B"], "values": {}},
        ],
    }, "what is a default is not written"
    assert '"exact_match": [1, null]' in (tmp_path / names.TRIVIAL_SCORES_FILE).read_text()
    (read,) = (one for one in (read_trivial_scores(tmp_path) or made).strategies if one.name == "always A")
    assert type(read.values["exact_match"][0]) is int, "which is the same object each time"
    assert [same.answer_to(1), drawn.answer_to(0), drawn.answer_to(1)] == ["A", "A", "B"]


@pytest.mark.parametrize("text", [None, "{", "[]", f'{{"version": {VERSION + 1}}}', '{"other": 1}', "\x00"])
def test_what_cannot_be_read_is_no_file(text: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / names.TRIVIAL_SCORES_FILE).write_text(text)
    assert read_trivial_scores(tmp_path) is None
