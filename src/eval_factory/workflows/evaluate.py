"""The program as a visible list of steps; the only module that imports every stage."""

from __future__ import annotations

import gc
import importlib
import json
import logging
import os
import shlex
import threading
import time
import uuid
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.config.rules import data_faults
from eval_factory.core import events as event_names
from eval_factory.core.errors import ConfigError, HelmError, InterruptedRunError, NotReportableError, PrerequisiteError
from eval_factory.core.foreign_text import own_lines, printable
from eval_factory.core.logs import open_log
from eval_factory.core.rundir import Lock
from eval_factory.core.secrets import Redactor
from eval_factory.core.signals import not_to_be_hung_up
from eval_factory.executors.open_files import make_room
from eval_factory.helm.command import command_line
from eval_factory.helm.packages import look_for_packages
from eval_factory.plan.credentials import credentials_report
from eval_factory.plan.run_plan import EndpointPlan, Plan, make_plan
from eval_factory.tasks.framework import framework_path, load_framework
from eval_factory.workflows.dry_run import preview
from eval_factory.workflows.failures import ended_before_it_ran, explained
from eval_factory.workflows.prepare import claim, prepare

if TYPE_CHECKING:  # their modules take time to import
    from eval_factory.data.place import BundleInUse
    from eval_factory.executors.local import LocalRun
    from eval_factory.workflows.resume import DataRead

NEEDED_TO_REPORT = ("scipy.stats", "jsonschema", "eval_factory.scoring.collect", "eval_factory.report.write")


@dataclass(frozen=True)
class Options:
    """How to run, beside what to run."""

    dry_run: bool = False
    fresh: bool = False
    debug: bool = False
    no_preflight: bool = False


def run_evaluation(
    request: Request, options: Options, *, env: Mapping[str, str], screen: TextIO, output: TextIO
) -> None:
    """Do it all.

    Raises:
        EvalFactoryError: with the exit code of what went wrong.
    """
    evaluation = build_evaluation(request, load_framework(), env)
    plan = make_plan(evaluation)
    argv = command_line(plan, debug=options.debug)
    redactor = Redactor.from_environment(env, evaluation.key_names())
    warnings = [f"warning: {text}" for text in evaluation.warnings]
    screen.writelines(f"{line}\n" for line in warnings)
    wrong = data_faults(evaluation.task, evaluation.run.config.params.extra)
    if options.dry_run:
        output.write(own_lines(redactor.text(preview(evaluation, argv))))
        output.flush()
        screen.writelines(f"warning: a run would stop: {line}\n" for line in wrong[:1])
        screen.writelines(f"  {line}\n" for line in wrong[1:])
        return
    if wrong:
        raise PrerequisiteError("\n  ".join(wrong))
    look_for_packages(plan.task_name, evaluation.task.helm.run_spec)
    bundle = data_of(plan, env)
    keys = credentials_report(plan, env)
    env = {**env, **keys.found}
    for key in keys.found.values():
        redactor.learn(key)
    claim(plan.rundir, fresh=options.fresh)
    with plan.rundir.locked(lambda text: _tell(screen, text)) as lock:
        log = open_log(plan.rundir, redactor, debug=options.debug, beginning=[*warnings, *keys.lines])
        for warning in keys.warnings:
            screen.write(f"warning: {warning}\n")
        settings = settings_of(plan, bundle, env)
        read = data_read(plan, bundle, own_data(plan, log, screen), env)
        prepare(plan, argv, read, settings, redactor, log, screen, fresh=options.fresh, debug=options.debug)
        ran = finished_before(plan, read, log, screen) if not options.fresh else None
        if ran is None:
            make_room(plan.model.parallelism * len(plan.endpoints))
            if not options.no_preflight:
                settings |= preflight(plan, env, redactor, log, screen)
            place_data(plan, bundle, env, log)
            ran = run_helm(plan, argv, lock=lock, env=env, settings=settings, redactor=redactor, screen=screen, log=log)
        with not_to_be_hung_up():
            report(plan, argv, ran, read, redactor=redactor, output=output, log=log)


def _tell(screen: TextIO, text: str) -> None:
    screen.write(f"{text}\n")


