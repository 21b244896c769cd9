"""The outcome of a comparison: the records of each pair of results, of its models and their ranks.

The first result of a pair is called a, the second result b. An instance whose values in a and b
differ is a flip. `comparison.py` makes these records.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.analysis.comparison_reasons import Key, Reason
from eval_factory.core import formats
from eval_factory.core.enums import Evidence
from eval_factory.core.foreign_text import one_line
from eval_factory.report.reader import COUNT, FLAG, NUMBER, TEXT, data_frame
from eval_factory.report.verdicts import Verdict
from eval_factory.scoring.intervals import PROPORTION
from eval_factory.scoring.paired import ALPHA, PairedDifference

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
            # `_names` puts the labels in place of the folders of the record in `a` and `b`.
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
