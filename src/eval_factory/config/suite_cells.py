"""The cells of a suite: each evaluation x each variant x each target, as run configs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from eval_factory.config.evaluation import task_named
from eval_factory.config.model import DEMO_URLS, urls_in
from eval_factory.config.rules import BENCHMARK, prescribed_roles
from eval_factory.config.suite_names import DEFAULT_VARIANT, name_with_variant
from eval_factory.config.suite_parts import leaves, over
from eval_factory.config.suite_shape import HANDED, TOP
from eval_factory.core.errors import ConfigError, did_you_mean
from eval_factory.endpoint.openai_api import PATHS
from eval_factory.tasks.custom.definition import load_benchmark
from eval_factory.tasks.framework import Framework, Task

MOST_NAMED = 8
"""Names that a message has."""
_ANY = "*"
_PATTERN = frozenset("*?[")
_NAMELESS_VARIANT = {"name": DEFAULT_VARIANT}


@dataclass(frozen=True)
class Combination:
    """An evaluation, a variant and a target, as the suite has them."""

    evaluation: Mapping[str, Any]
    variant: Mapping[str, Any]
    target: Mapping[str, Any]

    @property
    def name(self) -> str:
        """Of the evaluation's cells."""
        return name_with_variant(self.evaluation["name"], self.variant)

    def fits(self, pattern: Mapping[str, Any]) -> bool:
        """Whether each part of a pattern fits; the evaluation's fits its own name or that of its cells."""
        evaluation, target, variant = (pattern.get(key) or _ANY for key in ("evaluation", "target", "variant"))
        names = {self.evaluation["name"], self.name}
        return (
            any(fnmatchcase(name, evaluation) for name in names)
            and fnmatchcase(self.target["name"], target)
            and fnmatchcase(self.variant["name"], variant)
        )


def combinations(section: Mapping[str, Any], problems: list[str]) -> list[Combination]:
    """All that `include` and `exclude` leave, in the order in which they are run."""
    variants = section.get("variants") or [_NAMELESS_VARIANT]
    every = [
        Combination(evaluation, variant, target)
        for evaluation in section["evaluations"]
        for variant in variants
        for target in section["targets"]
    ]
    include, exclude = section.get("include") or [], section.get("exclude") or []
    for kind, patterns in (("include", include), ("exclude", exclude)):
        problems += _fits_nothing(kind, patterns, every)
    left = [
        one
        for one in every
        if (not include or any(one.fits(pattern) for pattern in include))
        and not any(one.fits(pattern) for pattern in exclude)
    ]
    if not left and not problems:
        problems.append(f"{TOP}: `include` and `exclude` leave no cell (there are {len(every)} without them)")
    problems += _same_folder(left)
    return left


def _fits_nothing(kind: str, patterns: Sequence[Mapping[str, Any]], every: Sequence[Combination]) -> Iterator[str]:
    for number, pattern in enumerate(patterns):
        if any(one.fits(pattern) for one in every):
            continue
        known = {
            "evaluation": [name for one in every for name in (one.evaluation["name"], one.name)],
            "target": [one.target["name"] for one in every],
            "variant": [one.variant["name"] for one in every],
        }
        hints = [
            f" ({key} {pattern[key]!r}{did_you_mean(pattern[key], names) or f'; known: {_named(names)}'})"
            for key, names in known.items()
            if pattern.get(key) and _PATTERN.isdisjoint(pattern[key]) and pattern[key] not in names
        ]
        yield f"{TOP}.{kind}[{number}]: fits no cell{''.join(hints)}"


def _named(names: Sequence[str]) -> str:
    different = list(dict.fromkeys(names))
    return ", ".join(different[:MOST_NAMED]) + (" ..." if len(different) > MOST_NAMED else "")


def _same_folder(left: Sequence[Combination]) -> list[str]:
    """Of the clashes of each target the same is said once."""
    first: dict[tuple[str, str], Combination] = {}
    found = []
    for one in left:
        other = first.setdefault((one.target["name"].lower(), one.name.lower()), one)
        if other is not one:
            whose = " and ".join(f"{c.evaluation['name']} with variant {c.variant['name']}" for c in (other, one))
            found.append(f"{TOP}: {whose} would have the same folder, {one.name!r}; give one of them another name")
    return list(dict.fromkeys(found))


def document_of(one: Combination, section: Mapping[str, Any], folder: Path, framework: Framework) -> dict[str, Any]:
    """The run config of a cell. Params: the suite's, over them the evaluation's, the target's and the variant's."""
    handed = {name: section[name] for name in HANDED if section.get(name) is not None}
    params: Any = {}
    for weaker_first in (section, one.evaluation, one.target, one.variant):
        params = over(params, weaker_first.get("params") or {})
    if "judges" in handed:
        handed["judges"] = _judges_of(one, params, handed["judges"], framework)
    handed = {name: value for name, value in handed.items() if value}
    if handed:
        params = over({"extra": deepcopy(handed)}, params)
    config = {"type": one.evaluation["type"], "output_dir": str(folder), "params": params}
    return {"config": config, "target": {"api_endpoint": deepcopy(one.target["api_endpoint"])}}


def _judges_of(one: Combination, params: Mapping[str, Any], judges: Sequence[Any], framework: Framework) -> list[Any]:
    """Those of the suite's judges that the cell's task asks: all of a jury's, or those whose roles HELM prescribes."""
    task = task_named(one.evaluation["type"], framework, [])
    if task is None:
        return []
    if task.helm.judges:
        return list(judges) if _has_jury(task, params) else []
    roles = prescribed_roles(task.helm.prescribed_judges)
    return [judge for judge in judges if isinstance(judge, Mapping) and judge.get("name") in roles]


def _has_jury(task: Task, params: Mapping[str, Any]) -> bool:
    """A custom benchmark has one where one of its metrics says so."""
    path = (params.get("extra") or {}).get(BENCHMARK)
    if BENCHMARK not in task.helm.parameters or path is None:
        return True
    try:
        return load_benchmark(Path(path)).has_jury
    except ConfigError:
        return False  # what is wrong with it is said when the cell is checked


def limit_group_of(target: Mapping[str, Any]) -> str:
    """The name of the limits that a target shares: its own choice, or its endpoint's; a server's are its own."""
    if target.get("serve"):
        return f"server of {target['name']}"
    return target.get("limit_group") or ", ".join(sorted(map(group_of_url, urls_in(target["api_endpoint"]["url"]))))


def group_of_url(url: str) -> str:
    """One name for all ways to write an endpoint's URL: base or full, with or without a query or a slash."""
    if url in DEMO_URLS:
        return url
    parts = urlsplit(url)
    path = parts.path.rstrip("/")
    for ending in sorted(PATHS.values(), key=len, reverse=True):
        if path.endswith(ending):
            path = path.removesuffix(ending)
            break
    return f"{parts.netloc.lower()}{path}"


def origins_of(one: Combination, section: Mapping[str, Any]) -> dict[str, tuple[str, Any]]:
    """Dotted path of each of a cell's parameters -> who says it, and the value."""
    found: dict[str, tuple[str, Any]] = {}
    strongest_last = [
        ("suite", section),
        (f"evaluation {one.evaluation['name']}", one.evaluation),
        (f"target {one.target['name']}", one.target),
        (f"variant {one.variant['name']}", one.variant),
    ]
    for who, entry in strongest_last:
        for path in leaves(entry.get("params") or {}):
            value: Any = entry["params"]
            for name in path:
                value = value[name]
            found[".".join(path)] = (who, value)
    return {path: said for path, said in found.items() if said[1] is not None}
