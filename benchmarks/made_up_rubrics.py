"""Made-up conversations of the form of HealthBench, with criteria and what judges say of them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from made_up_answers import instances

from eval_factory.core.results import InstanceRecord

ANSWER_WORDS, CRITERION_WORDS, EXPLANATION_WORDS = 300, 20, 45
"""An answer of 2 kB, criteria of 140 letters and explanations of 300, as the published ones are."""
POOL = 200
"""Prompts from which words are drawn, frequent ones often."""
AXES = ("accuracy", "completeness", "context_awareness", "communication_quality", "instruction_following")


def conversations(count: int, criteria: int, judges: int, seed: int = 11) -> Iterator[InstanceRecord]:
    """The same ones each time.

    Args:
        criteria: of each.
        judges: that say something of each criterion.
    """
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    words = [word for record in instances(POOL) for word in record.prompt.split()]
    for record in instances(count):
        turns = ({"role": "user", "content": record.prompt},)
        judged = tuple(_criterion(words, judges, chance) for _ in range(criteria))
        yield replace(
            record, turns=turns, references=(), completion=_text(words, ANSWER_WORDS, chance), criteria=judged,
            metrics={"exact_match": round(chance.uniform(-0.2, 1.0), 6)}, error=None,
        )  # fmt: skip


def _criterion(words: list[str], judges: int, chance: random.Random) -> dict[str, Any]:
    met = chance.random() < 0.5
    said = {
        f"judge{number}": {"criteria_met": met, "explanation": _text(words, EXPLANATION_WORDS, chance)}
        for number in range(judges)
    }
    return {
        "criterion": _text(words, CRITERION_WORDS, chance), "points": chance.choice((-8, -5, 3, 5, 8, 10)),
        "tags": ["level:example", f"axis:{chance.choice(AXES)}"],
        "verdict": "met" if met else "not met", "judges": said,
    }  # fmt: skip


def _text(words: list[str], count: int, chance: random.Random) -> str:
    return " ".join(chance.choices(words, k=count))
