"""Drawings as SVG and as PNG: what stands where, that labels are no markup, and their files."""

from __future__ import annotations

import io
import re
import sys
from itertools import product
from pathlib import Path
from typing import Any
from unittest.mock import Mock
from xml.etree import ElementTree

import pytest
from PIL import Image

from eval_factory.core.errors import PrerequisiteError
from eval_factory.report import drawing as drawings
from eval_factory.report.drawing import (
    Colour,
    Drawing,
    Shape,
    circle,
    label,
    line,
    png,
    polygon,
    rect,
    svg,
    text_shape,
)
from eval_factory.report.plots import PlottedValue, dot_plot

NAMESPACE = "{http://www.w3.org/2000/svg}"
HOSTILE = """</title></svg><script>alert(1)</script><img src=x onerror="alert(2)">'"&\x1b[2J\u202e\ud800\x00"""
SHAPES: tuple[Shape, ...] = (
    line(1, 2.5, 3.333, 4, "data", 2.5),
    line(1, 2, 3, 4, "second", dashed=True),
    rect(5, 6, 7, 8, "grid", "a band"),
    rect(5, 6, 7, 8, "grid"),
    circle(9, 10, 11, "data", "a dot"),
    polygon(((1, 2), (3.5, 4)), "second", "a diamond"),
    text_shape(12, 13, "words", "end", "faint", title="all words"),
)


def drawn(
    *shapes: Shape, title: str = "Title", described: str = "What it shows.", width: float = 96.0
) -> Drawing:
    return Drawing(title, described, 48, shapes, width)


def parsed(drawing: Drawing) -> Any:
    return ElementTree.fromstring(svg(drawing, standalone=True))  # noqa: S314 - our own


def attributes(element: Any) -> dict[str, str]:
    return {name: value for name, value in element.attrib.items() if name != "class"}


def test_every_shape_is_an_element_with_its_place() -> None:
    root = parsed(drawn(*SHAPES))
    assert root.tag == f"{NAMESPACE}svg"
    assert (root.get("width"), root.get("height"), root.get("viewBox")) == ("96", "48", "0 0 96 48")
    assert root.get("font-size") == "13"
    title, description, paper, line, dashed, band, plain, circle, polygon, text = root
    assert (title.text, description.text) == ("Title", "What it shows.")
    assert attributes(paper) == {"width": "96", "height": "48", "fill": "#ffffff"}
    assert attributes(line) == {
        "x1": "1",
        "y1": "2.5",
        "x2": "3.33",
        "y2": "4",
        "stroke": "#0072b2",
        "stroke-width": "2.5",
    }
    assert dashed.get("stroke-dasharray") == "5"
    assert "stroke-dasharray" not in line.attrib
    assert attributes(band) == {"x": "5", "y": "6", "width": "7", "height": "8", "fill": "#dcdcdc"}
    assert attributes(circle) == {"cx": "9", "cy": "10", "r": "11", "fill": "#0072b2"}
    assert attributes(polygon) == {"points": "1,2 3.5,4", "fill": "#d55e00"}
    assert attributes(text) == {
        "x": "12",
        "y": "13",
        "text-anchor": "end",
        "fill": "#5f5f5f",
    }
    assert text.text == "words"
    assert [[child.text for child in one] for one in (band, plain, circle, polygon, text)] == [
        ["a band"],
        [],
        ["a dot"],
        ["a diamond"],
        ["all words"],
    ]


