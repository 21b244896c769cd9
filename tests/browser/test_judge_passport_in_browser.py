"""A judge's passport as a reader sees it: in the dark, on a phone, with names that would be scripts."""

from __future__ import annotations

from pathlib import Path

from chromium import Chromium, Counted
from eval_factory import api
from hostile_texts import payloads
from invented_labels import COLUMN, drawn, written_labels

OVERFLOW = "return [document.documentElement.scrollWidth - document.documentElement.clientWidth]"


def test_the_page_of_a_judge(tmp_path: Path, browser: Chromium, outside: Counted) -> None:
    names = [
        " ".join(one.split())[:200] for one in payloads(outside.url).values() if one.isprintable()
    ]
    labels = written_labels(tmp_path / "labels.jsonl", drawn(12 * len(names), categories=names))
    made = api.calibrate(labels, judge_labels=COLUMN, judge=names[0], to=tmp_path / "passport")
    for dark, width in ((False, 1200), (True, 390)):
        browser.dark(dark)
        browser.width(width)
        browser.open(made.files[1])
        assert browser.run(OVERFLOW) == [0]
        assert browser.accessibility_violations() == []
    assert browser.run("return [window.canary === undefined, document.scripts.length]") == [True, 0]
    assert made.passport.verdict[0] in browser.text(".card")
    assert "physicians with each other" in browser.text("#agreement")
    assert all(name in browser.text("#categories") for name in names)
    assert (browser.foreign(), outside.paths) == ([], [])


def test_the_page_of_several_juries(tmp_path: Path, browser: Chromium, outside: Counted) -> None:
    """Fields may be called anything: nothing is written outside of the folder, and no name is run."""
    names = ["../../up", f"<img src={outside.url}>", COLUMN]
    rows = [
        {**row, names[0]: number % 3 > 0, names[1]: number % 5 > 0}
        for number, row in enumerate(drawn(60))
    ]
    made = api.calibrate(
        written_labels(tmp_path / "labels.jsonl", rows),
        judge_labels=names,
        to=tmp_path / "deep" / "passport",
    )
    assert all((tmp_path / "deep" / "passport") in file.resolve().parents for file in made.files)
    assert not (tmp_path / "up").exists()
    for dark, width in ((False, 1200), (True, 390)):
        browser.dark(dark)
        browser.width(width)
        browser.open(made.files[-1])
        assert browser.run(OVERFLOW) == [0]
        assert browser.accessibility_violations() == []
    assert "macro F1, cross-validated" in browser.text()
    assert (browser.foreign(), outside.paths) == ([], [])
