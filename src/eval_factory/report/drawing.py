"""Describes a drawing as a list of shapes, and writes the drawing as SVG and as PNG.

All lengths are in CSS pixels, 1/96 inch.

The colours are from M. Okabe and K. Ito, Color Universal Design, 2008
(https://jfly.uni-koeln.de/color/). Readers with any colour vision can distinguish these
colours. A colour is never the only mark of a difference: shapes, hatching or words show the
difference too.

This module writes the SVG itself: text stays text, and the colours follow those of the page.
matplotlib (extra `plots`) draws the PNG.
"""

from __future__ import annotations

import io
import logging
import math
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any, Literal

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.core.safe_files import atomic_file, write_atomic

WIDTH = 640.0  # the usual width of a drawing: 6.7 inches, the width of the text on a page
FONT_SIZE = 13.0
DASH = 5.0  # the length of a dash in a dashed line, and of the gap after the dash
ELLIPSIS = "…"
MAX_TITLE = 2_000  # the maximum number of characters in a tooltip

Colour = Literal["ink", "faint", "grid", "data", "second", "paper"]
"""The names of the colours: `data` and `second` are for the first and the second series of data,
`paper` is the background.
"""
# which point of a text has the x coordinate of its shape
Anchor = Literal["start", "middle", "end"]


@dataclass(frozen=True)
class Shape:
    """A shape of a drawing, which is one element of SVG."""

    tag: Literal["line", "rect", "circle", "polygon", "text"]
    colour: Colour  # the colour of a line, and the fill of all other shapes
    attributes: Mapping[str, Any]  # the SVG attributes, numbers or texts
    title: str = ""  # the tooltip; a PNG has no tooltips
    text: str = ""  # the words of a `text` shape


def line(
    x1: float,
    y1: float,
    x2: float,
    y2: float,
    colour: Colour = "ink",
    width: float = 1.0,
    *,
    dashed: bool = False,
) -> Shape:
    """Return a straight line from (x1, y1) to (x2, y2)."""
    dash = {}
    if dashed:
        dash = {"stroke-dasharray": DASH}
    return Shape(
        "line", colour, {"x1": x1, "y1": y1, "x2": x2, "y2": y2, "stroke-width": width, **dash}
    )


def rect(x: float, y: float, width: float, height: float, fill: Colour, title: str = "") -> Shape:
    """Return a filled rectangle whose upper left corner is at (x, y)."""
    return Shape("rect", fill, {"x": x, "y": y, "width": width, "height": height}, title)


def circle(x: float, y: float, radius: float, fill: Colour, title: str = "") -> Shape:
    """Return a filled circle around (x, y)."""
    return Shape("circle", fill, {"cx": x, "cy": y, "r": radius}, title)


def polygon(points: Iterable[tuple[float, float]], fill: Colour, title: str = "") -> Shape:
    """Return a filled polygon with these corners."""
    return Shape(
        "polygon",
        fill,
        {"points": " ".join(f"{_number_text(x)},{_number_text(y)}" for x, y in points)},
        title,
    )


def text_shape(
    x: float,
    y: float,
    text: str,
    anchor: Anchor = "start",
    colour: Colour = "ink",
    *,
    title: str = "",
) -> Shape:
    """Return a line of text. `y` is the baseline. If `text` is cut, `title` is the uncut text."""
    return Shape("text", colour, {"x": x, "y": y, "text-anchor": anchor}, title, text)


def _number_text(value: float | str) -> str:
    """Return a number as text with at most two decimals; a text is returned unchanged."""
    if isinstance(value, str):
        return value
    return f"{value:.2f}".rstrip("0").rstrip(".")


@dataclass(frozen=True)
class Drawing:
    """A drawing: its shapes, its size, and a title and description for readers who cannot see."""

    title: str  # a few words
    description: str  # everything that the drawing shows, in words and numbers
    height: float
    shapes: tuple[Shape, ...]
    width: float = WIDTH


def text_width(text: str) -> float:
    """Return an estimate of a text's width. The font is not known before the text is shown."""
    # The East Asian widths `W` (wide) and `F` (full width) are about as wide as high.
    wide = sum(unicodedata.east_asian_width(letter) in "WF" for letter in text)
    narrow = len(text) - wide
    # For most characters, the estimate is too large rather than too small.
    return FONT_SIZE * (1.05 * wide + 0.6 * narrow)


def cut_to_width(text: str, width: float) -> str:
    """Return a text as one printable line; a line that is wider than `width` is cut."""
    shown = one_line(text, MAX_TITLE)
    if text_width(shown) <= width:
        return shown
    while shown and text_width(shown + ELLIPSIS) > width:
        shown = shown[:-1]
    return shown.rstrip() + ELLIPSIS


def label(x: float, y: float, text: str, width: float, *, anchor: Anchor = "start") -> Shape:
    """Return a text that is at most `width` wide; the title of a cut text is the uncut text."""
    shown = cut_to_width(text, width)
    uncut = one_line(text, MAX_TITLE)
    title = ""
    if shown != uncut:
        title = uncut
    return text_shape(x, y, shown, anchor, title=title)


