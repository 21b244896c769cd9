"""Runs helm-run and helm-summarize, and turns their failures into errors that explain the cause."""

from __future__ import annotations

import logging
import math
import os
import re
import shlex
import sqlite3
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_factory.config.resolved import Evaluation
from eval_factory.core import formats
from eval_factory.core import logs as event_names
from eval_factory.core.budget import MAX_COST, MAX_WALL, Budget, Spending
from eval_factory.core.errors import (
    ConfigError,
    EndpointRefusedError,
    EndpointUnreachableError,
    EvalFactoryError,
    HelmError,
    InterruptedRunError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.foreign_text import printable
from eval_factory.core.helm_run_settings import PROXY_VARIABLES, HelmRunSettings
from eval_factory.core.results import MODEL_ROLE
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.endpoint.response_cache import note_interrupted
from eval_factory.executors.process import ProcessSpec, child_environment, run_logged, run_shown
from eval_factory.helm.environments import (
    environment_of_plan,
    missing_modules_message,
    module_named_in,
)
from eval_factory.plan.prices import budget_of, prices_of
from eval_factory.plan.run_plan import Plan, oauth_of
from eval_factory.workflows.context import RunContext

SUMMARIZE_TRIES = 2  # the number of times that helm-summarize is started before it counts as failed

DATA_ERRORS = frozenset(
    {
        "URLError",
        "HTTPError",
        "ConnectionError",
        "ConnectTimeout",
        "OfflineModeIsEnabled",
        "DatasetNotFoundError",
        "FileNotFoundError",
        "LocalEntryNotFoundError",
        "gaierror",
        "NotADirectoryError",
        "TimeoutError",
        "RemoteDisconnected",
        "ReadTimeout",
        "SSLError",
        "ProxyError",
        "MaxRetryError",
        "NewConnectionError",
        "NameResolutionError",
        "GatedRepoError",
        "RepositoryNotFoundError",
        "LocalTokenNotFoundError",
        "CalledProcessError",
        "DownloadError",
        "HfHubHTTPError",
        "ConnectError",
        "NoInstancesError",
        "DataInTheWayError",
    }
)
"""The names of errors that mean: a data file is missing or cannot be downloaded."""
MISSING_DATA_PHRASES = ("Couldn't find cache for", "NLTK Downloader")
"""Phrases in the messages of other errors that also mean missing data.

The package `datasets` writes the first phrase if it is offline and has cached only another
configuration. NLTK writes the second phrase.
"""

PACKAGE_ERRORS = frozenset({"ModuleNotFoundError", "ImportError", "OptionalDependencyNotInstalled"})
"""The names of errors that mean: a Python package is missing or cannot be imported."""
ARGUMENT_ERRORS = frozenset(
    {"ValueError", "KeyError", "AssertionError", "TypeError", "Exception", "IndexError"}
)
"""The names of errors that HELM's run spec functions raise if they do not accept an argument."""

# matches the beginning of a traceback's line that names the exception: "KeyError: 'subject'",
# "urllib.error.URLError: <urlopen error timed out>"
_EXCEPTION_LINE = re.compile(
    r"((?:\w+\.)*"
    r"(?:[A-Z]\w*(?:Error|NotInstalled|Enabled|Disconnected|Timeout)|\w*Exception))"
    r"(?:: |\Z)"
)


@dataclass(frozen=True)
class EndedHelmRun:
    """A helm-run that has ended, successfully or not."""

    run_id: str
    wall_s: float  # the wall time, in seconds
    returncode: int  # negative if a signal killed helm-run
    tail: tuple[str, ...]  # the last lines that helm-run printed, redacted
    events: tuple[Mapping[str, Any], ...]  # all events of the run except progress events


@dataclass(frozen=True)
class FinishedRun:
    """A helm-run that was completed, either now or by an earlier run with the same identity."""

    folders: tuple[Path, ...]  # HELM's run folders
    run_id: str
    # the wall time in seconds, rounded like the wall time in the result, with which it is compared
    wall_s: float


def run_helm(
    context: RunContext,
    evaluation: Evaluation,
    argv: Sequence[str],
    settings: HelmRunSettings,
    on_started: Callable[[], str | None] = lambda: None,
    watch: str | None = None,
) -> EndedHelmRun:
    """Run helm-run until it ends. If the settings have a `run_id`, helm-run resumes that run.

    Args:
        context: The locked output folder, the environment and the screen.
        evaluation: The evaluation, which names the variables that helm-run may see.
        argv: The command line of helm-run.
        settings: The settings that helm-run receives in its environment.
        on_started: Called when helm-run has started; helm-run reads the returned line.
        watch: "figures" to show the numbers of each answer, "texts" to show also its text, or None.

    Raises:
        PrerequisiteError: The program helm-run is missing.
        InterruptedRunError: The user pressed Ctrl-C.
    """
    run_id = settings.run_id or uuid.uuid4().hex
    settings = replace(settings, run_id=run_id, parent=os.getpid())
    spec = ProcessSpec(
        argv=argv,
        env=_environment_of_helm_run(context.env, evaluation, settings),
        rundir=context.rundir,
        lock=context.lock,
        run_id=run_id,
        redactor=context.redactor,
        on_started=on_started,
        watch=watch,
    )
    started = time.monotonic()
    try:
        finished, events = run_shown(spec, context.screen)
    except KeyboardInterrupt:
        context.log.info("interrupted")
        raise InterruptedRunError(
            f"interrupted; all answers so far are stored in {context.rundir.cache_db}\n"
            "  run the same command again to resume"
        ) from None
    finally:
        # If the disk is full, the next run records the requests that were interrupted.
        with suppress(sqlite3.Error):
            note_interrupted(context.rundir.cache_db)
    _learn_new_tokens(context, evaluation)
    ended = EndedHelmRun(
        run_id=run_id,
        wall_s=time.monotonic() - started,
        returncode=finished.returncode,
        tail=finished.tail,
        events=events,
    )
    context.log.info("helm-run ended with %d after %.1f s", ended.returncode, ended.wall_s)
    for host in blocked_hosts(events):
        context.log.warning("offline: the run tried to reach %s; the host was not contacted", host)
    return ended


def _environment_of_helm_run(
    env: Mapping[str, str], evaluation: Evaluation, settings: HelmRunSettings
) -> dict[str, str]:
    """Return the environment variables that helm-run gets."""
    # An offline run must not see the user's proxies: a proxy could forward requests to any host.
    hidden_names = PROXY_VARIABLES if settings.allowed is not None else frozenset()
    visible_env = {}
    for name, value in env.items():
        if name not in hidden_names:
            visible_env[name] = value
    return child_environment(
        visible_env,
        key_names=[*evaluation.key_variables(), *evaluation.setting_variables()],
        extra=settings.environment(),
    )


def _learn_new_tokens(context: RunContext, evaluation: Evaluation) -> None:
    """Let the redactor hide the OAuth tokens that helm-run may have received."""
    for service in evaluation.oauth_services():
        from eval_factory.endpoint.sign_in import cached_token

        token = cached_token(oauth_of(evaluation, service), context.env)
        if token is not None:
            context.redactor.learn(token)


def run_helm_summarize(context: RunContext, argv: Sequence[str], *, keeps_log: bool = True) -> None:
    """Run helm-summarize, and run it a second time if it fails.

    helm-summarize sometimes fails for a reason that has nothing to do with the runs: Python's
    compiler raises `AST constructor recursion depth mismatch` inside Mako.

    Args:
        context: The locked output folder and its environment.
        argv: The command line of helm-summarize.
        keeps_log: True if the log file still exists after the command, so that an error can name
            its path.

    Raises:
        HelmError: helm-summarize failed twice. The message has the last lines that it printed.
    """
    env = child_environment(context.env, key_names=(), extra={})
    log = context.rundir.summarize_log
    spec = ProcessSpec(
        argv=argv,
        env=env,
        rundir=context.rundir,
        lock=context.lock,
        run_id="",  # helm-summarize is not a run
        redactor=context.redactor,
    )
    for _ in range(SUMMARIZE_TRIES):
        context.log.info("%s", shlex.join(argv))
        finished = run_logged(spec, log=log, on_tick=lambda: None)
        if finished.returncode == 0:
            return
        context.log.warning("helm-summarize ended with %d", finished.returncode)
    log_line = ""
    if keeps_log:
        log_line = f"\n  log: {log}"
    raise HelmError(
        f"{program_end_text('helm-summarize', finished.returncode, finished.tail)}{log_line}"
    )


def limit_messages(
    limit: str, budget: Budget, spent: Spending, *, countable: bool, shares_limits: bool
) -> tuple[str, str]:
    """Return two messages: which limit stopped the run, and the user's next action.

    Args:
        limit: The name of the limit that was reached.
        budget: The limits of this run.
        spent: The requests, tokens and cost of all runs in this folder.
        countable: False if an answer came without the number that the limit counts.
        shares_limits: True if the run shares limits with the other cells of a suite. All cells
            together can reach a limit of the suite while each cell is still below its own limit.
    """
    limit_value = getattr(budget, limit)
    retry_hint = "run the same command again: only unanswered questions are asked"
    cost = ""
    if spent.cost or (limit == MAX_COST and countable):
        cost = f", {formats.money(spent.cost)}"
    sent = f"{spent.requests} requests, {spent.tokens} tokens{cost}"
    if not countable:
        unit = "cost" if limit == MAX_COST else "tokens"
        why = (
            f"{limit} ({limit_value:g}) cannot be enforced, "
            f"because an answer came without its {unit}"
        )
        return (
            f"{why}; sent so far: {sent}",
            f"remove {limit}, or set max_requests in its place, and {retry_hint}",
        )
    own_limit_is_reached = False
    if limit_value is not None:
        # `by_limit` gets an infinite wall time, because the wall time of this run is unknown here.
        # If the run has its own limit of the wall time, that limit therefore counts as reached.
        own_limit_is_reached = spent.by_limit(math.inf)[limit] >= limit_value
    is_suite_limit = shares_limits and not own_limit_is_reached
    if is_suite_limit:
        reached = f"{limit} of the suite is reached; sent so far by this cell: {sent}"
    else:
        shown_limit = ""
        if limit_value is not None:
            shown_limit = f" ({limit_value:g})"
        reached = f"{limit}{shown_limit} is reached; sent so far: {sent}"
    if limit == MAX_WALL:
        return reached, (
            f"run the same command again (raise {limit} first if the run cannot even start "
            "within it): only unanswered questions are asked"
        )
    limit_key = f"suite.{limit}" if is_suite_limit else limit
    return reached, f"raise {limit_key} and {retry_hint}"


def answered_lines(events: Sequence[Mapping[str, Any]], answered: Mapping[str, int]) -> list[str]:
    """Return lines that say how many instances and how many judge requests are answered.

    Args:
        events: The events of helm-run.
        answered: The number of answers, by role.
    """
    totals = {}  # a dict from each phase to the number of its requests
    for event in events:
        if event["event"] == event_names.PHASE and "total" in event:
            totals[event["phase"]] = event["total"]
    # The count is 0 if nothing was asked yet, or if the data already contain the answers.
    question_count = totals.get(event_names.ASKING, 0)
    asks_only_judges = not question_count and event_names.JUDGING in totals
    if asks_only_judges:
        lines = []
    else:
        lines = [f"{answered.get(MODEL_ROLE, 0)} of {question_count} instances are answered"]
    if event_names.JUDGING in totals:
        judges = []
        for role, count in sorted(answered.items()):
            if role != MODEL_ROLE:
                judges.append(f"{role} {count}")
        judge_requests = totals[event_names.JUDGING]
        lines.append(
            f"of {judge_requests} requests to judges are answered: {', '.join(judges) or 'none'}"
        )
    return lines


def explained_failure(plan: Plan, error: str, phase: str) -> EvalFactoryError:
    """Return the error that explains the failure of a run.

    Args:
        plan: The plan of the run that failed.
        error: The innermost exception as `Kind: message`.
        phase: The name, as in events, of the phase in which the exception was raised.
    """
    kind, _, message = error.partition(":")
    log = f"log: {plan.rundir.helm_log}"
    resume_hint = "all answers so far are stored: run the same command again to resume"
    if kind in PACKAGE_ERRORS:
        module = module_named_in(message.strip())
        if module is not None:
            missing = missing_modules_message(plan.task_name, [module], environment_of_plan(plan))
            return PrerequisiteError(f"{missing}\n  {resume_hint}")
        return PrerequisiteError(
            f"HELM could not import a package that {plan.task_name} needs: {message.strip()}\n"
            f"  {log}; {resume_hint}"
        )
    helm = plan.evaluation.task.helm
    # HELM passes the arguments of a user's run entry to the scenario, which may not know them all.
    is_unknown_argument = kind == "TypeError" and "unexpected keyword argument" in message
    if phase == event_names.LOADING and helm.is_run_entry and is_unknown_argument:
        return ConfigError(_unbuildable_run(plan, error))
    lacks_data = kind in DATA_ERRORS or any(phrase in message for phrase in MISSING_DATA_PHRASES)
    if lacks_data and phase == event_names.LOADING:
        text = (
            f"the data of {plan.task_name} are unavailable: {error}\n"
            f"  they come from: {plan.evaluation.task.about.source}; {log}"
        )
        if plan.model.max_length is not None:
            text += (
                "\n  max_length needs tiktoken's vocabulary cl100k_base: "
                "put the vocabulary into TIKTOKEN_CACHE_DIR, or remove max_length"
            )
        return PrerequisiteError(text)
    if lacks_data:
        return PrerequisiteError(
            f"HELM needs a file or a host that is unavailable, while it is {phase} "
            f"({plan.task_name}): {error}\n"
            f"  {resume_hint}; {log}"
        )
    prescribed = helm.prescribed_judges
    if phase == event_names.JUDGING and prescribed:
        return PrerequisiteError(
            f"HELM's own judges of {plan.task_name} "
            f"({', '.join(prescribed)}) could not be asked: {error}\n"
            "  HELM's complete run fails if one answer is not judged; "
            "set the endpoint of each judge in extra.judges\n"
            f"  {resume_hint}"
        )
    return HelmError(f"HELM failed while {plan.task_name} ran: {error}\n  {log}")


def early_failure(plan: Plan, returncode: int, tail: Sequence[str]) -> EvalFactoryError:
    """Return the error of a helm-run that ended without an event about its failure.

    helm-run most likely failed while it built the run spec. The exception is read from the
    traceback in `tail`, the last lines that helm-run printed.
    """
    if error := last_exception(tail):
        kind = error.partition(":")[0]
        if kind in PACKAGE_ERRORS | DATA_ERRORS:
            return explained_failure(plan, error, event_names.LOADING)
        if plan.evaluation.task.helm.is_run_entry and kind in ARGUMENT_ERRORS:
            return ConfigError(_unbuildable_run(plan, error))
    return HelmError(
        f"{program_end_text('helm-run', returncode, tail)}\n  log: {plan.rundir.helm_log}"
    )


def program_end_text(program: str, returncode: int, tail: Sequence[str]) -> str:
    """Return how the program ended, followed by its non-empty last lines from `tail`."""
    if returncode < 0:
        ended = f"{program} was killed by signal {-returncode}"
    else:
        ended = f"{program} ended with {returncode}"
    lines = []
    for line in tail:
        if line.strip():
            lines.append(f"  | {line}")
    return "\n".join([f"{ended}:", *lines] if lines else [f"{ended} and printed nothing"])


def _unbuildable_run(plan: Plan, error: str) -> str:
    """Return the message for a run spec that HELM cannot build from the user's arguments."""
    return (
        f"config.type: HELM cannot make a run of {plan.task_name}: {error}\n"
        f"  check the arguments ('eval-factory ls helm:{plan.evaluation.task.helm.run_spec}');"
        f" log: {plan.rundir.helm_log}"
    )


def last_exception(tail: Sequence[str]) -> str | None:
    """Return `Kind: message` of the last exception in a traceback.

    `Kind` is the name of the exception without its module. Returns None if no line of `tail` names
    an exception.
    """
    for number in reversed(range(len(tail))):
        match = _EXCEPTION_LINE.match(tail[number])
        if match:
            # the message may continue in the lines that follow
            further_lines = [line.strip() for line in tail[number + 1 :]]
            text = " ".join([tail[number], *further_lines])
            module_length = match[1].rfind(".") + 1  # 0 if no module is named
            return text[module_length:]
    return None


def raise_if_stopped(
    events: Sequence[Mapping[str, Any]], stop_message: str | None, log: logging.Logger
) -> None:
    """Raise the error with which eval-factory's code inside helm-run stopped helm-run, if any.

    Args:
        events: The events of helm-run.
        stop_message: The message that helm-run printed when it stopped, or None. If the disk is
            full, helm-run can print the message but not write it as an event.
        log: The log of the run.

    Raises:
        PrerequisiteError: The endpoint refused a request or cannot be reached (for example a wrong
            key or an unknown model), or `stop_message` is not None.
        ConfigError: The run entry names a run that eval-factory cannot evaluate.
    """
    for event in events:
        if event["event"] == event_names.FATAL:
            message = event["message"]
            hosts = []  # the hosts in the message to which the offline guard refused a connection
            for host in blocked_hosts(events):
                name_without_port = host.rpartition(":")[0] or host
                if name_without_port in message:
                    hosts.append(host)
            if hosts:
                refused = (
                    f"eval-factory itself refused the connection to {', '.join(hosts)}, "
                    "which is not the host of an endpoint"
                )
                message = f"{message}\n  offline: {refused}"
            log.error(message)
            by_kind: dict[Any, type[PrerequisiteError]] = {
                event_names.UNREACHABLE: EndpointUnreachableError,
                event_names.REFUSED_BY_ENDPOINT: EndpointRefusedError,
            }
            raise by_kind.get(event.get("kind"), PrerequisiteError)(message)
        if event["event"] == event_names.REFUSED:
            log.error(event["message"])
            raise ConfigError(f"config.type: {event['message']}")
    if stop_message is not None:
        raise PrerequisiteError(stop_message)


def blocked_hosts(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Return the hosts that an offline run tried to reach, without repetitions."""
    return list(
        dict.fromkeys(
            printable(event["place"]) for event in events if event["event"] == event_names.BLOCKED
        )
    )


def raise_for_failure(
    plan: Plan, run: EndedHelmRun, log: logging.Logger, *, shares_limits: bool
) -> None:
    """Raise the error that explains why the run failed. Return if the run succeeded.

    Args:
        plan: The plan of the run.
        run: The helm-run that has ended.
        log: The log of the run.
        shares_limits: True if the run shares limits with the other cells of a suite.

    Raises:
        NotReportableError: A limit was reached before every instance was answered.
        ConfigError: The run entry or one of its arguments is wrong.
        PrerequisiteError: An endpoint, a package or data are missing.
        HelmError: The run failed for any other reason.
    """
    for event in run.events:
        if event["event"] == event_names.LIMIT_REACHED:
            spent = spent_so_far(plan.rundir.cache_db, prices_of(plan).known)
            limit = event["limit"]
            countable = event["countable"]
            reached, next_step = limit_messages(
                limit, budget_of(plan), spent, countable=countable, shares_limits=shares_limits
            )
            answered_text = "; ".join(answered_lines(run.events, event["answered"]))
            message = (
                f"stopped: {reached}\n"
                f"  {answered_text}; no score is written, every answer is stored\n"
                f"  {next_step}"
            )
            log.error(message)
            raise NotReportableError(message)
    raise_if_stopped(
        run.events, event_names.stop_message_in(run.returncode, run.tail, run.run_id), log
    )
    phase = ""
    for event in run.events:
        if event["event"] == event_names.PHASE:
            phase = event["phase"]
        elif event["event"] == event_names.RUN_FAILED:
            log.error(event["error"])
            blocked = blocked_hosts(run.events)
            # An event with `stopped` means that eval-factory ended the run on purpose.
            was_stopped = any(any_event.get("stopped") for any_event in run.events)
            if blocked and not was_stopped:
                # imported late: reads the sources of all data
                from eval_factory.data.run_data import how_to_get_data

                raise PrerequisiteError(
                    f"offline: {plan.task_name} tried to reach {', '.join(blocked)}, "
                    "which is not the host of an endpoint and was not contacted\n"
                    f"  ({event['error']})\n"
                    f"{how_to_get_data(plan, options='--to DIR, then run with --data_dir DIR')}"
                    f"; log: {plan.rundir.helm_log}"
                )
            raise explained_failure(plan, event["error"], phase)
    if run.returncode != 0:
        raise early_failure(plan, run.returncode, run.tail)
