"""Controls the current process: its signals, its end, and its garbage collection.

This module imports only the standard library, because some processes must start within
milliseconds.
"""

from __future__ import annotations

import atexit
import contextlib
import gc
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType


def interrupt_on_signals() -> None:
    """Raise KeyboardInterrupt for SIGINT, SIGTERM and SIGHUP, and never lose a signal.

    Signals that are ignored stay ignored (`nohup`). Two traps are avoided. Python drops an
    exception that is raised in a destructor or in a weak reference's callback. And an exception
    that is raised while Python acquires an import lock leaves the lock acquired, so that other
    threads wait forever. In both cases, KeyboardInterrupt is raised a moment later.
    """
    signal.signal(signal.SIGTERM, _interrupt)
    signal.signal(signal.SIGALRM, _interrupt)  # the signal of `_interrupt_soon`
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:
        signal.signal(signal.SIGINT, _interrupt)
    if signal.getsignal(signal.SIGHUP) is signal.SIG_DFL:
        signal.signal(signal.SIGHUP, _interrupt)
    if sys.unraisablehook.__module__ != __name__:  # else this module's hook is installed already
        _raise_dropped_interrupts_later()


@contextlib.contextmanager
def interruptible() -> Iterator[None]:
    """Make sure that SIGINT is not lost inside the context, also in a user's process (a notebook).

    Nothing is changed if the process has its own signal handlers, or outside the main thread.
    """
    # both: (the handler of SIGINT, the handler of SIGALRM)
    usual_handlers = (signal.default_int_handler, signal.SIG_DFL)
    current_handlers = (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGALRM))
    # Python allows signal handlers in the main thread only.
    if (
        threading.current_thread() is not threading.main_thread()
        or current_handlers != usual_handlers
    ):
        yield
        return
    usual_hook = sys.unraisablehook
    signal.signal(signal.SIGALRM, _interrupt)
    signal.signal(signal.SIGINT, _interrupt)
    _raise_dropped_interrupts_later()
    try:
        yield
    finally:
        # Stop the timer of `_interrupt_soon`; the call returns the time that was left.
        time_left, _ = signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGINT, usual_handlers[0])
        signal.signal(signal.SIGALRM, usual_handlers[1])
        sys.unraisablehook = usual_hook
        if time_left:  # a postponed interrupt was not raised yet
            raise KeyboardInterrupt


def _raise_dropped_interrupts_later() -> None:
    """Make sure that each KeyboardInterrupt that Python drops is raised again a moment later.

    Python passes a dropped exception to `sys.unraisablehook`.
    """
    usual_hook = sys.unraisablehook

    def hook(dropped: sys.UnraisableHookArgs) -> None:
        if issubclass(dropped.exc_type, KeyboardInterrupt):
            _interrupt_soon()
        else:
            usual_hook(dropped)

    sys.unraisablehook = hook


def forget_interrupts() -> None:
    """Make sure that the process ends with its exit code after a caught KeyboardInterrupt.

    If KeyboardInterrupt is raised inside an `exec` of text (as in the definition of a dataclass),
    CPython sets a flag, even if the exception is caught. `python -m` then ends with SIGINT instead
    of the exit code. Another `exec` of text clears the flag.
    """
    exec("")  # noqa: S102 - the text is empty


def _interrupt(number: int, frame: FrameType | None) -> None:
    """Handle a signal: raise KeyboardInterrupt, a moment later if an import is running."""
    # The kernel and the shell both send SIGHUP: the second one must not interrupt the cleanup.
    if number == signal.SIGHUP:
        signal.signal(number, signal.SIG_IGN)
    if _is_in_an_import(frame):
        _interrupt_soon()
    else:
        raise KeyboardInterrupt


def _is_in_an_import(frame: FrameType | None) -> bool:
    """Return True if a signal interrupted Python's import system.

    Frames of this module are skipped: a second signal may interrupt the handler of the first one,
    and its exception then reaches the code that the first signal interrupted.
    """
    own_file = _is_in_an_import.__code__.co_filename
    while frame is not None and frame.f_code.co_filename == own_file:
        frame = frame.f_back
    return frame is not None and frame.f_code.co_filename.startswith("<frozen importlib")


def _interrupt_soon() -> None:
    """Raise KeyboardInterrupt after a millisecond, by SIGALRM."""
    signal.setitimer(signal.ITIMER_REAL, 0.001)


@contextlib.contextmanager
def ignore_sighup() -> Iterator[None]:
    """Ignore SIGHUP inside the context, so that its work is finished if the terminal is closed."""
    # None is the handler of a C program that embeds Python: it could not be restored.
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGHUP) is None
    ):
        yield
        return
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def end_with_parent(parent: int | None) -> None:
    """End this process as soon as its parent process has ended.

    When a parent ends, the system gives the child another parent, so the id of the parent changes.

    Args:
        parent: the id of the parent process; None: do nothing.
    """
    if parent is None:
        return
    if os.getppid() != parent:
        _end()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(0.1)
        _end()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _end() -> None:
    """End this process and all processes that it started at once.

    No cleanup is needed, because each answer is committed when it arrives.
    """
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)  # this process is in the group, and ends here
    os._exit(1)


GC_THRESHOLD = 100_000
"""The number of new objects after which Python collects garbage; Python's default is 700. A
collection takes 10 ms, and the dry run of a suite makes fewer objects than this.
"""


def collect_garbage_rarely() -> None:
    """Collect garbage rarely, and not when the process ends.

    At the end, Python would examine all objects twice, although the system frees their memory.
    """
    # Older objects are examined after 20 collections of younger ones; Python's default is 10.
    gc.set_threshold(GC_THRESHOLD, 20, 20)
    atexit.register(gc.freeze)
