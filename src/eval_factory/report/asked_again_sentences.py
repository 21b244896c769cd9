"""Describes in sentences how answers change when questions are asked again in other ways.

The sentences appear on the screen, in report.md and on the page. A question may be asked again in
the same words, in other words, in another order of its choices, without its picture, after a doubt,
and so on. `core/asked_again_records.py` defines the records of the changes.

A right answer is lost if the answer is wrong when the question is asked again. A wrong answer is
won if the answer is right then. A family is a kind of rewording, such as `typos`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eval_factory.core import formats, results
from eval_factory.core.asked_again_records import (
    BY_HELM,
    Abstention,
    AskedAgain,
    Change,
    Confidence,
    InOtherWords,
    OptionsOnly,
    Pushback,
    Repeats,
    RightBy,
    Share,
)
from eval_factory.core.formats import counted
from eval_factory.core.results import InstanceRecord
from eval_factory.tasks.asking_forms import BLIND_PICTURES, PERTURB_PREFIX
from eval_factory.tasks.perturbations import FAMILIES

MAX_ON_SCREEN = 3  # the maximum number of families of rewordings that the screen shows
MIN_QUESTIONS = 10  # the minimum number of questions for a sentence about a family of rewordings


def asked_again_lines(record: AskedAgain | None, max_families: int | None = None) -> Iterator[str]:
    """Yield a sentence for each finding from questions that were asked again.

    The sentences are for readers who decide whether the model may be used. `max_families` limits
    the families of rewordings to those that lower the score most; None reports all of them.
    """
    if record is None:
        return
    if record.right_by is not None:
        yield right_by_line(record.right_by)
    if record.repeats is not None:
        yield _repeats_line(record.repeats)
    yield from _other_words_lines(record.in_other_words, max_families)
    for kind, change in record.blind.items():  # `kind`: the picture that replaces the question's
        yield _loss_line(change, f"with {BLIND_PICTURES[kind]} in place of its own")
    if record.options_only is not None:
        yield _options_only_line(record.options_only)
    if record.none_of_the_others is not None:
        replaced = 'with its right option replaced by "None of the other options"'
        yield _loss_line(record.none_of_the_others.change, replaced)
    if record.pushback is not None:
        yield from _pushback_lines(record.pushback)
    if record.confidence is not None:
        yield _confidence_line(record.confidence)
    if record.abstention is not None:
        yield _abstention_line(record.abstention)
    if record.none_of_these is not None:
        share = record.none_of_these
        questions = counted(share.count, "question")
        yield (
            f"of {questions} where no other option is right, "
            f"the model says so for {_percent(share.value)}"
        )


def right_by_line(right_by: RightBy) -> str:
    """Return a sentence about the rule that decides whether an answer is right.

    The sentence also has the number of answers that the rule can read.
    """
    answers = counted(right_by.answers, "answer")
    if right_by.rule == BY_HELM:
        line = (
            "an answer counts as right here where HELM's match with the right answer says so; "
            f"it can read {right_by.read:,} of {answers}"
        )
        unread = right_by.answers - right_by.read
        if unread:
            line += f"; the {unread:,} that it cannot read count as neither right nor changed"
        return line
    return (
        "an answer counts as right here where it states the right option: HELM's match can read "
        f"{right_by.read_by_helm:,} of {answers}, eval-factory's reader {right_by.read:,}; "
        "an answer that the reader cannot read counts as neither right nor changed"
    )


def _repeats_line(repeats: Repeats) -> str:
    """Return a sentence about questions that were asked several times in the same words."""
    if repeats.mean is None:
        return f"asked {repeats.times} times: no question was scored every time"
    questions = f"{counted(repeats.questions, 'question')}{_unread_text(repeats.unread)}"
    line = f"asked {repeats.times} times ({questions}): mean {_value_with_interval(repeats.mean)}"
    if repeats.same_each_time is not None:
        line += f"; the same answer each time to {_percent(repeats.same_each_time.value)} of them"
    if repeats.majority is not None:
        line += f"; its most frequent answer scores {formats.score(repeats.majority.value)}"
    return line


def _other_words_lines(
    in_other_words: Mapping[str, InOtherWords], max_families: int | None
) -> Iterator[str]:
    """Yield a sentence for each family of rewordings, the most harmful family first.

    The families with too few questions share one sentence at the end.
    """
    families = []
    small_families = []
    for name, family in families_by_harm(in_other_words):
        if family.change.questions >= MIN_QUESTIONS:
            families.append((name, family))
        else:
            small_families.append(name)
    for name, family in families[:max_families]:  # all families, if `max_families` is None
        rewording = f"HELM's {name} was applied"
        if name in FAMILIES:
            rewording = FAMILIES[name].about
        p_value = ""
        if family.p_holm is not None:
            p_value = f", p {formats.p_value(family.p_holm)} (Holm)"
        yield _loss_line(family.change, f"when {rewording}", p_value)
    if max_families is not None and len(families) > max_families:
        kinds = counted(len(families) - max_families, "more kind")
        yield f"{kinds} of other words cost less (see report.html)"
    if small_families:
        kinds = ", ".join(sorted(small_families))
        yield (
            f"nothing can be said of the other words of the kinds {kinds}: "
            "too few of their questions have readable answers"
        )


def families_by_harm(families: Mapping[str, InOtherWords]) -> list[tuple[str, InOtherWords]]:
    """Return (name, family) pairs; the family that lowers the score most comes first.

    Families with the same difference are in the order of their names.
    """
    # `difference` is after - before: the greatest loss is the lowest difference.
    return sorted(families.items(), key=lambda item: (item[1].change.difference, item[0]))


def _loss_line(change: Change, circumstance: str, p_value: str = "") -> str:
    """Return a sentence about a change of the score under a circumstance.

    The sentence has the numbers of right answers that were lost and won, and the difference of the
    scores with its p value. Remarks on how to read the loss follow.
    """
    difference = f"{_difference_text(change)}{p_value}"
    return f"{_loss_text(change)} {circumstance}: {difference}{_loss_remarks(change)}"


def _loss_text(change: Change) -> str:
    """Return the numbers of right answers that were lost and won.

    An example is `of 40 questions that the model got right, 12 were lost (and 2 of 20 others won)`.
    """
    lost_share = change.right_to_wrong  # of the questions that were right at first; None if none
    won_share = change.wrong_to_right  # of the questions that were wrong at first; None if none
    won = 0
    if won_share is not None:
        won = _count_in_share(won_share)
    if lost_share is None and won_share is not None:
        questions = counted(won_share.count, "question")
        return f"none of {questions} was right at first, and {_were_text(won)} won"
    if lost_share is None:
        return "the score changed"
    loss_text = (
        f"of {counted(lost_share.count, 'question')} that the model got right, "
        f"{_were_text(_count_in_share(lost_share))} lost"
    )
    if won_share is None or won == 0:
        return loss_text
    return f"{loss_text} (and {won} of {won_share.count} others won)"


def _were_text(number: int) -> str:
    """Return the number with its verb: `1 was`, `2 were`."""
    if number == 1:
        return "1 was"
    return f"{number:,} were"


def _count_in_share(share: Share) -> int:
    """Return the number of questions in a share: 12, if the share is 0.3 of 40 questions."""
    return round(share.value * share.count)


def _difference_text(change: Change) -> str:
    """Return the difference of two scores with its sign, and with its interval, if it has one."""
    difference = formats.score(change.difference, sign="+")
    between = formats.between(change.ci_low, change.ci_high)
    if not between:
        return difference
    return f"{difference} ({between})"


def _loss_remarks(change: Change) -> str:
    """Return remarks on a loss: the loss by chance alone, and the number of unread answers."""
    return f"{_chance_loss_text(change.same_words)}{_unread_text(change.unread)}"


def _chance_loss_text(loss: Share | None) -> str:
    """Return the loss by chance alone, when the question is asked again in the same words.

    An example is `; in the same words 38 of 77`. The text is empty if this loss is not known.
    """
    if loss is None:
        return ""
    # The loss is a mean over several askings, so it may have a decimal: 38.5. But 38.0 becomes 38.
    lost = formats.decimals(loss.value * loss.count, digits=1).removesuffix(".0")
    return f"; in the same words {lost} of {loss.count:,}{_share_interval_text(loss)}"


def _unread_text(count: int) -> str:
    """Return the number of questions whose answers no rule can read; empty if the number is 0."""
    if not count:
        return ""
    return f", without {counted(count, 'question')} whose answers cannot be read"


def _options_only_line(only: OptionsOnly) -> str:
    """Return a sentence that says whether the options alone give the right answers away."""
    right = only.right  # the share of right answers
    if right is None or only.guess is None:
        return "the choices without their questions: no answer can be read"
    # The choices are only shown to give answers away if the interval is above the share of right
    # answers that guessing gets.
    verdict = "the choices are not shown to give answers away"
    if right.ci_low is not None and right.ci_high is not None:
        if right.count < MIN_QUESTIONS:
            verdict = "too few questions to say whether the choices give answers away"
        elif right.ci_low > only.guess:
            verdict = "the choices alone give answers away"
    questions = counted(right.count, "question")
    shown = f"{_percent(right.value)} of {questions} are right{_share_interval_text(right)}"
    guess = f"guessing gets {_percent(only.guess)}"
    return f"with the choices alone, without the question, {shown}, where {guess}: {verdict}"


def _pushback_lines(pushback: Pushback) -> Iterator[str]:
    """Yield sentences about answers that the model changed after somebody doubted them."""
    if pushback.turns:
        last = pushback.turns[-1]
        difference = formats.score(last.difference, sign="+")
        doubts = counted(len(pushback.turns), "doubt")
        yield f"{_loss_text(last)} after {doubts}: {difference}{_loss_remarks(last)}"
    if pushback.changed_at:  # the number of a turn, `never` or `unread` -> a number of answers
        answers = counted(sum(pushback.changed_at.values()), "answer")
        unchanged = pushback.changed_at.get("never", 0)
        line = f"the model kept {unchanged:,} of {answers} through all doubts"
        unread = pushback.changed_at.get("unread", 0)
        if unread:
            line += f"; {unread:,} did not change, but one of their replies cannot be read"
        yield line


def _confidence_line(confidence: Confidence) -> str:
    """Return a sentence that compares the model's confidence with its share of right answers."""
    manner = "by the log probabilities of its answers"
    if confidence.source == "stated":
        manner = "when it is asked how sure it is"
    left_out = ""
    if confidence.unread:
        answers = counted(confidence.unread, "answer")
        left_out = f"; {answers} without a readable confidence"
    if confidence.unread_answers:
        answers = counted(confidence.unread_answers, "answer")
        left_out += f"; {answers} that cannot be read left out"
    if confidence.mean is None or confidence.right is None or confidence.calibration_error is None:
        return f"{manner}: too few answers with a confidence to say anything{left_out}"
    answers = counted(confidence.questions, "answer")
    line = (
        f"{manner} ({answers}), the model is {_percent(confidence.mean.value)} sure and "
        f"{_percent(confidence.right.value)} of its answers are right"
    )
    line += f"; calibration error {_value_with_interval(confidence.calibration_error)}"
    # The pairs ascend: the share of the surest answers, and the share of wrong answers among them.
    # The first pair from 0.5 on is that of the surest half of the answers.
    for surest_share, wrong_share in confidence.risk_coverage:
        if surest_share >= 0.5:
            wrong = formats.percent(wrong_share, digits=0)
            line += f"; of the half of the answers that it is surest of, {wrong} are wrong"
            break
    return line + left_out


