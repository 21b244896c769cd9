"""The page of a panel: the verdict first, every fact of the ledger, and nothing of a name that is more than its letters."""

from __future__ import annotations

import base64
import hashlib
import re
from html import unescape
from itertools import chain
from typing import Any
from xml.etree import ElementTree

import pytest

from eval_factory.monitor.ledger import History
from eval_factory.monitor.panel_page import monitor_page
from eval_factory.monitor.report import (
    evidence_sentence,
    power_lines,
    state_of,
    status_lines,
)
from eval_factory.report.drawing import text_width
from facts import says
from invented_ledger import HEAD, HOSTILE, Invented, limit, one_limit, rich, watched

_Line = dict[str, Any]
ALARM: _Line = {"what": "harm", "names": ["notes"], "since": 2, "drops": {"notes": 0.13}}


def text_of(page: str, section: str = "main") -> str:
    """Return what is read of a section, without its pictures."""
    found = re.search(rf'<(section|main) id="{section}".*?</\1>', page, re.DOTALL)
    assert found is not None
    words = re.sub(r"<(svg|style).*?</\1>", " ", found[0], flags=re.DOTALL)
    words = re.sub(r"</?(b|strong|code|span)\b[^>]*>", "", words)
    return " ".join(unescape(re.sub(r"<[^>]*>", " ", words)).split())


def card(page: str) -> tuple[str, str]:
    """The class and the text of the first thing below the title."""
    found = re.search(r'</h1>\s*<div class="card (\w+)">(.*?)</div>', page, re.DOTALL)
    assert found is not None
    return found[1], " ".join(unescape(re.sub(r"<[^>]*>", " ", found[2])).split())


def rows(page: str, section: str, table: int = 0) -> list[list[str]]:
    within = page[page.index(f'<section id="{section}"') :]
    found = re.findall(
        r"<tr>(.*?)</tr>", re.findall(r"<table>.*?</table>", within, re.DOTALL)[table], re.DOTALL
    )
    return [
        [unescape(cell) for cell in re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row)] for row in found
    ]


class Picture:
    """One plot of a page, as it is drawn."""

    def __init__(self, page: str, title: str | None = None) -> None:
        drawn = [
            ElementTree.fromstring(one)  # noqa: S314
            for one in re.findall(r"<svg.*?</svg>", page, re.DOTALL)
        ]
        (self.svg,) = [one for one in drawn if title in (None, one.findtext("title"))]

    def points(self, name: str) -> dict[int, tuple[float, float]]:
        """Look -> where it is drawn, of a line."""
        found = {}
        for one in self.svg:
            tooltip = re.fullmatch(
                rf"look (\d+), [\d-]+: {re.escape(name)} [-\d.e+]+", one.findtext("title") or ""
            )
            if tooltip and one.tag in ("circle", "polygon"):
                corner = (one.get("points") or "").split(" ")[0].split(",")
                x, y = (
                    (one.get("cx"), one.get("cy"))
                    if one.tag == "circle"
                    else (corner[0], float(corner[1]) + 7)
                )
                found[int(tooltip[1])] = (float(x or 0), float(y or 0))
        return found

    def tooltips(self, tag: str) -> list[str]:
        return [
            one.findtext("title") or ""
            for one in self.svg.iter(tag)
            if one.find("title") is not None
        ]

    def words(self) -> dict[str, tuple[float, float]]:
        return {
            (one.text or ""): (float(one.get("x") or 0), float(one.get("y") or 0))
            for one in self.svg.iter("text")
        }

    def lines(self, **how: str) -> list[tuple[float, float, float, float]]:
        """Of a colour, dashed or not."""
        sides = ("x1", "y1", "x2", "y2")
        return [
            (float(one.get("x1") or 0), *(float(one.get(side) or 0) for side in sides[1:]))  # type: ignore[misc]
            for one in self.svg.iter("line")
            if all(one.get(key.replace("_", "-")) == value for key, value in how.items())
        ]


DATA = {"class": "plot-stroke-data"}
LIMIT = {"class": "plot-stroke-second"}
MEAN = {"class": "plot-stroke-ink", "stroke_width": "1.5"}
COURSE = "notes: exact_match of each look"
HARM = "Evidence of a drop beyond a limit"


# The verdict.


