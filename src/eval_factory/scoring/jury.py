"""A jury: its ratings, how far its judges agree, what is missing, and what its score could be with that.

HELM's score of an instance is the mean of the ratings that came. Where a judge failed, it is another jury's score: the
instance has one, and counts as scored, so that nothing but the judgements themselves shows what is missing.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from eval_factory.core.jury_form import HELMS_FORM, JuryForm
from eval_factory.core.results import JudgeCounts, Judgements, JuryReport, RankCorrelation, Score
from eval_factory.scoring.agreement import ordinal_alpha
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.scores import InstanceKey, MetricValues, bounds_of, helm_mean, mean_score

MIN_RANKED = 4
"""Answers that a rank correlation needs for an interval."""
_WORD_ENDS = r"(?![a-z])"
_FAMILIES: Mapping[str, re.Pattern[str]] = {
    name: re.compile(rf"(?<![a-z])(?:{pattern})", re.IGNORECASE)
    for name, pattern in {
        "gpt": rf"(?<!cerebras-)(?:chat)?gpt(?!4all|-?j{_WORD_ENDS}|-?neo)|(?<!marco-)o[134](?![a-z0-9])|openai",
        "claude": rf"claude{_WORD_ENDS}|anthropic|(?:opus(?!-mt)|sonnet|haiku){_WORD_ENDS}",
        "llama": rf"(?:code|med)?llama{_WORD_ENDS}|nemotron",
        "gemini": rf"(?:gemini|(?:code|med|pali|recurrent|shield|tx)?gemma|palm){_WORD_ENDS}",
        "mistral": rf"(?:(?:bio)?mistral|mixtral|ministral|magistral|codestral|devstral|pixtral){_WORD_ENDS}",
        "qwen": rf"(?:code)?(?:qwen|qwq|qvq){_WORD_ENDS}",
        "deepseek": rf"deepseek{_WORD_ENDS}",
        "phi": r"phi-?\d",
        "command": rf"command(?:-(?:r7b|r|a|light|nightly)(?![a-z0-9])|$)|(?:cohere|c4ai|aya){_WORD_ENDS}",
        "grok": rf"grok{_WORD_ENDS}",
    }.items()
}
_DERIVED: Mapping[str, re.Pattern[str]] = {
    "llama": re.compile(rf"(?<![a-z])(?:alpaca|meditron|vicuna){_WORD_ENDS}", re.IGNORECASE)
}
"""Models that were made of another family's, where their id does not name another one (`meditron3-qwen2.5`)."""


