"""Makes the plots of one result: its scores, its groups and the numbers of its instances.

The page and the files for papers have the same plots.
"""

from __future__ import annotations

import re
import statistics
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from eval_factory.core import formats
from eval_factory.core.results import InstanceRecord, Instances, Score, TaskResult
from eval_factory.core.signs import SIGNS
from eval_factory.report.asked_again_sentences import MIN_QUESTIONS, families_by_harm
from eval_factory.report.drawing import Drawing
from eval_factory.report.plots import (
    Bar,
    Mark,
    PlottedValue,
    bars,
    dot_plot,
    histogram,
    interval_plot,
    plotted_score,
)
from eval_factory.tasks.errata import CORRECTED_SUFFIX

_MAX_NAME_LENGTH = 40  # the maximum number of characters of a label in the name of a plot


@dataclass
class InstanceNumbers:
    """The numbers of the instances that plots need, collected in one pass; no texts."""

    # the values of the main score's metric, in the main score's split and perturbation
    values: list[float] = field(default_factory=list)
    latencies: list[float] = field(default_factory=list)  # in seconds
    ratings: dict[str, list[float]] = field(default_factory=dict)  # judge -> the judge's ratings

    def add(self, record: InstanceRecord, main: Score | None) -> None:
        """Add the numbers of an instance.

        `main` is the main score, or None if the main score could not be computed.
        """
        if main is not None and record.error is None and main.covers(record):
            value = record.metrics.get(main.metric)
            if value is not None:
                self.values.append(value)
        if record.latency_s is not None:
            self.latencies.append(record.latency_s)
        for judge, rating in record.judges.items():
            self.ratings.setdefault(judge, []).append(rating)


def plots_of(result: TaskResult, numbers: InstanceNumbers | None = None) -> dict[str, Drawing]:
    """Return the plots of a result by name, in the order of the page. Empty plots are left out.

    `numbers` are the numbers of the instances. If None, the function reads the instances itself.
    """
    if numbers is None:
        numbers = InstanceNumbers()
        for record in result.instances:
            numbers.add(record, result.scores.get(result.main_metric))
    drawings: dict[str, Drawing] = {}
    metric = result.main_metric
    for plot_name, score_name in (
        ("score", metric),
        ("score-corrected", f"{metric}{CORRECTED_SUFFIX}"),
    ):
        if score_name in result.scores:
            drawings[plot_name] = _score_plot(result, score_name)
    drawings |= _group_plots(result)
    other_words = _other_words_plot(result)
    if other_words is not None:
        drawings["other-words"] = other_words
    drawings |= _instance_plots(result, numbers)
    drawings["validity"] = _validity_plot(result.validity.instances)
    return drawings


def _group_plots(result: TaskResult) -> dict[str, Drawing]:
    """Return a plot of the main metric for each field by which instances are grouped."""
    metric = result.main_metric
    main = result.scores.get(metric)
    scale = None
    overall = None
    if main is not None:
        scale = main.scale
        overall = main.value
    drawings = {}
    plot_names = _plot_names("groups-", result.groups)
    for plot_name, (group_field, by_value) in zip(plot_names, result.groups.items(), strict=True):
        rows = []
        for group, scores in by_value.items():
            if metric in scores:
                rows.append(plotted_score(group, scores[metric]))
        if not rows:
            continue
        outside_groups = 0
        if main is not None:
            outside_groups = max(0, main.stats.count - sum(row.count or 0 for row in rows))
        drawings[plot_name] = dot_plot(
            f"{result.task}: {metric} by {group_field}",
            rows,
            axis_label=metric,
            scale=scale,
            overall=overall,
            outside_groups=outside_groups,
        )
    return drawings


def _other_words_plot(result: TaskResult) -> Drawing | None:
    """Return a plot of the changes of the score by family of rewordings; None if there are none."""
    asked_again = result.validity.asked_again
    if asked_again is None or not asked_again.in_other_words:
        return None
    rows = []
    for name, family in families_by_harm(asked_again.in_other_words):
        change = family.change
        if change.questions >= MIN_QUESTIONS:
            rows.append(
                PlottedValue(
                    label=name,
                    value=change.difference,
                    low=change.ci_low,
                    high=change.ci_high,
                    count=change.questions,
                    stands_out=family.p_holm is not None and family.p_holm < 0.05,
                )
            )
    if not rows:
        return None
    # The axis shows 0, which is no difference, and the ends of all intervals.
    scale_numbers = [0.0]
    for row in rows:
        if row.interval:
            scale_numbers += row.interval
    return dot_plot(
        f"{result.task}: what other words change",
        rows,
        axis_label=f"difference of {result.main_metric}, after less before",
        differs_from="the unchanged question",
        # If no interval goes above 0, the axis ends slightly above 0.
        scale=(min(scale_numbers), max(scale_numbers) or 0.01),
    )


