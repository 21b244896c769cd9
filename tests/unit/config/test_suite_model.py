from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from eval_factory.config.suite_model import _MAX_NAME_LENGTH, CellPattern, EvaluationEntry, SuiteSection, TargetEntry
from eval_factory.core.rundir import RESERVED_NAMES


@pytest.mark.parametrize("name", ["a", "_a", "9", "gpt-4.1_mini", "A" * _MAX_NAME_LENGTH])
def test_names_that_every_file_system_takes(name: str) -> None:
    assert TargetEntry(name=name).name == name
    assert EvaluationEntry(type="medec", name=name).name == name


@pytest.mark.parametrize("name", ["", " ", ".a", "-a", "a b", "a/b", "..", "ä", "a\n", "A" * (_MAX_NAME_LENGTH + 1)])
def test_names_that_are_no_folder(name: str) -> None:
    with pytest.raises(ValidationError):
        TargetEntry(name=name)
    with pytest.raises(ValidationError):
        EvaluationEntry(type="medec", name=name)


@pytest.mark.parametrize("name", [*sorted(RESERVED_NAMES), "suite_results", "SUITE_x"])
def test_a_target_has_no_name_of_the_suites_own_files(name: str) -> None:
    with pytest.raises(ValidationError):
        TargetEntry(name=name)


@pytest.mark.parametrize("part", ["evaluation", "target", "variant"])
def test_a_key_stands_in_no_pattern(part: str) -> None:
    assert CellPattern(**{part: "gpt-*"}).model_dump()[part] == "gpt-*"
    with pytest.raises(ValidationError, match="looks like a key"):
        CellPattern(**{part: "sk-canary0123456789abcdef"})


def test_a_key_names_no_group_of_limits() -> None:
    assert TargetEntry(name="a", limit_group="our cluster").limit_group == "our cluster"
    with pytest.raises(ValidationError, match="would be written into files"):
        TargetEntry(name="a", limit_group="sk-canary0123456789abcdef")


@pytest.mark.parametrize(
    "entry", [{}, {"params": {}}, {"select": {}, "type": "medec"}, {"select": {}, "name": "x"}], ids=str
)
def test_an_evaluation_is_one_task_or_a_selection(entry: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        EvaluationEntry.model_validate(entry)


@pytest.mark.parametrize(
    "entry", [{"name": "x"}, {"type": "medec"}, {"select": {"tags": ["sql"]}, "params": {}}], ids=str
)
def test_what_an_evaluation_needs(entry: dict[str, Any]) -> None:
    assert EvaluationEntry.model_validate(entry)


def test_the_name_of_a_task_alone_is_an_evaluation() -> None:
    (entry,) = SuiteSection.model_validate({"evaluations": ["medec"]}).evaluations or []
    assert entry.type == "medec"


@pytest.mark.parametrize("key", ["evaluation", "target", "variant"])
def test_a_pattern_says_something(key: str) -> None:
    assert CellPattern.model_validate({key: "*"})
    with pytest.raises(ValidationError):
        CellPattern()


@pytest.mark.parametrize(
    ("key", "right", "wrong"),
    [
        ("max_processes", 256, [0, 257, True, 1.5]),
        ("max_attempts", 1, [0, 101]),
        ("max_outage_s", 0.5, [0, -1, 367 * 24 * 3600, True]),
        ("max_cost", 0.001, [0, -1, float("inf"), True]),
        ("max_requests", 1, [0, 1.5]),
        ("max_tokens_total", 10**12, [0, 10**12 + 1]),
        ("max_wall_s", 1, [0, "1s"]),
    ],
)
def test_limits(key: str, right: float, wrong: list[Any]) -> None:
    assert getattr(SuiteSection.model_validate({key: right}), key) == right
    for value in wrong:
        with pytest.raises(ValidationError):
            SuiteSection.model_validate({key: value})
