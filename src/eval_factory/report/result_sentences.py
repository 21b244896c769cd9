"""Describes a result in sentences that a newcomer understands.

The sentences appear on the screen, in report.md and on the page. `asked_again_sentences` has the
sentences about questions that were asked again.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict
from typing import Any, NamedTuple

from eval_factory.core import formats, results
from eval_factory.core.formats import counted, money
from eval_factory.core.signs import SIGNS
from eval_factory.report.verdicts import is_judged_by_itself, is_no_better, is_shown_better
from eval_factory.tasks.errata import CORRECTED_SUFFIX
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.jury_form import HELMS_JURY_FORM

FIRST_SCREEN_NOTES = 3  # notes on the first screen of the page; a section below has all notes
MAX_UNFOLDED_HASHES = 5
"""The number of hashes of data files up to which the page shows the hashes unfolded. A benchmark
may read a thousand files, which are also too many to print.
"""


def capitalized(line: str) -> str:
    """Return a line with a capital first letter, unless its first word has an underscore.

    A word with an underscore is an identifier, such as the name of a metric.
    """
    if "_" in line.partition(" ")[0]:
        return line
    return line[:1].upper() + line[1:]


def ratings_line(result: results.TaskResult) -> str | None:
    """Return a line with the labels or the scale of the jury's ratings.

    Returns None if there was no jury, or if the jury used HELM's own scale.
    """
    jury = result.validity.jury
    if jury is None:
        return None
    if jury.labels:
        labels = ", ".join(f"{label} ({value})" for label, value in jury.labels.items())
        return f"ratings: {labels}"
    for score in result.scores.values():
        if score.unit == "rating":  # All ratings of a jury have the same scale.
            if score.scale is None or score.scale == HELMS_JURY_FORM.scale:
                return None
            lowest, highest = score.scale
            return f"ratings: {lowest:g} to {highest:g}"
    return None


def task_description(task: str) -> str:
    """Return the description of a task; empty if eval-factory does not come with the task."""
    for evaluation in load_framework().evaluations:
        if evaluation.name == task:
            return evaluation.description
    return ""


def value_text(value: float, score: Any) -> str:
    """Return a value in the form of its unit: 41.2 %, 3.42 of 5, 0.412.

    `score` is an object with the `unit` and the `scale` of the value.
    """
    if score.unit == "share" and score.scale == (0.0, 1.0):
        return formats.percent(value)
    if score.unit == "rating" and score.scale is not None:
        return f"{formats.decimals(value, 2)} of {score.scale[1]:g}"
    return formats.short(value)


def interval_text(score: results.Score) -> str:
    """Return the 95 % interval of a score as text; empty if the score has no interval."""
    low = score.stats.ci_low
    high = score.stats.ci_high
    if low is None or high is None:
        return ""
    return f"{value_text(low, score)} to {value_text(high, score)}"


def answerer(result: results.TaskResult) -> str:
    """Return what answered, as the subject of a sentence: `The demo` or `This model`."""
    if result.is_demo:
        return "The demo"
    return "This model"


def measurement_sentence(result: results.TaskResult, who: str | None = None) -> str:
    """Return a sentence about the questions that a model was asked, and one about its judges.

    Args:
        result: the result of the model.
        who: the subject of the sentence. If None, the subject is `answerer(result)`.
    """
    requested = result.validity.instances.requested
    splits = result.validity.splits
    questions = sum(splits.values()) or requested  # without splits, each request is a question
    subject = who or answerer(result)
    if not questions and result.provenance.imported is not None:
        return f"{subject} has a score alone: its source has no answers to single questions."
    asked = counted(questions, "question")
    if len(splits) == 1:
        asked += f" of the {next(iter(splits))} set"
    if requested != questions:
        asked += f", {requested:,} requests with every trial and variation counted"
    sentence = f"{subject} was given {asked}."
    if not result.validity.judges:
        return sentence
    return f"{sentence} {_judging_sentence(result)}"


def _judging_sentence(result: results.TaskResult) -> str:
    """Return a sentence about the judges, and one with the labels or the scale of their ratings."""
    manner = "judged criterion by criterion"
    if result.validity.rubric is None:
        manner = "rated"
    judges = counted(len(result.validity.judges), "judge")
    if is_judged_by_itself(result):
        models = "the evaluated model itself"
    elif len(result.validity.judges) == 1:
        models = "another language model"
    else:
        models = "other language models"
    sentence = f"Its answers were {manner} by {judges} ({models})."
    ratings = ratings_line(result)
    if ratings is None:
        return sentence
    return f"{sentence} {capitalized(ratings)}."


_MEANINGS = {
    "share": "a share: 0 is the worst, 1 the best",
    "rating": "the mean rating of the judges",
    "share of points": "the share of a rubric's points that answers win: 0 is the worst, 1 the "
    "best",
    "overlap": "how much of an answer's wording is that of a reference answer",
    "F1": "F1: how much of what had to be found was found, and how much of what was found is right",
    "similarity": "how similar the answers are to reference answers",
    "errors per word": "errors for each word of a reference answer: 0 is the best",
}
"""Dict from the unit of a score to the meaning of its value, as a part of a sentence."""


def score_meaning(result: results.TaskResult) -> str:
    """Return a sentence about the meaning of the main score."""
    score = result.scores.get(result.main_metric)
    if score is None:
        return f"{result.main_metric} could not be computed: the notes say why."
    parts = []
    if score.unit in _MEANINGS:
        parts.append(f"it is {_MEANINGS[score.unit]}")
    if score.higher_is_better is True:
        parts.append("higher is better")
    elif score.higher_is_better is False:
        parts.append("lower is better")
    subject = f"{result.main_metric}, over {counted(score.stats.count, 'instance')}"
    if not parts:
        return f"{subject}."
    return f"{subject} ({'; '.join(parts)})."


_SEVERAL_ANSWERS_METRIC = re.compile(r"@\d+$")
"""Finds the `@5` of `exact_match@5`, the name of a metric that scores the best of several answers.
"""


def minor_scores(result: results.TaskResult) -> list[str]:
    """Return the labels of HELM's scores that add little to the main score.

    These are the quasi metrics and the metrics over several answers (`exact_match@5`). The latter
    add little because each question has one answer only.
    """
    labels = []
    for label, score in result.scores.items():
        # `metric` is HELM's name. A label may have more, such as the split in `exact_match@valid`.
        name = score.metric or label
        is_minor = name.startswith("quasi_") or _SEVERAL_ANSWERS_METRIC.search(name) is not None
        if is_minor and label != result.main_metric:
            labels.append(label)
    return labels


def certainty_sentence(result: results.TaskResult) -> str:
    """Return a sentence about the main score's interval; empty if there is no main score."""
    score = result.scores.get(result.main_metric)
    if score is None:
        return ""
    if not interval_text(score):
        if not result.validity.instances.requested:
            return (
                "Without answers to single questions there is no interval: "
                "how much of this score is chance is not known."
            )
        return (
            "There are too few questions for an interval: "
            "how much of this score is chance is not known."
        )
    between = interval_text(score).replace(" to ", " and ")  # such as `20.1 % and 34.8 %`
    who = answerer(result).lower()
    return f"With 95 % confidence, {who}'s score on all such questions is between {between}."


