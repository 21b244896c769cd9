"""Cells of a suite for Slurm, runs as tasks of it, and a Slurm that does what a test says."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.config.suite import Suite, build_suite
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import SuiteDir
from eval_factory.executors.runs import ExecutorRun
from eval_factory.executors.slurm import QueuedTask, QueueUnknownError
from eval_factory.executors.slurm_waves import SlurmSettings, SlurmStore, Wave
from eval_factory.workflows.suite.planned_cells import PlannedCell, plan_cells

ENV = {"OPENAI_API_KEY": "sk-012345678901234567890"}


def cells_of(folder: Path, **changes: Any) -> tuple[Suite, tuple[PlannedCell, ...]]:
    """Two targets at two endpoints, an evaluation of each."""
    targets = [
        {
            "name": name,
            "api_endpoint": {"url": f"https://{name}.example/v1", "model_id": "m", "type": "chat"},
        }
        for name in ("a", "b")
    ]
    section = {
        "output_dir": str(folder),
        "evaluations": ["sample_medical_qa"],
        "targets": targets,
        "executor": "slurm",
        **changes,
    }
    suite = build_suite(None, document={"suite": section}, env=ENV)
    return suite, plan_cells(suite, ENV)


RESOURCES: dict[str, Any] = {
    "account": None,
    "partition": None,
    "qos": None,
    "time": None,
    "mem": None,
    "cpus": 1,
    "gpus": None,
    "extra": [],
    "prologue": [],
    "container": None,
    "python": None,
    "tasks_at_once": 1,
}


def run_of(name: str, folder: Path = Path("/none"), **asks: Any) -> ExecutorRun:
    usual = {"group": "g", "resources": RESOURCES, "at_once": 2}
    asked = SlurmSettings(**{**usual, **asks})
    return ExecutorRun(name, f"{folder}/run.yml", f"{folder}/run.log", "", settings=asdict(asked))


def submitted(folder: SuiteDir, *names: str, **asks: Any) -> Wave:
    """A wave of these runs, with keys."""
    store = SlurmStore(folder)
    wave = store.new_wave(
        store.create_folders(), [run_of(name, folder.root, **asks) for name in names]
    )
    store.environment_file(wave.number).touch()
    return wave


@dataclass
class ScriptedSlurm:
    """A stand-in for `Slurm`: what is queued stands in `tasks`."""

    tasks: list[QueuedTask] = field(default_factory=list)
    submitted: list[str] = field(default_factory=list)
    cancelled: list[tuple[str, int]] = field(default_factory=list)
    silent: int = 0
    """The number of times that squeue fails before it says something."""
    refuses: bool = False
    clean_ups: list[tuple[str | None, str]] = field(default_factory=list)
    """The job after which each clean-up runs, and its script."""
    queues: bool = True
    """True if what is submitted stands in the queue."""

    def submit(self, script: Path, after: str | None = None) -> str:
        if self.refuses:
            raise PrerequisiteError("sbatch does not take it")
        text = script.read_text("utf-8")
        if "--array" not in text:
            self.clean_ups.append((after, text))
            return "8"
        self.submitted.append(text)
        lines = [line.removeprefix("#SBATCH --") for line in text.splitlines()]
        name = next(
            line.removeprefix("job-name=") for line in lines if line.startswith("job-name=")
        )
        last = (
            next(line for line in lines if line.startswith("array=0-"))
            .removeprefix("array=0-")
            .partition("%")[0]
        )
        if self.queues:
            self.tasks += [
                QueuedTask(name, "7", index, "PENDING", "None") for index in range(int(last) + 1)
            ]
        return "7"

    def queue(self) -> tuple[QueuedTask, ...]:
        if self.silent:
            self.silent -= 1
            raise QueueUnknownError(
                "squeue does not say what is queued: no controller\n  run it again"
            )
        return tuple(self.tasks)

    def cancel(self, name: str, tasks: Any = ()) -> None:
        self.cancelled.append((name, len(tasks)))
        self.tasks = [
            task for task in self.tasks if task.job_name != name or (tasks and task not in tasks)
        ]

    def max_array_size(self) -> int:
        return 1000


def task(name: str, index: int, state: str = "PENDING", reason: str = "Resources") -> QueuedTask:
    """Return a task of the job array with this name."""
    return QueuedTask(name, "7", index, state, reason)
