"""A layer of a suite in the one form in which layers are merged, and the merging.

Every evaluation has a name and a task that is known, selections stand for what they select, and paths are absolute.
Mappings are merged, lists replaced; but of `evaluations`, `targets` and `variants` entries with the same name are
merged, and new ones are put behind. A null takes back what a weaker layer says and leaves the default.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any

from eval_factory.config.benchmark_path import find_benchmark
from eval_factory.config.evaluation import canonical_names, task_named
from eval_factory.config.rules import BENCHMARK
from eval_factory.config.suite_layers import SuiteLayer
from eval_factory.config.suite_names import name_of_type
from eval_factory.config.suite_shape import TOP, endpoint_at, params_of
from eval_factory.core.errors import did_you_mean
from eval_factory.tasks.framework import Framework, Task
from eval_factory.tasks.run_entry import PATHS, WHERE, RunEntry, prefix_of

NAMED = ("evaluations", "targets", "variants")
"""Lists whose entries are merged by name."""
_PATHS_OF_PARAMS = ("data_path", "data_dir")


def normal_form(layer: SuiteLayer, framework: Framework, problems: list[str]) -> dict[str, Any]:
    """The section of a layer of sound shape; what is wrong with tasks, paths and names is added to `problems`."""
    tree = deepcopy(layer.tree)
    found: list[str] = []
    for where, params in params_of(tree):
        _absolute_paths(params, where, layer, found)
    for number, target in enumerate(tree.get("targets") or []):
        _one_name_of_the_key(target, endpoint_at(number), found)
    if tree.get("evaluations"):
        tree["evaluations"] = list(_evaluations(tree["evaluations"], framework, found))
    if tree.get("output_dir"):
        tree["output_dir"] = os.path.abspath(os.path.expanduser(tree["output_dir"]))
    for kind in NAMED:
        found += _twice(kind, tree.get(kind) or [])
    problems += [f"{layer.begin}{problem}" for problem in found]
    for key in ("preset", "extends"):
        tree.pop(key, None)
    return tree


def _absolute_paths(params: dict[str, Any], where: str, layer: SuiteLayer, found: list[str]) -> None:
    extra = params.get("extra")
    if not isinstance(extra, dict):
        return
    for name in _PATHS_OF_PARAMS:
        if isinstance(extra.get(name), str):
            extra[name] = os.path.abspath(os.path.expanduser(extra[name]))
    given = extra.get(BENCHMARK)
    if isinstance(given, str):
        if layer.is_preset and layer.folder is not None:
            given = str(layer.folder / given)
        path = find_benchmark(given, layer.folder, f"{where}.extra.{BENCHMARK}", found)
        extra[BENCHMARK] = given if path is None else str(path)


def _one_name_of_the_key(target: dict[str, Any], where: str, found: list[str]) -> None:
    problems: list[str] = []
    canonical_names({"target": target}, problems)
    found += [problem.replace("target.api_endpoint", where, 1) for problem in problems]


def _evaluations(entries: Sequence[Any], framework: Framework, found: list[str]) -> Iterator[dict[str, Any]]:
    for number, entry in enumerate(entries):
        where = f"{TOP}.evaluations[{number}]"
        entry = {"type": entry} if isinstance(entry, str) else entry
        if entry.get("select") is not None:
            yield from _selected(entry, where, framework, found)
        elif entry.get("type") is None:
            yield entry
        else:
            name = entry.get("name") or name_of_type(entry["type"], framework)
            yield {**entry, "name": name, "type": _type(entry["type"], f"{where}.type", framework, found)}


def _selected(entry: Mapping[str, Any], where: str, framework: Framework, found: list[str]) -> Iterator[dict[str, Any]]:
    chosen = [task.name for task in framework.evaluations if _fits(task, entry["select"])]
    for name in entry["select"].get("without") or []:
        if framework.task(name) is None:
            found.append(f"{where}.select.without: there is no task {name!r}{did_you_mean(name, framework.names())}")
    if not chosen:
        found.append(f"{where}.select: no task is like that; 'eval-factory ls --json' shows tags and access of each")
    for name in chosen:
        yield {"name": name, "type": name, **({"params": deepcopy(entry["params"])} if entry.get("params") else {})}


def _fits(task: Task, select: Mapping[str, Any]) -> bool:
    tags = set(task.about.tags)
    return (
        select.get("access") in (None, task.about.access)
        and tags.issuperset(select.get("tags") or [])
        and tags.isdisjoint(select.get("not_tags") or [])
        and task.name not in (select.get("without") or [])
    )


def _type(given: str, where: str, framework: Framework, found: list[str]) -> str:
    """The task's name; of a run entry with its paths made absolute."""
    problems: list[str] = []
    task = task_named(given, framework, problems)
    found += [problem.replace(WHERE, where, 1) for problem in problems]
    if task is None or not task.helm.any_run_spec or PATHS.isdisjoint(task.helm.arguments):
        return given
    return prefix_of(framework) + RunEntry(task.helm.run_spec, dict(task.helm.arguments)).text


def _twice(kind: str, entries: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    first: dict[str, int] = {}
    for number, entry in enumerate(entries):
        name = str(entry["name"])
        if name.lower() in first:
            yield (
                f"{TOP}.{kind}[{number}]: the name {name!r} is the one of {kind}[{first[name.lower()]}], too;"
                " give each its own `name` (capitals do not count)"
            )
        first.setdefault(name.lower(), number)


def merged(layers: Sequence[tuple[SuiteLayer, dict[str, Any]]]) -> dict[str, Any]:
    """All layers in normal form, weakest first, as one section."""
    whole: dict[str, Any] = {}
    for layer, tree in layers:
        if layer.wins:
            _take_back(whole, leaves(tree.get("params") or {}))
        for key, value in tree.items():
            by_name = key in NAMED and not layer.wins and value is not None
            whole[key] = _by_name(whole.get(key) or [], value) if by_name else over(whole.get(key), value)
    return whole


def over(base: Any, tree: Any) -> Any:
    """The stronger over the weaker: mappings are merged, all else is replaced, by a null, too."""
    if isinstance(base, Mapping) and isinstance(tree, Mapping):
        return {**base, **{key: over(base.get(key), value) for key, value in tree.items()}}
    return deepcopy(tree)


def _by_name(base: Sequence[Mapping[str, Any]], entries: Sequence[Mapping[str, Any]]) -> list[Any]:
    known = {entry["name"].lower(): entry for entry in base}
    for entry in entries:
        key = entry["name"].lower()
        known[key] = over(known.get(key), entry)
    return list(known.values())


def leaves(tree: Mapping[str, Any], above: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    """The way to each value that is no mapping."""
    found: list[tuple[str, ...]] = []
    for name, value in tree.items():
        found += leaves(value, (*above, name)) if isinstance(value, Mapping) and value else [(*above, name)]
    return found


def _take_back(whole: Mapping[str, Any], paths: Sequence[tuple[str, ...]]) -> None:
    """What stands nearer to a cell than the suite's `params`, and is said for every cell now."""
    for kind in NAMED:
        for entry in whole.get(kind) or []:
            for path in paths:
                tree = entry.get("params")
                for name in path[:-1]:
                    tree = tree.get(name) if isinstance(tree, dict) else None
                if isinstance(tree, dict):
                    tree.pop(path[-1], None)
