"""The sheet of one rater as a page: one file, opened without a network, filled in with the keyboard alone.

As in the report (`document.py`), a Content-Security-Policy forbids any connection and any script but the page's own,
and what others wrote is inserted as text by the script, which shares the report's functions that show odd characters.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from eval_factory.core.annotations import RatingChoice, Sample, ShownAnswer
from eval_factory.report.page.document import page_file, whole_page


def rater_form(
    sample: Sample, rater: str, order: Sequence[str], shown: Mapping[str, ShownAnswer], *, with_reference: bool
) -> str:
    """
    Args:
        order: codes of the answers.
        shown: code -> what the rater sees.
    """
    data = form_data(sample, rater, order, shown, with_reference=with_reference)
    style = page_file("page.css") + page_file("rater_form.css")
    return whole_page(
        "rater_form.html.j2", style, form_script(), in_a_script(data),
        sheet=sample.id, rater=rater, count=len(order), criteria=sample.kind == "criteria",
        keys=[(one["key"], one["label"]) for one in data["choices"]],
    )  # fmt: skip


def form_data(
    sample: Sample, rater: str, order: Sequence[str], shown: Mapping[str, ShownAnswer], *, with_reference: bool
) -> dict[str, Any]:
    """What the page's script gets: neither a score nor the id of an answer."""
    keys = rating_keys(sample.choices)
    questions = {one.code: [asked.name for asked in one.questions] for one in sample.answers}
    return {
        "sheet": sample.id,
        "rater": rater,
        "choices": [{"label": one.label, "key": key} for one, key in zip(sample.choices, keys, strict=True)],
        "items": [
            {
                "code": code,
                "turns": [list(turn) for turn in shown[code].turns],
                "answer": shown[code].answer,
                "references": list(shown[code].references) if with_reference else [],
                "questions": questions[code],
            }
            for code in order
        ],
    }


def rating_keys(choices: Sequence[RatingChoice]) -> list[str]:
    """The number key of each rating: the rating itself where all are single digits, else its place from 1."""
    labels = [one.label for one in choices]
    if all(label.isascii() and label.isdigit() and len(label) == 1 for label in labels):
        return labels
    return [str(place) if place < 10 else "" for place in range(1, len(labels) + 1)]


def in_a_script(value: Any) -> str:
    """JSON that cannot end the element that it stands in, nor open a comment there."""
    text = json.dumps(value)  # ASCII alone
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


@cache
def form_script() -> str:
    """With the functions of page.js that show foreign texts, which stand between these two lines of it."""
    page = page_file("page.js")
    shared = page[page.index("  // ---- small helpers") : page.index("  // ---- data ---")]
    return "\n" + page_file("rater_form.js").replace("  // SHARED\n", shared)
