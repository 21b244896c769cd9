"""The commands `run_eval` and `doctor`.

`run_eval` prints a summary, one line (`--quiet`), or JSON records for other programs (`--json`).
"""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from eval_factory.cli.console import (
    HomePath,
    number_or_share,
    text_width,
    tolerant_stream,
    wrapped,
    write_record,
)
from eval_factory.core.enums import EXECUTOR_NAMES
from eval_factory.core.errors import ConfigError, NotReportableError, PrerequisiteError
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.this_process import ignore_sighup

if TYPE_CHECKING:
    from eval_factory.workflows.evaluated import Evaluated
    from eval_factory.workflows.options import DryRun, Submitted


@dataclass
class RunOutput:
    """Writes the outcome of a command as a summary, as one line or as JSON."""

    quiet: bool = False  # True: print one line about the outcome, and no progress
    as_json: bool = False  # True: print JSON records
    stdout: TextIO = field(default_factory=lambda: tolerant_stream(sys.stdout))
    _wrote_end: bool = False  # True if the last JSON record was written

    def screen(self) -> TextIO:
        """Return the stream for progress and warnings."""
        if self.quiet:
            return io.StringIO()
        return tolerant_stream(sys.stderr)

    def write_result(self, evaluated: Evaluated) -> None:
        """Write the result of a finished run to standard output."""
        from eval_factory.report.summary import headline
        from eval_factory.workflows.options import end_record

        with ignore_sighup():
            if self.as_json:
                self._write_end(end_record(evaluated))
            elif self.quiet:
                self.stdout.write(printable_lines(headline(evaluated.result)) + "\n")
            else:
                self.stdout.write(wrapped(evaluated.summary, text_width(self.stdout)) + "\n")

    def write_submitted(self, job: Submitted) -> None:
        """Write that the run continues in Slurm, and the user's next action."""
        if self.as_json:
            self._write_end(
                {
                    "event": "end",
                    "exit_code": 0,
                    "status": "submitted",
                    "output_dir": str(job.folder),
                    "error": None,
                }
            )
        else:
            text = job.summary
            if self.quiet:
                text = text.split("\n")[0]
            self.stdout.write(printable_lines(text) + "\n")

    def write_outcome(self, run: Evaluated | Submitted) -> None:
        """Write the outcome of a run.

        Raises:
            NotReportableError: The scores may not be reported, and the run is not a demo.
        """
        from eval_factory.workflows.options import Submitted

        if isinstance(run, Submitted):
            self.write_submitted(run)
            return
        self.write_result(run)
        if run.failure is not None:
            raise NotReportableError(run.failure)

    @contextmanager
    def failures_reported(self) -> Iterator[None]:
        """Run the block. With `--json`, write a record for an error; the error is raised again."""
        try:
            yield
        except BaseException as error:
            # click raises Exit to end a command, such as `--help`: this is no error
            is_error = not isinstance(error, click.exceptions.Exit)
            if self.as_json and not self._wrote_end and is_error:
                from eval_factory.workflows.options import exit_code_of_error, failure_record

                if isinstance(error, click.ClickException):  # the command line is wrong
                    code = ConfigError.exit_code
                    record = failure_record(error, code, error.format_message())
                else:
                    record = failure_record(error, exit_code_of_error(error))
                self._write_end(record)
            raise

    def _write_end(self, record: Mapping[str, Any]) -> None:
        """Write the last record of the command."""
        self._wrote_end = True
        write_record(self.stdout, record)


class RecordingCommand(click.Command):
    """A command that, with `--json`, also writes a record for an error in the command line."""

    def make_context(
        self, info_name: str | None, args: list[str], *rest: Any, **extra: Any
    ) -> click.Context:
        """Return click's context for the arguments."""
        # `--json` is searched for in the text, because the arguments are not parsed yet.
        with RunOutput(as_json="--json" in args).failures_reported():
            return super().make_context(info_name, args, *rest, **extra)


FLAGS: dict[str, str] = {}
"""The run config key that each option sets, by the option's name without `--`."""


def _setting(path: str, *names: str, **settings: Any) -> Callable[[Any], Any]:
    """Return a decorator that adds an option, and note in `FLAGS` which key the option sets.

    Args:
        path: The dotted path of a run config key.
        names: The names of the option, the main name first; without names, the option has the name
            of the key.
        settings: Further arguments of `click.option`.
    """
    names = names or (f"--{path.rpartition('.')[2]}",)
    FLAGS[names[0].removeprefix("--")] = path
    return click.option(*names, **settings)


