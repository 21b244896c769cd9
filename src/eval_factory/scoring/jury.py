"""Reports the scores of a jury: several judges who rate each answer of a run.

A judgement is the output of one judge about one answer: a rating for each criterion, such as 4 on a
scale from 1 to 5. Messages call the ratings marks.

The module also counts missing judgements, and computes the lowest and the highest score that the
jury could have had without missing judgements. HELM's score of an instance is the mean of the
ratings that arrived. If a judge failed, the mean is the score of a smaller jury; HELM still counts
the instance as scored. Only the judgements themselves therefore show which ratings are missing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain

from eval_factory.core import formats
from eval_factory.core.results import (
    JudgeCounts,
    Judgements,
    JuryReport,
    RankCorrelation,
    Score,
    Stats,
)
from eval_factory.helm import output
from eval_factory.helm.command import roles_by_deployment
from eval_factory.helm.injection_signs import find_injection_signs
from eval_factory.helm.judge_output import is_blank_answer
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.agreement import Ratings
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import Bounds
from eval_factory.scoring.model_families import same_family
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.part import Part
from eval_factory.scoring.request_states import answer_text_of, has_failed
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    bounds_of,
    helm_mean,
    is_judged,
    mean_score,
)
from eval_factory.scoring.tally import Tally

IMPLAUSIBLE_ALPHA = 0.98
"""A Krippendorff's alpha above this value is implausible for judges that are different models."""
MIN_DECISIONS = 20
"""The number of answers or criteria that a warning about judges needs."""

MAX_LENGTH_CORRELATION = 0.5
"""The highest plausible rank correlation of rating and length.

Better answers are often somewhat longer, but the correlation is seldom higher than this.
"""

# the ending of the label of a jury's score over the instances that every judge rated
ALL_JUDGES_SUFFIX = ".all_judges"


class Jury(Part):
    """The part of a result that counts and reports the judgements of a jury."""

    def __init__(self, plan: Plan, jury_names: output.JuryNames, tally: Tally) -> None:
        self._plan = plan
        self._jury_names = jury_names
        self._tally = tally
        roles = roles_by_deployment(plan.judges)
        self.names: dict[str, str] = {}
        """A dict from the judge's role to the judge's name in HELM's annotations.

        A judge of HELM's own has no role in the run: the judge's name is also the key.
        """
        for name, deployment in jury_names.judges.items():
            self.names[roles.get(deployment, name)] = name
        # role -> the number of answers that the judge was asked about, or scored
        self._asked = dict.fromkeys(self.names, 0)
        self._scored = dict.fromkeys(self.names, 0)

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Count the judgements of an answer; no judge is asked about an empty answer."""
        if has_failed(state):
            return
        tally = self._tally
        text = answer_text_of(state)
        if find_injection_signs(text):
            tally.injected += 1
        tally.ratings.lengths[key] = len(text)
        is_empty = is_blank_answer(text)
        is_rated = False
        for judge, name in self.names.items():
            ratings = output.ratings_of(state.annotations, self._jury_names, name)
            if not is_empty:
                self._asked[judge] += 1
            if ratings:
                self._scored[judge] += 1
                is_rated = True
            tally.ratings.add(judge, key, ratings)
            if not ratings and not is_empty:
                reason = output.reason_not_judged(state.annotations, self._jury_names, name)
                tally.causes.add(judge, reason)
        if is_empty:
            # The answer gets the lowest rating without a judge.
            tally.ratings.empty_answers.add(key)
        elif not is_rated:  # HELM gives this instance a default value
            tally.unjudged.add(key)

    def complete(self, draft: Draft) -> None:
        """Give each empty or filtered answer the lowest rating; add HELM's own mean as a score."""
        jury_metric = draft.jury_metric
        draft.further_scores |= scores_with_helm_defaults(draft.metrics, jury_metric, draft.tally)
        metrics = []
        for metric in draft.metrics:
            if is_judged(metric, jury_metric):
                metrics.append(with_lowest_ratings(metric, draft.tally))
            else:
                metrics.append(metric)
        draft.metrics = metrics

    def count(self, draft: Draft) -> None:
        """Count for each judge the judgements that were due, that arrived, and that failed."""
        model = self._plan.model.model_id
        model_ids = {judge.role: judge.model_id for judge in self._plan.judges}
        ratings_by_judge = draft.tally.ratings.by_judge
        for judge, asked in self._asked.items():
            scored = self._scored[judge]
            # A judge of HELM's own has no model id here. An empty id names no family.
            is_related = same_family(model, model_ids.get(judge, ""))
            draft.tally.judges[judge] = JudgeCounts(
                asked=asked, scored=scored, failed=asked - scored, same_family=is_related
            )
            # A judge whose first ratings failed was added after the other judges. Moving each judge
            # to the end in turn gives the ratings the order of the judges.
            if judge in ratings_by_judge:
                ratings_by_judge[judge] = ratings_by_judge.pop(judge)

    def report(self, draft: Draft) -> None:
        """Report the numbers of judgements, and that the judges rated answers.

        The numbers are reported only if the main metric is the jury's.
        """
        tally = draft.tally
        jury_metrics = [metric for metric in draft.metrics if is_judged(metric, draft.jury_metric)]
        main_is_judged = draft.main_values in jury_metrics
        if main_is_judged:
            draft.judgements = judgements_of(tally.ratings, tally.judges, tally.requested)
        if main_is_judged or any(metric.label in draft.scores for metric in jury_metrics):
            draft.judged = "answers"

    def weigh(self, draft: Draft) -> None:
        """Report how well the judges agree, because the trust in their score depends on it."""
        draft.jury = draft.tally.ratings.make_report()
        draft.notes.extend(notes_on_agreement(draft.jury, draft.tally.ratings))


