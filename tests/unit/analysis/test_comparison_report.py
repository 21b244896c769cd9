"""A comparison as text, Markdown and a plain document."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from eval_factory.analysis import comparison_report
from eval_factory.analysis.comparison import compare
from eval_factory.analysis.comparison_reasons import Reason
from eval_factory.analysis.comparison_records import (
    Compared,
    Comparison,
    Failed,
    Flips,
    Model,
    Ranked,
)
from eval_factory.analysis.comparison_report import (
    comparison_document,
    comparison_markdown,
    comparison_text,
)
from eval_factory.core.enums import Evidence
from eval_factory.core.results import InstanceRecord
from eval_factory.report.verdicts import Verdict
from eval_factory.scoring.paired import CLUSTERED_PAIRED_T, MCNEMAR, SIGN_FLIP, PairedDifference
from facts import rows_of, says
from stored_results import instance, result, right_or_wrong, written


def texts_of(a: Path, b: Path) -> Mapping[str, Mapping[str, str]]:
    (one,) = compare([a, b]).comparisons
    return comparison_report.texts_of_flips(one)


def test_prompt_reference_and_both_answers_of_each_flip(tmp_path: Path) -> None:
    texts = texts_of(right_or_wrong(tmp_path / "a", "101"), right_or_wrong(tmp_path / "b", "110"))
    assert list(texts) == ["q2", "q1"]
    assert texts["q1"] == {
        "prompt": "What is q1?",
        "references": "yes",
        "A": "answer to q1",
        "B": "answer to q1",
    }


def test_each_trial_and_this_score_alone(tmp_path: Path) -> None:
    def rows(value: float) -> list[InstanceRecord]:
        return [
            instance("q0", value, completion="first"),
            instance("q0", value, trial=1, completion=None),
            instance("q0", value, split="valid", completion="elsewhere"),
            instance("q0", value, perturbation="typos", completion="perturbed"),
        ]

    said = texts_of(*(written(tmp_path / str(value), result(rows(value))) for value in (1.0, 0.0)))[
        "q0"
    ]
    answers = {"A": "first", "A (trial 1)": "", "B": "first", "B (trial 1)": ""}
    assert said == {"prompt": said["prompt"], "references": said["references"], **answers}


def test_a_model_whose_score_measures_nothing_is_marked_beside_its_name() -> None:
    demo = replace(A, verdict=Verdict.DEMO)
    below = replace(B, verdict=Verdict.BELOW)
    compared = Compared((demo, below, C))
    first, second, third, *_ = comparison_text(compared).splitlines()
    says(first, "org/a", "Demo: not a measurement")
    says(second, "org/b", "needs no model scores")
    assert third == "C  org/c  (results/c)"
    says(comparison_markdown(compared), "Demo: not a measurement")


A, B, C = (
    Model(label, Path(f"results/{label.lower()}"), f"org/{label.lower()}") for label in "ABC"
)
PAIRED = PairedDifference(
    n=500,
    value_a=0.7,
    value_b=0.742,
    difference=0.042,
    ci_low=0.01,
    ci_high=0.074,
    p_value=0.01,
    method=MCNEMAR,
    mde=0.059,
    clusters=None,
    discordant=40,
    ci90_low=0.015,
    ci90_high=0.069,
)
ONE = Comparison(
    task="pubmed_qa",
    metric="exact_match",
    a=A,
    b=B,
    paired=PAIRED,
    scale=(0.0, 1.0),
    higher_is_better=True,
    right_or_wrong=True,
    flips=Flips(("q1",), tuple(f"q{number}" for number in range(10, 20))),
    failed=Failed(0, 0, 0),
    bounds=(0.042, 0.042),
)
COMPARED = Compared((A, B), comparisons=(ONE,))


def told(paired: dict[str, Any] | None = None, **changes: Any) -> list[str]:
    return list(
        comparison_report.sentences(
            replace(ONE, paired=replace(PAIRED, **(paired or {})), **changes)
        )
    )


def test_a_difference_that_is_shown() -> None:
    difference, values, a_alone, b_alone = told()
    says(
        difference,
        "pubmed_qa, exact_match",
        "B is better than",
        "than A",
        "4.2 points",
        "95 %",
        "1.0 to 7.4",
        "p = 0.01",
        "5.9 points",
    )
    says(values, "500 instances", "A 70.0, B 74.2")
    says(a_alone, "1 right in A", "q1")
    says(b_alone, "10 right in B", "q10, q11, q12, q13", "q17, and 2 more")


NEGATIVE = {"difference": -0.042, "ci_low": -0.074, "ci_high": -0.01, "p_value": 0.00001}
EQUAL = {"difference": 0.0, "ci_low": -0.03, "ci_high": 0.03, "p_value": 1.0}


@pytest.mark.parametrize(
    ("paired", "changes", "result"),
    [
        (
            NEGATIVE,
            {},
            "B is worse than A by 4.2 points (95 % interval -7.4 to -1.0; exact McNemar p < 0.0001);",
        ),
        (NEGATIVE, {"higher_is_better": False}, "B is better than A by 4.2 points ("),
        ({}, {"higher_is_better": False}, "B is worse than A by 4.2 points ("),
        (
            {"p_value": 0.06},
            {},
            "no difference between A and B is shown; B is above A by 4.2 points (95 %",
        ),
        (
            {**NEGATIVE, "ci_high": 0.1},
            {},
            "no difference between A and B is shown; B is below A by 4.2 points (95 %",
        ),
        (
            EQUAL,
            {},
            "no difference between A and B is shown; their values are equal (95 % interval -3.0 to 3.0;",
        ),
        (
            {},
            {"p_holm": 0.03},
            "B is better than A by 4.2 points (95 % interval 1.0 to 7.4; exact McNemar p = 0.01, 0.03 corrected for the number of pairs);",
        ),
        ({}, {"p_holm": 0.06}, "no difference between A and B is shown;"),
        ({"method": CLUSTERED_PAIRED_T}, {}, "7.4; clustered paired t p = 0.01);"),
        ({"ci_low": None, "p_value": None}, {}, "(too few independent instances for an interval);"),
        ({"mde": None}, {}, "; this sample is too small to show any difference reliably."),
        (
            {},
            {"scale": (1.0, 5.0)},
            "B is better than A by 0.042 on the scale of 1 to 5 (95 % interval 0.01 to 0.074;",
        ),
        ({}, {"scale": None}, "B is better than A by 0.042 (95 %"),
    ],
)
def test_the_result_in_words(paired: dict[str, Any], changes: dict[str, Any], result: str) -> None:
    assert result in told(paired, **changes)[0]


def test_what_else_is_said() -> None:
    says(told({"clusters": 60})[1], "500 instances", "60 sources", "A 70.0, B 74.2")
    says(told({"n": 1})[1], "1 instance")
    in_a, in_b = told(flips=Flips((), ("q1",)), right_or_wrong=False)[2:]
    says(in_a, "0 better in A")
    says(in_b, "1 better in B", "q1")
    says(told(flips=Flips(tuple("abcdefgh"), ()))[2], "8 right in A", "a, b, c, d", "e, f, g, h.")
    unbounded = told(failed=Failed(1, 2, 3), bounds=None)[-1]
    bounded = told(failed=Failed(1, 2, 3), bounds=(-0.01, 0.08))[-1]
    says(unbounded, "left out", "6 instances", "(1 in A alone", "2 in B alone", "3 in both")
    assert bounded.startswith(unbounded.removesuffix("."))
    says(bounded, "from -1.0 to 8.0")


def test_what_a_margin_comes_to() -> None:
    *_, worse, either = told(margin=0.05, non_inferiority="shown", equivalence="inconclusive")
    crosses = "the interval crosses the margin (inconclusive)."
    says(worse, "Non-inferiority", "B is worse than", "5.0 points", "is shown")
    says(either, "Equivalence", "5.0 points", "is not shown")
    assert either.endswith(crosses)
    *_, refuted, _ = told(margin=0.05, non_inferiority="refuted", equivalence="refuted")
    says(refuted, "is refuted", "beyond the margin")


def test_the_text_fits_80_columns() -> None:
    accepted = (
        Reason("prompts", "A and B were asked in different words: 4 of 500 prompts differ"),
    )
    lines = comparison_text(replace(COMPARED, accepted=accepted)).splitlines()
    assert max(map(len, lines)) <= 80
    assert lines[:2] == ["A  org/a  (results/a)", "B  org/b  (results/b)"]
    says(lines[2], "accepted (prompts)")
    assert (lines[4], lines[6][:20]) == ("", "  7.4; exact McNemar")
    says(lines[5], "pubmed_qa, exact_match", "B is better than", "4.2 points")
    (a_alone,) = [line for line in lines if "right in A" in line]
    says(a_alone, "1 right", "q1")
    assert comparison_text(COMPARED).endswith("\n")


def test_few_sources_are_said() -> None:
    few = replace(
        ONE,
        paired=replace(PAIRED, clusters=3, few_sources="few sources decide the interval: so few"),
    )
    lines = comparison_text(replace(COMPARED, comparisons=(few,))).splitlines()
    place = next(number for number, line in enumerate(lines) if "from 3 sources" in line)
    (warning,) = [line for line in lines[place:] if "Few sources" in line]
    says(warning, "so few")
    assert "sources decide" not in comparison_text(COMPARED)


def test_texts_are_printed_from_their_end_and_on_one_line() -> None:
    texts = {"q1": {"prompt": "x" * 1_000 + "\nQuestion?\x1b[2J", "A": "yes"}}
    shown = comparison_text(COMPARED, texts)
    assert "\nq1\n  prompt: ... xxx" in shown
    assert shown.endswith("xxx Question?\\x1b[2J\n  A: yes\n")
    assert comparison_document(COMPARED, texts)["texts"] == texts
    assert "texts" not in comparison_document(COMPARED)


REFUSED = Compared((A, B), (Reason("prompts", "they | differ"), Reason("data", "too")))


def test_reasons_against_it_are_told() -> None:
    blank, reason, *fields = comparison_text(REFUSED).splitlines()[2:]
    assert blank == ""
    says(reason, "cannot be compared")
    assert fields == ["  - prompts: they | differ", "  - data: too"]
    fields = comparison_markdown(REFUSED).splitlines()[-2:]
    assert fields == ["- **prompts**: they `¦` differ", "- **data**: too"]
    assert comparison_document(REFUSED) == {
        "comparable": False,
        "reasons": [
            {"name": "prompts", "message": "they | differ"},
            {"name": "data", "message": "too"},
        ],
        "accepted": [],
        "comparisons": [],
        "ranks": [],
    }


THREE = Compared(
    (A, B, C),
    (),
    (Reason("data", "x_y"),),
    (
        replace(ONE, p_holm=0.03),
        replace(ONE, b=C, p_holm=1.0, paired=replace(PAIRED, ci_low=None, p_value=None)),
    ),
    (Ranked(A, 2, 3), Ranked(B, 1, 1)),
)


def test_three_have_a_table_and_ranks() -> None:
    lines = comparison_text(THREE).splitlines()
    assert lines[5].split() == ["pair", "difference", "95", "%", "interval", "p", "p", "(Holm)"]
    assert lines[6].split() == ["B", "-", "A", "4.2", "1.0", "..", "7.4", "0.01", "0.03"]
    assert lines[7].split() == ["C", "-", "A", "4.2", "-", "-", "1"]
    first, second = lines[9:11]
    says(first, "A: rank 2 to")
    says(second, "B: rank 1 of")
    assert "rank" not in comparison_text(COMPARED)


def test_markdown_has_a_row_a_pair() -> None:
    lines = comparison_markdown(THREE).splitlines()
    assert ["A", "org/a", "results/a"] in rows_of("\n".join(lines))
    b_row = ["pubmed_qa", "exact_match", "B - A", "500", "4.2", "1.0 to 7.4", "0.01", "0.03", "5.9"]
    assert b_row in rows_of("\n".join(lines))
    c_row = ["pubmed_qa", "exact_match", "C - A", "500", "4.2", "-", "-", "1", "5.9"]
    assert c_row in rows_of("\n".join(lines))
    header = lines.index(
        "| task | metric | pair | n | difference | 95 % interval | p | p (Holm) | detectable |"
    )
    assert rows_of(lines[header + 1]) == [[":--"] * 3 + ["--:"] * 6]
    assert ["B", "1 to 1"] in rows_of("\n".join(lines))
    says("\n".join(lines), "- 1 right in", "A alone: q1.")
    assert lines[-1] == "- accepted (data): x_y"
    assert "| rank |" not in comparison_markdown(COMPARED)


def test_the_document_has_everything() -> None:
    shown = replace(ONE, margin=0.05, non_inferiority=Evidence.SHOWN)
    unknown = replace(ONE, scale=None, bounds=None)
    one, other = comparison_document(replace(COMPARED, comparisons=(shown, unknown)))["comparisons"]
    assert (other["scale"], other["bounds"]) == (None, None)
    assert one == {
        "task": "pubmed_qa",
        "metric": "exact_match",
        "metric_of_b": "exact_match",
        "a": "results/a",
        "b": "results/b",
        "model_a": "org/a",
        "model_b": "org/b",
        "n": 500,
        "value_a": 0.7,
        "value_b": 0.742,
        "difference": 0.042,
        "ci_low": 0.01,
        "ci_high": 0.074,
        "p_value": 0.01,
        "p_holm": None,
        "significant": True,
        "method": MCNEMAR,
        "mde": 0.059,
        "clusters": None,
        "few_sources": None,
        "discordant": 40,
        "higher_is_better": True,
        "scale": [0.0, 1.0],
        "failed": {"a_only": 0, "b_only": 0, "both": 0},
        "bounds": [0.042, 0.042],
        "margin": 0.05,
        "non_inferiority": "shown",
        "equivalence": None,
        "flips": {"a_only": ["q1"], "b_only": [f"q{number}" for number in range(10, 20)]},
    }
    assert comparison_document(THREE)["ranks"][0] == {
        "folder": "results/a",
        "model": "org/a",
        "best": 2,
        "worst": 3,
    }
    assert comparison_document(THREE)["accepted"] == [{"name": "data", "message": "x_y"}]
    json.dumps(comparison_document(THREE), allow_nan=False)


def test_an_interval_without_zero_beside_a_test_that_shows_nothing_is_explained() -> None:
    """The interval 1.0 to 7.4 has no zero in it; the test's p is above 0.05."""
    first = told({"p_value": 0.052})[0]
    says(first, "no difference", "the exact test decides")
    assert "decides" not in told()[0]
    assert "decides" not in told({"ci_low": -0.01, "p_value": 0.2})[0]
    says(told({"ci_low": -0.01, "p_value": 0.04})[0], "no difference", "the interval decides")
    says(told({"p_value": 0.052, "method": SIGN_FLIP})[0], "no difference", "the test decides")
