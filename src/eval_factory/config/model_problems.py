"""Explains wrong values in a configuration to the user.

An explanation turns pydantic's finding into a sentence with the complete path of the value.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Any, get_args

from pydantic import BaseModel, ValidationError

from eval_factory.core.errors import did_you_mean, unmet_expectation
from eval_factory.core.secrets import REDACTED, Redactor, looks_like_key

UNKNOWN_KEY = "unknown key "
"""The beginning of the message about an unknown key. Such a problem does not prevent other checks.
"""
MAX_SHOWN = 200  # the number of characters of a wrong value that a message shows


def problems_with(
    tree: Any, tree_path: str, model: type[BaseModel], optional: Collection[tuple[str, ...]] = ()
) -> Iterator[str]:
    """Yield a message for each problem that pydantic finds in a tree.

    Args:
        tree: the tree to check.
        tree_path: the dotted path of the tree in its file.
        model: the model of the tree.
        optional: the paths in the tree that may be missing, because another layer may set them.
    """
    try:
        model.model_validate(tree)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            if detail["type"] == "missing" and detail["loc"] in optional:
                continue
            parts = []
            for part in detail["loc"]:
                # A text with "[" is not a key, but pydantic's name of an alternative of a union.
                if isinstance(part, int) or "[" not in part:
                    parts.append(part)
            path = tree_path
            for part in parts:
                if isinstance(part, int):
                    path += f"[{part}]"
                else:
                    path += f".{part}"
            if detail["type"] == "extra_forbidden":
                yield unknown_key_message(path, str(parts[-1]), known_keys(model, parts[:-1]))
            else:
                yield f"{path}: {wrong_value_message(detail)}"


def unknown_key_message(
    path: str, name: str, known_names: Sequence[str], also: Sequence[str] = ()
) -> str:
    """Return the message about an unknown key, with the most similar known key.

    Args:
        path: the dotted path of the key in its file.
        name: the key.
        known_names: the known keys of the section, which are listed if no known key is similar.
        also: further known keys, which are suggested but never listed.
    """
    hint = did_you_mean(name, [*known_names, *also])
    if not hint and known_names:
        hint = f"; known here: {', '.join(known_names)}"
    # The user may have written an API key in place of the name of a setting.
    shown_path = REDACTED if looks_like_key(name) else path
    return f"{UNKNOWN_KEY}{shown_path}{hint}"


def wrong_value_message(detail: Any) -> str:
    """Return the message about a wrong value: the expected kind of value, and the value.

    `detail` is one of pydantic's findings, with the keys `type`, `loc`, `input` and maybe `ctx`.
    """
    if detail["type"] == "missing":
        return "is missing"
    if detail["type"] == "value_error":  # a validator of this program raised ValueError
        return str(detail["ctx"]["error"])
    return f"{unmet_expectation(detail)}, got {shown_value(detail.get('input'))}"


def shown_value(value: object) -> str:
    """Return a value as messages show it: without secrets and not too long."""
    if isinstance(value, (dict, list)):
        return f"a {'mapping' if isinstance(value, dict) else 'list'}"
    text = Redactor().redact_text(repr(value))
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[:MAX_SHOWN]} ..."


def known_keys(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """Return the keys of the section at a path in a model, sorted.

    The list is empty if the path leads to no section, or to a section that allows any key. Numbers
    in the path are skipped, because all entries of a list have the same model.
    """
    for name in path:
        if isinstance(name, str):
            field = model.model_fields.get(name)
            section = next(_model_classes(field.annotation), None) if field else None
            if section is None:
                return []
            model = section
    return sorted(model.model_fields)


def _model_classes(annotation: Any) -> Iterator[type[BaseModel]]:
    """Yield the models in a type annotation, such as `Judge` in `list[Judge] | None`."""
    if (
        isinstance(annotation, type)
        and not get_args(annotation)
        and issubclass(annotation, BaseModel)
    ):
        yield annotation
    for argument in get_args(annotation):
        yield from _model_classes(argument)
