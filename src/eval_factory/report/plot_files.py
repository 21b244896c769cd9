"""Drawings -> files for papers and slides: an SVG and a PNG each.

A drawing -> PNG at the 300 dots per inch that journals ask for, from the same records as its SVG.
"""

from __future__ import annotations

import io
import math
import os
import unicodedata
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from PIL import Image, ImageDraw, ImageFont, PngImagePlugin

from eval_factory.core.safe_files import write_atomic
from eval_factory.report.drawing import COLOURS, DASH, Circle, Colour, Drawing, Line, Polygon, Rect, Shape, Text, svg

DPI = 300
CSS_DPI = 96
SUPERSAMPLING = 2
"""Pillow draws shapes with hard edges: they are drawn so many times larger, and reduced."""
OTHER_FONT = "DejaVuSans.ttf"
"""Where it is installed, for texts that Pillow's own font, which has little but ASCII, has not the letters of."""
_ANCHORS = {"start": "ls", "middle": "ms", "end": "rs"}
_MISSING = "\uffff"
_SCALE = DPI / CSS_DPI * SUPERSAMPLING

Font = ImageFont.FreeTypeFont


def png(drawing: Drawing) -> bytes:
    """The same bytes for the same drawing, with the same Pillow and fonts."""
    width, height = pixels_of(drawing)
    image = Image.new("RGB", (width * SUPERSAMPLING, height * SUPERSAMPLING), COLOURS["paper"])
    canvas = ImageDraw.Draw(image)
    for shape in drawing.shapes:
        _draw(canvas, shape)
    told = PngImagePlugin.PngInfo()
    told.add_itxt("Title", drawing.title)
    told.add_itxt("Description", drawing.description)
    file = io.BytesIO()
    image.reduce(SUPERSAMPLING).save(file, format="PNG", dpi=(DPI, DPI), pnginfo=told)
    return file.getvalue()


def pixels_of(drawing: Drawing) -> tuple[int, int]:
    """Width and height in pixels."""
    return math.ceil(drawing.width * DPI / CSS_DPI), math.ceil(drawing.height * DPI / CSS_DPI)


def _draw(canvas: ImageDraw.ImageDraw, shape: Shape) -> None:
    if isinstance(shape, Line):
        for start, end in _dashes(shape) if shape.dashed else [((shape.x1, shape.y1), (shape.x2, shape.y2))]:
            width = max(1, round(shape.width * _SCALE))
            canvas.line([_at(*start), _at(*end)], fill=COLOURS[shape.colour], width=width)
    elif isinstance(shape, Rect):
        if shape.width > 0 and shape.height > 0:
            corners = [_at(shape.x, shape.y), _at(shape.x + shape.width, shape.y + shape.height)]
            canvas.rectangle(corners, fill=COLOURS[shape.fill])
    elif isinstance(shape, Circle):
        x, y, radius = shape.x, shape.y, shape.radius
        canvas.ellipse([_at(x - radius, y - radius), _at(x + radius, y + radius)], fill=COLOURS[shape.fill])
    elif isinstance(shape, Polygon):
        canvas.polygon([_at(x, y) for x, y in shape.points], fill=COLOURS[shape.fill])
    else:
        _write(canvas, shape)


def _at(x: float, y: float) -> tuple[float, float]:
    return x * _SCALE, y * _SCALE


def _dashes(line: Line) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    length = math.hypot(line.x2 - line.x1, line.y2 - line.y1)
    start = 0.0
    while start < length:
        end = min(start + DASH, length)
        yield _along(line, start / length), _along(line, end / length)
        start += 2 * DASH


def _along(line: Line, share: float) -> tuple[float, float]:
    return line.x1 + share * (line.x2 - line.x1), line.y1 + share * (line.y2 - line.y1)


def _write(canvas: ImageDraw.ImageDraw, shape: Text) -> None:
    font, text = _font_for(shape.text, shape.size)
    colour: Colour = shape.colour
    canvas.text(_at(shape.x, shape.y), text, fill=COLOURS[colour], font=font, anchor=_ANCHORS[shape.anchor])


def _font_for(text: str, size: float) -> tuple[Font, str]:
    """A font that has the text's letters, and the text; without such a font the text in letters that there are."""
    own = _own_font(size)
    if all(_has(own, letter) for letter in text):
        return own, text
    other = other_font(size)
    font = own if other is None else other
    return font, "".join(letter if _has(font, letter) else _spelled(font, letter) for letter in text)


def _spelled(font: Font, letter: str) -> str:
    """A letter without its accents, or else as an escape."""
    plain = "".join(part for part in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(part))
    if plain and all(_has(font, part) for part in plain):
        return plain
    return letter.encode("unicode_escape").decode("ascii")


def _has(font: Font, letter: str) -> bool:
    return letter == " " or _mask(font, letter) != _mask(font, _MISSING)


@cache
def _mask(font: Font, letter: str) -> bytes:
    return bytes(font.getmask(letter))


@cache
def _own_font(size: float) -> Font:
    font = ImageFont.load_default(size=size * _SCALE)
    if not isinstance(font, Font):
        raise ImportError("this Pillow has no FreeType, which its wheels have")
    return font


@cache
def other_font(size: float) -> Font | None:
    """None where it is not installed."""
    try:
        return ImageFont.truetype(OTHER_FONT, size * _SCALE)
    except OSError:
        return None


def write_plot_files(drawings: Mapping[str, Drawing], folder: Path) -> list[Path]:
    """Write `NAME.svg` and `NAME.png` of each drawing; the folder is made. Other files in it stay.

    Returns:
        The files, in the order of the drawings.

    Raises:
        OSError: a file cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name, drawing in drawings.items():
        vector, pixels = folder / f"{name}.svg", folder / f"{name}.png"
        write_atomic(vector, svg(drawing, standalone=True))
        _write_bytes(pixels, png(drawing))
        written += [vector, pixels]
    return written


def _write_bytes(path: Path, content: bytes) -> None:
    """A reader sees the old file or the new one, never a part."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
