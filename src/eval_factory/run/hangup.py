"""A terminal that goes away: it ends a run as Ctrl-C does, but neither a run that was told to stay nor a report."""

from __future__ import annotations

import contextlib
import errno
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any, TextIO, cast

_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""None on Windows."""


def interrupt_on_signals() -> None:
    """SIGTERM and SIGHUP become a KeyboardInterrupt; what `nohup` told to ignore SIGHUP goes on doing so."""
    signal.signal(signal.SIGTERM, _interrupt)
    if _HANGUP is not None and signal.getsignal(_HANGUP) is signal.SIG_DFL:
        signal.signal(_HANGUP, _interrupt)


def _interrupt(number: int, _frame: object) -> None:
    if number == _HANGUP:  # the kernel sends it, and then the shell: the second must not interrupt the tidying
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


@contextlib.contextmanager
def not_to_be_hung_up() -> Iterator[None]:
    """What is nearly done is brought to its end, whether anybody still looks at it or not."""
    if _HANGUP is None or threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(_HANGUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(_HANGUP, before)


class _Terminal:
    """A stream to a terminal; where it has gone, what is written goes nowhere."""

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with self._borne():
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with self._borne():
            self._stream.flush()

    @contextlib.contextmanager
    def _borne(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            if error.errno not in (errno.EIO, errno.ENXIO):
                raise
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self._stream.fileno())
            os.close(nowhere)
            self._stream.flush()  # what could not be written, so that it is not tried again at the end


def that_may_go(stream: TextIO) -> TextIO:
    """`stream` itself, or where it is a terminal's, one that bears its end."""
    is_terminal = stream is not None and stream.isatty()  # None: the program was started with the stream closed
    return cast(TextIO, _Terminal(stream)) if is_terminal else stream
