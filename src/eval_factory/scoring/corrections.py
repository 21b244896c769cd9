"""Computes corrected values of metrics that are known to be wrong (docs/errata.md).

An erratum is a known defect of a metric. Its rule computes the corrected value of an instance from
the same answer. The corrected values are shown next to HELM's own values.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from eval_factory.helm import output
from eval_factory.helm.names import DECISIONS_FIELD
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.medcalc_values import value_reader_of, whole_number_in
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.request_states import (
    RepeatedInstances,
    answer_text_of,
    gold_and_choices,
    has_failed,
)
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.concordance import EXPERT_COUNTS_KEY, credit_of_answer
from eval_factory.tasks.errata import Erratum, load_errata
from eval_factory.tasks.framework import function_named, is_plug_in_function


@dataclass(frozen=True)
class Case:
    """An instance with the model's answer, and the value that a rule corrects."""

    prompt: str
    completion: str  # the model's answer; empty if the request failed
    gold: str  # the text of the first right reference; empty if there is none
    helm: float | None  # HELM's value of the metric, or the value by the previous erratum
    extra: Mapping[str, Any] = field(default_factory=dict)  # HELM's extra data of the instance
    annotations: Mapping[str, Any] = field(default_factory=dict)
    instance: str = ""  # the id of the instance, which is the same in every trial
    # the texts of all references, if some of the references are wrong
    choices: Sequence[str] = ()


Rule = Callable[[Case], "float | None"]
"""Returns the corrected value of a case; None if the instance does not count."""

CORRECT_MARK = "CORRECT"
"""The word with which an answer to MEDEC states that the note has no error."""


def medcalc_by_calculator(case: Case) -> float:
    """Return 1 if an answer is right by MedCalc-Bench's own rule, else 0.

    A score must be exact. A calculated value must lie between the benchmark's two limits, which are
    5 % from the right value or equal to it.
    """
    answer = case.completion.strip()
    if answer == case.gold.strip():
        return 1.0
    read_value = value_reader_of(case.prompt, case.extra.get("category"), case.gold)
    if read_value is whole_number_in:  # the answer is a score, which must be exact
        limits: tuple[object, object] = (case.gold, case.gold)
    else:
        limits = case.extra.get("lower_limit"), case.extra.get("upper_limit")
    low = read_value(str(limits[0]))
    value = read_value(answer)
    high = read_value(str(limits[1]))
    if low is None or value is None or high is None:
        return 0.0
    return float(low <= value <= high)


def medec_sentence(case: Case) -> float:
    """Return 1 if the answer names the right sentence, or rightly says CORRECT; else 0."""
    return float(sentence_number_in(case.gold) == sentence_number_in(case.completion))


def medec_flag(case: Case) -> float:
    """Return 1 if the answer rightly states that the note has an error, or has none; else 0.

    If the note has an error, the answer may name any sentence of the note.
    """
    answer = sentence_number_in(case.completion)
    has_error = sentence_number_in(case.gold) != CORRECT_MARK
    if answer == CORRECT_MARK:
        return float(not has_error)
    sentences = {sentence_number_in(line) for line in case.prompt.splitlines()}
    sentences.discard(None)  # the lines of the prompt without a number
    return float(has_error and answer in sentences)


def sentence_number_in(text: str) -> str | int | None:
    """Return the number at the start of the text, or CORRECT; None if the text has neither."""
    text = text.strip()
    if text.rstrip(".") == CORRECT_MARK:
        return CORRECT_MARK
    match = re.match(r"\d+", text)
    if match is None:
        return None
    digits = match.group()
    try:
        return int(digits)
    except ValueError:  # more digits than Python converts; no sentence has such a number
        return digits


def ehr_sql_same_rows(case: Case) -> float | None:
    """Return 1 if the answer's query returns the rows of the right query, else 0.

    Rows are compared as in HELM: their order and repetition do not matter, and 0 equals 0.0. Unlike
    in HELM, empty results are compared, too. If the question cannot be answered, an answer without
    a query is right. The result is None if the answer has a query, but the right query failed.
    """
    if not _can_be_answered(case):
        return float(not _has_query(case))
    if not _has_query(case):
        return 0.0
    annotation = case.annotations.get("ehr_sql") or {}
    # The benchmark's own evaluation changes some queries (`current_time`, for example). If it
    # changes one of the two queries, `as_evaluated` has the results of both queries in that form.
    annotation = annotation.get("as_evaluated") or annotation
    gold = annotation.get("ground_truth_rows")
    if gold is None:  # the right query itself failed
        return None
    if annotation.get("query_error") is not None:
        return 0.0
    right_rows = set(map(tuple, gold))
    rows = set(map(tuple, annotation.get("predicted_result", [])))
    return float(rows == right_rows)


