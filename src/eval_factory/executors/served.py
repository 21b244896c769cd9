"""Starts the servers of a model, watches them, restarts them if they are lost, and ends them.

Each server has a guard process on the same machine: `python -m eval_factory.executors.served`. The
guard reads a line of JSON from standard input, which describes the server. When the guard's input
ends, the guard ends the server; this also works if the parent process was killed. The guard reports
as lines of JSON on standard output. A report may have these keys:

- `text`: a message for the user.
- `state`: the state of the server; `why`: why the server is not ready.
- `address`: the address of the server when it is ready.
- `group`: the process group of the server; null after the end of the server.
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
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractContextManager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import urlsplit

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.secrets import Redactor
from eval_factory.core.urls import PORT_PLACEHOLDER, REPLICA_PLACEHOLDER
from eval_factory.executors.process import (
    TAIL_LINES,
    copy_lines,
    end_group,
    start_in_group,
    start_with_log,
)

_MODULE = "eval_factory.executors.served"
_LOOPBACK = "127.0.0.1"
HEALTHY = 200  # the HTTP status of a health URL whose server is ready
# The constants that end with _S are times in seconds.
START_POLL_INTERVAL_S = 0.2  # between two requests to the health URL of a starting server
WATCH_INTERVAL_S = 2.0  # between two requests to the health URL of a running server
MAX_ANSWER_S = 10.0  # the maximum time of a request to the health URL
# the maximum time that a guard may run after the server's own grace period
GUARD_END_LIMIT_S = 5.0
# the maximum time that the guard waits for the last lines of an ended server
COPY_END_LIMIT_S = 2.0
# the maximum number of ports on which a server is started, if other programs take the ports
MAX_PORTS = 5
# the number of ports that are checked before the search for a free port fails
MAX_PORT_TRIES = 200
FIRST_PORT = 20_000
LAST_PORT = 32_000
"""Operating systems choose higher ports for outgoing connections. A free port in this range is
therefore unlikely to be taken before the server opens it.
"""
READ_SIZE = 1 << 16  # the maximum number of bytes of reports that are read at once
SHOWN_LAST_LINES = 5  # the number of a failed server's last lines in the error message
TOKEN_VARIABLE = "EVAL_FACTORY_SERVER"  # noqa: S105 - the name of a variable
"""The environment variable that identifies the processes of a server, which inherit it."""
# the states of a server
_STARTING = "starting"  # also during a restart
_READY = "ready"
OUT = "out"  # lost, and not started again
_Say = Callable[[str], None]


class ServerFailedError(PrerequisiteError):
    """No server of a model could be started, or all servers were lost.

    The first line of the message names a server, and why it is lost.
    """


@dataclass(frozen=True)
class ServerSpec:
    """The command and the settings of a target's servers.

    `{port}` and `{replica}` in the command, the URL and the settings are placeholders; each server
    has its own values.
    """

    name: str  # the name of the target
    words: tuple[str, ...]  # the command
    health: str  # the URL on the server's machine that answers with 200 when the server is ready
    log: Path
    env: Mapping[str, str]  # all environment variables of the server except `settings`
    # values that are removed from the log; requests contain keys, which a server may log
    secrets: tuple[str, ...]
    start_time_limit_s: float  # the maximum time from the start until the server is ready
    hang_time_limit_s: float  # a server that does not answer for this time is lost
    stop_grace_s: float  # the time between SIGTERM and SIGKILL
    max_restarts: int  # the maximum number of restarts of a lost server
    settings: Mapping[str, str] = field(default_factory=dict)  # further environment variables
    replicas: int = 1  # the number of servers
    launch: tuple[str, ...] = ()
    """The command prefix that starts a program on another machine, such as srun with options.

    If it is empty, the servers run on this machine.
    """


class _Server:
    """One server of a model, with the state that its guard has reported."""

    def __init__(self, spec: ServerSpec, replica: int) -> None:
        """Prepare a server; `start` starts it. `replica`: the number of the server, from 0."""
        self._spec = spec
        self._replica = replica
        self.label = f"the server of {spec.name}"
        self.log = spec.log
        if spec.replicas > 1:
            self.label += f" (replica {replica})"
            self.log = spec.log.with_name(f"{spec.log.stem}@{replica}{spec.log.suffix}")
        self.state = _STARTING
        self.why = "does not run"  # why the server is not ready
        self.address = ""  # such as `http://127.0.0.1:20000`; empty until the server is ready
        # True if a message has reported that the other servers continue without this server
        self.is_left_out = False
        self._guard: subprocess.Popen[bytes] | None = None
        self._is_silent = False  # True if the guard has closed its output: the guard has ended
        self._rest = b""  # the beginning of a report whose line is not complete yet
        self._group: int | None = None
        """The process group of the server; None if the server does not run on this machine."""

    def start(self) -> None:
        """Start the guard, which starts the server."""
        spec = self._spec
        argv = [*spec.launch, sys.executable, "-m", _MODULE]
        self._guard = start_with_log(argv, spec.env, self.log, stdout=subprocess.PIPE)
        order = {  # describes the server to the guard
            **asdict(spec),
            "label": self.label,
            "replica": self._replica,
            "log": str(self.log),
            "env": None,  # the guard has these variables as its own environment
        }
        # A guard on the same machine as this process reports the loopback address of its server.
        order["parent_host"] = socket.gethostname()
        if self._guard.stdin is not None:
            # If the guard has already ended, `take_reports` notices the end.
            with suppress(BrokenPipeError):
                self._guard.stdin.write(f"{json.dumps(order)}\n".encode())
                self._guard.stdin.flush()

    def take_reports(self, say: _Say, seconds: float = 0.0) -> None:
        """Process all new reports of the guard.

        `seconds`: how long to wait for further reports; the wait also ends with the guard.
        """
        deadline = time.monotonic() + seconds
        while reports := self._reports(max(0.0, deadline - time.monotonic())):
            for report in reports:
                if "text" in report:
                    say(report["text"])
                if "group" in report and not self._spec.launch:
                    self._group = report["group"]
                self.state = report.get("state", self.state)
                self.why = report.get("why", self.why)
                self.address = report.get("address", self.address)
        if self._is_silent and self.state != OUT:
            self.state = OUT
            self.why = f"{self.label} is gone: its guard process was killed; see {self.log}"

    def _reports(self, seconds: float) -> list[dict[str, Any]]:
        """Return the new complete reports of the guard; wait at most `seconds` for a report.

        The list is empty if no report came in time, or if the guard has ended.
        """
        if self._guard is None or self._guard.stdout is None or self._is_silent:
            return []
        readable, _, _ = select.select([self._guard.stdout], [], [], seconds)
        if not readable:
            return []
        data = os.read(self._guard.stdout.fileno(), READ_SIZE)
        self._is_silent = not data
        *lines, self._rest = (self._rest + data).split(b"\n")
        return [json.loads(line) for line in lines]

    def close(self) -> None:
        """Close the input of the guard, which then ends the server."""
        if self._guard is not None and self._guard.stdin is not None:
            with suppress(OSError):
                self._guard.stdin.close()

    def stop(self) -> None:
        """Stop the server, and wait until its processes have ended."""
        if self._guard is None:
            return
        self.close()
        # Wait for the end of the guard's output; the messages on the way are not shown.
        self.take_reports(lambda _: None, self._spec.stop_grace_s + GUARD_END_LIMIT_S)
        if self._group is not None:  # the guard was killed before it could end the server
            with suppress(OSError):
                os.killpg(self._group, signal.SIGKILL)
        with self._guard:  # closes the pipes, and waits for the end of the guard
            self._guard.kill()
        self._guard = None


class ServedModel(AbstractContextManager["ServedModel"]):
    """The servers of a target. At the end of the `with` block, all servers are ended.

    Only one thread may use an instance, except for `is_ready`.
    """

    def __init__(
        self, spec: ServerSpec, say: _Say, tick: Callable[[], None] = lambda: None
    ) -> None:
        """Prepare the servers of a model; `start` starts them.

        Args:
            spec: the command and the settings of the servers.
            say: gets messages for the user.
            tick: is called regularly during a wait for the servers.
        """
        self._spec = spec
        self._say = say
        self._tick = tick
        self._servers = [_Server(spec, number) for number in range(spec.replicas)]

    def __exit__(self, *_: object) -> None:
        for server in self._servers:
            server.close()
        for server in self._servers:
            server.stop()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The addresses of the servers that are ready."""
        return tuple(server.address for server in self._servers if server.state == _READY)

    def is_ready(self) -> bool:
        """Return True if at least one server answers now. Any thread may call this method."""
        return any(map(self._is_healthy_at, self.addresses))

    def start(self) -> None:
        """Start the servers, and wait as `wait_until_ready` does."""
        for server in self._servers:
            server.start()
        self.wait_until_ready()

    def wait_until_ready(self) -> None:
        """Wait until each server is ready or has failed.

        Raises:
            ServerFailedError: no server is ready.
        """
        self._take_reports()
        while any(server.state == _STARTING for server in self._servers):
            self._tick()
            time.sleep(START_POLL_INTERVAL_S)
            self._take_reports()
        runs_elsewhere = bool(self._spec.launch)
        for server in self._servers:
            # The guard asks the server on the server's own machine, and this process asks it here.
            if not runs_elsewhere or server.state != _READY:
                continue
            if not self._is_healthy_at(server.address):
                server.stop()
                server.state = OUT
                server.why = (
                    f"{server.label} is ready at {server.address}, but does not answer requests of "
                    "this machine; let the server listen on all addresses of its machine "
                    f"(--host 0.0.0.0); its log: {server.log}"
                )
        if not self.addresses:
            raise ServerFailedError(self._servers[0].why)
        self._report_left_out()

    def why_lost(self) -> str | None:
        """Return why no server is ready; None if at least one server is ready.

        The guards restart lost servers, so that a server may be ready again at a later call.
        """
        self._take_reports()
        if self.addresses:
            self._report_left_out()
            return None
        # The reason of a server that starts again is preferred to that of a server that is out.
        for server in self._servers:
            if server.state != OUT:
                return server.why
        return self._servers[0].why

    def _take_reports(self) -> None:
        """Process the new reports of all guards."""
        for server in self._servers:
            server.take_reports(self._say)

    def _report_left_out(self) -> None:
        """Report each server that is out once to the user."""
        for server in self._servers:
            if server.state == OUT and not server.is_left_out:
                server.is_left_out = True
                left = f"{len(self.addresses)} of {self._spec.replicas}"
                self._say(f"{server.why}\n  the other servers continue: {left}")

    def _is_healthy_at(self, address: str) -> bool:
        """Return True if the health URL of the server at this address answers with 200."""
        # `health` is a URL for the server's own machine: its host is replaced by the server's host.
        server = urlsplit(address)
        health = urlsplit(self._spec.health.replace(PORT_PLACEHOLDER, str(server.port)))
        return is_healthy(health._replace(netloc=f"{server.hostname}:{health.port}").geturl())


