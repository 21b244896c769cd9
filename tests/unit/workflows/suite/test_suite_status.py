"""Tests of where a suite stands, from its folder alone."""

from __future__ import annotations

import json
import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import suite_by_hand as by_hand
from eval_factory.core.budget import Spending
from eval_factory.core.results import Floor
from eval_factory.report.reader import load_result
from eval_factory.report.verdicts import Verdict
from eval_factory.workflows.resume import LastRunState
from eval_factory.workflows.suite import suite_status
from eval_factory.workflows.suite.suite_folder import UNKNOWN_HOLDER, find_lock_holder
from eval_factory.workflows.suite.suite_status import (
    CellFigures,
    CellProgress,
    SuiteReader,
    read_suite_status,
    resume_command,
    stated_limits,
)
from facts import says
from stored_results import right_or_wrong
from suite_by_hand import (
    cell_ended,
    cell_events,
    cell_started,
    ended,
    held,
    phase,
    progress,
    started,
    suite_folder,
)

GONE = 4_194_304 + 7
"""A number that no process can have."""


def test_a_suite_that_was_killed_says_so_though_its_process_has_a_number(tmp_path: Path) -> None:
    status = read_suite_status(
        suite_folder(
            tmp_path, started(), cell_started("small/qa"), by_hand.paused("host", "big/qa")
        )
    )
    assert status.state == "stopped"
    assert status.counts == {"missing": 4}
    assert status.pauses == ()
    assert (
        resume_command(status)
        == f"eval-factory run_suite --run_config {tmp_path}/suite_config.yml --output_dir {tmp_path}"
    )


@pytest.mark.parametrize(
    ("complete", "identity"), [(True, "identity"), (False, "identity"), (True, "other")]
)
def test_a_run_that_ended_after_its_suite_was_killed_counts(
    tmp_path: Path, complete: bool, identity: str
) -> None:
    """The folder says what the suite could not say any more."""
    folder = suite_folder(
        tmp_path, started(), cell_started("small/qa", identity="identity"), cell_started("big/qa")
    )
    by_hand.cell_result(folder, "small/qa")
    state = LastRunState(identity, {}, "run", 1.0, ["helm/runs/one"], complete)
    (folder.cell_folder("small", "qa") / ".run_state.json").write_text(json.dumps(asdict(state)))
    found = {"missing": 4}
    if identity == "identity":
        found = {"complete" if complete else "partial": 1, "missing": 3}
    assert read_suite_status(folder).counts == found
    by_hand.tell(folder.events, started(time=200.0))
    assert read_suite_status(folder).counts == found, (
        "nor does the next invocation, killed before it came to the cell"
    )


def test_a_lock_of_a_process_that_has_ended_is_no_suite(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path, started())
    with held(folder, pid=GONE):
        assert find_lock_holder(folder) is None
        assert read_suite_status(folder).state == "stopped"


def test_who_works_on_it_is_told_by_the_lock(tmp_path: Path) -> None:
    """Of another machine; and of the next invocation, before it says so itself."""
    folder = suite_folder(tmp_path, started(pid=GONE), ended())
    with held(folder, pid=GONE, host="elsewhere"):
        status = read_suite_status(folder)
        assert (status.state, status.pid, status.host) == ("running", GONE, "elsewhere")
    with held(folder):
        assert (read_suite_status(folder).state, read_suite_status(folder).pid) == (
            "running",
            os.getpid(),
        )
    assert (read_suite_status(folder).state, read_suite_status(folder).pid) == ("ended", GONE)


