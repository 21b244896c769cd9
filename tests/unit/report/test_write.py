"""A result -> the files of an output folder."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from eval_factory.core.nouns import RunStatus
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.report.page.document import result_page
from eval_factory.report.page.instance_data import readable_page
from eval_factory.report.reader import load_result
from eval_factory.report.write import _response_line, write_reports
from unit.builders import plan
from unit.report.test_screen import changed

KEY = "a-known-key-value-1"


def row(response: str) -> dict[str, Any]:
    return {"key": "k", "model_id": "m", "created": 1.0, "latency_s": 2.0, "request": "{}", "response": response}


def test_a_response_is_written_with_any_content() -> None:
    redactor = Redactor(["a-known-key-value-1"])
    line = json.loads(_response_line(row('{"a": [Infinity, NaN, 1], "b": "a-known-key-value-1\\u2028"}'), redactor))
    assert line["response"] == {"a": [None, None, 1], "b": f"{REDACTED}\u2028"}
    deep = "[" * 100_000 + "]" * 100_000
    assert json.loads(_response_line(row(deep), redactor))["response"] == deep
    assert json.loads(_response_line(row(f'{{"a": {"9" * 5000}}}'), redactor))["key"] == "k"


@pytest.fixture
def written(result: TaskResult, tmp_path: Path) -> RunDir:
    """All reports of a result, with a key in the configuration, the command, prompts, answers and responses."""
    records = [replace(record, completion=f"yes {KEY}", prompt=f"what {KEY}?") for record in result.instances]
    config = plan().evaluation.as_dict()
    config["config"]["params"]["extra"]["subject"] = KEY
    rundir = RunDir(tmp_path / "written")
    rundir.create()
    write_reports(
        replace(result, instances=records), rundir, config=config,
        command=f"helm-run {KEY}", redactor=Redactor([KEY]),
        responses={"model": [row(f'{{"a": "{KEY}"}}')], "gpt": [row("1"), row("2")], "none": []}, given=config,
    )  # fmt: skip
    return rundir


def test_every_file_is_written_and_holds_no_key(written: RunDir) -> None:
    files = {path.relative_to(written.root).as_posix() for path in written.root.rglob("*") if path.is_file()}
    results = {file for file in written.results if file != written.eval_factory_metrics}  # which holds numbers alone
    assert files >= {file.name for file in results} | {f"responses/{n}.jsonl" for n in ("model", "gpt", "none")}
    for path in written.root.rglob("*"):
        assert not path.is_file() or KEY not in readable_page(path.read_text("utf-8")), path
    assert f"what {REDACTED}?" in readable_page(written.report_html.read_text("utf-8"))
    for path in (*(results - {written.report_md}), written.responses_of("model")):  # report.md has none of these values
        assert REDACTED in path.read_text("utf-8"), path


def test_a_note_is_redacted_in_every_report(result: TaskResult, tmp_path: Path) -> None:
    rundir = RunDir(tmp_path / "noted")
    rundir.create()
    redactor = Redactor([KEY])
    write_reports(
        changed(result, notes=(f"it says {KEY}",)), rundir, config=plan().evaluation.as_dict(),
        command="c", redactor=redactor, responses={},
    )  # fmt: skip
    assert f"it says {REDACTED}" in rundir.report_html.read_text("utf-8")
    assert KEY not in rundir.report_md.read_text("utf-8")
    assert "API_KEY_REDACTED" in rundir.report_md.read_text("utf-8")


def test_files_with_prompts_and_answers_are_for_the_user_alone(written: RunDir) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    for path in (written.instances, written.results_jsonl, written.responses_of("gpt"), written.report_html):
        assert mode(path) == 0o600, path
    assert mode(written.evaluation_config) == mode(written.report_md) == 0o644


def test_both_files_of_lines_have_a_line_for_each_instance_in_order(written: RunDir) -> None:
    lines = {
        path: [json.loads(line) for line in path.read_text("utf-8").splitlines()]
        for path in (written.instances, written.results_jsonl)
    }
    for found in lines.values():
        assert [line["id"] for line in found] == ["id0", "id1", "id2", "id3"]
    assert lines[written.instances][0]["prompt"] == f"what {REDACTED}?"
    assert lines[written.results_jsonl][0]["completion"] == f"yes {REDACTED}"


def test_responses_are_a_file_for_each_role(written: RunDir) -> None:
    (model,) = written.responses_of("model").read_text("utf-8").splitlines()
    assert json.loads(model) == {
        "key": "k", "model_id": "m", "created": 1.0, "latency_s": 2.0, "request": {}, "response": {"a": REDACTED},
    }  # fmt: skip
    assert len(written.responses_of("gpt").read_text("utf-8").splitlines()) == 2
    assert written.responses_of("none").read_text("utf-8") == ""


def test_the_result_is_the_same_in_both_shapes(written: RunDir) -> None:
    ours, others = (
        yaml.safe_load(path.read_text("utf-8")) for path in (written.evaluation_config, written.results_yml)
    )
    assert ours["command"] == others["command"] == f"helm-run {REDACTED}"
    assert ours["config"]["params"]["extra"]["subject"] == others["config"]["params"]["extra"]["subject"] == REDACTED
    value = ours["results"]["tasks"]["pubmed_qa"]["metrics"]["score"]["scores"]["exact_match"]["value"]
    assert value == others["results"]["tasks"]["pubmed_qa"]["metrics"]["score"]["scores"]["exact_match"]["value"] == 0.5


def test_a_result_that_is_not_of_the_schema_leaves_no_evaluation_config(result: TaskResult, tmp_path: Path) -> None:
    """It is checked before anything is written, and written last: where it is there, the rest is."""
    rundir = RunDir(tmp_path / "broken")
    rundir.create()
    with pytest.raises(jsonschema.ValidationError):
        write_reports(
            replace(result, status=RunStatus.RUNNING), rundir, config=plan().evaluation.as_dict(), command="helm-run",
            redactor=Redactor(), responses={},
        )  # fmt: skip
    assert not rundir.results_yml.exists()
    assert not rundir.evaluation_config.exists()


def test_the_page_is_a_function_of_what_the_folder_holds(written: RunDir) -> None:
    """Byte for byte: `verify` makes it again."""
    assert result_page(load_result(written.root)) == written.report_html.read_text("utf-8")
