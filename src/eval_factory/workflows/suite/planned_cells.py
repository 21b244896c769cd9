"""Checks and plans the cells of a suite before any request is sent and any file is written.

Cells that ask the same endpoint share its limits.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from typing import Any, NamedTuple

from eval_factory.config.evaluation import build_evaluation
from eval_factory.config.own_data import own_data_faults
from eval_factory.config.suite import Cell, Suite
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.formats import first_of
from eval_factory.core.secrets import Redactor
from eval_factory.core.urls import base_of
from eval_factory.endpoint.endpoint_settings import EndpointLimits, EndpointSettings, limit_names
from eval_factory.helm.environments import require_packages
from eval_factory.plan.credentials import credentials_report
from eval_factory.plan.prices import how_to_state_price, prices_of
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.context import HUB_TOKEN

_MAX_NAMES = 4  # the maximum number of names in a text about several cells


@dataclass(frozen=True)
class CheckedCell:
    """A cell with its plan, and everything that keeps the cell from running.

    A cell is one evaluation of one target.

    Attributes:
        cell: the cell.
        plan: the plan of the cell; None if the cell's configuration is wrong.
        problems: the errors in the configuration.
        missing: the missing prerequisites, such as data, a package or a key. Each text may have
            several lines.
    """

    cell: Cell
    plan: Plan | None
    problems: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()

    @property
    def is_ready(self) -> bool:
        """True if the cell has a plan and no prerequisite is missing."""
        return self.plan is not None and not self.missing


def _findings(*checks: Callable[[], object]) -> tuple[list[str], list[str]]:
    """Run all checks, and collect the errors that they raise.

    Returns two lists of messages: errors in the configuration, and missing prerequisites.
    """
    problems = []
    missing = []
    for check in checks:
        try:
            check()
        except PrerequisiteError as error:
            missing.append(str(error))
        except ConfigError as error:
            problems += error.problems
    return problems, missing


def _findings_of_data(plan: Plan, env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Check the user's data, the packages and the data bundle of a task.

    The findings do not depend on the target. Returns the errors in the configuration and the
    missing prerequisites.
    """
    extra = plan.evaluation.extra
    task = plan.evaluation.task
    check_packages = partial(
        require_packages,
        plan.task_name,
        task.helm.run_spec,
        plan.upstream,
        only_generate=extra.only_generate,
    )
    checks: list[Callable[[], object]] = [check_packages]
    if extra.offline or extra.data_dir is not None:
        # imported here, because few runs read a data bundle
        from eval_factory.workflows.prepare import find_bundle

        checks.append(partial(find_bundle, plan, env))
    problems, missing = _findings(*checks)
    faults_in_user_data = own_data_faults(plan.evaluation)
    if faults_in_user_data:
        missing.insert(0, "\n  ".join(faults_in_user_data))
    return problems, missing


def redactor_of_all(plans: Iterable[Plan], env: Mapping[str, str]) -> Redactor:
    """Return a redactor that knows the keys of all these plans."""
    keys = dict.fromkeys(chain.from_iterable(plan.evaluation.key_variables() for plan in plans))
    return Redactor.from_environment(env, [*keys, HUB_TOKEN])


def _secrets_in(
    document: Mapping[str, Any], plans: Iterable[Plan], env: Mapping[str, str]
) -> list[str]:
    """Check that the document contains no secret, because the document is written to a file.

    Returns a list with one message if the document contains a known secret of the environment, such
    as a key of the plans; else an empty list.
    """
    if redactor_of_all(plans, env).redact_tree(document, known_only=True) == document:
        return []
    problem = (
        "holds the value of a variable that is a secret (the value is not shown); "
        "write ${NAME} instead, which is allowed in a URL after its host, and in params_to_add"
    )
    return [problem]


def checked_cells(suite: Suite, env: Mapping[str, str]) -> tuple[CheckedCell, ...]:
    """Check all cells; return them in the order of the suite.

    The problems of a cell are stored in its `CheckedCell`, and are not raised. `refuse_unready`
    raises an error with the problems of all cells.
    """
    framework = load_framework()
    checked = []
    # Checks of data take time: cells that read the same data share the findings.
    findings_of_data: dict[Any, tuple[list[str], list[str]]] = {}
    for cell in suite.cells:
        try:
            evaluation = build_evaluation(cell.request, framework, env)
        except ConfigError as error:
            checked.append(CheckedCell(cell, plan=None, problems=tuple(error.problems)))
            continue
        plan = make_plan(evaluation)
        data_key = _data_key(plan)
        if data_key not in findings_of_data:
            findings_of_data[data_key] = _findings_of_data(plan, env)
        data_problems, missing_data = findings_of_data[data_key]
        key_problems, missing_keys = _findings_of_keys(plan, env)
        problems = (*_secrets_in(cell.document, [plan], env), *data_problems, *key_problems)
        checked.append(CheckedCell(cell, plan, problems, (*missing_data, *missing_keys)))
    # The suite's own file is checked too: it has keys that the run configs of the cells do not
    # have, such as `limit_group`. Only cells can have problems: a problem of the suite's file is
    # added to every cell, unless a cell has the same problem.
    plans = []
    for checked_cell in checked:
        if checked_cell.plan is not None:
            plans.append(checked_cell.plan)
    suite_problems = _secrets_in(suite.document, plans, env)
    is_reported = any(
        set(suite_problems).issubset(checked_cell.problems) for checked_cell in checked
    )
    if suite_problems and not is_reported:
        for number, checked_cell in enumerate(checked):
            problems = (*checked_cell.problems, *suite_problems)
            checked[number] = replace(checked_cell, problems=problems)
    return tuple(checked)


