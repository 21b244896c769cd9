"""Compresses the data of a page into blocks, and unpacks the blocks of a page again.

Each block is an element `<script type="application/x-eval-factory">`. Browsers do not run a script
of this type; the page's own script unpacks the data.
"""

from __future__ import annotations

import base64
import gzip
import re
import zlib
from collections.abc import Iterable

from markupsafe import Markup

from eval_factory.report.page.page_media import without_media

# The maximum size of an unpacked block, in bytes. A block of a few kilobytes could otherwise unpack
# to gigabytes of zeros.
_MAX_UNPACKED = 256 << 20
_GZIP_LEVEL = 6  # 1 is the fastest, 9 compresses most
BLOCK_TYPE = "application/x-eval-factory"
# An element that `compressed_block` returned: its first tag, its base64 text, and its last tag.
_BLOCK = re.compile(
    rf'(<script type="{BLOCK_TYPE}" data-run="\d+" data-part="\w+">)([A-Za-z0-9+/=]*)(</script>)'
)


def compressed_block(run: int, part: str, lines: Iterable[str]) -> Markup:
    """Return lines of JSON as an element of the page, compressed with gzip (RFC 1952).

    The content is base64, which has no `<`. No text in the data can therefore end the element.

    Args:
        run: The number of the result on the page, from 0.
        part: The name of the block.
        lines: The lines of JSON.
    """
    text = "\n".join(lines)
    # Without a time, the same lines always give the same bytes.
    compressed = gzip.compress(text.encode(), _GZIP_LEVEL, mtime=0)
    packed = base64.b64encode(compressed).decode("ascii")
    return Markup(  # noqa: S704
        f'<script type="{BLOCK_TYPE}" data-run="{int(run)}" data-part="{part}">{packed}</script>'
    )


def readable_page(page: str) -> str:
    """Return a page without media and with unpacked data, each instance on a line.

    Pages are compared in this form, because versions of zlib compress the same text to different
    bytes. Blocks that cannot be unpacked are left unchanged.
    """
    return _BLOCK.sub(_unpacked_block, without_media(page))


def _unpacked_block(match: re.Match[str]) -> str:
    """Return a matched block in unpacked form, or unchanged if the block cannot be unpacked."""
    unpacker = zlib.decompressobj(wbits=31)  # 31: the data have the header of gzip
    try:
        packed = base64.b64decode(match[2], validate=True)
        text = unpacker.decompress(packed, _MAX_UNPACKED).decode()
    except (ValueError, zlib.error):
        return match[0]
    if not unpacker.eof or unpacker.unused_data:  # The block is cut off or too large.
        return match[0]
    return f"{match[1]}\n{text}\n{match[3]}"
