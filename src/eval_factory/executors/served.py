"""The servers of a model, for as long as they are asked: started, waited for, looked after, started again, ended.

Each has a guard beside it, on the machine that it runs on:

    python -m eval_factory.executors.served

Standard input: a line of JSON says what to start, and its end says to end it; so it ends, too, with a process that
nobody could tell anything (SIGKILL). Standard output: lines of JSON, of which `text` is to be shown, and `state` says
what has become of it. What the server says goes into its log, redacted.
"""

from __future__ import annotations

import http.client
import json
import os
import random
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.secrets import Redactor
from eval_factory.core.urls import PORT, REPLICA
from eval_factory.executors.process import TAIL_LINES, copy_lines, end_group, start_listening

_MODULE = "eval_factory.executors.served"
_LOOPBACK, HEALTHY = "127.0.0.1", 200
ASKED_EVERY_S, WATCHED_EVERY_S, MAX_ANSWER_S = 0.2, 2.0, 10.0
TO_BE_GONE_S, COPY_S = 5.0, 2.0  # beyond the grace that the server itself has; for its last lines when it has ended
MAX_PORTS, MAX_TRIES = 5, 200
FIRST_PORT, LAST_PORT = 20_000, 32_000
"""Below those that systems give to connections of their own, so that none takes it between now and its use."""
LAST_LINES = 5
TOKEN = "EVAL_FACTORY_SERVER"  # noqa: S105 - the name of a variable
"""By which the processes of a server are known again: they inherit it."""
_STARTING, _READY, _GONE, OUT = "starting", "ready", "gone", "out"
"""What has become of a server. GONE: it was ready, and may be started again; OUT: it is not started again."""
_Say = Callable[[str], None]


class ServerFailedError(PrerequisiteError):
    """A model's server cannot be started, or is not started again. The message's first line says which and why."""


@dataclass(frozen=True)
class ServerSpec:
    """What is served for the target of this name, and how. `{port}` and `{replica}` are each server's own."""

    name: str
    words: tuple[str, ...]
    health: str  # the URL, on the server's own machine, that answers with 200 when it is ready
    log: Path
    env: Mapping[str, str]  # all that the server gets to see, but for its settings
    secrets: tuple[str, ...]  # values that are not to stand in its log: requests bring keys to it, too
    start_time_limit_s: float
    hang_time_limit_s: float
    stop_grace_s: float
    max_restarts: int
    settings: Mapping[str, str] = field(default_factory=dict)  # variables with their values
    replicas: int = 1
    launch: tuple[str, ...] = ()
    """Words that start a program on a machine for one of the servers; none: they run on this one."""


class _Server:
    """One of them, by its guard."""

    def __init__(self, spec: ServerSpec, replica: int) -> None:
        one = spec.replicas == 1
        self._spec, self._replica = spec, replica
        self.called = f"the server of {spec.name}" if one else f"the server of {spec.name} (replica {replica})"
        self.log = spec.log if one else spec.log.with_name(f"{spec.log.stem}@{replica}{spec.log.suffix}")
        self.state, self.why = _GONE, "does not run"
        self.address, self.moved, self.restarts = "", False, 0
        self._guard: subprocess.Popen[bytes] | None = None
        self._rest = b""
        self._group: int | None = None
        """Of the server's processes, while they are on this machine."""

    def begin(self, *, same_port: bool = False) -> None:
        """Whoever asks it finds it again at the same port."""
        spec = self._spec
        self.state, self._rest = _STARTING, b""
        self._guard = start_listening([*spec.launch, sys.executable, "-m", _MODULE], spec.env, log=self.log)
        order = {**asdict(spec), "called": self.called, "replica": self._replica, "log": str(self.log), "env": None}
        order |= {"asked_from": socket.gethostname(), "port": urlsplit(self.address).port if same_port else None}
        with suppress(OSError):
            _pipe(self._guard.stdin).write((json.dumps(order) + "\n").encode())
            _pipe(self._guard.stdin).flush()

    def read_states(self, say: _Say, seconds: float = 0.0) -> str:
        """Its state, by all that its guard has said; it is listened to until it says no more, or for so long."""
        if self._guard is None:
            return self.state
        source, deadline = _pipe(self._guard.stdout), time.monotonic() + seconds
        while select.select([source], [], [], max(0.0, deadline - time.monotonic()))[0]:
            data = os.read(source.fileno(), 65536)
            if not data:
                break
            *lines, self._rest = (self._rest + data).split(b"\n")
            for line in lines:
                self._take(json.loads(line), say)
        else:
            return self.state
        if self.state == _STARTING:
            self.state, self.why = OUT, f"{self.called} is gone before it was ready; see {self.log}"
        elif self.state == _READY:
            self.state, self.why = _GONE, "is gone: what looked after it was killed"
        return self.state

    def _take(self, said: Mapping[str, Any], say: _Say) -> None:
        if "text" in said:
            say(said["text"])
        if "group" in said and not self._spec.launch:
            self._group = said["group"]
        if "address" in said:
            self.moved = self.address not in ("", said["address"])
            self.address = said["address"]
        self.state, self.why = said.get("state", self.state), said.get("why", self.why)

    def close(self) -> None:
        if self._guard is not None:
            with suppress(OSError):
                _pipe(self._guard.stdin).close()

    def stop(self) -> None:
        """Nothing of it is left when this returns."""
        guard, before = self._guard, (self.state, self.why)
        if guard is None:
            return
        self.close()
        self.read_states(lambda _: None, self._spec.stop_grace_s + TO_BE_GONE_S)
        self._guard = None
        self.state, self.why = (_GONE, "does not run") if before[0] in (_STARTING, _READY) else before
        if self._group is not None:  # its guard was killed
            with suppress(OSError):
                os.killpg(self._group, signal.SIGKILL)
        guard.kill()
        guard.wait()
        _pipe(guard.stdout).close()


