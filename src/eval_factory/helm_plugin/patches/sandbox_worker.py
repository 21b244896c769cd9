"""Executes a model's program inside the sandbox, with HELM's own check functions.

This file is a program: it reads a question as JSON from standard input, and writes the result as
JSON to standard output. If its settings name another program, this file only sets limits, and the
other program then replaces this process. This file cannot import eval_factory, because the
interpreter starts this file by its path. The process that started the sandbox ends the sandbox if
the program takes too long.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import types
from contextlib import suppress
from pathlib import Path
from typing import Any

MEMORY = 4_000_000_000  # the maximum address space, in bytes
FILE_SIZE = 64_000_000  # the maximum size of a written file, in bytes
OPEN_FILES = 256  # the maximum number of open files
_TIMED_OUT = 124  # the exit code after the time limit, equal to that of the command `timeout`
MAX_REASON = 500  # the maximum length of a reason for a failed check, in characters
_EXTRA_SECONDS = 2
"""The seconds after the time limit until the limit on CPU time ends this process. Normally, another
process or a timer ends this process before.
"""


class ReasonList(list[str]):
    """A replacement of HELM's list of reasons. This list shortens its entries."""

    def append(self, text: str) -> None:
        super().append(text[:MAX_REASON])


class SameProcess:
    """A replacement of multiprocessing's Process that runs its target in this process.

    A second process is not needed, because the sandbox already confines this process.
    """

    def __init__(self, target: Any) -> None:
        self._target = target

    def start(self) -> None:
        """Do nothing: `join` runs the target, because only `join` gets the time limit."""

    def join(self, timeout: float) -> None:
        """Run the target. This process ends if the target takes longer than `timeout` seconds."""
        end_this_process_after(timeout)
        # HELM ignores errors of its process, so ignore the target's errors.
        with suppress(BaseException):
            self._target()

    def is_alive(self) -> bool:
        """Return False: when HELM asks, `join` has run the target to its end."""
        return False


def humaneval(question: dict[str, Any]) -> Any:
    """Return the result of HELM's check of one completion of HumanEval."""
    from helm.benchmark.metrics import code_metrics_helper as helper

    # HELM's check starts a process, which appends its reasons to a `multiprocessing` list.
    helper.multiprocessing = types.SimpleNamespace(
        Manager=lambda: types.SimpleNamespace(list=ReasonList), Process=SameProcess
    )
    return helper.check_correctness(
        question["problem"], question["completion"], question["timeout"]
    )


def apps(question: dict[str, Any]) -> Any:
    """Return HELM's result of each test of one answer of APPS; False for an invalid result."""
    from helm.benchmark.metrics import code_metrics_helper as helper

    folder = Path.cwd()
    # HELM's `run_test` reads the tests from this file.
    (folder / "input_output.json").write_text(question["tests"], encoding="utf-8")
    end_this_process_after(question["seconds"])
    results = helper.run_test(str(folder), question["completion"], question["timeout"])
    return [result if isinstance(result, bool | int) else False for result in results]


def end_this_process_after(seconds: float) -> None:
    """End this process after a number of seconds.

    A timer measures the elapsed time. A limit on CPU time ends the process if the interpreter is so
    busy that the timer's thread cannot run.
    """
    # The CPU time that this process has already used counts towards the limit.
    used = resource.getrusage(resource.RUSAGE_SELF)
    set_limit(resource.RLIMIT_CPU, int(used.ru_utime + used.ru_stime + seconds) + _EXTRA_SECONDS)
    timer = threading.Timer(seconds, os._exit, [_TIMED_OUT])
    timer.daemon = True
    timer.start()


def set_limit(kind: int, maximum: int) -> None:
    """Set a resource limit to `maximum`, but never above the limit that is already set."""
    hard = resource.getrlimit(kind)[1]
    granted = maximum if hard == resource.RLIM_INFINITY else min(maximum, hard)
    resource.setrlimit(kind, (granted, granted))


def main() -> None:
    """Set the limits, then execute another program or check an answer.

    The first argument of this file is a JSON object with these settings:

    - `argv`: the command of the other program; empty to check an answer;
    - `seconds`: the time limit of the other program;
    - `path`: the value for `sys.path`;
    - `int_digits`: the maximum number of digits of an integer; None in a Python without this limit.
    """
    settings = json.loads(sys.argv[1])
    for kind, maximum in (
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_FSIZE, FILE_SIZE),
        (resource.RLIMIT_NOFILE, OPEN_FILES),
        (resource.RLIMIT_AS, MEMORY),
    ):
        set_limit(kind, maximum)
    if settings["argv"]:
        seconds = int(settings["seconds"]) + _EXTRA_SECONDS
        set_limit(resource.RLIMIT_CPU, seconds)
        # End the program even if helm-run was killed while helm-run set up the sandbox.
        signal.alarm(seconds)
        # Python ignores these two signals. Without these lines, the program would ignore them too.
        signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        os.execvp(settings["argv"][0], settings["argv"])  # noqa: S606 - no shell is needed
    sys.path[:] = settings["path"]
    if settings["int_digits"] is not None:
        sys.set_int_max_str_digits(settings["int_digits"])
    question = json.loads(sys.stdin.read())
    # Store these functions now, because HELM removes most of `os` before an answer runs.
    result_descriptor = os.dup(1)
    write = os.write
    end = os._exit
    # Discard everything that HELM or the answer prints: only the result may reach the output.
    for descriptor in (0, 1, 2):
        os.dup2(os.open(os.devnull, os.O_RDWR), descriptor)
    check = {"humaneval": humaneval, "apps": apps}[question["kind"]]
    result = json.dumps(check(question)).encode()
    write(result_descriptor, result)
    end(0)  # ends the process without waiting for threads that the answer has started


if __name__ == "__main__":
    main()
