from __future__ import annotations

import errno
import fcntl
import json
import os
from pathlib import Path

import pytest

from eval_factory.core import rundir
from eval_factory.core.errors import BusyError, PrerequisiteError
from eval_factory.core.rundir import RunDir, RunSuiteDir, SuiteDir, suite_dir
from eval_factory.core.safe_files import write_atomic
from facts import naming


def test_a_program_that_could_not_be_ended_keeps_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The program inherited the lock, so the lock is not released with this process."""
    with RunDir(tmp_path).locked() as lock:
        inherited = os.dup(lock.descriptor)
        lock.share_with(os.getpid())
    with pytest.raises(BusyError, match=f"process {os.getpid()} on"), RunDir(tmp_path).locked():
        pass
    os.close(inherited)
    with RunDir(tmp_path).locked() as lock:
        inherited = os.dup(lock.descriptor)
        lock.share_with(os.getpid())
        lock.record_program_end()
    assert not (tmp_path / ".lock.holder.json").exists()
    # the program has ended, so a process that inherited the descriptor from it does not matter
    with RunDir(tmp_path).locked(pytest.fail):
        pass
    os.close(inherited)


def test_a_holder_that_is_not_written_down_yet_is_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rundir, "ORPHAN_WAIT_S", 0.2)
    monkeypatch.setattr(rundir, "UNKNOWN_HOLDER_S", 0.1)
    said: list[str] = []
    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        with (
            pytest.raises(BusyError, match="an unknown process"),
            RunDir(tmp_path).locked(said.append),
        ):
            pass
        assert len(said) == 1
        monkeypatch.setattr(rundir, "UNKNOWN_HOLDER_S", 0.3)
        with (
            pytest.raises(BusyError, match="an unknown process"),
            RunDir(tmp_path).locked(pytest.fail),
        ):
            pass


def test_a_holder_on_another_machine_is_not_taken_for_gone(tmp_path: Path) -> None:
    with (tmp_path / ".lock").open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        (tmp_path / ".lock.holder.json").write_text(
            json.dumps({"pid": 2**22 + 1, "host": "elsewhere", "since": "x"})
        )
        open_before = os.listdir("/dev/fd")  # noqa: PTH208
        with (
            pytest.raises(BusyError, match=naming("process 4194305", "on elsewhere", "since x")),
            RunDir(tmp_path).locked(pytest.fail),
        ):
            pass
        assert os.listdir("/dev/fd") == open_before  # noqa: PTH208


WITHOUT_LOCKS = [errno.ENOLCK, errno.EOPNOTSUPP, errno.EIO, errno.ENOSYS]


@pytest.mark.parametrize("number", [*WITHOUT_LOCKS, errno.EAGAIN, errno.EWOULDBLOCK, errno.EACCES])
def test_a_lock_is_held_or_the_file_system_has_none(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def flock(descriptor: int, operation: int) -> None:
        asked.append(operation)
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setattr(rundir, "ORPHAN_WAIT_S", 0.0)
    with pytest.raises((PrerequisiteError, BusyError)) as told, RunDir(tmp_path).locked():
        pass
    assert asked == [fcntl.LOCK_EX | fcntl.LOCK_NB]
    assert isinstance(told.value, PrerequisiteError) is (number in WITHOUT_LOCKS)
    parts = (
        (os.strerror(number), "a network folder?", "--output_dir")
        if number in WITHOUT_LOCKS
        else ("an unknown process",)
    )
    assert all(part in str(told.value) for part in parts)


def test_a_folder_that_cannot_be_made_and_a_lock_file_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PrerequisiteError, match=naming("cannot write", "output folder")):
        RunDir(tmp_path / "file" / "out").create()
    (tmp_path / ".lock").mkdir()
    told = r"cannot open .*\.lock: Is a directory\n.*--output_dir"
    with pytest.raises(PrerequisiteError, match=told), RunDir(tmp_path).locked():
        pass


def test_only_the_owner_sees_helms_files_and_the_logs(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path / "a" / "out")
    rundir.create()
    rundir.create()
    for folder in (rundir.helm, rundir.logs, rundir.responses, rundir.model_configs):
        assert folder.stat().st_mode & 0o777 == 0o700, folder
    assert rundir.root.stat().st_mode & 0o777 == tmp_path.joinpath("a").stat().st_mode & 0o777


@pytest.mark.parametrize(
    ("umask", "mode", "found"),
    [(0o077, 0o644, 0o600), (0o022, 0o644, 0o644), (0o022, 0o600, 0o600)],
)
def test_the_users_umask_holds(umask: int, mode: int, found: int, tmp_path: Path) -> None:
    """Only the user can open a lock file: everybody who can open it could acquire the lock."""
    before = os.umask(umask)
    try:
        write_atomic(tmp_path / "a", "x", mode=mode)
        with RunDir(tmp_path).locked():
            modes = [
                (tmp_path / name).stat().st_mode & 0o777
                for name in ("a", ".lock", ".lock.holder.json")
            ]
    finally:
        os.umask(before)
    assert modes == [found, 0o600, 0o644 & ~umask]


def test_a_run_that_is_a_suite_lies_in_its_own_output_folder() -> None:
    found = suite_dir(Path("out/.slurm"))
    assert isinstance(found, RunSuiteDir)
    assert found.cell_folder("model", "medec") == found.chosen_folder == Path("out")
    assert found.run_config == Path("out/.slurm/run_config.yml")
    assert found.cell_config("model", "medec") == Path("out/.slurm/.suite/cells/model/medec.yml")


def test_what_is_read_of_a_suite_are_its_files_and_those_of_its_runs(tmp_path: Path) -> None:
    for folder, mark in (
        ("a/x", ".eval-factory"),
        ("a/y", "evaluation_config.yaml"),
        ("a/no_run", "x"),
    ):
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / mark).touch()
    own = SuiteDir(tmp_path).all_paths
    assert {path.parent.relative_to(tmp_path).as_posix() for path in own} == {".", "a/x", "a/y"}
    assert {tmp_path / "suite_config.yml", tmp_path / ".suite", *SuiteDir(tmp_path).table_files} < {
        *own
    }
    assert tmp_path / "a" / "x" / "results.jsonl" in own
    assert tmp_path / "a" / "x" / "logs" in RunSuiteDir(tmp_path / "a" / "x" / ".slurm").all_paths


def test_logs_of_servers_are_those_here_and_of_the_last_job_of_each_target(tmp_path: Path) -> None:
    suite = SuiteDir(tmp_path)
    assert suite.server_logs == ()
    logs = [suite.server_log("a"), suite.server_log("a@1")]
    for number, start in enumerate(("b/w1-x", "b/w2-x", "c/w1-x")):
        logs.append(SuiteDir(suite.state / "slurm/tasks" / start).server_log("x"))
        logs[-1].parent.mkdir(parents=True)
        os.utime(suite.state / "slurm/tasks" / start, (number, number))
    logs[0].parent.mkdir()
    for log in logs:
        log.touch()
    assert {*suite.server_logs} == {*logs} - {logs[2]}
