"""A jury: its judges' ratings, its scores, what is missing of them, and what the scores could be
with that.

HELM's score of an instance is the mean of the ratings that came. Where a judge failed, it is
another jury's score: the instance has one, and counts as scored, so that nothing but the judgements
themselves shows what is missing.
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
from eval_factory.helm.judge_output import injection_signs, is_blank_answer
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.agreement import Ratings
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import Bounds
from eval_factory.scoring.model_families import same_family
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.part import Part
from eval_factory.scoring.request_states import has_failed, text_of
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    bounds_of,
    helm_mean,
    is_judged,
    mean_score,
)
from eval_factory.scoring.tally import Tally

# Krippendorff's alpha, and answers that two judges or more rated
BEYOND_BELIEF = 0.98
ENOUGH_TO_TELL = 20

FOLLOWS_LENGTH = 0.5
"""A rank correlation of mark and length: better answers are often somewhat longer, and seldom so
much.
"""

# ends the name of a jury's score over the instances that every judge rated
ALL_JUDGES = ".all_judges"


class Jury(Part):
    """The judgements of a run, answer by answer."""

    def __init__(self, plan: Plan, of_run: output.JuryNames, tally: Tally) -> None:
        self._plan = plan
        self._of_run = of_run
        self._tally = tally
        roles = roles_by_deployment(plan.judges)
        self.names: dict[str, str] = {}
        for name, deployment in of_run.judges.items():
            self.names[roles.get(deployment, name)] = name
        """Judge's role -> its name in HELM's annotations."""
        self._asked = dict.fromkeys(self.names, 0)
        self._scored = dict.fromkeys(self.names, 0)

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """See an answer; no judge is asked about an empty one."""
        if has_failed(state):
            return
        tally = self._tally
        text = text_of(state)
        rated = False
        empty = is_blank_answer(text)
        tally.injected += bool(injection_signs(text))
        tally.ratings.lengths[key] = len(text)
        for judge, name in self.names.items():
            ratings = output.ratings_of(state.annotations, self._of_run, name)
            if not empty:
                self._asked[judge] += 1
            if ratings:
                self._scored[judge] += 1
                rated = True
            tally.ratings.add(judge, key, ratings)
            if not ratings and not empty:
                tally.causes.add(judge, output.reason_of(state.annotations, self._of_run, name))
        if empty:
            tally.ratings.lowest.add(key)
        elif not rated:  # HELM gives such an instance its default
            tally.unjudged.add(key)

    def complete(self, draft: Draft) -> None:
        """Add the lowest mark of each answer that says nothing, and what HELM makes of it, which
        stands beside.
        """
        metric = draft.jury_metric
        draft.further_scores |= helms_own(draft.metrics, metric, draft.tally)
        metrics = []
        for made in draft.metrics:
            if is_judged(made, metric):
                metrics.append(of_the_jury(made, draft.tally))
            else:
                metrics.append(made)
        draft.metrics = metrics

    def count(self, draft: Draft) -> None:
        model = self._plan.model.model_id
        judges = {judge.role: judge.model_id for judge in self._plan.judges}
        by_judge = draft.tally.ratings.by_judge
        for judge, due in self._asked.items():
            scored = self._scored[judge]
            same = same_family(model, judges.get(judge, ""))
            draft.tally.judges[judge] = JudgeCounts(due, scored, due - scored, same)
            if judge in by_judge:  # a judge that failed at first is not the last one of the report
                by_judge[judge] = by_judge.pop(judge)

    def report(self, draft: Draft) -> None:
        """Report how many judgements came, and whether a score is the judges'."""
        tally = draft.tally
        judged = [metric for metric in draft.metrics if is_judged(metric, draft.jury_metric)]
        if draft.main_values in judged:
            draft.judgements = judgements_of(tally.ratings, tally.judges, tally.requested)
        if draft.main_values in judged or any(metric.label in draft.scores for metric in judged):
            draft.judged = "answers"

    def weigh(self, draft: Draft) -> None:
        """Report how far judges agree: so far a score by them can be trusted."""
        draft.jury = draft.tally.ratings.report()
        draft.notes.extend(notes_on_agreement(draft.jury, draft.tally.ratings))


def of_the_jury(metric: MetricValues, tally: Tally) -> MetricValues:
    """Return a jury's metric with the lowest mark for each answer that says nothing: no judge is
    asked, and HELM gives a default.
    """
    form = tally.ratings.form
    marks = dict.fromkeys(tally.silent & metric.values.keys(), form.lowest)
    if all(metric.values[key] == mark for key, mark in marks.items()):
        return replace(metric, scale=form.scale)
    return replace(metric, scale=form.scale, values=metric.values | marks, helm_mean=None)


