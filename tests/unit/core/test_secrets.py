from __future__ import annotations

from typing import Any

import pytest

from builders import evaluation
from eval_factory.core import secrets
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.secrets import paths_of_written_keys, secret_field_of, secret_in
from facts import naming

KEY = "plain-looking-value-77"


def test_a_secret_is_read_without_the_white_space_around_it() -> None:
    assert secret_in({"K": f" {KEY}\r\n"}, "K") == KEY
    assert secret_in({"K": " \n"}, "K") is None
    assert secret_in({}, "K") is None
    for name in (
        "OPENAI_API_KEY",
        "KEY2",
        "_x",
        "HF_TOKEN",
        "my_very_long_variable_name_for_a_key",
    ):
        assert secrets.is_variable_name(name)


@pytest.mark.parametrize("value", ["clé-0123456789", "a\rb0123456789", "key\u200b0123456789"])
def test_what_cannot_be_sent_is_refused_by_the_variables_name(value: str) -> None:
    with pytest.raises(PrerequisiteError, match="MY_KEY holds a character") as caught:
        secret_in({"MY_KEY": value}, "MY_KEY")
    assert "0123456789" not in str(caught.value)


def test_variables_of_a_tree_are_filled_in() -> None:
    tree = {"a": "x${K}y", "b": [{"c": "${T}"}, 1], "$d": "${not a name}"}
    assert secrets.variables_in(tree) == ["K", "T"]
    assert secrets.fill_variables(tree, {"K": "1", "T": "2\r"}) == {
        "a": "x1y",
        "b": [{"c": "2"}, 1],
        "$d": "${not a name}",
    }
    with pytest.raises(PrerequisiteError, match=naming("T is not set")):
        secrets.fill_variables(tree, {"K": "1"})


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("GATEWAY_KEY", True),
        ("user_token", True),
        ("apiKey", True),
        ("DB_PASSWORD2", True),
        ("X_AUTH", True),
        ("sig", True),
        ("max_tokens", False),
        ("AUTHOR", False),
        ("api-version", False),
        ("BASE_URL", False),
        ("compass", False),
        ("HF_TOKEN_PATH", False),
        ("PWD", False),
        ("OLDPWD", False),
        ("DB_PWD", True),
        ("MYSQL_PWD", True),
        ("pwd", True),
        ("PGPASSWORD", True),
    ],
)
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert secrets.names_a_secret(name) == secret


def test_no_more_than_the_end_of_a_long_key_is_shown() -> None:
    assert secrets.last_characters_of("0123456789abcdefghij") == "ghij"
    assert secrets.last_characters_of("0123456789abcdefghi") == "(too short to show)"


VALUE = "3f1c9-canary-77ab2"
PLACE = "target.api_endpoint.adapter_config.params_to_add"


@pytest.mark.parametrize(
    "fields",
    [
        {"user_token": VALUE},
        {"metadata": {"user_token": VALUE}},
        {"tools": [{"headers": {"X-Api-Key": VALUE}}]},
        {"api_keys": 1, "api_key": [VALUE]},
        {"auth": {"value": VALUE}},
        {"PWD": VALUE},
        {"password": 123456789012},
        {"a": {"credentials": {"value": [VALUE]}}},
        {"secret": [["x", VALUE]]},
        {"stop_token_key": VALUE},
    ],
)
def test_a_secret_written_out_is_refused_and_not_shown(fields: dict[str, Any]) -> None:
    told = r"params_to_add: must not hold a secret in its field .*\$\{NAME_OF"
    with pytest.raises(ConfigError, match=told) as raised:
        evaluation({PLACE: fields})
    assert VALUE not in str(raised.value)
    assert "123456789012" not in str(raised.value)


@pytest.mark.parametrize(
    "fields",
    [
        {"max_tokens": 123456789012},
        {"token_budget": "a-very-long-budget-1"},
        {"api-version": "2024-12-01-preview"},
        {"user_token": "${GATE}"},
        {"eos_token": "eot-0123456789"},
        {"stop_token": "<|end_of_text|>"},
        {"prompt_cache_key": "session-0123456789"},
        {"user_token": "none"},
        {"user_token": True},
        {"token": None},
        {
            "tools": [
                {
                    "parameters": {
                        "token": {"type": "string", "description": "the token, 12 letters"}
                    }
                }
            ]
        },
        {"secret": {"level": "a-long-value-0123"}},
        {"token": "[unused-token-12]"},
        {"value": VALUE},
    ],
)
def test_what_only_sounds_like_a_secret_is_taken(fields: dict[str, Any]) -> None:
    assert (
        evaluation({PLACE: fields}, GATE="x").run.target.api_endpoint.adapter_config.params_to_add
        == fields
    )


