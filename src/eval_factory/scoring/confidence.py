"""Measures the model's confidence in its answers (`extra.confidence`), and how reliable the
confidence is: calibration, risk and coverage.

A model may decline the questions of which it is least confident. The coverage is then the share of
questions that it answers, and the risk is the share of wrong answers among them. Questions share a
source if they were made from the same note or patient: their answers are not independent.
"""

from __future__ import annotations

import math
import random
import statistics
from bisect import bisect_left
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from eval_factory.core.asked_again_records import Confidence, ConfidenceBin, Share
from eval_factory.helm import names, output
from eval_factory.helm.output import FurtherReply, read_further_replies
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.intervals import (
    MIN_CLUSTERS,
    PROPORTION,
    Bounds,
    describe,
    effective_clusters,
    has_shared_source,
    mean_and_variance,
    percentile,
    t_quantile,
    variance_of,
)
from eval_factory.scoring.request_states import answer_text_of
from eval_factory.tasks.asking_forms import LOGPROBS, STATED, STATED_ONLY, confidence_in

if TYPE_CHECKING:
    from numpy.typing import NDArray

Unit = tuple[str, int]
"""A question in one trial: the id of the instance, and the number of the trial.

HELM asks a question in several trials to show other examples in the prompt.
"""
Sources = Callable[[Sequence[Unit]], "list[str] | None"]
"""A function that returns the source of each question, or None if no two questions share one."""
Logprobs = Sequence[tuple[str, float]]
"""The tokens of an answer, each with the natural logarithm of its probability, as the endpoint
returned them.
"""

# Answers of similar confidence make a group, which is a bin of the reported calibration.
MAX_GROUPS = 10  # the largest number of groups, if there are many distinct confidences
MIN_IN_GROUP = 5  # the smallest number of answers in a group
MAX_STATED_LEVELS = 20
"""If at most this number of distinct confidences are stated, the groups begin as one for each
confidence, not as groups of equal size. Only a confidence with fewer than `MIN_IN_GROUP` answers is
then merged with a neighbour.
"""
RESAMPLES = 1_000  # the number of bootstrap samples, and of simulated samples
MANY_ANSWERS = 10_000  # with more answers than this, a tenth of the bootstrap samples is drawn
POINTS = 10  # the number of points on the risk-coverage curve: 1/10 of the questions, 2/10, ...


class BrierParts(NamedTuple):
    """The parts of the Brier score, which is the mean of (confidence - right) squared.

    The score is reliability - resolution + uncertainty, apart from differences within a group.
    """

    reliability: float  # the mean squared gap between confidence and share of right answers
    resolution: float  # the variance of the groups' shares of right answers
    uncertainty: float  # the variance of right and wrong answers


class Answer(NamedTuple):
    """The confidence in an answer, with the correctness and the source of the answer's question."""

    confidence: float  # from 0 to 1
    right: float  # 1 if the answer is right, 0 if not
    source: Hashable  # the source of the question; the question itself if it shares no source


Sample = Sequence[Answer]


def unit_of(key: tuple[str, int, str | None]) -> Unit:
    """Return the question of an instance: the key of the instance without the perturbation."""
    return key[:2]


def units_of(keys: Iterable[tuple[str, int, str | None]]) -> set[Unit]:
    """Return the questions of the instances."""
    return set(map(unit_of, keys))


def mean_over_questions(
    values: Mapping[Unit, float], sources: Sources, scale: Bounds | None = PROPORTION
) -> Share | None:
    """Return the mean over the questions, with its interval; None if there is no question.

    Args:
        values: the value of each question.
        sources: returns the source of each question.
        scale: the lowest and the highest possible value; None if unknown (see `describe`).
    """
    if not values:
        return None
    stats = describe(list(values.values()), scale=scale, clusters=sources(list(values)))
    return Share(stats.mean, stats.count, ci_low=stats.ci_low, ci_high=stats.ci_high)


