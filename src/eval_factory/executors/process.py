"""Starts and ends processes.

Most programs get a process group of their own. A process group is ended with SIGTERM and, after a
grace period, with SIGKILL. Secrets are removed from the output of helm-run and of model servers.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import resource
import signal
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from operator import itemgetter
from pathlib import Path
from typing import IO, Any, TextIO

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import MAX_LOG_LINE, printable
from eval_factory.core.helm_run_settings import (
    ALL_FILES_VARIABLE,
    HEIM_HOME_VARIABLE,
    MEDHELM_HOME_VARIABLE,
    SKIPPED_PATCHES_VARIABLE,
)
from eval_factory.core.rundir import PRIVATE, Lock, RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.core.urls import SERVED_AT
from eval_factory.executors.progress import AnswerTail, EventTail, ProgressDisplay


@dataclass(frozen=True)
class FinishedProcess:
    """A process that has ended."""

    returncode: int  # the exit code; minus the signal's number if a signal killed the process
    tail: tuple[str, ...]  # the last lines of the output, without secrets, printable


@dataclass(frozen=True)
class ProcessSpec:
    """A program to run in an output folder that this process has locked."""

    argv: Sequence[str]
    env: Mapping[str, str]  # all environment variables of the program
    rundir: RunDir
    lock: Lock  # the lock of the folder, which the program inherits
    run_id: str  # the run id in the events that the program writes
    redactor: Redactor
    on_started: Callable[[], str | None] = lambda: None
    """Called when the program has started.

    The returned line is written to the standard input of the program. An exception ends the
    program.
    """
    # shows each answer as it comes: "figures" shows only figures, "texts" also the text
    watch: str | None = None


_TICK_S = 0.2  # the time between two calls of `on_tick`, in seconds
TERMINATE_GRACE_S = 3.0  # the time between SIGTERM and SIGKILL, in seconds
TAIL_LINES = 15  # the number of last lines of a program's output that are kept in memory


def run_shown(
    spec: ProcessSpec, screen: TextIO
) -> tuple[FinishedProcess, tuple[Mapping[str, Any], ...]]:
    """Run the program as `run_logged` does, and show its progress on `screen`.

    Returns the ended process, and all events of the program except those about progress.
    """
    event_tail = EventTail(spec.rundir.events, run_id=spec.run_id)
    answer_tail = AnswerTail(
        spec.rundir.cache_db, spec.run_id, spec.redactor, texts=spec.watch == "texts"
    )
    events: list[Mapping[str, Any]] = []
    with ProgressDisplay(screen) as display:

        def tick() -> None:
            """Show the new events and answers in the order of their times."""
            new_events = event_tail.read_new_events()
            new_answers = answer_tail.read_new_events() if spec.watch else ()
            for event in heapq.merge(new_events, new_answers, key=itemgetter("time")):
                if event["event"] not in ("progress", "answer"):
                    events.append(event)
                display.show(event)

        finished = run_logged(spec, log=spec.rundir.helm_log, on_tick=tick)
    return finished, tuple(events)


def run_logged(spec: ProcessSpec, *, log: Path, on_tick: Callable[[], None]) -> FinishedProcess:
    """Run the program until it ends; append its standard output and error to `log`.

    `on_tick` is called a few times a second. The program inherits the lock of the folder: no other
    process can lock the folder while the program lives. If an exception interrupts the wait, such
    as Ctrl-C or a defect in `on_tick`, the process group is ended before the exception continues.

    Raises:
        PrerequisiteError: the program does not exist.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    with os.fdopen(descriptor, "a", encoding="utf-8", buffering=1) as log_file:
        process = _start_program(spec)
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        reader = threading.Thread(
            target=copy_lines, args=(process.stdout, log_file, spec.redactor, tail), daemon=True
        )
        reader.start()
        try:
            spec.lock.share_with(process.pid)  # records the program in the lock's file
            line = spec.on_started()
            if process.stdin is not None:
                # A program that has ended already breaks the pipe. The input is closed in any case.
                with contextlib.suppress(BrokenPipeError), process.stdin as program_input:
                    program_input.write("" if line is None else f"{line}\n")
            while process.poll() is None:
                if reader.is_alive():
                    # The reader ends with the output of the program: this wait ends at once when
                    # the program ends.
                    reader.join(_TICK_S)
                else:  # the program has closed its output, but still runs
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(_TICK_S)
                on_tick()
        except BaseException:
            end_group(process)
            if process.stdin is not None:
                with contextlib.suppress(BrokenPipeError):
                    process.stdin.close()
            raise
        finally:
            if process.poll() is not None:
                spec.lock.record_program_end()
            # Wait for the last lines. A child process of the program may keep the pipe open.
            reader.join(timeout=TERMINATE_GRACE_S)
        on_tick()  # for the events since the last call
        return FinishedProcess(process.returncode, tuple(tail))


