"""Labels found in answers, and the metric made of them."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.scoring.lenient import label_in, lenient_metrics
from eval_factory.scoring.metric_values import InstanceKey, MetricValues

LABELS = ("A", "B", "C", "D")


@pytest.mark.parametrize(
    "answer",
    [
        "B.", "(B)", "**B**", "The answer is B", "The answer is (B).", "B) Left ventricle", "Answer: B", "answer:\n B",
        "The answer is **B**. Option A is too small.", "$\\boxed{B}$", "\\boxed{\\text{B}}", "_B_", "`B`", "\\(B\\)",
        "Answer: A, no, Answer: B\nAnswer: C", "It is not A but B", "A is wrong.\nB", "ANSWER: B",
        "The answer is (B) as Answer: C is not",
    ],
)  # fmt: skip
def test_the_label_that_an_answer_means(answer: str) -> None:
    assert label_in(answer, LABELS) == "B"


@pytest.mark.parametrize("answer", ["", "?", "E", "b", "The answer is Bupropion", "Answer: Digoxin", "AB", "BB."])
def test_none_is_found_in_what_names_none(answer: str) -> None:
    assert label_in(answer, LABELS) is None


def test_the_labels_are_the_questions_own() -> None:
    assert label_in("The answer is E, not B", ("A", "B")) == "B"
    assert label_in("1.", ("0", "1")) == "1"
    assert label_in("B", ()) is None
    assert label_in("Answer: 10", ("1", "10")) == "10"


def metric(label: str, name: str = "exact_match", **more: Any) -> MetricValues:
    values: dict[InstanceKey, float] = {("a", 0, None): 1.0, ("b", 0, None): 0.0}
    return MetricValues(label, name, 0.5, merged=False, values=values, **more)


def test_the_metric_stands_beside_each_split_of_what_is_not_perturbed() -> None:
    metrics = [
        metric("exact_match", split="test"), metric("exact_match@valid", split="valid"),
        metric("exact_match@test+typos", split="test", perturbation="typos"), metric("quasi_exact_match", "quasi_exact_match"),
        MetricValues("exact_match@train", "exact_match", 0.5, merged=False),
    ]  # fmt: skip
    found = lenient_metrics(metrics, {("b", 0, None): 1.0})
    assert [(one.label, one.name, one.split, one.perturbation) for one in found] == [
        ("exact_match.lenient", "exact_match.lenient", "test", None),
        ("exact_match.lenient@valid", "exact_match.lenient", "valid", None),
    ]
    assert (found[0].helm_mean, found[0].merged) == (None, True)
    assert found[0].values == {("a", 0, None): 0.0, ("b", 0, None): 1.0}
