"""A judge's passport: the rules of its verdict, its text, its document and its page."""

from __future__ import annotations

from dataclasses import replace

import pytest

from eval_factory.report.judge_passport import (
    JudgePassport,
    calibration_document,
    figures_table,
    parts_table,
    passport_document,
    passport_page,
    passport_text,
)
from eval_factory.scoring.agreement_figures import AgreementPart, Figure, Figures
from eval_factory.scoring.judge_calibration import Calibration, QuestionChange, Steadiness
from eval_factory.tasks.physician_labels import LabelledItems
from facts import each_says, says

NOTHING = Figure(None)
SURE = Figure(0.5, 0.4, 0.6)
FAIR = Figure(0.0, -0.02, 0.02)
NEAR = Figure(0.01, -0.02, 0.04)


def figures(bias: Figure = FAIR, kappa: Figure = SURE) -> Figures:
    return Figures(Figure(0.7, 0.65, 0.75), kappa, SURE, SURE, Figure(0.4), bias)


def passport(
    gap: Figure = NEAR,
    bias: Figure = FAIR,
    kappa: Figure = SURE,
    categories: dict[str, AgreementPart] | None = None,
    always: bool | None = None,
) -> JudgePassport:
    total = AgreementPart(60, 122, figures(bias), figures(Figure(0.0, 0.0, 0.0), kappa))
    return JudgePassport(
        "invented",
        "judge_label",
        "ab" * 32,
        Calibration(total, 40, 9, gap, categories or {}, always=always),
    )


@pytest.mark.parametrize(
    ("gap", "agreement", "words"),
    [
        (
            Figure(0.01, -0.02, 0.04),
            "as well",
            "as well as they agree with each other, to within 5 points (macro F1 0.700",
        ),
        (Figure(-0.02, -0.05, -0.01), "as well", "the difference is -5.0 to -1.0 points"),
        (
            Figure(-0.03, -0.051, -0.01),
            "less",
            "The judge agrees with the physicians less than they agree with each other",
        ),
        (
            Figure(-0.03, -0.06, 0.0),
            "open",
            "These labels are too few to say whether the judge agrees",
        ),
        (
            Figure(0.01, None, None),
            "not shown",
            "40 conversations cannot show how far the judge agrees",
        ),
    ],
)
def test_the_agreement_by_the_rules(gap: Figure, agreement: str, words: str) -> None:
    found = passport(gap)
    assert found.agreement == agreement
    assert words in found.verdict[0]


@pytest.mark.parametrize(
    ("bias", "words"),
    [
        (
            Figure(0.06, 0.01, 0.11),
            "The judge is lenient: it says 'met' 6.0 points more often than the physicians (1.0 to 11.0).",
        ),
        (
            Figure(-0.06, -0.11, -0.01),
            "The judge is strict: it says 'met' 6.0 points less often than the physicians (1.0 to 11.0).",
        ),
        (
            Figure(0.0, -0.05, 0.05),
            "The judge is neither lenient nor strict by more than 5 points.",
        ),
        (Figure(0.01, 0.0, 0.02), "The judge is neither lenient nor strict by more than 5 points."),
        (
            Figure(0.0, -0.07, 0.06),
            "(+0.0 points, -7.0 to +6.0), but it may be by up to 7.0 points.",
        ),
        (Figure(0.0, -0.05, 0.051), "but it may be by up to 5.1 points."),
        (Figure(0.1), "These labels cannot show whether the judge is lenient or strict."),
    ],
)
def test_the_bias_by_the_rules(bias: Figure, words: str) -> None:
    assert passport(bias=bias).verdict[1].endswith(words)


@pytest.mark.parametrize(
    ("found", "grade"),
    [
        (passport(), "good"),
        (passport(Figure(-0.1, -0.2, -0.01)), "bad"),
        (passport(Figure(-0.1, -0.2, 0.01)), "warn"),
        (passport(always=True), "bad"),
        (passport(bias=Figure(0.1)), "warn"),
        (passport(bias=Figure(0.08, 0.051, 0.11)), "bad"),
        (passport(bias=Figure(-0.08, -0.11, -0.051)), "bad"),
        (passport(bias=Figure(0.06, 0.02, 0.11)), "warn"),
        (passport(bias=Figure(-0.06, -0.11, 0.02)), "warn"),
        (passport(kappa=Figure(0.2, 0.0, 0.4)), "warn"),
    ],
)
def test_the_card_of_the_page(found: JudgePassport, grade: str) -> None:
    assert found.grade == grade
    assert f'<div class="card {grade}">' in passport_page(found, "2026-11-27")


