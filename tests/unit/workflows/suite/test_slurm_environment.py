from __future__ import annotations

import stat
from pathlib import Path

import pytest

from eval_factory.workflows.suite.slurm_suite import named_by_servers, secrets_of, take_environment, write_environment
from slurm_cells import ENV, cells_of


def test_keys_and_settings_go_along_and_nothing_else(tmp_path: Path) -> None:
    path = tmp_path / "env"
    env = {"OPENAI_API_KEY": "k", "HF_HOME": "/hf", "PATH": "/p", "OTHER_SECRET": "x", "HTTPS_PROXY": "p"}
    write_environment(path, env, {"OPENAI_API_KEY", "NOT_SET"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    there: dict[str, str] = {"PATH": "/node"}
    take_environment(path, there)
    assert there == {"PATH": "/node", "OPENAI_API_KEY": "k", "HF_HOME": "/hf", "HTTPS_PROXY": "p"}


def test_of_settings_the_node_comes_first_and_of_keys_the_submitter(tmp_path: Path) -> None:
    write_environment(tmp_path / "env", {"OPENAI_API_KEY": "k", "HF_HOME": "/hf"}, ["OPENAI_API_KEY"])
    there = {"OPENAI_API_KEY": "old", "HF_HOME": "/scratch"}
    take_environment(tmp_path / "env", there)
    assert there == {"OPENAI_API_KEY": "k", "HF_HOME": "/scratch"}


def test_keys_that_are_gone(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        take_environment(tmp_path / "env", {})


def test_what_may_be_secret_in_a_cell(tmp_path: Path) -> None:
    assert ENV.keys() | {"HF_TOKEN", "HELM_CREDENTIALS"} <= secrets_of(cells_of(tmp_path)[1])


def test_what_servers_get_goes_along(tmp_path: Path) -> None:
    serve = {"command": "vllm serve m --port {port}", "env": ["HF_TOKEN", "MINE"]}
    targets = [
        {"name": "a", "api_endpoint": {"model_id": "m"}, "serve": serve},
        {"name": "b", "api_endpoint": {"model_id": "m"}, "serve": {**serve, "env": ["OTHER"]}},
    ]
    assert named_by_servers(cells_of(tmp_path, targets=targets)[0]) == {"HF_TOKEN", "MINE", "OTHER"}
    assert named_by_servers(cells_of(tmp_path)[0]) == set()
