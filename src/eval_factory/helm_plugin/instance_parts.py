"""Which part of an evaluation an instance belongs to: the same in each process, whatever was answered before."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from typing import Any


def parts_of(states: Sequence[Any], parts: int) -> list[int]:
    """For each request state, in HELM's order, the number of its part, from 0 on.

    All requests of an instance are in one part. So are all instances that ask the same: the same question is paid for
    once. The groups that come of it are dealt out in turn, in the order in which they first appear.
    """
    first: dict[Hashable, int] = {}
    leader = list(range(len(states)))

    def root(number: int) -> int:
        while leader[number] != number:
            leader[number] = leader[leader[number]]
            number = leader[number]
        return number

    for number, state in enumerate(states):
        for name in (("instance", state.instance.id), ("prompt", state.request.prompt, repr(state.request.messages))):
            one, other = sorted((root(first.setdefault(name, number)), root(number)))
            leader[other] = one
    turns: dict[int, int] = {}
    return [turns.setdefault(root(number), len(turns)) % parts for number in range(len(states))]
