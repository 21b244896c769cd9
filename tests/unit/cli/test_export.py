"""`eval-factory export`: options, what is printed, and that MLflow is imported by its command alone."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError
from eval_factory.report import mlflow_runs
from unit.report.exports.test_stored_facts import folder_of


def run(*arguments: object) -> Result:
    return CliRunner().invoke(cli, ["export", *map(str, arguments)])


def test_every_folder_gets_its_records(tmp_path: Path) -> None:
    folders = [folder_of(tmp_path, task, model="gpt-4") for task in ("pubmed_qa", "ehrshot")]
    who = ("--organization", "A Hospital", "--relationship", "first_party", "--developer", "openai")
    done = run("eee", *folders, "-o", tmp_path / "o", *who)
    assert done.exit_code == 0, done.output
    written = [Path(line) for line in done.output.splitlines()]
    assert [path.parent.parent.parent.name for path in written] == ["pubmed_qa", "pubmed_qa", "ehrshot"]
    record = json.loads(written[0].read_text("utf-8"))
    assert record["source_metadata"]["source_organization_name"] == "A Hospital"
    assert record["source_metadata"]["evaluator_relationship"] == "first_party"
    assert record["model_info"]["developer"] == "openai"
    assert int(record["retrieved_timestamp"]) > 1_700_000_000


def test_an_entry_of_the_hub_is_printed_or_written(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "head_qa")
    printed = run("hf", folder, "--task-id", "mine")
    assert printed.output.startswith("- dataset:\n    id: dvilares/head_qa\n    task_id: mine\n")
    written = run("hf", folder, "--task_id", "mine", "-o", tmp_path / "model")
    assert Path(written.output.strip()).read_text("utf-8") == printed.output
    refused = run("hf", folder_of(tmp_path, "shc_bmt_med"))
    assert isinstance(refused.exception, ConfigError)


def test_mlflow_is_asked_for_each_result(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def log_run(record: mlflow_runs.MlflowRun, client: object, experiment: str) -> mlflow_runs.Logged:
        asked.append((len(record.artifacts), client, experiment))
        return mlflow_runs.Logged(f"r{len(asked)}", was_there=len(asked) == 2)

    monkeypatch.setattr(mlflow_runs, "connect", lambda uri: f"client of {uri}")
    monkeypatch.setattr(mlflow_runs, "log_run", log_run)
    folders = [folder_of(tmp_path, task) for task in ("ehrshot", "shc_bmt_med")]
    done = run("mlflow", *folders, "--tracking_uri", "http://h")
    assert done.output.splitlines() == [
        "ehrshot org/model: run r1",
        "shc_bmt_med org/model: run r2 (was there already)",
    ]
    run("mlflow", folders[0], "--tracking-uri", "http://h", "--experiment", "e", "--with_texts")
    assert asked == [(2, "client of http://h", "eval-factory")] * 2 + [(4, "client of http://h", "e")]
