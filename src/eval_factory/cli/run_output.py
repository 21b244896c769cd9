"""What `run_eval` prints: a summary, one line (`--quiet`), or records for other programs (`--json`)."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TextIO

import click

from eval_factory.cli.streams import lasting
from eval_factory.cli.wrapping import columns, wrapped
from eval_factory.core.errors import ConfigError, InterruptedRunError
from eval_factory.core.foreign_text import own_lines
from eval_factory.core.this_process import not_to_be_hung_up

if TYPE_CHECKING:
    from eval_factory.workflows.options import Evaluated, Submitted

JSON_FLAG = "--json"
SUBMITTED = "submitted"
"""The status of a run that has no result yet."""


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
        from eval_factory.workflows.end_record import end_record

        with not_to_be_hung_up():
            if self.as_json:
                self._ended = True
                self._write(end_record(evaluated))
            elif self.quiet:
                self.stdout.write(own_lines(headline(evaluated.result)) + "\n")
            else:
                self.stdout.write(wrapped(evaluated.summary, columns(self.stdout)) + "\n")

    def submitted(self, job: Submitted) -> None:
        """That the run goes on in Slurm, and what to do next."""
        if self.as_json:
            self._ended = True
            self._write(
                {"event": "end", "exit_code": 0, "status": SUBMITTED, "output_dir": str(job.folder), "error": None}
            )
        else:
            text = job.summary.split("\n")[0] if self.quiet else job.summary
            self.stdout.write(own_lines(text) + "\n")

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
        from eval_factory.core.safe_files import json_line

        self.stdout.write(json.dumps(json.loads(json_line(dict(record)))) + "\n")


class RecordingCommand(click.Command):
    """With `--json`, what is wrong with the command line is a record too."""

    def make_context(
        self, info_name: str | None, args: list[str], parent: click.Context | None = None, **extra: Any
    ) -> click.Context:
        with RunOutput(as_json=JSON_FLAG in args).failures_told():
            return super().make_context(info_name, args, parent, **extra)


def failure_record(error: BaseException) -> dict[str, Any]:
    """Of a run that has no result."""
    from eval_factory.workflows.end_record import failure_record as record_of_failure

    message = error.format_message() if isinstance(error, click.ClickException) else None
    return record_of_failure(error, code_of(error), message)


def code_of(error: BaseException) -> int:
    """The exit code that an error ends the program with."""
    if isinstance(error, click.Abort):
        return InterruptedRunError.exit_code
    if isinstance(error, click.ClickException):
        return ConfigError.exit_code
    from eval_factory.workflows.end_record import code_of_error

    return code_of_error(error)


def _is_good_end(error: BaseException) -> bool:
    """click ends `--help` so."""
    return isinstance(error, click.exceptions.Exit) and error.exit_code == 0
