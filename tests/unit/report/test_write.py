"""A result -> the files of an output folder; among them EvalFactory's names for the figures of its responses."""

from __future__ import annotations

import json
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from builders import plan
from eval_factory.core.enums import RunStatus
from eval_factory.core.results import ResponseStatistics, Spent, SpentByRole, TaskResult, Usage
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import REDACTED, Redactor
from eval_factory.report.page.blocks import readable_page
from eval_factory.report.page.document import result_page
from eval_factory.report.reader import load_result
from eval_factory.report.write import _response_line, metrics_document, write_metrics, write_reports
from unit.report.test_summary import changed

KEY = "a-known-key-value-1"


def row(response: str) -> dict[str, Any]:
    return {
        "key": "k",
        "model_id": "m",
        "created": 1.0,
        "latency_s": 2.0,
        "request": "{}",
        "response": response,
    }


def test_a_response_is_written_with_any_content() -> None:
    redactor = Redactor(["a-known-key-value-1"])
    line = json.loads(
        _response_line(
            row('{"a": [Infinity, NaN, 1], "b": "a-known-key-value-1\\u2028"}'), redactor
        )
    )
    assert line["response"] == {"a": [None, None, 1], "b": f"{REDACTED}\u2028"}
    deep = "[" * 100_000 + "]" * 100_000
    assert json.loads(_response_line(row(deep), redactor))["response"] == deep
    assert json.loads(_response_line(row(f'{{"a": {"9" * 5000}}}'), redactor))["key"] == "k"


@pytest.fixture
def written(result: TaskResult, tmp_path: Path) -> RunDir:
    """All reports of a result, with a key in the configuration, the command, prompts, answers and responses."""
    records = [
        replace(record, completion=f"yes {KEY}", prompt=f"what {KEY}?")
        for record in result.instances
    ]
    config = plan().evaluation.as_dict()
    config["config"]["params"]["extra"]["subject"] = KEY
    rundir = RunDir(tmp_path / "written")
    rundir.create()
    write_reports(
        replace(result, instances=records),
        rundir,
        config=config,
        command=f"helm-run {KEY}",
        redactor=Redactor([KEY]),
        responses={"model": [row(f'{{"a": "{KEY}"}}')], "gpt": [row("1"), row("2")], "none": []},
        user_config=config,
    )
    return rundir


def test_every_file_is_written_and_holds_no_key(written: RunDir) -> None:
    files = {
        path.relative_to(written.root).as_posix()
        for path in written.root.rglob("*")
        if path.is_file()
    }
    # which holds numbers alone
    results = {file for file in written.result_files if file != written.eval_factory_metrics}
    assert files >= {file.name for file in results} | {
        f"responses/{n}.jsonl" for n in ("model", "gpt", "none")
    }
    for path in written.root.rglob("*"):
        assert not path.is_file() or KEY not in readable_page(path.read_text("utf-8")), path
    assert f"what {REDACTED}?" in readable_page(written.report_html.read_text("utf-8"))
    for path in (
        *(results - {written.report_md}),
        written.responses_of("model"),
    ):  # report.md has none of these values
        assert REDACTED in path.read_text("utf-8"), path


def test_a_note_is_redacted_in_every_report(result: TaskResult, tmp_path: Path) -> None:
    rundir = RunDir(tmp_path / "noted")
    rundir.create()
    redactor = Redactor([KEY])
    write_reports(
        changed(result, notes=(f"it says {KEY}",)),
        rundir,
        config=plan().evaluation.as_dict(),
        command="c",
        redactor=redactor,
        responses={},
    )
    assert f"it says {REDACTED}" in rundir.report_html.read_text("utf-8")
    assert KEY not in rundir.report_md.read_text("utf-8")
    assert "API_KEY_REDACTED" in rundir.report_md.read_text("utf-8")


def test_files_with_prompts_and_answers_are_for_the_user_alone(written: RunDir) -> None:
    def mode(path: Path) -> int:
        return stat.S_IMODE(path.stat().st_mode)

    for path in (
        written.instances,
        written.results_jsonl,
        written.responses_of("gpt"),
        written.report_html,
    ):
        assert mode(path) == 0o600, path
    assert mode(written.evaluation_config) == mode(written.report_md) == 0o644


