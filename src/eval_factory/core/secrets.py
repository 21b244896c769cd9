"""Secrets: read from the environment, found in configurations, kept out of every screen, log and file.

Redaction has two nets, because each alone has holes: known values (the keys of this run) are replaced wherever they
stand, and text that is shaped like a key is replaced although nobody named it. What is scored passes the first net
only: a model's answer may look like anything.
"""

from __future__ import annotations

import base64
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import SplitResult, unquote_plus, urlsplit

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.safe_files import json_line

REDACTED = "[API_KEY_REDACTED]"
SHORTEST_SECRET = 12
_A_WORD = r"(?:[A-Z]?[a-z]{1,20}|[A-Z]{1,20})"
_PLAIN = re.compile(rf"{_A_WORD}(?:[-_. ]{_A_WORD})?")

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

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """The literal stands first, so that `re` looks for it alone through long texts.

        Compiled when a text has the literal: most programs see none, and all of them together take milliseconds.
        """
        boundary = r"\b" if self.whole_word else ""
        literal = re.escape(self.beginning)
        needed = f"({self.needed})?" if self.needed else "()"
        return re.compile(f"({literal}(?<={boundary}{literal}){self.between}){self.following}{needed}")

    def replacement(self, match: re.Match[str]) -> str:
        if match[2] is None:
            return match[0]
        return match[1] + REDACTED if self.keep_beginning else REDACTED

    def is_in(self, text: str) -> bool:
        return self.beginning in text and any(match[2] is not None for match in self.pattern.finditer(text))


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
_RARE = "_-/JzB"
"""Letters that are rare in texts; each beginning has one. One letter is found ten times as fast as several."""
_SHAPES = [(next(letter for letter in _RARE if letter in shape.beginning), shape) for shape in (*_KEYS, _IN_A_URL)]
MOST_REMEMBERED, AN_ENTRY = 4_000_000, 100
"""Characters of texts that are known to hold no key, and what each text takes beside: a prompt stands in several
files."""
_BEGINNINGS = sorted({shape.beginning for _, shape in _SHAPES})
_SHORTEST_KEY = 11
"""No shape but that of a URL is in less: `sk-` and eight more. Most texts of a document are shorter."""
_LONG_MIXED = re.compile(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9_]{24,}\Z")


def looks_like_key(text: str) -> bool:
    """Whether `text`, given where the NAME of a variable belongs, is more likely the key itself."""
    return any(shape.is_in(text) for shape in _KEYS) or bool(_LONG_MIXED.match(text))


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


_BREAK = re.compile(
    r"(?<!\\)\\+(?:[nrtfbv]|u00(?:0[9aAdD]|20|[aA]0)|x0[9aAdD]|x20)|%(?:25)*(?:0[9aAdD]|20)|&#(?:1[03]|[xX]0?[aAdD]);"
)
"""A line break or a space as others write it."""
_SEPARATORS = bytes(code for code in range(256) if not (code < 128 and chr(code).isalnum()))
_BUT_ESCAPES, _ESCAPED = _SEPARATORS.translate(None, b'\\"'), re.compile(rb'\\[\\"nrtfb]|"')
"""Of a line of JSON: what separates, but for what escapes are made of; and these."""


def _squeezed(text: str) -> bytes:
    """Its letters and digits, of ASCII."""
    return text.encode("ascii", "ignore").translate(None, _SEPARATORS)


class Unchanged:
    """Texts that hold nothing to redact: the first ones, as many as have room."""

    def __init__(self) -> None:
        self.texts: set[str] = set()
        self._room = MOST_REMEMBERED

    def add(self, text: str) -> None:
        size = len(text) + AN_ENTRY
        if size <= self._room:
            self._room -= size
            self.texts.add(text)