def _validity_plot(instances: Instances) -> Drawing:
    """Return a bar chart of the instances: how many were scored, and how many had each problem."""
    requested = instances.requested
    scored = Bar("scored", instances.scored, f"{instances.scored} of {requested}")
    rows = [scored]
    # a field of `Instances` -> the label of its bar; empty if the field has no bar
    bar_labels = {sign.count: sign.bar for sign in SIGNS.values()}
    for name, count in vars(instances).items():
        bar_label = bar_labels.get(name)
        if bar_label and (count or name == "failed"):  # failures are shown even if there are none
            rows.append(Bar(bar_label, count, f"{count} of {requested}", hatched=True))
    title = "What became of the instances"
    # The ends of a scale must differ, even if there are no instances.
    return bars(title, rows, axis_label="instances", scale=(0, max(1, requested)))


def _score_plot(result: TaskResult, score_name: str) -> Drawing:
    """Return a plot of one score with its interval and with the best score without a model."""
    score = result.scores[score_name]
    bounds = result.validity.bounds.get(score_name)
    if bounds is not None and bounds[0] == bounds[1]:  # no value is missing
        bounds = None
    marks = []
    if floor := result.validity.floors.get(score_name):
        marks.append(Mark(f"best score without a model ({floor.marked_name})", floor.value))
        if "random" in floor.answers and floor.best != "random":
            marks.append(Mark("chance (an answer at random)", floor.answers["random"]))
    score_label = score_name
    if score.higher_is_better is True:
        score_label = f"{score_name} (higher is better)"
    elif score.higher_is_better is False:
        score_label = f"{score_name} (lower is better)"
    title = f"{result.task}: {score_name} of {result.provenance.target}"
    return interval_plot(
        title, plotted_score(score_label, score), scale=score.scale, marks=marks, bounds=bounds
    )


def _judge_bars(result: TaskResult, means: Mapping[str, float]) -> list[Bar]:
    """Return a bar for each judge: the mean rating, with the number of ratings."""
    rows = []
    for judge, mean in means.items():
        text = formats.mean_rating(mean)
        counts = result.validity.judges.get(judge)
        if counts is not None:
            text = f"{text} ({counts.scored} of {counts.asked})"
        rows.append(Bar(judge, mean, text))
    return rows


def _instance_plots(result: TaskResult, numbers: InstanceNumbers) -> Iterator[tuple[str, Drawing]]:
    """Yield (name, plot) of the values, ratings and latencies of the instances."""
    main = result.scores.get(result.main_metric)
    scale = None
    if main:
        scale = main.scale
    if numbers.values:
        axis_label = f"{result.main_metric} of an instance ({len(numbers.values)} instances)"
        title = f"How {result.main_metric} is distributed over the instances"
        yield "distribution", histogram(title, numbers.values, axis_label=axis_label, scale=scale)
    jury = result.validity.jury
    if jury is not None and jury.means:
        judge_bars = _judge_bars(result, jury.means)
        yield (
            "judges",
            bars("Mean rating of each judge", judge_bars, axis_label="mean rating", scale=scale),
        )
    by_judge = result.validity.in_judges_order(numbers.ratings)
    plot_names = _plot_names("ratings-", by_judge)
    for plot_name, (judge, ratings) in zip(plot_names, by_judge.items(), strict=True):
        title = f"How {judge} rated"
        axis_label = f"rating by {judge} ({len(ratings)} answers)"
        yield plot_name, histogram(title, ratings, axis_label=axis_label, scale=scale)
    if numbers.latencies:
        title = "How long answers took"
        axis_label = f"seconds from request to answer ({len(numbers.latencies)} answers)"
        marks = [Mark("median", statistics.median(numbers.latencies))]
        if len(numbers.latencies) > 1:
            # the 19 quantiles from 5 % to 95 %, in steps of 5 %
            quantiles = statistics.quantiles(numbers.latencies, n=20, method="inclusive")
            marks.append(Mark("95 % are faster than", quantiles[-1]))
        yield "latency", histogram(title, numbers.latencies, axis_label=axis_label, marks=marks)


def _plot_names(prefix: str, labels: Iterable[str]) -> list[str]:
    """Return the name of a plot for each label. The names are also names of files.

    The labels may have any characters and any length. The names differ even if upper and lower case
    are not distinguished.
    """
    names: list[str] = []
    for number, text in enumerate(labels, start=1):
        # `meta-llama/Llama 3` becomes `meta-llama-Llama-3`. A label in another script than Latin
        # becomes an empty text, and its number is used.
        plain = re.sub(r"[^A-Za-z0-9_]+", "-", text)[:_MAX_NAME_LENGTH].strip("-")
        name = f"{prefix}{plain or number}"
        while name.lower() in map(str.lower, names):
            name = f"{name}-{number}"
        names.append(name)
    return names
