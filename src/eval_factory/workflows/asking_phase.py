"""The part of a run in which helm-run asks the model.

Without `stop_when` helm-run runs once. With it helm-run runs several times, each time with more
instances, until the rule holds; each of these is called a look. Requests go one by one or by batch.
"""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Collection, Sequence
from contextlib import nullcontext
from dataclasses import replace

from eval_factory.core import logs as event_names
from eval_factory.core.errors import HelmError, PrerequisiteError
from eval_factory.core.formats import rounded
from eval_factory.core.helm_run_settings import HelmRunSettings, SharedLimitsSettings
from eval_factory.core.safe_files import refuse_full_disk
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.openai_api import IMAGES
from eval_factory.helm.environments import environment_of_plan
from eval_factory.plan.run_plan import Plan
from eval_factory.report.documents import DIGITS_OF_SECONDS
from eval_factory.workflows.batches import batches_of
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.helm_run import (
    EndedHelmRun,
    FinishedRun,
    blocked_hosts,
    raise_for_failure,
    run_helm,
)
from eval_factory.workflows.options import Options
from eval_factory.workflows.resume import DataRead
from eval_factory.workflows.stop_when import ask_in_looks

MIN_WALL_S = 0.01  # seconds that a look is given when the invocation has used up its time


class AskingPhase:
    """helm-run's work for one invocation, with settings that change from one look to the next."""

    def __init__(
        self, context: RunContext, plan: Plan, settings: HelmRunSettings, options: Options
    ) -> None:
        self._context = context
        self._plan = plan
        self._options = options
        probed = options.probed
        if options.no_preflight:
            probed = frozenset()
        self._settings = replace(settings, probed=probed)
        self._batches = batches_of(context, plan, options.batch_choice, settings.budget)

    def ask(self, argv: Sequence[str], read: DataRead) -> tuple[FinishedRun, Sequence[str]]:
        """Ask everything, in several looks if the configuration says so.

        Args:
            argv: the arguments of helm-run, if it runs once.
            read: the hashes of the data, which the results of looks hold.

        Returns:
            The last look (the one helm-run, if it runs once), and the arguments of its helm-run.
        """
        if self._batches is not None:
            self._batches.begin()
        stop = self._plan.evaluation.stop_when
        if stop is None:
            return self.run_once(argv), argv
        return ask_in_looks(
            self._context, self._plan, stop, read, self.run_once, debug=self._options.debug
        )

    def run_once(self, argv: Sequence[str]) -> FinishedRun:
        """Run helm-run with these arguments to its end."""

        def run(settings: HelmRunSettings) -> EndedHelmRun:
            return run_helm(
                self._context,
                self._plan.evaluation,
                argv,
                settings,
                self._while_helm_is_imported,
                self._options.watch,
            )

        if self._batches is None:
            ended = run(self._settings)
        else:
            ended = self._batches.run_helm(run, self._settings)
        self._spend_time(ended.wall_s)
        is_shared = self._options.limits is not None
        return checked_runs(self._context, self._plan, ended, shared=is_shared)

    def _while_helm_is_imported(self) -> str:
        """Probe the endpoints. Returns the roles of those that answered, as JSON."""
        refuse_full_disk(self._plan.rundir.root)
        start_preparing_collection(self._plan)
        probed = self._settings.probed
        if probed is None:  # the first look probes, if nobody did before
            plan_of_asking = replace(self._plan, asks_model=self._options.asks_model)
            probed = probe_all(self._context, plan_of_asking.endpoints, self._options.limits)
        self._plan.rundir.run_state.unlink(missing_ok=True)
        self._settings = replace(self._settings, probed=probed)
        return json.dumps(sorted(probed))

    def _spend_time(self, wall_s: float) -> None:
        """Take a look's seconds off the limit of time, which is one for all looks together."""
        budget = self._settings.budget
        if budget.max_wall_s is not None:
            budget = replace(budget, max_wall_s=max(budget.max_wall_s - wall_s, MIN_WALL_S))
            self._settings = replace(self._settings, budget=budget)


