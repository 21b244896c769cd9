from __future__ import annotations

from typing import Any

import pytest

from builders import endpoint_settings
from eval_factory.endpoint.endpoint_settings import OAuthSettings
from eval_factory.endpoint.replies import StopMessages
from facts import each_says, says

URL = "http://127.0.0.1:8000/v1/chat/completions"
OWN = "the entry gpt of config.params.extra.judges"


def refused(status: int, said: str, sent: dict[str, str], **settings: Any) -> str:
    return StopMessages.of(endpoint_settings(**settings), URL, sent).refused(status, said)


def test_a_refused_key_of_the_model() -> None:
    each_says(
        refused(401, "no such key", {"MY_KEY": "k"}, key_names=("MY_KEY",)).splitlines(),
        ["Authentication error detected", f"{URL} answers 401"],
        ["it says: no such"],
        ["variable MY_KEY", "target.api_endpoint.api_key"],
    )


def test_a_refused_key_of_a_judge_is_the_judges() -> None:
    told = refused(401, "", {"GPT_KEY": "k"}, role="gpt", key_names=("GPT_KEY",))
    each_says(
        told.splitlines(),
        ["judge gpt: Authentication error", f"{URL} answers 401"],
        ["variable GPT_KEY", "api_key"],
    )
    assert OWN in told
    told = refused(403, "", {"MAIN": "k"}, role="gpt", key_names=("GPT_KEY", "MAIN"))
    says(told, "variable MAIN")
    assert OWN in told
    says(told, "judge's own, GPT_KEY", "api_key")


@pytest.mark.parametrize(
    ("settings", "advice"),
    [
        (
            {"role": "gpt", "key_names": ("GPT_KEY", "MAIN")},
            "no key was sent: set GPT_KEY or MAIN; name",
        ),
        ({"role": "gpt", "key_names": ()}, "no key was sent; name a variable"),
        (
            {"oauth": OAuthSettings("openai", None, None)},
            "check that the client whose openai OAuth token was sent may use",
        ),
    ],
    ids=["a judge without its keys", "a judge that has none", "a token"],
)
def test_where_no_key_was_sent(settings: dict[str, Any], advice: str) -> None:
    assert advice in refused(401, "", {}, **settings)


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        (
            "http://127.0.0.1:8000/chat/completions",
            "; most servers answer under /v1: http://127.0.0.1:8000/v1",
        ),
        (
            "http://h:11434/api/chat/chat/completions",
            "; the OpenAI-compatible API of Ollama is at http://h:11434/v1",
        ),
        ("https://h/completions?key=1", "; most servers answer under /v1: https://h/v1"),
        (URL, ""),
        ("https://h/openai/deployments/x/chat/completions", ""),
    ],
)
def test_a_404_suggests_v1_where_the_url_has_no_path(url: str, hint: str) -> None:
    told = StopMessages.of(endpoint_settings(), url, {}).refused(404, "")
    says(told, "target.api_endpoint: url", "model_id")
    assert told.endswith(hint)
    assert "no model 'm'" in told


def test_every_message_of_a_judge_names_it_and_its_host() -> None:
    messages = StopMessages.of(endpoint_settings(role="gpt"), URL, {})
    for told in (
        messages.refused(404, ""),
        messages.refused_preflight(400, "bad"),
        messages.none_answered(20, ["HTTP 429: x"] * 20),
        messages.moved(301),
        messages.proxy_login(407, URL),
        messages.unreachable("closed"),
        messages.outage("closed"),
    ):
        assert told.startswith("judge gpt: ")
        assert URL in told
        assert "target.api_endpoint" not in told
    assert messages.with_judge("no token") == "judge gpt: no token"


def test_what_to_do_where_nothing_was_answered() -> None:
    errors = [
        f"HTTP 400: maximum context length is 768 tokens, not {number}" for number in range(20)
    ]
    told = StopMessages.of(endpoint_settings(), URL, {}).none_answered(20, errors)
    cause = (
        "20 x HTTP 400: maximum context length is 768 tokens, not ...; set "
        "config.params.extra.max_length"
    )
    assert told.splitlines()[1].startswith(f"  {cause}")
    says(told, "first 20 requests", "all failed")
    assert URL in told
    assert "--overrides config.params.extra.stop_after_failures=0" in told
    rare = StopMessages.of(endpoint_settings(), URL, {}).none_answered(9, "aaabbccde")
    each_says(rare.splitlines()[1:5], ["3 x a"], ["2 x b"], ["2 x c"], ["2 x something else"])
    refused = StopMessages.of(endpoint_settings(), URL, {}).refused_preflight(400, "Odd request")
    says(refused, "HTTP 400", "Odd request")
    says(refused, "target.api_endpoint: model_id", "url", "api_key")
    assert "--no_preflight" in refused


def test_a_firewall_before_the_endpoint_names_the_user_agent() -> None:
    told = refused(403, "error code: 1010", {"MY_KEY": "k"}, key_names=("MY_KEY",))
    assert "User-Agent" in told
    assert "MY_KEY" not in told
    assert "Authentication" not in told


@pytest.mark.parametrize(
    ("error", "again"), [("HTTP 400: content policy", False), ("HTTP 500: broken", True)]
)
def test_what_would_fail_again_is_not_to_be_run_again(error: str, again: bool) -> None:
    messages = StopMessages.of(endpoint_settings(), URL, {})
    assert ("same command" in messages.none_answered(5, [error] * 5)) is again
