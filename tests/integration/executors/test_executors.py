"""The same cases for every executor, with real runs. A third executor is written here."""

from __future__ import annotations

import errno
import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.core.errors import BusyError, PrerequisiteError
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.executors.runs import (
    Ended,
    Executor,
    ExecutorRun,
    LocalRuns,
    Lost,
    RunState,
    Started,
)
from eval_factory.executors.slurm import Slurm
from eval_factory.executors.slurm_runs import SlurmRuns
from eval_factory.workflows.suite.local_suite import CELL_PROCESS
from eval_factory.workflows.suite.slurm_suite import WORKER
from facts import naming, says
from program_runs import CANARY, is_running, more_data, program_environment, wait_until
from slurm_cells import run_of
from slurm_trial import INSTANCES, gate, processes, until
from virtual_slurm import VirtualSlurm, virtual_slurm

PATIENCE_S = 120.0
ENV = program_environment(OPENAI_API_KEY=CANARY)


class Commands:
    """A third executor: `run_eval`, a process each."""

    def __init__(self) -> None:
        self.processes: dict[str, subprocess.Popen[bytes]] = {}

    def begin(self, runs: Sequence[ExecutorRun]) -> None:
        for run in runs:
            argv = [
                sys.executable,
                "-m",
                "eval_factory",
                "run_eval",
                "--run_config",
                run.run_config,
            ]
            with Path(run.log).open("ab") as log:
                process = subprocess.Popen(
                    argv, env=ENV, stdout=log, stderr=log, start_new_session=True
                )
            self.processes[run.name] = process

    def poll(self, seconds: float = 0.0) -> Mapping[str, RunState]:
        time.sleep(seconds)
        return {name: self._state(process) for name, process in self.processes.items()}

    def _state(self, process: subprocess.Popen[bytes]) -> RunState:
        code = process.poll()
        return Started(f"process {process.pid}", process.pid) if code is None else Ended(code)

    def end(self, names: Collection[str] | None = None) -> None:
        chosen = [
            process for name, process in self.processes.items() if names is None or name in names
        ]
        for process in chosen:
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)
        for process in chosen:
            process.wait(PATIENCE_S)

    def clean_up(self) -> None:
        """Its runs read their keys from this process's environment."""


@dataclass
class Trial:
    """An executor, and runs for it in a folder."""

    executor: Executor
    folder: Path
    url: str
    """Of an endpoint that takes connections and says nothing: a run that asks it waits."""
    kill: Callable[[str], None]
    """A run's process, without a word."""

    def run(
        self, name: str, task: str = "sample_medical_qa", url: str | None = None, **endpoint: Any
    ) -> ExecutorRun:
        """One that waits for ever."""
        params = {"limit_samples": INSTANCES, "parallelism": 1}
        config = {
            "config": {"type": task, "output_dir": str(self.folder / name), "params": params},
            "target": {
                "api_endpoint": {
                    "url": url or self.url,
                    "model_id": "m",
                    "type": "chat",
                    **endpoint,
                }
            },
        }
        file = self.folder / f"{name}.yml"
        file.write_text(yaml.safe_dump(config))
        settings = run_of(name, self.folder).settings
        return ExecutorRun(
            f"t/{name}/0",
            str(file),
            str(file.with_suffix(".log")),
            str(file.with_suffix(".json")),
            settings=settings,
        )

    def wrong(self, name: str) -> ExecutorRun:
        """One that ends with 2."""
        return self.run(name, "no_such_task")

    def unready(self, name: str) -> ExecutorRun:
        """One that ends with 3."""
        return self.run(name, api_key="NOT_SET")

    def ended(self, *runs: ExecutorRun) -> list[RunState]:
        """Return what has become of them, when all are over."""
        return [self.until(run, Ended) for run in runs]

    def until(self, run: ExecutorRun, *kinds: type[RunState]) -> RunState:
        ends = time.monotonic() + PATIENCE_S
        while not isinstance(state := self.executor.poll(0.2)[run.name], kinds):
            assert time.monotonic() < ends, (state, self.log(run))
        return state

    def begin(self, *runs: ExecutorRun) -> None:
        """Until each is at work in its folder."""
        self.executor.begin(runs)
        ends = time.monotonic() + PATIENCE_S
        for run in runs:
            while not isinstance(self.until(run, Started), Started) or self.is_free(run):
                assert time.monotonic() < ends, self.log(run)
                time.sleep(0.1)

    def is_free(self, run: ExecutorRun) -> bool:
        """Return whether nobody holds the folder, or nobody has started."""
        rundir = RunDir(self.folder / Path(run.run_config).stem)
        if not rundir.program_log.is_file():
            return True
        try:
            with rundir.locked():
                return True
        except BusyError:
            return False

    def log(self, run: ExecutorRun) -> str:
        return Path(run.log).read_text() if Path(run.log).is_file() else "no log"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[VirtualSlurm]:
    with virtual_slurm(tmp_path_factory.mktemp("slurm") / "c") as cluster:
        yield cluster


