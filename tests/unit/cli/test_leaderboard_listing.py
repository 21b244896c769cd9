"""`leaderboard ls` in its three forms."""

from __future__ import annotations

import io
import json

import pytest

from eval_factory.cli.leaderboard import LEAST_WIDTH, listing, plain_line, record
from eval_factory.workflows.leaderboard import registry
from eval_factory.workflows.leaderboard.registry import Leaderboard, load_catalogue

ROWS = load_catalogue().leaderboards


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def row(**changes: object) -> Leaderboard:
    usual = {
        "name": "mine", "description": "What it is", "conf": "run_entries_mine.conf", "schema": "schema_mine.yaml",
        "num_train_trials": 1, "max_eval_instances": 70, "priority": 2,
    }  # fmt: skip
    return Leaderboard.model_validate({**usual, **changes})


def shown(*, as_json: bool = False, stream: io.StringIO | None = None) -> str:
    out = stream or io.StringIO()
    listing(out, as_json=as_json)
    return out.getvalue()


@pytest.fixture
def _schema_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "schema_path", lambda _row: "somewhere")


@pytest.mark.usefixtures("_schema_installed")
def test_a_line_holds_everything_with_tabs_between() -> None:
    plain = "mine\tWhat it is\trun_entries_mine.conf\tschema_mine.yaml\t70"
    assert plain_line(row()) == f"{plain}\t-"
    assert plain_line(row(needs=["a key", "a disk"])) == f"{plain}\ta key; a disk"


def test_elsewhere_than_on_a_terminal_it_is_a_line_each() -> None:
    assert shown().splitlines() == [plain_line(row) for row in ROWS]


@pytest.mark.parametrize("stream", [None, Terminal()])
def test_json_has_every_row_wherever_it_is_read(stream: io.StringIO | None) -> None:
    found = json.loads(shown(as_json=True, stream=stream))
    assert [one["name"] for one in found] == [row.name for row in ROWS]
    assert found == [record(row) for row in ROWS]


def test_a_terminal_shows_a_table_with_whole_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(LEAST_WIDTH))
    assert "│" in shown(stream=Terminal())
    monkeypatch.setenv("COLUMNS", "400")
    text = shown(stream=Terminal())
    assert "needs, beside a text endpoint" in text
    assert all(row.name in text for row in ROWS)
    assert all(str(row.max_eval_instances) in text for row in ROWS)


def test_a_narrow_terminal_shows_each_under_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(LEAST_WIDTH - 1))
    lines = shown(stream=Terminal()).splitlines()
    assert "│" not in "".join(lines)
    for row in ROWS:
        at = lines.index(row.name)
        assert lines[at + 1].startswith("  ")
    together = " ".join(line.strip() for line in lines)
    assert f"{ROWS[0].conf}, {ROWS[0].schema_file}, {ROWS[0].max_eval_instances} instances" in together
