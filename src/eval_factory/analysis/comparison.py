"""Output folders, compared pair by pair on the instances that both answered."""

from __future__ import annotations

import statistics
import string
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import chain, combinations, count
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.analysis import comparison_reasons, pairing
from eval_factory.analysis.comparison_reasons import InstanceValues, Key, Reason, Side
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.nouns import Evidence
from eval_factory.report.reader import COUNT, FLAG, NUMBER, TEXT, StoredResult, frame, load_result
from eval_factory.report.verdicts import Verdict, verdict_of
from eval_factory.scoring import paired
from eval_factory.scoring.intervals import PROPORTION, holm, lower_end
from eval_factory.scoring.paired import ALPHA, PairedDifference
from eval_factory.tasks.rubric_case import JUDGE_CORRECTED

if TYPE_CHECKING:
    from pandas import DataFrame


PAIR_COLUMNS: Mapping[str, str] = {
    **dict.fromkeys(("task", "metric", "a", "b", "model_a", "model_b"), TEXT),
    "n": COUNT,
    **dict.fromkeys(
        ("value_a", "value_b", "difference", "ci_low", "ci_high", "p_value", "p_holm"), NUMBER
    ),
    **dict.fromkeys(("significant", "higher_is_better"), FLAG),
    "method": TEXT,
    "mde": NUMBER,
    "failed": COUNT,
    **dict.fromkeys(("bound_low", "bound_high"), NUMBER),
    **dict.fromkeys(("folder_a", "folder_b"), TEXT),
}
FLIP_COLUMNS: Mapping[str, str] = dict.fromkeys(("task", "metric", "a", "b", "id", "better"), TEXT)


@dataclass(frozen=True)
class Model:
    """One of the folders."""

    label: str  # a, B, C ..., as messages call it
    folder: Path
    name: str  # the evaluated model, as it was asked for
    verdict: Verdict = Verdict.GOOD  # on its main score

    @property
    def title(self) -> str:
        """The model, with what speaks against its main score."""
        if self.verdict is Verdict.GOOD:
            return self.name
        return f"{self.name}: {self.verdict.value.title}"


@dataclass(frozen=True)
class Failed:
    """Instances that are left out, because one side or both have no value."""

    a_only: int
    b_only: int
    both: int

    @property
    def total(self) -> int:
        return self.a_only + self.b_only + self.both


@dataclass(frozen=True)
class Flips:
    """Ids of the instances whose values differ."""

    a_only: tuple[Key, ...]  # right in a alone; of values that are not 0 or 1: better in a
    b_only: tuple[Key, ...]


@dataclass(frozen=True)
class Comparison:
    """Two results on the instances that both have a value of."""

    task: str
    metric: str
    a: Model
    b: Model
    paired: PairedDifference
    scale: tuple[float, float] | None
    higher_is_better: bool
    right_or_wrong: bool  # whether all values are 0 or 1
    flips: Flips
    failed: Failed
    bounds: tuple[float, float] | None
    """The difference if every instance that failed were at the worst, or best, end of the scale for
    b; None where the scale has no ends.
    """
    margin: float | None = None
    non_inferiority: Evidence | None = None  # of b, against a; None without a margin
    equivalence: Evidence | None = None
    p_holm: float | None = None  # the p value, corrected for the number of pairs

    @property
    def pair(self) -> str:
        """`B - A`."""
        return f"{self.b.label} - {self.a.label}"

    @property
    def advantage(self) -> float:
        """How much better b is."""
        return self.paired.difference if self.higher_is_better else -self.paired.difference

    @property
    def significant(self) -> bool:
        """A difference is shown: by test and interval, and by the test corrected for the number
        of pairs.
        """
        return self.paired.significant and (self.p_holm is None or self.p_holm < ALPHA)


@dataclass(frozen=True)
class Ranked:
    """The ranks that a model may have; 1 is the best."""

    model: Model
    best: int
    worst: int

    def __str__(self) -> str:
        """`1`, `1 to 2`."""
        return str(self.best) if self.best == self.worst else f"{self.best} to {self.worst}"