def _start_program(spec: ProcessSpec) -> subprocess.Popen[str]:
    """Start the program, which inherits the lock of the folder.

    Raises:
        PrerequisiteError: the program does not exist.
    """
    try:
        return start_in_group(
            spec.argv, spec.env, stdin=subprocess.PIPE, pass_fds=(spec.lock.descriptor,)
        )
    except FileNotFoundError as error:
        raise PrerequisiteError(
            f"{spec.argv[0]} is missing; install HELM next to eval-factory: "
            "pip install crfm-helm==0.5.16"
        ) from error


def start_in_group(
    argv: Sequence[str], env: Mapping[str, str], **popen_arguments: Any
) -> subprocess.Popen[str]:
    """Start a program in a process group of its own.

    Standard output and error of the program are written to one pipe. `popen_arguments`: further
    arguments of `Popen`.
    """
    return subprocess.Popen(
        list(argv),
        env=dict(env),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        encoding="utf-8",
        errors="replace",
        start_new_session=True,
        **popen_arguments,
    )


def copy_lines(source: IO[str], log: IO[str], redactor: Redactor, tail: deque[str]) -> None:
    """Copy lines to the log and to `tail` until all writers have closed the pipe.

    Secrets and control characters are removed from the lines.
    """
    with source:
        for line in source:
            shown = printable(redactor.redact_text(line.rstrip("\n")))[:MAX_LOG_LINE]
            tail.append(shown)
            # If the disk is full, reading must continue: the process would block on a full pipe.
            with contextlib.suppress(OSError):
                log.write(shown + "\n")


def end_group(leader: subprocess.Popen[str], grace_s: float = TERMINATE_GRACE_S) -> None:
    """Send SIGTERM to every process of the group, and SIGKILL to processes left after `grace_s`.

    `grace_s` is a time in seconds.
    """
    deadline = time.monotonic() + grace_s
    # os.killpg raises one of these errors if no process of the group is left.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(leader.pid, signal.SIGTERM)
        while time.monotonic() < deadline:
            leader.poll()  # removes the leader from the group after its end
            os.killpg(leader.pid, 0)  # sends no signal, but fails if no process is left
            time.sleep(0.05)
        os.killpg(leader.pid, signal.SIGKILL)
    with contextlib.suppress(subprocess.TimeoutExpired):
        leader.wait(TERMINATE_GRACE_S)


