"""What failed inside helm-run, by the kind of its innermost exception: something outside is missing, or HELM failed."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from typing import Any

from eval_factory.core import logs as event_names
from eval_factory.core.errors import (
    ConfigError,
    EndpointRefusedError,
    EndpointUnreachableError,
    EvalFactoryError,
    HelmError,
    PrerequisiteError,
)
from eval_factory.core.foreign_text import printable
from eval_factory.helm.packages import module_named_in, not_installed
from eval_factory.plan.run_plan import Plan

DATA_ERRORS = frozenset(
    {
        "URLError", "HTTPError", "ConnectionError", "ConnectTimeout", "OfflineModeIsEnabled", "DatasetNotFoundError",
        "FileNotFoundError", "LocalEntryNotFoundError", "gaierror", "NotADirectoryError", "TimeoutError",
        "RemoteDisconnected", "ReadTimeout", "SSLError", "ProxyError", "MaxRetryError", "NewConnectionError",
        "NameResolutionError", "GatedRepoError", "RepositoryNotFoundError", "LocalTokenNotFoundError",
        "CalledProcessError", "DownloadError", "HfHubHTTPError", "ConnectError", "NoInstancesError",
        "DataInTheWayError",
    }
)  # fmt: skip
"""What is raised where data are not there or cannot be downloaded."""

ENDPOINT_ERRORS: Mapping[str | None, type[PrerequisiteError]] = {
    event_names.UNREACHABLE: EndpointUnreachableError,
    event_names.REFUSED_BY_ENDPOINT: EndpointRefusedError,
}
"""By the kind of a fatal event."""

PACKAGE_ERRORS = frozenset({"ModuleNotFoundError", "ImportError", "OptionalDependencyNotInstalled"})
ARGUMENT_ERRORS = frozenset({"ValueError", "KeyError", "AssertionError", "TypeError", "Exception", "IndexError"})
"""What HELM's functions of run specs raise for values that they do not take."""

NO_SUCH_ARGUMENT = "unexpected keyword argument"
"""What Python says where an argument is one of every run spec for HELM, but not of this scenario."""

NOT_IN_THE_CACHE = "Couldn't find cache for"
"""What `datasets` says offline of another configuration than those it has."""

_NLTK_RESOURCE = re.compile(r"Resource\s+(?:(?:\x1b|\\x1b)\[\d+m)?'?(\w+)")
_RAISED = re.compile(
    r"((?:\w+\.)*(?:[A-Z]\w*(?:Error|NotInstalled|Enabled|Disconnected|Timeout)|\w*Exception))(?:: |\Z)"
)


def explained(plan: Plan, error: str, phase: str) -> EvalFactoryError:
    """The failure of a run.

    Args:
        error: `Kind: message` of the innermost exception.
        phase: the phase in which it was raised, as events name it.
    """
    kind, _, message = error.partition(":")
    if kind in PACKAGE_ERRORS:
        return PrerequisiteError(_missing_package(plan, message.strip()))
    if kind == "LookupError" and "nltk" in message.lower():
        found = _NLTK_RESOURCE.search(message)
        return PrerequisiteError(
            f"HELM's metrics of {plan.task_name} need NLTK's resource {found[1] if found else ''}, which is"
            " not here and could not be downloaded\n"
            "  python -m nltk.downloader punkt punkt_tab, or put it into NLTK_DATA;"
            " answers are kept: the same command goes on"
        )
    entry = plan.evaluation.task.helm
    if phase == event_names.LOADING and entry.any_run_spec and kind == "TypeError" and NO_SUCH_ARGUMENT in message:
        return ConfigError(_no_run_of(plan, error))
    if phase == event_names.LOADING and (kind in DATA_ERRORS or NOT_IN_THE_CACHE in message):
        return PrerequisiteError(missing_data(plan, error))
    if kind in DATA_ERRORS:
        return PrerequisiteError(
            f"something that HELM needs while it is {phase} ({plan.task_name}) is unavailable: {error}\n"
            f"  answers are kept: the same command goes on; log: {plan.rundir.helm_log}"
        )
    prescribed = entry.prescribed_judges
    if phase == event_names.JUDGING and prescribed:
        return PrerequisiteError(
            f"HELM's own judges of {plan.task_name} ({', '.join(prescribed)}) could not be asked: {error}\n"
            "  one answer that is not judged fails HELM's whole run; extra.judges says where a judge is asked\n"
            "  what was answered is kept: the same command goes on"
        )
    return HelmError(f"HELM failed while {plan.task_name} ran: {error}\n  log: {plan.rundir.helm_log}")


