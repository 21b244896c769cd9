"""The plots of one result, by name; those of the page and those for a paper are the same."""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from eval_factory.core import formats
from eval_factory.core.results import InstanceRecord, Score, TaskResult
from eval_factory.report.drawing import Drawing
from eval_factory.report.plots import Bar, Mark, PlottedValue, bars, dot_plot, histogram, interval_plot
from eval_factory.report.sentences import MIN_QUESTIONS, by_harm
from eval_factory.tasks.errata import CORRECTED


@dataclass
class InstanceNumbers:
    """What the plots need of the instances, in one pass over them; no texts."""

    values: list[float] = field(default_factory=list)  # of the main score's metric, split and perturbation
    latencies: list[float] = field(default_factory=list)
    ratings: dict[str, list[float]] = field(default_factory=dict)  # judge -> its ratings

    def add(self, record: InstanceRecord, main: Score | None) -> None:
        """`main`: the main score; None where it could not be computed."""
        value = None if main is None or record.error is not None else record.metrics.get(main.metric)
        if main is not None and value is not None and main.is_over(record):
            self.values.append(value)
        if record.latency_s is not None:
            self.latencies.append(record.latency_s)
        for judge, rating in record.judges.items():
            self.ratings.setdefault(judge, []).append(rating)


def plots_of(result: TaskResult, numbers: InstanceNumbers | None = None) -> dict[str, Drawing]:
    """Name -> drawing, in the order in which a reader wants them; only what there is something to show of.
    `numbers`: of the instances, where they have been gone through already."""
    if numbers is None:
        numbers = InstanceNumbers()
        for record in result.instances:
            numbers.add(record, result.scores.get(result.main_metric))
    found: dict[str, Drawing] = {}
    metric, instances = result.main_metric, result.validity.instances
    main = result.scores.get(metric)
    for name, label in (("score", metric), ("score-corrected", f"{metric}{CORRECTED}")):
        if label in result.scores:
            found[name] = _score_plot(result, label)
    scale, value = (None, None) if main is None else (main.scale, main.value)
    for name, (group_field, by_value) in zip(_names("groups-", result.groups), result.groups.items(), strict=True):
        rows = [plotted(group, scores[metric]) for group, scores in by_value.items() if metric in scores]
        if rows:
            elsewhere = 0 if main is None else max(0, main.stats.count - sum(row.count or 0 for row in rows))
            title = f"{result.task}: {metric} by {group_field}"
            found[name] = dot_plot(title, rows, axis_label=metric, scale=scale, overall=value, elsewhere=elsewhere)
    again = result.validity.asked_again
    if again is not None and again.in_other_words:
        changes = [(family, one.change, one.p_holm) for family, one in by_harm(again.in_other_words)]
        rows = [
            PlottedValue(family, one.difference, one.ci_low, one.ci_high, one.questions, (p_holm or 1.0) < 0.05)
            for family, one, p_holm in changes
            if one.questions >= MIN_QUESTIONS
        ]
        ends = [0.0, *(end for row in rows for end in row.interval or ())]
        title = f"{result.task}: what other words change"
        label = f"difference of {metric}, after less before"
        if rows:
            found["other-words"] = dot_plot(title, rows, axis_label=label, scale=(min(ends), max(ends) or 0.01))
    found |= _of_instances(result, numbers)
    counts = {
        "scored": instances.scored, "failed": instances.failed, "empty": instances.empty,
        "cut off": instances.truncated, "filtered": instances.filtered, "unjudged": instances.unjudged,
        "in no form asked for": instances.unparsed, "refused": instances.refused,
        "thinking unfinished": instances.thinking_unfinished, "prompt cut": instances.prompt_truncated,
    }  # fmt: skip
    requested = instances.requested
    became = [
        Bar(name, count, f"{count} of {requested}", hatched=name != "scored")
        for name, count in counts.items()
        if count or name in ("scored", "failed")
    ]
    title = "What became of the instances"
    return {**found, "validity": bars(title, became, axis_label="instances", scale=(0, max(1, requested)))}


def _score_plot(result: TaskResult, label: str) -> Drawing:
    """One score with its interval, beside what answers score that need no model."""
    score = result.scores[label]
    bounds = result.validity.bounds.get(label)
    if bounds is not None and bounds[0] == bounds[1]:
        bounds = None
    marks = []
    if floor := result.validity.floors.get(label):
        marks.append(Mark(f"best trivial answer ({floor.named})", floor.value))
        if "random" in floor.answers and floor.best != "random":
            marks.append(Mark("chance (an answer at random)", floor.answers["random"]))
    better = {True: " (higher is better)", False: " (lower is better)", None: ""}[score.higher_is_better]
    title = f"{result.task}: {label} of {result.provenance.target}"
    return interval_plot(title, plotted(f"{label}{better}", score), scale=score.scale, marks=marks, bounds=bounds)


def _of_instances(result: TaskResult, numbers: InstanceNumbers) -> Iterator[tuple[str, Drawing]]:
    main = result.scores.get(result.main_metric)
    scale = main.scale if main else None
    if numbers.values:
        name = f"{result.main_metric} of an instance ({len(numbers.values)} instances)"
        title = f"How {result.main_metric} is distributed over the instances"
        yield "distribution", histogram(title, numbers.values, axis_label=name, scale=scale)
    jury = result.validity.jury
    if jury is not None and jury.means:
        judges = []
        for judge, mean in jury.means.items():
            shown, counts = formats.mean_rating(mean), result.validity.judges.get(judge)
            label = shown if counts is None else f"{shown} ({counts.scored} of {counts.asked})"
            judges.append(Bar(judge, mean, label))
        yield "judges", bars("Mean rating of each judge", judges, axis_label="mean rating", scale=scale)
    rated = result.validity.in_judges_order(numbers.ratings)
    for plot, (judge, ratings) in zip(_names("ratings-", rated), rated.items(), strict=True):
        name = f"rating by {judge} ({len(ratings)} answers)"
        yield plot, histogram(f"How {judge} rated", ratings, axis_label=name, scale=scale)
    if numbers.latencies:
        name = f"seconds from request to answer ({len(numbers.latencies)} answers)"
        marks = [Mark("median", statistics.median(numbers.latencies))]
        if len(numbers.latencies) > 1:
            last = statistics.quantiles(numbers.latencies, n=20, method="inclusive")[-1]
            marks.append(Mark("95 % are faster than", last))
        yield "latency", histogram("How long answers took", numbers.latencies, axis_label=name, marks=marks)


def plotted(label: str, score: Score) -> PlottedValue:
    stats = score.stats
    stands_out = stats.p_holm is not None and stats.p_holm < 0.05
    return PlottedValue(label, score.value, stats.ci_low, stats.ci_high, stats.count, stands_out)


def _names(beginning: str, labels: Mapping[str, object]) -> list[str]:
    """A file's name for each label, which may be anything: another one each."""
    names: list[str] = []
    for label in labels:
        plain = re.sub(r"[^A-Za-z0-9_]+", "-", label)[:40].strip("-")
        name = f"{beginning}{plain or len(names) + 1}"
        names.append(name if name.lower() not in map(str.lower, names) else f"{name}-{len(names) + 1}")
    return names
