"""The cells of a suite: each checked before anything is asked or written, with its plan."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from eval_factory.config.evaluation import Evaluation, build_evaluation
from eval_factory.config.rules import data_faults
from eval_factory.config.suite import Cell, Suite
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.secrets import Redactor
from eval_factory.helm.packages import look_for_packages
from eval_factory.plan.credentials import credentials_report
from eval_factory.plan.prices import how_to_say, prices_of
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.context import HUB_TOKEN

_MOST_NAMED = 4
"""Cells that a message names."""

_NOT_TO_BE_WRITTEN = (
    "holds the value of a variable that is a secret (it is not shown); ${NAME} of one may stand in a URL after its"
    " host, and in params_to_add"
)
_BETWEEN_KEYS = re.compile(r"\n(?=no API key)")
_FLAG_OF_A_RUN, _OF_A_SUITE = "with --api_key_name", "as api_key of the target"


@dataclass(frozen=True)
class CheckedCell:
    """A cell with its plan, and what would keep it from running."""

    cell: Cell
    evaluation: Evaluation | None
    """None where the configuration is wrong."""
    plan: Plan | None
    problems: tuple[str, ...] = ()
    """What is wrong with the configuration."""
    missing: tuple[str, ...] = ()
    """What is missing: data, a package, a key. Each text may have several lines."""

    @property
    def ready(self) -> bool:
        return self.plan is not None and not self.missing


@dataclass(frozen=True)
class _Findings:
    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


class _Checks:
    """The checks that cost something are made once for all cells that read the same."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self._env = env
        self._known: dict[Any, _Findings] = {}

    def of_data(self, plan: Plan) -> _Findings:
        """The task's own data, its packages, and a data bundle: whoever is evaluated."""
        extra, task = plan.evaluation.run.config.params.extra, plan.evaluation.task
        beside = plan.rundir.root if extra.offline and extra.data_dir is None else None  # data of an earlier run
        key = (task.name, extra.model_dump_json(), beside)
        if key not in self._known:
            faults = data_faults(task, extra)
            self._known[key] = _both(
                _Findings(missing=("\n  ".join(faults),) if faults else ()),
                _findings(lambda: look_for_packages(plan.task_name, task.helm.run_spec)),
                _findings(lambda: self._look_for_bundle(plan)),
            )
        return self._known[key]

    def _look_for_bundle(self, plan: Plan) -> None:
        extra = plan.evaluation.run.config.params.extra
        if extra.offline or extra.data_dir is not None:
            from eval_factory.workflows.prepare import find_bundle  # imports what reads bundles: seldom needed

            find_bundle(plan, self._env)

    def of_keys(self, plan: Plan) -> _Findings:
        """Each missing key by itself, as the cells of a suite have to learn of it."""
        found = _findings(lambda: credentials_report(plan, self._env))
        texts = [part for text in found.missing for part in _BETWEEN_KEYS.split(text)]
        return _Findings(found.problems, tuple(text.replace(_FLAG_OF_A_RUN, _OF_A_SUITE) for text in texts))


def _of_secrets(document: Mapping[str, Any], of: Iterable[Evaluation], env: Mapping[str, str]) -> _Findings:
    """What a document must not hold that is written into a file: the values of these evaluations' keys."""
    keys = dict.fromkeys(name for evaluation in of for name in evaluation.key_names())
    redactor = Redactor.from_environment(env, [*keys, HUB_TOKEN])
    if redactor.tree(document, known_only=True) == document:
        return _Findings()
    return _Findings((_NOT_TO_BE_WRITTEN,))


def _findings(check: Callable[[], object]) -> _Findings:
    try:
        check()
    except PrerequisiteError as error:
        return _Findings(missing=(str(error),))
    except ConfigError as error:
        return _Findings(problems=tuple(error.problems))
    return _Findings()


def _both(*found: _Findings) -> _Findings:
    problems = tuple(problem for one in found for problem in one.problems)
    return _Findings(problems, tuple(text for one in found for text in one.missing))


def checked_cells(suite: Suite, env: Mapping[str, str]) -> tuple[CheckedCell, ...]:
    """All cells in the suite's order. Raises nothing for a wrong one: `refuse_unready` does."""
    checks, framework = _Checks(env), load_framework()
    found = []
    for cell in suite.cells:
        try:
            evaluation = build_evaluation(cell.request, framework, env)
        except ConfigError as error:
            found.append(CheckedCell(cell, None, None, tuple(error.problems)))
            continue
        plan = make_plan(evaluation)
        both = _both(_of_secrets(cell.document, [evaluation], env), checks.of_data(plan), checks.of_keys(plan))
        found.append(CheckedCell(cell, evaluation, plan, both.problems, both.missing))
    return _with_the_suites_own(suite, found, env)


