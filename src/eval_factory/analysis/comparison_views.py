"""A comparison as data frames, in a notebook, in a line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from eval_factory.core.foreign_text import one_line
from eval_factory.report import notebook_display as html
from eval_factory.report.data_frames import COUNT, FLAG, NUMBER, TEXT, frame

if TYPE_CHECKING:
    from pandas import DataFrame

    from eval_factory.analysis.comparison import Compared, Comparison

PAIR_COLUMNS: Mapping[str, str] = {
    "task": TEXT,
    "metric": TEXT,
    "a": TEXT,
    "b": TEXT,
    "model_a": TEXT,
    "model_b": TEXT,
    "n": COUNT,
    "value_a": NUMBER,
    "value_b": NUMBER,
    "difference": NUMBER,
    "ci_low": NUMBER,
    "ci_high": NUMBER,
    "p_value": NUMBER,
    "p_holm": NUMBER,
    "significant": FLAG,
    "higher_is_better": FLAG,
    "method": TEXT,
    "mde": NUMBER,
    "failed": COUNT,
    "bound_low": NUMBER,
    "bound_high": NUMBER,
    "folder_a": TEXT,
    "folder_b": TEXT,
}
FLIP_COLUMNS: Mapping[str, str] = {"task": TEXT, "metric": TEXT, "a": TEXT, "b": TEXT, "id": TEXT, "better": TEXT}


def pairs_frame(compared: Compared) -> DataFrame:
    """A row a pair of results; none where they cannot be compared.

    Raises:
        PrerequisiteError: pandas is not installed.
    """
    return frame(PAIR_COLUMNS, [_pair_row(one) for one in compared.comparisons])


def _pair_row(one: Comparison) -> dict[str, Any]:
    paired = one.paired
    low, high = one.bounds or (None, None)
    return {
        **_names(one),
        "model_a": one.a.name,
        "model_b": one.b.name,
        **{name: getattr(paired, name) for name in ("n", "value_a", "value_b", "difference", "ci_low", "ci_high")},
        "p_value": paired.p_value,
        "p_holm": one.p_holm,
        "significant": one.significant,
        "higher_is_better": one.higher_is_better,
        "method": paired.method,
        "mde": paired.mde,
        "failed": one.failed.total,
        "bound_low": low,
        "bound_high": high,
        "folder_a": str(one.a.folder),
        "folder_b": str(one.b.folder),
    }


def flips_frame(compared: Compared) -> DataFrame:
    """A row for each instance of a pair whose values differ, with the label of the better one.

    Raises:
        PrerequisiteError: pandas is not installed.
    """
    rows = [
        {**_names(one), "id": key, "better": better.label}
        for one in compared.comparisons
        for keys, better in ((one.flips.a_only, one.a), (one.flips.b_only, one.b))
        for key in keys
    ]
    return frame(FLIP_COLUMNS, rows)


def _names(one: Comparison) -> dict[str, Any]:
    return {"task": one.task, "metric": one.metric, "a": one.a.label, "b": one.b.label}


def compared_html(compared: Compared) -> str:
    """The pairs with their differences, or why there are none; the ranks of three or more."""
    if not compared.comparable:
        reasons = [reason.message for reason in compared.reasons]
        return html.block(f"not comparable: {_models(compared)}", html.listed(reasons))
    head = ("pair", "metric", "difference", "95 % interval", "p", "n", "a difference is shown")
    ranks = [
        f"{one.model.label}: rank {one.best}" + (f" to {one.worst}" if one.worst != one.best else "")
        for one in compared.ranks
    ]
    accepted = [f"accepted: {reason.message}" for reason in compared.accepted]
    return html.block(
        _models(compared),
        [
            html.table(head, [_cells(one) for one in compared.comparisons]),
            *([html.paragraph("; ".join(ranks))] if ranks else []),
            *html.listed(accepted),
        ],
    )


def _cells(one: Comparison) -> tuple[str, ...]:
    paired = one.paired
    return (
        f"{one.b.label} - {one.a.label}",
        one.metric,
        f"{paired.difference:+.4f}",
        html.interval(paired.ci_low, paired.ci_high),
        html.number(paired.p_value if one.p_holm is None else one.p_holm),
        str(paired.n),
        "yes" if one.significant else "no",
    )


def _models(compared: Compared) -> str:
    return ", ".join(f"{model.label} {model.name}" for model in compared.models)


def in_a_line(compared: Compared) -> str:
    """For `repr`."""
    if compared.comparable:
        pairs = [f"{one.b.label} - {one.a.label} = {one.paired.difference:+.4f}" for one in compared.comparisons]
        said = "; ".join([_models(compared), *pairs[:3], *(["..."] if len(pairs) > 3 else [])])
    else:
        said = f"{_models(compared)}; not comparable: {compared.reasons[0].message}"
    return f"<Compared {one_line(said)}>"
