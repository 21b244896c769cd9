"""Helpers that the integration tests share beside fixtures."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from command_here import run_here

PROGRAM = (sys.executable, "-m", "eval_factory")
TIMEOUT_S = 600
READ_AT_START = re.compile(r"PYTHON\w+|LC_\w+|HF_\w+")
"""Variables that Python, or a package while it is imported, reads once."""
CANARY = "sk-canary-5f3a9c1e7b2d4860aa"


def more_data(*values: object) -> list[Any]:
    """Parameters of tests that are run before a release only: others show the same."""
    return [pytest.param(value, marks=pytest.mark.more_data) for value in values]


@dataclass(frozen=True)
class Outcome:
    """What a run of the program gave."""

    returncode: int
    stdout: str
    stderr: str
    output_dir: Path

    def document(self) -> dict[str, Any]:
        loaded: dict[str, Any] = yaml.safe_load(
            (self.output_dir / "evaluation_config.yaml").read_text("utf-8")
        )
        return loaded

    def scores(self) -> dict[str, float]:
        document = self.document()
        (task,) = document["results"]["tasks"].values()
        return {name: score["value"] for name, score in task["metrics"]["score"]["scores"].items()}


def program_environment(**extra: str) -> dict[str, str]:
    """Return what a program of the tests gets to see of theirs."""
    names = [name for name in ("PATH", "HOME", "LANG", "TMPDIR") if name in os.environ]
    return {**{name: os.environ[name] for name in names}, **extra}


def run(
    argv: Sequence[str], *, cwd: Path | None, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program to its end, and capture its text: eval-factory's command line in this process,
    where nothing that a process alone has is looked at.
    """
    if runs_here(argv, env):
        ended = run_here(*argv[len(PROGRAM) :], cwd=cwd, env=env)
        return subprocess.CompletedProcess(list(argv), ended.code, ended.stdout, ended.stderr)
    return run_process(argv, cwd=cwd, env=env)


def runs_here(argv: Sequence[str], env: Mapping[str, str]) -> bool:
    """Decide if a program runs in this process; before a release every program is a process of its
    own.
    """
    if os.environ.get("EVAL_FACTORY_EVERY_TEST") == "1":
        return False
    if tuple(argv[: len(PROGRAM)]) != PROGRAM:
        return False
    if threading.current_thread() is not threading.main_thread():
        return False
    return not any(READ_AT_START.fullmatch(name) for name in env)


def run_process(
    argv: Sequence[str], *, cwd: Path | None, env: Mapping[str, str]
) -> subprocess.CompletedProcess[str]:
    """Run a program as a shell starts it, to its end, and capture its text."""
    return subprocess.run(
        argv,
        cwd=cwd,
        env=dict(env),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="backslashreplace",
        timeout=TIMEOUT_S,
        check=False,
    )


def program(
    *arguments: str, cwd: Path | None = None, before: Sequence[str] = (), **env: str
) -> subprocess.CompletedProcess[str]:
    argv = [*before, *PROGRAM, *arguments]
    return run(argv, cwd=cwd, env=program_environment(**env))


def is_running(pid: int) -> bool:
    """Decide if a process is running; it is not if it has ended and nobody has taken note."""
    try:
        os.kill(pid, 0)
        status = (
            Path(f"/proc/{pid}/stat").read_text() if Path("/proc/self/stat").exists() else ") R"
        )
    except OSError:
        return False
    return status.rpartition(")")[2].split()[0] not in ("Z", "X")


def wait_until(holds: Callable[[], object], seconds: float = 60) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it does not happen"
        time.sleep(0.02)


def program_each(
    *commands: Sequence[str], cwd: Path, before: Sequence[str] = (), **env: str
) -> list[subprocess.CompletedProcess[str]]:
    """Run `program` with each of these arguments, one after the other."""
    return [program(*command, cwd=cwd, before=before, **env) for command in commands]


Run = Callable[..., Outcome]


def varied_answer(prompt: str) -> str:
    """A deterministic answer that is right for some prompts of each benchmark and wrong for others."""
    number = int(hashlib.sha256(prompt.encode()).hexdigest(), 16)
    if "return the following output: CORRECT" in prompt:
        ids = re.findall(r"^(\d+) ", prompt, re.MULTILINE)
        return ("CORRECT", f"{ids[number % len(ids)]} A corrected sentence." if ids else "CORRECT")[
            number % 2
        ]
    if "compute the requested medical value" in prompt:
        return str(number % 6)
    if "SQL" in prompt:
        return ("SELECT 1", "SELECT count(*) FROM patient", "no such thing", "")[number % 4]
    offered: list[str] = sorted(set(re.findall(r"^([A-D])[.)] ", prompt, re.MULTILINE))) or list(
        "ABCD"
    )
    return offered[number % len(offered)]
