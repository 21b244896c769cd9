from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.executors.slurm_runs import SlurmAsks, SlurmStore, script_of
from eval_factory.workflows.suite import slurm_worker
from eval_factory.workflows.suite.slurm_suite import (
    WORKER,
    at_once,
    document_of,
    name_of,
    refuse_what_slurm_cannot,
    secrets_of,
    spec_of,
)
from eval_factory.workflows.suite.suite_report import SuiteOptions
from slurm_cells import ENV, cells_of


def test_a_name_is_of_the_cell_and_of_all_that_its_result_depends_on(tmp_path: Path) -> None:
    def keys(**changes: object) -> list[str]:
        return [name_of(one) for one in cells_of(tmp_path, **changes)[1]]

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
    _, cells = cells_of(tmp_path, targets=[{"name": "a", "api_endpoint": endpoint}], params={"parallelism": 8})
    document = document_of(cells[0], 3)
    assert document["config"]["params"]["parallelism"] == 2
    assert document["target"]["api_endpoint"]["requests_per_minute"] == 33
    assert "tokens_per_minute" not in document["target"]["api_endpoint"]
    assert document["config"]["output_dir"] == str(tmp_path / "a" / "sample_medical_qa")
    assert document_of(cells[0], 9)["config"]["params"]["parallelism"] == 1
    assert "parallelism" not in json.dumps(cells[0].cell.document["config"]["params"]).replace('"parallelism": 8', "")


def test_what_is_asked_of_slurm_is_the_targets(tmp_path: Path) -> None:
    suite, cells = cells_of(tmp_path, slurm={"mem": "2G"}, max_attempts=3)
    store = SlurmStore(suite.folder)
    found = spec_of(cells[1], suite, 4, store, SuiteOptions(no_preflight=True))
    assert (found.name, found.probed, found.debug) == (name_of(cells[1]), (), False)
    asks = SlurmAsks.of(found)
    assert asks == SlurmAsks(cells[1].group, suite.slurm["b"], 4, max_attempts=3)
    assert spec_of(cells[1], suite, 4, store, SuiteOptions()).probed is None
    assert ("-m", slurm_worker.__name__) == WORKER


def test_the_cells_of_a_served_model_are_one_task_with_all_of_its_limits(tmp_path: Path) -> None:
    serve = {"command": "vllm serve m --port {port}", "max_restarts": 5}
    targets = [
        {"name": "a", "api_endpoint": {"model_id": "m"}, "serve": serve},
        {"name": "b", "api_endpoint": {"url": "https://b.example/v1", "model_id": "m"}},
    ]
    suite, cells = cells_of(
        tmp_path, targets=targets, slurm={"tasks_at_once": 3, "cpus": 2}, max_processes=7, params={"parallelism": 8}
    )
    assert at_once(suite, cells) == {"server of a": 1, "b.example/v1": 3}
    first, second = (SlurmAsks.of(spec_of(one, suite, 1, SlurmStore(suite.folder), SuiteOptions())) for one in cells)
    assert (first.together, second.together, second.served) == (True, False, None)
    assert first.served == {"serve": suite.serve["a"], "max_processes": 2, "max_outage_s": 3600.0}
    assert first.served["serve"]["max_restarts"] == 5


def test_several_servers_of_a_model_are_steps_of_one_job(tmp_path: Path) -> None:
    serve = {"command": "vllm serve m --port {port}", "replicas": 3}
    targets = [{"name": "a", "api_endpoint": {"model_id": "m"}, "serve": serve}]
    suite, (cell,) = cells_of(tmp_path, targets=targets, slurm={"cpus": 2, "gpus": "1"})
    spec = spec_of(cell, suite, 1, SlurmStore(suite.folder), SuiteOptions())
    text = script_of([spec], "n", 1, SlurmStore(suite.folder), WORKER)
    assert "#SBATCH --array=0-0%1\n#SBATCH --ntasks=3\n#SBATCH --cpus-per-task=2\n#SBATCH --gpus-per-task=1\n" in text
    served = SlurmAsks.of(spec).served
    assert served is not None
    launch = served["serve"].pop("launch")
    assert served["serve"] == suite.serve["a"]
    assert (launch[0], launch[-2:]) == ("srun", ["--cpus-per-task=2", "--gpus-per-task=1"])
    refuse_what_slurm_cannot(suite, {})
    inside, _ = cells_of(tmp_path, targets=targets, slurm={"container": "apptainer exec image.sif"})
    with pytest.raises(ConfigError, match=r"a: a job has no srun inside of suite\.slurm\.container"):
        refuse_what_slurm_cannot(inside, {})


def test_what_may_be_secret_in_a_cell_and_what_servers_get_goes_along(tmp_path: Path) -> None:
    suite, cells = cells_of(tmp_path)
    assert ENV.keys() | {"HF_TOKEN", "HELM_CREDENTIALS"} <= secrets_of(cells, suite)
    serve = {"command": "vllm serve m --port {port}", "env": ["HF_TOKEN", "MINE"]}
    targets = [
        {"name": "a", "api_endpoint": {"model_id": "m"}, "serve": serve},
        {"name": "b", "api_endpoint": {"model_id": "m"}, "serve": {**serve, "env": ["OTHER"]}},
    ]
    served, _ = cells_of(tmp_path, targets=targets)
    assert secrets_of((), served) == {"HF_TOKEN", "HELM_CREDENTIALS", "MINE", "OTHER"}
