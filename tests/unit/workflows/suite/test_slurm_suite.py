from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.config.suite import Suite
from eval_factory.core.errors import BusyError, ConfigError, InterruptedRunError, PrerequisiteError
from eval_factory.core.rundir import RunDir, SuiteDir
from eval_factory.core.secrets import Redactor
from eval_factory.executors.slurm import QueuedTask, QueueUnknownError
from eval_factory.executors.slurm_runs import wave_script
from eval_factory.executors.slurm_waves import RunEnd, SlurmSettings, SlurmStore
from eval_factory.workflows.suite import slurm_suite, slurm_worker
from eval_factory.workflows.suite.cell_loop import Work
from eval_factory.workflows.suite.planned_cells import PlannedCell
from eval_factory.workflows.suite.slurm_suite import (
    QUEUED,
    WORKER,
    executor_runs_of,
    refuse_unsupported_by_slurm,
    run_name,
)
from eval_factory.workflows.suite.suite_journal import SuiteJournal, SuiteObserver
from eval_factory.workflows.suite.suite_report import SuiteOptions
from facts import naming, says
from slurm_cells import ENV, ScriptedSlurm, cells_of
from suites import suite as any_suite


class Said(SuiteObserver):
    """Keeps what is said."""

    def __init__(self) -> None:
        self.lines: list[str] = []

    def say(self, text: str) -> None:
        self.lines.append(text)


class Invocation:
    """The same command, again and again."""

    def __init__(self, folder: Path) -> None:
        self.folder = SuiteDir(folder)
        self.folder.state.mkdir(parents=True)
        self.store = SlurmStore(self.folder)
        self.slurm = ScriptedSlurm()
        self.said = Said()
        self.keys: list[str] = []
        self.slept = 0

    def run(
        self,
        *,
        wait: bool = False,
        fresh: bool = False,
        meanwhile: Callable[[], object] = lambda: None,
        **changes: Any,
    ) -> Work:
        suite, cells = cells_of(self.folder.root, **changes)
        self.keys = [run_name(one) for one in cells]
        journal = SuiteJournal(self.folder, Redactor(()), self.said)
        work = Work(suite, SuiteOptions(wait=wait, fresh=fresh), ENV, journal, cells, Redactor(()))

        def sleep(_: float) -> None:
            self.slept += 1
            assert self.slept < 20
            meanwhile()

        slurm_suite.run_on_slurm(work, self.slurm, sleep)  # type: ignore[arg-type]
        return work

    def end(self, number: int, status: str = "complete", **changes: Any) -> None:
        """The task of this cell comes to its end."""
        usual = {"status": status, "exit_code": 0, "reason": None, "attempts": 1, **changes}
        name = self.keys[number]
        runs = []
        for wave in self.store.waves():
            runs += [(wave, run) for run in wave.runs if run.name == name]
        wave, run = runs[-1]
        self.store.record_end(wave, run, RunEnd(**usual))
        if status in ("complete", "partial"):
            rundir = self.rundir(number)
            rundir.create()
            (rundir.evaluation_config if status == "complete" else rundir.root / status).touch()
        self.leave(number)

    def rundir(self, number: int) -> RunDir:
        return RunDir(self.folder.cell_folder(*self.keys[number].split("/")[:2]))

    def leave(self, number: int) -> None:
        """The task is in the queue no more."""
        runs = {wave.job_name: wave.runs for wave in self.store.waves()}
        key = self.keys[number]
        tasks = self.slurm.tasks
        self.slurm.tasks = [task for task in tasks if runs[task.job_name][task.index].name != key]

    @property
    def waves(self) -> list[list[str]]:
        """The names of each one's runs."""
        return [[run.name for run in wave.runs] for wave in self.store.waves()]


