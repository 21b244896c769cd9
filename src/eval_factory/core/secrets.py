"""Keys: the type that never prints itself, the test for a key where a name belongs, and redaction of text.

Two nets, because each alone has holes: values that are known (the keys this run reads) are replaced wherever they
stand, and text that is shaped like a key is replaced although nobody told us about it. What is scored passes the
first net only: a model's answer may look like anything.
"""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from eval_factory.core.errors import PrerequisiteError

REDACTED = "[API_KEY_REDACTED]"
SHORTEST_SECRET = 12
_A_WORD = r"(?:[A-Z]?[a-z]{1,20}|[A-Z]{1,20})"
_PLAIN = re.compile(rf"{_A_WORD}(?:[-_. ]{_A_WORD})?")

LEAST_LENGTH_TO_SHOW_AN_END = 20
SHOWN_CHARACTERS = 4

_WORD = r"[A-Za-z0-9_\-]"
_BASE64 = r"[A-Za-z0-9+/=]"
_TOKEN68 = r"[A-Za-z0-9._~+/=\-]"
_NO_WORD = r"(?:[0-9=]|[a-z][A-Z])"
"""What is inside a key and not inside a word: 'Basic metabolic panel' and 'Bearer of ...' are clinical text."""
_HEADER = r"""["'\\]*\s*[:=]\s*["'\\]*"""
_VENDORS = ("nvapi-", "sk-", "sk_", "hf_", "gsk_", "ghp_", "xai-", "ssap-", "AIza")


@dataclass(frozen=True)
class _Shape:
    """What a key looks like: a literal beginning, a pattern for what stands between, and one for the rest.

    `needed` has to come after the rest. It is looked for behind the longest rest only: looked for from each beginning
    in a long text of beginnings, it would take the square of its length.
    """

    beginning: str
    following: str
    between: str = ""
    needed: str = ""
    whole_word: bool = True
    keep_beginning: bool = False

    def pattern(self) -> re.Pattern[str]:
        """The literal stands first, so that `re` looks for it alone through long texts."""
        boundary = r"\b" if self.whole_word else ""
        literal = re.escape(self.beginning)
        needed = f"({self.needed})?" if self.needed else "()"
        return re.compile(f"({literal}(?<={boundary}{literal}){self.between}){self.following}{needed}")

    def replacement(self, match: re.Match[str]) -> str:
        if match[2] is None:
            return match[0]
        return match[1] + REDACTED if self.keep_beginning else REDACTED

    def is_in(self, text: str) -> bool:
        return any(match[2] is not None for match in self.pattern().finditer(text))


def _unlike_words(characters: str, least: int) -> str:
    return rf"(?={characters}*?{_NO_WORD}){characters}{{{least},}}"


_KEYS = (
    *(_Shape(vendor, _WORD + "{8,}") for vendor in _VENDORS),
    _Shape(
        "uthorization", r"""[^\s"',;\\]+""", between=rf"{_HEADER}[Bb]earer\s+", whole_word=False, keep_beginning=True
    ),
    _Shape(
        "uthorization",
        _unlike_words(_BASE64, 8),
        between=rf"{_HEADER}[Bb]asic\s+",
        whole_word=False,
        keep_beginning=True,
    ),
    _Shape("Bearer ", _unlike_words(_TOKEN68, 16), keep_beginning=True),
    _Shape("Basic ", _unlike_words(_BASE64, 16), keep_beginning=True),
    _Shape("eyJ", rf"{_WORD}{{8,}}", needed=rf"\.{_WORD}+\.{_WORD}+"),  # a JSON web token
)
_IN_A_URL = _Shape("://", r"""[^/\s@'"\\]+(?=@)""", whole_word=False, keep_beginning=True)
_SHAPES = [(shape.beginning, shape.pattern(), shape.replacement) for shape in (*_KEYS, _IN_A_URL)]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_NAME_OF_A_SECRET = re.compile(
    r"(?:key|token|secret|password|passwd|credentials?|authorization|(?:^|[_.-])(?:pass|pwd|auth|sig))[_-]?\d*\Z",
    re.IGNORECASE,
)
_FOLDERS_OF_THE_SHELL = ("PWD", "OLDPWD")
"""Where a shell is and where it was: no password, whatever the names look like."""

_LONG_MIXED = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9_]{24,}\Z")


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


def looks_like_key(text: str) -> bool:
    """Whether `text`, given where the NAME of a variable belongs, is more likely the key itself."""
    return any(shape.is_in(text) for shape in _KEYS) or bool(_LONG_MIXED.match(text))


