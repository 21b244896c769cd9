from __future__ import annotations

import pytest

from eval_factory.errors import PrerequisiteError
from eval_factory.keys import key_report
from unit.builders import plan

MAIN = {"OPENAI_API_KEY": "main-key-0123456789-MAIN"}
JURY = {"config.type": "aci_bench"}


def test_the_order_and_the_lines_that_people_grep_for() -> None:
    lines = key_report(plan(JURY), {**MAIN, "GPT_JUDGE_API_KEY": "gpt-key-0123456789-GPTX", "OTHER": "x"})
    assert "Using GPT judge API key from environment variable for model: gpt-4o-2024-05-13" in lines
    assert "LLAMA_JUDGE_API_KEY is not set, setting to OPENAI_API_KEY" in lines
    assert "CLAUDE_JUDGE_API_KEY is not set, setting to OPENAI_API_KEY" in lines
    assert "Using API key OPENAI_API_KEY for model, ends with MAIN" in lines
    assert "Using API key GPT_JUDGE_API_KEY for gpt, ends with GPTX" in lines
    assert not any("0123456789" in line for line in lines)


def test_other_names() -> None:
    flags = {**JURY, "config.params.extra.llama_judge_api_key": "MY_LLAMA"}
    lines = key_report(plan(flags), {**MAIN, "MY_LLAMA": "llama-key-0123456789-LLAM"})
    assert "Using API key MY_LLAMA for llama, ends with LLAM" in lines


def test_a_short_key_shows_nothing() -> None:
    lines = key_report(plan(), {"OPENAI_API_KEY": "short-key-1234"})
    assert not any("1234" in line for line in lines)


def test_a_named_variable_has_to_be_set() -> None:
    with pytest.raises(PrerequisiteError, match="MY_KEY is not set"):
        key_report(plan({"target.api_endpoint.api_key": "MY_KEY"}), {})


def test_the_default_variable_need_not_be_set() -> None:
    assert "OPENAI_API_KEY is not set" in key_report(plan(), {})[0]


def test_demo_has_no_key() -> None:
    assert key_report(plan({**JURY, "target.api_endpoint.url": "demo://baseline"}), {}) == []
