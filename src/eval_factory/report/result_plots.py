"""The plots of one result, by name; those of the page and those for a paper are the same."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eval_factory.core import formats
from eval_factory.core.results import Floor, InstanceRecord, Instances, Score, TaskResult, Validity
from eval_factory.report.drawing import Drawing
from eval_factory.report.plot_kinds import Bar, Mark, PlottedValue, bars, dot_plot, histogram, interval_plot
from eval_factory.tasks.errata import CORRECTED

SCORE, DISTRIBUTION, LATENCY, VALIDITY, _JUDGES = "score", "distribution", "latency", "validity", "judges"
_GROUPS, _RATINGS = "groups-", "ratings-"
"""Begin the names of the plots of one field, and of one judge."""
_ALPHA = 0.05
RANDOM = "random"
"""The name of the trivial answer that is any option, each as likely: chance."""
_MAX_NAME = 40
_GOOD = "scored"
_BETTER = {True: " (higher is better)", False: " (lower is better)", None: ""}


@dataclass
class InstanceNumbers:
    """What the plots need of the instances, in one pass over them; no texts."""

    values: list[float] = field(default_factory=list)
    """Of the main score's metric, split and perturbation."""
    latencies: list[float] = field(default_factory=list)
    ratings: dict[str, list[float]] = field(default_factory=dict)
    """Judge -> its ratings."""

    def add(self, record: InstanceRecord, main: Score | None) -> None:
        """`main`: the main score; None where it could not be computed."""
        value = None if main is None or record.error is not None else record.metrics.get(main.metric)
        if main and value is not None and (record.split, record.perturbation) == (main.split or "", main.perturbation):
            self.values.append(value)
        if record.latency_s is not None:
            self.latencies.append(record.latency_s)
        for judge, rating in record.judges.items():
            self.ratings.setdefault(judge, []).append(rating)


def plots_of(result: TaskResult, numbers: InstanceNumbers | None = None) -> dict[str, Drawing]:
    """Name -> drawing, in the order in which a reader wants them; only what there is something to show of.

    Args:
        numbers: of the instances, where they have been gone through already.
    """
    if numbers is None:
        numbers = InstanceNumbers()
        for record in result.instances:
            numbers.add(record, result.scores.get(result.main_metric))
    found: dict[str, Drawing] = {}
    for name, label in ((SCORE, result.main_metric), (f"{SCORE}-corrected", f"{result.main_metric}{CORRECTED}")):
        if label in result.scores:
            found[name] = score_plot(result, label)
    for name, group_field in zip(_names(_GROUPS, result.groups), result.groups, strict=True):
        if (drawing := groups_plot(result, group_field)) is not None:
            found[name] = drawing
    requested, counts = result.validity.instances.requested, dict(_counts(result.validity.instances))
    rows = [Bar(name, count, f"{count} of {requested}", hatched=name != _GOOD) for name, count in counts.items()]
    became = bars("What became of the instances", rows, axis_label="instances", scale=(0, max(1, requested)))
    return {**found, **dict(_of_instances(result, numbers)), VALIDITY: became}


def score_plot(result: TaskResult, label: str) -> Drawing:
    """One score with its interval, beside what answers score that need no model."""
    score = result.scores[label]
    bounds = result.validity.bounds.get(label)
    if bounds is not None and bounds[0] == bounds[1]:
        bounds = None
    floor = result.validity.floors.get(label)
    shown = _estimate(f"{label}{_BETTER[score.higher_is_better]}", score)
    title = f"{result.task}: {label} of {result.provenance.target}"
    marks = list(_marks(floor)) if floor else []
    return interval_plot(title, shown, scale=score.scale, marks=marks, bounds=bounds)


