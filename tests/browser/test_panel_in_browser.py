"""The page of a panel as a reader sees it: in the dark, on a phone, with names that would be scripts."""

from __future__ import annotations

from pathlib import Path

from chromium import Chromium, Counted
from facts import says
from invented_ledger import rich

OVERFLOW = "return [document.documentElement.scrollWidth - document.documentElement.clientWidth]"


def test_the_page_of_a_panel(tmp_path: Path, browser: Chromium, outside: Counted) -> None:
    page = tmp_path / "report.html"
    page.write_text(rich().page().replace("h.test", outside.url.removeprefix("http://")))
    for dark, width in ((False, 1200), (True, 390)):
        browser.dark(dark)
        browser.width(width)
        browser.open(page)
        assert browser.run(OVERFLOW) == [0]
        assert browser.accessibility_violations() == []
    assert browser.run("return [document.scripts.length, document.images.length]") == [0, 0]
    says(browser.text(".card"), "ALARM: letters", "0.3 worse", "look 12")
    assert (browser.foreign(), outside.paths) == ([], [])
