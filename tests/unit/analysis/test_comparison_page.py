"""Several results on one page."""

from __future__ import annotations

from pathlib import Path

from eval_factory.analysis.comparison_report import page_of_several
from eval_factory.report.page.instance_data import readable_page
from facts import says
from stored_results import right_or_wrong


def test_what_compare_says_stands_over_the_instances_of_both(tmp_path: Path) -> None:
    a = right_or_wrong(tmp_path / "a", "1" * 30 + "0" * 30)
    b = right_or_wrong(tmp_path / "b", "1" * 55 + "0" * 5)
    page = page_of_several([a, b])
    says(page, '<p class="verdict">pubmed_qa, exact_match: B', "is better than A", "by 41.7 points")
    says(page, "0 right in A")
    assert '<h1 id="title">A, org/model and B, org/model, on pubmed_qa</h1>' in page
    says(page, "exact_match, B - A")
    assert "B org/model is better" in page
    data = readable_page(page)
    assert data.count("What is q7?") == 4  # of both, in the table and whole
    assert page.count('data-part="index"') == 2


def test_results_that_cannot_be_compared_stand_beside_each_other_with_the_reason(
    tmp_path: Path,
) -> None:
    a = right_or_wrong(tmp_path / "a", "1010")
    b = right_or_wrong(tmp_path / "b", "1010", task="medec")
    page = page_of_several([a, b])
    says(page, "cannot be compared")
    assert "on pubmed_qa, medec</h1>" in page
    assert "Difference in" not in page
    assert page.count('data-part="index"') == 2
