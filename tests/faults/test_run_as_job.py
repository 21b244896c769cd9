"""One run as a job of a real Slurm: its keys, how far it is, its end, and the same result as on this machine."""

from __future__ import annotations

import subprocess
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import yaml

from facts import says
from program_runs import CANARY, program_environment, varied_answer
from programs import EVAL_FACTORY, holding
from scripted_endpoint import ScriptedEndpoint
from slurm_trial import PATIENCE_S, until
from virtual_slurm import VirtualSlurm, virtual_slurm

INSTANCES = 4


@dataclass
class Seen:
    """What was seen of one run, whose first task was cancelled while it waited for its second answer."""

    folder: Path
    submitted: str
    status: str = ""
    jobs: str = ""
    """What Slurm has recorded of them."""
    keys_while_it_ran: list[str] = field(default_factory=list)
    logs: str = ""
    last: str = ""
    asked: int = 0
    here: Path = Path()


def run_config(folder: Path, url: str) -> Path:
    params = {"limit_samples": INSTANCES, "parallelism": 1}
    document = {
        "config": {
            "type": "sample_medical_qa",
            "output_dir": str(folder / "out"),
            "params": params,
        },
        "target": {"api_endpoint": {"url": url, "model_id": "m", "type": "chat"}},
        "slurm": {"mem": "500M"},
    }
    path = folder / "run.yml"
    path.write_text(yaml.safe_dump(document), "utf-8")
    return path


@dataclass
class Program:
    """eval-factory, with the cluster's commands."""

    cluster: VirtualSlurm

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        env = program_environment(OPENAI_API_KEY=CANARY, SLURM_CONF=str(self.cluster.conf))
        return subprocess.Popen(
            [*EVAL_FACTORY, *arguments],
            env=env,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def say(self, *arguments: str) -> str:
        process = self.start(*arguments)
        try:
            stdout, stderr = process.communicate(timeout=PATIENCE_S)
        finally:
            process.kill()
        assert process.returncode == 0, stdout + stderr
        return stdout


@pytest.fixture(scope="module")
def seen(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Seen]:
    folder = tmp_path_factory.mktemp("run")
    go_on = threading.Event()

    def answer(prompt: str) -> str:
        if len(endpoint.requests) > 2:
            go_on.wait(PATIENCE_S)
        return varied_answer(prompt)

    with virtual_slurm(folder / "slurm") as cluster, ScriptedEndpoint(answer) as endpoint:
        program = Program(cluster)
        out = folder / "out"
        file = run_config(folder, endpoint.url)
        try:
            run = ("run_eval", "--run_config", str(file), "--no_preflight")
            found = Seen(out, program.say(*run, "--executor", "slurm"))
            follower = program.start("suite", "logs", "-f", str(out))
            until(lambda: len(endpoint.requests) > 2)
            found.status = program.say("suite", "status", str(out))
            found.jobs = cluster.ask("scontrol", "show", "job", "--details")
            keys = out / ".slurm" / ".suite" / "slurm" / "waves" / "w1.env"
            found.keys_while_it_ran = [oct(keys.stat().st_mode & 0o777)]
            (name,) = {name for name, state, _ in cluster.tasks() if state == "RUNNING"}
            cluster.ask("scancel", f"--name={name.rpartition('_')[0]}")
            until(lambda: not keys.exists())  # no command of ours is given
            go_on.set()
            found.logs, _ = follower.communicate(timeout=PATIENCE_S)
            found.last = program.say(*run, "--executor", "slurm", "--wait")
            found.asked = len(endpoint.requests)
            found.here = folder / "here"
            program.say(*run, "--output_dir", str(found.here))
            yield found
        finally:
            go_on.set()


def test_the_command_returns_and_says_what_is_next(seen: Seen) -> None:
    says(seen.submitted.splitlines()[0], "submitted to Slurm", str(seen.folder))
    assert f"eval-factory suite logs -f {seen.folder}\n" in seen.submitted


def test_how_far_it_is(seen: Seen) -> None:
    assert f"{seen.folder}: running" in seen.status
    assert f"/{INSTANCES}" in seen.status
    assert "task 0, RUNNING" in seen.status


def test_its_log_is_followed_from_before_it_begins(seen: Seen) -> None:
    assert "asking the model" in seen.logs
    assert "CANCELLED" in seen.logs, "what Slurm itself says"


def test_the_key_is_in_one_file_which_goes_with_a_cancelled_task(seen: Seen) -> None:
    assert seen.keys_while_it_ran == ["0o600"]
    assert "JobName=ef-" in seen.jobs
    assert CANARY not in seen.jobs
    assert holding(seen.folder.parent, CANARY) == []


def test_the_same_command_goes_on_and_pays_for_nothing_twice_but_what_was_in_flight(
    seen: Seen,
) -> None:
    assert seen.last.startswith("sample_medical_qa: exact_match = ")
    assert f"results: {seen.folder}/evaluation_config.yaml" in " ".join(seen.last.split())
    assert INSTANCES <= seen.asked <= INSTANCES + 1


def test_the_result_is_an_ordinary_output_folder_with_the_same_scores(seen: Seen) -> None:
    there, here = (
        yaml.safe_load((one / "evaluation_config.yaml").read_text())
        for one in (seen.folder, seen.here)
    )
    assert there["results"] == here["results"]
    assert there["provenance"]["run_identity"] == here["provenance"]["run_identity"]
    assert there["config"] == {**here["config"], "output_dir": str(seen.folder)}
    names = {path.name for path in seen.here.iterdir()} | {".slurm"}
    assert {path.name for path in seen.folder.iterdir()} == names
    logs, logs_here = (
        {path.name for path in (one / "logs").iterdir()} for one in (seen.folder, seen.here)
    )
    assert logs == logs_here