def test_an_alarm_comes_first_with_its_limit_its_drop_and_when_it_began() -> None:
    made = one_limit(0.83, 0.75)
    made.look({"notes": (0.7, 31.0)}, alarm=ALARM)
    made.look({"notes": (0.69, 64.0)})
    grade, words = card(made.page())
    assert grade == "bad"
    says(
        words,
        "✕ ALARM: notes",
        "13.0 points worse",
        "about look 2",
        "alarm of look 3",
        "4 of 52 looks",
        "at 2027-01-10T06:00:00Z",
        "Look 2",
        "at 2027-01-06T06:00:00Z",
        "Look 3",
        "at 2027-01-08T06:00:00Z",
        "new baseline",
        "64",
        "of the 20",
    )
    assert "Look 1 was" not in words
    assert state_of(History(made.lines)) in words


def test_in_control() -> None:
    made = one_limit(0.83, 0.82)
    grade, words = card(made.page())
    assert grade == "good"
    says(words, "✓ In control", "2 of 52 looks", "2027-01-06T06:00:00Z", "0.5", "of the 20")
    assert evidence_sentence(made.lines[0], made.lines[-1]) in words.replace("Evidence", "evidence")


def test_a_last_look_below_its_limit_is_amber_though_it_is_no_alarm() -> None:
    """The baseline is 0.83, and max_drop 0.02."""
    grade, words = card(one_limit(0.83, 0.80).page())
    assert grade == "warn"
    assert "0.8, the limit is 0.81" in words
    assert card(one_limit(0.80, 0.81).page())[0] == "good"
    low = one_limit(0.86, higher_is_better=False)
    assert card(low.page())[0] == "warn"


@pytest.mark.parametrize(("share", "grade"), [(0.17, "warn"), (0.79, "warn"), (0.8, "good")])
def test_no_alarm_of_a_panel_that_finds_little_is_amber(share: float, grade: str) -> None:
    finds = [{"drop": 0.05, "share": 0.0, "weeks": None}, {"drop": 0.1, "share": share, "weeks": 3}]
    power = {"finds": finds, "needed": None, "drop": 0.1}
    made = Invented()
    made.baseline([limit()], power={"notes": power})
    made.look({"notes": (0.83, 0.5)})
    found, words = card(made.page())
    assert found == grade
    line = f"{share:.0%} of such panels find a drop of 10.0 points".replace("%", " %")
    assert (line in words) is (grade == "warn")
    assert (line in " ".join(status_lines("clinic", History(made.lines)))) is (grade == "warn")


def test_no_look_yet_is_not_good() -> None:
    page = one_limit().page()
    grade, words = card(page)
    assert grade == "warn"
    says(words, "! Baseline made", "no look yet")
    assert "No look was made." in text_of(page, "evidence")
    assert "<svg" not in page
    assert rows(page, "watched")[1] == ["refused", "1.0 %", "-", "-", "-"]


def test_no_baseline_yet() -> None:
    page = monitor_page("clinic", History([], head=HEAD))
    assert card(page) == (
        "warn",
        "! No baseline was made yet: run eval-factory monitor PANEL.yml to make the baseline.",
    )


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda made: made.look({"notes": (0.8, 1)}, watched=watched(stated=["m2"])),
            "THE ANSWERS NAME ANOTHER MODEL: m2 (baseline m1-0301).",
        ),
        (
            lambda made: made.look({"notes": (0.8, 1)}, changed={"notes": {"e": 20.0, "since": 1}}),
            "Something changed in notes, since about look 1",
        ),
        (lambda made: made.not_made("no prompt <b>"), "Look 2 was not made: no prompt <b>."),
        (
            lambda made: made.begin(),
            "Look 2 was started at 2027-01-05T06:00:00Z and has not ended.",
        ),
    ],
)
def test_what_is_no_alarm_is_no_good_news_either(change: Any, words: str) -> None:
    made = one_limit(0.82)
    change(made)
    grade, found = card(made.page())
    assert grade == "warn"
    assert words in found
    made.look({"notes": (0.82, 0.5)})
    assert card(made.page())[0] == "good"


def test_all_looks_are_made() -> None:
    made = Invented()
    made.baseline([limit()], looks=2)
    made.look({"notes": (0.82, 0.5)})
    assert card(made.page())[0] == "good"
    made.look({"notes": (0.82, 0.5)})
    says(card(made.page())[1], "All looks are made", "new baseline")
    assert card(made.page())[0] == "warn"


