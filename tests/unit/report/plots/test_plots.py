"""Plots as they look, compared with recorded SVG files that any viewer shows, and what is said of them in words.

`RECORD_PLOTS=1 pytest tests/unit/report/plots/test_plots.py` records them anew: look at each that changed.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from eval_factory.report import plots
from eval_factory.report.drawing import (
    ELLIPSIS,
    MAX_TITLE,
    Drawing,
    cut_to_width,
    label,
    svg,
    text_shape,
    text_width,
)
from eval_factory.report.plots import (
    Axis,
    Bar,
    Bin,
    Mark,
    PlottedValue,
    bars,
    bins_of,
    difference_plot,
    dot_plot,
)
from facts import says

RECORDED = Path(__file__).resolve().parents[3] / "golden" / "plots"
UNIT = (0.0, 1.0)
SCORE = PlottedValue("exact_match", 0.5, 0.25, 0.75, 100)
GROUPS = [
    PlottedValue("small", 0.9, 0.5, 1.0, 10),
    PlottedValue("large", 0.5, 0.4, 0.6, 400),
    PlottedValue("middle", 0.75, 0.7, 0.8, 60, stands_out=True),
]
COUNTS = [
    Bar("scored", 96, "96 of 100"),
    Bar("failed", 4, "4 of 100", hatched=True),
    Bar("cut off", 0, "0"),
]


def score(*marks: tuple[str, float], **how: float | tuple[float, float] | None) -> Drawing:
    value = PlottedValue("exact_match", how["value"]) if "value" in how else SCORE  # type: ignore[arg-type]
    shown = [Mark(*one) for one in marks]
    return plots.interval_plot("Score", value, scale=UNIT, marks=shown, bounds=how.get("bounds"))  # type: ignore[arg-type]


def difference(*names: str, value: float = 0.1, higher: bool = True) -> Drawing:
    row = PlottedValue("exact_match", value, value - 0.15, value + 0.1, 500)
    return difference_plot(
        "Difference",
        row,
        names=(names[0], names[1]),
        axis_label="B minus A",
        higher_is_better=higher,
    )


def counts(
    *values: float, scale: tuple[float, float] | None = UNIT, marks: tuple[Mark, ...] = ()
) -> Drawing:
    return plots.histogram(
        "Distribution", values, axis_label="exact_match", scale=scale, marks=marks
    )


CASES: dict[str, Callable[[], Drawing]] = {
    "score": score,
    "score_at_the_end": lambda: score(value=1.0),
    "score_with_marks_to_the_left": lambda: score(("a", 0.95), ("b", 0.9)),
    "score_with_marks_on_both_sides": lambda: score(("low", 0.01), ("high", 0.99)),
    "score_with_bounds": lambda: score(bounds=(0.25, 0.5)),
    "score_beyond_its_scale": lambda: plots.interval_plot(
        "Score", PlottedValue("BERTScore", -0.5, -0.6, 1.2), scale=UNIT, bounds=(-1.0, 0.5)
    ),
    "groups": lambda: dot_plot(
        "Groups", GROUPS, axis_label="exact_match", scale=UNIT, overall=0.5, outside_groups=7
    ),
    "groups_without_a_scale": lambda: dot_plot(
        "Groups", GROUPS, axis_label="x", overall=0.1, outside_groups=1
    ),
    "difference": lambda: difference("A (one)", "B (two)"),
    "difference_where_less_is_better": lambda: difference("A", "B", higher=False),
    "difference_of_a_long_name": lambda: difference("A", "B" * 99),
    "no_difference": lambda: difference_plot(
        "Difference", PlottedValue("x", 0.0), names=("A", "B"), axis_label="d"
    ),
    "columns": lambda: counts(0, 1, 1, 1),
    "columns_that_are_close": lambda: counts(0.5, 0.52, 0.5201, 1),
    "columns_with_marks": lambda: counts(
        0, 1, marks=(Mark("median", 0.5), Mark("95 % are faster than", 1.0))
    ),
    "columns_of_nothing": lambda: counts(scale=None),
    "bars": lambda: bars("Validity", COUNTS, axis_label="instances", scale=(0, 100)),
}


TOLD_ALONE = {"score", "score_at_the_end", "difference", "columns"}
"""Of which others show the looks."""


@pytest.mark.parametrize("name", sorted(CASES.keys() - TOLD_ALONE))
def test_a_plot_looks_as_it_was_recorded(name: str) -> None:
    file = RECORDED / f"{name}.svg"
    text = svg(CASES[name](), standalone=True)
    if os.environ.get("RECORD_PLOTS"):
        file.write_text(text, "utf-8")
    assert file.read_text("utf-8") == text


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("score", "exact_match: 0.500 (0.250 to 0.750), a 95 % interval."),
        ("score_at_the_end", "exact_match: 1.000."),
        (
            "groups",
            (
                "all instances: 0.500; small (10 instances): 0.900 (0.500 to 1.000); middle (60 instances): 0.750 (0.700 to"
                " 0.800); large (400 instances): 0.500 (0.400 to 0.600); diamond: differs from the rest of the instances"
                " (p < 0.05, Holm); 7 instances are in groups too small for a score, or in none."
            ),
        ),
        (
            "difference",
            "exact_match: 0.100 (-0.050 to 0.200); B (two) is better above zero, A (one) below.",
        ),
        ("columns", "4 values; 0: 1; 1: 3."),
        ("bars", "scored: 96 of 100; failed: 4 of 100; cut off: 0."),
    ],
)
def test_a_plot_is_told_in_words(name: str, said: str) -> None:
    assert CASES[name]().description == said


@pytest.mark.parametrize(
    ("most", "outside_groups", "told"),
    [
        (3, 0, []),
        (2, 0, ["1 smaller group is not shown"]),
        (
            1,
            1,
            [
                "2 smaller groups are not shown",
                "1 instance is in groups too small for a score, or in none",
            ],
        ),
        (3, 7, ["7 instances are in groups too small for a score, or in none"]),
    ],
)
def test_what_is_not_shown_is_told(
    most: int, outside_groups: int, told: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(plots, "MAX_GROUPS", most)
    drawing = dot_plot("Groups", GROUPS, axis_label="x", scale=UNIT, outside_groups=outside_groups)
    texts = [shape.text for shape in drawing.shapes if shape.tag == "text"]
    assert [text for text in texts if "shown" in text or "too small" in text] == told
    assert all(text in drawing.description for text in told)
    assert "large" in texts  # the largest stays


def test_values_are_counted_one_by_one_or_by_equal_parts() -> None:
    assert bins_of([1, 0, 1], Axis(0, 1, 0, 1)) == [Bin(0, 0, 1), Bin(1, 1, 2)]
    assert len(bins_of(list(range(12)), Axis(0, 12, 0, 1))) == 12
    bins = bins_of([number / 100 for number in range(101)], Axis(0, 1, 0, 1))
    assert (len(bins), sum(one.count for one in bins)) == (plots.BINS, 101)
    assert bins[-1].count == 6  # with 1 itself
    assert (bins[1].low, bins[1].high, bins[1].middle) == pytest.approx((0.05, 0.1, 0.075))
    no_numbers = counts(1.0, math.nan, math.inf)
    says(no_numbers.description, "1 values", "1: 1", "2 that are not")


@pytest.mark.parametrize(
    ("low", "high", "value", "told"),
    [
        (0, 1, 0.71249, "0.712"),
        (-1, 1, -0.0001, "0.000"),
        (1, 5, 3.849, "3.85"),
        (0, 20, 2, "2.00"),
        (0, 100, 12.34, "12.3"),
        (0, 1000, 12.6, "13"),
        (0, 0.01, 0.001234, "0.001234"),
        (0, 2e6, 1234567.0, "1.235e+06"),
    ],
)
def test_numbers_have_the_digits_that_the_axis_is_worth(
    low: float, high: float, value: float, told: str
) -> None:
    assert Axis(low, high, 0, 1).number(value) == told


def test_a_label_is_one_printable_line_cut_where_it_is_too_wide() -> None:
    assert [text_width(text) for text in ("abcd", "中文", "a中")] == pytest.approx(
        [31.2, 27.3, 21.45]
    )
    assert cut_to_width("abcd", text_width("abcd")) == "abcd"
    assert cut_to_width("ab cde", text_width("abcd")) == f"ab{ELLIPSIS}"
    assert cut_to_width("abc", 0) == ELLIPSIS
    assert label(1, 2, "short", 100) == text_shape(1, 2, "short")
    cut = label(1, 2, "a label that is much longer", 60, anchor="end")
    assert cut.text.endswith(ELLIPSIS)
    assert (cut.title, cut.attributes["text-anchor"]) == ("a label that is much longer", "end")
    assert len(label(0, 0, "x" * 9_999, 60).title) == MAX_TITLE
    assert label(0, 0, "a\nb\x1b[2J\u202e", 500).text == r"a b\x1b[2J\u202e"


@pytest.mark.parametrize("values", [[0.0], [5e-324], [0.0, 5e-324]])
def test_values_that_are_nearly_zero_have_an_axis(values: list[float]) -> None:
    axis = plots.axis_of(values, 0.0, 100.0)
    assert (axis.low, axis.high) == (0.0, 1.0)


def test_no_line_of_a_mark_crosses_the_text_of_another() -> None:
    """The texts of the two right marks are on their left; that of 0.9 covers the line of 0.8."""
    marks = [Mark("always the most frequent answer", value) for value in (0.1, 0.8, 0.9)]
    drawing = plots.interval_plot("Score", SCORE, scale=UNIT, marks=marks)
    texts = [shape.text for shape in drawing.shapes if shape.text.startswith("always")]
    assert [text.rsplit(maxsplit=1)[1] for text in texts] == ["0.800", "0.900", "0.100"]
