"""The logs of one cell."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite.suite_logs import find_cell, show_logs
from eval_factory.workflows.suite.suite_status import (
    QUEUE_UNKNOWN,
    CellJob,
    SuiteReader,
    SuiteStatus,
)
from facts import naming
from suite_by_hand import CELLS, cell_ended, cell_started, held, started, suite_folder, tell


def logs(folder: SuiteDir, cell: str) -> tuple[Path, Path]:
    """The program's, HELM's."""
    place = folder.cell_folder(*cell.split("/")) / "logs"
    place.mkdir(parents=True)
    return place / "eval-factory.log", place / "helm-run.log"


def shown(folder: SuiteDir, cell: str, *, follow: bool = False) -> list[str]:
    lines: list[str] = []
    show_logs(SuiteReader(folder), cell, lines.append, follow=follow)
    return lines


def test_both_logs(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path, started())
    ours, helms = logs(folder, "big/qa")
    ours.write_text("one\ntwo")
    helms.write_text("three \x1b[31m\n")
    assert shown(folder, "big/qa") == [
        f"==> {ours} <==",
        "one",
        "two",
        f"==> {helms} <==",
        "three \\x1b[31m",
    ]
    ours.unlink()
    assert shown(folder, "big/qa")[1:] == ["three \\x1b[31m"], "one log is enough"


def test_what_a_run_by_itself_would_show(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path, started(), cell_started("big/qa"))
    assert shown(folder, "big/qa", follow=True) == [], (
        "nobody will write into a log of a suite that is gone"
    )
    tell(folder.events, cell_ended("big/qa", "failed", reason="no key"))
    with pytest.raises(
        PrerequisiteError, match=naming("big/qa: ", "no logs yet", "failed, no key", "-f")
    ):
        shown(folder, "big/qa")
    screen = folder.cell_log("big", "qa")
    screen.parent.mkdir(parents=True)
    screen.write_text("the endpoint refuses\n")
    assert shown(folder, "big/qa") == [f"==> {screen} <==", "the endpoint refuses"]


def test_following_until_the_cell_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = suite_folder(tmp_path, started(), cell_started("big/qa"))
    ours, helms = logs(folder, "big/qa")
    ours.write_text("one\n")

    def end() -> None:
        ours.write_text("one\nthree\nlast")
        tell(folder.events, cell_ended("big/qa"))

    steps = iter([lambda: helms.write_text("two\n"), lambda: ours.write_text("one\nthr"), end])
    monkeypatch.setattr(time, "sleep", lambda _: next(steps)())
    with held(folder):
        found = shown(folder, "big/qa", follow=True)
    assert found == [
        f"==> {ours} <==",
        "one",
        f"==> {helms} <==",
        "two",
        f"==> {ours} <==",
        "three",
        "last",
    ]


TWELVE = [f"t/e{number}" for number in range(12)]


@pytest.mark.parametrize(
    ("cells", "wanted", "found"),
    [
        (CELLS, "big/qa", "big/qa"),
        (CELLS, "big/m", "big/medec"),
        (CELLS, "l/qa", "small/qa"),
        (["a/qa", "a/qa_hot"], "a/qa", "a/qa"),
        (["big/qa"], None, "big/qa"),
        (CELLS, "qa", "'qa' fits 2 cells; there are: small/qa, big/qa"),
        (CELLS, None, "the name of a cell is needed; there are: "),
        (TWELVE, "x", r"'x' fits 0 cells; there are: t/e0, .*, t/e9 and 2 more"),
        ([], "x", "there are: none yet"),
    ],
)
def test_a_part_of_the_name_is_enough(
    tmp_path: Path, cells: list[str], wanted: str | None, found: str
) -> None:
    status = SuiteReader(suite_folder(tmp_path, started(cells))).read_status()
    if found in cells:
        assert find_cell(status, wanted).name == found
        return
    with pytest.raises(ConfigError, match=found):
        find_cell(status, wanted)


class Scripted:
    """A reader of a cell that Slurm has: each reading finds what the next step left."""

    def __init__(
        self, folder: SuiteDir, *steps: Callable[[], tuple[str, CellJob | None, str | None]]
    ) -> None:
        self.status = SuiteReader(folder).read_status()
        self.steps = list(steps)

    def read_status(self) -> SuiteStatus:
        status, job, reason = self.steps.pop(0)()
        cell = self.status.cells[0]
        cell = replace(cell, status=RunStatus(status), reason=reason, job=job)
        return replace(self.status, cells=(cell,))


def test_a_task_is_followed_from_before_it_begins_to_its_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On another node: all that is known of it is in files."""
    folder = suite_folder(tmp_path, started(["big/qa"]))
    helms, _ = logs(folder, "big/qa")
    slurms = tmp_path / "0.log"
    helms.write_text("of an earlier run\n")

    def waits() -> tuple[str, CellJob | None, str | None]:
        return "waiting", CellJob("task 0, PENDING", 0, slurms), None

    def begins() -> tuple[str, CellJob | None, str | None]:
        slurms.write_text("module load\n")
        helms.write_text("one\ntw")
        return "running", CellJob("task 0, RUNNING", 1, slurms), None

    def is_not_known() -> tuple[str, CellJob | None, str | None]:
        return "missing", CellJob(None, 1, slurms), QUEUE_UNKNOWN

    def ends() -> tuple[str, CellJob | None, str | None]:
        with helms.open("a") as file:
            file.write("o\nthree")
        return "missing", CellJob(None, 1, slurms), "its job has ended"

    monkeypatch.setattr("time.sleep", lambda _seconds: None)
    lines: list[str] = []
    reader: Any = Scripted(folder, waits, waits, begins, is_not_known, ends)
    show_logs(reader, None, lines.append, follow=True)
    assert lines == [f"==> {slurms} <==", "module load", f"==> {helms} <==", "one", "two", "three"]
