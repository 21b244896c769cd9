"""HELM's draw of instances, and what takes its place with a seed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from helm.benchmark import runner
from helm.benchmark.scenarios.scenario import (
    CORRECT_TAG,
    EVAL_SPLITS,
    TEST_SPLIT,
    TRAIN_SPLIT,
    VALID_SPLIT,
    Input,
    Instance,
    Output,
    Reference,
    with_instance_ids,
)

from eval_factory.core.helm_run_settings import HelmRunSettings, SampleSettings
from eval_factory.helm_plugin.patches.patch_registry import patch_named

SPLITS = (TRAIN_SPLIT, TEST_SPLIT, TEST_SPLIT, VALID_SPLIT)


@pytest.fixture
def draw(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[str]]:
    helms = runner.downsample_eval_instances

    def drawn(instances: list[Any], size: int, seed: int | None) -> list[str]:
        told = HelmRunSettings(sample=None if seed is None else SampleSettings(seed))
        monkeypatch.setattr(runner, "downsample_eval_instances", helms)
        for name, value in told.environment().items():
            monkeypatch.setenv(name, value)
        if (patch := patch_named("draw_with_a_seed")).is_needed({"pubmed_qa"}, told.environment()):
            assert patch.apply()
        return [one.id for one in runner.downsample_eval_instances(instances, size, EVAL_SPLITS)]

    return drawn


def read() -> list[Any]:
    found = [
        Instance(
            Input(text=f"Question {number}?"),
            [Reference(Output("yes"), [CORRECT_TAG])],
            SPLITS[number % 4],
            sub_split="ab"[number % 3 == 0],
        )
        for number in range(80)
    ]
    return list(with_instance_ids(found))


def test_helms_own_draw_stays_where_no_seed_is_given(draw: Callable[..., list[str]]) -> None:
    helms = [one.id for one in runner.downsample_eval_instances(read(), 12, EVAL_SPLITS)]
    assert draw(read(), 12, None) == helms
    assert draw(read(), 12, 0) != helms


def test_ids_are_those_of_all_the_data_and_examples_stay(draw: Callable[..., list[str]]) -> None:
    there = {one.id: one for one in read()}
    examples = [name for name, one in there.items() if one.split == TRAIN_SPLIT]
    drawn = draw(read(), 12, 7)
    assert drawn[: len(examples)] == examples
    asked = [there[name] for name in drawn[len(examples) :]]
    assert (len(asked), {one.split for one in asked}) == (12, set(EVAL_SPLITS))
    assert sorted(one.sub_split for one in asked) == ["a"] * 8 + ["b"] * 4
    assert draw(read(), 12, 7) == drawn != draw(read(), 12, 8)
    assert draw(read(), 24, 7)[: len(examples)] == examples
    assert set(drawn) < set(draw(read(), 24, 7))


def test_all_are_asked_where_there_are_no_more(draw: Callable[..., list[str]]) -> None:
    assert draw(read(), 60, 7) == draw(read(), 60, None) == draw(read(), 99, 7)
