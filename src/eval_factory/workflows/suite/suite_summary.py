"""What a run of a suite comes to, in a few lines for the screen: counts, what is missing and why, the next step."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from eval_factory.core.budget import MAX_COST, MAX_REQUESTS, MAX_TOKENS
from eval_factory.core.errors import InterruptedRunError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.rundir import SuiteDir
from eval_factory.workflows.suite.cell_outcome import COMPLETE, FAILED, MISSING, PARTIAL, WAITING
from eval_factory.workflows.suite.suite_options import CellReport

MOST_NAMED = 12
LONGEST_REASON = 200


def summary_of(
    cells: Sequence[CellReport], folder: SuiteDir, *, stopped: str | None = None, no_table: str | None = None
) -> str:
    """
    Args:
        no_table: why the table could not be written.
        stopped: why cells were not begun any more, where they were not.
    """
    counts = Counter(cell.status for cell in cells)
    collected = sum(cell.collected for cell in cells)
    parts = [f"{counts[status]} {status}" for status in (COMPLETE, PARTIAL, FAILED, WAITING, MISSING) if counts[status]]
    before = f" ({collected} finished before)" if collected else ""
    lines = [f"{len(cells)} cell{'' if len(cells) == 1 else 's'}: {', '.join(parts)}{before}"]
    wrong = [cell for cell in cells if cell.exit_code]
    lines += [f"  {cell.name}: {_what(cell)}" for cell in wrong[:MOST_NAMED]]
    if len(wrong) > MOST_NAMED:
        lines.append(f"  and {len(wrong) - MOST_NAMED} more: eval-factory suite check {folder.root}")
    if any(cell.status != COMPLETE for cell in cells):  # the last request that a limit allows may be the last of all
        lines += [] if stopped is None else [stopped]
        lines += _next_step(cells, folder, stopped or "")
    lines.append(f"table: {folder.results_md}" if no_table is None else no_table)
    return "\n".join(lines)


def _what(cell: CellReport) -> str:
    status = "complete, but not reportable" if cell.status == COMPLETE else cell.status
    return f"{status}: {one_line(cell.reason, LONGEST_REASON)}" if cell.reason else status


def _next_step(cells: Sequence[CellReport], folder: SuiteDir, stopped: str) -> list[str]:
    limit = next((name for name in (MAX_COST, MAX_REQUESTS, MAX_TOKENS) if name in stopped), None)
    first = "" if limit is None else f"raise {limit} of the suite, and "
    lines = [f"{first}the same command goes on: only what is missing is asked"]
    if any(cell.status == WAITING for cell in cells):
        lines[0] = "submitted to Slurm: the same command takes over what has ended, and --wait waits for all of it"
        lines.append(f"  where it stands: eval-factory suite status {folder.root}")
    if any(cell.status == FAILED for cell in cells):
        lines.append(f"  why a cell failed: eval-factory suite logs {folder.root} CELL")
    if any(cell.exit_code == InterruptedRunError.exit_code for cell in cells):
        lines[0] = f"interrupted; {lines[0]}"
    return lines
