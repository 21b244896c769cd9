"""The part of Jinja that `command` in framework.yml uses: a value, and a piece that is left out where a value is none.

A dry run imports nothing for it. Whatever else a template holds is Jinja's own affair: then there is no text here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

_NAME = r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*"
_VALUE = re.compile(rf"\{{\{{ ({_NAME}) \}}\}}")
_PIECE = re.compile(rf"\{{% if ({_NAME}) is not none %\}}([^\n]*?)\{{% endif %\}}")
_JINJAS = ("{{", "{%", "{#", "\r")


class _NotPlainError(Exception):
    """It has to be left to Jinja."""


def rendered(template: str, values: Mapping[str, Any], written: Callable[[Any], str]) -> str | None:
    """What Jinja makes of a template; None where that takes Jinja: another form of it, or a name without a value.

    Args:
        written: a value -> its text.
    """
    template = template.removesuffix("\n")
    if any(mark in _VALUE.sub("", _PIECE.sub(r"\2", template)) for mark in _JINJAS):
        return None

    def piece(found: re.Match[str]) -> str:
        return "" if _value_of(found[1], values) is None else found[2]

    try:
        return _VALUE.sub(lambda found: written(_value_of(found[1], values)), _PIECE.sub(piece, template))
    except _NotPlainError:
        return None


def _value_of(name: str, values: Mapping[str, Any]) -> Any:
    """By keys alone: Jinja looks for an attribute of that name before."""
    first, *parts = name.split(".")
    if first not in values:
        raise _NotPlainError
    found = values[first]
    for part in parts:
        if not isinstance(found, dict) or part not in found or hasattr(found, part):
            raise _NotPlainError
        found = found[part]
    return found
