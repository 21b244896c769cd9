"""Results as data frames of pandas: a row a metric, a row an instance. The same columns and types whatever is missing.

pandas comes with HELM. It takes long to import, and is imported only where a frame is made.

What a notebook shows of a record: a small table in HTML. All that others wrote in it stays text.

How a result looks to who has it in a program: as data frames, in a notebook, in a line.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from itertools import chain
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, Protocol

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import InstanceRecord, Score, TaskResult

if TYPE_CHECKING:
    from pandas import DataFrame

    from eval_factory.core.results import TaskResult

TEXT, NUMBER, COUNT, FLAG, ANY = "string", "float64", "Int64", "boolean", "object"
"""pandas' types for what may be missing: NA, NaN, NA, NA, None."""

SCORE_COLUMNS: Mapping[str, str] = {
    "task": TEXT,
    "model": TEXT,
    "metric": TEXT,
    "main": FLAG,
    "value": NUMBER,
    "ci_low": NUMBER,
    "ci_high": NUMBER,
    "n": COUNT,
    "stderr": NUMBER,
    "ci_method": TEXT,
    "split": TEXT,
    "perturbation": TEXT,
    "higher_is_better": FLAG,
    "unit": TEXT,
    "bound_low": NUMBER,
    "bound_high": NUMBER,
    "reportable": FLAG,
}
INSTANCE_COLUMNS: Mapping[str, str] = {
    "id": TEXT,
    "split": TEXT,
    "sub_split": TEXT,
    "trial": COUNT,
    "perturbation": TEXT,
    "prompt": TEXT,
    "references": ANY,
    "completion": TEXT,
    "reasoning": TEXT,
    "finish_reason": TEXT,
    "prompt_tokens": COUNT,
    "completion_tokens": COUNT,
    "latency_s": NUMBER,
    "cached": FLAG,
    "error": TEXT,
    "unjudged": FLAG,
    "cluster": TEXT,
    "signs": ANY,
}
"""Fields of `InstanceRecord`; metrics, judges and categories follow."""
JUDGE, CATEGORY, METRIC = "judge.", "extra.", "metric."
"""Before the name of a judge; of a category, as in instances.jsonl; of a metric whose own name is another column's."""


def scores_frame(result: TaskResult) -> DataFrame:
    """A row a score, as `SCORE_COLUMNS`.

    Raises:
        PrerequisiteError: pandas is not installed.
    """
    return frame(SCORE_COLUMNS, [_score_row(result, label, score) for label, score in result.scores.items()])


def _score_row(result: TaskResult, label: str, score: Score) -> dict[str, Any]:
    low, high = result.validity.bounds.get(label, (None, None))
    return {
        "task": result.task,
        "model": result.provenance.target,
        "metric": label,
        "main": label == result.main_metric,
        "value": score.value,
        "ci_low": score.stats.ci_low,
        "ci_high": score.stats.ci_high,
        "n": score.stats.count,
        "stderr": score.stats.stderr,
        "ci_method": score.stats.ci_method,
        "split": score.split,
        "perturbation": score.perturbation,
        "higher_is_better": score.higher_is_better,
        "unit": score.unit,
        "bound_low": low,
        "bound_high": high,
        "reportable": result.reportable,
    }


def instances_frame(result: TaskResult) -> DataFrame:
    """A row an instance (in one trial and perturbation): `INSTANCE_COLUMNS`, then its metrics, judges and categories.

    The main metric has a column even where no instance has a value of it.

    Raises:
        PrerequisiteError: pandas is not installed, or the instances cannot be read.
    """
    return frame(*instance_table(result))


def instance_table(result: TaskResult) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """The columns with their types, and the rows.

    Raises:
        PrerequisiteError: the instances cannot be read.
    """
    records = list(result.instances)
    judges = {f"{JUDGE}{name}": name for name in _names(record.judges for record in records)}
    categories = {f"{CATEGORY}{name}": name for name in _names(record.categories for record in records)}
    others = {*INSTANCE_COLUMNS, *judges, *categories}
    main = result.scores.get(result.main_metric)
    metrics = _names([{main.metric: 0.0} if main else {}, *(record.metrics for record in records)])
    named = {f"{METRIC}{name}" if name in others else name: name for name in metrics}
    columns = {
        **INSTANCE_COLUMNS,
        **dict.fromkeys(named, NUMBER),
        **dict.fromkeys(judges, NUMBER),
        **dict.fromkeys(categories, ANY),
    }
    return columns, [_instance_row(record, named, judges, categories) for record in records]