@click.command("run_eval", cls=RecordingCommand)
@click.option("--run_config", type=HomePath(), help="The run config (YAML).")
@_setting("config.output_dir", help="Folder for results; created if it does not exist.")
@_setting(
    "config.type", "--eval_type", help="The task ('eval-factory ls' lists them), or helm:RUN_ENTRY."
)
@_setting("target.api_endpoint.model_id", help="The model's id at the endpoint.")
@_setting("target.api_endpoint.type", "--model_type", help="chat, completions or images.")
@_setting(
    "target.api_endpoint.url", "--model_url", help="The endpoint's base URL, or demo://baseline."
)
@_setting(
    "target.api_endpoint.api_key",
    "--api_key_name",
    help="NAME of the environment variable that holds the key.",
)
@_setting(
    "config.params.limit_samples",
    "--limit_samples",
    "--limit",
    type=number_or_share,
    help="Instances to ask, or a share (0.1); all if not given.",
)
@click.option("--samples", help="Ids of the instances to ask, separated by commas.")
@_setting("config.params.parallelism", type=int, help="Requests at the same time.")
@_setting(
    "config.params.max_new_tokens",
    type=int,
    help="Tokens that an answer may have; the benchmark's if not given.",
)
@_setting(
    "config.params.temperature", type=float, help="The temperature; the benchmark's if not given."
)
@_setting("config.params.top_p", type=float, help="The top_p of sampling; 1 if not given.")
@_setting("config.params.request_timeout", type=float, help="Seconds for one attempt of a request.")
@_setting("config.params.max_retries", type=int, help="Further attempts after one that fails.")
@_setting(
    "config.params.extra.data_dir",
    help="A data bundle ('eval-factory data --help'): the task's data are read from it.",
)
@_setting("config.params.extra.offline", is_flag=True, help="Contact nothing but the endpoints.")
@_setting(
    "config.params.extra.allow_code_execution",
    is_flag=True,
    help="Let a benchmark execute the model's answers.",
)
@_setting(
    "executor",
    type=click.Choice(EXECUTOR_NAMES),
    help="Where the run happens; local if not given.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until the job of Slurm has ended; without it, the job is only submitted.",
)
@_setting(
    "config.params.extra.max_cost",
    type=float,
    help="US dollars at which the run stops, judges included.",
)
@_setting(
    "config.params.extra.max_requests",
    type=int,
    help="Requests after which the run stops, retries included.",
)
@_setting(
    "config.params.extra.max_tokens_total",
    type=int,
    help="Tokens of prompts and answers at which the run stops.",
)
@_setting(
    "config.params.extra.max_wall_s",
    type=float,
    help="Seconds after which no more requests are sent.",
)
@click.option(
    "--overrides",
    multiple=True,
    help="path.to.key=value,... with priority over all other settings; may be repeated.",
)
@click.option(
    "--dry_run",
    is_flag=True,
    help="Show the configuration and the command; start and write nothing.",
)
@click.option("--all", "shows_nulls", is_flag=True, help="With --dry_run: show null values too.")
@click.option(
    "--diff", type=HomePath(), help="With --dry_run: show only what differs from this run config."
)
@click.option(
    "--estimate", is_flag=True, help="Show requests, tokens, cost and time; ask no endpoint."
)
@click.option(
    "--fresh",
    is_flag=True,
    help="Delete the answers that an earlier run stored in the output folder.",
)
@click.option(
    "--resend",
    is_flag=True,
    help="Send a batch again if it is unknown whether it was sent; it may cost money twice.",
)
@click.option("--batch_id", help="The id at the provider, for a batch whose id did not arrive.")
@click.option(
    "--cancel_batches", is_flag=True, help="Cancel the open batches of this run, and stop."
)
@click.option(
    "--no_preflight",
    is_flag=True,
    help="Send no cheap trial question to the endpoint before the run.",
)
@click.option(
    "--watch",
    type=click.Choice(["figures", "texts"]),
    # `--watch` without a value means `--watch=figures`
    is_flag=False,
    flag_value="figures",
    help="Show a line for each answer: seconds, tokens, why the answer ended; with =texts also "
    "the beginning of the answer, which may contain patients' data.",
)
@click.option("--quiet", is_flag=True, help="Print only errors and one line about the result.")
@click.option(
    "--json",
    "as_json",
    is_flag=True,
    help="Print one JSON record when the run starts and one when it ends.",
)
@click.option("--debug", is_flag=True, help="The same as before the command.")
@click.pass_context
def run_eval(
    ctx: click.Context, /, run_config: Path | None, overrides: tuple[str, ...], **values: Any
) -> None:
    """Run one evaluation."""
    # `values` has all other options, by name.
    flags = _values_of_flags(values)
    as_json = values["as_json"]
    output = RunOutput(quiet=values["quiet"], as_json=as_json)
    with output.failures_reported():
        from eval_factory import api  # imported late, to keep `--help` fast

        _check_combination(values)
        on_launch = None
        if as_json:
            on_launch = partial(write_record, output.stdout)
        options = api.Options(
            fresh=values["fresh"],
            debug=values["debug"] or ctx.obj["debug"],
            no_preflight=values["no_preflight"],
            watch=values["watch"],
            batch_choice=api.BatchChoice(resend=values["resend"], batch_id=values["batch_id"]),
            on_launch=on_launch,
        )
        arguments: dict[str, Any] = {
            "flags": flags,
            "overrides": overrides,
            "options": options,
            "screen": output.screen(),
        }
        if values["cancel_batches"]:
            choice = options.batch_choice
            lines = api.cancel_batches(run_config, flags=flags, overrides=overrides, choice=choice)
            output.stdout.write(printable_lines("\n".join(lines)) + "\n")
            return
        if values["dry_run"]:
            arguments["options"] = replace(
                options, shows_nulls=values["shows_nulls"], diff=values["diff"]
            )
            show_dry_run(api.dry_run(run_config, **arguments), arguments["screen"])
            return
        if values["estimate"]:
            estimated = api.estimate(run_config, flags=flags, overrides=overrides)
            click.echo(json.dumps(estimated.as_dict()) if as_json else estimated.to_text())
            return
        # `submit` differs from `evaluate` only for Slurm: `submit` does not wait for the job.
        run = api.evaluate if values["wait"] else api.submit
        output.write_outcome(run(run_config, **arguments))