@dataclass(frozen=True)
class Ran:
    """A helm-run that came to its end: now, or in an earlier run of the same identity."""

    runs: list[Path]
    run_id: str
    wall_s: float


def own_data(plan: Plan, log: logging.Logger, screen: TextIO) -> dict[str, str]:
    """The user's own files that the run reads, by their hashes."""
    from eval_factory.data.fingerprint import look_at_own_data

    def say(text: str) -> None:
        log.info(text)
        screen.write(f"{text}\n")

    return look_at_own_data(plan, say)


def data_of(plan: Plan, env: Mapping[str, str]) -> BundleInUse | None:
    """The data bundle of the run, looked through; None where none is used.

    Raises:
        ConfigError: the output folder is in it.
        PrerequisiteError: what the run will read is not there.
    """
    extra = plan.evaluation.run.config.params.extra
    if extra.data_dir is None and not extra.offline:
        return None
    from eval_factory.data.bundle import refuse_inside
    from eval_factory.data.place import check_data

    found = check_data(plan, env)
    if found is not None:
        refuse_inside(found.root, plan.rundir.root, "an output folder")
    return found


def data_read(plan: Plan, bundle: BundleInUse | None, own: Mapping[str, str], env: Mapping[str, str]) -> DataRead:
    """By what the data of this run are known again; of the bundle as it is now, whatever becomes of it.

    Args:
        own: name of a file of the user's own -> SHA-256.
    """
    from eval_factory.workflows.resume import DataRead

    extra = plan.evaluation.run.config.params.extra
    if extra.data_dir is None and not extra.offline:
        return DataRead(own=own)
    from eval_factory.data.place import takes_all_files

    return DataRead(bundle.record() if bundle else None, own, takes_all_files(plan, env))


def settings_of(plan: Plan, bundle: BundleInUse | None, env: Mapping[str, str]) -> dict[str, str]:
    """The variables that helm-run is to see on top of the user's own: where data are, what may be contacted."""
    from eval_factory.data.pins import variables_of_pins

    offline = plan.evaluation.run.config.params.extra.offline
    settings = variables_of_pins(plan)
    if bundle is None and not offline:
        return settings
    from eval_factory.data.network import variables_for
    from eval_factory.data.place import HF_OFFLINE, takes_all_files, variables_of
    from eval_factory.helm_plugin.mtsamples_listing import ALL_FILES_VARIABLE

    if bundle is not None:
        settings |= variables_of(bundle, plan)
    if offline:
        settings |= {**HF_OFFLINE, **variables_for(plan, env)}
    all_files = takes_all_files(plan, env)
    if all_files is not None:
        settings[ALL_FILES_VARIABLE] = "1" if all_files else "0"
    return settings


def place_data(plan: Plan, bundle: BundleInUse | None, env: Mapping[str, str], log: logging.Logger) -> None:
    """Put a bundle's files where helm-run looks."""
    if bundle is not None:
        from eval_factory.data.place import place

        place(bundle, plan)
        log.info("data bundle %s (manifest %s)", bundle.root, bundle.sha256)
    if plan.evaluation.run.config.params.extra.offline:
        from eval_factory.data.network import urls_of

        log.info("offline: only %s may be contacted", ", ".join(urls_of(plan, env)) or "nothing")


def finished_before(plan: Plan, read: DataRead, log: logging.Logger, screen: TextIO) -> Ran | None:
    """The complete run that this folder already holds, if it is the same."""
    from eval_factory.workflows.resume import finished_run, read_state

    state = read_state(plan.rundir)
    folders = finished_run(plan, state, read)
    if state is None or folders is None:
        return None
    log.info("this run is complete already: only collected again")
    screen.write("this run is complete already: collecting its results again (--fresh starts over)\n")
    return Ran(folders, state.run_id, state.wall_s)


def preflight(
    plan: Plan, env: Mapping[str, str], redactor: Redactor, log: logging.Logger, screen: TextIO
) -> dict[str, str]:
    """One cheap question to each endpoint. Returns the variables that tell helm-run who answered.

    Raises:
        PrerequisiteError: one of them cannot be asked at all.
    """
    return probe_all(plan.endpoints, env, redactor, log, screen)


