"""`verify` and `reproduce` on the command line."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner

from eval_factory import api
from eval_factory.cli.folder_commands import MOST_SHOWN, verified_lines
from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError, NotReportableError
from eval_factory.workflows.reproduce import Reproduction, Reran
from eval_factory.workflows.verify import Finding, Verified

INTACT = Verified(Path("a"), notes=("a note\x1b",))
ALTERED = Verified(Path("b"), (Finding("f.yml", "x.y", "is 1"),))
NO_RESULT = Verified(Path("c"), unreadable="is no output folder")


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, arguments)


@pytest.fixture
def folders(monkeypatch: pytest.MonkeyPatch) -> None:
    found = {str(one.folder): one for one in (INTACT, ALTERED, NO_RESULT)}
    monkeypatch.setattr(api, "verify", lambda folder: found[str(folder)])


@pytest.mark.usefixtures("folders")
@pytest.mark.parametrize(("names", "code"), [("a", 0), ("b", 1), ("c", 3), ("ab", 1), ("bca", 3)])
def test_the_exit_code_is_the_worst(names: str, code: int) -> None:
    assert run("verify", *names).exit_code == code
    assert run("verify", *names, "--json").exit_code == code


@pytest.mark.usefixtures("folders")
def test_each_folder_has_a_line_and_each_finding() -> None:
    assert run("verify", "a", "b", "c").stdout == (
        "a: intact\n  note: a note\\x1b\nb: altered: 1 finding\n  f.yml: x.y: is 1\n"
        "c: cannot be verified: is no output folder\n"
    )  # fmt: skip
    first, second = json.loads(run("verify", "a", "b", "--json").stdout)
    assert (first["folder"], first["intact"], first["exit_code"], first["notes"]) == ("a", True, 0, ["a note\x1b"])
    assert second["findings"] == [{"file": "f.yml", "field": "x.y", "message": "is 1"}]
    assert run("verify").exit_code == 2


def test_of_many_findings_of_one_file_some_are_shown() -> None:
    findings = [Finding("f", f"line {n}", "") for n in range(MOST_SHOWN + 2)]
    lines = verified_lines(Verified(Path("b"), (*findings, Finding("g", "", "is missing")))).splitlines()
    assert lines[0] == f"b: altered: {MOST_SHOWN + 3} findings"
    assert lines[MOST_SHOWN] == f"  f: line {MOST_SHOWN - 1}"
    assert lines[-2:] == ["  g: is missing", "  f: 2 more findings (--json shows them)"]


PREPARED = Reproduction("config: 1\n", ("python \x1b",), ("a key",), None)


def test_the_run_config_goes_to_standard_output_and_what_differs_to_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "reproduce", lambda *_: PREPARED)
    found = run("reproduce", "a")
    assert (found.exit_code, found.stdout) == (0, "config: 1\n")
    assert found.stderr == "differs: python \\x1b\nneeds: a key\n"


def test_a_folder_for_it_gets_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def reproduce(*given: Any) -> Reproduction:
        asked.extend(given)
        return Reproduction("x", (), (), Path("d/reproduce.yml"))

    monkeypatch.setattr(api, "reproduce", reproduce)
    assert run("reproduce", "a", "--output_dir", "d").stdout == "d/reproduce.yml\n"
    assert asked == [Path("a"), Path("d")]


def test_a_run_needs_a_new_folder() -> None:
    found = run("reproduce", "a", "--run")
    assert isinstance(found.exception, ConfigError)
    assert "--output_dir" in str(found.exception)


@pytest.mark.parametrize("differences", [(), ("the prompts are not the same",)])
def test_a_run_is_compared(differences: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated: Any = SimpleNamespace(summary="all of it")
    monkeypatch.setattr(api, "run_again", lambda *_, **__: Reran(evaluated, differences, ("exact_match: 1",)))
    found = run("reproduce", "a", "--run", "--output-dir", "d")
    assert found.stdout.splitlines() == ["all of it", "  exact_match: 1", *(f"  {line}" for line in differences)]
    assert isinstance(found.exception, NotReportableError) is bool(differences)
