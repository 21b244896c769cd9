"""Which proxy, which certificates; the wire itself is in tests/faults, HTTPS in tests/integration."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.urls import SERVED_AT
from eval_factory.data.pull import Fetcher
from eval_factory.endpoint.connections import Transport
from eval_factory.endpoint.proxies import (
    CERTIFICATE_VARIABLES,
    certificates,
    proxy_from_environment,
    proxy_problems,
)
from eval_factory.workflows import doctor
from facts import naming
from token_answers import forget_proxies_and_certificates, token_from


@pytest.fixture(autouse=True)
def _own_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    forget_proxies_and_certificates(monkeypatch)


def test_certificates_are_of_the_first_variable_or_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in reversed(CERTIFICATE_VARIABLES):
        monkeypatch.setenv(name, str(tmp_path))
        assert certificates() == (str(tmp_path), name)
    forget_proxies_and_certificates(monkeypatch)
    monkeypatch.setenv("SSL_CERT_FILE", "/nonexist.pem")
    for made in (lambda: Transport("https://host/v1", timeout_s=5), Fetcher):
        with pytest.raises(PrerequisiteError, match=naming("SSL_CERT_FILE: ", "/nonexist.pem")):
            made()


def test_a_proxy_of_another_kind_is_refused_by_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ALL_PROXY", "socks5://u:proxy-password-1@127.0.0.1:1080")
    for ask in (
        lambda: Transport("https://host/v1", timeout_s=5),
        lambda: Fetcher().file("https://host/data", tmp_path / "data"),
        lambda: token_from("https://host/token", tmp_path),
    ):
        with pytest.raises(PrerequisiteError, match=naming("ALL_PROXY: ", "socks5://")) as raised:
            ask()
        assert "proxy-password-1" not in str(raised.value)
    monkeypatch.setenv("NO_PROXY", "host")
    Transport("https://host/v1", timeout_s=5)


def test_no_proxy_leads_to_a_server_of_this_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    assert proxy_from_environment("http://127.0.0.1:2000/v1") == "http://proxy.example:3128"
    monkeypatch.setenv(SERVED_AT, "http://127.0.0.1:2000")
    assert proxy_from_environment("http://127.0.0.1:2000/v1") is None
    for other in ("http://127.0.0.2:2000/v1", "http://127.0.0.1:20001/v1"):
        assert proxy_from_environment(other) == "http://proxy.example:3128"


GARBLED = [
    "http://[::1",
    "http://proxy-password-1@host:port",
    "http://:3128",
    "http://host:99999",
    "http://",
    "://host",
    "http://a b:1",
    "http://[proxy]:1",
]


@pytest.mark.parametrize("value", GARBLED)
def test_a_proxy_that_cannot_be_parsed_is_refused_by_its_variable(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    for ask in (
        lambda: proxy_from_environment("https://host/v1"),
        lambda: Transport("https://host/v1", timeout_s=5),
        lambda: Fetcher().file("https://host/data", tmp_path / "data"),
        lambda: token_from("https://host/token", tmp_path),
    ):
        with pytest.raises(PrerequisiteError, match="HTTPS_PROXY") as raised:
            ask()
        assert "proxy-password-1" not in str(raised.value)
    (problem,) = proxy_problems({"HTTPS_PROXY": value, "NO_PROXY": "[", "no_proxy": ""})
    assert problem.startswith("HTTPS_PROXY")


def test_sound_proxies_have_no_problem() -> None:
    sound = ("proxy.example:3128", "http://u:p@proxy.example", "https://[::1]:3128", "10.0.0.1")
    assert proxy_problems({f"P{number}_PROXY": one for number, one in enumerate(sound)}) == []


@pytest.mark.parametrize("value", GARBLED)
def test_doctor_names_a_variable_that_cannot_be_parsed(value: str) -> None:
    env = {"ALL_PROXY": value, "HF_HUB_OFFLINE": "1"}
    about = {finding.about: finding for finding in doctor._network(env)}
    assert about["proxies"].works is False
    assert "ALL_PROXY" in about["proxies"].text
    assert "proxy-password-1" not in about["proxies"].text