@pytest.fixture
def silent() -> Iterator[str]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield f"http://127.0.0.1:{server.getsockname()[1]}/v1"


@pytest.fixture(params=["local", "slurm", *more_data("a third")])
def trial(request: pytest.FixtureRequest, tmp_path: Path, silent: str) -> Iterator[Trial]:
    def kill(name: str) -> None:
        state = executor.poll()[name]
        assert isinstance(state, Started)
        pids = processes(WORKER[1], tmp_path) if state.pid is None else [state.pid]
        for pid in pids:
            os.kill(pid, signal.SIGKILL)

    executor: Executor
    if request.param == "slurm":
        cluster = request.getfixturevalue("cluster")
        slurm = Slurm({**ENV, "SLURM_CONF": str(cluster.conf)})
        suite = SuiteDir(tmp_path / "suite")
        executor = SlurmRuns(suite, slurm, WORKER, env=ENV, secrets=["OPENAI_API_KEY"])
    elif request.param == "a third":
        executor = Commands()
    else:
        executor = LocalRuns(CELL_PROCESS, ENV, tmp_path / "host.log")
    try:
        yield Trial(executor, tmp_path, silent, kill)
    finally:
        executor.end()
        executor.clean_up()


def test_where_nothing_was_begun_nothing_is_known_ended_or_cleaned(trial: Trial) -> None:
    trial.executor.begin([])
    trial.executor.end()
    trial.executor.end(["t/never/0"])
    assert trial.executor.poll() == {}
    trial.executor.clean_up()
    trial.executor.clean_up()
    assert trial.executor.poll() == {}


def test_a_process_that_cannot_be_started_is_said_and_the_others_are_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def popen(*_: object, **__: object) -> subprocess.Popen[bytes]:
        raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))

    runs = [
        ExecutorRun(name, "run.yml", str(tmp_path / "log"), str(tmp_path / "end.json"))
        for name in ("t/a", "t/b")
    ]
    with LocalRuns([sys.executable, "-c", ""], ENV, tmp_path / "host.log") as executor:
        executor.begin(runs[:1])
        monkeypatch.setattr(subprocess, "Popen", popen)
        with pytest.raises(
            PrerequisiteError,
            match=naming("t/b: ", "no process", "Resource temporarily unavailable"),
        ):
            executor.begin(runs[1:])
        assert [*executor.poll()] == ["t/a"]


def test_each_ends_with_its_own_code_and_says_why_in_its_log(trial: Trial) -> None:
    """A prerequisite that is not there, and a run config that is gone, are their runs' alone."""
    wrong = trial.wrong("wrong")
    unready = trial.unready("unready")
    gone = trial.wrong("gone")
    runs = [wrong, unready, gone, trial.run("good", url="demo://baseline")]
    Path(gone.run_config).unlink()
    trial.executor.begin(runs)
    assert trial.ended(*runs) == [Ended(2), Ended(3), Ended(2), Ended(0)]
    assert set(trial.executor.poll()) == {run.name for run in runs}
    says(trial.log(wrong), "no task 'no_such_task'")
    assert "NOT_SET" in trial.log(unready)
    assert isinstance(trial.executor, Commands) or Path(wrong.log).stat().st_mode & 0o777 == 0o600


def test_a_run_that_has_ended_is_not_touched_by_what_comes_later(trial: Trial) -> None:
    """Others are started, at work, and ended; it is ended itself; all is cleaned up, and more is started."""
    over = trial.wrong("over")
    works = trial.run("works")
    late = trial.unready("late")
    trial.executor.begin([over])
    assert trial.ended(over) == [Ended(2)]
    trial.executor.end([over.name])
    trial.begin(works)
    trial.executor.begin([late])
    assert trial.ended(late, over) == [Ended(3), Ended(2)]
    assert isinstance(trial.executor.poll()[works.name], Started)
    trial.executor.end()
    states = trial.executor.poll()
    assert (states[over.name], states[late.name]) == (Ended(2), Ended(3))
    assert isinstance(states[works.name], (Ended, Lost))
    trial.executor.clean_up()
    more = trial.unready("more")
    trial.executor.begin([more])
    assert trial.ended(more) == [Ended(3)]