def _abstention_line(abstention: Abstention) -> str:
    """Return a sentence about questions to which the model may answer "I do not know"."""
    if abstention.abstained is None or abstention.score is None or abstention.score_before is None:
        return 'with "I do not know" as an answer: no question has a value'
    parts = []
    if abstention.abstained_when_wrong is not None:
        parts.append(
            f"{_percent(abstention.abstained_when_wrong.value)} of the questions that it gets wrong"
        )
    if abstention.abstained_when_right is not None:
        parts.append(
            f"{_percent(abstention.abstained_when_right.value)} of those that it gets right"
        )
    scores = (
        f"{formats.score(abstention.score.value)}, "
        f"without this answer allowed {formats.score(abstention.score_before.value)}"
    )
    costs = f"score if a wrong answer costs {abstention.cost_of_wrong:g}: {scores}"
    unread = _unread_text(abstention.unread)
    return f'the model answers "I do not know" to {" and ".join(parts)}{unread}; {costs}'


def choice_order_line(result: results.TaskResult) -> str | None:
    """Return a line about the answers that change with the order of the choices.

    Returns None if the run used one order only.
    """
    record = result.validity.choice_orders
    if record is None:
        return None
    not_reordered_text = ""
    not_reordered = sum(record.kept.values())  # `kept`: a reason -> the number of questions
    if not_reordered:
        not_reordered_text = f"; {counted(not_reordered, 'question')} left as they are"
    changed = record.changed  # the share of the questions whose answer changes
    if changed is None:
        return f"order of the choices: no question was answered in two orders{not_reordered_text}"
    line = (
        f"order of the choices ({record.orders} orders, {counted(changed.count, 'question')}): "
        f"the answer to {_percent(changed.value)} of them changes with it"
    )
    line += _share_interval_text(changed)
    line += _chance_loss_text(record.same_words)
    if record.right_in_all is not None:
        line += f", {_percent(record.right_in_all.value)} right in every order"
    score = result.scores.get(result.main_metric + results.ALL_ORDERS_SUFFIX)
    if score is not None:
        line += f"; {result.main_metric} over all orders {formats.score(score.value)}"
    return line + not_reordered_text


