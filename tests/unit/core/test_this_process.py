from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator

import pytest

from eval_factory.core import this_process
from eval_factory.core.this_process import ignore_sighup, interrupt_on_signals


@pytest.fixture(autouse=True)
def _handlers() -> Iterator[None]:
    before = {number: signal.getsignal(number) for number in (signal.SIGHUP, signal.SIGTERM)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


def test_the_first_hangup_interrupts_and_the_second_does_not() -> None:
    """SIGHUP is also ignored inside `ignore_sighup`."""
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    interrupt_on_signals()
    with ignore_sighup():
        signal.raise_signal(signal.SIGHUP)
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


def test_another_thread_leaves_signals_alone() -> None:
    found: list[object] = []

    def elsewhere() -> None:
        with ignore_sighup():
            found.append(signal.getsignal(signal.SIGHUP))

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()
    assert found == [signal.getsignal(signal.SIGHUP)]


def test_a_second_signal_in_the_handler_of_the_first_leaves_an_import_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An exception of the second signal would leave the import lock acquired."""
    put_off: list[int] = []

    def soon() -> None:
        put_off.append(len(put_off))
        if len(put_off) == 1:
            this_process._interrupt(signal.SIGALRM, sys._getframe(1))

    monkeypatch.setattr(this_process, "_interrupt_soon", soon)
    interrupt_on_signals()
    names = {"raise_signal": signal.raise_signal, "SIGTERM": signal.SIGTERM}
    text = "raise_signal(SIGTERM)"
    eval(compile(text, "<frozen importlib._bootstrap>", "eval"), names)  # noqa: S307 - our text
    assert put_off == [0, 1]
    with pytest.raises(KeyboardInterrupt):
        eval(compile(text, "a_module.py", "eval"), names)  # noqa: S307