@pytest.fixture(autouse=True)
def results(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file in a cell's folder says what stands there."""
    monkeypatch.setattr(
        slurm_suite, "is_complete_run", lambda plan: plan.rundir.evaluation_config.exists()
    )
    monkeypatch.setattr(
        slurm_suite,
        "has_usable_partial_result",
        lambda plan: (plan.rundir.root / "partial").exists(),
    )


@pytest.fixture
def command(tmp_path: Path) -> Invocation:
    return Invocation(tmp_path / "s")


@pytest.fixture
def again(command: Invocation) -> Invocation:
    """It was given once."""
    command.run()
    return command


def reports(work: Work) -> list[tuple[str, str | None, int]]:
    return [
        (report.status, report.reason, report.exit_code)
        for _, report in sorted(work.reports.items())
    ]


def test_all_is_submitted_and_the_command_returns(command: Invocation) -> None:
    command.slurm.tasks = [QueuedTask("ef-other-w1", "7", 0, "RUNNING", "None")]  # of another suite
    assert reports(command.run()) == [("waiting", QUEUED, 0)] * 2
    names = [re.findall("--job-name=(.*)", text) for text in command.slurm.submitted]
    suite_id = (command.store.root / "id").read_text()
    assert names == [[f"ef-{suite_id}-w1"], [f"ef-{suite_id}-w2"]], "an array for each endpoint"
    assert command.waves == [[command.keys[0]], [command.keys[1]]]
    held = json.loads(command.store.environment_file(1).read_text())
    assert held == {"secrets": ["OPENAI_API_KEY"], "values": ENV}
    assert "sk-" not in command.slurm.submitted[0] + command.store.wave_file(1).read_text()
    says(command.said.lines, "submitted 1 cell", f"ef-{suite_id}-w1 (job 7)")
    assert command.slept == 0
    assert reports(command.run()) == [("waiting", QUEUED, 0)] * 2
    assert len(command.slurm.submitted) == 2, "what is queued is not submitted again"


def test_what_has_ended_is_reported_and_not_done_again(again: Invocation) -> None:
    again.end(0)
    again.end(1, exit_code=1, reason="not reportable: few")
    work = again.run()
    assert reports(work) == [("complete", None, 0), ("complete", "not reportable: few", 1)]
    assert len(again.slurm.submitted) == 2
    assert not again.store.has_open_waves(), "keys go when no task is left"


def test_a_lost_task_is_submitted_again(again: Invocation) -> None:
    again.leave(1)
    again.run()
    assert again.waves == [[again.keys[0]], [again.keys[1]], [again.keys[1]]]
    assert not again.store.environment_file(2).exists()
    assert again.store.environment_file(3).exists()


def test_a_silent_queue_is_not_an_empty_one_and_who_waits_asks_it_again(again: Invocation) -> None:
    def meanwhile() -> None:
        if again.slept == 4:
            again.end(0)
            again.end(1)

    again.slurm.silent = 1
    with pytest.raises(QueueUnknownError):
        again.run()
    again.slurm.silent = 3
    assert reports(again.run(wait=True, meanwhile=meanwhile)) == [("complete", None, 0)] * 2
    assert (again.slept, len(again.slurm.submitted)) == (4, 2)
    assert sum("squeue" in line for line in again.said.lines) == 2, "once by each"
    says(again.said.lines, "no controller")


def test_but_not_for_ever(command: Invocation, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]

    def later() -> None:
        now[0] += 40

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    command.slurm.silent = 100
    with pytest.raises(QueueUnknownError):
        command.run(wait=True, meanwhile=later, max_outage_s=100)
    assert command.slept == 3


def test_who_waits_submits_what_is_lost_and_not_more_often_than_is_allowed(
    command: Invocation,
) -> None:
    def meanwhile() -> None:
        command.leave(0)
        if command.slept == 1:
            command.end(1)

    work = command.run(wait=True, meanwhile=meanwhile, max_attempts=3)
    assert reports(work) == [("missing", slurm_suite._LOST, 1), ("complete", None, 0)]
    assert len(command.slurm.submitted) == 2 + 2


def test_what_failed_is_reported_by_who_waits_and_asked_again_by_the_next(
    command: Invocation,
) -> None:
    def meanwhile() -> None:
        command.end(0, "failed", exit_code=4, reason="helm-run failed", attempts=2)
        command.end(1, "partial", exit_code=1, reason="gaps")

    work = command.run(wait=True, meanwhile=meanwhile)
    assert reports(work) == [("failed", "helm-run failed", 4), ("partial", "gaps", 1)]
    assert work.reports[0].attempts == 2
    command.run()
    assert [wave.number for wave in command.store.waves()] == [1, 2, 3, 4]


def test_a_task_that_waits_for_ever_is_cancelled_and_said(again: Invocation) -> None:
    first = again.slurm.tasks[0]
    again.slurm.tasks[0] = QueuedTask(first.job_name, "7", 0, "PENDING", "PartitionTimeLimit")
    work = again.run()
    status, reason, code = reports(work)[0]
    assert (status, code) == ("failed", 2)
    assert re.search(r"PartitionTimeLimit.*correct suite.slurm", str(reason))
    assert again.slurm.cancelled == [(first.job_name, 1)]
    assert len(again.slurm.submitted) == 2


def test_a_result_that_was_deleted_is_made_again(again: Invocation) -> None:
    again.end(0)
    again.run()
    again.rundir(0).root.rename(again.folder.root / "elsewhere")
    assert reports(again.run())[0] == ("waiting", QUEUED, 0)
    assert len(again.slurm.submitted) == 3


def test_another_configuration_is_another_run_and_the_job_of_the_one_before_is_ended(
    again: Invocation,
) -> None:
    before = [task.job_name for task in again.slurm.tasks]
    again.end(0)
    again.run(params={"limit_samples": 3})
    assert len(again.slurm.submitted) == 4
    assert again.slurm.cancelled == [(before[1], 1)]
    says(again.said.lines, "b/sample_medical_qa: ", "configuration has changed", "ended first")


def test_a_job_that_is_refused_leaves_no_keys(command: Invocation) -> None:
    command.slurm.refuses = True
    with pytest.raises(PrerequisiteError, match=naming("sbatch does not take")):
        command.run()
    assert not command.store.has_open_waves()
    command.slurm.refuses = False
    command.run()
    assert len(command.slurm.submitted) == 2


def test_who_waits_for_cancelled_jobs_stops_waiting_and_submits_no_others(
    command: Invocation,
) -> None:
    def meanwhile() -> None:
        command.slurm.tasks = []
        command.store.cancelled.touch()

    with pytest.raises(InterruptedRunError, match="suite cancel"):
        command.run(wait=True, meanwhile=meanwhile)
    assert len(command.slurm.submitted) == 2


def test_tasks_of_an_endpoint_share_its_limits(command: Invocation) -> None:
    two = ["sample_medical_qa", {"type": "sample_medical_qa", "name": "other"}]
    command.run(evaluations=two, slurm={"tasks_at_once": 2}, params={"parallelism": 9})
    assert all("#SBATCH --array=0-1%2\n" in text for text in command.slurm.submitted)
    configs = [
        yaml.safe_load(path.read_text()) for path in command.store.root.glob("runs/*/*/*.yml")
    ]
    assert [config["config"]["params"]["parallelism"] for config in configs] == [4] * 4


def test_the_keys_of_every_wave_have_a_job_that_deletes_them(again: Invocation) -> None:
    assert [after for after, _ in again.slurm.clean_ups] == ["7", "7"]
    again.run()
    assert len(again.slurm.clean_ups) == 2
    # its submitter was killed between the two
    again.store.clean_up_mark(2).unlink()
    again.run()
    assert [text.count("-w2-clean-up") for _, text in again.slurm.clean_ups] == [0, 1, 1]


def test_fresh_forgets_what_was_done_and_submits_it_all(again: Invocation) -> None:
    for number in (0, 1):
        again.end(number)
    assert reports(again.run()) == [("complete", None, 0)] * 2
    assert reports(again.run(fresh=True)) == [("waiting", QUEUED, 0)] * 2
    assert len(again.slurm.submitted) == 4


@pytest.mark.parametrize("silent", [False, True])
def test_fresh_is_refused_while_a_cell_is_in_slurm_and_while_nobody_knows(
    again: Invocation, silent: bool
) -> None:
    again.end(0)
    again.slurm.silent = int(silent)
    with pytest.raises(PrerequisiteError if silent else BusyError) as caught:
        again.run(fresh=True)
    if not silent:
        assert "in Slurm already: ef-" in str(caught.value)
        assert "(b/sample_medical_qa, PENDING)" in str(caught.value)
        assert f"eval-factory suite cancel {again.folder.root}" in str(caught.value)
    assert again.rundir(0).evaluation_config.exists()


def test_fresh_leaves_a_folder_alone_that_is_not_ours(again: Invocation) -> None:
    for number in (0, 1):
        again.end(number)
    again.rundir(0).marker.unlink()
    again.run(fresh=True)
    assert (
        again.rundir(0).evaluation_config.exists(),
        again.rundir(1).evaluation_config.exists(),
    ) == (True, False)


def test_a_name_is_of_the_cell_and_of_all_that_its_result_depends_on(tmp_path: Path) -> None:
    def keys(**changes: object) -> list[str]:
        return [run_name(one) for one in cells_of(tmp_path, **changes)[1]]

    usual = keys()
    assert [key.rpartition("/")[0] for key in usual] == [
        "a/sample_medical_qa",
        "b/sample_medical_qa",
    ]
    assert (
        keys(params={"parallelism": 9}, slurm={"cpus": 4}, output_dir=str(tmp_path / "other"))
        == usual
    )
    for changed in ({"limit_samples": 5}, {"extra": {"min_coverage": 0.5}}):
        assert not set(keys(params=changed)) & set(usual)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"max_cost": 5.0, "max_requests": 3},
            ["suite.max_cost", "suite.params.extra.max_requests limits each"],
        ),
        ({"max_wall_s": 5}, ["suite.max_wall_s"]),
        ({"slurm": {"prologue": ["export X=${OPENAI_API_KEY}"]}}, ["suite.slurm: holds"]),
    ],
    ids=["budget", "time", "secret"],
)
def test_what_jobs_cannot_keep(tmp_path: Path, changes: dict[str, Any], said: list[str]) -> None:
    env = {"OPENAI_API_KEY": "canary-0123456789"}
    with pytest.raises(ConfigError) as caught:
        refuse_unsupported_by_slurm(
            any_suite(output_dir=str(tmp_path), executor="slurm", env=env, **changes), env
        )
    assert len(caught.value.problems) == len(said)
    assert all(any(text in problem for problem in caught.value.problems) for text in said)
    assert "canary" not in str(caught.value)


