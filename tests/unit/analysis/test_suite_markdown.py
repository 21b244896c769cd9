"""A suite's results as Markdown: its sections, and names that stay text."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eval_factory.analysis.metric_groups import GroupScore
from eval_factory.analysis.suite_markdown import markdown
from eval_factory.analysis.suite_results import FinishedCell, suite_results
from stored_results import PROVENANCE
from stored_suite import cell, cells, share

WELL, ILL = "1" * 30 + "0" * 10, "0" * 30 + "1" * 10


def test_a_complete_suite(tmp_path: Path) -> None:
    text = markdown(suite_results(cells(tmp_path, {"x": {"b": ILL, "a": WELL}})), tmp_path)
    assert text.splitlines()[:9] == [
        "# Results of the suite",
        "",
        "Complete: 2 runs of 2 models on 1 benchmark.",
        "",
        "## Scores",
        "",
        "| model | x<br>exact_match |",
        "| :-- | --: |",
        "| b | 25.0 %<br>(15.0 % to 35.0 %)<br>n 40 |",
    ]
    assert "| a | 1.000 | 1 | 1 won, 0 lost, 0 open | 1 |\n| b | 0.000 | 2 | 0 won, 1 lost, 0 open | 1 |\n" in text
    assert "| x | b | a | a is better | 40 | +50.0 | +19.6 to +71.6 | 0.0022 |" in text
    assert "| b (org/b) | x | complete | `b/x` | 40 | 0 | 100.0 % | 1 | 1 | - |" in text
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## Scores", "## Win rates", "## Comparisons", "## Runs"
    ]  # fmt: skip
    assert text.endswith("|\n")


def test_what_is_missing_left_out_and_not_comparable_is_told_with_its_reason(tmp_path: Path) -> None:
    given = cells(tmp_path, {"x": {"a": WELL}})
    given.append(cell(tmp_path, "b", "x", WELL, provenance=replace(PROVENANCE, errata_version=9)))
    given.append(replace(cell(tmp_path, "c", "x", "11xx", reportable=False), status="partial"))
    given.append(FinishedCell("a", "y", "failed", tmp_path / "a" / "y", "HTTP 500"))
    text = markdown(suite_results(given), tmp_path)
    assert "| c | 100.0 %<br>(90.0 % to 100.0 %)<br>n 2<br>**not reportable**<br>**partial** | - |" in text
    assert "| a | 75.0 %<br>(65.0 % to 85.0 %)<br>n 40 | failed |" in text
    assert "Not reportable:\n\n- c/x: only 50.0 % of what was asked is scored\n" in text
    assert "## Win rates\n\nNo two models have values that a win rate could be made of.\n" in text
    assert "Left out of the win rates:\n\n- c/x: its value is not reportable: only 50.0 %" in text
    assert "- x: its results cannot be compared: a and b were scored" in text
    assert "## Comparisons\n\nNot compared:\n\n- x, a and b: a and b were scored with different lists" in text
    what = "correct what the reason names, then run the suite again: it begins what failed"
    assert f"| a | y | failed | HTTP 500 | {what} |" in text


def test_scores_of_other_metric_groups(tmp_path: Path) -> None:
    worst = share(WELL, value=0.5, perturbation="robustness.worst")
    scores = {"exact_match": share(WELL), "exact_match@test+robustness.worst": worst}
    given = [cell(tmp_path, "a", "x", WELL, scores=scores), cell(tmp_path, "b", "x", WELL, scores=scores)]
    text = markdown(suite_results(given), tmp_path)
    assert "| robustness | x | `exact_match@test+robustness.worst` | 0.5 | 0.5 |\n" in text
    assert "| mean win rate | a | b |\n| :-- | --: | --: |\n| robustness | 0.500 | 0.500 |\n" in text


def test_win_rates_of_groups_stand_only_where_there_are_some(tmp_path: Path) -> None:
    results = suite_results([cell(tmp_path, "a", "x", WELL)])
    score = GroupScore("calibration", "ece_10_bin", 0.5, None, None, 9, lower_is_better=True)
    text = markdown(replace(results, cells=(replace(results.cells[0], group_scores=(score,)),)), tmp_path)
    assert "| calibration | x | `ece_10_bin` | 0.5 |" in text
    assert "| mean win rate | a" not in text


def test_an_empty_suite_has_a_summary_alone(tmp_path: Path) -> None:
    text = markdown(suite_results([]), tmp_path)
    assert "Not complete: 0 of 0 runs" in text
    assert "## Scores" not in text


def test_nothing_is_made_of_foreign_names(tmp_path: Path) -> None:
    hostile = "<script>alert(1)</script> | [x](http://h) @someone #12"
    given = cell(tmp_path, "a", "x", WELL, provenance=replace(PROVENANCE, target=hostile))
    failed = FinishedCell("a|b", "<img>", "failed", tmp_path / "a|b" / "<img>", hostile)
    text = markdown(suite_results([given, failed]), tmp_path)
    assert "<script>" not in text.replace("`<script>alert(1)</script>`", "").replace("`(<script>alert(1)</script>`", "")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert len({line.count("|") for line in rows if "HTTP" not in line}) <= 5
    assert "`@someone`" in text
    assert "`#12`" in text
    assert "`[x](http://h)`" in text
    assert "`a¦b`" in text
    assert "`<img>`" in text
