"""The server of a model, for as long as it is asked: started, waited for, looked after, started again, ended.

What becomes of it is told apart from what becomes of those who ask it. The server is ended with this process, however
that ends: `executors/server_guard.py`. One thread uses a `ServedModel`; another one of its own asks the health URL.
"""

from __future__ import annotations

import http.client
import json
import os
import select
import signal
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from typing_extensions import Self

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.secrets import names_a_secret
from eval_factory.executors.environment import ALLOWED
from eval_factory.executors.free_port import TOKEN, free_port, is_free, is_somebody_elses
from eval_factory.executors.process import start_listening
from eval_factory.executors.server_guard import MODULE

HEALTHY = 200
ASKED_EVERY_S = 0.2
WATCHED_EVERY_S = 2.0
LONGEST_ANSWER_S = 10.0
MOST_PORTS = 5
LAST_LINES = 5
READ_BYTES = 8192
TO_BE_GONE_S = 5.0
"""Beyond the grace that the server itself has."""
OF_THE_MACHINE = ("CUDA_", "NVIDIA_", "NCCL_", "ROCR_", "HIP_", "LC_")
"""Beginnings of variables by which a server finds GPUs."""
Tick = Callable[[], None]


class ServerFailedError(PrerequisiteError):
    """A model's server cannot be started, or is not started again. The message's first line says which and why."""


@dataclass(frozen=True)
class ServerSpec:
    """What is served, and how."""

    name: str
    """Of the target."""
    argv: Callable[[int], list[str]]
    """The command, for a port."""
    health: Callable[[int], str]
    """The URL that answers with 200 when the server is ready, for a port."""
    log: Path
    env: Mapping[str, str]
    """All that the server gets to see."""
    secrets: tuple[str, ...]
    """Values that are not to stand in its log: requests bring keys to it, too."""
    start_time_limit_s: float
    hang_time_limit_s: float
    stop_grace_s: float
    max_restarts: int


def server_environment(env: Mapping[str, str], names: tuple[str, ...]) -> dict[str, str]:
    """What finds programs, files and GPUs, and the variables that are named: no key of a judge or a model."""
    kept = {
        name: value
        for name, value in env.items()
        if (name in ALLOWED or name.startswith(OF_THE_MACHINE)) and not names_a_secret(name)
    }
    return {**kept, "PYTHONUNBUFFERED": "1", **{name: env[name] for name in names if name in env}}


def answers(url: str, timeout_s: float) -> bool:
    """Whether a health URL answers with 200. No proxy is asked: it is on this machine."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}")
        return connection.getresponse().status == HEALTHY
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def how_it_ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


class HealthWatch:
    """Asks a health URL now and then, in a thread of its own."""

    def __init__(self, url: str, *, ask: Callable[[str, float], bool], clock: Callable[[], float]) -> None:
        self._url, self._ask, self._clock = url, ask, clock
        self._last = clock()
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="server-health", daemon=True)
        self._thread.start()

    def silent_s(self) -> float:
        """Seconds since it answered."""
        return self._clock() - self._last

    def end(self) -> None:
        self._over.set()

    def look(self) -> None:
        if self._ask(self._url, LONGEST_ANSWER_S):
            self._last = self._clock()

    def _watch(self) -> None:
        while not self._over.wait(WATCHED_EVERY_S):
            self.look()


class _Guarded:
    """A server's process, by its guard."""

    def __init__(self, spec: ServerSpec, port: int, token: str) -> None:
        env = {**spec.env, TOKEN: token}
        self._grace_s = spec.stop_grace_s
        self._guard = start_listening([sys.executable, "-m", MODULE], env, log=spec.log)
        self._rest = b""
        self._said: dict[str, Any] = {}
        told = {"argv": spec.argv(port), "log": str(spec.log), "grace_s": spec.stop_grace_s, "secrets": spec.secrets}
        if self._guard.stdin is not None:
            with suppress(OSError):
                self._guard.stdin.write((json.dumps(told) + "\n").encode())
                self._guard.stdin.flush()

    def why_it_is_gone(self) -> str | None:
        """None while it runs."""
        over = self._listen(0.0)
        if "failed" in self._said:
            return f"cannot be started: {self._said['failed']}"
        if "returncode" in self._said:
            return how_it_ended(self._said["returncode"])
        return "is gone: what looked after it was killed" if over else None

    @property
    def never_began(self) -> bool:
        return "failed" in self._said

    def stop(self) -> None:
        """Nothing of it is left when this returns."""
        if self._guard.stdin is not None:
            with suppress(OSError):
                self._guard.stdin.close()
        self._listen(self._grace_s + TO_BE_GONE_S)
        if "pid" in self._said and "returncode" not in self._said:  # its guard was killed
            with suppress(OSError):
                os.killpg(self._said["pid"], signal.SIGKILL)
        try:
            self._guard.wait(TO_BE_GONE_S)
        except subprocess.TimeoutExpired:
            self._guard.kill()
            self._guard.wait()
        if self._guard.stdout is not None:
            self._guard.stdout.close()

    def _listen(self, seconds: float) -> bool:
        """Hear what is said until it says nothing more, or for so long. Whether it will say nothing more."""
        source = self._guard.stdout
        if source is None or source.closed:
            return True
        deadline = time.monotonic() + seconds
        while select.select([source], [], [], max(0.0, deadline - time.monotonic()))[0]:
            data = os.read(source.fileno(), 65536)
            if not data:
                return True
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._said |= json.loads(line)
        return False


