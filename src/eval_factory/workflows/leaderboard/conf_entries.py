"""A leaderboard's entries, rewritten for one model. Pure functions.

Confs name models in three ways: a group (`model=text`), somebody's model (`model=openai/gpt-4o,model_deployment=...`,
an entry for each), or not at all.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_factory.core.errors import ConfigError
from eval_factory.helm.names import DEFAULT_JURY, JURY_RUN_SPECS, conf_entries
from eval_factory.tasks.run_entry import JUDGE_DEPLOYMENT
from eval_factory.tasks.run_specs import load_index

MODEL, DEPLOYMENT, LIMIT, DATA_PATH = "model", "model_deployment", "num_output_tokens", "data_path"


@dataclass(frozen=True)
class Entry:
    """One run entry of HELM's; one without a priority is always run."""

    run_spec: str
    arguments: tuple[tuple[str, str], ...]
    priority: int | None = None
    groups: tuple[str, ...] | None = None

    @property
    def description(self) -> str:
        joined = ",".join(f"{name}={value}" for name, value in self.arguments)
        return f"{self.run_spec}:{joined}" if joined else self.run_spec

    def argument(self, name: str) -> str | None:
        return dict(self.arguments).get(name)

    def without(self, *names: str) -> Entry:
        return replace(self, arguments=tuple(pair for pair in self.arguments if pair[0] not in names))

    @property
    def asks(self) -> str | None:
        """What it asks of a model beside text for text, as far as the index of run specs knows."""
        known = load_index().run_specs.get(self.run_spec)
        return None if known is None else known.asks

    @property
    def judges(self) -> tuple[str, ...]:
        """Deployments of the judges that HELM asks for it."""
        chosen = self.argument(JUDGE_DEPLOYMENT)
        if chosen is not None:
            return (chosen,)
        if self.run_spec in JURY_RUN_SPECS:
            return tuple(DEFAULT_JURY.values())
        known = load_index().run_specs.get(self.run_spec)
        return () if known is None else known.prescribed_judges

    def runs_at(self, priority: int) -> bool:
        return self.priority is None or self.priority <= priority


def read_entries(text: str, origin: str) -> list[Entry]:
    """The entries of a conf file; `origin` is where it is from, for messages.

    Raises:
        ConfigError: it is no conf file of run entries.
    """
    try:
        raw = conf_entries(text)
    except ValueError as error:
        form = "entries: [{description: ..., priority: 1}]"
        raise ConfigError(f"{origin}: {error}\n  a conf file is HOCON: {form}") from None
    problems: list[str] = []
    entries = []
    for number, record in enumerate(raw, start=1):
        try:
            entries.append(_entry(record))
        except ValueError as error:
            problems.append(f"{origin}: entry {number} ({record['description'][:80]}): {error}")
    if problems:
        raise ConfigError(problems)
    return entries


def _entry(record: Mapping[str, Any]) -> Entry:
    run_spec, colon, joined = record["description"].partition(":")
    pairs = []
    for argument in joined.split(",") if colon else ():
        name, equals, value = argument.partition("=")
        if not equals:
            raise ValueError(f"{argument!r} is not key=value")
        pairs.append((name, value))
    priority, groups = record.get("priority"), record.get("groups")
    if priority is not None and (not isinstance(priority, int) or isinstance(priority, bool)):
        raise ValueError("its priority is no number")
    if groups is not None and not (isinstance(groups, list) and all(isinstance(group, str) for group in groups)):
        raise ValueError("its groups are no list of names")
    unknown = sorted(set(record) - {"description", "priority", "groups"})
    if unknown:
        raise ValueError(f"HELM knows no {', '.join(unknown)}")
    return Entry(run_spec, tuple(pairs), priority, None if groups is None else tuple(groups))


def rewritten(entries: Iterable[Entry], model: str, *, reasoning: bool = False) -> list[Entry]:
    """The entries for `model` (HELM's name of it): each once, in their order, with the lowest of its priorities.

    Where a conf has an entry for most models and the same with more output tokens for some (MedHELM's reasoning
    models), one of the two is kept: with `reasoning` the first that sets the limit, else the one that does not.
    """
    kept: dict[tuple[Any, ...], Entry] = {}
    for entry in entries:
        given = entry.argument(MODEL)
        ours = entry.without(DEPLOYMENT)
        if given is None:
            ours = replace(ours, arguments=(*ours.arguments, (MODEL, model)))
        else:
            pairs = tuple((name, model if name == MODEL else value) for name, value in ours.arguments)
            ours = replace(ours, arguments=pairs)
        of_somebody = given is not None and "/" in given
        # The order of arguments is no difference to HELM.
        key = (ours.run_spec, frozenset(ours.without(LIMIT if of_somebody else "").arguments), ours.groups)
        before = kept.get(key)
        if before is None:
            kept[key] = ours
            continue
        limited = ours.argument(LIMIT) is not None
        other = before.argument(LIMIT) is not None
        chosen = ours if limited != other and limited == reasoning else before
        kept[key] = replace(chosen, priority=_lower(before.priority, ours.priority))
    return list(kept.values())


def _lower(one: int | None, other: int | None) -> int | None:
    return None if one is None or other is None else min(one, other)


def conf_text(entries: Iterable[Entry]) -> str:
    """A conf file; JSON, which is HOCON too."""
    records: list[dict[str, Any]] = []
    for entry in entries:
        record: dict[str, Any] = {"description": entry.description}
        if entry.priority is not None:
            record["priority"] = entry.priority
        if entry.groups is not None:
            record["groups"] = list(entry.groups)
        records.append(record)
    return json.dumps({"entries": records}, indent=2, ensure_ascii=False) + "\n"


def missing_data_paths(entries: Iterable[Entry]) -> list[str]:
    """Values of data_path that do not exist here, each once."""
    paths = dict.fromkeys(path for entry in entries if (path := entry.argument(DATA_PATH)) is not None)
    return [path for path in paths if not Path(path).exists()]
