"""Helpers that several commands share: output streams, line widths, tables, option types."""

from __future__ import annotations

import codecs
import contextlib
import io
import json
import math
import os
import select
import sys
import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any, Literal, TextIO, cast

import click

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.safe_files import expand_home


class TolerantStream(io.TextIOBase):
    """An output stream that ignores write errors.

    The result of a run is written to files, so the run continues if the reader of its screen or
    pipe has gone.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream

    def write(self, text: str) -> int:
        """Write and flush the text. If the reader has gone, all further output is discarded."""
        with contextlib.suppress(ValueError):  # the stream is closed
            try:
                self._stream.write(text)
                self._stream.flush()
            except OSError:
                discard_output(self._stream)
        return len(text)

    @property
    def encoding(self) -> str:  # type: ignore[override]
        """The encoding of the wrapped stream, by which callers choose characters.

        A stream in memory has no encoding; it accepts all characters, as UTF-8 does.
        """
        return getattr(self._stream, "encoding", None) or "utf-8"

    def isatty(self) -> bool:
        """Return True if the stream is an open terminal."""
        return not self._stream.closed and self._stream.isatty()


def tolerant_stream(stream: TextIO) -> TextIO:
    """Return a stream that writes to `stream` and ignores write errors."""
    return cast(TextIO, TolerantStream(stream))


def write_record(stdout: TextIO, record: Mapping[str, Any]) -> None:
    """Write the record as one line of JSON.

    The line is ASCII, which every stream can write. A number that JSON lacks (NaN, infinity)
    becomes null.
    """
    from eval_factory.core.safe_files import json_line

    # `json_line` makes null of NaN, and `json.dumps` makes ASCII.
    stdout.write(json.dumps(json.loads(json_line(dict(record)))) + "\n")


def discard_output(stream: TextIO) -> None:
    """Discard everything that is in the stream's buffer or is written later.

    The stream's file descriptor then refers to the null device.
    """
    with contextlib.suppress(OSError, ValueError), Path(os.devnull).open("wb") as null_device:
        os.dup2(null_device.fileno(), stream.fileno())


def flush_or_discard(stream: TextIO) -> None:
    """Flush the stream; if this fails, discard the output.

    An unflushed buffer would make the interpreter fail when it ends.
    """
    try:
        stream.flush()
    except (OSError, ValueError):
        discard_output(stream)


def has_no_reader(stream: TextIO) -> bool:
    """Return True if nobody can read the output: the reader of the pipe or the terminal has gone.

    Returns False also if this cannot be determined.
    """
    with contextlib.suppress(OSError, ValueError):
        poll = select.poll()
        poll.register(stream.fileno(), 0)  # 0: no event is requested; errors are reported anyway
        events_now = poll.poll(0)  # 0: do not wait
        return any(
            event & (select.POLLERR | select.POLLHUP | select.POLLNVAL) for _, event in events_now
        )
    return False


def prepare_streams() -> None:
    """Prepare the standard streams, so that writing any text cannot fail.

    Closed streams are opened on the null device. If Python does not use UTF-8, the process is
    restarted in Python's UTF-8 mode.
    """
    for descriptor in (0, 1, 2):
        try:
            os.fstat(descriptor)
        except OSError:
            # `os.open` uses the lowest free descriptor, which is the closed one
            os.open(os.devnull, os.O_RDWR)
    # The second condition prevents an endless loop of restarts.
    if not _is_utf_8(sys.getfilesystemencoding()) and os.environ.get("PYTHONUTF8") != "1":
        os.environ["PYTHONUTF8"] = "1"
        # The program replaces itself by a new start of itself.
        os.execv(sys.executable, [sys.executable, "-X", "utf8", *sys.orig_argv[1:]])  # noqa: S606
    os.environ["PYTHONUTF8"] = "1"  # helm-run inherits this variable
    os.environ.pop("PYTHONIOENCODING", None)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            # The file stays open as the stream.
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        elif isinstance(stream, io.TextIOWrapper) and not _is_utf_8(stream.encoding):
            stream.reconfigure(errors="backslashreplace")


def _is_utf_8(encoding: str) -> bool:
    """Return True if the name of the encoding is one of the names of UTF-8."""
    return codecs.lookup(encoding).name == "utf-8"


_WIDTH = 80  # the maximum width of a text, in characters; also used if there is no terminal
_MIN_WIDTH = 20  # the minimum width of a text, in characters


def text_width(stream: TextIO) -> int:
    """Return the width of a text on this stream, from 20 to 80 characters.

    The width is the environment variable COLUMNS, or else that of the terminal, or else 80.
    """
    width = _WIDTH
    if stream.isatty():
        import shutil  # imported late: it imports four compression modules

        # This function also reads COLUMNS.
        # 24: the usual number of lines, which is not used here
        width = shutil.get_terminal_size(fallback=(_WIDTH, 24)).columns
    else:
        stated = os.environ.get("COLUMNS", "")
        if stated.isdecimal() and int(stated) > 0:
            width = int(stated)
    return min(_WIDTH, max(_MIN_WIDTH, width))


def wrapped(text: str, width: int = _WIDTH) -> str:
    """Return the text with each long line wrapped; continuation lines are indented.

    Words are never broken, so that paths can be copied. Lines with the paths of the page and the
    results are not wrapped, because programs read these lines.
    """
    shown: list[str] = []
    for line in text.split("\n"):
        is_path = line.lstrip(" ").startswith(("page: ", "results: "))
        is_empty = not line.strip()
        if is_path or is_empty:
            shown.append(line)
            continue
        indent = " " * (len(line) - len(line.lstrip(" ")))
        shown += textwrap.wrap(
            line,
            width,
            subsequent_indent=f"{indent}    ",
            break_long_words=False,
            break_on_hyphens=False,
        )
    return "\n".join(shown)


@contextlib.contextmanager
def explained_write_errors(path: Path) -> Iterator[None]:
    """Run the block, and turn an OSError into an error that names the file.

    Raises:
        PrerequisiteError: The file cannot be written.
    """
    try:
        yield
    except OSError as error:
        raise PrerequisiteError(
            f"{path}: cannot be written: {error.strerror}; "
            "give a file in a folder that you may write to"
        ) from None


NUMBER_COLUMNS = frozenset({"instances", "data size", "size"})  # columns that are aligned right
WRAPPED_COLUMNS = ("what it measures", "what it asks", "parameters", "needs", "where")
"""Columns whose cells may be wrapped to several lines. A table always shows the first of these
columns that it has. All other columns are shown unwrapped, or are left out.
"""
MIN_WRAPPED_WIDTH = 20  # the minimum width of a wrapped column, in characters
_GAP = 2  # the space between two columns, in characters


def show_table(
    columns: Sequence[str], rows: Iterable[Sequence[str]], file: TextIO | None = None
) -> None:
    """Print a table. `columns` are the titles of its columns; the first column has the rows' names.

    If the terminal is too narrow, columns are left out, beginning with the last. Two columns are
    always shown: the first column, and the first of `WRAPPED_COLUMNS` that the table has. If these
    two columns need more width, lines are wider than the terminal. The text of a shown cell is
    never cut. Without a terminal, the environment variable COLUMNS determines the width, or else
    80.
    """
    # imported late: importing rich takes a tenth of a second
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    rows = list(rows)
    console = Console(file=file or sys.stdout, highlight=False)
    max_widths = _widest_lines(columns, rows)
    min_widths = dict(max_widths)
    for name in WRAPPED_COLUMNS:
        if name in columns:
            min_widths[name] = min(max_widths[name], MIN_WRAPPED_WIDTH)
    # the second column that is always shown; the last column if no column can be wrapped
    text_column = next((name for name in WRAPPED_COLUMNS if name in columns), columns[-1])
    left_out: list[str] = []
    for name in reversed(columns[1:]):
        if name != text_column and _line_width(min_widths.values()) > console.width:
            left_out.insert(0, name)
            del min_widths[name]
    console.width = max(console.width, _line_width(min_widths.values()))
    widths = _column_widths(console.width, min_widths, max_widths, text_column)
    shown = [name for name in columns if name not in left_out]
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in shown:
        alignment: Literal["right", "left"] = "right" if name in NUMBER_COLUMNS else "left"
        table.add_column(name, justify=alignment, overflow="fold", width=widths[name])
    for row in rows:
        cells = dict(zip(columns, row, strict=True))
        table.add_row(*(Text(cells[name]) for name in shown))
    with console.capture() as printed:  # rich itself would end the program if the reader has gone
        console.print(table)
        if left_out:
            console.print(Text(f"a wider terminal shows: {', '.join(left_out)}", style="dim"))
    click.echo(printed.get(), file, nl=False)


def _widest_lines(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> dict[str, int]:
    """Return a dict from the name of each column to the width of its longest line."""
    max_widths = {}
    # `zip` turns the rows into columns: each tuple has the name and the cells of one column.
    for name, *cells in zip(columns, *rows, strict=True):
        lines = chain.from_iterable(cell.splitlines() for cell in (name, *cells))
        max_widths[name] = max(map(len, lines), default=0)
    return max_widths


def _line_width(widths: Iterable[int]) -> int:
    """Return the width of a line of the table, with the gaps between its columns."""
    return sum(width + _GAP for width in widths) - _GAP


def _column_widths(
    width: int, min_widths: Mapping[str, int], max_widths: Mapping[str, int], text_column: str
) -> dict[str, int]:
    """Return the width of each shown column. Columns that may be wrapped share the free space.

    Args:
        width: The width of the table.
        min_widths: The minimum width of each shown column.
        max_widths: The width of the longest line in each column.
        text_column: The column that is widened last, and can use all space that remains.
    """
    widths = dict(min_widths)
    wrapped_columns = [
        name for name in WRAPPED_COLUMNS if name in min_widths and name != text_column
    ]
    wrapped_columns.append(text_column)
    for number, name in enumerate(wrapped_columns):
        free_space = max(0, width - _line_width(widths.values()))
        columns_left = len(wrapped_columns) - number  # this column and all columns after it
        share = free_space // columns_left
        widths[name] = min(max_widths[name], widths[name] + share)
    return widths


def show_tsv(
    columns: Sequence[str], rows: Iterable[Sequence[str]], file: TextIO | None = None
) -> None:
    """Print a table for programs: a line with the columns' names, and a line for each row.

    Tabs separate the columns. No cell is cut, and an empty cell is printed as `-`.
    """
    for row in chain([columns], rows):
        cells = []
        for cell in row:
            on_one_line = " ".join(cell.split())
            cells.append(on_one_line or "-")
        click.echo("\t".join(cells), file)


TSV_OPTION = click.option(
    "--tsv", "as_tsv", is_flag=True, help="Print one uncut line each, with tabs between columns."
)


class HomePath(click.Path):
    """The type of an option or argument that is a path.

    `~` is expanded here, because a shell does not expand the `~` of `--to=~/x`.
    """

    def __init__(self) -> None:
        super().__init__(path_type=Path)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """Return the path with an expanded home folder."""
        try:
            value = expand_home(os.fspath(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)
        return super().convert(value, param, ctx)


def number_or_share(text: str) -> int | float:
    """Return the number of instances, such as `20`, or the share of all instances, such as `0.1`.

    click uses this function as the type of an option, and shows the message of the error.

    Raises:
        ValueError: The text is neither a whole number nor a share.
    """
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if 0 < number < 1:
        return number
    if number.is_integer():  # False for NaN and infinity
        return int(number)
    raise ValueError(f"{text!r} is neither a whole number nor a share between 0 and 1")
