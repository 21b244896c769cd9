"""A suite on a real Slurm of three nodes, disturbed on its way: every cell published once, the same numbers as here."""

from __future__ import annotations

import signal
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from facts import says
from program_runs import CANARY, varied_answer
from programs import Finished, holding
from scripted_endpoint import ScriptedEndpoint
from slurm_trial import (
    INSTANCES,
    begun,
    gate,
    published,
    run_suite,
    stand_in,
    store,
    table,
    until,
    waves,
    write_suite,
)
from virtual_slurm import virtual_slurm

TARGETS = ("first", "second", "third")
KILLS_ITS_CALLER = '#!/bin/bash\n"{real}" "$@" > "{folder}/job"\nkill -9 $PPID\n'
FAILS_TWICE = """#!/bin/bash
echo x >> "{folder}/asked"
if (($(wc -l < "{folder}/asked") <= 2)); then echo "slurm_load_jobs error: Unable to contact slurm controller" >&2; exit 1; fi
exec "{real}" "$@"
"""


@dataclass
class Disturbed:
    """What was seen of one suite."""

    folder: Path
    after_the_kill: list[tuple[str, str, str]]
    second: Finished
    last: Finished
    asked: int
    failed_queue: int
    keys_while_it_ran: list[int]
    found_keys: list[tuple[str, Path]]


@pytest.fixture(scope="module")
def disturbed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Disturbed]:
    """The submitter is killed after sbatch; then a task is cancelled, a node is lost, and squeue fails for a while."""
    folder = tmp_path_factory.mktemp("suite")
    with virtual_slurm(folder / "slurm") as cluster, gate(len(TARGETS)) as opens:
        file = write_suite(folder, opens.endpoint.url, TARGETS)
        killing = stand_in(folder / "killing", "sbatch", KILLS_ITS_CALLER)
        first = run_suite(file, cluster, path=killing)
        assert first.returncode == -signal.SIGKILL
        after_the_kill = cluster.tasks()
        second = run_suite(file, cluster)
        running = until(
            lambda: [one for one in cluster.tasks() if one[1] == "RUNNING" and opens.asked > 2]
        )
        modes = [
            stat.S_IMODE(path.stat().st_mode)
            for path in (store(folder / "out") / "waves").glob("*.env")
        ]
        (lost, _, node) = running[0]
        (cancelled, _, _) = running[-1]
        assert lost != cancelled
        cluster.do("node-kill", node)
        job = (folder / "killing" / "job").read_text().strip()
        number = cancelled.rpartition("_")[2]
        cluster.ask("scancel", f"{job}_{number}")
        opens.opened.set()
        until(lambda: cancelled not in [name for name, _, _ in cluster.tasks()])
        failing = stand_in(folder / "failing", "squeue", FAILS_TWICE)
        last = run_suite(file, cluster, "--wait", path=failing)
        asked = len((folder / "failing" / "asked").read_text().splitlines())
        yield Disturbed(
            folder / "out",
            after_the_kill,
            second,
            last,
            opens.asked,
            asked,
            modes,
            holding(folder, CANARY),
        )


def test_what_a_killed_submitter_has_submitted_is_not_submitted_again(disturbed: Disturbed) -> None:
    assert len(disturbed.after_the_kill) == 3
    assert disturbed.second.returncode == 0, disturbed.second.stderr
    assert "submitted" not in disturbed.second.stderr
    says(disturbed.second.stdout, "3 cells: 3 waiting", "submitted to Slurm", "same command")


def test_every_cell_is_complete_in_spite_of_all(disturbed: Disturbed) -> None:
    assert disturbed.last.returncode == 0, disturbed.last.stdout + disturbed.last.stderr
    assert "3 cells: 3 complete" in disturbed.last.stdout
    assert disturbed.failed_queue > 2
    assert disturbed.last.stderr.count("queue: slurm_load_jobs error") == 1
    assert waves(disturbed.folder) == [3, 1]  # only what was cancelled is submitted again
    assert begun(disturbed.folder) == [1, 2, 2]
    assert published(disturbed.folder) == 3


def test_nothing_is_paid_twice_but_what_was_in_flight(disturbed: Disturbed) -> None:
    """Two of the tasks were ended while each waited for one answer."""
    needed = INSTANCES * len(TARGETS)
    assert needed <= disturbed.asked <= needed + 2


def test_keys_were_in_files_of_their_user_alone_and_are_gone(disturbed: Disturbed) -> None:
    assert disturbed.keys_while_it_ran == [0o600]
    assert disturbed.found_keys == []


def test_the_table_is_that_of_this_machine_alone(disturbed: Disturbed, tmp_path: Path) -> None:
    """One cell is enough: the endpoint answers all models alike."""
    with ScriptedEndpoint(varied_answer) as endpoint:
        here = run_suite(write_suite(tmp_path, endpoint.url, TARGETS[:1]), None)
    assert here.returncode == 0, here.stderr
    (expected,) = table(tmp_path / "out")
    assert expected["value"]
    for name, row in zip(TARGETS, table(disturbed.folder), strict=True):
        assert row == {
            column: value.replace(TARGETS[0], name) for column, value in expected.items()
        }
