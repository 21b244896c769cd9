"""`eval-factory verify` and `eval-factory reproduce`: is a result what it says it is, and can it be had again?"""

from __future__ import annotations

import json
import sys
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eval_factory.cli.paths import HomePath
from eval_factory.cli.streams import lasting
from eval_factory.core.errors import ConfigError, NotReportableError
from eval_factory.core.foreign_text import own_lines, printable
from eval_factory.core.this_process import not_to_be_hung_up

if TYPE_CHECKING:
    from eval_factory.api import Verified

MOST_SHOWN = 20
"""Findings of one file; `--json` has all."""


@click.command("verify")
@click.argument("folders", type=HomePath(), nargs=-1, required=True, metavar="DIR...")
@click.option("--json", "as_json", is_flag=True, help="Print all findings as JSON.")
@click.pass_context
def verify(ctx: click.Context, folders: tuple[Path, ...], as_json: bool) -> None:
    """Check that output folders are what they say they are.

    Compares each file with SHA256SUMS, collects the result again from HELM's files and the journal, and names what
    was altered. Nothing is changed; no key and no network are needed. Exit code: 0 intact, 1 altered, 3 no result.
    """
    from eval_factory import api  # imported here, as all that reads results: `ls` is to be quick

    found = [api.verify(folder) for folder in folders]
    if as_json:
        click.echo(json.dumps([_record(one) for one in found], indent=2))
    else:
        for one in found:
            click.echo(own_lines(shown(one)))
    ctx.exit(max(one.exit_code for one in found))


def _record(one: Verified) -> dict[str, object]:
    record = asdict(one)
    return {**record, "folder": str(one.folder), "intact": one.intact, "exit_code": one.exit_code}


def shown(one: Verified) -> str:
    """The outcome of one folder, then a line for each finding and note."""
    if one.findings:
        outcome = f"altered: {len(one.findings)} finding{'s' * (len(one.findings) != 1)}"
    else:
        outcome = "intact" if one.unreadable is None else f"cannot be verified: {one.unreadable}"
    lines = [f"{one.folder}: {outcome}"]
    told: Counter[str] = Counter()
    for finding in one.findings:
        told[finding.file] += 1
        if told[finding.file] <= MOST_SHOWN:
            lines.append(f"  {finding}")
    more = {file: count - MOST_SHOWN for file, count in told.items() if count > MOST_SHOWN}
    lines += [f"  {file}: {count} more findings (--json shows them)" for file, count in more.items()]
    lines += [f"  note: {note}" for note in one.notes]
    return "\n".join(printable(line) for line in lines)


@click.command("reproduce")
@click.argument("folder", type=HomePath(), metavar="DIR")
@click.option("--run", "run_it", is_flag=True, help="Run it in --output_dir, and compare the two results.")
@click.option("--output_dir", type=HomePath(), default=None, help="A new folder, for the run config and the result.")
def reproduce(folder: Path, run_it: bool, output_dir: Path | None) -> None:
    """Write the run config that does the evaluation of DIR again, and say what is another now.

    The run config goes to standard output, or into --output_dir as reproduce.yml. With --run it is run there. Exit
    code: 0 where the same was asked, whatever the scores; 1 where prompts or data differ.
    """
    from eval_factory import api

    screen = lasting(sys.stderr)
    if run_it and output_dir is None:
        raise ConfigError("reproduce --run: give the new folder with --output_dir; the original is never written to")
    if output_dir is None or not run_it:
        prepared = api.reproduce(folder, output_dir)
        screen.writelines(f"{printable(line)}\n" for line in prepared.lines())
        click.echo(prepared.run_config if prepared.file is None else str(prepared.file), nl=prepared.file is not None)
        return
    again = api.run_again(folder, output_dir, screen=screen)
    with not_to_be_hung_up():
        stdout = lasting(sys.stdout)
        stdout.write(again.evaluated.summary + "\n")
        stdout.writelines(own_lines(f"  {line}") + "\n" for line in (*again.scores, *again.differences))
    if not again.is_the_same:
        raise NotReportableError(f"{output_dir} is not the same evaluation as {folder}: {'; '.join(again.differences)}")
