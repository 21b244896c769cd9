"""The command line. Flags become a `Request`; what goes wrong ends here, in one place."""

from __future__ import annotations

import errno
import json
import os
import shlex
import signal
import sys
import tempfile
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import click

from eval_factory import __version__
from eval_factory.cli.lazy import LazyGroup
from eval_factory.config.evaluation import Request
from eval_factory.config.framework import Framework, load_framework
from eval_factory.errors import DEFECT_EXIT_CODE, ConfigError, EvalFactoryError, PrerequisiteError
from eval_factory.secrets import Redactor, names_a_secret

PROGRAM = "eval-factory"


class _EitherSpelling(click.Group):
    """`run_eval` and `run-eval` are one command."""

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        return super().get_command(ctx, cmd_name.replace("-", "_"))


_Command = TypeVar("_Command", bound=Callable[..., Any])


def _option(name: str, **settings: Any) -> Callable[[_Command], _Command]:
    """An option in both spellings: --run_config and --run-config."""
    spellings = dict.fromkeys((f"--{name}", f"--{name.replace('_', '-')}"))
    return click.option(*spellings, name, **settings)


@click.group(cls=_EitherSpelling, context_settings={"help_option_names": ["-h", "--help"]})
@click.option("--debug", is_flag=True, help="Log in detail; HELM's log then holds prompts and answers.")
@click.version_option(__version__, prog_name=PROGRAM)
@click.pass_context
def cli(ctx: click.Context, debug: bool) -> None:
    """Measure how good a language model is at medical work."""
    ctx.obj = {"debug": debug}


@cli.command("ls")
@click.argument("task", required=False)
@click.option("--all", "everything", is_flag=True, help="List every run spec that HELM knows: run one as helm:NAME.")
@click.option("--json", "as_json", is_flag=True, help="Print everything that is known as JSON.")
@click.option("--tag", default=None, help="Only tasks with this tag.")
def list_tasks(task: str | None, everything: bool, as_json: bool, tag: str | None) -> None:
    """List the tasks, or tell all about TASK (or helm:NAME, one of HELM's run specs) as a run config to begin with."""
    from eval_factory.cli import listing

    if (task is not None) + everything + (tag is not None) > 1:
        raise ConfigError("ls: give one of TASK, --all and --tag")
    framework = load_framework()
    if task is not None:
        record = listing.record_of(task, framework)
        click.echo(json.dumps(record, indent=2) if as_json else listing.details(record), nl=as_json)
    elif everything:
        _list_run_specs(listing.run_spec_records(framework), as_json=as_json)
    else:
        _list_tasks(framework, tag, as_json=as_json)


def _list_run_specs(records: list[dict[str, Any]], *, as_json: bool) -> None:
    from eval_factory.cli import listing

    if as_json:
        click.echo(json.dumps(records, indent=2))
    elif sys.stdout.isatty():
        listing.show_table(listing.RUN_SPEC_COLUMNS, listing.run_spec_rows(records))
    else:
        click.echo(listing.plain_table(listing.run_spec_rows(records)), nl=False)


def _list_tasks(framework: Framework, tag: str | None, *, as_json: bool) -> None:
    from eval_factory.cli import listing

    tasks = [task for task in framework.evaluations if tag is None or tag in task.about.tags]
    if not tasks:
        tags = sorted({name for task in framework.evaluations for name in task.about.tags})
        raise ConfigError(f"no task has the tag {tag!r}; tags: {', '.join(tags)}")
    if as_json:
        click.echo(json.dumps([listing.task_record(task) for task in tasks], indent=2))
    elif sys.stdout.isatty():
        listing.show_table(listing.TASK_COLUMNS, listing.task_rows(tasks))
    else:  # other programs read this form
        click.echo(f"{framework.framework.name}:")
        for task in tasks:
            click.echo(f"  * {task.name}")


_FLAGS = {
    "output_dir": "config.output_dir",
    "eval_type": "config.type",
    "model_id": "target.api_endpoint.model_id",
    "model_type": "target.api_endpoint.type",
    "model_url": "target.api_endpoint.url",
    "api_key_name": "target.api_endpoint.api_key",
    "data_dir": "config.params.extra.data_dir",
}


