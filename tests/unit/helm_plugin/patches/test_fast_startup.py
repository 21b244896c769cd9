"""A lever that cannot be pulled is left out."""

from __future__ import annotations

import importlib.metadata

import pytest

from eval_factory.core.helm_run_settings import WITHOUT
from eval_factory.helm_plugin.patches import fast_startup

pulled: list[str] = []


def a_lever() -> None:
    pulled.append("a_lever")


def a_lever_of_another_helm() -> None:
    raise AttributeError("module 'helm' has no attribute 'that'")


@pytest.fixture(autouse=True)
def _nothing_pulled_yet() -> None:
    pulled.clear()


def test_pulled() -> None:
    fast_startup.lever(a_lever)
    assert pulled == ["a_lever"]


def test_goes_on_where_helm_has_changed(capsys: pytest.CaptureFixture[str]) -> None:
    fast_startup.lever(a_lever_of_another_helm)
    assert "going on without a_lever_of_another_helm: AttributeError" in capsys.readouterr().err


def test_another_version_of_helm_runs_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(importlib.metadata, "version", lambda _name: "0.5.99")
    fast_startup.lever(a_lever)
    assert pulled == []


@pytest.mark.parametrize("without", ["all", "a_lever", "other,a_lever"])
def test_left_out_by_name(without: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(WITHOUT, without)
    fast_startup.lever(a_lever)
    assert pulled == []
