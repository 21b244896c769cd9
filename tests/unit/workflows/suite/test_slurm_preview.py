from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.workflows.suite.suite_preview import preview_suite
from slurm_cells import ENV, cells_of


def test_a_dry_run_shows_the_batch_scripts_and_writes_nothing(tmp_path: Path) -> None:
    suite, _ = cells_of(tmp_path / "out", slurm={"time": "30", "account": "lab"})
    text = preview_suite(suite, env=ENV).text
    assert "#   as jobs of Slurm, 2 attempts of each\n" in text
    assert f"\n# {tmp_path}/out/.suite/slurm/waves/w1.sh: a/sample_medical_qa\n#!/bin/bash\n" in text
    assert f"\n# {tmp_path}/out/.suite/slurm/waves/w2.sh: b/sample_medical_qa\n#!/bin/bash\n" in text
    assert text.count("#SBATCH --account=lab\n#SBATCH --time=30\n") == 2
    assert "#SBATCH --job-name=ef-ID-w2\n" in text
    assert list(tmp_path.iterdir()) == []


def test_the_local_executor_has_none(tmp_path: Path) -> None:
    text = preview_suite(cells_of(tmp_path, executor="local")[0], env=ENV).text
    assert "sbatch" not in text.lower()
    assert " at once, 2 attempts of each" in text


def test_what_jobs_cannot_keep_is_said_here_too(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"suite\.max_requests: cannot be held"):
        preview_suite(cells_of(tmp_path, max_requests=5)[0], env=ENV)
