"""helm-run ends when the eval-factory that started it is gone: it must not go on paying, with nobody to report to."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Mapping

from eval_factory.core.helm_run_settings import HelmRunSettings

PARENT_CHECK_S = 0.1


def end_with_parent(env: Mapping[str, str]) -> None:
    """End at once where the parent is gone already; else as soon as it is. Nothing where nobody is to be watched.

    A process whose parent ends is given to another one: its parent's id is no longer the one that `env` names.
    """
    parent = HelmRunSettings.from_environment(env).parent
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
