"""Defines the options of a run that are not part of its configuration.

The module also defines the outcomes of a dry run and of a submitted Slurm job. Its functions turn
the end of a run into a record for other programs, and an error into an exit code.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.core.errors import (
    DEFECT_EXIT_CODE,
    EvalFactoryError,
    InterruptedRunError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.secrets import Redactor

if TYPE_CHECKING:
    from eval_factory.core.helm_run_settings import SharedLimitsSettings
    from eval_factory.core.results import Score
    from eval_factory.workflows.evaluated import Evaluated


@dataclass(frozen=True)
class BatchChoice:
    """The user's decision about a batch if eval-factory does not know whether it was sent.

    Without a decision, both fields have their defaults.
    """

    resend: bool = False
    """True: the user says that the batch was not sent, so its requests are sent again."""
    batch_id: str | None = None
    """The ID of the batch at the endpoint, if the user says that the batch was sent."""


@dataclass(frozen=True)
class Options:
    """The options that say how a run is done; the configuration says what is evaluated."""

    fresh: bool = False  # True: delete earlier answers and results first
    debug: bool = False  # True: write more to the log
    no_preflight: bool = False  # True: do not probe the endpoints before the run
    # A set: the suite has probed the endpoints, and the set has the roles whose endpoints answered.
    # None: this run probes the endpoint of each role, unless `no_preflight` is set.
    probed: frozenset[str] | None = None
    # the limits that this run shares with other runs; None: the run only has its own limits
    limits: SharedLimitsSettings | None = None
    # "figures": show a line with the numbers of each new answer; "texts": show also the beginning
    # of the answer; None: show no such lines
    watch: str | None = None
    on_launch: Callable[[Mapping[str, Any]], None] | None = None
    """A function that is called after the folder is locked and before the first request. It gets
    the record of the run (`launch_record` in evaluate.py).
    """
    shows_nulls: bool = False  # True: a dry run shows the values that are null, too
    diff: Path | Mapping[str, Any] | None = None
    """The run config with which a dry run compares the new one; None: a dry run shows the full
    preview.
    """
    batch_choice: BatchChoice = BatchChoice()
    # True: send no request; collect the answers of a finished Slurm job, or raise an error
    only_collect: bool = False
    # False: all answers of the model must already be in the folder; a missing answer ends the run
    asks_model: bool = True


@dataclass(frozen=True)
class DryRun:
    """The preview of a run, made without starting the run or writing a file."""

    text: str  # the configuration, the source of each value, the command; redacted
    would_stop: tuple[str, ...]  # the faults in the user's own files that would end a run


@dataclass(frozen=True)
class Submitted:
    """A Slurm job that continues after the command that submitted it has returned."""

    folder: Path  # the output folder of the run
    # the text for the screen: the first line says what was done, and the other lines state the
    # user's next actions
    summary: str


UNUSABLE_PATH_ERRORS = frozenset(
    {
        errno.ENAMETOOLONG,
        errno.ELOOP,
        errno.ENOTDIR,
        errno.EISDIR,
        errno.EEXIST,
        errno.EACCES,
        errno.EPERM,
    }
)
"""The numbers (errno) of errors that mean: a path that the user passed cannot be used."""
DISK_FULL_ERRORS = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT})
"""The numbers (errno) of errors that mean: the disk is full or read-only, or the user's quota is
used up.
"""


def end_record(evaluated: Evaluated) -> dict[str, Any]:
    """Return the record of a run that has ended with a result.

    The record has the exit code, the main numbers and the paths of the result. All numbers of the
    result are in evaluation_config.yaml.
    """
    from eval_factory.tasks.errata import CORRECTED_SUFFIX  # imported late, to keep `--help` fast

    result = evaluated.result
    total = result.usage.this_run.total
    # the main metric, computed with the corrected answer key
    corrected = result.scores.get(f"{result.main_metric}{CORRECTED_SUFFIX}")
    return {
        "event": "end",
        "exit_code": 0 if evaluated.failure is None else NotReportableError.exit_code,
        "status": result.status,
        "reportable": evaluated.not_reportable is None,
        "not_reportable": evaluated.not_reportable,
        "task": result.task,
        "main_metric": result.main_metric,
        **score_fields(result.scores.get(result.main_metric)),
        "corrected": None if corrected is None else score_fields(corrected),
        "instances": asdict(result.validity.instances),
        "coverage": result.validity.coverage,
        "notes": len(result.validity.notes),
        "requests": total.requests,
        "prompt_tokens": total.prompt_tokens,
        "completion_tokens": total.completion_tokens,
        "wall_s": result.usage.wall_s,
        "output_dir": str(evaluated.rundir.root),
        "result": str(evaluated.rundir.evaluation_config),
        "error": None,
    }


def failure_record(error: BaseException, code: int, message: str | None = None) -> dict[str, Any]:
    """Return the redacted record of a run that ended with an error.

    Args:
        error: The error that ended the run.
        code: The exit code of the command.
        message: The text to record instead of the error's own text; None: the error's own text.
            For a defect and an interruption, a fixed text is recorded.
    """
    if code == DEFECT_EXIT_CODE:
        message = f"a defect in eval-factory ({type(error).__name__})"
    # an interruption by the user, such as KeyboardInterrupt, which has no text
    elif code == InterruptedRunError.exit_code and not isinstance(error, EvalFactoryError):
        message = "interrupted"
    redactor = Redactor.from_environment(os.environ)
    error_fields = {
        "type": type(error).__name__,
        "message": printable_lines(redactor.redact_text(message or str(error))),
    }
    return {"event": "end", "exit_code": code, "error": error_fields}


def exit_code_of_error(error: BaseException) -> int:
    """Return the exit code of a command that ends with this error."""
    if isinstance(error, EvalFactoryError):
        return error.exit_code
    if isinstance(error, KeyboardInterrupt):
        return InterruptedRunError.exit_code
    if isinstance(error, OSError) and error.errno in UNUSABLE_PATH_ERRORS | DISK_FULL_ERRORS:
        return PrerequisiteError.exit_code
    return DEFECT_EXIT_CODE


def score_fields(score: Score | None) -> dict[str, Any]:
    """Return a score, the ends of its confidence interval, and the number of its values.

    If `score` is None, all four are None.
    """
    if score is None:
        return dict.fromkeys(("value", "ci_low", "ci_high", "n"))
    return {
        "value": score.value,
        "ci_low": score.stats.ci_low,
        "ci_high": score.stats.ci_high,
        "n": score.stats.count,
    }