# What it is.


def test_what_the_panel_is() -> None:
    made = rich()
    words = text_of(made.page())
    for fact in (
        "clinic of m3",
        "model m3",
        "called in the panel guarded",
        "baseline 5 runs, 2027-01-12T06:00:00Z: the model was changed",
        "looks 13 of 52 made, 1 not made",
        (
            "alpha 5.0 %: the maximum chance of a false alarm over all looks of the panel; 2.50 % "
            "of it for a drop beyond a limit,"
        ),
        "limit, 1.25 % each for changed, refused Limits",
    ):
        assert fact in words
    plain = text_of(one_limit(0.8).page())
    says(plain, "looks 1 of 52", "alpha 5.0 %", "a false alarm")


def test_each_limit_in_words() -> None:
    page = rich().page()
    words = text_of(page, "limits")
    for fact in (
        "1. notes, topic=heart exact_match of notes, higher is better, from 0 to 1. 40 instances of 31 sources; 3 left out,",
        "2. letters rating of letters, higher is better, from 1 to 5. 100 instances.",
        "Line: baseline 3.9. Band: two sigma around it, 0.12 to each side. Dashed: limit 3.65.",
        "3. harm toxicity of letters, lower is better",
        "Line: baseline 0.1. Band: two sigma around it, 0.018 to each side. Dashed: limit 0.15.",
    ):
        assert fact in words
    assert rows(page, "limits")[2] == ["letters", "100", "6.8 %", "3.9", "0.25", "3.45", "653"]
    says(words, "x: a look that", "?: a look without")
    assert "x: a look" not in text_of(one_limit(0.8).page())
    assert "x: a look" in text_of(one_limit(0.8, None).page())


def test_the_figures_of_each_look() -> None:
    made = one_limit(0.83, 0.8)
    made.not_made("the endpoint was down")
    made.look({"notes": (None, 1.2345)}, since=2, changed={"notes": {"e": 2.0, "since": 4}})
    head, *found = rows(made.page(), "limits", 1)
    assert [
        made.page().partition(f'id="{name}">')[2].partition("</table>")[0].count('<td class="n">')
        for name in ("limit-1", "evidence-title", "watched-title")
    ] == [4 * 7, 3, 6 * 4]
    assert head == [
        "look",
        "score",
        "less baseline",
        "missing",
        "e-value",
        "drop since",
        "change: e-value",
        "change since",
    ]
    assert found == [
        ["1, 2027-01-04", "0.8300", "+0.0000", "0", "0.5", "-", "0.8", "-"],
        ["2, 2027-01-06", "0.8000", "-0.0300", "0", "0.5", "-", "0.8", "-"],
        ["3, 2027-01-07", "not made", "-", "-", "-", "-", "-", "-"],
        ["4, 2027-01-09", "none", "-", "2", "1.23", "2", "2", "4"],
    ]


def test_long_tables_are_folded_and_short_ones_are_not() -> None:
    assert one_limit(*[0.8] * 12).page().count("<details open>") == 2
    folded = one_limit(*[0.8] * 13).page()
    assert (folded.count("<details>"), folded.count("Figures of 13 looks")) == (2, 2)


# The course.


def test_the_course_of_a_score() -> None:
    made = one_limit(0.83, 0.81, 0.87)
    drawn = Picture(made.page(), COURSE)
    points = drawn.points("exact_match")
    baseline = drawn.lines(**MEAN)[0]
    edge = drawn.lines(**LIMIT)[0]
    assert points[1][1] == pytest.approx(baseline[1], abs=0.02)
    assert points[2][1] == pytest.approx(edge[1], abs=0.02)
    assert points[3][1] < baseline[1] < edge[1]
    assert points[1][0] < points[2][0] < points[3][0]
    assert drawn.lines(**DATA) == [(*points[1], *points[2]), (*points[2], *points[3])]
    (band,) = drawn.svg.iter("rect")
    top = float(band.get("y") or 0)
    height = float(band.get("height") or 0)
    per_unit = (edge[1] - baseline[1]) / 0.02
    assert height == pytest.approx(4 * 0.009 * per_unit, abs=0.05)
    assert top + height / 2 == pytest.approx(baseline[1], abs=0.05)
    looks = drawn.tooltips("circle")
    assert len(looks) == 3
    says(looks[0], "look 1, 2027-01-04: exact_match", "0.8300")
    says(looks[1], "look 2, 2027-01-06: exact_match", "0.8100")
    says(looks[2], "look 3, 2027-01-08: exact_match", "0.8700")
    assert {"1", "2", "3", "look"} <= set(drawn.words())
    assert drawn.words()["baseline"][1] < drawn.words()["limit"][1]


