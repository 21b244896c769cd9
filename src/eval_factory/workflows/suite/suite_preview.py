"""What a suite would ask, before it asks anything: its cells with their requests, batch scripts."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval_factory.config.evaluation import Evaluation
from eval_factory.config.suite import Suite, combinations, origins_of
from eval_factory.config.suite_layers import TOP
from eval_factory.config.suite_model import served_lines
from eval_factory.core.foreign_text import own_lines
from eval_factory.core.nouns import MODEL_ROLE
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import LimitOf
from eval_factory.helm.command import command_line
from eval_factory.plan.run_plan import Plan, where_keys_go
from eval_factory.workflows.context import HUB_TOKEN
from eval_factory.workflows.options import DryRun
from eval_factory.workflows.suite.limit_groups import RunEndpoints, limits_of
from eval_factory.workflows.suite.planned_cells import (
    CheckedCell,
    PlannedCell,
    checked_cells,
    grouped,
    missing_prerequisites,
    refuse_unknown_prices,
    refuse_wrong,
)


@dataclass(frozen=True)
class RequestCount:
    """Requests of a cell that begins from nothing, each answered at the first attempt."""

    to_model: int | None
    """None: nobody knows how many instances there are, and no limit is set."""
    to_judges: int
    at_most: bool = False
    """Whether there may be fewer: the limit on the instances is known, and not how many there are."""
    by_criterion: bool = False
    """Whether judges are asked about each criterion of an answer, of which there may be more than the one that counts
    here."""

    @property
    def total(self) -> int | None:
        return None if self.to_model is None else self.to_model + self.to_judges


def count_of(plan: Plan) -> RequestCount:
    """A request an instance and trial to the model, and one to each judge."""
    instances, at_most = _instances(plan.evaluation)
    if instances is None:
        return RequestCount(None, 0)
    asked = instances * (plan.evaluation.run.config.params.extra.num_train_trials or 1)
    judges = len(plan.judges) + len(plan.prescribed)
    return RequestCount(asked, asked * judges, at_most, plan.evaluation.task.helm.rubric)


def _instances(evaluation: Evaluation) -> tuple[int | None, bool]:
    limit, there = evaluation.run.config.params.limit_samples, evaluation.task.about.instances
    extra = evaluation.run.config.params.extra
    rules = evaluation.task.helm.parameters
    part = any(rule.chooses_a_part and getattr(extra, name) is not None for name, rule in rules.items())
    if there is None:
        return limit, limit is not None
    return (there if limit is None else min(limit, there)), part


def known_sum(counts: Iterable[RequestCount]) -> RequestCount:
    known = [count for count in counts if count.to_model is not None]
    return RequestCount(
        sum(count.to_model or 0 for count in known),
        sum(count.to_judges for count in known),
        any(count.at_most for count in known),
        any(count.by_criterion for count in known),
    )


def counts_in_words(count: RequestCount) -> str:
    """`at most 120 requests to the model, 360 to judges`."""
    if count.to_model is None:
        return "an unknown number of requests"
    bound = "at most " if count.at_most else ""
    more = " or more" if count.by_criterion else ""
    judges = f", {count.to_judges:,}{more} to judges" if count.to_judges else ""
    return f"{bound}{count.to_model:,} request{'' if count.to_model == 1 else 's'} to the model{judges}"


_PROGRAM = "eval-factory"


def preview_suite(suite: Suite, *, env: Mapping[str, str], debug: bool = False) -> DryRun:
    """Check every cell and show it.

    Raises:
        ConfigError: the configuration of a cell is wrong; with all that is wrong with any.
    """
    cells = checked_cells(suite, env)
    refuse_wrong(cells)
    if suite.budget.max_cost is not None:
        refuse_unknown_prices(cells)
    would_stop = missing_prerequisites(cells)
    keys = [name for one in cells if one.evaluation is not None for name in one.evaluation.key_names()]
    redactor = Redactor.from_environment(env, [*dict.fromkeys(keys), HUB_TOKEN])
    lines = list(_lines(suite, cells, debug=debug))
    if suite.executor == "slurm":
        lines += script_lines(suite, cells, env)
    text = redactor.text("\n".join(lines) + "\n")
    return DryRun(own_lines(text), tuple(would_stop))


def _lines(suite: Suite, cells: Sequence[CheckedCell], *, debug: bool) -> Iterator[str]:
    evaluations = len({one.cell.evaluation for one in cells})
    targets = len({one.cell.target for one in cells})
    yield "# suite"
    yield f"#   folder: {suite.folder.root}"
    yield f"#   {_many(len(cells), 'cell')}: {_many(evaluations, 'evaluation')}, {_many(targets, 'target')}"
    most = "as jobs of Slurm" if suite.executor == "slurm" else f"at most {_many(suite.max_processes, 'cell')} at once"
    yield f"#   {most}, {_many(suite.max_attempts, 'attempt')} of each"
    yield f"#   budget of all cells: {_budget(suite)}"
    yield from served_lines(suite.serve)
    yield "\n# limits of endpoints, for all cells together"
    yield from (f"#   {line}" for line in _limits(suite, cells))
    keys = [(one.cell, line) for one in cells if one.plan for line in where_keys_go(one.plan.endpoints)]
    yield "\n# keys"
    yield from (f"#   {line}" for line in grouped(cells, keys))
    if notes := _notes(cells):
        yield "\n# notes"
        yield from (f"#   {note}" for note in notes)
    yield "\n# cells; run_suite writes their run configs, and each of the commands then does one of them"
    origins = _origins(suite)
    for one in cells:
        yield from _cell(suite, one, origins.get(one.cell.name, {}), debug=debug)
    counts = {one.cell.name: count_of(one.plan) for one in cells if one.plan is not None}
    unknown = [name for name, count in counts.items() if count.total is None]
    yield "\n# total, of a suite that begins from nothing"
    yield f"#   {counts_in_words(known_sum(counts.values()))}"
    if unknown:
        yield f"#   and those of {', '.join(unknown)}, whose number is not known before their data are read"


def _many(count: int, thing: str) -> str:
    return f"{count:,} {thing}{'' if count == 1 else 's'}"


def _budget(suite: Suite) -> str:
    given = [f"{name} {value:,}" for name, value in vars(suite.budget).items() if value is not None]
    return ", ".join(given) or "no limit"


def _cell(suite: Suite, one: CheckedCell, said: Mapping[str, tuple[str, Any]], *, debug: bool) -> Iterator[str]:
    plan = one.plan
    if plan is None:
        return
    yield f"\n{one.cell.name}: {counts_in_words(count_of(plan))}"
    for path, (who, value) in said.items():
        yield f"  {path}: {value}  ({who})"
    file = suite.folder.cell_config(one.cell.target, one.cell.evaluation)
    yield f"  {shlex.join([_PROGRAM, 'run_eval', '--run_config', str(file)])}"
    yield f"  {shlex.join(command_line(plan, debug=debug))}"
    for text in one.missing:
        yield "  would stop: " + text.replace("\n", "\n  ")


def _origins(suite: Suite) -> dict[str, dict[str, tuple[str, Any]]]:
    """Cell -> its parameters, and who says them."""
    section = suite.document[TOP]
    return {f"{one.target['name']}/{one.name}": origins_of(one, section) for one in combinations(section, [])}


def _notes(cells: Sequence[CheckedCell]) -> list[str]:
    """What is known of the tasks' scores, and what of the configuration has no effect."""
    said = []
    for one in cells:
        if one.evaluation is not None:
            texts = [*one.evaluation.warnings, *one.evaluation.task.about.notes]
            said += [(one.cell, text) for text in texts]
    return grouped(cells, said)


