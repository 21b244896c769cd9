"""One cell on a real Slurm: its job is forgotten, then its helm-run is killed, then its worker."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

import slurm_trial as trial
from virtual_slurm import CLUSTER, virtual_slurm

pytestmark = pytest.mark.slow_fault

IN_FLIGHT = 2
FORGETS = """#!/bin/bash
if [ -e "{folder}/job" ]; then exec "{real}" "$@"; fi  # the job that deletes keys: Slurm is gone
cp -a "{state}" "{folder}/state"
"{real}" "$@" | tee "{folder}/job"
{kill_controller}
rm -r "{state}" && mv "{folder}/state" "{state}"
"""
"""Slurm is killed right after it took the job, with the state on disk of two seconds before."""


@dataclass
class Restarted:
    """What was seen of the suite."""

    folder: Path
    first: subprocess.CompletedProcess[str]
    first_id: str
    last: subprocess.CompletedProcess[str]
    asked: int
    twice: int
    left: list[int]


@pytest.fixture(scope="module")
def restarted(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Restarted]:
    folder = tmp_path_factory.mktemp("suite")
    with virtual_slurm(folder / "slurm") as cluster, trial.gate(2) as opens:
        file = trial.write_suite(
            folder, opens.endpoint.url, ("only",), slurm={"tasks_at_once": 1}, parallelism=IN_FLIGHT
        )
        controller = (
            f'EVAL_FACTORY_SLURM="{cluster.root}" "{sys.executable}" "{CLUSTER}" controller-kill'
        )
        forgetting = trial.stand_in(
            folder / "forgetting",
            "sbatch",
            FORGETS,
            state=cluster.root / "state",
            kill_controller=controller,
        )
        first = trial.run_suite(file, cluster, path=forgetting)
        with trial.suite_that_runs(file, cluster, "--wait") as last:
            cluster.do("controller-start")
            trial.until(lambda: opens.asked >= 2 + IN_FLIGHT)
            (helm_run,) = trial.processes(trial.HELM_RUN, folder)
            trial.kill(helm_run)
            trial.until(lambda: opens.asked >= 2 + 2 * IN_FLIGHT)
            (worker,) = trial.processes(trial.WORKER, folder)
            trial.kill(worker)
            trial.until(lambda: trial.waves(folder / "out") == [1, 1, 1])
            left = trial.processes(trial.HELM_RUN, folder)
            opens.opened.set()
            done = trial.end_of(last)
        job = (folder / "forgetting" / "job").read_text("utf-8").strip()
        yield Restarted(folder / "out", first, job, done, opens.asked, opens.twice, left)


def test_a_job_that_slurm_has_forgotten_is_submitted_again_under_the_same_id(
    restarted: Restarted,
) -> None:
    assert restarted.first.returncode == 0, restarted.first.stderr
    ids = re.findall(
        r"submitted 1 cell to Slurm: ef-\w+-w(\d) \(job (\d+)\)", restarted.last.stderr
    )
    assert ids[0] == ("2", restarted.first_id)


def test_a_killed_helm_run_and_a_killed_worker_cost_an_attempt_each(restarted: Restarted) -> None:
    assert restarted.last.returncode == 0, restarted.last.stdout + restarted.last.stderr
    assert trial.waves(restarted.folder) == [1, 1, 1]
    assert trial.begun(restarted.folder) == [2], "the helm-run was started again within its task"
    assert trial.published(restarted.folder) == 1
    assert [row["status"] for row in trial.table(restarted.folder)] == ["complete"]


def test_a_killed_worker_leaves_no_helm_run(restarted: Restarted) -> None:
    assert restarted.left == []


def test_only_what_was_in_flight_at_a_kill_is_paid_twice(restarted: Restarted) -> None:
    assert trial.INSTANCES <= restarted.asked == trial.INSTANCES + restarted.twice
    assert restarted.twice <= 2 * IN_FLIGHT
