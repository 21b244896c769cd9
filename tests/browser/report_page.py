"""The page of results as a reader uses it: what is on it, by the names that its elements have."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from click.testing import CliRunner

from chromium import Chromium, Keys
from eval_factory.cli.main import main

IDS_SHOWN = "[...document.querySelectorAll('#rows tr')].filter(row => row.offsetParent).map(row => row.dataset.id)"
SHOWN = "!document.getElementById('browser').hidden && document.querySelector('#rows tr')"
OPENED = "!document.getElementById('detail').hidden && !document.getElementById('detail').hasAttribute('aria-busy')"


def made(page: Path, *folders: Path, without_texts: bool = False) -> Path:
    """`eval-factory report`."""
    flags = ["--no-text"] if without_texts else []
    outcome = CliRunner().invoke(main, ["report", *map(str, folders), "-o", str(page), *flags], catch_exceptions=False)
    assert outcome.exit_code == 0, outcome.output
    return page


class ReportPage:
    """One page in a browser, with its table there."""

    def __init__(self, browser: Chromium, file: Path, fragment: str = "") -> None:
        self.browser = browser
        browser.open(file, fragment)
        browser.wait(SHOWN)

    def status(self) -> str:
        return self.browser.text("#status")

    def rows(self) -> int:
        return int(self.browser.run("return document.querySelectorAll('#rows tr').length"))

    def search(self, words: str) -> None:
        """Typed into the search box, and waited for."""
        self.browser.run("const box = document.getElementById('search'); box.value = ''; box.focus()")
        self.browser.type(words)

    def press(self, key: str) -> None:
        self.browser.type(key)

    def open_by(self, key: str) -> str:
        """What is read of the instance that a key opens."""
        self.press(key)
        self.browser.wait(OPENED)
        return self.browser.text("#detail")

    def detail(self) -> str:
        return self.browser.text("#detail")

    def address(self) -> str:
        return str(self.browser.run("return location.hash"))

    def go_to(self, fragment: str) -> None:
        self.browser.run("location.hash = arguments[0]", fragment)

    def dialogs_and_canary(self) -> Any:
        return self.browser.run("return window.canary")


__all__ = ["Keys", "ReportPage", "made"]