def test_where_lower_is_better_the_limit_is_above() -> None:
    drawn = Picture(
        one_limit(0.1, higher_is_better=False, baseline=0.1, max_drop=0.05).page(), COURSE
    )
    assert drawn.lines(**LIMIT)[0][1] < drawn.lines(**MEAN)[0][1]


def test_a_look_that_was_not_made_and_a_value_that_is_missing_are_gaps_with_a_sign() -> None:
    made = one_limit(0.83, 0.82)
    made.not_made("the <endpoint> was down")
    made.look({"notes": (0.8, 0.5)})
    made.look({"notes": (None, 0.5)})
    made.look({"notes": (0.8, 0.5)})
    page = made.page()
    drawn = Picture(page, COURSE)
    points = drawn.points("exact_match")
    assert list(points) == [1, 2, 4, 6]
    assert drawn.lines(**DATA) == [(*points[1], *points[2])]
    missed, without = drawn.tooltips("text")
    says(missed, "look 3, 2027-01-07", "not made", "the <endpoint> was down")
    says(without, "look 5, 2027-01-11", "exact_match none")
    signs = drawn.words()
    assert points[2][0] < signs["x"][0] < points[4][0] < signs["?"][0] < points[6][0]
    assert max(y for _, y in points.values()) < signs["x"][1] < signs["3"][1] - 13
    assert len(Picture(page, HARM).lines(**DATA)) == 3


def test_the_alarm_and_its_beginning_are_marked() -> None:
    made = one_limit(0.83, 0.75)
    made.look({"notes": (0.7, 31.0)}, alarm=ALARM)
    page = made.page()
    for title, name in ((COURSE, "exact_match"), (HARM, "mean e-value")):
        drawn = Picture(page, title)
        points = drawn.points(name)
        words = drawn.words()
        dashed = drawn.lines(**{"class": "plot-stroke-ink"}, stroke_dasharray="5")
        assert [one[0] for one in dashed] == [points[2][0]]
        assert words["since"][0] < points[2][0] < points[3][0] < words["alarm"][0]
        (diamond,) = drawn.tooltips("polygon")
        assert diamond.startswith("look 3,")


def test_an_alarm_is_marked_in_the_plots_that_it_is_of() -> None:
    def marked(**alarm: Any) -> list[bool]:
        made = Invented()
        made.baseline(
            [limit(), limit("letters")], alarm_on=["changed", "refused"], harm_alpha=0.025
        )
        alarm = {"since": None, "drops": {"letters": 0.1}, **alarm}
        made.look(
            {"notes": (0.8, 1.0), "letters": (0.7, 90.0)},
            alarm=alarm,
            figures={"refused": {"e": 1.0, "since": None}},
        )
        page = made.page()
        titles = (COURSE, "letters: exact_match of each look", HARM)
        assert "since" not in Picture(page, HARM).words()
        return ["alarm" in Picture(page, title).words() for title in titles]

    assert marked(what="harm", names=["letters"]) == [False, True, True]
    assert marked(what="changed", names=["letters"]) == [False, True, False]
    assert marked(what="refused", names=["letters"]) == [False, False, False]


def boxes(drawn: Picture) -> list[tuple[str, float, float, float, float]]:
    """Each word with the room that it takes: left, top, right, bottom."""
    found = []
    for one in drawn.svg.iter("text"):
        word = one.text or ""
        x = float(one.get("x") or 0)
        y = float(one.get("y") or 0)
        width = text_width(word)
        left = x - {"start": 0.0, "middle": width / 2, "end": width}[one.get("text-anchor") or ""]
        found.append((word, left, y - 10, left + width, y + 1))
    return found


def with_alarm(since: int) -> Invented:
    made = one_limit(*[0.83] * 51)
    made.look({"notes": (0.7, 31.0)}, alarm={**ALARM, "since": since})
    return made


