"""Starts the command line: imports the called command, and turns every error into an exit code.

The short commands `ls`, `new_benchmark` and `schema` are defined here, too.
"""

from __future__ import annotations

import importlib
import json
import os
import shlex
import sys
from itertools import chain
from pathlib import Path

import click

from eval_factory import __version__
from eval_factory.cli.console import (
    HomePath,
    discard_output,
    flush_or_discard,
    has_no_reader,
    prepare_streams,
    text_width,
    tolerant_stream,
    wrapped,
)
from eval_factory.core.errors import (
    DEFECT_EXIT_CODE,
    ConfigError,
    EvalFactoryError,
    InterruptedRunError,
    PrerequisiteError,
    did_you_mean,
)
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.this_process import forget_interrupts, interrupt_on_signals
from eval_factory.demo.example import EXAMPLE_KINDS

PROGRAM = "eval-factory"
FIRST_STEPS = """\
eval-factory measures how good a language model is at medical work. \
What people do first:

  eval-factory doctor                            does it work here, what is missing?
  eval-factory ls                                which benchmarks are there?
  eval-factory ls pubmed_qa > my_test.yml        a run config to begin with: \
put your model's URL and id into it
  eval-factory run_eval --run_config my_test.yml run it; the folder that it leaves has report.html

Without a model, on the embedded one:

  eval-factory new_benchmark my_benchmark && \
eval-factory run_eval --run_config my_benchmark/run_config.yml

All commands: eval-factory --help"""

_COMMAND_MODULES = {
    "run_command": ("run_eval", "doctor"),
    "suite_command": ("run_suite", "suite", "import_config", "leaderboard"),
    "result_commands": ("compare", "gate", "report", "calibrate"),
    "folder_commands": ("verify", "reproduce", "rescore", "view", "annotate", "export"),
    "import_command": ("import",),
    "data": ("data", "upstream"),
    "monitor_command": ("monitor",),
}
"""The commands of each module. `--help` imports all of these modules. They must therefore import
slow modules inside functions only.
"""
_FUNCTIONS = {"import": "import_results"}
"""The function of a command whose name is a Python keyword."""


class _LazyCommands(click.Group):
    """A click group that imports the module of a command when the command is called."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with this name; None if there is no such command."""
        for module, names in _COMMAND_MODULES.items():
            if cmd_name in names:
                imported = importlib.import_module(f"eval_factory.cli.{module}")
                function = _FUNCTIONS.get(cmd_name, cmd_name)
                command: click.Command = getattr(imported, function)
                return command
        return super().get_command(ctx, cmd_name)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command that the arguments name.

        Raises:
            UsageError: There is no such command. The message suggests a similar name.
        """
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError as error:
            commands = self.list_commands(ctx)
            longer_names = []  # such as run_eval for `run`
            for name in commands:
                if name.startswith(f"{args[0]}_"):
                    longer_names.append(name)
            if longer_names:
                hint = f", did you mean {longer_names[0]!r}?"
            else:
                hint = did_you_mean(args[0], commands)
            raise click.UsageError(f"No such command {args[0]!r}{hint}", ctx) from error


@click.group(
    cls=_LazyCommands,
    invoke_without_command=True,
    # placeholders: click can list their names and find names similar to a wrong name, and
    # `get_command` then returns the real command
    commands=[click.Command(name) for name in chain.from_iterable(_COMMAND_MODULES.values())],
    context_settings={
        "help_option_names": ["-h", "--help"],
        # `run-eval --model-id` means the same as `run_eval --model_id`
        "token_normalize_func": lambda token: token.replace("-", "_"),
    },
)
@click.option(
    "--debug", is_flag=True, help="Log in detail; HELM's log then holds prompts and answers."
)
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Measure how good a language model is at medical work.

    Commands and options may be written with hyphens too: run-eval --model-id.
    """
    ctx.obj = {"debug": debug}
    if ctx.invoked_subcommand is None:
        click.echo(FIRST_STEPS)


@cli.command("ls")
@click.argument("task", required=False)
@click.option(
    "--all",
    "everything",
    is_flag=True,
    help="List every run spec that HELM knows: run one as helm:NAME.",
)
@click.option("--json", "as_json", is_flag=True, help="Print everything that is known as JSON.")
@click.option("--tag", help="Only tasks with this tag.")
@click.option(
    "--benchmark",
    type=HomePath(),
    help="Print everything about a benchmark of your own (its YAML).",
)
@click.option(
    "--upstream",
    type=click.Choice(("helm", "medhelm")),
    default="helm",
    help="With --all or helm:NAME: the package of HELM to list.",
)
def list_tasks(
    task: str | None,
    everything: bool,
    as_json: bool,
    tag: str | None,
    benchmark: Path | None,
    upstream: str,
) -> None:
    """List the tasks, or print the facts about TASK (or helm:NAME, one of HELM's run specs).

    The facts are comments of a run config that you can edit. For a task with judges, they include
    the prompt that the judges get.
    """
    choices = (task is not None, everything, tag is not None, benchmark is not None)
    if choices.count(True) > 1:
        raise ConfigError("ls: give one of TASK, --all, --tag and --benchmark")
    # imported late, like most modules that a command needs, to keep `--help` fast
    from eval_factory.tasks.framework import load_framework

    framework = load_framework()
    lists_tasks = task is None and benchmark is None and not everything
    # Without a terminal, only the names are printed: other programs read this short form.
    if lists_tasks and not as_json and not sys.stdout.isatty():
        from eval_factory.tasks.task_info import tasks_with_tag

        names = [f"  * {listed.name}" for listed in tasks_with_tag(tag, framework)]
        click.echo("\n".join([f"{framework.framework.name}:", *names]))
        return
    from eval_factory.cli import task_listing
    from eval_factory.tasks.upstreams import UPSTREAMS

    if lists_tasks:
        task_listing.show_tasks(framework, tag, as_json=as_json)
    elif everything:
        task_listing.show_run_specs(framework, UPSTREAMS[upstream], as_json=as_json)
    else:  # the user named a task or a benchmark
        if benchmark is None:
            record = task_listing.record_of(str(task), framework, UPSTREAMS[upstream])
        else:
            record = task_listing.record_of_benchmark(benchmark, framework)
        if as_json:
            click.echo(json.dumps(record, indent=2))
        else:
            # The text ends with a line break.
            click.echo(task_listing.record_text(record), nl=False)