def probe_all(
    endpoints: Collection[EndpointPlan], env: Mapping[str, str], redactor: Redactor, log: logging.Logger, screen: TextIO
) -> dict[str, str]:
    """The same of endpoints without a run config."""
    from eval_factory.plan.preflight import probe

    odd_roles = set()
    for endpoint in endpoints:
        if endpoint.url.startswith("demo:"):
            continue
        try:
            odd = probe(endpoint, env, redactor, log.info)
        except PrerequisiteError as error:
            log.error(str(error))
            raise
        if odd:
            log.warning(odd)
            screen.write(f"warning: {odd}\n")
            odd_roles.add(endpoint.role)  # a leaderboard may have several models
    answered = {endpoint.role for endpoint in endpoints} - odd_roles
    return {event_names.PROBED_VARIABLE: json.dumps(sorted(answered))}


def run_helm(
    plan: Plan,
    argv: Sequence[str],
    *,
    lock: Lock,
    env: Mapping[str, str],
    settings: Mapping[str, str],
    redactor: Redactor,
    screen: TextIO,
    log: logging.Logger,
) -> Ran:
    """Run helm-run to its end; `settings` are variables on top of what it may see of `env`.

    Raises:
        PrerequisiteError, HelmError, InterruptedRunError
    """
    from eval_factory.endpoint.sign_in import kept_token
    from eval_factory.executors.environment import child_environment
    from eval_factory.executors.local import run_locally

    plan.rundir.run_state.unlink(missing_ok=True)
    if plan.evaluation.run.config.params.extra.allow_code_execution:
        from eval_factory.core.kernel_sandbox import keep_memory_private

        keep_memory_private()  # what is executed is confined; where it cannot be, this process has keys too
    run_id = uuid.uuid4().hex
    ours = {**settings, event_names.RUN_ID_VARIABLE: run_id, event_names.PARENT_VARIABLE: str(os.getpid())}
    if plan.evaluation.run.config.params.extra.offline:
        from eval_factory.helm_plugin.network_guard import PROXY_VARIABLES

        env = {name: value for name, value in env.items() if name not in PROXY_VARIABLES}
    child_env = child_environment(env, [*plan.evaluation.key_names(), *plan.evaluation.setting_names()], ours)
    try:
        run = run_locally(
            argv,
            env=child_env,
            rundir=plan.rundir,
            lock=lock,
            run_id=run_id,
            redactor=redactor,
            screen=screen,
            on_event=_import_ahead,
        )
    except KeyboardInterrupt:
        log.info("interrupted")
        raise InterruptedRunError(
            f"interrupted; what was answered is kept in {plan.rundir.cache_db}\n  run the same command again to go on"
        ) from None
    for service in plan.evaluation.oauth_services():  # helm-run may have had new ones
        redactor.learn(kept_token(service) or "")
    log.info("helm-run ended with %d after %.1f s", run.finished.returncode, run.wall_s)
    _raise_for_failure(plan, run, run_id, log)
    for place in _blocked(run.events):
        log.warning("offline: something wanted %s; it was not contacted", place)
        screen.write(f"warning: offline: something wanted {place}; it was not contacted\n")
    folders = [plan.rundir.helm / event["path"] for event in run.events if event["event"] == event_names.RUN_DONE]
    if not folders:
        raise HelmError(f"helm-run ended without a run; its log: {plan.rundir.helm_log}")
    return Ran(folders, run_id, run.wall_s)


def _import_ahead(event: Mapping[str, Any]) -> None:
    """While HELM computes its metrics, import what the report needs: this process has nothing else to do."""
    if event["event"] == event_names.PHASE and event["phase"] == event_names.SCORING:
        threading.Thread(target=lambda: [importlib.import_module(name) for name in NEEDED_TO_REPORT]).start()


def raise_if_stopped(events: Sequence[Mapping[str, Any]], last_words: str | None, log: logging.Logger) -> None:
    """Raise PrerequisiteError where the engine stopped helm-run: a wrong key, an unknown model, nobody there.

    Args:
        last_words: what helm-run said at its end, for where a full disk kept the event from being written.
    """
    for event in events:
        if event["event"] == event_names.FATAL:
            message = event["message"] + _refused_here(event["message"], _blocked(events))
            log.error(message)
            raise PrerequisiteError(message)
        if event["event"] == event_names.REFUSED:
            log.error(event["message"])
            raise ConfigError(f"config.type: {event['message']}")
    if last_words is not None:
        raise PrerequisiteError(last_words)


