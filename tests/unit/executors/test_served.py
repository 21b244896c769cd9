"""What a guard finds on its machine: whether a health URL answers, and which port is free."""

from __future__ import annotations

import socket

import pytest

from eval_factory.executors import served
from eval_factory.executors.served import FIRST_PORT, LAST_PORT, answers, free_port, is_free
from scripted_endpoint import ScriptedEndpoint


def test_a_health_url_answers_with_200_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint(lambda prompt: prompt) as endpoint:  # takes no GET
        address = endpoint.url.removesuffix("/v1")
        assert not answers(f"{address}/health", 5.0)
        monkeypatch.setattr(served, "HEALTHY", 501)
        assert answers(f"{address}/health?deep=1", 5.0)
        assert answers(address, 5.0)
    assert not answers(f"{address}/health", 5.0)


def test_a_port_is_free_where_nobody_listens() -> None:
    port = free_port()
    assert FIRST_PORT <= port <= LAST_PORT
    for host in ("127.0.0.1", ""):
        with socket.create_server((host, 0)) as one:
            assert not is_free(one.getsockname()[1])