def start_with_input(
    argv: Sequence[str], env: Mapping[str, str], text: str, *, log: Path
) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own, with `text` as its standard input.

    The output of the program is appended to `log`.
    """
    process = start_with_log(argv, env, log)
    if process.stdin is not None:
        # A program that has ended already breaks the pipe.
        with contextlib.suppress(BrokenPipeError), process.stdin as source:
            source.write(text.encode())
    return process


def start_with_log(
    argv: Sequence[str], env: Mapping[str, str], log: Path, stdout: int | None = None
) -> subprocess.Popen[bytes]:
    """Start a program in a process group of its own, with a pipe as its standard input.

    The output of the program is appended to `log`. If `stdout` is passed, only the standard error
    is appended to `log`.
    """
    log.parent.mkdir(parents=True, exist_ok=True)
    with os.fdopen(os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE), "ab") as file:
        output = file if stdout is None else stdout
        return subprocess.Popen(
            list(argv),
            env=dict(env),
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=file,
            start_new_session=True,
        )


CapturedProgram = subprocess.CompletedProcess[str]  # the exit code and output of an ended program


def run_captured(argv: Sequence[str], env: Mapping[str, str], timeout_s: float) -> CapturedProgram:
    """Run a short program, and return its exit code and output.

    A program that takes longer than `timeout_s` seconds is killed; the exit code is then -9.

    Raises:
        FileNotFoundError: the program does not exist.
    """
    try:
        return subprocess.run(
            list(argv),
            env=dict(env),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            timeout=timeout_s,
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return CapturedProgram(argv, -signal.SIGKILL, "", f"no answer in {timeout_s:.0f} s")


def git_hash(folder: Path) -> str | None:
    """Return the current commit of the git checkout `folder`; None if it is not a checkout.

    The folder may belong to another user.
    """
    # git gets no key, and no variable such as GIT_DIR, which may name another repository.
    passed_variables = ("PATH", "HOME", "XDG_CONFIG_HOME", "TMPDIR", "SYSTEMROOT")
    env = {name: os.environ[name] for name in passed_variables if name in os.environ}
    try:
        finished = run_captured(
            ["git", "-C", str(folder), "-c", f"safe.directory={folder}", "rev-parse", "HEAD"],
            env,
            timeout_s=10,
        )
    except OSError:
        return None
    commit = finished.stdout.strip()
    if finished.returncode != 0 or not commit:
        return None
    return commit


ALLOWED_VARIABLES = frozenset(
    {
        "PATH",
        "HOME",
        "USER",
        "LOGNAME",
        "SHELL",
        "LANG",
        "LANGUAGE",
        "TZ",
        "TMPDIR",
        "TEMP",
        "TMP",
        "PYTHONPATH",
        "PYTHONUTF8",
        "PYTHONIOENCODING",
        "VIRTUAL_ENV",
        "CONDA_PREFIX",
        "LD_LIBRARY_PATH",
        "XDG_CACHE_HOME",
        "XDG_DATA_HOME",
        "XDG_CONFIG_HOME",
        "SSL_CERT_FILE",
        "SSL_CERT_DIR",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "NO_PROXY",
        "ALL_PROXY",
        "http_proxy",
        "https_proxy",
        "no_proxy",
        "all_proxy",
        "HF_HOME",
        "HF_HUB_OFFLINE",
        "HF_DATASETS_OFFLINE",
        "HF_DATASETS_CACHE",
        "HF_HUB_CACHE",
        "HF_ENDPOINT",
        "HF_TOKEN",
        "NLTK_DATA",
        "TIKTOKEN_CACHE_DIR",
        "CUDA_VISIBLE_DEVICES",
        "OMP_NUM_THREADS",
        ALL_FILES_VARIABLE,
        "NVCF_STATUS_URL",
        "OAUTHLIB_INSECURE_TRANSPORT",
        "SYSTEMROOT",
        SKIPPED_PATCHES_VARIABLE,
        SERVED_AT,
        MEDHELM_HOME_VARIABLE,
        HEIM_HOME_VARIABLE,
    }
)
"""The environment variables of the user that helm-run gets. Keys of endpoints are not among them:
`child_environment` adds the keys that a run needs.
"""
ALLOWED_PREFIXES = ("LC_",)  # further variables that helm-run gets: the beginnings of their names


def child_environment(
    env: Mapping[str, str], key_names: Iterable[str], extra: Mapping[str, str]
) -> dict[str, str]:
    """Return the environment variables of helm-run.

    Args:
        env: the variables of this process. The allowed variables are passed on.
        key_names: the names of further variables of `env` that are passed on.
        extra: variables that are added, or replace those of `env`.
    """
    names = set(key_names)
    passed_on = {}
    for name, value in env.items():
        if name in ALLOWED_VARIABLES or name in names or name.startswith(ALLOWED_PREFIXES):
            passed_on[name] = value
    # HELM calls programs of installed packages by their names, such as gdown. The programs of this
    # Python environment come after the user's own, even if the environment is not activated.
    path = os.pathsep.join([passed_on.get("PATH") or os.defpath, str(Path(sys.executable).parent)])
    # HELM opens files in the encoding of the locale, but all files that HELM reads are UTF-8.
    return {"PYTHONUTF8": "1", **passed_on, "PATH": path, "PYTHONUNBUFFERED": "1", **extra}


OPEN_FILES_AT_REST = 64
"""The maximum number of open files of helm-run without its requests: logs, data and pipes.

helm-run needs 9 of them; the others are a reserve for libraries.
"""
# A request of a judge needs most: a connection, cache.db and the write-ahead log of cache.db.
OPEN_FILES_PER_REQUEST = 3

_FD_LIMIT_LOCK = threading.Lock()
"""The limit of open files belongs to the process. The lock prevents that two runs in two threads
overwrite each other's limit.
"""


def raise_fd_limit(requests_at_once: int) -> None:
    """Raise this process's limit of open files if the run needs more; helm-run inherits the limit.

    Raises:
        PrerequisiteError: the system does not allow the needed limit.
    """
    needed = OPEN_FILES_AT_REST + OPEN_FILES_PER_REQUEST * requests_at_once
    try:
        with _FD_LIMIT_LOCK:
            soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
            if soft != resource.RLIM_INFINITY and soft < needed:
                resource.setrlimit(resource.RLIMIT_NOFILE, (needed, hard))
    except (ValueError, OSError):  # above the hard limit, or above a further limit of macOS
        raise PrerequisiteError(
            f"{requests_at_once} requests at once (with those of judges) need {needed} "
            f"open files, and only {soft} are allowed here\n"
            f"  allow more open files (ulimit -n {needed}), or send fewer requests at once "
            "(config.params.parallelism)"
        ) from None
