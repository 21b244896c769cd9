"""What the judges of a rubric said -> words and tables."""

from __future__ import annotations

from dataclasses import replace

from described_runs import ODD
from eval_factory.core.results import Instances, JudgeCounts, Validity
from eval_factory.core.rubric_results import PairAgreement, RubricReport, RubricVotes
from eval_factory.report.bibliography import Citations
from eval_factory.report.rubric_lines import (
    agreement_sentences,
    markdown_lines,
    of_criteria,
    rests_on,
    rubric_headline,
    screen_lines,
    undecided,
)

ONE = RubricReport(RubricVotes(1200, 700, 500, 0), {"gpt": RubricVotes(1200, 700, 500, 0, 0, 0.51239)}, {})
THREE = RubricReport(
    RubricVotes(12, 5, 4, 1, 2),
    {"kind": RubricVotes(12, 8, 4, 0, 0, 1.0), "strict": RubricVotes(12, 4, 5, 3)},
    {"kind/strict": PairAgreement(9, 0.6666, 0.4), "a/b": PairAgreement(1, 1.0)},
    0.06354, 0.3333,
)  # fmt: skip


def validity(judges: int, failed: int = 0) -> Validity:
    counts = {f"judge {number}": JudgeCounts(1, 1, 0) for number in range(judges)}
    return Validity(Instances(100, 100 - failed, failed, 0, 0, 0), counts, {}, None, ())


def test_one_line() -> None:
    assert rubric_headline(ONE) == "700 of 1,200 criteria met, 500 not met"
    assert rubric_headline(THREE) == (
        "5 of 12 criteria met, 4 not met, 2 tied, 1 unjudged; agreement of the judges (Krippendorff's alpha): 0.064;"
        " all judges say the same of 33.3 %"
    )
    assert rubric_headline(replace(ONE, criteria=RubricVotes(1, 1, 0, 0))) == "1 of 1 criterion met, 0 not met"


def test_the_screen_has_one_line_of_it() -> None:
    assert list(screen_lines(None)) == []
    assert list(screen_lines(ONE)) == ["  criteria: 700 of 1,200 criteria met, 500 not met"]


def test_one_judge_is_a_row() -> None:
    assert list(markdown_lines(None)) == []
    assert list(markdown_lines(ONE)) == [
        "\nCriteria: 700 of 1,200 criteria met, 500 not met",
        "",
        "| criteria judged by | asked | met | not met | tied | unjudged | score by it alone |",
        "| :-- | --: | --: | --: | --: | --: | --: |",
        "| `gpt` | 1,200 | 700 | 500 | 0 | 0 | 0.5124 |",
    ]


def test_of_several_judges_the_majority_and_pairs_are_shown() -> None:
    assert list(markdown_lines(THREE))[4:] == [
        "| majority | 12 | 5 | 4 | 2 | 1 |  |",
        "| `kind` | 12 | 8 | 4 | 0 | 0 | 1.0000 |",
        "| `strict` | 12 | 4 | 5 | 0 | 3 |  |",
        "",
        "| judges | criteria that both decided | the same | Cohen's kappa |",
        "| :-- | --: | --: | --: |",
        "| `kind/strict` | 9 | 66.7 % | 0.400 |",
        "| `a/b` | 1 | 100.0 % |  |",
    ]


def test_names_that_others_gave_stay_text() -> None:
    odd = replace(THREE, judges={ODD: ONE.criteria, "b": ONE.criteria}, agreement={ODD: PairAgreement(1, 1.0)})
    told = "\n".join([*markdown_lines(odd), *agreement_sentences(odd, Citations())])
    assert told.replace("\n", "").isprintable()
    assert "| x" not in told


def test_what_a_score_rests_on() -> None:
    cite = Citations()
    assert list(rests_on(validity(1, failed=20), ONE, cite)) == [
        (
            "The answers were judged criterion by criterion (1,200 criteria, 15.0 for an answer in the mean), each"
            " criterion by one language model."
        ),
        (
            "The score of an answer is the points of the criteria that it meets, divided by the sum of the positive"
            " points; the benchmark's is the mean, clipped to 0 to 1 [1]."
        ),
    ]
    assert "HealthBench" in cite.listed()[0]
    told = list(rests_on(validity(3), THREE, Citations()))
    assert (
        "(12 criteria, 0.1 for an answer in the mean), each criterion by 3 language models, of which the maj" in told[0]
    )
    assert told[2:] == list(undecided(THREE))
    nothing = next(rests_on(validity(1, failed=100), ONE, Citations()))
    assert "(1,200 criteria), each" in nothing


def test_what_was_not_decided_is_said() -> None:
    assert list(undecided(ONE)) == []
    assert list(undecided(THREE)) == [
        "No judge decided 1 of 12 criteria; their answers have no score.",
        "As many judges said met as not met of 2 criteria, which count half.",
    ]


def test_how_far_judges_agree() -> None:
    assert list(agreement_sentences(ONE, Citations())) == []
    assert list(agreement_sentences(THREE, Citations())) == [
        "The agreement of the judges about criteria, by Krippendorff's alpha [1], is 0.064.",
        "All judges say the same of 33.3 % of the criteria that several decided.",
        "kind/strict say the same of 66.7 % of 9 criteria, Cohen's kappa 0.400.",
        "a/b say the same of 100.0 % of 1 criterion.",
    ]


def test_counts_of_criteria() -> None:
    assert [of_criteria(count) for count in (0, 1, 2, 1000)] == [
        "0 criteria",
        "1 criterion",
        "2 criteria",
        "1,000 criteria",
    ]