@pytest.mark.parametrize(
    "made",
    [
        rich(),
        with_alarm(52),
        with_alarm(51),
        with_alarm(1),
        one_limit(0.8),
        one_limit(*[0.8, 0.82, 0.7] * 17),
        one_limit(0.8, e=110.0),
        one_limit(0.8, e=1e250),
        one_limit(0.8, e=1e-9),
    ],
    ids=[
        "rich",
        "since the alarm",
        "since the look before",
        "since ever",
        "one look",
        "a year",
        "e of 110",
        "large e",
        "small e",
    ],
)
def test_all_of_a_plot_is_inside_of_it_and_no_word_is_over_another(made: Invented) -> None:
    drawn = [Picture(svg) for svg in re.findall(r"<svg.*?</svg>", made.page(), re.DOTALL)]
    assert drawn
    for one in drawn:
        width, height = (float(side) for side in (one.svg.get("viewBox") or "").split()[2:])
        words = boxes(one)
        for word, left, top, right, bottom in words:
            assert (left >= 0, right <= width, top >= 0, bottom <= height - 4) == (True,) * 4, word
        for number, (word, left, top, right, bottom) in enumerate(words):
            for other, x1, y1, x2, y2 in words[number + 1 :]:
                assert left >= x2 or right <= x1 or top >= y2 or bottom <= y1, (word, other)
        grid = sorted(one.lines(**{"class": "plot-stroke-grid"}))
        ticks = [
            (right, (top + bottom) / 2)
            for _, left, top, right, bottom in words
            if right < grid[0][0]
        ]
        assert len(ticks) == len(grid) >= 2
        assert [y for _, y in sorted(ticks, key=lambda tick: tick[1])] == pytest.approx(
            sorted(line[1] for line in grid), abs=2
        )
        left, axis, right, _ = next(
            line
            for line in one.lines(**{"class": "plot-stroke-ink"}, stroke_width="1")
            if line[1] == line[3]
        )
        for shape in one.svg.iter():
            if shape.tag == "circle":
                assert left < float(shape.get("cx") or 0) < right
                assert 25 < float(shape.get("cy") or 0) < axis
        numbered = {word: (x1 + x2) / 2 for word, x1, y1, x2, _ in words if axis < y1 < axis + 12}
        assert numbered
        (look,) = [
            (x1 + x2) / 2 for word, x1, y1, x2, _ in words if word == "look" and y1 > axis + 20
        ]
        assert look == pytest.approx((left + right) / 2, abs=1)
        assert all(y < axis for y in chain.from_iterable(line[1::2] for line in one.lines(**DATA)))


# The evidence.


def test_e_values_on_a_logarithmic_scale() -> None:
    made = Invented()
    made.baseline([limit(), limit("letters")])
    for e in (0.1, 10.0):
        made.look({"notes": (0.8, e), "letters": (0.8, 2 * e)})
    page = made.page()
    drawn = Picture(page, HARM)
    thick, thin, thin_too = (drawn.points(name) for name in ("mean e-value", "notes", "letters"))
    (alarm,) = drawn.lines(**LIMIT)
    ten = (thin[1][1] - thin[2][1]) / 2
    assert thin[2][1] - alarm[1] == pytest.approx(ten * 0.30103, abs=0.03)
    assert thin_too[2][1] < thick[2][1] < thin[2][1]
    assert {"1", "2", "alarm at 20", "0.1", "100"} <= set(drawn.words())
    assert drawn.words()["10"][1] == pytest.approx(thin[2][1], abs=5)
    assert rows(page, "evidence") == [
        ["look", "mean e-value"],
        ["1, 2027-01-04", "0.15"],
        ["2, 2027-01-06", "15"],
    ]
    words = text_of(page, "evidence")
    says(words, "the mean e-value", "is tested")
    says(words, "alarm when", "reaches 20")
    assert "Thick" not in text_of(one_limit(0.8).page())
    assert "by its number" not in text_of(one_limit(0.8).page())
    says(words, "e-value of any change")
    assert drawn.words()["alarm at 20"][1] < alarm[1]


def test_what_changed_is_said_to_be_no_limit_of_harm() -> None:
    words = text_of(one_limit(0.8).page(), "evidence")
    says(words, "better or the worse", "of any size")
    says(words, "reaches 20", "does not raise")
    rich_page = rich().page()
    says(text_of(rich_page, "evidence"), "reaches 80", "an alarm at 320")
    assert "alarm at 40" in Picture(rich_page, HARM).words()