def helms_own(
    metrics: Sequence[MetricValues], jury_metric: str | None, tally: Tally
) -> dict[str, Score]:
    """Return what HELM makes of its default for answers without a judgement, if there are any."""
    scores = {}
    for metric in metrics:
        if (
            metric.name == jury_metric
            and metric.helm_mean is not None
            and tally.failed | tally.unjudged | tally.silent
        ):
            stats = Stats(len(metric.values), metric.helm_mean, None, None, None, None, None)
            scores[f"{metric.label}.helm"] = metric.score(metric.helm_mean, stats)
    return scores


def missing_judgements(
    metric: MetricValues, jury_metric: str | None, tally: Tally, *, failed_as_zero: bool
) -> tuple[set[InstanceKey], bool]:
    """Return the instances without a value that counts, and whether they count as 0: it is no mark
    of a jury's.
    """
    judged = is_judged(metric, jury_metric)
    missing = tally.failed | tally.undecided
    if judged:
        missing = tally.failed | tally.unjudged
    of_parts = {key for key, parts in metric.parts.items() if not missing.isdisjoint(parts)}
    return missing | of_parts, failed_as_zero and not judged


def judgements_of(
    ratings: Ratings, judges: Collection[str], requested: Collection[InstanceKey]
) -> Judgements:
    """Count the judgements that the requests to the model asked for, and those that came."""
    answers = set(requested) - ratings.lowest
    given = 0
    for judge in judges:
        given += len(answers & ratings.by_judge.get(judge, {}).keys())
    return Judgements(due=len(judges) * len(answers), given=given)


def score_of_all_judges(
    metric: MetricValues, ratings: Ratings, judges: Collection[str]
) -> Score | None:
    """The score over the instances that every judge rated, answers with nothing in them among them
    (their mark needs no judge); None if it is the score itself, or no instance has all
    judgements.
    """
    by_all = set(metric.values)
    for judge in judges:
        by_all &= ratings.by_judge.get(judge, {}).keys()
    if not by_all or not judges:
        return None
    marked = by_all | ratings.lowest
    counted = {key: value for key, value in metric.values.items() if key in marked}
    if len(counted) == len(metric.values):
        return None
    return mean_score(metric, counted)


def bounds_over_judgements(
    metric: MetricValues, ratings: Ratings, judges: Collection[str]
) -> Bounds | None:
    """The jury's score if every missing judgement were the lowest mark, and if every one were the
    highest. Judges rate the same criteria, so an instance's score is the mean of its judges' means.
    """
    low, high = metric.scale or ratings.form.scale
    worst = {}
    best = {}
    complete = []
    for key, value in metric.values.items():
        means = ratings.mean_by_judge(key)
        missing = len(judges) - len(means)
        if key in ratings.lowest or not missing:
            worst[key] = best[key] = value
            complete.append(value)
        elif any(not low <= mean <= high for mean in means.values()):
            return None  # an earlier version took ratings beyond the scale
        else:
            total = sum(means.values())
            worst[key] = (total + missing * low) / len(judges)
            best[key] = (total + missing * high) / len(judges)
    if len(complete) == len(metric.values) or any(not low <= value <= high for value in complete):
        return bounds_of(metric, set())
    return helm_mean(worst), helm_mean(best)


def notes_on_agreement(report: JuryReport, ratings: Ratings) -> Iterator[Note]:
    """Judges that agree as no two models do, and judges whose marks follow the length of the
    answers.
    """
    alpha = report.krippendorff_alpha
    judges_of_answers = Counter(chain.from_iterable(ratings.by_judge.values()))
    several = sum(count > 1 for count in judges_of_answers.values())
    if alpha is not None and alpha > BEYOND_BELIEF and several >= ENOUGH_TO_TELL:
        coefficient = f"Krippendorff's alpha {formats.coefficient(alpha)} over {several} answers"
        agree = f"the judges agree more than different models usually do ({coefficient})"
        yield Note(
            Importance.DOUBTFUL, f"{agree}: does one model, or a cache, answer for several of them?"
        )
    if report.is_shown_to_agree is False:
        coefficient = formats.coefficient(alpha, missing="not defined")
        chance = f"their marks may agree by chance (Krippendorff's alpha {coefficient}"
        if report.agreement_p is not None:
            chance += f", p {formats.p_value(report.agreement_p)}"
        advice = "Look at `judges` in results.jsonl; judge more answers, or name other judges"
        yield Note(Importance.DOUBTFUL, f"the judges are not shown to agree: {chance}). {advice}")
    yield from notes_on_length(report.length_correlation)


def notes_on_length(correlations: Mapping[str, RankCorrelation | None]) -> Iterator[Note]:
    """Judges whose marks follow the length of the answers."""
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
    """Return whether there are enough answers to tell, and the interval is beyond what better
    answers have.
    """
    nearest_to_0 = max(correlation.ci_low, -correlation.ci_high)
    return correlation.count >= ENOUGH_TO_TELL and nearest_to_0 > FOLLOWS_LENGTH
