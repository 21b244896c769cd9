"""Pictures and sounds that a page holds, each content once: of pictures smaller copies, sounds as they are.

A copy has nothing of its file but what is seen: no name, place or date. What is gone, altered, broken, of another type
or beyond the limit is left out, and the page's script names its file.
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

_PICTURES = {"image/png": "PNG", "image/jpeg": "JPEG", "image/gif": "GIF", "image/webp": "WEBP"}
_SOUNDS = ("audio/wav", "audio/mpeg", "audio/flac")
_MAX_FILE = {"image": 64 << 20, "audio": 1 << 20}  # bytes
_TYPE = "application/x-eval-factory-medium"
_BLOCK = re.compile(rf'\n<script type="{_TYPE}" data-sha256="\w+" data-type="[\w/]+">[A-Za-z0-9+/=]*</script>')


@dataclass
class PageMedia:
    """What one page holds."""

    max_side: int = 512  # pixels
    left: int = 10 << 20  # characters of base64 that there is still room for
    _known: set[tuple[str, Path | None]] = field(default_factory=set)
    """SHA-256 of what it holds; and of what could not be read, in which folder."""

    def add(self, folder: Path, media: Iterable[Mapping[str, Any]]) -> list[Markup]:
        """An element that no browser runs for each that is new on the page, to stand on a line.
        `media`: of an `InstanceRecord` of this output folder."""
        added = []
        for one in media:
            sha256, file = (str(one.get(name) or "") for name in ("sha256", "file"))
            if not sha256 or not file or not self.left or {(sha256, None), (sha256, folder)} & self._known:
                continue
            kind, data = _shown(folder, file, str(one.get("type")), sha256, self.max_side)
            text = base64.b64encode(data).decode("ascii")
            self._known.add((sha256, None if text else folder))
            if len(text) > self.left:
                self.left = 0  # no file is read any more
            elif text:
                self.left -= len(text)
                tag = f'<script type="{_TYPE}" data-sha256="{sha256}" data-type="{kind}">'
                added.append(Markup(f"{tag}{text}</script>"))  # noqa: S704
        return added


def media_columns(media: Iterable[Mapping[str, Any]]) -> list[list[Any]]:
    """What the page's script gets of each."""
    return [[one.get(name) for name in ("type", "sha256", "file")] for one in media]


def without_media(page: str) -> str:
    """Versions of Pillow make other bytes of the same picture; instances.jsonl has the hash of each."""
    return _BLOCK.sub("", page)


def _shown(folder: Path, file: str, kind: str, sha256: str, max_side: int) -> tuple[str, bytes]:
    """Type and content of what a page shows of a file; no content where it shows nothing."""
    limit = _MAX_FILE.get(kind.partition("/")[0], 0)
    try:
        with open_regular(folder / file, inside=folder) as opened:
            data = opened.read(limit + 1)
    except (OSError, ValueError):
        return kind, b""
    if len(data) > limit or hashlib.sha256(data).hexdigest() != sha256:
        return kind, b""
    if kind in _SOUNDS:
        return kind, data
    return "image/jpeg", _smaller(data, _PICTURES[kind], max_side) if kind in _PICTURES else b""


def _smaller(data: bytes, form: str, max_side: int) -> bytes:
    """A JPEG, on white where the picture is transparent; nothing where it is broken."""
    from PIL import Image, ImageOps  # few results have pictures

    out = io.BytesIO()
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", Image.DecompressionBombWarning)
            opened = Image.open(io.BytesIO(data), formats=[form])
        with opened:
            opened.draft(None, (2 * max_side, 2 * max_side))  # a large JPEG is read in part
            picture = ImageOps.exif_transpose(opened)
            if picture.mode.startswith("I"):  # 16 bits: `convert` would cut off what is brighter than 255
                picture = picture.convert("I").point(lambda value: value * (1 / 257) + 0.5).convert("L")
            picture = picture.convert("RGBA")
            picture.thumbnail((max_side, max_side))
            shown = Image.new("RGB", picture.size, "white")
            shown.paste(picture, mask=picture)
            shown.save(out, "JPEG", quality=90, subsampling=0)
    except Exception:  # Pillow raises what it likes at a broken file
        return b""
    return out.getvalue()