def _limits(suite: Suite, cells: Sequence[CheckedCell]) -> Iterator[str]:
    """Each limit once, with who shares it: as the suite itself would share them."""
    planned = [(one.cell.target, one.plan) for one in cells if one.plan is not None]
    groups = limits_of(RunEndpoints(plan.endpoints, suite.limit_groups[target]) for target, plan in planned)
    who: dict[str, dict[str, None]] = {name: {} for name in groups.limits}
    for (target, _), of_roles in zip(planned, groups.of_runs, strict=True):
        for role, name in of_roles.items():
            who[name][target if role == MODEL_ROLE else role] = None
    for name, limit in groups.limits.items():
        yield f"{name}: {_limit_text(limit)} ({', '.join(who[name])})"


def _limit_text(limit: LimitOf) -> str:
    numbers = {
        "requests at once": limit.parallelism,
        "requests a minute": limit.requests_per_minute,
        "tokens a minute": limit.tokens_per_minute,
    }
    return ", ".join(f"{number:,} {name}" for name, number in numbers.items() if number is not None)


USUAL_LARGEST_ARRAY = 1000
"""Slurm's own default; the command asks scontrol."""
UNKNOWN_ID = "ID"


def script_lines(suite: Suite, cells: Sequence[CheckedCell], env: Mapping[str, str]) -> Iterator[str]:
    """
    Raises:
        ConfigError: the suite says what jobs cannot keep.
    """
    # imported here: a dry run of a local suite needs none of it
    from eval_factory.executors.slurm_runs import SlurmStore, arrays, cell_of, job_name, script_of
    from eval_factory.workflows.suite.slurm_suite import WORKER, at_once, refuse_what_slurm_cannot, spec_of
    from eval_factory.workflows.suite.suite_report import SuiteOptions

    refuse_what_slurm_cannot(suite, env)
    planned = [
        PlannedCell(number, one.cell, one.plan, suite.limit_groups[one.cell.target])
        for number, one in enumerate(cells)
        if one.plan is not None
    ]
    tasks, store = at_once(suite, planned), SlurmStore(suite.folder)
    specs = [spec_of(one, suite, tasks[one.group], store, SuiteOptions()) for one in planned]
    yield "\n# batch scripts, of a suite that begins from nothing; run_suite writes them and gives each to sbatch"
    for number, array in enumerate(arrays(specs, USUAL_LARGEST_ARRAY), 1):
        yield f"\n# {store.script(number)}: {', '.join(cell_of(run.name) for run in array)}"
        yield script_of(array, job_name(UNKNOWN_ID, number), number, store, WORKER).rstrip("\n")
