"""The corrected values: one function per rule, from one instance's answer to its value."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from eval_factory.scoring import medcalc_answers
from eval_factory.scoring.repeated_rows import RepeatedRows
from eval_factory.tasks.errata import Erratum


@dataclass(frozen=True)
class Case:
    """What a rule looks at."""

    prompt: str
    completion: str
    gold: str
    """The text of the first right reference; empty where there is none."""
    helm: float | None
    """HELM's own value of the metric; where several errata are about it, what the one before has made of it."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    annotations: Mapping[str, Any] = field(default_factory=dict)
    instance: str = ""
    """Its id, the same in every trial."""
    choices: Sequence[str] = ()
    """The texts of all references, where there are wrong ones among them."""


Rule = Callable[[Case], "float | None"]
"""None: the instance does not count."""

_LEADING_NUMBER = re.compile(r"\d+")
CORRECT = "CORRECT"


def medcalc_by_calculator(case: Case) -> float:
    """MedCalc-Bench's own rule: a score is exact, what is calculated lies between the two limits (5 % off, or none)."""
    answer = case.completion.strip()
    if answer == case.gold.strip():
        return 1.0
    read = medcalc_answers.reader_of(case.prompt, case.extra.get("category"), case.gold)
    if read is medcalc_answers.whole_number_in:
        limits: tuple[object, object] = (case.gold, case.gold)
    else:
        limits = case.extra.get("lower_limit"), case.extra.get("upper_limit")
    low, value, high = read(str(limits[0])), read(answer), read(str(limits[1]))
    return float(low is not None and value is not None and high is not None and low <= value <= high)


def medec_sentence(case: Case) -> float:
    """Right where the same sentence is named, or both say CORRECT."""
    return float(_sentence(case.gold) == _sentence(case.completion))


def medec_flag(case: Case) -> float:
    """Right where both say CORRECT, or neither does and the answer names a sentence of the note, whichever."""
    answer, has_error = _sentence(case.completion), _sentence(case.gold) != CORRECT
    if answer == CORRECT:
        return float(not has_error)
    of_the_note = {_sentence(line) for line in case.prompt.splitlines()}
    return float(has_error and answer is not None and answer in of_the_note)


def _sentence(text: str) -> str | int | None:
    text = text.strip()
    if text.rstrip(".") == CORRECT:
        return CORRECT
    number = _LEADING_NUMBER.match(text)
    if number is None:
        return None
    try:
        return int(number[0])
    except ValueError:  # of more digits than Python reads; no sentence has that number
        return number[0]


def ehr_sql_same_rows(case: Case) -> float | None:
    """HELM's comparison (the same rows, in any order and however often; 0 is 0.0), where there are no rows too."""
    annotation = case.annotations.get("ehr_sql") or {}
    answered = _holds_a_query(case)
    if not _can_be_answered(case):
        return float(not answered)
    if not answered:
        return 0.0
    annotation = annotation.get("as_evaluated") or annotation
    gold = annotation.get("ground_truth_rows")
    if gold is None:  # the gold query itself failed
        return None
    if annotation.get("query_error") is not None:
        return 0.0
    return float(_rows(annotation.get("predicted_result", [])) == _rows(gold))


def ehr_sql_precision(case: Case) -> float | None:
    """Of the questions that were answered with a query, those that can be answered."""
    return float(_can_be_answered(case)) if _holds_a_query(case) else None


def ehr_sql_recall(case: Case) -> float | None:
    """Of the questions that can be answered, those that were answered with a query."""
    return float(_holds_a_query(case)) if _can_be_answered(case) else None


def _holds_a_query(case: Case) -> bool:
    annotation = case.annotations.get("ehr_sql") or {}
    return bool(case.completion.strip()) and bool(annotation.get("query_written", True))


def _can_be_answered(case: Case) -> bool:
    return not case.extra.get("is_impossible") and bool(case.gold.strip())


def _rows(rows: Iterable[Sequence[Any]]) -> set[tuple[Any, ...]]:
    return {tuple(row) for row in rows}


def first_of_repeated() -> Rule:
    """The value that there is, of the first of several instances with the same prompt and right answer."""
    rows = RepeatedRows()

    def rule(case: Case) -> float | None:
        return None if rows.add(case.instance, case.prompt, case.gold, case.choices) else case.helm

    return rule


_RULES: dict[str, Callable[[], Rule]] = {
    "medcalc_by_calculator": lambda: medcalc_by_calculator,
    "medec_sentence": lambda: medec_sentence,
    "medec_flag": lambda: medec_flag,
    "ehr_sql_same_rows": lambda: ehr_sql_same_rows,
    "ehr_sql_precision": lambda: ehr_sql_precision,
    "ehr_sql_recall": lambda: ehr_sql_recall,
    "first_of_repeated": first_of_repeated,
}


def rule_of(erratum: Erratum) -> Rule:
    """The rule of an erratum that has one, new for each run: some remember what they have seen."""
    return _RULES[str(erratum.rule)]()
