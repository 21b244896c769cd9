"""How many answers people have to rate for an interval of a wanted width: `annotate plan`."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_factory.core.annotations import AnswerKey
from eval_factory.core.errors import ConfigError
from eval_factory.core.rundir import RunDir
from eval_factory.report.reader import load_result
from eval_factory.scoring.clinicians import people_scores
from eval_factory.scoring.intervals import design_effect, effective_clusters, lower_end
from eval_factory.scoring.prediction_powered import LEAST_RATED, Expected, half_width_of, needed_for

CORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.9)
SHARES = (0.1, 0.05, 0.03)
"""Of the scale (of the range of the scores, where it has no ends): half widths that are shown where none is wanted."""
LEAST_FOR_CORRELATION = 10
"""Answers that have to be rated before their correlation with the judge is taken for known."""


@dataclass(frozen=True)
class Known:
    """What the plan is made from."""

    metric: str
    expected: Expected
    """Of the people's scores; of the judge's where too few were rated."""
    span: float
    """From the least score to the greatest."""
    rated: int = 0
    correlation: float | None = None
    """Of the judge's scores with the people's; None where too few were rated."""


@dataclass(frozen=True)
class PlanRow:
    """Of one correlation."""

    correlation: float
    measured: bool
    """From ratings that are here."""
    needed: tuple[int | None, ...]
    """For each half width; None where rating all answers would not do."""
    least_width: float
    """The half width when all answers are rated."""


@dataclass(frozen=True)
class Planned:
    known: Known
    half_widths: tuple[float, ...]
    rows: tuple[PlanRow, ...]

    def lines(self) -> list[str]:
        """As a table."""
        known, expected = self.known, self.known.expected
        source = f"from {known.rated} rated answers" if known.correlation is not None else "from the judges' scores"
        spread = f"mean {expected.mean:.4g}, standard deviation {expected.stddev:.4g} ({source})"
        lines = [
            f"{known.metric}: {expected.answers} answers, {spread}",
            "answers to rate for a 95 % interval of the corrected score of this half width:",
        ]
        head = ["correlation of judge and people", *(f"+/- {width:.3g}" for width in self.half_widths), "all rated"]
        cells = [head, *(list(_cells(row)) for row in self.rows)]
        widths = [max(len(row[place]) for row in cells) for place in range(len(head))]
        lines += ["  " + "  ".join(one.rjust(width) for one, width in zip(row, widths, strict=True)) for row in cells]
        lines.append(
            f"-: rating every answer would not do, more questions would; fewer than {LEAST_RATED} are not used"
        )
        return lines


def _cells(row: PlanRow) -> Iterator[str]:
    yield f"{row.correlation:.2f}{' (measured)' if row.measured else ''}"
    yield from ("-" if count is None else str(count) for count in row.needed)
    yield "-" if math.isinf(row.least_width) else f"+/- {row.least_width:.3g}"


def plan_of(folder: Path, half_width: float | None) -> Planned:
    """
    Raises:
        ConfigError: the width is none, fewer than two answers have a score, or all have one value on no scale.
        PrerequisiteError: there is no result.
    """
    if half_width is not None and not half_width > 0:
        raise ConfigError(f"--half_width {half_width:g}: give a number above 0, in units of the score")
    return planned(known_of(folder), half_width)


def planned(known: Known, half_width: float | None) -> Planned:
    widths = tuple(known.span * share for share in SHARES) if half_width is None else (half_width,)
    assumed = [(value, False) for value in CORRELATIONS]
    measured = [] if known.correlation is None else [(max(0.0, known.correlation), True)]
    rows = []
    for value, is_measured in sorted([*assumed, *measured]):
        needed = tuple(needed_for(width, known.expected, value) for width in widths)
        least_width = half_width_of(known.expected.answers, known.expected, value)
        rows.append(PlanRow(value, is_measured, needed, least_width))
    return Planned(known, widths, tuple(rows))


def known_of(folder: Path) -> Known:
    stored = load_result(folder)
    result = stored.result
    score = result.scores.get(result.main_metric)
    metric = result.main_metric if score is None else score.metric or result.main_metric
    values: dict[AnswerKey, float] = {}
    sources, lowest = [], []
    for one in result.instances:
        wanted = score is None or score.split in (None, one.split)
        if wanted and one.error is None and one.perturbation is None and metric in one.metrics:
            values[AnswerKey(one.id, one.trial)] = one.metrics[metric]
            sources.append(one.cluster or one.id)
            lowest += [] if one.lowest_score is None else [one.lowest_score]
    judged = list(values.values())
    if len(judged) < 2:
        raise ConfigError(f"{stored.folder}: fewer than two answers have a score by {metric}: nothing can be planned")
    low, high = (None if score is None else score.scale) or (min(judged), max(judged))
    if low == high:
        raise ConfigError(f"{stored.folder}: {metric} has one value and no scale: nothing can be planned")
    people = people_scores(result, RunDir(stored.folder))
    mean, stddev, correlation = _of_people(people, values)
    if not stddev:  # raters who agree about few answers need not agree about all
        mean, stddev = statistics.fmean(judged), statistics.stdev(judged)
    scale = (lower_end(judged, lowest, high) if lowest else low, high)
    effect, sharing = design_effect(judged, scale, sources), len(sources) / effective_clusters(sources)
    expected = Expected(len(judged), mean, stddev, scale, effect, sharing)
    return Known(result.main_metric, expected, high - low, len(people), correlation)


def _of_people(people: dict[AnswerKey, float], values: dict[AnswerKey, float]) -> tuple[float, float, float | None]:
    """(mean, standard deviation, correlation) of the people's scores; the last is None where they are too few."""
    pairs = [(score, values[key]) for key, score in people.items() if key in values]
    if len(pairs) < LEAST_FOR_CORRELATION:
        return 0.0, 0.0, None
    first, second = zip(*pairs, strict=True)
    return statistics.fmean(first), statistics.stdev(first), _correlation(first, second)


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """0 where one of them is always the same: it says nothing of the other."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return 0.0
    return statistics.correlation(first, second)