def ehr_sql_precision(case: Case) -> float | None:
    """Return 1 if the question can be answered, else 0; None if the answer has no query."""
    if not _has_query(case):
        return None
    return float(_can_be_answered(case))


def ehr_sql_recall(case: Case) -> float | None:
    """Return 1 if the answer has a query, else 0; None if the question cannot be answered."""
    if not _can_be_answered(case):
        return None
    return float(_has_query(case))


def _has_query(case: Case) -> bool:
    """Return True if the answer has a query."""
    annotation = case.annotations.get("ehr_sql") or {}
    # If the annotation has no `query_written`, every text counts as a query.
    return bool(case.completion.strip()) and bool(annotation.get("query_written", True))


def _can_be_answered(case: Case) -> bool:
    """Return True if the data set has a right query for the question."""
    return not case.extra.get("is_impossible") and bool(case.gold.strip())


def healthbench_as_published(case: Case) -> float | None:
    """Return the mean over judges of the share of a rubric's points that an answer gets.

    Source: R. Arora et al., 2025, arXiv 2505.08775, section 3. An empty answer gets 0 without a
    judge. The result is None if no points can be won, or if no judge decided.
    """
    points = [float(rubric["points"]) for rubric in case.extra.get("rubrics") or ()]
    positive = sum(filter(_is_positive, points))
    if positive <= 0:
        return None
    if not case.completion.strip():
        return 0.0
    shares = []
    for annotation in case.annotations.values():
        if DECISIONS_FIELD in (annotation or {}):
            for decisions in annotation[DECISIONS_FIELD].values():
                won = 0.0
                for worth, is_met in zip(points, decisions, strict=True):
                    if is_met:
                        won += worth
                shares.append(won / positive)
    if not shares:
        return None
    return sum(shares) / len(shares)


def _is_positive(points: float) -> bool:
    return points > 0


def sct_credit(case: Case) -> float:
    """Return the experts' credit for an answer.

    The credit is the number of experts who chose the answer's rating, divided by the number who
    chose the most frequent rating.
    """
    return credit_of_answer(case.extra[EXPERT_COUNTS_KEY], case.completion)


def sct_membership(case: Case) -> float:
    """Return 1 if at least one expert chose the answer's rating, else 0."""
    return float(sct_credit(case) > 0)


def first_of_repeated() -> Rule:
    """Return a rule that counts only the first of several instances with equal prompts and equal
    right answers.

    The rule returns HELM's value for the first instance and None for the others. The rule remembers
    the instances that it has seen.
    """
    repeated = RepeatedInstances()

    def value_of_first(case: Case) -> float | None:
        is_repeated = repeated.add(case.instance, case.prompt, case.gold, case.choices)
        if is_repeated:
            return None
        return case.helm

    return value_of_first


_RULES: dict[str, Rule] = {
    rule.__name__: rule
    for rule in (
        medcalc_by_calculator,
        medec_sentence,
        medec_flag,
        ehr_sql_same_rows,
        ehr_sql_precision,
        ehr_sql_recall,
        healthbench_as_published,
        sct_credit,
        sct_membership,
    )
}


def rule_of(erratum: Erratum) -> Rule:
    """Return the rule of an erratum.

    Each run needs a new rule, because `first_of_repeated` remembers the instances of a run.
    """
    if is_plug_in_function(erratum.rule):
        rule: Rule = function_named(str(erratum.rule))
        return rule
    if erratum.rule == first_of_repeated.__name__:
        return first_of_repeated()
    return _RULES[str(erratum.rule)]


