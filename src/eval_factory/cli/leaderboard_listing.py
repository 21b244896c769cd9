"""What `leaderboard ls` prints: a table on a terminal, a line each elsewhere, or JSON."""

from __future__ import annotations

import json
from typing import Any, TextIO

from eval_factory.workflows.leaderboard.registry import Leaderboard, load_catalogue, schema_path

LEAST_WIDTH = 100
"""Of a terminal that shows a table; in a narrower one everything about a leaderboard stands under its name."""


def listing(stream: TextIO, *, as_json: bool) -> None:
    rows = load_catalogue().leaderboards
    if as_json:
        stream.write(json.dumps([record(row) for row in rows], indent=2) + "\n")
    elif stream.isatty():
        _table(rows, stream)
    else:
        for row in rows:
            stream.write(plain_line(row) + "\n")


def record(row: Leaderboard) -> dict[str, Any]:
    return {
        **row.model_dump(by_alias=True, mode="json"),
        "schema_installed": schema_path(row) is not None,
        "needed": row.needed(),
    }


def plain_line(row: Leaderboard) -> str:
    """Tab-separated: name, what it is, conf, schema, instances, what it needs."""
    needed = "; ".join(row.needed()) or "-"
    return "\t".join((row.name, row.description, row.conf, row.schema_file, str(row.max_eval_instances), needed))


def _table(rows: tuple[Leaderboard, ...], stream: TextIO) -> None:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console(file=stream, highlight=False)
    if console.width < LEAST_WIDTH:
        for row in rows:
            files = f"{row.conf}, {row.schema_file}, {row.max_eval_instances} instances"
            console.print(Text("\n  ".join((row.name, row.description, files, *row.needed()))))
        return
    table = Table(show_lines=True)
    table.add_column("name", no_wrap=True, min_width=max(len(row.name) for row in rows))
    table.add_column("what it is")
    table.add_column("conf, schema", overflow="fold")
    table.add_column("instances", justify="right")
    table.add_column("needs, beside a text endpoint")
    for row in rows:
        files = f"{row.conf}\n{row.schema_file}"
        cells = (row.name, row.description, files, str(row.max_eval_instances), "\n".join(row.needed()) or "-")
        table.add_row(*(Text(cell) for cell in cells))
    console.print(table)
