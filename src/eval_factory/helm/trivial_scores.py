"""What trivial answers score, as our plug-in writes it into HELM's output folder, and how it is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from pydantic import ValidationError

from eval_factory.core.strict_model import StrictModel
from eval_factory.helm import names

VERSION = 1
"""Goes up when other answers are given, or scored otherwise."""


class StrategyScores(StrictModel):
    """One way to answer: an answer, or a score, for each question, in their order."""

    name: str
    answer: str | None = None
    """Where it is the same to every question; else `answers` has them."""
    answers: list[str] | None = None
    annotation: dict[str, Any] | None = None
    """What an annotator that executes answers says of this one."""
    values: dict[str, list[float | None]]
    """HELM's name of a metric -> its value of each question."""

    def answer_to(self, number: int) -> str:
        return self.answers[number] if self.answers is not None else self.answer or ""


class TrivialScores(StrictModel):
    """The file."""

    version: int = VERSION
    run: str = ""
    """HELM's name of the run."""
    data_sha256: str = ""
    """Of the questions, their references and the metrics: whoever reads the same has the same floors."""
    known: bool = False
    """Whether these data are among those whose floors come with the package: nothing was computed."""
    limit_s: float = 0.0
    spent_s: float = 0.0
    lower_is_better: list[str] = []
    questions: list[tuple[str, int, str | None]] = []
    """Id, trial and split of each."""
    strategies: list[StrategyScores] = []
    left_out: list[str] = []
    """Names of those for which there was no time."""
    error: str | None = None
    """Why there is nothing, where it failed."""


def read_trivial_scores(helm_dir: Path) -> TrivialScores | None:
    """None where there is no such file, or another version's: floors are worth no failed result."""
    try:
        found = TrivialScores.model_validate_json((helm_dir / names.TRIVIAL_SCORES_FILE).read_bytes())
    except (OSError, ValidationError):
        return None
    return found if found.version == VERSION else None
