"""Keys: the type that never prints itself, the test for a key where a name belongs, and redaction of text.

Two nets, because each alone has holes: values that are known (the keys this run reads) are replaced wherever they
stand, and text that is shaped like a key is replaced although nobody told us about it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import quote, urlsplit

REDACTED = "[API_KEY_REDACTED]"
SHORTEST_SECRET = 6
"""A known value shorter than this is not replaced: it would mangle ordinary words and protects nothing."""

LEAST_LENGTH_TO_SHOW_AN_END = 20
SHOWN_CHARACTERS = 4

_WORD = r"[A-Za-z0-9_\-]"
_VENDORS = ("nvapi-", "sk-", "sk_", "hf_", "gsk_", "ghp_", "xai-", "ssap-", "AIza")


@dataclass(frozen=True)
class _Shape:
    """What a key looks like: a literal beginning, and a pattern for what follows it."""

    beginning: str
    following: str
    whole_word: bool = True
    keep_beginning: bool = False

    def pattern(self) -> re.Pattern[str]:
        """The literal stands first, so that `re` looks for it alone through long texts."""
        boundary = r"\b" if self.whole_word else ""
        literal = re.escape(self.beginning)
        return re.compile(f"{literal}(?<={boundary}{literal}){self.following}")

    def replacement(self) -> str:
        return self.beginning + REDACTED if self.keep_beginning else REDACTED


_KEYS = (
    *(_Shape(vendor, _WORD + "{8,}") for vendor in _VENDORS),
    _Shape("Bearer ", r"""[^\s"',;\\]+""", keep_beginning=True),
    _Shape("Basic ", r"[A-Za-z0-9+/=]{8,}", keep_beginning=True),
    _Shape("eyJ", rf"{_WORD}{{8,}}\.{_WORD}+\.{_WORD}+"),  # a JSON web token
)
_IN_A_URL = _Shape("://", r"""[^/\s@'"\\]+(?=@)""", whole_word=False, keep_beginning=True)
_SHAPES = [(shape.beginning, shape.pattern(), shape.replacement()) for shape in (*_KEYS, _IN_A_URL)]
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\Z")
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
    return any(shape.pattern().search(text) for shape in _KEYS) or bool(_LONG_MIXED.match(text))


class Redactor:
    """Replaces known secret values and anything shaped like a key."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known: list[str] = []
        for value in values:
            self.learn(value)

    @classmethod
    def from_environment(cls, env: Mapping[str, str], names: Iterable[str]) -> Redactor:
        """Knows the values of the named variables, and the passwords in proxy addresses."""
        values = [env[name] for name in names if env.get(name)]
        for name, value in env.items():
            if name.lower().endswith("_proxy"):
                values.extend(user_info_of(value))
        return cls(values)

    def learn(self, value: str) -> None:
        """Know one more secret; the same object may be in use in other threads."""
        if len(value) < SHORTEST_SECRET:
            return
        known = {*self._known, value, quote(value, safe="")}
        self._known = sorted(known, key=len, reverse=True)

    def knows_of(self, data: bytes) -> bool:
        """Whether a known secret stands in `data`."""
        return any(value.encode() in data for value in self._known)

    def text(self, text: str) -> str:
        for value in self._known:
            text = text.replace(value, REDACTED)
        for beginning, pattern, replacement in _SHAPES:
            if beginning in text:
                text = pattern.sub(replacement, text)
        return text

    def tree(self, value: object) -> object:
        """The same for every string in nested mappings and lists."""
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {key: self.tree(item) for key, item in value.items()}
        if isinstance(value, (list, tuple)):
            return [self.tree(item) for item in value]
        return value


def user_info_of(url: str) -> list[str]:
    """User name and password in a URL, as the strings that must not be shown."""
    try:
        parts = urlsplit(url)
        found = [parts.password or ""]
    except ValueError:
        return []
    return [item for item in found if item]

