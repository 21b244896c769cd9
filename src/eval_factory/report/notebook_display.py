"""What a notebook shows of a record: a small table in HTML. All that others wrote in it stays text."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path

from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import Score, TaskResult

MOST_ROWS = 12
MOST_NOTES = 5
LONGEST_NOTE = 2_000
"""Characters of a note that are shown."""
_NO_FORMULAS = "tex2jax_ignore mathjax_ignore"
"""Classes in which MathJax, which notebooks load, makes nothing of dollar signs and backslashes."""


def block(title: str, parts: Iterable[str]) -> str:
    """HTML of a record: its title as text, then parts that are HTML."""
    return "\n".join([f'<div class="{_NO_FORMULAS}">', f"<p><b>{text(title)}</b></p>", *parts, "</div>"])


def text(foreign: str, limit: int = LONGEST_NOTE) -> str:
    """A text as HTML that shows it, in one line."""
    return escape(one_line(foreign, limit))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table of texts; rows beyond `MOST_ROWS` are counted."""
    lines = [_row("th", head), *(_row("td", row) for row in rows[:MOST_ROWS])]
    if (more := len(rows) - MOST_ROWS) > 0:
        lines.append(f'<tr><td colspan="{len(head)}">{more} more: to_frame()</td></tr>')
    return "\n".join(["<table>", *lines, "</table>"])


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{text(cell)}</{tag}>" for cell in cells) + "</tr>"


def paragraph(said: str) -> str:
    return f"<p>{text(said)}</p>"


def listed(notes: Sequence[str]) -> list[str]:
    """The first notes as a list; nothing where there are none."""
    if not notes:
        return []
    items = [f"<li>{text(note)}</li>" for note in notes[:MOST_NOTES]]
    if (more := len(notes) - MOST_NOTES) > 0:
        items.append(f"<li>{more} more</li>")
    return ["<ul>", *items, "</ul>"]


def number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def interval(low: float | None, high: float | None) -> str:
    return "-" if low is None or high is None else f"{low:.4f} .. {high:.4f}"


def result_html(result: TaskResult, folder: Path) -> str:
    """Scores, the main one first; whether they may be reported; notes; where the rest is."""
    labels = sorted(result.scores, key=lambda label: label != result.main_metric)
    rows = [_score_cells(label, result.scores[label]) for label in labels]
    counts = result.validity.instances
    how_many = f"{counts.scored} of {counts.requested} instances scored, {counts.failed} failed"
    parts = [
        table(("metric", "value", "95 % interval", "n"), rows),
        paragraph(f"{how_many}; status: {result.status}"),
        *(f"<p><b>{text(line)}</b></p>" for line in not_reportable(result)),
        *listed(result.validity.notes),
        paragraph(f"results: {folder}"),
    ]
    return block(f"{result.task}, {result.provenance.target}", parts)


def not_reportable(result: TaskResult) -> list[str]:
    """Why the scores may not be reported, in a line each; nothing where they may."""
    if result.reportable:
        return []
    reasons = result.validity.short_reasons or (f"coverage {result.validity.coverage:.4f}",)
    return [f"NOT REPORTABLE: {reason}" for reason in reasons]


def _score_cells(label: str, score: Score) -> tuple[str, ...]:
    stats = score.stats
    return (label, number(score.value), interval(stats.ci_low, stats.ci_high), str(stats.count))
