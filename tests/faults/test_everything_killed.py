"""Three models and five evaluations on a real Slurm: everything is killed twice, and a node is lost."""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from functools import partial
from pathlib import Path

import pytest
import yaml

from integration.support import varied_answer
from scripted_endpoint import ScriptedEndpoint
from slurm_trial import HELM_RUN, WORKER, Gate, gate, processes, run_suite, suite_that_runs, table, until, write_suite
from virtual_slurm import virtual_slurm

pytestmark = pytest.mark.slow_fault

MODELS, EVALUATIONS = ("a", "b", "c"), 5
INSTANCES, IN_FLIGHT = 2, 1


def suite_file(folder: Path, url: str) -> Path:
    path = write_suite(folder, url, MODELS, limit_samples=INSTANCES, parallelism=IN_FLIGHT)
    document = yaml.safe_load(path.read_text("utf-8"))
    document["suite"]["evaluations"] = [
        {"type": "sample_medical_qa", "name": f"e{number}", "params": {"temperature": number / 10}}
        for number in range(EVALUATIONS)
    ]
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path


def kill_everything(folder: Path) -> None:
    """Submitter, tasks and helm-runs, as a power cut ends them."""
    for word in ("run_suite", WORKER, HELM_RUN):
        for pid in processes(word, folder):
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)


def is_asked(opens: Gate, least: int) -> bool:
    return opens.asked >= least


def test_the_table_is_that_of_an_undisturbed_run_and_nothing_is_asked_twice_but_what_was_in_flight(
    tmp_path: Path,
) -> None:
    with virtual_slurm(tmp_path / "slurm") as cluster, gate(2) as opens:
        file = suite_file(tmp_path, opens.endpoint.url)
        for least in (3, 6):
            with suite_that_runs(file, cluster, "--wait"):
                until(partial(is_asked, opens, least))
                kill_everything(tmp_path)
            opens.free += 4  # answers that come before the next disturbance
        with suite_that_runs(file, cluster, "--wait") as last:
            until(lambda: [one for one in cluster.tasks() if one[1] == "RUNNING"] and opens.asked >= 9)
            node = next(one[2] for one in cluster.tasks() if one[1] == "RUNNING")
            cluster.do("node-kill", node)
            opens.opened.set()
            stdout, stderr = last.communicate(timeout=900)
        assert last.returncode == 0, stdout + stderr
        asked = {(body["model"], body["temperature"], str(body["messages"])) for body in opens.endpoint.requests}
    needed = len(MODELS) * EVALUATIONS * INSTANCES
    assert len(asked) == needed
    assert opens.asked <= needed + 3 * len(MODELS) * IN_FLIGHT, "nothing twice but what was in flight"
    with ScriptedEndpoint(varied_answer) as endpoint:
        (tmp_path / "here").mkdir()
        here = run_suite(suite_file(tmp_path / "here", endpoint.url), None)
    assert here.returncode == 0, here.stderr
    assert table(tmp_path / "out") == table(tmp_path / "here" / "out")
