"""How many answers people have to rate for an interval of a wanted width: `annotate plan`."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from eval_factory.core.annotations import AnswerKey
from eval_factory.core.errors import ConfigError
from eval_factory.core.rundir import RunDir
from eval_factory.report.reader import load_result
from eval_factory.scoring.clinicians import people_scores
from eval_factory.scoring.intervals import clustered
from eval_factory.scoring.prediction_powered import LEAST_RATED, half_width_of, needed_for

CORRELATIONS = (0.0, 0.3, 0.5, 0.7, 0.9)
SHARES = (0.1, 0.05, 0.03)
"""Of the scale (of the range of the scores, where it has no ends): half widths that are shown where none is wanted."""
LEAST_FOR_CORRELATION = 10
"""Answers that have to be rated before their correlation with the judge is taken for known."""


@dataclass(frozen=True)
class Known:
    """What the plan is made from."""

    metric: str
    answers: int
    stddev: float
    """Of the people's scores; of the judge's where too few were rated."""
    span: float
    """From the least score to the greatest."""
    rated: int = 0
    correlation: float | None = None
    """Of the judge's scores with the people's; None where too few were rated."""
    design_effect: float = 1.0


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
        known = self.known
        source = f"from {known.rated} rated answers" if known.correlation is not None else "from the judges' scores"
        lines = [
            f"{known.metric}: {known.answers} answers, standard deviation {known.stddev:.4g} ({source})",
            "answers to rate for a 95 % interval of the corrected score that reaches so far to each side:",
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
    yield f"+/- {row.least_width:.3g}"


def plan_of(folder: Path, half_width: float | None) -> Planned:
    """
    Raises:
        ConfigError: the width is none, or fewer than two answers have a score.
        PrerequisiteError: there is no result.
    """
    if half_width is not None and not half_width > 0:
        raise ConfigError(f"--half_width {half_width:g}: give a number above 0, in units of the score")
    return planned(known_of(folder), half_width)


def planned(known: Known, half_width: float | None) -> Planned:
    widths = tuple(known.span * share for share in SHARES) if half_width is None else (half_width,)
    assumed = [(value, False) for value in CORRELATIONS]
    measured = [] if known.correlation is None else [(max(0.0, known.correlation), True)]
    rows = [
        PlanRow(value, is_measured, tuple(_needed(known, width, value) for width in widths), _width(known, value))
        for value, is_measured in sorted([*assumed, *measured])
    ]
    return Planned(known, widths, tuple(rows))


def _needed(known: Known, width: float, correlation: float) -> int | None:
    return needed_for(width, known.answers, known.stddev, correlation, known.design_effect)


def _width(known: Known, correlation: float) -> float:
    return half_width_of(known.answers, known.answers, known.stddev, correlation, known.design_effect)


def known_of(folder: Path) -> Known:
    stored = load_result(folder)
    result = stored.result
    score = result.scores.get(result.main_metric)
    metric = result.main_metric if score is None else score.metric or result.main_metric
    values: dict[AnswerKey, float] = {}
    sources = []
    for one in result.instances:
        wanted = score is None or score.split in (None, one.split)
        if wanted and one.error is None and one.perturbation is None and metric in one.metrics:
            values[AnswerKey(one.id, one.trial)] = one.metrics[metric]
            sources.append(one.cluster or one.id)
    if len(values) < 2:
        raise ConfigError(f"{stored.folder}: fewer than two answers have a score by {metric}: nothing can be planned")
    low, high = (None if score is None else score.scale) or (min(values.values()), max(values.values()))
    people = people_scores(result, RunDir(stored.folder))
    stddev, correlation = _of_people(people, values)
    found = clustered(list(values.values()), sources) if len(set(sources)) < len(sources) else None
    effect = 1.0 if found is None or found.design_effect is None else max(1.0, found.design_effect)
    return Known(
        result.main_metric, len(values), stddev or statistics.stdev(values.values()), high - low, len(people),
        correlation, effect,
    )  # fmt: skip


def _of_people(people: dict[AnswerKey, float], values: dict[AnswerKey, float]) -> tuple[float | None, float | None]:
    """(standard deviation, correlation) of the people's scores."""
    pairs = [(score, values[key]) for key, score in people.items() if key in values]
    if len(pairs) < LEAST_FOR_CORRELATION:
        return None, None
    first, second = zip(*pairs, strict=True)
    return statistics.stdev(first), _correlation(first, second)


def _correlation(first: Sequence[float], second: Sequence[float]) -> float:
    """0 where one of them is always the same: it says nothing of the other."""
    if len(set(first)) < 2 or len(set(second)) < 2:
        return 0.0
    return statistics.correlation(first, second)