@dataclass
class ConfidenceOfAnswers:
    """The model's confidence in its answers, and how the confidence is measured."""

    measured_by: str  # `stated` or `logprobs`; the result has this value as `source`
    replies: Mapping[Unit, FurtherReply] = field(default_factory=dict)
    """The replies that state a confidence, by question."""
    logprobs: Callable[[output.RequestState], Logprobs] = lambda _state: ()
    """Returns the log probabilities of the answer to a request."""
    confidences: dict[Unit, float | None] = field(default_factory=dict)
    """Question -> confidence, from 0 to 1; None if it is unread: no confidence was found."""
    asked_together: bool = False  # True if one prompt asked for both the answer and the confidence

    @classmethod
    def of(
        cls, plan: Plan, logprobs: Callable[[output.RequestState], Logprobs]
    ) -> ConfidenceOfAnswers | None:
        """Return the confidence of the answers, or None if the run does not measure confidence.

        Args:
            plan: the plan of the run.
            logprobs: returns the log probabilities of the answer to a request.
        """
        measured_by = plan.evaluation.extra.confidence
        if measured_by is None:
            return None
        if measured_by == LOGPROBS:
            return cls(measured_by, logprobs=logprobs)
        replies = read_further_replies(plan.rundir.helm / names.CONFIDENCE_FILE)
        return cls(STATED, replies, asked_together=measured_by == STATED_ONLY)

    def add(self, unit: Unit, state: output.RequestState, label: str) -> None:
        """Add the confidence of an answer.

        Args:
            unit: the question.
            state: the request with its answer.
            label: the option that the answer states. If it is empty, the probability of the
                complete answer is read from the log probabilities.
        """
        if self.measured_by == LOGPROBS:
            text = label or answer_text_of(state).strip()
            self.confidences[unit] = probability_of(text, self.logprobs(state))
            return
        self.confidences[unit] = None
        reply = self.replies.get(unit)
        if reply is not None and reply.text is not None:
            self.confidences[unit] = confidence_in(reply.text)

    def make_report(
        self, values: Mapping[Unit, float], sources: Sources, unread_answers: int = 0
    ) -> Confidence:
        """Return the report on the questions that have a value and a confidence that was read.

        With fewer than two such questions, the report has only counts.

        Args:
            values: the values of the answers that a rule reads; 1 means a right answer.
            sources: returns the source of each question.
            unread_answers: the number of answers that no rule reads.
        """
        confidences = {}
        unread_confidences = 0
        for unit, confidence in self.confidences.items():
            if unit not in values:
                continue
            if confidence is None:
                unread_confidences += 1
            else:
                confidences[unit] = confidence
        counts = Confidence(
            self.measured_by,
            questions=len(confidences),
            unread=unread_confidences,
            unread_answers=unread_answers,
        )
        if len(confidences) < 2:
            return counts
        right = {unit: float(values[unit] >= 1.0) for unit in confidences}
        squares = {unit: (confidences[unit] - right[unit]) ** 2 for unit in confidences}
        source_of_each: Sequence[Hashable] | None = sources(list(confidences))
        if source_of_each is None:
            source_of_each = list(confidences)  # Each question is its own source.
        sample = list(map(Answer, confidences.values(), right.values(), source_of_each))
        groups = groups_by_confidence(sample)
        brier = brier_parts(groups)
        areas = _resampled_areas(sample)
        return replace(
            counts,
            mean=mean_over_questions(confidences, sources),
            right=mean_over_questions(right, sources),
            calibration_error=_calibration_error(groups),
            bins=tuple(map(_bin, groups)),
            brier=mean_over_questions(squares, sources),
            reliability=brier.reliability,
            resolution=brier.resolution,
            uncertainty=brier.uncertainty,
            risk_coverage=tuple(risk_at(sample, (number + 1) / POINTS) for number in range(POINTS)),
            area=Share(
                area_under_risk(sample),
                len(sample),
                ci_low=percentile(areas, 0.025),
                ci_high=percentile(areas, 0.975),
            ),
        )


def _calibration_error(groups: Sequence[Sample]) -> Share:
    """Return the root mean squared gap between confidence and right answers, with its interval."""
    error = math.sqrt(max(0.0, squared_error(groups)))
    low, high = interval_of_error(groups)
    # The simulated interval does not always include the estimate.
    return Share(error, sum(map(len, groups)), ci_low=min(low, error), ci_high=max(high, error))


