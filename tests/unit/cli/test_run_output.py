"""Tests of what `run_eval` prints, and what a script reads of it."""

from __future__ import annotations

import errno
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from eval_factory import api
from eval_factory.cli.main import cli
from eval_factory.core.errors import BusyError, ConfigError, InterruptedRunError, NotReportableError
from eval_factory.core.results import Score, Spent, SpentByRole, Stats, TaskResult, Usage
from eval_factory.core.rundir import RunDir
from eval_factory.workflows.evaluated import Evaluated
from eval_factory.workflows.options import Submitted, end_record
from facts import each_says, says
from stored_results import instance, result

KEY = "sk-canary-5f3a9c1e7b2d4860aa"
LAUNCH = {"event": "launch", "task": "pubmed_qa", "note": "é \u2028 中"}
SUMMARY = "pubmed_qa: exact_match = 0.5000\n  note: " + "long words " * 12


def made(not_reportable: str | None = None, **changes: Any) -> Evaluated:
    score = Score(
        0.5,
        Stats(4, 0.5, stddev=None, stderr=None, ci_low=0.15, ci_high=0.85, ci_method="wilson"),
        "exact_match",
        "test",
    )
    total = Spent(
        requests=7,
        cached=1,
        retries=2,
        prompt_tokens=100,
        completion_tokens=40,
        latency_p50_s=0.5,
        latency_p95_s=0.9,
    )
    usage = Usage(SpentByRole(total, {}), SpentByRole(total, {}), 1, 2.5)
    records = [instance(f"q{number}", float(number % 2)) for number in range(4)]
    found: TaskResult = replace(
        result(records), **{"scores": {"exact_match": score}, "usage": usage, **changes}
    )
    return Evaluated(found, RunDir(Path("/results/x")), SUMMARY, not_reportable)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch) -> Any:
    """`run_eval` with an evaluation that ends as it is told, and says something on the way."""

    def start(*arguments: str, ends: Evaluated | Submitted | BaseException) -> Result:
        def evaluate(_: Any, *, options: Any, screen: Any, **__: Any) -> Evaluated | Submitted:
            screen.write("asking the model ...\n")
            if options.on_launch is not None:
                options.on_launch(LAUNCH)
            if isinstance(ends, BaseException):
                raise ends
            return ends

        monkeypatch.setattr(api, "evaluate" if "--wait" in arguments else "submit", evaluate)
        return CliRunner().invoke(cli, ["run_eval", *arguments])

    return start


def records(done: Result) -> list[dict[str, Any]]:
    assert done.stdout.isascii()
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_without_a_flag_the_summary_fits_80_columns(run: Any) -> None:
    done = run(ends=made())
    assert done.stdout.splitlines()[0] == "pubmed_qa: exact_match = 0.5000"
    assert done.stdout.split() == SUMMARY.split()
    assert max(map(len, done.stdout.splitlines())) <= 80
    assert done.stderr == "asking the model ...\n"


def test_quiet_prints_one_line_and_no_progress(run: Any) -> None:
    done = run("--quiet", ends=made())
    says(done.stdout, "pubmed_qa: ", "exact_match = 0.5000", "0.1500 .. 0.8500")
    assert done.stdout.count("\n") == 1
    assert done.stderr == ""
    failed = run("--quiet", ends=BusyError("another run"))
    assert failed.stdout == ""
    assert isinstance(failed.exception, BusyError), "the program's end prints it"


def test_answers_are_watched_only_where_there_is_a_screen(run: Any) -> None:
    says(str(run("--watch", "--quiet", ends=made()).exception), "--watch and --quiet")
    assert (
        run("--watch", "--json", ends=made()).exit_code
        == run("--watch=texts", ends=made()).exit_code
        == 0
    )


def test_a_job_that_was_submitted_is_no_result(run: Any) -> None:
    job = Submitted(Path("/results/x"), "submitted to Slurm\n  the same command shows it")
    each_says(run(ends=job).stdout.splitlines(), ["submitted to Slurm"], ["the same command"])
    assert run("--quiet", ends=job).stdout == "submitted to Slurm\n"
    done = run("--json", ends=job)
    assert done.exit_code == 0
    end = {
        "event": "end",
        "exit_code": 0,
        "status": "submitted",
        "output_dir": "/results/x",
        "error": None,
    }
    assert records(done)[1:] == [end]
    assert run("--wait", ends=made()).stdout.startswith("pubmed_qa: exact_match")


