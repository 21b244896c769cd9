"""Reads secrets, finds secrets in configurations, and redacts secrets in screens, logs and files.

Redaction has two steps, because each step alone misses secrets. The first step replaces the known
values (the keys of this run). The second step replaces every text that is shaped like a key.
Answers that are scored get only the first step, because an answer may have any shape.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any
from urllib.parse import SplitResult, unquote_plus, urlsplit

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import texts_in, with_each_text
from eval_factory.core.safe_files import json_line

REDACTED = "[API_KEY_REDACTED]"
SHORTEST_SECRET = 12  # in characters; shorter values are never redacted as known secrets
LONG_TEXT = 100_000
"""The length (in characters) from which a text is long: a long text that occurs in several lines is
checked only once.
"""
_A_WORD = r"(?:[A-Z]?[a-z]{1,20}|[A-Z]{1,20})"  # "ollama", "Ollama", "EMPTY"
# one word, or two words with a separator: "ollama", "not-needed"
_PLAIN = re.compile(rf"{_A_WORD}(?:[-_. ]{_A_WORD})?")

_WORD = r"[A-Za-z0-9_\-]"
_BASE64 = r"[A-Za-z0-9+/=]"
_TOKEN68 = r"[A-Za-z0-9._~+/=\-]"  # the characters of a key in a header (`token68`, RFC 9110)
_NO_WORD = r"(?:[0-9=]|[a-z][A-Z])"  # "7", "aB"
"""Matches characters that occur in a key but not in a word. 'Basic metabolic panel' and 'Bearer of
...' are clinical text, not HTTP headers with a key.
"""
# the text between the name and the value of a header: a colon or `=`, with quotes and blanks
_HEADER_SEPARATOR = r"""["'\\]*\s*[:=]\s*["'\\]*"""
# the beginnings of keys of vendors
_VENDORS = ("nvapi-", "sk-", "sk_", "hf_", "gsk_", "ghp_", "xai-", "ssap-", "AIza")
_MARKED = rf"\1{REDACTED}"  # the text before the key stays


def _begins(literal: str) -> str:
    """Return a pattern for a word that begins with a literal.

    The literal comes first in the pattern, because `re` then searches long texts fast. The part
    after it looks back: a word must begin before the literal (`sk-` does not match in `task-`).
    """
    return rf"{literal}(?<=\b{literal})"


def _unlike_words(characters: str, minimum: int) -> str:
    """Return a pattern for at least `minimum` of the characters that are not only words.

    With a minimum of 8, `dXNlcjpwdw` matches, and `metabolic` does not.
    """
    return rf"(?={characters}*?{_NO_WORD}){characters}{{{minimum},}}"


_Shape = tuple[str, str, str | Callable[[re.Match[str]], str]]
"""The shape of a key: (literal beginning, pattern, replacement). The pattern is compiled only if a
text contains the literal beginning.
"""
_KEYS: tuple[_Shape, ...] = (
    *((vendor, rf"{_begins(vendor)}{_WORD}{{8,}}", REDACTED) for vendor in _VENDORS),
    # "Authorization: Bearer KEY", "authorization": "Basic KEY". The first letter may be either.
    ("uthorization", rf"""(uthorization{_HEADER_SEPARATOR}[Bb]earer\s+)[^\s"',;\\]+""", _MARKED),
    (
        "uthorization",
        rf"(uthorization{_HEADER_SEPARATOR}[Bb]asic\s+){_unlike_words(_BASE64, 8)}",
        _MARKED,
    ),
    ("Bearer ", rf"({_begins('Bearer ')}){_unlike_words(_TOKEN68, 16)}", _MARKED),
    ("Basic ", rf"({_begins('Basic ')}){_unlike_words(_BASE64, 16)}", _MARKED),
    # A JSON web token (eyJ...A.eyJ...B.c...D). Its end is optional in the pattern: otherwise the
    # time for a long text with many beginnings would grow with the square of its length. A match
    # without the end is no token, and stays.
    (
        "eyJ",
        rf"{_begins('eyJ')}{_WORD}{{8,}}(\.{_WORD}+\.{_WORD}+)?",
        lambda match: REDACTED if match[1] else match[0],
    ),
)
_LOGIN_IN_URL: _Shape = ("://", r"""(://)[^/\s@'"\\]+(?=@)""", _MARKED)  # https://user:pw@host
_SHORTEST_SHAPE = 5  # the length of `://b@`, the shortest text that has one of the shapes
_SHAPES: tuple[_Shape, ...] = (*_KEYS, _LOGIN_IN_URL)


def _without(shapes: Iterable[_Shape], text: str) -> str:
    """Return a text with everything that has one of the shapes replaced."""
    if len(text) < _SHORTEST_SHAPE:
        return text
    for beginning, pattern, replacement in shapes:
        if beginning in text:
            text = re.sub(pattern, replacement, text)
    return text


def looks_like_key(text: str) -> bool:
    """Return True if a text that should name a variable is probably the key itself."""
    # 24 or more characters, with small letters, capitals and digits among them
    long_and_mixed = re.match(r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9_]{24,}\Z", text)
    return _without(_KEYS, text) != text or long_and_mixed is not None


def is_existing_path(value: str) -> bool:
    """Return True if a value is an existing path: `SERVICE_CREDENTIALS=/etc/service.json`.

    Such a value is not redacted: a path is no secret, and messages need it.
    """
    # Path.exists raises an error if the name is too long.
    return os.sep in value and os.path.exists(value)  # noqa: PTH110


def is_placeholder(value: str) -> bool:
    """Return True if a value is short, or is one or two words: `EMPTY`, `ollama`, `not-needed`.

    Such a value is not redacted, because answers and paths contain the same words.
    """
    return len(value) < SHORTEST_SECRET or bool(_PLAIN.fullmatch(value))


def _in_base64(value: str) -> set[str]:
    """Return the digits of a value in the base64 code of a longer text, in both base64 alphabets.

    The digits at the start and end are removed, because they also depend on the neighbouring bytes.
    """
    codes = set()
    # Base64 encodes 3 bytes at a time, so there may be 0, 1 or 2 bytes before the value.
    for before in range(3):
        encoded = base64.b64encode(bytes(before) + value.encode()).decode().rstrip("=")
        # A digit has 6 bits. The digits from `start` to `end` have only bits of the value:
        # `start` is rounded up, and `end` is rounded down.
        start = -(-before * 8 // 6)
        end = (before + len(value.encode())) * 8 // 6
        core = encoded[start:end]
        codes |= {core, core.replace("+", "-").replace("/", "_")}
    return codes


_ESCAPE = re.compile(r"%[0-9A-Fa-f]{2}|\\[ux]|&#")  # the beginnings of `%2D`, `\u002d`, `&#45;`


def _escapable(letter: str) -> str:
    r"""Return a pattern for a letter, also if it is escaped as in URLs, JSON, programs or HTML.

    The pattern of `-` matches `-`, `%2d`, `%252D`, `\u002d`, `\x2d`, `\u{2d}`, `&#45;`, `&#x2d;`.
    """
    code = ord(letter)
    digits = "".join(
        f"[{digit}{digit.upper()}]" if digit.isalpha() else digit for digit in f"{code:02x}"
    )
    in_a_program = rf"\\{{1,8}}(?:u00|x|u\{{0{{0,4}}){digits}\}}?"
    # `%25` is an escaped `%`: a URL inside a URL is escaped repeatedly.
    in_a_url = f"%(?:25){{0,4}}{digits}"
    in_html = f"&#0{{0,4}}(?:{code}|[xX]0{{0,4}}{digits});?"
    return f"(?:{re.escape(letter)}|{in_a_url}|{in_a_program}|{in_html})"


_BREAK = re.compile(
    r"(?<!\\)\\+(?:[nrtfbv]|u00(?:0[9aAdD]|20|[aA]0)|x0[9aAdD]|x20)|%(?:25)*(?:0[9aAdD]|20)|&#(?:1[03]|[xX]0?[aAdD]);"
)
r"""An escaped line break, tab or space, as in JSON, programs, URLs or HTML.

Examples: `\n`, `\\n`, `\u000a`, `\x20`, `%0A`, `%2520`, `&#10;`.
"""


def _may_break(text: str) -> bool:
    """Return False if `_BREAK` cannot match a text."""
    if "\\" in text:
        return True
    # Look for one character first: it is found much faster than two.
    if "%" in text and ("%0" in text or "%2" in text):
        return True
    return "&" in text and "&#" in text


# all bytes except ASCII letters and digits
_SEPARATORS = bytes(code for code in range(256) if not (code < 128 and chr(code).isalnum()))


def _squeezed(text: str) -> bytes:
    """Return the ASCII letters and digits of a text."""
    return text.encode("ascii", "ignore").translate(None, _SEPARATORS)


class Redactor:
    """Replaces known secret values and anything shaped like a key."""

    def __init__(self, values: Iterable[str] = ()) -> None:
        self._shortest = 0  # the length of the shortest text in which a secret is searched
        self._known: list[str] = []
        """The secrets, plain and encoded (JSON, HTML, hexadecimal, base64), the longest first."""
        self._squeezed: list[bytes] = []
        """The ASCII letters and digits of each text in `_known`, and of each secret backwards. They
        find a secret that is spread over a text, with any separators between its letters.
        """
        self._escaped: dict[str, re.Pattern[str]] = {}
        """Secret -> the pattern that finds the secret with escaped letters."""
        self._clean = set[bytes]()
        """The hashes of long texts that contain no secret."""
        for value in values:
            self.learn(value)

    @classmethod
    def from_environment(
        cls, env: Mapping[str, str], names: Iterable[str] | None = None
    ) -> Redactor:
        """Return a redactor that knows the secrets in the environment.

        A value that is an existing path is not a secret. The passwords of proxies are always known.

        Args:
            env: the environment.
            names: the names of the variables with secrets; None: all variables for which
                `names_a_secret` is true.
        """
        if names is None:
            names = filter(names_a_secret, env)
        values = [env[name] for name in names if env.get(name) and not is_existing_path(env[name])]
        for name, value in env.items():
            if name.lower().endswith("_proxy"):
                with suppress(ValueError):  # the value is not a URL
                    password = urlsplit(value).password
                    if password is not None:
                        values.append(password)
        return cls(values)

    def learn(self, value: str) -> None:
        """Add a secret.

        Other threads may use the redactor at the same time, so no list, dict or set is changed:
        each is replaced by a new object.
        """
        value = value.strip()
        if is_placeholder(value):
            return
        import html  # only here: this import is slow, and most commands know no secret

        digits = value.encode().hex()
        in_json = json.dumps(value)[1:-1]  # without the quotes
        plain = {value, in_json, html.escape(value), digits, digits.upper()}
        known = sorted({*self._known, *plain, *_in_base64(value)}, key=len, reverse=True)
        backwards = _squeezed(value)[::-1]
        squeezed = {*map(_squeezed, known), *self._squeezed, backwards}
        # Shorter sequences of letters could occur in ordinary texts.
        self._squeezed = [letters for letters in squeezed if len(letters) >= SHORTEST_SECRET]
        self._known = known
        # `known` begins with the longest text and ends with the shortest.
        self._shortest = min(map(len, (known[-1], *self._squeezed)))
        self._escaped = {**self._escaped, value: re.compile("".join(map(_escapable, value)))}
        self._clean = set()

    def finds(self, text: str) -> bool:
        """Return True if a text contains a known secret: plain, in base64 or in hexadecimal, also
        with separators between its letters.
        """
        return any(value in text for value in self._known) or self._is_spread_in(text)

    def _is_spread_in(self, text: str) -> bool:
        """Return True if a text contains the letters of a secret, with or without separators."""
        if not self._squeezed:  # no secret is known
            return False
        letters = _squeezed(text)
        return any(secret_letters in letters for secret_letters in self._squeezed)

    def redact_known(self, text: str) -> str:
        """Return a text with all known secrets replaced, also if they are encoded or escaped."""
        if len(text) < self._shortest:  # fast exit for most texts
            return text
        for value in self._known:
            text = text.replace(value, REDACTED)
        # Every escape has one of these characters, which are found faster than a pattern.
        may_escape = "%" in text or "\\" in text or "&" in text
        if may_escape and _ESCAPE.search(text):
            for pattern in self._escaped.values():
                text = pattern.sub(REDACTED, text)
        text = self._without_spread(text, searched=text)
        if _may_break(text):
            # The n of `\n` between the letters of a secret is no letter of the secret.
            with_blanks = _BREAK.sub(lambda match: " " * len(match[0]), text)
            text = self._without_spread(text, searched=with_blanks)
        return text

    def _without_spread(self, text: str, searched: str) -> str:
        """Return a text without the secrets whose letters have separators between them.

        Args:
            text: the text.
            searched: the text in which secrets are searched: `text` itself, or a text of the same
                length that has blanks instead of escaped line breaks.
        """
        if not self._is_spread_in(searched):
            return text
        letters = _squeezed(searched)
        # the position in `searched` of each of the `letters`
        positions = [
            position
            for position, letter in enumerate(searched)
            if letter.isascii() and letter.isalnum()
        ]
        spans: list[tuple[int, int]] = []  # the (start, end) of each secret in `searched`
        for secret_letters in self._squeezed:
            index = letters.find(secret_letters)
            while index >= 0:
                last = index + len(secret_letters) - 1
                spans.append((positions[index], positions[last] + 1))
                index = letters.find(secret_letters, index + 1)
        parts = []
        end = 0  # the end of the last span
        for span_start, span_end in sorted(spans):
            if span_start >= end:  # else the spans overlap, and are replaced once
                parts += [text[end:span_start], REDACTED]
            end = max(end, span_end)
        return "".join(parts) + text[end:]

    def redact_text(self, text: str) -> str:
        """Return a text with known secrets, and everything shaped like a key, replaced."""
        return _without(_SHAPES, self.redact_known(text))

    def redact_tree(self, value: Any, *, known_only: bool = False) -> Any:
        """Return nested mappings and lists with every text redacted, including keys.

        Args:
            value: mappings, lists and values.
            known_only: True if text that is only shaped like a key stays.
        """
        return with_each_text(value, self.redact_known if known_only else self.redact_text)

    def redact_as_line(self, value: Any) -> tuple[str, Any]:
        """Return (the redacted value as a line of JSON, the redacted value).

        Raises RecursionError if the value is nested too deeply.
        """
        text = json_line(value)
        if self._is_clean(text, value):
            return text, value
        clean = self.redact_tree(value)
        return json_line(clean), clean

    def _is_clean(self, line: str, value: Any) -> bool:
        """Return True if redaction changes neither a value nor its line of JSON.

        False may be returned for a value without secrets, which is then redacted slowly.
        """
        if len(line) >= LONG_TEXT:
            long_texts: list[str] = []
            line = json_line(_without_long_texts(value, long_texts))
            if not all(map(self._is_long_text_clean, long_texts)):
                return False
        # A fast check for most lines: without a backslash, `plain` contains each text unescaped.
        plain = line.replace("\\n", "\n").replace('\\"', '"')
        return "\\" not in plain and self.redact_text(plain) == plain

    def _is_long_text_clean(self, text: str) -> bool:
        """Return True if redaction does not change a long text; a positive result is cached."""
        clean = self._clean  # `learn` in another thread replaces this set, so keep one reference
        digest = hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()
        if digest not in clean and self.redact_text(text) == text:
            clean.add(digest)
        return digest in clean


def _without_long_texts(value: Any, long_texts: list[str]) -> Any:
    """Return a value with "" for each long text, and append these texts to `long_texts`.

    Keys of mappings are not changed.
    """
    if isinstance(value, str) and len(value) >= LONG_TEXT:
        long_texts.append(value)
        return ""
    if isinstance(value, Mapping):
        return {key: _without_long_texts(item, long_texts) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_without_long_texts(item, long_texts) for item in value]
    return value


_VARIABLE = re.compile(r"\$\{([A-Za-z_][A-Za-z0-9_]*)\}")  # "${MY_KEY}"
_NAME_OF_A_SECRET = re.compile(  # "apiKey", "token_2", "client-secret", "db.pwd"
    r"(?:key|token|secret|password|passwd|credentials?|authorization|(?:^|[_.-])(?:pass|pwd|auth|sig))[_-]?\d*\Z",
    re.IGNORECASE,
)


def last_characters_of(key: str) -> str:
    """Return the last four characters of a key for a log line.

    For a key of fewer than 20 characters, return a text that the key is too short to show.
    """
    if len(key) >= 20:
        return key[-4:]
    return "(too short to show)"


def is_variable_name(text: str) -> bool:
    """Return True if `text` can be the name of an environment variable."""
    return text.isascii() and text.isidentifier()


def variable_of(service: str, name: str) -> str:
    """Return the name of a variable with a setting of an OAuth service: `OPENAI_CLIENT_ID`."""
    return f"{service.upper().replace('-', '_')}_{name}"


def names_a_secret(name: str) -> bool:
    """Return True if a variable or field with this name probably holds a secret.

    Examples are USER_TOKEN, key and apiKey.
    """
    folders_of_the_shell = ("PWD", "OLDPWD")
    return name not in folders_of_the_shell and bool(_NAME_OF_A_SECRET.search(name))


def secret_in(env: Mapping[str, str], name: str) -> str | None:
    """Return the secret in a variable; None if the variable is not set or empty.

    White space around the secret is removed: a secret from a Windows file may end with a CR. Raises
    PrerequisiteError, with the variable's name, if the secret has characters that cannot be sent.
    """
    return checked_secret(env.get(name, ""), name)


def checked_secret(value: str, origin: str) -> str | None:
    """Return a secret without white space around it; None if it is empty.

    Args:
        value: the secret.
        origin: the words for the secret's source in the error message.

    Raises:
        PrerequisiteError: the secret has a character that cannot occur in a key.
    """
    value = value.strip()
    if not (value.isascii() and value.isprintable()):
        raise PrerequisiteError(
            f"{origin} holds a character that no key has (not shown): "
            "a control character, or a character that is not ASCII\n"
            "  set it again; quotes, dashes and spaces may have been changed "
            "when it was copied"
        )
    if not value:
        return None
    return value


def variables_in(tree: object) -> list[str]:
    """Return the NAMEs of all `${NAME}` in a configuration.

    `${NAME}` is replaced by a secret only when the configuration is used, never when it is written.
    """
    names: list[str] = []
    for text in texts_in(tree):
        names += _VARIABLE.findall(text)
    return list(dict.fromkeys(names))  # each name once, in the order of the configuration


def fill_variables(tree: Any, env: Mapping[str, str]) -> Any:
    """Return nested mappings and lists with each `${NAME}` replaced by the variable's value.

    Raises PrerequisiteError if a variable is not set, or has characters that cannot be sent.
    """
    if isinstance(tree, str):
        return _VARIABLE.sub(lambda match: _required_value(env, match[1]), tree)
    if isinstance(tree, Mapping):
        return {key: fill_variables(item, env) for key, item in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [fill_variables(item, env) for item in tree]
    return tree


def _required_value(env: Mapping[str, str], name: str) -> str:
    """Return the value of a variable. Raises PrerequisiteError if the variable is not set."""
    value = secret_in(env, name)
    if value is None:
        raise PrerequisiteError(
            f"the environment variable {name} is not set\n  set it (export {name}=...)"
        )
    return value


_NO_SECRETS = re.compile(
    r"(?:^|[_.-])(?:(?:eos|bos|pad|unk|sep|cls|mask|stop|start|end|begin|special|think|reasoning)[_-]?token"
    r"|(?:cache|sort|primary|foreign|public)[_-]?key)\Z",
    re.IGNORECASE,
)
"""Matches names of request fields that look like a secret's but are not: eos_token,
prompt_cache_key.
"""


def field_names_a_secret(name: str) -> bool:
    """Return True if a field of a request or URL with this name probably holds a secret.

    Unlike in `names_a_secret`, upper case does not matter: `?PWD=` is not the shell's folder.
    """
    name = re.sub(r"(?:\[\d+\])+\Z", "", name).lower()  # `keys[0]` has the name of its list
    return names_a_secret(name) and not _NO_SECRETS.search(name)


def secret_field_of_url(parts: SplitResult) -> str | None:
    """Return the name of the first field with a secret, in a URL's path, query or fragment.

    Returns None if no field has a secret.
    """
    fields = [
        *re.split("[/;]", parts.path),
        *re.split("[?&;]", parts.query),
        *re.split("[?&;]", parts.fragment),
    ]
    for field in fields:
        name, equals, value = field.partition("=")
        name = unquote_plus(name)
        if equals and field_names_a_secret(name) and _is_secret(unquote_plus(value)):
            return name
    return None


def secret_field_of(tree: Any, path: str = "") -> str | None:
    """Return the dotted path of the first field with a secret, in nested mappings and lists.

    Returns None if there is none. The entries of a list, and the value of a key `value`, count as
    values of the field that contains them.

    Args:
        tree: mappings, lists and values.
        path: the dotted path of `tree` in its file; "" for the complete file.
    """
    if isinstance(tree, (str, int)):
        if field_names_a_secret(path.rpartition(".")[2]) and _is_secret(str(tree)):
            return path
        return None
    items: list[tuple[str, Any]] = []
    if isinstance(tree, Mapping):
        for key, item in tree.items():
            path_of_item = f"{path}.{key}" if path else str(key)
            if path and str(key).lower() == "value":
                path_of_item = path
            items.append((path_of_item, item))
    elif isinstance(tree, (list, tuple)):
        items = [(path, item) for item in tree]
    for path_of_item, item in items:
        secret_path = secret_field_of(item, path_of_item)
        if secret_path is not None:
            return secret_path
    return None


def _is_secret(value: str) -> bool:
    """Return False for `${NAME}`, for a marker such as <|endoftext|>, and for a plain word."""
    is_marker = value[:1] + value[-1:] in ("<>", "[]")  # the first and the last character
    return not (variables_in(value) or is_marker or is_placeholder(value))


def paths_of_written_keys(tree: Any, path: str = "") -> Iterator[str]:
    """Yield the dotted path of each text with a key, in a configuration of another program.

    If the name of a field contains a key, the path has `REDACTED` instead of the name.
    """
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            is_key = _holds_a_key(str(name))
            path_of_value = f"{path}.{REDACTED if is_key else name}".lstrip(".")
            if is_key:
                yield path_of_value
            yield from paths_of_written_keys(value, path_of_value)
    elif isinstance(tree, list):
        for number, value in enumerate(tree):
            yield from paths_of_written_keys(value, f"{path}[{number}]")
    elif isinstance(tree, str) and (
        _holds_a_key(tree) or _is_written_out(path.rpartition(".")[2], tree)
    ):
        yield path


def _holds_a_key(text: str) -> bool:
    """Return True if a part of a text is shaped like a key."""
    # Words in lower case are removed first: `hf_model_handle` begins like a key.
    other_text = re.sub(r"(?<![\w-])[a-z_]+(?![\w-])", "", text)
    # A redactor without secrets finds a key only by its shape.
    return REDACTED in Redactor().redact_text(other_text)


def _is_written_out(field: str, value: str) -> bool:
    """Return True if a field for a key holds the key itself, not the name of a variable."""
    if field != "api_key_name" and not field_names_a_secret(field):
        return False
    # In other programs' configurations, `host:NAME`, `runtime:NAME` and `$NAME` name a variable,
    # and `lit:` is the start of a value that is written out.
    name = re.sub(r"\A(?:host:|runtime:|\$)(?=\w+\Z)", "", value)
    if is_variable_name(name):
        return looks_like_key(name)
    is_marker = re.fullmatch(r"\$\{.*\}|<.*>", value, re.DOTALL)  # "${MY_KEY}", "<your key>"
    return not (is_marker or is_placeholder(value.removeprefix("lit:")))
