from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from builders import endpoint_settings, evaluation, plan
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.plan.credentials import credentials_of, credentials_report
from eval_factory.plan.run_plan import make_plan
from facts import naming, says

MAIN = {"OPENAI_API_KEY": "main-key-0123456789-MAIN"}
JURY = {"config.type": "aci_bench"}


def test_the_lines_that_people_grep_for() -> None:
    lines = credentials_report(
        plan(JURY), {**MAIN, "GPT_JUDGE_API_KEY": "gpt-key-0123456789-GPTX", "OTHER": "x"}
    ).lines
    assert {
        "Using GPT judge API key from environment variable for model: gpt-4o-2024-05-13",
        "LLAMA_JUDGE_API_KEY is not set, setting to OPENAI_API_KEY",
        "CLAUDE_JUDGE_API_KEY is not set, setting to OPENAI_API_KEY",
        "Using API key OPENAI_API_KEY for model, ends with MAIN",
        "Using API key GPT_JUDGE_API_KEY for gpt, ends with GPTX",
    } <= set(lines)
    assert not any("0123456789" in line for line in lines)


def test_the_default_variable_need_not_be_set_and_a_local_jury_needs_no_key() -> None:
    assert "OPENAI_API_KEY is not set" in credentials_report(plan(), {}).lines[0]
    assert (
        credentials_report(plan(JURY), {})
        .lines[1]
        .startswith("GPT_JUDGE_API_KEY is not set: asking ")
    )


OF_THE_JUDGE = 'deployments: {"gpt-4o-2024-05-13": "gpt-key-0123456789-GPTC"}'
CREDENTIALS = f'openaiApiKey: "general-key-0123456789-GENE"\n{OF_THE_JUDGE}\n'
Kept = Callable[[str], int]


@pytest.fixture
def kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Kept:
    """Writes HELM's file of credentials to the working directory."""
    monkeypatch.chdir(tmp_path)
    return partial((tmp_path / "credentials.conf").write_text, encoding="utf-8")


def test_credentials_come_last_and_helms_variable_beats_its_file(kept: Kept) -> None:
    kept(CREDENTIALS)
    instead = credentials_report(plan(), {"HELM_CREDENTIALS": "openaiApiKey: from-the-variable"})
    assert instead.added_keys == {"OPENAI_API_KEY": "from-the-variable"}
    report = credentials_report(plan(JURY), {"LLAMA_JUDGE_API_KEY": "llama-key-0123456789-LLAM"})
    general = dict.fromkeys(
        ("OPENAI_API_KEY", "CLAUDE_JUDGE_API_KEY"), "general-key-0123456789-GENE"
    )
    assert report.added_keys == {**general, "GPT_JUDGE_API_KEY": "gpt-key-0123456789-GPTC"}
    assert "GPT_JUDGE_API_KEY is not set, setting to the key of credentials.conf" in report.lines
    assert not any("0123456789" in line for line in report.lines)


def test_credentials_of_another_host_than_the_models(kept: Kept) -> None:
    """Only the key that is written for the judge's very model is sent there."""
    kept(CREDENTIALS)
    judges = [
        {
            "name": "a",
            "model_id": "gpt-4o-2024-05-13",
            "api_key": "A_KEY",
            "url": "https://other/v1",
        },
        {
            "name": "b",
            "model_id": "openai/x",
            "api_key": "B_KEY",
            "url": "http://host.example/v1",
        },  # in plain text
    ]
    flags = {**JURY, "config.params.extra.judges": judges}
    with pytest.raises(PrerequisiteError, match=naming("no API key", "judge b")):
        credentials_report(plan(flags), MAIN)
    assert credentials_report(plan(flags), {**MAIN, "B_KEY": "b-key"}).added_keys == {
        "A_KEY": "gpt-key-0123456789-GPTC"
    }


def test_credentials_that_cannot_be_read_or_sent_are_not_quoted(kept: Kept) -> None:
    for text, error, told in (
        ("openaiApiKey: { sk-canary-0123456789", ConfigError, r"credentials\.conf: is not HOCON"),
        (
            'openaiApiKey: "clé-canary-0123456789"',
            PrerequisiteError,
            r"credentials\.conf holds a character",
        ),
    ):
        kept(text)
        with pytest.raises(error, match=told) as caught:
            credentials_report(plan(), {})
        assert "canary" not in str(caught.value)


def test_white_space_around_a_key_is_not_sent() -> None:
    env = {"OPENAI_API_KEY": "main-key-0123456789-MAIN\r\n", "GPT_JUDGE_API_KEY": " \r"}
    report = credentials_report(plan(JURY), env)
    assert report.added_keys == {**MAIN, "GPT_JUDGE_API_KEY": ""}
    assert "GPT_JUDGE_API_KEY is not set, setting to OPENAI_API_KEY" in report.lines
    assert "Using API key OPENAI_API_KEY for model, ends with MAIN" in report.lines


OAUTH = {"target.api_endpoint.oauth": "openai"}
CLIENT = {"OPENAI_CLIENT_ID": "id", "OPENAI_CLIENT_SECRET": "secret-of-client-01234\r"}


