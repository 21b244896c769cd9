"""The process that executes what a model answered, for `confined.py`: one question as JSON in, one answer as JSON out.

It is started without keys, maybe inside a sandbox, and imports HELM's own functions. What is executed runs in a child
that has given up its rights first; the answer is read from a pipe, for a limited time.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import tempfile
import time
import types
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eval_factory.core import kernel_sandbox

MEMORY = 4_000_000_000
FILE_SIZE = 64_000_000
OPEN_FILES = 256
MOST_OUTPUT = 16_000_000
"""Bytes that a child may say."""
LONGEST_REASON = 500
APPS_LIMIT_S = 11.0
"""HELM's, for all tests of one answer."""
TIMED_OUT = 124
"""What `timeout` ends with."""
PROBE_S = 5.0

_settings: dict[str, Any] = {}
_locks: list[str] = []


class Child:
    """A child process that has given up its rights, and the pipe that it writes to."""

    def __init__(
        self, run: Callable[[int], None], *, seconds: float, forks: bool = False, keep: tuple[int, ...] = ()
    ) -> None:
        self._deadline = time.monotonic() + seconds
        self._pipe, into = os.pipe()
        self.returncode: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            code = 1
            try:
                _confine(seconds, forks=forks, keep=(into, *keep))
                run(into)
                code = 0
            finally:
                os._exit(code)
        os.close(into)

    def output(self, most: int = MOST_OUTPUT) -> bytes:
        """All that it writes until it closes the pipe; it is ended then, or when the time is up."""
        data = bytearray()
        while len(data) <= most:
            left = self._deadline - time.monotonic()
            if left <= 0 or not select.select([self._pipe], [], [], left)[0]:
                break
            piece = os.read(self._pipe, 1 << 16)
            if not piece:
                self._wait()
                break
            data += piece
        self.end()
        return bytes(data[:most])

    def _wait(self) -> None:
        """Closing the pipe is not ending."""
        while self.returncode is None and time.monotonic() < self._deadline:
            found, status = os.waitpid(self.pid, os.WNOHANG)
            if found:
                self.returncode = os.waitstatus_to_exitcode(status)
            else:
                time.sleep(0.005)

    def end(self) -> None:
        if self.returncode is None:
            os.killpg(self.pid, signal.SIGKILL)
            os.waitpid(self.pid, 0)
            self.returncode = TIMED_OUT


def _confine(seconds: float, *, forks: bool, keep: tuple[int, ...]) -> None:
    """Give up what can be given up; which of the kernel's locks are shut is kept for `trial`."""
    os.setsid()
    kernel_sandbox.end_with_parent()
    nowhere = os.open(os.devnull, os.O_RDWR)
    for descriptor in (0, 1, 2):
        os.dup2(nowhere, descriptor)
    for descriptor in set(range(3, OPEN_FILES)) - set(keep):  # the answer's pipe among them
        with suppress(OSError):
            os.close(descriptor)
    os.chdir(_settings["folder"])
    kernel_sandbox.limit(memory=MEMORY, file_size=FILE_SIZE, cpu_s=int(seconds) + 2, open_files=OPEN_FILES)
    kernel_sandbox.give_up_privileges()
    if kernel_sandbox.restrict_files(_settings["readable"], [_settings["folder"]]):
        _locks.append("Landlock")
    if kernel_sandbox.refuse_calls(forks=forks):
        _locks.append("seccomp")


