"""What can be read from answers: the form that the benchmark asks for, refusals, answers with nothing in them.

The form is taken from the run where the run shows it: the options of a multiple-choice question, or references that are
single letters. What only the prompt says stands in framework.yml (`answer_labels`, `answer_form`). Open text has no
form, so no answer is unlike it.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from eval_factory.core import formats
from eval_factory.core.results import Instances, Score
from eval_factory.endpoint import openai_api
from eval_factory.helm import output
from eval_factory.helm.metric_facts import chosen_main_metric
from eval_factory.helm.trivial_answers import MAX_LABEL_LENGTH
from eval_factory.plan.run_plan import EndpointPlan, Plan
from eval_factory.scoring.corrections import CORRECT_MARK, DATE_FORMATS
from eval_factory.scoring.lenient import LENIENT, METRIC, label_in, lenient_metrics
from eval_factory.scoring.notes import Importance, Note, why_unreadable
from eval_factory.scoring.parts import Draft, Part
from eval_factory.scoring.request_states import has_failed, text_of, was_filtered
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.choice_question import options_shown
from eval_factory.tasks.framework import HelmEntry

JOINT = "multiple_choice_joint"
GENERATION = "generation"

_WEEKS = re.compile(r"\D{0,9}\d+ weeks\W{1,9}(?:and )?\d+ days")
_NUMBERED = re.compile(r"\d+")
_SQL_TAG = re.compile(r"<\s*sql\s*>(.*?)</?\s*sql\s*>", re.DOTALL | re.IGNORECASE)
_FENCE_NAME = re.compile(r"^sql\n", re.MULTILINE)
_QUERY = re.compile(r"(?:[\s(]|--[^\n]*\n)*(?:select|with)\b", re.IGNORECASE)


@dataclass(frozen=True)
class AnswerForm:
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


def answer_form_of(entry: HelmEntry, run: output.HelmRun, main_metric: str) -> AnswerForm | None:
    """The form that a run's answers are asked for in; None for open text, and for what is no text.

    Args:
        main_metric: letters as references are a form only where an answer has to equal one.
    """
    if entry.answer_form is not None:
        return _FORMS[entry.answer_form]
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


def _options(pattern: str | None) -> AnswerForm:
    """HELM looks the answer up among the labels, or what its pattern finds in it."""

    def reads(state: output.RequestState, answer: str) -> bool:
        return option_read(answer, pattern) in (state.output_mapping or {})

    return AnswerForm("the letter of an option alone", reads, lambda state: state.output_mapping or {})


def option_read(answer: str, pattern: str | None) -> str:
    """What HELM looks up among the labels of options."""
    label = answer.strip()
    if not pattern:
        return label
    match = re.search(pattern, label)
    return "" if match is None else match[1] if match.groups() else match[0]


def _one_of(labels: Sequence[str]) -> AnswerForm:
    known = {label: label for label in labels}
    about = f"one of {', '.join(labels)} alone"
    return AnswerForm(about, lambda _state, answer: answer.strip() in known, lambda _state: known)


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
    return text.rstrip(".") == CORRECT_MARK or _NUMBERED.match(text) is not None


def _reads_query(state: output.RequestState, answer: str) -> bool:
    """After HELM's own extraction: what stands between its tags, without backticks and the name of a fence.

    Tags or a fence with nothing in them are an empty answer.
    """
    tagged = _SQL_TAG.search(answer) if "sql" in answer.lower() else None
    text = (tagged[1] if tagged else answer).strip().replace("`", "").strip()
    query = _FENCE_NAME.sub("", f"{text}\n").strip()
    return _QUERY.match(query) is not None if query else nothing_is_right(state)


_FORMS = {
    "value": AnswerForm("the value alone, without its unit", _reads_value),
    "sentence": AnswerForm("CORRECT, or the number of a sentence first", _reads_sentence),
    "sql": AnswerForm("a query alone, or nothing", _reads_query),
}


LONGEST_REFUSAL = 400
"""Characters. What goes on for longer says something beside: that it is no physician, and then what to do."""

_APOLOGY = r"(?:(?:i'm|i am)\s+(?:very\s+|so\s+)?sorry|sorry|(?:my\s+)?apologies|i\s+apologi[sz]e|unfortunately)"
_NATURE = r"as\s+an?\s+(?:ai|(?:large\s+)?language model)(?:\s+(?:language\s+)?(?:model|assistant))?"
_CANNOT = r"(?:can(?:no|')t|can\s+not|won't|will\s+not|(?:must\s+|have\s+to\s+)?decline)"
_UNABLE = r"(?:am|'m)\s+(?:unable|not\s+able|not\s+allowed|not\s+comfortable)"
_REFUSED = (
    r"(?:help|assist|answer|provid|respond|compl[yie]|fulfil|discuss|giv|offer|generat|creat|diagnos|continu|engag"
    r"|do\s+(?:that|this)|shar|support|process|determin|make|advis|interpret)"
)
_ENGLISH = rf"(?:but\s+)?i(?:\s+{_CANNOT}|\s*{_UNABLE})\s+(?:to\s+)?{_REFUSED}"

_APOLOGIES = (
    r"(?:es\s+)?tut\s+mir\s+(?:sehr\s+)?leid|entschuldigung|entschuldige(?:n\s+sie)?|leider|ich\s+bedaure"
    r"|lo\s+(?:siento|lamento)(?:\s+mucho)?|lamentablemente|desafortunadamente|disculp[ae]|perdón"
    r"|(?:sinto|lamento)(?:\s+muito)?|desculpe|infelizmente|peço\s+desculpas?"
    r"|(?:je\s+suis\s+)?(?:vraiment\s+)?désolée?|malheureusement|je\s+regrette|je\s+m'excuse"
)
_NATURES = (
    r"(?:als|como|en\s+tant\s+qu(?:e\s+|'))\s*[^,.;:!?\n]{0,50}?"
    r"(?:KI|IA|sprachmodell|modelo|modèle|asistente|assistente|assistant)(?:\s+\w+){0,4}?"
)
_GERMAN = (
    r"(?:aber\s+)?(?:(?:ich\s+)?(?:kann|darf|werde|möchte)\s+(?:ich\s+)?(?:\S+\s+){0,8}?(?:nicht|kein\w*)\s+(?:\S+\s+){0,8}?"
    r"(?:helfen|beantwort|antworten|geben|stellen|bereitstell|unterstütz|weiterhelfen|beurteil|erteil|diagnos|behilflich)"
    r"|ich\s+bin\s+nicht\s+in\s+der\s+lage)"
)
_ROMANCE = (
    r"(?:pero\s+|mas\s+|mais\s+)?(?:yo\s+|eu\s+)?(?:(?:no|não)\s+(?:me\s+)?(?:es\s+posible|puedo|posso|consigo|est(?:oy|ou)"
    r"(?:\s+e[nm]\s+condi[cç][a-zõ]+\s+de)?)"
    r"|je\s+ne\s+(?:peux|puis|suis|saurais)(?:\s+(?:malheureusement|pas|en\s+mesure|capable)){0,3})"
    r"\s+(?:(?:de|d'|te|le|lhe|vous)\s*)?"
    r"(?:ayud|respond|contest|proporcion|brind|d(?:ar|onn)|ofrec|ofer[et]|hac|faz|cumpl|asist|ajud|aid|répond|fourn|forne|assist"
    r"|diagn|d[eé]termin|interpr[eé]t)"
)
_REFUSAL = re.compile(
    rf"(?:(?:{_APOLOGY}|{_NATURE}|{_APOLOGIES}|{_NATURES})[,.;:!]?\s+){{0,2}}(?:{_ENGLISH}|{_GERMAN}|{_ROMANCE})",
    re.IGNORECASE,
)


def is_refusal(answer: str) -> bool:
    """Whether an answer begins by declining, in English, German, Spanish, Portuguese or French, and says no more."""
    text = answer.strip().strip("\"'*").replace("\N{RIGHT SINGLE QUOTATION MARK}", "'")
    return len(text) <= LONGEST_REFUSAL and _REFUSAL.match(text) is not None


MAX_IDENTICAL, _ENOUGH_TO_TELL = 0.1, 20
"""Share of the answers that may be equal without a note, and answers from which a share is told."""

REFUSAL_REASON = "refusal"
"""What some gateways give as the reason why an answer ended."""


@dataclass(frozen=True)
class Raw:
    """What an answer was before the thinking was taken out of it."""

    stripped: bool = False
    """Whether something was taken out: what is scored is not what the endpoint gave."""
    unfinished: bool = False
    """Whether it ends in the middle of the thinking."""
    declined: bool = False
    """Whether the endpoint itself says that the model refused."""


def raw_of(response: Any, model: EndpointPlan) -> tuple[Raw, str | None]:
    """Of an answer as the endpoint gave it, with what the model thought before it answered: between the markers, or in
    a field of its own; None: not given."""
    try:
        choice = openai_api.read_answer(response, model.endpoint_type)[0]
    except openai_api.UnusableAnswer:  # kept by an older version
        return Raw(), None
    cut_off = choice.finish_reason == openai_api.CUT_OFF
    split = model.adapter.without_reasoning(choice.text, cut_off=cut_off)
    message = response["choices"][0].get("message")
    raw = Raw(
        stripped=split.answer != choice.text,
        unfinished=split.unfinished or (cut_off and not split.answer.strip() and bool(choice.reasoning)),
        declined=choice.finish_reason == REFUSAL_REASON or (isinstance(message, dict) and bool(message.get("refusal"))),
    )
    thoughts = [part.strip() for part in (choice.reasoning, split.thought) if part]
    return raw, "\n\n".join(part for part in thoughts if part) or None


@dataclass
class EqualAnswers:
    """Answers that are the same to different questions, but for case and white space. Only hashes are stored."""

    times: Counter[int] = field(default_factory=Counter)
    """Hash of an answer -> how often it was given."""
    question: dict[int, int] = field(default_factory=dict)
    """The same -> hash of the first question that it was given to."""
    shared: set[int] = field(default_factory=set)
    """Of answers to different questions: the same question may be asked several times, and stand in the data twice."""

    def add(self, question: str, answer: str) -> None:
        text = hash(" ".join(answer.casefold().split()))
        self.times[text] += 1
        if self.question.setdefault(text, hash(question)) != hash(question):
            self.shared.add(text)

    @property
    def count(self) -> int:
        return sum(self.times[text] for text in self.shared)


@dataclass
class Readability(Part):
    """What was read from the answers of a run, counted request by request."""

    form: AnswerForm | None
    look_up: Callable[[output.RequestState], Raw | None]
    """The answer to a request as it was kept; None where it is not there any more."""
    unparsed: set[InstanceKey] = field(default_factory=set)
    refused: set[InstanceKey] = field(default_factory=set)
    stripped: set[InstanceKey] = field(default_factory=set)
    unfinished: set[InstanceKey] = field(default_factory=set)
    nothing: set[InstanceKey] = field(default_factory=set)
    """Empty where something had to be said, and not because of unfinished thinking."""
    prompt_truncated: set[InstanceKey] = field(default_factory=set)
    lenient: dict[InstanceKey, float] = field(default_factory=dict)
    same: EqualAnswers = field(default_factory=EqualAnswers)
    named: set[InstanceKey] = field(default_factory=set)
    """In whose answers the lenient readings find one option."""

    @classmethod
    def of(
        cls,
        plan: Plan,
        run: output.HelmRun,
        metrics: Sequence[MetricValues],
        look_up: Callable[[output.RequestState], Raw | None],
    ) -> Readability:
        entry = plan.evaluation.task.helm
        main, _ = chosen_main_metric(entry, [metric.label for metric in metrics])
        return cls(answer_form_of(entry, run, main), look_up)

    def add(self, key: InstanceKey, state: output.RequestState) -> None:
        """One request and its answer."""
        if state.prompt_truncated:
            self.prompt_truncated.add(key)
        if not has_failed(state) and not was_filtered(state):
            self._read(key, state, text_of(state))

    def complete(self, draft: Draft) -> None:
        """Add the lenient metrics."""
        draft.metrics += self.metrics(draft.metrics)

    def tell(self, draft: Draft) -> None:
        """What was counted, the notes, and whether too many answers say nothing."""
        extra = draft.plan.evaluation.run.config.params.extra
        draft.instances = self.counted(draft.instances)
        draft.notes.extend(self.notes(draft.plan, draft.instances, draft.scores))
        draft.not_reportable += why_unreadable(draft.instances, extra.max_unreadable)

    def _read(self, key: InstanceKey, state: output.RequestState, answer: str) -> None:
        raw = self.look_up(state) or Raw()
        if raw.stripped:
            self.stripped.add(key)
        # Equal answers are normal where they are labels: options, a form, or short texts.
        if self.form is None and not state.output_mapping and key[2] is None and len(answer.strip()) > MAX_LABEL_LENGTH:
            self.same.add(state.instance.input.text, answer)
        found = self.form is not None and bool(answer.strip()) and self.form.reads(state, answer)
        refused = not found and (raw.declined or is_refusal(answer))
        self._rate(key, state, "" if refused else answer)
        if refused:
            self.refused.add(key)
        elif not found:
            self._unread(key, state, answer, raw)

    def _rate(self, key: InstanceKey, state: output.RequestState, answer: str) -> None:
        """By the lenient rule; what HELM finds too is not looked for."""
        labels = self.form.labels(state) if self.form is not None else {}
        if self.form is not None and labels:
            alone = answer.strip()
            label = alone if alone in labels else label_in(answer, self.form.options(state))
            self.lenient[key] = float(self.form.is_right(state, label))
            if label is not None:
                self.named.add(key)

    def _unread(self, key: InstanceKey, state: output.RequestState, answer: str, raw: Raw) -> None:
        """Where nothing of a form was found: open text has none."""
        if raw.unfinished:
            self.unfinished.add(key)
        elif answer.strip():
            if self.form is not None:
                self.unparsed.add(key)
        elif _had_to_say_something(state):
            self.nothing.add(key)

    def counted(self, instances: Instances) -> Instances:
        """With what was counted here."""
        return replace(
            instances,
            unparsed=len(self.unparsed),
            refused=len(self.refused),
            thinking_stripped=len(self.stripped),
            thinking_unfinished=len(self.unfinished),
            prompt_truncated=len(self.prompt_truncated),
            unreadable=len(self.unparsed | self.unfinished | self.nothing),
            identical=self.same.count,
        )

    def metrics(self, metrics: Sequence[MetricValues]) -> list[MetricValues]:
        """The lenient ones, where questions have options."""
        return lenient_metrics(metrics, self.lenient) if self.lenient else []

    def signs_of(self, key: InstanceKey) -> tuple[str, ...]:
        """What is to be said of one instance's answer, by the names of the counts."""
        return tuple(name for name, keys in self._named() if key in keys)

    def _named(self) -> Iterator[tuple[str, set[InstanceKey]]]:
        yield "unparsed", self.unparsed
        yield "refused", self.refused
        yield "thinking_stripped", self.stripped
        yield "thinking_unfinished", self.unfinished
        yield "prompt_truncated", self.prompt_truncated

    def notes(self, plan: Plan, instances: Instances, scores: Mapping[str, Score]) -> Iterator[Note]:
        """What a reader has to know of it."""
        answered = instances.requested - instances.failed
        if self.unparsed and self.form is not None:
            told = (
                f"{len(self.unparsed)} of {answered} answers are not in the form that the benchmark asks for"
                f" ({self.form.about}): HELM's metrics read nothing from them"
            )
            if self.lenient:
                read = len(self.unparsed & self.named)
                told += f"; {read} of them state one option in other words or signs, which {METRIC}{LENIENT} reads"
            yield Note(Importance.INCOMPLETE, told)
        if self.unfinished:
            cut = f"{len(self.unfinished)} of {answered} answers were cut off while the model was thinking"
            yield Note(Importance.INCOMPLETE, cut)
        if self.prompt_truncated:
            length = plan.evaluation.run.config.params.extra.max_length
            cut = f"{len(self.prompt_truncated)} of {instances.requested} prompts were cut"
            told = f"{cut} to max_length ({length} tokens): the model saw a part of them only"
            yield Note(Importance.INCOMPLETE, told)
        yield from _notes_on_leniency(scores)
        if answered >= _ENOUGH_TO_TELL and instances.identical / answered > MAX_IDENTICAL:
            yield Note(
                Importance.DOUBTFUL,
                f"{instances.identical} of {answered} answers are word for word the answer to another question too: a"
                " text that fits any question may get good marks",
            )
        if self.refused:
            declined = (
                f"{len(self.refused)} of {answered} answers decline to answer; they count as HELM's metrics score them"
            )
            yield Note(Importance.DOUBTFUL, declined)
        if self.stripped:
            adapter = plan.model.adapter
            markers = f"{adapter.start_reasoning_token} to {adapter.end_reasoning_token}, or another model's markers"
            yield Note(
                Importance.DOUBTFUL,
                f"thinking ({markers}) was taken out of {len(self.stripped)} of {answered} answers before they were"
                " scored: bare HELM scores all of it",
            )


def _notes_on_leniency(scores: Mapping[str, Score]) -> Iterator[Note]:
    for label, score in scores.items():
        helm = scores.get(label.replace(LENIENT, "", 1)) if score.metric == METRIC + LENIENT else None
        if helm is not None and helm.value != score.value:
            yield Note(
                Importance.INCOMPLETE,
                f"{label} is {formats.score(score.value)}, HELM's own value {formats.score(helm.value)}: a gap of"
                f" {formats.score_change(score.value - helm.value)} for answers that state the option in other words or"
                ' signs ("B.", "(B)", "The answer is B")',
            )


def _had_to_say_something(state: output.RequestState) -> bool:
    """Not where no token was granted (the prompt alone is measured), and not where nothing is a right answer."""
    return state.request.get("max_tokens") != 0 and not nothing_is_right(state)