@pytest.mark.parametrize(
    ("flags", "variable"),
    [
        ({}, "OPENAI_API_KEY"),
        (JURY, "CLAUDE_JUDGE_API_KEY"),
        (OAUTH, "OPENAI_CLIENT_SECRET"),
        ({"target.api_endpoint.url": "http://h/v1?key=${GATEWAY_KEY}"}, "GATEWAY_KEY"),
    ],
)
def test_a_key_that_cannot_be_sent(flags: dict[str, str], variable: str) -> None:
    env = {**MAIN, **CLIENT, variable: "clé-0123456789"}
    with pytest.raises(PrerequisiteError, match=f"{variable} holds a character") as caught:
        credentials_report(make_plan(evaluation({**flags}, file=None, **env)), env)
    assert "0123456789" not in str(caught.value)


def test_a_placeholder_is_said_not_to_be_redacted() -> None:
    for key, said in (
        ("ollama", True),
        ("secret", True),
        ("x" * 11, True),
        (MAIN["OPENAI_API_KEY"], False),
    ):
        lines = credentials_report(plan(), {"OPENAI_API_KEY": key}).lines
        assert any(line.startswith("OPENAI_API_KEY holds a placeholder") for line in lines) is said
        assert any("placeholder" in line for line in lines) is said


def test_judges_of_a_target_with_tokens_fall_back_to_the_main_key() -> None:
    flags = {**JURY, **OAUTH, "config.params.extra.gpt_judge_api_key": "GPT_JUDGE_API_KEY"}
    lines = credentials_report(plan(flags), {**CLIENT, **MAIN}).lines
    assert "Using openai OAuth token for model" in lines
    assert "GPT_JUDGE_API_KEY is not set, setting to OPENAI_API_KEY" in lines
    assert not any(line.startswith("Using API key") and "for model" in line for line in lines)


def test_a_judge_without_a_key_is_told_what_to_set() -> None:
    flags = {**JURY, **OAUTH, "config.params.extra.gpt_judge_api_key": "MY_GPT_KEY"}
    with pytest.raises(PrerequisiteError) as raised:
        credentials_report(plan(flags), CLIENT)
    neither = (
        "of its environment variables, neither MY_GPT_KEY nor the main key's OPENAI_API_KEY is set"
    )
    another = "config.params.extra.gpt_judge_api_key, or as api_key in the entry gpt of config.params.extra.judges"
    told = str(raised.value)
    says(told, "no API key", "judge gpt", "export MY_GPT_KEY=...")
    assert neither in told
    assert another in told


def test_each_key_that_is_not_there_is_told_with_its_role() -> None:
    local = {"name": "local", "model_id": "m", "url": "https://judge.example/v1"}
    judges = [
        local,
        {**local, "name": "own", "api_key": "OWN_KEY"},
        {"name": "near", "model_id": "m"},
    ]
    flags = {**JURY, "config.params.extra.judges": judges, "target.api_endpoint.api_key": "MY_KEY"}
    with pytest.raises(PrerequisiteError) as raised:
        credentials_report(plan(flags), {})
    told = str(raised.value)
    says(told, "no API key", "MY_KEY is not set")
    says(told, "judge own", "OWN_KEY is not set")
    says(told, "api_key", "entry own", "config.params.extra.judges")
    assert "judge local" not in told


def test_client_credentials_that_nobody_uses_are_a_warning() -> None:
    report = credentials_report(plan(), {**MAIN, **CLIENT})
    (warning,) = report.warnings
    says(warning, "OPENAI_CLIENT_ID is set", "`oauth: openai`")
    says(warning, "target.api_endpoint.oauth")
    assert warning in report.lines


def test_a_host_of_the_services_owner_needs_no_key() -> None:
    here = plan({"target.api_endpoint.url": "https://integrate.api.nvidia.com/v1"})
    report = credentials_report(here, CLIENT)
    assert report.warnings == []
    assert any("openai OAuth tokens sign in model" in line for line in report.lines)


def test_a_jury_elsewhere_is_named_beside_the_model() -> None:
    here = plan({"config.type": "aci_bench"})
    (warning,) = credentials_report(here, {**MAIN, **CLIENT}).warnings
    says(warning, *(f"the entry {judge.role}" for judge in here.judges))
    assert credentials_report(plan(OAUTH), {**MAIN, **CLIENT}).warnings == []


def test_a_judge_of_which_one_server_is_elsewhere_gets_no_general_key(kept: Kept) -> None:
    kept(CREDENTIALS)
    model = endpoint_settings(url="https://here/v1", key_names=("MODEL_KEY",))
    for servers, has_key in (
        (("https://here/v1", "https://here/v2"), True),
        (("https://here/v1", "https://other/v1"), False),
    ):
        judge = endpoint_settings(role="judge", servers=servers, key_names=("JUDGE_KEY",))
        keys = credentials_of([model, judge], {}, required=()).added_keys
        assert "MODEL_KEY" in keys
        assert ("JUDGE_KEY" in keys) is has_key
