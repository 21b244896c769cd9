from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from unittest.mock import Mock

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.executors.process import CapturedProgram
from eval_factory.executors.slurm import QueuedTask, QueueUnknownError, Slurm
from facts import naming

ENV = {
    "PATH": "/bin",
    "SLURM_CONF": "/c",
    "OPENAI_API_KEY": "canary",
    "SBATCH_EXPORT": "ALL",
    "SQUEUE_FORMAT": "%i",
}


class Commands:
    """Says what it was given, and keeps what was asked."""

    def __init__(self, stdout: str = "", stderr: str = "", code: int = 0) -> None:
        self.said = CapturedProgram([], code, stdout, stderr)
        self.asked = list[list[str]]()
        self.env = dict[str, str]()
        self.seconds = 0.0

    def __call__(
        self, argv: Sequence[str], env: Mapping[str, str], seconds: float
    ) -> CapturedProgram:
        self.asked.append(list(argv))
        self.env = dict(env)
        self.seconds = seconds
        return self.said


def test_a_job_is_submitted_without_keys_or_settings_of_the_terminal() -> None:
    commands = Commands("4711\n")
    assert Slurm(ENV, commands).submit(Path("/r/w1.sh")) == "4711"
    assert commands.asked == [["sbatch", "--parsable", "/r/w1.sh"]]
    assert (commands.env, commands.seconds) == ({"PATH": "/bin", "SLURM_CONF": "/c"}, 60.0)
    assert Slurm(ENV, Commands("sbatch: lua: hello\n4711;cluster\n")).submit(Path("x")) == "4711"


@pytest.mark.parametrize(
    ("commands", "reason"),
    [
        (
            Commands("", "sbatch: error: one\nsbatch: error: Invalid account", 1),
            "error: Invalid account",
        ),
        (Commands("4711", "x", 1), "x"),
        (Commands("what"), ""),
        (Commands("", "", 3), "ended with exit code 3"),
    ],
    ids=["refused", "failed", "unclear", "silent"],
)
def test_a_job_that_is_not_taken(commands: Commands, reason: str) -> None:
    said = rf"sbatch does not accept /r/w1\.sh: .*{reason}\n  correct suite\.slurm"
    with pytest.raises(PrerequisiteError, match=said):
        Slurm(ENV, commands).submit(Path("/r/w1.sh"))


def test_the_queue() -> None:
    """A name may have the separator in it."""
    commands = Commands(
        "ef-1-w1|12|0|RUNNING|None\na|b|12|1|PENDING|(Resources)\nother|9|N/A|RUNNING|None\n"
    )
    assert Slurm(ENV, commands).queue() == (
        QueuedTask("ef-1-w1", "12", 0, "RUNNING", "None"),
        QueuedTask("a|b", "12", 1, "PENDING", "(Resources)"),
    )
    assert commands.asked == [
        ["squeue", "--noheader", "--array", f"--user={os.getuid()}", "--format=%j|%F|%K|%T|%r"]
    ]
    assert Slurm(ENV, Commands("")).queue() == ()


@pytest.mark.parametrize(
    "commands", [Commands("", "slurm_load_jobs error: timed out", 1), Commands("garbage")]
)
def test_a_queue_that_is_not_known_is_not_an_empty_one(commands: Commands) -> None:
    with pytest.raises(QueueUnknownError):
        Slurm(ENV, commands).queue()


def test_cancelling_by_name_alone_or_some_tasks_of_it() -> None:
    commands = Commands()
    Slurm(ENV, commands).cancel("ef-1-w1")
    Slurm(ENV, commands).cancel(
        "ef-1-w1", [QueuedTask("ef-1-w1", "12", 3, "PENDING", "JobHeldUser")]
    )
    first = ["scancel", f"--user={os.getuid()}", "--name=ef-1-w1"]
    assert commands.asked == [first, [*first, "12_3"]]
    Slurm(ENV, Commands("", "scancel: error: Invalid job id 12", 1)).cancel("x")
    with pytest.raises(PrerequisiteError, match=naming("cancel x", "no controller")):
        Slurm(ENV, Commands("", "scancel: error: no controller", 1)).cancel("x")


def test_the_maximum_size_of_an_array() -> None:
    assert (
        Slurm(ENV, Commands("MaxArraySize            = 1001\nMaxJobs = 3\n")).max_array_size()
        == 1001
    )
    assert Slurm(ENV, Commands("MaxArraySize = 1\n")).max_array_size() == 1
    assert Slurm(ENV, Commands("MaxArraySize = 0\n")).max_array_size() == 1
    for commands in (Commands("MaxArraySize = 1001", "", 1), Commands("nothing")):
        with pytest.raises(PrerequisiteError, match=naming("from this machine")):
            Slurm(ENV, commands).max_array_size()


def test_a_machine_without_slurm() -> None:
    with pytest.raises(
        PrerequisiteError, match=naming("squeue is not installed", "login node", "--executor local")
    ):
        Slurm(ENV, Mock(side_effect=FileNotFoundError)).queue()
