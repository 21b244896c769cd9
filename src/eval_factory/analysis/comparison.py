"""Compares the results of output folders, pair by pair.

A pair is compared on the instances that have a value in both results. The first result of a pair is
called a, the second result b. Each of them, with its values by instance, is a `Side`. An instance
whose values in a and b differ is a flip.
"""

from __future__ import annotations

import operator
import statistics
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.analysis import comparison_reasons, pairing
from eval_factory.analysis.comparison_reasons import InstanceValues, Key, Reason, Side
from eval_factory.core import formats
from eval_factory.core.enums import Evidence
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import Score
from eval_factory.report.reader import (
    COUNT,
    FLAG,
    NUMBER,
    TEXT,
    StoredResult,
    data_frame,
    load_result,
)
from eval_factory.report.verdicts import Verdict, verdict_of
from eval_factory.scoring import paired
from eval_factory.scoring.intervals import PROPORTION, holm_corrected, lower_end_of_scale
from eval_factory.scoring.paired import ALPHA, PairedDifference
from eval_factory.tasks.rubric_case import JUDGE_CORRECTED_SUFFIX

if TYPE_CHECKING:
    from pandas import DataFrame


# the columns of `Compared.to_frame`, with the type of their values
PAIR_COLUMNS: Mapping[str, str] = {
    "task": TEXT,
    "metric": TEXT,
    "a": TEXT,
    "b": TEXT,
    "model_a": TEXT,
    "model_b": TEXT,
    "n": COUNT,
    "value_a": NUMBER,
    "value_b": NUMBER,
    "difference": NUMBER,
    "ci_low": NUMBER,
    "ci_high": NUMBER,
    "p_value": NUMBER,
    "p_holm": NUMBER,
    "significant": FLAG,
    "higher_is_better": FLAG,
    "method": TEXT,
    "mde": NUMBER,  # the minimum detectable effect: the smallest difference that could be shown
    "failed": COUNT,
    "bound_low": NUMBER,
    "bound_high": NUMBER,
    "folder_a": TEXT,
    "folder_b": TEXT,
}
# the columns of `Compared.instances_frame`, all with texts
FLIP_COLUMNS: Mapping[str, str] = dict.fromkeys(("task", "metric", "a", "b", "id", "better"), TEXT)


@dataclass(frozen=True)
class Model:
    """The model of one of the compared folders."""

    label: str  # the name in messages: A, B, C ...
    folder: Path
    name: str  # the requested name of the evaluated model
    verdict: Verdict = Verdict.GOOD  # what a reader may do with the main score

    @property
    def title(self) -> str:
        """The name of the model, with the verdict on its main score unless the verdict is good."""
        if self.verdict is Verdict.GOOD:
            return self.name
        return f"{self.name}: {self.verdict.value.title}"


@dataclass(frozen=True)
class Failed:
    """The numbers of instances that are left out because they have no value in a, b or both."""

    a_only: int
    b_only: int
    both: int

    @property
    def total(self) -> int:
        """The number of all instances that are left out."""
        return self.a_only + self.b_only + self.both


@dataclass(frozen=True)
class Flips:
    """The ids of the instances whose values differ."""

    a_only: tuple[Key, ...]  # the instances with the better value in a
    b_only: tuple[Key, ...]  # the instances with the better value in b