def missing_scores_sentence(result: results.TaskResult) -> str:
    """Return how many instances have a score, as a reason why a result must not be reported.

    The list `not_reportable` has the other reasons. The text is empty if the result may be
    reported, or if `not_reportable` has a reason and all instances have a score.
    """
    instances = result.validity.instances
    if result.reportable:
        return ""
    all_are_scored = instances.scored >= instances.requested
    if all_are_scored and result.validity.not_reportable:
        return ""
    sentence = (
        f"{instances.scored:,} of {instances.requested:,} instances have a score of their own."
    )
    if result.something_to_ask:
        return f"{sentence} The same command asks for what is missing."
    return sentence


class ProblemCount(NamedTuple):
    """The number of instances with one kind of problem."""

    instances: int
    description: str  # such as `answered with nothing at all`
    sign: str  # the name of the sign that marks these instances in the table of the page


def problem_counts(instances: results.Instances) -> Iterator[ProblemCount]:
    """Yield the count of each kind of problem that occurred; the most severe problem comes first.

    `SIGNS` has the kinds of problems.
    """
    for name, sign in sorted(SIGNS.items(), key=lambda item: item[1].severity):
        if sign.trouble and sign.count is not None:
            count = getattr(instances, sign.count)
            if count:
                yield ProblemCount(count, sign.trouble, name)


def floor_sentence(result: results.TaskResult) -> str:
    """Return sentences that compare the main score with its floor: the best score without a model.

    The text is empty if one of the two scores is not known.
    """
    floor = result.validity.floors.get(result.main_metric)
    score = result.scores.get(result.main_metric)
    if floor is None or score is None:
        return ""
    floor_text = f"{value_text(floor.value, score)} ({floor_in_words(floor)})"
    comparison = _comparison_with_floor(answerer(result), score, floor)
    text = f"The best score without a model is {floor_text}. {comparison}"
    if floor.assumed:
        text += (
            " That score is assumed, because no judge was asked about such an answer; "
            "extra.probe_judges: true asks the judges."
        )
    return text


