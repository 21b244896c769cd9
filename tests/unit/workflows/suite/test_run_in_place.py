from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.errors import BusyError
from eval_factory.core.rundir import RunDir, RunSuiteDir
from eval_factory.workflows.suite.finished_cells import put_in_place


class Place:
    """A run's folder with an earlier result and a file of the user's, and what a task has left."""

    def __init__(self, root: Path) -> None:
        self.run = RunDir(root / "out")
        self.suite = RunSuiteDir(self.run.root / ".slurm")
        self.copy = self.suite.state / "slurm" / "cells" / "w1-ab" / "out"
        self.copy.mkdir(parents=True)
        self.run.create()
        for name in ("evaluation_config.yaml", "report.md", "cache.db", "cache.db-wal", "users.txt"):
            (self.run.root / name).write_text("old")
        for name in (".run_state.json", "cache.db", "evaluation_config.yaml", ".eval-factory", ".lock"):
            (self.copy / name).write_text("new")
        (self.copy / "helm").mkdir()
        (self.copy / "helm" / "a").write_text("new")

    def found(self) -> dict[str, str]:
        files = (path for path in self.run.root.iterdir() if path.is_file() and not path.name.startswith(".lock"))
        return {path.name: path.read_text() for path in files if path.name != ".eval-factory"}

    def move(self) -> None:
        put_in_place(self.copy, self.run.root, self.suite)


@pytest.fixture
def place(tmp_path: Path) -> Place:
    return Place(tmp_path)


WHOLE = {"users.txt": "old", ".run_state.json": "new", "cache.db": "new", "evaluation_config.yaml": "new"}


def test_the_result_lies_in_the_runs_folder_and_nothing_of_the_last_one(place: Place) -> None:
    place.move()
    assert place.found() == WHOLE
    assert (place.run.root / "helm" / "a").read_text() == "new"
    assert place.run.marker.read_text() != "new"
    assert not place.copy.exists()
    (aside,) = (place.suite.state / "set-aside").iterdir()
    assert {"evaluation_config.yaml", "report.md", "cache.db", "cache.db-wal", "helm", "logs"} <= {
        path.name for path in aside.iterdir()
    }
    assert [path.name for path in place.suite.state.iterdir() if path.name.startswith("in-place")] == []


def test_a_kill_on_the_way_loses_nothing(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    moved: list[str] = []
    real = Path.rename

    def rename(path: Path, target: Path) -> Path:
        if path.parent == place.copy:
            if len(moved) == 2:
                raise KeyboardInterrupt
            moved.append(path.name)
        return real(path, target)

    monkeypatch.setattr(Path, "rename", rename)
    with pytest.raises(KeyboardInterrupt):
        place.move()
    assert ".run_state.json" not in moved, "by which a complete run is known"
    assert place.copy.is_dir()
    monkeypatch.setattr(Path, "rename", real)
    place.move()
    assert place.found() == WHOLE
    assert len(list((place.suite.state / "set-aside").iterdir())) == 1


def test_nobody_may_be_at_work_there(place: Place) -> None:
    before = place.found()
    with place.run.locked(), pytest.raises(BusyError):
        place.move()
    assert place.found() == before
