"""Conversations in the place of a table: every mistake is said with its line and field, never with what stands there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import evaluation
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.conversations import (
    Conversation,
    holds_conversations,
    read_conversations,
    right_letters_of,
    usable_fields,
)
from eval_factory.tasks.custom_benchmark import Benchmark, load_benchmark
from eval_factory.tasks.rubric_case import RUBRIC_RUN_SPEC
from facts import each_says, says

SECRET = "Mrs Example, 12 High Street"
TURNS = [
    {"role": "user", "content": SECRET},
    {"role": "assistant", "content": "So?"},
    {"role": "user", "content": "B?"},
]
ROW: dict[str, Any] = {"messages": TURNS, "correct_answer": "B"}
JUDGE_PROMPT = (
    "Rate {RESPONSE} to {QUESTION}; right is {GOLD_RESPONSE}.\n"
    '<rubric_criteria>\n{"accuracy": ["score", "explanation"]}\n</rubric_criteria>\n'
)
JURY = {"name": "jury_score", "prompt_file": "judge.txt"}


def written(folder: Path, *rows: Any) -> Path:
    file = folder / "rows.jsonl"
    file.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8"
    )
    return file


def loaded(
    folder: Path, *rows: Any, metrics: Any = ({"name": "exact_match"},), **more: Any
) -> Benchmark:
    written(folder, *rows)
    (folder / "judge.txt").write_text(JUDGE_PROMPT, "utf-8")
    shape = {
        "name": "mine",
        "description": "d",
        "dataset_file": "rows.jsonl",
        "metrics": list(metrics),
        **more,
    }
    (folder / "bench.yaml").write_text(yaml.safe_dump(shape), "utf-8")
    return load_benchmark(folder / "bench.yaml")


def problems(folder: Path, *rows: Any, **more: Any) -> list[str]:
    with pytest.raises(ConfigError) as raised:
        loaded(folder, *rows, **more)
    assert SECRET not in str(raised.value)
    return [problem.replace(f"{folder}/", "") for problem in raised.value.problems]


def test_a_sound_file(tmp_path: Path) -> None:
    names = ("a.jsonl", "A.JSONL", "a.csv", "jsonl", 7, None)
    assert [holds_conversations(name) for name in names] == [True, True, False, False, False, False]
    more = {
        **ROW,
        "id": "a",
        "incorrect_answers": ["A"],
        "cluster": "n",
        "age": 71,
        "well": True,
        "ward": None,
    }
    file = written(tmp_path, "", more)
    file.write_bytes(b"\xef\xbb\xbf" + file.read_bytes().replace(b"\n", b"\r\n"))
    found = read_conversations(file)
    others = {"cluster": "n", "age": "71", "well": "True"}
    assert (found.rows, found.problems) == (
        [Conversation(tuple(TURNS), "a", "B", ("A",), others)],
        [],
    )
    assert (found.lines, usable_fields(found.rows)) == (
        [2],
        ["id", "correct_answer", "incorrect_answers", "cluster"],
    )


def test_a_benchmark_of_them(tmp_path: Path) -> None:
    found = loaded(
        tmp_path, {**ROW, "cluster": "x"}, {**ROW, "cluster": "x", "correct_answer": "A"}
    )
    assert (found.instances, found.has_conversations, found.has_clusters, found.has_jury) == (
        2,
        True,
        True,
        False,
    )
    assert set(found.sha256) == {"bench.yaml", "rows.jsonl"}
    says(found.notes[0], "1 of 2 lines", "rows.jsonl", "line 2 as 1")
    says(found.notes[1], "1 of 2 lines", "rows.jsonl (first: line", "quasi metrics")
    task = evaluation(
        {"config.type": "custom", "config.params.extra.benchmark": str(found.path)}
    ).task
    assert (task.helm.run_spec, task.helm.zero_shot, task.helm.rubric) == (
        "eval_factory_conversations",
        True,
        False,
    )
    assert task.helm.run_spec != RUBRIC_RUN_SPEC
    assert task.endpoint_types == ("chat",)


def test_a_jury_needs_no_right_answers(tmp_path: Path) -> None:
    found = loaded(tmp_path, ROW, metrics=[JURY])
    assert (found.has_jury, found.has_conversations, found.has_clusters, found.notes) == (
        True,
        True,
        False,
        (),
    )
    each_says(
        problems(tmp_path, {"messages": TURNS}, metrics=[JURY]),
        ["judge.txt: ", "{GOLD_RESPONSE}", "no column correct_answer"],
    )


MISSING = "rows.jsonl: line 2: {}: is missing, and 1 other lines have one; all have it or none has"


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([], "rows.jsonl: has no conversations; each line is a JSON object"),
        (["[1]"], 'rows.jsonl: line 1: must be a JSON object such as {"messages": ...}'),
        (
            [{"messages": TURNS}],
            "rows.jsonl: line 1: correct_answer: is missing, but exact_match needs it",
        ),
        (
            [{**ROW, "incorrect_answers": "A"}],
            'rows.jsonl: line 1: incorrect_answers: must be a list of texts such as ["B", "C"]',
        ),
        (
            [{**ROW, "incorrect_answers": ["A", 1]}],
            "rows.jsonl: line 1: incorrect_answers.1: must be text",
        ),
        (
            [{**ROW, "incorrect_answers": ["A", " B "]}],
            "rows.jsonl: line 1: incorrect_answers.1: is the same as correct_answer",
        ),
        ([{**ROW, "id": 5}], "rows.jsonl: line 1: id: must be text"),
        ([{**ROW, "cluster": ""}], "rows.jsonl: line 1: cluster: is empty"),
        (
            [{**ROW, "note": ["x"]}],
            (
                "rows.jsonl: line 1: note: must be text or a number; it is stored with the "
                "instance's results"
            ),
        ),
        (
            [{**ROW, "id": "a"}, {**ROW, "id": "a"}],
            (
                "rows.jsonl: line 2: id: is the same as in line 1; the results identify the "
                "instance by this field, so each value must be unique"
            ),
        ),
        ([{**ROW, "id": "a"}, ROW], MISSING.format("id")),
        ([{**ROW, "cluster": "a"}, ROW], MISSING.format("cluster")),
    ],
)
def test_what_is_wrong_is_said_with_line_and_field(
    tmp_path: Path, rows: list[Any], said: str
) -> None:
    assert problems(tmp_path, *rows) == [said]


def test_letters_are_of_all_rows_or_of_none() -> None:
    """The letters are put beside the rows, one by one."""
    turn = {"role": "user", "content": "Which?\nA. fever\nB. cough"}
    rows = [Conversation((turn,), correct=right) for right in ("B. cough", "A. fever")]
    assert right_letters_of(rows) == ["B", "A"]
    assert right_letters_of([rows[0], Conversation((turn,)), rows[1]]) == []


def choice(answer: str) -> dict[str, Any]:
    return {
        "messages": [{"role": "user", "content": f"{SECRET}?\nA. wait\nB. go"}],
        "correct_answer": answer,
    }


def test_a_right_answer_is_one_of_the_options(tmp_path: Path) -> None:
    said = (
        "correct_answer: is none of the options that the prompt lists (A, B); write the letter of"
    )
    rows = (choice("A"), choice("C"), choice("b"), choice("other"), choice("wait"))
    for line, problem in zip((2, 3, 4), problems(tmp_path, *rows), strict=True):
        assert problem.startswith(f"rows.jsonl: line {line}: {said}")
    (problem,) = problems(tmp_path, {**ROW, "correct_answer": "b", "incorrect_answers": ["A", "C"]})
    says(problem, "rows.jsonl: line 1", "correct_answer: ", "write the letter")
    assert loaded(tmp_path, choice("C"), metrics=[JURY]).instances == 1


def test_right_answers_of_a_known_form_are_mapped_and_others_refused(tmp_path: Path) -> None:
    content = "Which?\nA. fever\nB. cough"
    turn = {"role": "user", "content": content}
    rows = [{"messages": [turn], "correct_answer": right} for right in ("2", "1", "2")]
    rows[1]["messages"] = [{"role": "user", "content": content + "\nC. rash"}]
    rows[2]["messages"] = [{"role": "user", "content": content + "\nC. pain"}]
    (note,) = loaded(tmp_path, *rows).notes
    says(note, "rows.jsonl", "numbers from 1", "letter")
    unknown = [{**row, "correct_answer": "x1"} for row in rows]
    assert len(problems(tmp_path, *unknown)) == 3


def test_a_right_option_without_text_or_with_anothers_is_named(tmp_path: Path) -> None:
    empty = {"role": "user", "content": "Which?\nA. fever\nB.\nC. rash"}
    (problem,) = problems(tmp_path, {"messages": [empty], "correct_answer": "B"})
    says(problem, "line 1", "empty")
    equal = {"role": "user", "content": "Which?\nA. fever\nB. fever"}
    (note,) = loaded(tmp_path, {"messages": [equal], "correct_answer": "B"}).notes
    says(note, "line 1", "A and B")


def test_mistakes_that_are_no_lines_own(tmp_path: Path) -> None:
    found = problems(tmp_path, *["{"] * 13)
    assert len(found) == 11
    says(found[-1], "rows.jsonl: 3 more")
    each_says(
        problems(tmp_path, ROW, prompt_file="prompt.txt"),
        ["bench.yaml: prompt_file: ", "leave it out", "rows.jsonl"],
    )
    (said,) = problems(
        tmp_path, {**ROW, "incorrect_answers": ["A"]}, ROW, metrics=[{"name": "rouge_l"}]
    )
    says(said, "rows.jsonl: ", "rouge_l", "an incorrect answer")


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("none.jsonl", None, "no such file"),
        (
            "latin.jsonl",
            json.dumps(ROW).encode() + b"\n\xff\n",
            "latin.jsonl: line 2: is not UTF-8",
        ),
        ("zip.jsonl", b"PK\x03\x04", "zip.jsonl: is an Excel or Word file"),
    ],
)
def test_a_file_that_is_not_there_or_no_text(
    name: str, content: bytes | None, said: str, tmp_path: Path
) -> None:
    if content is not None:
        (tmp_path / name).write_bytes(content)
    assert said in problems(tmp_path, ROW, dataset_file=name)[0]


def test_answers_that_are_there_are_declared_and_complete(tmp_path: Path) -> None:
    row = {**ROW, "answer": ""}
    assert not loaded(tmp_path, row).has_answers, "a field's name alone declares nothing"
    assert loaded(tmp_path, row, has_answers=True).has_answers
    says(problems(tmp_path, row, ROW, has_answers=True)[0], "line 2", "answer", "missing")
