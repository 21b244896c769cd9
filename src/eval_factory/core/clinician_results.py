"""What people's ratings of a sample say of a result: its score corrected by them, and how far they and judges agree."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class CorrectedScore:
    """What the people would have said of all answers, by prediction-powered inference."""

    metric: str
    value: float
    ci_low: float
    ci_high: float
    ci_method: str
    power: float
    """How far the judges' scores were used: 0 not at all, 1 in full."""
    judge_value: float
    """What the judges, or the metric, say of the same answers."""


@dataclass(frozen=True)
class TooFewRated:
    """Why there is no corrected score."""

    rated: int
    needed: int


@dataclass(frozen=True)
class Agreement:
    """How far raters agree. None: not defined for these ratings."""

    n: int
    """Answers times criteria that at least two of them rated."""
    alpha: float | None = None
    """Krippendorff's, ordinal."""
    icc: float | None = None
    """Intraclass correlation ICC(2,1), over what all of them rated."""
    weighted_kappa: float | None = None
    """Quadratic weights; the mean over pairs of raters."""
    ac1: float | None = None
    """Gwet's."""


@dataclass(frozen=True)
class JudgeAgreement(Agreement):
    """How far a judge agrees with the raters' mean, or their majority where there are two ratings."""

    bias: float | None = None
    """The judge's score of an answer less the people's, in the mean."""
    bias_low: float | None = None
    bias_high: float | None = None
    """The ends of its 95 % interval; None where too few answers were rated."""


@dataclass(frozen=True)
class Clinicians:
    """Everything that a result says of people's ratings."""

    rated: int
    """Answers with every question rated by at least one person."""
    answers: int
    """That could have been rated: those that the main score is made of."""
    raters: int
    ratings: int
    """That were used."""
    corrected: CorrectedScore | None = None
    too_few: TooFewRated | None = None
    agreement: Agreement | None = None
    """Among the raters; None where there is only one."""
    judges: Mapping[str, JudgeAgreement] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