class ServerGuard:
    """The guard of a server: chooses a port, starts the server, watches it and ends it.

    The guard gets an order: a mapping that describes the server (see `_Server.start`).
    """

    def __init__(self, order: Mapping[str, Any], log: IO[str]) -> None:
        """Prepare the guard.

        Args:
            order: the fields of `ServerSpec`, and the keys that `_Server.start` adds.
            log: the log of the server.
        """
        self._order = order
        self._log = log
        self._label = order["label"]
        self._process: subprocess.Popen[str] | None = None
        self._is_ending = False  # True if the server has to end

    def serve(self) -> None:
        """Run the server until the guard's input ends, and restart the server if it is lost.

        Raises:
            PrerequisiteError: the server did not get ready, or is not started again.
        """
        loss: str | None = None  # how the server was lost; None if another program took its port
        for _ in range(MAX_PORTS):
            port = free_port()
            loss = self._run_until_lost(port)
            if loss is not None:
                break
            _write_report(
                text=f"{self._label}: another program has taken port {port}; trying another port"
            )
        max_restarts = self._order["max_restarts"]
        for number in range(1, max_restarts + 1):
            if loss is None or self._is_ending:
                break
            text = f"{self._label} {loss}; it is started again ({number} of {max_restarts})"
            _write_report(text=text, state=_STARTING, why=loss)
            # The port stays the same, so that the address of the server stays valid.
            loss = self._run_until_lost(port)
        if self._is_ending:
            return
        if loss is None:
            raise PrerequisiteError(
                f"{self._label} was not started: other programs take its port; "
                "run the same command again"
            )
        raise PrerequisiteError(
            f"{self._label} {loss}, and is not started again "
            f"(serve.max_restarts: {max_restarts}); its log: {self._order['log']}; "
            "correct the problem, then run the same command again, which reuses the answers so far"
        )

    def end_with(self, commands: IO[bytes]) -> None:
        """Wait for the end of the guard's input, then end the server."""
        commands.read()
        self._is_ending = True
        if self._process is not None:
            end_group(self._process, self._order["stop_grace_s"])

    def _run_until_lost(self, port: int) -> str | None:
        """Start the server on this port, and watch it until it is lost or ended.

        Returns:
            How the server was lost after it was ready, as a text; None if another program has taken
            the port.

        Raises:
            PrerequisiteError: the server did not get ready.
        """
        log = Path(self._order["log"])
        token = uuid.uuid4().hex
        started = time.monotonic()
        tail: deque[str] = deque(maxlen=TAIL_LINES)
        host = socket.gethostname()
        host_text = f" of {host}"
        if host == self._order["parent_host"]:
            host = _LOOPBACK
            host_text = ""
        _write_report(text=f"starting {self._label} on port {port}{host_text}; its log: {log}")
        process = self._process = self._start_process(port, token)
        arguments = (process.stdout, self._log, Redactor(self._order["secrets"]), tail)
        copier = threading.Thread(target=copy_lines, args=arguments, daemon=True)
        copier.start()
        url = self._fill_placeholders(self._order["health"], port)
        failure = self._wait_until_ready(process, url, started)
        loss = ""
        # True if another program has answered at the port of the health URL
        is_port_taken = failure is None and is_foreign_port(urlsplit(url).port or port, token)
        if failure is None and not is_port_taken:
            text = f"{self._label} is ready after {time.monotonic() - started:.0f} s"
            _write_report(text=text, state=_READY, address=f"http://{host}:{port}")
            loss = self._wait_until_gone(process, url)
        has_ended = process.poll() is not None  # before `end_group` ends the process
        # Child processes of the server are of no use without the server.
        end_group(process, self._order["stop_grace_s"])
        copier.join(COPY_END_LIMIT_S)
        # The group has ended: `_Server.stop` must not kill a later group with the same number.
        _write_report(group=None)
        if is_port_taken:
            return None
        if failure is None:
            return loss
        # All processes of the server have ended: if the port is not free, another program has it.
        # This program is then the likely reason why the server ended before it was ready.
        if has_ended and not self._is_ending and not is_free(port):
            return None
        raise PrerequisiteError(f"{self._label} {failure}{_last_lines(tail)}")

    def _start_process(self, port: int, token: str) -> subprocess.Popen[str]:
        """Start the server's command, and report its process group.

        Raises:
            PrerequisiteError: the command cannot be started.
        """
        words = [self._fill_placeholders(word, port) for word in self._order["words"]]
        settings = {}
        for name, value in self._order["settings"].items():
            settings[name] = self._fill_placeholders(value, port)
        try:
            env = {**os.environ, **settings, TOKEN_VARIABLE: token}
            process = start_in_group(words, env, stdin=subprocess.DEVNULL)
        except OSError as error:
            raise PrerequisiteError(
                f"{self._label} cannot be started: {error.strerror or error} ({words[0]}); "
                "install this program, or write its full path in serve.command"
            ) from error
        _write_report(group=process.pid)
        return process

    def _wait_until_ready(
        self, process: subprocess.Popen[str], url: str, began: float
    ) -> str | None:
        """Wait until the server is ready; return why it failed, or None if it is ready."""
        log = self._order["log"]
        limit = self._order["start_time_limit_s"]
        while process.poll() is None and not self._is_ending:
            if is_healthy(url):
                return None
            if time.monotonic() - began >= limit:
                return (
                    f"did not get ready: {url} did not answer with {HEALTHY} within {limit:.0f} s; "
                    f"see {log}, or raise serve.start_time_limit_s"
                )
            with suppress(subprocess.TimeoutExpired):
                process.wait(START_POLL_INTERVAL_S)
        # If the guard is ending, the server still runs and has no exit code. The text below is then
        # not shown, so that any code will do.
        return (
            f"{_how_it_ended(process.returncode or 0)} before it was ready; "
            f"see {log}, then run the same command again"
        )

    def _wait_until_gone(self, process: subprocess.Popen[str], url: str) -> str:
        """Wait until the server has ended or hangs; return how it was lost."""
        answered = time.monotonic()
        limit = self._order["hang_time_limit_s"]
        while time.monotonic() - answered < limit:
            # At least four checks fit into the limit: one late answer alone is no hang.
            interval = min(WATCH_INTERVAL_S, limit / 4)
            with suppress(subprocess.TimeoutExpired):  # raised if the server still runs
                return _how_it_ended(process.wait(interval))
            if is_healthy(url, min(MAX_ANSWER_S, limit)):
                answered = time.monotonic()
        return f"hangs: {url} has not answered for {time.monotonic() - answered:.0f} s"

    def _fill_placeholders(self, text: str, port: int) -> str:
        """Return the text with the values of `{port}` and `{replica}`. Other braces stay."""
        return text.replace(PORT_PLACEHOLDER, str(port)).replace(
            REPLICA_PLACEHOLDER, str(self._order["replica"])
        )


