"""How far a cell is: phases, counts, and only those of its last attempt."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eval_factory.workflows.suite.suite_status import CellFollower, CellProgress, after
from suite_by_hand import cell_events, phase, progress, suite_folder


def told(*events: dict[str, Any]) -> CellProgress:
    found = CellProgress()
    for event in events:
        found = after(found, event)
    return found


def test_another_phase_has_counts_of_its_own() -> None:
    found = told(phase("asking the model", time=10.0), progress(40, time=20.0), phase("scoring", time=30.0))
    assert (found.phase, found.counts, found.figures()) == ("scoring", None, "")


def test_no_time_left_is_told_where_nobody_knows() -> None:
    assert told(phase("judging", time=10.0), progress(3, time=20.0, total=0)).left_s is None
    assert told(phase("judging", time=10.0), progress(0, time=20.0)).left_s is None
    assert told(phase("judging", time=10.0), progress(100, time=20.0)).left_s == 0.0
    assert told(progress(5, time=20.0)).rate == 0.0
    assert told(phase("judging", time=30.0), progress(5, time=20.0)).elapsed_s == 0.0


def test_a_document_for_programs() -> None:
    events = [phase("judging", time=10.0, number=1, of=2), progress(40, time=22.0, cached=1)]
    assert json.loads(json.dumps(told(*events).document())) == {
        "phase": "judging", "phase_since": 10.0, "run": 1, "runs": 2, "requests_per_s": 3.333, "left_s": 18.0,
        "counts": {"role": "model", "total": 100, "done": 40, "cached": 1, "failed": 0, "prompt_tokens": 0,
                   "completion_tokens": 0},
    }  # fmt: skip


def test_a_follower_reads_on_and_leaves_out_earlier_attempts(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    cell_events(folder, "a/b", phase("scoring", time=49.9), progress(9, time=49.95))
    follower = CellFollower(folder.cell("a", "b"), 50.0)
    assert follower.look() == CellProgress()
    cell_events(folder, "a/b", phase("asking the model", time=50.0), progress(1, time=51.0))
    assert follower.look().figures() == "1/100, 0 failed, 1:39 min left, 1.0/s"
    cell_events(folder, "a/b", {"event": "phase", "time": "never", "phase": "scoring"})
    assert follower.look().phase == "asking the model"
