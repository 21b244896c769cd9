"""Drawings -> files for papers and slides: an SVG, and a PNG at the 300 dots per inch that journals ask for, of each.

matplotlib, the extra `plots`, draws the PNG from the same records as the SVG. It is imported when a file is made.
"""

from __future__ import annotations

import io
import logging
import math
import os
import unicodedata
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.safe_files import write_atomic
from eval_factory.report.drawing import COLOURS, DASH, Circle, Drawing, Line, Rect, Shape, Text, svg

_INSTALL = "pip install 'eval-factory-helm[plots]'"
DPI = 300
CSS_DPI = 96
_POINTS = 72 / CSS_DPI
"""matplotlib's unit of line widths and letters, in that of a drawing."""
_ANCHORS = {"start": "left", "middle": "center", "end": "right"}


def write_plot_files(drawings: Mapping[str, Drawing], folder: Path) -> list[Path]:
    """Write `NAME.svg` and `NAME.png` of each drawing; the folder is made. Other files in it stay.

    Returns:
        The files, in the order of the drawings.

    Raises:
        PrerequisiteError: matplotlib is not installed; nothing is written.
        OSError: a file cannot be written.
    """
    pixels = {name: png(drawing) for name, drawing in drawings.items()}
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, drawing in drawings.items():
        files = folder / f"{name}.svg", folder / f"{name}.png"
        write_atomic(files[0], svg(drawing, standalone=True))
        _write_bytes(files[1], pixels[name])
        written += files
    return written


def _write_bytes(path: Path, content: bytes) -> None:
    """A reader sees the old file or the new one, never a part."""
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        unfinished.write_bytes(content)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)


def png(drawing: Drawing) -> bytes:
    """The same bytes for the same drawing, with the same matplotlib.

    Raises:
        PrerequisiteError: matplotlib is not installed.
    """
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it tells of its font cache
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
        from matplotlib.transforms import Affine2D
    except ImportError:
        raise PrerequisiteError(f"plots as files need matplotlib, which is not installed\n  {_INSTALL}") from None

    width, height = pixels_of(drawing)
    with style.context("default"):  # whatever the user's matplotlibrc says
        figure = Figure((width / DPI, height / DPI), DPI, facecolor=COLOURS["paper"])
        place = Affine2D().scale(DPI / CSS_DPI, -DPI / CSS_DPI).translate(0, height)
        for order, shape in enumerate(drawing.shapes):
            figure.add_artist(_artist(shape, transform=place, zorder=order))
        file = io.BytesIO()
        about = {"Title": drawing.title, "Description": drawing.description, "Software": None}
        figure.savefig(file, format="png", metadata=about)
    return file.getvalue()


def pixels_of(drawing: Drawing) -> tuple[int, int]:
    """Width and height in pixels."""
    return math.ceil(drawing.width * DPI / CSS_DPI), math.ceil(drawing.height * DPI / CSS_DPI)


def _artist(shape: Shape, **how: Any) -> Any:
    from matplotlib import lines, patches, text

    if isinstance(shape, Line):
        ends = (shape.x1, shape.x2), (shape.y1, shape.y2)
        dash = DASH / shape.width  # matplotlib takes it in widths of the line
        how |= {"linestyle": (0, (dash, dash)) if shape.dashed else "solid", "solid_capstyle": "butt"}
        return lines.Line2D(*ends, linewidth=shape.width * _POINTS, color=COLOURS[shape.colour], **how)
    if isinstance(shape, Text):
        how |= {"color": COLOURS[shape.colour], "fontsize": shape.size * _POINTS, "fontproperties": _font()}
        how |= {"horizontalalignment": _ANCHORS[shape.anchor], "verticalalignment": "baseline", "parse_math": False}
        return text.Text(shape.x, shape.y, _in_letters_that_there_are(shape.text), **how)
    how |= {"facecolor": COLOURS[shape.fill], "linewidth": 0}
    if isinstance(shape, Rect):
        return patches.Rectangle((shape.x, shape.y), shape.width, shape.height, **how)
    if isinstance(shape, Circle):
        return patches.Circle((shape.x, shape.y), shape.radius, **how)
    return patches.Polygon(shape.points, **how)


def _font() -> Any:
    """The one that matplotlib brings along: no machine need have any."""
    from matplotlib import font_manager, get_data_path

    return font_manager.FontProperties(fname=Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf"))


def _in_letters_that_there_are(text: str) -> str:
    """A letter that the font does not have stands without its accents, or else as an escape."""
    from matplotlib import font_manager

    font = font_manager.get_font(_font().get_file())

    def spelled(letter: str) -> str:
        plain = "".join(part for part in unicodedata.normalize("NFKD", letter) if not unicodedata.combining(part))
        known = plain and all(font.get_char_index(ord(part)) for part in plain)
        return plain if known else letter.encode("unicode_escape").decode("ascii")

    return "".join(letter if font.get_char_index(ord(letter)) else spelled(letter) for letter in text)
