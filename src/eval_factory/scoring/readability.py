"""Finds the answers that a metric cannot read, refusals, and other signs of answers.

A sign is a remark on one answer, such as `refused` or `unparsed` (`core/signs.py`).

A metric reads answers of one form, such as the letter of an option. It cannot read an answer that
is in another form, empty or cut off. Most forms follow from HELM's run spec and references. A form
that only the prompt describes is declared in framework.yml (`answer_labels`, `answer_form`). Open
text has no form, so a metric can read every answer with text.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime

from eval_factory.core import formats
from eval_factory.core.finish_reasons import FinishReason
from eval_factory.core.results import Instances, Score
from eval_factory.core.signs import ANSWER_SIGNS
from eval_factory.helm import output
from eval_factory.helm.trivial_answers import MAX_LABEL_LENGTH
from eval_factory.plan.run_plan import Plan
from eval_factory.reading import is_refusal, stated_option
from eval_factory.scoring.corrections import sentence_number_in
from eval_factory.scoring.cut_prompts import NONE_CUT, CutPrompts, CutPromptsFound
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.journal import UNKNOWN_ANSWER, CachedAnswer
from eval_factory.scoring.medcalc_values import DATE_FORMATS
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.part import Part
from eval_factory.scoring.reportable import Unreadable
from eval_factory.scoring.request_states import (
    answer_text_of,
    finish_reason_of,
    has_failed,
    sent_text,
    was_filtered,
)
from eval_factory.scoring.scores import InstanceKey
from eval_factory.scoring.stated_options import EXACT_MATCH, LENIENT_SUFFIX, lenient_metrics
from eval_factory.tasks.choice_question import options_shown
from eval_factory.tasks.concordance import rating_in
from eval_factory.tasks.framework import HelmEntry
from eval_factory.tasks.reasoned import REASONED_STYLE

MAX_READ = 20_000  # the longest part of an answer that is searched for an option, in characters
MAX_IDENTICAL = 0.1
"""A note warns if more than this share of the answers repeat the answer to another question."""
_MIN_ANSWERS = 20
"""The smallest number of answers with which `MAX_IDENTICAL` is checked."""
_NEARLY_ALL = 0.9
"""An answer that was cut off below this share of its token limit was cut by a full window."""
# a duration, such as "3 weeks and 2 days" or "('3 weeks', '2 days')"
_WEEKS = re.compile(r"\D{0,9}\d+ weeks\W{1,9}(?:and )?\d+ days")
# "<sql>SELECT 1</sql>"; the closing tag may lack its slash
_SQL_TAG = re.compile(r"<\s*sql\s*>(.*?)</?\s*sql\s*>", re.DOTALL | re.IGNORECASE)
# "sql" alone on a line: the language of a code fence whose backticks were removed
_FENCE_NAME = re.compile(r"^sql\n", re.MULTILINE)
# SELECT or WITH, after white space, brackets and comments: "-- all\n (select"
_QUERY = re.compile(r"(?:[\s(]|--[^\n]*\n)*(?:select|with)\b", re.IGNORECASE)


@dataclass(frozen=True)
class AnswerForm:
    """The form in which HELM's metric can read an answer."""

    about: str  # a description for the reader of a report
    reads: Callable[[output.RequestState, str], bool]
    """Returns True if HELM can read an answer. Callers pass only answers that are not empty."""
    labels: Callable[[output.RequestState], Mapping[str, str]] = lambda _state: {}
    """Returns a dict from the label of an option to the text that is compared with the references.

    The dict is empty if the question has no options.
    """

    def options(self, state: output.RequestState) -> Mapping[str, str]:
        """Return a dict from the label of each option to its text; an unknown text is empty.

        If labels alone are compared with the references, the texts are read from the prompt.
        """
        labels = self.labels(state)
        if any(label != text for label, text in labels.items()):
            return labels
        shown = options_shown(state.instance.input.text)
        return {label: shown.get(label, "") for label in labels}

    def stated_label(self, state: output.RequestState, answer: str) -> str | None:
        """Return the label of the option that an answer states, in HELM's form or any other form.

        Return None if the answer states no option, or if the form has no options.
        """
        labels = self.labels(state)
        if not labels:
            return None
        stripped = answer.strip()
        if stripped in labels:
            return stripped
        return stated_option(part_read(answer), self.options(state))

    def option_and_rightness(
        self, state: output.RequestState, answer: str
    ) -> tuple[str, bool] | None:
        """Return (text of the stated option, True if the option is right).

        Return None if the answer states no option.
        """
        label = self.stated_label(state, answer)
        if label is None:
            return None
        return self.labels(state)[label], self.is_right(state, label)

    def is_right(self, state: output.RequestState, label: str | None) -> bool:
        """Return True if this is the label of a right option."""
        if label is None:
            return False
        chosen = self.labels(state).get(label)
        return chosen is not None and chosen.strip() in map(str.strip, right_answers(state))


