"""Scores answers that contain reasoning (`extra.answer_style: reasoned`).

The module adds a main metric. Its value is 1 if the option or number in the answer's last line is
right. If the last line states no option, the option that the complete answer states counts. HELM's
own metric is reported as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.corrections import Case, medcalc_by_calculator
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.medcalc_values import value_reader_of
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.readability import AnswerForm, right_answers
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.scores import MetricValues, is_derived
from eval_factory.tasks.reasoned import REASONED_STYLE, REASONED_SUFFIX, stated_at_end

_ABOUT = "reasoning, and a last line `Answer: X`"
"""The description of the form that a reasoned answer has, for `AnswerForm.about`."""


def is_reasoned(plan: Plan) -> bool:
    """Return True if the run asks for reasoning before the answer."""
    return plan.evaluation.extra.answer_style == REASONED_STYLE


@dataclass(frozen=True)
class ReasonedForm(AnswerForm):
    """The form of a reasoned answer that ends with the letter of an option."""

    def stated_label(self, state: output.RequestState, answer: str) -> str | None:
        """Return the option that the last line states.

        If the last line states no option, return the option that the complete answer states. Return
        None if the complete answer states no option.
        """
        return super().stated_label(state, stated_at_end(answer)) or super().stated_label(
            state, answer
        )


@dataclass(frozen=True)
class ReasonedValue(AnswerForm):
    """The form of a reasoned answer that ends with the value of a medical calculation."""

    def option_and_rightness(
        self, state: output.RequestState, answer: str
    ) -> tuple[str, bool] | None:
        """Return the last line, and True if its value lies within the benchmark's tolerance.

        Return None if no value can be read in the last line.
        """
        gold = next(iter(right_answers(state)), "")
        extra = state.instance.extra_data or {}
        case = Case(
            prompt=state.instance.input.text,
            completion=stated_at_end(answer),
            gold=gold,
            helm=None,  # there is no value of HELM to correct: the last line alone is rated here
            extra=extra,
        )
        read_value = value_reader_of(case.prompt, extra.get("category"), gold)
        if read_value(case.completion) is None:
            return None
        return case.completion, medcalc_by_calculator(case) >= 1.0


def reasoned_form(form: AnswerForm | None) -> AnswerForm | None:
    """Return the form of reasoned answers to a benchmark that asks for the form `form`.

    Return None if the benchmark has no form of answers.
    """
    if form is None:
        return None
    kind: type[AnswerForm] = ReasonedForm
    # The form of a medical calculation is recognised by its description in scoring/readability.py.
    if form.about.startswith("the value"):
        kind = ReasonedValue
    reasoned = kind(_ABOUT, reads=form.reads, labels=form.labels)
    # A reasoned answer is readable if `option_and_rightness` finds an option or a value in it.
    return replace(
        reasoned,
        reads=lambda state, answer: reasoned.option_and_rightness(state, answer) is not None,
    )


def with_reasoned_metrics(plan: Plan, metrics: list[MetricValues]) -> list[MetricValues]:
    """Return the metrics; if answers contain reasoning, also a new metric for each main metric.

    The task's main metric occurs once for each split and perturbation. The new metrics have no
    values yet; `fill_in_reasoned_metrics` adds the values after all answers were seen.
    """
    main = plan.evaluation.task.helm.main_metric
    if not is_reasoned(plan) or main is None:
        return metrics
    new_metrics = []
    for metric in metrics:
        if metric.name == main and not is_derived(metric):
            name = main + REASONED_SUFFIX
            # The label is the name, followed by the split and the perturbation if there are any.
            label = name + metric.label.removeprefix(main)
            new_metrics.append(
                replace(metric, label=label, name=name, helm_mean=None, values={}, counts={})
            )
    return [*metrics, *new_metrics]


def fill_in_reasoned_metrics(metrics: Sequence[MetricValues], answers: RightAnswers) -> None:
    """Fill in the values of the metrics that `with_reasoned_metrics` added.

    The value is 1 for a right answer, and 0 for an answer that is wrong or cannot be read.
    """
    by_context = {}
    for metric in metrics:
        by_context[metric.name, metric.split, metric.perturbation] = metric
    for metric in metrics:
        if metric.name.endswith(REASONED_SUFFIX):
            helm_name = metric.name.removesuffix(REASONED_SUFFIX)
            helm_metric = by_context[helm_name, metric.split, metric.perturbation]
            for key in helm_metric.values:
                metric.values[key] = float(answers.correctness.get(key, False))


@dataclass(frozen=True)
class ReasonedValues(Part):
    """The part of a result that fills in the metrics that `with_reasoned_metrics` added."""

    answers: RightAnswers
    other_orders: Sequence[MetricValues]  # metrics of the questions in other orders

    def count(self, draft: Draft) -> None:
        """Fill in the values.

        This is done in the first phase, because later phases use the values.
        """
        if self.answers.reasoned_form is not None:
            fill_in_reasoned_metrics([*draft.metrics, *self.other_orders], self.answers)


def label_with_reasoning(draft: Draft) -> str:
    """Return the label of the main metric, with a suffix if answers contain reasoning.

    If answers contain reasoning, also add a note to the draft.
    """
    if not is_reasoned(draft.plan):
        return draft.main
    draft.notes.add(
        Importance.DOUBTFUL,
        "the prompts asked for reasoning before the answer (answer_style: reasoned): prompts and "
        "score are not the benchmark's own",
    )
    return draft.main + REASONED_SUFFIX
