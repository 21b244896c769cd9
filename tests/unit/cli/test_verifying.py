"""`verify` and `reproduce` on the command line."""

from __future__ import annotations

import json
import webbrowser
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eval_factory import api
from eval_factory.cli.folder_commands import MAX_SHOWN_FINDINGS, has_window_browser, verified_text
from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError
from eval_factory.workflows.reproduce import Reproduction
from eval_factory.workflows.verify import Finding, Verified
from facts import each_says, says
from rated_folder import folder_to_rate
from unit.report.exports.test_stored_facts import folder_of

VERIFIED = {
    "a": Verified(Path("a"), notes=("a note\x1b",)),
    "b": Verified(Path("b"), (Finding("f.yml", "x.y", "is 1"),)),
    "c": Verified(Path("c"), unreadable="is not an output folder"),
}


def run(*arguments: str) -> Any:
    return CliRunner().invoke(cli, arguments)


def test_each_finding_has_a_line_and_the_worst_is_the_exit_code(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(api, "verify", lambda folder: VERIFIED[str(folder)])
    for names, code in {"a": 0, "b": 1, "c": 3, "ab": 1, "bca": 3, "": 2}.items():
        assert run("verify", *names).exit_code == code
        assert run("verify", *names, "--json").exit_code == code
    each_says(
        run("verify", "a", "b", "c").stdout.splitlines(),
        ["a: intact"],
        ["note: a note\\x1b"],
        ["b: altered", "1 finding"],
        ["f.yml: x.y: is", "1"],
        ["c: cannot be verified"],
    )
    first, second = json.loads(run("verify", "a", "b", "--json").stdout)
    assert (first["folder"], first["intact"], first["exit_code"], first["notes"]) == (
        "a",
        True,
        0,
        ["a note\x1b"],
    )
    assert second["findings"] == [{"file": "f.yml", "field": "x.y", "message": "is 1"}]


def test_of_many_findings_of_one_file_some_are_shown() -> None:
    findings = [Finding("f", f"line {n}", "") for n in range(MAX_SHOWN_FINDINGS + 2)]
    lines = verified_text(
        Verified(Path("b"), (*findings, Finding("g", "", "is missing")))
    ).splitlines()
    assert lines[0] == f"b: altered: {MAX_SHOWN_FINDINGS + 3} findings"
    assert lines[MAX_SHOWN_FINDINGS] == f"  f: line {MAX_SHOWN_FINDINGS - 1}"
    each_says(lines[-2:], ["g: is missing"], ["f: 2 more findings", "--json"])


def test_the_run_config_goes_to_standard_output_and_what_differs_to_the_other(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    prepared = Reproduction("config: 1\n", ("python \x1b",), ("a key",), None)
    monkeypatch.setattr(api, "reproduce", lambda *_: prepared)
    found = run("reproduce", "a")
    assert (found.exit_code, found.stdout) == (0, "config: 1\n")
    each_says(found.stderr.splitlines(), ["differs: python \\x1b"], ["needs: a key"])


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Return what the API and the browser were asked for, in order."""
    calls: list[object] = []

    @contextmanager
    def served_pages(folders: Sequence[Path], *, port: int, **_: Any) -> Iterator[SimpleNamespace]:
        calls.append((folders, port))
        lines = ["HELM's pages of 1 run:", "  task, model\x1b"]
        wait = partial(calls.append, "waited")
        yield SimpleNamespace(address="http://127.0.0.1:1/secret/", lines=lambda: lines, wait=wait)

    monkeypatch.setattr(api, "served_pages", served_pages)
    monkeypatch.setattr(webbrowser, "open", calls.append)
    monkeypatch.setenv("BROWSER", "x")
    return calls


def view(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["view", *arguments])


def test_the_pages_are_served_and_opened(asked: list[object]) -> None:
    result = view("a", "~/b", "--port", "8123")
    assert result.exit_code == 0, result.output
    assert asked == [((Path("a"), Path.home() / "b"), 8123), "http://127.0.0.1:1/secret/", "waited"]
    assert result.stdout == "http://127.0.0.1:1/secret/\n"
    says(result.stderr, "pages of 1 run")
    assert "\x1b" not in result.stderr
    assert "Ctrl-C" in result.stderr
    asked.clear()
    assert view("a", "--no-browser").exit_code == 0
    assert asked == [((Path("a"),), 0), "waited"]
    asked.clear()
    for cannot_be in ((), ("a", "--port", "65536"), ("a", "--port", "-1")):
        assert view(*cannot_be).exit_code == 2
    assert asked == []


@pytest.mark.parametrize(
    ("env", "platform", "opens"),
    [
        ({}, "linux", False),
        ({"DISPLAY": ""}, "linux", False),
        ({"DISPLAY": ":0"}, "linux", True),
        ({"WAYLAND_DISPLAY": "wayland-0"}, "linux", True),
        ({"BROWSER": "firefox"}, "linux", True),
        ({}, "darwin", True),
        ({}, "win32", True),
    ],
)
def test_a_browser_is_opened_where_there_is_a_window(
    env: dict[str, str], platform: str, opens: bool
) -> None:
    assert has_window_browser(env, platform) is opens


def annotate(*words: object) -> str:
    found = CliRunner().invoke(cli, ["annotate", *map(str, words)], catch_exceptions=False)
    assert found.exit_code == 0, found.output
    return found.output


def test_export_import_and_plan(tmp_path: Path) -> None:
    folder = folder_to_rate(tmp_path / "out").root
    sheet = tmp_path / "sheet"
    lines = annotate(
        "export", folder, "--n", 40, "--raters", 1, "--out", sheet, "--no-reference"
    ).splitlines()
    assert lines[0].startswith("sheet ")
    says(lines[0], "40 of 60 answers", "40 ratings")
    each_says(
        lines[1:4], ["10 answers", "0, even"], ["10 answers", "1, even"], ["20 answers", "1, odd"]
    )
    assert f"annotate import {folder}" in lines[-1]
    kept = next((folder / "annotations").iterdir())
    assert f"not for the raters: {kept}" in lines[-2]
    rows = (sheet / "rater_1.csv").read_text("utf-8-sig").splitlines()
    assert ",yes / no," in rows[1]
    rated = [rows[0], *(row[:-1] + "yes," for row in rows[1:31]), *rows[31:]]
    (sheet / "rater_1.csv").write_text("\n".join(rated), "utf-8")
    text = annotate("import", folder, sheet / "rater_1.csv")
    says(text, "30 ratings", "10 rows", "corrected by clinicians", "1.0000")
    assert "\n  exact_match with the raters: " in text
    assert text.endswith(f"  results: {folder / 'evaluation_config.yaml'}\n")
    assert "0.00 (measured)" in annotate("plan", folder, "--half-width", 0.2)


def export(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["export", *map(str, arguments)])


def test_every_folder_gets_its_records(tmp_path: Path) -> None:
    folders = [folder_of(tmp_path, task, model="gpt-4") for task in ("pubmed_qa", "ehrshot")]
    who = ("--organization", "A Hospital", "--relationship", "first_party", "--developer", "openai")
    done = export("eee", *folders, "-o", tmp_path / "o", *who)
    assert done.exit_code == 0, done.output
    written = [Path(line) for line in done.output.splitlines()]
    assert [path.parent.parent.parent.name for path in written] == [
        "pubmed_qa",
        "pubmed_qa",
        "ehrshot",
    ]
    record = json.loads(written[0].read_text("utf-8"))
    source = {"source_organization_name": "A Hospital", "evaluator_relationship": "first_party"}
    assert record["source_metadata"].items() >= source.items()
    assert record["model_info"]["developer"] == "openai"
    assert int(record["retrieved_timestamp"]) > 1_700_000_000


def test_an_entry_of_the_hub_is_printed_or_written(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "head_qa")
    printed = export("hf", folder, "--task-id", "mine")
    assert printed.output.startswith("- dataset:\n    id: dvilares/head_qa\n    task_id: mine\n")
    written = export("hf", folder, "--task_id", "mine", "-o", tmp_path / "model")
    assert Path(written.output.strip()).read_text("utf-8") == printed.output
    refused = export("hf", folder_of(tmp_path, "shc_bmt_med"))
    assert isinstance(refused.exception, ConfigError)
