"""What `run_suite --dry_run` shows. It starts and writes nothing, and imports nothing that asks an endpoint."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from eval_factory.config.suite import Suite, combinations, origins_of
from eval_factory.config.suite_layers import TOP
from eval_factory.config.suite_model import served_lines
from eval_factory.core.foreign_text import own_lines
from eval_factory.core.nouns import MODEL_ROLE
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.endpoint_settings import LimitOf, RunEndpoints, limits_of
from eval_factory.helm.command import command_line
from eval_factory.plan.run_plan import where_keys_go
from eval_factory.workflows.context import HUB_TOKEN
from eval_factory.workflows.options import DryRun
from eval_factory.workflows.suite.checked_cells import CheckedCell, checked, grouped, refuse_wrong
from eval_factory.workflows.suite.planned_cells import refuse_unknown_prices
from eval_factory.workflows.suite.request_counts import count_of, in_words, sum_of

PROGRAM = "eval-factory"


def preview_suite(suite: Suite, *, env: Mapping[str, str], debug: bool = False) -> DryRun:
    """Check every cell and show it.

    Raises:
        ConfigError: the configuration of a cell is wrong; with all that is wrong with any.
    """
    cells = checked(suite, env)
    refuse_wrong(cells)
    if suite.budget.max_cost is not None:
        refuse_unknown_prices(cells)
    would_stop = grouped(cells, [(one.cell, text) for one in cells for text in one.missing])
    keys = [name for one in cells if one.evaluation is not None for name in one.evaluation.key_names()]
    redactor = Redactor.from_environment(env, [*dict.fromkeys(keys), HUB_TOKEN])
    lines = list(_lines(suite, cells, debug=debug))
    if suite.executor == "slurm":
        from eval_factory.workflows.suite.slurm_preview import script_lines

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
    yield f"#   {in_words(sum_of(counts.values()))}"
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
    yield f"\n{one.cell.name}: {in_words(count_of(plan))}"
    for path, (who, value) in said.items():
        yield f"  {path}: {value}  ({who})"
    file = suite.folder.cell_config(one.cell.target, one.cell.evaluation)
    yield f"  {shlex.join([PROGRAM, 'run_eval', '--run_config', str(file)])}"
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