COLOURS: Mapping[Colour, str] = {
    "ink": "#000000",
    "faint": "#5f5f5f",
    "grid": "#dcdcdc",
    "data": "#0072b2",
    "second": "#d55e00",
    "paper": "#ffffff",
}
"""The colours on a white background."""
DARK_COLOURS: Mapping[Colour, str] = {
    "faint": "#b0b0b0",
    "grid": "#484848",
    "data": "#56b4e9",
    "second": "#e69f00",
}
"""The colours on a dark page, apart from `ink` and `paper`: see `_PAGE_COLOURS`."""
_PAGE_COLOURS: Mapping[Colour, str] = {**COLOURS, "ink": "currentColor", "paper": "none"}
"""The colours in an SVG that is a part of a page. `ink` is the page's colour of text; the page's
background shows through `paper`.
"""


def svg(drawing: Drawing, *, standalone: bool = False) -> str:
    """Return a drawing as one `<svg>` element with its title and description.

    The element has no ids, no scripts and no references to other files. With `standalone`, the SVG
    is a complete XML file with its namespace and size, on a white background.
    """
    width = _number_text(drawing.width)
    height = _number_text(drawing.height)
    colours = _PAGE_COLOURS
    beginning = ""
    size_attributes = ""
    background = ""
    ending = ""
    if standalone:
        colours = COLOURS
        beginning = '<?xml version="1.0" encoding="UTF-8"?>\n'
        size_attributes = f' xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        background = f'<rect width="{width}" height="{height}" fill="{colours["paper"]}"/>\n'
        ending = "\n"
    elements = "\n".join(_element(shape, colours) for shape in drawing.shapes)
    return (
        f'{beginning}<svg{size_attributes} class="plot" viewBox="0 0 {width} {height}" role="img"'
        ' font-family="system-ui, Helvetica, Arial, sans-serif"'
        f' font-size="{_number_text(FONT_SIZE)}">\n'
        f"<title>{_escaped(drawing.title)}</title>\n<desc>{_escaped(drawing.description)}</desc>\n"
        f"{background}{elements}\n</svg>{ending}"
    )


def _element(shape: Shape, colours: Mapping[Colour, str]) -> str:
    """Return the SVG element of a shape."""
    paint = "fill"
    if shape.tag == "line":
        paint = "stroke"
    attributes = {
        **shape.attributes,
        paint: colours[shape.colour],
        "class": f"plot-{paint}-{shape.colour}",
    }
    written = " ".join(f'{name}="{_number_text(value)}"' for name, value in attributes.items())
    title = ""
    if shape.title:
        title = f"<title>{_escaped(shape.title)}</title>"
    inside = _escaped(shape.text) + title
    if inside:
        return f"<{shape.tag} {written}>{inside}</{shape.tag}>"
    return f"<{shape.tag} {written}/>"


def _escaped(text: str) -> str:
    """Return a text in printable characters, escaped for XML."""
    return escape(printable(text))


def page_css() -> str:
    """Return the rules about drawings for a page's style sheet.

    The colours are custom properties, such as `--plot-data`. The last rule sets the colours of a
    dark page.
    """
    rules = [".plot { max-width: 100%; height: auto; display: block; }"]
    for name, colour in _PAGE_COLOURS.items():
        if name != "paper":  # `paper` is transparent on every page.
            rules += [
                f".plot-{paint}-{name} {{ {paint}: var(--plot-{name}, {colour}); }}"
                for paint in ("fill", "stroke")
            ]
    dark = " ".join(f"--plot-{name}: {colour};" for name, colour in DARK_COLOURS.items())
    rules.append(f"@media screen and (prefers-color-scheme: dark) {{ :root {{ {dark} }} }}")
    return "\n".join(rules)


DPI = 300  # dots per inch of a PNG, as journals require
CSS_DPI = 96  # CSS pixels per inch
_POINTS_PER_PIXEL = 72 / CSS_DPI  # matplotlib has line widths and font sizes in points


def write_plot_files(drawings: Mapping[str, Drawing], folder: Path) -> list[Path]:
    """Write `NAME.svg` and `NAME.png` of each drawing into a folder, and return their paths.

    The folder is created if it does not exist. Raises PrerequisiteError if matplotlib is not
    installed; no file is then written.
    """
    png_files = {name: png(drawing) for name, drawing in drawings.items()}
    folder.mkdir(parents=True, exist_ok=True)
    written: list[Path] = []
    for name, drawing in drawings.items():
        svg_path = folder / f"{name}.svg"
        png_path = folder / f"{name}.png"
        write_atomic(svg_path, svg(drawing, standalone=True))
        with atomic_file(png_path) as file:
            file.buffer.write(png_files[name])
        written += [svg_path, png_path]
    return written


