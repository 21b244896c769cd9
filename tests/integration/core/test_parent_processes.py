"""A process ends with the one that started it."""

from __future__ import annotations

import os
import subprocess
import sys

CHILD = """
import os, subprocess, sys, time
from eval_factory.core.this_process import end_with_parent
end_with_parent(int(os.environ["EVAL_FACTORY_PARENT"]))
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
        [sys.executable, "-c", STARTER, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
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
        # nobody has it open any more: neither the child nor the grandchild
        assert starter.stdout.read() == ""


def test_it_ends_at_once_where_its_parent_is_gone_already() -> None:
    with start(str(os.getpid())) as starter:  # the parent's parent, as where the parent was killed
        assert starter.stdout is not None
        assert starter.stdout.read() == ""
    assert starter.returncode == 9
