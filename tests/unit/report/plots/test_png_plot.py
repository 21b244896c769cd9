"""Drawings as PNG: the same geometry as the SVG, in pixels."""

from __future__ import annotations

import io
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest
from PIL import Image

from eval_factory.core.errors import PrerequisiteError
from eval_factory.report.drawing import (
    COLOURS,
    Circle,
    Colour,
    Drawing,
    Line,
    Polygon,
    Rect,
    Shape,
    Text,
    pixels_of,
    png,
    svg,
    write_plot_files,
)
from eval_factory.report.plot_kinds import PlottedValue, dot_plot

SCALE = 300 / 96


def drawn(*shapes: Shape, width: float = 96.0) -> Drawing:
    return Drawing("Title", "What it shows.", 48, shapes, width)


def image(drawing: Drawing) -> Any:
    return Image.open(io.BytesIO(png(drawing))).convert("RGB")


def box_of(picture: Any, colour: Colour) -> list[float]:
    """The rectangle, in CSS pixels, of what has just this colour."""
    red, green, blue = (int(COLOURS[colour][at : at + 2], 16) for at in (1, 3, 5))
    pixels = picture.load()
    found = [(x, y) for x in range(picture.width) for y in range(picture.height) if pixels[x, y] == (red, green, blue)]
    columns, rows = [x for x, _ in found], [y for _, y in found]
    return [min(columns) / SCALE, min(rows) / SCALE, (max(columns) + 1) / SCALE, (max(rows) + 1) / SCALE]


def test_it_has_300_dots_per_inch() -> None:
    picture = image(drawn())
    assert picture.size == (300, 150) == pixels_of(drawn())
    assert pixels_of(drawn(width=96.1)) == (301, 150)
    assert picture.info["dpi"] == pytest.approx((300, 300), abs=0.01)
    assert (picture.info["Title"], picture.info["Description"]) == ("Title", "What it shows.")
    assert picture.getcolors() == [(300 * 150, (255, 255, 255))]


@pytest.mark.parametrize(
    ("shape", "box"),
    [
        (Rect(10, 20, 30, 15, "data"), [10, 20, 40, 35]),
        (Circle(40, 20, 10, "data"), [30, 10, 50, 30]),
        (Polygon(((40, 10), (50, 20), (40, 30), (30, 20)), "data"), [30, 10, 50, 30]),
        (Line(10, 20, 60, 20, "data", 4), [10, 18, 60, 22]),
        (Line(10, 5, 10, 40, "data", 4, dashed=True), [8, 5, 12, 40]),
    ],
    ids=lambda value: type(value).__name__,
)
def test_shapes_stand_where_the_drawing_has_them(shape: Shape, box: list[float]) -> None:
    assert box_of(image(drawn(shape)), "data") == pytest.approx(box, abs=1.2)


@pytest.mark.parametrize(("anchor", "left", "right"), [("start", 40, 56), ("middle", 32, 48), ("end", 24, 40)])
def test_words_stand_at_their_anchor(anchor: Any, left: float, right: float) -> None:
    box = box_of(image(drawn(Text(40, 30, "HH", anchor, size=11))), "ink")
    assert box[0] == pytest.approx(left, abs=2)
    assert box[2] == pytest.approx(right, abs=2)
    assert box[3] == pytest.approx(30, abs=0.7)  # the baseline


def test_png_and_svg_agree() -> None:
    rows = [PlottedValue("one", 0.25, 0.1, 0.4, 30), PlottedValue("two", 0.8, 0.7, 0.9, 30)]
    drawing = dot_plot("Groups", rows, axis_label="x", scale=(0, 1))
    root = ElementTree.fromstring(svg(drawing, standalone=True))  # noqa: S314 - our own
    box = box_of(image(drawing), "data")
    blue = [element for element in root.iter() if element.get("stroke") == COLOURS["data"]]
    ends = [float(element.get(name) or "nan") for element in blue for name in ("x1", "x2")]
    assert [box[0], box[2]] == pytest.approx([min(ends), max(ends)], abs=2)
    assert pixels_of(drawing) == (2000, -(-int(root.get("height") or "0") * 300 // 96))


def test_the_same_drawing_is_the_same_file() -> None:
    drawing = drawn(Text(10, 20, "words"), Circle(40, 20, 10, "data"))
    assert png(drawing) == png(drawing)


def of(text: str) -> bytes:
    return png(drawn(Text(4, 30, text), width=400))


def test_letters_that_the_font_does_not_have_are_spelled() -> None:
    assert of("plain") != of("plait")
    assert of("café Ж") != of("cafe X")
    assert of("中") == of(r"\u4e2d")
    assert of("$x$") != of("x")


def test_without_matplotlib_nothing_is_written_and_the_command_that_installs_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(PrerequisiteError, match=r"need matplotlib(.|\n)*pip install 'eval-factory-helm\[plots\]'"):
        write_plot_files({"one": drawn()}, tmp_path / "plots")
    assert not (tmp_path / "plots").exists()
