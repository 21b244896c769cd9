"""The answers of a run that are right, and that say the same: by one rule for all of them.

HELM's own match where it reads every answer. As soon as it leaves one unread, the options that the
reader finds, for a model that writes sentences would be called wrong, or changed, by its form. An
answer that no rule reads is neither right nor changed: it is counted as unread.
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
from eval_factory.tasks.asking_forms import ABSTAIN, is_not_to_know, says_not_to_know

MAX_STORED = 200


@dataclass
class RightAnswers(Part):
    form: AnswerForm | None  # None: open text, which is compared word for word
    pattern: str | None  # by which HELM finds a label in an answer; None: the answer is the label
    reader: AnswerForm | None = None  # the form of reasoned answers; None: they are read as `form`
    helm_matches: dict[InstanceKey, str] = field(default_factory=dict)
    """HELM's match in each answer: an option's text, or the answer if it has none."""
    stated: dict[InstanceKey, str] = field(default_factory=dict)
    """The options that the reader finds; an answer in which it finds nothing is not in it."""
    right: dict[InstanceKey, bool] = field(default_factory=dict)
    """True if the option that the reader finds is right."""
    unread_by_helm: set[InstanceKey] = field(default_factory=set)
    replied: dict[InstanceKey, bool] = field(default_factory=dict)
    """True if the option is right that was named when the letter of an unread answer was asked
    for.
    """
    not_to_know: set[InstanceKey] = field(default_factory=set)
    """Answers that say not to know, if that was offered (`extra.allow_abstain`)."""

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """See an answer; a request that failed has none."""
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
        """See an answer to a question in another form: it is read in the same way."""
        self.see(key, state)

    def add_reply(self, key: InstanceKey, state: output.RequestState, reply: str) -> None:
        """Read the reply to the question for the letter of an unread answer."""
        form = self.reader or self.form
        if form is None or key in self.stated:
            return
        rated = form.rated(state, reply)
        if rated is not None:
            self.replied[key] = rated[1]

    def with_reply(self, key: InstanceKey) -> float:
        """1 if the answer, or else the reply about it, is right."""
        return float(self.right.get(key, self.replied.get(key, False)))

    def label_in(self, state: output.RequestState) -> str:
        """The label that the answer states, or what HELM looks up among labels."""
        answer = text_of(state)
        form = self.reader or self.form
        stated = None
        if form is not None:
            stated = form.stated(state, answer)
        if stated is None:
            return option_read(answer, self.pattern)
        return stated

    def _abstains(self, state: output.RequestState, answer: str) -> bool:
        """Return whether an answer abstains: by the option that is offered for it, or in plain
        words; a benchmark may have such an option of its own, which is an answer where it is right.
        """
        label = self.label_in(state)
        options = state.output_mapping or {}
        option = options.get(label)
        if option is not None:
            return is_not_to_know(option) and option not in right_answers(state)
        is_label = self.form is not None and label in self.form.labels(state)
        return not is_label and says_not_to_know(answer, options.keys())

    @property
    def has_reader(self) -> bool:
        """The reader can say more than HELM: only of options."""
        return bool(self.stated)

    @property
    def by_reader(self) -> bool:
        return self.has_reader and bool(self.unread_by_helm or self.reader is not None)

    def comparable_answer(self, key: InstanceKey) -> str | None:
        """Return the answer's option, to be compared with others; None if none is read from it."""
        if self.by_reader:
            return self.stated.get(key)
        if key in self.unread_by_helm:
            return None
        return self.helm_matches.get(key)

    def is_unread(self, key: InstanceKey) -> bool:
        """The answer came, and no rule reads it."""
        return key in self.helm_matches and self.comparable_answer(key) is None

    def is_unread_in(self, unit: tuple[str, int], names: Iterable[str | None]) -> bool:
        """No rule reads the answer to one of these askings of a question; empty: as it is."""
        return any(self.is_unread((*unit, name or None)) for name in names)

    def reading_rule(self, keys: Collection[InstanceKey] | None = None) -> RightBy | None:
        """The rule, named once for a result; None of open text."""
        if self.form is None or not self.helm_matches:
            return None
        answers = set(self.helm_matches)
        if keys is not None:
            answers &= set(keys)
        by_helm = len(answers - self.unread_by_helm)
        if not self.by_reader:
            return RightBy(BY_HELM, len(answers), by_helm, by_helm)
        return RightBy(BY_READER, len(answers), by_helm, len(answers & self.stated.keys()))


def stored_form(text: str) -> str:
    """The text without case and white space, and short: memory does not grow with answers."""
    plain = " ".join(text.casefold().split())
    if len(plain) <= MAX_STORED:
        return plain
    return f"{plain[:MAX_STORED]} {hash(plain)}"