def groups_plot(result: TaskResult, group_field: str) -> Drawing | None:
    """The main score by one field of the instances."""
    metric = result.main_metric
    rows = [
        _estimate(value, scores[metric]) for value, scores in result.groups[group_field].items() if metric in scores
    ]
    if not rows:
        return None
    main = result.scores.get(metric)
    elsewhere = 0 if main is None else max(0, main.stats.count - sum(row.count or 0 for row in rows))
    scale, value = (None, None) if main is None else (main.scale, main.value)
    title = f"{result.task}: {metric} by {group_field}"
    return dot_plot(title, rows, axis_label=metric, scale=scale, overall=value, elsewhere=elsewhere)


def _of_instances(result: TaskResult, numbers: InstanceNumbers) -> Iterator[tuple[str, Drawing]]:
    main = result.scores.get(result.main_metric)
    scale = main.scale if main else None
    if numbers.values:
        name = f"{result.main_metric} of an instance ({len(numbers.values)} instances)"
        title = f"How {result.main_metric} is distributed over the instances"
        yield DISTRIBUTION, histogram(title, numbers.values, axis_label=name, scale=scale)
    jury = result.validity.jury
    if jury is not None and jury.means:
        judges = [Bar(judge, mean, _rating(judge, mean, result.validity)) for judge, mean in jury.means.items()]
        yield _JUDGES, bars("Mean rating of each judge", judges, axis_label="mean rating", scale=scale)
    rated = result.validity.in_judges_order(numbers.ratings)
    for plot, (judge, ratings) in zip(_names(_RATINGS, rated), rated.items(), strict=True):
        name = f"rating by {judge} ({len(ratings)} answers)"
        yield plot, histogram(f"How {judge} rated", ratings, axis_label=name, scale=scale)
    if numbers.latencies:
        name = f"seconds from request to answer ({len(numbers.latencies)} answers)"
        marks = [Mark("median", statistics.median(numbers.latencies))]
        if len(numbers.latencies) > 1:
            last = statistics.quantiles(numbers.latencies, n=20, method="inclusive")[-1]
            marks.append(Mark("95 % are faster than", last))
        yield LATENCY, histogram("How long answers took", numbers.latencies, axis_label=name, marks=marks)


def _estimate(label: str, score: Score) -> PlottedValue:
    stats = score.stats
    stands_out = stats.p_holm is not None and stats.p_holm < _ALPHA
    return PlottedValue(label, score.value, stats.ci_low, stats.ci_high, stats.count, stands_out)


def _marks(floor: Floor) -> Iterator[Mark]:
    yield Mark(f"best trivial answer ({floor.named})", floor.value)
    if RANDOM in floor.answers and floor.best != RANDOM:
        yield Mark("chance (an answer at random)", floor.answers[RANDOM])


def _counts(instances: Instances) -> Iterator[tuple[str, int]]:
    """Those that are scored, and each kind of trouble that there is."""
    always = (_GOOD, "failed")
    named = {
        _GOOD: instances.scored, "failed": instances.failed, "empty": instances.empty, "cut off": instances.truncated,
        "filtered": instances.filtered, "unjudged": instances.unjudged, "in no form asked for": instances.unparsed,
        "refused": instances.refused, "thinking unfinished": instances.thinking_unfinished,
        "prompt cut": instances.prompt_truncated,
    }  # fmt: skip
    return ((name, count) for name, count in named.items() if count or name in always)


def _rating(judge: str, mean: float, validity: Validity) -> str:
    counts = validity.judges.get(judge)
    shown = formats.mean_rating(mean)
    return shown if counts is None else f"{shown} ({counts.scored} of {counts.asked})"


def _names(beginning: str, labels: Mapping[str, object]) -> list[str]:
    """A file's name for each label, which may be anything: another one each."""
    names: list[str] = []
    for label in labels:
        plain = re.sub(r"[^A-Za-z0-9_]+", "-", label)[:_MAX_NAME].strip("-")
        name = f"{beginning}{plain or len(names) + 1}"
        names.append(name if name.lower() not in map(str.lower, names) else f"{name}-{len(names) + 1}")
    return names