def with_lowest_ratings(metric: MetricValues, tally: Tally) -> MetricValues:
    """Return a jury's metric with the lowest rating for each empty or filtered answer.

    No judge is asked about these answers, and HELM gives them a default value.
    """
    form = tally.ratings.form
    silent_instances = tally.silent_instances & metric.values.keys()
    lowest_ratings = dict.fromkeys(silent_instances, form.lowest)
    # HELM's mean stays valid only if HELM's default value is the lowest rating.
    if all(metric.values[key] == form.lowest for key in silent_instances):
        return replace(metric, scale=form.scale)
    return replace(metric, scale=form.scale, values=metric.values | lowest_ratings, helm_mean=None)


def scores_with_helm_defaults(
    metrics: Sequence[MetricValues], jury_metric: str | None, tally: Tally
) -> dict[str, Score]:
    """Return the scores that are HELM's own means of the jury's metric, with HELM's default values.

    The keys are the scores' labels. The dict is empty if every answer was judged, because HELM then
    used no default value.
    """
    scores: dict[str, Score] = {}
    without_judgement = tally.failed | tally.unjudged | tally.silent_instances
    if not without_judgement:
        return scores
    for metric in metrics:
        if metric.name == jury_metric and metric.helm_mean is not None:
            # Only the number and the mean are known: HELM's defaults get no interval.
            stats = Stats.without_interval(len(metric.values), metric.helm_mean)
            scores[f"{metric.label}.helm"] = metric.make_score(metric.helm_mean, stats)
    return scores


def missing_instances(
    metric: MetricValues, jury_metric: str | None, tally: Tally, *, failed_as_zero: bool
) -> tuple[set[InstanceKey], bool]:
    """Return the instances without a usable value, and True if these count as 0.

    Missing instances of a jury's metric never count as 0, because 0 is not one of its ratings. A
    worst case is computed from several instances, and is missing if one of these is missing.
    """
    judged = is_judged(metric, jury_metric)
    # `unscored_cases` is empty without a rubric: other metrics than a jury's need no judgement.
    without_score = tally.unjudged if judged else tally.unscored_cases
    missing = tally.failed | without_score
    missing_worst_cases = set()
    for key, forms in metric.forms.items():
        if not missing.isdisjoint(forms):
            missing_worst_cases.add(key)
    return missing | missing_worst_cases, failed_as_zero and not judged


def judgements_of(
    ratings: Ratings, judges: Collection[str], requested: Collection[InstanceKey]
) -> Judgements:
    """Return the numbers of judgements that were due and that arrived.

    One judgement of each judge is due for each requested answer that is not empty.

    Args:
        ratings: the ratings that arrived.
        judges: the roles of the judges.
        requested: the instances that were asked.
    """
    answers = set(requested) - ratings.empty_answers
    arrived = 0
    for judge in judges:
        arrived += len(answers & ratings.by_judge.get(judge, {}).keys())
    return Judgements(due=len(judges) * len(answers), given=arrived)


def score_where_all_judges_rated(
    metric: MetricValues, ratings: Ratings, judges: Collection[str]
) -> Score | None:
    """Return the score over the instances that every judge rated.

    Empty answers are included, because their rating needs no judge. Return None if all instances
    are included, because the score would then equal the metric's own score. Return None also if no
    instance was rated by every judge, or if there are no judges.
    """
    rated_by_all = set(metric.values)
    for judge in judges:
        rated_by_all &= ratings.by_judge.get(judge, {}).keys()
    if not rated_by_all or not judges:
        return None
    included = rated_by_all | ratings.empty_answers
    values = {key: value for key, value in metric.values.items() if key in included}
    if len(values) == len(metric.values):
        return None
    return mean_score(metric, values)


