from __future__ import annotations

import contextlib
import os
import resource
import socket
import threading
from pathlib import Path

import pytest

from eval_factory.core import handed_over
from eval_factory.core.handed_over import HandedOver, limit_of_open_files, received


def told(message: HandedOver, file: Path) -> HandedOver | None:
    """What the other side of a socket hears; its part is read in another thread, for a socket holds little."""
    ours, theirs = socket.socketpair()
    heard: list[HandedOver | None] = []
    with ours, theirs, file.open() as opened:
        reader = threading.Thread(target=lambda: heard.append(received(theirs)))
        reader.start()
        message.send(ours, opened.fileno())
        reader.join()
    return heard[0]


def test_it_arrives_as_it_was_sent(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.write_text("the lock")
    message = HandedOver(["--run-entries", "a:b=\N{LATIN SMALL LETTER E WITH ACUTE}"], {"K": "v\udcff" * 300_000}, 77)
    assert told(message, file) == message
    assert told(HandedOver([], {}), file) == HandedOver([], {}, None)


def test_the_descriptor_stays_open(tmp_path: Path) -> None:
    file = tmp_path / "lock"
    file.write_text("the lock")
    before = set(os.listdir("/dev/fd"))  # noqa: PTH208
    assert told(HandedOver([], {}), file) is not None
    mine = [int(name) for name in set(os.listdir("/dev/fd")) - before if is_open(int(name), file)]  # noqa: PTH208
    assert len(mine) == 1
    os.close(mine[0])


def is_open(descriptor: int, file: Path) -> bool:
    """One of them was of the listing itself, and is closed."""
    with contextlib.suppress(OSError):
        return os.fstat(descriptor).st_ino == file.stat().st_ino
    return False


def test_nobody_is_there_any_more() -> None:
    ours, theirs = socket.socketpair()
    ours.close()
    with theirs:
        assert received(theirs) is None


@pytest.mark.parametrize("whole", [handed_over._LENGTH.pack(9)[:3], handed_over._LENGTH.pack(9) + b"half"])
def test_whoever_sent_it_ended_on_the_way(whole: bytes) -> None:
    ours, theirs = socket.socketpair()
    ours.sendall(whole)
    ours.close()
    with theirs:
        assert received(theirs) is None


def test_to_send_to_nobody_is_an_error(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    with ours, (tmp_path / "lock").open("w") as file, pytest.raises(OSError, match=r"pipe|reset"):
        HandedOver([], {}).send(ours, file.fileno())


def test_nothing_is_kept_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    before = dict(os.environ)
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    monkeypatch.setenv("OF_BEFORE", "x")
    try:
        HandedOver([], {"OF_THE_RUN": "y"}, limits[0] - 1).take()
        assert dict(os.environ) == {"OF_THE_RUN": "y"}
        assert limit_of_open_files() == limits[0] - 1
        assert resource.getrlimit(resource.RLIMIT_NOFILE)[1] == limits[1]
        HandedOver([], {}).take()
        assert limit_of_open_files() == limits[0] - 1
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
        os.environ.clear()
        os.environ.update(before)
