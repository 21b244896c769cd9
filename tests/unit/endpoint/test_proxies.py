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
    find_trusted_certificates,
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
        assert find_trusted_certificates() == (str(tmp_path), name)
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
        lambda: Fetcher().download_file("https://host/data", tmp_path / "data"),
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
    "ht!tp://x:y:z",
    "http//host:3128",
    "http:/host:3128",
    '"http://host:3128"',
    "http://host:3128/proxy.pac",
    "http://host:3128?x",
    "http://host:3128:3129",
    "http://host:3128,http://other:1",
    "http://host;x:3128",
    "http://host..example:3128",
    f"http://{'a' * 64}.example:3128",
    "http://host:0",
    "http://host:3_128",
    "http://::1:3128",
    "http://host:3128 ",
    "http://host\\x:3128",
    "http://u:proxy-password-1@",
    "u:proxy-password-1@host:port",
    "h!://u:proxy-password-1@host:1",
    "file:///etc/hosts",
    "://u:proxy-password-1@host",
]
NO_EXCEPTIONS = [
    "[",
    "http://host",
    "host/x",
    "a b",
    "10.0.0.0/99",
    "host:port",
    "u@host",
    "!",
    "[::1",
]
EXCEPTIONS = (
    "host, .example,*.example,*,10.0.0.0/8,::1,[::1],[::1]:80,host:8080,10.0.0.1,my_host,fd00::/8,"
)


@pytest.mark.parametrize("value", GARBLED)
def test_a_proxy_that_cannot_be_parsed_is_refused_by_its_variable(
    value: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", value)
    for ask in (
        lambda: proxy_from_environment("https://host/v1"),
        lambda: Transport("https://host/v1", timeout_s=5),
        lambda: Fetcher().download_file("https://host/data", tmp_path / "data"),
        lambda: token_from("https://host/token", tmp_path),
    ):
        with pytest.raises(PrerequisiteError, match="HTTPS_PROXY") as raised:
            ask()
        assert "proxy-password-1" not in str(raised.value)
    (problem,) = proxy_problems({"HTTPS_PROXY": value, "no_proxy": ""})
    assert problem.startswith("HTTPS_PROXY")


def test_sound_proxies_have_no_problem() -> None:
    for sound in (
        "proxy.example:3128",
        "localhost:3128",
        "u:p@localhost:3128",
        "http://u:p@proxy.example",
        "http://u:p%40@proxy.example/",
        "HTTP://proxy:80",
        "https://[::1]:3128",
        "10.0.0.1",
        "http://my_proxy:1",
    ):
        assert proxy_problems({"HTTP_PROXY": sound, "all_proxy": sound}) == [], sound


def test_of_proxies_that_nothing_asks_there_is_no_problem() -> None:
    both = {"http_proxy": "proxy:1", "HTTPS_PROXY": "proxy:1"}
    assert proxy_problems({**both, "all_proxy": "socks://host", "FTP_PROXY": "x y"}) == []
    (problem,) = proxy_problems({"http_proxy": "proxy:1", "all_proxy": "socks5://host"})
    assert problem.startswith("all_proxy")


@pytest.mark.parametrize("name", ["no_proxy", "NO_PROXY"])
def test_hosts_without_a_proxy_are_hosts(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one of them would be asked through the proxy."""
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.example:3128")
    for garbled in NO_EXCEPTIONS:
        monkeypatch.setenv(name, f"other.example,{garbled}")
        with pytest.raises(PrerequisiteError, match=name):
            proxy_from_environment("http://another/v1")
        (problem,) = proxy_problems({name: garbled})
        assert problem.startswith(name)
    monkeypatch.setenv(name, EXCEPTIONS)
    assert proxy_problems({name: EXCEPTIONS}) == []
    proxy_from_environment("http://other/v1")


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_each_variable_is_named(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, "ht!tp://x:y:z")
    with pytest.raises(PrerequisiteError, match=name) as raised:
        proxy_from_environment("http://host/v1")
    assert raised.value.exit_code == 3
    (problem,) = proxy_problems({name: "ht!tp://x:y:z"})
    assert problem.startswith(name)


@pytest.mark.parametrize(
    "proxy", ["http://user:pw@proxy.example:3128", "user:p@w@proxy.example:3128"]
)
def test_doctor_shows_a_proxy_without_user_and_password(proxy: str) -> None:
    env = {"HTTP_PROXY": proxy, "HF_HUB_OFFLINE": "1"}
    about = {finding.about: finding for finding in doctor._network_findings(env)}
    assert "HTTP_PROXY=proxy.example:3128" in about["proxies"].text
    for secret in ("user", "pw", "p@w"):
        assert secret not in about["proxies"].text


@pytest.mark.parametrize("value", GARBLED)
def test_doctor_names_a_variable_that_cannot_be_parsed(value: str) -> None:
    env = {"ALL_PROXY": value, "HF_HUB_OFFLINE": "1"}
    about = {finding.about: finding for finding in doctor._network_findings(env)}
    assert about["proxies"].works is False
    assert "ALL_PROXY" in about["proxies"].text
    assert "proxy-password-1" not in about["proxies"].text
