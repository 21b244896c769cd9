"""Secrets from the environment: the type that never prints itself, and `${NAME}` in a configuration."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.redaction import REDACTED

LEAST_LENGTH_TO_SHOW_AN_END = 20
SHOWN_CHARACTERS = 4

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME_OF_A_SECRET = re.compile(
    r"(?:key|token|secret|password|passwd|credentials?|authorization|(?:^|[_.-])(?:pass|pwd|auth|sig))[_-]?\d*\Z",
    re.IGNORECASE,
)
_FOLDERS_OF_THE_SHELL = ("PWD", "OLDPWD")
"""Where a shell is and where it was: no password, whatever the names look like."""


class Secret:
    """A value that is used and never shown: `repr`, `str` and formatting all give the redaction mark."""

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def ending(self) -> str:
        """The last four characters for a log line; none of a key shorter than twenty."""
        if len(self._value) < LEAST_LENGTH_TO_SHOW_AN_END:
            return "(too short to show)"
        return self._value[-SHOWN_CHARACTERS:]

    def __repr__(self) -> str:
        return REDACTED

    __str__ = __repr__

    def __format__(self, spec: str) -> str:
        return REDACTED

    def __bool__(self) -> bool:
        return bool(self._value)


def is_variable_name(text: str) -> bool:
    """Whether `text` can be the name of an environment variable."""
    return bool(_NAME.match(text))


def variable_of(service: str, name: str) -> str:
    """The environment variable of a service that gives tokens: OPENAI_CLIENT_ID."""
    return f"{service.upper().replace('-', '_')}_{name}"


def names_a_secret(name: str) -> bool:
    """Whether a variable, or a field of a request, of this name is likely to hold a secret: USER_TOKEN, key, apiKey."""
    return name not in _FOLDERS_OF_THE_SHELL and bool(_NAME_OF_A_SECRET.search(name))


def secret_in(env: Mapping[str, str], name: str) -> str | None:
    """The secret in a variable, without white space around it (a Windows file leaves a CR); None where there is none.

    Raises:
        PrerequisiteError: it cannot be sent; the message names the variable.
    """
    return checked_secret(env.get(name) or "", name)


def checked_secret(value: str, origin: str) -> str | None:
    """The same of a value that was read elsewhere."""
    value = value.strip()
    if not (value.isascii() and value.isprintable()):
        raise PrerequisiteError(
            f"{origin} holds a character that no key has (not shown): a control character, or one beyond ASCII\n"
            "  set it again; quotes, dashes and spaces may have been changed where it was copied from"
        )
    return value or None


def first_secret(env: Mapping[str, str], names: Iterable[str]) -> str | None:
    """The secret of the first variable that is set. Raises PrerequisiteError, as `secret_in` does."""
    return next((value for name in names if (value := secret_in(env, name))), None)


def variables_in(tree: object) -> list[str]:
    """The names in `${NAME}`: secrets that a configuration has to be used with, and is not to be written with."""
    if isinstance(tree, str):
        return _VARIABLE.findall(tree)
    items = tree.values() if isinstance(tree, Mapping) else tree if isinstance(tree, (list, tuple)) else ()
    return list(dict.fromkeys(name for item in items for name in variables_in(item)))


def filled(tree: Any, env: Mapping[str, str]) -> Any:
    """The tree with the secrets in place of `${NAME}`.

    Raises:
        PrerequisiteError: a variable is not set, or holds what cannot be sent.
    """
    if isinstance(tree, str):
        return _VARIABLE.sub(lambda match: _needed(env, match[1]), tree)
    if isinstance(tree, Mapping):
        return {key: filled(item, env) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [filled(item, env) for item in tree]
    return tree


def _needed(env: Mapping[str, str], name: str) -> str:
    value = secret_in(env, name)
    if value is None:
        raise PrerequisiteError(f"the environment variable {name} is not set\n  set it (export {name}=...)")
    return value