def _with_the_suites_own(suite: Suite, cells: Sequence[CheckedCell], env: Mapping[str, str]) -> tuple[CheckedCell, ...]:
    """What stands in no cell's run config is written into the suite's: `limit_group`, patterns, what is left out."""
    found = _of_secrets(suite.document, [one.evaluation for one in cells if one.evaluation is not None], env).problems
    if any(set(found).issubset(one.problems) for one in cells):
        return tuple(cells)
    return tuple(replace(one, problems=(*one.problems, *found)) for one in cells)


def refuse_unready(cells: Sequence[CheckedCell]) -> None:
    """
    Raises:
        ConfigError: the configuration of a cell is wrong; with all that is wrong with any.
        PrerequisiteError: something that a cell needs is missing; with all that is missing.
    """
    refuse_wrong(cells)
    missing = missing_prerequisites(cells)
    if missing:
        raise PrerequisiteError("\n".join([*missing, "nothing was asked"]))


def missing_prerequisites(cells: Sequence[CheckedCell]) -> list[str]:
    """What cells need and have not, each with the cells that need it."""
    return grouped(cells, [(one.cell, text) for one in cells for text in one.missing])


def refuse_wrong(cells: Sequence[CheckedCell]) -> None:
    """
    Raises:
        ConfigError: as above.
    """
    problems = grouped(cells, [(one.cell, text) for one in cells for text in one.problems])
    if problems:
        raise ConfigError(problems)


def grouped(cells: Sequence[CheckedCell], said: Iterable[tuple[Cell, str]]) -> list[str]:
    """Each text once, with the cells that it is about before it."""
    about: dict[str, list[Cell]] = {}
    for cell, text in said:
        about.setdefault(text, []).append(cell)
    every = [one.cell for one in cells]
    return [f"{named_cells(found, every)}: {text}" for text, found in about.items()]


def named_cells(some: Sequence[Cell], every: Sequence[Cell]) -> str:
    """Cells in a few words: all, those of some targets or evaluations, or the first of their names."""
    chosen = {cell.name for cell in some}
    if len(every) > 1 and chosen == {cell.name for cell in every}:
        return "every cell"
    for kind in ("evaluation", "target"):
        values = list(dict.fromkeys(getattr(cell, kind) for cell in some))
        whole = {cell.name for cell in every if getattr(cell, kind) in values}
        if whole == chosen and len(values) < len(some):
            return f"every cell of {_list(values)}"
    return _list([cell.name for cell in some])


def _list(names: Sequence[str]) -> str:
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return ", ".join(names[:_MOST_NAMED]) + more


@dataclass(frozen=True)
class PlannedCell:
    number: int
    """Its place in the suite."""
    cell: Cell
    plan: Plan
    group: str
    """The name of the limits of its model's endpoint."""


def plan_cells(suite: Suite, env: Mapping[str, str]) -> tuple[PlannedCell, ...]:
    """
    Raises:
        ConfigError, PrerequisiteError: cells are wrong; the message says what is wrong with each.
    """
    cells = checked_cells(suite, env)
    refuse_unready(cells)
    if suite.budget.max_cost is not None:
        refuse_unknown_prices(cells)
    return tuple(
        PlannedCell(number, one.cell, one.plan, suite.limit_groups[one.cell.target])
        for number, one in enumerate(cells)
        if one.plan is not None
    )


def refuse_unknown_prices(cells: Iterable[CheckedCell]) -> None:
    """
    Raises:
        ConfigError: of some model or judge it is not known what it costs, and no limit of cost can be held.
    """
    unknown: dict[str, str] = {}
    for one in cells:
        if one.plan is not None:
            models = {endpoint.role: endpoint.model_id for endpoint in one.plan.endpoints}
            unknown |= {models[role]: why for role, why in prices_of(one.plan).unknown.items()}
    if unknown:
        raise ConfigError(
            [
                f"suite: max_cost cannot be held: {why}\n  {how_to_say(model, 'suite.prices')}"
                for model, why in unknown.items()
            ]
        )
