"""What is taken from the stored result where a run is collected again without its data, logs and time."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.core.time_limit import OutOfTime, TimeLimit
from eval_factory.data.sources import load_sources
from eval_factory.scoring.collect import collect
from eval_factory.scoring.floors import LATE, MISSING_FLOORS
from eval_factory.scoring.remembered import Remembered, clock_of, with_unread_data
from stored_results import PROVENANCE
from unit.builders import plan
from unit.scoring.test_collect import result_of
from unit.scoring.test_floors import FLAG, QUESTIONS, always, of_medec, write_trivial


def test_data_that_are_not_here_keep_their_hashes() -> None:
    stored = {"scenarios/a": "1", "scenarios/b": "2", "hub:x/y": "3", "hub:x/z": "4", "package:a": "5"}
    made = {
        "scenarios/a": "9",
        "package:a": "6",
        "package:b": "7",
        "hub:x/y": "8",
        "hub:x/z": "4",
        "hub:new": "7",
        "scenarios/new": "6",
    }
    assert with_unread_data(stored, made) == (
        {"scenarios/a": "9", "scenarios/b": "2", "hub:x/y": "3", "hub:x/z": "4", "scenarios/new": "6",
         "package:a": "5"}, 3,
    )  # fmt: skip
    assert with_unread_data(stored, stored) == (stored, 0)


def test_hashes_revisions_and_times_are_the_stored_ones(tmp_path: Path) -> None:
    here = plan({"config.type": "pubmed_qa", "config.output_dir": str(tmp_path)})
    here.rundir.helm.mkdir()
    name = "scenarios/pubmed_qa/data/test_set.json"
    (file,) = load_sources().tasks["pubmed_qa"].files
    digest = str(file.sha256)
    then = replace(PROVENANCE, dataset_files={name: digest}, started_at="s", ended_at="e")
    found = Remembered(then)
    now = replace(PROVENANCE, dataset_files={})
    made = found.completed(here, now)
    assert made.dataset_files == {name: digest}
    assert made.dataset_revisions.keys() == {name}
    assert (made.started_at, made.ended_at, found.unread) == ("s", "e", 1)
    told = Remembered(then).completed(here, replace(now, started_at="t", ended_at=None, dataset_files={name: "x"}))
    assert (told.started_at, told.ended_at, told.dataset_files, told.dataset_revisions) == ("t", None, {name: "x"}, {})


def spend(remembered: Remembered) -> None:
    limit = TimeLimit(0.0, clock_of(remembered))
    for _ in range(3):
        with limit:
            limit.check()


@pytest.mark.parametrize("note", [f"{MISSING_FLOORS}random", f"{LATE} are high", "other"])
def test_floors_that_were_made_in_time_are_made_however_slow_it_is_now(note: str) -> None:
    spend(Remembered(PROVENANCE, (note,)))
    assert clock_of(None) is time.thread_time


def test_floors_that_were_not_made_in_time_are_not_made() -> None:
    notes = ("other", f"{MISSING_FLOORS}random, {LATE}: a tenth")
    with pytest.raises(OutOfTime):
        spend(Remembered(PROVENANCE, notes))


def test_the_collector_has_no_less_time_for_floors_than_it_had(tmp_path: Path) -> None:
    """No time is left here, so that a first collection leaves out what is not HELM's own."""
    states = of_medec("CORRECT", "1 He is well.")
    write_trivial(tmp_path, always("", 1.0, 1.0, metric=FLAG), questions=QUESTIONS[:2], limit_s=0.0)
    result = result_of(tmp_path, {"config.type": "medec"}, states=states, values={FLAG: [1.0, 0.0]})
    assert set(result.validity.floors) == {FLAG}
    here = plan({"config.type": "medec", "config.output_dir": str(tmp_path / "out")})
    folders = list(here.rundir.helm.glob("runs/s/r"))
    for notes, labels in (((), {FLAG, f"{FLAG}.corrected"}), (result.validity.notes, {FLAG})):
        again = collect(
            here, folders, run_id="run", wall_s=1.0, git_hash=None, remembered=Remembered(result.provenance, notes)
        )
        assert set(again.validity.floors) == labels
