"""`eval-factory gate`: options, what is printed, and the exit codes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.cli.result_commands import spread
from eval_factory.core.errors import ConfigError, NotReportableError, PrerequisiteError
from stored_results import right_or_wrong


@pytest.fixture(scope="module")
def stored(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two baselines, candidates that are equal to them, and one that is much worse."""
    folder = tmp_path_factory.mktemp("gate")
    for name, values in (("old", "1" * 100), ("new", "1" * 100), ("bad", "0" * 100)):
        right_or_wrong(folder / name / "pubmed_qa", values)
        right_or_wrong(folder / name / "medec", values, task="medec")
    return folder


@pytest.fixture
def here(stored: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with these results, which are only read, and a policy."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GITHUB_STEP_SUMMARY", raising=False)
    for name in ("old", "new", "bad"):
        (tmp_path / name).symlink_to(stored / name)
    text = "version: 1\ndefaults: {max_drop: 0.1}\nbenchmarks: {pubmed_qa: {}, medec: {}}\n"
    (tmp_path / "policy.yml").write_text(text)
    return tmp_path


def run(*arguments: str) -> tuple[Any, str]:
    done = CliRunner().invoke(cli, ["gate", *arguments])
    return done.exception, done.output


@pytest.mark.parametrize(
    "arguments",
    [
        ["policy.yml", "--candidate", "new", "--baseline", "old"],
        ["policy.yml", "--candidate", "new/medec", "new/pubmed_qa", "--baseline", "old/medec", "old/pubmed_qa"],
        ["--candidate", "new/medec", "new/pubmed_qa", "policy.yml", "--baseline", "old"],
        ["--candidate", "new/medec", "--candidate", "new/pubmed_qa", "--baseline", "old", "policy.yml"],
    ],
)
def test_a_policy_that_is_kept(here: Path, arguments: list[str]) -> None:
    error, output = run(*arguments)
    assert error is None, output
    assert output.startswith("gate: PASS (policy.yml, sha256 ")


def test_a_policy_that_is_not_kept_has_exit_code_1_and_its_reports(here: Path) -> None:
    error, output = run("policy.yml", "--candidate", "bad", "--baseline", "old", "--junit", "junit.xml")
    assert isinstance(error, NotReportableError)
    assert str(error) == "gate: fail: pubmed_qa, medec"
    assert output.startswith("gate: FAIL")
    assert 'failures="2"' in (here / "junit.xml").read_text()
    _, output = run("policy.yml", "--candidate", "bad", "--baseline", "old", "--json")
    assert json.loads(output)["outcome"] == "fail"


@pytest.mark.parametrize(("junit", "summary"), [("policy.yml/junit.xml", None), ("folder", None), ("j.xml", "no/s.md")])
def test_a_report_that_cannot_be_written_is_said_after_what_was_found(
    here: Path, monkeypatch: pytest.MonkeyPatch, junit: str, summary: str | None
) -> None:
    if summary is not None:
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", summary)
    (here / "folder").mkdir()
    error, output = run("policy.yml", "--candidate", "new", "--baseline", "old", "--junit", junit)
    assert isinstance(error, PrerequisiteError)
    assert str(error).startswith(f"{summary or junit}: cannot be written: ")
    assert output.startswith("gate: PASS")


def test_a_locked_policy_is_held(here: Path) -> None:
    error, output = run("policy.yml", "--lock")
    assert (error, (here / "policy.yml.lock").exists()) == (None, True)
    assert "policy.yml.lock: commit it with the policy" in output
    assert run("policy.yml", "--candidate", "new", "--baseline", "old")[0] is None
    (here / "policy.yml").write_text("version: 1\ndefaults: {max_drop: 1}\nbenchmarks: {pubmed_qa: {}}\n")
    error, _ = run("policy.yml", "--candidate", "bad", "--baseline", "old")
    assert isinstance(error, ConfigError)
    assert "was changed after it was locked" in str(error)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["policy.yml"], "give --candidate DIR (or --lock, before the run)"),
        (["policy.yml", "--lock", "--candidate", "new"], "--lock is given before the run"),
        (["none.yml", "--candidate", "new"], "there is no such file"),
        (["policy.yml", "--candidate", "new", "--attest", "signed"], "--attest DIR and --evaluator URI belong together"),
        (["policy.yml", "--candidate", "new", "--evaluator", "urn:me"], "a statement says who ran it"),
    ],
)  # fmt: skip
def test_mistakes(here: Path, arguments: list[str], words: str) -> None:
    error, _ = run(*arguments)
    assert isinstance(error, ConfigError)
    assert words in str(error)


def test_folders_are_spread_up_to_the_next_option() -> None:
    given = ["p.yml", "--candidate", "a", "b", "--json", "x", "--baseline", "c", "d", "e.yaml", "--junit", "f"]
    assert list(spread(given)) == [
        "p.yml", "--candidate", "a", "--candidate", "b", "--json", "x", "--baseline", "c", "--baseline", "d", "e.yaml",
        "--junit", "f",
    ]  # fmt: skip