def test_the_worst_comes_first() -> None:
    assert passport(bias=Figure(0.08, 0.06, 0.11)).verdict[0].startswith("The judge is lenient")
    assert (
        passport(Figure(-0.1, -0.2, -0.1), Figure(0.08, 0.06, 0.11))
        .verdict[0]
        .startswith("The judge agrees")
    )


def test_what_labels_cannot_show() -> None:
    assert "said 'met' of everything" in passport(always=True).verdict[0]
    says(passport(always=False).verdict[0], "'not met' of everything")
    chance = passport(kappa=Figure(0.2, -0.01, 0.4))
    assert chance.agreement == "not shown"
    says(chance.verdict[0], "not shown", "better than chance", "kappa 0.200", "-0.010 to 0.400")
    alone = passport()
    alone = replace(
        alone,
        found=replace(alone.found, total=replace(alone.found.total, physicians=None)),
    )
    assert alone.agreement == "not shown"


def test_a_verdict_never_says_calibrated() -> None:
    for found in (passport(), passport(always=True), passport(Figure(0.1, -0.2, 0.3))):
        assert "calibrated" not in passport_page(found, "2026-11-27").lower()
        assert 2 <= len(found.verdict) <= 3


STILL = Steadiness(80, Figure(0.0, 0.0, 0.05), FAIR)
LENIENT = Steadiness(80, Figure(0.25), Figure(0.2, 0.1, 0.3))


def test_a_judge_that_can_be_moved_or_left_something_open_is_not_good() -> None:
    steady = replace(
        passport(), steadiness={QuestionChange.AGAIN: STILL, QuestionChange.PADDED: STILL}
    )
    moved = replace(
        passport(), steadiness={QuestionChange.AGAIN: STILL, QuestionChange.PRAISED: LENIENT}
    )
    strict = replace(LENIENT, shift=Figure(-0.2, -0.3, -0.1))
    assert [one.grade for one in (steady, moved, replace(passport(), unjudged=1))] == [
        "good",
        "warn",
        "warn",
    ]
    each_says(steady.verdict[2:], ["otherwise", "0.0 %"])
    says(
        " ".join(moved.verdict), "can be moved", "praise of itself added", "'met' 20.0 points more"
    )
    assert "20.0 points less often" in " ".join(
        replace(moved, steadiness={QuestionChange.PADDED: strict}).verdict
    )
    says(" ".join(replace(passport(), unjudged=1).verdict), "did not decide", "1 item")
    lines = passport_text(moved).splitlines()
    says("\n".join(lines), "praise of itself added", "added 80 25.0 %", "+20.0 (+10.0 to +30.0)")
    assert max(map(len, lines)) <= 80
    assert "Is it steady?" in passport_page(moved, "2026-11-27")
    assert (
        passport_document(moved, "2026-11-27")["steadiness"]["praise of itself added"]["decisions"]
        == 80
    )


def test_marks_on_a_scale_have_words_of_their_own() -> None:
    found = passport(bias=Figure(0.06, 0.01, 0.11))
    found = replace(found, found=replace(found.found, marks=(1.0, 2.0, 3.0)))
    says(found.verdict[0], "weighted kappa 0.500", "beside 0.500")
    says(found.verdict[1], "lenient", "6.0 points of 100", "higher", "1.0 to 11.0")
    assert "kappa_difference" in passport_document(found, "2026-11-27")["figures"]
    alone = replace(found, found=replace(found.found, physicians=1))
    assert alone.verdict[0].startswith("Only one physician labelled")


CATEGORIES = {
    "cluster:a_rather_long_name_of_a_category_of_criteria": AgreementPart(
        40, 80, figures(Figure(0.2, 0.1, 0.3)), figures()
    ),
    "strict": AgreementPart(40, 80, figures(Figure(-0.3, -0.5, -0.1)), None),
    "fair": AgreementPart(12, 24, figures(), figures()),
    "<b>rare</b>": AgreementPart(9, 18, None, None),
}


