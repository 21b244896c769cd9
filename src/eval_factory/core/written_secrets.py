"""Secrets that stand written out where a configuration is written into files: found by the names of their fields.

What is shaped like a key is found by `secrets.Redactor`; this is about the others, `user_token: 3f1c...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote_plus

from eval_factory.core.redaction import is_placeholder
from eval_factory.core.secrets import names_a_secret, variables_in

_NO_SECRETS = re.compile(
    r"(?:^|[_.-])(?:(?:eos|bos|pad|unk|sep|cls|mask|stop|start|end|begin|special|think|reasoning)[_-]?token"
    r"|(?:cache|sort|primary|foreign|public)[_-]?key)\Z",
    re.IGNORECASE,
)
"""Fields of requests that are called so and hold none: eos_token, prompt_cache_key."""

_BETWEEN_FIELDS = re.compile("[/?&;#]")
_IN_A_LIST = re.compile(r"(?:\[\d+\])+\Z")
_VALUE = "value"


def field_names_a_secret(name: str) -> bool:
    """The same as `names_a_secret` of a field of a request or a URL, in any case: `?PWD=` is no shell's folder."""
    name = _IN_A_LIST.sub("", name).lower()
    return names_a_secret(name) and not _NO_SECRETS.search(name)


def field_before(text: str) -> str:
    """The name of the field whose value begins at the end of `text`, a part of a URL."""
    return _BETWEEN_FIELDS.split(text)[-1].rpartition("=")[0]


def secret_field_of_url(parts: SplitResult) -> str | None:
    """The name of a field of a URL (path parameter, query or fragment) that holds a secret, if one does."""
    fields = [*re.split("[/;]", parts.path), *re.split("[?&;]", parts.query), *re.split("[?&;]", parts.fragment)]
    for field in fields:
        name, equals, value = field.partition("=")
        name = unquote_plus(name)
        if equals and field_names_a_secret(name) and _is_one(unquote_plus(value)):
            return name
    return None


def secret_field_of(tree: Any) -> str | None:
    """The dotted name of a field that holds a secret, in mappings and lists at any depth."""
    return next(_fields(tree, ""), None)


def _fields(tree: Any, path: str) -> Iterator[str]:
    """A list's entries, and what stands under `value`, belong to the field above them."""
    if isinstance(tree, Mapping):
        for key, item in tree.items():
            own = path if str(key).lower() == _VALUE and path else f"{path}.{key}" if path else str(key)
            yield from _fields(item, own)
    elif isinstance(tree, (list, tuple)):
        for item in tree:
            yield from _fields(item, path)
    elif isinstance(tree, (str, int)) and field_names_a_secret(path.rpartition(".")[2]) and _is_one(str(tree)):
        yield path


def _is_one(value: str) -> bool:
    """Not a variable's name in braces, a marker such as <|endoftext|>, or a word."""
    marker = value[:1] + value[-1:] in ("<>", "[]")
    return not (variables_in(value) or marker or is_placeholder(value))
