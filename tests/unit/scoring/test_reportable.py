"""Whether a score may be reported, and what the reader is told where it may not."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.core.results import Instances, TaskResult
from eval_factory.scoring.reportable import MARKERS, PROMPT, TOKENS, is_readable, is_reportable, why_not_reportable
from unit.scoring.test_collect import FOUR, result_of, state

TEN = Instances(requested=12, scored=10, failed=2, empty=0, truncated=0, filtered=0)


@pytest.mark.parametrize(("unreadable", "readable"), [(0, True), (1, True), (2, False), (10, False)])
def test_so_many_answers_may_say_nothing(unreadable: int, *, readable: bool) -> None:
    assert is_readable(replace(TEN, unreadable=unreadable), 0.1) is readable


def test_the_limit_may_be_all_or_none_of_them() -> None:
    assert replace(TEN, unreadable=1).unreadable_share == 0.1  # of the ten that came
    assert is_readable(replace(TEN, unreadable=10), 1.0)
    assert is_readable(TEN, 0.0)
    assert not is_readable(replace(TEN, unreadable=1), 0.0)
    assert is_readable(replace(TEN, requested=2, scored=0), 0.0)  # nothing was answered


def test_it_needs_a_main_score_and_enough_instances() -> None:
    assert is_reportable("m", ["m"], TEN, 10 / 12)
    assert not is_reportable("m", ["m"], TEN, 0.9)
    assert not is_reportable("m", ["other"], TEN, 0.0)


@pytest.fixture
def result(tmp_path: Path) -> TaskResult:
    made = result_of(tmp_path, states=[state(i, "yes") for i in range(4)], values={"exact_match": FOUR})
    return replace(made, reportable=False)


def told(result: TaskResult, **counts: int) -> list[str]:
    changed = replace(result, validity=replace(result.validity, instances=replace(TEN, **counts)))
    message = why_not_reportable(changed, 1.0, 0.1)
    assert message is not None
    return message.split("\n  ")


def test_what_to_set_follows_from_what_is_most_frequent(result: TaskResult) -> None:
    first, *advice = told(result, unreadable=9, unparsed=2, thinking_unfinished=4)
    assert first == (
        "NOT REPORTABLE: 9 of 10 answers say nothing that can be scored (4 cut off while the model was thinking, 3 empty,"
        " 2 not in the form that the benchmark asks for); max_unreadable is 0.1"
    )
    assert advice[:-1] == [TOKENS, PROMPT, MARKERS]
    assert "extra.max_unreadable accepts more" in advice[-1]
    first, *advice = told(result, unreadable=2, unparsed=2)
    assert "(2 not in the form that the benchmark asks for);" in first
    assert advice[:-1] == [PROMPT, MARKERS]


def test_what_to_set_is_named(result: TaskResult) -> None:
    text = "\n".join(told(result, unreadable=5, unparsed=2))
    for name in ("num_output_tokens", "start_reasoning_token", "end_reasoning_token", "custom_system_prompt"):
        assert name in text


def test_coverage_is_told_of_answers_that_can_be_read(result: TaskResult) -> None:
    assert told(result, unreadable=1, unparsed=1)[0].startswith("NOT REPORTABLE: coverage 0.8333, min_coverage is 1")
    assert why_not_reportable(replace(result, reportable=True), 1.0, 0.1) is None
