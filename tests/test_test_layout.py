"""Where tests are: `tests/unit` mirrors the source and needs neither HELM nor a process; basenames are unique."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

TESTS = Path(__file__).resolve().parent
UNIT = TESTS / "unit"
PACKAGE = TESTS.parent / "src" / "eval_factory"
MIRROR_NOTHING = {
    "builders.py": "evaluations and plans for all of them",
    "conftest.py": "refuses HELM and processes while a unit test runs",
    "workflows/conftest.py": "a finished output folder, for the tests of what reads one again",
    "test_coverage_simulation.py": "benchmarks/coverage_simulation.py and interval_coverage.py, which try intervals",
    "test_linear.py": "times the readers of texts in many modules",
}
"""Files under tests/unit, and why they stand for no source file."""
TESTED_ELSEWHERE = {
    "__main__.py": "tests/integration/test_drop_in.py",  # a process
    "cli/data.py": "tests/integration/data/test_data_commands.py",
    "data/fetch.py": "tests/unit/data/test_pull.py",
    "data/hub.py": "tests/unit/data/test_importing.py",
    "data/script_process.py": "tests/unit/data/test_pull.py",
    "demo/benchmark.py": "tests/integration/test_package_install.py",  # imports HELM
    "helm/disguised_text.py": "tests/unit/helm/test_judge_output_injections.py",
    "helm/programs.py": "tests/unit/helm/test_command.py",
    "helm_plugin/choice_scenario.py": "tests/integration/test_published_choices.py",  # imports HELM
    "helm_plugin/judge_prompts.py": "tests/helm/helm_plugin/test_jury_annotator.py",
    "helm_plugin/log_filter.py": "tests/integration/test_real_data.py",  # its import begins a helm-run
    "helm_plugin/patches/confined_worker.py": "tests/helm/helm_plugin/patches/test_confined_process.py",
    "helm_plugin/patches/execution_record.py": "tests/helm/helm_plugin/patches/test_executed_answers.py",
    "helm_plugin/patches/hub_revisions.py": "tests/helm/helm_plugin/patches/test_pinned_downloads.py",
    "helm_plugin/patches/sql_worker.py": "tests/helm/helm_plugin/patches/test_sql_execution.py",
    "helm_plugin/plugin.py": "tests/integration/test_patches.py",  # its import patches HELM
    "helm_plugin/session.py": "tests/helm/helm_plugin/test_client.py",
    "scoring/parts.py": "tests/unit/scoring/test_collect.py",
    "tasks/custom/prompt_check.py": "tests/unit/tasks/custom/test_definition.py",
    "tasks/custom/table_check.py": "tests/unit/tasks/custom/test_definition.py",
    "tasks/user_data/files.py": "tests/unit/tasks/user_data/test_layout.py",
    "workflows/suite/cell_process.py": "tests/integration/workflows/suite/test_cell_host.py",
}
"""Modules without a test file of their name -> the tests that reach them, through the module that uses them."""
NOTHING_TO_TEST = {
    "core/roles.py": "one name",
    "core/clinician_results.py": "records",
    "core/comparability_results.py": "records",
    "core/choice_order_results.py": "records",
    "core/rubric_results.py": "records",
    "core/results.py": "records",
    "workflows/options.py": "records",
    "workflows/suite/suite_options.py": "records",
    "executors/base.py": "a protocol and records",
    "workflows/suite/suite_observer.py": "a protocol, and who does nothing",
}
NOT_IN_UNIT_TESTS = {"helm": "tests/helm", "subprocess": "tests/integration", "summ_eval": "tests/helm"}
UNIT_FILES = sorted(UNIT.rglob("*.py"))


def mirrored(test: Path, kind: Path = UNIT) -> Path | None:
    """The source file: of `core/test_rundir.py` and of `core/test_rundir_locks.py` it is `core/rundir.py`.

    Args:
        kind: the folder of tests that mirrors the source.
    """
    folder, words = PACKAGE / test.relative_to(kind).parent, test.stem.removeprefix("test_").split("_")
    names = ["_".join(words[:count]) for count in range(len(words), 0, -1)]
    return next((folder / f"{name}.py" for name in names if (folder / f"{name}.py").is_file()), None)


def imported_packages(file: Path) -> set[str]:
    """The first part of each name that is imported, inside functions too."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(file.read_text("utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
    return {name.partition(".")[0] for name in names}


