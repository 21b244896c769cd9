from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.core.rundir import SuiteDir
from eval_factory.executors.slurm import Wanted
from eval_factory.executors.slurm_runs import SlurmStore
from eval_factory.workflows.suite import slurm_worker
from eval_factory.workflows.suite.slurm_suite import (
    MODULE,
    at_once,
    key_of,
    plan_line,
    refuse_what_slurm_cannot,
    script_of,
    wanted,
)
from slurm_cells import ENV, cells_of


def test_a_key_is_of_the_cell_and_of_all_that_its_result_depends_on(tmp_path: Path) -> None:
    def keys(**changes: object) -> list[str]:
        return [key_of(one) for one in cells_of(tmp_path, **changes)[1]]

    usual = keys()
    assert [key.rpartition("/")[0] for key in usual] == ["a/sample_medical_qa", "b/sample_medical_qa"]
    assert keys(params={"parallelism": 9}, slurm={"cpus": 4}, output_dir=str(tmp_path / "other")) == usual
    for changed in ({"limit_samples": 5}, {"extra": {"min_coverage": 0.5}}):
        assert not set(keys(params=changed)) & set(usual)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"max_cost": 5.0, "max_requests": 3},
            ["suite.max_cost", "suite.params.extra.max_requests holds for each cell"],
        ),
        ({"max_wall_s": 5}, ["suite.max_wall_s"]),
        ({"slurm": {"prologue": ["export X=${OPENAI_API_KEY}"]}}, ["suite.slurm: holds"]),
    ],
    ids=["budget", "time", "secret"],
)
def test_what_jobs_cannot_keep(tmp_path: Path, changes: dict[str, Any], said: list[str]) -> None:
    from suites import suite

    found = suite(output_dir=str(tmp_path), executor="slurm", env={"OPENAI_API_KEY": "canary-0123456789"}, **changes)
    with pytest.raises(ConfigError) as caught:
        refuse_what_slurm_cannot(found, {"OPENAI_API_KEY": "canary-0123456789"})
    assert len(caught.value.problems) == len(said)
    assert all(any(text in problem for problem in caught.value.problems) for text in said)
    assert "canary" not in str(caught.value)


def test_what_they_can(tmp_path: Path) -> None:
    refuse_what_slurm_cannot(cells_of(tmp_path, params={"extra": {"max_requests": 9}})[0], ENV)


def test_no_more_tasks_than_requests_an_endpoint_may_be_asked_at_once(tmp_path: Path) -> None:
    suite, cells = cells_of(tmp_path, slurm={"tasks_at_once": 10}, params={"parallelism": 3})
    assert at_once(suite, cells) == {cells[0].group: 3, cells[1].group: 3}
    suite, cells = cells_of(tmp_path, slurm={"tasks_at_once": 2}, params={"parallelism": 3})
    assert set(at_once(suite, cells).values()) == {2}


def test_tasks_share_the_limits_of_their_endpoint(tmp_path: Path) -> None:
    endpoint = {"url": "https://h.example/v1", "model_id": "m", "type": "chat", "requests_per_minute": 100}
    suite, cells = cells_of(
        tmp_path, targets=[{"name": "a", "api_endpoint": endpoint}], params={"parallelism": 8}, max_attempts=3
    )
    line = plan_line(cells[0], suite, 3, no_preflight=True, debug=False)
    assert line.document["config"]["params"]["parallelism"] == 2
    assert line.document["target"]["api_endpoint"]["requests_per_minute"] == 33
    assert "tokens_per_minute" not in line.document["target"]["api_endpoint"]
    assert (line.key, line.max_attempts, line.no_preflight, line.debug) == (key_of(cells[0]), 3, True, False)
    assert (
        plan_line(cells[0], suite, 9, no_preflight=True, debug=False).document["config"]["params"]["parallelism"] == 1
    )
    assert "parallelism" not in json.dumps(cells[0].cell.document["config"]["params"]).replace('"parallelism": 8', "")


