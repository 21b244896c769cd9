"""What makes helm-run quicker leaves every file of its output as it is, byte for byte."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from eval_factory.helm_plugin.patches import fast_scoring, fast_startup
from eval_factory.helm_plugin.patches.fast_startup import WITHOUT_VARIABLE
from integration.support import CANARY, TASK_DATA, TIMEOUT_S, Outcome, Run, program_environment
from scripted_endpoint import ScriptedEndpoint

INSTANCES = 30
PlaceData = Callable[[Path, str], None]
LEVERS = [
    lever.__name__ for lever in (fast_startup.read_yaml_with_the_c_parser, *fast_startup.LEVERS, *fast_scoring.LEVERS)
]


def again(outcome: Outcome, without: str, env: dict[str, str]) -> tuple[dict[str, bytes], str]:
    """Every file that helm-run writes when it is run once more with what is in the cache, and what it says."""
    runs = outcome.output_dir / "helm" / "runs"
    shutil.rmtree(runs)
    argv = shlex.split(outcome.document()["command"])
    finished = subprocess.run(
        argv,
        env=program_environment(TEST_MODEL_KEY=CANARY, **{WITHOUT_VARIABLE: without}, **env),
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=True,
    )
    written = {path.name: path.read_bytes() for path in runs.rglob("*.json")}
    assert len(written) >= 5
    return written, finished.stderr


@pytest.mark.medical_data
@pytest.mark.parametrize("task", TASK_DATA)
def test_all_levers_leave_the_output_as_it_is(
    task: str, endpoint: ScriptedEndpoint, run_program: Run, place_data: PlaceData, tmp_path: Path,
    data_environment: dict[str, str],
) -> None:  # fmt: skip
    place_data(tmp_path / "out" / "helm", task)
    outcome = run_program(task, endpoint.url, params={"limit_samples": INSTANCES}, env=data_environment)
    assert outcome.returncode == 0, outcome.stderr
    with_all, said = again(outcome, "", data_environment)
    assert "going on without" not in said
    assert with_all == again(outcome, "all", data_environment)[0]


def test_each_lever_alone(endpoint: ScriptedEndpoint, run_program: Run) -> None:
    outcome = run_program("sample_medical_qa", endpoint.url, params={"limit_samples": 10})
    assert outcome.returncode == 0, outcome.stderr
    without_any, _ = again(outcome, "all", {})
    for lever in LEVERS:
        others = ",".join(name for name in LEVERS if name != lever)
        assert again(outcome, others, {})[0] == without_any, lever