def _values_of_flags(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a dict from run config paths to the values that the user's options set."""
    flags = {}
    for name, path in FLAGS.items():
        value = values.get(name)
        if value is not None and value is not False:  # False: the user did not give the flag
            flags[path] = value
    if values["samples"]:
        ids = (instance_id.strip() for instance_id in values["samples"].split(","))
        flags["config.params.extra.instances"] = [instance_id for instance_id in ids if instance_id]
    return flags


def _check_combination(values: Mapping[str, Any]) -> None:
    """Check that the options can be combined.

    Raises:
        ConfigError: Two options exclude each other, or an option needs a missing option.
    """
    if values["watch"] and values["quiet"]:
        raise ConfigError("run_eval: give one of --watch and --quiet")
    if values["dry_run"] and (values["quiet"] or values["as_json"]):
        raise ConfigError(
            "run_eval: --dry_run prints a configuration to read: leave out --quiet and --json"
        )
    if not values["dry_run"] and (values["shows_nulls"] or values["diff"]):
        raise ConfigError("run_eval: --all and --diff belong to --dry_run")


def show_dry_run(preview: DryRun, screen: TextIO) -> None:
    """Write the preview to standard output, and a warning on `screen` if a run would stop."""
    sys.stdout.write(preview.text)
    sys.stdout.flush()
    if preview.would_stop:
        first_line, *further_lines = preview.would_stop
        screen.write(f"warning: a run would stop: {first_line}\n")
        screen.writelines(f"  {line}\n" for line in further_lines)


@click.command("doctor")
@click.option(
    "--run_config", type=HomePath(), help="Also check the data, keys and endpoints of this run."
)
@click.option("--overrides", multiple=True, help="path.to.key=value,... as for run_eval.")
@click.option("--json", "as_json", is_flag=True, help="Print a JSON record for each line.")
@click.pass_context
def doctor(
    ctx: click.Context, run_config: Path | None, overrides: tuple[str, ...], as_json: bool
) -> None:
    """Check which prerequisites of a run work on this machine, and say what to do about the others.

    Checks Python, HELM, disk, sandbox, proxies, hub, and which keys are set. With --run_config,
    each endpoint gets one cheap question. Writes no files. Exit code: 0, or 3 if a prerequisite of
    every run does not work.
    """
    from eval_factory.config.evaluation import RunRequest
    from eval_factory.workflows.doctor import examine

    if overrides and run_config is None:
        raise ConfigError("doctor: --overrides belong to a --run_config")
    # The text of each value of `finding.works`. None: the prerequisite was not tested, or does not
    # work but is not needed by every run.
    marks = {True: "ok", False: "NO", None: "-"}
    stdout = tolerant_stream(sys.stdout)
    all_work = True
    for finding in examine(RunRequest(run_config=run_config, overrides=overrides), os.environ):
        all_work = all_work and finding.works is not False
        if as_json:
            write_record(stdout, vars(finding))
            continue
        first_line, *further_lines = printable_lines(finding.text).split("\n")
        stdout.write(f"{marks[finding.works]:<3} {finding.about:<13} {first_line}\n")
        indent = " " * 18  # the width of the two columns above, with their gaps
        stdout.writelines(f"{indent}{line.strip()}\n" for line in further_lines)
    ctx.exit(0 if all_work else PrerequisiteError.exit_code)
