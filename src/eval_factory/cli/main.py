"""The command line: click commands that ask the API and print; what goes wrong ends here, in one place."""

from __future__ import annotations

import json
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import click

from eval_factory import __version__
from eval_factory.cli.lazy import LazyCommands, LazyGroup
from eval_factory.cli.paths import HomePath
from eval_factory.cli.run_output import RecordingCommand, RunOutput
from eval_factory.cli.streams import flush_or_silence, lasting, make_ready, nobody_reads, silence
from eval_factory.cli.wrapping import columns, wrapped
from eval_factory.core.errors import (
    DEFECT_EXIT_CODE,
    ConfigError,
    EvalFactoryError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.foreign_text import own_lines
from eval_factory.core.this_process import forget_interrupts, interrupt_on_signals
from eval_factory.demo.example import KINDS

if TYPE_CHECKING:
    from eval_factory.api import DryRun
    from eval_factory.core.secrets import Redactor
    from eval_factory.tasks.framework import Framework

PROGRAM = "eval-factory"

NO_PLUGINS = ("PYDANTIC_DISABLE_PLUGINS", "true")
"""pydantic looks through every installed package for plug-ins otherwise: a twelfth of a dry run, and there are none."""

CLICKS_BROKEN_PIPE = 1
"""click itself ends the program so, whatever it is told, where a write to a pipe fails."""


def _underscored(token: str) -> str:
    """Both spellings of commands and options, `run-eval --model-id` and `run_eval --model_id`, are one."""
    return token.replace("-", "_")


LATER = {
    "compare": "eval_factory.cli.compare_command:compare",
    "report": "eval_factory.cli.report_command:report",
    "gate": "eval_factory.cli.gate_command:gate",
    "verify": "eval_factory.cli.verifying:verify",
    "reproduce": "eval_factory.cli.verifying:reproduce",
    "view": "eval_factory.cli.view_command:view",
    "run_suite": "eval_factory.cli.suite_command:run_suite",
    "import_config": "eval_factory.cli.import_command:import_config",
}
"""Commands that the others do not wait for: to import all of them takes milliseconds."""


@click.group(
    cls=LazyCommands,
    later=LATER,
    context_settings={"help_option_names": ["-h", "--help"], "token_normalize_func": _underscored},
)
@click.option("--debug", is_flag=True, help="Log in detail; HELM's log then holds prompts and answers.")
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Measure how good a language model is at medical work.

    Commands and options may be written with hyphens too: run-eval --model-id.
    """
    ctx.obj = {"debug": debug}


@cli.command("ls")
@click.argument("task", required=False)
@click.option("--all", "everything", is_flag=True, help="List every run spec that HELM knows: run one as helm:NAME.")
@click.option("--json", "as_json", is_flag=True, help="Print everything that is known as JSON.")
@click.option("--tag", default=None, help="Only tasks with this tag.")
@click.option("--benchmark", type=HomePath(), default=None, help="Tell all about a benchmark of your own (its YAML).")
def list_tasks(task: str | None, everything: bool, as_json: bool, tag: str | None, benchmark: Path | None) -> None:
    """List the tasks, or tell all about TASK (or helm:NAME, one of HELM's run specs) as a run config to begin with.

    Of a task with judges this shows the prompt that they get.
    """
    if (task is not None) + everything + (tag is not None) + (benchmark is not None) > 1:
        raise ConfigError("ls: give one of TASK, --all, --tag and --benchmark")
    from eval_factory.tasks.framework import load_framework  # imported here, as all that a command needs

    framework = load_framework()
    if task is not None or benchmark is not None:
        from eval_factory.cli import task_listing

        record = (
            task_listing.record_of_benchmark(benchmark, framework)
            if benchmark is not None
            else task_listing.record_of(str(task), framework)
        )
        click.echo(json.dumps(record, indent=2) if as_json else task_listing.details(record), nl=as_json)
    elif everything:
        _list_run_specs(framework, as_json=as_json)
    else:
        _list_tasks(framework, tag, as_json=as_json)


def _list_run_specs(framework: Framework, *, as_json: bool) -> None:
    from eval_factory.cli import task_listing
    from eval_factory.cli.tables import show_table

    records = task_listing.run_spec_records(framework)
    if as_json:
        click.echo(json.dumps(records, indent=2))
    elif sys.stdout.isatty():
        show_table(task_listing.RUN_SPEC_COLUMNS, task_listing.run_spec_rows(records))
    else:
        click.echo(task_listing.plain_table(task_listing.run_spec_rows(records)), nl=False)


def _list_tasks(framework: Framework, tag: str | None, *, as_json: bool) -> None:
    from eval_factory.tasks.task_info import tasks_with

    tasks = tasks_with(tag, framework)
    if not as_json and not sys.stdout.isatty():  # other programs read this form
        click.echo("\n".join([f"{framework.framework.name}:", *(f"  * {task.name}" for task in tasks)]))
        return
    from eval_factory.cli import task_listing
    from eval_factory.cli.tables import show_table

    if as_json:
        click.echo(json.dumps([task_listing.task_record(task) for task in tasks], indent=2))
    else:
        show_table(task_listing.TASK_COLUMNS, task_listing.task_rows(tasks))


FLAGS = {
    "output_dir": "config.output_dir",
    "eval_type": "config.type",
    "model_id": "target.api_endpoint.model_id",
    "model_type": "target.api_endpoint.type",
    "model_url": "target.api_endpoint.url",
    "api_key_name": "target.api_endpoint.api_key",
    "data_dir": "config.params.extra.data_dir",
    "limit_samples": "config.params.limit_samples",
    "parallelism": "config.params.parallelism",
    "max_new_tokens": "config.params.max_new_tokens",
    "max_retries": "config.params.max_retries",
    "request_timeout": "config.params.request_timeout",
    "temperature": "config.params.temperature",
    "top_p": "config.params.top_p",
    "shards": "config.params.extra.shards",
    "executor": "executor",
    "max_cost": "config.params.extra.max_cost",
    "max_requests": "config.params.extra.max_requests",
    "max_tokens_total": "config.params.extra.max_tokens_total",
    "max_wall_s": "config.params.extra.max_wall_s",
}


@cli.command("run_eval", cls=RecordingCommand)
@click.option("--run_config", type=HomePath(), default=None, help="The run config (YAML).")
@click.option("--output_dir", default=None, help="Folder for results; made if it is not there.")
@click.option("--eval_type", default=None, help="The task ('eval-factory ls' lists them), or helm:RUN_ENTRY.")
@click.option("--model_id", default=None, help="The model's id at the endpoint.")
@click.option("--model_type", default=None, help="chat or completions.")
@click.option("--model_url", default=None, help="The endpoint's base URL, or demo://baseline.")
@click.option("--api_key_name", default=None, help="NAME of the environment variable that holds the key.")
@click.option("--limit_samples", type=int, default=None, help="Instances to ask; all if not given.")
@click.option("--parallelism", type=int, default=None, help="Requests at the same time.")
@click.option(
    "--max_new_tokens", type=int, default=None, help="Tokens that an answer may have; the benchmark's if not given."
)
@click.option("--temperature", type=float, default=None, help="The benchmark's if not given.")
@click.option("--top_p", type=float, default=None, help="1 if not given.")
@click.option("--request_timeout", type=float, default=None, help="Seconds for one attempt of a request.")
@click.option("--max_retries", type=int, default=None, help="Further attempts where one fails.")
@click.option(
    "--data_dir", default=None, help="A data bundle ('eval-factory data --help'): the task's data are read from it."
)
@click.option("--offline", is_flag=True, help="Contact nothing but the endpoints.")
@click.option("--allow_code_execution", is_flag=True, help="Let a benchmark execute what the model answers.")
@click.option("--shards", default=None, hidden=True)  # of earlier versions: config/model.py says what to do now
@click.option(
    "--executor", type=click.Choice(["local", "slurm"]), default=None, help="Where the run happens; local if not given."
)
@click.option("--wait", is_flag=True, help="Wait for the end of a job of Slurm, which else only is submitted.")
@click.option("--max_cost", type=float, default=None, help="US dollars at which the run stops, judges included.")
@click.option("--max_requests", type=int, default=None, help="Requests after which the run stops, retries included.")
@click.option("--max_tokens_total", type=int, default=None, help="Tokens of prompts and answers at which it stops.")
@click.option("--max_wall_s", type=float, default=None, help="Seconds after which nothing more is asked.")
@click.option("--overrides", multiple=True, help="path.to.key=value,... over everything else; may be repeated.")
@click.option("--dry_run", is_flag=True, help="Show the configuration and the command; start and write nothing.")
@click.option("--estimate", is_flag=True, help="Show requests, tokens, cost and time; ask no endpoint.")
@click.option("--fresh", is_flag=True, help="Forget the answers that an earlier run kept in the output folder.")
@click.option("--no_preflight", is_flag=True, help="Do not ask the endpoint one cheap question before the run.")
@click.option("--quiet", is_flag=True, help="Print errors and the result's one line, and nothing else.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON record when the run starts and one when it ends.")
@click.option("--debug", is_flag=True, help="The same as before the command.")
@click.pass_context
def run_eval(
    ctx: click.Context,
    /,
    run_config: Path | None,
    overrides: tuple[str, ...],
    dry_run: bool,
    estimate: bool,
    fresh: bool,
    no_preflight: bool,
    offline: bool,
    allow_code_execution: bool,
    debug: bool,
    quiet: bool,
    as_json: bool,
    wait: bool,
    **flags: str | float | None,
) -> None:
    """Run one evaluation."""
    given: dict[str, Any] = {FLAGS[name]: value for name, value in flags.items() if value is not None}
    if offline:
        given["config.params.extra.offline"] = True
    if allow_code_execution:
        given["config.params.extra.allow_code_execution"] = True
    debug = debug or ctx.obj["debug"]
    output = RunOutput(quiet=quiet, as_json=as_json)
    with output.failures_told():
        from eval_factory import api  # imported here, as all that runs something: `ls` is to be quick

        options = api.Options(
            fresh=fresh,
            debug=debug,
            no_preflight=no_preflight,
            on_launch=output.launched,
        )
        asked: dict[str, Any] = {"flags": given, "overrides": overrides, "options": options, "screen": output.screen()}
        if dry_run and (quiet or as_json):
            raise ConfigError("run_eval: --dry_run prints a configuration to read: leave out --quiet and --json")
        if dry_run:
            show_dry_run(api.dry_run(run_config, **asked), asked["screen"])
            return
        if estimate:
            found = api.estimate(run_config, flags=given, overrides=overrides)
            click.echo(json.dumps(found.as_dict()) if as_json else found.to_text())
            return
        evaluated = (api.evaluate if wait else api.submit)(run_config, **asked)
        if isinstance(evaluated, api.Submitted):
            output.submitted(evaluated)
            return
        output.ended(evaluated)
        if evaluated.not_reportable is not None:
            raise NotReportableError(evaluated.not_reportable)


def show_dry_run(found: DryRun, screen: TextIO) -> None:
    sys.stdout.write(found.text)
    sys.stdout.flush()
    screen.writelines(f"warning: a run would stop: {line}\n" for line in found.would_stop[:1])
    screen.writelines(f"  {line}\n" for line in found.would_stop[1:])


@cli.command("new_benchmark")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option("--jury", is_flag=True, help="An example that is scored by judges, not by a right answer.")
@click.option(
    "--kind", type=click.Choice(KINDS), help="choice (the default), jury (as --jury), or rubric: judged by criteria."
)
def new_benchmark(folder: Path, jury: bool, kind: str | None) -> None:
    """Write an example of a custom benchmark into DIR, ready to run and to be changed."""
    from eval_factory.demo.example import write_example

    if jury and kind not in (None, "jury"):
        raise click.UsageError(f"--jury is --kind jury, and --kind is {kind}; give one of them")
    for path in write_example(folder, jury=jury, kind=kind):
        click.echo(str(path))
    click.echo(f"\nrun it: {PROGRAM} run_eval --run_config {shlex.quote(str(folder / 'run_config.yml'))}")


@cli.command("schema")
@click.argument("name")
def print_schema(name: str) -> None:
    """Print a JSON Schema, for editors and programs: run_config, evaluation_config, results, gate_policy, suite."""
    from eval_factory.cli.schemas import schema_text  # imports the models, which `--help` does without

    click.echo(schema_text(name), nl=False)


cli.add_command(LazyGroup("suite", "eval_factory.cli.suite_command:suite", "Look at a suite of runs; stop it."))
cli.add_command(LazyGroup("data", "eval_factory.cli.data:data", "What runs need, for machines without a network."))
cli.add_command(LazyGroup("export", "eval_factory.cli.export:export", "Results in the formats of other programs."))
cli.add_command(LazyGroup("annotate", "eval_factory.cli.annotate_command:annotate", "People rate a sample of answers."))
cli.add_command(LazyGroup("leaderboard", "eval_factory.cli.leaderboard:leaderboard", "Run HELM's public leaderboards."))


def main() -> None:
    """The one place where errors end and exit codes are made."""
    os.environ.setdefault(*NO_PLUGINS)
    make_ready()
    interrupt_on_signals()
    try:
        code = cli.main(prog_name=PROGRAM, standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        error.show(file=lasting(sys.stderr))
        sys.exit(ConfigError.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        sys.exit(130)
    except EvalFactoryError as error:
        _say(str(error))
        flush_or_silence(sys.stdout)
        sys.exit(error.exit_code)
    except OSError as error:
        sys.exit(_code_of(error))
    except SystemExit as error:
        if error.code != CLICKS_BROKEN_PIPE or not nobody_reads(sys.stdout):
            raise
        sys.exit(0)
    except Exception as error:  # a defect of ours: the traceback goes to a file, one line to the screen
        sys.exit(_report_defect(error))
    finally:
        forget_interrupts()
    sys.exit(code if isinstance(code, int) else 0)


def _code_of(error: OSError) -> int:
    """Where nobody reads what was printed all is well; a disk that takes no more is said."""
    if error.filename is None and nobody_reads(sys.stdout):
        silence(sys.stdout)
        return 0
    from eval_factory.workflows.end_record import DISK_TAKES_NO_MORE, PATHS_THAT_CANNOT_BE

    if error.filename is not None and error.errno in PATHS_THAT_CANNOT_BE:
        _say(f"{os.fsdecode(error.filename)}: {error.strerror}")
        return PrerequisiteError.exit_code
    if error.errno not in DISK_TAKES_NO_MORE:
        return _report_defect(error)
    flush_or_silence(sys.stdout)
    _say(
        f"cannot write {error.filename or 'the output'}: {error.strerror}; what was answered is kept\n"
        "  make room there, or make it writable, then run the same command again"
    )
    return PrerequisiteError.exit_code


def _say(message: str) -> None:
    """To standard error, redacted: an error may quote what it stumbled over."""
    redactor = _redactor()
    lines = own_lines(redactor.text(message)).rstrip("\n").split("\n")
    prefix = f"{PROGRAM}: "
    screen = lasting(sys.stderr)
    for line in lines:
        told = line if line.startswith("  ") else prefix + line
        screen.write((wrapped(told, columns(screen)) if screen.isatty() else told) + "\n")


def _redactor() -> Redactor:
    from eval_factory.core.secrets import Redactor as Known
    from eval_factory.core.secrets import names_a_secret

    return Known.from_environment(os.environ, filter(names_a_secret, os.environ))


def _report_defect(error: Exception) -> int:
    import tempfile
    import traceback

    text = "".join(traceback.format_exception(error))
    redactor = _redactor()
    descriptor, name = tempfile.mkstemp(prefix="eval-factory-defect-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(own_lines(redactor.text(text)))
    _say(f"a defect in eval-factory ({type(error).__name__}); the traceback is in {name}")
    return DEFECT_EXIT_CODE
