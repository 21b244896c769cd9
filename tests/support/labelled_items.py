"""Labelled items of a judge and physicians, and the figures of their agreement."""

from __future__ import annotations

from collections.abc import Sequence

from eval_factory.scoring.agreement_figures import AgreementPart, Figure
from eval_factory.tasks.physician_labels import LabelledItem


def item(
    conversation: object,
    labels: Sequence[bool],
    judged: bool,
    category: str | None = None,
    length: int | None = None,
) -> LabelledItem:
    names = tuple(f"doctor {number}" for number in range(len(labels)))
    return LabelledItem(str(conversation), judged, tuple(labels), names, category, length)


def judge_and_physicians(part: AgreementPart) -> list[dict[str, Figure]]:
    return [{} if one is None else vars(one) for one in (part.judge, part.physicians)]