@dataclass
class Ratings:
    """Every rating of a run: judge -> instance -> criterion -> rating."""

    by_judge: dict[str, dict[InstanceKey, dict[str, int]]] = field(default_factory=lambda: defaultdict(dict))
    lowest: set[InstanceKey] = field(default_factory=set)
    """Answers with nothing in them, which no judge is asked about."""
    form: JuryForm = HELMS_FORM
    lengths: dict[InstanceKey, int] = field(default_factory=dict)
    """Of the answers, in characters."""

    def add(self, judge: str, instance: InstanceKey, ratings: Mapping[str, int]) -> None:
        if ratings:
            self.by_judge[judge][instance] = dict(ratings)

    def rate_lowest(self, instance: InstanceKey) -> None:
        self.lowest.add(instance)

    def _units(self, judge: str) -> dict[tuple[InstanceKey, str], int]:
        """(instance, criterion) -> rating."""
        return {
            (instance, criterion): rating
            for instance, ratings in self.by_judge[judge].items()
            for criterion, rating in ratings.items()
        }

    def of_instances(self, left_out: str | None = None) -> dict[InstanceKey, float]:
        """The jury's score of each instance: the mean of all its ratings, as HELM computes it."""
        sums: dict[InstanceKey, list[int]] = defaultdict(list)
        for judge, ratings in self.by_judge.items():
            if judge != left_out:
                for instance, given in ratings.items():
                    sums[instance].extend(given.values())
        rated = {instance: sum(given) / len(given) for instance, given in sums.items()}
        if left_out is not None and not rated:
            return {}  # the others said nothing
        return rated | dict.fromkeys(self.lowest, self.form.lowest)

    def means_of(self, instance: InstanceKey) -> dict[str, float]:
        """Judge -> the mean of its ratings of one instance."""
        means = {}
        for judge, ratings in self.by_judge.items():
            given = ratings.get(instance)
            if given:
                means[judge] = statistics.fmean(given.values())
        return means

    def report(self) -> JuryReport:
        judges = list(self.by_judge)
        return JuryReport(
            means={judge: statistics.fmean(self._units(judge).values()) for judge in judges},
            krippendorff_alpha=self._alpha(),
            weighted_kappa={f"{one}/{other}": self._kappa(one, other) for one, other in combinations(judges, 2)},
            leave_one_out={
                judge: statistics.fmean(kept.values()) if (kept := self.of_instances(left_out=judge)) else None
                for judge in judges
            },
            labels=self.form.labels,
            criteria=self.form.criteria,
            length_correlation={judge: self._length_correlation(judge) for judge in judges},
        )

    def _length_correlation(self, judge: str) -> RankCorrelation | None:
        """Of the judge's marks and the lengths of the answers; None where it is not defined.

        The interval is Fisher's z with the variance (1 + rho^2 / 2) / (n - 3) (D. Bonett, T. Wright, Psychometrika
        65:23-28, 2000). Of marks with many ties it covers 94.5 to 99.7 %, for n from 20 to 500.
        """
        rated = [
            (statistics.fmean(given.values()), self.lengths[instance])
            for instance, given in self.by_judge[judge].items()
            if instance in self.lengths
        ]
        n = len(rated)
        if n < MIN_RANKED or any(len(set(column)) == 1 for column in zip(*rated, strict=True)):
            return None
        from scipy import stats  # imported here: only a jury needs it

        rho = float(stats.spearmanr(rated)[0])
        # no z is that of a perfect order: it counts as if two neighbours had changed places
        inner = math.copysign(min(abs(rho), 1 - 12 / (n * (n * n - 1))), rho)
        half = stats.norm.ppf(0.975) * math.sqrt((1 + inner * inner / 2) / (n - 3))
        low, high = (math.tanh(math.atanh(inner) + sign * half) for sign in (-1, 1))
        return RankCorrelation(rho, min(low, rho), max(high, rho), n)

    def _alpha(self) -> float | None:
        """Krippendorff's alpha over judges and criteria; None where it is not defined."""
        given: dict[tuple[InstanceKey, str], list[int]] = defaultdict(list)
        for judge in self.by_judge:
            for unit, rating in self._units(judge).items():
                given[unit].append(rating)
        return ordinal_alpha(given.values())

    def _kappa(self, one: str, other: str) -> float | None:
        """Cohen's kappa with quadratic weights (J. Cohen, Psychological Bulletin 70:213-220, 1968), of what both
        rated."""
        ones, others = self._units(one), self._units(other)
        pairs = [(ones[unit], others[unit]) for unit in sorted(ones.keys() & others.keys(), key=repr)]
        if len({rating for pair in pairs for rating in pair}) < 2:
            return None
        from sklearn.metrics import cohen_kappa_score  # imported here: only a jury needs it

        first, second = zip(*pairs, strict=True)
        low, high = self.form.values[0], self.form.values[-1]  # with the values that no label has: weights go by them
        return _finite(cohen_kappa_score(first, second, labels=range(low, high + 1), weights="quadratic"))


def _finite(value: float) -> float | None:
    return float(value) if math.isfinite(value) else None


def family_of(model_id: str) -> str | None:
    """The family of models that an id names, as far as ids tell; None where they do not.

    The model's own name counts before what stands before it: `openai/` is also how gateways call an API.
    """
    provider, _, name = model_id.rpartition("/")
    for text, families in ((name, _FAMILIES), (name, _DERIVED), (provider, _FAMILIES)):
        for family, pattern in families.items():
            if pattern.search(text):
                return family
    return None


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
