"""A text as a judge may read it: what it says once disguises are taken off. Pure functions, linear in the text.

An answer that hides a rating from a program does not hide it from a model: letters that look alike, invisible
characters between them, escapes, base64. What is looked for in an answer is therefore looked for in its readings too.
"""

from __future__ import annotations

import base64
import binascii
import html
import re
import unicodedata
from collections.abc import Iterator
from urllib.parse import unquote

_TWINS = {
    "a": "\u0430\u03b1\u1d00", "b": "\u0432\u0299", "c": "\u0441\u1d04", "d": "\u0501\u1d05", "e": "\u0435\u03b5\u1d07",
    "g": "\u0261\u0262", "h": "\u04bb\u043d", "i": "\u0456\u03b9\u0131\u026a", "j": "\u0458\u1d0a",
    "k": "\u043a\u03ba\u1d0b", "l": "\u029f", "m": "\u043c\u1d0d", "n": "\u0274", "o": "\u043e\u03bf\u1d0f",
    "p": "\u0440\u03c1\u1d18", "q": "\u051b", "r": "\u0280", "s": "\u0455\ua731", "t": "\u0442\u03c4\u1d1b",
    "u": "\u03c5\u1d1c", "v": "\u0475\u03bd\u1d20", "w": "\u051d\u1d21", "x": "\u0445", "y": "\u0443\u028f",
    "z": "\u1d22", "A": "\u0410\u0391", "B": "\u0412\u0392", "C": "\u0421", "E": "\u0415\u0395", "H": "\u041d\u0397",
    "I": "\u0406\u0399", "J": "\u0408",
    "K": "\u041a\u039a", "M": "\u041c\u039c", "N": "\u039d", "O": "\u041e\u039f", "P": "\u0420\u03a1",
    "S": "\u0405", "T": "\u0422\u03a4", "X": "\u0425\u03a7", "Y": "\u0423\u03a5", "Z": "\u0396",
    '"': "\u201c\u201d\u201e\u201f\u00ab\u00bb\u02ba\u2033", "'": "\u2018\u2019\u201a\u2039\u203a",
    ":": "\u2236\ua789\u02d0",
}  # fmt: skip
"""ASCII and what looks like it: of Unicode's confusables (unicode.org/Public/security/latest/confusables.txt) the
Cyrillic, Greek and small capital letters with which English can be written, quotation marks and colons."""

_TAG_CHARACTERS = range(0xE0020, 0xE007F)
"""Invisible twins of ASCII, which many models read."""


class _Plain(dict[int, str]):
    """A table for `str.translate` that is made as it is used.

    Each character is decomposed by itself: to bring a text to a normal form takes the square of a run of accents.
    """

    def __missing__(self, code: int) -> str:
        if code in _TAG_CHARACTERS:
            plain = chr(code - _TAG_CHARACTERS[0] + 0x20)
        else:
            parts = unicodedata.normalize("NFKD", chr(code))
            plain = "".join(part for part in parts if unicodedata.category(part) not in ("Mn", "Me", "Cf"))
        self[code] = plain
        return plain


_PLAIN = _Plain({ord(twin): letter for letter, twins in _TWINS.items() for twin in twins})

_ESCAPE = re.compile(r"\\{1,8}(?:u\{([0-9a-fA-F]{1,6})\}|u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2}))")
_ESCAPED_MARK = re.compile(r"\\{1,8}([\"'/nrt])")
_WHITE = {"n": "\n", "r": "\n", "t": "\t"}
_ENTITY = re.compile(r"&(?:#[0-9]{1,7}|#[xX][0-9a-fA-F]{1,6}|[A-Za-z]{2,31});")
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}[ :]?){8,}")
_PRINTABLE = frozenset(range(32, 127)) | {9, 10, 13}
_CLOSING_TAG = re.compile(r"</\w{1,80}>")
_NOT_WORDS = re.compile(r"[\W_]+")


def readings(text: str) -> Iterator[str]:
    """The text as it stands, without its disguises, and what it holds in base64 or hexadecimal."""
    yield text
    plain = undisguised(text)
    if plain != text:
        yield plain
    for hidden in (_in_base64(plain), _in_hex(plain)):
        if hidden:
            yield undisguised(hidden)


def undisguised(text: str) -> str:
    """Lookalikes as ASCII, accents and invisible characters left out, escapes of several kinds replaced."""
    if not text.isascii():
        text = text.translate(_PLAIN)
    if "\\" in text:
        text = _ESCAPE.sub(_unescaped, text)
        text = _ESCAPED_MARK.sub(lambda match: _WHITE.get(match[1], match[1]), text)
    if "&" in text:
        text = _ENTITY.sub(lambda match: html.unescape(match[0]), text)
    if "%" in text:
        text = unquote(text)
    return text


def squeezed(text: str) -> str:
    """Letters and digits alone, in small letters: the same text however it is laid out, quoted and marked."""
    return _NOT_WORDS.sub("", _CLOSING_TAG.sub("", text)).lower()


def _unescaped(match: re.Match[str]) -> str:
    try:
        return chr(int(match[1] or match[2] or match[3], 16))
    except ValueError:
        return match[0]


def _in_base64(text: str) -> str:
    """What is encoded in the text, read token by token and, where it goes over several lines, as one."""
    tokens = [token.rstrip("=").replace("-", "+").replace("_", "/") for token in _BASE64.findall(text)]
    found = [_decoded(token) for token in tokens]
    if len(tokens) > 1 and "" in found:
        found.append(_decoded("".join(tokens)))
    return "".join(found)


def _decoded(token: str) -> str:
    try:
        return _as_text(base64.b64decode(token + "=" * (-len(token) % 4)))
    except (binascii.Error, ValueError):
        return ""


def _in_hex(text: str) -> str:
    digits = (re.sub("[ :]", "", token) for token in _HEX.findall(text))
    return "".join(_as_text(bytes.fromhex(token)) for token in digits)


def _as_text(data: bytes) -> str:
    """Empty where it is not text: long words of English are base64, too, and decode to anything."""
    return data.decode() if data and all(byte in _PRINTABLE for byte in data) else ""