def part_read(answer: str) -> str:
    """Return the part of an answer that is searched for an option.

    If the answer has more than `MAX_READ` characters, only its beginning and its end are searched,
    because the search takes 20 s per megabyte.
    """
    if len(answer) <= MAX_READ:
        return answer
    half = MAX_READ // 2
    return f"{answer[:half]}\n\n{answer[-half:]}"


def window_is_full(state: output.RequestState, stored: CachedAnswer) -> bool:
    """Return True if the answer was cut off because the context window of the server was full.

    Such an answer ends well before its token limit. Return False if the limit or the number of
    tokens is unknown.
    """
    max_tokens = state.request.get("max_tokens")
    _, generated = stored.tokens  # the tokens of the prompt and of the answer
    if finish_reason_of(state) != FinishReason.LENGTH or not max_tokens or generated is None:
        return False
    return bool(generated < _NEARLY_ALL * max_tokens)


def kind_of_empty(state: output.RequestState, stored: CachedAnswer) -> Unreadable:
    """Return the kind of an empty answer: the reason why it is empty."""
    if finish_reason_of(state) == FinishReason.LENGTH:
        if window_is_full(state, stored):
            return Unreadable.FULL_WINDOW
        return Unreadable.CUT_OFF
    if stored.thought_key is not None:  # the response has thinking, but no answer
        return Unreadable.IN_REASONING
    return Unreadable.ENDED


def empty_answer_is_right(state: output.RequestState) -> bool:
    """Return True if an empty answer to this question is right.

    Some questions of ehr_sql cannot be answered by a query: the right answer is then empty.
    """
    impossible = (state.instance.extra_data or {}).get("is_impossible") is True
    return impossible or any(not text.strip() for text in right_answers(state))


def right_answers(state: output.RequestState) -> list[str]:
    """Return the texts of the references that are tagged as correct."""
    return [ref.output.text for ref in state.instance.references if output.CORRECT_TAG in ref.tags]


def answer_form_of(entry: HelmEntry, run: output.HelmRun, main_metric: str) -> AnswerForm | None:
    """Return the form in which HELM's metric can read an answer to the benchmark.

    Return None if no form is known, as for open text and for generated pictures.

    Args:
        entry: the task's entry in framework.yml.
        run: HELM's run.
        main_metric: the name of the main metric.
    """
    if entry.answer_form is not None:
        return _FORMS[entry.answer_form]
    if entry.answer_labels:
        return _form_of_labels(entry.answer_labels)
    # Without exact_match, HELM compares no answer with an option.
    if not any(stat.name.name == EXACT_MATCH for stat in run.stats):
        return None
    adapter = run.run_spec.adapter_spec
    if adapter.method in ("multiple_choice_joint", "multiple_choice_joint_multimodal"):
        return _form_of_letters(adapter.output_mapping_pattern)
    if adapter.method != "generation" or main_metric != EXACT_MATCH:
        return None
    last = _last_letter_in(run)
    if last is None:
        return None
    # All letters up to the last, and A to D at least, are labels: the sampled instances may not
    # contain every letter.
    last = max(last, "D")
    return _form_of_labels([chr(code) for code in range(ord("A"), ord(last) + 1)])