class ServedModel(AbstractContextManager["ServedModel"]):
    """The servers of a target. What is started within its context ends with that. One thread uses it."""

    def __init__(self, spec: ServerSpec, say: _Say, tick: Callable[[], None] = lambda: None) -> None:
        """`say` learns what becomes of them; `tick` is called now and then while they are waited for."""
        self._spec, self._say, self._tick = spec, say, tick
        self._servers = [_Server(spec, number) for number in range(spec.replicas)]

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def addresses(self) -> tuple[str, ...]:
        """Of those that are ready."""
        return tuple(one.address for one in self._servers if one.state == _READY)

    @property
    def logs(self) -> tuple[Path, ...]:
        return tuple(one.log for one in self._servers)

    def is_ready(self) -> bool:
        """Whether one of them answers now. Any thread may ask."""
        return any(map(self._answers, self.addresses))

    def start(self) -> None:
        """Start them, and wait until each is ready, or is not going to be. Raises ServerFailedError: none is ready."""
        for one in self._servers:
            one.begin()
        self._wait()

    def lost(self) -> str | None:
        """Why they can be asked no more: the last one has ended, or hangs. None where all is well."""
        for one in self._servers:
            before = one.state
            if one.read_states(self._say) == OUT and before == _STARTING and self.addresses:
                self._leave_out(one)
        if any(one.moved for one in self._servers):
            return "is at another port now"
        return None if self.addresses else min(self._servers, key=lambda one: one.state == OUT).why

    def watch(self) -> str | None:
        """As `lost`. One that is lost while others answer is started again meanwhile."""
        why = self.lost()
        for one in self._servers if why is None else ():
            if one.state == _GONE and not self._begin_again(one, same_port=True):
                self._leave_out(one)
        return why

    def start_again(self) -> None:
        """Start those that are lost, each if it has not been lost too often, and wait for them.
        Raises ServerFailedError: none is ready, or none is started again."""
        for one in self._servers:
            one.moved = False
            if one.state == _GONE:
                self._begin_again(one)
        self._wait()

    def stop(self) -> None:
        """End them, with all that they have started: asked first, then made to."""
        for one in self._servers:
            one.close()
        for one in self._servers:
            one.stop()

    def _answers(self, address: str) -> bool:
        there = urlsplit(address)
        asked = urlsplit(self._spec.health.replace(PORT, str(there.port)))
        return answers(asked._replace(netloc=f"{there.hostname}:{asked.port}").geturl())

    def _begin_again(self, one: _Server, *, same_port: bool = False) -> bool:
        most, why = self._spec.max_restarts, one.why
        one.stop()
        if one.restarts >= most:
            one.state, one.why = OUT, (
                f"{one.called} {why}, and is not started again (serve.max_restarts: {most}); its log: {one.log};"
                " what was answered is kept: correct it, then run the same command again"
            )  # fmt: skip
            return False
        one.restarts += 1
        self._say(f"{one.called} {why}; it is started again ({one.restarts} of {most})")
        one.begin(same_port=same_port)
        return True

    def _leave_out(self, one: _Server) -> None:
        self._say(f"{one.why}\n  the others go on: {len(self.addresses)} of {self._spec.replicas}")

    def _wait(self) -> None:
        while _STARTING in [one.read_states(self._say) for one in self._servers]:
            self._tick()
            time.sleep(ASKED_EVERY_S)
        for one in self._servers:
            one.moved = False
            if one.state == _READY and self._spec.launch and not self._answers(one.address):
                one.stop()
                one.state, one.why = OUT, (
                    f"{one.called} is ready at {one.address}, and does not answer from here; have it listen on all"
                    f" addresses of its machine (--host 0.0.0.0); its log: {one.log}"
                )  # fmt: skip
        out = [one for one in self._servers if one.state == OUT]
        if self.addresses:
            for one in out:
                self._leave_out(one)
        elif len(out) < len(self._servers):  # some were ready, and are gone again
            self.start_again()
        else:
            raise ServerFailedError(out[0].why)


