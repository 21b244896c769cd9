"""The process that asks one part of an evaluation.

    python -m eval_factory.workflows.sharding.shard_process FOLDER

FOLDER is a shard's, as `shard_folders.make_ready` leaves it; nobody else may work in it meanwhile. Keys are taken from
the environment. The exit code is helm-run's, 128 and the signal where one ended it, 130 after an interrupt. Who names
itself in EVAL_FACTORY_PARENT takes this process with it when it ends.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
import time
from pathlib import Path

from eval_factory.core.errors import EvalFactoryError, InterruptedRunError
from eval_factory.core.helm_run_settings import PARENT, RUN_ID, HelmRunSettings, read_file
from eval_factory.core.redaction import Redactor
from eval_factory.core.rundir import RunDir
from eval_factory.core.shard_spec import ShardSpec
from eval_factory.core.signals import interrupt_on_signals
from eval_factory.executors.base import ProcessSpec
from eval_factory.executors.process import run_logged
from eval_factory.helm import names
from eval_factory.workflows.sharding.shard_ends import SIGNALLED

PARENT_CHECK_S = 0.1


def main(folder: Path) -> int:
    """Returns the exit code."""
    try:
        return ask_part(folder)
    except KeyboardInterrupt:
        return InterruptedRunError.exit_code
    except EvalFactoryError as error:
        print(error, flush=True)
        return error.exit_code


def ask_part(folder: Path) -> int:
    """Run helm-run for one part, and say what it said last.

    Raises:
        BusyError: another process works in the folder.
        PrerequisiteError: helm-run is not there.
    """
    spec, rundir = ShardSpec.read(folder), RunDir(folder)
    redactor = Redactor.from_environment(os.environ, spec.secrets)
    with rundir.locked(lambda text: print(text, flush=True)) as lock:
        told = ProcessSpec(spec.argv, environment_of(spec, rundir), rundir, lock, spec.run_id, redactor)
        finished = run_logged(told, log=rundir.helm_log, on_tick=lambda: None)
    for line in finished.tail:
        print(line, flush=True)
    return finished.returncode if finished.returncode >= 0 else SIGNALLED - finished.returncode


def environment_of(spec: ShardSpec, rundir: RunDir) -> dict[str, str]:
    """What this process sees, and what the file of settings says that it does not."""
    settings = read_file((rundir.model_configs / names.SETTINGS).read_text(encoding="utf-8"))
    return {**settings.variables, **os.environ, RUN_ID: spec.run_id, PARENT: str(os.getpid())}


def end_with_parent() -> None:
    """End as soon as the process does that is named so; helm-run then sees that this one is gone."""
    parent = HelmRunSettings.from_environment(os.environ).parent
    if parent is None:
        return

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(PARENT_CHECK_S)
        os.kill(os.getpid(), signal.SIGKILL)

    threading.Thread(target=watch, name="parent-watch", daemon=True).start()


if __name__ == "__main__":
    end_with_parent()
    interrupt_on_signals()
    sys.exit(main(Path(sys.argv[1])))
