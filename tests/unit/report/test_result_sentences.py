"""A result in words: what its page, report.md and the screen say of it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from described_runs import of_a_rubric
from eval_factory.core import results
from eval_factory.core.budget import Cost, Price
from eval_factory.core.results import (
    DEMO,
    Floor,
    Instances,
    JudgeCounts,
    JuryReport,
    Score,
    Stats,
    TaskResult,
)
from eval_factory.core.rundir import RunDir
from eval_factory.report import documents, result_sentences
from eval_factory.report.asked_again_sentences import choice_order_line
from eval_factory.report.reader import load_result
from eval_factory.report.summary import markdown_report, result_summary
from facts import each_says, says
from stored_results import instance, result, written

STATS = Stats(40, 0.5, stddev=None, stderr=None, ci_low=0.3, ci_high=0.7, ci_method="wilson")
SHARE = Score(0.5, STATS, "exact_match", "test", None, True, (0.0, 1.0), "share")
RATING = Score(
    3.456, replace(STATS, ci_low=3.0, ci_high=4.0), "jury", "test", None, True, (1.0, 5.0), "rating"
)
JURY = JuryReport({}, None, {}, {})


def made(score: Score | None = SHARE, **changes: Any) -> TaskResult:
    """Changes of the result and of its validity."""
    whole = result([instance(f"q{n}", 1.0) for n in range(4)])
    of_validity = {
        name: changes.pop(name) for name in list(changes) if hasattr(whole.validity, name)
    }
    scores = {} if score is None else {"exact_match": score}
    return replace(
        whole, **{"scores": scores, "validity": replace(whole.validity, **of_validity), **changes}
    )


@pytest.mark.parametrize(
    ("score", "told"),
    [
        (SHARE, "50.0 %"),
        (RATING, "3.46 of 5"),
        (replace(SHARE, unit="overlap"), "0.5"),
        (replace(SHARE, scale=None), "0.5"),
        (replace(RATING, scale=None), "3.456"),
    ],
)
def test_a_score_is_said_in_its_unit(score: Score, told: str) -> None:
    assert result_sentences.value_text(score.value, score) == told


def test_an_interval_has_both_ends_or_is_none() -> None:
    assert result_sentences.interval_text(SHARE) == "30.0 % to 70.0 %"
    says(result_sentences.certainty_sentence(made()), "95 %", "between 30.0 %", "and 70.0 %")
    without = replace(SHARE, stats=replace(STATS, ci_low=None))
    assert result_sentences.interval_text(without) == ""
    says(result_sentences.certainty_sentence(made(without)), "too few questions")
    assert result_sentences.certainty_sentence(made(None)) == ""


RATED = "Each was given 4 questions. Its answers were rated by 1 judge (another language model)."


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "Each was given 4 questions."),
        (
            {"splits": {"test": 1}},
            "Each was given 1 question of the test set, 4 requests with every trial and variation counted.",
        ),
        ({"splits": {"test": 3, "valid": 1}, "judges": {"gpt": JudgeCounts(4, 4, 0)}}, RATED),
        (
            {
                "judges": {"gpt": JudgeCounts(4, 4, 0)},
                "jury": replace(JURY, labels={"poor": 0, "good": 1}),
            },
            f"{RATED} Ratings: poor (0), good (1).",
        ),
        (
            {
                "judges": {"gpt": JudgeCounts(4, 4, 0)},
                "rubric": results.RubricReport(results.RubricVotes(3, 2, 1, 0), {}, {}),
            },
            "Each was given 4 questions. Its answers were judged criterion by criterion by 1 judge (another language model).",
        ),
    ],
)
def test_what_was_asked_is_counted(changes: dict[str, Any], told: str) -> None:
    assert result_sentences.measurement_sentence(made(**changes), "Each") == told
    assert result_sentences.measurement_sentence(made(**changes)) == told.replace(
        "Each", "This model"
    )


def test_what_the_score_counts() -> None:
    says(
        result_sentences.score_meaning(made()),
        "exact_match",
        "40 instances",
        "0 is the worst",
        "higher is better",
    )
    unknown = replace(SHARE, unit=None, higher_is_better=None)
    assert result_sentences.score_meaning(made(unknown)) == "exact_match, over 40 instances."
    assert result_sentences.score_meaning(
        made(replace(SHARE, unit=None, higher_is_better=False))
    ).endswith("(lower is better).")
    says(str(result_sentences.score_meaning(made(None))), "exact_match could not", "notes")
    points = replace(SHARE, unit="share of points")
    says(str(result_sentences.score_meaning(made(points))), "rubric's points")


def test_missing_scores_are_a_reason_where_no_other_is_stated() -> None:
    assert result_sentences.missing_scores_sentence(made()) == ""
    says(str(result_sentences.missing_scores_sentence(made(reportable=False))), "4 of 4 instances")
    stated: dict[str, Any] = {"reportable": False, "not_reportable": ("x",)}
    assert result_sentences.missing_scores_sentence(made(**stated)) == ""
    gaps = made(**stated, instances=Instances(4, 3, 1, 0, 0, 0), something_to_ask=True)
    says(str(result_sentences.missing_scores_sentence(gaps)), "3 of 4 instances", "same command")


def test_troubles_are_counted_with_what_shows_them() -> None:
    assert list(result_sentences.problem_counts(Instances(4, 4, 0, 0, 0, 0))) == []
    found = list(result_sentences.problem_counts(Instances(9, 3, 1, 2, 3, 4, 5, 6, 7, 0, 8, 9)))
    assert [(count, flag) for count, _, flag in found] == [
        (1, "failed"),
        (4, "filtered"),
        (2, "empty"),
        (8, "thinking_unfinished"),
        (6, "unparsed"),
        (5, "unjudged"),
        (9, "prompt_truncated"),
        (7, "refused"),
        (3, "cut_off"),
    ]


@pytest.mark.parametrize(
    ("value", "lower_is_better", "end"),
    [
        (0.2, False, "and so does the whole interval of its score."),
        (0.3, False, "chance may explain the difference."),
        (0.5, False, "This model is no better than that."),
        (0.8, True, "and so does the whole interval of its score."),
        (0.7, True, "chance may explain the difference."),
        (0.4, True, "This model is no better than that."),
    ],
)
def test_a_score_beside_chance(value: float, lower_is_better: bool, end: str) -> None:
    beside = made(
        floors={"exact_match": Floor("A", value, 4, {"A": value}, lower_is_better=lower_is_better)}
    )
    told = result_sentences.floor_sentence(beside)
    assert result_sentences.chance_may_explain(beside) is not end.startswith("and so does")
    says(told, "without a model", f"{value * 100:.1f} % (A)")
    assert told.endswith(end)


def test_a_demo_is_not_called_a_model() -> None:
    floors = {"exact_match": Floor("A", 0.5, 4, {"A": 0.5})}
    demo = made(floors=floors, not_reportable=(DEMO,))
    told = [
        result_sentences.measurement_sentence(demo),
        result_sentences.certainty_sentence(demo),
        result_sentences.floor_sentence(demo).partition("). ")[2],
    ]
    for sentence in told:
        says(sentence.lower(), "the demo")
        assert "this model" not in sentence.lower()


def test_chance_that_is_not_known_is_not_spoken_of() -> None:
    def told(score: Score | None, **floors: Floor) -> str:
        return result_sentences.floor_sentence(made(score, floors=floors))

    floor = Floor("A", 0.2, 4, {})
    assert told(SHARE) == told(None, exact_match=floor) == ""
    assert not result_sentences.chance_may_explain(made())
    wide = replace(SHARE, stats=replace(STATS, ci_low=None))
    says(told(wide, exact_match=floor), "chance may explain")
    assumed = told(SHARE, exact_match=replace(floor, best="empty", assumed=True))
    says(assumed, "20.0 % (empty, assumed)")
    said = "extra.probe_judges: true asks the judges."
    assert assumed.endswith(said)


def test_a_task_is_described_where_it_is_known() -> None:
    assert (
        result_sentences.task_description("pubmed_qa")
        == "Yes/no/maybe questions about PubMed abstracts"
    )
    assert result_sentences.task_description("custom.mine") == ""


@pytest.mark.parametrize(
    ("scale", "unit", "jury", "told"),
    [
        ((0.0, 10.0), "rating", JURY, "ratings: 0 to 10"),
        ((1.0, 5.0), "rating", JURY, None),
        (None, "rating", JURY, None),
        ((0.0, 1.0), "share", JURY, None),
        ((0.0, 10.0), "rating", None, None),
        (
            (0.0, 2.0),
            "rating",
            replace(JURY, labels={"poor": 0, "good": 2}),
            "ratings: poor (0), good (2)",
        ),
    ],
)
def test_ratings_that_are_not_helms_are_said(
    scale: Any, unit: str, jury: JuryReport | None, told: str | None
) -> None:
    assert (
        result_sentences.ratings_line(made(replace(RATING, scale=scale, unit=unit), jury=jury))
        == told
    )


CORRECTED = results.CorrectedScore("jury", 3.51234, 3.2, 3.8, "ppi++-stratified", 0.8, 4.5)
FOUND = results.Clinicians(
    40,
    200,
    2,
    80,
    CORRECTED,
    None,
    results.Agreement(38, 0.5, 0.625, None, 0.7),
    {"kind": results.JudgeAgreement(40, None, 0.4, 0.3, None, 1.0, 0.8, 1.2)},
    ("a note",),
)


def test_what_people_say_in_lines() -> None:
    each_says(
        result_sentences.clinician_lines(FOUND),
        [
            "corrected by clinicians",
            "3.5123",
            "3.2000 .. 3.8000",
            "without correction 4.5000",
            "40 of 200 answers",
            "2 raters",
        ],
        ["alpha 0.50", "ICC 0.63", "AC1 0.70", "n = 38"],
        [
            "kind with the raters",
            "ICC 0.40",
            "weighted kappa 0.30",
            "n = 40",
            "bias +1.000",
            "+0.800 .. +1.200",
        ],
        ["note: a note"],
    )
    few = replace(
        FOUND, corrected=None, too_few=results.TooFewRated(9, 30), rated=9, raters=1, agreement=None
    )
    says(
        result_sentences.clinician_headline(few), "30 rated answers", "9 of 200 answers", "1 rater"
    )
    assert len(list(result_sentences.clinician_lines(few))) == 3
    says(
        result_sentences.clinician_headline(replace(few, too_few=None)),
        "9 of 200 answers",
        "1 rater",
    )
    little = {"a": results.JudgeAgreement(0), "b": results.JudgeAgreement(3, bias=-0.5)}
    little_known = list(
        result_sentences.clinician_lines(replace(FOUND, agreement=None, judges=little, notes=()))
    )
    each_says(
        little_known[1:],
        ["a with the raters", "not defined", "n = 0", "bias not known"],
        ["b with the raters", "not defined", "n = 3", "bias -0.500"],
    )


NOW = Cost(0.012341, "table", 3, 0)
EVER = Cost(1234.5, "endpoint, table", 9, 0)
PARTLY = Cost(0.5, "table", 3, 2)
IN_ALL = "1,234.50 USD in all runs (endpoint, table)"
WITHOUT = "Cost: 0.5 USD in this run (table); without the 2 answers whose cost is not known"


def usage(
    now: Cost | None, ever: Cost | None, runs: int = 1, unknown: str | None = None
) -> results.Usage:
    spent = [
        results.Spent(
            requests=1,
            cached=0,
            retries=0,
            prompt_tokens=1,
            completion_tokens=1,
            latency_p50_s=None,
            latency_p95_s=None,
            cost=cost,
        )
        for cost in (now, ever)
    ]
    of = [results.SpentByRole(one, {"model": one}) for one in spent]
    return results.Usage(of[0], of[1], runs, 1.0, unknown)


@pytest.mark.parametrize(
    ("told", "line"),
    [
        (usage(None, None), None),
        (usage(None, None, unknown="model: why"), "Cost: not known (model: why)"),
        (usage(NOW, NOW), "Cost: 0.01234 USD in this run (table)"),
        (usage(NOW, EVER, 2), f"Cost: 0.01234 USD in this run, {IN_ALL}"),
        (usage(None, EVER, 2), f"Cost: {IN_ALL}"),
        (usage(None, EVER), f"Cost: {IN_ALL}"),
        (usage(PARTLY, PARTLY), WITHOUT),
        (usage(PARTLY, PARTLY, unknown="gpt: why"), f"{WITHOUT} (gpt: why)"),
    ],
)
def test_what_a_result_cost(told: results.Usage, line: str | None) -> None:
    assert result_sentences.cost_line(told) == line


def test_a_cost_is_written_with_what_it_was_counted_by() -> None:
    price = Price(2.5, 10.0, source="genai-prices 1")
    document = documents.usage_section(
        usage(Cost(1 / 3, "genai-prices 1", 3, 1, price=price), None, 2, unknown="why")
    )
    assert document["cost"] == {
        "value": 0.333333,
        "source": "genai-prices 1",
        "priced_requests": 3,
        "unpriced_requests": 1,
        "currency": "USD",
        "price": {"input_per_million": 2.5, "output_per_million": 10.0, "source": "genai-prices 1"},
    }
    assert document["cost_unknown"] == "why"
    assert "cost" not in document["all_runs"]
    assert not {"cost", "cost_unknown"} & documents.usage_section(usage(None, None)).keys()


CHANGED = results.Share(0.4, 30, 0.2512345678, 0.571)
ORDERS = results.ChoiceOrders(
    3,
    30,
    {"a choice refers to others": 2},
    {"1": 0.5, "2": 1 / 3, "3": None},
    CHANGED,
    results.Share(0.3, 30),
    {"A": 9},
)


@pytest.mark.parametrize(
    ("orders", "told"),
    [
        (
            ORDERS,
            (
                "order of the choices (3 orders, 30 questions): the answer to 40 % of them changes with it (95 % interval 25 % .."
                " 57 %), 30 % right in every order; exact_match over all orders 0.5000; 2 questions left as they are"
            ),
        ),
        (
            replace(ORDERS, kept={}, changed=results.Share(0.0, 1), right_in_all=None),
            "order of the choices (3 orders, 1 question): the answer to 0 % of them changes with it; exact_match over all orders 0.5000",
        ),
        (
            replace(ORDERS, kept={"x": 1}, changed=None),
            "order of the choices: no question was answered in two orders; 1 question left as they are",
        ),
        (None, None),
    ],
)
def test_the_order_of_choices(orders: results.ChoiceOrders | None, told: str | None) -> None:
    both = {"exact_match": SHARE, f"exact_match{results.ALL_ORDERS_SUFFIX}": SHARE}
    assert choice_order_line(made(scores=both, choice_orders=orders)) == told


def test_beside_what_an_order_changes_stands_what_the_same_words_change() -> None:
    orders = replace(ORDERS, same_words=results.Share(0.25, 8))
    line = choice_order_line(made(scores={"exact_match": SHARE}, choice_orders=orders))
    says(str(line), "same words", "2 of 8")


def test_the_order_of_choices_stands_in_each_report_and_is_read_again(tmp_path: Path) -> None:
    shuffled = made(choice_orders=ORDERS)
    plain = made()
    rundir = RunDir(Path("x"))
    assert f"\n  {choice_order_line(shuffled)}\n" in result_summary(shuffled, rundir)
    says(markdown_report(shuffled), "order of the choices", "3 orders, 30 questions")
    assert "over all orders" not in markdown_report(shuffled)
    assert "rder of the choices" not in markdown_report(plain) + result_summary(plain, rundir)
    rounded = replace(
        ORDERS,
        by_order={"1": 0.5, "2": 0.333333, "3": None},
        changed=replace(CHANGED, ci_low=0.251235),
    )
    assert load_result(written(tmp_path / "x", shuffled)).result.validity.choice_orders == rounded
    assert "choice_orders" not in (
        written(tmp_path / "y", plain) / "evaluation_config.yaml"
    ).read_text("utf-8")


VOTES = results.RubricVotes(1200, 700, 500, 0)
KINDS = results.RubricVotes(12, 8, 4, 0, 0, 1.0)
ONE = results.RubricReport(VOTES, {"gpt": replace(VOTES, score=0.51239)}, {})
THREE = results.RubricReport(
    results.RubricVotes(12, 5, 4, 1, 2),
    {"kind": KINDS, "strict": results.RubricVotes(12, 4, 5, 3)},
    {"kind/strict": results.PairAgreement(9, 0.6666, 0.4), "a/b": results.PairAgreement(1, 1.0)},
    0.06354,
    0.3333,
)


def test_criteria_in_one_line() -> None:
    says(result_sentences.rubric_headline(ONE), "700 of 1,200 criteria", "500 not met")
    says(
        result_sentences.rubric_headline(THREE),
        "5 of 12 criteria",
        "4 not met",
        "2 tied",
        "1 unjudged",
        "Krippendorff's alpha",
        "0.064",
        "all judges",
        "33.3 %",
    )
    one = replace(ONE, criteria=results.RubricVotes(1, 1, 0, 0))
    says(result_sentences.rubric_headline(one), "1 of 1 criterion", "0 not met")
    assert list(map(result_sentences.criteria_count, (0, 1, 1000))) == [
        "0 criteria",
        "1 criterion",
        "1,000 criteria",
    ]


def test_criteria_stand_in_the_markdown() -> None:
    of_rubric = of_a_rubric()
    text = markdown_report(replace(of_rubric, validity=replace(of_rubric.validity, rubric=THREE)))
    assert f"\n- criteria: {result_sentences.rubric_headline(THREE)}\n" in text
