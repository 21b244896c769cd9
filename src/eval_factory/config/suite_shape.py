"""What is wrong with the shape of a suite's file, in words: each key with its whole path, all mistakes at once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from eval_factory.config import foreign_keys
from eval_factory.config.evaluation import canonical_names, wrong_value
from eval_factory.config.merge import Source, merge
from eval_factory.config.model import ApiEndpoint, Extra, Params
from eval_factory.config.suite_model import SuiteSection
from eval_factory.core.errors import did_you_mean
from eval_factory.core.secrets import REDACTED, looks_like_key
from eval_factory.tasks.framework import Framework

TOP = "suite"
UNKNOWN_KEY = "unknown key "
"""What a problem begins with that says no more of what stands beside it."""
HANDED = ("judges", "prices", "max_cost", "max_tokens_total")
"""Keys of a suite that are handed to cells as config.params.extra has them. A limit of all is one of each, too: so each
knows what of its answers has to be counted."""
_GIVEN_ELSEWHERE = (("url",), ("model_id",))
"""What an endpoint needs and another file may say: looked for when all files are merged."""


def problems_of_shape(tree: Mapping[str, Any]) -> Iterator[str]:
    """What is wrong with the section itself; what stands in `params` and endpoints is not looked at."""
    try:
        SuiteSection.model_validate(tree)
    except ValidationError as error:
        yield from (explained(TOP, detail, SuiteSection) for detail in error.errors(include_url=False))


def problems_of_values(tree: Mapping[str, Any], framework: Framework) -> Iterator[str]:
    """What is wrong with the parameters and the endpoints in a section of sound shape."""
    for where, params in params_of(tree):
        yield from _problems_of_params(params, where, framework)
    for name in HANDED:
        if tree.get(name) is not None and name in Extra.model_fields:
            for problem in _problems_of_params({"extra": {name: tree[name]}}, TOP, framework):
                yield problem.replace(f"{TOP}.extra.{name}", f"{TOP}.{name}")
    for number, target in enumerate(tree.get("targets") or []):
        yield from _problems_of_endpoint(target.get("api_endpoint") or {}, endpoint_at(number), framework)


def endpoint_at(number: int) -> str:
    return f"{TOP}.targets[{number}].api_endpoint"


def params_of(tree: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """(path, params) wherever a section of sound shape has them."""
    if tree.get("params"):
        yield f"{TOP}.params", tree["params"]
    for kind in ("evaluations", "targets", "variants"):
        for number, entry in enumerate(tree.get(kind) or []):
            if isinstance(entry, dict) and entry.get("params"):
                yield f"{TOP}.{kind}[{number}].params", entry["params"]


def _problems_of_params(params: Mapping[str, Any], where: str, framework: Framework) -> Iterator[str]:
    defaults = {"config": {"params": framework.defaults.config["params"]}}
    given = {"config": {"params": deepcopy(dict(params))}}
    foreign_keys.take_out([(Source.FILE, given)])
    whole, _ = merge([(Source.FRAMEWORK, defaults), (Source.FILE, given)])
    yield from _problems_of(whole["config"]["params"], where, Params)


def _problems_of_endpoint(endpoint: Mapping[str, Any], where: str, framework: Framework) -> Iterator[str]:
    given = {"target": {"api_endpoint": deepcopy(dict(endpoint))}}
    canonical_names(given, [])  # two different ones are found where layers are brought into one form
    foreign_keys.take_out([(Source.FILE, given)])
    whole, _ = merge([(Source.FRAMEWORK, {"target": framework.defaults.target}), (Source.FILE, given)])
    merged = whole["target"]["api_endpoint"]
    for (name,) in _GIVEN_ELSEWHERE:
        if merged.get(name) is None:
            merged.pop(name, None)
    yield from _problems_of(merged, where, ApiEndpoint)


def _problems_of(tree: Mapping[str, Any], where: str, model: type[BaseModel]) -> Iterator[str]:
    try:
        model.model_validate(tree)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if detail["type"] != "missing" or detail["loc"] not in _GIVEN_ELSEWHERE:
                yield explained(where, detail, model)


def explained(where: str, detail: Any, model: type[BaseModel]) -> str:
    """One of pydantic's findings about `model`, which stands at `where`."""
    place = [part for part in detail["loc"] if isinstance(part, int) or "[" not in part]
    path = path_of(where, place)
    kind = detail["type"]
    if kind == "extra_forbidden":
        known = known_keys(model, place[:-1])
        hint = did_you_mean(str(place[-1]), known) or (f"; known here: {', '.join(known)}" if known else "")
        return f"{UNKNOWN_KEY}{REDACTED if looks_like_key(str(place[-1])) else path}{hint}"
    if kind == "missing":
        return f"{path}: is missing"
    if kind == "value_error":
        return f"{path}: {detail['ctx']['error']}"
    return f"{path}: {wrong_value(detail)}"


def path_of(where: str, place: Sequence[str | int]) -> str:
    """`suite.targets[0].name`."""
    return where + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)


def known_keys(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The keys of what stands at a place in a model; none where any key may stand there."""
    for part in place:
        if isinstance(part, str):
            field = model.model_fields.get(part)
            inner = next(_models_in(field.annotation), None) if field else None
            if inner is None:
                return []
            model = inner
    return sorted(model.model_fields)


def _models_in(annotation: Any) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and not get_args(annotation) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in get_args(annotation):
        yield from _models_in(argument)
