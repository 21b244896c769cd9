"""A source that holds less than its program says may not be reported."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from eval_factory.core.results import TaskResult
from eval_factory.importing.sources import SourceError, open_archive
from eval_factory.importing.tables import Columns
from eval_factory.report.reader import load_result
from eval_factory.workflows.import_results import import_results
from foreign_results import (
    QUESTIONS,
    inspect_sample,
    inspect_samples,
    write_json_log,
    write_lm_eval,
)


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
        {"samples": [inspect_sample(1, "A", choices="ABCD")]},
        {"samples": [inspect_sample(1, "A", messages="text")]},
        {"samples": [inspect_sample(1, "A", scores=[1])]},
        {"samples": [{**inspect_sample(1, "A"), "epoch": "first"}]},
        {"samples": [inspect_sample(1, "A", epoch=10**30)]},
        {"samples": [inspect_sample(1, "A", messages=[{"role": "user", "content": {}}])]},
        {"status": None},
        {"version": "2"},
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
    with open_archive(path) as entries, pytest.raises(SourceError, match=r"header\.json"):
        entries.document("header.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("nr,v\n1,abc\n", "abc"),
        ("nr,v\n1,1e308\n2,1e308\n", "1e308"),
        ("nr,v\n1,inf\n", "inf"),
        ("nr,nr,v\n1,2,1\n", "two columns"),
        ("nr,v\n1,0,a rest\n", "more cells"),
        ("nr,v\n", "no row"),
    ],
)
def test_a_table_that_says_something_else_is_refused(text: str, words: str, tmp_path: Path) -> None:
    (tmp_path / "x.csv").write_text(text)
    with pytest.raises(SourceError, match=words):
        import_results(tmp_path / "x.csv", tmp_path / "out", columns=Columns("nr", value="v"))
    assert not (tmp_path / "out").exists()


def test_a_line_without_a_value_has_none(tmp_path: Path) -> None:
    (tmp_path / "x.jsonl").write_text('{"nr": 1, "v": 1}\n{"nr": 2}\n')
    import_results(tmp_path / "x.jsonl", tmp_path / "out", columns=Columns("nr", value="v"))
    result = load_result(tmp_path / "out").result
    assert (result.validity.instances.requested, result.validity.instances.scored) == (2, 1)
    assert not result.reportable


def test_a_damaged_workbook_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.xlsx", "w") as made:
        made.writestr("[Content_Types].xml", "no XML")
        made.writestr("xl/workbook.xml", "<a>")
    with pytest.raises(SourceError, match="workbook"):
        import_results(tmp_path / "x.xlsx", tmp_path / "out", columns=Columns("nr", value="v"))


def test_an_answer_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    source = write_lm_eval(tmp_path / "harness")
    samples = next(source.parent.glob("samples_*"))
    samples.write_text(samples.read_text() + samples.read_text().splitlines()[0])
    with pytest.raises(SourceError, match="twice"):
        import_results(source.parent, tmp_path / "out")


def test_options_beyond_the_letters_are_not_read(tmp_path: Path) -> None:
    options = "|".join(map(str, range(30)))
    (tmp_path / "x.csv").write_text(f"nr,a,g,o\n1,A,A,{options}\n")
    columns = Columns("nr", answer="a", right="g", options="o")
    import_results(tmp_path / "x.csv", tmp_path / "out", columns=columns)
    assert set(load_result(tmp_path / "out").result.scores) == {"exact_match"}


@pytest.mark.parametrize("is_folder", [True, False])
def test_a_link_that_leads_out_of_the_source_is_refused(is_folder: bool, tmp_path: Path) -> None:
    results = write_lm_eval(tmp_path / "harness")
    samples = next(results.parent.glob("samples_*"))
    elsewhere = samples.rename(tmp_path / "elsewhere.jsonl")
    samples.symlink_to(elsewhere)
    with pytest.raises(SourceError, match="samples_fruit"):
        import_results(results.parent if is_folder else results, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    samples.unlink()
    elsewhere.rename(results.parent / "kept.jsonl")
    samples.symlink_to("kept.jsonl")
    assert imported(results.parent, tmp_path / "out").validity.instances.requested == QUESTIONS
