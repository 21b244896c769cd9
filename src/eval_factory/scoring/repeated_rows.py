"""Rows that a benchmark's data hold more than once: each counts as often as it is there."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field

from eval_factory.scoring.notes import Importance, Note

REPEATED = (
    "{count} of {of} instances repeat an earlier one (the same question and gold answer, but for blanks and capitals):"
    " what they ask counts more than once"
)
OTHER_GOLD = (
    "{count} of {of} instances repeat the question of an earlier one with another gold answer: an answer that is right"
    " for one may be wrong for the other"
)

BETWEEN = "\x1f"
"""What stands between two texts: it is a blank, of which only spaces are left in them."""


@dataclass
class RepeatedRows:
    """Goes through instances in their order. Of a text its hash is kept, never the text."""

    repeated: set[str] = field(default_factory=set)
    """Ids of instances of which an earlier one has the same question and the same gold answer."""
    with_another_gold: set[str] = field(default_factory=set)
    """Ids of those of which an earlier one has the same question, and none has the same gold answer too."""
    _first: dict[bytes, dict[bytes, str]] = field(default_factory=dict)

    def add(self, instance: str, question: str, gold: str, choices: Collection[str] = ()) -> bool:
        """Whether an earlier instance is the same. The same instance in another trial is no other one.

        Args:
            choices: the answers to choose from, in any order; they are a part of the question.
        """
        golds = self._first.setdefault(_hash(question, *sorted(choices)), {})
        first = golds.setdefault(_hash(gold), instance)
        if first != instance:
            self.repeated.add(instance)
        elif next(iter(golds.values())) != instance:
            self.with_another_gold.add(instance)
        return first != instance

    def notes(self, instances: int) -> Iterator[Note]:
        """`instances`: how many there are."""
        for text, found in ((REPEATED, self.repeated), (OTHER_GOLD, self.with_another_gold)):
            if found:
                yield Note(Importance.BACKGROUND, text.format(count=len(found), of=instances))


def _hash(*texts: str) -> bytes:
    plain = BETWEEN.join(" ".join(text.casefold().split()) for text in texts)
    return hashlib.blake2b(plain.encode("utf-8", "surrogatepass"), digest_size=16).digest()
