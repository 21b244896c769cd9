"""The browser itself: what a page must not do would be seen if it did it."""

from __future__ import annotations

from pathlib import Path

import pytest

import chromium
from chromium import CANARY, Chromium, Counted

PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>a page</title><main><h1>A page</h1>%s</main></html>"""


def page(folder: Path, content: str) -> Path:
    file = folder / "page.html"
    file.write_text(PAGE % content, "utf-8")
    return file


def test_what_a_page_runs_and_requests_is_seen(tmp_path: Path, browser: Chromium, outside: Counted) -> None:
    content = f"<script>{CANARY}</script><img src={outside.url}/image alt=x><script src=http://elsewhere.example/x.js></script>"
    browser.open(page(tmp_path, content))
    assert browser.run("return window.canary") == 1
    assert set(browser.foreign()) == {f"{outside.url}/image", "http://elsewhere.example/x.js"}
    assert "/image" in outside.paths
    assert any("elsewhere.example" in line for line in browser.said())
    browser.open(page(tmp_path, "nothing"))
    assert (browser.run("return window.canary"), browser.foreign(), browser.said()) == (None, [], [])


def test_what_is_not_accessible_is_seen(tmp_path: Path, browser: Chromium) -> None:
    browser.open(page(tmp_path, "<img src=data:,><p style='color:#aaa;background:#fff'>pale</p>"))
    found = {line.partition(":")[0] for line in browser.accessibility_violations()}
    assert found == {"image-alt", "color-contrast"}
    browser.open(page(tmp_path, "<p>well</p>"))
    assert browser.accessibility_violations() == []


def test_where_no_browser_is_installed_the_tests_say_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert chromium.programs() is None
    with pytest.raises(FileNotFoundError, match="apt-get install chromium chromium-driver"):
        Chromium(tmp_path)
