"""A run config that a program has at hand, as the plain values that a YAML file would hold."""

from __future__ import annotations

import numbers
import os
from collections.abc import Mapping
from typing import Any

from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import MOST_LEVELS, not_finite


def plain_document(given: Mapping[Any, Any]) -> dict[str, Any]:
    """A copy of a mapping in which everything is a dict, a list, a text, a number, true, false or None.

    What programs have in their place is accepted: other mappings, tuples, paths, NumPy's numbers, texts of an enum.

    Raises:
        ConfigError: with every value that no file could hold, by its path.
    """
    problems: list[str] = []
    document: dict[str, Any] = _plain(given, "", 1, problems)
    problems += [f"{path}: must be a finite number" for path in not_finite(document)]
    if problems:
        raise ConfigError(problems)
    return document


def _plain(value: Any, path: str, level: int, problems: list[str]) -> Any:
    if level > MOST_LEVELS:
        raise ConfigError(f"{path.partition('.')[0]}: is nested too deeply: {MOST_LEVELS} levels at most")
    if isinstance(value, Mapping):
        return {
            _key(key, path, problems): _plain(item, f"{path}.{key}" if path else str(key), level + 1, problems)
            for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_plain(item, f"{path}[{number}]", level + 1, problems) for number, item in enumerate(value)]
    return _scalar(value, path, problems)


def _key(key: Any, path: str, problems: list[str]) -> str:
    if not isinstance(key, str):
        problems.append(f"{path or 'the run config'}: a key must be text, not {_kind(key)}")
    return str(key)


def _scalar(value: Any, path: str, problems: list[str]) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str.__str__(value)
    if isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if isinstance(value, numbers.Integral):
        return int(value)
    if isinstance(value, numbers.Real):
        return float(value)
    problems.append(
        f"{path}: is {_kind(value)}; a run config holds texts, numbers, true, false, null, lists and mappings"
    )
    return None


def _kind(value: Any) -> str:
    """By its type alone: the value itself may be a secret."""
    kind = type(value)
    module = "" if kind.__module__ == "builtins" else f"{kind.__module__}."
    return f"of the type {module}{kind.__qualname__}"
