"""Records: what the judges of a rubric said. Part of `core/results.py`'s `Validity`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class RubricVotes:
    """How many criteria were found to be what: by the majority of the judges, or by one of them."""

    asked: int
    met: int
    not_met: int
    unjudged: int
    tied: int = 0
    """As many judges say met as not met: of an even number of judges."""
    score: float | None = None
    """Of one judge: the mean score of the cases of which it decided all criteria, not clipped."""


@dataclass(frozen=True)
class PairAgreement:
    """How far two judges agree about criteria."""

    criteria: int
    """That both decided."""
    agreement: float
    """Share of them on which they say the same."""
    kappa: float | None = None
    """Cohen's; None where it is not defined."""


@dataclass(frozen=True)
class RubricReport:
    """What the judges of a rubric said of the criteria of all answers that came."""

    criteria: RubricVotes
    judges: Mapping[str, RubricVotes]
    agreement: Mapping[str, PairAgreement]
    """`one/other` -> how far they agree."""
    krippendorff_alpha: float | None = None
    unanimous: float | None = None
    """Share of the criteria that several judges decided on which all say the same."""
