"""Keys that stand written out in a foreign configuration: such a file is refused, and the key never shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from eval_factory.core.redaction import REDACTED, Redactor, is_placeholder, looks_like_key
from eval_factory.core.secrets import is_variable_name
from eval_factory.core.written_secrets import field_names_a_secret

_NAMES_A_VARIABLE = re.compile(r"(?:host:|runtime:|\$)(?P<name>\w+)\Z")
_WORDS = re.compile(r"(?<![\w-])[a-z_]+(?![\w-])")
"""Such as `hf_model_handle`: it begins as a key does, and no key is so plain."""
_LITERAL = "lit:"
_NAME_OF_A_KEY = "api_key_name"
_MARKERS = (("${", "}"), ("<", ">"))


def written_keys(tree: Any, path: str = "") -> Iterator[str]:
    """The dotted paths of texts that are, or that hold, a key; a key in the name of a key is not shown either."""
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            is_key = _looks_like_one(str(name))
            shown = REDACTED if is_key else name
            below = f"{path}.{shown}" if path else str(shown)
            if is_key:
                yield below
            yield from written_keys(value, below)
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from written_keys(value, f"{path}[{number}]")
    elif isinstance(tree, str) and _holds_a_key(path.rpartition(".")[2], tree):
        yield path


def _holds_a_key(field: str, value: str) -> bool:
    if _looks_like_one(value):
        return True
    if field != _NAME_OF_A_KEY and not field_names_a_secret(field):
        return False
    named = _NAMES_A_VARIABLE.match(value)
    name = named["name"] if named else value
    if is_variable_name(name):
        return looks_like_key(name)
    marked = any(value.startswith(start) and value.endswith(end) for start, end in _MARKERS)
    return not (marked or is_placeholder(value.removeprefix(_LITERAL)))


def _looks_like_one(text: str) -> bool:
    return REDACTED in Redactor().text(_WORDS.sub("", text))
