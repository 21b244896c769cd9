"""Configurations of EvalFactory and NeMo Evaluator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from builders import MINIMAL, evaluation
from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.core.errors import ConfigError
from eval_factory.plan.run_plan import identity_of
from eval_factory.tasks.framework import load_framework
from facts import says

ADAPTER = "target.api_endpoint.adapter_config"
HARMLESS = {
    "config.supported_endpoint_types": ["chat"],
    "config.params.task": "helm.pubmed_qa",
    "target.api_endpoint.stream": True,
    f"{ADAPTER}.use_caching": True,
    f"{ADAPTER}.caching_dir": "cache",
    f"{ADAPTER}.use_request_logging": False,
    f"{ADAPTER}.max_logged_requests": 5,
    f"{ADAPTER}.generate_html_report": True,
    f"{ADAPTER}.post_eval_hooks": [{"name": "post_eval_report"}],
    f"{ADAPTER}.interceptors": [
        "caching",
        {"name": "endpoint"},
        {"name": "system_message", "enabled": False},
    ],
    f"{ADAPTER}.use_reasoning": True,
    f"{ADAPTER}.use_megatron": False,
    f"{ADAPTER}.use_system_prompt": True,
}


def test_keys_without_an_effect_are_named_in_one_line() -> None:
    found = evaluation(HARMLESS)
    (warning,) = found.warnings
    says(
        warning,
        "config: supported_endpoint_types",
        "target.api_endpoint: stream",
        f"{ADAPTER}: use_caching, caching_dir",
        "use_request_logging, max_logged_requests, generate_html_report",
        "post_eval_hooks, interceptors",
        "config.params: task",
    )
    assert identity_of(found) == identity_of(evaluation())
    assert found.as_dict() == evaluation().as_dict()
    assert evaluation().warnings == ()


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (f"{ADAPTER}.use_reasoning", False, "is never scored here; leave the key out"),
        (f"{ADAPTER}.use_reasoning", 1, "would change the results"),
        (
            f"{ADAPTER}.process_reasoning_traces",
            False,
            "would change the results",
        ),
        (f"{ADAPTER}.include_if_reasoning_not_finished", True, "cut off"),
        (f"{ADAPTER}.use_megatron", True, "OpenAI"),
        (f"{ADAPTER}.megatron_tokenizer", "x", "OpenAI"),
        (
            f"{ADAPTER}.interceptors",
            ["endpoint", {"name": "system_message"}],
            "custom_system_prompt instead",
        ),
        (
            f"{ADAPTER}.interceptors",
            [{"name": "payload_modifier", "enabled": True}],
            "params_to_add",
        ),
        (f"{ADAPTER}.interceptors", ["mine"], "'mine' would change the results"),
        (f"{ADAPTER}.interceptors", "caching", "must be a list"),
        ("config.params.task", "medec", "is not the task of config.type, pubmed_qa"),
        ("framework_name", "simple_evals", "of another framework"),
        ("command", "helm-run --other", "does not run this command"),
        (f"{ADAPTER}.use_cachin", True, "did you mean 'use_caching'?"),
        ("target.api_endpoint.streem", True, "did you mean 'stream'?"),
        ("config.supported_endpoint_type", [], "did you mean 'supported_endpoint_types'?"),
        ("pkg_nam", "x", "did you mean 'pkg_name'?"),
    ],
)
def test_what_would_change_results_is_a_mistake(path: str, value: Any, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        evaluation({path: value})
    assert path in str(raised.value)
    assert said in str(raised.value)
    assert len(raised.value.problems) == 1


def test_the_last_word_holds(tmp_path: Path) -> None:
    file = tmp_path / "x.yml"
    file.write_text(
        "target: {api_endpoint: {adapter_config: {use_reasoning: false, use_caching: true}}}\n"
    )
    overrides = (f"{ADAPTER}.use_reasoning=true,{ADAPTER}.use_caching=null",)
    request = RunRequest(run_config=file, flags=MINIMAL, overrides=overrides)
    assert build_evaluation(request, load_framework(), {}).warnings == ()


def test_a_system_prompt_can_be_turned_off() -> None:
    prompt = {f"{ADAPTER}.custom_system_prompt": "Be brief."}
    off = evaluation({**prompt, f"{ADAPTER}.use_system_prompt": False})
    assert off.run.target.api_endpoint.adapter_config.custom_system_prompt is None
    assert off.warnings == ()
    on = evaluation({**prompt, f"{ADAPTER}.use_system_prompt": True})
    assert on.run.target.api_endpoint.adapter_config.custom_system_prompt == "Be brief."


def test_a_written_run_config_can_be_run_again() -> None:
    info = load_framework().framework
    command = f"helm-run --plugins {info.pkg_name}.engine"
    own = {
        "framework_name": info.name,
        "pkg_name": info.pkg_name,
        "command": command,
        "config.params.task": "pubmed_qa",
    }
    (told,) = evaluation(own).warnings
    says(told, "pkg_name, command, framework_name", "config.params: task")
