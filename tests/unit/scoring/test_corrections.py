"""Instances and their answers -> corrected values, contexts for their scores, and what a reader is told."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.helm import output
from eval_factory.scoring.correction_rules import Case, Rule
from eval_factory.scoring.corrections import Corrections
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.tasks.errata import Erratum, load_errata
from unit.builders import plan


def key(number: int) -> InstanceKey:
    return (f"id{number}", 0, None)


def context(label: str = "em", count: int = 9, **more: Any) -> MetricValues:
    """HELM's values: each instance has its number."""
    values = {key(number): float(number) for number in range(count)}
    return MetricValues(label, label, 0.0, merged=False, values=values, **more)


def erratum(name: str = "e", metric: str = "em", upstream: str | None = None) -> Erratum:
    return Erratum(
        id=name, run_specs=("r",), defect=f"{name} is wrong", upstream=upstream, metric=metric,
        rule="medec_sentence", corrected=f"{name} is right",
    )  # fmt: skip


def corrections(rule: Rule, *errata: Erratum, **contexts: MetricValues) -> Corrections:
    known = errata or (erratum(),)
    return Corrections(7, known, {one.id: rule for one in known}, contexts or {"em": context()})


def state(number: int = 0, **instance: Any) -> output.RequestState:
    known = {"id": f"id{number}", "input": {"text": f"question {number}"}}
    return output.RequestState.model_validate(
        {"instance": {**known, **instance}, "train_trial_index": 0, "request": {}, "annotations": {"a": 1}}
    )


def add(to: Corrections, *answers: str | None) -> None:
    """One instance after the other; None: its request failed."""
    for number, answer in enumerate(answers):
        to.add(key(number), state(number), answer)


def helms(case: Case) -> float | None:
    return case.helm


def as_number(case: Case) -> float | None:
    """Raises where the answer is none; `-`: the instance does not count."""
    return None if case.completion == "-" else float(case.completion)


def values(of: Corrections) -> dict[str, dict[InstanceKey, float]]:
    return {found.label: found.values for found in of.metrics()}


def test_errata_of_the_run_spec_whose_metric_helm_computed_count() -> None:
    medec = "medec_error_sentence_accuracy"
    found = Corrections.of(plan({"config.type": "medec"}), [context("other"), context(medec)])
    assert [one.id for one in found.errata] == ["medec-sentence"]
    assert found.version == load_errata().version
    assert found.helm[medec].values == context().values
    assert set(found.helm) == {"other", medec}
    assert set(found.rules) == {"medec-sentence"}
    assert found.rules["medec-sentence"](Case("p", "3", "3 Right.", None)) == 1.0
    assert Corrections.of(plan({"config.type": "medec"}), [context("other")]).errata == []
    assert Corrections.of(plan(), [context(medec)]).errata == []


@pytest.mark.parametrize(("task", "count"), [("med_dialog_icliniq", 1), ("med_dialog_healthcaremagic", 0)])
def test_an_erratum_of_some_arguments_counts_for_a_run_of_these(task: str, count: int) -> None:
    found = Corrections.of(plan({"config.type": task}), [context("med_dialog_accuracy")])
    assert len(found.errata) == len(found.rules) == count


def test_each_run_begins_with_new_rules() -> None:
    """A rule may remember which instances it has seen."""
    here = plan({"config.type": "med_dialog_icliniq"})
    case, same = Case("p", "", "g", 0.5, instance="1"), Case("p", "", "g", 0.75, instance="2")
    for _ in range(2):
        (rule,) = Corrections.of(here, [context("med_dialog_accuracy")]).rules.values()
        assert [rule(case), rule(same), rule(case)] == [0.5, None, 0.5]


def test_a_rule_gets_the_instance_with_helms_value() -> None:
    cases: list[Case] = []

    def rule(case: Case) -> float:
        cases.append(case)
        return 1.0

    made = corrections(rule)
    references = [
        {"output": {"text": "wrong"}, "tags": []},
        {"output": {"text": "right"}, "tags": ["other", "correct"]},
        {"output": {"text": "right, too"}, "tags": ["correct"]},
    ]
    made.add(key(3), state(3, references=references, extra_data={"ward": "a"}), "the answer")
    bare = output.RequestState.model_validate(
        {"instance": {"id": "id4", "input": {"text": "q"}}, "train_trial_index": 0, "request": {}}
    )
    made.add(key(4), bare, "")
    assert cases == [
        Case(
            "question 3", "the answer", "right", 3.0, {"ward": "a"}, {"a": 1},
            instance="id3", choices=("wrong", "right", "right, too"),
        ),
        Case("q", "", "", 4.0, {}, {}, instance="id4"),
    ]  # fmt: skip


def test_where_every_reference_is_right_there_is_nothing_to_choose_from() -> None:
    cases: list[Case] = []
    made = corrections(lambda case: cases.append(case) or 1.0)  # type: ignore[func-returns-value]
    right = {"output": {"text": "right"}, "tags": ["correct"]}
    made.add(key(1), state(1, references=[right]), "x")
    made.add(key(2), state(2, references=[{"output": {"text": "wrong"}, "tags": []}]), "x")
    assert [(case.gold, case.choices) for case in cases] == [("right", ()), ("", ("wrong",))]


