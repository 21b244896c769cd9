"""A suite's results as Markdown and as a page of HTML, and all of its files written: each whole or not at all."""

from __future__ import annotations

import base64
import hashlib
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from jsonschema import ValidationError

from eval_factory import __version__
from eval_factory.analysis.suite_files import link, suite_markdown, suite_page, write_suite_results
from eval_factory.analysis.suite_results import (
    CellResult,
    FinishedCell,
    SuiteResults,
    suite_results,
)
from eval_factory.core.enums import RunStatus
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.core.results import Floor, Spent, SpentByRole, Usage
from eval_factory.core.rundir import SuiteDir
from eval_factory.report.page.document import page_file, page_style
from facts import rows_of, says
from stored_results import PROVENANCE
from stored_suite import cell, cells, made, share

WELL = "1" * 30 + "0" * 10
ILL = "0" * 30 + "1" * 10

STYLE = page_style() + page_file("suite.css")


def lacking(text: str, *parts: str) -> list[str]:
    return [part for part in parts if part not in text]


def doubted(root: Path) -> SuiteResults:
    """A run that failed, one that is not reportable, and one of other known defects."""
    given = cells(root, {"x": {"a": WELL}})
    given.append(cell(root, "b", "x", WELL, provenance=replace(PROVENANCE, errata_version=9)))
    given.append(replace(cell(root, "c", "x", "11xx", reportable=False), status=RunStatus.PARTIAL))
    given.append(FinishedCell("a", "y", RunStatus.FAILED, root / "a" / "y", "HTTP 500"))
    return suite_results(given)


def test_a_complete_suite(tmp_path: Path) -> None:
    text = suite_markdown(suite_results(cells(tmp_path, {"x": {"b": ILL, "a": WELL}})), tmp_path)
    lines = text.splitlines()
    assert lines[0] == "# Results of the suite"
    says(lines[2], "Complete: 2 runs", "2 models", "1 benchmark")
    assert rows_of(text)[:3] == [
        ["model", "x<br>exact_match"],
        [":--", "--:"],
        ["b", "25.0 %<br>(15.0 % to 35.0 %)<br>n 40"],
    ]
    winner = ["a", "1.000", "1", "1 won, 0 lost, 0 open", "1"]
    at = rows_of(text).index(winner)
    assert rows_of(text)[at + 1] == ["b", "0.000", "2", "0 won, 1 lost, 0 open", "1"]
    assert ["x", "b", "a", "a is better", "40", "+50.0", "+19.6 to +71.6", "0.0022"] in rows_of(
        text
    )
    assert ["b (org/b)", "x", "complete", "`b/x`", "40", "0", "100.0 %", "1", "1", "-"] in rows_of(
        text
    )
    assert re.findall(r"(?m)^## (.*)", text) == ["Scores", "Win rates", "Comparisons", "Runs"]
    assert text.endswith("|\n")


def test_what_is_missing_left_out_and_not_comparable_is_told_with_its_reason(
    tmp_path: Path,
) -> None:
    what = (
        "correct the cause that the reason names, then run the suite again: it starts the failed "
        "runs"
    )
    assert (
        lacking(
            suite_markdown(doubted(tmp_path), tmp_path),
            "| c | 100.0 %<br>(90.0 % to 100.0 %)<br>n 2<br>**not reportable**<br>**partial** | - |",
            "| a | 75.0 %<br>(65.0 % to 85.0 %)<br>n 40 | failed |",
            "Not reportable:\n\n- c/x: only 50.0 % of its instances have a score\n",
            "## Win rates\n\nThere is no win rate: no benchmark has reportable scores of two models.\n",
            "Left out of the win rates:\n\n- c/x: its value is not reportable: only 50.0 %",
            "- x: its results cannot be compared: a and b were scored",
            "## Comparisons\n\nNot compared:\n\n- x, a and b: a and b were scored with different lists",
            f"| a | y | failed | HTTP 500 | {what} |",
        )
        == []
    )


def test_an_empty_suite_has_a_summary_alone(tmp_path: Path) -> None:
    text = suite_markdown(suite_results([]), tmp_path)
    assert ("Not complete: 0 of 0 runs" in text, "## Scores" in text) == (True, False)