@dataclass(frozen=True)
class Comparison:
    """The comparison of two results on the instances with a value in both."""

    task: str
    metric: str
    a: Model
    b: Model
    paired: PairedDifference
    scale: tuple[float, float] | None  # the lowest and the highest value; None if not known
    higher_is_better: bool
    right_or_wrong: bool  # True if all values are 0 or 1
    flips: Flips
    failed: Failed
    bounds: tuple[float, float] | None
    """The lowest and the highest difference (b - a) that the missing values of failed instances
    allow; None if the scale is not known.
    """
    margin: float | None = None  # the largest unimportant difference, in the metric's unit
    # the evidence that b is not worse than a by more than the margin; None without a margin
    non_inferiority: Evidence | None = None
    # the evidence that b and a differ by less than the margin; None without a margin
    equivalence: Evidence | None = None
    p_holm: float | None = None  # the p value, corrected for the number of pairs
    metric_of_b: str | None = None  # the metric's name in b; None if the name is the same as in a
    # For a and for b, if another program made a result: id of a question -> its id in the first of
    # all compared results.
    ids: tuple[Mapping[str, str] | None, Mapping[str, str] | None] = (None, None)

    @property
    def pair_label(self) -> str:
        """The labels of the pair: `B - A`."""
        return f"{self.b.label} - {self.a.label}"

    @property
    def metric_names(self) -> str:
        """The metric's name, or both names if the metric has another name in b."""
        if self.metric_of_b is None:
            return self.metric
        return f"{self.metric} of {self.a.label} and {self.metric_of_b} of {self.b.label}"

    @property
    def advantage(self) -> float:
        """The difference (b - a), with the opposite sign if a lower score is better.

        The advantage is positive if b is better.
        """
        if self.higher_is_better:
            return self.paired.difference
        return -self.paired.difference

    @property
    def significant(self) -> bool:
        """True if the interval, the test and the corrected test all show a difference.

        The test is corrected for the number of pairs only if there are several pairs.
        """
        return self.paired.is_significant and (self.p_holm is None or self.p_holm < ALPHA)


@dataclass(frozen=True)
class Ranked:
    """The ranks of a model that the comparisons do not exclude. Rank 1 is the best."""

    model: Model
    best: int  # the best possible rank
    worst: int  # the worst possible rank

    def __str__(self) -> str:
        """Return the rank, or the range of ranks: `1`, `1 to 2`."""
        if self.best == self.worst:
            return str(self.best)
        return f"{self.best} to {self.worst}"


@dataclass(frozen=True, repr=False)
class Compared:
    """The outcome of `compare`: the comparison of each pair, or the reasons against it."""

    models: tuple[Model, ...]
    reasons: tuple[Reason, ...] = ()  # the reasons why the results cannot be compared
    accepted: tuple[Reason, ...] = ()  # the reasons against a comparison that the user accepted
    comparisons: tuple[Comparison, ...] = ()
    ranks: tuple[Ranked, ...] = ()  # empty for two models
    # how questions were paired with the first model's; empty if this program made all results
    pairings: tuple[str, ...] = ()

    @property
    def comparable(self) -> bool:
        """True if there is no reason against the comparison."""
        return not self.reasons

    def to_frame(self) -> DataFrame:
        """Return a data frame with a row for each pair; labels such as A name the models.

        The frame has no rows if the results cannot be compared.

        Raises:
            PrerequisiteError: pandas is not installed.
        """
        rows = []
        for comparison in self.comparisons:
            row = {**comparison_record(comparison), **_names(comparison)}
            row["failed"] = comparison.failed.total
            low, high = comparison.bounds or (None, None)
            row["bound_low"] = low
            row["bound_high"] = high
            row["folder_a"] = str(comparison.a.folder)
            row["folder_b"] = str(comparison.b.folder)
            rows.append(row)
        return data_frame(PAIR_COLUMNS, rows)

    def instances_frame(self) -> DataFrame:
        """Return a data frame with a row for each pair and instance whose values differ.

        The column `better` has the label of the better model.

        Raises:
            PrerequisiteError: pandas is not installed.
        """
        rows = []
        for comparison in self.comparisons:
            names = _names(comparison)
            for key in comparison.flips.a_only:
                rows.append({**names, "id": key, "better": comparison.a.label})
            for key in comparison.flips.b_only:
                rows.append({**names, "id": key, "better": comparison.b.label})
        return data_frame(FLIP_COLUMNS, rows)

    def __repr__(self) -> str:
        models = [f"{model.label} {model.name}" for model in self.models]
        parts = [", ".join(models)]
        if not self.comparable:
            parts.append(f"not comparable: {self.reasons[0].message}")
        for comparison in self.comparisons[:3]:
            difference = formats.score(comparison.paired.difference, sign="+")
            parts.append(f"{comparison.pair_label} = {difference}")
        if len(self.comparisons) > 3:
            parts.append("...")
        return f"<Compared {one_line('; '.join(parts))}>"