def _raise_for_failure(plan: Plan, run: LocalRun, run_id: str, log: logging.Logger) -> None:
    events, returncode, tail = run.events, run.finished.returncode, run.finished.tail
    raise_if_stopped(events, event_names.heard_last(returncode, tail, run_id), log)
    if blocked := _blocked(events):
        failed = next((event["error"] for event in events if event["event"] == event_names.RUN_FAILED), None)
        if failed is not None and not any(event.get("stopped") for event in events):
            log.error(failed)
            raise PrerequisiteError(_wanted_elsewhere(plan, blocked, failed))
    phase = ""
    for event in events:
        if event["event"] == event_names.PHASE:
            phase = event["phase"]
        elif event["event"] == event_names.RUN_FAILED:
            log.error(event["error"])
            raise explained(plan, event["error"], phase)
    if returncode != 0:
        raise ended_before_it_ran(plan, returncode, tail)


def _refused_here(message: str, blocked: Sequence[str]) -> str:
    """Where the guard, and no network, kept the endpoint that a message names from being reached."""
    places = [place for place in blocked if (place.rpartition(":")[0] or place) in message]
    if not places:
        return ""
    return f"\n  offline: it was eval-factory that refused {', '.join(places)}, which is no host of an endpoint"


def _blocked(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Hosts that an offline run wanted and did not get."""
    return list(dict.fromkeys(printable(event["place"]) for event in events if event["event"] == event_names.BLOCKED))


def _wanted_elsewhere(plan: Plan, blocked: Sequence[str], error: str) -> str:
    from eval_factory.data.place import how_to_get

    return (
        f"offline: {plan.task_name} wanted {', '.join(blocked)}, no host of an endpoint; it was not contacted\n"
        f"  ({error})\n"
        f"{how_to_get(plan, '--to DIR, then run with --data_dir DIR')}; log: {plan.rundir.helm_log}"
    )


def report(
    plan: Plan,
    argv: Sequence[str],
    ran: Ran,
    read: DataRead,
    *,
    redactor: Redactor,
    output: TextIO,
    log: logging.Logger,
) -> None:
    """Collect, write every report, show the summary.

    Raises:
        NotReportableError: all is written, but too few instances have a score.
    """
    from eval_factory.executors.process import git_hash
    from eval_factory.helm_plugin.patches.fast_startup import GARBAGE_THRESHOLD
    from eval_factory.report.screen import summary
    from eval_factory.report.write import write_reports
    from eval_factory.scoring.collect import collect
    from eval_factory.workflows.resume import remember

    gc.set_threshold(GARBAGE_THRESHOLD, 20, 20)  # the records of a run live to its end
    started = time.monotonic()
    home = framework_path().parent
    commit = git_hash(home) if home != Path(__file__).parent else None  # a wheel may lie in anybody's checkout
    result = collect(plan, ran.runs, run_id=ran.run_id, wall_s=ran.wall_s, git_hash=commit, data_bundle=read.bundle)
    command = shlex.join(argv)
    write_reports(result, plan.rundir, config=plan.evaluation.as_dict(), command=command, redactor=redactor)
    complete = not result.something_to_ask
    remember(plan, ran.runs, run_id=ran.run_id, wall_s=ran.wall_s, complete=complete, read=read)
    log.info("collected in %.1f s; reportable: %s", time.monotonic() - started, result.reportable)
    output.write(own_lines(redactor.text(summary(result, plan.rundir))) + "\n")
    if not result.reportable:
        minimum = plan.evaluation.run.config.params.extra.min_coverage
        if result.main_metric not in result.scores and not result.something_to_ask:
            raise NotReportableError("NOT REPORTABLE: HELM computed no main metric; validity.notes say why")
        raise NotReportableError(
            f"NOT REPORTABLE: coverage {result.validity.instances.coverage:.4f}, min_coverage is {minimum:g}\n"
            + (
                "  run the same command again to ask for what is missing"
                if result.something_to_ask
                else "  nothing is left to ask for: validity.notes say why; extra.min_coverage accepts less"
            )
        )
