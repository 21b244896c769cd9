"""The program as a shell starts it, but forked from a process that has imported everything.

Of the two seconds of CPU that a small run costs, its two programs spend most on imports. Here one process per pytest
worker imports them once, and forks for each run. What runs is the same: `eval_factory.__main__.main`, and helm-run's own
`main`, each in a process of its own, with its own group, environment, working directory and standard streams.

It differs in what is imported first, and in that all programs of a worker hash alike. So a program starts plainly, as
a user's does, where the environment names a variable that is read while something is imported, where the system cannot
do this, where it verifies what another wrote (the order of a set must show), and with EVAL_FACTORY_EVERY_TEST=1
everywhere. Tests that start a program themselves start it plainly, too.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import importlib
import json
import os
import pkgutil
import re
import resource
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any

PROGRAM = (sys.executable, "-m", "eval_factory")
HELM_RUN = str(Path(sys.executable).parent / "helm-run")
CELL = [sys.executable, "-m", "eval_factory.workflows.suite.cell_process"]
CELLS_AT_ONCE = 4  # forked ahead for a suite; further ones start plainly
MAX_MESSAGE = 1 << 17
HARMLESS = re.compile(
    r".*(KEY|TOKEN|SECRET|CLIENT_ID|TOKEN_URL|SCOPE)|(?i:(https?|all|no)_proxy)|XDG_(CACHE|DATA)_HOME|PATH|TMPDIR|COLUMNS"
    r"|NO_COLOR|EVAL_FACTORY_MEDHELM|HF_HOME|HF_HUB_OFFLINE|NLTK_DATA|TIKTOKEN_CACHE_DIR"
)
"""Variables that nothing reads which is imported here: credentials, proxies, folders."""
READ_THE_HUBS = {
    "datasets",
    "huggingface_hub",
}  # packages that read variables while they are imported: not here


def shell_environment() -> dict[str, str]:
    """What a program of the tests gets to see of theirs."""
    return {
        name: os.environ[name] for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ
    }


OURS = shell_environment()  # before any test changes it


def can_fork(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    different = {name for name in {*env, *OURS} if env.get(name) != OURS.get(name)}
    return (
        tuple(argv[:3]) == PROGRAM
        and "verify" not in argv[3:]
        and os.environ.get("EVAL_FACTORY_EVERY_TEST") != "1"
        and hasattr(os, "pidfd_open")
        and all(map(HARMLESS.fullmatch, different))
    )


def run(
    argv: Sequence[str], *, cwd: Path | None, env: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` with captured text, forked where it can be."""
    if not can_fork(argv, env):
        return subprocess.run(
            argv,
            cwd=cwd,
            env=dict(env),
            capture_output=True,
            text=True,
            errors="backslashreplace",
            timeout=timeout,
            check=False,
        )
    ended, ending = os.pipe()
    message = {"argv": list(argv[3:]), "cwd": str(cwd or Path.cwd()), "env": dict(env)}
    with (
        tempfile.TemporaryFile() as out,
        tempfile.TemporaryFile() as error,
        os.fdopen(ended, "rb") as record,
    ):
        with Path(os.devnull).open("rb") as nothing, os.fdopen(ending, "wb") as reply:
            files = [file.fileno() for file in (nothing, out, error, reply)]
            socket.send_fds(_server(), [json.dumps(message).encode()], files)
        started = record.readline()
        assert started, "the process that forks has ended; what it wrote on standard error says why"
        pid = int(started)
        with selectors.DefaultSelector() as wait:
            wait.register(record, selectors.EVENT_READ)
            if not wait.select(timeout):
                os.kill(pid, signal.SIGKILL)
                raise subprocess.TimeoutExpired(list(argv), timeout)
        code = int(record.readline())
        texts = [
            (file.seek(0), file.read().decode("utf-8", "backslashreplace"))[1]
            for file in (out, error)
        ]
    return subprocess.CompletedProcess(list(argv), code, *texts)


