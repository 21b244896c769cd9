"""Faults on a real Slurm that take a minute of waiting each: run where EVAL_FACTORY_EVERY_TEST is 1."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

import slurm_trial as trial
from facts import says
from virtual_slurm import VirtualSlurm, virtual_slurm

pytestmark = pytest.mark.slow_fault
ANSWERED = 3
"""Before the gate shuts."""
IN_FLIGHT = 2
DISK = "12m"


@pytest.fixture(scope="module")
def small_disk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Mounted before there are nodes, which see only what was there when they began."""
    folder = tmp_path_factory.mktemp("disk")
    argv = ["mount", "-t", "tmpfs", "-o", f"size={DISK}", "none", str(folder)]
    if os.geteuid() or subprocess.run(argv, check=False).returncode:
        pytest.skip("it needs root, and leave to mount a file system")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@pytest.fixture(scope="module")
def cluster(small_disk: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualSlurm]:
    with virtual_slurm(tmp_path_factory.mktemp("slurm") / "c") as cluster:
        yield cluster


def one_cell(folder: Path, opens: trial.Gate, **slurm: str) -> Path:
    return trial.write_suite(
        folder,
        opens.endpoint.url,
        ("only",),
        slurm={"tasks_at_once": 1, **slurm},
        parallelism=IN_FLIGHT,
        request_timeout=600,
    )


def assert_complete(done: subprocess.CompletedProcess[str], folder: Path) -> None:
    assert done.returncode == 0, done.stdout + done.stderr
    assert [row["status"] for row in trial.table(folder)] == ["complete"]
    assert trial.published(folder) == 1


def assert_paid_once(opens: trial.Gate) -> None:
    """But for what was in flight when a start ended."""
    assert opens.asked == trial.INSTANCES + opens.twice
    assert opens.twice <= IN_FLIGHT


def test_of_two_starts_on_two_nodes_the_newer_one_goes_on(
    cluster: VirtualSlurm, tmp_path: Path
) -> None:
    with trial.gate(ANSWERED) as opens:
        file = one_cell(tmp_path, opens)
        assert trial.run_suite(file, cluster).returncode == 0
        trial.until(lambda: opens.asked == ANSWERED + IN_FLIGHT)
        (first,) = trial.processes(trial.WORKER, tmp_path)
        ((_, _, node),) = cluster.tasks()
        cluster.do("node-kill", node, "STOP")
        try:
            trial.until(lambda: trial.begun(tmp_path / "out") == [2])
            assert len(trial.processes(trial.WORKER, tmp_path)) == 2
            trial.until(lambda: opens.asked == ANSWERED + 2 * IN_FLIGHT)
            assert first not in trial.processes(trial.WORKER, tmp_path)
        finally:
            cluster.do("node-kill", node, "CONT")
        opens.opened.set()
        assert_complete(trial.run_suite(file, cluster, "--wait"), tmp_path / "out")
    assert_paid_once(opens)
    assert (trial.waves(tmp_path / "out"), trial.begun(tmp_path / "out")) == ([1], [2])
    log = (trial.store(tmp_path / "out") / "logs" / "w1" / "0.log").read_text("utf-8")
    assert log.count("started this task again") == 1


def test_a_cell_goes_on_after_the_end_of_its_time(cluster: VirtualSlurm, tmp_path: Path) -> None:
    """Slurm tells it 30 to 90 s before; the second start gets what was not answered."""
    with (
        trial.gate(ANSWERED) as opens,
        trial.suite_that_runs(one_cell(tmp_path, opens, time="2"), cluster, "--wait") as last,
    ):
        trial.until(lambda: opens.asked == ANSWERED + IN_FLIGHT)
        trial.until(lambda: trial.waves(tmp_path / "out") == [1, 1])
        opens.opened.set()
        assert_complete(trial.end_of(last), tmp_path / "out")
    assert_paid_once(opens)
    assert trial.begun(tmp_path / "out") == [2]


def test_a_full_disk_costs_nothing_that_was_answered(
    cluster: VirtualSlurm, small_disk: Path
) -> None:
    out = small_disk / "out"
    ballast = small_disk / "ballast"
    with trial.gate(ANSWERED) as opens:
        file = one_cell(small_disk, opens)
        assert trial.run_suite(file, cluster).returncode == 0
        trial.until(lambda: opens.asked == ANSWERED + IN_FLIGHT)
        fill(ballast)
        opens.opened.set()
        trial.until(lambda: not cluster.tasks())
        full = trial.run_suite(file, cluster, "--wait")
        assert full.returncode == 3, full.stdout + full.stderr
        says(full.stdout + full.stderr, "No space left")
        assert "the same command" in full.stdout + full.stderr
        assert opens.asked == ANSWERED + IN_FLIGHT
        ballast.unlink()
        trial.until(lambda: not cluster.tasks())
        assert_complete(trial.run_suite(file, cluster, "--wait"), out)
    assert_paid_once(opens)


def fill(path: Path) -> None:
    with path.open("wb", buffering=0) as file, suppress(OSError):
        for size in (65536, 1):
            with suppress(OSError):
                while file.write(b"x" * size):
                    pass


def test_two_kills_of_everything_and_a_lost_node_change_no_number(
    cluster: VirtualSlurm, tmp_path: Path
) -> None:
    """Three models and five benchmarks; nothing is asked twice but what was in flight."""
    models = ("first", "second", "third")
    benchmarks = ("one", "two", "three", "four", "five")
    needed = trial.INSTANCES * 15
    disturbed = tmp_path / "disturbed"
    here = tmp_path / "here"
    disturbed.mkdir()
    here.mkdir()
    with trial.gate(0) as opens:
        file = trial.write_suite(disturbed, opens.endpoint.url, models, evaluations=benchmarks)
        for _ in range(2):
            opens.free = opens.asked + needed // 4
            with trial.suite_that_runs(file, cluster, "--wait"):
                trial.until(lambda: opens.asked > opens.free)
                while left := trial.processes("", disturbed):
                    for pid in left:
                        with suppress(ProcessLookupError):
                            trial.kill(pid)
        opens.free = opens.asked + needed // 4
        with trial.suite_that_runs(file, cluster, "--wait") as last:
            trial.until(lambda: opens.asked > opens.free)
            node = next(node for _, state, node in cluster.tasks() if state == "RUNNING")
            cluster.do("node-kill", node)
            in_flight = opens.waited
            opens.opened.set()
            done = trial.end_of(last)
        cluster.do("node-start", node)
        assert done.returncode == 0, done.stdout + done.stderr
        assert needed <= opens.asked <= needed + in_flight
        opens.endpoint.requests.clear()
        undisturbed = trial.run_suite(
            trial.write_suite(here, opens.endpoint.url, models, evaluations=benchmarks), None
        )
        assert undisturbed.returncode == 0, undisturbed.stderr
        assert opens.asked == needed
    assert trial.table(disturbed / "out") == trial.table(here / "out")
    assert len(trial.table(here / "out")) == 15