def _comparison_with_floor(who: str, score: results.Score, floor: results.Floor) -> str:
    """Return a sentence that says whether a score is better than the best score without a model."""
    if is_no_better(score, floor):
        return f"{who} is no better than that."
    if not is_shown_better(score, floor):
        return (
            f"{who} scores better, but the interval of its score includes that score: "
            "chance may explain the difference."
        )
    return f"{who} scores better, and so does the whole interval of its score."


def chance_may_explain(result: results.TaskResult) -> bool:
    """Return True if the main score is not shown to be better than the best score without a model.

    Return False if one of the two scores is not known.
    """
    floor = result.validity.floors.get(result.main_metric)
    score = result.scores.get(result.main_metric)
    return floor is not None and score is not None and not is_shown_better(score, floor)


def corrected_score(result: results.TaskResult) -> results.Score | None:
    """Return the main score without a known defect of HELM's metric.

    Return None if HELM's metric has no known defect, or if the corrected score has no value.
    """
    return result.scores.get(f"{result.main_metric}{CORRECTED_SUFFIX}")


def floor_line(result: results.TaskResult) -> str | None:
    """Return a line with the best score without a model; None if this score is not known."""
    floors = result.validity.floors
    floor = floors.get(result.main_metric)
    if floor is None:
        return None
    line = f"best score without a model: {formats.score(floor.value)} ({floor_in_words(floor)})"
    corrected = floors.get(f"{result.main_metric}{CORRECTED_SUFFIX}")
    if corrected is None:
        return line
    return f"{line}; corrected: {formats.score(corrected.value)} ({floor_in_words(corrected)})"


def floor_in_words(floor: results.Floor) -> str:
    """Return the name of the best answers without a model, as a part of a sentence.

    Examples are `always answering A` and `random, assumed`. A floor is assumed if no judge rated
    these answers.
    """
    name = floor.best
    if name.startswith("always "):
        name = f"always answering {name.removeprefix('always ')}"
    if floor.assumed:
        return f"{name}, assumed"
    return name


def leaderboard_line(record: results.Comparability | None) -> str | None:
    """Return a line that compares the settings with those of the leaderboard.

    The line has the first three deviations; evaluation_config.yaml and the page have all. If the
    settings cannot be compared, the line is the reason. Returns None if the result has no
    comparison; results of earlier versions have none.
    """
    if record is None:
        return None
    if record.medhelm_settings is None:  # cannot be compared
        return record.reason
    if record.medhelm_settings:
        return f"settings: those of {record.leaderboard}"
    # Each text is such as `temperature 0.7 (there 0.0)`.
    shown = [deviation.in_words(there="there") for deviation in record.deviations[:3]]
    line = f"these settings are not those of {record.leaderboard}: {'; '.join(shown)}"
    hidden = len(record.deviations) - len(shown)
    if hidden:
        line += f" and {hidden} more (see comparability)"
    return line


def rubric_headline(report: results.RubricReport) -> str:
    """Return a line with the number of criteria that are met, and how well the judges agree.

    If a judge's passport corrects the score, the line also has the corrected score.
    """
    votes = report.criteria
    parts = [
        f"{votes.met:,} of {criteria_count(votes.asked)} met",
        f"{votes.not_met:,} not met",
    ]
    if votes.tied:
        parts.append(f"{votes.tied:,} tied")
    if votes.unjudged:
        parts.append(f"{votes.unjudged:,} unjudged")
    sentences = [", ".join(parts)]
    if report.krippendorff_alpha is not None:
        alpha = formats.coefficient(report.krippendorff_alpha)
        sentences.append(f"agreement of the judges (Krippendorff's alpha): {alpha}")
    if report.unanimous is not None:
        # The result document has six digits of the share, so it is rounded to these first. (For
        # alpha, `formats.coefficient` does this itself.)
        stored_share = formats.rounded(report.unanimous)
        sentences.append(f"all judges agree on {formats.percent(stored_share)} of criteria")
    correction = report.correction
    if correction is not None:
        value = formats.score(correction.value)
        bounds = f"{formats.score(correction.ci_low)} to {formats.score(correction.ci_high)}"
        judge = f"{correction.judge}'s own score is {formats.score(correction.judge_score)}"
        sentences.append(f"without the judge's mistakes the score is {value} ({bounds}); {judge}")
    return "; ".join(sentences)


def criteria_count(count: int) -> str:
    """Return the number with its noun: `1 criterion`, `2 criteria`."""
    return counted(count, "criterion", "criteria")


