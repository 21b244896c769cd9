"""Ten thousand instances on one page."""

from __future__ import annotations

from pathlib import Path

from made_up_answers import instances

from browser.report_page import ReportPage, deep_link
from chromium import Chromium
from stored_results import result, written

COUNT = 10_000


def test_ten_thousand_instances_are_less_than_twelve_megabytes(tmp_path: Path, browser: Chromium) -> None:
    page = written(tmp_path / "run", result(list(instances(COUNT)))) / "report.html"
    lines = sum((page.parent / name).stat().st_size for name in ("instances.jsonl", "results.jsonl"))
    assert lines > 2700 * COUNT
    assert page.stat().st_size < 12_000_000
    shown = ReportPage(browser, page, deep_link(f"id{COUNT - 1}"))
    assert shown.title() == f"Instance id{COUNT - 1}"
    assert "Answer A for yes, B for no or C for maybe." in shown.detail()
    assert shown.status() == f"{COUNT:,} of {COUNT:,} instances"