def _names(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """In the order in which they are first met."""
    return list(dict.fromkeys(chain.from_iterable(mappings)))


def _instance_row(
    record: InstanceRecord, metrics: Mapping[str, str], judges: Mapping[str, str], categories: Mapping[str, str]
) -> dict[str, Any]:
    return {
        **{name: getattr(record, name) for name in INSTANCE_COLUMNS},
        **{column: record.metrics.get(name) for column, name in metrics.items()},
        **{column: record.judges.get(name) for column, name in judges.items()},
        **{column: record.categories.get(name) for column, name in categories.items()},
    }


def frame(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A data frame of these columns and types, also where there are no rows.

    Raises:
        PrerequisiteError: pandas is not installed.
    """
    pandas = _pandas()
    return pandas.DataFrame(
        {name: pandas.Series([row.get(name) for row in rows], dtype=kind) for name, kind in columns.items()},
        columns=pandas.Index(list(columns), dtype=ANY),
    )


def _pandas() -> ModuleType:
    try:
        import pandas
    except ImportError:
        raise PrerequisiteError("a data frame needs pandas, which is not installed here: pip install pandas") from None
    found: ModuleType = pandas
    return found


MOST_ROWS = 12
MOST_NOTES = 5
LONGEST_NOTE = 2_000
"""Characters of a note that are shown."""
_NO_FORMULAS = "tex2jax_ignore mathjax_ignore"
"""Classes in which MathJax, which notebooks load, makes nothing of dollar signs and backslashes."""


def html_block(title: str, parts: Iterable[str]) -> str:
    """HTML of a record: its title as text, then parts that are HTML."""
    return "\n".join([f'<div class="{_NO_FORMULAS}">', f"<p><b>{_text(title)}</b></p>", *parts, "</div>"])


def _text(foreign: str, limit: int = LONGEST_NOTE) -> str:
    """A text as HTML that shows it, in one line."""
    return escape(one_line(foreign, limit))


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """An HTML table of texts; rows beyond `MOST_ROWS` are counted."""
    lines = [_row("th", head), *(_row("td", row) for row in rows[:MOST_ROWS])]
    if (more := len(rows) - MOST_ROWS) > 0:
        lines.append(f'<tr><td colspan="{len(head)}">{more} more: to_frame()</td></tr>')
    return "\n".join(["<table>", *lines, "</table>"])


def _row(tag: str, cells: Iterable[str]) -> str:
    return "<tr>" + "".join(f"<{tag}>{_text(cell)}</{tag}>" for cell in cells) + "</tr>"


def paragraph(said: str) -> str:
    return f"<p>{_text(said)}</p>"


def html_list(notes: Sequence[str]) -> list[str]:
    """The first notes as a list; nothing where there are none."""
    if not notes:
        return []
    items = [f"<li>{_text(note)}</li>" for note in notes[:MOST_NOTES]]
    if (more := len(notes) - MOST_NOTES) > 0:
        items.append(f"<li>{more} more</li>")
    return ["<ul>", *items, "</ul>"]


def html_number(value: float | None) -> str:
    return "-" if value is None else f"{value:.4f}"


def html_interval(low: float | None, high: float | None) -> str:
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
        *(f"<p><b>{_text(line)}</b></p>" for line in not_reportable(result)),
        *html_list(result.validity.notes),
        paragraph(f"results: {folder}"),
    ]
    return html_block(f"{result.task}, {result.provenance.target}", parts)


def not_reportable(result: TaskResult) -> list[str]:
    """Why the scores may not be reported, in a line each; nothing where they may."""
    if result.reportable:
        return []
    reasons = result.validity.short_reasons or (f"coverage {result.validity.coverage:.4f}",)
    return [f"NOT REPORTABLE: {reason}" for reason in reasons]


def _score_cells(label: str, score: Score) -> tuple[str, ...]:
    stats = score.stats
    return (label, html_number(score.value), html_interval(stats.ci_low, stats.ci_high), str(stats.count))


class HasResult(Protocol):
    """A result and the output folder that it stands in."""

    @property
    def result(self) -> TaskResult: ...

    @property
    def folder(self) -> Path: ...

    def instances_frame(self) -> DataFrame: ...


class ResultViews:
    """For records with a `result` and a `folder`."""

    def to_frame(self: HasResult, *, instances: bool = False) -> DataFrame:
        """The scores, a row a metric (`docs/python.md` has the columns); with `instances`, as `instances_frame`.

        Raises:
            PrerequisiteError: pandas is not installed.
        """

        return self.instances_frame() if instances else scores_frame(self.result)

    def instances_frame(self: HasResult) -> DataFrame:
        """The instances, a row each: what was asked and answered, tokens, seconds, errors, and a column a metric.

        Raises:
            PrerequisiteError: pandas is not installed, or the instances cannot be read.
        """

        return instances_frame(self.result)

    def _repr_html_(self: HasResult) -> str:

        return result_html(self.result, self.folder)

    def __repr__(self: HasResult) -> str:
        from eval_factory.core.foreign_text import one_line
        from eval_factory.report.screen import headline

        said = [headline(self.result), *not_reportable(self.result)[:1], str(self.folder)]
        return f"<{type(self).__name__} {one_line('; '.join(said))}>"
