"""A leaderboard's entries as run entries of any model. Pure functions.

Confs name models in three ways: a group (`model=text`), somebody's model (`model=openai/gpt-4o,model_deployment=...`,
an entry for each), or not at all. Here no entry names one: the target of each run does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from eval_factory.core.errors import ConfigError
from eval_factory.helm.names import conf_entries
from eval_factory.tasks.run_entry import JUDGE_DEPLOYMENT
from eval_factory.tasks.run_specs import RunSpec, load_index

MODEL, DEPLOYMENT, LIMIT, DATA_PATH = "model", "model_deployment", "num_output_tokens", "data_path"
SEVERAL = {
    "max_train_instances": {
        "all": (0, 1, 2, 4, 8, 16),
        "big_bench_few_shot_setting": (0, 1, 2, 3),
        "vhelm": (0, 1, 2, 4, 8),
        "melt": (0, 1, 5),
    }
}
"""Argument -> value that stands for several runs -> the value of each, as HELM's run expander has them."""


@dataclass(frozen=True)
class Entry:
    """One run entry of HELM's; one without a priority is always run."""

    run_spec: str
    arguments: tuple[tuple[str, str], ...]
    priority: int | None = None
    groups: tuple[str, ...] | None = None
    """HELM's groups of tables that its run belongs to, beside those of its run spec."""

    @property
    def description(self) -> str:
        joined = ",".join(f"{name}={value}" for name, value in self.arguments)
        return f"{self.run_spec}:{joined}" if joined else self.run_spec

    @property
    def run(self) -> str:
        """As its run is called: entries that differ in their groups alone are two rows of one run."""
        if self.groups is None:
            return self.description
        return f"{self.description}{',' if self.arguments else ':'}groups={','.join(self.groups)}"

    @property
    def known(self) -> RunSpec | None:
        return load_index().run_specs.get(self.run_spec)

    @property
    def asks(self) -> str | None:
        """What it asks of a model beside text for text, as far as the index of run specs knows."""
        return None if self.known is None else self.known.asks

    @property
    def judges(self) -> tuple[str, ...]:
        """Deployments of the judges that HELM prescribes for it."""
        chosen = self.argument(JUDGE_DEPLOYMENT)
        prescribed = () if self.known is None else self.known.prescribed_judges
        return prescribed if chosen is None else (chosen,)

    def argument(self, name: str) -> str | None:
        return dict(self.arguments).get(name)

    def without(self, *names: str) -> Entry:
        return replace(self, arguments=tuple(pair for pair in self.arguments if pair[0] not in names))

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


def of_any_model(entries: Iterable[Entry], *, reasoning: bool = False) -> list[Entry]:
    """Each entry once, without its model, in their order, with the lowest of its priorities.

    Where a conf has an entry for most models and the same with more output tokens for some (MedHELM's reasoning
    models), one of the two is kept: with `reasoning` the first that sets the limit, else the one that does not.
    """
    kept: dict[tuple[Any, ...], Entry] = {}
    for entry in (one for given in entries for one in _single(given)):
        of_somebody = "/" in (entry.argument(MODEL) or "")
        ours = entry.without(MODEL, DEPLOYMENT)
        # The order of arguments is no difference to HELM.
        key = (ours.run_spec, frozenset(ours.without(LIMIT if of_somebody else "").arguments), ours.groups)
        before = kept.setdefault(key, ours)
        limited, other = (ours.argument(LIMIT) is not None), (before.argument(LIMIT) is not None)
        chosen = ours if limited != other and limited == reasoning else before
        always = before.priority is None or ours.priority is None
        kept[key] = replace(chosen, priority=None if always else min(before.priority or 0, ours.priority or 0))
    return list(kept.values())


def _single(entry: Entry) -> Iterator[Entry]:
    """An entry for each of the runs that it stands for."""
    for name, values in SEVERAL.items():
        given = entry.argument(name)
        if given in values:
            for value in values[given]:
                pairs = tuple((key, str(value) if key == name else said) for key, said in entry.arguments)
                yield replace(entry, arguments=pairs)
            return
    yield entry
