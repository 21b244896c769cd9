"""Tests of what a guard finds on its machine: whether a health URL answers, and whose a port is."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from eval_factory.executors import served
from eval_factory.executors.served import (
    FIRST_PORT,
    LAST_PORT,
    TOKEN_VARIABLE,
    free_port,
    is_foreign_port,
    is_free,
    is_healthy,
)
from scripted_endpoint import ScriptedEndpoint


def test_a_health_url_answers_with_200_or_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    with ScriptedEndpoint(lambda prompt: prompt) as endpoint:  # takes no GET
        address = endpoint.url.removesuffix("/v1")
        assert not is_healthy(f"{address}/health", 5.0)
        monkeypatch.setattr(served, "HEALTHY", 501)
        assert is_healthy(f"{address}/health?deep=1", 5.0)
        assert is_healthy(address, 5.0)
    assert not is_healthy(f"{address}/health", 5.0)


PORT = 8000
INODE = 4711
HEAD = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"


def test_a_port_is_free_where_nobody_listens() -> None:
    port = free_port()
    assert FIRST_PORT <= port <= LAST_PORT
    for host in ("127.0.0.1", ""):
        with socket.create_server((host, 0)) as one:
            assert not is_free(one.getsockname()[1])


def proc_of(
    folder: Path, *, state: str = "0A", uid: int | None = None, environ: bytes = b""
) -> Path:
    """As /proc: one listener, and one process that has it open."""
    (folder / "net").mkdir()
    own = os.getuid() if uid is None else uid
    line = f"   0: 0100007F:{PORT:04X} 00000000:0000 {state} 00000000:00000000 00:00000000 00000000 {own} 0 {INODE} 1\n"
    (folder / "net" / "tcp6").write_text(HEAD + line)
    for number, (target, text) in enumerate([(f"socket:[{INODE}]", environ), ("socket:[1]", b"")]):
        fds = folder / str(100 + number) / "fd"
        fds.mkdir(parents=True)
        (fds / "3").symlink_to(target)
        (fds.parent / "environ").write_bytes(text)
    (folder / "self").mkdir()
    (folder / "102").mkdir()  # it has just ended
    return folder


def test_ours_is_known_by_its_token(tmp_path: Path) -> None:
    proc = proc_of(tmp_path, environ=f"A=b\0{TOKEN_VARIABLE}=abc\0".encode())
    asked = [(PORT, "abc"), (PORT, "ab"), (PORT + 1, "ab")]
    assert [is_foreign_port(port, token, proc) for port, token in asked] == [False, True, False]


@pytest.mark.parametrize(
    ("changes", "is_so"),
    [
        ({"environ": b"A=b"}, True),
        ({"state": "01"}, False),
        ({"uid": os.getuid() + 1}, True),
    ],
    ids=["another program of this user", "a connection", "another user"],
)
def test_somebody_elses(tmp_path: Path, changes: dict[str, object], is_so: bool) -> None:
    proc = proc_of(tmp_path, **changes)  # type: ignore[arg-type]
    assert is_foreign_port(PORT, "abc", proc) is is_so


def test_what_root_has_may_lead_to_a_container_of_ours(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 1234)
    assert not is_foreign_port(PORT, "abc", proc_of(tmp_path, uid=0))


def test_where_the_system_does_not_say(tmp_path: Path) -> None:
    assert not is_foreign_port(PORT, "abc", tmp_path / "absent")
    proc = proc_of(tmp_path)
    (proc / "100" / "environ").unlink()
    assert not is_foreign_port(PORT, "abc", proc)