@dataclass(frozen=True)
class Pair:
    """Two of several results: their comparison, or the reasons against it."""

    a: Model
    b: Model
    comparison: Comparison | None
    reasons: tuple[Reason, ...] = ()


def _wrong_arguments(
    folders: Sequence[Path | str], margin: float | None, allow: Collection[str]
) -> Iterator[str]:
    """Yield a message for each invalid argument of `compare`."""
    if len(folders) < 2:
        yield "compare: give two folders or more"
    if margin is not None and not margin > 0:  # also true for NaN
        yield f"compare: --margin {margin} is not above 0"
    unknown = ", ".join(sorted(set(allow) - set(comparison_reasons.ACCEPTABLE_REASONS)))
    if unknown:
        accepted = ", ".join(comparison_reasons.ACCEPTABLE_REASONS)
        yield f"compare: --allow {unknown}: there is no such reason; reasons: {accepted}"


def compare(
    folders: Sequence[Path | str],
    *,
    metric: str | None = None,
    margin: float | None = None,
    allow: Collection[str] = (),
    min_paired: float = pairing.MIN_PAIRED,
    load: Callable[[Path | str], StoredResult] = load_result,
) -> Compared:
    """Compare the results of output folders, each result with each other result.

    Args:
        folders: two or more output folders with results.
        metric: the name of a score; by default the main metric.
        margin: the margin of the tests of non-inferiority and equivalence, in the metric's unit.
            A margin of 0.05 is five percentage points of a share.
        allow: the names of reasons that are accepted.
        min_paired: if another program made one of the results, the smallest share of the smaller
            result's questions that must be paired.
        load: reads the result of a folder.

    Raises:
        ConfigError: there are fewer than two folders, a reason is unknown or cannot be accepted, or
            the margin is not positive.
        PrerequisiteError: a folder has no result.
    """
    if problems := list(_wrong_arguments(folders, margin, allow)):
        raise ConfigError(problems)
    stored = [load(folder) for folder in folders]
    models = tuple(_model(_label(number), result) for number, result in enumerate(stored))
    metrics = _compared_metrics(stored, metric)
    if score_reasons := _score_reasons(models, stored, metrics, is_main=metric is None):
        return Compared(models, reasons=tuple(score_reasons))
    sides = _sides(models, stored, metrics, min_paired)
    if pairing_reasons := tuple(_pairing_reasons(sides, min_paired)):
        return Compared(models, reasons=pairing_reasons)
    reasons = _value_reasons(sides)
    if refused := tuple(reason for reason in reasons if reason.name not in allow):
        return Compared(models, reasons=refused)
    pairs: tuple[Pair, ...] = ()
    for (a, model_a), (b, model_b) in combinations(zip(sides, models, strict=True), 2):
        comparison = _compare_two(a, b, models=(model_a, model_b), margin=margin)
        pairs += (Pair(model_a, model_b, comparison),)
    ranks: tuple[Ranked, ...] = ()
    if len(models) > 2:
        pairs = with_corrected_p_values(pairs)
        ranks = ranks_of_models(models, pairs)
    return Compared(
        models,
        accepted=tuple(reasons),  # the user accepts them all, because none was refused above
        comparisons=tuple(pair.comparison for pair in pairs if pair.comparison is not None),
        ranks=ranks,
        pairings=_pairing_texts(sides),
    )


def _model(label: str, stored: StoredResult) -> Model:
    """Return the model of a stored result."""
    result = stored.result
    return Model(label, stored.folder, result.provenance.target, verdict_of(result))


def compare_pairs(sides: Sequence[Side]) -> tuple[Pair, ...]:
    """Return the comparison of each pair of results, by their main scores.

    Unlike `compare`, this function compares the comparable pairs even if another pair is not
    comparable. The p values are corrected for the number of compared pairs.
    """
    models = [_model(side.label, side.stored) for side in sides]
    pairs = []
    for (a, model_a), (b, model_b) in combinations(zip(sides, models, strict=True), 2):
        main = a.stored.result.main_metric
        reasons = _score_reasons(
            (model_a, model_b), (a.stored, b.stored), metrics=(main, main), is_main=True
        )
        if not reasons:
            reasons = _value_reasons((a, b))
        comparison = None
        if not reasons:
            comparison = _compare_two(a, b, models=(model_a, model_b), margin=None)
        pairs.append(Pair(model_a, model_b, comparison, tuple(reasons)))
    return with_corrected_p_values(pairs)