def asked(suite: Suite, cells: Sequence[PlannedCell]) -> list[SlurmSettings]:
    return [
        SlurmSettings.of(run)
        for run in executor_runs_of(cells, suite, SlurmStore(suite.folder), SuiteOptions())
    ]


def test_no_more_tasks_than_requests_an_endpoint_may_be_asked_at_once(tmp_path: Path) -> None:
    suite, cells = cells_of(tmp_path, slurm={"tasks_at_once": 10}, params={"parallelism": 3})
    assert [one.at_once for one in asked(suite, cells)] == [3, 3]


def test_tasks_share_the_limits_of_their_endpoint(tmp_path: Path) -> None:
    endpoint = {
        "url": "https://h.example/v1",
        "model_id": "m",
        "type": "chat",
        "requests_per_minute": 100,
    }
    _, cells = cells_of(
        tmp_path, targets=[{"name": "a", "api_endpoint": endpoint}], params={"parallelism": 8}
    )
    document = slurm_suite.document_of(cells[0], 3)
    assert document["config"]["params"]["parallelism"] == 2
    assert document["target"]["api_endpoint"]["requests_per_minute"] == 33
    assert "tokens_per_minute" not in document["target"]["api_endpoint"]
    assert document["config"]["output_dir"] == str(tmp_path / "a" / "sample_medical_qa")
    assert slurm_suite.document_of(cells[0], 9)["config"]["params"]["parallelism"] == 1
    assert "parallelism" not in json.dumps(cells[0].cell.document["config"]["params"]).replace(
        '"parallelism": 8', ""
    )