@dataclass(frozen=True, repr=False)
class Compared:
    """What came of it. Where the results are not comparable there are reasons and no
    comparisons.
    """

    models: tuple[Model, ...]
    reasons: tuple[Reason, ...]
    accepted: tuple[Reason, ...]  # reasons that the user accepted
    comparisons: tuple[Comparison, ...]
    ranks: tuple[Ranked, ...]  # of three models or more
    # how questions were paired, where another program made a result: a text for each other model
    pairings: tuple[str, ...] = ()

    @property
    def comparable(self) -> bool:
        return not self.reasons

    def to_frame(self) -> DataFrame:
        """A row a pair, none where they cannot be compared. Raises PrerequisiteError: pandas is
        not installed.
        """
        rows = []
        # the record, with the letters of the pair in place of the folders
        for one in self.comparisons:
            record = comparison_record(one)
            (low, high) = one.bounds or (None, None)
            more = {"failed": one.failed.total, "bound_low": low, "bound_high": high}
            rows.append(
                {**record, **_names(one), **more, "folder_a": record["a"], "folder_b": record["b"]}
            )
        return frame(PAIR_COLUMNS, rows)

    def instances_frame(self) -> DataFrame:
        """A row for each instance of a pair whose values differ, with the label of the better
        one; raises the same.
        """
        rows = []
        for pair in self.comparisons:
            names = _names(pair)
            for key in pair.flips.a_only:
                rows.append({**names, "id": key, "better": pair.a.label})
            for key in pair.flips.b_only:
                rows.append({**names, "id": key, "better": pair.b.label})
        return frame(FLIP_COLUMNS, rows)

    def __repr__(self) -> str:
        pairs = [
            f"{one.pair} = {formats.score(one.paired.difference, sign='+')}"
            for one in self.comparisons
        ]
        parts = pairs[:3]
        if len(pairs) > 3:
            parts.append("...")
        if not self.comparable:
            parts = [f"not comparable: {self.reasons[0].message}"]
        models = ", ".join(f"{model.label} {model.name}" for model in self.models)
        return f"<Compared {one_line('; '.join([models, *parts]))}>"


@dataclass(frozen=True)
class Pair:
    """Two of several results, each with each: their comparison, or the reasons why there is
    none.
    """

    a: Model
    b: Model
    comparison: Comparison | None
    reasons: tuple[Reason, ...] = ()


def _wrong_with(
    folders: Sequence[Path | str], margin: float | None, allow: Collection[str]
) -> Iterator[str]:
    if len(folders) < 2:
        yield "compare: give two folders or more"
    if margin is not None and not margin > 0:
        yield f"compare: --margin {margin} is not above 0"
    known = comparison_reasons.ACCEPTED_REASONS
    if unknown := ", ".join(sorted(set(allow) - set(known))):
        yield f"compare: --allow {unknown}: there is no such reason; reasons: {', '.join(known)}"


def compare(
    folders: Sequence[Path | str],
    *,
    metric: str | None = None,
    margin: float | None = None,
    allow: Collection[str] = (),
    min_paired: float = pairing.MIN_PAIRED,
    load: Callable[[Path | str], StoredResult] = load_result,
) -> Compared:
    """Compare the results of output folders, each with each, by a score's name; the main metric if
    not given.

    The margin is in the metric's own unit: 0.05 is five points of a share. `allow`: names of
    accepted reasons. `min_paired`: the share of the smaller result's questions that have to be
    paired where another program made one of the results. `load`: what reads the
    result of a folder.

    Raises:
        ConfigError: fewer than two folders, an unknown reason, a margin that is none.
        PrerequisiteError: a folder holds no result.
    """
    if problems := list(_wrong_with(folders, margin, allow)):
        raise ConfigError(problems)
    stored = [load(folder) for folder in folders]
    labels = _labels()
    models = tuple(_model(next(labels), one) for one in stored)
    names = _compared_scores(stored, metric)
    name = names[0]
    lacking = tuple(_lacking(models, stored, names, is_main=metric is None))
    if lacking:
        return Compared(models, lacking, (), (), ())
    sides = _sides(models, stored, names, min_paired)
    unpaired = tuple(_unpaired(sides, min_paired))
    if unpaired:
        return Compared(models, unpaired, (), (), ())
    found = _reasons(sides)
    if reasons := tuple(reason for reason in found if reason.name not in allow):
        return Compared(models, reasons, (), (), ())
    pairs = tuple(
        Pair(model_a, model_b, _compared(a, b, (model_a, model_b), name, margin))
        for (a, model_a), (b, model_b) in combinations(zip(sides, models, strict=True), 2)
    )
    pairs = corrected(pairs) if len(models) > 2 else pairs
    comparisons = tuple(pair.comparison for pair in pairs if pair.comparison is not None)
    ranks: tuple[Ranked, ...] = ()
    if len(models) > 2:
        ranks = ranked(models, pairs)
    return Compared(models, (), tuple(found), comparisons, ranks, _pairing_texts(sides))


