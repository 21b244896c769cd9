"""Begins helm-run at once where a command will probably need one: while the configuration is read, HELM is imported."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

from eval_factory.core.helm_run_settings import WITHOUT
from eval_factory.core.rundir import RunDir
from eval_factory.executors.environment import child_environment
from eval_factory.executors.program_ahead import ProgramAhead
from eval_factory.helm.programs import helm_program, only_calls_main

MODULE = "eval_factory.helm_plugin.helm_run_ahead"
NOT_THIS_WAY = frozenset({"executor", "allow_code_execution"})
"""Where one of these is given, another process asks, or it is to see as little as possible."""
_KEY = re.compile(r"^\s*(executor|allow_code_execution|output_dir)\s*:\s*(.*?)\s*$", re.MULTILINE)


@contextmanager
def begun_early(
    run_config: Path | None, flags: Mapping[str, object], overrides: Sequence[str], *, fresh: bool
) -> Iterator[ProgramAhead | None]:
    """What may become helm-run, which is ended at the end where it did not; None where it would be for nothing.

    A wrong guess costs a part of a second of a processor that nobody else uses, and nothing else.
    """
    ahead = _begun() if is_worth_it(run_config, flags, overrides, fresh=fresh) else None
    try:
        yield ahead
    finally:
        if ahead is not None:
            ahead.end()


def is_worth_it(run_config: Path | None, flags: Mapping[str, object], overrides: Sequence[str], *, fresh: bool) -> bool:
    """Whether a helm-run of this machine will probably ask. It is not found out for sure: that takes as long."""
    given = {name.rpartition(".")[2] for name in flags}
    said = dict(_KEY.findall(_text_of(run_config)))
    folder = str(flags.get("config.output_dir") or said.get("output_dir", "").strip("'\""))
    if (given | said.keys()) & NOT_THIS_WAY or any(name in text for text in overrides for name in NOT_THIS_WAY):
        return False
    if run_config is not None and not said:
        return False
    return fresh or not folder or not RunDir(Path(folder)).run_state.exists()


def _text_of(run_config: Path | None) -> str:
    if run_config is None or not run_config.is_file():  # to open a FIFO would wait for its writer
        return ""
    try:
        return run_config.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def _begun() -> ProgramAhead | None:
    """None where there is no second processor, or nothing to begin."""
    program = helm_program("helm-run")
    if os.environ.get(WITHOUT):  # a patch of HELM is to be left out: this way may not be another one
        return None
    if not hasattr(os, "sched_getaffinity") or len(os.sched_getaffinity(0)) == 1 or not only_calls_main(program):
        return None
    try:
        return ProgramAhead(MODULE, program, child_environment(os.environ, (), {}))
    except OSError:  # it is begun when it is needed, and what is wrong is told then
        return None
