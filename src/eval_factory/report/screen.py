"""The summary that a run ends with on the screen."""

from __future__ import annotations

from collections.abc import Iterator

from eval_factory.core import formats
from eval_factory.core.failure_causes import line_of
from eval_factory.core.formats import counted
from eval_factory.core.nouns import MODEL_ROLE
from eval_factory.core.results import Comparability, FailureCause, JuryReport, Score, Spent, TaskResult, Usage
from eval_factory.core.rundir import RunDir
from eval_factory.report.sentences import choice_order_line, clinician_headline, cost_line, rubric_headline
from eval_factory.tasks.errata import CORRECTED

_MAX_NOTES = 5
_MAX_CAUSES = 5
MAX_DEVIATIONS = 3


def result_summary(result: TaskResult, rundir: RunDir) -> str:
    """The main score, how sure it is, what went wrong and what to do, where the rest is."""
    validity = result.validity
    lines = [
        _main_score(result),
        *(f"  {line}" for line in _corrected(result)),
        *([] if result.clinicians is None else [f"  {clinician_headline(result.clinicians)}"]),
        *_floor(result),
        *(f"  {line}" for line in [choice_order_line(result)] if line is not None),
        *_other_splits(result),
        _instances(result),
        *_failures(validity.failures),
        *([] if validity.jury is None or not validity.jury.means else [_jury(validity.jury)]),
        *([] if validity.rubric is None else [f"  criteria: {rubric_headline(validity.rubric)}"]),
        *_usage(result.usage),
        *_comparability(result.comparability),
        *(f"  note: {note}" for note in validity.notes[:_MAX_NOTES]),
    ]
    if (more := len(validity.notes) - _MAX_NOTES) > 0:
        lines.append(f"  {counted(more, 'more note')} of less weight: validity.notes, report.html")
    return "\n".join([*lines, f"  results: {rundir.evaluation_config}"])


def headline(result: TaskResult) -> str:
    """The result in one line."""
    return "; ".join([_main_score(result), *_corrected(result)])


def _main_score(result: TaskResult) -> str:
    score = result.scores.get(result.main_metric)
    if score is None:
        return f"{result.task}: {result.main_metric} could not be computed"
    over = ""
    if len(result.validity.splits) > 1 and score.split:
        over = f" over the {counted(score.stats.count, 'instance')} of split {score.split}"
    elif score.stats.count != result.validity.instances.scored:
        over = f" over {counted(score.stats.count, 'instance')}"
    return f"{result.task}: {result.main_metric} = {formats.score(score.value)}{over}{_interval(score)}"


def _corrected(result: TaskResult) -> Iterator[str]:
    """HELM's value has a known defect where there is another one beside it."""
    helms, score = (result.scores.get(f"{result.main_metric}{suffix}") for suffix in ("", CORRECTED))
    if helms is not None and score is not None:
        differs = score.stats.count != helms.stats.count
        over = f" over {counted(score.stats.count, 'instance')}" if differs else ""
        yield f"corrected = {formats.score(score.value)}{over}{_interval(score)}"


def _floor(result: TaskResult) -> Iterator[str]:
    """What the main score has to be compared with, and its corrected value where there is one."""
    floors = result.validity.floors
    if (floor := floors.get(result.main_metric)) is None:
        return
    line = f"  best trivial answer: {floor.named} {formats.score(floor.value)}"
    corrected = floors.get(f"{result.main_metric}{CORRECTED}")
    yield line if corrected is None else f"{line}; corrected: {corrected.named} {formats.score(corrected.value)}"


def _interval(score: Score) -> str:
    between = formats.between(score.stats.ci_low, score.stats.ci_high)
    return f"  (95 % interval {between})" if between else ""


def _other_splits(result: TaskResult) -> Iterator[str]:
    """Where the instances are that the main score does not count."""
    main = result.scores.get(result.main_metric)
    split = main.split if main else result.validity.main_split
    for other, count in result.validity.splits.items():
        if other == split:
            continue
        label = f"{main.metric}@{other}" if main else ""
        value = (
            f": {label} = {formats.score(result.scores[label].value)}"
            if label in result.scores
            else " have no such score"
        )
        yield f"  split {other}: {counted(count, 'instance')} more{value}"


def _instances(result: TaskResult) -> str:
    counts = result.validity.instances
    asked = sum(result.validity.splits.values())
    line = (
        f"  instances: {counts.scored} of {counts.requested} scored; {counts.failed} failed,"
        f" {counts.empty} empty, {counts.truncated} cut off, {counts.filtered} filtered"
    )
    if result.validity.judges:
        line += f", {counts.unjudged} unjudged"
    if counts.unreadable:
        line += f"; {counts.unreadable} answers say nothing that can be scored"
    if asked and asked != counts.requested:
        line += f" ({counted(asked, 'instance')}, each trial and perturbation counted)"
    return line


def _failures(causes: tuple[FailureCause, ...]) -> Iterator[str]:
    """The most frequent first, the evaluated model's or a judge's."""
    shown = sorted(causes, key=lambda cause: -cause.count)[:_MAX_CAUSES]
    for cause in causes:
        if cause in shown:
            who = "failed" if cause.role == MODEL_ROLE else f"judge {cause.role}"
            yield f"  {who}: {line_of(cause)}"
    if more := len(causes) - len(shown):
        yield f"  {counted(more, 'more cause')} of failures: validity.failures, report.html"


def _jury(jury: JuryReport) -> str:
    means = ", ".join(f"{judge} {formats.mean_rating(mean)}" for judge, mean in jury.means.items())
    alpha = formats.coefficient(jury.krippendorff_alpha, missing="not defined")
    return f"  judges' mean ratings: {means}; agreement (Krippendorff's alpha): {alpha}"


def _usage(usage: Usage) -> Iterator[str]:
    """Of this run; by role where judges were asked; of all runs where there were others."""
    yield f"  requests: {_spent(usage.this_run.total)}"
    if len(usage.this_run.roles) > 1:
        yield from (f"    {role}: {_spent(spent)}" for role, spent in usage.this_run.roles.items())
    if usage.runs > 1:
        yield f"  with the {counted(usage.runs - 1, 'run')} before: {_spent(usage.all_runs.total)}"
    if (cost := cost_line(usage)) is not None:
        yield f"  {cost}"


def _comparability(record: Comparability | None) -> Iterator[str]:
    """In one line; all of it stands in the file and the page."""
    if record is None:
        return
    if record.medhelm_settings is None:
        yield f"  {record.reason}"
    elif record.medhelm_settings:
        yield "  settings: those of MedHELM's leaderboard"
    else:
        shown = [one.in_words("there") for one in record.deviations[:MAX_DEVIATIONS]]
        more = len(record.deviations) - len(shown)
        rest = f" and {more} more, see comparability" if more else ""
        yield f"  settings unlike those of MedHELM's leaderboard: {'; '.join(shown)}{rest}"


def _spent(spent: Spent) -> str:
    tokens = ""
    if spent.prompt_tokens is not None and spent.completion_tokens is not None:
        tokens = f"; {spent.prompt_tokens} prompt and {spent.completion_tokens} completion tokens"
    return f"{spent.requests} sent, {spent.cached} from the cache, {spent.retries} retries{tokens}"
