"""Records: whether a run is one that MedHELM's leaderboard could have made. A part of `TaskResult`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Deviation:
    """One setting of a run that is not what MedHELM's leaderboard ran."""

    setting: str
    leaderboard: str | int | float
    """`unknown` where nobody wrote it down."""
    here: str | int | float
    effect: str
    """What it may do to the score."""


@dataclass(frozen=True)
class Comparability:
    """Whether a score may stand beside those of MedHELM's leaderboard, as far as settings tell."""

    medhelm_settings: bool | None
    """None: the leaderboard has no result to compare with."""
    reason: str | None = None
    """Why there is none."""
    deviations: tuple[Deviation, ...] = ()
    remarks: tuple[str, ...] = ()
    """What is no deviation and may be taken for one, or for no such."""
