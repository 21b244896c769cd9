"""Answers that decline, in the languages that the documentation claims, and answers that do not."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from eval_factory.reading import is_refusal

ANSWERS = yaml.safe_load(Path(__file__).with_name("refusals.yml").read_text("utf-8"))


@pytest.mark.parametrize("answer", ANSWERS["declined"])
def test_an_answer_that_declines(answer: str) -> None:
    assert is_refusal(answer)


@pytest.mark.parametrize("answer", ANSWERS["not_declined"])
def test_an_answer_that_does_not_decline(answer: str) -> None:
    assert not is_refusal(answer)