def test_json_prints_two_records_and_nothing_else(run: Any) -> None:
    done = run("--json", ends=made())
    launch, end = records(done)
    assert launch == LAUNCH
    assert end == {
        "event": "end",
        "exit_code": 0,
        "status": "complete",
        "reportable": True,
        "not_reportable": None,
        "task": "pubmed_qa",
        "main_metric": "exact_match",
        "value": 0.5,
        "ci_low": 0.15,
        "ci_high": 0.85,
        "n": 4,
        "corrected": None,
        "instances": end["instances"],
        "coverage": 1.0,
        "notes": 0,
        "requests": 7,
        "prompt_tokens": 100,
        "completion_tokens": 40,
        "wall_s": 2.5,
        "output_dir": "/results/x",
        "result": "/results/x/evaluation_config.yaml",
        "error": None,
    }
    assert (end["instances"]["requested"], end["instances"]["failed"]) == (4, 0)
    assert done.stderr == "asking the model ...\n"
    assert run("--json", "--quiet", ends=made()).stderr == ""


def test_quiet_prints_no_score_that_may_not_be_reported(run: Any) -> None:
    finished = made("NOT REPORTABLE: demo", reportable=False)
    validity = replace(finished.result.validity, not_reportable=("demo",))
    ends = replace(finished, result=replace(finished.result, validity=validity))
    line = run("--quiet", ends=ends).stdout
    assert line == "pubmed_qa: not reportable: demo\n"


def test_a_result_that_is_not_reportable_has_its_numbers_and_exit_code(run: Any) -> None:
    done = run("--json", ends=made("NOT REPORTABLE: coverage 0.5"))
    assert isinstance(done.exception, NotReportableError)
    _, end = records(done)
    told = {
        "exit_code": 1,
        "reportable": False,
        "value": 0.5,
        "not_reportable": "NOT REPORTABLE: coverage 0.5",
    }
    assert end.items() >= told.items()


def test_a_corrected_score_an_absent_one_and_one_that_json_does_not_know(run: Any) -> None:
    whole = made().result.scores["exact_match"]
    corrected = replace(whole, value=0.75)
    end = end_record(made(scores={"exact_match": whole, "exact_match.corrected": corrected}))
    assert end["corrected"] == {"value": 0.75, "ci_low": 0.15, "ci_high": 0.85, "n": 4}
    none = end_record(made(scores={}))
    assert [none[name] for name in ("value", "ci_low", "ci_high", "n")] == [None] * 4
    odd = made(scores={"exact_match": replace(whole, value=float("nan"))})
    assert records(run("--json", ends=odd))[1]["value"] is None


@pytest.mark.parametrize(
    ("error", "code", "message"),
    [
        (ConfigError(["one", "two"]), 2, "one\ntwo"),
        (BusyError("held \x1b[2J"), 5, r"held \x1b[2J"),
        (InterruptedRunError("kept"), 130, "kept"),
        (KeyboardInterrupt(), 130, "interrupted"),
        (ValueError("secret detail"), 70, "a defect in eval-factory (ValueError)"),
        (OSError(errno.ENOSPC, "No space left on device"), 3, "[Errno 28] No space left on device"),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, BaseException) else "",
)
def test_an_error_is_the_second_record(
    error: BaseException, code: int, message: str, run: Any
) -> None:
    done = run("--json", ends=error)
    launch, end = records(done)
    assert launch["event"] == "launch"
    assert end == {
        "event": "end",
        "exit_code": code,
        "error": {"type": type(error).__name__, "message": message},
    }
    assert done.exception is not None
    assert run(ends=error).stdout == ""


def test_a_key_is_in_no_record(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", KEY)
    _, end = records(run("--json", ends=ConfigError(f"no such {KEY}")))
    assert KEY not in json.dumps(end)
    assert end["error"]["message"].startswith("no such ")


@pytest.mark.parametrize(
    "arguments", [["--limit_samples", "x"], ["--no_such_flag"]], ids=["value", "flag"]
)
def test_a_wrong_command_line_is_a_record(arguments: list[str], run: Any) -> None:
    done = run("--json", *arguments, ends=made())
    (end,) = records(done)
    assert (end["event"], end["exit_code"]) == ("end", 2)
    assert arguments[0] in end["error"]["message"]
    assert run(*arguments, ends=made()).stdout == ""


@pytest.mark.parametrize("flag", ["--quiet", "--json"])
def test_a_dry_run_is_to_be_read(flag: str, run: Any) -> None:
    done = run("--dry_run", flag, ends=made())
    assert isinstance(done.exception, ConfigError)
    assert len(done.stdout.splitlines()) == (flag == "--json")
    asked = run("--help", flag, ends=made())  # which is no error
    assert (asked.exit_code, "event" in asked.stdout) == (0, False)
