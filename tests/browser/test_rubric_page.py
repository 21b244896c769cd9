"""The page of a rubric: what judges said of each criterion, where points are lost, and nothing of it without texts."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from browser.test_hostile_page import harm
from browser.test_report_page import UNPACKED
from browser_page import ReportPage, deep_link, made
from chromium import Chromium, Counted
from eval_factory.core.results import (
    InstanceRecord,
    PairAgreement,
    RubricReport,
    RubricVotes,
    TaskResult,
)
from facts import says
from hostile_texts import payloads
from stored_results import criterion, instance, rubric_result, written

PATIENT = "Mrs Miller, 84"
LONG = f"{PATIENT} criterion that is long. " * 30
REPORT = RubricReport(
    RubricVotes(24, 11, 8, 1, 4),
    {name: RubricVotes(24, 12, 11, 1, 0, 0.5) for name in ("kind", "strict")},
    {"kind/strict": PairAgreement(23, 0.826, 0.65)},
    0.66,
    0.83,
)
CRITERIA = (
    "return [...document.querySelectorAll('#detail .criteria > li')].map(one => one.innerText)"
)
UNFOLD = "document.querySelectorAll('details').forEach(one => { one.open = true; })"


def conversation(number: int, **changes: object) -> InstanceRecord:
    """Even ones lose points on accuracy; of the first a judge gave no decision, of the third there is none at all."""
    lost = number % 2 == 0
    said = {"kind": True, "strict": "HTTP 500: " + PATIENT if number == 0 else not lost}
    criteria = (
        criterion(
            5,
            "met",
            "axis:completeness",
            f"ward:{PATIENT}",
            text=f"{PATIENT} shared by all",
            kind=True,
            strict=True,
        ),
        criterion(
            8,
            "tied" if lost else "met",
            "axis:accuracy",
            text=f"{PATIENT} criterion {number}",
            **said,
        ),
        criterion(
            -3, "met" if number == 1 else "not met", text=LONG, kind=number == 1, strict=number == 1
        ),
        criterion(
            2,
            "unjudged" if number == 2 else "not met",
            "axis:accuracy",
            text="Says <i>when</i>",
            kind="none" if number == 2 else False,
        ),
    )
    return instance(
        f"q{number}",
        0.5,
        "rubric_score",
        criteria=criteria,
        categories={"theme": ("fever", "pain")[number % 2]},
        turns=(
            {"role": "user", "content": f"{PATIENT} asks"},
            {"role": "assistant", "content": "Since when?"},
            {"role": "user", "content": f"{PATIENT} answers"},
        ),
        completion=f"{PATIENT} is told",
        judges={"kind": 1.0, "strict": 0.25},
    )


def rubric(count: int = 6) -> TaskResult:
    records = [
        *(conversation(number) for number in range(count)),
        replace(conversation(count), error="HTTP 500"),
    ]
    groups = ("axis:accuracy", "axis:completeness", "theme:fever", "theme:pain")
    return rubric_result(records, REPORT, groups)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("rubric") / "a", rubric())


def test_an_opened_conversation_has_its_criteria_the_costly_ones_first(
    folder: Path, browser: Chromium
) -> None:
    page = ReportPage(browser, folder / "report.html", deep_link("q1"))
    details = "[...document.querySelectorAll('#detail .criteria details')]"
    opened = browser.run(f"return {details}.filter(one => one.open).length")
    shown = page.detail()
    rows = [" ".join(row.split()) for row in browser.run(CRITERIA)]
    assert opened == 2  # what costs points
    assert (
        shown.index(f"{PATIENT} asks")
        < shown.index("Since when?")
        < shown.index(f"{PATIENT} is told")
    )
    says(shown, "3 met", "1 not met", "5 points lost", "of 15")
    says(rows[0], "✕ met \u22123 points", "unwanted, costs 3", "Criterion 3")
    assert PATIENT in rows[0]
    says(
        rows[1],
        "✕ not met",
        "+2 points, costs 2",
        "Says <i>when</i>",
        "axis:accuracy",
        "kind: not met",
        "words of kind",
    )
    assert rows[2].startswith(f"✓ met +5 points {PATIENT} shared by all axis:completeness")
    assert browser.run(
        "return [...document.querySelectorAll('.criteria > li')].map(one => one.value)"
    ) == [3, 4, 1, 2]
    (half,) = (row for row in browser_rows(page, "q0") if "tied" in row)
    says(half, "½ tied +8 points", "costs 4")
    says(half, "strict: no decision", "HTTP 500")
    assert PATIENT in half
    (open_one,) = (row for row in browser_rows(page, "q2") if "unjudged" in row)
    says(open_one, "? unjudged +2 points", "Says")


def browser_rows(page: ReportPage, key: str) -> list[str]:
    page.go_to(deep_link(key))
    page.detail()
    return [" ".join(row.split()) for row in page.browser.run(CRITERIA)]


def test_conversations_are_chosen_by_their_criteria(folder: Path, browser: Chromium) -> None:
    page = ReportPage(browser, folder / "report.html")

    def chosen(flag: str) -> list[str]:
        browser.click(f"[data-flag={flag}]")
        found = page.ids()
        browser.click(f"[data-flag={flag}]")
        return found

    assert chosen("criterion_undecided") == ["q0", "q2"]
    assert chosen("harm_met") == ["q1"]
    assert chosen("criterion_not_met") == ["q0", "q1", "q3", "q4", "q5"]
    assert chosen("disagree") == ["q2", "q4"]
    says(browser.text("#rubric ~ p"), "11 of 24 criteria", "8 not met", "4 tied", "1 unjudged")
    browser.run(
        "[...document.querySelectorAll('a[data-lost]')].find(one => one.textContent === '1').click()"
    )
    assert page.ids() == ["q1"]  # LONG is unwanted, and met there alone
    lost = "const lost = document.getElementById('lost'); lost.selectedIndex = 1;"
    browser.run(f"{lost} lost.dispatchEvent(new Event('change'))")
    assert (
        browser.run("return document.getElementById('lost').selectedOptions[0].text")
        == "axis:accuracy"
    )
    assert page.ids() == [f"q{number}" for number in range(6)]
    assert page.search("criterion 3") == ["q3"]


def test_axe_finds_nothing_and_a_narrow_screen_scrolls_down_only(
    folder: Path, browser: Chromium
) -> None:
    ReportPage(browser, folder / "report.html").step("j")
    browser.run(UNFOLD)
    assert browser.accessibility_violations() == []
    browser.dark(True)
    browser.width(390)
    ReportPage(browser, folder / "report.html").step("j")
    browser.run(UNFOLD)
    assert browser.accessibility_violations() == []
    assert browser.run("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.foreign() == browser.said() == []


def test_without_texts_numbers_are_left(folder: Path, browser: Chromium, tmp_path: Path) -> None:
    page = ReportPage(browser, made(tmp_path / "page.html", folder, without_texts=True))
    browser.run(UNFOLD)
    everything = browser.text()
    rows = browser_rows(page, "q1")
    says(rows[0], "✕ met \u22123 points", "unwanted, costs 3", "kind: met strict: met")
    says(rows[1], "✕ not met", "+2 points, costs 2", "Criterion 4", "kind: not met")
    unpacked = browser.driver.execute_async_script(UNPACKED)
    seen = [everything, browser.driver.page_source, unpacked]
    seen += [" ".join(browser_rows(page, f"q{number}")) for number in range(6)]
    words = (PATIENT, "Miller", "words of kind", "Says", "HTTP 500", "shared by all", "ward:")
    assert [word for word in words if any(word in text for text in seen)] == []


def test_what_a_rubric_and_its_judges_say_is_text(
    browser: Chromium, outside: Counted, tmp_path: Path
) -> None:
    texts = list(payloads(outside.url).values())
    records = [
        instance(
            f"q{number}",
            1.0,
            "rubric_score",
            criteria=tuple(
                {
                    "criterion": text,
                    "points": 1,
                    "tags": [text, f"axis:{text}"],
                    "verdict": "not met",
                    "judges": {
                        text: {"criteria_met": False, "explanation": f"because {text}"},
                        "__proto__": {"error": text},
                    },
                }
                for text in texts
            ),
            turns=({"role": text, "content": text},),
        )
        for number, text in enumerate(texts[:3])
    ]
    report = replace(
        REPORT,
        judges=dict.fromkeys(texts, REPORT.criteria),
        agreement=dict.fromkeys(texts, PairAgreement(1, 1.0)),
    )
    outside.paths.clear()
    page = ReportPage(
        browser, written(tmp_path / "x", rubric_result(records, report)) / "report.html"
    )
    browser.run(UNFOLD)
    assert browser.run("return document.getElementById('lost').options.length") > len(texts[:20])
    said = " ".join(page.go_to(deep_link("q2")).split())
    assert [text for text in texts if f"because {' '.join(text.split())}" not in said] == []
    assert harm(browser, outside) == {}