def with_corrected_p_values(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Return the pairs with p values that are corrected for the number of compared pairs."""
    p_values = []
    for pair in pairs:
        if pair.comparison is not None:
            p_values.append(pair.comparison.paired.p_value)
    # A compared pair without a p value counts in the number of pairs, too.
    corrected_p_values = iter(holm_corrected(p_values, count_missing=True))
    corrected_pairs = []
    for pair in pairs:
        if pair.comparison is not None:
            comparison = replace(pair.comparison, p_holm=next(corrected_p_values))
            pair = replace(pair, comparison=comparison)
        corrected_pairs.append(pair)
    return tuple(corrected_pairs)


def better_and_worse(
    pairs: Iterable[Pair], *, p_below: float = ALPHA
) -> Iterator[tuple[Model, Model]]:
    """Yield (better model, worse model) of each pair with a significant difference.

    Args:
        pairs: the pairs, with corrected p values.
        p_below: the level of the corrected p values, at most `ALPHA`.
    """
    for pair in pairs:
        comparison = pair.comparison
        if comparison is None or comparison.p_holm is None:
            continue
        if comparison.significant and comparison.p_holm < p_below:
            if comparison.advantage > 0:
                yield comparison.b, comparison.a
            else:
                yield comparison.a, comparison.b


def ranks_of_models(models: Sequence[Model], pairs: Iterable[Pair]) -> tuple[Ranked, ...]:
    """Return the ranks of each model that the significant differences of the pairs allow."""
    differences = []
    for better, worse in better_and_worse(pairs):
        differences.append((models.index(better), models.index(worse)))
    intervals = paired.rank_intervals(len(models), differences)
    ranks = []
    for model, (best, worst) in zip(models, intervals, strict=True):
        ranks.append(Ranked(model, best, worst))
    return tuple(ranks)


def _score_reasons(
    models: Sequence[Model],
    stored_results: Sequence[StoredResult],
    metrics: Sequence[str],
    *,
    is_main: bool,
) -> list[Reason]:
    """Return the reasons against comparing these scores.

    There is a reason for each result without the score, and for each result that was asked in
    another way than the first result. If `is_main` is True, there is also a reason for each result
    whose main metric is not the compared score.

    Args:
        models: the models.
        stored_results: the result of each model.
        metrics: the name of the compared score in each result.
        is_main: True if the results are compared by their main metrics.
    """
    reasons: list[Reason] = []
    for model, stored, metric in zip(models, stored_results, metrics, strict=True):
        main = stored.result.main_metric
        scores = stored.result.scores
        reasons += comparison_reasons.two_ways_of_asking(
            models[0].label, stored_results[0], model.label, stored
        )
        if is_main and main != metric:
            first = f"{models[0].label}'s is {metric}; name a score with --metric"
            reasons.append(Reason("metric", f"{model.label}'s main metric is {main}, {first}"))
        elif metric not in scores:
            listed = ", ".join(sorted(scores)) or "none"
            reasons.append(
                Reason("metric", f"{model.label} has no score {metric}; it has {listed}")
            )
    return reasons


def _compared_metrics(stored_results: Sequence[StoredResult], metric: str | None) -> list[str]:
    """Return the name of the compared score in each result.

    If the user names no metric, the name is the main metric of the first result. If another program
    made a result, the name is each result's own main metric, because programs use different names.
    """
    if metric is not None:
        return [metric] * len(stored_results)
    main_metrics = [stored.result.main_metric for stored in stored_results]
    if any(map(pairing.is_imported, stored_results)):
        return main_metrics
    return [main_metrics[0]] * len(stored_results)


def _sides(
    models: Sequence[Model],
    stored_results: Sequence[StoredResult],
    metrics: Sequence[str],
    min_paired: float,
) -> list[Side]:
    """Return the values of each result.

    If another program made a result, each value has the id of its question in the first result.

    Args:
        models: the models.
        stored_results: the result of each model.
        metrics: the name of the compared score in each result.
        min_paired: the smallest share of questions that must be paired.
    """
    across_programs = any(map(pairing.is_imported, stored_results))
    first = stored_results[0]
    sides: list[Side] = []
    for model, stored, metric in zip(models, stored_results, metrics, strict=True):
        pairing_with_first = None
        ids = None
        is_first = not sides  # the first result is not paired with itself
        if across_programs and not is_first:
            pairing_with_first = pairing.pair_questions(first, stored, min_paired)
            ids = pairing_with_first.ids
        values = comparison_reasons.values_of(
            stored.result.instances, stored.result.scores[metric], ids=ids
        )
        sides.append(Side(model.label, stored, values, metric, pairing=pairing_with_first))
    return sides


def _pairing_texts(sides: Sequence[Side]) -> tuple[str, ...]:
    """Return a text for each result whose questions were paired with the first result's."""
    texts = []
    for side in sides:
        if side.pairing is not None:
            texts.append(f"{sides[0].label} and {side.label}: {side.pairing}")
    return tuple(texts)


def _pairing_reasons(sides: Sequence[Side], min_paired: float) -> Iterator[Reason]:
    """Yield a reason for each result that has too few pairs of questions with the first result."""
    for side in sides:
        if side.pairing is not None and side.pairing.share < min_paired:
            why = pairing.too_few_text(side.pairing, min_paired)
            yield Reason("no_pairs", f"{sides[0].label} and {side.label}: {why}")


def _label(number: int) -> str:
    """Return the label of a model by its number, from 0: A to Z, then A2 to Z2, and so on."""
    earlier_alphabets, letter_number = divmod(number, len(string.ascii_uppercase))
    letter = string.ascii_uppercase[letter_number]
    if earlier_alphabets == 0:
        return letter
    return f"{letter}{earlier_alphabets + 1}"


def _value_reasons(sides: Sequence[Side]) -> list[Reason]:
    """Return the reasons against comparing these values: of each result, and of each pair."""
    reasons = list(chain.from_iterable(map(comparison_reasons.reasons_against_result, sides)))
    for a, b in combinations(sides, 2):
        reasons += comparison_reasons.reasons_against_pair(a, b)
        if not a.values.means.keys() & b.values.means.keys():
            text = f"there is no instance of which both {a.label} and {b.label} have a value"
            reasons.append(Reason("no_pairs", text))
    return reasons


def _compare_two(
    a: Side, b: Side, *, models: tuple[Model, Model], margin: float | None
) -> Comparison:
    """Return the comparison of two results on the instances with a value in both.

    Args:
        a: the values of the first result.
        b: the values of the second result.
        models: the models of the two results.
        margin: the margin of the tests of non-inferiority and equivalence; None for no such tests.
    """
    score = a.stored.result.scores[a.metric]
    keys = [key for key in a.values.means if key in b.values.means]
    values_a = a.values.listed(keys)
    values_b = b.values.listed(keys)
    scale = _scale_of(score, [*values_a, *values_b])
    # A metric may be of a subset of the questions. An instance that it leaves out in both results
    # has not failed.
    not_in_metric = a.values.unscored & b.values.unscored
    shared = (a.values.all_keys & b.values.all_keys) - not_in_metric
    failed_a = shared & a.values.failed
    failed_b = shared & b.values.failed
    difference = difference_of(a.values, b.values, keys, scale)
    if a.metric.endswith(JUDGE_CORRECTED_SUFFIX):
        difference = paired.with_labels_uncertainty(difference, _uncertainty_of_labels(a, b))
    metric_of_b = None
    if b.metric != a.metric:
        metric_of_b = b.metric
    # An unknown direction (None) counts as higher.
    higher_is_better = score.higher_is_better is not False
    has_only_0_and_1 = {*values_a, *values_b} <= {0, 1}
    comparison = Comparison(
        task=a.stored.result.task,
        metric=a.metric,
        a=models[0],
        b=models[1],
        paired=difference,
        scale=scale,
        higher_is_better=higher_is_better,
        right_or_wrong=scale == PROPORTION and has_only_0_and_1,
        flips=_flips(a.values, b.values, keys, higher_is_better=higher_is_better),
        failed=Failed(
            a_only=len(failed_a - failed_b),
            b_only=len(failed_b - failed_a),
            both=len(failed_a & failed_b),
        ),
        bounds=_bounds(a.values, b.values, shared, scale),
        margin=margin,
        metric_of_b=metric_of_b,
        ids=(_ids_of(a), _ids_of(b)),
    )
    if margin is None:
        return comparison
    return replace(
        comparison,
        non_inferiority=paired.non_inferiority(
            difference, margin, higher_is_better=higher_is_better
        ),
        equivalence=paired.equivalence(difference, margin),
    )


def _ids_of(side: Side) -> Mapping[str, str] | None:
    """Return a dict from the ids of this result to the first result's; None if ids are equal."""
    if side.pairing is None:
        return None
    return side.pairing.ids


def _scale_of(score: Score, values: Iterable[float]) -> tuple[float, float] | None:
    """Return the metric's scale, by default 0 to 1; None if a value is outside the scale."""
    low, high = score.scale or PROPORTION
    if all(low <= value <= high for value in values):
        return low, high
    return None


def _bounds(
    a: InstanceValues, b: InstanceValues, keys: Collection[Key], scale: tuple[float, float] | None
) -> tuple[float, float] | None:
    """Return the lowest and the highest difference (b - a) that the missing values allow.

    Return None if the scale is not known.

    Args:
        a: the values of the first result.
        b: the values of the second result.
        keys: the instances, including those with a missing value.
        scale: the lowest and the highest possible value; None if not known.
    """
    if scale is None:
        return None
    low, high = scale
    # For the lowest difference, each missing value of b counts as `low` and of a as `high`.
    smallest_sum = sum(b.means.get(key, low) - a.means.get(key, high) for key in keys)
    greatest_sum = sum(b.means.get(key, high) - a.means.get(key, low) for key in keys)
    return smallest_sum / len(keys), greatest_sum / len(keys)


def _flips(
    a: InstanceValues, b: InstanceValues, keys: Iterable[Key], *, higher_is_better: bool
) -> Flips:
    """Return the ids of the instances whose values differ, by the result with the better value."""
    higher_in_a = []
    higher_in_b = []
    for key in keys:
        if a.means[key] > b.means[key]:
            higher_in_a.append(key)
        elif b.means[key] > a.means[key]:
            higher_in_b.append(key)
    if higher_is_better:
        return Flips(a_only=tuple(higher_in_a), b_only=tuple(higher_in_b))
    return Flips(a_only=tuple(higher_in_b), b_only=tuple(higher_in_a))


def _uncertainty_of_labels(a: Side, b: Side) -> float:
    """Return the larger relative standard error of two corrections for a judge's mistakes.

    A correction divides by Youden's index (sensitivity + specificity - 1), which is estimated from
    labels. Return 0 if no standard error is known.
    """
    errors = [0.0]
    for side in (a, b):
        rubric = side.stored.result.validity.rubric
        if rubric is None or rubric.correction is None:
            continue
        correction = rubric.correction
        if correction.youden_stderr is not None:
            youden = correction.sensitivity + correction.specificity - 1
            errors.append(correction.youden_stderr / youden)
    return max(errors)


def difference_of(
    a: InstanceValues, b: InstanceValues, keys: Sequence[Key], scale: tuple[float, float] | None
) -> PairedDifference:
    """Return the difference (b - a) over the instances with a value in both results.

    Args:
        a: the values of the first result. The clusters of the first result are used for both; if it
            has none, those of the second result.
        b: the values of the second result.
        keys: the ids of the instances.
        scale: the scale of the metric. If it is None and each instance is a case of a rubric, the
            scale of the difference is computed from the scales of the cases.
    """
    values_a = a.listed(keys)
    values_b = b.listed(keys)
    if scale is None and a.lowest.keys() >= set(keys):
        changes = list(map(operator.sub, values_b, values_a))
        scale = _scale_of_cases(changes, [a.lowest[key] for key in keys])
    with_clusters = a
    if not a.clusters:
        with_clusters = b
    clusters = None
    if with_clusters.clusters:
        clusters = [_cluster_of(with_clusters, key) for key in keys]
    return paired.paired_difference(values_a, values_b, clusters=clusters, scale=scale)


def _scale_of_cases(
    changes: Sequence[float], lowest_scores: Sequence[float]
) -> tuple[float, float]:
    """Return the scale for the difference of two scores of the cases of a rubric.

    A case's score is at least its own lowest score and at most 1. The highest possible change of a
    case is therefore 1 - its lowest score, and the lowest possible change is the opposite number.
    `intervals.lower_end_of_scale` combines the lowest changes of all cases into one lowest change.

    Args:
        changes: the change (b - a) of each case.
        lowest_scores: the lowest possible score of each case.
    """
    highest_changes = [1 - lowest for lowest in lowest_scores]
    lowest_changes = [-change for change in highest_changes]
    highest_change = statistics.fmean(highest_changes)
    lowest_change = lower_end_of_scale(changes, lowest_changes, highest_change)
    # On a scale from `low` to 1, the lowest change is `low` - 1.
    return 1 + lowest_change, 1.0


def _cluster_of(values: InstanceValues, key: Key) -> str:
    """Return the name of an instance's cluster: its source, or the instance if it has no source."""
    if key in values.clusters:
        return f"cluster {values.clusters[key]}"
    return f"instance {key}"


def numbers_of(comparison: Comparison) -> dict[str, float | None]:
    """Return the numbers of a comparison, by the names that all documents use."""
    difference = comparison.paired
    return {
        "n": difference.n,
        "value_a": difference.value_a,
        "value_b": difference.value_b,
        "difference": difference.difference,
        "ci_low": difference.ci_low,
        "ci_high": difference.ci_high,
        "p_value": difference.p_value,
        "p_holm": comparison.p_holm,
        "mde": difference.mde,
    }


def difference_text(value: float, scale: tuple[float, float] | None, *, sign: str = "") -> str:
    """Return a difference as a text: in percentage points for a share, else in its own unit."""
    if scale == PROPORTION:
        return formats.points(value, sign=sign)
    return formats.significant(value, digits=3, sign=sign)


def comparison_record(comparison: Comparison) -> dict[str, Any]:
    """Return the record of a pair that `compare --json` prints; docs/compare.md lists its keys."""
    difference = comparison.paired
    return {
        "task": comparison.task,
        "metric": comparison.metric,
        "metric_of_b": comparison.metric_of_b or comparison.metric,
        "a": str(comparison.a.folder),
        "b": str(comparison.b.folder),
        "model_a": comparison.a.name,
        "model_b": comparison.b.name,
        **numbers_of(comparison),
        "significant": comparison.significant,
        "method": difference.method,
        "clusters": difference.clusters,
        "few_sources": difference.few_sources,
        "discordant": difference.discordant,
        "higher_is_better": comparison.higher_is_better,
        "scale": _as_list(comparison.scale),
        "failed": asdict(comparison.failed),
        "bounds": _as_list(comparison.bounds),
        "margin": comparison.margin,
        "non_inferiority": comparison.non_inferiority,
        "equivalence": comparison.equivalence,
        "flips": {
            "a_only": list(comparison.flips.a_only),
            "b_only": list(comparison.flips.b_only),
        },
    }


def _as_list(interval: tuple[float, float] | None) -> list[float] | None:
    """Return (lower, upper) as a list, the form of a pair in JSON; None stays None."""
    if interval is None:
        return None
    return list(interval)


def _names(comparison: Comparison) -> dict[str, Any]:
    """Return the task, the metric and the labels of a pair, for a row of a frame."""
    return {
        "task": comparison.task,
        "metric": comparison.metric,
        "a": comparison.a.label,
        "b": comparison.b.label,
    }
