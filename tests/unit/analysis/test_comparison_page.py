"""Several results on one page."""

from __future__ import annotations

import json
from pathlib import Path

from eval_factory.analysis.comparison import compare
from eval_factory.analysis.comparison_records import comparison_record
from eval_factory.analysis.comparison_report import (
    page_of_several_results,
    sentences,
    texts_of_flips,
)
from eval_factory.importing.tables import Columns
from eval_factory.report.page.blocks import readable_page
from eval_factory.workflows.import_results import import_results
from facts import says
from foreign_results import QUESTIONS, inspect_samples, write_eval_log, write_table
from stored_results import right_or_wrong


def test_what_compare_says_stands_over_the_instances_of_both(tmp_path: Path) -> None:
    a = right_or_wrong(tmp_path / "a", "1" * 30 + "0" * 30)
    b = right_or_wrong(tmp_path / "b", "1" * 55 + "0" * 5)
    page = page_of_several_results([a, b])
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
    page = page_of_several_results([a, b])
    says(page, "cannot be compared")
    assert "on pubmed_qa, medec</h1>" in page
    assert "Difference in" not in page
    assert page.count('data-part="index"') == 2


def test_questions_of_two_programs_have_the_ids_of_the_first(tmp_path: Path) -> None:
    write_eval_log(tmp_path / "fruit.eval", inspect_samples())
    import_results(tmp_path / "fruit.eval", tmp_path / "a")
    columns = Columns("nr", "answer", "gold", None, "question", "options")
    import_results(write_table(tmp_path / "t.csv"), tmp_path / "b", columns=columns)
    data = readable_page(page_of_several_results([tmp_path / "a", tmp_path / "b"]))
    rows = []
    for line in data.splitlines():
        if line.startswith('{"id"'):
            rows.append(json.loads(line))
    pairs = {row["id"]: row["pair"] for row in rows}
    for number in range(QUESTIONS):
        assert pairs[f"fruit/{number}"] == pairs[str(1000 + number)] == f"fruit/{number}"
    alone = readable_page(page_of_several_results([tmp_path / "a", tmp_path / "a"]))
    assert alone.count('"pair": "fruit/0"') == 2
    ours = right_or_wrong(tmp_path / "ours", "1010")
    assert '"pair":' not in readable_page(page_of_several_results([ours, ours]))


def test_texts_of_flips_of_two_programs_stand_beside_each_other(tmp_path: Path) -> None:
    write_eval_log(tmp_path / "fruit.eval", inspect_samples())
    import_results(tmp_path / "fruit.eval", tmp_path / "a")
    columns = Columns("nr", "answer", "gold", None, "question", "options")
    import_results(write_table(tmp_path / "t.csv"), tmp_path / "b", columns=columns)
    reasons = [reason.name for reason in compare([tmp_path / "a", tmp_path / "b"]).reasons]
    compared = compare([tmp_path / "a", tmp_path / "b"], allow=reasons)
    (pair,) = compared.comparisons
    assert pair.metric != pair.metric_of_b
    (sentence, *_) = sentences(pair)
    assert "choice of A and exact_match of B" in sentence
    assert comparison_record(pair)["metric_of_b"] == "exact_match"
    texts = texts_of_flips(pair)
    flips = [*pair.flips.a_only, *pair.flips.b_only]
    assert flips
    assert {key: {"A", "B"} <= text.keys() for key, text in texts.items()} == dict.fromkeys(
        flips, True
    )


def test_each_score_stands_beside_the_name_of_its_metric(tmp_path: Path) -> None:
    write_eval_log(tmp_path / "fruit.eval", inspect_samples())
    import_results(tmp_path / "fruit.eval", tmp_path / "a")
    columns = Columns("nr", "answer", "gold", None, "question", "options")
    import_results(write_table(tmp_path / "t.csv"), tmp_path / "b", columns=columns)
    page = page_of_several_results([tmp_path / "a", tmp_path / "b"])
    table = page.partition("<caption>")[2].partition("</table>")[0]
    assert "<td>choice</td>" in table
    assert "<td>exact_match</td>" in table
    same = page_of_several_results([tmp_path / "a", tmp_path / "a"])
    assert "<caption>choice</caption>" in same


def test_a_benchmark_of_ones_own_is_described_over_its_results(tmp_path: Path) -> None:
    folders = []
    for name, task in (("a", "custom.mine"), ("b", "custom.mine"), ("c", "medec")):
        folder = right_or_wrong(tmp_path / name, "1010", task=task)
        described = "description: Questions of our ward\n"
        (folder / "model_configs" / "benchmark.yaml").write_text(described)
        folders.append(folder)
    assert "Questions of our ward. Each model was" in page_of_several_results(folders[:2])
    assert "Questions of our ward. Each" not in page_of_several_results(folders[1:]), (
        "two benchmarks"
    )
