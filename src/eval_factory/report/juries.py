"""Which jury agrees best with physicians: as a table, as YAML, and as one page with a plot."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from eval_factory import __version__
from eval_factory.core import formats
from eval_factory.core.foreign_text import one_line
from eval_factory.core.tables import Table
from eval_factory.core.tables import html as in_html
from eval_factory.scoring.jury_choice import BestJury

HINT = (
    "Of each size the jury that agrees best with the physicians. Cross-validated: on conversations that had no part in"
    " the choice; the other figure has the luck of the choice in it. Cost: dollars per 1,000 criteria."
)


def juries_table(juries: Sequence[BestJury]) -> Table:
    rows = []
    for one in juries:
        figure = one.cross_validated
        ends = [formats.coefficient(end) for end in (figure.ci_low, figure.ci_high) if end is not None]
        shown = formats.coefficient(figure.value, missing="-") + (" ({} to {})".format(*ends) if ends else "")
        cost = "-" if one.cost_per_1000 is None else formats.short(one.cost_per_1000)
        rows.append([one_line(", ".join(one.judges)), shown, formats.coefficient(one.f1_macro), cost])
    return Table(["jury", "macro F1, cross-validated", "by which it was chosen", "cost"], rows, 3)


def juries_document(juries: Sequence[BestJury]) -> dict[str, Any]:
    return {
        "schema_version": 1,
        "about": HINT,
        "juries": [asdict(one) | {"judges": list(one.judges)} for one in juries],
    }


def juries_page(juries: Sequence[BestJury], size: str, items: int) -> str:
    """One offline page. `size`: of what the figures are, in words; `items`: how many."""
    from markupsafe import Markup  # imported here, as the rest of the page

    from eval_factory.report.drawing import svg
    from eval_factory.report.page.document import STYLE, page_environment, policy, tables_style
    from eval_factory.report.plot_kinds import PlottedValue, dot_plot

    rows = [
        PlottedValue(", ".join(one.judges), value, one.cross_validated.ci_low, one.cross_validated.ci_high, items)
        for one in juries
        if (value := one.cross_validated.value) is not None
    ]
    title = "Macro F1 with the physicians, cross-validated"
    plot = svg(dot_plot(title, rows, axis_label="macro F1", scale=(0.0, 1.0))) if rows else ""
    style = tables_style()
    # SVG and table are ours, and escape what is in them
    text = page_environment().get_template("juries.html.j2").render(
        hint=HINT, size=size, version=__version__, policy=policy(style, ""), style=Markup(STYLE),  # noqa: S704
        plot=Markup(plot), table=Markup(in_html(juries_table(juries))),  # noqa: S704
    )  # fmt: skip
    return text.replace(STYLE, style)