def _data_key(plan: Plan) -> tuple[object, ...]:
    """Return a key for the findings about a cell's data; cells with equal keys share them."""
    extra = plan.evaluation.extra
    folder_of_data = None
    if extra.offline and extra.data_dir is None:
        # The run reads the data that an earlier run has left in its output folder.
        folder_of_data = plan.rundir.root
    return (plan.evaluation.task.name, extra.model_dump_json(), folder_of_data)


def _findings_of_keys(plan: Plan, env: Mapping[str, str]) -> tuple[list[str], list[str]]:
    """Check the credentials.

    Returns the errors in the configuration, and a separate text for each missing key.
    """
    problems, reports = _findings(partial(credentials_report, plan, env))
    missing_keys: list[str] = []
    for report in reports:
        # The messages are written for `run_eval`. A suite has no option --api_key_name.
        text = report.replace("with --api_key_name", "as api_key of the target")
        # A new text begins at each line such as "no API key for judge gpt: ..."; the lines between
        # belong to the text above them.
        missing_keys += re.split(r"\n(?=no API key)", text)
    return problems, missing_keys


def refuse_unready(cells: Sequence[CheckedCell]) -> None:
    """Check that every cell can run. The error lists the problems of all cells.

    Raises:
        ConfigError: the configuration of a cell is wrong.
        PrerequisiteError: a prerequisite of a cell is missing.
    """
    refuse_wrong_configs(cells)
    missing = missing_prerequisites(cells)
    if missing:
        raise PrerequisiteError("\n".join([*missing, "nothing was asked"]))


def missing_prerequisites(cells: Sequence[CheckedCell]) -> list[str]:
    """Return each missing prerequisite once, with the names of the cells that need it."""
    missing: list[tuple[Cell, str]] = []
    for checked in cells:
        missing += [(checked.cell, text) for text in checked.missing]
    return lines_with_cell_names(cells, missing)


def refuse_wrong_configs(cells: Sequence[CheckedCell]) -> None:
    """Check the configurations of all cells.

    Raises:
        ConfigError: a configuration is wrong; the error lists the problems of all cells.
    """
    problems: list[tuple[Cell, str]] = []
    for checked in cells:
        problems += [(checked.cell, text) for text in checked.problems]
    if problems:
        raise ConfigError(lines_with_cell_names(cells, problems))


def lines_with_cell_names(
    cells: Sequence[CheckedCell], texts: Iterable[tuple[Cell, str]]
) -> list[str]:
    """Return each text once, preceded by the names of the cells to which the text applies."""
    cells_by_text: dict[str, list[Cell]] = {}
    for cell, text in texts:
        cells_by_text.setdefault(text, []).append(cell)
    all_cells = [checked_cell.cell for checked_cell in cells]
    lines = []
    for text, cells_of_text in cells_by_text.items():
        lines.append(f"{named_cells(cells_of_text, all_cells)}: {text}")
    return lines


def named_cells(chosen_cells: Sequence[Cell], all_cells: Sequence[Cell]) -> str:
    """Return a short text that names the chosen cells.

    The text is "every cell", "every cell of" some targets or evaluations, or the names of some
    cells. It contains at most `_MAX_NAMES` names.
    """
    chosen_names = {cell.name for cell in chosen_cells}
    if len(all_cells) > 1 and chosen_names == {cell.name for cell in all_cells}:
        return "every cell"
    for kind in ("evaluation", "target"):
        values = list(dict.fromkeys(getattr(cell, kind) for cell in chosen_cells))
        all_with_values = set()
        for cell in all_cells:
            if getattr(cell, kind) in values:
                all_with_values.add(cell.name)
        # If each value has only one of the chosen cells, the names of the cells are clearer.
        has_fewer_values = len(values) < len(chosen_cells)
        if all_with_values == chosen_names and has_fewer_values:
            return f"every cell of {first_of(values, _MAX_NAMES)}"
    return first_of([cell.name for cell in chosen_cells], _MAX_NAMES)


@dataclass(frozen=True)
class PlannedCell:
    """A cell that can run.

    Attributes:
        number: the position of the cell in the suite, from 0.
        cell: the cell.
        plan: the plan of the cell.
        group: the name of the limit group: the targets that share limits with the cell's target.
    """

    number: int
    cell: Cell
    plan: Plan
    group: str


