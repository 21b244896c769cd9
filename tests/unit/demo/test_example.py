"""Tests of the example of a custom benchmark."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from eval_factory import demo
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.demo.example import packaged_data_hashes, write_example
from eval_factory.tasks.custom_benchmark import Benchmark
from eval_factory.tasks.framework import load_framework


def written(folder: Path, kind: str) -> Benchmark:
    files = write_example(folder, kind)
    assert all(path.read_text("utf-8").strip() for path in files)
    found = build_evaluation(
        RunRequest(run_config=folder / "run_config.yml"), load_framework(), {}
    ).benchmark
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("kind", "notes"), [("choice", ["2 of 8 rows of data.csv (first"]), ("jury", [])]
)
def test_it_is_sound(tmp_path: Path, kind: str, notes: list[str]) -> None:
    found = written(tmp_path / "new" / "deep", kind)
    assert (found.instances, found.has_jury) == (8, kind == "jury")
    assert [note.partition(":")[0] for note in found.notes] == notes
    rubric = written(tmp_path / "rubric", "rubric")
    assert (rubric.instances, rubric.is_rubric, rubric.has_clusters) == (12, True, True)
    assert set(rubric.sha256) == {"benchmark.yaml", "cases.jsonl"}


def test_nothing_is_overwritten(tmp_path: Path) -> None:
    kept = tmp_path / "notes.txt"
    kept.write_text("mine")
    for folder, error, told in (
        (tmp_path, ConfigError, "is not empty, and nothing is overwritten"),
        (kept, ConfigError, "is a file"),
        (kept / "below", PrerequisiteError, "cannot be written to"),
    ):
        with pytest.raises(error, match=told):
            write_example(folder)
    assert list(tmp_path.iterdir()) == [kept]


def test_the_samples_questions_are_named_with_their_hash() -> None:
    table = Path(demo.__path__[0]) / "sample" / "data.csv"
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    assert packaged_data_hashes("sample_medical_qa") == {"package:demo/sample/data.csv": digest}
    assert packaged_data_hashes("pubmed_qa") == {}
