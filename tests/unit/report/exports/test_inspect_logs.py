"""A stored result -> a log of Inspect, and a Parquet file. What Inspect's own reader makes of it: test_export_readers."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from eval_factory.cli.main import cli
from eval_factory.core.enums import RunStatus
from eval_factory.report.exports.inspect_logs import (
    NOT_PUBLIC,
    inspect_log,
    write_inspect_log,
)
from eval_factory.report.exports.parquet_file import write_parquet
from eval_factory.report.reader import StoredResult
from unit.report.exports.test_stored_facts import (
    ANSWER,
    PROMPT,
    REFERENCE,
    folder_of,
    imported_of,
    not_reportable,
    stored_of,
)

CREATED = "2026-01-02T03:04:05Z"


def log_of(stored: StoredResult, *, with_texts: bool = True) -> dict[str, Any]:
    made: dict[str, Any] = json.loads(
        json.dumps(inspect_log(stored, created=CREATED, with_texts=with_texts))
    )
    return made


def changed(stored: StoredResult, at: int, **fields: Any) -> StoredResult:
    records = list(stored.result.instances)
    records[at] = replace(records[at], **fields)
    return replace(stored, result=replace(stored.result, instances=records))


def test_scores_samples_and_usage() -> None:
    log = log_of(stored_of("pubmed_qa"))
    assert (log["version"], log["status"], log["eval"]["model"]) == (2, "success", "org/model")
    assert log["eval"]["model_generate_config"] == {"temperature": 0.5, "max_tokens": 9}
    first = log["results"]["scores"][0]
    assert (first["name"], first["metrics"]["mean"]["value"], first["scored_samples"]) == (
        "exact_match",
        0.5,
        4,
    )
    assert first["metrics"]["ci_low"]["value"] < 0.5 < first["metrics"]["ci_high"]["value"]
    assert (log["results"]["total_samples"], log["results"]["completed_samples"]) == (4, 4)
    sample = log["samples"][0]
    assert (sample["input"], sample["target"], sample["choices"]) == (
        PROMPT,
        REFERENCE,
        [REFERENCE, "it is gout"],
    )
    assert sample["output"]["choices"][0]["message"]["content"] == ANSWER
    assert sample["output"]["choices"][0]["stop_reason"] == "stop"
    assert sample["model_usage"]["org/model"] == {
        "input_tokens": 9,
        "output_tokens": 2,
        "total_tokens": 11,
    }
    assert [one["scores"]["exact_match"]["value"] for one in log["samples"]] == [
        one.metrics["exact_match"] for one in stored_of("pubmed_qa").result.instances
    ]


def test_the_log_of_an_imported_result_names_its_program() -> None:
    log = log_of(imported_of("pubmed_qa"))
    assert log["plan"]["steps"][0]["solver"] == "inspect_ai/pubmed_qa"
    assert log["results"]["scores"][0]["scorer"] == "inspect_ai.exact_match"


def test_a_failed_instance_is_an_error_and_no_zero() -> None:
    stored = changed(
        stored_of("pubmed_qa"), 1, error="the endpoint said 500", completion=None, metrics={}
    )
    partial = replace(stored, result=replace(stored.result, status=RunStatus.PARTIAL))
    log = log_of(not_reportable(partial, "an instance failed"))
    sample = log["samples"][1]
    assert (sample["error"]["message"], sample["scores"]) == ("the endpoint said 500", {})
    assert "output" not in sample
    assert (log["status"], log["results"]["completed_samples"]) == ("error", 3)
    assert log["error"]["message"].startswith("an instance failed")


def test_turns_and_what_is_asked_again_are_samples_of_their_own() -> None:
    turns = ({"role": "developer", "content": "be brief"}, {"role": "user", "content": "and now?"})
    stored = changed(
        stored_of("pubmed_qa"),
        2,
        turns=turns,
        perturbation="typos",
        trial=1,
        finish_reason="length",
    )
    sample = log_of(stored)["samples"][2]
    assert (sample["id"].rpartition("+")[2], sample["epoch"]) == ("typos", 2)
    assert [one["role"] for one in sample["messages"]] == ["system", "user", "assistant"]
    assert sample["input"][1]["content"] == "and now?"
    assert sample["output"]["choices"][0]["stop_reason"] == "max_tokens"


def test_what_judges_said_is_the_explanation() -> None:
    said = {"gpt": {"safety": {"mark": 4, "words": "it is safe"}}}
    sample = log_of(changed(stored_of("pubmed_qa"), 0, judgements=said, judges={"gpt": 4.0}))[
        "samples"
    ][0]
    score = sample["scores"]["exact_match"]
    assert "it is safe" in score["explanation"]
    assert score["metadata"] == {"judges": {"gpt": 4.0}}


@pytest.mark.parametrize("task", ["ehrshot", "custom.mine"])
def test_of_data_that_are_not_public_texts_stay_here(task: str, tmp_path: Path) -> None:
    stored = changed(stored_of(task), 0, judgements={"gpt": {"a": {"words": ANSWER}}})
    stored = changed(stored, 1, turns=({"role": "user", "content": PROMPT},))
    text = write_inspect_log(stored, tmp_path, with_texts=False).read_text("utf-8")
    assert not [words for words in (PROMPT, ANSWER, REFERENCE, "it is gout") if words in text]
    assert NOT_PUBLIC in text
    asked = write_inspect_log(stored, tmp_path, with_texts=True).read_text("utf-8")
    assert not [words for words in (PROMPT, ANSWER, REFERENCE) if words not in asked]
    assert len(list(tmp_path.iterdir())) == 1, "the same result is the same file"


def test_the_commands(tmp_path: Path) -> None:
    folder = folder_of(tmp_path, "pubmed_qa")
    target = tmp_path / "out" / "instances.parquet"
    made = CliRunner().invoke(cli, ["export", "inspect", str(folder), "-o", str(tmp_path / "logs")])
    assert made.exit_code == 0, made.output
    assert json.loads(Path(made.output.strip()).read_text("utf-8"))["eval"]["task"] == "pubmed_qa"
    made = CliRunner().invoke(cli, ["export", "parquet", str(folder), "-o", str(target)])
    assert made.output == f"{target}: 4 rows\n"
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    frame = pandas.read_parquet(target)
    assert list(frame["completion"]) == [ANSWER] * 4
    assert frame["exact_match"].sum() == 2
    assert json.loads(frame["references"][0])[0]["text"] == REFERENCE
    assert [path.name for path in target.parent.iterdir()] == ["instances.parquet"]
    assert target.stat().st_mode & 0o777 == 0o600
    assert frame.attrs["eval_factory_reportable"] is True


def test_parquet_says_what_may_not_be_reported(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas", reason="needs pandas")
    target = tmp_path / "instances.parquet"
    write_parquet(not_reportable(stored_of("pubmed_qa")), target)
    attributes = pandas.read_parquet(target).attrs
    assert attributes["eval_factory_reportable"] is False
    assert "4 of 4 instances" in attributes["eval_factory_not_reportable"]
