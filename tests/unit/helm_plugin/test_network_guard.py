"""Tests of where helm-run may connect to; the settings of one that somebody starts by hand."""

from __future__ import annotations

import socket
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from eval_factory.core.helm_run_settings import SETTINGS_VARIABLE, HelmRunSettings, Pins
from eval_factory.core.urls import host_and_port_of
from eval_factory.endpoint.connections import Transport
from eval_factory.endpoint.proxies import proxy_for
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.network_guard import (
    BlockedConnectionError,
    NetworkGuard,
    set_variables_of_settings_file,
)
from facts import naming
from scripted_endpoint import ScriptedEndpoint


def guarding() -> NetworkGuard:
    guard = NetworkGuard([("host.example", 443), ("10.0.0.1", 8000)])
    guard.learn("host.example", ["10.0.0.2"])
    return guard


@pytest.mark.parametrize(
    ("event", "argument"),
    [
        ("socket.connect", ("10.0.0.1", 443)),
        ("socket.connect", ("93.184.216.34", 443)),
        ("socket.connect", ("::1", 1, 0, 0)),
        ("socket.connect", ("10.0.0.2", 80)),
        ("socket.sendto", ("8.8.8.8", 53)),
        ("socket.connect", (b"elsewhere", 443)),
    ],
)
def test_addresses_that_are_no_endpoints(event: str, argument: object) -> None:
    guard = guarding()
    told: list[str] = []
    guard.report = told.append
    with pytest.raises(BlockedConnectionError, match=r"only host\.example:443, 10\.0\.0\.1:8000"):
        guard.audit(event, (None, argument))
    assert len(told) == 1
    assert told == guard.blocked


@pytest.mark.parametrize(
    "argument", [("10.0.0.1", 8000), ("10.0.0.2", 443), "/run/socket", None, ("10.0.0.3", 5)]
)
def test_addresses_that_are(argument: object) -> None:
    guard = guarding()
    guard.allow("10.0.0.3", 5)
    guard.audit("socket.connect", (None, argument))
    assert guard.blocked == []


@pytest.mark.parametrize(
    ("url", "spellings"),
    [
        (
            "http://llm.svc.cluster.local.:18081/v1",
            ["llm.svc.cluster.local.", "llm.svc.cluster.local", b"LLM.svc.cluster.local."],
        ),
        ("http://llm.svc.cluster.local:18081/v1", ["llm.svc.cluster.local."]),
        (
            "http://M\u00dcNCHEN.test:18081/v1",
            ["m\u00fcnchen.test", "xn--mnchen-3ya.test", b"xn--mnchen-3ya.test."],
        ),
        ("http://stra\u00dfe.test:18081/v1", ["xn--strae-oqa.test"]),
    ],
)
def test_a_host_is_the_same_however_it_is_written(url: str, spellings: list[str]) -> None:
    place = host_and_port_of(url)
    assert place is not None
    guard = NetworkGuard([place])
    for spelling in spellings:
        guard.audit("socket.getaddrinfo", (spelling, 18081, 0, 0, 0))
        guard.learn(spelling, ["10.0.0.2"])
        guard.audit("socket.connect", (None, (spelling, 18081)))
    guard.audit("socket.connect", (None, ("10.0.0.2", 18081)))
    assert guard.blocked == []


def test_the_name_of_an_address_is_asked_for_an_endpoint_only() -> None:
    guard = guarding()
    guard.learn("elsewhere.example", ["10.0.0.3"])
    for host in ("10.0.0.1", "10.0.0.2", "127.0.0.1", "::1", "host.example", ""):
        guard.audit("socket.gethostbyaddr", (host,))
        guard.audit("socket.getnameinfo", ((host, 80),))
    assert guard.blocked == []
    for host in ("8.8.8.8", "2001:db8::1", "10.0.0.3", "api.github.com"):
        for event, argument in (
            ("socket.gethostbyaddr", host),
            ("socket.getnameinfo", (host, 80, 0, 0)),
        ):
            with pytest.raises(BlockedConnectionError):
                guard.audit(event, (argument,))


