"""One metric's values of one result, by instance: what is paired. Numbers are kept, never texts."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from eval_factory.core.results import InstanceRecord, Score

Key = str
"""The id of an instance; split and perturbation are those of the score."""


@dataclass(frozen=True)
class InstanceValues:
    """The instances of a score: of its split and perturbation."""

    values: Mapping[Key, float]
    """The mean over trials. An instance without a value in some trial (failed, unjudged) is in `failed` instead."""
    failed: AbstractSet[Key]
    prompts: Mapping[Key, bytes]
    """A short hash of what was asked, over all trials."""
    unscored: AbstractSet[Key] = frozenset()
    """Those of `failed` that were answered, and that the metric says nothing of."""
    clusters: Mapping[Key, str] = field(default_factory=dict)
    """What an instance shares its source with, where the task declares that."""
    lowest: Mapping[Key, float] = field(default_factory=dict)
    """Of a rubric's cases the least score that each can have; the highest is 1."""

    @property
    def keys(self) -> AbstractSet[Key]:
        return self.prompts.keys()


@dataclass
class _Trials:
    values: list[float] = field(default_factory=list)
    failed: bool = False
    answered: bool = True
    asked: list[str] = field(default_factory=list)
    cluster: str | None = None
    lowest: float | None = None


def values_of(records: Iterable[InstanceRecord], score: Score) -> InstanceValues:
    """Of the instances that are in the score's split and perturbation."""
    found: dict[Key, _Trials] = {}
    for record in records:
        if (record.split, record.perturbation) != (score.split or "", score.perturbation):
            continue
        trials = found.setdefault(record.id, _Trials())
        trials.asked.append(record.prompt)
        trials.cluster, trials.lowest = record.cluster, record.lowest_score
        value = record.metrics.get(score.metric)
        if value is None or record.error is not None:
            trials.failed = True
            trials.answered = trials.answered and record.error is None and not record.unjudged
        else:
            trials.values.append(value)
    return InstanceValues(
        values={key: sum(one.values) / len(one.values) for key, one in found.items() if not one.failed},
        failed={key for key, one in found.items() if one.failed},
        prompts={key: _hash(one.asked) for key, one in found.items()},
        unscored={key for key, one in found.items() if one.failed and one.answered},
        clusters={key: one.cluster for key, one in found.items() if one.cluster is not None},
        lowest={key: one.lowest for key, one in found.items() if one.lowest is not None},
    )


def _hash(prompts: Iterable[str]) -> bytes:
    text = "\0".join(sorted(prompts))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]