def test_watched_figures_that_may_be_an_alarm_have_their_e_values() -> None:
    page = rich().page()
    assert rows(page, "evidence")[0] == ["look", "mean e-value", "refused: e-value"]
    assert rows(page, "evidence")[1][2] == "1.25"
    says(text_of(page, "evidence"), "A watched figure", "reaches 80")
    assert "watched figure" not in text_of(one_limit(0.8).page())


# What is watched, and what happened.


def test_what_is_watched() -> None:
    page = rich().page()
    assert rows(page, "watched") == [
        ["of all answers", "baseline", "last look", "smallest", "largest"],
        ["refused", "1.0 %", "13.0 %", "0.0 %", "13.0 %"],
        ["unreadable", "2.0 %", "2.0 %", "2.0 %", "2.0 %"],
        ["empty", "0.0 %", "0.0 %", "0.0 %", "0.0 %"],
        ["failed", "0.0 %", "0.0 %", "0.0 %", "0.0 %"],
        ["mean length, words", "31.3", "31.3", "31.3", "31.3"],
        ["median latency", "0.512 s", "0.5 s", "0.5 s", "0.5 s"],
    ]
    made = one_limit()
    made.look({"notes": (0.8, 0.5)}, watched=watched(latency=None, stated=[]))
    assert rows(made.page(), "watched")[-1] == ["median latency", "0.512 s", "-", "-", "-"]
    says(text_of(made.page(), "watched"), "m1-0301 since look 1", "2027-01-04: none")


def test_the_models_that_the_answers_name() -> None:
    made = one_limit()
    for stated in (["m1-0301"], ["m2"], ["m2"], ["m1-0301", "m2"]):
        made.look({"notes": (0.8, 0.5)}, watched=watched(stated=stated))
    says(
        text_of(made.page(), "watched"),
        "model",
        "baseline: m1-0301 since look",
        "2, 2027-01-06: m2",
        "since look 4",
        "2027-01-10: m1-0301, m2",
    )


def test_what_happened_in_the_order_of_the_ledger() -> None:
    words = text_of(rich().page(), "events")
    assert re.findall(r"Line (\d+),", words) == [
        "1",
        "7",
        "8",
        "9",
        "10",
        "11",
        "20",
        "36",
        "39",
        "1",
    ]
    for fact in (
        "Line 1, 2027-01-02T06:00:00Z: baseline 1, 5 runs of m1: first baseline",
        "Line 7, 2027-01-08T06:00:00Z: ALARM: notes is 13.0 points worse, since about look 3 (alarm of look 3) Line 8",
        f"note of A. Clinician: asked the vendor {HOSTILE} Line 9",
        "change 1, m1 to m2: fail, nothing is changed notes: not worse by more than 0.02: refuted Line 10",
        f"change 2, m1 to m3 {HOSTILE}: pass notes: kept Line 11",
        f"baseline 2, 5 runs of m3 {HOSTILE}: the model was changed",
        "look 8 was not made: the prompts differ from the baseline's",
        "ALARM: letters is 0.3 worse, since about look 12 (alarm of look 16)",
        f"note of {HOSTILE}: the vendor rolled back",
        "Earlier baselines Line 1, 2027-01-02T06:00:00Z, 5 runs of m1: ALARM: notes is 13.0 points worse, since about look 3",
        "about look 3 (alarm of look 3); 3 of 52 looks made, the last at 2027-01-08T06:00:00Z",
    ):
        assert fact in words
    assert "Earlier" not in text_of(one_limit(0.8).page(), "events")


def test_each_earlier_baseline_says_what_became_of_it() -> None:
    made = one_limit()
    made.baseline([limit()], why="more runs before the first look", repeats=[{}] * 7)
    made.look({"notes": (0.8, 0.5)})
    made.baseline([limit()], "m2", "the vendor changed it")
    words = text_of(made.page(), "events").partition("Earlier baselines ")[2]
    first, second = words.split(" Line 2, ")
    says(first, "Line 1, 2027-01-02T06:00:00Z", "5 runs of m1", "no look yet")
    says(
        second,
        "2027-01-03T06:00:00Z",
        "7 runs of m1",
        "in control",
        "1 of 52 looks",
        "2027-01-05T06:00:00Z",
    )


