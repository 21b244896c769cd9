"""A drawing as records of what is on it, from which its SVG and its PNG are made alike. Lengths are 1/96 inch.

Colours are those of M. Okabe and K. Ito, Color Universal Design, 2008 (https://jfly.uni-koeln.de/color/), which readers
with any colour vision tell apart. No colour alone means anything: what differs has another shape, hatching or words.

The SVG is made here: its text stays text, and its colours follow the page. matplotlib (extra `plots`) draws the PNG.
"""

from __future__ import annotations

import io
import logging
import math
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.core.safe_files import atomic_file, write_atomic

WIDTH = 640.0  # of every drawing: 6.7 inches, the width of a page's text
FONT_SIZE = 13.0
ELLIPSIS = "…"
MAX_TITLE = 2_000  # characters of a label that its tooltip has

Colour = Literal["ink", "faint", "grid", "data", "second", "paper"]
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Line:
    x1: float
    y1: float
    x2: float
    y2: float
    colour: Colour = "ink"
    width: float = 1.0
    dashed: bool = False


@dataclass(frozen=True)
class Rect:
    x: float
    y: float
    width: float
    height: float
    fill: Colour
    title: str = ""  # shown where a reader's pointer is; SVG only


@dataclass(frozen=True)
class Circle:
    x: float
    y: float
    radius: float
    fill: Colour
    title: str = ""


@dataclass(frozen=True)
class Polygon:
    points: tuple[tuple[float, float], ...]
    fill: Colour
    title: str = ""


@dataclass(frozen=True)
class Text:
    """`y` is the baseline."""

    x: float
    y: float
    text: str
    anchor: Anchor = "start"
    colour: Colour = "ink"
    title: str = ""  # the uncut text, where `text` is cut


Shape = Line | Rect | Circle | Polygon | Text


@dataclass(frozen=True)
class Drawing:
    title: str  # in a few words, for those who do not see it
    description: str  # all that it shows, in words and numbers
    height: float
    shapes: tuple[Shape, ...]
    width: float = WIDTH


def text_width(text: str) -> float:
    """About how wide a text is in a sans-serif font, which nobody knows before it is shown."""
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    return FONT_SIZE * (wide * 1.05 + (len(text) - wide) * 0.6)  # rather more than less for most letters and digits


def fitted(text: str, width: float) -> str:
    """A foreign text as one printable line, cut where it would be wider."""
    line = one_line(text, MAX_TITLE)
    if text_width(line) <= width:
        return line
    while line and text_width(line + ELLIPSIS) > width:
        line = line[:-1]
    return line.rstrip() + ELLIPSIS


def label(x: float, y: float, text: str, width: float, *, anchor: Anchor = "start") -> Text:
    """A foreign text in so much room, with the uncut text as its title where it was cut."""
    shown = fitted(text, width)
    uncut = one_line(text, MAX_TITLE)
    return Text(x, y, shown, anchor, title="" if shown == uncut else uncut)


def hatching(x: float, y: float, width: float, height: float, colour: Colour) -> Iterator[Line]:
    """Lines from lower left to upper right over a rectangle, cut at its edges."""
    step = 6.0
    offset = step
    while offset < width + height:
        left, right = max(0.0, offset - height), min(width, offset)
        yield Line(x + left, y + (offset - left), x + right, y + (offset - right), colour)
        offset += step


COLOURS: Mapping[Colour, str] = {
    "ink": "#000000", "faint": "#5f5f5f", "grid": "#dcdcdc", "data": "#0072b2", "second": "#d55e00", "paper": "#ffffff",
}  # fmt: skip
"""On white."""
DARK_COLOURS: Mapping[Colour, str] = {"faint": "#b0b0b0", "grid": "#484848", "data": "#56b4e9", "second": "#e69f00"}
"""In a page that is dark."""
DASH = 5.0  # length of a dash, and of the gap behind it
_OF_THE_PAGE: Mapping[Colour, str] = {**COLOURS, "ink": "currentColor", "paper": "none"}


def svg(drawing: Drawing, *, standalone: bool = False) -> str:
    """One `<svg>` element, with a title and a description in words; no ids, no scripts, nothing from elsewhere.
    `standalone`: as a file of its own: valid XML with its namespace, its size, and on white."""
    colours = COLOURS if standalone else _OF_THE_PAGE
    text = plot_template().render(drawing=drawing, standalone=standalone, colours=colours)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n' if standalone else text


