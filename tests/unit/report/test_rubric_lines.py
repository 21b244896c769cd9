"""What the judges of a rubric said -> words and tables."""

from __future__ import annotations

from dataclasses import replace

from described_runs import ODD, of_a_rubric
from eval_factory.core.results import PairAgreement, RubricReport, RubricVotes
from eval_factory.report.markdown_report import markdown_report
from eval_factory.report.sentences import of_criteria, rubric_headline

ONE = RubricReport(RubricVotes(1200, 700, 500, 0), {"gpt": RubricVotes(1200, 700, 500, 0, 0, 0.51239)}, {})
THREE = RubricReport(
    RubricVotes(12, 5, 4, 1, 2),
    {"kind": RubricVotes(12, 8, 4, 0, 0, 1.0), "strict": RubricVotes(12, 4, 5, 3)},
    {"kind/strict": PairAgreement(9, 0.6666, 0.4), "a/b": PairAgreement(1, 1.0)},
    0.06354, 0.3333,
)  # fmt: skip


def test_one_line() -> None:
    assert rubric_headline(ONE) == "700 of 1,200 criteria met, 500 not met"
    assert rubric_headline(THREE) == (
        "5 of 12 criteria met, 4 not met, 2 tied, 1 unjudged; agreement of the judges (Krippendorff's alpha): 0.064;"
        " all judges say the same of 33.3 %"
    )
    assert rubric_headline(replace(ONE, criteria=RubricVotes(1, 1, 0, 0))) == "1 of 1 criterion met, 0 not met"


def markdown(found: RubricReport) -> str:
    made = of_a_rubric()
    return markdown_report(replace(made, validity=replace(made.validity, rubric=found)))


def test_one_judge_is_a_row() -> None:
    assert "\n".join([
        "\n\nCriteria: 700 of 1,200 criteria met, 500 not met",
        "",
        "| criteria judged by | asked | met | not met | tied | unjudged | score by it alone |",
        "| :-- | --: | --: | --: | --: | --: | --: |",
        "| `gpt` | 1,200 | 700 | 500 | 0 | 0 | 0.5124 |\n",
    ]) in markdown(ONE)  # fmt: skip


def test_of_several_judges_the_majority_and_pairs_are_shown() -> None:
    assert "\n".join([
        "| majority | 12 | 5 | 4 | 2 | 1 |  |",
        "| `kind` | 12 | 8 | 4 | 0 | 0 | 1.0000 |",
        "| `strict` | 12 | 4 | 5 | 0 | 3 |  |",
        "",
        "| judges | criteria that both decided | the same | Cohen's kappa |",
        "| :-- | --: | --: | --: |",
        "| `kind/strict` | 9 | 66.7 % | 0.400 |",
        "| `a/b` | 1 | 100.0 % |  |\n",
    ]) in markdown(THREE)  # fmt: skip


def test_names_that_others_gave_stay_text() -> None:
    odd = replace(THREE, judges={ODD: ONE.criteria, "b": ONE.criteria}, agreement={ODD: PairAgreement(1, 1.0)})
    told = markdown(odd)
    assert told.replace("\n", "").isprintable()
    assert "| x" not in told


def test_counts_of_criteria() -> None:
    assert [of_criteria(count) for count in (0, 1, 2, 1000)] == [
        "0 criteria", "1 criterion", "2 criteria", "1,000 criteria",
    ]  # fmt: skip
