"""`eval-factory compare`: what is printed, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError, NotReportableError, PrerequisiteError
from stored_results import right_or_wrong


@pytest.fixture
def folders(tmp_path: Path) -> list[str]:
    return [str(right_or_wrong(tmp_path / name, values)) for name, values in (("a", "11010"), ("b", "10111"))]


def printed(*arguments: str) -> str:
    done = CliRunner().invoke(cli, ["compare", *arguments], catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.output


def test_text_json_and_markdown(folders: list[str]) -> None:
    assert "no difference between A and B is shown; B is above A by 20.0 points" in printed(*folders).replace("\n ", "")
    assert "| B - A | 5 | 20.0 |" in printed(*folders, "--markdown")
    found = json.loads(printed(*folders, "--json", "--margin", "0.5"))
    assert (found["comparable"], found["reasons"], len(found["comparisons"])) == (True, [], 1)
    (one,) = found["comparisons"]
    assert (one["a"], one["b"], one["margin"]) == (*folders, 0.5)
    assert one["flips"] == {"a_only": ["q1"], "b_only": ["q2", "q4"]}
    assert "texts" not in found


def test_texts_on_demand(folders: list[str]) -> None:
    assert "\nq1\n  prompt: What is q1?\n" in printed(*folders, "--texts")
    texts = json.loads(printed(*folders, "--texts", "--json"))["texts"]
    assert list(texts) == ["q1", "q2", "q4"]


def failure(*arguments: str) -> tuple[Any, str]:
    done = CliRunner().invoke(cli, ["compare", *arguments])
    return done.exception, done.output


def test_reasons_are_printed_and_the_exit_code_is_1(folders: list[str], tmp_path: Path) -> None:
    other = str(right_or_wrong(tmp_path / "c", "1101", task="medec"))
    error, output = failure(folders[0], other)
    assert isinstance(error, NotReportableError)
    assert str(error) == (
        "the results cannot be compared: instances, task; to compare all the same: --allow instances,task"
    )
    assert "  - task: A and B are of different tasks: pubmed_qa and medec\n" in output
    error, output = failure(folders[0], other, "--json", "--texts")
    assert isinstance(error, NotReportableError)
    assert {reason["name"] for reason in json.loads(output)["reasons"]} == {"task", "instances"}
    error, _ = failure(*folders, "--metric", "none")
    assert str(error) == "the results cannot be compared: metric"
    for allowed in (["--allow", "task, instances"], ["--allow", "task", "--allow", "instances"]):
        assert "accepted (task)" in printed(folders[0], other, *allowed)


def test_what_is_wrong_with_the_command_line(folders: list[str], tmp_path: Path) -> None:
    for arguments, message in (
        ([*folders, "--json", "--markdown"], "give one of --json and --markdown"),
        ([*folders, "--texts", "--markdown"], "--texts is for two folders"),
        ([*folders, folders[0], "--texts"], "--texts is for two folders"),
        (folders[:1], "give two folders or more"),
        ([*folders, "--allow", "nothing"], "there is no such reason"),
    ):
        error, _ = failure(*arguments)
        assert isinstance(error, ConfigError)
        assert message in str(error)
    error, _ = failure(folders[0], str(tmp_path / "nothing"))
    assert isinstance(error, PrerequisiteError)
