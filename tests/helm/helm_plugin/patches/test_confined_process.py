"""What is executed for a model: what each lock keeps shut, and that the trial notices where one does not."""

from __future__ import annotations

import ctypes
import json
import os
import platform
import shutil
import socket
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval_factory.core import kernel_sandbox
from eval_factory.helm_plugin.patches import confined_process, confined_worker, execution_record
from eval_factory.helm_plugin.patches.confined_process import (
    Confinement,
    NotConfinedError,
    ask,
    ask_or_none,
    throw_away_folder,
)

LINUX = sys.platform.startswith("linux")
LANDLOCK = ctypes.CDLL(None).syscall(444, None, 0, 1) if LINUX else 0
needs_landlock = pytest.mark.skipif(LANDLOCK < 1, reason="needs a kernel with Landlock (Linux 5.13)")
needs_seccomp = pytest.mark.skipif(
    platform.machine() not in ("x86_64", "aarch64") or not LINUX,
    reason="needs Linux on x86_64 or aarch64: its call numbers",
)

PROBLEM = {
    "task_id": "t/0", "prompt": "def add(a, b):\n", "test": "def check(f):\n    assert f(1, 2) == 3\n", "entry_point": "add",
}  # fmt: skip
EVERYTHING = {
    "use the network", "write files elsewhere", "read files elsewhere", "read the environment of other processes",
    "start processes",
}  # fmt: skip


def in_child(prepare: Callable[[], object], *attempts: Callable[[], object]) -> list[str]:
    """Names of the errors of each attempt, "" where it was done."""
    out, into = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            prepare()
            found = []
            for attempt in attempts:
                try:
                    attempt()
                    found.append("")
                except (OSError, MemoryError) as error:
                    found.append(type(error).__name__)
            os.write(into, json.dumps(found).encode())
        finally:
            os._exit(0)
    os.close(into)
    with os.fdopen(out, "rb") as pipe:
        text = pipe.read()
    os.waitpid(child, 0)
    told: list[str] = json.loads(text)
    return told


@needs_landlock
def test_files_that_are_not_named_are_shut(tmp_path: Path) -> None:
    mine, read, other = tmp_path / "mine", tmp_path / "read", tmp_path / "other"
    for folder in (mine, read, other):
        folder.mkdir()
        (folder / "file").write_text("x")

    def restrict() -> None:
        kernel_sandbox.give_up_privileges()
        assert kernel_sandbox.restrict_files([str(read), str(tmp_path / "nowhere")], [str(mine)])

    shut = "PermissionError"
    found = in_child(
        restrict,
        lambda: (mine / "new").write_text("y"),
        (read / "file").read_text,
        lambda: (read / "file").write_text("y"),
        (other / "file").read_text,
        lambda: (other / "new").write_text("y"),
        (other / "file").unlink,
        lambda: Path(f"/proc/{os.getppid()}/environ").read_bytes(),
        lambda: Path(os.devnull).write_text("y"),
    )
    assert found == ["", "", shut, shut, shut, shut, shut, ""]


