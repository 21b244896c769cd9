"""A file of physicians' labels: what is read, and every mistake with its line, without a patient's text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.tasks.physician_labels import LabelledAnswer, LabelledItem, read_labels
from facts import each_says, says
from invented_labels import COLUMN, SECRET, line, written_labels


def problems(folder: Path, *rows: dict[str, Any], column: str = COLUMN) -> list[str]:
    found = read_labels(written_labels(folder / "labels.jsonl", rows), column).problems
    assert not any(SECRET in problem for problem in found)
    return found


def test_what_figures_are_made_of(tmp_path: Path) -> None:
    turned = [dict(reversed(one.items())) for one in line(3)["prompt"]]  # the same message
    rows = [
        line(3, [True, False], False),
        line(3, [True, True], prompt=turned),
        line(4, prompt_id="p4", prompt=None),
    ]
    found = read_labels(written_labels(tmp_path / "labels.jsonl", rows), COLUMN)
    assert found.problems == []
    one, other, named = found.rows
    assert one.conversation == other.conversation != named.conversation == "p4"
    expected = (False, (True, False), ("doctor 0", "doctor 1"), "greeting", len(SECRET) + 4)
    assert one == LabelledItem(one.conversation, *expected)
    assert SECRET not in repr(found.rows), "no text is kept"
    row = line(prompt="a question", completion=None, rubric=None, category=None)
    (bare,) = read_labels(written_labels(tmp_path / "labels.jsonl", [row]), COLUMN).rows
    assert (bare.length, bare.category) == (None, None)


@pytest.mark.parametrize(
    ("changed", "expected"),
    [
        ({"judged": "true"}, "judge_label: must be true or false, without quotes"),
        ({"judged": 1}, "judge_label: must be true or false, without quotes"),
        ({"judged": None}, "judge_label: is missing; it is the field with the judge's decision"),
        ({"labels": [True, SECRET]}, "binary_labels.1: must be true or false, without quotes"),
        ({"labels": [True, 0]}, "binary_labels.1: must be true or false, without quotes"),
        (
            {"binary_labels": []},
            "binary_labels: must be a list of physicians' decisions such as [true, false]",
        ),
        (
            {"binary_labels": [True]},
            "anonymized_physician_ids: has 2 names, and binary_labels 1 decisions",
        ),
        (
            {"anonymized_physician_ids": ["x", "x"]},
            "anonymized_physician_ids: the same physician is named twice",
        ),
        ({"anonymized_physician_ids": ["x", 7]}, "anonymized_physician_ids.1: must be text"),
        (
            {"anonymized_physician_ids": SECRET},
            "anonymized_physician_ids: must be a list of names, one for each of binary_labels",
        ),
        (
            {"prompt": None},
            "prompt: is missing; prompt (or prompt_id) identifies the lines of one conversation",
        ),
        ({"prompt_id": 7}, "prompt_id: must be text"),
        ({"completion": [SECRET]}, "completion: must be text"),
        ({"category": f"{SECRET}\n"}, "category: must be one line of at most 200 characters"),
    ],
)
def test_a_mistake_has_its_line(changed: dict[str, Any], expected: str, tmp_path: Path) -> None:
    assert f"line 2: {expected}" in problems(tmp_path, line(), line(1, **changed), line(2))


def test_all_mistakes_at_once(tmp_path: Path) -> None:
    found = problems(
        tmp_path, line(judged="x"), line(1), line(2, ["a", "b"], None), line(3, category=None)
    )
    assert [problem.partition(":")[0] for problem in found] == [
        "line 1",
        "line 3",
        "line 3",
        "line 3",
        "line 4",
    ]
    says(found[-1], "line 4: category: ", "is missing", "1 other lines")


def test_two_physicians_are_needed_once(tmp_path: Path) -> None:
    (said,) = problems(tmp_path, line(0, [True]), line(1, [False]))
    says(said, "two physicians", "(binary_labels)")
    assert problems(tmp_path, line(0, [True]), line(1, [False, True])) == []


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "has no labels; each line is a JSON object"),
        (b"\n\n", "has no labels; each line is a JSON object"),
        (b"\n{\n", "line 2: is not JSON"),
        (b"[1]\n", 'line 1: must be a JSON object such as {"prompt": ...}'),
        ('{"prompt": "\u00e4"}'.encode("latin-1"), "line 1: is not UTF-8"),
        (b"\xff\xfe{\0", "is UTF-16"),
    ],
)
def test_what_is_no_file_of_labels(content: bytes, expected: str, tmp_path: Path) -> None:
    (tmp_path / "labels.jsonl").write_bytes(content)
    (found,) = read_labels(tmp_path / "labels.jsonl", COLUMN).problems
    assert found.startswith(expected)


def test_what_a_judge_is_asked_about(tmp_path: Path) -> None:
    rows = [
        line(3, judged=None, language="de"),
        line(4, judged=None, prompt="a question", language="en"),
    ]
    found = read_labels(written_labels(tmp_path / "labels.jsonl", rows), None)
    assert found.problems == []
    texts = [item.text for item in found.rows]
    assert texts[0] == LabelledAnswer(
        ({"role": "user", "content": f"{SECRET} asks 3"},), f"{SECRET} xxx", f"{SECRET} is greeted"
    )
    assert texts[1] is not None
    assert texts[1].messages == ({"role": "user", "content": "a question"},)
    assert [item.language for item in found.rows] == ["de", "en"]
    for changed, expected in (
        (
            {"prompt": None, "prompt_id": "x"},
            "prompt: is missing; the judge is shown the conversation",
        ),
        ({"prompt": [{"role": "doctor", "content": SECRET}]}, "prompt.0.role: must be one of"),
        (
            {"completion": None},
            "completion: is missing; the judge is shown the answer",
        ),
        ({"rubric": None}, "rubric: is missing"),
    ):
        told = read_labels(
            written_labels(tmp_path / "labels.jsonl", [line(judged=None, **changed)]), None
        ).problems
        assert told[0].startswith(f"line 1: {expected}"), told
        assert not any(SECRET in problem for problem in told)
    mixed = [line(1, language="de"), line(2)]
    each_says(problems(tmp_path, *mixed), ["line 2: language: ", "is missing", "1 other lines"])


@pytest.mark.parametrize("ids", [{"item_id": "i1"}, {"completion_id": "c1"}])
def test_lines_of_one_id_that_contradict_each_other(ids: dict[str, str], tmp_path: Path) -> None:
    first = line(3, [True, False], **ids)
    assert problems(tmp_path, first, line(3, [True, False], **ids)) == []
    assert problems(tmp_path, first, line(3, [True, True])) == []
    for other in (line(3, [True, True], **ids), line(3, [True, False], False, **ids)):
        (problem,) = problems(tmp_path, first, other)
        assert problem.startswith("line 2: ")
        assert "line 1" in problem


@pytest.mark.parametrize("ids", [{"item_id": "i1"}, {"item_id": 1}, {"completion_id": "c1"}])
@pytest.mark.parametrize(
    "changed", [{"prompt": "other"}, {"completion": "other"}, {"prompt_id": "other"}]
)
def test_one_id_is_of_one_item(
    ids: dict[str, Any], changed: dict[str, Any], tmp_path: Path
) -> None:
    (problem,) = problems(tmp_path, line(3, **ids), line(3, **ids, **changed))
    assert problem.startswith("line 2: ")
    assert "line 1" in problem


@pytest.mark.parametrize("other", [1, "1 ", "1"])
def test_an_id_is_one_with_and_without_quotes(other: str | int, tmp_path: Path) -> None:
    lines = [line(3, [True, True], item_id="1"), line(3, [True, False], item_id=other)]
    assert len(problems(tmp_path, *lines)) == 1
    for none in (True, 1.5, ["i1"], {"a": 1}):
        (problem,) = problems(tmp_path, line(3, item_id=none))
        assert "item_id" in problem


def test_a_number_that_no_float_holds_is_refused(tmp_path: Path) -> None:
    file = written_labels(tmp_path / "labels.jsonl", [line(3), line(4)])
    file.write_text(file.read_text().replace('"category"', '"more": 1e999, "category"', 1))
    (problem,) = read_labels(file, COLUMN).problems
    assert problem.startswith("line 1: ")


def test_a_key_that_an_object_has_twice(tmp_path: Path) -> None:
    file = written_labels(tmp_path / "labels.jsonl", [line(3), line(4)])
    text = file.read_text().replace(f'"{COLUMN}": true', f'"{COLUMN}": true, "{COLUMN}": false', 1)
    file.write_text(text)
    (problem,) = read_labels(file, COLUMN).problems
    assert problem.startswith("line 1: ")
    assert COLUMN in problem
