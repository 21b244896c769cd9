"""Puts the pictures and sounds of the instances on a page.

Each file is an element `<script type="application/x-eval-factory-medium">` with the file's content.
Browsers do not run a script of this type; the page's own script shows the file.
"""

from __future__ import annotations

import base64
import hashlib
import io
import re
import warnings
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from markupsafe import Markup

from eval_factory.core.safe_files import open_regular

# dict from the media type of a picture to Pillow's name of the format
_PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_SOUNDS = ("audio/wav", "audio/mpeg", "audio/flac")
_MAX_PICTURE_SIZE = 64 << 20  # in bytes
_MAX_SOUND_SIZE = 1 << 20  # in bytes
_MEDIUM_TYPE = "application/x-eval-factory-medium"
# An element that `PageMedia.add` returned, with the line break before it.
_MEDIUM_BLOCK = re.compile(
    rf'\n<script type="{_MEDIUM_TYPE}" data-sha256="\w+" data-type="[\w/]+">'
    r"[A-Za-z0-9+/=]*</script>"
)


@dataclass
class PageMedia:
    """The pictures and sounds of one page. Each file is on the page once."""

    max_side: int = 512  # the maximum width and height of a picture, in pixels
    remaining: int = 10 << 20  # the number of base64 characters that may still be added
    _added_hashes: set[str] = field(default_factory=set)  # the SHA-256 of each file on the page

    def add(self, folder: Path, media: Iterable[Mapping[str, Any]]) -> list[Markup]:
        """Return an element for each picture and sound that is not on the page yet and fits.

        Args:
            folder: the output folder of the result.
            media: the `media` of an `InstanceRecord` of this result.
        """
        added = []
        for medium in media:
            sha256 = str(medium.get("sha256") or "")
            file = str(medium.get("file") or "")
            if not sha256 or not file:  # The run could not read this file.
                continue
            if not self.remaining or sha256 in self._added_hashes:
                continue
            media_type, data = _medium_for_page(
                folder, file, str(medium.get("type")), sha256, self.max_side
            )
            text = base64.b64encode(data).decode("ascii")
            if len(text) > self.remaining:
                self.remaining = 0  # From now on no file is read.
            elif text:
                self.remaining -= len(text)
                self._added_hashes.add(sha256)
                tag = (
                    f'<script type="{_MEDIUM_TYPE}" data-sha256="{sha256}" '
                    f'data-type="{media_type}">'
                )
                # The element needs no escaping: the text is base64, the file has this hash, and
                # the type is a supported type.
                added.append(Markup(f"{tag}{text}</script>"))  # noqa: S704
        return added


def media_columns(media: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """Return the type, SHA-256 and file of each medium, for the page's script."""
    columns = []
    for medium in media:
        columns.append([medium.get("type"), medium.get("sha256"), medium.get("file")])
    return columns


def without_media(page: str) -> str:
    """Return a page without its pictures and sounds.

    Pages are compared without media, because versions of Pillow make different bytes of the same
    picture. instances.jsonl has the hash of each original file.
    """
    return _MEDIUM_BLOCK.sub("", page)


def _medium_for_page(
    folder: Path, file: str, media_type: str, sha256: str, max_side: int
) -> tuple[str, bytes]:
    """Return the type and the content of a picture or sound in the form that the page shows.

    The content is empty if the file is missing, too large or of an unsupported type, or if its hash
    is not `sha256`.
    """
    if media_type in _PICTURES:
        max_size = _MAX_PICTURE_SIZE
    elif media_type in _SOUNDS:
        max_size = _MAX_SOUND_SIZE
    else:
        return media_type, b""
    try:
        with open_regular(folder / file, inside=folder) as opened:
            data = opened.read(max_size + 1)  # one byte more shows that the file is too large
    except (OSError, ValueError):
        return media_type, b""
    if len(data) > max_size or hashlib.sha256(data).hexdigest() != sha256:
        return media_type, b""
    if media_type in _PICTURES:
        return "image/jpeg", _reduced_picture(data, _PICTURES[media_type], max_side)
    return media_type, data


def _reduced_picture(data: bytes, pillow_format: str, max_side: int) -> bytes:
    """Return a picture as a JPEG; empty bytes if the file is broken or has too many pixels.

    The picture is at most `max_side` pixels wide and high. Transparent parts become white.
    """
    from PIL import Image, ImageOps  # imported here, because few results have pictures

    out = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(data), formats=[pillow_format])
        with opened:
            # A large JPEG is read at a lower resolution, which is faster. Twice the final size is
            # enough for a sharp picture.
            opened.draft(None, (2 * max_side, 2 * max_side))
            picture = ImageOps.exif_transpose(opened)
            # A picture with 16 bits: `convert` would turn all values above 255 into white. Divided
            # by 257 and rounded (+ 0.5), the values from 0 to 65,535 become 0 to 255.
            if picture.mode.startswith("I"):
                picture = (
                    picture.convert("I").point(lambda value: value * (1 / 257) + 0.5).convert("L")
                )
            picture = picture.convert("RGBA")
            picture.thumbnail((max_side, max_side))
            shown = Image.new("RGB", picture.size, "white")
            shown.paste(picture, mask=picture)
            shown.save(out, "JPEG", quality=90, subsampling=0)
    except Exception:  # Pillow raises exceptions of many classes for broken files.
        return b""
    return out.getvalue()