def test_both_files_of_lines_have_a_line_for_each_instance_in_order(written: RunDir) -> None:
    files = written.instances, written.results_jsonl
    lines = {path: list(map(json.loads, path.read_text("utf-8").splitlines())) for path in files}
    for found in lines.values():
        assert [line["id"] for line in found] == ["id0", "id1", "id2", "id3"]
    assert lines[written.instances][0]["prompt"] == f"what {REDACTED}?"
    assert lines[written.results_jsonl][0]["completion"] == f"yes {REDACTED}"


def test_responses_are_a_file_for_each_role(written: RunDir) -> None:
    (model,) = written.responses_of("model").read_text("utf-8").splitlines()
    assert json.loads(model) == {
        "key": "k",
        "model_id": "m",
        "created": 1.0,
        "latency_s": 2.0,
        "request": {},
        "response": {"a": REDACTED},
    }
    assert len(written.responses_of("gpt").read_text("utf-8").splitlines()) == 2
    assert written.responses_of("none").read_text("utf-8") == ""


def test_the_result_is_the_same_in_both_shapes(written: RunDir) -> None:
    files = written.evaluation_config, written.results_yml
    ours, others = (yaml.safe_load(path.read_text("utf-8")) for path in files)
    assert ours["command"] == others["command"] == f"helm-run {REDACTED}"
    assert (
        ours["config"]["params"]["extra"]["subject"]
        == others["config"]["params"]["extra"]["subject"]
        == REDACTED
    )
    value = ours["results"]["tasks"]["pubmed_qa"]["metrics"]["score"]["scores"]["exact_match"][
        "value"
    ]
    assert (
        value
        == others["results"]["tasks"]["pubmed_qa"]["metrics"]["score"]["scores"]["exact_match"][
            "value"
        ]
        == 0.5
    )


def test_a_result_that_is_not_of_the_schema_leaves_no_evaluation_config(
    result: TaskResult, tmp_path: Path
) -> None:
    """It is checked before anything is written, and written last: where it is there, the rest is."""
    rundir = RunDir(tmp_path / "broken")
    rundir.create()
    with pytest.raises(jsonschema.ValidationError):
        write_reports(
            replace(result, status=RunStatus.RUNNING),
            rundir,
            config=plan().evaluation.as_dict(),
            command="helm-run",
            redactor=Redactor(),
            responses={},
        )
    assert not rundir.results_yml.exists()
    assert not rundir.evaluation_config.exists()


def test_the_page_is_a_function_of_what_the_folder_holds(written: RunDir) -> None:
    """Byte for byte: `verify` makes it again."""
    assert result_page(load_result(written.root)) == written.report_html.read_text("utf-8")


NONE = (None, None)
STATISTICS = ResponseStatistics(
    responses=7,
    successful=4,
    prompt_tokens=(10.126, 20),
    completion_tokens=(2.5, 4),
    total_tokens=(12.626, 24),
    latency_s=(0.1234567, 1.5),
    status_codes={200: 4, 429: 3},
    finish_reasons={"stop": 3, "length": 1},
    runs=((0.0, 2.5), (100.0, 104.0)),
)
NOTHING = replace(
    STATISTICS,
    responses=0,
    successful=0,
    prompt_tokens=NONE,
    completion_tokens=NONE,
    total_tokens=NONE,
    latency_s=NONE,
    status_codes={},
    finish_reasons={},
    runs=(),
)


def used(
    result: TaskResult,
    runs: int,
    model: tuple[int | None, int | None] = (40, 8),
    wall_s: float = 9.0,
) -> TaskResult:
    spent = Spent(
        requests=9,
        cached=0,
        retries=0,
        prompt_tokens=model[0],
        completion_tokens=model[1],
        latency_p50_s=1.0,
        latency_p95_s=1.0,
    )
    judge = replace(spent, prompt_tokens=1000)
    by_role = SpentByRole(judge, {"gpt": judge, "model": spent})
    return replace(result, usage=Usage(by_role, by_role, runs, wall_s))