@cli.command("run_eval")
@_option("run_config", type=click.Path(path_type=Path), default=None, help="The run config (YAML).")
@_option("output_dir", default=None, help="Folder for results; made if it is not there.")
@_option("eval_type", default=None, help="The task ('eval-factory ls' lists them), or helm:RUN_ENTRY.")
@_option("model_id", default=None, help="The model's id at the endpoint.")
@_option("model_type", default=None, help="chat or completions.")
@_option("model_url", default=None, help="The endpoint's base URL, or demo://baseline.")
@_option("api_key_name", default=None, help="NAME of the environment variable that holds the key.")
@_option("data_dir", default=None, help="A data bundle ('eval-factory data --help'): the task's data are read from it.")
@_option("offline", is_flag=True, help="Contact nothing but the endpoints.")
@_option("allow_code_execution", is_flag=True, help="Let a benchmark execute what the model answers.")
@_option("overrides", multiple=True, help="path.to.key=value,... over everything else; may be repeated.")
@_option("dry_run", is_flag=True, help="Show the configuration and the command; start and write nothing.")
@_option("fresh", is_flag=True, help="Forget the answers that an earlier run kept in the output folder.")
@_option("no_preflight", is_flag=True, help="Do not ask the endpoint one cheap question before the run.")
@click.option("--debug", is_flag=True, help="The same as before the command.")
@click.pass_context
def run_eval(
    ctx: click.Context,
    /,
    run_config: Path | None,
    overrides: tuple[str, ...],
    dry_run: bool,
    fresh: bool,
    no_preflight: bool,
    offline: bool,
    allow_code_execution: bool,
    debug: bool,
    **flags: str | None,
) -> None:
    """Run one evaluation."""
    from eval_factory.pipeline import Options, run_evaluation

    given: dict[str, Any] = {_FLAGS[name]: value for name, value in flags.items() if value is not None}
    if offline:
        given["config.params.extra.offline"] = True
    if allow_code_execution:
        given["config.params.extra.allow_code_execution"] = True
    request = Request(run_config=run_config, flags=given, overrides=overrides)
    options = Options(dry_run=dry_run, fresh=fresh, debug=debug or ctx.obj["debug"], no_preflight=no_preflight)
    run_evaluation(request, options, env=os.environ, screen=sys.stderr, output=sys.stdout)


@cli.command("new_benchmark")
@click.argument("folder", type=click.Path(path_type=Path), metavar="DIR")
@click.option("--jury", is_flag=True, help="An example that is scored by judges, not by a right answer.")
def new_benchmark(folder: Path, jury: bool) -> None:
    """Write an example of a benchmark of your own into DIR, ready to run and to be changed."""
    from eval_factory.demo.example import write_example

    for path in write_example(folder, jury=jury):
        click.echo(str(path))
    click.echo(f"\nrun it: {PROGRAM} run_eval --run_config {shlex.quote(str(folder / 'run_config.yml'))}")


cli.add_command(LazyGroup("data", "eval_factory.cli.data:data", "What runs need, for machines without a network."))
cli.add_command(LazyGroup("leaderboard", "eval_factory.cli.leaderboard:leaderboard", "Run HELM's public leaderboards."))


def main() -> None:
    """Entry point: the one place where errors end and exit codes are made."""
    signal.signal(signal.SIGTERM, _interrupt)
    try:
        code = cli.main(prog_name=PROGRAM, standalone_mode=False)
        sys.exit(code if isinstance(code, int) else 0)
    except click.ClickException as error:
        error.show()
        sys.exit(ConfigError.exit_code)
    except (KeyboardInterrupt, click.Abort):
        _say("interrupted")
        sys.exit(130)
    except EvalFactoryError as error:
        _say(str(error))
        sys.exit(error.exit_code)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(0)
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EROFS, errno.EDQUOT):
            sys.exit(_report_defect(error))
        _say(f"cannot write {error.filename or 'the output folder'}: {error.strerror}; what was answered is kept")
        sys.exit(PrerequisiteError.exit_code)
    except Exception as error:  # a defect of ours: the traceback goes to a file, one line to the screen
        sys.exit(_report_defect(error))


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _say(message: str) -> None:
    """To standard error, redacted: an error may quote what it stumbled over."""
    redactor = Redactor.from_environment(os.environ, filter(names_a_secret, os.environ))
    lines = redactor.text(message).splitlines() or [""]
    prefix = f"{PROGRAM}: "
    for line in lines:
        click.echo(line if line.startswith("  ") else prefix + line, err=True)


def _report_defect(error: Exception) -> int:
    text = "".join(traceback.format_exception(error))
    redactor = Redactor.from_environment(os.environ, filter(names_a_secret, os.environ))
    descriptor, name = tempfile.mkstemp(prefix="eval-factory-defect-", suffix=".log")
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write(redactor.text(text))
    _say(f"a defect in eval-factory ({type(error).__name__}); the traceback is in {name}")
    return DEFECT_EXIT_CODE