@pytest.mark.parametrize("file", UNIT_FILES, ids=lambda file: file.relative_to(UNIT).as_posix())
def test_a_unit_test_stands_for_a_source_file_and_needs_no_helm(file: Path) -> None:
    name = file.relative_to(UNIT).as_posix()
    if name not in MIRROR_NOTHING:
        assert file.name.startswith("test_"), f"{name}: what several tests share belongs into tests/"
        assert mirrored(file), f"{name}: there is no source file that it tests"
    for package in imported_packages(file) & NOT_IN_UNIT_TESTS.keys():
        pytest.fail(f"{name} imports {package}: it belongs under {NOT_IN_UNIT_TESTS[package]}")


def test_the_exceptions_are_there_and_few() -> None:
    assert set(MIRROR_NOTHING) <= {file.relative_to(UNIT).as_posix() for file in UNIT_FILES}
    assert len(MIRROR_NOTHING) < 6


def test_every_module_has_a_test_of_its_name() -> None:
    """In tests/unit, or in tests/helm or tests/integration where it needs HELM or a process."""
    kinds = (UNIT, TESTS / "helm", TESTS / "integration")
    tested = {mirrored(test, kind) for kind in kinds for test in kind.rglob("test_*.py")}
    modules = {file for file in PACKAGE.rglob("*.py") if file.name != "__init__.py"}
    without = {file.relative_to(PACKAGE).as_posix() for file in modules - tested}
    excepted = TESTED_ELSEWHERE.keys() | NOTHING_TO_TEST.keys()
    assert without - excepted == set(), "write a test that mirrors it"
    assert excepted - without == set(), "an exception is no longer needed"
    assert not TESTED_ELSEWHERE.keys() & NOTHING_TO_TEST.keys()
    assert [test for test in TESTED_ELSEWHERE.values() if not (TESTS.parent / test).is_file()] == []


def test_names_of_test_files_are_unique() -> None:
    """Where a folder is no package, pytest imports its files by their names alone."""
    names = Counter(file.name for file in TESTS.rglob("test_*.py"))
    assert [name for name, count in names.items() if count > 1] == []
    assert list(TESTS.rglob("__init__.py")) == []  # tests/helm would hide HELM


def run_pytest(*arguments: str, cwd: Path) -> str:
    argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:xdist", "--tb=no", "-rA"]
    finished = subprocess.run(
        [*argv, *arguments], cwd=cwd, capture_output=True, text=True, timeout=300, check=False
    )  # fmt: skip
    return finished.stdout + finished.stderr


def test_to_import_the_unit_tests_is_not_to_import_helm() -> None:
    """One of them is run, so that the fixture looks: all are collected before it."""
    told = run_pytest(str(UNIT), "-k", "test_a_message_without_text_is_a_line", cwd=TESTS.parent)
    assert "\n1 passed, " in told, told


FORBIDDEN = """
import multiprocessing, os, subprocess, sys
import pytest

def test_popen():
    subprocess.run([sys.executable, "-c", ""])

def test_fork():
    os.fork() or os._exit(0)

def test_spawn():
    multiprocessing.get_context("spawn").Process(target=print).start()

def test_swallowed():
    with pytest.raises(AssertionError):
        os.system("true")

@pytest.fixture(scope="module")
def made():
    subprocess.run([sys.executable, "-c", ""])

def test_of_a_fixture(made):
    pass

def test_nothing_before():
    pass

def test_helm():
    import helm

def test_nothing_after():
    pass
"""


def test_what_a_unit_test_may_not_do_fails(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text((UNIT / "conftest.py").read_text("utf-8"), "utf-8")
    (tmp_path / "test_forbidden.py").write_text(FORBIDDEN, "utf-8")
    told = run_pytest(cwd=tmp_path)
    lines = told.splitlines()
    outcomes = {
        outcome: {line.split("::")[1].split(" ")[0] for line in lines if line.startswith(f"{outcome} ")}
        for outcome in ("PASSED", "FAILED", "ERROR")
    }
    assert outcomes == {
        "PASSED": {"test_nothing_before", "test_nothing_after", "test_swallowed", "test_helm"},
        "FAILED": {"test_popen", "test_fork", "test_spawn"},
        # afterwards, whatever the test itself made of it
        "ERROR": {"test_popen", "test_fork", "test_spawn", "test_swallowed", "test_of_a_fixture", "test_helm"},
    }, told


def test_where_other_tests_run_too_helm_may_be_there(tmp_path: Path) -> None:
    (tmp_path / "unit").mkdir()
    (tmp_path / "unit" / "conftest.py").write_text((UNIT / "conftest.py").read_text("utf-8"), "utf-8")
    (tmp_path / "unit" / "test_nothing.py").write_text("def test_nothing():\n    pass\n")
    (tmp_path / "test_helm.py").write_text("import helm\n\ndef test_helm():\n    pass\n")
    assert "\n2 passed in " in run_pytest(cwd=tmp_path)