def test_corrected_values_have_the_place_of_the_metric_they_correct() -> None:
    helm = context(scale=(0.0, 5.0), split="valid", perturbation="typos")
    made = corrections(as_number, em=helm)
    add(made, "0.25", "1", "-")
    assert made.metrics() == [
        MetricValues(
            "em.corrected", "em.corrected", None, merged=True, scale=(0.0, 5.0),
            values={key(0): 0.25, key(1): 1.0}, split="valid", perturbation="typos",
        )
    ]  # fmt: skip


def test_an_instance_without_helms_value_has_no_corrected_one() -> None:
    """It is of another split, say; zero is a value."""
    made = corrections(helms, em=context(count=2))
    add(made, "a", "b", "c")
    assert values(made) == {"em.corrected": {key(0): 0.0, key(1): 1.0}}
    assert made.notes() == ["em.corrected (errata 7, e): e is wrong. Corrected: e is right"]


def test_each_erratum_looks_at_its_own_metric() -> None:
    known = erratum("one", "a"), erratum("two", "b")
    made = corrections(helms, *known, a=context("a", 1), b=context("b", 2))
    add(made, "x", "x")
    assert values(made) == {"a.corrected": {key(0): 0.0}, "b.corrected": {key(0): 0.0, key(1): 1.0}}


def test_errata_of_one_metric_go_on_from_each_others_values() -> None:
    """The values of the whole have one corrected score, and each erratum counts what it leaves out itself."""
    known = erratum("one"), erratum("two")

    def above_three(case: Case) -> float | None:
        return None if case.helm is None or case.helm <= 3 else case.helm + 1

    made = Corrections(7, known, {"one": as_number, "two": above_three}, {"em": context()})
    add(made, "5", "-", "2", "no number", "7")
    assert values(made) == {"em.corrected": {key(0): 6.0, key(4): 8.0}}
    assert [note.rpartition(";")[2] for note in made.notes()] == [
        " 2 instances do not count in it",
        " 1 instance does not count in it",
    ]


def test_an_erratum_whose_rule_raises_does_not_stop_the_next_one() -> None:
    known = erratum("one", "a"), erratum("two", "b")
    made = Corrections(7, known, {"one": as_number, "two": helms}, {"a": context("a"), "b": context("b")})
    add(made, "no number")
    assert values(made) == {"b.corrected": {key(0): 0.0}}


def test_an_instance_without_an_answer_keeps_its_place_at_zero() -> None:
    """After all others: of two that are the same, the one that was answered counts."""
    made = corrections(lambda case: 1.0 if case.completion else 0.75)
    add(made, None, "x", "")
    assert values(made) == {"em.corrected": {key(1): 1.0, key(2): 0.75, key(0): 0.0}}
    seen: list[str] = []

    def first_only(case: Case) -> float | None:
        seen.append(case.completion)
        return None if len(seen) > 1 else 1.0

    made = corrections(first_only)
    add(made, None, "x")
    assert values(made) == {"em.corrected": {key(1): 1.0}}
    assert seen == ["x", ""]
    assert made.notes()[0].endswith("; 1 instance does not count in it")


def test_nothing_is_kept_where_there_is_no_erratum() -> None:
    made = Corrections(7, [], {}, {"em": context()})
    add(made, "x", None)
    assert (made.metrics(), made.notes(), made.unanswered, dict(made.values)) == ([], [], [], {})


def test_without_a_value_there_is_no_score() -> None:
    made = corrections(as_number)
    add(made, "-", "-")
    assert made.metrics() == []
    assert made.notes()[0].endswith("; 2 instances do not count in it")


@pytest.mark.parametrize(
    ("odd", "plain", "fails"),
    [
        (0, 0, False),
        (1, 0, False),
        (2, 0, True),
        (1, 1, False),
        (2, 3, True),
        (2, 4, False),
        (3, 5, True),
        (3, 6, False),
    ],
)
def test_a_rule_may_raise_on_one_answer_or_on_one_for_two_that_it_reads(odd: int, plain: int, fails: bool) -> None:
    made = corrections(as_number, em=context())
    add(made, *["odd"] * odd, *["0.5"] * plain)
    if fails:
        with pytest.raises(ValueError, match="could not convert"):
            made.metrics()
    else:
        assert len(values(made).get("em.corrected", {})) == plain


def test_the_first_error_of_a_rule_that_raises_on_most_is_raised() -> None:
    made = corrections(as_number)
    add(made, "first", "second", "third")
    with pytest.raises(ValueError, match="first"):
        made.metrics()


def test_what_a_rule_raises_on_one_metric_is_not_anothers_fault() -> None:
    known = erratum("one", "a"), erratum("two", "b")
    made = Corrections(7, known, {"one": as_number, "two": helms}, {"a": context("a"), "b": context("b")})
    add(made, "no", "1", "no", "1")
    with pytest.raises(ValueError, match="could not convert"):
        made.metrics()


def test_notes_say_what_is_wrong_what_was_corrected_and_how_many_do_not_count() -> None:
    known = erratum("one", "a", upstream="https://example.org/1"), erratum("two", "b")
    made = Corrections(7, known, {"one": as_number, "two": helms}, {"a": context("a"), "b": context("b")})
    add(made, "-", "no number", "1")
    assert made.notes() == [
        (
            "a.corrected (errata 7, one, https://example.org/1): one is wrong. Corrected: one is right;"
            " 2 instances do not count in it"
        ),
        "b.corrected (errata 7, two): two is wrong. Corrected: two is right",
    ]
    made = corrections(as_number)
    add(made, "no number", "1")
    assert made.notes()[0].endswith("e is right; 1 instance does not count in it")