def ended_before_it_ran(plan: Plan, returncode: int, tail: Sequence[str]) -> EvalFactoryError:
    """helm-run ended with an error before it began a run: most likely while it built the run spec.

    Args:
        tail: the last lines that it printed; a traceback ends with what was raised.
    """
    error = raised_at_the_end(tail)
    kind = error.partition(":")[0] if error else ""
    if error is not None and (kind in PACKAGE_ERRORS or kind in DATA_ERRORS):
        return explained(plan, error, event_names.LOADING)
    entry = plan.evaluation.task.helm
    if error is not None and entry.any_run_spec and kind in ARGUMENT_ERRORS:
        return ConfigError(_no_run_of(plan, error))
    return HelmError(f"{how_it_ended('helm-run', returncode, tail)}\n  log: {plan.rundir.helm_log}")


def how_it_ended(program: str, returncode: int, tail: Sequence[str]) -> str:
    """With its last words, if it had any."""
    ended = f"{program} was killed by signal {-returncode}" if returncode < 0 else f"{program} ended with {returncode}"
    said = [f"  | {line}" for line in tail if line.strip()]
    return "\n".join([f"{ended}:", *said] if said else [f"{ended} and printed nothing"])


def _no_run_of(plan: Plan, error: str) -> str:
    return (
        f"config.type: HELM makes no run of {plan.task_name}: {error}\n"
        f"  look at the arguments ('eval-factory ls helm:{plan.evaluation.task.helm.run_spec}');"
        f" log: {plan.rundir.helm_log}"
    )


def raised_at_the_end(tail: Sequence[str]) -> str | None:
    """`Kind: message` of the exception that a traceback ends with, its kind without the module."""
    for number in range(len(tail) - 1, -1, -1):
        found = _RAISED.match(tail[number])
        if found:
            line = " ".join([tail[number], *(text.strip() for text in tail[number + 1 :])])
            return line[found.start(1) + found[1].rfind(".") + 1 :]
    return None


def _missing_package(plan: Plan, message: str) -> str:
    module = module_named_in(message)
    kept = "what was answered is kept: the same command goes on"
    if module is None:
        return f"HELM could not import what {plan.task_name} needs: {message}\n  log: {plan.rundir.helm_log}; {kept}"
    return f"{not_installed(plan.task_name, [module])}\n  {kept}"


def missing_data(plan: Plan, error: str) -> str:
    """What to say where a scenario's data are not there."""
    lines = [
        f"the data of {plan.task_name} are unavailable: {error}",
        f"  they come from: {plan.evaluation.task.about.source}; log: {plan.rundir.helm_log}",
    ]
    if plan.model.max_length is not None:
        lines.append(
            "  max_length needs tiktoken's vocabulary cl100k_base: put it into TIKTOKEN_CACHE_DIR, or leave it out"
        )
    return "\n".join(lines)


def raise_if_stopped(events: Sequence[Mapping[str, Any]], last_words: str | None, log: logging.Logger) -> None:
    """Raise PrerequisiteError where the engine stopped helm-run: a wrong key, an unknown model, nobody there.

    Args:
        last_words: what helm-run said at its end, for where a full disk kept the event from being written.
    """
    for event in events:
        if event["event"] == event_names.FATAL:
            message = event["message"] + _refused_here(event["message"], blocked_places(events))
            log.error(message)
            raise ENDPOINT_ERRORS.get(event.get("kind"), PrerequisiteError)(message)
        if event["event"] == event_names.REFUSED:
            log.error(event["message"])
            raise ConfigError(f"config.type: {event['message']}")
    if last_words is not None:
        raise PrerequisiteError(last_words)


def _refused_here(message: str, blocked: Sequence[str]) -> str:
    """Where the guard, and no network, kept the endpoint that a message names from being reached."""
    places = [place for place in blocked if (place.rpartition(":")[0] or place) in message]
    if not places:
        return ""
    return f"\n  offline: it was eval-factory that refused {', '.join(places)}, which is no host of an endpoint"


def blocked_places(events: Sequence[Mapping[str, Any]]) -> list[str]:
    """Hosts that an offline run wanted and did not get."""
    return list(dict.fromkeys(printable(event["place"]) for event in events if event["event"] == event_names.BLOCKED))


def wanted_elsewhere(plan: Plan, blocked: Sequence[str], error: str) -> str:
    from eval_factory.data.place import how_to_get  # knows where all data are from

    return (
        f"offline: {plan.task_name} wanted {', '.join(blocked)}, no host of an endpoint; it was not contacted\n"
        f"  ({error})\n"
        f"{how_to_get(plan, '--to DIR, then run with --data_dir DIR')}; log: {plan.rundir.helm_log}"
    )
