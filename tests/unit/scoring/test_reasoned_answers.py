"""Reasoned answers -> the main metric: the last line goes before what the reasoning says."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.helm import output
from eval_factory.scoring.readability import AnswerForm
from eval_factory.scoring.reasoned_answers import fill_in_reasoned_metrics, reasoned_form
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.scores import InstanceKey, MetricValues

LETTERS = AnswerForm(
    "the letter of an option alone",
    lambda state, answer: answer.strip() in (state.output_mapping or {}),
    lambda state: state.output_mapping or {},
)
VALUE = AnswerForm("the value alone, without its unit", lambda _state, _answer: True)


def state(answer: str, gold: str = "heart", **extra: Any) -> output.RequestState:
    document: dict[str, Any] = {
        "instance": {
            "id": "q",
            "input": {"text": "?"},
            "references": [{"output": {"text": gold}, "tags": ["correct"]}],
            "extra_data": extra,
        },
        "train_trial_index": 0,
        "request": {},
        "output_mapping": {"A": "heart", "B": "liver"},
        "result": {"success": True, "completions": [{"text": answer}]},
    }
    return output.RequestState.model_validate(document)


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        ("The liver filters, but this beats: B is wrong.\nAnswer: A", True),
        ("It is the heart, A.\nAnswer: B", False),
        ("I conclude that the answer is A.", True),
    ],
)
def test_the_last_line_decides_where_there_is_one(answer: str, is_right: bool) -> None:
    form = reasoned_form(LETTERS)
    assert form is not None
    rated = form.option_and_rightness(state(answer), answer)
    assert rated is not None
    assert rated[1] is is_right
    assert form.reads(state(answer), answer)
    assert not form.reads(state("Hm"), "Hm")


@pytest.mark.parametrize(
    ("answer", "rated"),
    [
        ("72 kg over 1.8 m squared is 22.2.\nAnswer: 22.2", ("22.2", True)),
        ("Answer: 25 kg/m2", ("25 kg/m2", False)),
        ("I cannot compute it", None),
    ],
)
def test_a_value_is_right_within_the_benchmarks_limits(
    answer: str, rated: tuple[str, bool] | None
) -> None:
    form = reasoned_form(VALUE)
    assert form is not None
    limits = {"category": "physical", "lower_limit": "21.0", "upper_limit": "23.3"}
    assert form.option_and_rightness(state(answer, "22.2", **limits), answer) == rated


def test_the_metric_counts_an_answer_that_no_rule_reads_as_wrong() -> None:
    right = RightAnswers(LETTERS, None, reasoned_form(LETTERS))
    keys: list[InstanceKey] = [("a", 0, None), ("b", 0, None), ("c", 0, None)]
    for key, answer in zip(keys, ("So.\nAnswer: A", "Answer: B", "Hm"), strict=True):
        right.see(key, state(answer))
    helm = MetricValues("exact_match", "exact_match", 0.0, values=dict.fromkeys(keys, 0.0))
    reasoned = MetricValues("exact_match.reasoned", "exact_match.reasoned", None)
    fill_in_reasoned_metrics([helm, reasoned], right)
    assert list(reasoned.values.values()) == [1.0, 0.0, 0.0]
    assert right.is_read_by_reader