def is_healthy(url: str, timeout_s: float = MAX_ANSWER_S) -> bool:
    """Return True if a health URL answers with 200. Proxy settings are ignored."""
    parts = urlsplit(url)
    connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=timeout_s)
    path = parts.path or "/"
    if parts.query:
        path = f"{path}?{parts.query}"
    try:
        connection.request("GET", path)
        return connection.getresponse().status == HEALTHY
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def free_port() -> int:
    """Return a free port for a server.

    Raises:
        PrerequisiteError: no free port was found.
    """
    for port in random.SystemRandom().sample(range(FIRST_PORT, LAST_PORT + 1), MAX_PORT_TRIES):
        if is_free(port):
            return port
    raise PrerequisiteError(
        f"no free port was found from {FIRST_PORT} to {LAST_PORT} for a model's server\n"
        "  end the programs that listen there"
    )


def is_free(port: int) -> bool:
    """Return True if no program listens on the port.

    Both the loopback address and all addresses together are checked: a server may use either.
    """
    try:
        for host in (_LOOPBACK, ""):
            with socket.socket() as listener:
                # Without this option, closed connections would block the port for a while.
                listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                listener.bind((host, port))
    except OSError:
        return False
    return True


def is_foreign_port(port: int, token: str, proc: Path = Path("/proc")) -> bool:
    """Return True if a program without the token listens on the port.

    Returns False if the operating system does not reveal the program.

    Args:
        port: a port that answers.
        token: the value of the environment variable `TOKEN_VARIABLE` of the server's own processes.
        proc: the path of the proc file system.
    """
    listeners = _listeners(port, proc)
    own_user = os.getuid()
    sockets = {listener.socket for listener in listeners if listener.user == own_user}
    if not sockets:
        # No program of this user listens. A listener of another user is foreign, except that a
        # listener of root may forward requests to our server in a container.
        root = 0
        return bool(listeners) and all(listener.user != root for listener in listeners)
    have_token = []  # for each process with one of the sockets: True if the process has the token
    for process in proc.glob("[0-9]*"):
        with suppress(OSError):
            if any(str(link.readlink()) in sockets for link in (process / "fd").iterdir()):
                variables = (process / "environ").read_bytes().split(b"\0")
                have_token.append(f"{TOKEN_VARIABLE}={token}".encode() in variables)
    return bool(have_token) and not any(have_token)