def names_a_secret(name: str) -> bool:
    """Whether a variable, or a field of a request, of this name is likely to hold a secret: USER_TOKEN, key, apiKey."""
    return name not in _FOLDERS_OF_THE_SHELL and bool(_NAME_OF_A_SECRET.search(name))


def is_place(value: str) -> bool:
    """Whether a value is the path of something that is there: `SERVICE_CREDENTIALS=/etc/service.json` names a file.

    Replacing it would blind every message about that place, and protect nothing.
    """
    return os.sep in value and os.path.exists(value)  # noqa: PTH110 - Path.exists raises where a name is too long


def is_placeholder(value: str) -> bool:
    """Whether a key is too short or too plain to be told from words: `EMPTY`, `ollama`, `not-needed`.

    Replacing it would mangle answers and paths, and protect nothing.
    """
    return len(value) < SHORTEST_SECRET or bool(_PLAIN.fullmatch(value))


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
            "  set it anew; quotes, dashes and spaces may have been changed where it was copied from"
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


def _in_base64(value: str) -> set[str]:
    """What of the value's base64 is the same whatever stands before and behind it, in both alphabets."""
    found = set()
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + value.encode()).decode().rstrip("=")
        whole = (before + len(value.encode())) * 8 // 6  # digits that hold no bit of what comes behind
        core = encoded[-(-before * 8 // 6) : whole]
        found |= {core, core.replace("+", "-").replace("/", "_")}
    return found


def _in_hexadecimal(value: str) -> set[str]:
    digits = value.encode().hex()
    return {digits, digits.upper()}


_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\[ux]|&#")


def _with_escapes(value: str) -> re.Pattern[str]:
    """The value with any of its characters escaped: for a URL, in JSON or a program, in HTML."""
    return re.compile("".join(map(_escapable, value)))


def _escapable(letter: str) -> str:
    code = ord(letter)
    digits = "".join(f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{code:02x}")
    in_a_program = rf"\\{{1,8}}(?:u00|x|u\{{0{{0,4}}){digits}\}}?"
    in_html = f"&#0{{0,4}}(?:{code}|[xX]0{{0,4}}{digits});?"
    return rf"(?:{re.escape(letter)}|%(?:25){{0,4}}{digits}|{in_a_program}|{in_html})"


class Redactor:
    """Replaces known secret values and anything shaped like a key."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known: list[str] = []
        self._shortest = 0
        self._escaped: dict[str, re.Pattern[str]] = {}
        for value in values:
            self.learn(value)

    @classmethod
    def from_environment(cls, env: Mapping[str, str], names: Iterable[str]) -> Redactor:
        """Knows the values of the named variables, unless they are paths, and the passwords in proxy addresses."""
        values = [env[name] for name in names if env.get(name) and not is_place(env[name])]
        for name, value in env.items():
            if name.lower().endswith("_proxy"):
                values.extend(user_info_of(value))
        return cls(values)

    def learn(self, value: str) -> None:
        """Know one more secret; the same object may be in use in other threads."""
        value = value.strip()
        if is_placeholder(value):
            return
        forms = {value, json.dumps(value)[1:-1], html.escape(value), *_in_base64(value), *_in_hexadecimal(value)}
        known = sorted({*self._known, *forms}, key=len, reverse=True)
        self._shortest = len(known[-1])
        self._known = known
        self._escaped = {**self._escaped, value: _with_escapes(value)}

    def known(self, text: str) -> str:
        """Without the secrets that are known, as they are or in an encoding that anybody reads back."""
        if len(text) < self._shortest:
            return text
        for value in self._known:
            text = text.replace(value, REDACTED)
        if ("%" in text or "\\" in text or "&" in text) and _ESCAPE.search(text):
            for pattern in self._escaped.values():
                text = pattern.sub(REDACTED, text)
        return text

    def text(self, text: str) -> str:
        """Without the secrets that are known, and without what is shaped like one."""
        text = self.known(text)
        for beginning, pattern, replacement in _SHAPES:
            if beginning in text:
                text = pattern.sub(replacement, text)
        return text

    def tree(self, value: Any, *, known_only: bool = False) -> Any:
        """The same for every string in nested mappings and lists, names of fields included."""
        if isinstance(value, str):
            return self.known(value) if known_only else self.text(value)
        if isinstance(value, Mapping):
            return {
                self.tree(key, known_only=known_only): self.tree(item, known_only=known_only)
                for key, item in value.items()
            }
        if isinstance(value, (list, tuple)):
            return [self.tree(item, known_only=known_only) for item in value]
        return value


def user_info_of(url: str) -> list[str]:
    """User name and password in a URL, as the strings that must not be shown."""
    try:
        parts = urlsplit(url)
        found = [parts.password or ""]
    except ValueError:
        return []
    return [item for item in found if item]