def _model(label: str, stored: StoredResult) -> Model:
    result = stored.result
    return Model(label, stored.folder, result.provenance.target, verdict_of(result))


def compare_pairs(sides: Sequence[Side]) -> tuple[Pair, ...]:
    """Results with a main score, by it, each with each: those that cannot be compared keep no
    others from it.
    """
    models = [_model(side.label, side.stored) for side in sides]
    pairs = []
    for (a, model_a), (b, model_b) in combinations(zip(sides, models, strict=True), 2):
        both = (model_a, model_b)
        name = a.stored.result.main_metric
        reasons = _lacking(both, (a.stored, b.stored), (name, name), is_main=True) or _reasons(
            (a, b)
        )
        found = None if reasons else _compared(a, b, both, name, None)
        pairs.append(Pair(model_a, model_b, found, tuple(reasons)))
    return corrected(pairs)


def corrected(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """With p values corrected for the number of these pairs that were compared."""
    known = [pair.comparison.paired.p_value for pair in pairs if pair.comparison is not None]
    p_values = iter(holm(known, unknown_count=True))
    return tuple(
        replace(pair, comparison=replace(pair.comparison, p_holm=next(p_values)))
        if pair.comparison
        else pair
        for pair in pairs
    )


def better_and_worse(pairs: Iterable[Pair], below: float = ALPHA) -> Iterator[tuple[Model, Model]]:
    """(better, worse) of the pairs whose corrected test shows a difference at this level."""
    for pair in pairs:
        one = pair.comparison
        if one is not None and one.significant and one.p_holm is not None and one.p_holm < below:
            yield (one.b, one.a) if one.advantage > 0 else (one.a, one.b)


def ranked(models: Sequence[Model], pairs: Iterable[Pair]) -> tuple[Ranked, ...]:
    """The ranks that the corrected comparisons leave open."""
    shown = [
        (models.index(better), models.index(worse)) for better, worse in better_and_worse(pairs)
    ]
    ranks = paired.rank_intervals(len(models), shown)
    return tuple(Ranked(model, *ends) for model, ends in zip(models, ranks, strict=True))


def _lacking(
    models: Sequence[Model],
    stored: Sequence[StoredResult],
    names: Sequence[str],
    *,
    is_main: bool,
) -> list[Reason]:
    """Return a reason for each result without its score, or whose main metric is another one."""
    found: list[Reason] = []
    for model, one, name in zip(models, stored, names, strict=True):
        main = one.result.main_metric
        known = sorted(one.result.scores)
        in_two_ways = comparison_reasons.two_ways_of_asking(
            models[0].label, stored[0], model.label, one
        )
        found += in_two_ways
        if is_main and main != name:
            other = f"{models[0].label}'s is {name}; name one with --metric"
            found.append(Reason("metric", f"{model.label}'s main metric is {main}, {other}"))
        elif name not in known:
            found.append(
                Reason(
                    "metric",
                    f"{model.label} has no score {name}; it has {', '.join(known) or 'none'}",
                )
            )
    return found


def _compared_scores(stored: Sequence[StoredResult], metric: str | None) -> list[str]:
    """Return the name of the score of each result that is compared.

    Programs name their metrics differently: where one is not ours, each is compared by its own
    main metric, if the user names none.
    """
    if metric is not None:
        return [metric] * len(stored)
    mains = [result.result.main_metric for result in stored]
    if any(map(pairing.is_imported, stored)):
        return mains
    return mains[:1] * len(stored)


def _sides(
    models: Sequence[Model],
    stored: Sequence[StoredResult],
    names: Sequence[str],
    min_paired: float,
) -> list[Side]:
    """Return the values of each result, by the keys of the first one's questions."""
    across_programs = any(map(pairing.is_imported, stored))
    sides: list[Side] = []
    for model, result, name in zip(models, stored, names, strict=True):
        pairs = None
        if across_programs and sides:
            pairs = pairing.paired(stored[0], result, min_paired)
        values = comparison_reasons.values_of(
            result.result.instances,
            result.result.scores[name],
            None if pairs is None else pairs.ids,
        )
        sides.append(Side(model.label, result, values, name, pairs))
    return sides


def _pairing_texts(sides: Sequence[Side]) -> tuple[str, ...]:
    """Return a text for each result whose questions were paired with those of the first one."""
    texts = []
    for side in sides:
        if side.pairing is not None:
            texts.append(f"{sides[0].label} and {side.label}: {side.pairing}")
    return tuple(texts)


def _unpaired(sides: Sequence[Side], min_paired: float) -> Iterator[Reason]:
    """Yield a reason for each result too few of whose questions are the first result's."""
    for side in sides:
        if side.pairing is not None and side.pairing.share < min_paired:
            why = pairing.too_few(side.pairing, min_paired)
            yield Reason("no_pairs", f"{sides[0].label} and {side.label}: {why}")


def _labels() -> Iterator[str]:
    """A to Z, A2 to Z2, and so on."""
    yield from string.ascii_uppercase
    for number in count(2):
        yield from (f"{letter}{number}" for letter in string.ascii_uppercase)


def _reasons(sides: Sequence[Side]) -> list[Reason]:
    found = list(chain.from_iterable(map(comparison_reasons.reasons_of, sides)))
    for a, b in combinations(sides, 2):
        found += comparison_reasons.reasons_against(a, b)
        if not a.values.values.keys() & b.values.values.keys():
            found.append(
                Reason("no_pairs", f"{a.label} and {b.label} have a value of no instance in common")
            )
    return found


def _compared(
    a: Side, b: Side, models: tuple[Model, Model], name: str, margin: float | None
) -> Comparison:
    # a result of another program has another name for it
    name = a.metric or name
    score = a.stored.result.scores[name]
    shared = (a.values.keys & b.values.keys) - (a.values.unscored & b.values.unscored)
    keys = [key for key in a.values.values if key in b.values.values]
    values_a, values_b = ([side.values.values[key] for key in keys] for side in (a, b))
    # 0 to 1 where the metric's own is not known, and all values lie in it
    low, high = score.scale or PROPORTION
    scale = (low, high) if all(low <= value <= high for value in (*values_a, *values_b)) else None
    bounds = None
    if scale is not None:
        # a missing value is at the end that makes the difference least, and greatest
        low, high = scale
        value_a = a.values.values.get
        value_b = b.values.values.get
        least = sum(value_b(key, low) - value_a(key, high) for key in shared)
        greatest = sum(value_b(key, high) - value_a(key, low) for key in shared)
        bounds = least / len(shared), greatest / len(shared)
    found = difference_of(a.values, b.values, keys, scale)
    if name.endswith(JUDGE_CORRECTED):
        found = paired.with_labels_uncertainty(found, _uncertainty_of_labels(a, b))
    higher = score.higher_is_better is not False
    changes = list(zip(keys, values_a, values_b, strict=True))
    above = tuple(key for key, before, after in changes if after > before)
    below = tuple(key for key, before, after in changes if after < before)
    return Comparison(
        task=a.stored.result.task,
        metric=name,
        a=models[0],
        b=models[1],
        paired=found,
        scale=scale,
        higher_is_better=higher,
        right_or_wrong=scale == PROPORTION and {*values_a, *values_b} <= {0, 1},
        flips=Flips(below, above) if higher else Flips(above, below),
        failed=Failed(
            len(shared & a.values.failed - b.values.failed),
            len(shared & b.values.failed - a.values.failed),
            len(shared & a.values.failed & b.values.failed),
        ),
        bounds=bounds,
        margin=margin,
        non_inferiority=None
        if margin is None
        else paired.non_inferiority(found, margin, higher_is_better=higher),
        equivalence=None if margin is None else paired.equivalence(found, margin),
    )


def _uncertainty_of_labels(a: Side, b: Side) -> float:
    """The greater relative standard error of what the two corrected scores were divided by."""
    found = [0.0]
    for side in (a, b):
        rubric = side.stored.result.validity.rubric
        correction = None if rubric is None else rubric.correction
        if correction is not None and correction.youden_stderr is not None:
            youden = correction.sensitivity + correction.specificity - 1
            found.append(correction.youden_stderr / youden)
    return max(found)


def difference_of(
    a: InstanceValues, b: InstanceValues, keys: Sequence[Key], scale: tuple[float, float] | None
) -> PairedDifference:
    """Of instances that both have a value of. Cases of a rubric have each a scale of their own:
    where it is not the metric's, it is made of theirs, as that of a score is.
    """
    values_a, values_b = ([side.values[key] for key in keys] for side in (a, b))
    if scale is None and all(key in a.lowest for key in keys):
        widths = [1 - a.lowest[key] for key in keys]
        apart = [after - before for before, after in zip(values_a, values_b, strict=True)]
        scale = (1 + lower_end(apart, [-width for width in widths], statistics.fmean(widths)), 1.0)
    clusters = None
    if a.clusters:  # an instance without one stands for itself
        clusters = [
            f"cluster {a.clusters[key]}" if key in a.clusters else f"instance {key}" for key in keys
        ]
    return paired.paired_difference(values_a, values_b, clusters=clusters, scale=scale)


def numbers_of(one: Comparison) -> dict[str, float | None]:
    """Of the pairs of a comparison, by the names that they have in every document."""
    found = one.paired
    names = ("n", "value_a", "value_b", "difference", "ci_low", "ci_high", "p_value")
    return {
        **{name: getattr(found, name) for name in names},
        "p_holm": one.p_holm,
        "mde": found.mde,
    }


def difference(value: float, scale: tuple[float, float] | None, *, sign: str = "") -> str:
    """Points of 100 of a share, anything else in its own unit."""
    return (
        formats.points(value, sign=sign)
        if scale == PROPORTION
        else formats.significant(value, 3, sign=sign)
    )


def comparison_record(one: Comparison) -> dict[str, Any]:
    """What `compare --json` prints of a pair."""
    found = one.paired
    return {
        "task": one.task,
        "metric": one.metric,
        "a": str(one.a.folder),
        "b": str(one.b.folder),
        "model_a": one.a.name,
        "model_b": one.b.name,
        **numbers_of(one),
        "significant": one.significant,
        "method": found.method,
        "clusters": found.clusters,
        "few_sources": found.few_sources,
        "discordant": found.discordant,
        "higher_is_better": one.higher_is_better,
        "scale": None if one.scale is None else list(one.scale),
        "failed": asdict(one.failed),
        "bounds": None if one.bounds is None else list(one.bounds),
        "margin": one.margin,
        "non_inferiority": one.non_inferiority,
        "equivalence": one.equivalence,
        "flips": {"a_only": list(one.flips.a_only), "b_only": list(one.flips.b_only)},
    }


def _names(one: Comparison) -> dict[str, Any]:
    return {"task": one.task, "metric": one.metric, "a": one.a.label, "b": one.b.label}
