"""The files of a suite's table: the same bytes for the same results, whatever happened on the way."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import ValidationError

from eval_factory.analysis.suite_files import write_suite_results
from eval_factory.analysis.suite_results import FinishedCell, suite_results
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.results import Spent, SpentByRole, Usage
from eval_factory.core.suite_dir import SuiteDir
from stored_suite import cell

WELL, ILL = "1" * 30 + "0" * 10, "0" * 30 + "1" * 10


def suite(root: Path, *, disturbed: bool) -> SuiteDir:
    """A disturbed run was killed, went on, and tried again: it has other times and more requests, and paid the same."""
    spent = Spent(70 if disturbed else 40, 30 if disturbed else 0, 30 if disturbed else 0, 400, 80, 0.3, 0.9)
    part = replace(spent, prompt_tokens=100) if disturbed else spent
    usage = Usage(SpentByRole(part, {}), SpentByRole(spent, {}), 3 if disturbed else 1, 9.9 if disturbed else 3.3)
    found = [
        cell(root, target, "x", answers, usage=usage) for target, answers in (("a", WELL), ("b", ILL))
    ]  # fmt: skip
    found.append(FinishedCell("c", "x", "failed", root / "c" / "x", "HTTP 500"))
    folder = SuiteDir(root)
    write_suite_results(suite_results([replace(one, attempts=2 if disturbed else 1) for one in found]), folder)
    return folder


def test_a_disturbed_suite_leaves_the_table_of_an_undisturbed_one(tmp_path: Path) -> None:
    first, second = suite(tmp_path / "one", disturbed=False), suite(tmp_path / "two", disturbed=True)
    for name in ("results_yaml", "results_csv", "results_md"):
        assert getattr(first, name).read_bytes() == getattr(second, name).read_bytes(), name
    assert first.usage_yaml.read_bytes() != second.usage_yaml.read_bytes()
    whole = parse_own(first.results_yaml.read_text("utf-8"))
    assert [one["value"] for one in whole["cells"]] == [0.75, 0.25, None]
    assert [one["attempts"] for one in parse_own(second.usage_yaml.read_text("utf-8"))["cells"]] == [2, 2]
    assert first.results_csv.read_text("utf-8").count("\n") == 4
    assert first.results_md.read_text("utf-8").startswith("# Results of the suite\n")
    assert first.results_html.read_text("utf-8").startswith("<!doctype html>")


def test_a_folder_that_was_moved_has_the_same_table(tmp_path: Path) -> None:
    first = suite(tmp_path / "one", disturbed=False)
    before = {file.name: file.read_bytes() for file in first.root.iterdir() if file.is_file()}
    shutil.copytree(first.root, tmp_path / "two")
    moved = [
        FinishedCell(name, "x", "complete", tmp_path / "two" / name / "x", attempts=1) for name in ("a", "b")
    ]  # fmt: skip
    moved.append(FinishedCell("c", "x", "failed", tmp_path / "two" / "c" / "x", "HTTP 500"))
    write_suite_results(suite_results(moved), SuiteDir(tmp_path / "two"))
    assert {file.name: file.read_bytes() for file in (tmp_path / "two").iterdir() if file.is_file()} == before
    assert sorted(before) == [
        "suite_results.csv", "suite_results.html", "suite_results.md", "suite_results.yaml", "suite_usage.yaml"
    ]  # fmt: skip


def test_what_is_not_of_its_schema_is_not_written(tmp_path: Path) -> None:
    results = suite_results([cell(tmp_path, "a", "x", WELL)])
    broken = replace(results, cells=(replace(results.cells[0], n=-1),))
    with pytest.raises(ValidationError):
        write_suite_results(broken, SuiteDir(tmp_path))
    assert not SuiteDir(tmp_path).results_csv.exists()
