from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from eval_factory.errors import BusyError, PrerequisiteError
from eval_factory.rundir import RunDir, write_atomic


def test_write_is_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "sub" / "a.txt"
    write_atomic(file, "one", mode=0o600)
    assert file.read_text() == "one"
    assert file.stat().st_mode & 0o777 == 0o600

    def no_space(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        write_atomic(file, "two")
    assert file.read_text() == "one"
    assert [path.name for path in file.parent.iterdir()] == ["a.txt"]


HOLD = """
import sys, time
from pathlib import Path
from eval_factory.rundir import RunDir
with RunDir(Path(sys.argv[1])).locked():
    print("held", flush=True)
    time.sleep(60)
"""


def test_a_second_run_is_refused_and_told_by_whom(tmp_path: Path) -> None:
    holder = subprocess.Popen([sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True)
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(BusyError, match=f"process {holder.pid} on"), RunDir(tmp_path).locked():
            pass
        holder.kill()
        holder.wait(10)
        with RunDir(tmp_path).locked():  # the lock of a dead process does not block
            pass


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PrerequisiteError, match="cannot write to the output folder"):
        RunDir(tmp_path / "file" / "out").create()


def test_only_the_owner_sees_helms_files_and_the_logs(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path / "a" / "out")
    rundir.create()
    rundir.create()
    for folder in (rundir.helm, rundir.logs, rundir.responses, rundir.model_configs):
        assert folder.stat().st_mode & 0o777 == 0o700, folder
    assert rundir.root.stat().st_mode & 0o777 == tmp_path.joinpath("a").stat().st_mode & 0o777