def _form_of_letters(pattern: str | None) -> AnswerForm:
    """Return the form of an answer that is the letter of an option.

    HELM maps the letters of the options to their texts for each request. For `pattern` see
    `option_that_helm_reads`.
    """

    def reads(state: output.RequestState, answer: str) -> bool:
        """Return True if HELM finds the answer among the letters."""
        return option_that_helm_reads(answer, pattern) in (state.output_mapping or {})

    def labels(state: output.RequestState) -> Mapping[str, str]:
        """Return a dict from each letter to the text of its option."""
        return state.output_mapping or {}

    return AnswerForm("the letter of an option alone", reads=reads, labels=labels)


def _last_letter_in(run: output.HelmRun) -> str | None:
    """Return the last letter of the alphabet among the references of a run.

    Return None if a reference is not a single capital letter, or if an instance has no reference.
    """
    last = None
    for state in run.request_states():
        if not state.instance.references:
            return None
        for reference in state.instance.references:
            text = reference.output.text.strip()
            if len(text) != 1 or not "A" <= text <= "Z":
                return None
            last = text if last is None else max(last, text)
    return last


def option_that_helm_reads(answer: str, pattern: str | None) -> str:
    """Return the part of an answer that HELM looks up among the labels of options.

    Return an empty text if the pattern does not match.

    Args:
        answer: the answer.
        pattern: HELM's regular expression for a label; None if the answer itself is looked up.
    """
    label = answer.strip()
    if not pattern:
        return label
    match = re.search(pattern, label)
    if match is None:
        return ""
    if match.groups():
        return match[1]
    return match[0]


def _form_of_labels(labels: Sequence[str]) -> AnswerForm:
    """Return the form of an answer that is one of the labels."""
    return AnswerForm(
        f"one of {', '.join(labels)} alone",
        reads=lambda _state, answer: answer.strip() in labels,
        labels=lambda _state: dict(zip(labels, labels, strict=True)),
    )


def _reads_value(state: output.RequestState, answer: str) -> bool:
    """Return True if the answer is a value of the same kind as the right answer.

    The kinds are those of medcalc_bench: a number, a date, or a duration in weeks and days. Also
    return True if the right answer is of none of these kinds.
    """

    gold = next(iter(right_answers(state)), "").strip()
    for is_of_kind in (_is_number, _is_date, _is_duration):
        if is_of_kind(gold):
            return is_of_kind(answer.strip())
    return True


def _is_number(text: str) -> bool:
    """Return True if the text is a finite number."""
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _is_date(text: str) -> bool:
    """Return True if the text is a date in the US format, the only format that HELM reads."""
    try:
        datetime.strptime(text, DATE_FORMATS[0])
    except ValueError:
        return False
    return True


def _is_duration(text: str) -> bool:
    """Return True if the text begins with a duration in weeks and days."""
    return _WEEKS.match(text) is not None


def _reads_query(state: output.RequestState, answer: str) -> bool:
    """Return True if HELM extracts an SQL query from the answer.

    HELM takes the text between `<sql>` tags, and removes backticks and the language name of a code
    fence. Empty tags or an empty fence count as an empty answer. For such an answer, return True
    only if an empty answer is right.
    """
    text = answer
    if "sql" in answer.lower():
        tagged = _SQL_TAG.search(answer)
        if tagged is not None:
            text = tagged[1]
    text = text.strip().replace("`", "").strip()
    # The added line break lets the pattern match a name without a query, too.
    query = _FENCE_NAME.sub("", f"{text}\n").strip()
    if not query:
        return empty_answer_is_right(state)
    return _QUERY.match(query) is not None


_FORMS = {
    "value": AnswerForm("the value alone, without its unit", reads=_reads_value),
    "sentence": AnswerForm(
        "CORRECT, or the number of a sentence first",
        reads=lambda _state, answer: sentence_number_in(answer) is not None,
    ),
    "sql": AnswerForm("a query alone, or nothing", reads=_reads_query),
    "rating": AnswerForm(
        "a rating from -2 to +2", reads=lambda _state, answer: rating_in(answer) is not None
    ),
}
"""A value of `answer_form` in framework.yml -> the form."""


