"""Finds the option that each answer of a run states, by one rule for all answers of the run.

The rule is HELM's own match, or the reader. The reader is the package `reading`, which finds an
option in a sentence, too. The reader is the rule if HELM cannot read some answer, or if the answers
contain reasoning. By HELM's match, a model that answers in sentences would be wrong, or would have
changed its answer, only because of the form of its answers. HELM's match is the rule in all other
cases, and also if the reader finds no option in any answer. An answer that the run's rule cannot
read counts as unread: the answer is neither right nor changed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from eval_factory.core.asked_again_records import BY_HELM, BY_READER, RightBy
from eval_factory.helm import output
from eval_factory.scoring.part import Part
from eval_factory.scoring.readability import AnswerForm, option_that_helm_reads, right_answers
from eval_factory.scoring.request_states import answer_text_of, has_failed
from eval_factory.scoring.scores import InstanceKey
from eval_factory.tasks.asking_forms import ABSTAIN_ASKING, begins_not_to_know, says_not_to_know

MAX_STORED = 200  # the maximum length of an option that is stored, in characters


@dataclass
class RightAnswers(Part):
    """The part of a result that stores the options that answers state, by HELM and by the reader.

    The dictionaries have no entry for a failed request, nor for an answer in `not_to_know`.
    Perturbed instances and further askings are included.
    """

    form: AnswerForm | None  # None if answers are open text: these are compared word for word
    # the regular expression by which HELM finds a label; None if the complete answer is the label
    pattern: str | None
    # the form by which the reader reads answers with reasoning; None without reasoning
    reasoned_form: AnswerForm | None = None
    helm_matches: dict[InstanceKey, str] = field(default_factory=dict)
    """HELM's match in each answer: an option's text, or the matched text if it is not a label."""
    stated: dict[InstanceKey, str] = field(default_factory=dict)
    """The option that the reader finds in an answer; answers without an option are left out."""
    correctness: dict[InstanceKey, bool] = field(default_factory=dict)
    """True if the option that the reader finds is right; the keys are those of `stated`."""
    # the answers that are empty, or not in the form that HELM can read
    unread_by_helm: set[InstanceKey] = field(default_factory=set)
    correctness_of_reply: dict[InstanceKey, bool] = field(default_factory=dict)
    """True if the reply about an answer names the right option.

    If the reader cannot read an answer, a further turn asks the model which letter it means.
    """
    not_to_know: set[InstanceKey] = field(default_factory=set)
    """The answers that choose "I do not know", if this was offered (`extra.allow_abstain`)."""

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Store the options that an answer states, or that the answer is "I do not know".

        Failed requests are skipped.
        """
        if has_failed(state):
            return
        answer = answer_text_of(state)
        _, _, perturbation = key  # for further askings, the name of the asking
        # ABSTAIN_ASKING is the name of the askings that offer "I do not know".
        if perturbation == ABSTAIN_ASKING and self._abstains(state, answer):
            self.not_to_know.add(key)
            return
        options = state.output_mapping or {}
        label = option_that_helm_reads(answer, self.pattern)
        self.helm_matches[key] = stored_form(options.get(label, label))
        if self.form is None:
            return
        if not answer.strip() or not self.form.reads(state, answer):
            self.unread_by_helm.add(key)
        rated = (self.reasoned_form or self.form).option_and_rightness(state, answer)
        if rated is not None:
            text, is_right = rated
            self.stated[key] = stored_form(text)
            self.correctness[key] = is_right

    def see_other_form(self, key: InstanceKey, state: output.RequestState) -> None:
        """Store the options of an answer to a question in another form, as `see` does."""
        self.see(key, state)

    def add_reply(self, key: InstanceKey, state: output.RequestState, reply: str) -> None:
        """Store whether the reply about an answer names the right option.

        Do nothing if the reader found an option in the answer, or if it finds none in the reply.
        """
        form = self.reasoned_form or self.form
        if form is None or key in self.stated:
            return
        rated = form.option_and_rightness(state, reply)
        if rated is not None:
            _, is_right = rated
            self.correctness_of_reply[key] = is_right

    def value_with_reply(self, key: InstanceKey) -> float:
        """Return 1 if the answer states the right option, else 0.

        If the reader finds no option in the answer, the reply about the answer counts instead.
        """
        if key in self.correctness:
            return float(self.correctness[key])
        return float(self.correctness_of_reply.get(key, False))

    def label_in(self, state: output.RequestState) -> str:
        """Return the label that the reader finds in an answer.

        If it finds none, return the text that HELM looks up among the labels.
        """
        answer = answer_text_of(state)
        form = self.reasoned_form or self.form
        stated = None
        if form is not None:
            stated = form.stated_label(state, answer)
        if stated is None:
            return option_that_helm_reads(answer, self.pattern)
        return stated

    def _abstains(self, state: output.RequestState, answer: str) -> bool:
        """Return True if an answer abstains, by the option for abstaining or in plain words.

        A benchmark may have its own option "I do not know". A model that chooses this option
        abstains, unless the option is the right answer.
        """
        label = self.label_in(state)
        options = state.output_mapping or {}
        option = options.get(label)
        if option is not None:
            return begins_not_to_know(option) and option not in right_answers(state)
        is_label = self.form is not None and label in self.form.labels(state)
        return not is_label and says_not_to_know(answer, options.keys())

    @property
    def has_stated_options(self) -> bool:
        """True if the reader found an option in at least one answer."""
        return bool(self.stated)

    @property
    def is_read_by_reader(self) -> bool:
        """True if the rule of this run is the reader; False if the rule is HELM's match."""
        is_needed = bool(self.unread_by_helm) or self.reasoned_form is not None
        return self.has_stated_options and is_needed

    def comparable_answer(self, key: InstanceKey) -> str | None:
        """Return the option that the answer states by the run's rule.

        If answers are open text, return the answer itself, in its stored form. Return None if the
        rule finds no option, or if the request failed.
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
        """Return True if the answer to at least one of these askings of a question is unread.

        Args:
            unit: the question and its trial.
            names: the names of the askings; an empty name or None stands for the original question.
        """
        return any(self.is_unread((*unit, name or None)) for name in names)

    def reading_rule(self, keys: Collection[InstanceKey] | None = None) -> RightBy | None:
        """Return the run's rule, with the numbers of answers that HELM and this rule can read.

        Return None if answers are open text, or if there are no answers.

        Args:
            keys: the answers to count; all answers if None.
        """
        if self.form is None or not self.helm_matches:
            return None
        answers = set(self.helm_matches)
        if keys is not None:
            answers &= set(keys)
        read_by_helm = len(answers - self.unread_by_helm)
        if not self.is_read_by_reader:
            return RightBy(
                BY_HELM, answers=len(answers), read_by_helm=read_by_helm, read=read_by_helm
            )
        read_by_reader = len(answers & self.stated.keys())
        return RightBy(
            BY_READER, answers=len(answers), read_by_helm=read_by_helm, read=read_by_reader
        )


def stored_form(text: str) -> str:
    """Return the text in lower case, with single spaces, cut after `MAX_STORED` characters.

    Cut texts save memory. A hash of the uncut text follows, so that different texts stay different.
    The hash is valid in this process only.
    """
    normalised = " ".join(text.casefold().split())
    if len(normalised) <= MAX_STORED:
        return normalised
    return f"{normalised[:MAX_STORED]} {hash(normalised)}"