def test_categories_in_the_verdict() -> None:
    said = passport(categories=CATEGORIES).verdict[2]
    says(said, "3 categories", "in 2", "strict (-30.0 points)")
    fair = {name: CATEGORIES[name] for name in ("fair", "<b>rare</b>")}
    says(passport(categories=fair).verdict[2], "no figure", "10 items", "1 of 2")
    assert len(passport(categories={"fair": CATEGORIES["fair"]}).verdict) == 2


def test_the_screen() -> None:
    lines = passport_text(passport(categories=CATEGORIES)).splitlines()
    says(lines[0], "judge invented", "60 items", "122 labels", "9 physicians", "40 conversations")
    says(lines[2], "figure", "judge with physicians", "with each other")
    says(lines[3], "macro F1 0.700 (0.650", "to 0.750) 0.700 (0.650")
    assert lines[7] == "specificity                     0.400                       0.400"
    says(lines[8], "bias, points +0.0", "-2.0 to +2.0")
    assert lines[8].endswith(" -")
    assert lines[11].split() == [
        "cluster:a_rather_long_name_of_a_ca",
        "40",
        "0.700",
        "+20.0",
        "(+10.0",
        "to",
        "+30.0)",
    ]
    assert not any("rare" in one for one in lines)
    assert max(map(len, lines)) <= 80


def test_the_document() -> None:
    found = passport(categories=CATEGORIES)
    made = calibration_document(found.found)
    assert list(made) == ["items", "labels", "judge", "physicians", "categories"]
    assert made["judge"]["kappa"] == {"value": 0.5, "ci_low": 0.4, "ci_high": 0.6}
    assert made["categories"]["<b>rare</b>"] == {
        "items": 9,
        "labels": 18,
        "judge": None,
        "physicians": None,
    }
    held = passport_document(found, "2026-11-27")
    assert held["figures"]["f1_macro_difference"] == {
        "value": 0.01,
        "ci_low": -0.02,
        "ci_high": 0.04,
    }
    assert held["figures"]["physicians"] == made["physicians"]


def test_the_document_says_of_each_item_what_was_said_since_its_second_version() -> None:
    found = passport(categories=CATEGORIES)
    kinds = [LabelledItems(4, "<b>rare</b>", True, 2, 1, 3), LabelledItems(5, None, False, 3, 0, 1)]
    held = passport_document(
        replace(found, found=replace(found.found, item_groups=kinds)), "2026-11-27"
    )
    number = list(held["categories"]).index("<b>rare</b>") + 1
    assert held["schema_version"] == 2
    assert held["items"] == [f"4 {number} 1 2 1 3", "5 0 0 3 0 1"]


def test_the_page_needs_no_network_and_takes_names_for_text() -> None:
    categories = {"<b>rare</b>": CATEGORIES["fair"]}
    found = replace(passport(categories=categories), judge="<script>alert(1)</script>")
    lengths = {"up to 10": AgreementPart(20, 40, figures(), figures())}
    found = replace(found, found=replace(found.found, lengths=lengths))
    text = passport_page(found, "2026-11-27")
    assert "<script" not in text
    for part in (
        "&lt;b&gt;rare",
        "default-src &#39;none&#39;",
        'id="categories"',
        'id="lengths"',
        "up to 10",
        "ab" * 32,
        "2026-11-27",
        "<svg",
    ):
        assert part in text
    assert 'id="categories"' not in passport_page(passport(), "2026-11-27")


def test_rows_without_a_figure_are_left_out() -> None:
    lenient = Figures(Figure(0.7), NOTHING, NOTHING, NOTHING, NOTHING, FAIR)
    table = figures_table(AgreementPart(9, 9, lenient, None))
    assert [row[0] for row in table.rows] == ["macro F1", "bias, points"]
    parts = {
        "small": AgreementPart(3, 6, None, None),
        "large": AgreementPart(30, 60, figures(), figures()),
    }
    assert [row[0] for row in parts_table(parts, "category").rows] == ["large"]
    assert parts_table({"small": AgreementPart(3, 6, None, None)}, "category").rows == []