class ServerGuard:
    """What is done on the server's machine: one start of it, from the choice of a port to its end."""

    def __init__(self, order: Mapping[str, Any], log: IO[str]) -> None:
        self._order, self._log, self._its = order, log, order["called"]
        self._process: subprocess.Popen[str] | None = None
        self._over = False

    def serve(self) -> None:
        """Until the server has ended, with all of its group. Raises PrerequisiteError: it did not get ready."""
        for same in (self._order["port"], *[None] * (MAX_PORTS - 1)):
            port = same or free_port()
            if self._serves_at(port):
                return
            _say(text=f"{self._its}: somebody else has taken port {port}; another is tried")
        raise PrerequisiteError(
            f"{self._its} was not started: {MAX_PORTS} ports in a row, free before, were taken by other programs; run"
            " the same command again"
        )

    def end_when_told(self, commands: IO[bytes]) -> None:
        commands.read()
        self._over = True
        if self._process is not None:
            end_group(self._process, self._order["stop_grace_s"])

    def _serves_at(self, port: int) -> bool:
        """False: somebody else has the port."""
        log, token, began = Path(self._order["log"]), uuid.uuid4().hex, time.monotonic()
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        host = socket.gethostname()
        host, place = (_LOOPBACK, "") if host == self._order["asked_from"] else (host, f" of {host}")
        _say(text=f"starting {self._its} on port {port}{place}; its log: {log}")
        process = self._process = self._started(port, token)
        words = (process.stdout, self._log, Redactor(self._order["secrets"]), tail)
        copier = threading.Thread(target=copy_lines, args=words, daemon=True)
        copier.start()
        url = self._filled(self._order["health"], port)
        why = self._until_ready(process, url, began)
        was_ready, taken = False, why is None and is_somebody_elses(urlsplit(url).port or port, token)
        if why is None and not taken:
            was_ready, text = True, f"{self._its} is ready after {time.monotonic() - began:.0f} s"
            _say(text=text, state=_READY, address=f"http://{host}:{port}")
            why = self._until_gone(process, url)
        ended = process.poll() is not None
        end_group(process, self._order["stop_grace_s"])  # what it has started is nothing without it
        copier.join(COPY_S)
        _say(group=None)
        if was_ready or self._over:
            _say(state=_GONE, why=why)
        elif taken or (ended and not is_free(port)):  # nothing of ours is left
            return False
        else:
            lines = [line for line in tail if line.strip()][-LAST_LINES:]  # what it said last, of this start
            last = "\n    ".join(["\n  its last lines:", *lines]) if lines else ""
            raise PrerequisiteError(f"{self._its} {why}{last}")
        return True

    def _started(self, port: int, token: str) -> subprocess.Popen[str]:
        words = [self._filled(word, port) for word in self._order["words"]]
        settings = {name: self._filled(value, port) for name, value in self._order["settings"].items()}
        try:
            process = subprocess.Popen(
                words,
                env={**os.environ, **settings, TOKEN: token},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                encoding="utf-8",
                errors="replace",
                start_new_session=True,
            )
        except OSError as error:
            raise PrerequisiteError(
                f"{self._its} cannot be started: {error.strerror or error} ({words[0]}); install it, or write its whole"
                " path in serve.command"
            ) from error
        _say(group=process.pid)
        return process

    def _until_ready(self, process: subprocess.Popen[str], url: str, began: float) -> str | None:
        """Why it does not get ready; None: it is."""
        log, limit = self._order["log"], self._order["start_time_limit_s"]
        while process.poll() is None and not self._over:
            if answers(url):
                return None
            if time.monotonic() - began >= limit:
                return (
                    f"did not get ready: {url} did not answer with {HEALTHY} within {limit:.0f} s; see {log}, or raise"
                    " serve.start_time_limit_s"
                )
            with suppress(subprocess.TimeoutExpired):
                process.wait(ASKED_EVERY_S)
        return (
            f"{_how_it_ended(process.returncode or 0)} before it was ready; see {log}, then run the same command again"
        )

    def _until_gone(self, process: subprocess.Popen[str], url: str) -> str:
        answered, limit = time.monotonic(), self._order["hang_time_limit_s"]
        while time.monotonic() - answered < limit:
            with suppress(subprocess.TimeoutExpired):
                return _how_it_ended(process.wait(min(WATCHED_EVERY_S, limit / 4)))
            if answers(url, min(MAX_ANSWER_S, limit)):
                answered = time.monotonic()
        return f"hangs: {url} has not answered for {time.monotonic() - answered:.0f} s"

    def _filled(self, text: str, port: int) -> str:
        """No other braces are replaced: they may be the program's own."""
        return text.replace(PORT, str(port)).replace(REPLICA, str(self._order["replica"]))


