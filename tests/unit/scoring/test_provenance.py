"""What a result says of how it was made."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.demo.packaged_data import packaged_data
from eval_factory.helm.names import PATCHES_FILE
from eval_factory.scoring import run_environment
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


def test_with_what_it_was_made_and_when(tmp_path: Path) -> None:
    made = plan({"config.type": "pubmed_qa", "config.output_dir": str(tmp_path)})
    data = made.rundir.helm / "scenarios" / "pubmed_qa" / "data"
    data.mkdir(parents=True)
    (data / "test_set.json").write_text("edited")
    made.rundir.events.parent.mkdir()
    made.rundir.events.write_text(json.dumps({"time": 1e9, "run_id": "mine"}))
    record = provenance_of(made, "pubmed_qa", "0" * 64, None, None, run_id="mine")
    assert (record.started_at, record.ended_at) == ("2001-09-09T01:46:40Z", "2001-09-09T01:46:40Z")
    assert record.platform == run_environment.platform_of_this()
    assert record.framework_sha256 == run_environment.framework_sha256()
    assert record.lock_sha256 == run_environment.lock_sha256()
    assert record.seeds == {"helm_sample": 0, "helm_examples": 0}
    assert record.dataset_files.keys() == {"scenarios/pubmed_qa/data/test_set.json"}
    assert record.dataset_revisions == {}  # what was edited is of no commit
    sample = plan({"config.type": "sample_medical_qa", "config.output_dir": str(tmp_path / "sample")})
    of_the_package = provenance_of(sample, "sample_medical_qa", "0" * 64, None, None).dataset_files
    assert of_the_package == packaged_data("sample_medical_qa") != {}
    assert provenance_of(made, "pubmed_qa", "0" * 64, None, None, run_id="other").started_at is None


@pytest.mark.parametrize(
    ("task", "extra", "expected"),
    [
        ("pubmed_qa", {}, ("2019-09", True)),
        ("healthbench", {"data_path": "mine.jsonl"}, (None, None)),
        ("mimic_bhc", {"data_path": "my_copy.jsonl"}, ("2024-03", False)),
        ("helm:mmlu:subject=virology", {}, (None, None)),
    ],
)
def test_since_when_the_benchmark_and_its_answers_are_public(
    task: str, extra: dict[str, str], expected: tuple[str | None, bool | None], tmp_path: Path
) -> None:
    """The user's own files in the place of public data are of an unknown date; a copy of gated data is of theirs."""
    given = {f"config.params.extra.{name}": str(tmp_path / value) for name, value in extra.items()}
    made = plan({"config.type": task, "config.output_dir": str(tmp_path / "out"), **given})
    record = provenance_of(made, "scenario", "0" * 64, None, None)
    assert (record.published, record.answers_public) == expected