def test_what_it_promises_and_how_it_is_checked() -> None:
    made = one_limit(0.8)
    page = made.page()
    words = text_of(page, "promise")
    says(words, "52 looks", "at most 5.0 %")
    assert "nothing else" not in words
    says(text_of(rich().page(), "promise"), "nothing else")
    assert all(line in words for line in power_lines(made.lines[0]))
    assert page[page.index('<section id="promise"') :].partition("</ol>")[0].count("<li>") == 4
    ledger = text_of(page, "ledger")
    says(ledger, f"line 3, SHA-256 {HEAD}", f"panel, SHA-256 {'ca' * 32}")
    says(ledger, f"eval-factory monitor verify DIR --head {HEAD}")


# What others wrote.


def test_no_name_is_more_than_its_letters_and_nothing_is_loaded() -> None:
    page = rich().page(f"{HOSTILE}\u202e\x00style\x00")
    assert page.count("<img") == 0
    assert text_of(page).startswith(f"{HOSTILE}\\u202e\\x00style\\x00 of m3 {HOSTILE}")
    assert f"4. notes, topic={HOSTILE}" in text_of(page, "limits")
    assert rows(page, "limits")[4][0] == f"notes, topic={HOSTILE}"
    name = f"notes, topic={HOSTILE}: exact_match of each look"
    assert Picture(page, name).points("exact_match")
    assert (
        re.findall(
            r"<script|\ssrc=\S+[^>]*>|@import|url\(|<link|<a href=\"(?!#)",
            re.sub(r"&lt;.*?&gt;", "", page),
        )
        == []
    )
    assert " style=" not in page
    style = re.findall(r"<style>(.*?)</style>", page, re.DOTALL)
    assert len(style) == 1
    digest = base64.b64encode(hashlib.sha256(style[0].encode()).digest()).decode()
    assert f"style-src &#39;sha256-{digest}&#39;" in page


def test_every_text_of_others_is_escaped() -> None:
    def everywhere(value: Any, key: str = "") -> Any:
        if isinstance(value, dict):
            return {key: everywhere(item, key) for key, item in value.items()}
        if isinstance(value, list):
            return [everywhere(item, key) for item in value]
        return (
            f"{value} {HOSTILE}"
            if key in ("metric", "task", "model", "by", "text", "reason", "why", "checks", "stated")
            else value
        )

    made = rich()
    made.lines = everywhere(made.lines)
    made.lines[0]["target"]["name"] = made.baseline_line["target"]["name"] = f"guarded {HOSTILE}"
    page = made.page()
    assert "<img" not in page
    for fact in (
        "called in the panel guarded",
        "rating",
        "of letters",
        "the model was changed",
        "the prompts differ from the baseline's",
        "notes: kept",
        "change 1, m1",
        "5 runs of m1",
    ):
        assert f"{fact} {HOSTILE}" in text_of(page)
    made.look_number += 5
    made.baseline([limit(HOSTILE)])
    made.look(
        {HOSTILE: (0.5, 99.0)},
        alarm={**ALARM, "names": [HOSTILE], "since": None, "drops": {HOSTILE: 0.1}},
    )
    made.baseline([limit()])
    page = made.page()
    assert text_of(page).count(f"ALARM: {HOSTILE} is 10.0 points worse") == 2
    assert "<img" not in page


def test_the_sections_are_reached_by_links() -> None:
    page = rich().page()
    assert "<!doctype html>" in page[:20]
    assert "<title>Panel: clinic</title>" in page
    assert re.findall(r'<a href="#\w+">([^<]+)</a>', page) == [
        "Limits",
        "Evidence",
        "Watched",
        "What happened",
        "What the panel promises",
        "Ledger",
    ]
    targets = set(re.findall(r'href="#([\w-]+)"', page))
    assert targets == {"main", "limits", "evidence", "watched", "events", "promise", "ledger"}
    assert all(f'id="{target}"' in page for target in targets)
    empty = monitor_page("clinic", History([], head=HEAD))
    assert set(re.findall(r'href="#([\w-]+)"', empty)) == {"main", "events", "ledger"}
    labelled = set(re.findall(r'aria-labelledby="([\w-]+)"', page))
    assert all(f'id="{name}"' in page for name in labelled)
