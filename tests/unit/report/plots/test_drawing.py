"""Shapes and labels of drawings."""

from __future__ import annotations

import pytest

from eval_factory.report.drawing import (
    ELLIPSIS,
    HATCH_STEP,
    LONGEST_TITLE,
    Polygon,
    diamond,
    fitted,
    hatching,
    label,
    text_width,
    triangle,
)


def test_wide_letters_take_more_room() -> None:
    assert text_width("abcd", 10) == pytest.approx(24.0)
    assert text_width("中文", 10) == pytest.approx(21.0)
    assert text_width("a中", 10) == pytest.approx(16.5)


def test_a_text_is_cut_only_where_it_is_too_wide() -> None:
    assert fitted("abcd", text_width("abcd", 10), 10) == "abcd"
    assert fitted("abcde", text_width("abcd", 10), 10) == f"abc{ELLIPSIS}"
    assert fitted("ab cde", text_width("abcd", 10), 10) == f"ab{ELLIPSIS}"
    assert fitted("abc", 0) == ELLIPSIS


def test_what_a_label_lost_is_its_title() -> None:
    whole = label(1, 2, "short", 100)
    assert (whole.text, whole.title, whole.anchor, whole.x, whole.y) == ("short", "", "start", 1, 2)
    cut = label(1, 2, "a label that is much longer", 60, anchor="end")
    assert cut.text.endswith(ELLIPSIS)
    assert (cut.title, cut.anchor) == ("a label that is much longer", "end")
    assert len(label(0, 0, "x" * 9_999, 60).title) == LONGEST_TITLE


def test_a_label_is_one_printable_line() -> None:
    assert label(0, 0, "a\nb\x1b[2J\u202e", 500).text == r"a b\x1b[2J\u202e"


def test_diamond_and_triangle_point_where_they_are() -> None:
    assert diamond(10, 20, 2, "data") == Polygon(((10, 18), (12, 20), (10, 22), (8, 20)), "data")
    assert triangle(10, 20, 2, "data", "t") == Polygon(((10, 20), (12, 24), (8, 24)), "data", "t")


def test_hatching_stays_inside_and_covers_the_rectangle() -> None:
    lines = list(hatching(10, 20, 30, 12, "ink"))
    assert len(lines) == 6  # at 6, 12 ... 36 of 42
    for line in lines:
        assert 10 <= line.x1 <= line.x2 <= 40
        assert 20 <= line.y2 <= line.y1 <= 32
        assert line.x2 - line.x1 == line.y1 - line.y2  # at 45 degrees
    assert (lines[0].x1, lines[0].y1, lines[0].x2, lines[0].y2) == (10, 20 + HATCH_STEP, 10 + HATCH_STEP, 20)
    assert (lines[-1].x1, lines[-1].y1, lines[-1].x2, lines[-1].y2) == (34, 32, 40, 26)
    assert list(hatching(0, 0, 0, 3, "ink")) == []
