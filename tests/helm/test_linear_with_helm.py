"""The readers of texts among what is imported with HELM: their time grows as the text does, see test_linear.py."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eval_factory.core.secrets import Redactor
from eval_factory.helm_plugin import runner
from eval_factory.helm_plugin.patches import executed_queries
from linear_time import ENDS, SEEDS, SEEDS_BEFORE_AN_END, is_steep, with_end

REDACTOR = Redactor(["plain-looking-value-77", "q" * 30])
READERS: dict[str, Callable[[str], object]] = {
    "errors of HELM's": lambda text: runner.safe_message(ValueError(text), REDACTOR),
    "SQL": lambda text: (
        executed_queries._SQL_TAG.findall(text),
        executed_queries._FENCE_NAME.sub("", text),
    ),
}


@pytest.mark.parametrize("name", READERS)
def test_time_grows_as_the_text_does_whatever_its_end(name: str) -> None:
    gc.disable()
    try:
        assert {seed for seed in SEEDS if is_steep(READERS[name], seed)} == set()
    finally:
        gc.enable()
    ends = product(ENDS, SEEDS_BEFORE_AN_END)
    assert {
        (end, seed) for end, seed in ends if is_steep(with_end(READERS[name], end), seed)
    } == set()


FACTOR = float(os.environ.get("EVAL_FACTORY_FUZZ_FACTOR", "1"))


@settings(
    max_examples=max(1, round(5 * FACTOR)), deadline=None, derandomize=FACTOR <= 1, database=None
)
@given(
    st.lists(st.sampled_from(SEEDS), min_size=2, max_size=4).map("".join),
    st.sampled_from(sorted(READERS)),
)
def test_time_grows_as_mixtures_do(seed: str, name: str) -> None:
    assert not is_steep(READERS[name], seed)
