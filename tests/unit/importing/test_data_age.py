"""Since when the data of an imported result are public: by the data set that its source names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError
from eval_factory.core.results import TaskResult
from eval_factory.importing.data_age import UNKNOWN_AGE, facts_of_data_set
from eval_factory.importing.tables import Columns
from eval_factory.report.reader import load_result
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.import_results import import_results
from eval_factory.workflows.verify import verify
from foreign_results import (
    inspect_header,
    inspect_samples,
    record_line,
    record_result,
    write_json_log,
    write_lm_eval,
    write_record,
    write_table,
)

MED_QA = "2020-09"
HEAD_QA = "2019-06"


def write_inspect(path: Path, dataset: dict[str, str]) -> Path:
    samples = inspect_samples()
    header = inspect_header(samples)
    return write_json_log(path, samples, eval={**header["eval"], "dataset": dataset})


def write_harness(folder: Path, dataset: str) -> Path:
    config = {"output_type": "generate_until", "dataset_path": dataset}
    return write_lm_eval(folder, configs={"fruit": config})


def write_helm(folder: Path, name: str, **arguments: str | None) -> Path:
    """A run of bare HELM with one right answer."""
    folder.mkdir(parents=True)
    stat = {"name": {"name": "exact_match", "split": "test"}, "count": 1, "sum": 1.0, "mean": 1.0}
    instance = {"id": "id1", "input": {"text": "Q?"}, "references": [], "split": "test"}
    result = {"success": True, "completions": [{"text": "A"}]}
    state = {"instance": instance, "train_trial_index": 0, "request": {}, "result": result}
    of_instance = {"instance_id": "id1", "train_trial_index": 0, "stats": [stat]}
    documents: dict[str, Any] = {
        "run_spec.json": {"name": name, "scenario_spec": {"class_name": "x", "args": arguments}},
        "scenario_state.json": {"request_states": [state]},
        "stats.json": [stat],
        "per_instance_stats.json": [of_instance],
    }
    for file, document in documents.items():
        (folder / file).write_text(json.dumps(document, indent=2), encoding="utf-8")
    return folder


def write_of_record(folder: Path, source: dict[str, Any]) -> Path:
    lines = [record_line(0), record_line(1, "fig")]
    return write_record(folder, lines, [record_result(source_data=source)])


def imported(source: Path, folder: Path, **options: Any) -> TaskResult:
    (result,) = import_results(source, folder, **options)
    return load_result(result.folder).result


def is_unknown(result: TaskResult) -> bool:
    assert result.provenance.imported is not None
    return UNKNOWN_AGE in result.provenance.imported.unknown


def notes_on_age(result: TaskResult) -> list[str]:
    return [note for note in result.validity.notes if "cut-off" in note]


@pytest.mark.parametrize(
    ("dataset", "published"),
    [
        ({"name": "med_qa", "location": "bigbio/med_qa"}, MED_QA),
        ({"name": "dvilares/head_qa"}, HEAD_QA),
        ({"name": "med_qa", "location": "/home/me/med_qa.json"}, None),
        ({"name": "med_qa"}, None),  # a file of the user's may be called so
        ({}, None),
    ],
)
def test_a_log_of_inspect_names_its_data_set(
    dataset: dict[str, str], published: str | None, tmp_path: Path
) -> None:
    result = imported(write_inspect(tmp_path / "x.json", dataset), tmp_path / "out")
    assert result.provenance.published == published
    assert result.provenance.answers_public is (None if published is None else True)
    assert is_unknown(result) is (published is None)
    assert len(notes_on_age(result)) == (published is not None)
    assert verify(tmp_path / "out").intact


@pytest.mark.parametrize(
    ("dataset", "published"),
    [("GBaker/MedQA-USMLE-4-options-hf", MED_QA), ("EleutherAI/headqa", HEAD_QA), ("json", None)],
)
def test_a_task_of_the_harness_names_its_data_set(
    dataset: str, published: str | None, tmp_path: Path
) -> None:
    result = imported(write_harness(tmp_path / "lm", dataset), tmp_path / "out")
    assert result.provenance.published == published
    assert is_unknown(result) is (published is None)


@pytest.mark.parametrize(
    ("name", "arguments", "published"),
    [
        ("med_qa:model=org_model", {}, MED_QA),
        ("head_qa", {"language": "en"}, HEAD_QA),
        ("head_qa", {"data_path": "/home/me"}, None),
        ("head_qa", {"data_path": None}, HEAD_QA),
        ("head_qa", {"dataset_file": "/home/me/file.jsonl"}, None),
        ("boolq:model=org_model", {}, None),
    ],
)
def test_the_run_spec_of_bare_helm_names_the_data(
    name: str, arguments: dict[str, str | None], published: str | None, tmp_path: Path
) -> None:
    result = imported(write_helm(tmp_path / "run", name, **arguments), tmp_path / "out")
    assert result.provenance.published == published
    assert is_unknown(result) is (published is None)


@pytest.mark.parametrize(
    ("source", "published"),
    [
        ({"source_type": "hf_dataset", "hf_repo": "dvilares/head_qa"}, HEAD_QA),
        ({"source_type": "url", "url": ["https://github.com/jind11/MedQA"]}, MED_QA),
        ({"source_type": "other", "dataset_name": "head_qa"}, None),
    ],
)
def test_a_record_names_its_source(
    source: dict[str, Any], published: str | None, tmp_path: Path
) -> None:
    result = imported(write_of_record(tmp_path / "data", source), tmp_path / "out")
    assert result.provenance.published == published
    assert is_unknown(result) is (published is None)


def test_what_the_user_says_wins_and_is_verified(tmp_path: Path) -> None:
    source = write_inspect(tmp_path / "x.json", {"location": "bigbio/med_qa"})
    said = imported(source, tmp_path / "out", published="2024-06", training_cutoff="2024-07")
    assert said.provenance.published == "2024-06"
    assert said.provenance.training_cutoff == "2024-07"
    (note,) = notes_on_age(said)
    assert "2024-06" in note
    assert "2024-07" in note
    stored = load_result(tmp_path / "out")
    assert "--published 2024-06 --training_cutoff 2024-07" in stored.command
    assert verify(tmp_path / "out").intact


def test_a_model_that_was_trained_before_has_not_seen_the_answers(tmp_path: Path) -> None:
    source = write_table(tmp_path / "answers.csv")
    columns = Columns(id="nr", answer="answer", right="gold")
    unknown = imported(source, tmp_path / "a", columns=columns, training_cutoff="2024-05")
    assert is_unknown(unknown)
    assert notes_on_age(unknown) == []
    before = imported(
        source, tmp_path / "b", columns=columns, published="2024-06", training_cutoff="2024-05"
    )
    assert not is_unknown(before)
    assert notes_on_age(before) == []
    open_end = imported(source, tmp_path / "c", columns=columns, published="2024-06")
    assert "--training_cutoff" in notes_on_age(open_end)[0]


@pytest.mark.parametrize("option", ["published", "training_cutoff"])
@pytest.mark.parametrize("month", ["2024", "2024-13", "June 2024", ""])
def test_what_is_no_month_is_refused_by_the_option(option: str, month: str, tmp_path: Path) -> None:
    source = write_table(tmp_path / "answers.csv")
    columns = Columns(id="nr", answer="answer", right="gold")
    months: dict[str, Any] = {option: month}
    with pytest.raises(ConfigError, match=f"--{option}"):
        import_results(source, tmp_path / "out", columns=columns, **months)
    assert not (tmp_path / "out").exists()


def test_the_command_takes_the_months(tmp_path: Path) -> None:
    source = write_inspect(tmp_path / "x.json", {})
    words = ["import", str(source), "-o", str(tmp_path / "out"), "--published", "2024-06"]
    finished = CliRunner().invoke(cli, [*words, "--training_cutoff", "2025-01"])
    assert finished.exit_code == 0, finished.output
    provenance = load_result(tmp_path / "out").result.provenance
    assert (provenance.published, provenance.training_cutoff) == ("2024-06", "2025-01")


def test_tasks_that_read_the_same_data_are_of_one_age() -> None:
    for task in load_framework().evaluations:
        for copy in task.about.copies:
            about = facts_of_data_set(copy)
            assert about is not None
            assert about.published == task.about.published
