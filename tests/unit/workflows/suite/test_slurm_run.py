from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.resolved import Evaluation
from eval_factory.core import errors
from eval_factory.core.errors import BusyError, ConfigError, InterruptedRunError
from eval_factory.core.rundir import RunDir, RunSuiteDir
from eval_factory.executors import slurm
from eval_factory.executors.slurm_waves import RunEnd, SlurmStore
from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.evaluated import Evaluated
from eval_factory.workflows.options import Options, Submitted
from eval_factory.workflows.suite import slurm_run, slurm_suite
from eval_factory.workflows.suite.planned_cells import plan_cells
from eval_factory.workflows.suite.slurm_run import job_script, run_as_job, suite_of
from facts import each_says, naming, says
from slurm_cells import ENV, ScriptedSlurm
from stored_results import right_or_wrong


class Run:
    """One run, whose command is given again and again."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.rundir = RunDir(folder / "out")
        self.slurm = ScriptedSlurm()
        self.store = SlurmStore(RunSuiteDir(self.rundir.root / ".slurm"))
        self.screen = io.StringIO()
        self.collected: list[Any] = []
        self.has = ""
        monkeypatch.setattr(slurm, "Slurm", lambda _: self.slurm)
        monkeypatch.setattr(slurm_suite, "is_complete_run", lambda _: self.has == "complete")
        monkeypatch.setattr(
            slurm_suite, "has_usable_partial_result", lambda _: self.has == "partial"
        )
        monkeypatch.setattr(slurm_suite, "_POLL_S", 0.0)
        monkeypatch.setattr(slurm_run, "evaluate", self._collect)

    def _collect(self, request: RunRequest, options: Options, **others: Any) -> Any:
        self.collected.append((options, others["evaluation"].executor.name))
        return "collected"

    def evaluation(self, **flags: Any) -> Evaluation:
        document = {
            "config": {
                "type": "sample_medical_qa",
                "output_dir": str(self.rundir.root),
                "params": {"parallelism": 3},
            },
            "target": {
                "api_endpoint": {"url": "https://h.example/v1", "model_id": "m", "type": "chat"}
            },
            "executor": "slurm",
            "slurm": {"mem": "2G", "account": "lab"},
        }
        return build_evaluation(RunRequest(document=document, flags=flags), load_framework(), ENV)

    def again(
        self, *, wait: bool = False, fresh: bool = False, flags: Mapping[str, Any] | None = None
    ) -> Any:
        options = Options(fresh=fresh, no_preflight=True)
        return run_as_job(
            self.evaluation(**(flags or {})), options, wait=wait, env=ENV, screen=self.screen
        )

    def ends(self, status: str = "complete", code: int = 0, reason: str | None = None) -> None:
        """The task comes to its end, with a result where it has one."""
        wave = self.store.waves()[-1]
        if status in ("complete", "partial"):
            right_or_wrong(self.rundir.root, "1110")
            self.has = status
        self.store.record_end(wave, wave.runs[0], RunEnd(code, status, reason, 1))
        self.slurm.tasks = []


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    return Run(tmp_path, monkeypatch)


def test_it_is_a_suite_of_one_cell_with_the_same_identity(run: Run) -> None:
    evaluation = run.evaluation(**{"config.params.limit_samples": 7})
    suite = suite_of(evaluation, make_plan(evaluation), ENV)
    (planned,) = plan_cells(suite, ENV)
    assert planned.plan.identity == make_plan(evaluation).identity
    assert planned.plan.rundir == run.rundir
    assert planned.plan.evaluation.as_dict() == evaluation.as_dict()
    assert (planned.cell.name, suite.executor) == ("model/sample_medical_qa", "slurm")
    assert suite.slurm["model"] == evaluation.executor.slurm
    assert suite.folder == RunSuiteDir(run.rundir.root / ".slurm")


def test_it_is_submitted_and_the_next_step_is_said(run: Run) -> None:
    found = run.again()
    assert isinstance(found, Submitted)
    assert found.folder == run.rundir.root
    first, *steps = found.summary.split("\n")
    says(first, "submitted to Slurm", str(run.rundir.root))
    commands = [
        f"eval-factory suite {what} {run.rundir.root}" for what in ("status", "logs -f", "cancel")
    ]
    assert [step.partition(": ")[2] for step in steps[1:]] == commands
    (script,) = run.slurm.submitted
    assert "#SBATCH --account=lab\n" in script
    assert len(run.slurm.clean_ups) == 1
    assert [one.probed for one in run.store.waves()[0].runs] == [()], (
        "it is not asked before it begins"
    )
    says(run.screen.getvalue(), "submitted 1 cell")
    assert run.rundir.marker.is_file()
    assert isinstance(run.again(), Submitted)
    assert len(run.slurm.submitted) == 1, "what is queued is not submitted again"
    with pytest.raises(BusyError, match="in Slurm already"):
        run.again(fresh=True)


def test_its_answers_are_watched_in_its_log(run: Run) -> None:
    with pytest.raises(ConfigError, match=naming("eval-factory suite logs -f")):
        run_as_job(run.evaluation(), Options(watch="texts"), wait=True, env=ENV, screen=run.screen)
    assert not run.slurm.submitted


def test_the_file_beside_it_is_the_same_run(run: Run) -> None:
    run.again(flags={"config.params.limit_samples": 7})
    document = yaml.safe_load((run.rundir.root / ".slurm" / "run_config.yml").read_text())
    assert document["executor"] == "slurm"
    assert document["slurm"] == {"account": "lab", "mem": "2G", "cpus": 1, "tasks_at_once": 1}
    again = build_evaluation(RunRequest(document=document), load_framework(), ENV)
    assert again.as_dict() == run.evaluation(**{"config.params.limit_samples": 7}).as_dict()


def test_what_has_ended_is_collected(run: Run) -> None:
    run.again(fresh=True)
    run.ends()
    assert run.again() == "collected"
    ((options, executor),) = run.collected
    assert (options.only_collect, options.fresh, options.no_preflight, executor) == (
        True,
        False,
        True,
        "slurm",
    )
    assert run.rundir.evaluation_config.is_file()
    assert (run.rundir.root / ".slurm").is_dir()


class EndsAtOnce(ScriptedSlurm):
    """Whose tasks have ended as soon as they are submitted."""

    def __init__(self, run: Run, *end: Any) -> None:
        super().__init__()
        self.run = run
        self.end = end

    def submit(self, script: Path, after: str | None = None) -> str:
        job = super().submit(script, after)
        if after is None:
            self.run.ends(*self.end)
            self.tasks = []
        return job


def test_a_result_with_gaps_is_shown_as_it_stands(run: Run) -> None:
    run.slurm = EndsAtOnce(run, "partial", 1, "1 of 4 has no answer")
    found = run.again(wait=True)
    assert isinstance(found, Evaluated)
    assert found.result.scores[found.result.main_metric].value == 0.5
    assert str(run.rundir.evaluation_config) in found.summary
    assert run.collected == []


@pytest.mark.parametrize(
    ("code", "kind"),
    [
        (1, errors.NotReportableError),
        (2, ConfigError),
        (3, errors.PrerequisiteError),
        (4, errors.HelmError),
        (70, errors.HelmError),
    ],
)
def test_a_job_that_failed_ends_as_the_run_would_have(
    run: Run, code: int, kind: type[Exception]
) -> None:
    run.slurm = EndsAtOnce(run, "failed", code, "why it failed")
    with pytest.raises(kind) as caught:
        run.again(wait=True)
    each_says(
        str(caught.value).splitlines(),
        ["why it failed"],
        ["eval-factory suite logs"],
        ["same command", "reuses the answers"],
    )


def test_who_no_longer_waits_is_told_of_the_runs_own_folder(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(_: float) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(slurm_suite.run_on_slurm, "__defaults__", (interrupt,))
    with pytest.raises(InterruptedRunError, match=f"suite cancel {run.rundir.root}$"):
        run.again(wait=True)
    assert len(run.slurm.tasks) == 1


def test_another_folders_files_are_left_alone(run: Run) -> None:
    run.rundir.root.mkdir()
    run.rundir.results_yml.write_text("somebody's")
    with pytest.raises(ConfigError, match=naming("not an output folder")):
        run.again()
    assert run.slurm.submitted == []


def test_a_preview_shows_the_batch_script_and_writes_nothing(run: Run) -> None:
    text = "\n".join(job_script(run.evaluation(), ENV))
    assert "#SBATCH --mem=2G\n" in text
    assert f"{run.rundir.root}/.slurm/.suite/slurm/waves/w1.json" in text
    assert not run.rundir.root.exists()
