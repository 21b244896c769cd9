"""Whole juries: what is missing of a jury's judgements, and what its score could be with them. Pure functions.

HELM's score of an instance is the mean of the ratings that came. Where a judge failed, it is another jury's score: the
instance has one, and counts as scored, so that nothing but the judgements themselves shows what is missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from eval_factory.core.results import JudgeCounts, Judgements, JuryReport, Score
from eval_factory.scoring.jury_agreement import Ratings
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.scores import bounds_of, helm_mean, mean_score

BEYOND_BELIEF, ENOUGH_TO_TELL = 0.98, 20
"""Krippendorff's alpha, and answers that two judges or more rated."""

FOLLOWS_LENGTH = 0.5
"""A rank correlation of mark and length: better answers are often somewhat longer, and seldom so much."""

ALL_JUDGES = ".all_judges"
"""Ends the name of a jury's score over the instances that every judge rated."""


def judgements_of(ratings: Ratings, judges: Collection[str], requested: Collection[InstanceKey]) -> Judgements:
    """How many judgements the requests to the model asked for, and how many came."""
    answers = set(requested) - ratings.lowest
    given = sum(len(answers & ratings.by_judge.get(judge, {}).keys()) for judge in judges)
    return Judgements(due=len(judges) * len(answers), given=given)


def rated_by_all(ratings: Ratings, judges: Collection[str]) -> set[InstanceKey]:
    """The instances that every judge rated."""
    rated = [set(ratings.by_judge.get(judge, {})) for judge in judges]
    return set.intersection(*rated) if rated else set()


def score_of_all_judges(metric: MetricValues, ratings: Ratings, judges: Collection[str]) -> Score | None:
    """The score over the instances that every judge rated, answers with nothing in them among them (their mark needs
    no judge); None where it is the score itself, or no instance has all judgements."""
    whole = rated_by_all(ratings, judges) & metric.values.keys()
    kept = {key: value for key, value in metric.values.items() if key in whole | ratings.lowest}
    return mean_score(metric, kept) if whole and len(kept) < len(metric.values) else None


def bounds_over_judgements(
    metric: MetricValues, ratings: Ratings, judges: Collection[str]
) -> tuple[float, float] | None:
    """The jury's score if every missing judgement were the lowest mark, and if every one were the highest.

    Judges rate the same criteria, so an instance's score is the mean of its judges' means.
    """
    low, high = metric.scale or ratings.form.scale
    worst, best, known = {}, {}, set()
    for key, value in metric.values.items():
        means = ratings.means_of(key)
        missing = 0 if key in ratings.lowest else len(judges) - len(means)
        if not missing:
            worst[key] = best[key] = value
            known.add(key)
            continue
        if any(not low <= mean <= high for mean in means.values()):
            return None  # of an earlier version, which took ratings beyond the scale
        total = sum(means.values())
        worst[key], best[key] = (total + missing * low) / len(judges), (total + missing * high) / len(judges)
    if len(known) == len(metric.values) or any(not low <= metric.values[key] <= high for key in known):
        return bounds_of(metric, set())
    return helm_mean(worst), helm_mean(best)


def notes_on_agreement(report: JuryReport, ratings: Ratings) -> Iterator[Note]:
    """Judges that agree as no two models do, and judges whose marks follow the length of the answers."""
    alpha = report.krippendorff_alpha
    judges_of = Counter(instance for rated in ratings.by_judge.values() for instance in rated)
    several = sum(count > 1 for count in judges_of.values())
    if alpha is not None and alpha > BEYOND_BELIEF and several >= ENOUGH_TO_TELL:
        yield Note(
            Importance.DOUBTFUL,
            f"the judges agree more than different models do (Krippendorff's alpha {alpha:.3f} over {several} answers):"
            " does one model, or a cache, answer for several of them?",
        )
    for judge, found in report.length_correlation.items():
        if found is None or found.count < ENOUGH_TO_TELL or max(found.ci_low, -found.ci_high) <= FOLLOWS_LENGTH:
            continue
        yield Note(
            Importance.DOUBTFUL,
            f"judge {judge} gives {'longer' if found.rho > 0 else 'shorter'} answers better marks: the rank correlation"
            f" of mark and length is {found.rho:.2f} (95 % interval {found.ci_low:.2f} .. {found.ci_high:.2f}) over"
            f" {found.count} answers. It does not show that the judge read them",
        )


def judges_that_failed(judges: Mapping[str, JudgeCounts], most: float) -> tuple[str, ...]:
    """The judges without whom the jury is another one, each with what to do.

    Args:
        most: the greatest share of answers, from 0 to 1, that a judge may leave without a usable judgement
            (`extra.max_judge_failures`).
    """
    return tuple(
        f"judge {judge} gave no usable judgement of {counts.failed} of {counts.asked} answers, and max_judge_failures"
        f" is {most:g}: the same command asks it again (validity.failures say why it failed); extra.judges may name"
        " another judge; extra.max_judge_failures accepts more"
        for judge, counts in judges.items()
        if counts.asked and counts.failed / counts.asked > most
    )
