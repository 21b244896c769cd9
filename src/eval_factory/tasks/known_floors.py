"""What trivial answers score on public data sets, read whole: computed once, by scripts/make_known_floors.py."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources

from eval_factory.core.strict_model import StrictModel
from eval_factory.tasks.errata import load_errata

FILE_NAME = "known_floors.json"


class KnownFloor(StrictModel):
    """Of one metric, as `Floor` in core/results.py has it."""

    best: str
    value: float
    instances: int
    answers: dict[str, float]
    lower_is_better: bool = False


class KnownSet(StrictModel):
    """One data set."""

    task: str
    floors: dict[str, KnownFloor]
    """By the label of the score."""


class KnownFloors(StrictModel):
    errata_version: int
    """Corrected scores are by these rules."""
    sets: dict[str, KnownSet]
    """By the hash of the questions, references and metrics (`helm_plugin/score_trivial_answers.py`)."""


def known_floors(data_sha256: str) -> KnownSet | None:
    """None for other data, and where the rules of corrected scores have changed since."""
    table = _table()
    known = table.sets.get(data_sha256)
    return known if known is not None and table.errata_version == load_errata().version else None


@lru_cache(maxsize=1)
def _table() -> KnownFloors:
    text = (resources.files("eval_factory.tasks") / FILE_NAME).read_text(encoding="utf-8")
    return KnownFloors.model_validate_json(text)
