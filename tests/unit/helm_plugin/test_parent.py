"""A process that the plug-in runs in ends with the one that started it."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from eval_factory.core.helm_run_settings import PARENT
from eval_factory.helm_plugin import parent

CHILD = """
import os, subprocess, sys, time
from eval_factory.helm_plugin.parent import end_with_parent
end_with_parent(os.environ)
grandchild = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print("goes on", flush=True)
time.sleep(60)
"""
STARTER = """
import os, subprocess, sys
env = {**os.environ, "EVAL_FACTORY_PARENT": sys.argv[1] if len(sys.argv) > 1 else str(os.getpid())}
child = subprocess.Popen([sys.executable, "-c", sys.stdin.read()], env=env, start_new_session=True)
child.wait(timeout=None if len(sys.argv) == 1 else 30)
sys.exit(-child.returncode)
"""


def start(*arguments: str) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, "-c", STARTER, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    assert process.stdin is not None
    process.stdin.write(CHILD)
    process.stdin.close()
    return process


def test_it_ends_with_all_it_started_when_its_parent_does() -> None:
    with start() as starter:
        assert starter.stdout is not None
        assert starter.stdout.readline() == "goes on\n"
        starter.kill()
        assert starter.stdout.read() == ""  # nobody has it open any more: neither the child nor the grandchild


def test_it_ends_at_once_where_its_parent_is_gone_already() -> None:
    with start(str(os.getpid())) as starter:  # the parent's parent, as where the parent was killed
        assert starter.stdout is not None
        assert starter.stdout.read() == ""
    assert starter.returncode == 9


def test_nobody_is_watched_where_nobody_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parent, "_end", pytest.fail)
    before = threading.active_count()
    parent.end_with_parent({})
    assert threading.active_count() == before


def test_outside_a_group_of_its_own_it_ends_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    ended: list[int] = []
    monkeypatch.setattr(os, "getpgrp", lambda: os.getpid() + 1)
    monkeypatch.setattr(os, "killpg", lambda *_: pytest.fail("the group of somebody else"))
    monkeypatch.setattr(os, "_exit", ended.append)
    monkeypatch.setattr(threading, "Thread", lambda **_: pytest.fail("nobody to watch") if not ended else _Never())
    parent.end_with_parent({PARENT: str(os.getppid() + 1)})
    assert ended == [1]


class _Never:
    def start(self) -> None:
        """The process would have ended."""
