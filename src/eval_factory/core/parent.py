"""A process ends when the one that started it is gone, however that ended: with nobody to report to it does no more.

It knows the standard library alone, for processes that have to be there within milliseconds.
"""

from __future__ import annotations

import os
import signal
import threading
import time

PARENT_CHECK_S = 0.1


def end_with_parent(parent: int | None) -> None:
    """End at once where the parent is gone already; else as soon as it is.

    A process whose parent ends is given to another one: its parent's id is no longer this one.

    Args:
        parent: the id of the process that started this one; None: nobody is watched.
    """
    if parent is None:
        return
    if os.getppid() != parent:
        _end()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_S)
        _end()

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


def _end() -> None:
    """With all that was started here. Answers are committed as they come, so there is nothing to tidy."""
    if os.getpgrp() == os.getpid():
        os.killpg(os.getpid(), signal.SIGKILL)
    os._exit(1)