def cost_line(usage: results.Usage) -> str | None:
    """Return a line with the cost of this run, and of all runs if there are several.

    Returns None if nothing is known about the cost, not even why the cost is unknown.
    """
    this_run = usage.this_run.total.cost
    all_runs = usage.all_runs.total.cost
    if all_runs is None:
        if usage.cost_unknown is None:
            return None
        return f"Cost: not known ({usage.cost_unknown})"
    parts = []
    if this_run is not None:
        parts.append(f"{money(this_run.value)} in this run")
    # If there was one run only, both costs are the same.
    if this_run is None or usage.runs > 1:
        parts.append(f"{money(all_runs.value)} in all runs")
    line = f"Cost: {', '.join(parts)} ({all_runs.source})"
    if all_runs.unpriced_requests:
        line += f"; without the {all_runs.unpriced_requests} answers whose cost is not known"
        if usage.cost_unknown is not None:
            line += f" ({usage.cost_unknown})"
    return line


def clinician_headline(clinicians: results.Clinicians) -> str:
    """Return a line with the score corrected by the ratings of clinicians.

    If there are too few ratings for a corrected score, the line states how many are needed. If
    this number is not known either, the line only states how many answers were rated.
    """
    raters = counted(clinicians.raters, "rater")
    rated = f"{clinicians.rated} of {clinicians.answers} answers rated by {raters}"
    if clinicians.corrected is not None:
        corrected = clinicians.corrected
        interval = f"95 % interval {formats.between(corrected.ci_low, corrected.ci_high)}"
        # The result document has six digits of both values. They are rounded to these first.
        value = formats.score(formats.rounded(corrected.value))
        uncorrected = formats.score(formats.rounded(corrected.judge_value))
        return (
            f"corrected by clinicians = {value}  ({interval}); "
            f"without correction {uncorrected}; {rated}"
        )
    if clinicians.too_few is not None:
        needed = clinicians.too_few.needed
        return f"no score corrected by clinicians: {needed} rated answers are needed; {rated}"
    return rated


def clinician_lines(clinicians: results.Clinicians) -> Iterator[str]:
    """Yield the headline, then the agreement of the raters, each judge's bias, and the notes."""
    yield clinician_headline(clinicians)
    if clinicians.agreement is not None:
        yield f"agreement of the raters: {agreement_text(clinicians.agreement)}"
    for judge, agreement in clinicians.judges.items():
        # A bias above 0 means that the judge is more lenient than the raters, if higher is better.
        bias = "not known"
        if agreement.bias is not None:
            bias = formats.bias(agreement.bias)
            if agreement.bias_low is not None and agreement.bias_high is not None:
                low = formats.bias(agreement.bias_low)
                high = formats.bias(agreement.bias_high)
                bias += f" ({low} .. {high})"
        yield f"{judge} with the raters: {agreement_text(agreement)}; bias {bias}"
    for note in clinicians.notes:
        yield f"note: {note}"


def agreement_text(agreement: results.Agreement) -> str:
    """Return the measures of agreement that are defined, as text."""
    measures = []
    for name, value in (
        ("alpha", agreement.alpha),
        ("ICC", agreement.icc),
        ("weighted kappa", agreement.weighted_kappa),
        ("AC1", agreement.ac1),
    ):
        if value is not None:
            # This format has two decimals, which are enough for a measure of agreement.
            measures.append(f"{name} {formats.mean_rating(value)}")
    return f"{', '.join(measures) or 'not defined'} (n = {agreement.n})"


def stopping_line(result: results.TaskResult) -> str | None:
    """Return a line about stopping early: the instances asked, the looks, and what was saved.

    A look is a check of the stopping rule. Returns None if there was no rule.
    """
    record = result.validity.stopped_early
    if record is None:
        return None
    looks = counted(len(record.looks), "look")
    verb = "does not hold"
    if record.holds:
        verb = "holds"
    line = f"{record.asked} of {record.of} instances asked in {looks}: {record.rule_text} {verb}"
    if record.stopped:
        cost = ""
        if record.saved_cost is not None:
            cost = f" ({money(record.saved_cost)})"
        line += f"; stopping early saved about {record.saved_requests} requests{cost}"
    return line


def usage_rows(usage: results.Usage) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield (label, figures) of this run and of all runs.

    The keys of the figures are the fields of `results.Spent`, such as `requests` and `cost`. If
    judges were asked, the figures of each role follow the total of this run, or of all runs.
    """
    for label, spent in (("this run", usage.this_run), ("all runs", usage.all_runs)):
        yield label, asdict(spent.total)
        if len(spent.roles) > 1:
            for role, spent_by_role in spent.roles.items():
                yield f"{label}, {role}", asdict(spent_by_role)