def test_a_suite_that_has_told_nothing_yet_nor_who_works_on_it(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    with held(folder):
        status = read_suite_status(folder)
        assert (status.state, status.cells, status.pid, status.is_complete) == (
            "running",
            (),
            os.getpid(),
            False,
        )
        folder.lock.write_text("")
        assert find_lock_holder(folder) == UNKNOWN_HOLDER
        assert read_suite_status(folder).state == "running"
    assert read_suite_status(folder).state == "stopped"


def test_a_reader_reads_on(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path, started(), by_hand.paused("host", "big/qa"))
    with held(folder):
        reader = SuiteReader(folder)
        (pause,) = reader.read_status().pauses
        assert (pause.group, pause.cells) == ("host", frozenset({"big/qa"}))
        by_hand.tell(folder.events, by_hand.back("host"))
        assert reader.read_status().pauses == ()
        by_hand.tell(folder.events, cell_started("big/qa", time=200.0))
        cell_events(folder, "big/qa", phase("judging", time=201.0))
        assert getattr(reader.read_status().cells[1].progress, "phase", None) == "judging"
        by_hand.tell(folder.events, cell_started("big/qa", time=300.0, attempt=2))
        again = reader.read_status().cells[1]
        assert (again.progress, again.attempt) == (CellProgress("starting"), 2)


def test_the_command_of_a_suite_goes_on_in_its_folder_wherever_it_was_moved_to(
    tmp_path: Path,
) -> None:
    folder = suite_folder(tmp_path / "new one", started())
    config = f"--run_config '{tmp_path}/new one/suite_config.yml'"
    assert (
        resume_command(read_suite_status(folder))
        == f"eval-factory run_suite {config} --output_dir '{tmp_path}/new one'"
    )


@pytest.mark.parametrize("status", ["complete", "partial"])
def test_a_cell_whose_result_is_not_there_any_more(tmp_path: Path, status: str) -> None:
    """Deleted, or of another configuration that somebody ran in its folder."""
    cells = by_hand.CELLS[:3]
    told = [
        cell_ended(cell, status, identity=of)
        for cell, of in zip(cells, ("identity", "other", "one"), strict=True)
    ]
    folder = suite_folder(tmp_path, started(cells), *told, ended())
    by_hand.cell_result(folder, "small/qa")
    by_hand.cell_result(folder, "big/qa")
    kept, another, gone = read_suite_status(folder).cells
    assert (kept.status, kept.reason, kept.figures is None) == (status, None, False)
    assert (another.status, another.figures, gone.status) == ("missing", None, "missing")
    says(str(another.reason), "another configuration", "the same command")
    says(str(gone.reason), "no longer has", "the same command")
    assert not read_suite_status(folder).is_complete


@pytest.mark.parametrize("text", ["", "[]", "suite: []", "suite:", "{", "suite: {max_cost: much}"])
def test_a_configuration_that_states_no_limits(tmp_path: Path, text: str) -> None:
    folder = suite_folder(tmp_path)
    assert stated_limits(folder.config) == {}
    folder.config.write_text(text)
    assert stated_limits(folder.config) == {}


def test_a_document_for_programs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = suite_folder(
        tmp_path,
        started(by_hand.CELLS[:3]),
        cell_ended("small/qa", reason="r", collected=True, reused_from="x"),
        cell_started("big/qa"),
        by_hand.paused("host", "small/medec"),
    )
    by_hand.cell_result(folder, "small/qa")
    folder.config.write_text("suite: {max_cost: 2.5, max_requests: null, evaluations: []}")
    with_answers = {folder.cell_folder("small", "qa"), folder.cell_folder("big", "qa")}
    answers = {True: Spending(3, 5, 0.5), False: Spending()}
    monkeypatch.setattr(
        suite_status, "spent_so_far", lambda path, _: answers[path.parent in with_answers]
    )
    with held(folder):
        found = json.loads(json.dumps(suite_status.status_document(read_suite_status(folder))))
    assert (found["suite"], found["state"], found["total"]) == (str(tmp_path), "running", 3)
    assert found["counts"] == {"running": 1, "waiting": 1, "complete": 1}
    pause = {
        "group": "host",
        "reason": "connection refused",
        "cells": ["small/medec"],
        "since": 130.0,
    }
    assert found["paused"] == [pause]
    first, second, third = found["cells"]
    assert first["result"]["value"] == 0.5
    assert first["spent"] == {"requests": 3, "tokens": 5, "cost": 0.5}
    assert found["spent"] == {"requests": 6, "tokens": 10, "cost": 1.0}
    assert found["limits"] == {"max_cost": 2.5}
    assert (first["reason"], first["collected"], first["reused_from"], first["since"]) == (
        "r",
        True,
        "x",
        120.0,
    )
    assert first["folder"] == str(tmp_path / "small" / "qa")
    assert second["progress"]["phase"] == "starting"
    assert (third["target"], third["evaluation"], third["status"], third["attempt"]) == (
        "small",
        "medec",
        "waiting",
        0,
    )
    assert (found["complete"], found["exit_code"], found["ended"]) == (False, None, None)


def told(*events: dict[str, Any]) -> CellProgress:
    found = CellProgress()
    for event in events:
        found = found.after(event)
    return found


def test_another_phase_has_counts_of_its_own() -> None:
    found = told(
        phase("asking the model", time=10.0), progress(40, time=20.0), phase("scoring", time=30.0)
    )
    assert (found.phase, found.counts, found.counts_text()) == ("scoring", None, "")
    assert told(progress(5, time=20.0)).counts_text() == "5/100, 0 failed, 0.0/s"
    assert (
        told(phase("judging", time=30.0), progress(5, time=20.0)).counts_text()
        == "5/100, 0 failed, 0.0/s"
    )


def test_the_progress_of_a_cell_for_programs() -> None:
    events = [phase("judging", time=10.0, number=1, of=2), progress(40, time=22.0, cached=1)]
    assert json.loads(json.dumps(told(*events).document())) == {
        "phase": "judging",
        "phase_since": 10.0,
        "run": 1,
        "runs": 2,
        "counts": {
            "role": "model",
            "total": 100,
            "done": 40,
            "cached": 1,
            "failed": 0,
            "prompt_tokens": 0,
            "completion_tokens": 0,
        },
    }


def test_a_reader_reads_on_in_a_cells_events_and_leaves_out_earlier_attempts(
    tmp_path: Path,
) -> None:
    folder = suite_folder(tmp_path, started(["a/b"]), cell_started("a/b", time=50.0))
    cell_events(folder, "a/b", phase("scoring", time=49.9), progress(9, time=49.95))
    reader = SuiteReader(folder)
    with held(folder):
        assert reader.read_status().cells[0].progress == CellProgress()
        cell_events(folder, "a/b", phase("asking the model", time=50.0), progress(1, time=51.0))
        found = reader.read_status().cells[0].progress
        says(str(found and found.counts_text()), "1/100", "0 failed", "1:39 min left", "1.0/s")
        cell_events(folder, "a/b", {"event": "phase", "time": "never", "phase": "scoring"})
        assert reader.read_status().cells[0].progress == found


def test_a_doubt_stands_beside_a_score_that_may_be_reported(tmp_path: Path) -> None:
    """0.75 of four questions, and a best score without a model that is as high."""
    floor = Floor("always A", 0.75, 4, {"always A": 0.75})
    for name, reportable in (("good", True), ("refused", False)):
        folder = right_or_wrong(tmp_path / name, "1110", reportable=reportable)
        result = load_result(folder).result
        validity = replace(result.validity, floors={"exact_match": floor})
        figures = CellFigures.of(replace(result, validity=validity))
        assert figures.doubt == (Verdict.BELOW.value.phrase if reportable else None)
