"""Made-up instances of a benchmark of the form of PubMedQA: as long as real ones, and as hard to compress."""

from __future__ import annotations

import random
from collections.abc import Iterator
from itertools import accumulate

from eval_factory.core.results import InstanceRecord

INSTRUCTION = "Answer A for yes, B for no or C for maybe.\n\nContext: "
CONTEXT_WORDS = 270
"""So that an instance's lines have 2.8 kB, of which gzip makes 0.7 kB; PubMedQA's have 2.4 kB, and 0.55 kB."""
VOCABULARY = 9000
SYLLABLES = [
    first + vowel + last for first in "bcdfglmnprstv" for vowel in "aeiou" for last in ("", "n", "r", "s", "l")
]
ANSWERS = ("A", "B", "C")
FAILED_EVERY = 97


def instances(count: int, seed: int = 7) -> Iterator[InstanceRecord]:
    """The same ones each time."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    words = ["".join(chance.choices(SYLLABLES, k=chance.randint(1, 4))) for _ in range(VOCABULARY)]
    weights = list(accumulate(1 / (rank + 3) for rank in range(VOCABULARY)))
    for number in range(count):
        text = " ".join(chance.choices(words, cum_weights=weights, k=CONTEXT_WORDS))
        yield _instance(number, text, chance)


def _instance(number: int, text: str, chance: random.Random) -> InstanceRecord:
    right, given = chance.choice(ANSWERS), chance.choice(ANSWERS)
    failed = number % FAILED_EVERY == FAILED_EVERY - 1
    return InstanceRecord(
        id=f"id{number}", split="test", sub_split=None, trial=0, perturbation=None,
        prompt=f"{INSTRUCTION}{text}\n\nQuestion: {text[:90]}?\n A. yes\n B. no\n C. maybe\nAnswer:",
        references=tuple(
            {"text": word, "tags": ["correct"] if letter == right else []}
            for letter, word in zip(ANSWERS, ("yes", "no", "maybe"), strict=True)
        ),
        categories={"specialty": f"specialty {number % 12}"}, completion=None if failed else given,
        metrics={} if failed else {"exact_match": float(given == right)}, finish_reason="stop",
        prompt_tokens=500 + number % 300, completion_tokens=1, latency_s=round(chance.lognormvariate(0, 0.6), 3),
        cached=False, error="HTTP 503: the model is overloaded" if failed else None, judges={}, unjudged=False,
        injection=(),
    )  # fmt: skip