@cache
def _server() -> socket.socket:
    """Of this worker, to its end: one message is one program."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    started = subprocess.Popen(
        [sys.executable, __file__, str(theirs.fileno())],
        pass_fds=[theirs.fileno()],
        stdin=subprocess.DEVNULL,
        env=OURS,
    )
    theirs.close()
    atexit.register(started.wait)
    atexit.register(ours.close)  # first
    return ours


# What follows runs in the process that forks, and in what it forks.


def import_everything() -> None:
    """Of the program's own process all it uses. Of helm-run what it imports before it loads a plug-in, and packages that
    most runs use; no more of HELM: in which order its modules are imported and patched stays as it is."""
    import eval_factory

    for module in pkgutil.walk_packages(eval_factory.__path__, "eval_factory."):
        if ".helm_plugin" not in module.name and not module.name.endswith(
            ("__main__", "cell_process")
        ):
            importlib.import_module(module.name)
    importlib.import_module("eval_factory.__main__")
    for name in (
        "helm.benchmark.run",
        "nltk",
        "rouge_score.rouge_scorer",
        "rich.progress",
        "_strptime",
        "encodings.idna",
    ):
        importlib.import_module(name)
    from eval_factory.tasks.upstreams import HELM
    from eval_factory.workflows.evaluate import get_ready_to_collect

    get_ready_to_collect(HELM)
    assert not READ_THE_HUBS & set(sys.modules)


def serve(messages: socket.socket) -> Callable[[], object] | None:
    """Returns in each forked process with what it is to run; in this one when nobody sends messages any more."""
    children: dict[int, tuple[int, int]] = {}
    with selectors.DefaultSelector() as wait:
        wait.register(messages, selectors.EVENT_READ)
        while True:
            for key, _ in wait.select():
                if key.fileobj is not messages:
                    pid, reply = children.pop(key.fd)
                    code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
                    with contextlib.suppress(BrokenPipeError):
                        os.write(reply, b"%d\n" % code)
                    wait.unregister(key.fd)
                    os.close(key.fd)
                    os.close(reply)
                    continue
                data, files, _, _ = socket.recv_fds(messages, MAX_MESSAGE, 4)
                if not data:
                    return None
                if (pid := os.fork()) == 0:
                    for descriptor, (_, reply) in children.items():
                        os.close(descriptor)
                        os.close(reply)
                    wait.close()
                    messages.close()
                    os.close(files[3])
                    return lambda: program(json.loads(data), files[:3])
                for file in files[:3]:
                    os.close(file)
                os.write(files[3], b"%d\n" % pid)
                descriptor = os.pidfd_open(pid)
                children[descriptor] = (pid, files[3])
                wait.register(descriptor, selectors.EVENT_READ)


def become(message: Mapping[str, Any], files: Sequence[int], numbers: Sequence[int]) -> None:
    """Take the environment, folder and files (as `numbers`) that a program gets."""
    high = [os.dup2(file, 200 + at) for at, file in enumerate(files)]
    for number, file in zip(numbers, high, strict=True):
        os.dup2(file, number)
    for file in {*files, *high} - set(numbers):
        os.close(file)
    os.environ.clear()
    os.environ.update(message["env"])
    os.chdir(message["cwd"])
    tempfile.tempdir = None
    if "NLTK_DATA" in os.environ:  # as nltk has it where it is imported
        importlib.import_module("nltk.data").path[:0] = os.environ["NLTK_DATA"].split(os.pathsep)


def program(message: Mapping[str, Any], files: Sequence[int]) -> object:
    """The program itself, with processes forked ahead that its children become."""
    become(message, files, (0, 1, 2))
    sys.argv = ["eval-factory", *message["argv"]]
    sys.path[0] = message["cwd"]
    is_suite = bool({"run_suite", "run_leaderboard"} & set(message["argv"]))
    ahead = fork_ahead(CELLS_AT_ONCE if is_suite else 1)
    if callable(ahead):
        return ahead()
    return importlib.import_module("eval_factory.__main__").main()


def fork_ahead(number: int) -> Callable[[], object] | None:
    """In each of the processes forked here: what it has become; in this one None, and Popen takes them."""
    stock: list[tuple[int, socket.socket]] = []
    for _ in range(number):
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        if (pid := os.fork()) == 0:
            for _, other in [*stock, (0, ours)]:
                other.close()
            return lambda: child(theirs)
        theirs.close()
        stock.append((pid, ours))

    class ForkedAhead(subprocess.Popen):  # type: ignore[type-arg]
        def _execute_child(self, *arguments: Any) -> None:
            argv, _, _, _, pass_fds, cwd, env, _, _, _, reads, _, _, writes, _, errors = arguments[
                :16
            ]
            if not stock or env is None or (argv[0] != HELM_RUN and argv[:3] != CELL):
                super()._execute_child(*arguments)  # type: ignore[misc]
                return
            self.pid, messages = stock.pop()
            numbers = [0, 1, 2, *pass_fds]
            files = [reads, writes, errors, *pass_fds]
            message = {
                "argv": argv,
                "env": env,
                "cwd": str(cwd or Path.cwd()),
                "numbers": numbers,
                "open files": resource.getrlimit(resource.RLIMIT_NOFILE),
            }
            with messages:
                socket.send_fds(messages, [json.dumps(message).encode()], files)
            self._child_created = True
            self._close_pipe_fds(*arguments[10:16])  # type: ignore[attr-defined]

    subprocess.Popen = ForkedAhead  # type: ignore[misc]
    return None


def child(messages: socket.socket) -> object:
    """Wait for what to become; end where nothing comes any more."""
    with messages:
        data, files, _, _ = socket.recv_fds(messages, MAX_MESSAGE, 16)
    if not data:
        os._exit(0)
    message = json.loads(data)
    os.setsid()
    resource.setrlimit(resource.RLIMIT_NOFILE, message["open files"])
    become(message, files, message["numbers"])
    argv = message["argv"]
    if argv[0] == HELM_RUN:
        for stream in (sys.stdout, sys.stderr):
            stream.reconfigure(write_through=True)  # type: ignore[union-attr]
        sys.argv = argv
        sys.path[0] = str(Path(HELM_RUN).parent)
        return importlib.import_module("helm.benchmark.run").main()
    sys.argv = argv[2:]
    sys.path[0] = message["cwd"]
    ahead = fork_ahead(1)
    return ahead() if ahead else runpy.run_module(CELL[-1], run_name="__main__", alter_sys=True)


def run_to_its_end(what: Callable[[], object]) -> None:
    """As the interpreter does at its end, but for taking apart what the parent has imported: 0.3 s of CPU."""
    code: object = 0
    try:
        code = what()
    except SystemExit as end:
        code = end.code
    if code is not None and not isinstance(code, int):
        print(code, file=sys.stderr)
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os._exit((code or 0) & 0xFF)


if __name__ == "__main__":
    import_everything()
    gc.collect()
    gc.freeze()
    what = serve(socket.socket(fileno=int(sys.argv[1])))
    if what is not None:
        run_to_its_end(what)