def test_nothing_is_made_of_foreign_names(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script> | [x](http://h) @someone #12"
    given = cell(tmp_path, "a", "x", WELL, provenance=replace(PROVENANCE, target=hostile))
    failed = FinishedCell("a|b", "<img>", RunStatus.FAILED, tmp_path / "a|b" / "<img>", hostile)
    text = suite_markdown(suite_results([given, failed]), tmp_path)
    assert "<script>" not in text.replace("`<script>alert(1)</script>`", "").replace(
        "`(<script>alert(1)</script>`", ""
    )
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows if "HTTP" not in line}) <= 5
    assert lacking(text, "`@someone`", "`#12`", "`[x](http://h)`", "`a¦b`", "`<img>`") == []


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
    assert link(CellResult("a", "x", RunStatus.COMPLETE, Path(folder)), Path("s")) == href


def test_every_value_is_a_link_with_its_interval(tmp_path: Path) -> None:
    page = suite_page(suite_results(cells(tmp_path, {"x": {"a": WELL, "b": ILL}})), tmp_path)
    value = (
        '<a href="./a/x/report.html">75.0 %</a><small>65.0 % to 85.0 %</small><small>n 40</small>'
    )
    assert sections(page) == ["scores", "win-rates", "groups", "comparisons", "runs"]
    assert (
        lacking(
            page,
            f'<td class="top-rank">{value}</td>',
            '<td><a href="./b/x/report.html">25.0 %</a>',
            '<th scope="col" class="n">x <small>exact_match</small></th>',
            "x: 1 of 1 comparison shows a difference",
            '<div class="card good">',
            f"eval-factory {__version__}",
        )
        == []
    )


def test_the_policy_allows_the_pages_own_style_and_no_script(tmp_path: Path) -> None:
    page = suite_page(suite_results(cells(tmp_path, {"x": {"a": WELL}})), tmp_path)
    digest = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
    policy = ["default-src &#39;none&#39;", f"style-src &#39;sha256-{digest}&#39;"]
    assert lacking(page, *policy, f"<style>{STYLE}</style>") == []
    assert ("<script" in page, " style=" in page) == (False, False)
    assert re.findall(r'(?:src|href)="(?!#|\./|\.\./)', page) == []


def test_what_is_missing_and_what_is_doubted_is_marked(tmp_path: Path) -> None:
    page = suite_page(doubted(tmp_path), tmp_path)
    assert "missing" in sections(page)
    assert (
        lacking(
            page,
            '<span class="gap">failed</span>',
            "<small>not asked for</small>",  # b on y
            "not reportable</span>",
            "partial</span>",
            "1 score: not reportable.",
            '<a href="./c/x/report.html">c/x</a>: only 50.0 % of its instances have a score',
            '<td class="name">failed</td><td class="name">HTTP 500</td>',
            "There is no win rate",
            "c/x: its value is not reportable",
            '<div class="card bad">',
            "x: 0 of 0 comparisons show a difference; 3 not comparable",
        )
        == []
    )


def test_the_best_score_without_a_model_has_a_row_and_its_doubt_a_colour(tmp_path: Path) -> None:
    validity = made("a", "x", WELL).validity
    floor = Floor("always A", 0.9, 40, {"always A": 0.9})
    validity = replace(validity, floors={"exact_match": floor})
    results = suite_results([cell(tmp_path, "a", "x", WELL, validity=validity)])
    page = suite_page(results, tmp_path)
    assert lacking(page, '<tr class="floor">', "90.0 %", "always answering A") == []
    assert lacking(page, '<span class="doubt bad">', '<div class="card bad">') == []
    text = suite_markdown(results, tmp_path)
    row = next(line for line in text.splitlines() if line.startswith("| best score without"))
    assert "90.0 %" in row


def test_efficiency_and_other_groups_stand_below_with_their_win_rates(tmp_path: Path) -> None:
    worst = share(WELL, value=0.5, perturbation="robustness.worst")
    scores = {"exact_match": share(WELL), "exact_match@test+robustness.worst": worst}
    a, c = (cell(tmp_path, name, "x", WELL, scores=scores) for name in "ac")
    page = suite_page(
        suite_results([a, FinishedCell("b", "x", RunStatus.MISSING, tmp_path / "b" / "x"), c]),
        tmp_path,
    )
    runtime, rate = (
        f'<td class="n">{one}</td><td class="n">-</td><td class="n">{one}</td>'
        for one in ("0.1 s", "0.500")
    )
    assert (
        lacking(
            page,
            "<summary>robustness: 1 score</summary>",
            "<summary>efficiency: 1 score</summary>",
            f'<td class="name">inference_runtime</td>{runtime}',
            f'<th scope="row" class="name">mean win rate</th><td class="name"></td>{rate}',
        )
        == []
    )
    bare = suite_page(
        suite_results([FinishedCell("a", "x", RunStatus.MISSING, tmp_path)]), tmp_path
    )
    assert sections(bare) == ["scores", "missing", "win-rates", "runs"]


