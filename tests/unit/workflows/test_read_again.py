"""Results of two versions of the reader are read again by one."""

from __future__ import annotations

import shutil
from pathlib import Path

from eval_factory.core.rundir import RunDir
from eval_factory.reading import VERSION
from eval_factory.report.reader import load_result
from eval_factory.workflows.read_again import read_by_one_rule


def of_an_older_reader(folder: RunDir, copy: Path) -> Path:
    shutil.copytree(folder.root, copy, symlinks=True)
    for path in RunDir(copy).results:
        path.write_text(path.read_text().replace(f"  reader_version: {VERSION}\n", ""))
    assert load_result(copy).result.provenance.reader_version == 1
    return copy


def test_the_older_one_is_read_again_from_its_own_answers(folder: RunDir, tmp_path: Path) -> None:
    old = of_an_older_reader(folder, tmp_path / "old")
    with read_by_one_rule([old, folder.root]) as load:
        again = load(old)
        assert again.folder == old
        assert again.result.provenance.reader_version == VERSION
        assert list(again.result.instances) == list(load_result(old).result.instances)
        assert load(folder.root).result.provenance.reader_version == VERSION


def test_without_its_answers_it_is_loaded_as_it_is_stored(folder: RunDir, tmp_path: Path) -> None:
    old = of_an_older_reader(folder, tmp_path / "old")
    shutil.rmtree(old / "helm")
    with read_by_one_rule([old, folder.root]) as load:
        assert load(old).result.provenance.reader_version == 1


def test_results_of_one_rule_are_loaded_as_they_are_stored(folder: RunDir, tmp_path: Path) -> None:
    old = of_an_older_reader(folder, tmp_path / "old")
    with read_by_one_rule([old, tmp_path / "nothing"]) as load:
        assert load is load_result


def test_what_a_new_result_is_held_against_is_read_again(folder: RunDir, tmp_path: Path) -> None:
    old = of_an_older_reader(folder, tmp_path / "old")
    with read_by_one_rule([old], VERSION) as load:
        assert load(old).result.provenance.reader_version == VERSION
