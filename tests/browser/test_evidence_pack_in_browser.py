"""An evidence pack as a committee reads it: in the dark, on a phone, with names that would be scripts."""

from __future__ import annotations

from pathlib import Path

from chromium import Chromium, Counted
from eval_factory.analysis.paper import pack_of_panel
from eval_factory.monitor.ledger import History
from eval_factory.monitor.report import PanelPackWriter
from eval_factory.report.evidence_packs import PACKS
from eval_factory.report.page.document import pack_page
from facts import says
from hostile_texts import payloads
from invented_ledger import alarm, baseline, ledger, look, note
from stored_results import right_or_wrong

OVERFLOW = "return [document.documentElement.scrollWidth - document.documentElement.clientWidth]"


def test_the_page_of_a_pack(tmp_path: Path, browser: Chromium, outside: Counted) -> None:
    folder = right_or_wrong(tmp_path / "run", "1101")
    lines = ledger(
        baseline(),
        look(2, alarm(2)),
        *(note(text, text) for text in payloads(outside.url).values()),
    )
    panel = PanelPackWriter(History(lines, head="e" * 64), {})
    for name in PACKS:
        page = tmp_path / f"{name}.html"
        page.write_text(pack_page(pack_of_panel(name, panel.render_sentences, [folder])), "utf-8")
        for dark, width in ((False, 1200), (True, 390)):
            browser.dark(dark)
            browser.width(width)
            browser.open(page)
            assert browser.run(OVERFLOW) == [0]
            assert browser.accessibility_violations() == []
        assert browser.run("return [window.canary === undefined, document.scripts.length]") == [
            True,
            0,
        ]
        says(browser.text(".card.bad"), "ALARM: ", "limit: notes", "worse by 0.0600")
        assert "exact_match = 0.5000" in browser.text("#known")
    assert (browser.foreign(), outside.paths) == ([], [])
