"""Streams that nobody reads any more, that are closed, or that have another encoding."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

from eval_factory.cli.console import flush_or_silence, make_ready, silence


@pytest.fixture
def pipe() -> Iterator[tuple[int, TextIO]]:
    """The end that is read, and a stream that writes into the other."""
    reads, writes = os.pipe()
    stream = os.fdopen(writes, "w", encoding="utf-8")
    yield reads, stream
    with contextlib.suppress(OSError):  # a test has closed it
        os.close(reads)
    with contextlib.suppress(OSError):
        stream.close()


def test_a_silenced_stream_writes_nowhere(pipe: tuple[int, TextIO]) -> None:
    reads, stream = pipe
    stream.write("in the buffer")
    before = len(list(Path("/proc/self/fd").iterdir()))
    silence(stream)
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    stream.write("later")
    stream.flush()
    assert os.read(reads, 100) == b""  # its other end is closed, and nothing came
    silence(io.StringIO())  # no descriptor: nothing to do


def test_a_buffer_is_emptied_or_given_up(pipe: tuple[int, TextIO]) -> None:
    reads, stream = pipe
    stream.write("kept")
    flush_or_silence(stream)
    assert os.read(reads, 100) == b"kept"
    stream.write("lost")
    os.close(reads)
    flush_or_silence(stream)
    stream.close()  # would raise BrokenPipeError
    flush_or_silence(stream)


class Started(Exception):
    """Stands for the program that takes this one's place."""


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """Arguments of the programs that are begun in place of this one."""
    found: list[tuple[Any, ...]] = []

    def execv(*arguments: Any) -> None:
        found.append(arguments)
        raise Started

    monkeypatch.setattr("os.execv", execv)
    monkeypatch.setattr(sys, "orig_argv", ["python", "-m", "eval_factory", "ls"])
    monkeypatch.setenv("PYTHONUTF8", "0")
    monkeypatch.setenv("PYTHONIOENCODING", "latin-1")
    return found


def test_where_the_locale_is_not_utf_8_the_program_begins_again(
    started: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "ascii")
    with pytest.raises(Started):
        make_ready()
    assert started == [(sys.executable, [sys.executable, "-X", "utf8", "-m", "eval_factory", "ls"])]
    assert os.environ["PYTHONUTF8"] == "1"
    make_ready()  # it was begun again already: once is enough
    assert len(started) == 1


def test_helm_run_gets_utf_8_and_streams_take_any_text(
    started: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    latin, utf_8 = (io.TextIOWrapper(io.BytesIO(), encoding=name) for name in ("latin-1", "UTF8"))
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "UTF-8")
    monkeypatch.setattr(sys, "stdout", latin)
    monkeypatch.setattr(sys, "stderr", utf_8)
    make_ready()
    assert started == []
    assert os.environ["PYTHONUTF8"] == "1"
    assert "PYTHONIOENCODING" not in os.environ
    assert (latin.errors, utf_8.errors) == ("backslashreplace", "strict")
    latin.write("é \u2028")
    latin.flush()
    assert latin.buffer.getvalue() == b"\xe9 \\u2028"


@pytest.mark.usefixtures("started")
def test_a_stream_that_was_closed_goes_nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "utf-8")
    monkeypatch.setattr(sys, "stdout", None)
    make_ready()
    made = sys.stdout
    print("nowhere")
    assert (made.name, made.encoding) == (os.devnull, "utf-8")
    made.close()


@pytest.mark.usefixtures("started")
def test_a_descriptor_that_was_closed_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    """Or the first file that the program opens would be its standard output."""
    opened: list[tuple[Any, ...]] = []

    known = os.fstat

    def fstat(descriptor: int) -> os.stat_result:
        if descriptor == 1:
            raise OSError(9, "Bad file descriptor")
        return known(descriptor)

    monkeypatch.setattr(sys, "getfilesystemencoding", lambda: "utf-8")
    with monkeypatch.context() as patched:
        patched.setattr("os.fstat", fstat)
        patched.setattr("os.open", lambda *arguments: opened.append(arguments))
        make_ready()
    assert opened == [(os.devnull, os.O_RDWR)]
