"""Secrets that stand written out where a configuration is written into files: found by the names of their fields.

What is shaped like a key is found by `secrets.Redactor`; this is about the others, `user_token: 3f1c...`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import SplitResult, unquote_plus

from eval_factory.core.redaction import REDACTED, Redactor, is_placeholder, looks_like_key
from eval_factory.core.secrets import is_variable_name, names_a_secret, variables_in

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


def written_keys(tree: Any, path: str = "") -> Iterator[str]:
    """The dotted paths of texts of a foreign file that are, or that hold, a key; one in a name is not shown either."""
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            is_key = _holds_a_key(str(name))
            below = f"{path}.{REDACTED if is_key else name}".lstrip(".")
            if is_key:
                yield below
            yield from written_keys(value, below)
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from written_keys(value, f"{path}[{number}]")
    elif isinstance(tree, str) and (_holds_a_key(tree) or _is_written_out(path.rpartition(".")[2], tree)):
        yield path


def _holds_a_key(text: str) -> bool:
    # `hf_model_handle` begins as a key does, and no key is so plain
    return REDACTED in Redactor().text(re.sub(r"(?<![\w-])[a-z_]+(?![\w-])", "", text))


def _is_written_out(field: str, value: str) -> bool:
    if field != "api_key_name" and not field_names_a_secret(field):
        return False
    name = re.sub(r"\A(?:host:|runtime:|\$)(?=\w+\Z)", "", value)
    if is_variable_name(name):
        return looks_like_key(name)
    marked = re.fullmatch(r"\$\{.*\}|<.*>", value, re.DOTALL)
    return not (marked or is_placeholder(value.removeprefix("lit:")))