@dataclass
class Corrections(Part):
    """The errata of a run spec, and the corrected values by their rules."""

    version: int  # the version of the catalogue of errata
    errata: Sequence[Erratum]
    rules: Mapping[str, Rule]  # id of the erratum -> rule
    helm_metrics: Mapping[str, MetricValues]  # label of HELM's metric -> its values
    values: dict[str, dict[InstanceKey, float]] = field(default_factory=lambda: defaultdict(dict))
    """Label of the corrected metric -> instance -> corrected value."""
    unanswered: list[tuple[InstanceKey, Case]] = field(default_factory=list)
    """The instances whose request failed."""
    left_out: dict[str, int] = field(default_factory=lambda: defaultdict(int))
    """Id of the erratum -> the number of instances that its rule leaves out."""
    raised: dict[str, list[Exception]] = field(default_factory=lambda: defaultdict(list))
    """Id of the erratum -> the exceptions that its rule raised. The answers on which the rule
    raised do not count in the corrected value.
    """

    def __post_init__(self) -> None:
        # label of the corrected metric -> its errata, in the order in which their rules are applied
        self._by_label: dict[str, list[Erratum]] = defaultdict(list)
        for erratum in self.errata:
            self._by_label[erratum.label].append(erratum)

    @classmethod
    def of(cls, plan: Plan, metrics: Iterable[MetricValues]) -> Corrections:
        """Return the corrections of the passed metrics that have an erratum."""
        catalogue = load_errata()
        run_spec = plan.evaluation.task.helm.run_spec
        applicable = catalogue.of(run_spec, plan.scenario_arguments, plan.upstream)
        wrong = {erratum.metric for erratum in applicable}
        helm_metrics = {}
        if wrong:
            helm_metrics = {metric.label: metric for metric in metrics if metric.label in wrong}
        errata = [erratum for erratum in applicable if erratum.metric in helm_metrics]
        rules = {erratum.id: rule_of(erratum) for erratum in errata}
        return cls(catalogue.version, errata, rules, helm_metrics)

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Compute the corrected values of an instance."""
        if has_failed(state):
            self.add_answer(key, state, answer=None)
        else:
            self.add_answer(key, state, answer=answer_text_of(state))

    def complete(self, draft: Draft) -> None:
        """Add the corrected metrics to the metrics of the run."""
        draft.metrics += self.metrics()

    def conclude(self, draft: Draft) -> None:
        """Add the notes on the errata last, because these notes are the longest."""
        draft.notes.add(Importance.BACKGROUND, *self.notes())

    def add_answer(self, key: InstanceKey, state: output.RequestState, answer: str | None) -> None:
        """Add an instance. `answer` is None if the request failed."""
        if not self.errata:
            return
        gold, choices = gold_and_choices(state.instance)
        case = Case(
            prompt=state.instance.input.text,
            completion=answer or "",
            gold=gold,
            helm=None,  # `_corrected` sets the value.
            extra=state.instance.extra_data or {},
            annotations=state.annotations or {},
            instance=state.instance.id,
            choices=choices,
        )
        if answer is None:
            self.unanswered.append((key, case))
        else:
            self._add_values(key, case, answered=True)

    def _add_values(self, key: InstanceKey, case: Case, *, answered: bool) -> None:
        """Add the corrected values of an instance.

        If several errata have one label, each rule gets the value that the previous rule returned.
        """
        for label, errata in self._by_label.items():
            # Errata with one label correct the same metric.
            value = self.helm_metrics[str(errata[0].metric)].values.get(key)
            if value is not None:
                value = self._corrected(value, case, errata)
            if value is None:
                continue
            if not answered:
                value = 0.0  # The rules were called only to see if the instance counts.
            self.values[label][key] = value

    def _corrected(self, value: float, case: Case, errata: Sequence[Erratum]) -> float | None:
        """Return HELM's value after all rules; None if the instance does not count."""
        for erratum in errata:
            try:
                corrected = self.rules[erratum.id](replace(case, helm=value))
            except Exception as error:  # a rule may raise anything on an unexpected answer
                self.raised[erratum.id].append(error)
                return None
            if corrected is None:
                self.left_out[erratum.id] += 1
                return None
            value = corrected
        return value

    def metrics(self) -> list[MetricValues]:
        """Return the corrected metrics. Call this method once, after all instances were added.

        An instance without an answer gets the value 0, because the bounds of the score need a value
        for each instance. An instance that repeats an earlier instance is left out by its rule.

        Raises:
            Exception: the first exception of a rule that raised on too many answers. A rule may
                raise on one answer, and on up to half as many as have a corrected value.
        """
        for key, case in self.unanswered:
            self._add_values(key, case, answered=False)
        for erratum in self.errata:
            raised = self.raised[erratum.id]
            values = self.values[erratum.label]
            tolerated = max(1, len(values) // 2)
            if len(raised) > tolerated:
                raise raised[0]  # So many exceptions show that the error is in the rule.
        corrected = []
        for label, errata in self._by_label.items():
            helm_metric = self.helm_metrics[str(errata[0].metric)]
            if self.values[label]:
                corrected.append(
                    MetricValues(
                        label=label,
                        name=label,
                        helm_mean=None,
                        scale=helm_metric.scale,
                        values=self.values[label],
                        split=helm_metric.split,
                        perturbation=helm_metric.perturbation,
                    )
                )
        return corrected

    def notes(self) -> list[str]:
        """Return a note on each erratum, with the number of instances that its rule left out."""
        texts = []
        for erratum in self.errata:
            source = ", ".join(filter(None, (str(self.version), erratum.id, erratum.upstream)))
            text = (
                f"{erratum.label} (errata {source}): {erratum.defect}. "
                f"Corrected: {erratum.corrected}"
            )
            count = self.left_out[erratum.id] + len(self.raised[erratum.id])
            if count == 1:
                text += "; 1 instance does not count in the corrected value"
            elif count:
                text += f"; {count} instances do not count in the corrected value"
            texts.append(text)
        return texts
