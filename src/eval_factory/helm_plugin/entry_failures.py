"""Many entries in one helm-run: one that cannot be made into run specs is told, and the others run.

HELM makes the run specs of all entries before it runs the first, and some of its functions download files there
(legalbench, raft) or need a package that is not installed: one of them would end the whole helm-run.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from eval_factory.core import events
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.helm_plugin.session import session_for

_not_made: list[str] = []


def not_made() -> int:
    """How many entries could not be made into runs."""
    return len(_not_made)


def isolate_failing_entries() -> None:
    from helm.benchmark import run, runner

    construct = run.construct_run_specs

    def construct_or_tell(spec: Any) -> list[Any]:
        try:
            made: list[Any] = construct(spec)
            return made
        except Exception as error:  # a run spec function may raise anything
            arguments = ",".join(f"{name}={value}" for name, value in spec.args.items())
            entry = f"{spec.class_name}:{arguments}"
            _not_made.append(entry)
            session = session_for(Path(runner.get_benchmark_output_path()).absolute().parent)
            message = f"{type(error).__name__}: {one_line(session.redactor.text(str(error)))}"
            print(f"{printable(entry)}: {message}", file=sys.stderr, flush=True)
            session.events.emit(events.RUN_FAILED, run=entry, error=message, stopped=False)
            return []

    run.construct_run_specs = construct_or_tell