class _Told(list[str]):
    """What HELM's check appends in the child arrives here."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = os.getpid()
        self.pipe = -1

    def append(self, text: str) -> None:
        if os.getpid() == self._owner:
            super().append(text)
        else:
            os.write(self.pipe, text[:LONGEST_REASON].encode(errors="replace"))


class _Process:
    """In place of multiprocessing's, for HELM's `check_correctness`."""

    def __init__(self, target: Callable[[], None]) -> None:
        self._target = target
        held = (cell.cell_contents for cell in target.__closure__ or ())
        self._told = next(value for value in held if isinstance(value, _Told))
        self._seconds = 0.0

    def start(self) -> None:
        """It begins in `join`, which is told how long it may take."""

    def join(self, timeout: float) -> None:
        def run(into: int) -> None:
            self._told.pipe = into
            self._target()

        said = Child(run, seconds=timeout).output()
        if said:
            self._told.append(said.decode(errors="replace"))

    def is_alive(self) -> bool:
        return False


def humaneval(question: dict[str, Any]) -> Any:
    """HELM's check of one completion, with each of its steps."""
    from helm.benchmark.metrics import code_metrics_helper as helper

    manager = types.SimpleNamespace(list=_Told)
    helper.multiprocessing = types.SimpleNamespace(Manager=lambda: manager, Process=_Process)
    return helper.check_correctness(question["problem"], question["completion"], question["timeout"])


def apps(question: dict[str, Any]) -> Any:
    """HELM's results of all tests of one answer; None where they did not come to an end."""
    from helm.benchmark.metrics import code_metrics_helper as helper

    (Path(_settings["folder"]) / "input_output.json").write_text(question["tests"], encoding="utf-8")

    def run(into: int) -> None:
        results = helper.run_test(_settings["folder"], question["completion"], question["timeout"])
        plain = [result if isinstance(result, bool | int) else False for result in results]
        _write_all(into, json.dumps(plain).encode())

    said = Child(run, seconds=APPS_LIMIT_S).output()
    try:
        results = json.loads(said)
    except (ValueError, RecursionError):
        return None
    # The answer can write to the pipe, too: HELM's metric must not stumble over what is no list of results.
    whole = isinstance(results, list) and results and all(isinstance(result, bool | int) for result in results)
    return results if whole else None


def command(question: dict[str, Any]) -> Any:
    """A program with its input: its exit code and what it wrote to standard output."""
    with tempfile.TemporaryFile() as given:
        given.write(question["input"].encode())
        given.seek(0)

        def run(into: int) -> None:
            os.dup2(given.fileno(), 0)
            os.dup2(into, 1)
            os.execvp(question["argv"][0], question["argv"])  # noqa: S606 - no shell is wanted

        child = Child(run, seconds=question["seconds"], forks=question["forks"], keep=(given.fileno(),))
        output = child.output()
    return {"returncode": child.returncode, "output": output.decode("latin-1")}


def trial(question: dict[str, Any]) -> Any:
    """The kernel's locks on a child, and what it still can do: each name is of something that it should not."""

    def can(attempt: Callable[[], object]) -> bool:
        try:
            attempt()
        except OSError:
            return False
        return True

    def reach() -> None:
        with socket.create_connection(("127.0.0.1", question["port"]), PROBE_S):
            pass

    def fork() -> None:
        if os.fork() == 0:
            os._exit(0)

    def run(into: int) -> None:
        outside = Path(question["outside"])
        found = {
            "use the network": can(reach),
            "write files elsewhere": can(lambda: outside.open("a").close()),
            "read files elsewhere": can(outside.read_bytes),
            "read the environment of other processes": can(Path(f"/proc/{question['pid']}/environ").read_bytes),
            "start processes": can(fork),
        }
        _write_all(into, json.dumps({"locks": _locks, "can": found}).encode())

    return json.loads(Child(run, seconds=2 * PROBE_S).output())


def _write_all(into: int, data: bytes) -> None:
    while data:
        data = data[os.write(into, data) :]


KINDS = {kind.__name__: kind for kind in (humaneval, apps, command, trial)}


def main() -> None:
    _settings.update(json.loads(sys.argv[1]))
    sys.path[:] = _settings["path"]
    if _settings["int_digits"] is not None:
        sys.set_int_max_str_digits(_settings["int_digits"])
    globals()["kernel_sandbox"] = importlib.import_module("eval_factory.core.kernel_sandbox")
    question = json.loads(sys.stdin.read())
    result = os.dup(1)
    os.dup2(2, 1)  # whatever HELM prints is no answer
    answer = KINDS[question["kind"]](question)
    _write_all(result, json.dumps(answer).encode())


if __name__ == "__main__":
    main()