@dataclass(frozen=True)
class _Listener:
    """A socket that listens on a port."""

    user: int  # the id of the user whose program has the socket
    socket: str  # the target of the link in /proc/PID/fd, such as `socket:[12345]`


def _listeners(port: int, proc: Path) -> list[_Listener]:
    """Return the sockets of all users that listen on a port; empty if they cannot be read."""
    listeners = []
    for name in ("tcp", "tcp6"):
        lines: list[str] = []
        with suppress(OSError):
            lines = (proc / "net" / name).read_text("ascii").splitlines()
        for line in lines[1:]:  # the first line is the heading
            # The columns by number: 1: the local address, such as 0100007F:1F90 (port 8080 in
            # hexadecimal digits); 3: the state (0A: listening); 7: the user id; 9: the inode.
            columns = line.split()
            _, _, hexadecimal_port = columns[1].rpartition(":")
            if columns[3] == "0A" and int(hexadecimal_port, 16) == port:
                listeners.append(_Listener(int(columns[7]), f"socket:[{columns[9]}]"))
    return listeners


def _last_lines(tail: Iterable[str]) -> str:
    """Return the last lines of a server's output as the end of an error message."""
    lines = [line for line in tail if line.strip()][-SHOWN_LAST_LINES:]
    if not lines:
        return ""
    return "\n    ".join(["\n  its last lines:", *lines])


def _how_it_ended(code: int) -> str:
    """Return a text about the end of a process.

    `code`: the exit code of the process, or minus the number of the signal that killed it.
    """
    if code < 0:
        return f"was ended by signal {-code}"
    return f"ended with exit code {code}"


def _write_report(**fields: Any) -> None:
    """Write a report with these fields, as a line of JSON, to standard output."""
    with suppress(OSError):  # the reader of the reports has ended
        os.write(1, (json.dumps(fields) + "\n").encode())


def main() -> None:
    """Run the guard of one server."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        # The parent process gets these signals too, and decides whether the server ends.
        signal.signal(number, signal.SIG_IGN)
    order = json.loads(sys.stdin.buffer.readline())
    descriptor = os.open(order["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    with os.fdopen(
        descriptor, "a", encoding="utf-8", buffering=1, errors="backslashreplace"
    ) as log:
        guard = ServerGuard(order, log)
        threading.Thread(target=guard.end_with, args=(sys.stdin.buffer,), daemon=True).start()
        try:
            guard.serve()
        except PrerequisiteError as error:
            _write_report(state=OUT, why=str(error))
    os._exit(0)  # unlike the end of `main`, does not wait for the threads


if __name__ == "__main__":
    main()