def page_css() -> str:
    """The rules for a page's style sheet: colours as custom properties (`--plot-data`), those of a dark page last."""
    rules = [".plot { max-width: 100%; height: auto; display: block; }"]
    for name, colour in _OF_THE_PAGE.items():
        if name != "paper":
            rules += [f".plot-{kind}-{name} {{ {kind}: var(--plot-{name}, {colour}); }}" for kind in ("fill", "stroke")]
    dark = " ".join(f"--plot-{name}: {colour};" for name, colour in DARK_COLOURS.items())
    rules.append(f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}")
    return "\n".join(rules)


@cache
def plot_template() -> Template:
    environment = Environment(
        loader=PackageLoader("eval_factory.report.page", "."), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, finalize=lambda value: printable(value) if isinstance(value, str) else value,
    )  # fmt: skip
    environment.filters["n"] = lambda value: f"{value:.2f}".rstrip("0").rstrip(".")  # a hundredth of a pixel
    environment.globals |= {"kind_of": lambda shape: type(shape).__name__, "dash": DASH, "font_size": FONT_SIZE}
    return environment.get_template("plot.svg.j2")


DPI = 300  # that journals ask for
CSS_DPI = 96
_POINTS = 72 / CSS_DPI  # matplotlib's unit of line widths and letters, in that of a drawing


def write_plot_files(drawings: Mapping[str, Drawing], folder: Path) -> list[Path]:
    """Write `NAME.svg` and `NAME.png` of each drawing, and return their paths; the folder is made.
    Raises PrerequisiteError: matplotlib is not installed; nothing is written."""
    pixels = {name: png(drawing) for name, drawing in drawings.items()}
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, drawing in drawings.items():
        files = folder / f"{name}.svg", folder / f"{name}.png"
        write_atomic(files[0], svg(drawing, standalone=True))
        with atomic_file(files[1]) as file:
            file.buffer.write(pixels[name])
        written += files
    return written


def png(drawing: Drawing) -> bytes:
    """The same bytes for the same drawing, with the same matplotlib.
    Raises PrerequisiteError: matplotlib is not installed."""
    logging.getLogger("matplotlib").setLevel(logging.ERROR)  # it logs that it makes a font cache
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
        from matplotlib.transforms import Affine2D
    except ImportError:
        raise PrerequisiteError(
            "plots as files need matplotlib, which is not installed\n  pip install 'matplotlib>=3.9'"
        ) from None

    width, height = (math.ceil(length * DPI / CSS_DPI) for length in (drawing.width, drawing.height))
    with style.context("default"):  # whatever the user's matplotlibrc says
        figure = Figure((width / DPI, height / DPI), DPI, facecolor=COLOURS["paper"])
        pixels = Affine2D().scale(DPI / CSS_DPI, -DPI / CSS_DPI).translate(0, height)
        for order, shape in enumerate(drawing.shapes):
            figure.add_artist(_artist(shape, transform=pixels, zorder=order))
        file = io.BytesIO()
        about = {"Title": drawing.title, "Description": drawing.description, "Software": None}
        figure.savefig(file, format="png", metadata=about)
    return file.getvalue()


def _artist(shape: Shape, **how: Any) -> Any:
    from matplotlib import font_manager, get_data_path, lines, patches, text

    if isinstance(shape, Line):
        ends = (shape.x1, shape.x2), (shape.y1, shape.y2)
        dash = DASH / shape.width  # matplotlib takes it in widths of the line
        how |= {"linestyle": (0, (dash, dash)) if shape.dashed else "solid", "solid_capstyle": "butt"}
        return lines.Line2D(*ends, linewidth=shape.width * _POINTS, color=COLOURS[shape.colour], **how)
    if isinstance(shape, Text):
        # the font that matplotlib brings along: no machine need have any
        file = Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
        how |= {"color": COLOURS[shape.colour], "fontsize": FONT_SIZE * _POINTS}
        how |= {"fontproperties": font_manager.FontProperties(fname=file)}
        anchor = {"start": "left", "middle": "center", "end": "right"}[shape.anchor]
        how |= {"horizontalalignment": anchor, "verticalalignment": "baseline", "parse_math": False}
        return text.Text(shape.x, shape.y, shape.text, **how)
    how |= {"facecolor": COLOURS[shape.fill], "linewidth": 0}
    if isinstance(shape, Rect):
        return patches.Rectangle((shape.x, shape.y), shape.width, shape.height, **how)
    if isinstance(shape, Circle):
        return patches.Circle((shape.x, shape.y), shape.radius, **how)
    return patches.Polygon(shape.points, **how)
