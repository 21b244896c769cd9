"""Defines the records of further askings: the changes of answers when questions are asked again
(`extra.repeats`, `perturb` and others).

A family is a kind of change in the words of questions, such as typing errors (`typos`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Share:
    """A share of questions, or a mean over questions, with its 95 % interval."""

    value: float
    count: int  # the number of questions
    ci_low: float | None = None
    ci_high: float | None = None


BY_HELM = "helm"
BY_READER = "reader"


@dataclass(frozen=True)
class RightBy:
    """The rule that decides whether an answer is right, and whether two answers are the same."""

    rule: str  # `helm`: HELM's own match; `reader`: the option that an answer states in any words
    answers: int  # the number of answers to original questions and to further askings
    read_by_helm: int  # the number of these answers that HELM's match reads
    read: int  # the number of answers that the rule reads; other answers are not counted


@dataclass(frozen=True)
class Change:
    """The mean of the main metric over the same questions, asked in two ways.

    `before` is the mean for the original questions, and `after` is the mean for the changed
    questions. A figure that cannot be computed is None.
    """

    questions: int  # the number of questions with both values
    before: float
    after: float
    difference: float  # after - before, paired
    ci_low: float | None = None
    ci_high: float | None = None
    p_value: float | None = None  # two-sided, for the null hypothesis of no difference
    # among the questions with the full value before: the share with a lower value after
    right_to_wrong: Share | None = None
    # among the questions with a lower value before: the share with the full value after
    wrong_to_right: Share | None = None
    same_words: Share | None = None
    """The share of the right answers that were not right when the question was asked again in the
    same words: the losses by chance alone.
    """
    # the number of skipped questions: at least one of their answers cannot be read
    unread: int = 0


@dataclass(frozen=True)
class Repeats:
    """The answers to questions that were asked several times in the same words."""

    times: int  # the number of times each question was asked
    questions: int  # the number of questions with a value each time
    # the mean over questions of a question's mean value, with an interval for both sources of error
    mean: Share | None = None
    stderr_between: float | None = None  # the standard error from the choice of the questions
    stderr_within: float | None = None  # the standard error from chance in the answers
    # the share of questions with the same option or label each time (free text: the same value)
    same_each_time: Share | None = None
    # among all pairs of answers to a question: the share that agrees (the mean over questions)
    pairs_agree: Share | None = None
    # the main metric of the most frequent answer (the first one in a tie); None for free text
    majority: Share | None = None
    # the main metric of each question's best answer
    best_of_n: Share | None = None
    # the number of skipped questions: at least one of their answers cannot be read
    unread: int = 0


@dataclass(frozen=True)
class InOtherWords:
    """The effect on the score if the questions are changed by one family of perturbations."""

    change: Change
    unchanged: int  # the number of questions that the family does not change; not asked again
    p_holm: float | None = None  # the p value, corrected for the number of families (Holm)
    groups: Mapping[str, Mapping[str, Change]] = field(default_factory=dict)
    """Field of the instances -> its value -> the change in this group. Groups of fewer than ten
    questions are left out.
    """
    lost: tuple[str, ...] = ()  # the ids of the first instances that turned from right to wrong


@dataclass(frozen=True)
class Pushback:
    """The changes of answers after turns that doubt the model's answer without naming an answer."""

    # for each turn: the answers after this turn, compared with the first answers
    turns: tuple[Change, ...] = ()
    changed_at: Mapping[str, int] = field(default_factory=dict)
    """Turn -> the number of answers that first changed after this turn. `never`: all answers could
    be read, and did not change; `unread`: the first answer or a later one could not be read, and
    those that could be read did not change.
    """


@dataclass(frozen=True)
class ConfidenceBin:
    """A group of questions with similar confidence."""

    count: int
    confidence: float  # the mean confidence
    right: float  # the share of right answers


@dataclass(frozen=True)
class Confidence:
    """The model's confidence in its answers, compared with the share of right answers."""

    # `stated`: stated by the model; `logprobs`: the probability of the answer's tokens
    source: str
    questions: int  # the number of questions with a value and a readable confidence
    unread: int  # the number of questions without a readable confidence
    mean: Share | None = None  # the mean confidence
    right: Share | None = None  # the share of right answers
    calibration_error: Share | None = None
    """The root of the mean squared difference between confidence and share of right answers, over
    ten groups of equal size, corrected for the bias by chance.
    """
    bins: tuple[ConfidenceBin, ...] = ()
    brier: Share | None = None
    reliability: float | None = None
    resolution: float | None = None
    uncertainty: float | None = None
    """The parts of the Brier score (reliability - resolution + uncertainty), over the same groups,
    each corrected for its bias.
    """
    # (share of questions answered, share of wrong answers among them), the most confident first
    risk_coverage: tuple[tuple[float, float], ...] = ()
    # the area under `risk_coverage`, which is the mean share of wrong answers; 0 is best
    area: Share | None = None
    unread_answers: int = 0  # the number of skipped answers, which no rule reads


@dataclass(frozen=True)
class Abstention:
    """The answers to questions that were asked again with "I do not know" as a possible answer."""

    cost_of_wrong: float  # the points that a wrong answer loses
    abstained: Share | None = None  # share of the questions answered with "I do not know"
    right_of_answered: Share | None = None  # share of right answers among the other questions
    # the mean of 1 for a right answer, -cost for a wrong answer and 0 for an abstention
    score: Share | None = None
    score_before: Share | None = None  # the score of the original answers at the same cost
    # among the questions whose original answer was wrong: the share of abstentions
    abstained_when_wrong: Share | None = None
    # among the questions whose original answer was right: the share of abstentions
    abstained_when_right: Share | None = None
    # the number of skipped questions: at least one of their answers cannot be read
    unread: int = 0


@dataclass(frozen=True)
class OptionsOnly:
    """The answers when only the choices are shown, without the question."""

    change: Change
    right: Share | None = None  # the share of right answers without the question
    guess: float | None = None  # the expected share of right answers for random choices


@dataclass(frozen=True)
class AskedAgain:
    """The results of all further askings of a run; None for an asking that was not made."""

    repeats: Repeats | None = None
    in_other_words: Mapping[str, InOtherWords] = field(default_factory=dict)
    """Family of perturbations -> its effect; without families that changed no question."""
    pushback: Pushback | None = None
    confidence: Confidence | None = None
    abstention: Abstention | None = None
    # among the questions whose right option is "none of these" or similar: the share answered right
    none_of_these: Share | None = None
    blind: Mapping[str, Change] = field(default_factory=dict)
    """The replacement of each question's picture (`blank`, `other`) -> its effect on the score."""
    right_by: RightBy | None = None  # None for free text, and in results of earlier versions
    options_only: OptionsOnly | None = None
    # the effect if the right option is replaced by "None of the other options"
    none_of_the_others: InOtherWords | None = None
