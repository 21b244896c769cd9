"""How a result looks to who has it in a program: as data frames of pandas, and in a line.

Frames have the same columns and types whatever is missing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.core import formats
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import InstanceRecord, TaskResult

if TYPE_CHECKING:
    from pandas import DataFrame

TEXT, NUMBER, COUNT, FLAG, ANY = "string", "float64", "Int64", "boolean", "object"
"""pandas' types for what may be missing: NA, NaN, NA, NA, None."""

SCORE_COLUMNS: Mapping[str, str] = {
    "task": TEXT, "model": TEXT, "metric": TEXT, "main": FLAG, "value": NUMBER, "ci_low": NUMBER, "ci_high": NUMBER,
    "n": COUNT, "stderr": NUMBER, "ci_method": TEXT, "split": TEXT, "perturbation": TEXT, "higher_is_better": FLAG,
    "unit": TEXT, "bound_low": NUMBER, "bound_high": NUMBER, "reportable": FLAG,
}  # fmt: skip
INSTANCE_COLUMNS: Mapping[str, str] = {
    "id": TEXT, "split": TEXT, "sub_split": TEXT, "trial": COUNT, "perturbation": TEXT, "prompt": TEXT,
    "references": ANY, "completion": TEXT, "reasoning": TEXT, "finish_reason": TEXT, "prompt_tokens": COUNT,
    "completion_tokens": COUNT, "latency_s": NUMBER, "cached": FLAG, "error": TEXT, "unjudged": FLAG, "cluster": TEXT,
    "signs": ANY,
}  # fmt: skip
"""Fields of `InstanceRecord`; metrics, judges and categories follow."""
JUDGE, CATEGORY, _METRIC = "judge.", "extra.", "metric."
"""Before the name of a judge; of a category, as in instances.jsonl; of a metric whose own name is another column's."""


def scores_frame(result: TaskResult) -> DataFrame:
    """A row a score, as `SCORE_COLUMNS`. Raises PrerequisiteError: pandas is not installed."""
    of_result = {"task": result.task, "model": result.provenance.target, "reportable": result.reportable}
    rows = []
    for label, score in result.scores.items():
        low, high = result.validity.bounds.get(label, (None, None))
        named = {"metric": label, "main": label == result.main_metric, "n": score.stats.count}
        rows.append({**vars(score.stats), **vars(score), **of_result, **named, "bound_low": low, "bound_high": high})
    return frame(SCORE_COLUMNS, rows)


def instance_table(result: TaskResult) -> tuple[dict[str, str], list[dict[str, Any]]]:
    """`INSTANCE_COLUMNS`, then metrics, judges and categories, with their types; and a row an instance (in one trial
    and perturbation). The main metric has a column even where no instance has a value of it.
    Raises PrerequisiteError: the instances cannot be read."""
    records = list(result.instances)
    judges = {f"{JUDGE}{name}": name for name in _names(record.judges for record in records)}
    categories = {f"{CATEGORY}{name}": name for name in _names(record.categories for record in records)}
    others = {*INSTANCE_COLUMNS, *judges, *categories}
    main = result.scores.get(result.main_metric)
    names = _names([{main.metric: 0.0} if main else {}, *(record.metrics for record in records)])
    metrics = {f"{_METRIC}{name}" if name in others else name: name for name in names}

    def row(record: InstanceRecord) -> dict[str, Any]:
        found = {name: getattr(record, name) for name in INSTANCE_COLUMNS}
        for columns, values in ((metrics, record.metrics), (judges, record.judges), (categories, record.categories)):
            found |= {column: values.get(name) for column, name in columns.items()}
        return found

    numbers, anything = dict.fromkeys([*metrics, *judges], NUMBER), dict.fromkeys(categories, ANY)
    return {**INSTANCE_COLUMNS, **numbers, **anything}, [row(record) for record in records]


def _names(mappings: Iterable[Mapping[str, Any]]) -> list[str]:
    """In the order in which they are first met."""
    return list(dict.fromkeys(chain.from_iterable(mappings)))


def frame(columns: Mapping[str, str], rows: Sequence[Mapping[str, Any]]) -> DataFrame:
    """A data frame of these columns and types, also where there are no rows.
    Raises PrerequisiteError: pandas is not installed."""
    try:
        import pandas  # comes with HELM; it takes long to import
    except ImportError:
        raise PrerequisiteError("a data frame needs pandas, which is not installed here: pip install pandas") from None
    return pandas.DataFrame(
        {name: pandas.Series([row.get(name) for row in rows], dtype=kind) for name, kind in columns.items()},
        columns=pandas.Index(list(columns), dtype=ANY),
    )


def not_reportable(result: TaskResult) -> list[str]:
    """Why the scores may not be reported, in a line each; nothing where they may."""
    if result.reportable:
        return []
    coverage = formats.score(formats.rounded(result.validity.coverage))
    return [f"NOT REPORTABLE: {one}" for one in result.validity.short_reasons or [f"coverage {coverage}"]]


class ResultViews:
    """For records with a `result` and a `folder`."""

    if TYPE_CHECKING:

        @property
        def result(self) -> TaskResult: ...
        @property
        def folder(self) -> Path: ...

    def to_frame(self, *, instances: bool = False) -> DataFrame:
        """The scores, a row a metric (`docs/python.md` has the columns); with `instances`, as `instances_frame`.
        Raises PrerequisiteError: pandas is not installed."""
        return self.instances_frame() if instances else scores_frame(self.result)

    def instances_frame(self) -> DataFrame:
        """The instances, a row each: what was asked and answered, tokens, seconds, errors, and a column a metric.
        Raises PrerequisiteError: pandas is not installed, or the instances cannot be read."""
        return frame(*instance_table(self.result))

    def __repr__(self) -> str:
        from eval_factory.report.screen import headline  # imported late: it needs HELM's index

        parts = [headline(self.result), *not_reportable(self.result)[:1], str(self.folder)]
        return f"<{type(self).__name__} {one_line('; '.join(parts))}>"
