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

    def in_words(self, there: str) -> str:
        """`temperature 0.7 (there 0.0)`, with `there` for the leaderboard."""
        if self.here == self.leaderboard:  # of what differs and is known, these are two values
            return f"{self.setting} known neither here nor there"
        return f"{self.setting} {self.here} ({there} {self.leaderboard})"


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