def test_response_stats_have_the_names_of_nemo_evaluator(result: TaskResult) -> None:
    stats = metrics_document(result, STATISTICS)["response_stats"]
    assert isinstance(stats.pop("description"), str)
    assert stats == {
        "avg_prompt_tokens": 10.13,
        "avg_total_tokens": 12.63,
        "avg_completion_tokens": 2.5,
        "avg_latency_ms": 123.46,
        "max_prompt_tokens": 20,
        "max_total_tokens": 24,
        "max_completion_tokens": 4,
        "max_latency_ms": 1500.0,
        "count": 7,
        "successful_count": 4,
        "finish_reason": {"stop": 3, "length": 1},
        "status_codes": {"200": 4, "429": 3},
        "inference_time": 6.5,
        "run_id": 1,
        "last_request_time": "1970-01-01T00:01:44.000+00:00",
        "inference_run_times": {
            "0": {
                "first_request_time": "1970-01-01T00:00:00.000+00:00",
                "last_request_time": "1970-01-01T00:00:02.500+00:00",
                "inference_time": 2.5,
            },
            "1": {
                "first_request_time": "1970-01-01T00:01:40.000+00:00",
                "last_request_time": "1970-01-01T00:01:44.000+00:00",
                "inference_time": 4.0,
            },
        },
    }


def test_what_is_not_known_is_null_or_left_out(result: TaskResult) -> None:
    stats = metrics_document(result, NOTHING)["response_stats"]
    assert {name for name, value in stats.items() if value is None} == {
        "avg_prompt_tokens",
        "avg_total_tokens",
        "avg_completion_tokens",
        "avg_latency_ms",
        "max_prompt_tokens",
        "max_total_tokens",
        "max_completion_tokens",
        "max_latency_ms",
        "last_request_time",
    }
    assert (stats["run_id"], stats["inference_time"], stats["inference_run_times"]) == (0, 0, {})
    found = metrics_document(used(result, 1), NOTHING)["evaluation"]
    assert "scoring_time_seconds" not in found
    assert found["runtime_seconds"] == 9.0
    by_role = SpentByRole(
        Spent(
            requests=0,
            cached=0,
            retries=0,
            prompt_tokens=0,
            completion_tokens=0,
            latency_p50_s=None,
            latency_p95_s=None,
        ),
        {},
    )
    found = metrics_document(replace(result, usage=Usage(by_role, by_role, 1, 1.0)), NOTHING)
    assert found["evaluation"]["token_usage"] is None


def test_the_time_of_one_run_has_its_parts_and_of_several_it_is_not_known(
    result: TaskResult,
) -> None:
    one = replace(STATISTICS, runs=STATISTICS.runs[:1])
    assert metrics_document(used(result, 1), one)["evaluation"] == {
        "runtime_seconds": 9.0,
        "inference_time_seconds": 2.5,
        "scoring_time_seconds": 6.5,
        "total_runs": 1,
        "token_usage": {"total_tokens": 48, "prompt_tokens": 40, "completion_tokens": 8},
    }
    clocks_differ = metrics_document(used(result, 1, wall_s=1.0), one)["evaluation"]
    assert clocks_differ["scoring_time_seconds"] == 0.0
    found = metrics_document(used(result, 2), STATISTICS)["evaluation"]
    assert set(found) == {"inference_time_seconds", "total_runs", "token_usage"}
    assert (found["inference_time_seconds"], found["total_runs"]) == (6.5, 2)


@pytest.mark.parametrize(("counts", "total"), [((None, 8), None), ((40, None), None), ((0, 0), 0)])
def test_tokens_are_added(
    counts: tuple[int | None, int | None], total: int | None, result: TaskResult
) -> None:
    usage = metrics_document(used(result, 1, counts), STATISTICS)["evaluation"]["token_usage"]
    assert usage == {
        "total_tokens": total,
        "prompt_tokens": counts[0],
        "completion_tokens": counts[1],
    }


def test_thinking_that_was_cut_off(result: TaskResult) -> None:
    instances = replace(
        result.validity.instances,
        requested=10,
        failed=3,
        thinking_unfinished=2,
        thinking_stripped=5,
    )
    found = metrics_document(
        replace(result, validity=replace(result.validity, instances=instances)), NOTHING
    )
    reasoning: dict[str, Any] = found["reasoning"]
    assert (reasoning["total_responses"], reasoning["reasoning_unfinished_count"]) == (7, 2)
    assert set(reasoning) == {"description", "total_responses", "reasoning_unfinished_count"}


def test_the_file_is_among_the_results(result: TaskResult, tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    write_metrics(result, STATISTICS, rundir)
    assert rundir.eval_factory_metrics in rundir.result_files
    written = json.loads((tmp_path / "eval_factory_metrics.json").read_text("utf-8"))
    assert written == metrics_document(result, STATISTICS)
