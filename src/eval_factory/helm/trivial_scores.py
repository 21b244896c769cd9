"""What trivial answers score, as our plug-in writes it into HELM's output folder, and how it is read."""

from __future__ import annotations

import json
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, ClassVar

from eval_factory.core.safe_files import write_atomic
from eval_factory.helm import names

VERSION = 2
"""Goes up when other answers are given, or scored otherwise."""


@dataclass(frozen=True)
class StrategyScores:
    """One way to answer: an answer, or a score, for each question, in their order."""

    name: str
    values: dict[str, list[int | float | None]]
    """HELM's name of a metric -> its value of each question. 0 and 1 are read as the same two objects each time."""
    answer: str | None = None
    """Where it is the same to every question; else `answers` has them."""
    answers: list[str] | None = None
    """Neither: of an answer at random. Its values are means over all that it may be."""
    annotation: dict[str, Any] | None = None
    """What an annotator that executes answers says of this one."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def answer_to(self, number: int) -> str | None:
        """None: any answer, each as likely as the others."""
        return self.answers[number] if self.answers is not None else self.answer


@dataclass(frozen=True)
class TrivialScores:
    """The file. helm-run makes it, and does without pydantic; whoever reads it checks it."""

    version: int = VERSION
    run: str = ""
    """HELM's name of the run."""
    data_sha256: str = ""
    """Of the questions, their references and the metrics: whoever reads the same has the same floors."""
    known: bool = False
    """Whether these data are among those whose floors come with the package: nothing was computed."""
    limit_s: float = 0.0
    spent_s: float = 0.0
    lower_is_better: list[str] = field(default_factory=list)
    questions: list[tuple[str, int, str | None]] = field(default_factory=list)
    """Id, trial and split of each."""
    strategies: list[StrategyScores] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    """Names of those for which there was no time."""
    error: str | None = None
    """Why there is nothing, where it failed."""

    __pydantic_config__: ClassVar = {"extra": "forbid"}

    def write(self, helm_dir: Path) -> None:
        """
        Raises:
            OSError, ValueError: it cannot be written.
        """
        strategies = [_given(one) | {"values": _plain(one.values)} for one in self.strategies]
        document = {"version": self.version} | _given(self) | {"strategies": strategies}
        write_atomic(helm_dir / names.TRIVIAL_SCORES_FILE, json.dumps(document) + "\n")


def _plain(values: dict[str, list[int | float | None]]) -> dict[str, list[int | float | None]]:
    """Whole numbers without a fraction: there are dozens of columns."""
    return {
        name: [int(value) if isinstance(value, float) and value.is_integer() else value for value in column]
        for name, column in values.items()
    }


def _given(record: Any) -> dict[str, Any]:
    """What is no default."""
    found = {}
    for one in fields(record):
        value = getattr(record, one.name)
        default = one.default if one.default_factory is MISSING else one.default_factory()
        if value != default:
            found[one.name] = value
    return found


def read_trivial_scores(helm_dir: Path) -> TrivialScores | None:
    """None where there is no such file, or another version's: floors are worth no failed result."""
    try:
        text = (helm_dir / names.TRIVIAL_SCORES_FILE).read_bytes()
    except OSError:
        return None
    from pydantic import TypeAdapter, ValidationError

    try:
        found = TypeAdapter(TrivialScores).validate_json(text)
    except ValidationError:
        return None
    return found if found.version == VERSION else None
