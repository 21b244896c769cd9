"""A source that holds less than its program says may not be reported."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from eval_factory.core.results import TaskResult
from eval_factory.importing.sources import SourceError, archive
from eval_factory.workflows.import_results import import_results
from foreign_results import inspect_samples, write_json_log, write_lm_eval


def imported(source: Path, folder: Path) -> TaskResult:
    (result,) = import_results(source, folder)
    return result.result


def test_a_log_with_a_part_of_its_samples_is_not_reportable(tmp_path: Path) -> None:
    results = {
        "total_samples": 2340,
        "scores": [{"name": "choice", "metrics": {"accuracy": {"value": 0.5}}}],
    }
    log = write_json_log(tmp_path / "x.json", inspect_samples(), results=results)
    result = imported(log, tmp_path / "out")
    assert not result.reportable
    assert "12 of 2340" in result.validity.not_reportable[0]


def test_a_log_without_its_samples_says_so(tmp_path: Path) -> None:
    results = {"scores": [{"name": "choice", "metrics": {"accuracy": {"value": 0.5}}}]}
    log = write_json_log(tmp_path / "x.json", [], results=results)
    (reason,) = imported(log, tmp_path / "out").validity.not_reportable
    assert "no answers" in reason


def test_a_folder_of_the_harness_with_a_part_of_its_samples(tmp_path: Path) -> None:
    source = write_lm_eval(
        tmp_path / "harness", **{"n-samples": {"fruit": {"original": 99, "effective": 40}}}
    )
    assert "12 of 40" in imported(source, tmp_path / "out").validity.not_reportable[0]


def test_a_log_that_failed_says_why(tmp_path: Path) -> None:
    log = write_json_log(
        tmp_path / "x.json", [], status="error", error={"message": "no answer"}, results=None
    )
    with pytest.raises(SourceError, match="no answer"):
        import_results(log, tmp_path / "out", kind="inspect")


def test_a_record_that_names_no_metric_has_a_score(tmp_path: Path) -> None:
    record = {
        "evaluation_id": "x",
        "model_info": {"name": "m"},
        "evaluation_results": [
            {"evaluation_name": "IFEval", "score_details": {"score": 0.4}, "metric_config": {}}
        ],
    }
    file = tmp_path / "record.json"
    file.write_text(json.dumps(record))
    assert imported(file, tmp_path / "out").main_metric == "score"


@pytest.mark.parametrize(
    "changes",
    [
        {"samples": 7},
        {"results": "good"},
        {"stats": [], "plan": [1]},
        {"samples": [{"id": "a", "epoch": 1, "input": 5}]},
    ],
)
def test_a_field_of_another_form_is_refused_and_nothing_is_written(
    changes: dict[str, object], tmp_path: Path
) -> None:
    log = write_json_log(tmp_path / "x.json", inspect_samples())
    log.write_text(json.dumps(json.loads(log.read_text()) | changes))
    with pytest.raises(SourceError, match=r"x\.json"):
        import_results(log, tmp_path / "out", kind="inspect")
    assert not (tmp_path / "out").exists()


def test_a_damaged_entry_of_a_deflated_archive_is_named(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("header.json", json.dumps({"words": list(range(1000))}))
    content = bytearray(path.read_bytes())
    content[200:260] = b"\xff" * 60
    path.write_bytes(content)
    with archive(path) as entries, pytest.raises(SourceError, match=r"header\.json"):
        entries.document("header.json")