def probe_all(
    context: RunContext,
    endpoints: Collection[EndpointSettings],
    limits: SharedLimitsSettings | None = None,
) -> frozenset[str]:
    """Ask each endpoint one cheap question, all at the same time.

    Args:
        context: of the run.
        endpoints: those to ask; a demo is not asked, and counts as one that answered.
        limits: the limits that these questions share with other runs, if any ask the same
            endpoints.

    Returns:
        The roles whose endpoints answered.

    Raises:
        PrerequisiteError: one of them cannot be asked at all.
    """
    # imported here, because a run that is finished already asks nobody
    from eval_factory.endpoint.bridge import map_at_once
    from eval_factory.endpoint.shared_limits import SharedLimits
    from eval_factory.plan.preflight import probe

    real_endpoints = [endpoint for endpoint in endpoints if not endpoint.is_demo]
    with nullcontext() if limits is None else SharedLimits(limits) as shared:

        def warning_of(endpoint: EndpointSettings) -> str | None:
            admission = None if shared is None else shared.admission(endpoint.role)
            return probe(endpoint, context.env, context.redactor, context.log.info, admission)

        try:
            warnings = map_at_once(warning_of, real_endpoints, len(real_endpoints))
        except PrerequisiteError as error:
            context.log.error(str(error))
            raise
    for warning in filter(None, warnings):
        context.log.warning(warning)
        context.show(f"warning: {warning}")
    silent = {
        endpoint.role for endpoint, warning in zip(real_endpoints, warnings, strict=True) if warning
    }
    # `probe` asks no endpoint that makes pictures, as each picture is paid for
    silent |= {endpoint.role for endpoint in endpoints if endpoint.endpoint_type == IMAGES}
    return frozenset(endpoint.role for endpoint in endpoints) - silent


def checked_runs(
    context: RunContext, plan: Plan, run: EndedHelmRun, *, shared: bool = False
) -> FinishedRun:
    """Return what helm-run made, after checking that it did what it was to do.

    Args:
        context: shows which hosts were not contacted, when the run was offline.
        plan: of the run.
        run: the helm-run that has ended.
        shared: whether it ran within the limits of a suite.

    Raises:
        NotReportableError, ConfigError, PrerequisiteError: as `raise_for_failure` does.
        HelmError: as `raise_for_failure` does; or helm-run ended without a run.
    """
    raise_for_failure(plan, run, context.log, shared=shared)
    for host in blocked_hosts(run.events):
        context.show(f"warning: offline: something wanted {host}; it was not contacted")
    folders = tuple(
        plan.rundir.helm / event["path"]
        for event in run.events
        if event["event"] == event_names.RUN_DONE
    )
    if not folders:
        raise HelmError(f"helm-run ended without a run; its log: {plan.rundir.helm_log}")
    return FinishedRun(folders, run.run_id, rounded(run.wall_s, DIGITS_OF_SECONDS))


_SET_BY_NUMPY = ("OPENBLAS_MAIN_FREE", "GOTOBLAS_MAIN_FREE")


def start_preparing_collection(plan: Plan) -> threading.Thread:
    """Get ready to collect in another thread, which is returned."""
    # numpy sets these while it is imported, and deletes those that it set: another thread that
    # reads the environment meanwhile, for the name of a proxy, would fail
    for name in _SET_BY_NUMPY:
        os.environ.setdefault(name, "1")
    # it is no daemon: one that ends with the program could leave a module's import locked
    thread = threading.Thread(target=prepare_collection, args=(plan,))
    thread.start()
    return thread


def prepare_collection(plan: Plan) -> None:
    """Import and compile what collecting the result needs, while helm-run is at work: the user does
    not wait for it afterwards.
    """
    import jsonschema  # noqa: F401
    import numpy  # noqa: F401

    from eval_factory.report import write  # noqa: F401
    from eval_factory.report.page import document
    from eval_factory.scoring import collect, provenance  # noqa: F401

    document.compile_templates()
    provenance.installed_packages(environment_of_plan(plan))