class Redactor:
    """Replaces known secret values and anything shaped like a key."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._known: list[str] = []
        self._in_lines: list[str] = []
        """The known ones, as they stand in a line of JSON."""
        self._shortest = 0
        self._spread: list[bytes] = []
        """Letters and digits of the known ones, and backwards: looked for between any separators."""
        self._escaped: dict[str, re.Pattern[str]] = {}
        self._unchanged = Unchanged()
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
        import html  # imported here, with its table of names: most commands know no secret

        forms = {value, json.dumps(value)[1:-1], html.escape(value), *_in_base64(value), *_in_hexadecimal(value)}
        known = sorted({*self._known, *forms}, key=len, reverse=True)
        spread = {*map(_squeezed, known), *self._spread, _squeezed(value)[::-1]}
        self._spread = [form for form in spread if len(form) >= SHORTEST_SECRET]  # fewer may be a text's own
        self._shortest = min(len(form) for form in (known[-1], *self._spread))
        self._known = known
        self._in_lines = [json_line(form)[1:-1] for form in known]
        self._escaped = {**self._escaped, value: _with_escapes(value)}
        self._unchanged = Unchanged()  # last: what other threads find by what was known before goes to the old one

    def finds(self, text: str) -> bool:
        """Whether a secret that is known stands in the text, as it is or in base64 or hexadecimal, spread or not."""
        return any(value in text for value in self._known) or self._is_spread_in(text)

    def _is_spread_in(self, text: str) -> bool:
        letters = _squeezed(text) if self._spread else b""
        return any(form in letters for form in self._spread)

    def known(self, text: str) -> str:
        """Without the secrets that are known, as they are or in an encoding that anybody reads back."""
        if len(text) < self._shortest:
            return text
        for value in self._known:
            text = text.replace(value, REDACTED)
        if ("%" in text or "\\" in text or "&" in text) and _ESCAPE.search(text):
            for pattern in self._escaped.values():
                text = pattern.sub(REDACTED, text)
        text = self._without_spread(text, text)
        if "\\" in text or "%" in text or "&" in text:
            text = self._without_spread(text, _BREAK.sub(lambda match: " " * len(match[0]), text))
        return text

    def _without_spread(self, text: str, read: str) -> str:
        """Without the secrets whose letters and digits stand in `read` in their order, or backwards, whatever stands
        between them. `read`: the text, as long as it is, perhaps with blanks for what means a blank.
        """
        if not self._is_spread_in(read):
            return text
        letters = _squeezed(read)
        places = [place for place, letter in enumerate(read) if letter.isascii() and letter.isalnum()]
        taken: list[tuple[int, int]] = []
        for form in self._spread:
            at = letters.find(form)
            while at >= 0:
                taken.append((places[at], places[at + len(form) - 1] + 1))
                at = letters.find(form, at + 1)
        parts, end = [], 0
        for begin, behind in sorted(taken):
            if begin >= end:
                parts += [text[end:begin], REDACTED]
            end = max(end, behind)
        return "".join(parts) + text[end:]

    def text(self, text: str) -> str:
        """Without the secrets that are known, and without what is shaped like one."""
        unchanged = self._unchanged
        if text in unchanged.texts:
            return text
        found = self.known(text)
        if len(found) < _SHORTEST_KEY and _IN_A_URL.beginning not in found:
            return found
        for letter, shape in _SHAPES:
            if letter in found and shape.beginning in found:
                found = shape.pattern.sub(shape.replacement, found)
        if found == text:
            unchanged.add(text)
        return found

    def tree(self, value: Any, *, known_only: bool = False) -> Any:
        """The same for every string in nested mappings and lists, names of fields included."""
        return _tree(value, self.known if known_only else self.text)

    def line(self, value: Any) -> tuple[str, Any]:
        """The value as a line of JSON, and itself, both without secrets: `json_line` of `tree`, at a third of its cost.

        Most lines hold nothing that might begin a secret; looked at as a whole, that is seen at once.

        Raises:
            RecursionError: it is nested too deeply.
        """
        text = json_line(value)
        if self._may_hold_a_secret(text):
            value = self.tree(value)
            text = json_line(value)
        return text, value

    def _may_hold_a_secret(self, line: str) -> bool:
        """Not False where `tree` replaces anything: a string stands in a line with its letters escaped one by one."""
        if any(beginning in line for beginning in _BEGINNINGS) or any(value in line for value in self._in_lines):
            return True
        if self._spread and self._is_spread_in_line(line):
            return True
        return bool(self._escaped) and ("%" in line or "\\" in line or "&#" in line) and bool(_ESCAPE.search(line))

    def _is_spread_in_line(self, line: str) -> bool:
        if "\\" not in line:
            return self._is_spread_in(line)
        letters = _ESCAPED.sub(b"", line.encode("ascii", "ignore").translate(None, _BUT_ESCAPES))
        if any(form in letters for form in self._spread):
            return True
        return "\\\\" in line and self._is_spread_in(_BREAK.sub("", line))


_NO_TEXT = frozenset({type(None), bool, int, float})


def _tree(value: Any, clean: Callable[[str], str]) -> Any:
    if isinstance(value, str):
        return clean(value)
    if type(value) in _NO_TEXT:
        return value
    if isinstance(value, (dict, Mapping)):  # to ask for a Mapping is slow
        return {
            _tree(key, clean): item if type(item) in _NO_TEXT else _tree(item, clean) for key, item in value.items()
        }
    if isinstance(value, (list, tuple)):
        return [_tree(item, clean) for item in value]
    return value


def user_info_of(url: str) -> list[str]:
    """User name and password in a URL, as the strings that must not be shown."""
    try:
        parts = urlsplit(url)
        found = [parts.password or ""]
    except ValueError:
        return []
    return [item for item in found if item]


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
