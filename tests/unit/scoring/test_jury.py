"""A jury: its ratings, how far its judges agree, what is missing, and what its score could be with that."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from eval_factory.core.results import JudgeCounts, Judgements, RankCorrelation
from eval_factory.scoring import jury
from eval_factory.scoring.agreement import Ratings
from eval_factory.scoring.model_families import family_of
from eval_factory.scoring.reportable import judge_reasons
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.jury_form import JuryForm
from facts import says
from known import near, there


def ratings(**by_judge: list[int | None]) -> Ratings:
    """One criterion; one rating an instance, None where the judge failed."""
    made = Ratings()
    for judge, column in by_judge.items():
        for number, rating in enumerate(column):
            made.add(
                judge, (f"id{number}", 0, None), {} if rating is None else {"accuracy": rating}
            )
    return made


def of_lengths(marks: list[int], lengths: list[int]) -> RankCorrelation | None:
    made = ratings(a=[*marks, 5])
    # not of the last
    made.lengths = {(f"id{number}", 0, None): length for number, length in enumerate(lengths)}
    return made.make_report().length_correlation["a"]


def test_how_far_marks_follow_the_length_of_answers() -> None:
    """rho by hand: 1 - 6 * 8 / (10 * 99); the interval by Bonett and Wright's formula."""
    found = there(
        of_lengths([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [20, 10, 40, 30, 60, 50, 80, 70, 90, 100])
    )
    assert (found.rho, found.count) == (near(1 - 48 / 990), 10)
    half = 1.959964 * math.sqrt((1 + found.rho**2 / 2) / 7)
    both = math.atanh(found.rho) - half, math.atanh(found.rho) + half
    assert (math.atanh(found.ci_low), math.atanh(found.ci_high)) == near(both, abs=1e-5)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_perfect_order_of_few_answers_is_no_certainty(sign: int) -> None:
    few, many = (
        there(of_lengths(list(range(n)), [100 + sign * one for one in range(n)])) for n in (4, 40)
    )
    assert [few.rho, many.rho] == near([sign, sign])
    ends = sorted([sign * few.ci_low, sign * few.ci_high])
    assert ends == near([math.tanh(math.atanh(0.8) - 1.959964 * math.sqrt(1.32)), 1.0])
    assert min(sign * many.ci_low, sign * many.ci_high) > 0.99


def test_equal_marks_and_equal_lengths_have_no_correlation() -> None:
    assert of_lengths([1, 2, 3], [1, 2, 3]) is of_lengths([3] * 9, list(range(9))) is None
    assert of_lengths(list(range(9)), [7] * 9) is of_lengths([], []) is None


def test_means_and_leave_one_out() -> None:
    report = ratings(a=[1, 3, 5], b=[5, 5, 5], c=[3, None, None]).make_report()
    assert report.means == {"a": 3.0, "b": 5.0, "c": 3.0}
    assert report.leave_one_out == {
        "a": (4 + 5 + 5) / 3,
        "b": (2 + 3 + 5) / 3,
        "c": (3 + 4 + 5) / 3,
    }


def test_a_form_of_the_benchmarks_own() -> None:
    """Quadratic weights go by the values of the labels: (0, 0), (1, 4), (4, 4); 0 is the lowest mark."""
    made = ratings(a=[0, 1, 4], b=[0, 4, 4])
    made.form = JuryForm(
        (0, 1, 4), {"no": 0, "partly": 1, "yes": 4}, {"right": "it is true"}, states_scale=True
    )
    report = made.make_report()
    expected = sum((x - y) ** 2 for x, y in product((0, 1, 4), (0, 4, 4))) / 9
    assert report.weighted_kappa["a/b"] == near(1 - (9 / 3) / expected)
    assert (report.labels, report.criteria) == (
        {"no": 0, "partly": 1, "yes": 4},
        {"right": "it is true"},
    )
    made.empty_answers.add(("silent", 0, None))
    assert made.jury_scores()["silent", 0, None] == 0.0
    plain = ratings(a=[1], b=[1]).make_report()
    assert (plain.labels, plain.criteria) == ({}, {})


def test_what_is_not_defined_is_absent() -> None:
    alone = ratings(a=[3, 4]).make_report()
    equal = ratings(a=[4, 4], b=[4, 4]).make_report()
    assert (alone.krippendorff_alpha, alone.leave_one_out) == (None, {"a": None})
    assert (equal.krippendorff_alpha, equal.weighted_kappa) == (None, {"a/b": None})
    assert ratings(a=[1, None], b=[None, 5]).make_report().weighted_kappa == {"a/b": None}
    assert ratings().make_report().means == {}


FAMILIES = {
    "gpt": (
        "gpt-4o-2024-05-13 openai/o3-mini o1 chatgpt-4o-latest O4-mini openai/davinci demo-o1 gpt-and-llama "
        "gpt-oss-120b gpt2"
    ),
    "llama": (
        "meta/llama-3.3-70b-instruct nvidia/nemotron-4 codellama/CodeLlama-34b-Instruct-hf phind-codellama-34b "
        "lmsys/vicuna-13b-v1.5 epfl-llm/meditron-70b tatsu-lab/alpaca-7b openai/meta-llama-3-8b"
    ),
    "claude": (
        "us.anthropic.claude-3-7-sonnet anthropic/opus claude-3-7-sonnet anthropic/opus-4 gateway/sonnet-3.5 haiku"
    ),
    "gemini": "google/medgemma-27b gemini-2.0-flash google/gemma-2 palm-2 med-palm medgemma-4b-it google/codegemma-7b",
    "phi": "microsoft/phi-4 phi3-mini",
    "qwen": "Qwen/QwQ-32B qwen2.5-7b OpenMeditron/Meditron3-Qwen2.5-7B codeqwen1.5-7b qwen ollama/qwen2",
    None: (
        "my-own-model phi phi-mini medgrok o2-mini o10 o3x graph-o1x writer/palmyra-med-70b palmistry-7b "
        "helsinki-nlp/opus-mt-en-de octopus-v2 opusculum sonnets-writer haikus claudette-7b "
        "cognitivecomputations/dolphin-2.9 dolphin3 sapphire-7b phind-34b delphi-2 ollama/unknown-8b llamas-7b "
        "codellamas vicunas meditronic-1 alpacas gemmary-2b geminid mistralian-7b mist-7b minstrel-7b qwenty-1 "
        "deepseeker deepthink-7b voice-command-recognizer commander-7b command-room recommand-1 maya-8b "
        "coherent-7b groq/unknown grokking-1 biogpt-large gpt4all-13b eleutherai/gpt-j-6b "
        "eleutherai/gpt-neox-20b cerebras-gpt-13b aidc-ai/marco-o1"
    ),
    "mistral": "x/mistral-7b x/mixtral-7b x/ministral-7b x/magistral-7b BioMistral/BioMistral-7B codestral-2501",
    "deepseek": "deepseek-r1 deepseek",
    "command": "command-r-plus cohere/x aya-23 command c4ai/command-a-03-2025 command-r7b-12-2024",
    "grok": "Grok-3",
}
"""None: what only looks like one of a family."""


def test_families() -> None:
    for family, names in FAMILIES.items():
        assert {name: family_of(name) for name in names.split()} == dict.fromkeys(
            names.split(), family
        )


def key(number: int) -> InstanceKey:
    return (f"id{number}", 0, None)


def test_the_means_are_of_all_ratings_not_of_instances() -> None:
    """HELM's mean of an instance is of every rating of every judge; a judge's is of every rating that it gave."""
    made = Ratings()
    made.add("a", key(0), {"accuracy": 1, "clarity": 1, "completeness": 1})
    made.add("b", key(0), {"accuracy": 5})
    made.add("a", key(1), {"accuracy": 5})
    assert made.jury_scores() == {key(0): 2.0, key(1): 5.0}
    assert made.jury_scores(left_out="a") == {key(0): 5.0}
    assert made.make_report().means == {"a": 2.0, "b": 5.0}
    assert made.mean_by_judge(key(0)) == {"a": 1.0, "b": 5.0}


def test_an_answer_with_nothing_in_it_has_the_lowest_rating() -> None:
    made = ratings(a=[5], b=[3])
    made.empty_answers.add(key(7))
    assert made.jury_scores() == {key(0): 4.0, key(7): 1.0}
    assert {type(value) for value in made.jury_scores().values()} == {float}
    report = made.make_report()
    assert (report.leave_one_out, report.means) == ({"a": 2.0, "b": 3.0}, {"a": 5.0, "b": 3.0})


def test_criteria_are_rated_apart() -> None:
    """Two judges with the same means agree in nothing if they mean different criteria."""
    made = Ratings()
    for number in range(4):
        made.add("a", key(number), {"accuracy": 5, "clarity": 1})
        made.add("b", key(number), {"accuracy": 1, "clarity": 5})
    report = made.make_report()
    assert report.weighted_kappa == {"a/b": near(-1.0)}
    assert there(report.krippendorff_alpha) < -0.5


def test_kappa_weighs_by_the_whole_scale() -> None:
    """From 2 to 5 are three steps although nobody gave a 3 or a 4: observed 18/4, expected over all 16 pairs."""
    report = ratings(a=[1, 2, 5, 5], b=[1, 5, 2, 5]).make_report()
    expected = 1 - (18 / 4) / (
        sum((x - y) ** 2 for x, y in product((1, 2, 5, 5), (1, 5, 2, 5))) / 16
    )
    assert report.weighted_kappa["a/b"] == near(expected)
    assert type(report.weighted_kappa["a/b"]) is float


JUDGES = ("a", "b", "c")


def judged(*given: dict[str, int | tuple[int, ...]] | None) -> Ratings:
    """Of each instance its judges' judged, one a criterion; None: an answer with nothing in it."""
    made = Ratings()
    for number, of_instance in enumerate(given):
        if of_instance is None:
            made.empty_answers.add(key(number))
        for judge, marks in (of_instance or {}).items():
            several = marks if isinstance(marks, tuple) else (marks,)
            made.add(
                judge,
                key(number),
                {f"criterion {place}": mark for place, mark in enumerate(several)},
            )
    return made


def metric(said: Ratings, unjudged: int = 0, helm_mean: float | None = None) -> MetricValues:
    """As HELM computes it, with its default of 1 for the unjudged, which come last."""
    values = said.jury_scores()
    values |= {key(len(values) + number): 1.0 for number in range(unjudged)}
    place: dict[str, Any] = {"scale": (1.0, 5.0), "split": "test"}
    return MetricValues("jury", "jury", helm_mean, values=values, **place)


def test_each_judge_owes_a_judgement_of_each_answer() -> None:
    said = judged({"a": 4, "b": 2, "c": 3}, {"a": 4}, None)
    # the last one failed
    found = jury.judgements_of(said, JUDGES, {key(0), key(1), key(2), key(7)})
    assert (found, found.coverage) == (Judgements(due=9, given=4), near(4 / 9))
    assert jury.judgements_of(said, ("a", "d"), {key(0), key(1)}) == Judgements(due=4, given=2)
    assert jury.judgements_of(said, JUDGES, {key(1)}) == Judgements(due=3, given=1)
    none = jury.judgements_of(judged(None), JUDGES, {key(0)})
    assert (none, none.coverage) == (Judgements(0, 0), 1.0)


def test_the_score_of_all_judges_is_over_what_each_of_them_rated() -> None:
    """An answer with nothing in it needs no judge: without it, saying nothing would make this score better."""
    begin: list[dict[str, int | tuple[int, ...]]] = [{"a": 5, "b": 3}, {"a": 1}]
    for said, value in ((judged(*begin, {"a": 2, "b": 2}), 3.0), (judged(*begin, None), 2.5)):
        score = there(jury.score_where_all_judges_rated(metric(said), said, ("a", "b")))
        assert (score.value, score.stats.count, score.split) == (value, 2, "test")


def test_bounds_fill_in_each_missing_judgement() -> None:
    """(5, 3, ?), (?, ?, 2), and one that nobody judged."""
    said = judged({"a": 5, "b": 3, "c": 4}, {"a": 5, "b": 3}, {"c": 2})
    low = (4 + (5 + 3 + 1) / 3 + (1 + 1 + 2) / 3 + 1) / 4
    high = (4 + (5 + 3 + 5) / 3 + (5 + 5 + 2) / 3 + 5) / 4
    assert jury.bounds_over_judgements(metric(said, unjudged=1), said, JUDGES) == near((low, high))


def test_bounds_are_on_the_benchmarks_own_scale() -> None:
    said = judged({"a": 5, "b": 3})
    said.form = JuryForm((0, 10))
    assert jury.bounds_over_judgements(replace(metric(said), scale=None), said, JUDGES) == (
        8 / 3,
        18 / 3,
    )


def test_marks_beyond_the_scale_have_no_bounds() -> None:
    for beyond in (judged({"a": 9}), judged({"a": 0}), judged({"a": 9, "b": 9}, {"a": 3})):
        assert jury.bounds_over_judgements(metric(beyond), beyond, ("a", "b")) is None
    assert jury.bounds_over_judgements(MetricValues("jury", "jury", 2.0), Ratings(), JUDGES) is None


def agreement(alpha: float | None, *said: dict[str, int | tuple[int, ...]]) -> list[str]:
    made = judged(*said)
    return [
        note.text
        for note in jury.notes_on_agreement(
            replace(made.make_report(), krippendorff_alpha=alpha), made
        )
    ]


def test_judges_that_agree_beyond_belief_are_told() -> None:
    """Over twenty answers that two or more rated, whatever one of them rated alone."""
    both: list[dict[str, int | tuple[int, ...]]] = [{"a": 3, "b": 3}, {"a": 4, "b": 4}] * 10
    (told,) = agreement(0.981, *both)
    says(told, "Krippendorff's alpha 0.981", "20 answers", "one model", "a cache")
    assert (
        agreement(0.98, *both)
        == agreement(None, *both)
        == agreement(1.0, *both[1:], {"a": 3}, {"b": 3})
        == []
    )


@pytest.mark.parametrize(
    ("low", "high", "count", "said"),
    [
        (
            0.51,
            0.91,
            20,
            "gives longer answers better marks: the rank correlation of mark and length is 0.71 (95 %",
        ),
        (0.5, 0.9, 20, None),
        (0.51, 0.9, 19, None),
        (-0.9, -0.51, 20, "gives shorter answers better marks"),
        (-0.9, -0.5, 20, None),
        (-0.9, 0.9, 20, None),
    ],
)
def test_a_judge_whose_marks_follow_the_length_is_named(
    low: float, high: float, count: int, said: str | None
) -> None:
    made = judged({"a": 1})
    found = {"a": RankCorrelation((low + high) / 2, low, high, count), "b": None}
    notes = [
        note.text
        for note in jury.notes_on_agreement(
            replace(made.make_report(), length_correlation=found), made
        )
    ]
    expected = [] if said is None else [True]
    assert [note.startswith(f"judge a {said}") for note in notes] == expected


def test_a_judge_may_fail_as_often_as_the_limit_says() -> None:
    counts = {
        "whole": JudgeCounts(20, 20, 0),
        "just": JudgeCounts(30, 27, 3),
        "more": JudgeCounts(19, 17, 2),
        "gone": JudgeCounts(20, 0, 20),
        "idle": JudgeCounts(0, 0, 0),
    }
    more, gone = judge_reasons(counts, 0.1)
    says(more, "judge more", "2 of 19 answers", "max_judge_failures is 0.1")
    says(gone, "judge gone", "20 of 20 answers")
    assert "extra.judges" in gone
    assert (len(judge_reasons(counts, 0)), judge_reasons(counts, 1)) == (3, ())


@pytest.mark.parametrize(
    ("said", "bounds"),
    [
        (judged({"a": 1}), (1.0, 3.0)),
        (judged({"a": 5}), (3.0, 5.0)),  # the ends of the scale belong to it
        (judged({"a": 5}, None), (2.0, 3.0)),  # an answer with nothing in it is no gap
        (judged({"a": (5, 3, 4)}), (2.5, 4.5)),  # a judge whose criteria are several
    ],
)
def test_a_judge_that_said_nothing_may_have_given_any_mark(
    said: Ratings, bounds: tuple[float, float]
) -> None:
    assert jury.bounds_over_judgements(metric(said), said, ("a", "b")) == bounds


def test_bounds_of_a_whole_jury_are_the_score_to_the_last_digit() -> None:
    said = judged({"a": 5, "b": 3}, {"a": 4, "b": 3}, None)
    helms = 2.8333333333333337
    assert jury.bounds_over_judgements(metric(said, helm_mean=helms), said, ("a", "b")) == (
        helms,
        helms,
    )


def test_what_judges_rated_of_another_split_does_not_count() -> None:
    said = judged({"a": 5, "b": 3}, {"a": 1})
    other = metric(said)
    del other.values[key(0)]
    assert jury.score_where_all_judges_rated(other, said, ("a", "b")) is None


def test_where_all_or_nothing_is_whole_there_is_no_such_score() -> None:
    for said in (judged({"a": 5, "b": 3}, None), judged({"a": 5}, {"b": 3}, None)):
        assert jury.score_where_all_judges_rated(metric(said), said, ("a", "b")) is None


def test_judges_who_are_not_shown_to_agree_are_told() -> None:
    by_chance: list[dict[str, int | tuple[int, ...]]] = [
        {"a": 1 + number % 5, "b": 1 + (number // 5) % 5} for number in range(25)
    ]
    alike: list[dict[str, int | tuple[int, ...]]] = [
        {"a": 1 + number % 5, "b": 1 + min(4, number % 5 + number % 2)} for number in range(25)
    ]
    chance_report = judged(*by_chance).make_report()
    assert (chance_report.is_shown_to_agree, judged(*alike).make_report().is_shown_to_agree) == (
        False,
        True,
    )
    (told,) = agreement(0.1, *by_chance)
    says(told, "alpha 0.100", "results.jsonl")
    assert agreement(0.1, *alike) == []
    earlier = replace(chance_report, agreement_p=None, krippendorff_alpha=0.0)
    assert earlier.is_shown_to_agree is False
