"""`run_suite` and the commands of `suite`: options, what is printed, exit codes."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from click.testing import CliRunner, Result

from eval_factory.cli import suite_screen
from eval_factory.cli.main import cli
from eval_factory.config.suite import Suite
from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import ConfigError
from eval_factory.workflows.estimate import estimate
from eval_factory.workflows.suite import run_suite as workflow
from eval_factory.workflows.suite import suite_estimate, suite_logs
from eval_factory.workflows.suite.suite_journal import SuiteObserver
from eval_factory.workflows.suite.suite_report import CellReport, SuiteOptions, SuiteReport
from facts import each_says, says
from suite_by_hand import cell_ended, cell_result, ended, held, started, suite_folder, tell

SUITE = """
suite:
  output_dir: out
  evaluations: [sample_medical_qa]
  targets: [{name: small, api_endpoint: {url: "demo://baseline", model_id: m, type: chat}}]
"""
CELL = "small/sample_medical_qa"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "suite.yml").write_text(SUITE)
    return tmp_path


def run(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


@pytest.fixture
def ran(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Suite, SuiteOptions]]:
    """Return what the workflow was asked; its one cell is complete."""
    asked: list[tuple[Suite, SuiteOptions]] = []

    def run_it(
        suite: Suite, options: SuiteOptions, *, env: Any, screen: SuiteObserver
    ) -> SuiteReport:
        assert env
        asked.append((suite, options))
        folder = suite_folder(suite.folder.root)
        cell_result(folder, CELL)
        for event in (started([CELL]), cell_ended(CELL), ended()):
            tell(folder.events, event)
            screen.on_event(event)
        screen.say("a warning")
        screen.tick()
        target, evaluation = CELL.split("/")
        cell = CellReport(
            target,
            evaluation,
            RunStatus.COMPLETE,
            folder.cell_folder(target, evaluation),
            exit_code=0,
        )
        return SuiteReport(folder, (cell,), 0, "complete", "1 cells: 1 complete\ntable: there")

    monkeypatch.setattr(workflow, "run_suite", run_it)
    return asked


@pytest.mark.parametrize("spelling", [["run_suite", "--run_config"], ["run-suite", "--run-config"]])
def test_a_suite(here: Path, ran: list[tuple[Suite, SuiteOptions]], spelling: list[str]) -> None:
    done = run(*spelling, "suite.yml", "--wait", "--executor", "local")
    assert done.exit_code == 0, done.output
    each_says(
        done.stdout.splitlines(),
        [f"{CELL} complete", "exact_match 0.5000", "n 4"],
        ["0 requests", "0 tokens"],
        ["1 cells", "1 complete"],
        ["table: there"],
    )
    each_says(
        done.stderr.splitlines(),
        [f"{here}/out: 1 cell"],
        [f"{CELL}: complete", "exact_match 0.5000", "n 4"],
        ["a warning"],
    )
    ((suite, options),) = ran
    assert suite.folder.root == here / "out"
    assert suite.executor == "local"
    assert options == SuiteOptions(wait=True)


def test_every_flag_reaches_the_suite(here: Path, ran: list[tuple[Suite, SuiteOptions]]) -> None:
    done = run(
        "run_suite",
        "--run_config",
        "suite.yml",
        "--output_dir",
        "other",
        "--limit_samples",
        "3",
        "--max_processes",
        "5",
        "--max_cost",
        "1.5",
        "--max_requests",
        "7",
        "--max_tokens_total",
        "9",
        "--max_wall_s",
        "11",
        "--overrides",
        "suite.max_attempts=1",
        "--reuse",
        "a",
        "--reuse",
        "b",
        "--fresh",
        "--no_preflight",
        "--debug",
    )
    assert done.exit_code == 0, done.output
    ((suite, options),) = ran
    assert suite.folder.root == here / "other"
    assert suite.cells[0].document["config"]["params"]["limit_samples"] == 3
    assert (suite.max_processes, suite.max_attempts) == (5, 1)
    assert vars(suite.budget) == {
        "max_cost": 1.5,
        "max_requests": 7,
        "max_tokens_total": 9,
        "max_wall_s": 11,
    }
    assert options == SuiteOptions(
        fresh=True, debug=True, no_preflight=True, reuse=(Path("a"), Path("b"))
    )


def test_a_dry_run_starts_nothing_and_is_to_be_read(
    here: Path, ran: list[tuple[Suite, SuiteOptions]]
) -> None:
    done = run("run_suite", "--run_config", "suite.yml", "--dry_run")
    assert done.exit_code == 0, done.output
    says(done.stdout, f"{CELL}: ", "at most 40 requests")
    for flag in ("--quiet", "--json"):
        done = run("run_suite", "--run_config", "suite.yml", "--dry_run", flag)
        assert isinstance(done.exception, ConfigError)
        says(str(done.exception), "--quiet and --json")
    assert not ran
    assert not (here / "out").exists()


def test_an_estimate(
    here: Path, ran: list[tuple[Suite, SuiteOptions]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        suite_estimate, "estimate", lambda one, env, **_: estimate(one, env, look_at_data=False)
    )
    done = run("run_suite", "--run_config", "suite.yml", "--estimate", "--json")
    assert json.loads(done.stdout)["requests"] == 40
    assert done.stderr == f"looking at {CELL} ...\n"
    done = run("run_suite", "--run_config", "suite.yml", "--estimate", "--quiet")
    assert done.stdout.startswith(f"{CELL}: 40 requests")
    assert done.stderr == ""
    assert not ran
    done = run("run_suite", "--run_config", "suite.yml", "--estimate", "--dry_run")
    assert isinstance(done.exception, ConfigError)


def test_ctrl_c_ends_the_watching_alone(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    suite_folder(here / "out", started([CELL]))
    monkeypatch.setattr(suite_screen, "watch", Mock(side_effect=KeyboardInterrupt))
    monkeypatch.setattr(suite_logs, "show_logs", Mock(side_effect=KeyboardInterrupt))
    for arguments in (["status", "out", "--watch"], ["logs", "out", CELL, "-f"]):
        done = run("suite", *arguments)
        assert done.exit_code == 0
        says(done.stderr, "watching ended", "suite goes on")


def test_check(here: Path) -> None:
    folder = suite_folder(
        here / "out", started([CELL]), cell_ended(CELL, "failed", reason="no\nkey")
    )
    folder.config.write_text(SUITE)
    done = run("suite", "check", "out")
    assert done.exit_code == 1
    told = ["out: not complete: 1 of 1 cell without a complete result", f"  {CELL}: failed: no key"]
    assert done.stdout.splitlines()[:2] == told
    found = json.loads(run("suite", "check", "out", "--json").stdout)
    assert (found["complete"], found["missing"], found["cells"][0]["status"]) == (
        False,
        1,
        "failed",
    )


def test_cancel(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = suite_folder(here / "out", started([CELL]))
    goes_on = [
        "the same command goes on:",
        "  eval-factory run_suite --run_config out/suite_config.yml --output_dir out",
    ]
    done = run("suite", "cancel", "out")
    assert done.exit_code == 0
    assert done.stdout.splitlines() == ["out: nothing runs", "1 cell: 1 missing", *goes_on]

    def kill(_: int, number: int) -> None:
        if number:
            lock.__exit__(None, None, None)

    lock = held(folder)
    lock.__enter__()
    monkeypatch.setattr(os, "kill", kill)
    done = run("suite", "cancel", "out")
    assert done.stdout.splitlines() == ["out: stopped", "1 cell: 1 missing", *goes_on]
    says(done.stderr, "to stop: waiting")