class ServedModel:
    """The server of a target. What is started within its context ends with that."""

    def __init__(
        self,
        spec: ServerSpec,
        say: Callable[[str], None],
        tick: Tick = lambda: None,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """
        Args:
            say: is told what becomes of it.
            tick: is called now and then while it is waited for.
        """
        self._spec, self._say, self._tick = spec, say, tick
        self._clock, self._sleep = clock, sleep
        self._process: _Guarded | None = None
        self._watch: HealthWatch | None = None
        self._port = 0
        self.restarts = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self._port}"

    def is_ready(self) -> bool:
        """Whether it answers now. Any thread may ask."""
        return answers(self._spec.health(self._port), LONGEST_ANSWER_S)

    def lost(self) -> str | None:
        """Why it can be asked no more: it has ended, or it hangs. None where all is well."""
        if self._process is None or self._watch is None:
            return "does not run"
        gone = self._process.why_it_is_gone()
        if gone is not None:
            return gone
        silent_s = self._watch.silent_s()
        if silent_s >= self._spec.hang_time_limit_s:
            return f"hangs: {self._spec.health(self._port)} has not answered for {silent_s:.0f} s"
        return None

    def start_again(self, why: str) -> None:
        """End what is left of it and start it, if it has not been lost too often.

        Raises:
            ServerFailedError: it is not ready, or is not started again.
        """
        spec = self._spec
        self.stop()
        if self.restarts >= spec.max_restarts:
            raise ServerFailedError(
                f"the server of {spec.name} {why}, and is not started again (serve.max_restarts: {spec.max_restarts});"
                f" its log: {spec.log}; what was answered is kept: mend it, then run the same command again"
            )
        self.restarts += 1
        self._say(f"the server of {spec.name} {why}; it is started again ({self.restarts} of {spec.max_restarts})")
        self.start()

    def stop(self) -> None:
        """End it, with all that it has started: asked first, then made to."""
        if self._watch is not None:
            self._watch.end()
        process, self._process, self._watch = self._process, None, None
        if process is not None:
            process.stop()

    def start(self) -> None:
        """Start it, and wait until it is ready.

        Raises:
            ServerFailedError: it is not ready.
        """
        for _ in range(MOST_PORTS):
            if self._is_ready_at(free_port()):
                return
            self._say(f"the server of {self._spec.name}: somebody else has taken port {self._port}; another is tried")
            self.stop()
        raise ServerFailedError(
            f"the server of {self._spec.name} was not started: {MOST_PORTS} ports in a row, free before, were taken by"
            " other programs; run the same command again"
        )

    def _is_ready_at(self, port: int) -> bool:
        """False: somebody else has the port. Raises ServerFailedError."""
        spec, token, started = self._spec, uuid.uuid4().hex, self._clock()
        self._port = port
        said = _size(spec.log)
        self._say(f"starting the server of {spec.name} on port {port}; its log: {spec.log}")
        self._process = _Guarded(spec, port, token)
        url = spec.health(port)
        while True:
            gone = self._process.why_it_is_gone()
            if gone is not None:
                if not self._process.never_began and not is_free(port):  # nothing of ours is left
                    return False
                raise ServerFailedError(self._why_not_ready(gone, said))
            if answers(url, LONGEST_ANSWER_S):
                break
            if self._clock() - started >= spec.start_time_limit_s:
                raise ServerFailedError(
                    f"the server of {spec.name} did not get ready: {url} did not answer with {HEALTHY} within"
                    f" {spec.start_time_limit_s:.0f} s; see {spec.log}, or raise serve.start_time_limit_s"
                    f"{_last_lines(spec.log, said)}"
                )
            self._tick()
            self._sleep(ASKED_EVERY_S)
        if is_somebody_elses(urlsplit(url).port or port, token):
            return False
        self._say(f"the server of {spec.name} is ready after {self._clock() - started:.0f} s")
        self._watch = HealthWatch(url, ask=answers, clock=self._clock)
        return True

    def _why_not_ready(self, gone: str, said: int) -> str:
        spec = self._spec
        program = spec.argv(self._port)[0]
        if self._process is not None and self._process.never_began:
            return f"the server of {spec.name} {gone} ({program}); install it, or write its whole path in serve.command"
        return (
            f"the server of {spec.name} {gone} before it was ready; see {spec.log}, then run the same command again"
            f"{_last_lines(spec.log, said)}"
        )


def _size(log: Path) -> int:
    return log.stat().st_size if log.is_file() else 0


def _last_lines(log: Path, since: int) -> str:
    """What the server said last, of this start."""
    try:
        with log.open("rb") as file:
            file.seek(max(since, _size(log) - READ_BYTES))
            text = file.read().decode("utf-8", "replace")
    except OSError:
        return ""
    lines = deque((line for line in text.splitlines() if line.strip()), LAST_LINES)
    return "".join(["\n  its last lines:", *(f"\n    {line}" for line in lines)]) if lines else ""
