"""Which folder somebody means."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.workflows.suite.suite_folder import find_suite
from stored_results import right_or_wrong
from suite_by_hand import started, suite_folder


def refused(path: Path) -> str:
    with pytest.raises(PrerequisiteError) as error:
        find_suite(path)
    return str(error.value)


def test_a_suite_that_has_just_begun_has_a_lock_alone(tmp_path: Path) -> None:
    suite_folder(tmp_path).events.unlink()
    assert find_suite(tmp_path).root == tmp_path


def test_nothing_there(tmp_path: Path) -> None:
    assert refused(tmp_path / "nothing").splitlines() == [
        f"{tmp_path}/nothing: there is no such folder",
        "  expected: the output_dir of a suite, which 'eval-factory run_suite' has begun",
    ]


def test_a_name_that_is_nearly_that_of_a_suite(tmp_path: Path) -> None:
    suite_folder(tmp_path / "results")
    (tmp_path / "result_of_none").mkdir()
    assert refused(tmp_path / "resluts").startswith(
        f"{tmp_path}/resluts: there is no such folder; did you mean {tmp_path}/results?\n"
    )


def test_a_folder_of_suites(tmp_path: Path) -> None:
    here = tmp_path / "suites"
    suite_folder(here / "one")
    suite_folder(here / "two")
    (here / "none").mkdir()
    assert f"{here}: is no suite's folder; did you mean {here}/one or {here}/two?" in refused(here)


def test_no_more_than_a_few_are_named(tmp_path: Path) -> None:
    for number in range(5):
        suite_folder(tmp_path / str(number))
    assert refused(tmp_path).count(" or ") == 2


def test_a_file_of_the_suite(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    folder.results_yaml.touch()
    assert f"{folder.results_yaml}: is a file; did you mean {tmp_path}?" in refused(folder.results_yaml)


def test_a_cell_of_the_suite(tmp_path: Path) -> None:
    folder = suite_folder(tmp_path)
    cell = right_or_wrong(folder.cell("small", "qa"), "1")
    (folder.cell("small", "qa") / ".eval-factory").touch()
    assert cell is not None
    told = refused(folder.cell("small", "qa"))
    assert f"is the output folder of one run, not of a suite; did you mean {tmp_path}?" in told


def test_a_path_with_what_a_terminal_obeys(tmp_path: Path) -> None:
    assert "\x1b" not in refused(tmp_path / "a\x1b[31mb")


def test_the_output_folder_of_a_run_that_slurm_does_stands_for_its_suite(tmp_path: Path) -> None:
    inner = suite_folder(tmp_path / ".slurm", started()).root
    for path in (tmp_path, inner):
        assert find_suite(path).root == inner
        assert find_suite(path).cell("a", "b") == tmp_path
