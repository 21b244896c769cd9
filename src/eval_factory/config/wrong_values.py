"""What is wrong with a value of a configuration, in words: pydantic's findings with the whole path of each key."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from eval_factory.config.model import LIST_FORMS
from eval_factory.core.errors import did_you_mean, expectation
from eval_factory.core.secrets import REDACTED, Redactor, looks_like_key

UNKNOWN_KEY = "unknown key "
"""The beginning of a problem that does not prevent other checks."""
MAX_SHOWN = 200
"""Characters of a wrong value."""


def problems_with(
    tree: Any, where: str, model: type[BaseModel], elsewhere: Collection[tuple[str, ...]] = ()
) -> Iterator[str]:
    """What pydantic finds in a tree that stands at `where`; `elsewhere`: what another layer may add is not missing."""
    try:
        model.model_validate(tree)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if detail["type"] == "missing" and detail["loc"] in elsewhere:
                continue
            place = [part for part in detail["loc"] if isinstance(part, int) or "[" not in part]
            path = where + "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in place)
            if detail["type"] == "extra_forbidden":
                yield unknown_key(path, str(place[-1]), known_keys(model, place[:-1]))
            else:
                yield f"{path}: {wrong_value(detail)}"


def unknown_key(path: str, name: str, known: Sequence[str], also: Sequence[str] = ()) -> str:
    """`also`: keys that may be meant, and are not listed where none is near."""
    hint = did_you_mean(name, [*known, *also]) or (f"; known here: {', '.join(known)}" if known else "")
    return f"{UNKNOWN_KEY}{REDACTED if looks_like_key(name) else path}{hint}"


def wrong_value(detail: Any) -> str:
    """What a value must be and what it is; of a list of mappings what one looks like."""
    if detail["type"] == "missing":
        return "is missing"
    if detail["type"] == "value_error":
        return str(detail["ctx"]["error"])
    form = LIST_FORMS.get(detail["loc"][-1]) if detail["type"] == "list_type" else None
    return f"{expectation(detail)}{f' such as {form}' if form else ''}, got {shown_value(detail.get('input'))}"


def shown_value(value: object) -> str:
    if isinstance(value, (dict, list)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    shown = Redactor().text(repr(value))
    return shown if len(shown) <= MAX_SHOWN else f"{shown[:MAX_SHOWN]} ..."


def known_keys(model: type[BaseModel], place: Sequence[str | int]) -> list[str]:
    """The keys of what stands at a place in a model; none where any key may stand there."""
    for name in place:
        if isinstance(name, str):
            field = model.model_fields.get(name)
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
