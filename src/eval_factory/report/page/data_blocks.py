"""Blocks of compressed data in a page: `<script type="application/x-eval-factory">`, which no browser runs.

Each holds JSON lines, as gzip (RFC 1952) in base64: the page's script unpacks one with the browser's
`DecompressionStream` when it is needed. Base64 has no `<`, so that nothing in it ends the block.
"""

from __future__ import annotations

import base64
import gzip
import re
import zlib
from collections.abc import Iterable

from markupsafe import Markup

LEVEL = 9
"""A tenth smaller than zlib's usual 6, and half a second a hundred megabytes of time that nobody waits for."""
LARGEST = 256 * 1024 * 1024
"""Bytes of one block that are unpacked: a few kilobytes can hold gigabytes of zeros."""
TYPE = "application/x-eval-factory"

_BLOCK = re.compile(rf'(<script type="{TYPE}" data-run="\d+" data-part="\w+">)([A-Za-z0-9+/=]*)(</script>)')


def block(run: int, part: str, lines: Iterable[str]) -> Markup:
    """One block.

    Args:
        run: the number of the result on the page, from 0.
        part: `index`, or the number of the chunk.
        lines: JSON, each without a line break.
    """
    text = "\n".join(lines).encode("utf-8", "backslashreplace")  # half a surrogate pair, as JSON escapes it
    packed = base64.b64encode(gzip.compress(text, LEVEL, mtime=0)).decode("ascii")
    return Markup(f'<script type="{TYPE}" data-run="{int(run)}" data-part="{part}">{packed}</script>')  # noqa: S704


def unpacked(page: str) -> str:
    """A page with its data readable, each instance on a line: what two pages are compared by.

    Versions of zlib compress the same text to other bytes. What cannot be unpacked is left as it is.
    """
    return _BLOCK.sub(_unpacked_block, page)


def _unpacked_block(match: re.Match[str]) -> str:
    try:
        unpacker = zlib.decompressobj(wbits=31)
        text = unpacker.decompress(base64.b64decode(match[2], validate=True), LARGEST)
        if not unpacker.eof or unpacker.unused_data:
            return match[0]
        return f"{match[1]}\n{text.decode('utf-8')}\n{match[3]}"
    except (ValueError, zlib.error):
        return match[0]
