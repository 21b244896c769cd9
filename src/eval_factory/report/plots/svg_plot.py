"""A drawing -> SVG: inside a page, whose colours it takes, or as a file of its own.

Colours are those of M. Okabe and K. Ito, Color Universal Design, 2008 (https://jfly.uni-koeln.de/color/), which readers
with any colour vision tell apart. No colour alone means anything: what differs has another shape, hatching or words.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from jinja2 import Environment, PackageLoader, StrictUndefined, Template

from eval_factory.core.foreign_text import printable
from eval_factory.report.plots.drawing import Colour, Drawing, Shape

COLOURS: Mapping[Colour, str] = {
    "ink": "#000000",
    "faint": "#5f5f5f",
    "grid": "#dcdcdc",
    "data": "#0072b2",
    "second": "#d55e00",
    "paper": "#ffffff",
}
"""On white."""
DARK_COLOURS: Mapping[Colour, str] = {
    "faint": "#b0b0b0",
    "grid": "#484848",
    "data": "#56b4e9",
    "second": "#e69f00",
}
"""In a page that is dark."""
DASH = 5.0
"""Length of a dash, and of the gap behind it."""
FONT = "system-ui, Helvetica, Arial, sans-serif"
_OF_THE_PAGE: Mapping[Colour, str] = {**COLOURS, "ink": "currentColor", "paper": "none"}


def svg(drawing: Drawing, *, standalone: bool = False) -> str:
    """One `<svg>` element, with a title and a description in words; no ids, no scripts, nothing from elsewhere.

    Args:
        standalone: as a file of its own: valid XML with its namespace, its size, and on white.
    """
    text = _template().render(
        drawing=drawing, standalone=standalone, colours=COLOURS if standalone else _OF_THE_PAGE, font=FONT, dash=DASH
    )
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{text}\n' if standalone else text


def page_css(*, dark: bool = False) -> str:
    """The rules for a page's style sheet: colours as custom properties (`--plot-data`), which the page may set anew.

    Args:
        dark: the properties of a dark page alone, to stand in its `prefers-color-scheme` rule or the like.
    """
    if dark:
        return "".join(f"--plot-{name}: {colour}; " for name, colour in DARK_COLOURS.items()).rstrip()
    rules = [".plot { max-width: 100%; height: auto; display: block; }"]
    for name, colour in _OF_THE_PAGE.items():
        if name != "paper":
            rules += [f".plot-{kind}-{name} {{ {kind}: var(--plot-{name}, {colour}); }}" for kind in ("fill", "stroke")]
    return "\n".join(rules)


@cache
def _template() -> Template:
    environment = Environment(
        loader=PackageLoader("eval_factory.report.plots", "."), autoescape=True, undefined=StrictUndefined,
        trim_blocks=True, finalize=lambda value: printable(value) if isinstance(value, str) else value,
    )  # fmt: skip
    environment.filters["n"] = length
    environment.globals["kind_of"] = _kind
    return environment.get_template("plot.svg.j2")


def length(value: float) -> str:
    """To a hundredth of a pixel, the same on every machine."""
    return f"{value:.2f}".rstrip("0").rstrip(".")


def _kind(shape: Shape) -> str:
    return type(shape).__name__
