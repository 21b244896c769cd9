"""Which instances share a source: a note, a question, a calculator, the template of a query.

Two instances of one source are not two independent ones: a model that fails at one calculator fails at all its rows. A
task says in framework.yml (`helm.cluster`) how the source is found; `scoring/intervals.py` makes use of it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eval_factory.core.results import Score
from eval_factory.helm import output
from eval_factory.scoring.intervals import few_sources
from eval_factory.scoring.notes import Importance, Note
from eval_factory.tasks.framework import ClusterRule

LONGEST_LABEL = 80
LARGE = 2.0
"""A design effect beyond which a reader who takes the count for the sample's size is badly misled."""


@dataclass(frozen=True)
class Clusters:
    """Finds the source of an instance."""

    rule: ClusterRule
    recorded: Mapping[str, str] = field(default_factory=dict)
    """What the pattern finds -> the source, where the rule looks that up in the scenario's data."""
    remembered: Mapping[str, str] = field(default_factory=dict)
    """Id of an instance -> its source, where those data are not here any more."""

    @classmethod
    def of(
        cls, rule: ClusterRule | None, folder: Path, remembered: Mapping[str, str] = MappingProxyType({})
    ) -> Clusters | None:
        """None where the task declares no clusters.

        Args:
            folder: the scenario's data.
            remembered: id of an instance -> its source, as an earlier collection found it.
        """
        if rule is None:
            return None
        if remembered and not all((folder / name).is_file() for name in rule.records):
            return cls(rule, remembered=remembered)
        records = [record for name in rule.records for record in _records(folder / name)]
        known = {record.get(rule.key or ""): _first(record, rule.labels) for record in records}
        return cls(rule, {str(key): str(label) for key, label in known.items() if key and label})

    def label_of(self, instance: output.Instance) -> str:
        """The instance's own id where nothing says that it shares a source."""
        if self.remembered:
            return self.remembered.get(instance.id, instance.id)
        found = self.rule.found_in(instance.input.text, instance.extra_data or {})
        if found is not None and self.rule.records:
            found = self.recorded.get(found)
        return instance.id if found is None or not found.strip() else _label(found)


def _first(record: Mapping[str, Any], names: Sequence[str]) -> Any:
    return next((record[name] for name in names if record.get(name)), None)


def _records(path: Path) -> list[Mapping[str, Any]]:
    """Of a JSON list; none where the file is not there or is none, so that each instance is a source of its own."""
    try:
        loaded = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return []
    return [record for record in loaded if isinstance(record, Mapping)] if isinstance(loaded, list) else []


def _label(text: str) -> str:
    """On one line; of a long text the hash, for it may be a patient's note."""
    line = " ".join(text.split())
    if len(line) <= LONGEST_LABEL:
        return line
    return hashlib.sha256(line.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def notes_on_clusters(rule: ClusterRule | None, labels: Mapping[str, str], main: Score | None) -> list[Note]:
    """What a reader has to know of the main score's sample; `labels`: of each instance its source."""
    if rule is None:
        return []
    count, sources = len(labels), len(set(labels.values()))
    notes = []
    if sources < count:
        shared = (
            f"{count} instances share {sources} sources ({rule.what}): intervals take those of one source for alike,"
            " not for independent"
        )
        notes.append(Note(Importance.BACKGROUND, shared))
    if (few := few_sources(list(labels.values()))) is not None:
        notes.append(Note(Importance.DOUBTFUL, f"{few} ({rule.what})"))
    effect = None if main is None else main.stats.design_effect
    if main is not None and effect is not None and effect > LARGE:
        asked = main.stats.count
        large = (
            f"the main score's design effect is {effect:.1f} ({rule.what}): its {asked} instances say as much as"
            f" {asked / effect:.0f} independent ones; its interval allows for that"
        )
        notes.append(Note(Importance.BACKGROUND, large))
    return notes