def test_foreign_text_is_text(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script>\"'><img src=x onerror=alert(1)>\u202e{{ 7*7 }}\0style\0"
    given = cell(tmp_path, "a", "x", WELL, provenance=replace(PROVENANCE, target=hostile))
    failed = FinishedCell("<b>", "<i>", RunStatus.FAILED, tmp_path / "y", hostile)
    page = suite_page(suite_results([given, failed]), tmp_path)
    evil = ("<script", "<img", "<b>", "<i>", "\u202e")
    assert lacking(page, *evil, "{{ 7*7 }}") == list(evil)
    assert page.count("<style>") == page.count(STYLE) == 1


def suite(root: Path, *, disturbed: bool) -> SuiteDir:
    """A disturbed run was killed, went on, and tried again: it has other times and more requests, and paid the same."""
    spent = Spent(
        requests=70 if disturbed else 40,
        cached=30 if disturbed else 0,
        retries=30 if disturbed else 0,
        prompt_tokens=400,
        completion_tokens=80,
        latency_p50_s=0.3,
        latency_p95_s=0.9,
    )
    part = replace(spent, prompt_tokens=100) if disturbed else spent
    usage = Usage(
        SpentByRole(part, {}),
        SpentByRole(spent, {}),
        3 if disturbed else 1,
        9.9 if disturbed else 3.3,
    )
    found = [
        cell(root, target, "x", answers, usage=usage)
        for target, answers in (("a", WELL), ("b", ILL))
    ]
    found.append(FinishedCell("c", "x", RunStatus.FAILED, root / "c" / "x", "HTTP 500"))
    folder = SuiteDir(root)
    write_suite_results(
        suite_results([replace(one, attempts=2 if disturbed else 1) for one in found]), folder
    )
    return folder


def test_a_disturbed_suite_leaves_the_table_of_an_undisturbed_one(tmp_path: Path) -> None:
    first = suite(tmp_path / "one", disturbed=False)
    second = suite(tmp_path / "two", disturbed=True)
    for name in ("results_yaml", "results_csv", "results_md"):
        assert getattr(first, name).read_bytes() == getattr(second, name).read_bytes(), name
    assert first.usage_yaml.read_bytes() != second.usage_yaml.read_bytes()
    whole = parse_own_text(first.results_yaml.read_text("utf-8"))
    assert [one["value"] for one in whole["cells"]] == [0.75, 0.25, None]
    assert [
        one["attempts"] for one in parse_own_text(second.usage_yaml.read_text("utf-8"))["cells"]
    ] == [2, 2]
    table, text, page = (
        path.read_text("utf-8")
        for path in (first.results_csv, first.results_md, first.results_html)
    )
    assert (table.count("\n"), text[:23], page[:15]) == (
        4,
        "# Results of the suite\n",
        "<!doctype html>",
    )


def test_a_folder_that_was_moved_has_the_same_table(tmp_path: Path) -> None:
    first = suite(tmp_path / "one", disturbed=False)
    before = {file.name: file.read_bytes() for file in first.root.iterdir() if file.is_file()}
    shutil.copytree(first.root, tmp_path / "two")
    second = SuiteDir(tmp_path / "two")
    of = {name: second.root / name / "x" for name in "abc"}
    moved = [FinishedCell(name, "x", RunStatus.COMPLETE, of[name], attempts=1) for name in "ab"]
    write_suite_results(
        suite_results([*moved, FinishedCell("c", "x", RunStatus.FAILED, of["c"], "HTTP 500")]),
        second,
    )
    assert {
        file.name: file.read_bytes() for file in second.root.iterdir() if file.is_file()
    } == before
    kinds = ("csv", "html", "md", "yaml")
    assert sorted(before) == [*(f"suite_results.{kind}" for kind in kinds), "suite_usage.yaml"]


def test_what_is_not_of_its_schema_is_not_written(tmp_path: Path) -> None:
    results = suite_results([cell(tmp_path, "a", "x", WELL)])
    broken = replace(results, cells=(replace(results.cells[0], n=-1),))
    with pytest.raises(ValidationError):
        write_suite_results(broken, SuiteDir(tmp_path))
    assert not SuiteDir(tmp_path).results_csv.exists()
