"""Every mistake in a file of cases is said with its line and field, and never with what stands there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval_factory.tasks.message_files import (
    EVAL_FACTORY_FORM,
    HEALTHBENCH_FORM,
    FileForm,
    read_rubric_file,
)
from eval_factory.tasks.rubric_case import Criterion
from facts import each_says, says

SECRET = "Mrs Example, 12 High Street"
USER = {"role": "user", "content": SECRET}
GOOD: dict[str, Any] = {
    "id": "a",
    "messages": [USER],
    "rubrics": [{"criterion": "Says it", "points": 5}],
}
PUBLISHED = {
    "prompt_id": "p1",
    "prompt": [USER],
    "example_tags": ["theme:x"],
    "canary": "canary GUID",
    "rubrics": [{"criterion": "c", "points": 3, "tags": ["axis:accuracy"], "more": 1}],
    "ideal_completions_data": None,
}


def written(folder: Path, *rows: Any) -> Path:
    file = folder / "cases.jsonl"
    file.write_text(
        "".join((row if isinstance(row, str) else json.dumps(row)) + "\n" for row in rows), "utf-8"
    )
    return file


def problems(folder: Path, *rows: Any, form: FileForm = EVAL_FACTORY_FORM) -> list[str]:
    return read_rubric_file(written(folder, *rows), form).problems


def test_a_sound_file(tmp_path: Path) -> None:
    more = {
        **GOOD,
        "id": "b",
        "rubrics": [{"criterion": "\ud7ff \ue000 \U0001f600", "points": 1}],
        "reference": "So",
        "cluster": "n",
        "tags": ["t"],
        "canary": "no",
    }
    found = read_rubric_file(
        written(tmp_path, {**GOOD, "cluster": "n"}, "", more), EVAL_FACTORY_FORM
    )
    assert found.problems == []
    one, two = found.rows
    assert (one.id, one.criteria, one.messages) == ("a", (Criterion("Says it", 5),), (USER,))
    assert (two.id, two.reference, two.cluster, two.tags, two.canary) == (
        "b",
        "So",
        "n",
        ("t",),
        "no",
    )


def test_the_published_form(tmp_path: Path) -> None:
    (case,) = read_rubric_file(written(tmp_path, PUBLISHED), HEALTHBENCH_FORM).rows
    assert (case.id, case.messages, case.tags, case.canary) == (
        "p1",
        (USER,),
        ("theme:x",),
        "canary GUID",
    )
    assert case.criteria == (Criterion("c", 3, ("axis:accuracy",)),)
    assert (case.reference, case.cluster) == (None, None)


NO_SCORE = "line 1: rubrics: no criterion has positive points, so no score can be computed"


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        (
            {
                "prompt": [{**USER, "content": ""}],
                "more": 1,
                "rubrics": [{"criterion": "c", "points": 0}, {"criterion": "d", "points": 1}],
            },
            [],
        ),
        ({"prompt": [{"role": "user"}]}, ["line 1: prompt.0.content: is missing"]),
        *(({"rubrics": [{"criterion": "c", "points": points}]}, [NO_SCORE]) for points in (0, -4)),
    ],
)
def test_of_published_data_only_that_is_refused_which_cannot_be_scored(
    changed: dict[str, Any], said: list[str], tmp_path: Path
) -> None:
    assert problems(tmp_path, {**PUBLISHED, **changed}, form=HEALTHBENCH_FORM) == said


def rubric(**one: Any) -> dict[str, Any]:
    return {"rubrics": [{"criterion": "x", "points": 5, **one}]}


LIST_OF_MESSAGES = (
    'messages: must be a list of messages such as [{"role": "user", "content": "..."}]'
)
HALF = "holds half a surrogate pair (\\ud800 to \\udfff), which is not a character"
LIST_OF_CRITERIA = (
    'rubrics: must be a list of criteria such as [{"criterion": "...", "points": 5, "tags": []}]'
)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"id": None}, "id: is missing"),
        ({"id": 7}, "id: must be text"),
        ({"id": " "}, "id: is empty"),
        ({"id": "x" * 201}, "id: must be one line of at most 200 characters"),
        ({"id": "a\nb"}, "id: must be one line of at most 200 characters"),
        ({"messages": None}, LIST_OF_MESSAGES),
        ({"messages": []}, LIST_OF_MESSAGES),
        ({"messages": ["x"]}, "messages.0: must be an object with role and content"),
        (
            {"messages": [{**USER, "role": "doctor"}]},
            "messages.0.role: must be one of system, developer, user, assistant",
        ),
        (
            {"messages": [USER, {**USER, "role": "system"}, USER]},
            "messages.1.role: a system message can only be the first",
        ),
        ({"messages": [{**USER, "content": 1}]}, "messages.0.content: must be text"),
        ({"messages": [{**USER, "content": ""}]}, "messages.0.content: is empty"),
        (
            {"messages": [USER, {**USER, "role": "assistant"}]},
            (
                "messages.1.role: the last message must be the user's, because the model answers "
                "this message"
            ),
        ),
        ({"rubrics": {}}, LIST_OF_CRITERIA),
        ({"rubrics": []}, LIST_OF_CRITERIA),
        ({"rubrics": ["x"]}, "rubrics.0: must be an object with criterion and points"),
        (rubric(criterion=None), "rubrics.0.criterion: is missing"),
        *(
            (rubric(criterion=half), f"rubrics.0.criterion: {HALF}")
            for half in ("\ud800", "Mrs \udfff", "\udabc.")
        ),
        (
            {"messages": [{**USER, "name": "Mrs Example"}]},
            "messages.0.name: is not a known field; known fields: role, content",
        ),
        (rubric(points=None), "rubrics.0.points: is missing"),
        (
            rubric(points="5"),
            "rubrics.0.points: must be a number; negative points are for what an answer should not do",
        ),
        (
            rubric(points=True),
            "rubrics.0.points: must be a number; negative points are for what an answer should not do",
        ),
        (rubric(points=0), "rubrics.0.points: must not be 0, and at most 1000000 above or below 0"),
        (
            rubric(points=10**400),
            "rubrics.0.points: must not be 0, and at most 1000000 above or below 0",
        ),
        (
            rubric(points=1_000_001),
            "rubrics.0.points: must not be 0, and at most 1000000 above or below 0",
        ),
        (
            rubric(points=-3),
            "rubrics: no criterion has positive points, so no score can be computed",
        ),
        (
            rubric(tags="axis:x"),
            'rubrics.0.tags: must be a list of texts such as ["axis:accuracy"]',
        ),
        (rubric(tags=["a", ""]), "rubrics.0.tags.1: is empty"),
        (rubric(pionts=1), "rubrics.0.pionts: is not a known field, did you mean 'points'?"),
        ({"tags": [1]}, "tags.0: must be text"),
        ({"reference": ""}, "reference: is empty"),
        ({"cluster": 5}, "cluster: must be text"),
        (
            {"zzz": 1},
            (
                "zzz: is not a known field; known fields: id, messages, rubrics, reference, "
                "cluster, tags, canary, answer, sample"
            ),
        ),
    ],
)
def test_a_mistake_is_said_with_its_field(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    found = problems(tmp_path, {**GOOD, **change})
    assert found == [f"line 1: {said}"]
    assert SECRET not in "".join(found)


def test_lines_that_are_no_objects(tmp_path: Path) -> None:
    found = problems(
        tmp_path, GOOD, "[1]", "{", '{"id": NaN}', {**GOOD, "id": "z"}, GOOD, "[" * 100_000
    )
    each_says(
        found,
        ["line 2", "a JSON object"],
        ["line 3", "is not JSON"],
        ["line 4", "is not JSON", "NaN, Infinity"],
        ["line 6: id: ", "in line 1"],
        ["line 7", "is not JSON", "too many levels"],
    )


def test_files_that_hold_no_cases_or_a_cluster_of_some(tmp_path: Path) -> None:
    (said,) = problems(tmp_path, {**GOOD, "cluster": "n"}, {**GOOD, "id": "b"})
    says(said, "line 2: cluster: ", "is missing", "1 other cases")
    each_says(problems(tmp_path, ""), ["no cases", "a JSON object"])
    file = tmp_path / "other"
    file.write_bytes(b"PK\x03\x04...")
    assert "ZIP" in read_rubric_file(file, EVAL_FACTORY_FORM).problems[0]
    file.write_bytes(b'{"id": "\xe9"}\n')
    says(read_rubric_file(file, EVAL_FACTORY_FORM).problems[0], "line 1", "not UTF-8")
    with pytest.raises(FileNotFoundError):
        read_rubric_file(tmp_path / "none", EVAL_FACTORY_FORM)
