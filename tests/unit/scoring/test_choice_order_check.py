"""Answers by question and order -> shares, a score over all orders, its bounds."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import draft, plan
from eval_factory.core.results import ALL_ORDERS_SUFFIX
from eval_factory.helm import output
from eval_factory.scoring.choice_orders import NO_OPTION, ChoiceOrderCheck
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.readability import AnswerForm
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.choice_question import perturbation_of_order
from known import ends, near, there

SHUFFLED = {"config.type": "sample_medical_qa", "config.params.extra.shuffle_choices": 3}
CHOICES = ["heart", "liver"]


def metric(
    values: dict[str, float], order: int = 1, name: str = "exact_match", split: str = "test"
) -> MetricValues:
    """`q`: question q in the first trial."""
    perturbation = None if order == 1 else perturbation_of_order(order)
    keys: dict[InstanceKey, float] = {
        (question, 0, perturbation): value for question, value in values.items()
    }
    label = name if order == 1 else f"{name}@{split}+{perturbation}"
    return MetricValues(label, name, None, values=keys, split=split, perturbation=perturbation)


def run_of(folder: Path, pattern: str | None = None) -> output.HelmRun:
    adapter = {"method": "multiple_choice_joint", "output_mapping_pattern": pattern}
    return output.HelmRun(
        folder, output.StoredRunSpec.model_validate({"name": "x", "adapter_spec": adapter}), []
    )


def state(
    question: str, answer: str | None, order: int = 1, choices: list[str] = CHOICES, trial: int = 0
) -> tuple[InstanceKey, output.RequestState]:
    """`answer` None: it failed. The second order shows the choices the other way round."""
    perturbation = None if order == 1 else perturbation_of_order(order)
    shown = choices if order == 1 else choices[::-1]
    document: dict[str, Any] = {
        "instance": {
            "id": question,
            "input": {"text": "?"},
            "references": [{"output": {"text": text}} for text in shown],
            "perturbation": perturbation and {"name": perturbation},
        },
        "train_trial_index": trial,
        "request": {},
        "output_mapping": dict(zip("ABCD", shown, strict=False)),
        "result": {"success": answer is not None, "completions": [{"text": answer or ""}]},
    }
    return (question, trial, perturbation), output.RequestState.model_validate(document)


def check_of(folder: Path, *others: MetricValues, pattern: str | None = None) -> ChoiceOrderCheck:
    check, _ = ChoiceOrderCheck.of(plan(SHUFFLED), run_of(folder, pattern), others)
    assert check is not None
    return check


def completed(
    check: ChoiceOrderCheck, main: MetricValues | None, *missing: InstanceKey, as_zero: bool = False
) -> Draft:
    found = draft(main_values=main, missing=set(missing), missing_as_zero=as_zero)
    check.compare(found)
    return found


def test_a_run_without_it_has_nothing_to_check(tmp_path: Path) -> None:
    metrics = [metric({"a": 1.0}), metric({"a": 0.0}, order=2)]
    assert ChoiceOrderCheck.of(plan(), run_of(tmp_path), metrics) == (None, metrics)


def test_what_is_of_other_orders_is_no_score_of_the_run(tmp_path: Path) -> None:
    original = metric({"a": 1.0})
    second = metric({"a": 0.0}, order=2)
    worst = MetricValues("w", "exact_match", None, perturbation=f"{perturbation_of_order(2)}.worst")
    check, kept = ChoiceOrderCheck.of(plan(SHUFFLED), run_of(tmp_path), [original, second, worst])
    assert check is not None
    assert (kept, list(check.by_order)) == ([original], [second])
    assert check.values_of(original) == {1: original, 2: second}
    assert (
        check.values_of(metric({}, name="other")).keys()
        == check.values_of(metric({}, split="valid")).keys()
        == {1}
    )


def test_answers_are_compared_by_their_text(tmp_path: Path) -> None:
    check = check_of(tmp_path, metric({"a": 1.0, "b": 0.0, "c": 0.0, "d": 1.0}, order=2))
    for one in (
        state("a", "A"),
        state("a", "B", 2),  # heart both times
        state("b", "A"),
        state("b", "A", 2),  # the letter is the same, the answer is not
        state("c", " B\n"),
        state("c", "heart", 2),  # the second names no letter
        state("d", "A"),
        state("d", None, 2),  # one answer alone cannot change
        state("e", "C", choices=[*CHOICES, "None of the above"]),
    ):
        check.see(*one)
    check.see(("a", 0, "robustness"), state("a", "A")[1])
    main = metric({"a": 1.0, "b": 1.0, "c": 0.0, "d": 1.0, "e": 0.0})
    found = there(check.order_report(main, {("d", 0, perturbation_of_order(2))}))
    assert (found.orders, found.questions) == (3, 4)
    assert found.kept == {"a choice refers to others": 1}
    assert found.letters == {"A": 4, "B": 2, "C": 1, NO_OPTION: 1}
    changed = there(found.changed)
    right = there(found.right_in_all)
    assert (changed.value, changed.count) == (near(2 / 3), 3)
    assert (right.value, right.count) == (near(1 / 3), 3)
    assert found.by_order == {"1": 0.75, "2": near(1 / 3)}
    low, high = ends(changed)
    assert low < 2 / 3 < high


def test_a_label_is_found_as_helm_finds_it(tmp_path: Path) -> None:
    check = check_of(tmp_path, pattern="answer is ([A-D])")
    for one in (state("a", "The answer is A."), state("a", "The answer is B.", 2), state("b", "A")):
        check.see(*one)
    assert check.letters == {"A": 1, "B": 1, NO_OPTION: 1}
    found = there(check.order_report(None, set()))
    assert (there(found.changed).value, found.by_order, found.right_in_all) == (0.0, {}, None)


def test_questions_that_share_a_source_and_trials_do_not_count_as_independent(
    tmp_path: Path,
) -> None:
    check = check_of(tmp_path, metric({}, order=2))
    for number in range(8):
        for order in (1, 2):
            check.see(*state(f"q{number}", "A" if number < 4 else "AB"[order - 1], order))
    alone = metric({})
    shared = metric({})
    shared.clusters = {f"q{number}": f"source {number // 4}" for number in range(8)}
    one, other = (there(there(check.order_report(main, set())).changed) for main in (alone, shared))
    assert one.value == other.value == 0.5
    assert ends(other)[0] < ends(one)[0]


def test_the_score_over_all_orders_weighs_questions_alike(tmp_path: Path) -> None:
    check = check_of(tmp_path, metric({"a": 0.0}, order=2), metric({"a": 0.0}, order=3))
    found = completed(check, metric({"a": 1.0, "b": 1.0}))
    label = f"exact_match{ALL_ORDERS_SUFFIX}"
    score = found.scores[label]
    assert (score.value, score.stats.count) == (near(2 / 3), 2)
    assert (score.metric, score.split, score.perturbation, score.higher_is_better) == (
        label,
        "test",
        None,
        True,
    )
    assert found.bounds[label] == (score.value, score.value)
    main = metric({"a": 1.0})
    main.label = "exact_match@valid"
    assert list(completed(check, main).scores) == [f"{label}@valid"]


@pytest.mark.parametrize(("as_zero", "value"), [(False, 1.0), (True, 0.75)])
def test_an_order_without_an_answer(tmp_path: Path, *, as_zero: bool, value: float) -> None:
    check = check_of(tmp_path, metric({"a": 0.0, "b": 1.0}, order=2))
    found = completed(
        check,
        metric({"a": 1.0, "b": 1.0}),
        ("a", 0, perturbation_of_order(2)),
        ("z", 0, None),
        as_zero=as_zero,
    )
    assert found.scores[f"exact_match{ALL_ORDERS_SUFFIX}"].value == value
    assert found.bounds[f"exact_match{ALL_ORDERS_SUFFIX}"] == (0.75, 1.0)


def test_without_any_answer_there_is_no_score(tmp_path: Path) -> None:
    check = check_of(tmp_path)
    assert (
        completed(check, metric({"a": 0.0}), ("a", 0, None)).scores
        == completed(check, None).scores
        == {}
    )


def test_an_order_whose_answer_cannot_be_read_is_neither_right_nor_changed(tmp_path: Path) -> None:
    letters = AnswerForm(
        "the letter of an option alone",
        lambda one, answer: answer.strip() in (one.output_mapping or {}),
        lambda one: one.output_mapping or {},
    )
    check = check_of(tmp_path, metric({"a": 0.0, "b": 0.0}, order=2))
    check.right = RightAnswers(letters, None)
    for one in (
        state("a", "A. heart"),
        state("a", "Let me think", 2),
        state("b", "A. heart"),
        state("b", "It is B.", 2),
    ):
        check.right.see(*one)
        check.see(*one)
    found = there(check.order_report(metric({"a": 0.0, "b": 0.0}), set()))
    changed = there(found.changed)
    right = there(found.right_in_all)
    assert (changed.value, changed.count) == (0.0, 1)
    assert right.count == 1


def test_beside_what_the_order_changes_stands_what_the_same_words_change(tmp_path: Path) -> None:
    check = check_of(tmp_path, metric({"a": 0.0, "b": 0.0}, order=2))
    letters = AnswerForm(
        "the letter of an option alone",
        lambda one, answer: answer.strip() in (one.output_mapping or {}),
        lambda one: one.output_mapping or {},
    )
    check.right = RightAnswers(letters, None)
    for question in ("a", "b"):
        for order in (1, 2):
            key, asked = state(question, "A", order)
            check.right.see(key, asked)
            check.see(key, asked)
    for question, answer in (("a", "A"), ("b", "B")):
        key, asked = state(question, answer)
        check.right.see((*key[:2], "same_words_100"), asked)
    report = check.order_report(metric({"a": 0.0, "b": 0.0}), set())
    assert (there(report.changed).value, there(report.same_words).value) == (1.0, 0.5)