def png(drawing: Drawing) -> bytes:
    """Return the bytes of a PNG with 300 dots per inch.

    The same version of matplotlib makes the same bytes of the same drawing. Raises
    PrerequisiteError if matplotlib is not installed.
    """
    # matplotlib would log that it builds its font cache.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    try:
        from matplotlib import style
        from matplotlib.figure import Figure
        from matplotlib.transforms import Affine2D
    except ImportError:
        raise PrerequisiteError(
            "plots as files need matplotlib, which is not installed\n"
            "  pip install 'matplotlib>=3.9'"
        ) from None

    width = math.ceil(drawing.width * DPI / CSS_DPI)  # in dots
    height = math.ceil(drawing.height * DPI / CSS_DPI)
    with style.context("default"):  # ignores the user's matplotlibrc
        figure = Figure(figsize=(width / DPI, height / DPI), dpi=DPI, facecolor=COLOURS["paper"])
        # matplotlib counts y from the bottom, SVG from the top.
        to_dots = Affine2D().scale(DPI / CSS_DPI, -DPI / CSS_DPI).translate(0, height)
        for order, shape in enumerate(drawing.shapes):
            # A later shape covers the earlier shapes, as in SVG.
            figure.add_artist(_artist(shape, transform=to_dots, zorder=order))
        file = io.BytesIO()
        metadata = {
            "Title": drawing.title,
            "Description": drawing.description,
            "Software": None,  # The file does not name matplotlib.
        }
        figure.savefig(file, format="png", metadata=metadata)
    return file.getvalue()


def _artist(shape: Shape, **options: Any) -> Any:
    """Return the matplotlib artist of a shape. `options` are the artist's keyword arguments."""
    from matplotlib import lines, patches

    colour = COLOURS[shape.colour]
    attributes = shape.attributes
    if shape.tag == "line":
        width = attributes["stroke-width"]
        linestyle: Any = "solid"
        if "stroke-dasharray" in attributes:
            dash = DASH / width  # matplotlib has the length of a dash in line widths
            linestyle = (0, (dash, dash))  # where the pattern begins, and the pattern
        return lines.Line2D(
            (attributes["x1"], attributes["x2"]),
            (attributes["y1"], attributes["y2"]),
            linewidth=width * _POINTS_PER_PIXEL,
            linestyle=linestyle,
            color=colour,
            solid_capstyle="butt",
            **options,
        )
    if shape.tag == "text":
        return _text_artist(shape, **options)
    options |= {"facecolor": colour, "linewidth": 0}
    if shape.tag == "rect":
        return patches.Rectangle(
            (attributes["x"], attributes["y"]), attributes["width"], attributes["height"], **options
        )
    if shape.tag == "circle":
        return patches.Circle((attributes["cx"], attributes["cy"]), attributes["r"], **options)
    points = [tuple(map(float, point.split(","))) for point in attributes["points"].split()]
    return patches.Polygon(points, **options)


_ALIGNMENTS: Mapping[Anchor, Literal["left", "center", "right"]] = {
    "start": "left",
    "middle": "center",
    "end": "right",
}
"""A dict from an anchor to matplotlib's word for it."""


def _text_artist(shape: Shape, **options: Any) -> Any:
    """Return the matplotlib artist of a `text` shape."""
    from matplotlib import font_manager, get_data_path, text

    # This font comes with matplotlib, so that the PNG does not depend on installed fonts.
    font_file = Path(get_data_path(), "fonts", "ttf", "DejaVuSans.ttf")
    return text.Text(
        shape.attributes["x"],
        shape.attributes["y"],
        _drawable_text(font_manager.get_font(font_file), shape.text),
        color=COLOURS[shape.colour],
        fontproperties=font_manager.FontProperties(fname=font_file),
        fontsize=FONT_SIZE * _POINTS_PER_PIXEL,
        horizontalalignment=_ALIGNMENTS[shape.attributes["text-anchor"]],
        verticalalignment="baseline",
        parse_math=False,  # A dollar sign is only a character.
        **options,
    )


def _drawable_text(font: Any, text: str) -> str:
    """Return a text in which the font has every character.

    A character that the font does not have loses its accents. If the font does not have the plain
    character either, the text has an escape such as `\\u4e00`.
    """
    letters = []
    for letter in text:
        plain = _without_accents(letter)
        if _has_characters(font, letter):
            letters.append(letter)
        elif plain and _has_characters(font, plain):
            letters.append(plain)
        else:
            letters.append(letter.encode("unicode_escape").decode("ascii"))
    return "".join(letters)


def _without_accents(letter: str) -> str:
    """Return the plain characters of a letter; an empty string if the letter is only an accent."""
    decomposed = unicodedata.normalize("NFKD", letter)
    return "".join(part for part in decomposed if not unicodedata.combining(part))


def _has_characters(font: Any, text: str) -> bool:
    """Return True if a matplotlib font has every character of a text."""
    return all(font.get_char_index(ord(character)) for character in text)