@dataclass
class Readability(Part):
    """The part of a result that counts unreadable answers, and signs such as refusals."""

    form: AnswerForm | None  # None if answers are open text
    # returns the stored answer; None if the cache has lost it
    look_up: Callable[[output.RequestState], CachedAnswer | None]
    signs: dict[str, set[InstanceKey]] = field(
        default_factory=lambda: {name: set() for name in ANSWER_SIGNS}
    )
    """Name of a sign, such as `refused` -> the instances whose answers show the sign."""
    # instances with an empty answer; refusals, answers that were cut off during thinking, and
    # questions for which an empty answer is right are left out
    empty: set[InstanceKey] = field(default_factory=set)
    # instance -> 1 if the option that its answer states in any form is right, else 0
    lenient: dict[InstanceKey, float] = field(default_factory=dict)
    times_given: Counter[tuple[int, int]] = field(default_factory=Counter)
    """(hash of an answer, hash of its question) -> the number of times that this answer was given.

    Answers that differ only in case or in the amount of white space are the same answer.
    """
    # instances whose answers state one option, in any form
    with_option: set[InstanceKey] = field(default_factory=set)
    kinds: dict[InstanceKey, Unreadable] = field(default_factory=dict)
    """Instance with an unreadable answer -> the kind of that answer."""
    # the numbers of tokens and characters of all prompts, from which cut prompts are found
    prompt_sizes: CutPrompts = field(default_factory=CutPrompts)
    cut_prompts: CutPromptsFound = NONE_CUT
    """The prompts that the server cut; set after all prompts were seen."""
    prompts: int = 0
    """The number of prompts that this part saw.

    Further turns and questions in other forms are not counted, because the benchmark prescribes no
    form for their answers.
    """
    failed: int = 0  # the number of seen prompts whose request failed

    @property
    def answered_prompts(self) -> int:
        """The number of prompts that were answered."""
        return self.prompts - self.failed

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Count a prompt, and store the signs of its answer.

        There is no answer if the request failed, or if a content filter removed the answer.
        """
        self.prompts += 1
        if state.prompt_truncated:
            self.signs["prompt_truncated"].add(key)
        if has_failed(state):
            self.failed += 1
            return
        if was_filtered(state):
            return
        stored = self.look_up(state) or UNKNOWN_ANSWER
        prompt_tokens, _ = stored.tokens
        self.prompt_sizes.add(key, sent_text(state), prompt_tokens, stored.cached_tokens)
        if stored.stripped:
            self.signs["thinking_stripped"].add(key)
        self._count_open_text(key, state)
        self._see_answer(key, state, stored)

    def _count_open_text(self, key: InstanceKey, state: output.RequestState) -> None:
        """Count an answer of open text, to find repeated answers.

        Labels and short texts are not counted, because it is normal that these are equal.
        """
        answer = answer_text_of(state)
        is_open_text = self.form is None and not state.output_mapping
        _, _, perturbation = key
        is_original = perturbation is None  # neither perturbed nor asked again
        if is_open_text and is_original and len(answer.strip()) > MAX_LABEL_LENGTH:
            answer_hash = hash(" ".join(answer.casefold().split()))
            self.times_given[answer_hash, hash(state.instance.input.text)] += 1

    def _see_answer(
        self, key: InstanceKey, state: output.RequestState, stored: CachedAnswer
    ) -> None:
        """Store the lenient value of an answer; for a refusal or unreadable answer, store its sign.

        The kind of an unreadable answer is stored, too.
        """
        form = self.form
        answer = answer_text_of(state)
        has_text = bool(answer.strip())
        is_read = form is not None and has_text and form.reads(state, answer)
        # An answer that HELM can read counts as an answer, also if the endpoint reports a refusal.
        declined = not is_read and stored.declined
        label = None
        if not declined:
            label = self._stated(state, answer)
        self._rate(key, state, label)
        states_nothing = not is_read and label is None
        if declined or (states_nothing and is_refusal(answer)):
            self.signs["refused"].add(key)
        elif not is_read and stored.unfinished:
            self.signs["thinking_unfinished"].add(key)
            self.kinds[key] = Unreadable.UNFINISHED
            if window_is_full(state, stored):
                self.kinds[key] = Unreadable.FULL_WINDOW
        elif not is_read and has_text and form is not None:
            self.signs["unparsed"].add(key)
            self.kinds[key] = Unreadable.UNPARSED
        elif not has_text and not self._may_be_empty(state):
            self.empty.add(key)
            self.kinds[key] = kind_of_empty(state, stored)
        # All other answers can be read, are open text, or are rightly empty.

    @staticmethod
    def _may_be_empty(state: output.RequestState) -> bool:
        """Return True if an empty answer to this request is normal."""
        # Some run specs ask only for the probability of the prompt, and for no new token.
        measures_prompt_alone = state.request.get("max_tokens") == 0
        return measures_prompt_alone or empty_answer_is_right(state)

    def complete(self, draft: Draft) -> None:
        """Find the prompts that the server cut, and add the lenient metrics."""
        # With `max_length`, HELM itself cuts prompts: many equal lengths are then not a sign that
        # the server cut the prompts.
        limited = draft.plan.evaluation.extra.max_length is not None
        self.cut_prompts = self.prompt_sizes.find_cut(by_plateau=not limited)
        self.signs["prompt_truncated"] |= self.cut_prompts.keys
        is_reasoned = draft.plan.evaluation.extra.answer_style == REASONED_STYLE
        if self.lenient and not is_reasoned:  # `lenient` is empty if questions have no options
            draft.metrics += lenient_metrics(draft.metrics, self.lenient)

    def report(self, draft: Draft) -> None:
        """Add the counts and notes of this part to the result."""
        draft.instances = self.with_own_counts(draft.instances)
        draft.notes.extend(self.notes(draft.plan, draft.instances, draft.scores))
        draft.unreadable = Counter(self.kinds.values())
        draft.cut_prompts = self.cut_prompts
        draft.prompts_with_form = self.prompts
        draft.answers_with_form = self.answered_prompts

    def _stated(self, state: output.RequestState, answer: str) -> str | None:
        """Return the label of the option that an answer states; None if it states none."""
        if self.form is None or not self.form.labels(state):
            return None
        return self.form.stated_label(state, answer)

    def _rate(self, key: InstanceKey, state: output.RequestState, label: str | None) -> None:
        """Store 1 if the stated option is right, else 0; do nothing if the question has no options.

        Args:
            key: the instance.
            state: HELM's record of the request.
            label: the label of the stated option; None if the answer states no option.
        """
        if self.form is None or not self.form.labels(state):
            return
        self.lenient[key] = float(self.form.is_right(state, label))
        if label is not None:
            self.with_option.add(key)

    def with_own_counts(self, instances: Instances) -> Instances:
        """Return the counts of instances with the counts of this part added.

        An answer counts as identical if the same answer was also given to another question.
        """
        # answer -> the number of different questions to which it was given
        number_of_questions = Counter(answer for answer, _ in self.times_given)
        identical = 0
        for (answer, _), times in self.times_given.items():
            if number_of_questions[answer] > 1:
                identical += times
        unreadable = self.signs["unparsed"] | self.signs["thinking_unfinished"] | self.empty
        counts = {name: len(keys) for name, keys in self.signs.items()}
        # Each sign has a field of its name in `Instances`.
        return replace(instances, **counts, unreadable=len(unreadable), identical=identical)

    def signs_of(self, key: InstanceKey) -> tuple[str, ...]:
        """Return the names of the signs that the instance's answer shows."""
        return tuple(name for name, keys in self.signs.items() if key in keys)

    def notes(
        self, plan: Plan, instances: Instances, scores: Mapping[str, Score]
    ) -> Iterator[Note]:
        """Yield the notes of this part; notes on incomplete scores come first."""
        yield from self._notes_on_reading(plan)
        yield from _notes_on_lenient_scores(scores)
        yield from self._notes_on_content(plan, instances)

    def _texts_of_counts(self) -> dict[str, str]:
        """Return a dict from each sign that occurs to a text such as "3 of 20 answers"."""
        texts = {}
        for name, keys in self.signs.items():
            if keys:
                texts[name] = f"{len(keys)} of {self.answered_prompts} answers"
        return texts

    def _notes_on_reading(self, plan: Plan) -> Iterator[Note]:
        """Yield notes on answers that the metrics cannot read, and on cut prompts."""
        counts = self._texts_of_counts()
        is_reasoned = plan.evaluation.extra.answer_style == REASONED_STYLE
        if "unparsed" in counts and is_reasoned:
            text = f"{counts['unparsed']} state no answer, neither in a last line nor elsewhere"
            yield Note(Importance.INCOMPLETE, f"{text}: they count as wrong")
        elif "unparsed" in counts and self.form is not None:
            text = (
                f"{counts['unparsed']} are not in the form that the benchmark asks for "
                f"({self.form.about}): HELM's"
                " metrics read nothing from them"
            )
            if self.lenient:
                with_option = len(self.signs["unparsed"] & self.with_option)
                text += (
                    f"; {with_option} of them state one option in other words or signs, "
                    f"which {EXACT_MATCH}{LENIENT_SUFFIX} reads"
                )
            yield Note(Importance.INCOMPLETE, text)
        if "thinking_unfinished" in counts:
            text = f"{counts['thinking_unfinished']} were cut off while the model was thinking"
            yield Note(Importance.INCOMPLETE, text)
        if self.cut_prompts.keys:
            yield Note(Importance.INCOMPLETE, self.cut_prompts.make_note(self.prompts))
        cut_by_helm = len(self.signs["prompt_truncated"] - self.cut_prompts.keys)
        if cut_by_helm:
            length = plan.evaluation.extra.max_length
            text = (
                f"{cut_by_helm} of {self.prompts} prompts were cut to max_length ({length} tokens)"
            )
            yield Note(Importance.INCOMPLETE, f"{text}: the model saw a part of them only")

    def _notes_on_content(self, plan: Plan, instances: Instances) -> Iterator[Note]:
        """Yield notes on repeated answers, refusals, and thinking that was removed."""
        answered = self.answered_prompts
        counts = self._texts_of_counts()
        if answered >= _MIN_ANSWERS and instances.identical / answered > MAX_IDENTICAL:
            text = (
                f"{instances.identical} of {answered} "
                "answers repeat word for word the answer to another question"
            )
            yield Note(
                Importance.DOUBTFUL, f"{text}: a text that fits any question may get good marks"
            )
        if "refused" in counts:
            text = (
                f"{counts['refused']} decline to answer; HELM's metrics score them like any other "
                "answer"
            )
            yield Note(Importance.DOUBTFUL, text)
        if "thinking_stripped" in counts:
            adapter = plan.model.adapter
            markers = (
                f"{adapter.start_reasoning_token} "
                f"to {adapter.end_reasoning_token}, or another model's markers"
            )
            text = (
                f"thinking ({markers}) was taken out of {counts['thinking_stripped']} "
                "before they were scored"
            )
            yield Note(Importance.DOUBTFUL, f"{text}: bare HELM scores all of it")


def _notes_on_lenient_scores(scores: Mapping[str, Score]) -> Iterator[Note]:
    """Yield a note on each lenient score that differs from HELM's own score."""
    for label, score in scores.items():
        if score.metric != EXACT_MATCH + LENIENT_SUFFIX:
            continue
        # The label of HELM's own score is the same label without the suffix.
        helm_score = scores.get(label.replace(LENIENT_SUFFIX, "", 1))
        if helm_score is None or helm_score.value == score.value:
            continue
        gap = formats.score(score.value - helm_score.value, sign="+")
        yield Note(
            Importance.INCOMPLETE,
            f"{label} is {formats.score(score.value)}, HELM's own value "
            f"{formats.score(helm_score.value)}: a gap of {gap} for answers that state "
            'the option in other words or signs ("B.", "(B)", "The answer is B")',
        )