def plan_cells(suite: Suite, env: Mapping[str, str]) -> tuple[PlannedCell, ...]:
    """Check and plan all cells.

    Raises:
        ConfigError: the configuration of a cell is wrong, or the suite limits its cost and the
            price of a model is unknown.
        PrerequisiteError: a prerequisite of a cell is missing.
    """
    cells = checked_cells(suite, env)
    refuse_unready(cells)
    refuse_unknown_prices(suite, cells)
    return planned_cells_of(suite, cells)


def planned_cells_of(suite: Suite, cells: Iterable[CheckedCell]) -> tuple[PlannedCell, ...]:
    """Return the cells that have a plan, each with its limit group."""
    planned = []
    for number, checked in enumerate(cells):
        if checked.plan is not None:
            group = suite.limit_groups[checked.cell.target]
            planned.append(PlannedCell(number, checked.cell, checked.plan, group))
    return tuple(planned)


def refuse_unknown_prices(suite: Suite, cells: Iterable[CheckedCell]) -> None:
    """Raise ConfigError if the suite limits its cost and the price of a model is unknown."""
    if suite.budget.max_cost is None:
        return
    unknown: dict[str, str] = {}
    for checked_cell in cells:
        if checked_cell.plan is not None:
            models = {endpoint.role: endpoint.model_id for endpoint in checked_cell.plan.endpoints}
            for role, reason in prices_of(checked_cell.plan).unknown.items():
                unknown[models[role]] = reason
    if unknown:
        problems = []
        for model, reason in unknown.items():
            remedy = how_to_state_price(model, path="suite.prices")
            problems.append(f"suite: max_cost cannot be enforced: {reason}\n  {remedy}")
        raise ConfigError(problems)


def limits_of(
    runs: Iterable[tuple[Sequence[EndpointSettings], str | None]],
) -> tuple[dict[str, EndpointLimits], list[dict[str, str]]]:
    """Return the limits by name, and for each run a dict from each role to the name of its limits.

    If an endpoint has several servers, the dict of the run also has a key `ROLE at server NUMBER`
    for each server. The value is the name of the server's limits.

    The models of two runs share limits if their limit group is the same. Without limit groups, they
    share limits if their URLs are the same. Judges of two runs share limits if model and URLs are
    the same. If runs state different numbers, the smallest number is the limit.

    Args:
        runs: for each run, its endpoints, and the name of its model's limit group. None instead of
            the name: the URLs serve as the name.
    """
    limits: dict[str, EndpointLimits] = {}
    names_of_runs = []
    for endpoints, model_group in runs:
        names: dict[str, str] = {}
        for endpoint in endpoints:
            for named in _limits_of_endpoint(endpoint, model_group):
                names[named.role] = named.name
                if named.name in limits:
                    limits[named.name] = _smaller(limits[named.name], named.limit)
                else:
                    limits[named.name] = named.limit
        names_of_runs.append(names)
    return limits, names_of_runs


class _NamedLimit(NamedTuple):
    """The limits of an endpoint or of one of its servers, with their names."""

    role: str  # the role of the endpoint; for one of several servers `ROLE at server NUMBER`
    name: str  # endpoints with the same name share the limits
    limit: EndpointLimits


def _limits_of_endpoint(endpoint: EndpointSettings, model_group: str | None) -> list[_NamedLimit]:
    """Return the limits of an endpoint.

    The first entry is the limit of all servers of the endpoint together. If the endpoint has
    several servers, an entry for each server follows. `parallelism` applies to all servers
    together; the numbers of requests and tokens a minute apply to each server.
    """
    servers = []
    for url in endpoint.urls:
        server = base_of(url)
        if endpoint.role != MODEL_ROLE:
            server = f"judge {endpoint.model_id} at {server}"
        servers.append(server)
    group = ", ".join(sorted(servers))
    if endpoint.role == MODEL_ROLE and model_group:
        group = model_group
    limit = endpoint.limit
    # The first name is that of all servers together. Further names exist only with several servers.
    role_of_all, *role_of_each = limit_names(endpoint.role, len(servers))
    if not role_of_each:
        return [_NamedLimit(role_of_all, group, limit)]
    limit_of_all = replace(limit, requests_per_minute=None, tokens_per_minute=None)
    limits = [_NamedLimit(role_of_all, group, limit_of_all)]
    for role, server in zip(role_of_each, servers, strict=True):
        limits.append(_NamedLimit(role, server, limit))
    return limits


def _smaller(first: EndpointLimits, second: EndpointLimits) -> EndpointLimits:
    """Return a limit with the smaller value of each number.

    A number that only one of the two limits states is used. A number that neither states is None.
    """
    smaller: dict[str, Any] = {}
    for name in vars(first):
        stated = []
        for limit in (first, second):
            number = getattr(limit, name)
            if number is not None:
                stated.append(number)
        smaller[name] = min(stated, default=None)
    return EndpointLimits(**smaller)
