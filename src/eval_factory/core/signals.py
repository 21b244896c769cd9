"""A terminal that goes away: it ends a run as Ctrl-C does, but neither a run that was told to stay nor a report."""

from __future__ import annotations

import contextlib
import signal
import threading
from collections.abc import Iterator

_HANGUP: signal.Signals | None = getattr(signal, "SIGHUP", None)
"""None on Windows."""


def interrupt_on_signals() -> None:
    """SIGTERM and SIGHUP become a KeyboardInterrupt; what `nohup` told to ignore SIGHUP goes on doing so."""
    signal.signal(signal.SIGTERM, _interrupt)
    if _HANGUP is not None and signal.getsignal(_HANGUP) is signal.SIG_DFL:
        signal.signal(_HANGUP, _interrupt)


def forget_interrupts() -> None:
    """Let the exit code be the one that is asked for.

    An interrupt inside an `exec` of text (a dataclass is made so) is noted by CPython even where it is caught, and
    `python -m` then ends with SIGINT instead of the code. The next `exec` of text takes the note away.
    """
    exec("")  # noqa: S102


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
    if signal.getsignal(_HANGUP) is None:  # the handler of a program in C that Python runs in: it could not be put back
        yield
        return
    before = signal.signal(_HANGUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(_HANGUP, before)
