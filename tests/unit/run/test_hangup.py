from __future__ import annotations

import errno
import io
import os
import pty
import signal
import threading
from collections.abc import Iterator

import pytest

from eval_factory.run.hangup import interrupt_on_signals, not_to_be_hung_up, that_may_go


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_hangup_interrupts_and_the_second_does_not() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    interrupt_on_signals()
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)
    signal.raise_signal(signal.SIGHUP)
    for _ in range(2):
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGTERM)


def test_what_was_told_to_stay_stays() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    interrupt_on_signals()
    signal.raise_signal(signal.SIGHUP)
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN


def test_while_something_is_brought_to_its_end_nothing_hangs_it_up() -> None:
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    interrupt_on_signals()
    with not_to_be_hung_up():
        signal.raise_signal(signal.SIGHUP)
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGHUP)


def test_another_thread_leaves_signals_alone() -> None:
    found: list[object] = []

    def elsewhere() -> None:
        with not_to_be_hung_up():
            found.append(signal.getsignal(signal.SIGHUP))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGHUP)]


def test_a_terminal_that_goes_is_borne() -> None:
    outer, inner = pty.openpty()
    with os.fdopen(inner, "w", buffering=1) as terminal:
        stream = that_may_go(terminal)
        assert stream.write("seen\n") == 5
        assert os.read(outer, 100).startswith(b"seen")
        assert stream.isatty()
        assert stream.encoding == terminal.encoding
        os.close(outer)
        assert stream.write("one\n") == 4
        stream.flush()
        print("two", file=stream, flush=True)
        assert not stream.isatty()


def test_other_errors_are_told() -> None:
    class Full(io.StringIO):
        def isatty(self) -> bool:
            return True

        def write(self, text: str) -> int:
            raise OSError(errno.ENOSPC, "full")

    with pytest.raises(OSError, match="full"):
        that_may_go(Full()).write("x")


def test_what_is_no_terminal_is_left_alone() -> None:
    stream = io.StringIO()
    assert that_may_go(stream) is stream
    assert that_may_go(None) is None  # type: ignore[arg-type]