def test_what_is_wanted_of_slurm_is_the_targets(tmp_path: Path) -> None:
    suite, cells = cells_of(tmp_path, slurm={"mem": "2G"})
    found = wanted(cells[1], suite, 4)
    assert (found.key, found.group, found.at_once) == (key_of(cells[1]), cells[1].group, 4)
    assert json.loads(found.resources) == suite.slurm["b"]


def test_the_script_begins_the_worker_with_this_python(tmp_path: Path) -> None:
    suite, _ = cells_of(tmp_path)
    resources = json.dumps(suite.slurm["a"])
    store = SlurmStore(SuiteDir(tmp_path))
    text = script_of([Wanted("k", "g", resources, 2), Wanted("l", "g", resources, 2)], "ef-x-w3", 3, store)
    assert "#SBATCH --job-name=ef-x-w3\n#SBATCH --array=0-1%2\n" in text
    last = text.splitlines()[-1].split(" ")
    assert last[:4] == ["exec", sys.executable, "-m", slurm_worker.MODULE]
    assert last[4:] == [str(store.plan_file), str(store.wave_file(3))]
    assert f"--output={store.logs(3)}/%a.log" in text
    other = json.dumps({**suite.slurm["a"], "python": "/opt/python"})
    assert "exec /opt/python -m" in script_of([Wanted("k", "g", other, 1)], "n", 1, store)
    assert MODULE == slurm_worker.MODULE


def test_the_cells_of_a_served_model_are_one_task_with_all_of_its_limits(tmp_path: Path) -> None:
    serve = {"command": "vllm serve m --port {port}", "max_restarts": 5}
    targets = [
        {"name": "a", "api_endpoint": {"model_id": "m"}, "serve": serve},
        {"name": "b", "api_endpoint": {"url": "https://b.example/v1", "model_id": "m"}},
    ]
    suite, cells = cells_of(
        tmp_path, targets=targets, slurm={"tasks_at_once": 3, "cpus": 2}, max_processes=7, params={"parallelism": 8}
    )
    served, other = cells
    assert at_once(suite, cells) == {"server of a": 1, "b.example/v1": 3}
    asked = [wanted(one, suite, 1) for one in cells]
    assert [one.together for one in asked] == [True, False]
    line = plan_line(served, suite, 1, no_preflight=False, debug=False)
    assert line.document["config"]["params"]["parallelism"] == 8
    assert line.served == {"serve": suite.serve["a"], "max_processes": 2, "max_outage_s": 3600.0}
    assert line.served["serve"]["max_restarts"] == 5
    assert plan_line(other, suite, 1, no_preflight=False, debug=False).served is None
    store = SlurmStore(SuiteDir(tmp_path))
    text = script_of([asked[0], asked[0]], "n", 1, store)
    assert "#SBATCH --array=0-0%1\n" in text
    assert f"-m {MODULE} " in text
    assert slurm_worker.__name__ == MODULE


def test_several_servers_of_a_model_are_steps_of_one_job(tmp_path: Path) -> None:
    serve = {"command": "vllm serve m --port {port}", "replicas": 3}
    targets = [{"name": "a", "api_endpoint": {"model_id": "m"}, "serve": serve}]
    suite, (cell,) = cells_of(tmp_path, targets=targets, slurm={"cpus": 2, "gpus": "1"})
    text = script_of([wanted(cell, suite, 1)], "n", 1, SlurmStore(SuiteDir(tmp_path)))
    assert "#SBATCH --array=0-0%1\n#SBATCH --ntasks=3\n#SBATCH --cpus-per-task=2\n#SBATCH --gpus-per-task=1\n" in text
    served = plan_line(cell, suite, 1, no_preflight=False, debug=False).served
    assert served is not None
    launch = served["serve"].pop("launch")
    assert served["serve"] == suite.serve["a"]
    assert (launch[0], launch[-2:]) == ("srun", ["--cpus-per-task=2", "--gpus-per-task=1"])
    refuse_what_slurm_cannot(suite, {})
    inside, _ = cells_of(tmp_path, targets=targets, slurm={"container": "apptainer exec image.sif"})
    with pytest.raises(ConfigError, match=r"a: a job has no srun inside of suite\.slurm\.container"):
        refuse_what_slurm_cannot(inside, {})
