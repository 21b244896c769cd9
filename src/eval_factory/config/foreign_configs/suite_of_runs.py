"""Several run configs as one suite, in which what they share is written once."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval_factory.config.suite_model import OF_THE_SUITE
from eval_factory.core.redaction import looks_like_key

_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_LONGEST = 60
_MODEL = "model"


@dataclass(frozen=True)
class Run:
    """One evaluation of one target."""

    name: str
    document: Mapping[str, Any]
    """A whole run config."""


def suite_of(runs: Sequence[Run], output_dir: Any) -> dict[str, Any]:
    """The suite whose cells are these runs, and no others."""
    targets = _targets(runs)
    names = _distinct([_slug(run.name) for run in runs])
    params = [_params(run) for run in runs]
    shared = _shared(params)
    suite: dict[str, Any] = {"output_dir": output_dir}
    if shared:
        suite["params"] = shared
    suite["evaluations"] = [
        _evaluation(run, name, _without(own, shared)) for run, name, own in zip(runs, names, params, strict=True)
    ]
    suite["targets"] = [{"name": name, "api_endpoint": endpoint} for name, endpoint in targets]
    excluded = [
        {"evaluation": name, "target": target}
        for run, name in zip(runs, names, strict=True)
        for target, endpoint in targets
        if endpoint != _endpoint(run)
    ]
    if excluded:
        suite["exclude"] = excluded
    return {"suite": suite}


def _endpoint(run: Run) -> Any:
    return run.document["target"]["api_endpoint"]


def _params(run: Run) -> dict[str, Any]:
    found: dict[str, Any] = run.document["config"].get("params", {})
    return found


def _targets(runs: Sequence[Run]) -> list[tuple[str, Any]]:
    """Each endpoint once, with a name made of its model's."""
    endpoints: list[Any] = []
    for run in runs:
        if _endpoint(run) not in endpoints:
            endpoints.append(_endpoint(run))
    names = [_name_of_target(endpoint["model_id"]) for endpoint in endpoints]
    return list(zip(_distinct(names), endpoints, strict=True))


def _name_of_target(model_id: str) -> str:
    """The last part of the model's id, where a folder may be called so."""
    name = _slug(model_id.rpartition("/")[2])
    if not name or looks_like_key(name):
        return _MODEL
    return f"{_MODEL}-{name}" if name.lower().startswith(OF_THE_SUITE) else name


def _slug(text: str) -> str:
    return _NOT_IN_A_NAME.sub("-", text)[:_LONGEST].strip("-.")


def _distinct(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        number, free = 2, name
        while free in found:
            number, free = number + 1, f"{name}-{number}"
        found.append(free)
    return found


def _shared(trees: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What all say, the same way."""
    found: dict[str, Any] = {}
    for name, value in trees[0].items():
        others = [tree.get(name) for tree in trees]
        if isinstance(value, Mapping):
            below = _shared([other if isinstance(other, Mapping) else {} for other in others])
            if below:
                found[name] = below
        elif all(other == value and type(other) is type(value) for other in others):
            found[name] = value
    return found


def _without(tree: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    found = {}
    for name, value in tree.items():
        if name not in shared:
            found[name] = value
        elif isinstance(value, Mapping) and (own := _without(value, shared[name])):
            found[name] = own
    return found


def _evaluation(run: Run, name: str, params: Mapping[str, Any]) -> Any:
    kind = run.document["config"]["type"]
    entry = {"type": kind}
    if name != kind:
        entry["name"] = name
    if params:
        entry["params"] = dict(params)
    return kind if entry == {"type": kind} else entry
