"""The process that begins the runs of a suite: one that has imported all there is to import, and forks for each.

    python -m eval_factory.workflows.suite.cell_process

To import what a run needs takes as much of the processor as the rest of a short run; a fork has it already. Where
forks are not safe (macOS: its libraries use threads of their own) a new Python is started for each run. What it is sent
and says stands in executors/runs.py; everything here ends with the suite.
"""

from __future__ import annotations

import contextlib
import gc
import importlib
import json
import os
import select
import signal
import sys
from dataclasses import asdict
from pathlib import Path
from typing import TextIO

from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import json_line, write_atomic
from eval_factory.core.this_process import collect_rarely, end_with_parent
from eval_factory.core.urls import SERVED_AT
from eval_factory.executors.runs import RUN_SPEC, RunSpec
from eval_factory.workflows.options import Options

_MODULE = "eval_factory.workflows.suite.cell_process"
CELL_PROCESS = (sys.executable, "-m", _MODULE)
ONE_CELL = "--one-cell"  # with the id of the process that starts it: one cell, whose spec is on standard input
WITHOUT_FORK = "--without-fork"
_NEEDED = (
    "eval_factory.workflows.evaluate", "eval_factory.endpoint.shared_limits", "eval_factory.executors.progress",
    "eval_factory.plan.preflight", "jsonschema", "eval_factory.scoring.collect", "eval_factory.report.write",
    "eval_factory.report.screen", "eval_factory.scoring.usage", "eval_factory.scoring.provenance", "scipy.special",
    "scipy.stats",
)  # fmt: skip
"""What a run imports at the latest when it writes its result."""
SAFE_TO_FORK = hasattr(os, "fork") and sys.platform != "darwin"


def run_cell(spec: RunSpec, screen: TextIO) -> int:
    """Evaluate one cell as `run_eval` does, and leave the record of its end. Returns the exit code."""
    from eval_factory.config.evaluation import Request
    from eval_factory.core.errors import DEFECT_EXIT_CODE
    from eval_factory.core.foreign_text import own_lines
    from eval_factory.core.secrets import Redactor, names_a_secret
    from eval_factory.workflows.evaluate import evaluate
    from eval_factory.workflows.options import code_of_error, end_record, failure_record

    if spec.served_at is not None:
        os.environ[SERVED_AT] = spec.served_at
    try:
        request = Request(run_config=Path(spec.run_config))
        probed = None if spec.probed is None else frozenset(spec.probed)
        options = Options(fresh=spec.fresh, debug=spec.debug, probed=probed, limits=spec.limits)
        evaluated = evaluate(request, options, env=os.environ, screen=screen)
        record = end_record(evaluated)
        screen.write(f"{evaluated.summary}\n")
    except BaseException as error:
        record = failure_record(error, code_of_error(error))
        screen.write(f"{record['error']['message']}\n")
        if record["exit_code"] == DEFECT_EXIT_CODE:  # what nobody expected: for whoever reads the log
            import traceback

            redactor = Redactor.from_environment(os.environ, filter(names_a_secret, os.environ))
            screen.write(own_lines(redactor.text("".join(traceback.format_exception(error)))))
    write_atomic(Path(spec.record), json_line(record), mode=PRIVATE)
    code: int = record["exit_code"]
    return code


def be_the_cell(spec: RunSpec, parent: int) -> int:
    """What the process of one cell does, from its first breath. Returns the exit code.
    `parent`: the id of the process that started it, and with which it ends."""
    from eval_factory.core.this_process import interrupt_on_signals

    if os.getpgrp() != os.getpid():
        os.setsid()  # Ctrl-C in the terminal reaches the suite alone, which tells the cells
    end_with_parent(parent)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    interrupt_on_signals()
    log = os.open(spec.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, PRIVATE)
    nowhere = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nowhere, 0), (log, 1), (log, 2)):
        os.dup2(source, target)
    os.close(nowhere)
    with os.fdopen(log, "a", encoding="utf-8", buffering=1, errors="backslashreplace") as screen:
        return run_cell(spec, screen)


def serve(commands: int, events: int, *, fork: bool) -> None:
    """Begin cells and say when they have ended, until nobody can say anything more: then this process ends, and they.

    A single thread does it, so that its forks are whole.

    Args:
        commands, events: descriptors to read from and to write to.
    """
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    names: dict[int, str] = {}
    rest = b""

    def say(**fields: str | int) -> None:
        os.write(events, (json.dumps(fields) + "\n").encode())

    while True:
        ready, _, _ = select.select([commands, woken], [], [])
        if woken in ready:
            os.read(woken, 4096)
            with contextlib.suppress(ChildProcessError):
                while (ended := os.waitpid(-1, os.WNOHANG))[0]:
                    name = names.pop(ended[0], None)
                    if name is not None:
                        say(name=name, returncode=os.waitstatus_to_exitcode(ended[1]))
        if commands in ready:
            data = os.read(commands, 65536)
            if not data:
                return
            *lines, rest = (rest + data).split(b"\n")
            for line in lines:
                spec = RUN_SPEC.validate_json(line)
                pid = _forked(spec, woken) if fork else _started(spec)
                names[pid] = spec.name
                say(name=spec.name, pid=pid)


def _forked(spec: RunSpec, woken: int) -> int:
    parent = os.getpid()
    pid = os.fork()
    if pid:
        return pid
    code = 70
    try:
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.close(woken)
        code = be_the_cell(spec, parent)
    finally:
        os._exit(code)


def _started(spec: RunSpec) -> int:
    from eval_factory.executors.process import start_python

    return start_python(["-m", _MODULE, ONE_CELL, str(os.getpid())], said=json.dumps(asdict(spec)) + "\n")


def main(arguments: list[str]) -> None:
    if arguments[:1] == [ONE_CELL]:
        spec = RUN_SPEC.validate_json(sys.stdin.readline())
        code = be_the_cell(spec, int(arguments[1]))
        os._exit(code)
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    collect_rarely()  # the records of a run live to its end
    fork = SAFE_TO_FORK and WITHOUT_FORK not in arguments
    if fork:
        for name in _NEEDED:
            importlib.import_module(name)
        gc.freeze()  # no cell's collector looks at it: its pages stay shared
    events = os.dup(1)
    os.dup2(2, 1)  # what a library prints is no message
    serve(0, events, fork=fork)
    os._exit(0)


if __name__ == "__main__":
    main(sys.argv[1:])
