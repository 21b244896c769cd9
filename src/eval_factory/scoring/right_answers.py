"""Decides which answers of a run are right, and which option each states, by one rule per run.

HELM's own match is the rule if HELM can read every answer. If HELM cannot read an answer, the rule
is the option that the package `reading` finds. Otherwise a model that answers in sentences would be
called wrong, or changed, because of the form of its answers. An answer that neither rule can read
is neither right nor changed: it counts as unread.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from eval_factory.core.asked_again_records import BY_HELM, BY_READER, RightBy
from eval_factory.helm import output
from eval_factory.scoring.part import Part
from eval_factory.scoring.readability import AnswerForm, option_read, right_answers
from eval_factory.scoring.request_states import has_failed, text_of
from eval_factory.scoring.scores import InstanceKey
from eval_factory.tasks.asking_forms import ABSTAIN, begins_not_to_know, says_not_to_know

MAX_STORED = 200  # in characters


@dataclass
class RightAnswers(Part):
    """The options that the answers of a run state, by HELM and by the reader."""

    form: AnswerForm | None  # None for open text, which is compared word for word
    # the regular expression by which HELM finds a label; None if the whole answer is the label
    pattern: str | None
    reader: AnswerForm | None = None  # the form of reasoned answers; None if `form` is their form
    helm_matches: dict[InstanceKey, str] = field(default_factory=dict)
    """HELM's match in each answer: an option's text, or the matched text if it is not a label."""
    stated: dict[InstanceKey, str] = field(default_factory=dict)
    """The option that the reader finds in an answer; answers without an option are left out."""
    right: dict[InstanceKey, bool] = field(default_factory=dict)
    """True if the option that the reader finds is right."""
    unread_by_helm: set[InstanceKey] = field(default_factory=set)
    replied: dict[InstanceKey, bool] = field(default_factory=dict)
    """True if the reply about an unread answer names the right option.

    The model was asked which letter its unread answer means.
    """
    not_to_know: set[InstanceKey] = field(default_factory=set)
    """The answers that choose "I do not know", if this was offered (`extra.allow_abstain`)."""

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Store the options that an answer states; failed requests are skipped."""
        if has_failed(state):
            return
        answer = text_of(state)
        if key[2] == ABSTAIN and self._abstains(state, answer):
            self.not_to_know.add(key)
            return
        options = state.output_mapping or {}
        label = option_read(answer, self.pattern)
        self.helm_matches[key] = stored_form(options.get(label, label))
        if self.form is None:
            return
        if not answer.strip() or not self.form.reads(state, answer):
            self.unread_by_helm.add(key)
        rated = (self.reader or self.form).rated(state, answer)
        if rated is not None:
            text, is_right = rated
            self.stated[key] = stored_form(text)
            self.right[key] = is_right

    def see_other_form(self, key: InstanceKey, state: output.RequestState) -> None:
        """Store the options of an answer to a question in another form, as `see` does."""
        self.see(key, state)

    def add_reply(self, key: InstanceKey, state: output.RequestState, reply: str) -> None:
        """Read a reply in which the model states the letter that its unread answer means."""
        form = self.reader or self.form
        if form is None or key in self.stated:
            return
        rated = form.rated(state, reply)
        if rated is not None:
            self.replied[key] = rated[1]

    def with_reply(self, key: InstanceKey) -> float:
        """Return 1 if the answer is right, or if it is unread and the reply about it is right."""
        return float(self.right.get(key, self.replied.get(key, False)))

    def label_in(self, state: output.RequestState) -> str:
        """Return the label that the answer states; if none, the text that HELM looks up."""
        answer = text_of(state)
        form = self.reader or self.form
        stated = None
        if form is not None:
            stated = form.stated(state, answer)
        if stated is None:
            return option_read(answer, self.pattern)
        return stated

    def _abstains(self, state: output.RequestState, answer: str) -> bool:
        """Return True if an answer abstains, by the option for abstaining or in plain words.

        A benchmark may have its own option of this kind. If that option is the right answer, to
        choose it is not to abstain.
        """
        label = self.label_in(state)
        options = state.output_mapping or {}
        option = options.get(label)
        if option is not None:
            return begins_not_to_know(option) and option not in right_answers(state)
        is_label = self.form is not None and label in self.form.labels(state)
        return not is_label and says_not_to_know(answer, options.keys())

    @property
    def has_reader(self) -> bool:
        """True if the reader found an option in any answer."""
        return bool(self.stated)

    @property
    def is_read_by_reader(self) -> bool:
        """True if the rule of this run is the reader; False if the rule is HELM's match."""
        return self.has_reader and bool(self.unread_by_helm or self.reader is not None)

    def comparable_answer(self, key: InstanceKey) -> str | None:
        """Return the option that the answer states by the run's rule; None if it states none.

        For open text, return the answer itself.
        """
        if self.is_read_by_reader:
            return self.stated.get(key)
        if key in self.unread_by_helm:
            return None
        return self.helm_matches.get(key)

    def is_unread(self, key: InstanceKey) -> bool:
        """Return True if an answer arrived, and the run's rule finds no option in the answer."""
        return key in self.helm_matches and self.comparable_answer(key) is None

    def is_unread_in(self, unit: tuple[str, int], names: Iterable[str | None]) -> bool:
        """Return True if the answer to one of these askings of a question is unread.

        Args:
            unit: the question and its trial.
            names: the names of the askings; empty or None for the original question.
        """
        return any(self.is_unread((*unit, name or None)) for name in names)

    def reading_rule(self, keys: Collection[InstanceKey] | None = None) -> RightBy | None:
        """Return the run's rule with the number of answers that it reads; None for open text.

        Args:
            keys: the answers to count; all if None.
        """
        if self.form is None or not self.helm_matches:
            return None
        answers = set(self.helm_matches)
        if keys is not None:
            answers &= set(keys)
        read_by_helm = len(answers - self.unread_by_helm)
        if not self.is_read_by_reader:
            return RightBy(BY_HELM, len(answers), read_by_helm, read_by_helm)
        return RightBy(BY_READER, len(answers), read_by_helm, len(answers & self.stated.keys()))


def stored_form(text: str) -> str:
    """Return the text in lower case, with single spaces, cut to `MAX_STORED` characters.

    A hash replaces the cut part, so that texts stay distinct and long answers take little memory.
    """
    plain = " ".join(text.casefold().split())
    if len(plain) <= MAX_STORED:
        return plain
    return f"{plain[:MAX_STORED]} {hash(plain)}"
