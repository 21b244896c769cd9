"""Computes corrected values of metrics that are known to be wrong (docs/errata.md).

The corrected values are computed from the same answers, and are shown next to HELM's own values.

The functions that read the value in an answer to MedCalc-Bench follow the benchmark's own code (N.
Khandekar et al., NeurIPS 2024; github.com/ncbi-nlp/MedCalc-Bench, evaluation/run.py and
evaluate.py). The docstring of each function names its differences.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from eval_factory.helm import output
from eval_factory.helm.names import DECISIONS
from eval_factory.plan.run_plan import Plan
from eval_factory.reading import stated_value
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.request_states import (
    RepeatedInstances,
    gold_and_choices,
    has_failed,
    text_of,
)
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.concordance import EXPERT_COUNTS, credit
from eval_factory.tasks.errata import Erratum, load_errata
from eval_factory.tasks.framework import function_named, is_code

DATE_FORMATS = ("%m/%d/%Y", "%Y-%m-%d")  # the formats of dates that are read: US dates, ISO 8601

_DIGITS = (
    r"(?:[1-9]\d{0,2}(?:,\d{3})+(?:\.\d+)?|[1-9]\d{0,2}(?:\.\d{3})+,\d+|\d+(?:[.,]\d+)?)"
    r"(?![.,]?\d|[/-]\d+[/-])"
)
"""The digits of a number, with or without thousands separators. A comma is a decimal comma only if
it cannot be a thousands separator: 1,234 is 1234, and 12,34 is 12.34.
"""
# a number that is not part of a date, a unit or a name (m^2, CURB-65)
_NUMBER = re.compile(rf"(?<![\w^./,-])(?<!\^\{{)[+-]?{_DIGITS}")
# words and signs between two alternatives or the ends of a range
_OR = r"(?:or|to|oder|bis|o|u|a|ou|à|versus|vs\.?)"
# up to two words that may be units
_UNIT = r"(?: ?[%°a-zµμ][^\s\d,;:()='\"]{0,20}(?:\d[^\s,;:()='\"]{0,8})?){0,2}"
# two numbers that are alternatives or a range, such as "3 or 4" and "between 3 and 4"
_ALTERNATIVES = re.compile(
    rf"(?<![\w^./,-])[+-]?{_DIGITS}{_UNIT}"
    rf"(?: {_OR} |(?<=\d)-(?=\d)| ?[–—~] ?| - )[+-]?{_DIGITS}"  # noqa: RUF001
    rf"|(?<![^\W_])(?:between|zwischen|entre) {_DIGITS}{_UNIT} (?:and|und|y|e|et) {_DIGITS}",
    re.IGNORECASE,
)
# a number at the start of a text, such as "about 12.5 mg, because"; an age ("65 year") is no value
_OPENING_NUMBER = re.compile(
    rf"[^\w\n+-]{{0,10}}(?:(?:about|approximately|roughly|ca\.?) )?([+-]?{_DIGITS})"
    rf"(?! ?-?(?:year|yr|y/?o)){_UNIT}\s*"
    r"(?:$|[.,;:(\n]|(?:because|since|as|which|with|for)\b)",
    re.IGNORECASE,
)
# the second step of a numbered list; the number at the start of the text is then not a value
_SECOND_STEP = re.compile(r"^\W{0,10}2[.)]\s", re.MULTILINE)
_OUT_OF = re.compile(r"(?<!\d)(\d+) out of")
# a list of whole numbers, such as "2, 4, 5"
_NUMBER_LIST = re.compile(r"(?<!\d)-?\d+(?: ?, ?-?\d+)+")
_DATE = re.compile(r"(?<!\d)(?:\d{1,2}/\d{1,2}/\d{4}|\d{4}-\d{2}-\d{2})(?!\d)")
_OPENING_DATE = re.compile(rf"\W{{0,10}}({_DATE.pattern})\s*(?:$|[.,;:(\n])")
_ALTERNATIVE_DATES = re.compile(rf"{_DATE.pattern} (?:or|oder|o|ou) {_DATE.pattern}", re.IGNORECASE)
# the start of an alternative after a duration, such as "or 5"
_NEXT_DURATION = re.compile(rf"[\W_]{{0,3}}{_OR} \W?\d", re.IGNORECASE)
# a whole number with a decimal comma and a zero, such as "3,0"
_DECIMAL_ZERO = re.compile(r"(?<![\d,])(\d{1,3}),0(?![\d,])")
# a duration, such as "4 weeks, 3 days", "4w 3d" or "(4, 3)"
_WEEKS_AND_DAYS = re.compile(
    r"(?<![\d.])(\d{1,3})(?:\s*(?:weeks?|w)\b['\"]?,?(?:\s+and)?|['\"]?,)"
    r"\s*['\"]?(\d{1,3})(?:\s*(?:days?|d)\b|\s*['\"]?[)\]]|\s*$)",
    re.IGNORECASE,
)
# a "w" between digits, as in "4w3d"
_RUN_TOGETHER = re.compile(r"(?<=\d)w(?=\d)", re.IGNORECASE)


def reader_of(prompt: str, category: object, gold: str) -> Callable[[str], float | None]:
    """Return the function that reads the value in an answer to a MedCalc-Bench question.

    Each calculator has its kind of value: a number, a whole number, a date or a duration. HELM's
    instances do not name the calculator, so the kind is inferred from the category, from the form
    of the right answer and from the question. The returned function returns None if the answer has
    no value in a known form.

    Args:
        prompt: the prompt of the instance.
        category: the category of the instance in HELM's extra data.
        gold: the text of the right answer.
    """
    if re.match(r"\('\d+ weeks', '\d+ days'\)", gold):
        return days_in
    if category == "date":
        return date_in
    if category not in ("risk", "severity", "diagnosis"):
        return number_in
    # Wells' criteria give half points, such as 1.5 or 2.5.
    may_be_half = "criteria for pulmonary embolism" in prompt.rpartition("Question: ")[2].lower()
    if may_be_half:
        return number_in
    return whole_number_in


def number_in(text: str) -> float | None:
    """Return the number at the start of the text, or else the last number, without its unit.

    Two numbers that are alternatives, such as "3 or 4", are ignored. The result is None if no
    number is left.

    There are three differences from the authors' code. The authors always take the last number.
    They divide a number before `%` by 100; here `%` is a unit like any other, because the only
    calculator of a share (fractional excretion of sodium) asks for a percentage. The authors also
    evaluate arithmetic expressions; this function does not.
    """
    text = stated_value(text)
    try:
        return float(text)
    except ValueError:
        pass  # The text has more than a number.
    without_alternatives = _ALTERNATIVES.sub(" ", text)
    if not _SECOND_STEP.search(without_alternatives):
        opening = _OPENING_NUMBER.match(without_alternatives)
        if opening is not None:
            return _float(opening[1])
    numbers = _NUMBER.findall(without_alternatives)
    if not numbers:
        return None
    return _float(numbers[-1])


def _float(digits: str) -> float:
    """Convert the digits that `_DIGITS` matches to a float."""
    before, comma, after = digits.rpartition(",")
    # A comma before three digits separates thousands, except in 1.234,567 and 0,123.
    cannot_be_thousands = "." in before or len(after) != 3 or before.lstrip("+-") == "0"
    is_decimal_comma = comma and "." not in after and cannot_be_thousands
    if is_decimal_comma:
        return float(f"{before.replace('.', '')}.{after}")
    return float(digits.replace(",", ""))


def whole_number_in(text: str) -> float | None:
    """Return the score that a text states, as a whole number.

    If the text begins with a number, this number is rounded. Otherwise `3 out of 5` is 3, the list
    of criteria `2, 4, 5` is 3 (the number of criteria), and any other number is rounded. The result
    is None if the text has no number, or no finite number.
    """
    text = _DECIMAL_ZERO.sub(r"\1", stated_value(text))
    out_of = _OUT_OF.search(text)
    listed = _NUMBER_LIST.search(text)
    begins_with_list = listed and _NUMBER_LIST.match(text.lstrip("(["))
    begins_with_number = _OPENING_NUMBER.match(text) is not None and not begins_with_list
    if out_of is not None and not begins_with_number:
        return float(out_of[1])
    if listed is not None and not begins_with_number:
        return float(listed[0].count(",") + 1)
    number = number_in(text)
    if number is None:
        return None
    try:
        return float(round(number))
    except (ValueError, OverflowError):  # the number is nan or infinite
        return None


def date_in(text: str) -> float | None:
    """Return the date at the start of the text, or else the last date, as an ordinal number of
    days.

    The function reads month/day/year and ISO 8601. The authors' code does not read ISO 8601. Two
    dates that are alternatives are ignored. The result is None if no valid date is left.
    """
    text = _ALTERNATIVE_DATES.sub(" ", stated_value(text))
    opening = _OPENING_DATE.match(text)
    dates = _DATE.findall(text)
    if opening is not None:
        dates = [opening[1]]
    if not dates:
        return None
    for form in DATE_FORMATS:
        try:
            return float(datetime.strptime(dates[-1], form).toordinal())
        except ValueError:
            continue
    return None


def days_in(text: str) -> float | None:
    """Return the number of days in a duration of weeks and days.

    The duration is written as in the prompt, (4 weeks, 3 days), or as in the data, ('4 weeks', '3
    days'). The two numbers must be separated; the authors' pattern reads 14 as 1 week and 4 days.
    The result is None if the text has no such duration, or an alternative after the duration.
    """
    text = _RUN_TOGETHER.sub("w ", stated_value(text))
    match = _WEEKS_AND_DAYS.search(text)
    if match is None or _NEXT_DURATION.match(text, match.end()):
        return None
    return float(7 * int(match[1]) + int(match[2]))


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
    read_value = reader_of(case.prompt, case.extra.get("category"), case.gold)
    if read_value is whole_number_in:  # the answer is a score, which must be exact
        limits: tuple[object, object] = (case.gold, case.gold)
    else:
        limits = case.extra.get("lower_limit"), case.extra.get("upper_limit")
    low = read_value(str(limits[0]))
    value = read_value(answer)
    high = read_value(str(limits[1]))
    return float(
        low is not None and value is not None and high is not None and low <= value <= high
    )


def medec_sentence(case: Case) -> float:
    """Return 1 if the answer names the right sentence, or rightly says CORRECT; else 0."""
    return float(sentence_in(case.gold) == sentence_in(case.completion))


def medec_flag(case: Case) -> float:
    """Return 1 if the answer rightly states that the note has an error, or has none; else 0.

    If the note has an error, the answer may name any sentence of the note.
    """
    answer = sentence_in(case.completion)
    has_error = sentence_in(case.gold) != CORRECT_MARK
    if answer == CORRECT_MARK:
        return float(not has_error)
    sentences = {sentence_in(line) for line in case.prompt.splitlines()}
    return float(has_error and answer is not None and answer in sentences)


def sentence_in(text: str) -> str | int | None:
    """Return the number at the start of the text, or CORRECT; None if the text has neither."""
    text = text.strip()
    if text.rstrip(".") == CORRECT_MARK:
        return CORRECT_MARK
    number = re.match(r"\d+", text)
    if number is None:
        return None
    try:
        return int(number[0])
    except ValueError:  # the number has more digits than Python converts; no sentence has it
        return number[0]


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
    return float(set(map(tuple, annotation.get("predicted_result", []))) == set(map(tuple, gold)))


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
        if DECISIONS in (annotation or {}):
            for decisions in annotation[DECISIONS].values():
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
    return credit(case.extra[EXPERT_COUNTS], case.completion)


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
    if is_code(erratum.rule):
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
    helm: Mapping[str, MetricValues]  # label of HELM's metric -> its values
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
        helm = {}
        if wrong:
            helm = {metric.label: metric for metric in metrics if metric.label in wrong}
        errata = [erratum for erratum in applicable if erratum.metric in helm]
        rules = {erratum.id: rule_of(erratum) for erratum in errata}
        return cls(catalogue.version, errata, rules, helm)

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Compute the corrected values of an instance."""
        if has_failed(state):
            self.add_answer(key, state, answer=None)
        else:
            self.add_answer(key, state, answer=text_of(state))

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
            value = self.helm[str(errata[0].metric)].values.get(key)
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
            Exception: the first exception of a rule that raised more than once, and on more than
                half as many answers as have a corrected value.
        """
        for key, case in self.unanswered:
            self._add_values(key, case, answered=False)
        for erratum in self.errata:
            raised = self.raised[erratum.id]
            values = self.values[erratum.label]
            if len(raised) > max(1, len(values) // 2):
                raise raised[0]  # So many exceptions show that the error is in the rule.
        corrected = []
        for label, errata in self._by_label.items():
            helm = self.helm[str(errata[0].metric)]
            if self.values[label]:
                corrected.append(
                    MetricValues(
                        label=label,
                        name=label,
                        helm_mean=None,
                        scale=helm.scale,
                        values=self.values[label],
                        split=helm.split,
                        perturbation=helm.perturbation,
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
