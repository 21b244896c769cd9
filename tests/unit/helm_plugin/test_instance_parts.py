"""Each instance is in one part, and who asks the same is in the same one."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from eval_factory.helm_plugin.instance_parts import parts_of


def state(instance: str, prompt: str = "", messages: list[dict[str, str]] | None = None) -> Any:
    request = SimpleNamespace(prompt=prompt, messages=messages)
    return SimpleNamespace(instance=SimpleNamespace(id=instance), request=request)


@pytest.mark.parametrize(
    ("states", "parts", "expected"),
    [
        ([], 3, []),
        ([state(f"id{n}", f"p{n}") for n in range(7)], 3, [0, 1, 2, 0, 1, 2, 0]),
        ([state(f"id{n}", f"p{n}") for n in range(2)], 5, [0, 1]),
        # several requests of an instance (one for each reference, several trials)
        ([state("a", "1"), state("a", "2"), state("b", "3"), state("b", "4"), state("a", "5")], 2, [0, 0, 1, 1, 0]),
        ([state("a", "same"), state("b", "other"), state("c", "same"), state("d", "last")], 2, [0, 1, 0, 0]),
        # two groups that a third instance ties together
        ([state("a", "x"), state("b", "y"), state("c", "x"), state("c", "y"), state("d", "z")], 2, [0, 0, 0, 0, 1]),
        ([state("a", "x"), state("b", "y"), state("c", "z"), state("c", "y"), state("b", "x")], 2, [0, 0, 0, 0, 0]),
        ([state("a", messages=[{"content": "1"}]), state("b", messages=[{"content": "2"}])], 2, [0, 1]),
        ([state("a", messages=[{"content": "1"}]), state("b", messages=[{"content": "1"}])], 2, [0, 0]),
    ],
)
def test_parts(states: list[Any], parts: int, expected: list[int]) -> None:
    assert parts_of(states, parts) == expected