def test_where_it_stands() -> None:
    assert secret_field_of({"a": [{"b": {"my_key": VALUE}}]}) == "a.b.my_key"
    assert secret_field_of({"my_key": {"value": VALUE}}) == "my_key"
    assert secret_field_of({"value": {"my_key": VALUE}}) == "value.my_key"
    assert secret_field_of({"my_key": "Bearer ${A_LONG_NAME}"}) is None
    assert secret_field_of({"a": 1}) is None


URLS = [
    f"https://h/v1#key={VALUE}",
    f"https://h/v1;key={VALUE}",
    f"https://h/v1?a=1;key={VALUE}",
    f"https://h/v1?PWD={VALUE}",
    f"https://h/v1?key=a/{VALUE}",
    f"https://h/v1#/x?api%2Dkey={VALUE}",
    f"https://h/a;token={VALUE}/b",
    f"https://h?x=1&sig={VALUE}",
    f"https://h/v1?%6Bey={VALUE}",
    f"https://h/v1?key={VALUE.replace('-', '%2D')}",
]


@pytest.mark.parametrize("url", URLS)
def test_a_secret_in_a_url_is_refused_and_not_shown(url: str) -> None:
    with pytest.raises(ConfigError, match=naming("url: ", "a secret", "is not shown")) as raised:
        evaluation({"target.api_endpoint.url": url})
    assert VALUE not in str(raised.value)


@pytest.mark.parametrize(
    "url",
    [
        "https://h/key/a-long-name-0123",
        "https://h/v1?api-version=2024-12-01-preview",
        "https://h/v1?max_tokens=0123456789012",
        "https://h/v1#key=${K}",
        "https://h/v1?key=none",
    ],
)
def test_urls_without_a_secret(url: str) -> None:
    assert evaluation({"target.api_endpoint.url": url}, K="v").run.target.api_endpoint.url == url


LONG_KEY = "nvapi-" + "a1B2c3D4e5" * 4


@pytest.mark.parametrize(
    ("tree", "paths"),
    [
        ({"target": {"api_endpoint": {"api_key": LONG_KEY}}}, ["target.api_endpoint.api_key"]),
        (
            {"target": {"api_endpoint": {"api_key_name": "Zm9vYmFyMTIzNDU2Nzg5MGFi"}}},
            ["target.api_endpoint.api_key_name"],
        ),
        ({"api_key_name": "f00-ba4-77aa-91bb"}, ["api_key_name"]),
        ({"env_vars": {"HF_TOKEN": f"lit:{LONG_KEY}"}}, ["env_vars.HF_TOKEN"]),
        ({"env_vars": {"MY_TOKEN": "lit:3f1c-99aa-77b1-02dd"}}, ["env_vars.MY_TOKEN"]),
        ({"env_vars": {"MY_TOKEN": "3f1c/99aa/77b1/02dd"}}, ["env_vars.MY_TOKEN"]),
        (
            {"tasks": [{"a": 1}, {"headers": [f"Authorization: Bearer {LONG_KEY}"]}]},
            ["tasks[1].headers[0]"],
        ),
        ({"note": f"my key is {LONG_KEY}, do not tell"}, ["note"]),
        ({"url": "https://user:secret-pass@host/v1"}, ["url"]),
        ({LONG_KEY: 1}, ["[API_KEY_REDACTED]"]),
        ({"hf_modelHandleOfMine": 1}, ["[API_KEY_REDACTED]"]),
        ({"command": "serve --key hf_modelHandleOfMine --x"}, ["command"]),
        # a word may begin like a key, and a field may only sound like a secret
        ({"hf_model_handle": "org/model", "sk_learn_settings": 1}, []),
        ({"command": "serve ${deployment.hf_model_handle} --x"}, []),
        (
            {
                "end_reasoning_token": "</reasoning-of-mine-1>",
                "prompt_cache_key": "a/b/c/d/e-1234567",
            },
            [],
        ),
        ({"a": {LONG_KEY: {"b": LONG_KEY}}}, ["a.[API_KEY_REDACTED]", "a.[API_KEY_REDACTED].b"]),
    ],
)
def test_a_key_is_found_and_not_shown(tree: Any, paths: list[str]) -> None:
    assert list(paths_of_written_keys(tree)) == paths


@pytest.mark.parametrize(
    "value",
    [
        "OPENAI_API_KEY",
        "host:NGC_API_KEY",
        "runtime:NGC_API_KEY",
        "$NGC_API_KEY",
        "${oc.env:NGC_API_KEY}",
        "<YOUR_API_KEY_NAME>",
        "???",
        "lit:EMPTY",
        "EMPTY",
        17,
        None,
    ],
)
@pytest.mark.parametrize("field", ["api_key", "api_key_name", "HF_TOKEN", "gpt_judge_api_key"])
def test_a_name_of_a_variable_is_none(field: str, value: Any) -> None:
    assert list(paths_of_written_keys({"x": {field: value}})) == []