@cli.command("new_benchmark")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option(
    "--jury", is_flag=True, help="An example that is scored by judges, not by a right answer."
)
@click.option(
    "--kind",
    type=click.Choice(EXAMPLE_KINDS),
    help="choice (the default), jury (as --jury), or rubric: judged by criteria.",
)
def new_benchmark(folder: Path, jury: bool, kind: str | None) -> None:
    """Write an example of a custom benchmark to DIR; you can run and change it."""
    from eval_factory.demo.example import write_example

    if jury and kind not in (None, "jury"):
        raise click.UsageError(f"--jury is --kind jury, and --kind is {kind}; give one of them")
    if kind is None:
        kind = "jury" if jury else "choice"
    for path in write_example(folder, kind):
        click.echo(str(path))
    click.echo(
        f"\nrun it: {PROGRAM} run_eval --run_config {shlex.quote(str(folder / 'run_config.yml'))}"
    )


@cli.command("schema")
@click.argument("name")
def print_schema(name: str) -> None:
    """Print a JSON Schema, for editors and programs.

    Schemas of files that you write: run_config, suite, monitor, gate_policy. Schemas of files that
    eval-factory writes: evaluation_config, results, suite_results.
    """
    from eval_factory.cli.task_listing import schema_text

    click.echo(schema_text(name), nl=False)


def main() -> None:
    """Run the command line, report any error, and end the process with the exit code."""
    # By default, pydantic searches every installed package for plug-ins. The search takes a twelfth
    # of the time of a dry run, and eval-factory uses no plug-ins of pydantic.
    os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "true")
    prepare_streams()
    interrupt_on_signals()
    try:
        code = cli.main(prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show(file=tolerant_stream(sys.stderr))
        sys.exit(ConfigError.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        sys.exit(InterruptedRunError.exit_code)
    except EvalFactoryError as error:
        _say(str(error))
        flush_or_discard(sys.stdout)
        sys.exit(error.exit_code)
    except OSError as error:
        sys.exit(_exit_code_of(error))
    except SystemExit as error:
        # click raises SystemExit(1) if it cannot write to a pipe; a missing reader is not an error
        if error.code != 1 or not has_no_reader(sys.stdout):
            raise
        sys.exit(0)
    except Exception as error:
        # a defect of eval-factory: the traceback goes to a file, one line to the screen
        sys.exit(_report_defect(error))
    finally:
        forget_interrupts()  # otherwise a caught interrupt could replace the exit code
    # `code` is the number that a command gave to `ctx.exit`, or else None.
    sys.exit(code if isinstance(code, int) else 0)


def _exit_code_of(error: OSError) -> int:
    """Report an error of the operating system, and return the exit code.

    The exit code is 0 if the reader of the output has closed the pipe. An unusable path and a full
    disk are missing prerequisites (exit code 3); any other error is a defect of eval-factory.
    """
    # An error of writing to a pipe has no file name.
    if error.filename is None and has_no_reader(sys.stdout):
        discard_output(sys.stdout)
        return 0
    from eval_factory.workflows.options import DISK_FULL_ERRORS, UNUSABLE_PATH_ERRORS

    if error.filename is not None and error.errno in UNUSABLE_PATH_ERRORS:
        _say(f"{os.fsdecode(error.filename)}: {error.strerror}")
        return PrerequisiteError.exit_code
    if error.errno not in DISK_FULL_ERRORS:
        return _report_defect(error)
    flush_or_discard(sys.stdout)
    _say(
        f"cannot write {error.filename or 'the output'}: {error.strerror}; "
        "all answers so far are stored\n"
        "  make room on the disk, or make it writable, then run the same command again"
    )
    return PrerequisiteError.exit_code


def _say(message: str) -> None:
    """Write the message to standard error, redacted, because an error may quote text with a key."""
    from eval_factory.core.secrets import Redactor

    lines = (
        printable_lines(Redactor.from_environment(os.environ).redact_text(message))
        .rstrip("\n")
        .split("\n")
    )
    screen = tolerant_stream(sys.stderr)
    for line in lines:
        text = line if line.startswith("  ") else f"{PROGRAM}: {line}"
        if screen.isatty():
            text = wrapped(text, text_width(screen))
        screen.write(f"{text}\n")


def _report_defect(error: Exception) -> int:
    """Write the traceback of a defect to a temporary file, and return the exit code."""
    import tempfile
    import traceback

    from eval_factory.core.secrets import Redactor

    text = Redactor.from_environment(os.environ).redact_text(
        "".join(traceback.format_exception(error))
    )
    descriptor, name = tempfile.mkstemp(prefix="eval-factory-defect-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(printable_lines(text))
    _say(f"a defect in eval-factory ({type(error).__name__}); the traceback is in {name}")
    return DEFECT_EXIT_CODE
