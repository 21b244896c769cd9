"""Questions asked again, in words for the screen, Markdown and the page: does the answer hold?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from eval_factory.core import formats
from eval_factory.core.askings import Abstention, AskedAgain, Change, Confidence, InOtherWords, Pushback, Repeats, Share
from eval_factory.core.formats import counted
from eval_factory.core.results import InstanceRecord
from eval_factory.tasks.asked_again import BLIND_WITH, PERTURB
from eval_factory.tasks.perturbations import FAMILIES

MAX_ON_SCREEN = 3
MIN_QUESTIONS = 10  # questions from which on a family is reported in words


def asked_again_lines(found: AskedAgain | None, most: int | None = None) -> Iterator[str]:
    """A sentence for each thing that is known, for somebody who decides whether the model may be used.
    `most`: so many families of other words, those that cost most; all if None."""
    if found is None:
        return
    if found.repeats is not None:
        yield from _repeats(found.repeats)
    every = by_harm(found.in_other_words)
    families = [one for one in every if one[1].change.questions >= MIN_QUESTIONS]
    for family, words in families[:most]:
        what = FAMILIES[family].about if family in FAMILIES else f"HELM's {family} was applied"
        yield f"{_lost(words.change)} when {what}{_holm(words)}"
    if most is not None and len(families) > most:
        yield f"other words of {counted(len(families) - most, 'more kind')} cost less: report.html"
    if few := [name for name, words in every if words.change.questions < MIN_QUESTIONS]:
        yield f"too few questions have other words of the kinds {', '.join(sorted(few))} to say anything"
    for with_, change in found.blind.items():
        difference = f"{formats.score(change.difference, sign='+')} {_between(change)}".rstrip()
        yield f"{_lost(change)} with {BLIND_WITH[with_]} in place of its own: {difference}"
    if found.pushback is not None:
        yield from _pushback(found.pushback)
    if found.confidence is not None:
        yield _confidence(found.confidence)
    if found.abstention is not None:
        yield _abstention(found.abstention)
    if found.none_of_these is not None:
        share = found.none_of_these
        asked = counted(share.count, "question")
        yield f"of {asked} where no other option is right, it says so for {_percent(share)}"


def by_harm(families: Mapping[str, InOtherWords]) -> list[tuple[str, InOtherWords]]:
    """The family that costs most first."""
    return sorted(families.items(), key=lambda one: (one[1].change.difference, one[0]))


def _repeats(found: Repeats) -> Iterator[str]:
    if found.mean is None:
        yield f"asked {found.times} times: no question has a value each time"
        return
    same = "" if found.same_each_time is None else f"; the same answer each time: {_percent(found.same_each_time)}"
    more = "" if found.majority is None else f"; its most frequent answer scores {formats.score(found.majority.value)}"
    asked = f"asked {found.times} times ({counted(found.questions, 'question')})"
    yield f"{asked}: mean {_with_interval(found.mean)}{same}{more}"


def _lost(change: Change) -> str:
    """`of 40 questions that it got right, 12 were lost` and what was won."""
    right, wrong = change.right_to_wrong, change.wrong_to_right
    if right is None:
        return "the score changed"
    number = _number(right)
    lost = f"of {counted(right.count, 'question')} that it got right, {number} {'was' if number == 1 else 'were'} lost"
    won = "" if wrong is None or not _number(wrong) else f" (and {_number(wrong)} of {wrong.count} others won)"
    return f"{lost}{won}"


def _holm(words: InOtherWords) -> str:
    difference = f"{formats.score(words.change.difference, sign='+')} {_between(words.change)}".rstrip()
    p_value = "" if words.p_holm is None else f", p {formats.p_value(words.p_holm)} (Holm)"
    return f": {difference}{p_value}"


def _pushback(found: Pushback) -> Iterator[str]:
    if found.turns:
        last, turns = found.turns[-1], len(found.turns)
        yield f"{_lost(last)} after {counted(turns, 'doubt')}: {formats.score(last.difference, sign='+')}"
    asked = sum(found.changed_at.values())
    if asked:
        yield f"{found.changed_at.get('never', 0):,} of {counted(asked, 'answer')} stood through all doubts"


def _confidence(found: Confidence) -> str:
    how = "asked how sure it is" if found.source == "stated" else "by the log probabilities of its answers"
    unread = f"; {counted(found.unread, 'answer')} without a readable confidence" if found.unread else ""
    if found.mean is None or found.right is None or found.calibration_error is None:
        return f"{how}: too few answers with a confidence to say anything{unread}"
    gap = f"{how}, it is {_percent(found.mean)} sure and {_percent(found.right)} right"
    return f"{gap}; calibration error {_with_interval(found.calibration_error)}{_half(found)}{unread}"


def _half(found: Confidence) -> str:
    half = next((risk for share, risk in found.risk_coverage if share >= 0.5), None)
    return "" if half is None else f"; of the half that it is surest of, {formats.percent(half, 0)} are wrong"


def _abstention(found: Abstention) -> str:
    if found.abstained is None or found.score is None or found.score_before is None:
        return 'with "I do not know" as an answer: no question has a value'
    of = {"what it gets wrong": found.abstained_when_wrong, "what it gets right": found.abstained_when_right}
    parts = [f"{_percent(share)} of {what}" for what, share in of.items() if share is not None]
    scores = f"{formats.score(found.score.value)}, without that {formats.score(found.score_before.value)}"
    costs = f"score where a wrong answer costs {found.cost_of_wrong:g}: {scores}"
    return f'"I do not know" was answered to {" and ".join(parts)}; {costs}'


def _number(share: Share) -> int:
    return round(share.value * share.count)


def _percent(share: Share) -> str:
    return formats.percent(share.value, 0)


def _with_interval(share: Share) -> str:
    between = formats.between(share.ci_low, share.ci_high)
    return formats.score(share.value) + (f" (95 % interval {between})" if between else "")


def _between(change: Change) -> str:
    between = formats.between(change.ci_low, change.ci_high)
    return f"({between})" if between else ""


class LostAnswers:
    """Answers that were right, each beside the one to the same question in the words that cost most; no others are
    kept of the instances, which are gone through once."""

    def __init__(self, found: AskedAgain | None) -> None:
        families = by_harm(found.in_other_words) if found else []
        self.family, words = next((one for one in families if one[1].lost), ("", None))
        self._wanted = set(words.lost) if words else set()
        self._names = {None: 0, self.family: 1, PERTURB + self.family: 1}
        self._sides: dict[str, dict[int, InstanceRecord]] = {}

    def add(self, record: InstanceRecord) -> None:
        if record.id in self._wanted and record.perturbation in self._names:
            self._sides.setdefault(record.id, {}).setdefault(self._names[record.perturbation], record)

    @property
    def pairs(self) -> list[tuple[InstanceRecord, InstanceRecord]]:
        """(as it is, in other words)."""
        return [(both[0], both[1]) for both in self._sides.values() if len(both) == 2]
