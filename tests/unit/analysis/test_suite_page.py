"""A suite's page: links to the reports, marks, sections, and names that stay text."""

from __future__ import annotations

import base64
import hashlib
import re
from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory import __version__
from eval_factory.analysis.suite_page import link, suite_page
from eval_factory.analysis.suite_records import CellResult
from eval_factory.analysis.suite_results import FinishedCell, suite_results
from eval_factory.report.page.document import tables_style
from stored_results import PROVENANCE
from stored_suite import cell, cells, share

WELL, ILL = "1" * 30 + "0" * 10, "0" * 30 + "1" * 10


def sections(page: str) -> list[str]:
    return re.findall(r'<section id="([a-z-]+)"', page)


@pytest.mark.parametrize(
    ("folder", "href"),
    [
        ("s/a/x", "./a/x/report.html"),
        ("other/a/x", "../other/a/x/report.html"),
        ("s/javascript:alert(1)/x", "./javascript%3Aalert%281%29/x/report.html"),
        ('s/"><b>/#?', "./%22%3E%3Cb%3E/%23%3F/report.html"),
        ("s/\udcff/x", "./%FF/x/report.html"),
    ],
    ids=["inside", "other suite", "address", "markup", "no text"],
)
def test_a_cell_leads_to_its_runs_report(folder: str, href: str) -> None:
    assert link(CellResult("a", "x", "complete", Path(folder)), Path("s")) == href


def test_every_value_is_a_link_with_its_interval(tmp_path: Path) -> None:
    page = suite_page(suite_results(cells(tmp_path, {"x": {"a": WELL, "b": ILL}})), tmp_path)
    value = '<a href="./a/x/report.html">75.0 %</a><small>65.0 % to 85.0 %</small><small>n 40</small>'
    assert f'<td class="top-rank">{value}</td>' in page
    assert '<td><a href="./b/x/report.html">25.0 %</a>' in page
    assert '<th scope="col" class="n">x <small>exact_match</small></th>' in page
    assert sections(page) == ["scores", "win-rates", "groups", "comparisons", "runs"]
    assert "x: 1 of 1 comparison shows a difference" in page
    assert '<div class="card good">' in page
    assert f"eval-factory {__version__}" in page


def test_the_policy_allows_the_pages_own_style_and_no_script(tmp_path: Path) -> None:
    page = suite_page(suite_results(cells(tmp_path, {"x": {"a": WELL}})), tmp_path)
    digest = base64.b64encode(hashlib.sha256(tables_style().encode()).digest()).decode()
    assert f"style-src &#39;sha256-{digest}&#39;" in page
    assert f"<style>{tables_style()}</style>" in page
    assert "default-src &#39;none&#39;" in page
    assert "<script" not in page
    assert " style=" not in page
    assert re.findall(r'(?:src|href)="(?!#|\./|\.\./)', page) == []


def test_what_is_missing_and_what_is_doubted_is_marked(tmp_path: Path) -> None:
    given = cells(tmp_path, {"x": {"a": WELL}})
    given.append(replace(cell(tmp_path, "b", "x", "11xx", reportable=False), status="partial"))
    given.append(FinishedCell("a", "y", "failed", tmp_path / "a" / "y", "HTTP 500"))
    page = suite_page(suite_results(given), tmp_path)
    assert '<span class="gap">failed</span>' in page
    assert "<small>not asked for</small>" in page  # b on y
    assert '<span class="doubt">not reportable</span><span class="doubt">partial</span>' in page
    assert "1 value is not reportable" in page
    assert '<a href="./b/x/report.html">b/x</a>: only 50.0 % of what was asked is scored' in page
    assert '<td>failed</td><td class="reason">HTTP 500</td>' in page
    assert "No two models have values" in page
    assert "b/x: its value is not reportable" in page
    assert '<div class="card warn">' in page
    assert "missing" in sections(page)
    assert "x: 0 of 0 comparisons show a difference; 1 not comparable" in page


def test_efficiency_and_other_groups_stand_below_with_their_win_rates(tmp_path: Path) -> None:
    worst = share(WELL, value=0.5, perturbation="robustness.worst")
    scores = {"exact_match": share(WELL), "exact_match@test+robustness.worst": worst}
    given = [cell(tmp_path, "a", "x", WELL, scores=scores), FinishedCell("b", "x", "missing", tmp_path / "b" / "x")]
    given.append(cell(tmp_path, "c", "x", WELL, scores=scores))
    page = suite_page(suite_results(given), tmp_path)
    assert "<summary>robustness: 1 score</summary>" in page
    assert "<summary>efficiency: 1 score</summary>" in page
    assert (
        '<td class="name">inference_runtime</td><td class="n">0.1 s</td><td class="n">-</td><td class="n">0.1 s</td>'
        in page
    )
    assert (
        '<th scope="row">mean win rate</th><td></td><td class="n">0.500</td><td class="n">-</td><td class="n">0.500</td>'
        in page
    )
    bare = suite_page(suite_results([FinishedCell("a", "x", "missing", tmp_path)]), tmp_path)
    assert sections(bare) == ["scores", "missing", "win-rates", "runs"]


def test_foreign_text_is_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e{{ 7*7 }}\0style\0"
    given = cell(tmp_path, "a", "x", WELL, provenance=replace(PROVENANCE, target=hostile))
    failed = FinishedCell("<b>", "<i>", "failed", tmp_path / "y", hostile)
    page = suite_page(suite_results([given, failed]), tmp_path)
    assert "<script" not in page
    assert "<img" not in page
    assert "<b>" not in page
    assert "<i>" not in page
    assert "\u202e" not in page
    assert "{{ 7*7 }}" in page
    assert page.count("<style>") == page.count(tables_style()) == 1


def test_the_same_folders_give_the_same_page(tmp_path: Path) -> None:
    given = cells(tmp_path, {"x": {"a": WELL, "b": ILL}})
    assert suite_page(suite_results(given), tmp_path) == suite_page(suite_results(given), tmp_path)
