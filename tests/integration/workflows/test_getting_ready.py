"""What a run does beside the probe of its endpoints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

WATCHED = """
import json, os, sys, urllib.request
from builders import plan
from eval_factory.workflows.asking_phase import start_preparing_collection

assert "numpy" not in sys.modules

deleted = []
delete = type(os.environ).__delitem__

def noting(environment, name):
    deleted.append(name)
    delete(environment, name)

type(os.environ).__delitem__ = noting
ready = start_preparing_collection(plan())
while ready.is_alive():
    urllib.request.getproxies()
print(json.dumps({"deleted": deleted, "numpy": "numpy" in sys.modules}))
"""


def test_the_environment_can_be_read_while_collecting_is_got_ready() -> None:
    """Importing numpy deletes variables: whoever goes through all of them meanwhile would fail."""
    support = Path(__file__).resolve().parents[2] / "support"
    argv = [sys.executable, "-c", WATCHED]
    env = {**os.environ, "PYTHONPATH": str(support)}
    finished = subprocess.run(argv, capture_output=True, text=True, check=False, env=env)
    assert finished.returncode == 0, finished.stderr
    assert json.loads(finished.stdout) == {"deleted": [], "numpy": True}
