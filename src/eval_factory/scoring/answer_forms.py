"""The form in which a benchmark asks for its answers, and whether an answer has it.

It is taken from the run where the run shows it: the options of a multiple-choice question, or references that are
single letters. What only the prompt says stands in framework.yml (`answer_labels`, `answer_form`). Open text has no
form, so no answer is unlike it.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from eval_factory.helm import output
from eval_factory.scoring.correction_rules import CORRECT
from eval_factory.scoring.lenient import METRIC
from eval_factory.scoring.medcalc_answers import DATE_FORMATS
from eval_factory.tasks.choices.choice_question import options_shown
from eval_factory.tasks.framework import HelmEntry

JOINT = "multiple_choice_joint"
GENERATION = "generation"

_WEEKS = re.compile(r"\D{0,9}\d+ weeks\W{1,9}(?:and )?\d+ days")
_NUMBERED = re.compile(r"\d+")
_SQL_TAG = re.compile(r"<\s*sql\s*>(.*?)</?\s*sql\s*>", re.DOTALL | re.IGNORECASE)
_FENCE_NAME = re.compile(r"^sql\n", re.MULTILINE)
_QUERY = re.compile(r"(?:[\s(]|--[^\n]*\n)*(?:select|with)\b", re.IGNORECASE)


@dataclass(frozen=True)
class Form:
    """What an answer has to look like for HELM to find something in it."""

    about: str
    """In words, for a reader."""
    reads: Callable[[output.RequestState, str], bool]
    """Whether HELM finds what was asked for in this answer, which is not empty."""
    labels: Callable[[output.RequestState], Mapping[str, str]] = lambda _state: {}
    """Label of an option -> what is compared with the references; empty where there are no options."""

    def options(self, state: output.RequestState) -> Mapping[str, str]:
        """Label -> the option's text, which the prompt shows where labels are compared; empty where it is not known."""
        labels = self.labels(state)
        if any(label != text for label, text in labels.items()):
            return labels
        shown = options_shown(state.instance.input.text)
        return {label: shown.get(label, "") for label in labels}

    def is_right(self, state: output.RequestState, label: str | None) -> bool:
        """Whether this label is the one that was asked for."""
        chosen = None if label is None else self.labels(state).get(label)
        return chosen is not None and chosen.strip() in {text.strip() for text in right_answers(state)}


def nothing_is_right(state: output.RequestState) -> bool:
    """Whether an empty answer is what was asked for, as for the questions of ehr_sql that no query answers."""
    impossible = (state.instance.extra_data or {}).get("is_impossible") is True
    return impossible or any(not text.strip() for text in right_answers(state))


def right_answers(state: output.RequestState) -> list[str]:
    return [ref.output.text for ref in state.instance.references if output.CORRECT_TAG in ref.tags]


def form_of(entry: HelmEntry, run: output.HelmRun, main_metric: str) -> Form | None:
    """The form that a run's answers are asked for in; None for open text, and for what is no text.

    Args:
        main_metric: letters as references are a form only where an answer has to equal one.
    """
    if entry.answer_form is not None:
        return FORMS[entry.answer_form]
    if entry.answer_labels:
        return _one_of(entry.answer_labels)
    if not any(stat.name.name == METRIC for stat in run.stats):
        return None
    adapter = run.run_spec.adapter_spec
    if adapter.method == JOINT:
        return _options(adapter.output_mapping_pattern)
    if adapter.method == GENERATION and main_metric == METRIC:
        letters = _letters_of(run)
        return _one_of(letters) if letters else None
    return None


def _options(pattern: str | None) -> Form:
    """HELM looks the answer up among the labels, or what its pattern finds in it."""

    def reads(state: output.RequestState, answer: str) -> bool:
        return option_read(answer, pattern) in (state.output_mapping or {})

    return Form("the letter of an option alone", reads, lambda state: state.output_mapping or {})


def option_read(answer: str, pattern: str | None) -> str:
    """What HELM looks up among the labels of options."""
    label = answer.strip()
    if not pattern:
        return label
    match = re.search(pattern, label)
    return "" if match is None else match[1] if match.groups() else match[0]


def _one_of(labels: Sequence[str]) -> Form:
    known = {label: label for label in labels}
    about = f"one of {', '.join(labels)} alone"
    return Form(about, lambda _state, answer: answer.strip() in known, lambda _state: known)


def _letters_of(run: output.HelmRun) -> tuple[str, ...]:
    """All letters up to the last of the references, where each of these is a single capital letter; else nothing.

    Few instances need not show all letters that there are.
    """
    last = ""
    for state in run.request_states():
        texts = [ref.output.text.strip() for ref in state.instance.references]
        if not texts or not all(len(text) == 1 and "A" <= text <= "Z" for text in texts):
            return ()
        last = max(last, *texts)
    return tuple(chr(code) for code in range(ord("A"), ord(max(last, "D")) + 1)) if last else ()


def _reads_value(state: output.RequestState, answer: str) -> bool:
    """A date or a duration where one is asked for, else a number, as medcalc_bench reads them."""
    gold, text = next(iter(right_answers(state)), "").strip(), answer.strip()
    if _is_number(gold):
        return _is_number(text)
    for known in (_is_date, _is_duration):
        if known(gold):
            return known(text)
    return True


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_date(text: str) -> bool:
    try:
        datetime.strptime(text, DATE_FORMATS[0])
    except ValueError:
        return False
    return True


def _is_duration(text: str) -> bool:
    return _WEEKS.match(text) is not None


def _reads_sentence(_state: output.RequestState, answer: str) -> bool:
    text = answer.strip()
    return text.rstrip(".") == CORRECT or _NUMBERED.match(text) is not None


def _reads_query(state: output.RequestState, answer: str) -> bool:
    """After HELM's own extraction: what stands between its tags, without backticks and the name of a fence.

    Tags or a fence with nothing in them are an empty answer.
    """
    tagged = _SQL_TAG.search(answer) if "sql" in answer.lower() else None
    text = (tagged[1] if tagged else answer).strip().replace("`", "").strip()
    query = _FENCE_NAME.sub("", f"{text}\n").strip()
    return _QUERY.match(query) is not None if query else nothing_is_right(state)


FORMS = {
    "value": Form("the value alone, without its unit", _reads_value),
    "sentence": Form("CORRECT, or the number of a sentence first", _reads_sentence),
    "sql": Form("a query alone, or nothing", _reads_query),
}
