"""In a process of its own: nothing but the endpoint is reached."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.urls import host_and_port_of
from scripted_endpoint import ScriptedEndpoint

ATTEMPTS = """
import asyncio, ctypes, json, socket, sys, urllib.request
import requests, urllib3
from eval_factory.helm_plugin import network_guard
network_guard.read_settings_and_set_guard()
network_guard.read_settings_and_set_guard()
url, port = sys.argv[1], int(sys.argv[2])
def reached(ask):
    try:
        ask()
        return "reached"
    except BaseException as error:
        return type(error).__name__
async def stream():
    await asyncio.open_connection("127.0.0.1", port)
def datagram():
    socket.socket(socket.AF_INET, socket.SOCK_DGRAM).sendto(b"x", ("127.0.0.1", port))
other = f"http://127.0.0.1:{port}/"
print(json.dumps({
    "endpoint": reached(lambda: requests.post(url, json={"prompt": "p", "model": "m"}, timeout=5).raise_for_status()),
    "requests": reached(lambda: requests.get(other, timeout=5)),
    "urllib": reached(lambda: urllib.request.urlopen(other, timeout=5)),
    "urllib3": reached(lambda: urllib3.PoolManager().request("GET", other, retries=False)),
    "socket": reached(lambda: socket.create_connection(("127.0.0.1", port))),
    "connect_ex": reached(lambda: socket.socket().connect_ex(("127.0.0.1", port))),
    "asyncio": reached(lambda: asyncio.run(stream())),
    "datagram": reached(datagram),
    "name": reached(lambda: socket.gethostbyname("api.github.com")),
    "name of an address": reached(lambda: socket.gethostbyaddr("8.8.8.8")),
    "name of a place": reached(lambda: socket.getnameinfo(("198.51.100.7", 80), 0)),
    "frames": reached(lambda: socket.socket(17, socket.SOCK_RAW)),
    "blocked": len(network_guard.current_guard().blocked),
}))
"""


def test_nothing_but_the_endpoint_is_reached_by_any_library(
    endpoint_and_other: tuple[str, ScriptedEndpoint],
) -> None:
    url, other = endpoint_and_other
    place = host_and_port_of(url)
    port = host_and_port_of(other.url)
    assert place is not None
    assert port is not None
    env = {"PATH": os.environ["PATH"], **HelmRunSettings(allowed=(place,)).environment()}
    finished = subprocess.run(
        [sys.executable, "-c", ATTEMPTS, f"{url}/completions", str(port[1])],
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    found = json.loads(finished.stdout)
    assert found.pop("endpoint") == "reached", finished.stderr
    assert found.pop("blocked") >= 11
    assert "reached" not in found.values()
    assert {found[name] for name in ("name of an address", "name of a place", "frames")} == {
        "BlockedConnectionError"
    }
    assert other.paths == []


@pytest.fixture
def endpoint_and_other():  # type: ignore[no-untyped-def]
    with ScriptedEndpoint(lambda _: "yes") as endpoint, ScriptedEndpoint(lambda _: "yes") as other:
        yield endpoint.url, other