def _bin(group: Sample) -> ConfidenceBin:
    """Return the size, the mean confidence and the share of right answers of a group."""
    confidences, right, _ = zip(*group, strict=True)
    return ConfidenceBin(len(group), statistics.fmean(confidences), statistics.fmean(right))


def probability_of(text: str, logprobs: Logprobs) -> float | None:
    """Return the probability of the tokens in the last occurrence of a text in the answer.

    All tokens that overlap the text count. The result is None if the text is empty, if the answer
    does not contain the text, or if the endpoint returned no log probabilities.
    """
    answer = "".join(token for token, _ in logprobs)
    start = answer.rfind(text)
    if not text or start < 0:
        return None
    end = start + len(text)
    position = 0
    total = 0.0
    for token, logprob in logprobs:
        if position < end and position + len(token) > start:
            total += logprob
        position += len(token)
    return min(1.0, math.exp(total))  # A probability above 1 is a rounding error of the endpoint.


def groups_by_confidence(sample: Sample) -> list[list[Answer]]:
    """Return the answers in groups of similar confidence, the lowest confidence first.

    If there are few distinct confidences, there is first one group for each; otherwise there are at
    most `MAX_GROUPS` groups of about equal size. Answers of equal confidence are in one group. In
    both cases, a group with fewer than `MIN_IN_GROUP` answers is then merged with a neighbour.
    """
    ordered = sorted(sample, key=_confidence_of)
    levels = sorted(set(map(_confidence_of, ordered)))
    # `lowest` gets the lowest confidence of each group except the first.
    if len(levels) <= min(MAX_STATED_LEVELS, len(ordered) // MIN_IN_GROUP):
        lowest = levels[1:]
    else:
        count = max(1, min(MAX_GROUPS, len(ordered) // MIN_IN_GROUP))
        positions = [len(ordered) * number // count for number in range(1, count)]
        lowest = sorted({ordered[position].confidence for position in positions})
    starts = [bisect_left(ordered, confidence, key=_confidence_of) for confidence in lowest]
    groups: list[list[Answer]] = []
    for start, end in pairwise([0, *starts, len(ordered)]):
        group = ordered[start:end]
        if not group:  # The first of `starts` may be 0.
            continue
        if groups and min(len(group), len(groups[-1])) < MIN_IN_GROUP:
            groups[-1] += group  # One of the two neighbours is too small.
        else:
            groups.append(group)
    return groups


def _confidence_of(answer: Answer) -> float:
    return answer.confidence


class _Gap(NamedTuple):
    """The gap between the confidence of a group of answers and its share of right answers."""

    mean: float  # the mean of confidence - right over the answers
    variance: float  # the unbiased variance of this mean
    # the variance for an interval: it is not 0 even if all answers of the group are right
    plausible_variance: float


def _gap(group: Sample) -> _Gap:
    """Return the gap of a group of answers, with its variances."""
    gaps = []
    sources = []
    for answer in group:
        gaps.append(answer.confidence - answer.right)
        sources.append(answer.source)
    count = len(group)
    variance = 0.0
    if count > 1:
        variance = variance_of(gaps) / count
    inflation = 1.0
    if has_shared_source(sources):
        effective = effective_clusters(sources)
        # With fewer sources, no variance between sources can be estimated: the answers of the group
        # then count as independent, and the variance may be too small.
        if effective >= MIN_CLUSTERS:
            _, variance = mean_and_variance(gaps, sources)
            # The interval becomes as wide as with a t quantile.
            inflation = _t_in_normal_quantiles(effective - 1) ** 2
    right = sum(answer.right for answer in group)
    # Two right and two wrong answers are added, so that the variance is never 0 (A. Agresti, B. A.
    # Coull, The American Statistician 52:119-126, 1998).
    share = (right + 2) / (count + 4)
    plausible_variance = max(variance * inflation, share * (1 - share) / (count + 4))
    return _Gap(statistics.fmean(gaps), variance, plausible_variance)


def _t_in_normal_quantiles(degrees: float) -> float:
    """Return the t quantile of a 95 % interval, as a multiple of the normal quantile.

    With infinite degrees of freedom, Student's distribution is the normal distribution.
    """
    return t_quantile(degrees) / t_quantile(math.inf)


def squared_error(groups: Sequence[Sample]) -> float:
    """Return the mean squared gap between the groups' confidence and their share of right answers.

    The variance that chance adds is subtracted. The estimate is therefore unbiased, and may be
    negative (J. Broecker, Climate Dynamics 39:655-667, 2012; A. Kumar et al., 2019).
    """
    total = 0.0
    for group in groups:
        gap = _gap(group)
        total += len(group) * (gap.mean**2 - gap.variance)
    return total / sum(map(len, groups))


def interval_of_error(groups: Sequence[Sample], draws: int = RESAMPLES) -> tuple[float, float]:
    """Return the 95 % interval of the root mean squared gap.

    The interval contains each true error for which the observed error is not unusually small or
    large. The method assumes that the gaps are normally distributed with the observed variances,
    and that the true gaps are proportional to the observed gaps. If groups share sources, the
    errors of their gaps are correlated. The estimate grows with the true error, so that a bisection
    finds both ends.

    Args:
        groups: the answers, in groups of similar confidence.
        draws: the number of simulated samples.
    """
    import numpy as np  # imported here because the import is slow, and `ls` does not need numpy

    total = sum(map(len, groups))
    gaps = list(map(_gap, groups))
    weights = np.array(list(map(len, groups))) / total
    means = np.array([gap.mean for gap in gaps])
    # The variance of a small sample is itself uncertain, as in a t test.
    inflation = _t_in_normal_quantiles(max(1, total - len(groups)))
    variances = np.array([gap.plausible_variance for gap in gaps]) * inflation**2
    observed = squared_error(groups)
    # The observed root mean squared gap, which `share_above` scales to the assumed true error. If
    # all gaps are 0, any divisor gives the same result, and 1 prevents a division by 0.
    root_mean_square = math.sqrt(float(weights @ means**2)) or 1.0
    noise = _noise(groups, gaps, draws) * inflation
    # In another sample, the groups would have other sizes. The seed differs from that of `_noise`,
    # so that sizes and errors are independent.
    drawn_weights = np.random.default_rng(1).multinomial(total, weights, draws) / total

    def share_above(error: float) -> float:
        """Return the share of simulated estimates that are at least the observed estimate.

        `error` is the assumed true error.
        """
        true_gaps = means * error / root_mean_square
        squares = (true_gaps + noise) ** 2 - variances
        estimates = (squares * drawn_weights).sum(axis=1)
        return float((estimates >= observed).mean())

    def end(share: float) -> float:
        """Return the true error, at most 1, at which `share_above` reaches the share."""
        low = 0.0
        high = 1.0
        for _ in range(12):  # 12 halvings find the error to 1/4096
            middle = (low + high) / 2
            if share_above(middle) < share:
                low = middle
            else:
                high = middle
        return low

    return end(0.025), end(0.975)  # the lower and the upper end


def _noise(groups: Sequence[Sample], gaps: Sequence[_Gap], draws: int) -> NDArray[Any]:
    """Return random errors of the groups' gaps, with a row for each draw and a column for each
    group.

    The variances are those of `_Gap.plausible_variance`. In each draw, a source has one normal
    number, which moves all groups with answers from this source (a multiplier bootstrap of the
    linearised means).
    """
    import numpy as np

    spread = np.sqrt([gap.plausible_variance for gap in gaps])
    rng = np.random.default_rng(0)
    sources: dict[Hashable, int] = {}  # source -> its row in `moves`
    for answer in chain.from_iterable(groups):
        sources.setdefault(answer.source, len(sources))
    if len(sources) == sum(map(len, groups)):  # no two answers share a source
        return np.asarray(rng.normal(0.0, spread, (draws, len(groups))))
    # the part of each source in the gap of each group
    moves = np.zeros((len(sources), len(groups)))
    for column, (group, gap) in enumerate(zip(groups, gaps, strict=True)):
        for answer in group:
            moves[sources[answer.source], column] += answer.confidence - answer.right - gap.mean
    lengths = np.sqrt((moves**2).sum(axis=0))  # each column is divided by its length
    is_constant = lengths == 0  # True for a group in which no source moves the gap
    divisors = np.where(is_constant, 1.0, lengths)
    noise = rng.normal(0.0, 1.0, (draws, len(sources))) @ (moves / divisors)
    # The gap of a group with equal answers is uncertain, too, so it gets errors of its own.
    noise[:, is_constant] = rng.normal(0.0, 1.0, (draws, int(is_constant.sum())))
    return np.asarray(noise * spread)


def brier_parts(groups: Sequence[Sample]) -> BrierParts:
    """Return the parts of the groups' Brier score.

    Each part is corrected for its bias (C. A. T. Ferro, T. E. Fricker, Quarterly Journal of the
    Royal Meteorological Society 138:1954-1960, 2012).
    """
    total = sum(map(len, groups))
    rights = []
    for group in groups:
        rights.append([answer.right for answer in group])
    mean = sum(map(sum, rights)) / total
    within_bias = 0.0
    raw_resolution = 0.0
    for right in rights:
        if len(right) > 1:
            # the weight of the group, times the variance of its share of right answers
            within_bias += len(right) * statistics.variance(right) / len(right)
        raw_resolution += len(right) * (statistics.fmean(right) - mean) ** 2
    within_bias /= total
    raw_resolution /= total
    bias_of_mean = mean * (1 - mean) / (total - 1)
    # The corrections may make the first two parts negative, which has no meaning.
    return BrierParts(
        reliability=max(0.0, squared_error(groups)),
        resolution=max(0.0, raw_resolution - within_bias + bias_of_mean),
        uncertainty=mean * (1 - mean) + bias_of_mean,
    )


def _risks(sample: Sample) -> list[float]:
    """Return 1 for each wrong answer and 0 for each right answer, the highest confidence first.

    Answers of equal confidence have no order, so each of these answers gets their mean.
    """
    by_confidence: dict[float, list[float]] = {}
    for answer in sorted(sample, key=_confidence_of, reverse=True):
        by_confidence.setdefault(answer.confidence, []).append(1.0 - answer.right)
    risks: list[float] = []
    for wrong in by_confidence.values():
        risks += [statistics.fmean(wrong)] * len(wrong)
    return risks


def risk_at(sample: Sample, coverage: float) -> tuple[float, float]:
    """Return the share of questions that are answered, and the share of wrong answers among them.

    `coverage` is the wanted share of answered questions. At least one question is answered, and the
    questions with the highest confidence are answered first.
    """
    risks = _risks(sample)
    answered = max(1, round(coverage * len(risks)))
    return answered / len(risks), statistics.fmean(risks[:answered])


def area_under_risk(sample: Sample) -> float:
    """Return the area under the risk-coverage curve.

    The area is the mean of the share of wrong answers over all coverages: 1 question, 2 questions
    and so on up to all questions (Y. Geifman, G. Uziel, R. El-Yaniv, ICLR 2019).
    """
    wrong = 0.0
    total = 0.0
    for answered, risk in enumerate(_risks(sample), 1):
        wrong += risk
        total += wrong / answered
    return total / len(sample)


def _resampled_areas(sample: Sample) -> list[float]:
    """Return the area under the risk-coverage curve of each bootstrap sample of sources."""
    clusters: dict[Hashable, list[Answer]] = {}
    for answer in sample:
        clusters.setdefault(answer.source, []).append(answer)
    answers_by_source = list(clusters.values())
    rng = random.Random(0)  # noqa: S311 - a bootstrap needs no cryptographic random numbers
    resamples = RESAMPLES
    if len(sample) > MANY_ANSWERS:
        resamples = RESAMPLES // 10
    areas = []
    for _ in range(resamples):
        drawn = rng.choices(answers_by_source, k=len(answers_by_source))
        areas.append(area_under_risk(list(chain.from_iterable(drawn))))
    return areas