def test_what_is_asked_of_slurm_is_the_targets(tmp_path: Path) -> None:
    suite, cells = cells_of(tmp_path, slurm={"mem": "2G", "tasks_at_once": 4}, max_attempts=3)
    store = SlurmStore(suite.folder)
    _, found = executor_runs_of(cells, suite, store, SuiteOptions(no_preflight=True))
    assert (found.name, found.probed, found.debug) == (run_name(cells[1]), (), False)
    settings = SlurmSettings.of(found)
    assert settings == SlurmSettings(
        cells[1].group, suite.slurm["b"], 4, max_attempts=3, max_outage_s=3600.0
    )
    assert executor_runs_of(cells, suite, store, SuiteOptions())[1].probed is None
    assert ("-m", slurm_worker.__name__) == WORKER


def test_the_cells_of_a_served_model_are_one_task_with_all_of_its_limits(tmp_path: Path) -> None:
    serve = {"command": "vllm serve m --port {port}", "max_restarts": 5}
    targets = [
        {"name": "a", "api_endpoint": {"model_id": "m"}, "serve": serve},
        {"name": "b", "api_endpoint": {"url": "https://b.example/v1", "model_id": "m"}},
    ]
    suite, cells = cells_of(
        tmp_path,
        targets=targets,
        slurm={"tasks_at_once": 3, "cpus": 2},
        max_processes=7,
        params={"parallelism": 8},
    )
    first, second = asked(suite, cells)
    assert [(one.group, one.at_once) for one in (first, second)] == [
        ("server of a", 1),
        ("b.example/v1", 3),
    ]
    assert second.serve is None
    assert (first.serve, first.max_processes, first.max_outage_s) == (suite.serve["a"], 2, 3600.0)
    assert suite.serve["a"]["max_restarts"] == 5


