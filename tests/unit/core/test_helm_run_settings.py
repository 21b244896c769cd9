"""The settings of a run, for a helm-run that somebody starts by hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from eval_factory.core.helm_run_settings import take_those_of_the_file, text_of

ENVIRONMENT = {"PATH": "/bin", "HF_HOME": "/shell", "HTTPS_PROXY": "http://user:secret@proxy.example:3128"}


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    return ["helm-run", "--suite", "s", "--local-path", str(tmp_path), "--plugins", "p"]


@pytest.fixture
def env() -> dict[str, str]:
    return dict(ENVIRONMENT)


def test_they_are_taken_over_those_of_the_shell(argv: list[str], env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(text_of({"HF_HOME": "/bundle", "EVAL_FACTORY_PINS": "{}"}))
    take_those_of_the_file(argv, env)
    assert env == {**ENVIRONMENT, "HF_HOME": "/bundle", "EVAL_FACTORY_PINS": "{}"}


def test_eval_factory_has_set_them_itself(argv: list[str], env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "settings.json").write_text(text_of({"HF_HOME": "/bundle"}))
    env["EVAL_FACTORY_RUN_ID"] = "x"
    take_those_of_the_file(argv, env)
    assert env["HF_HOME"] == "/shell"


def test_without_a_file_nothing_is_set(argv: list[str], env: dict[str, str]) -> None:
    take_those_of_the_file(argv, env)
    take_those_of_the_file(["helm-run"], env)
    assert env == ENVIRONMENT


def test_offline_a_proxy_of_the_shell_leads_to_the_endpoint_only(
    argv: list[str], env: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    proxies = {"https://host.example": ENVIRONMENT["HTTPS_PROXY"]}
    text = text_of({"EVAL_FACTORY_OFFLINE": "[]", "EVAL_FACTORY_PROXIES": json.dumps(proxies)})
    assert "secret" not in text
    (tmp_path / "settings.json").write_text(text)
    monkeypatch.setattr("eval_factory.core.helm_run_settings.proxy_from_environment", lambda _url: env["HTTPS_PROXY"])
    take_those_of_the_file(argv, env)
    assert json.loads(env.pop("EVAL_FACTORY_PROXIES")) == proxies
    assert env == {"PATH": "/bin", "HF_HOME": "/shell", "EVAL_FACTORY_OFFLINE": "[]"}