def test_sockets_of_other_families() -> None:
    guard = NetworkGuard([])
    with socket.socket() as usual:
        guard.audit("socket.bind", (usual, ("127.0.0.1", 0)))
    for family in (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX, -1):
        guard.audit("socket.__new__", (None, family, socket.SOCK_DGRAM, 0))
    assert guard.blocked == []
    with pytest.raises(BlockedConnectionError, match=naming("AF_PACKET")):
        guard.audit("socket.__new__", (None, 17, socket.SOCK_RAW, 0))
    with pytest.raises(BlockedConnectionError):
        guard.audit("socket.bind", (SimpleNamespace(family=17), ("eth0", 0)))


def test_names() -> None:
    guard = NetworkGuard([("host.example", 443)])
    for name in ("host.example", b"HOST.example", "Host.Example.", "", None, "127.0.0.1", "::1"):
        guard.audit("socket.getaddrinfo", (name, 443, 0, 0, 0))
    for event in ("socket.getaddrinfo", "socket.gethostbyname"):
        with pytest.raises(BlockedConnectionError, match=naming("api.github.com")):
            guard.audit(event, ("api.github.com", 443, 0, 0, 0))
    guard.audit("open", ("file", "r", 0))


def test_the_endpoints_proxy_is_the_one_that_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://other.example:1")
    assert proxy_for("http://host.example/v1") == "http://other.example:1"
    told = HelmRunSettings(proxies={"http://host.example": "http://proxy.example:2"})
    monkeypatch.setenv(SETTINGS_VARIABLE, told.environment()[SETTINGS_VARIABLE])
    assert proxy_for("http://host.example/v1") == "http://proxy.example:2"
    assert proxy_for("http://host.example:8/v1") is None
    with ScriptedEndpoint(lambda _: "yes") as endpoint:
        transport = Transport(endpoint.url, timeout_s=5)
        assert (
            transport.post(f"{endpoint.url}/completions", {"prompt": "p", "model": "m"}).status
            == 200
        )


ENVIRONMENT = {
    "PATH": "/bin",
    "HF_HOME": "/shell",
    "HTTPS_PROXY": "http://user:secret@proxy.example:3128",
}


@pytest.fixture
def argv(tmp_path: Path) -> list[str]:
    return ["helm-run", "--suite", "s", "--local-path", str(tmp_path), "--plugins", "p"]


def test_they_are_taken_over_those_of_the_shell(argv: list[str], tmp_path: Path) -> None:
    env = dict(ENVIRONMENT)
    for without_a_file in (argv, ["helm-run"]):
        set_variables_of_settings_file(without_a_file, env)
    assert env == ENVIRONMENT
    settings = HelmRunSettings(pins=Pins(hub={"a": "b"}), library_variables={"HF_HOME": "/bundle"})
    (tmp_path / "settings.json").write_text(settings.file_text())
    started_by_eval_factory = {
        **env,
        SETTINGS_VARIABLE: HelmRunSettings().environment()[SETTINGS_VARIABLE],
    }
    set_variables_of_settings_file(argv, started_by_eval_factory)
    assert started_by_eval_factory["HF_HOME"] == "/shell", "it has set them itself"
    set_variables_of_settings_file(argv, env)
    assert env == {**ENVIRONMENT, **settings.environment()}
    assert env["HF_HOME"] == "/bundle"


def test_the_folder_may_be_joined_to_its_option(tmp_path: Path) -> None:
    settings = HelmRunSettings(library_variables={"HF_HOME": "/bundle"})
    (tmp_path / "settings.json").write_text(settings.file_text())
    env = dict(ENVIRONMENT)
    set_variables_of_settings_file(["helm-run", "--local-path"], env)
    assert env == ENVIRONMENT, "helm-run itself refuses an option without a value"
    set_variables_of_settings_file(["helm-run", f"--local-path={tmp_path}"], env)
    assert env["HF_HOME"] == "/bundle"


def test_offline_a_proxy_leads_to_the_endpoint_only(
    argv: list[str], tmp_path: Path, monkeypatch: Any
) -> None:
    env = dict(ENVIRONMENT)
    proxies = {"https://host.example": ENVIRONMENT["HTTPS_PROXY"]}
    (tmp_path / "settings.json").write_text(
        HelmRunSettings(allowed=(), proxies=proxies).file_text()
    )
    monkeypatch.setattr(network_guard, "proxy_from_environment", lambda _url: env["HTTPS_PROXY"])
    set_variables_of_settings_file(argv, env)
    told = HelmRunSettings(allowed=(), proxies=proxies).environment()
    assert env == {"PATH": "/bin", "HF_HOME": "/shell", **told}