def answers(url: str, timeout_s: float = MAX_ANSWER_S) -> bool:
    """Whether a health URL answers with 200. No proxy is asked."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    try:
        connection.request("GET", f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}")
        return connection.getresponse().status == HEALTHY
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port() -> int:
    """Raises PrerequisiteError where none is found."""
    for port in random.SystemRandom().sample(range(FIRST_PORT, LAST_PORT + 1), MAX_TRIES):
        if is_free(port):
            return port
    raise PrerequisiteError(
        f"no free port was found from {FIRST_PORT} to {LAST_PORT} for a model's server\n  end what listens there"
    )


def is_free(port: int) -> bool:
    """On this machine's own address and on all of its addresses: a server may choose either."""
    try:
        for host in (_LOOPBACK, ""):
            with socket.socket() as one:
                one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # connections that are over do not count
                one.bind((host, port))
    except OSError:
        return False
    return True


def is_somebody_elses(port: int, token: str, proc: Path = Path("/proc")) -> bool:
    """Whether a port that answers is known to be of another program than who inherited the token. False where the
    system does not say.
    """
    rows: list[list[str]] = []
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            rows += map(str.split, (proc / "net" / name).read_text("ascii").splitlines()[1:])
    listen = [row for row in rows if row[3] == "0A" and int(row[1].rpartition(":")[2], 16) == port]
    sockets = {f"socket:[{row[9]}]" for row in listen if int(row[7]) == os.getuid()}
    if not sockets:  # root's may pass on to a container that is ours
        return bool(listen) and all(row[7] != "0" for row in listen)
    ours = []
    for process in proc.glob("[0-9]*"):
        with suppress(OSError):
            if any(str(one.readlink()) in sockets for one in (process / "fd").iterdir()):
                ours.append(f"{TOKEN}={token}".encode() in (process / "environ").read_bytes().split(b"\0"))
    return bool(ours) and not any(ours)


def _how_it_ended(code: int) -> str:
    return f"was ended by signal {-code}" if code < 0 else f"ended with exit code {code}"


def _pipe(pipe: IO[bytes] | None) -> IO[bytes]:
    assert pipe is not None  # noqa: S101 - it was asked for
    return pipe


def _say(**fields: Any) -> None:
    with suppress(OSError):  # nobody listens any more
        os.write(1, (json.dumps(fields) + "\n").encode())


def main() -> None:
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # whoever asked for the server gets it too, and says what follows
    order = json.loads(sys.stdin.buffer.readline())
    descriptor = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    with os.fdopen(descriptor, "a", encoding="utf-8", buffering=1, errors="backslashreplace") as log:
        guard = ServerGuard(order, log)
        threading.Thread(target=guard.end_when_told, args=(sys.stdin.buffer,), daemon=True).start()
        try:
            guard.serve()
        except PrerequisiteError as error:
            _say(state=OUT, why=str(error))
    os._exit(0)


if __name__ == "__main__":
    main()
