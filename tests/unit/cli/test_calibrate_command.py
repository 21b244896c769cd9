"""`eval-factory calibrate`: what is printed and written, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError, PrerequisiteError
from facts import says
from invented_labels import COLUMN, SECRET, drawn, written_labels


def calibrate(*arguments: str | Path) -> Result:
    return CliRunner().invoke(cli, ["calibrate", *map(str, arguments)])


@pytest.fixture
def labels(tmp_path: Path) -> Path:
    return written_labels(
        tmp_path / "labels.jsonl", drawn(80, categories=("one", "two", "three", "four"))
    )


def test_a_table_and_a_verdict(labels: Path) -> None:
    done = calibrate(labels, "--judge-labels", COLUMN, "--judge", "invented")
    assert (done.exit_code, done.stderr) == (0, "")
    assert done.output.startswith("judge invented: 80 items")
    assert "\nmacro F1 " in done.output
    assert SECRET not in done.output


def test_json_has_every_digit(labels: Path) -> None:
    done = calibrate(labels, "--judge_labels", COLUMN, "--json")
    found = json.loads(done.stdout)
    assert list(found) == ["items", "labels", "judge", "physicians", "categories"]
    names = ["f1_macro", "kappa", "ac1", "sensitivity", "specificity", "bias"]
    for part in (found, *found["categories"].values()):
        for who in ("judge", "physicians"):
            assert list(part[who]) == names
            assert all(
                list(figure) == ["value", "ci_low", "ci_high"] for figure in part[who].values()
            )
    assert (len(found["categories"]), found["categories"]["one"]["items"]) == (4, 20)


def test_the_passport_is_written_and_named(labels: Path, tmp_path: Path) -> None:
    to = tmp_path / "passport"
    done = calibrate(labels, "--judge-labels", COLUMN, "--to", to)
    files = [to / "judge_passport.yaml", to / "judge_passport.html"]
    assert done.output.splitlines()[-2:] == [str(file) for file in files]
    again = calibrate(labels, "--judge-labels", COLUMN, "--to", to, "--json")
    assert again.stderr.splitlines() == [str(file) for file in files]
    assert json.loads(again.stdout)["items"] == 80, "standard output is JSON alone"


def test_mistakes_end_it_with_code_2(labels: Path, tmp_path: Path) -> None:
    for file, column in ((labels, "judge_labl"), (tmp_path / "none", COLUMN)):
        done = calibrate(file, "--judge-labels", column)
        assert isinstance(done.exception, ConfigError)
        assert done.exception.exit_code == 2
    assert "did you mean 'judge_label'?" in str(
        calibrate(labels, "--judge-labels", "judge_labl").exception
    )
    for wrong in ([], ["--judge-labels", COLUMN, "--judges-from", "c.yml"]):
        says(str(calibrate(labels, *wrong).exception), "--judges-from RUN_CONFIG", "--judge-labels")
    assert "--to DIR is missing" in str(calibrate(labels, "--judges-from", "c.yml").exception)
    two = calibrate(labels, "--judge-labels", COLUMN, "--judge-labels", "other", "--judge", "x")
    assert "leave out --judge" in str(two.exception)


def test_a_folder_that_cannot_be_written(labels: Path) -> None:
    done = calibrate(labels, "--judge-labels", COLUMN, "--to", "/proc/passport")
    assert isinstance(done.exception, PrerequisiteError)
    assert "/proc/passport: cannot be written" in str(done.exception)