def bounds_over_judgements(
    metric: MetricValues, ratings: Ratings, judges: Collection[str]
) -> Bounds | None:
    """Return the lowest and the highest score of the jury that the missing judgements allow.

    In the lowest score, every missing judgement is the lowest rating; in the highest score, the
    highest rating. All judges rate the same criteria, so an instance's score is the mean of its
    judges' means. Return None if a stored rating lies outside the scale.
    """
    low, high = metric.scale or ratings.form.scale
    worst = {}
    best = {}
    complete = []  # the values of the instances without a missing judgement
    for key, value in metric.values.items():
        means = ratings.mean_by_judge(key)
        number_missing = len(judges) - len(means)
        if key in ratings.empty_answers or not number_missing:
            worst[key] = value
            best[key] = value
            complete.append(value)
        elif any(not low <= mean <= high for mean in means.values()):
            return None  # an earlier version of this program accepted ratings outside the scale
        else:
            total = sum(means.values())
            worst[key] = (total + number_missing * low) / len(judges)
            best[key] = (total + number_missing * high) / len(judges)
    nothing_missing = len(complete) == len(metric.values)
    if nothing_missing or any(not low <= value <= high for value in complete):
        # `bounds_of` returns two equal bounds, or None if a value lies outside the scale.
        return bounds_of(metric, missing=set())
    return helm_mean(worst), helm_mean(best)


def notes_on_agreement(report: JuryReport, ratings: Ratings) -> Iterator[Note]:
    """Yield warnings about a jury.

    The warnings are about judges that agree implausibly well, judges that are not shown to agree,
    and judges whose ratings follow the length of the answers.
    """
    alpha = report.krippendorff_alpha
    # the number of judges that rated each answer
    judges_by_answer = Counter(chain.from_iterable(ratings.by_judge.values()))
    # the number of answers that two or more judges rated
    compared = sum(judges > 1 for judges in judges_by_answer.values())
    if alpha is not None and alpha > IMPLAUSIBLE_ALPHA and compared >= MIN_DECISIONS:
        coefficient = f"Krippendorff's alpha {formats.coefficient(alpha)} over {compared} answers"
        agree = f"the judges agree more than different models usually do ({coefficient})"
        yield Note(
            Importance.DOUBTFUL, f"{agree}: does one model, or a cache, answer for several of them?"
        )
    if report.is_shown_to_agree is False:  # None if the agreement was not tested
        coefficient = formats.coefficient(alpha, missing="not defined")
        chance = f"their marks may agree by chance (Krippendorff's alpha {coefficient}"
        if report.agreement_p is not None:
            chance += f", p {formats.p_value(report.agreement_p)}"
        advice = "Look at `judges` in results.jsonl; judge more answers, or name other judges"
        yield Note(Importance.DOUBTFUL, f"the judges are not shown to agree: {chance}). {advice}")
    yield from notes_on_length(report.length_correlation)


def notes_on_length(correlations: Mapping[str, RankCorrelation | None]) -> Iterator[Note]:
    """Yield a warning about each judge whose ratings follow the length of the answers.

    Args:
        correlations: dict from a judge to the rank correlation of the judge's ratings with the
            lengths; None if it is not defined.
    """
    for judge, correlation in correlations.items():
        if correlation is None or not _follows_length(correlation):
            continue
        preferred = "shorter"
        if correlation.rho > 0:
            preferred = "longer"
        rho = formats.mean_rating(correlation.rho)
        low = formats.mean_rating(correlation.ci_low)
        high = formats.mean_rating(correlation.ci_high)
        yield Note(
            Importance.DOUBTFUL,
            f"judge {judge} gives {preferred} answers better marks: the rank correlation of mark "
            f"and length is {rho} (95 % interval {low} .. {high}) over {correlation.count} "
            "answers. Such marks do not show that the judge read the answers",
        )


def _follows_length(correlation: RankCorrelation) -> bool:
    """Return True if the interval of the correlation lies outside the plausible range.

    The range is from minus `MAX_LENGTH_CORRELATION` to `MAX_LENGTH_CORRELATION`. Return False if
    there are fewer than `MIN_DECISIONS` answers.
    """
    # the distance from 0 to the nearer end of the interval; negative if 0 lies inside
    distance = max(correlation.ci_low, -correlation.ci_high)
    return correlation.count >= MIN_DECISIONS and distance > MAX_LENGTH_CORRELATION
