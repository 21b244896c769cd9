"""What trivial answers score on published data: the table `known_floors.json`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib import resources
from typing import Any

from eval_factory.core.results import Floor

FILE_NAME = "known_floors.json"


@dataclass(frozen=True)
class KnownSet:
    task: str
    floors: Mapping[str, Floor]  # by the label of the score


@dataclass(frozen=True)
class KnownFloors:
    """The table. It comes with the package and is checked by its test: helm-run, too, looks a hash up in it."""

    errata_version: int  # corrected scores are by these rules
    sets: Mapping[str, KnownSet]
    """By the hash of the questions, references and metrics (`helm_plugin/score_trivial_answers.py`)."""

    @classmethod
    def of_text(cls, text: str) -> KnownFloors:
        """Raises TypeError, KeyError or ValueError where the text is no such table."""
        document: dict[str, Any] = json.loads(text)
        sets = {
            sha256: KnownSet(one["task"], {label: Floor(**floor) for label, floor in one["floors"].items()})
            for sha256, one in document["sets"].items()
        }
        return cls(document["errata_version"], sets)


def known_floors(data_sha256: str) -> KnownSet | None:
    """None for other data, and where the rules of corrected scores have changed since."""
    table = _table()
    known = table.sets.get(data_sha256)
    if known is None:
        return None
    from eval_factory.tasks.errata import load_errata

    return known if table.errata_version == load_errata().version else None


@lru_cache(maxsize=1)
def _table() -> KnownFloors:
    return KnownFloors.of_text((resources.files("eval_factory.tasks") / FILE_NAME).read_text(encoding="utf-8"))