def test_several_servers_of_a_model_are_steps_of_one_job(tmp_path: Path) -> None:
    serve = {"command": "vllm serve m --port {port}", "replicas": 3}
    targets = [{"name": "a", "api_endpoint": {"model_id": "m"}, "serve": serve}]
    suite, cells = cells_of(tmp_path, targets=targets, slurm={"cpus": 2, "gpus": "1"})
    (run,) = executor_runs_of(cells, suite, SlurmStore(suite.folder), SuiteOptions())
    text = wave_script([run], 1, SlurmStore(suite.folder), job_name="n", worker=WORKER)
    assert (
        "#SBATCH --array=0-0%1\n#SBATCH --ntasks=3\n#SBATCH --cpus-per-task=2\n#SBATCH --gpus-per-task=1\n"
        in text
    )
    served = dict(SlurmSettings.of(run).serve or {})
    launch = served.pop("launch")
    assert served == suite.serve["a"]
    assert (launch[0], launch[-2:]) == ("srun", ["--cpus-per-task=2", "--gpus-per-task=1"])
    refuse_unsupported_by_slurm(suite, {})
    refuse_unsupported_by_slurm(cells_of(tmp_path, params={"extra": {"max_requests": 9}})[0], ENV)
    inside, _ = cells_of(tmp_path, targets=targets, slurm={"container": "apptainer exec image.sif"})
    with pytest.raises(ConfigError, match=naming("a job", "srun", "suite.slurm.container")):
        refuse_unsupported_by_slurm(inside, {})
    undivided, _ = cells_of(tmp_path, targets=targets, slurm={"mem": "1.5G"})
    with pytest.raises(ConfigError, match=naming("a: suite.slurm.mem", "'1.5G'", "8G")):
        refuse_unsupported_by_slurm(undivided, {})


def test_what_may_be_secret_in_a_cell_and_what_servers_get_goes_along(tmp_path: Path) -> None:
    suite, cells = cells_of(tmp_path)
    assert ENV.keys() | {"HF_TOKEN", "HELM_CREDENTIALS"} <= slurm_suite.variables_for_tasks(
        cells, suite
    )
    serve = {"command": "vllm serve m --port {port}", "env": ["HF_TOKEN", "MINE"]}
    targets = [
        {"name": "a", "api_endpoint": {"model_id": "m"}, "serve": serve},
        {"name": "b", "api_endpoint": {"model_id": "m"}, "serve": {**serve, "env": ["OTHER"]}},
    ]
    served, _ = cells_of(tmp_path, targets=targets)
    assert slurm_suite.variables_for_tasks((), served) == {
        "HF_TOKEN",
        "HELM_CREDENTIALS",
        "MINE",
        "OTHER",
    }
