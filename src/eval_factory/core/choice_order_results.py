"""Records: what becomes of answers when choices stand in another order. Part of `core/results.py`'s `Validity`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Share:
    """Of questions, with its 95 % interval."""

    value: float
    count: int
    """Of how many it is a share."""
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True)
class ChoiceOrders:
    """What became of the answers when the choices of a question stood in another order."""

    orders: int
    """In how many each question was to be asked, the original among them."""
    questions: int
    """That were asked in more than one."""
    kept: Mapping[str, int]
    """Why choices were not moved -> how many questions that is."""
    by_order: Mapping[str, float | None]
    """Number of the order, 1 is the original -> the main metric's mean over those questions."""
    changed: Share | None
    """Of the questions with two answers or more: those whose choice, by its text, is not the same in all orders."""
    right_in_all: Share | None
    """Of the questions whose every order was answered."""
    letters: Mapping[str, int]
    """What was answered -> how often, over all questions and orders."""