def test_runs_at_work_are_somewhere_until_each_is_ended_and_leave_nothing(trial: Trial) -> None:
    """But their folders and logs: no key, neither in words of a process meanwhile nor in a file afterwards."""
    runs = [trial.run(name) for name in ("one", "two", "three")]
    one, *others = runs
    trial.begin(one)
    trial.begin(*others)
    words = [
        file.read_bytes()
        for file in Path("/proc").glob("[0-9]*/cmdline")
        if os.access(file, os.R_OK)
    ]
    assert not any(CANARY.encode() in each for each in words)
    trial.executor.end(["t/another/0"])
    trial.executor.end([])
    started = time.monotonic()
    states = trial.executor.poll(0.5)  # whoever looks says how long
    assert time.monotonic() - started < 30
    assert all(isinstance(state, Started) and state.where for state in states.values())
    assert [trial.is_free(run) for run in runs] == [False] * 3

    trial.executor.end([one.name])
    states = trial.executor.poll()
    assert isinstance(states[one.name], (Ended, Lost))
    assert all(isinstance(states[other.name], Started) for other in others)
    assert [trial.is_free(run) for run in runs] == [True, False, False]
    trial.executor.end([one.name])
    assert trial.executor.poll()[one.name] == states[one.name]

    trial.executor.end()
    assert all(isinstance(trial.executor.poll()[other.name], (Ended, Lost)) for other in others)
    assert [trial.is_free(run) for run in runs] == [True] * 3
    trial.executor.clean_up()
    found = subprocess.run(
        ["grep", "-rl", CANARY, str(trial.folder)], capture_output=True, text=True, check=False
    )
    assert found.stdout == ""
    assert processes("helm-run", trial.folder) == processes("run_eval", trial.folder) == []


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_one_that_is_over_is_begun_again_and_another_goes_on(trial: Trial, how: str) -> None:
    """Its log keeps what earlier starts said."""
    run = trial.run("again")
    other = trial.run("other")
    trial.begin(run)
    if how == "ended":
        trial.executor.end([run.name])
    else:
        trial.kill(run.name)
        state = trial.until(run, Ended, Lost)
        assert state == Lost() or (isinstance(state, Ended) and state.code < 0), (
            "it is taken for one that goes on"
        )
    trial.begin(other)
    for another, said, code in (
        (trial.wrong, "there is no task", 2),
        (trial.unready, "NOT_SET", 3),
    ):
        another("again")
        trial.executor.begin([run])
        while said not in trial.log(run):
            trial.executor.poll(0.2)
        assert trial.ended(run) == [Ended(code)]
    says(trial.log(run), "no task 'no_such_task'")
    assert not trial.is_free(other)


def test_a_run_that_has_finished_stands(trial: Trial) -> None:
    """Begun twice, it finds its result and asks nothing."""
    run = trial.run("done", url="demo://baseline")
    trial.executor.begin([run])
    assert trial.until(run, Ended) == Ended(0), trial.log(run)
    result = RunDir(trial.folder / "done").evaluation_config
    written = result.read_bytes()
    trial.executor.begin([run])
    assert trial.until(run, Ended) == Ended(0)
    assert result.read_bytes() == written


@pytest.mark.parametrize("how", ["ended", "killed"])
def test_what_was_answered_is_not_asked_again(trial: Trial, how: str) -> None:
    """But for what was in flight."""
    with gate(1) as endpoint:
        run = trial.run("goes-on", url=endpoint.endpoint.url)
        trial.begin(run)
        until(lambda: endpoint.asked > 1)
        if how == "ended":
            trial.executor.end([run.name])
        else:
            trial.kill(run.name)
            trial.until(run, Ended, Lost)
        endpoint.opened.set()
        trial.executor.begin([run])
        until(lambda: RunDir(trial.folder / "goes-on").evaluation_config.exists())
        assert trial.ended(run) == [Ended(0)], trial.log(run)
        assert INSTANCES <= endpoint.asked <= INSTANCES + 1


def test_a_folder_that_somebody_holds_is_not_written_to(trial: Trial) -> None:
    run = trial.run("held", url="demo://baseline")
    rundir = RunDir(trial.folder / "held")
    rundir.create()
    with rundir.locked():
        trial.executor.begin([run])
        until(lambda: trial.log(run) != "no log" and "in use" in trial.log(run))
        assert not rundir.evaluation_config.exists()
    # refused, or it waits as long as a file system may hold a lock that is nobody's
    state = trial.until(run, Ended)
    assert isinstance(state, Ended)
    assert (state.code == 0) == rundir.evaluation_config.exists()


DRIVER = """
import os, sys
from pathlib import Path
from eval_factory.executors.runs import RUN_JSON, LocalRuns, Started
from eval_factory.workflows.suite.local_suite import CELL_PROCESS
runs = LocalRuns(CELL_PROCESS, os.environ, Path(sys.argv[1]))
runs.begin([RUN_JSON.validate_json(sys.argv[2])])
while True:
    for state in runs.poll(1.0).values():
        if isinstance(state, Started):
            print(state.pid, flush=True)
"""


@pytest.mark.parametrize("trial", ["local"], indirect=True)
def test_runs_here_end_with_who_began_them(trial: Trial) -> None:
    run = trial.run("orphan")
    argv = [sys.executable, "-c", DRIVER, str(trial.folder / "log"), json.dumps(asdict(run))]
    with subprocess.Popen(argv, env=ENV, stdout=subprocess.PIPE) as driver:
        assert driver.stdout is not None
        pid = int(driver.stdout.readline())
        assert os.getpgid(pid) == pid, "Ctrl-C in the suite's terminal would reach it"
        driver.kill()
    wait_until(lambda: not is_running(pid), PATIENCE_S)
    assert not Path(run.record).exists(), "it ended by itself"
