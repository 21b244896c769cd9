"""Which answers people rate: a random sample, stratified by the score and a group. Pure.

Each stratum is represented in proportion to its size, with at least two answers. Where there are too many strata for
the sample, the smallest is put to its neighbour, so that the correction has two ratings in each.
"""

from __future__ import annotations

import hashlib
import math
import random
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass

from eval_factory.core.annotations import AnswerKey, Asked, Sample, SampledAnswer, ShownAnswer
from eval_factory.core.errors import ConfigError

LEAST = 2
"""Answers of each stratum, if it has so many."""
FEW_VALUES = 4
"""Scores that are strata as they are; of more there are quarters."""
QUARTERS = 4
MOST_GROUPS = 6
OTHER_GROUPS = "others"
LETTERS = "bcdfghjkmnpqrstvwxz"
"""Of codes: no spreadsheet takes them for a number, a date or a word."""
CODE_LETTERS, ID_LETTERS = 5, 8


@dataclass(frozen=True)
class Candidate:
    """An answer that can be drawn."""

    key: AnswerKey
    value: float
    """Its score by the main metric."""
    group: str = ""


@dataclass(frozen=True)
class Layer:
    """A stratum: answers that have the same chance."""

    name: str
    keys: tuple[AnswerKey, ...]


def layers_of(candidates: Sequence[Candidate], count: int) -> list[Layer]:
    """By score, then by group, in an order in which neighbours are alike; as many as a sample of `count` can hold.

    Raises:
        ConfigError: a sample of fewer than two says nothing.
    """
    if count < LEAST:
        raise ConfigError(f"--n {count}: rate at least {LEAST} answers")
    parts = parts_of([one.value for one in candidates])
    usual = {group for group, _ in Counter(one.group for one in candidates).most_common(MOST_GROUPS)}
    found: dict[tuple[int, str], list[AnswerKey]] = {}
    names = {}
    for one in sorted(candidates, key=lambda one: one.key.as_text()):
        part = next(number for number, (_, high) in enumerate(parts) if one.value <= high)
        group = one.group if one.group in usual else OTHER_GROUPS
        found.setdefault((part, group), []).append(one.key)
        low, high = parts[part]
        names[part, group] = f"{low:g}" if low == high else f"{low:g} to {high:g}"
    layers = [
        Layer(names[place] + (f", {place[1]}" if place[1] else ""), tuple(keys))
        for place, keys in sorted(found.items())
    ]
    while len(layers) > 1 and (LEAST * len(layers) > count or min(len(one.keys) for one in layers) < LEAST):
        layers = _merged(layers)
    return layers


def parts_of(values: Iterable[float]) -> list[tuple[float, float]]:
    """(least, greatest) of each part of the scores: each value where there are few, else quarters of the answers."""
    ordered = sorted(values)
    different = sorted(set(ordered))
    if len(different) <= FEW_VALUES:
        return [(value, value) for value in different]
    ends = sorted({ordered[math.ceil(len(ordered) * part / QUARTERS) - 1] for part in range(1, QUARTERS + 1)})
    starts = [different[0], *(next(value for value in different if value > end) for end in ends[:-1])]
    return list(zip(starts, ends, strict=True))


def _merged(layers: Sequence[Layer]) -> list[Layer]:
    """The smallest with the smaller one of its neighbours."""
    place = min(range(len(layers)), key=lambda at: len(layers[at].keys))
    beside = [at for at in (place - 1, place + 1) if 0 <= at < len(layers)]
    first, second = sorted((place, min(beside, key=lambda at: len(layers[at].keys))))
    both = Layer(f"{layers[first].name}; {layers[second].name}", layers[first].keys + layers[second].keys)
    return [*layers[:first], both, *layers[second + 1 :]]


def shares_of(sizes: Sequence[int], count: int) -> list[int]:
    """How many of each stratum: in proportion, the largest remainders first; at least two, if it has so many."""
    total = sum(sizes)
    if count >= total:
        return list(sizes)
    exact = [count * size / total for size in sizes]
    given = [min(size, max(LEAST, math.floor(share))) for size, share in zip(sizes, exact, strict=True)]
    while sum(given) != count:
        step = 1 if sum(given) < count else -1
        movable = [
            at for at, size in enumerate(sizes) if (given[at] < size if step > 0 else given[at] > min(size, LEAST))
        ]
        if not movable:
            break
        given[max(movable, key=lambda at: (step * (exact[at] - given[at]), sizes[at]))] += step
    return given


@dataclass(frozen=True)
class Draw:
    """What decides which answers are drawn."""

    count: int
    seed: int
    raters: tuple[str, ...]
    identity: str
    """Of the run."""


def drawn(layers: Sequence[Layer], rated: Collection[AnswerKey], draw: Draw) -> list[tuple[AnswerKey, int, float]]:
    """(answer, number of its stratum, probability), in the order in which they were drawn.

    Args:
        rated: answers that people have rated: these are not drawn again.

    Raises:
        ConfigError: every answer is rated.
    """
    chance = random.Random(f"{draw.identity} {draw.seed}")  # noqa: S311 - the same seed draws the same sample
    left = [[key for key in layer.keys if key not in rated] for layer in layers]
    if not any(left):
        raise ConfigError("every answer of this result is rated: there is nothing to draw")
    found = []
    for number, (keys, share) in enumerate(zip(left, shares_of([len(keys) for keys in left], draw.count), strict=True)):
        found += [(key, number, share / len(keys)) for key in chance.sample(keys, share)]
    return found


def drawn_sample(
    asked: Asked, layers: Sequence[Layer], chosen: Sequence[tuple[ShownAnswer, int, float]], draw: Draw
) -> Sample:
    """`chosen`: (what raters see, number of its stratum, probability) of each answer that was drawn."""
    told = [draw.identity, asked.kind, str(draw.seed), *(f"{one.key.as_text()} {one.sha256}" for one, _, _ in chosen)]
    sheet = _letters("\n".join(told), ID_LETTERS)
    codes = codes_of(len(chosen), sheet)
    return Sample(
        id=sheet,
        kind=asked.kind,
        raters=draw.raters,
        choices=asked.choices,
        metric=asked.metric,
        scale=asked.score.scale,
        strata=tuple(one.name for one in layers),
        stratum_of={key.as_text(): number for number, one in enumerate(layers) for key in one.keys},
        answers=tuple(
            SampledAnswer(code, one.key, one.sha256, stratum, probability, one.questions)
            for code, (one, stratum, probability) in zip(codes, chosen, strict=True)
        ),
    )


def codes_of(count: int, sheet: str) -> list[str]:
    """Different codes that say nothing of what they stand for."""
    chance = random.Random(f"codes of {sheet}")  # noqa: S311
    found: dict[str, None] = {}
    while len(found) < count:
        found["".join(chance.choices(LETTERS, k=CODE_LETTERS))] = None
    return list(found)


def rater_order(codes: Sequence[str], sheet: str, rater: str) -> list[str]:
    """An order of each rater's own: who tires, tires at other answers than the others."""
    shuffled = sorted(codes)
    random.Random(f"{sheet} {rater}").shuffle(shuffled)  # noqa: S311
    return shuffled


def group_field(fields: Iterable[str], categories: Iterable[Mapping[str, object]]) -> str | None:
    """The first field by which the result is grouped that the answers themselves name."""
    known = {name for one in categories for name in one}
    return next((field for field in fields if field in known), None)


def _letters(text: str, count: int) -> str:
    number = int(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest(), 16)
    letters = []
    for _ in range(count):
        number, rest = divmod(number, len(LETTERS))
        letters.append(LETTERS[rest])
    return "".join(letters)
