"""Results of two versions of the reader are read again by one."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from unittest.mock import patch

import yaml

from eval_factory import api
from eval_factory.core.rundir import RunDir
from eval_factory.monitor.measurement import measure, run_folders_of
from eval_factory.monitor.panel import Limit
from eval_factory.reading import READER_VERSION
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.workflows.read_again import Load, read_by_one_version


def of_an_older_reader(folder: RunDir, copy: Path) -> Path:
    shutil.copytree(folder.root, copy, symlinks=True)
    for path in RunDir(copy).result_files:
        path.write_text(path.read_text().replace(f"  reader_version: {READER_VERSION}\n", ""))
    assert load_result(copy).result.provenance.reader_version == 1
    return copy


def test_the_older_one_is_read_again_from_its_own_answers(folder: RunDir, tmp_path: Path) -> None:
    old = of_an_older_reader(folder, tmp_path / "old")
    with read_by_one_version([old, folder.root]) as load:
        again = load(old)
        assert again.folder == old
        assert again.result.provenance.reader_version == READER_VERSION
        assert list(again.result.instances) == list(load_result(old).result.instances)
        assert load(folder.root).result.provenance.reader_version == READER_VERSION


def test_without_its_answers_it_is_loaded_as_it_is_stored(folder: RunDir, tmp_path: Path) -> None:
    old = of_an_older_reader(folder, tmp_path / "old")
    shutil.rmtree(old / "helm")
    with read_by_one_version([old, folder.root]) as load:
        assert load(old).result.provenance.reader_version == 1


def test_results_of_one_rule_are_loaded_as_they_are_stored(folder: RunDir, tmp_path: Path) -> None:
    old = of_an_older_reader(folder, tmp_path / "old")
    with read_by_one_version([old, tmp_path / "nothing"]) as load:
        assert load is load_result


def test_what_a_new_result_is_held_against_is_read_again(folder: RunDir, tmp_path: Path) -> None:
    old = of_an_older_reader(folder, tmp_path / "old")
    with read_by_one_version([old], other_version=READER_VERSION) as load:
        assert load(old).result.provenance.reader_version == READER_VERSION


def test_a_gate_reads_the_older_one_again(folder: RunDir, tmp_path: Path) -> None:
    old = of_an_older_reader(folder, tmp_path / "old")
    policy = tmp_path / "policy.yml"
    policy.write_text(
        yaml.safe_dump({"version": 1, "benchmarks": {"pubmed_qa": {"max_drop": 0.3}}})
    )
    loaded = []

    @contextmanager
    def spied(folders: Sequence[Path], *, other_version: int | None = None) -> Iterator[Load]:
        with read_by_one_version(folders, other_version=other_version) as load:

            def spy(place: Path | str) -> StoredResult:
                stored = load(place)
                loaded.append(stored.result.provenance.reader_version)
                return stored

            yield spy

    with patch("eval_factory.workflows.read_again.read_by_one_version", spied):
        found = api.gate(policy, [folder.root], [old])
    assert found.exit_code == 0
    assert loaded == [READER_VERSION, READER_VERSION]


def test_a_gate_compares_what_was_read_again(folder: RunDir, tmp_path: Path) -> None:
    old = of_an_older_reader(folder, tmp_path / "old")
    policy = tmp_path / "policy.yml"
    policy.write_text(
        yaml.safe_dump({"version": 1, "benchmarks": {"pubmed_qa": {"max_drop": 0.3}}})
    )
    # as if the reader made the main metric
    with patch("eval_factory.analysis.comparison_reasons._depends_on_reader", lambda _metric: True):
        assert api.gate(policy, [folder.root], [old]).exit_code == 0
        shutil.rmtree(old / "helm")
        assert api.gate(policy, [folder.root], [old]).exit_code == 1


def test_a_look_is_held_against_a_baseline_that_is_read_again(
    folder: RunDir, tmp_path: Path
) -> None:
    """The monitor's baseline was read by an older rule: its course is of this rule's values."""
    panel = tmp_path / "panel"
    old = of_an_older_reader(folder, panel / "baseline/1/1/model/pubmed_qa")
    run = {"folder": "baseline/1/1/model/pubmed_qa"}
    baseline = {"repeats": [{"folder": "baseline/1/1", "runs": [run]}]}
    folders = run_folders_of(panel, [baseline])
    assert folders == [old]
    with read_by_one_version(folders, other_version=READER_VERSION) as load:
        measured = measure(
            panel / "baseline/1/1/model", [Limit("pubmed_qa", "pubmed_qa", None, 0.1)], load
        )
        assert load(old).result.provenance.reader_version == READER_VERSION
    assert len(measured.limits["pubmed_qa"]) == 4
