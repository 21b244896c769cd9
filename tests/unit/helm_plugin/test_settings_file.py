"""The settings of a run, for a helm-run that somebody starts by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.helm_run_settings import HelmRunSettings, Pins
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.network_guard import take_settings_of_the_file

ENVIRONMENT = {"PATH": "/bin", "HF_HOME": "/shell", "HTTPS_PROXY": "http://user:secret@proxy.example:3128"}


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    return ["helm-run", "--suite", "s", "--local-path", str(tmp_path), "--plugins", "p"]


def test_they_are_taken_over_those_of_the_shell(argv: list[str], tmp_path: Path) -> None:
    env = dict(ENVIRONMENT)
    for without_a_file in (argv, ["helm-run"]):
        take_settings_of_the_file(without_a_file, env)
    assert env == ENVIRONMENT
    settings = HelmRunSettings(pins=Pins(hub={"a": "b"}), libraries={"HF_HOME": "/bundle"})
    (tmp_path / "settings.json").write_text(settings.file_text())
    started_by_eval_factory = {**env, "EVAL_FACTORY_RUN_ID": "x"}
    take_settings_of_the_file(argv, started_by_eval_factory)
    assert started_by_eval_factory["HF_HOME"] == "/shell", "it has set them itself"
    take_settings_of_the_file(argv, env)
    assert env == {**ENVIRONMENT, "HF_HOME": "/bundle", "EVAL_FACTORY_PINS": '{"files": {}, "hub": {"a": "b"}}'}


def test_offline_a_proxy_leads_to_the_endpoint_only(argv: list[str], tmp_path: Path, monkeypatch: Any) -> None:
    env = dict(ENVIRONMENT)
    proxies = {"https://host.example": ENVIRONMENT["HTTPS_PROXY"]}
    (tmp_path / "settings.json").write_text(HelmRunSettings(allowed=(), proxies=proxies).file_text())
    monkeypatch.setattr(network_guard, "proxy_from_environment", lambda _url: env["HTTPS_PROXY"])
    take_settings_of_the_file(argv, env)
    assert json.loads(env.pop("EVAL_FACTORY_PROXIES")) == proxies
    assert env == {"PATH": "/bin", "HF_HOME": "/shell", "EVAL_FACTORY_OFFLINE": "[]"}
