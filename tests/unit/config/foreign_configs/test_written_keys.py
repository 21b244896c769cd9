"""Keys that stand written out in a file."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.config.foreign_configs.written_keys import written_keys

KEY = "nvapi-" + "a1B2c3D4e5" * 4


@pytest.mark.parametrize(
    ("tree", "paths"),
    [
        ({"target": {"api_endpoint": {"api_key": KEY}}}, ["target.api_endpoint.api_key"]),
        ({"target": {"api_endpoint": {"api_key_name": "Zm9vYmFyMTIzNDU2Nzg5MGFi"}}}, ["target.api_endpoint.api_key_name"]),
        ({"api_key_name": "f00-ba4-77aa-91bb"}, ["api_key_name"]),
        ({"env_vars": {"HF_TOKEN": f"lit:{KEY}"}}, ["env_vars.HF_TOKEN"]),
        ({"env_vars": {"MY_TOKEN": "lit:3f1c-99aa-77b1-02dd"}}, ["env_vars.MY_TOKEN"]),
        ({"env_vars": {"MY_TOKEN": "3f1c/99aa/77b1/02dd"}}, ["env_vars.MY_TOKEN"]),
        ({"tasks": [{"a": 1}, {"headers": [f"Authorization: Bearer {KEY}"]}]}, ["tasks[1].headers[0]"]),
        ({"note": f"my key is {KEY}, do not tell"}, ["note"]),
        ({"url": "https://user:secret-pass@host/v1"}, ["url"]),
        ({KEY: 1}, ["[API_KEY_REDACTED]"]),
        ({"a": {KEY: {"b": KEY}}}, ["a.[API_KEY_REDACTED]", "a.[API_KEY_REDACTED].b"]),
    ],
)  # fmt: skip
def test_a_key_is_found_and_not_shown(tree: Any, paths: list[str]) -> None:
    assert list(written_keys(tree)) == paths


@pytest.mark.parametrize(
    "value",
    ["OPENAI_API_KEY", "host:NGC_API_KEY", "runtime:NGC_API_KEY", "$NGC_API_KEY", "${oc.env:NGC_API_KEY}", "<YOUR_API_KEY_NAME>",
     "???", "lit:EMPTY", "EMPTY", 17, None],
)  # fmt: skip
@pytest.mark.parametrize("field", ["api_key", "api_key_name", "HF_TOKEN", "gpt_judge_api_key"])
def test_a_name_of_a_variable_is_none(field: str, value: Any) -> None:
    assert list(written_keys({"x": {field: value}})) == []


def test_a_field_that_only_sounds_like_one_may_hold_anything() -> None:
    tree = {"end_reasoning_token": "</reasoning-of-mine-1>", "prompt_cache_key": "a/b/c/d/e-1234567"}
    assert list(written_keys(tree)) == []


def test_a_name_that_begins_as_a_key_does_may_be_a_word() -> None:
    assert list(written_keys({"hf_model_handle": "org/model", "sk_learn_settings": 1})) == []
    assert list(written_keys({"command": "serve ${deployment.hf_model_handle} --x"})) == []
    assert list(written_keys({"command": "serve --key hf_modelHandleOfMine --x"})) == ["command"]
    assert list(written_keys({"hf_modelHandleOfMine": 1})) == ["[API_KEY_REDACTED]"]
