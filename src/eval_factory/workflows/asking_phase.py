"""Runs the part of an evaluation in which helm-run asks the model and the judges.

Without `stop_when`, helm-run runs once. With `stop_when`, helm-run runs several times, each time
with more instances, until the rule holds or all instances are asked. Each of these helm-runs is
called a look. Requests are sent one by one or in batches.
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

MIN_WALL_S = 0.01
"""The time limit of a look after the total time is used up, in seconds. Not 0: a limit of time is
above 0.
"""


class AskingPhase:
    """Runs the helm-runs of one command, with settings that change from one look to the next."""

    def __init__(
        self, context: RunContext, plan: Plan, settings: HelmRunSettings, options: Options
    ) -> None:
        self._context = context
        self._plan = plan
        self._options = options
        # Only None means that the endpoints are still to be probed. An empty set means that no
        # endpoint is probed, and that none counts as answering.
        probed = options.probed
        if options.no_preflight:
            probed = frozenset()
        self._settings = replace(settings, probed=probed)
        self._batches = batches_of(context, plan, options.batch_choice, settings.budget)

    def ask(self, argv: list[str], data: DataRead) -> tuple[FinishedRun, list[str]]:
        """Ask all questions, in several looks if the configuration has a stopping rule.

        Args:
            argv: The command line of helm-run, used if helm-run runs once.
            data: The facts about the data, which the results of the looks record.

        Returns:
            The last helm-run and its command line.
        """
        if self._batches is not None:
            self._batches.begin()
        stop = self._plan.evaluation.stop_when
        if stop is None:
            return self.run_once(argv), argv
        return ask_in_looks(
            self._context, self._plan, stop, data, self.run_once, debug=self._options.debug
        )

    def run_once(self, argv: Sequence[str]) -> FinishedRun:
        """Run helm-run with this command line until it ends.

        Raises:
            NotReportableError, ConfigError, PrerequisiteError, HelmError: As `run_helm`,
                `probe_all` and `checked_run`.
            InterruptedRunError: As `run_helm`.
        """

        def run(settings: HelmRunSettings) -> EndedHelmRun:
            return run_helm(
                self._context,
                self._plan.evaluation,
                argv,
                settings,
                on_started=self._probe_while_helm_is_imported,
                watch=self._options.watch,
            )

        if self._batches is None:
            ended = run(self._settings)
        else:
            ended = self._batches.run_helm(run, self._settings)
        self._spend_time(ended.wall_s)
        is_shared = self._options.limits is not None
        return checked_run(self._context, self._plan, ended, shares_limits=is_shared)

    def _probe_while_helm_is_imported(self) -> str:
        """Send a trial request to each endpoint while helm-run imports HELM.

        Only the first look of a command sends trial requests, and only if the settings do not
        already name the roles whose endpoints have answered. Returns these roles as a JSON list,
        which helm-run reads.
        """
        refuse_full_disk(self._plan.rundir.root)
        start_preparing_collection(self._plan)
        probed = self._settings.probed
        if probed is None:
            # If the model is not asked, its endpoint is not an endpoint of this plan.
            plan_of_asking = replace(self._plan, asks_model=self._options.asks_model)
            probed = probe_all(self._context, plan_of_asking.endpoints, self._options.limits)
        # From here on, helm-run changes the folder: its last run no longer counts as finished.
        self._plan.rundir.run_state.unlink(missing_ok=True)
        self._settings = replace(self._settings, probed=probed)
        return json.dumps(sorted(probed))

    def _spend_time(self, wall_s: float) -> None:
        """Subtract the seconds of a look from the time limit, which all looks share."""
        budget = self._settings.budget
        if budget.max_wall_s is not None:
            budget = replace(budget, max_wall_s=max(budget.max_wall_s - wall_s, MIN_WALL_S))
            self._settings = replace(self._settings, budget=budget)


def probe_all(
    context: RunContext,
    endpoints: Collection[EndpointSettings],
    limits: SharedLimitsSettings | None = None,
) -> frozenset[str]:
    """Send one cheap trial request to each endpoint, to all endpoints at the same time.

    Warnings about endpoints are written to the log and the screen.

    Args:
        context: The context of the run.
        endpoints: The endpoints to probe. A demo endpoint gets no request and counts as answering.
            An endpoint that makes pictures gets no request and does not count as answering.
        limits: The limits that the requests share with other runs of the same endpoints, or None.

    Returns:
        The roles whose endpoints answered without a warning.

    Raises:
        PrerequisiteError: An endpoint cannot be used at all.
    """
    # imported late: a run that is already finished sends no requests
    from eval_factory.endpoint.bridge import map_at_once
    from eval_factory.endpoint.shared_limits import SharedLimits
    from eval_factory.plan.preflight import probe

    real_endpoints = [endpoint for endpoint in endpoints if not endpoint.is_demo]
    shared_limits = nullcontext() if limits is None else SharedLimits(limits)
    with shared_limits as shared:

        def warning_of(endpoint: EndpointSettings) -> str | None:
            admission = None if shared is None else shared.admission(endpoint.role)
            return probe(
                endpoint, context.env, context.redactor, context.log.info, admission=admission
            )

        try:
            warnings = map_at_once(warning_of, real_endpoints, at_once=len(real_endpoints))
        except PrerequisiteError as error:
            context.log.error(str(error))
            raise
    unanswered = set()  # the roles whose endpoints did not answer, or answered with a warning
    for endpoint, warning in zip(real_endpoints, warnings, strict=True):
        if warning is not None:
            context.log.warning(warning)
            context.show_unlogged(f"warning: {warning}")
            unanswered.add(endpoint.role)
    # `probe` sends no request to an endpoint that makes pictures, because each picture costs money.
    unanswered |= {endpoint.role for endpoint in endpoints if endpoint.endpoint_type == IMAGES}
    return frozenset(endpoint.role for endpoint in endpoints) - unanswered


def checked_run(
    context: RunContext, plan: Plan, run: EndedHelmRun, *, shares_limits: bool = False
) -> FinishedRun:
    """Return the finished run with HELM's run folders, after checking that helm-run succeeded.

    Args:
        context: The context of the run; its screen shows the hosts that an offline run could not
            contact.
        plan: The plan of the run.
        run: The helm-run that has ended.
        shares_limits: True if the run shares limits with the other cells of a suite.

    Raises:
        NotReportableError, ConfigError, PrerequisiteError: As `raise_for_failure`.
        HelmError: As `raise_for_failure`, or helm-run wrote no run folder.
    """
    raise_for_failure(plan, run, context.log, shares_limits=shares_limits)
    for host in blocked_hosts(run.events):
        context.show_unlogged(
            f"warning: offline: the run tried to reach {host}; the host was not contacted"
        )
    folders = tuple(
        plan.rundir.helm / event["path"]
        for event in run.events
        if event["event"] == event_names.RUN_DONE
    )
    if not folders:
        raise HelmError(f"helm-run ended without a run; its log: {plan.rundir.helm_log}")
    return FinishedRun(folders, run.run_id, rounded(run.wall_s, DIGITS_OF_SECONDS))


_NUMPY_VARIABLES = ("OPENBLAS_MAIN_FREE", "GOTOBLAS_MAIN_FREE")
"""The environment variables that numpy sets while it is imported."""


def start_preparing_collection(plan: Plan) -> threading.Thread:
    """Start and return a thread that prepares the collection of the result."""
    # numpy sets these variables at the beginning of its import, and deletes them at the end. A
    # thread that reads the environment at the same time, to find a proxy, would fail. numpy does
    # not change variables that are already set.
    for name in _NUMPY_VARIABLES:
        os.environ.setdefault(name, "1")
    # Not a daemon thread: Python could stop a daemon during an import and leave the import locked.
    thread = threading.Thread(target=prepare_collection, args=(plan,))
    thread.start()
    return thread


def prepare_collection(plan: Plan) -> None:
    """Import the modules, compile the templates and list the packages that a collection needs.

    This preparation happens while helm-run is running, so that the user does not have to wait
    afterwards.
    """
    import jsonschema  # noqa: F401
    import numpy  # noqa: F401

    from eval_factory.report import write  # noqa: F401
    from eval_factory.report.page import document
    from eval_factory.scoring import collect, provenance  # noqa: F401

    document.compile_templates()
    provenance.installed_packages(environment_of_plan(plan))  # the function caches its list
