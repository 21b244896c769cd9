"""The form of a rater in a browser: filled in with the keyboard alone, kept, downloaded, and imported."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser.test_hostile_page import BREAK_IN, FOREIGN_MARKUP
from chromium import CANARY, Chromium, Counted, Keys
from eval_factory.core.annotations import AnswerKey, Question, RatingChoice, ShownAnswer
from eval_factory.report.page.document import rater_form
from eval_factory.workflows.annotate import Exported, import_sheets
from eval_factory.workflows.verify import verify
from facts import says
from hostile_texts import ODD, payloads
from rated_folder import exported, folder_to_rate, people_say
from unit.core.test_annotations import SAMPLE

RATED = 32
ITEM = "return document.getElementById('title').textContent"
FOCUS = "const one = document.activeElement; return one.id || one.name || one.tagName"


@pytest.fixture
def sheet(tmp_path: Path) -> Exported:
    return exported(folder_to_rate(tmp_path / "out"), tmp_path / "sheet", RATED, raters=1)


@pytest.fixture
def downloads(browser: Chromium, tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "downloads"
    folder.mkdir()
    browser.driver.execute_cdp_cmd(
        "Browser.setDownloadBehavior", {"behavior": "allow", "downloadPath": str(folder)}
    )
    yield folder
    browser.driver.execute_cdp_cmd("Browser.setDownloadBehavior", {"behavior": "default"})


def downloaded(folder: Path) -> Path:
    """The one file that came, when it is whole."""
    end = time.monotonic() + 30
    while time.monotonic() < end:
        found = [file for file in folder.iterdir() if file.suffix == ".csv"]
        if found:
            return found[0]
        time.sleep(0.05)
    raise TimeoutError(f"nothing was downloaded to {folder}")


def opened(browser: Chromium, sheet: Exported) -> Path:
    """The form, of which the browser keeps nothing from before: the same sample has the same id."""
    page = next(file for file in sheet.files if file.suffix == ".html")
    browser.open(page)
    browser.run("localStorage.clear()")
    browser.open(page)
    return page


def code(browser: Chromium) -> str:
    return str(browser.run(ITEM)).rpartition(": ")[2]


def test_filled_in_with_the_keyboard_alone_and_imported(
    sheet: Exported, browser: Chromium, downloads: Path
) -> None:
    """By number keys, by Tab and arrows; the page is left and opened again between."""
    answers = {one.code: one for one in sheet.sample.answers}
    page = opened(browser, sheet)
    for number in range(RATED):
        said = people_say(answers[code(browser)], 1)
        if number == 0:  # Tab to the first rating, then the arrow to the other one
            browser.run("document.getElementById('title').focus()")
            while browser.run(FOCUS) != "q0":
                browser.type(Keys.TAB)
            browser.type(Keys.SPACE)
            if said == "no":
                browser.type(Keys.ARROW_RIGHT)
        else:
            browser.type("1" if said == "yes" else "2")
        assert browser.run("return document.querySelector('input:checked').value") == said
        if number == RATED // 2:
            here = browser.run(ITEM)
            browser.open(page)
            # Chromium hands localStorage from one process to the next in its own time
            if browser.run(ITEM) != here:
                browser.open(page)
            assert browser.run(ITEM) == here
            says(browser.text("#status"), "Your ratings", "here again")
            browser.run("document.getElementById('next').focus()")
        if number == 0:
            browser.type("n")
        elif number < RATED - 1:
            assert browser.run(FOCUS) == "next"
            browser.type(Keys.ENTER)
    assert browser.text("#rated") == f"{RATED} of {RATED}"
    assert browser.run(FOCUS) == "download"
    browser.type(Keys.ENTER)
    file = downloaded(downloads)
    assert file.read_bytes().startswith(b"\xef\xbb\xbfsheet,rater,item,number,rating,comment\r\n")
    found = import_sheets(sheet.sample_file.parents[1], [file])
    assert (found.ratings, found.clinicians.rated) == (RATED, RATED)
    expected = [people_say(one, 1) for one in sheet.sample.answers].count("yes")
    kept = [line for line in file.read_text("utf-8-sig").splitlines() if ",yes," in line]
    assert len(kept) == expected
    assert verify(sheet.sample_file.parents[1]).intact
    assert browser.foreign() == []
    assert browser.said() == []


def test_the_copy_the_keys_and_what_is_left_open(sheet: Exported, browser: Chromium) -> None:
    opened(browser, sheet)
    first = code(browser)
    browser.type("n", "2")
    second = code(browser)
    browser.run("document.getElementById('comment').focus()")
    browser.type("=1;2 n\nwhy")
    assert code(browser) == second  # letters of a comment are no keys
    text = browser.run("return document.getElementById('csv').value")
    assert text.splitlines()[1:] == [f'{sheet.sample.id},1,{second},1,no,"\'=1;2 n \u23ce why"']
    browser.run("document.getElementById('next').focus()")
    browser.type("p")
    assert code(browser) == first
    browser.type("u")
    assert browser.run(ITEM).startswith("Answer 3 of")
    browser.type("p")
    browser.click("#clear")
    assert browser.text("#rated") == f"0 of {RATED}"


def test_a_browser_that_keeps_nothing_is_told(sheet: Exported, browser: Chromium) -> None:
    blocked = (
        "Object.defineProperty(window, 'localStorage', {get() { throw new DOMException('no'); }})"
    )
    made = browser.driver.execute_cdp_cmd(
        "Page.addScriptToEvaluateOnNewDocument", {"source": blocked}
    )
    try:
        browser.open(next(file for file in sheet.files if file.suffix == ".html"))
        says(browser.text("#lost"), "does not keep")
        browser.type("1")
        assert browser.text("#status") == "yes, not kept."
        assert browser.text("#rated") == f"1 of {RATED}"
    finally:
        browser.driver.execute_cdp_cmd(
            "Page.removeScriptToEvaluateOnNewDocument", {"identifier": made["identifier"]}
        )
        browser.run("window.onbeforeunload = null; window.stop()")


def hostile_form(folder: Path, url: str) -> tuple[Path, list[str]]:
    texts = [*payloads(url).values(), *(f"before{odd}after" for odd in ODD.values())]
    codes = [f"c{number}" for number in range(len(texts))]
    answers = tuple(
        replace(SAMPLE.answers[0], code=one, questions=(Question(text), Question("=cmd")))
        for one, text in zip(codes, texts, strict=True)
    )
    scale = tuple(RatingChoice(float(one), str(one)) for one in range(1, 6))
    shown = {
        one: ShownAnswer(
            AnswerKey("id", 0),
            (("user", text), (text, text)),
            text,
            (text,),
            answers[0].questions,
            "d",
        )
        for one, text in zip(codes, texts, strict=True)
    }
    file = folder / "rater_1.html"
    sample = replace(SAMPLE, id="hostile", answers=answers, choices=scale)
    file.write_text(rater_form(sample, "1", codes, shown, with_reference=True), "utf-8")
    return file, texts


def test_nothing_that_others_wrote_runs(
    tmp_path: Path, browser: Chromium, outside: Counted
) -> None:
    outside.paths.clear()
    file, texts = hostile_form(tmp_path, outside.url)
    browser.open(file)
    own = FOREIGN_MARKUP.replace("ROOT", "document.getElementById('texts')")
    for number, text in enumerate(texts):
        assert browser.run(own) == [], text
        if text.isprintable():
            assert " ".join(text.split()) in " ".join(browser.text("#texts").split())
            assert " ".join(text.split()) in " ".join(browser.text("#asked").split())
        browser.run("document.getElementById('next').focus()")
        if number + 1 < len(texts):
            browser.type("3", "5", "n")
    found = [browser.run("return window.canary"), browser.foreign(), outside.paths, browser.said()]
    assert found == [None, [], [], []]
    broken = browser.driver.execute_async_script(BREAK_IN, outside.url, CANARY)
    assert broken
    assert (browser.run("return window.canary"), outside.paths) == (None, [])
    browser.said()


@pytest.mark.parametrize("dark", [False, True])
def test_anybody_can_use_it(sheet: Exported, browser: Chromium, dark: bool) -> None:
    browser.dark(dark)
    opened(browser, sheet)
    browser.type("1")
    assert browser.accessibility_violations() == []
    browser.width(360)
    assert browser.run("return document.documentElement.scrollWidth") <= 360