def test_in_a_page_it_takes_the_colours_of_the_page_which_are_lighter_on_a_dark_one() -> None:
    inside = svg(drawn(*SHAPES, text_shape(1, 2, "ink")))
    assert inside.startswith('<svg class="plot" viewBox="0 0 96 48"')
    assert "xmlns" not in inside
    assert 'width="96"' not in inside
    assert 'fill="currentColor" class="plot-fill-ink"' in inside
    assert 'stroke="#0072b2" class="plot-stroke-data"' in inside
    used = set(re.findall(r'class="(plot-[a-z]+-[a-z]+)"', inside))
    css = drawings.page_css()
    assert used
    assert all(f".{name} {{" in css for name in used)
    assert ".plot-fill-data { fill: var(--plot-data, #0072b2); }" in css
    assert ".plot-stroke-ink { stroke: var(--plot-ink, currentColor); }" in css
    assert "paper" not in css
    dark = ":root { --plot-faint: #b0b0b0; --plot-grid: #484848; --plot-data: #56b4e9; --plot-second: #e69f00; }"
    assert css.endswith(f"\n@media screen and (prefers-color-scheme: dark) {{ {dark} }}")


def luminance(colour: str) -> float:
    """WCAG 2.2, relative luminance."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = (
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    )
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: str, other: str) -> float:
    light, dark = sorted((luminance(one), luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize(
    ("colours", "paper"),
    [(drawings.COLOURS, "#ffffff"), (drawings.DARK_COLOURS, "#1a1a1a")],
    ids=["light", "dark"],
)
def test_what_has_to_be_seen_is_seen(colours: Any, paper: str) -> None:
    assert contrast(colours["faint"], paper) >= 4.5  # text
    assert contrast(colours["data"], paper) >= 3  # graphics
    assert contrast(colours["second"], paper) >= 3


def test_labels_are_no_markup_and_nothing_is_asked_for_from_elsewhere() -> None:
    drawing = drawn(
        label(1, 2, HOSTILE, 60),
        rect(1, 2, 3, 4, "data", HOSTILE),
        title=HOSTILE,
        described=HOSTILE,
    )
    root = parsed(drawing)
    assert {child.tag.removeprefix(NAMESPACE) for child in root.iter()} == {
        "svg",
        "title",
        "desc",
        "rect",
        "text",
    }
    assert root[0].text.startswith("</title></svg><script>alert(1)</script>")
    assert root[0].text.endswith(r"\x1b[2J\u202e\ud800\x00")
    for standalone in (False, True):
        text = svg(drawing, standalone=standalone)
        assert "<script" not in text
        assert "<img" not in text
        assert "\x1b" not in text
        text.encode("utf-8")
    text = svg(drawn(*SHAPES), standalone=True)
    assert re.findall(r"https?://[^\"]+", text) == ["http://www.w3.org/2000/svg"]
    assert not re.search(r"\b(href|src|style|id|on\w+)=|url\(", text)


SCALE = 300 / 96


def image(drawing: Drawing) -> Any:
    return Image.open(io.BytesIO(png(drawing))).convert("RGB")


def box_of(picture: Any, colour: Colour) -> list[float]:
    """The rectangle, in CSS pixels, of what has just this colour."""
    red, green, blue = (int(drawings.COLOURS[colour][at : at + 2], 16) for at in (1, 3, 5))
    pixels = picture.load()
    found = [
        (x, y)
        for x, y in product(range(picture.width), range(picture.height))
        if pixels[x, y] == (red, green, blue)
    ]
    columns = [x for x, _ in found]
    rows = [y for _, y in found]
    return [
        min(columns) / SCALE,
        min(rows) / SCALE,
        (max(columns) + 1) / SCALE,
        (max(rows) + 1) / SCALE,
    ]


def test_it_has_300_dots_per_inch_and_is_the_same_each_time() -> None:
    picture = image(drawn())
    assert picture.size == (300, 150)
    assert image(drawn(width=96.1)).size == (301, 150)
    assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.01)
    assert (picture.info["Title"], picture.info["Description"]) == ("Title", "What it shows.")
    assert picture.getcolors() == [(300 * 150, (255, 255, 255))]
    drawing = drawn(text_shape(10, 20, "words"), circle(40, 20, 10, "data"))
    assert png(drawing) == png(drawing)


@pytest.mark.parametrize(
    ("shape", "box"),
    [
        (rect(10, 20, 30, 15, "data"), [10, 20, 40, 35]),
        (circle(40, 20, 10, "data"), [30, 10, 50, 30]),
        (polygon(((40, 10), (50, 20), (40, 30), (30, 20)), "data"), [30, 10, 50, 30]),
        (line(10, 20, 60, 20, "data", 4), [10, 18, 60, 22]),
        (line(10, 5, 10, 40, "data", 4, dashed=True), [8, 5, 12, 40]),
    ],
    ids=["rect", "circle", "polygon", "line", "dashed line"],
)
def test_shapes_stand_where_the_drawing_has_them(shape: Shape, box: list[float]) -> None:
    assert box_of(image(drawn(shape)), "data") == pytest.approx(box, abs=1.2)


@pytest.mark.parametrize(
    ("anchor", "left", "right"), [("start", 40, 59), ("middle", 30.5, 49.5), ("end", 21, 40)]
)
def test_words_stand_at_their_anchor(anchor: Any, left: float, right: float) -> None:
    box = box_of(image(drawn(text_shape(40, 30, "HH", anchor))), "ink")
    assert box[0] == pytest.approx(left, abs=2)
    assert box[2] == pytest.approx(right, abs=2)
    assert box[3] == pytest.approx(30, abs=0.7)  # the baseline


def test_png_and_svg_agree() -> None:
    rows = [PlottedValue("one", 0.25, 0.1, 0.4, 30), PlottedValue("two", 0.8, 0.7, 0.9, 30)]
    drawing = dot_plot("Groups", rows, axis_label="x", scale=(0, 1))
    root = ElementTree.fromstring(svg(drawing, standalone=True))  # noqa: S314 - our own
    box = box_of(image(drawing), "data")
    blue = [element for element in root.iter() if element.get("stroke") == drawings.COLOURS["data"]]
    ends = [float(element.get(name) or "nan") for element, name in product(blue, ("x1", "x2"))]
    assert [box[0], box[2]] == pytest.approx([min(ends), max(ends)], abs=2)
    assert image(drawing).size == (2000, -(-int(root.get("height") or "0") * 300 // 96))


def of(text: str) -> bytes:
    return png(drawn(text_shape(4, 30, text), width=400))


def test_letters_that_the_font_does_not_have_are_spelled() -> None:
    assert of("plain") != of("plait")
    assert of("café Ж") != of("cafe X")
    assert of("中") == of(r"\u4e2d")
    assert of("$x$") != of("x")


def test_without_matplotlib_it_is_said_how_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(
        PrerequisiteError, match=r"need matplotlib(.|\n)*pip install 'matplotlib>=3.9'"
    ):
        drawings.write_plot_files({"one": drawn()}, tmp_path / "plots")
    assert not (tmp_path / "plots").exists()


ONE = drawn(rect(1, 2, 9, 9, "data"))
TWO = drawn()


def test_each_drawing_is_two_files(tmp_path: Path) -> None:
    folder = tmp_path / "new" / "plots"
    written = drawings.write_plot_files({"one": ONE, "two": TWO}, folder)
    assert [path.name for path in written] == ["one.svg", "one.png", "two.svg", "two.png"]
    assert sorted(folder.iterdir()) == sorted(written)
    assert (folder / "one.svg").read_text("utf-8") == svg(ONE, standalone=True)
    assert (folder / "two.png").read_bytes() == png(TWO)


def test_where_the_disk_is_full_the_old_file_stays_and_no_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawings.write_plot_files({"one": ONE}, tmp_path)
    full = OSError(28, "No space left on device")
    monkeypatch.setattr("os.fsync", Mock(side_effect=[None, full]))  # the SVG still finds room
    with pytest.raises(OSError, match="No space"):
        drawings.write_plot_files({"one": TWO}, tmp_path)
    assert (tmp_path / "one.png").read_bytes() == png(ONE)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["one.png", "one.svg"]
