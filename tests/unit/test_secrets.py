from __future__ import annotations

import json

import pytest

from eval_factory.secrets import REDACTED, Redactor, Secret, is_variable_name, looks_like_key

KEY = "plain-looking-value-77"


@pytest.mark.parametrize(
    "text",
    [
        "sk-0123456789abcdef", "nvapi-abcdefgh12345678", "hf_abcdefghijklmnop", "Authorization: Bearer abc.def-123",
        "http://user:pass@proxy:8080", "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxIn0.abc",
    ],
)
def test_shapes_are_redacted(text: str) -> None:
    assert REDACTED in Redactor().text(f"before {text} after")


def test_known_values_are_redacted_also_when_quoted_for_a_url() -> None:
    redactor = Redactor(["p@ss/word 1"])
    assert "p@ss" not in redactor.text("x p@ss/word 1 y")
    assert "p%40ss" not in redactor.text("x p%40ss%2Fword%201 y")


def test_ordinary_text_is_left_alone() -> None:
    text = "The risk-benefit ratio; see https://host/v1 and a@b.c; task-force; sk-1"
    assert Redactor([KEY]).text(text) == text


def test_redacted_json_is_still_json() -> None:
    line = json.dumps({"a": 'Bearer abc"x', "b": f"{KEY}\n", "c": "http://u:p@h/\nBearer x\\y"})
    assert json.loads(Redactor([KEY]).text(line))


def test_tree() -> None:
    assert Redactor([KEY]).tree({"a": [KEY, 1, {"b": f"x{KEY}"}]}) == {"a": [REDACTED, 1, {"b": f"x{REDACTED}"}]}


def test_proxy_passwords_are_known() -> None:
    env = {"HTTPS_PROXY": "http://me:proxy-password@proxy:3128", "K": KEY}
    redactor = Redactor.from_environment(env, ["K"])
    assert "proxy-password" not in redactor.text("the proxy-password leaked")
    assert KEY not in redactor.text(KEY)


def test_secret_never_prints_itself() -> None:
    secret = Secret("0123456789abcdefghijKLMN")
    assert "KLMN" not in f"{secret} {secret!r} {secret:>40}"
    assert secret.ending() == "KLMN"
    assert "st" not in Secret("short-secret").ending().replace("short to show", "")


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "KEY2", "_x", "HF_TOKEN", "my_very_long_variable_name_for_a_key"])
def test_names(name: str) -> None:
    assert is_variable_name(name)
    assert not looks_like_key(name)
