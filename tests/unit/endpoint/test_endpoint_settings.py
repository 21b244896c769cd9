from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from builders import endpoint_settings
from eval_factory.core.errors import PrerequisiteError
from eval_factory.endpoint import openai_api
from eval_factory.endpoint.endpoint_settings import EndpointSettings, OAuthSettings

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
ADAPTER = openai_api.Adapter(
    {"key": "${CANARY}", "seed": 7}, ["stop"], {"n": "count"}, "be brief", "<t>", "</t>"
)
OTHER_THAN_DEFAULT = endpoint_settings(
    key_names=("A", "B"),
    top_p=0.5,
    use_nvcf=True,
    requests_per_minute=3,
    tokens_per_minute=4,
    stop_after_failures=5,
    oauth=OAuthSettings("openai", "https://t", "s"),
    adapter=ADAPTER,
)
OLDEST_ARGS: dict[str, Any] = {
    "role": "gpt",
    "url": "https://h/v1",
    "model_id": "m",
    "endpoint_type": "chat",
    "key_names": ["A"],
    "request_timeout": 5,
    "max_retries": 1,
    "parallelism": 2,
    "adapter": {
        "params_to_add": {},
        "params_to_remove": [],
        "params_to_rename": {},
        "custom_system_prompt": None,
        "start_reasoning_token": "<think>",
        "end_reasoning_token": "</think>",
    },
}
"""What every version wrote."""


def test_what_is_written_is_read_again() -> None:
    written = yaml.safe_dump(OTHER_THAN_DEFAULT.to_args())
    assert EndpointSettings.from_args(yaml.safe_load(written)) == OTHER_THAN_DEFAULT


@pytest.mark.parametrize("name", ["pubmed_qa", "aci_bench"])
def test_the_files_of_the_version_before_are_read(name: str) -> None:
    document = yaml.safe_load((GOLDEN / f"model_deployments_{name}.yaml").read_text("utf-8"))
    for deployment in document["model_deployments"]:
        args = deployment["client_spec"]["args"]
        del args["cache_db"]
        settings = EndpointSettings.from_args(args)
        assert list(settings.to_args().items()) == list(args.items())
        assert settings.key_names[-1] == "OPENAI_API_KEY"


def test_what_an_old_file_does_not_say_has_a_default() -> None:
    settings = EndpointSettings.from_args(OLDEST_ARGS)
    assert (settings.role, settings.key_names, settings.adapter.start_reasoning_token) == (
        "gpt",
        ("A",),
        "<think>",
    )
    assert (settings.top_p, settings.use_nvcf, settings.oauth) == (None, False, None)
    assert (
        settings.requests_per_minute,
        settings.tokens_per_minute,
        settings.stop_after_failures,
    ) == (None, None, 0)


def test_another_record_is_refused() -> None:
    lacking = {name: value for name, value in OLDEST_ARGS.items() if name != "model_id"}
    for args in (lacking, {**OLDEST_ARGS, "colour": "red"}):
        with pytest.raises(TypeError):
            EndpointSettings.from_args(args)


def test_secrets_are_sent_and_not_kept() -> None:
    settings = endpoint_settings(url="https://h/${PATH_SECRET}/v1", adapter=ADAPTER)
    assert settings.secret_variables == ["PATH_SECRET", "CANARY"]
    assert settings.secret_fields({"CANARY": "the-canary-0123456789"}) == {
        "key": "the-canary-0123456789"
    }
    assert (
        settings.body_of({"prompt": "p", "max_tokens": 1, "temperature": 0})["key"] == "${CANARY}"
    )
    with pytest.raises(PrerequisiteError, match="CANARY"):
        settings.secret_fields({})


def test_a_body_and_its_key_are_those_of_the_settings() -> None:
    settings = endpoint_settings(endpoint_type="completions", top_p=0.5, model_id="other")
    body = settings.body_of({"prompt": "p", "max_tokens": 1, "temperature": 0})
    assert body == {
        "model": "other",
        "prompt": "p",
        "max_tokens": 1,
        "temperature": 0,
        "top_p": 0.5,
    }
    assert settings.key_of(body, "again") == openai_api.request_key("http://h/v1", body, "again")
