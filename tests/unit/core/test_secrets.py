from __future__ import annotations

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.secrets import Secret, filled, is_variable_name, names_a_secret, secret_in, variables_in

KEY = "plain-looking-value-77"


def test_a_secret_is_read_without_the_white_space_around_it() -> None:
    assert secret_in({"K": f" {KEY}\r\n"}, "K") == KEY
    assert secret_in({"K": " \n"}, "K") is None
    assert secret_in({}, "K") is None


@pytest.mark.parametrize("value", ["clé-0123456789", "a\rb0123456789", "key\u200b0123456789"])
def test_what_cannot_be_sent_is_refused_by_the_variables_name(value: str) -> None:
    with pytest.raises(PrerequisiteError, match="MY_KEY holds a character") as caught:
        secret_in({"MY_KEY": value}, "MY_KEY")
    assert "0123456789" not in str(caught.value)


def test_variables_of_a_tree_are_filled_in() -> None:
    tree = {"a": "x${K}y", "b": [{"c": "${T}"}, 1], "$d": "${not a name}"}
    assert variables_in(tree) == ["K", "T"]
    assert filled(tree, {"K": "1", "T": "2\r"}) == {"a": "x1y", "b": [{"c": "2"}, 1], "$d": "${not a name}"}
    with pytest.raises(PrerequisiteError, match="variable T is not set"):
        filled(tree, {"K": "1"})


@pytest.mark.parametrize(
    ("name", "secret"),
    [
        ("GATEWAY_KEY", True), ("user_token", True), ("apiKey", True), ("DB_PASSWORD2", True), ("X_AUTH", True),
        ("sig", True), ("max_tokens", False), ("AUTHOR", False), ("api-version", False), ("BASE_URL", False),
        ("compass", False), ("HF_TOKEN_PATH", False), ("PWD", False), ("OLDPWD", False), ("DB_PWD", True),
        ("MYSQL_PWD", True), ("pwd", True), ("PGPASSWORD", True),
    ],
)  # fmt: skip
def test_names_of_secrets(name: str, secret: bool) -> None:
    assert names_a_secret(name) == secret


def test_secret_never_prints_itself() -> None:
    secret = Secret("0123456789abcdefghijKLMN")
    assert "KLMN" not in f"{secret} {secret!r} {secret:>40}"
    assert secret.ending() == "KLMN"
    assert "st" not in Secret("short-secret").ending().replace("short to show", "")


@pytest.mark.parametrize("name", ["OPENAI_API_KEY", "KEY2", "_x", "HF_TOKEN", "my_very_long_variable_name_for_a_key"])
def test_names(name: str) -> None:
    assert is_variable_name(name)
