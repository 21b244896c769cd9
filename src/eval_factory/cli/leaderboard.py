"""`eval-factory leaderboard`: HELM's public leaderboards, for the user's model."""

from __future__ import annotations

import json
import os
import sys
from typing import TYPE_CHECKING, Any, TextIO

import click

from eval_factory.cli.console import HomePath, lasting
from eval_factory.core.this_process import not_to_be_hung_up

if TYPE_CHECKING:
    from eval_factory.workflows.suite.suite_report import CellReport

LEAST_WIDTH = 100
"""Of a terminal that shows a table; in a narrower one everything about a leaderboard stands under its name."""


def listing(stream: TextIO, *, as_json: bool) -> None:
    """A table on a terminal; elsewhere a line each, tab-separated: name, what it is, conf, schema, instances, needs."""
    from eval_factory.workflows.leaderboard.registry import load_catalogue, schema_path  # here: `--help` is to be quick

    rows = load_catalogue().leaderboards
    if as_json:
        records = [
            {
                **row.model_dump(by_alias=True, mode="json"),
                "schema_installed": schema_path(row) is not None,
                "needed": row.needed(),
            }
            for row in rows
        ]
        stream.write(json.dumps(records, indent=2) + "\n")
        return
    if not stream.isatty():
        for row in rows:
            needed = "; ".join(row.needed()) or "-"
            files = (row.conf, row.schema_file, str(row.max_eval_instances))
            stream.write("\t".join((row.name, row.description, *files, needed)) + "\n")
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    if console.width < LEAST_WIDTH:
        for row in rows:
            about = f"{row.conf}, {row.schema_file}, {row.max_eval_instances} instances"
            console.print(Text("\n  ".join((row.name, row.description, about, *row.needed()))))
        return
    table = Table(show_lines=True)
    table.add_column("name", no_wrap=True, min_width=max(len(row.name) for row in rows))
    table.add_column("what it is")
    table.add_column("conf, schema", overflow="fold")
    table.add_column("instances", justify="right")
    table.add_column("needs, beside a text endpoint")
    for row in rows:
        about = f"{row.conf}\n{row.schema_file}"
        cells = (row.name, row.description, about, str(row.max_eval_instances), "\n".join(row.needed()) or "-")
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)


@click.group("leaderboard")
def leaderboard() -> None:
    """Run HELM's public leaderboards."""


@leaderboard.command("ls")
@click.option("--json", "as_json", is_flag=True, help="Print everything about them as JSON.")
def list_leaderboards(as_json: bool) -> None:
    """List the leaderboards, and what each needs beside an endpoint for text."""
    listing(sys.stdout, as_json=as_json)


@leaderboard.command("run")
@click.argument("name")
@click.option("--run_config", type=HomePath(), help="A run config: endpoint and judges.")
@click.option("--model", "--model_id", "model", multiple=True, help="The model's id at the endpoint; may be repeated.")
@click.option("--model_url", help="The endpoint's base URL, or demo://baseline.")
@click.option("--model_type", help="chat or completions.")
@click.option("--api_key_name", help="NAME of the environment variable that holds the key.")
@click.option("--conf", type=HomePath(), help="The leaderboard's run entries (HOCON).")
@click.option("--data_dir", type=HomePath(), help="A data bundle: confs and data are read from it.")
@click.option("--output_dir", help="Folder for results; made if it is not there.")
@click.option("--max_eval_instances", type=int, help="Instances a run; the leaderboard's if not given.")
@click.option("--parallelism", type=int, help="Requests at the same time.")
@click.option("--min_coverage", type=float, help="Share of requests that a run needs answered to be in the tables.")
@click.option("--reasoning", is_flag=True, help="Take the entries with more output tokens, where a conf has both.")
@click.option("--overrides", multiple=True, help="path.to.key=value,... over everything else; may be repeated.")
@click.option("--offline", is_flag=True, help="Contact nothing but the endpoints.")
@click.option("--allow_code_execution", is_flag=True, help="Let entries execute what the model answers.")
@click.option("--dry_run", is_flag=True, help="Check everything, print HELM's commands; start and write nothing.")
@click.option("--no_preflight", is_flag=True, help="Do not ask the endpoint one cheap question before the run.")
@click.pass_context
def run(ctx: click.Context, /, **flags: Any) -> None:
    """Run the leaderboard NAME: helm-run over all its entries, then helm-summarize."""
    from eval_factory.workflows.leaderboard.board import board_request, make_board
    from eval_factory.workflows.leaderboard.board_tables import commands_of, tables_of

    debug, no_preflight = bool(ctx.obj and ctx.obj["debug"]), flags.pop("no_preflight")
    request = board_request(flags)
    screen = lasting(sys.stderr)
    board = make_board(request, os.environ, screen)
    if request.dry_run:
        commands = commands_of(board, os.environ, screen, debug=debug)
        sys.stdout.writelines(f"{command}\n" for command in commands)
        screen.write("nothing was written; the files that these commands name are there after the first run\n")
        return
    cells: tuple[CellReport, ...] = ()
    if board.suite is not None:
        from eval_factory.cli.run_command import RunOutput
        from eval_factory.cli.suite_screen import looking_on
        from eval_factory.workflows.suite.run_suite import run_suite
        from eval_factory.workflows.suite.suite_report import SuiteOptions

        options = SuiteOptions(debug=debug, no_preflight=no_preflight)
        with looking_on(board.suite.folder, RunOutput()) as observer:
            cells = run_suite(board.suite, options, env=os.environ, screen=observer).cells
    with not_to_be_hung_up():
        found = tables_of(board, cells, os.environ, lasting(sys.stdout))
    if found is not None:
        raise found
