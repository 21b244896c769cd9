"""The environment that the tasks of a wave get."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from eval_factory.executors import slurm_environment


def test_keys_and_settings_go_along_and_nothing_else(tmp_path: Path) -> None:
    """Of settings the node's come first, of keys the submitter's."""
    path = tmp_path / "env"
    env = {
        "OPENAI_API_KEY": "k",
        "HF_HOME": "/hf",
        "PATH": "/p",
        "OTHER_SECRET": "x",
        "HTTPS_PROXY": "p",
    }
    slurm_environment.write_environment(path, env, {"OPENAI_API_KEY", "NOT_SET"})
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    there = {"PATH": "/node", "OPENAI_API_KEY": "old", "HF_HOME": "/scratch"}
    slurm_environment.add_stored_environment(path, there)
    assert there == {
        "PATH": "/node",
        "OPENAI_API_KEY": "k",
        "HF_HOME": "/scratch",
        "HTTPS_PROXY": "p",
    }
    with pytest.raises(FileNotFoundError):
        slurm_environment.add_stored_environment(tmp_path / "gone", {})
