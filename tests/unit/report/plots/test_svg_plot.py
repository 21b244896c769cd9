"""Drawings as SVG: what stands where, and that labels are no markup."""

from __future__ import annotations

import re
from typing import Any
from xml.etree import ElementTree

import pytest

from eval_factory.report.drawing import (
    COLOURS,
    DARK_COLOURS,
    Circle,
    Drawing,
    Line,
    Polygon,
    Rect,
    Shape,
    Text,
    label,
    page_css,
    svg,
)

NAMESPACE = "{http://www.w3.org/2000/svg}"
HOSTILE = """</title></svg><script>alert(1)</script><img src=x onerror="alert(2)">'"&\x1b[2J\u202e\ud800\x00"""
SHAPES: tuple[Shape, ...] = (
    Line(1, 2.5, 3.333, 4, "data", 2.5), Line(1, 2, 3, 4, "second", dashed=True), Rect(5, 6, 7, 8, "grid", "a band"),
    Rect(5, 6, 7, 8, "grid"), Circle(9, 10, 11, "data", "a dot"), Polygon(((1, 2), (3.5, 4)), "second", "a diamond"),
    Text(12, 13, "words", "end", "faint", title="all words"),
)  # fmt: skip


def drawn(*shapes: Shape, title: str = "Title", description: str = "What it shows.") -> Drawing:
    return Drawing(title, description, 100, shapes)


def parsed(drawing: Drawing) -> Any:
    return ElementTree.fromstring(svg(drawing, standalone=True))  # noqa: S314 - our own


def attributes(element: Any) -> dict[str, str]:
    return {name: value for name, value in element.attrib.items() if name != "class"}


def test_every_shape_is_an_element_with_its_place() -> None:
    root = parsed(drawn(*SHAPES))
    assert root.tag == f"{NAMESPACE}svg"
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("640", "100", "0 0 640 100")
    title, description, paper, line, dashed, band, plain, circle, polygon, text = root
    assert (title.text, description.text) == ("Title", "What it shows.")
    assert attributes(paper) == {"width": "640", "height": "100", "fill": "#ffffff"}
    assert attributes(line) == {
        "x1": "1", "y1": "2.5", "x2": "3.33", "y2": "4", "stroke": "#0072b2", "stroke-width": "2.5",
    }  # fmt: skip
    assert dashed.get("stroke-dasharray") == "5"
    assert "stroke-dasharray" not in line.attrib
    assert attributes(band) == {"x": "5", "y": "6", "width": "7", "height": "8", "fill": "#dcdcdc"}
    assert attributes(circle) == {"cx": "9", "cy": "10", "r": "11", "fill": "#0072b2"}
    assert attributes(polygon) == {"points": "1,2 3.5,4", "fill": "#d55e00"}
    assert attributes(text) == {
        "x": "12", "y": "13", "font-size": "13", "text-anchor": "end", "fill": "#5f5f5f",
    }  # fmt: skip
    assert text.text == "words"
    assert [[child.text for child in one] for one in (band, plain, circle, polygon, text)] == [
        ["a band"], [], ["a dot"], ["a diamond"], ["all words"],
    ]  # fmt: skip


def test_in_a_page_it_takes_the_colours_of_the_page() -> None:
    inside = svg(drawn(*SHAPES, Text(1, 2, "ink")))
    assert inside.startswith('<svg class="plot" viewBox="0 0 640 100"')
    assert "xmlns" not in inside
    assert 'width="640"' not in inside
    assert 'fill="currentColor" class="plot-fill-ink"' in inside
    assert 'stroke="#0072b2" class="plot-stroke-data"' in inside
    used = set(re.findall(r'class="(plot-[a-z]+-[a-z]+)"', inside))
    css = page_css()
    assert used
    assert all(f".{name} {{" in css for name in used)
    assert ".plot-fill-data { fill: var(--plot-data, #0072b2); }" in css
    assert ".plot-stroke-ink { stroke: var(--plot-ink, currentColor); }" in css
    assert "paper" not in css


def test_a_dark_page_has_lighter_colours() -> None:
    assert page_css(dark=True).startswith("--plot-faint: #b0b0b0; --plot-grid: #484848; --plot-data: #56b4e9;")
    assert page_css(dark=True).endswith(";")


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(("colours", "paper"), [(COLOURS, "#ffffff"), (DARK_COLOURS, "#1a1a1a")], ids=["light", "dark"])
def test_what_has_to_be_seen_is_seen(colours: Any, paper: str) -> None:
    assert contrast(colours["faint"], paper) >= 4.5  # text
    assert contrast(colours["data"], paper) >= 3  # graphics
    assert contrast(colours["second"], paper) >= 3


def test_labels_are_no_markup() -> None:
    drawing = drawn(
        label(1, 2, HOSTILE, 60), Rect(1, 2, 3, 4, "data", HOSTILE), title=HOSTILE, description=HOSTILE
    )  # fmt: skip
    root = parsed(drawing)
    assert {child.tag.removeprefix(NAMESPACE) for child in root.iter()} == {"svg", "title", "desc", "rect", "text"}
    assert root[0].text.startswith("</title></svg><script>alert(1)</script>")
    assert root[0].text.endswith(r"\x1b[2J\u202e\ud800\x00")
    for standalone in (False, True):
        text = svg(drawing, standalone=standalone)
        assert "<script" not in text
        assert "<img" not in text
        assert "\x1b" not in text
        text.encode("utf-8")


def test_nothing_is_asked_for_from_elsewhere() -> None:
    text = svg(drawn(*SHAPES), standalone=True)
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"\b(href|src|style|id|on\w+)=|url\(", text)
