"""Previews a suite for a dry run: the cells with their numbers of requests, the limits and the
batch scripts.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from eval_factory.config.suite import Cell, Suite, cell_parameters, selected_combinations
from eval_factory.config.suite_layers import SUITE_KEY
from eval_factory.config.suite_model import server_lines
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.formats import counted
from eval_factory.helm.command import command_line
from eval_factory.helm.picture_metrics import uncomputed_metric_lines
from eval_factory.plan.run_plan import Plan, key_destination_lines
from eval_factory.workflows.options import DryRun
from eval_factory.workflows.suite.planned_cells import (
    CheckedCell,
    PlannedCell,
    checked_cells,
    limits_of,
    lines_with_cell_names,
    missing_prerequisites,
    planned_cells_of,
    redactor_of_all,
    refuse_unknown_prices,
    refuse_wrong_configs,
)
from eval_factory.workflows.suite.suite_executors import EXECUTORS


@dataclass(frozen=True)
class CellRequestCount:
    """The maximum number of requests of a cell without cached answers and without retries."""

    # None if neither the task states its number of instances nor the user limits the samples
    to_model: int | None
    to_judges: int  # 0 also if `to_model` is None
    # True if judges get a request for each criterion of an answer. `to_judges` counts only one
    # request for each answer, so that the real number may be larger.
    by_criterion: bool = False


def request_count_of(plan: Plan) -> CellRequestCount:
    """Return the maximum number of requests of a run.

    In each trial, the model gets each instance `plan.askings` times, for example with several
    orders of the choices. Each judge gets one request for each answer of the model, or more if the
    judge rates each criterion by itself.
    """
    evaluation = plan.evaluation
    known_instance_limits = []
    for limit in (evaluation.params.limit_samples, evaluation.task.about.instances):
        if limit is not None:
            known_instance_limits.append(limit)
    if not known_instance_limits:
        return CellRequestCount(to_model=None, to_judges=0)
    to_model = min(known_instance_limits) * plan.trials * plan.askings
    # `prescribed`: the judges that the benchmark itself prescribes
    judge_count = len(plan.judges) + len(plan.prescribed)
    return CellRequestCount(
        to_model, to_model * judge_count, by_criterion=evaluation.task.helm.rubric
    )


def known_sum(counts: Iterable[CellRequestCount]) -> CellRequestCount:
    """Return the sum of the counts; unknown counts are left out."""
    known_counts = []
    for count in counts:
        if count.to_model is not None:
            known_counts.append(count)
    return CellRequestCount(
        # `or 0` is only for the type checker: the known counts have no None
        sum(count.to_model or 0 for count in known_counts),
        sum(count.to_judges for count in known_counts),
        by_criterion=any(count.by_criterion for count in known_counts),
    )


def counts_in_words(count: CellRequestCount) -> str:
    """Return the count as a text: `at most 120 requests to the model, 360 to judges`."""
    if count.to_model is None:
        return "an unknown number of requests"
    or_more = ""
    if count.by_criterion:
        or_more = " or more"
    judges = ""
    if count.to_judges:
        judges = f", {count.to_judges:,}{or_more} to judges"
    return f"at most {counted(count.to_model, 'request')} to the model{judges}"


def preview_suite(suite: Suite, *, env: Mapping[str, str], debug: bool = False) -> DryRun:
    """Check every cell, and return a preview of the suite as text.

    Raises:
        ConfigError: the configuration of a cell is wrong; the error lists the problems of all
            cells.
    """
    cells = checked_cells(suite, env)
    refuse_wrong_configs(cells)
    refuse_unknown_prices(suite, cells)
    planned = planned_cells_of(suite, cells)
    lines = list(_lines(suite, cells, planned, debug=debug))
    plans = [planned_cell.plan for planned_cell in planned]
    for line in uncomputed_metric_lines(plans, env):
        lines.append(f"# {line}")
    lines += EXECUTORS[suite.executor].preview(suite, planned, env)
    redactor = redactor_of_all(plans, env)
    text = redactor.redact_text("\n".join(lines) + "\n")
    return DryRun(printable_lines(text), tuple(missing_prerequisites(cells)))


def _lines(
    suite: Suite, cells: Sequence[CheckedCell], planned: Sequence[PlannedCell], *, debug: bool
) -> Iterator[str]:
    """Yield the lines about the suite and its cells.

    Args:
        suite: the suite.
        cells: all cells.
        planned: the cells that have a plan.
        debug: True if the commands of the cells get the option --debug.
    """
    evaluations = len({checked_cell.cell.evaluation for checked_cell in cells})
    targets = len({checked_cell.cell.target for checked_cell in cells})
    yield "# suite"
    yield f"#   folder: {suite.folder.root}"
    yield (
        f"#   {counted(len(cells), 'cell')}: "
        f"{counted(evaluations, 'evaluation')}, {counted(targets, 'target')}"
    )
    location = EXECUTORS[suite.executor].location(suite)
    yield f"#   {location}, {counted(suite.max_attempts, 'attempt')} of each"
    budget = [f"{name} {value:,}" for name, value in suite.budget.stated_limits.items()]
    yield f"#   budget of all cells: {', '.join(budget) or 'no limit'}"
    yield from server_lines(suite.serve)
    if suite.reused:
        yield "\n# existing results; nothing is run for them"
    for cell in suite.reused:
        yield f"#   {cell.name}: {cell.source}"
    yield "\n# limits of endpoints, for all cells together"
    yield from _limit_lines(planned)
    yield from _key_and_note_lines(cells, planned)
    counts = {
        planned_cell.cell.name: request_count_of(planned_cell.plan) for planned_cell in planned
    }
    yield from _cell_lines(suite, cells, planned, counts, debug=debug)
    unknown = []
    for name, count in counts.items():
        if count.to_model is None:
            unknown.append(name)
    yield "\n# total, for a suite without earlier results"
    yield f"#   {counts_in_words(known_sum(counts.values()))}"
    if unknown:
        yield (
            f"#   and the requests of {', '.join(unknown)}, "
            "whose number is not known before their data are read"
        )


def _key_and_note_lines(
    cells: Sequence[CheckedCell], planned: Sequence[PlannedCell]
) -> Iterator[str]:
    """Yield the lines that say where API keys are sent, and the lines with notes.

    The notes are about settings without effect, and about the tasks' scores.
    """
    keys: list[tuple[Cell, str]] = []
    notes: list[tuple[Cell, str]] = []
    for planned_cell in planned:
        evaluation = planned_cell.plan.evaluation
        keys += [
            (planned_cell.cell, line) for line in key_destination_lines(planned_cell.plan.endpoints)
        ]
        notes += [(planned_cell.cell, text) for text in evaluation.warnings]
        notes += [(planned_cell.cell, text) for text in evaluation.task.about.notes]
    yield "\n# keys"
    yield from (f"#   {line}" for line in lines_with_cell_names(cells, keys))
    if notes:
        yield "\n# notes"
        yield from (f"#   {note}" for note in lines_with_cell_names(cells, notes))


def _cell_lines(
    suite: Suite,
    cells: Sequence[CheckedCell],
    planned: Sequence[PlannedCell],
    counts: Mapping[str, CellRequestCount],
    *,
    debug: bool,
) -> Iterator[str]:
    """Yield the lines about each cell: its requests, its settings and its commands."""
    yield (
        "\n# cells; run_suite writes their run configs; "
        "each command below then runs one cell without the suite"
    )
    section = suite.document[SUITE_KEY]
    parameters_by_cell = {}
    # the list of problems is ignored: `build_suite` has already refused problems
    for combination in selected_combinations(section, problems=[]):
        cell_name = f"{combination.target['name']}/{combination.name}"
        parameters_by_cell[cell_name] = cell_parameters(combination, section)
    for planned_cell in planned:
        cell = planned_cell.cell
        yield f"\n{cell.name}: {counts_in_words(counts[cell.name])}"
        for path, parameter in parameters_by_cell.get(cell.name, {}).items():
            yield f"  {path}: {parameter.value}  ({parameter.set_by})"
        file = suite.folder.cell_config(cell.target, cell.evaluation)
        yield f"  {shlex.join(['eval-factory', 'run_eval', '--run_config', str(file)])}"
        yield f"  {shlex.join(command_line(planned_cell.plan, debug=debug))}"
        checked_cell = cells[planned_cell.number]  # the number is the position in the suite
        for text in checked_cell.missing:
            yield "  would stop: " + text.replace("\n", "\n  ")


def _limit_lines(planned: Sequence[PlannedCell]) -> Iterator[str]:
    """Yield a line for each limit, with the targets and judges that share the limit."""
    limits, limit_names_of_cells = limits_of(
        (planned_cell.plan.endpoints, planned_cell.group) for planned_cell in planned
    )
    # The keys are the names of the limits. The keys of each inner dict are the targets and judges
    # that share the limit: the inner dict is used as an ordered set.
    sharers: dict[str, dict[str, None]] = {name: {} for name in limits}
    for planned_cell, names_by_role in zip(planned, limit_names_of_cells, strict=True):
        for role, name in names_by_role.items():
            sharer = planned_cell.cell.target if role == MODEL_ROLE else role
            sharers[name][sharer] = None
    for name, limit in limits.items():
        numbers = {
            "requests at once": limit.parallelism,
            "requests a minute": limit.requests_per_minute,
            "tokens a minute": limit.tokens_per_minute,
        }
        stated = ", ".join(
            f"{number:,} {unit}" for unit, number in numbers.items() if number is not None
        )
        yield f"#   {name}: {stated} ({', '.join(sharers[name])})"
