"""Results as data frames of pandas: a row a metric, a row an instance. The same columns and types whatever is missing.

pandas comes with HELM. It takes long to import, and is imported only where a frame is made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from types import ModuleType
from typing import TYPE_CHECKING, Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.results import InstanceRecord, Score, TaskResult

if TYPE_CHECKING:
    from pandas import DataFrame

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