@pytest.mark.skipif(LANDLOCK < 4, reason="needs Landlock for TCP (Linux 6.7)")
@pytest.mark.parametrize("tcp", [False, True])
def test_connections_are_shut_unless_they_are_asked_for(tcp: bool, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = server.getsockname()

        def restrict() -> None:
            kernel_sandbox.give_up_privileges()
            kernel_sandbox.restrict_files([], [str(tmp_path)], tcp=tcp)

        (found,) = in_child(restrict, lambda: socket.socket().connect(address))
    assert found == ("" if tcp else "PermissionError")


@needs_seccomp
@pytest.mark.parametrize("forks", [False, True])
def test_calls_that_are_refused(forks: bool) -> None:
    libc = ctypes.CDLL(None, use_errno=True)

    def refuse() -> None:
        kernel_sandbox.give_up_privileges()
        assert kernel_sandbox.refuse_calls(forks=forks)

    def call(function: Callable[..., int], *arguments: int) -> Callable[[], None]:
        def attempt() -> None:
            ctypes.set_errno(0)
            if function(*arguments) == -1 and ctypes.get_errno() == 1:
                raise PermissionError

        return attempt

    def fork() -> None:
        if os.fork() == 0:
            os._exit(0)

    def thread() -> None:
        started = threading.Thread(target=lambda: None)
        started.start()
        started.join()

    shut = "PermissionError"
    found = in_child(
        refuse, socket.socket, lambda: os.kill(os.getppid(), 0), call(libc.ptrace, 0, 0, 0, 0), fork, thread,
        call(libc.syscall, 425, 1, 0), call(libc.syscall, 424, 0, 0), lambda: Path(os.devnull).read_bytes(),
    )  # fmt: skip
    assert found == [shut, shut, shut, "" if forks else shut, "", shut, shut, ""]


def test_limits(tmp_path: Path) -> None:
    def allocate() -> None:
        bytearray(2_000_000_000)

    def write() -> None:
        with (tmp_path / "large").open("wb") as file:
            file.write(b"x" * 3_000_000)

    def open_many() -> None:
        held = [os.open(os.devnull, os.O_RDONLY) for _ in range(100)]
        assert held

    def prepare() -> None:
        import signal

        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        kernel_sandbox.limit(memory=1_500_000_000, file_size=1_000_000, cpu_s=60, open_files=64)

    assert in_child(prepare, allocate, write, open_many) == ["MemoryError", "OSError", "OSError"]
    assert in_child(lambda: None, write, open_many) == ["", ""]


@pytest.mark.skipif(not LINUX, reason="needs Linux")
def test_private_memory_is_roots_alone() -> None:
    """The owner of its files in /proc is root then, whoever runs it."""
    libc = ctypes.CDLL(None)
    out, into = os.pipe()
    if (child := os.fork()) == 0:
        before = libc.prctl(3, 0, 0, 0, 0)
        kernel_sandbox.keep_memory_private()
        os.write(into, f"{before}{libc.prctl(3, 0, 0, 0, 0)}".encode())
        os._exit(0)
    os.waitpid(child, 0)
    assert os.read(out, 10) == b"10"
    os.close(out)
    os.close(into)


@pytest.mark.skipif(not LINUX, reason="needs Linux")
def test_rights_and_lives_that_are_given_up() -> None:
    out, into = os.pipe()
    if (child := os.fork()) == 0:
        kernel_sandbox.give_up_privileges()
        kernel_sandbox.end_with_parent()
        signal_number = ctypes.c_int()
        ctypes.CDLL(None).prctl(2, ctypes.byref(signal_number), 0, 0, 0)
        lines = dict(line.split(":\t") for line in Path("/proc/self/status").read_text().splitlines())
        told = [lines["NoNewPrivs"], int(lines["CapEff"], 16), int(lines["CapPrm"], 16), signal_number.value]
        os.write(into, json.dumps(told).encode())
        os._exit(0)
    os.close(into)
    os.waitpid(child, 0)
    with os.fdopen(out, "rb") as pipe:
        assert json.loads(pipe.read()) == ["1", 0, 0, 9]


def test_what_is_executed_gives_everything_up(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Each of the locks is asked for, before anything is executed."""
    calls: list[str] = []
    locks = {name: lambda *_, name=name, **__: calls.append(name) for name in dir(kernel_sandbox) if name[0].islower()}
    monkeypatch.setattr(confined_worker, "kernel_sandbox", SimpleNamespace(**locks), raising=False)
    monkeypatch.setattr(confined_worker, "_settings", {"folder": str(tmp_path), "readable": []})

    def run(into: int) -> None:
        os.write(into, " ".join([*calls, str(Path.cwd()), str(os.getsid(0) == os.getpid())]).encode())

    said = confined_worker.Child(run, seconds=5).output().decode().split()
    assert said == [
        "end_with_parent", "limit", "give_up_privileges", "restrict_files", "refuse_calls", str(tmp_path), "True",
    ]  # fmt: skip


@needs_landlock
@needs_seccomp
def test_a_trial_finds_nothing_open_here() -> None:
    assert confined_process._tried(None) == Confinement(None, ("Landlock", "seccomp"), ())


def test_a_trial_finds_what_is_open(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the locks; the child of a process of ours can read that one's environment."""
    fake = tmp_path / "eval_factory" / "core"
    fake.mkdir(parents=True)
    for folder in (fake, fake.parent):
        (folder / "__init__.py").touch()
    (fake / "kernel_sandbox.py").write_text("def __getattr__(name):\n    return lambda *args, **kwargs: False\n")
    path = [str(tmp_path), *confined_process._import_path()]
    monkeypatch.setattr(confined_process, "_import_path", lambda: path)
    found = confined_process._tried(None)
    assert set(found.still_can) == EVERYTHING
    assert found.locks == ()


@pytest.fixture
def _plain(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Without bubblewrap, whatever is installed here."""
    monkeypatch.setattr(confined_process, "confinement", lambda: Confinement(None, (), ()))
    execution_record._known.clear()
    yield
    execution_record._known.clear()


def test_a_sandbox_that_does_not_work_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    broken = tmp_path / "bwrap"
    broken.write_text("#!/bin/sh\nexit 1\n")
    broken.chmod(0o755)
    monkeypatch.setattr(shutil, "which", lambda _name: str(broken))
    confined_process.confinement.cache_clear()
    try:
        found = confined_process.confinement()
    finally:
        confined_process.confinement.cache_clear()
    assert found.sandbox is None
    assert found.by == ["a process of its own without keys, with limits of time, memory and file size", *found.locks]
    assert Confinement("/usr/bin/bwrap", ("seccomp",), ()).by[1:] == ["bubblewrap", "seccomp"]


@pytest.mark.usefixtures("_plain")
@pytest.mark.parametrize(
    ("completion", "result"),
    [
        ("    return a + b", "passed"),
        ("    return a - b", "failed: "),
        ("while True:\n        pass", "timed out"),
        ("    raise ValueError('x' * 10_000)", "failed: " + "x" * 492),
        ("import os\n    os._exit(0)", "timed out"),
    ],
)
def test_humaneval(completion: str, result: str) -> None:
    question = {"kind": "humaneval", "problem": PROBLEM, "completion": completion, "timeout": 1.0}
    with throw_away_folder() as folder:
        found = ask(question, folder, 3)
    assert found == {"task_id": "t/0", "passed": result == "passed", "result": result, "completion_id": None}
    assert not folder.exists()


@pytest.mark.usefixtures("_plain")
def test_a_program_its_input_and_its_end() -> None:
    def run(*argv: str, seconds: float = 5.0, given: str = "", forks: bool = False) -> Any:
        question = {"kind": "command", "argv": list(argv), "input": given, "seconds": seconds, "forks": forks}
        with throw_away_folder() as folder:
            return ask(question, folder, seconds)

    assert run("cat", given="ä\n") == {"returncode": 0, "output": "Ã¤\n"}
    assert run("sh", "-c", "exit 3") == {"returncode": 3, "output": ""}
    assert run("sleep", "30", seconds=0.5)["returncode"] == confined_worker.TIMED_OUT
    assert run("yes", seconds=5)["returncode"] == confined_worker.TIMED_OUT
    assert run("sh", "-c", "exec >&-; sleep 30", seconds=1, forks=True)["returncode"] == confined_worker.TIMED_OUT
    assert run("env")["output"].count("KEY") == 0
    assert run("no-such-program")["returncode"] == 1


@pytest.mark.usefixtures("_plain")
def test_no_variable_but_the_path_is_passed_on(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_MODEL_KEY", "sk-canary")
    with throw_away_folder() as folder:
        shown = ask({"kind": "command", "argv": ["env"], "input": "", "seconds": 5, "forks": False}, folder, 5)[
            "output"
        ]
        names = {line.partition("=")[0] for line in shown.splitlines()}
        assert f"HOME={folder}" in shown
    allowed = {
        "PATH",
        "LD_LIBRARY_PATH",
        "OMP_NUM_THREADS",
        "OPENBLAS_NUM_THREADS",
        "PYTHONUTF8",
        "TMPDIR",
        "HOME",
        "LANG",
    }
    assert names - {"PWD", "LC_CTYPE"} <= allowed


def test_a_home_is_not_readable_because_it_is_on_the_import_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [*sys.path, str(Path.home()), str(Path.home().parent), ""])
    assert str(Path.home()) not in confined_process._readable()
    assert str(Path.home().parent) not in confined_process._readable()
    assert "/" not in confined_process._readable()


@pytest.mark.usefixtures("_plain")
def test_an_answer_that_ends_its_process_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[str] = []

    def answer(_sandbox: object, question: dict[str, Any], *_: object) -> Any:
        asked.append(question["kind"])
        if question["kind"] != "trial":
            raise NotConfinedError("gone")
        return {"locks": [], "can": {}}

    monkeypatch.setattr(confined_process, "_asked", answer)
    with throw_away_folder() as folder:
        assert ask_or_none({"kind": "apps"}, folder, 1) is None
    assert asked == ["apps", "trial"]
    assert execution_record._known == {"ended": 1}


@pytest.mark.usefixtures("_plain")
def test_where_nothing_can_be_executed_any_more_the_run_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    def answer(*_: object) -> Any:
        raise NotConfinedError("gone")

    monkeypatch.setattr(confined_process, "_asked", answer)
    with throw_away_folder() as folder, pytest.raises(NotConfinedError):
        ask_or_none({"kind": "apps"}, folder, 1)
    assert execution_record._known == {}


def test_what_an_earlier_run_wrote_is_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "record.json"
    file.write_text("{}")
    execution_record._known.clear()
    execution_record.write_down(file)
    assert not file.exists()
    execution_record.count(execution_record.SHORTENED)
    execution_record.count(execution_record.SHORTENED)
    assert json.loads(file.read_text()) == {"shortened": 2}
    execution_record.begin(["b", "a"], ["bubblewrap"], ["x"])
    execution_record.write_down(file)
    assert json.loads(file.read_text()) == {
        "shortened": 2,
        "run_specs": ["a", "b"],
        "by": ["bubblewrap"],
        "still_can": ["x"],
    }
    execution_record._known.clear()
    execution_record._record.file = None
