"""What a result says of how it was made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.helm.names import PATCHES_FILE
from eval_factory.scoring.provenance import provenance_of
from unit.builders import plan


@pytest.mark.parametrize(
    ("task", "expected"), [("medec", ("always", "of_medec")), ("pubmed_qa", ("always",)), (None, None)]
)
def test_the_patches_that_its_run_spec_met(tmp_path: Path, task: str | None, expected: tuple[str, ...] | None) -> None:
    made = plan({"config.type": task or "medec", "config.output_dir": str(tmp_path)})
    made.rundir.helm.mkdir(parents=True)
    if task is not None:
        applied = [{"name": "always", "run_specs": None}, {"name": "of_medec", "run_specs": ["medec"]}]
        (made.rundir.helm / PATCHES_FILE).write_text(json.dumps({"applied": applied, "left_out": {}}))
    assert provenance_of(made, "scenario", "0" * 64, None, None).patches == expected
