"""What `run_eval` prints: a summary, one line (`--quiet`), or records for other programs (`--json`)."""

from __future__ import annotations

import errno
import io
import json
import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import click

from eval_factory.cli.streams import lasting
from eval_factory.cli.wrapping import columns, wrapped
from eval_factory.core.errors import (
    DEFECT_EXIT_CODE,
    ConfigError,
    EvalFactoryError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.foreign_text import own_lines
from eval_factory.core.jsonl import json_line
from eval_factory.core.redaction import Redactor
from eval_factory.core.secrets import names_a_secret
from eval_factory.core.signals import not_to_be_hung_up
from eval_factory.tasks.errata import CORRECTED

if TYPE_CHECKING:
    from eval_factory.core.results import Score
    from eval_factory.workflows.options import Evaluated

JSON_FLAG = "--json"
INTERRUPTED = 130
PATHS_THAT_CANNOT_BE = frozenset({errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR, errno.EACCES, errno.EPERM})
"""What is wrong with a path that somebody gave, found by whoever looked at it first."""
DISK_TAKES_NO_MORE = frozenset({errno.ENOSPC, errno.EROFS, errno.EDQUOT})
_OUTSIDE = PATHS_THAT_CANNOT_BE | DISK_TAKES_NO_MORE
"""What is wrong with a path or a disk, not with this program."""


@dataclass
class RunOutput:
    """Of one run."""

    quiet: bool = False
    as_json: bool = False
    stdout: TextIO = field(default_factory=lambda: lasting(sys.stdout))
    _ended: bool = False

    def screen(self) -> TextIO:
        """Where progress and warnings go."""
        return io.StringIO() if self.quiet else lasting(sys.stderr)

    def launched(self, record: Mapping[str, Any]) -> None:
        if self.as_json:
            self._write(record)

    def ended(self, evaluated: Evaluated) -> None:
        """The result, on standard output."""
        from eval_factory.report.screen import headline

        with not_to_be_hung_up():
            if self.as_json:
                self._ended = True
                self._write(end_record(evaluated))
            elif self.quiet:
                self.stdout.write(own_lines(headline(evaluated.result)) + "\n")
            else:
                self.stdout.write(wrapped(evaluated.summary, columns(self.stdout)) + "\n")

    @contextmanager
    def failures_told(self) -> Iterator[None]:
        """What ends the run, as a record too; it is raised all the same."""
        try:
            yield
        except BaseException as error:
            if self.as_json and not self._ended and not _is_good_end(error):
                self._ended = True
                self._write(failure_record(error))
            raise

    def _write(self, record: Mapping[str, Any]) -> None:
        """In ASCII, which every stream takes; a number that JSON does not know is null."""
        self.stdout.write(json.dumps(json.loads(json_line(dict(record)))) + "\n")


class RecordingCommand(click.Command):
    """With `--json`, what is wrong with the command line is a record too."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with RunOutput(as_json=JSON_FLAG in args).failures_told():
            return super().make_context(info_name, args, parent, **extra)


def end_record(evaluated: Evaluated) -> dict[str, Any]:
    """The main numbers of a result; evaluation_config.yaml has all."""
    result = evaluated.result
    total = result.usage.this_run.total
    corrected = result.scores.get(f"{result.main_metric}{CORRECTED}")
    return {
        "event": "end",
        "exit_code": 0 if evaluated.not_reportable is None else NotReportableError.exit_code,
        "status": result.status,
        "reportable": evaluated.not_reportable is None,
        "not_reportable": evaluated.not_reportable,
        "task": result.task,
        "main_metric": result.main_metric,
        **_numbers(result.scores.get(result.main_metric)),
        "corrected": None if corrected is None else _numbers(corrected),
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


def failure_record(error: BaseException) -> dict[str, Any]:
    """Of a run that has no result; the message is redacted, as that on the screen."""
    code = code_of(error)
    if code == DEFECT_EXIT_CODE:
        message = f"a defect in eval-factory ({type(error).__name__})"
    elif code == INTERRUPTED and not isinstance(error, EvalFactoryError):
        message = "interrupted"
    else:
        message = error.format_message() if isinstance(error, click.ClickException) else str(error)
    redactor = Redactor.from_environment(os.environ, filter(names_a_secret, os.environ))
    told = {"type": type(error).__name__, "message": own_lines(redactor.text(message))}
    return {"event": "end", "exit_code": code, "error": told}


def code_of(error: BaseException) -> int:
    """The exit code that an error ends the program with."""
    if isinstance(error, EvalFactoryError):
        return error.exit_code
    if isinstance(error, (KeyboardInterrupt, click.Abort)):
        return INTERRUPTED
    if isinstance(error, click.ClickException):
        return ConfigError.exit_code
    if isinstance(error, OSError) and error.errno in _OUTSIDE:
        return PrerequisiteError.exit_code
    return DEFECT_EXIT_CODE


def _is_good_end(error: BaseException) -> bool:
    """click ends `--help` so."""
    return isinstance(error, click.exceptions.Exit) and error.exit_code == 0


def _numbers(score: Score | None) -> dict[str, Any]:
    if score is None:
        return dict.fromkeys(("value", "ci_low", "ci_high", "n"))
    return {"value": score.value, "ci_low": score.stats.ci_low, "ci_high": score.stats.ci_high, "n": score.stats.count}
