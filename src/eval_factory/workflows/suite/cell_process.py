"""Runs one cell of a suite in a process of its own.

    python -m eval_factory.workflows.suite.cell_process PARENT

The process reads an `ExecutorRun` as JSON from standard input. PARENT is the id of the process that
started this process; this process ends when its parent ends.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from pathlib import Path
from typing import TextIO

from eval_factory.config.evaluation import RunRequest
from eval_factory.core.errors import DEFECT_EXIT_CODE
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import json_line, write_atomic
from eval_factory.core.secrets import Redactor, names_a_secret
from eval_factory.core.this_process import (
    collect_garbage_rarely,
    end_with_parent,
    interrupt_on_signals,
)
from eval_factory.core.urls import SERVED_AT
from eval_factory.executors.runs import RUN_JSON, ExecutorRun
from eval_factory.workflows.evaluate import evaluate
from eval_factory.workflows.options import Options, end_record, exit_code_of_error, failure_record


def run_cell(run: ExecutorRun, screen: TextIO) -> int:
    """Evaluate one cell as `run_eval` does, and write the record of its end.

    Returns the exit code. Errors of the evaluation are recorded and shown on `screen`, and not
    raised.

    Raises:
        OSError: the record cannot be written.
    """
    if run.served_at is not None:
        # the addresses of the servers that the suite has started for the cell's model
        os.environ[SERVED_AT] = run.served_at
    try:
        request = RunRequest(run_config=Path(run.run_config))
        probed = None if run.probed is None else frozenset(run.probed)
        options = Options(fresh=run.fresh, debug=run.debug, probed=probed, limits=run.limits)
        evaluated = evaluate(request, options, env=os.environ, screen=screen)
        record = end_record(evaluated)
        screen.write(f"{evaluated.summary}\n")
    except BaseException as error:
        record = failure_record(error, exit_code_of_error(error))
        screen.write(f"{record['error']['message']}\n")
        if record["exit_code"] == DEFECT_EXIT_CODE:
            show_defect(error, screen)
    write_atomic(Path(run.record), json_line(record), mode=PRIVATE)
    code: int = record["exit_code"]
    return code


def show_defect(error: BaseException, screen: TextIO) -> None:
    """Write the traceback of an unexpected error, without secrets."""
    redactor = Redactor.from_environment(os.environ, filter(names_a_secret, os.environ))
    screen.write(printable_lines(redactor.redact_text("".join(traceback.format_exception(error)))))


def main(parent: int) -> int:
    """Read the `ExecutorRun`, redirect the output to the cell's log, and run the cell.

    `parent`: the id of the parent process. Returns the exit code.
    """
    # Most records of a run live until its end: frequent garbage collection would free nothing.
    collect_garbage_rarely()
    run = RUN_JSON.validate_json(sys.stdin.readline())
    end_with_parent(parent)
    # `interrupt_on_signals` handles SIGINT only if it has Python's own handler. Python does not set
    # this handler if the parent process ignores SIGINT.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt_on_signals()
    log = os.open(run.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    # From here on, standard input is empty, and standard output and standard error are the log.
    null_device = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null_device, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(null_device)
    with os.fdopen(log, "a", encoding="utf-8", buffering=1, errors="backslashreplace") as screen:
        return run_cell(run, screen)


if __name__ == "__main__":
    code = DEFECT_EXIT_CODE  # the exit code if `main` raises an error
    try:
        code = main(int(sys.argv[1]))
    except BaseException as raised:
        show_defect(raised, sys.stderr)
    finally:
        os._exit(code)  # unlike sys.exit, does not wait for threads that still run
