"""`eval-factory suite check`: what a table lacks, cell by cell."""

from __future__ import annotations

from collections.abc import Iterator

from eval_factory.cli.suite_text import GOES_ON
from eval_factory.cli.verifying import MOST_SHOWN
from eval_factory.core.foreign_text import one_line, own_lines
from eval_factory.workflows.suite.suite_check import SuiteCheck


def check_text(found: SuiteCheck) -> str:
    """For the screen."""
    return own_lines("\n".join(_lines(found)))


def _lines(found: SuiteCheck) -> Iterator[str]:
    missing = [cell for cell in found.cells if not cell.is_complete]
    total = f"{len(found.cells)} {'cell' if len(found.cells) == 1 else 'cells'}"
    if not missing:
        yield f"{found.folder.root}: complete: {total}"
    else:
        yield f"{found.folder.root}: not complete: {len(missing)} of {total} without a complete result"
    for cell in missing:
        yield f"  {cell.name}: {cell.status}{f': {one_line(cell.reason)}' if cell.reason else ''}"
        for text in cell.to_do:
            first, *others = text.split("\n")
            yield f"    to do: {first}"
            yield from (f"      {line.strip()}" for line in others)
    yield from (f"  altered: {one_line(str(finding))}" for finding in found.altered[:MOST_SHOWN])
    yield from [f"  altered: {len(found.altered) - MOST_SHOWN} more (--json)"][: len(found.altered) > MOST_SHOWN]
    for cell in found.cells:
        if cell.is_complete and cell.reason:
            yield f"  note: {cell.name}: {one_line(cell.reason)}"
    if found.is_running:
        yield "the suite is running: look at it with 'eval-factory suite status'"
    elif missing:
        yield GOES_ON
        yield f"  {found.command}"
    elif not found.in_table:
        yield "results are newer than the table: the same command only collects them into it:"
        yield f"  {found.command}"