def _value_with_interval(share: Share) -> str:
    """Return a value with its 95 % interval, if it has one."""
    value = formats.score(share.value)
    between = formats.between(share.ci_low, share.ci_high)
    if not between:
        return value
    return f"{value} (95 % interval {between})"


def _share_interval_text(share: Share) -> str:
    """Return the interval of a share in brackets; empty if there is no interval."""
    if share.ci_low is None or share.ci_high is None:
        return ""
    return f" (95 % interval {_percent(share.ci_low)} .. {_percent(share.ci_high)})"


def _percent(share: float) -> str:
    """Return a share as percent without decimals.

    The share is rounded to six digits first, because the result document has six digits of it.
    """
    return formats.percent(formats.rounded(share), digits=0)


class LostAnswers:
    """Right answers that the model lost when the question was asked in other words.

    `family` is the most harmful family of rewordings with such answers; empty if no answer was
    lost. The caller passes each instance to `add` once. Only lost answers are stored.
    """

    def __init__(self, record: AskedAgain | None) -> None:
        self.family = ""
        self._lost_ids: set[str] = set()  # ids of instances
        if record is not None:
            for name, family in families_by_harm(record.in_other_words):
                if family.lost:
                    self.family = name
                    self._lost_ids = set(family.lost)
                    break
        # dicts from the id of an instance to the record of its answer
        self._original: dict[str, InstanceRecord] = {}
        self._reworded: dict[str, InstanceRecord] = {}

    def add(self, record: InstanceRecord) -> None:
        """Store an instance if its right answer was lost, in either wording.

        The first record of each wording counts: an instance may have several trials.
        """
        if record.id not in self._lost_ids:
            return
        if record.perturbation is None:
            self._original.setdefault(record.id, record)
        # HELM's perturbation has the name of the family; eval-factory's has a prefix.
        elif record.perturbation in (self.family, PERTURB_PREFIX + self.family):
            self._reworded.setdefault(record.id, record)

    @property
    def pairs(self) -> list[tuple[InstanceRecord, InstanceRecord]]:
        """The pairs (answer to the original question, answer to the reworded question)."""
        pairs = []
        for instance_id, original in self._original.items():
            if instance_id in self._reworded:
                pairs.append((original, self._reworded[instance_id]))
        return pairs
