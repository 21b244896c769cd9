"""The execution of a model's answers needs the user's permission."""

from __future__ import annotations

from pathlib import Path

import click.testing
import pytest

from builders import evaluation
from eval_factory.cli.main import cli
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.run_specs import CODE_EXECUTION_KEY, NEEDS_NO_PERMISSION, languages_executed
from facts import naming, says

HUMANEVAL = "helm:code:dataset=humaneval"


def test_our_own_tasks_and_what_executes_nothing_need_no_permission() -> None:
    for task in load_framework().evaluations:
        assert (
            not languages_executed(task.helm.run_spec, {})
            or task.helm.run_spec in NEEDS_NO_PERMISSION
        ), task.name
    nothing = (
        "cleva:task=paraphrase_identification,version=v1",
        "codeinsights_edge_case",
        "mmlu:subject=anatomy",
    )
    for type_ in ("ehr_sql", "helm:ehr_sql", *(f"helm:{entry}" for entry in nothing)):
        assert (
            evaluation({"config.type": type_}).run.config.params.extra.allow_code_execution is False
        )


@pytest.mark.parametrize(
    "entry",
    [
        "code:dataset=apps",
        "bird_sql",
        "spider",
        "czech_bank_qa:config_name=x",
        "cleva:task=code_synthesis,version=v1",
        "codeinsights_correct_code",
        "bigcodebench:version=v0.1.3",
        "unitxt:card=x",
    ],
)
def test_refused_without_permission(entry: str) -> None:
    told = r"config\.type: .*executes what a model answers .*; it is refused unless you allow it:"
    with pytest.raises(ConfigError, match=told) as raised:
        evaluation({"config.type": f"helm:{entry}"})
    assert f"--allow_code_execution, or {CODE_EXECUTION_KEY}: true" in str(raised.value)
    allowed = evaluation({"config.type": f"helm:{entry}", CODE_EXECUTION_KEY: True})
    assert allowed.run.config.params.extra.allow_code_execution is True


LEADERBOARD = [
    "leaderboard",
    "run",
    "lite",
    "--conf",
    "own.conf",
    "--model",
    "m",
    "--model_url",
    "https://h.example/v1",
    "--dry_run",
]
RUN = f"run_eval --eval_type {HUMANEVAL} --output_dir out --model_url demo://baseline --model_id m --dry_run".split()


def invoked(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(cli, arguments)


@pytest.mark.parametrize("flag", ["--allow_code_execution", "--allow-code-execution"])
def test_the_flag_in_both_spellings(
    flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a leaderboard's entries, too."""
    monkeypatch.chdir(tmp_path)
    assert isinstance(invoked(*RUN).exception, ConfigError)
    allowed = invoked(*RUN, flag)
    assert allowed.exit_code == 0, allowed.output
    assert "allow_code_execution: true" in allowed.output
    code = '{description: "code:dataset=humaneval,model=code", priority: 1}'
    text = '{description: "boolq:model=text", priority: 1}'
    Path("own.conf").write_text(f"entries: [{code}, {text}]")
    refused = invoked(*LEADERBOARD)
    assert isinstance(refused.exception, ConfigError)
    says(str(refused.exception), "own.conf: code executes")
    assert "--allow_code_execution" in str(refused.exception)
    assert invoked(*LEADERBOARD, flag).exit_code == 0


@pytest.mark.parametrize("allowed", [False, True])
def test_a_function_that_is_called_with_the_answers_is_one_of_helms(
    allowed: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    helms_own = "helm.benchmark.metrics.output_processors.remove_deepseek_r1_thinking"
    assert evaluation({"config.type": f"helm:boolq:process_output={helms_own}"})
    with pytest.raises(ConfigError, match=naming("process_output", "a function")):
        evaluation(
            {"config.type": "helm:boolq:process_output=os.system", CODE_EXECUTION_KEY: allowed}
        )
    monkeypatch.chdir(tmp_path)
    Path("own.conf").write_text(
        'entries: [{description: "boolq:model=text,process_output=os.system", priority: 1}]'
    )
    refused = invoked(*LEADERBOARD, *(["--allow_code_execution"] if allowed else []))
    assert "process_output names a function" in str(refused.exception)
