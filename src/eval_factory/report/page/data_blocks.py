"""Blocks of compressed data in a page: `<script type="application/x-eval-factory">`, which no browser runs.

Each holds JSON lines as gzip (RFC 1952) in base64: the page's script unpacks one with the browser's
`DecompressionStream` when it is needed. Base64 has no `<`, so that nothing in it ends the block.

gzip sees 32 kB at a time and knows no language, so frequent words are replaced by codes before: a quarter is saved,
and 10,000 instances fit into 10 MB. JSON is written in ASCII for that, and bytes from 0x80 on are free: 0x80 to 0xBF
are the first 64 words, 0xC0 to 0xFF followed by any of 0x80 to 0xFF the next 8,192. Part `words` holds the words.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from markupsafe import Markup

LEVEL = 6
"""zlib's usual one; with words replaced, 9 saves less than a hundredth."""
LARGEST = 256 * 1024 * 1024
"""Bytes of one block that are unpacked: a few kilobytes can hold gigabytes of zeros."""
TYPE = "application/x-eval-factory"
WORDS, INDEX = "words", "index"
SHORT, LONG = 64, 64 * 128
"""How many words have a code of one byte, and of two."""
RAREST = 4
"""A word that occurs less often is not worth its place among the words."""
LEARNT_FROM = 8
"""Chunks that are held back until the words are known. Of fewer the page is small enough as it is: a run of 1,000
instances should not wait for it."""

_BLOCK = re.compile(rf'(<script type="{TYPE}" data-run="(\d+)" data-part="(\w+)">)([A-Za-z0-9+/=]*)(</script>)')
_WORD = re.compile(r" ?[A-Za-z][a-z]+")
_CODE = re.compile("[\x80-\xbf]|[\xc0-\xff][\x80-\xff]")
_NOT_ASCII = re.compile(r"[^\x00-\x7f]+")


@dataclass
class BlockWriter:
    """Takes chunks of lines of one result, and makes its blocks."""

    run: int
    """The number of the result on the page, from 0."""
    _waiting: list[str] = field(default_factory=list)
    _codes: Mapping[str, str] | None = None
    _blocks: list[Markup] = field(default_factory=list)

    def add(self, lines: Iterable[str]) -> None:
        """The next chunk.

        Args:
            lines: JSON, each without a line break.
        """
        self._waiting.append(_ascii("\n".join(lines)))
        if self._codes is not None or len(self._waiting) == LEARNT_FROM:
            self._pack()

    def finish(self, index: Iterable[str]) -> tuple[Markup, ...]:
        """All blocks: words and index first."""
        self._pack()
        codes = self._codes or {}
        words = _block(self.run, WORDS, _ascii("\n".join(map(json.dumps, codes))))
        return (words, _block(self.run, INDEX, coded(_ascii("\n".join(index)), codes)), *self._blocks)

    def _pack(self) -> None:
        if self._codes is None:
            self._codes = codes_of(frequent_words(self._waiting) if len(self._waiting) == LEARNT_FROM else ())
        for text in self._waiting:
            self._blocks.append(_block(self.run, str(len(self._blocks)), coded(text, self._codes)))
        self._waiting = []


def frequent_words(texts: Iterable[str]) -> list[str]:
    """Those that save most, the same for the same texts; a blank before a word belongs to it."""
    counts: Counter[str] = Counter()
    for text in texts:
        counts.update(_WORD.findall(text))
    worth = {word: count * (len(word) - 1) for word, count in counts.items() if count >= RAREST and len(word) > 2}
    return sorted(worth, key=lambda word: (-worth[word], word))[: SHORT + LONG]


def codes_of(words: Sequence[str]) -> dict[str, str]:
    """Word -> its code, as characters up to U+00FF."""
    return {word: _code(number) for number, word in enumerate(words)}


def _code(number: int) -> str:
    if number < SHORT:
        return chr(0x80 + number)
    first, second = divmod(number - SHORT, 128)
    return chr(0xC0 + first) + chr(0x80 + second)


def coded(text: str, codes: Mapping[str, str]) -> str:
    return _WORD.sub(lambda match: codes.get(match[0], match[0]), text) if codes else text


def decoded(text: str, words: Sequence[str]) -> str:
    """
    Raises:
        IndexError: a code has no word.
    """
    return _CODE.sub(lambda match: words[_number(match[0])], text)


def _number(code: str) -> int:
    if len(code) == 1:
        return ord(code) - 0x80
    return SHORT + (ord(code[0]) - 0xC0) * 128 + ord(code[1]) - 0x80


def _ascii(text: str) -> str:
    """JSON with other characters escaped, halves of pairs too."""
    return text if text.isascii() else _NOT_ASCII.sub(lambda match: json.dumps(match[0])[1:-1], text)


def _block(run: int, part: str, text: str) -> Markup:
    packed = base64.b64encode(gzip.compress(text.encode("latin-1"), LEVEL, mtime=0)).decode("ascii")
    return Markup(f'<script type="{TYPE}" data-run="{int(run)}" data-part="{part}">{packed}</script>')  # noqa: S704


def unpacked(page: str) -> str:
    """A page with its data readable, each instance on a line: what two pages are compared by.

    Versions of zlib compress the same text to other bytes. What cannot be unpacked is left as it is.
    """
    words: dict[str, list[str]] = {}

    def unpacked_block(match: re.Match[str]) -> str:
        run, part = match[2], match[3]
        try:
            text = _text_of(match[4])
            if part == WORDS:
                words[run] = [json.loads(line) for line in text.split("\n") if line]
                return ""
            return f"{match[1]}\n{decoded(text, words.get(run, []))}\n{match[5]}"
        except (ValueError, TypeError, IndexError, zlib.error):
            return match[0]

    return _BLOCK.sub(unpacked_block, page)


def _text_of(packed: str) -> str:
    """
    Raises:
        ValueError, zlib.error: it is no such block, or too large.
    """
    unpacker = zlib.decompressobj(wbits=31)
    text = unpacker.decompress(base64.b64decode(packed, validate=True), LARGEST)
    if not unpacker.eof or unpacker.unused_data:
        raise ValueError("it is cut, or too large")
    return text.decode("latin-1")
