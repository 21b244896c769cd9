"""A jury: its ratings, how far its judges agree, what is missing, and what its score could be with that."""

from __future__ import annotations

import math
from dataclasses import replace
from statistics import fmean

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eval_factory.core.jury_form import HELMS_FORM, JuryForm
from eval_factory.core.results import JudgeCounts, Judgements, RankCorrelation
from eval_factory.scoring.agreement import Ratings
from eval_factory.scoring.jury import (
    bounds_over_judgements,
    judgements_of,
    judges_that_failed,
    notes_on_agreement,
    rated_by_all,
    score_of_all_judges,
)
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.scoring.stated_models import family_of


def ratings(**by_judge: list[int | None]) -> Ratings:
    """One criterion; one rating an instance, None where the judge failed."""
    made = Ratings()
    for judge, column in by_judge.items():
        for number, rating in enumerate(column):
            made.add(judge, (f"id{number}", 0, None), {} if rating is None else {"accuracy": rating})
    return made


def of_lengths(marks: list[int], lengths: list[int]) -> RankCorrelation | None:
    made = ratings(a=[*marks, 5])
    made.lengths = {(f"id{number}", 0, None): length for number, length in enumerate(lengths)}  # not of the last
    return made.report().length_correlation["a"]


def test_how_far_marks_follow_the_length_of_answers() -> None:
    """rho by hand: 1 - 6 * 8 / (10 * 99); the interval by Bonett and Wright's formula."""
    found = of_lengths([1, 2, 3, 4, 5, 6, 7, 8, 9, 10], [20, 10, 40, 30, 60, 50, 80, 70, 90, 100])
    assert found is not None
    assert found.rho == pytest.approx(1 - 48 / 990)
    assert found.count == 10
    half = 1.959964 * math.sqrt((1 + found.rho**2 / 2) / 7)
    assert math.atanh(found.ci_low) == pytest.approx(math.atanh(found.rho) - half, abs=1e-5)
    assert math.atanh(found.ci_high) == pytest.approx(math.atanh(found.rho) + half, abs=1e-5)


@pytest.mark.parametrize("sign", [1, -1])
def test_a_perfect_order_of_few_answers_is_no_certainty(sign: int) -> None:
    few, many = (of_lengths(list(range(n)), [100 + sign * one for one in range(n)]) for n in (4, 40))
    assert few is not None
    assert many is not None
    assert [few.rho, many.rho] == pytest.approx([sign, sign])
    ends = sorted([sign * few.ci_low, sign * few.ci_high])
    assert ends == pytest.approx([math.tanh(math.atanh(0.8) - 1.959964 * math.sqrt(1.32)), 1.0])
    assert min(sign * many.ci_low, sign * many.ci_high) > 0.99


@pytest.mark.parametrize(
    ("marks", "lengths"), [([1, 2, 3], [1, 2, 3]), ([3] * 9, list(range(9))), (list(range(9)), [7] * 9), ([], [])]
)
def test_equal_marks_and_equal_lengths_have_no_correlation(marks: list[int], lengths: list[int]) -> None:
    assert of_lengths(marks, lengths) is None


def test_means_and_leave_one_out() -> None:
    report = ratings(a=[1, 3, 5], b=[5, 5, 5], c=[3, None, None]).report()
    assert report.means == {"a": 3.0, "b": 5.0, "c": 3.0}
    assert report.leave_one_out == {"a": (4 + 5 + 5) / 3, "b": (2 + 3 + 5) / 3, "c": (3 + 4 + 5) / 3}


def test_cohens_example_by_hand() -> None:
    """Quadratic weights on (1,1), (2,3), (3,3), (5,4): observed 2/16/4; expected over all 16 pairs 74/16/16."""
    report = ratings(a=[1, 2, 3, 5], b=[1, 3, 3, 4]).report()
    assert report.weighted_kappa["a/b"] == pytest.approx(
        1 - (2 / 4) / (sum((x - y) ** 2 for x in (1, 2, 3, 5) for y in (1, 3, 3, 4)) / 16)
    )


def test_a_form_of_the_benchmarks_own() -> None:
    """Quadratic weights go by the values of the labels: (0, 0), (1, 4), (4, 4); 0 is the lowest mark."""
    made = ratings(a=[0, 1, 4], b=[0, 4, 4])
    made.form = JuryForm((0, 1, 4), {"no": 0, "partly": 1, "yes": 4}, {"right": "it is true"}, own_scale=True)
    report = made.report()
    expected = sum((x - y) ** 2 for x in (0, 1, 4) for y in (0, 4, 4)) / 9
    assert report.weighted_kappa["a/b"] == pytest.approx(1 - (9 / 3) / expected)
    assert (report.labels, report.criteria) == ({"no": 0, "partly": 1, "yes": 4}, {"right": "it is true"})
    made.rate_lowest(("silent", 0, None))
    assert made.of_instances()["silent", 0, None] == 0.0
    plain = ratings(a=[1], b=[1]).report()
    assert (plain.labels, plain.criteria) == ({}, {})


def test_what_is_not_defined_is_absent() -> None:
    assert ratings(a=[3, 4]).report().krippendorff_alpha is None
    assert ratings(a=[3, 4]).report().leave_one_out == {"a": None}
    report = ratings(a=[4, 4], b=[4, 4]).report()
    assert report.krippendorff_alpha is None
    assert report.weighted_kappa == {"a/b": None}
    apart = ratings(a=[1, None], b=[None, 5]).report()
    assert apart.weighted_kappa == {"a/b": None}
    assert ratings().report().means == {}


@pytest.mark.parametrize(
    ("model_id", "family"),
    [
        ("gpt-4o-2024-05-13", "gpt"),
        ("openai/o3-mini", "gpt"),
        ("o1", "gpt"),
        ("meta/llama-3.3-70b-instruct", "llama"),
        ("us.anthropic.claude-3-7-sonnet", "claude"),
        ("google/medgemma-27b", "gemini"),
        ("microsoft/phi-4", "phi"),
        ("Qwen/QwQ-32B", "qwen"),
        ("my-own-model", None),
        ("chatgpt-4o-latest", "gpt"),
        ("O4-mini", "gpt"),
        ("openai/davinci", "gpt"),
        ("anthropic/opus", "claude"),
        ("claude-3-7-sonnet", "claude"),
        ("nvidia/nemotron-4", "llama"),
        ("gemini-2.0-flash", "gemini"),
        ("google/gemma-2", "gemini"),
        ("palm-2", "gemini"),
        *((f"x/{name}-7b", "mistral") for name in ("mistral", "mixtral", "ministral", "magistral")),
        ("qwen2.5-7b", "qwen"),
        ("deepseek-r1", "deepseek"),
        ("phi3-mini", "phi"),
        ("phi", None),
        ("phi-mini", None),
        ("command-r-plus", "command"),
        ("cohere/x", "command"),
        ("aya-23", "command"),
        ("Grok-3", "grok"),
        ("medgrok", None),
        ("o2-mini", None),
        ("o10", None),
        ("o3x", None),
        ("demo-o1", "gpt"),
        ("gpt-and-llama", "gpt"),
        ("graph-o1x", None),
        # what is derived, and what a vendor calls its own models
        ("codellama/CodeLlama-34b-Instruct-hf", "llama"),
        ("phind-codellama-34b", "llama"),
        ("lmsys/vicuna-13b-v1.5", "llama"),
        ("epfl-llm/meditron-70b", "llama"),
        ("OpenMeditron/Meditron3-Qwen2.5-7B", "qwen"),
        ("tatsu-lab/alpaca-7b", "llama"),
        ("openai/meta-llama-3-8b", "llama"),
        ("anthropic/opus-4", "claude"),
        ("gateway/sonnet-3.5", "claude"),
        ("haiku", "claude"),
        ("med-palm", "gemini"),
        ("medgemma-4b-it", "gemini"),
        ("google/codegemma-7b", "gemini"),
        ("BioMistral/BioMistral-7B", "mistral"),
        ("codestral-2501", "mistral"),
        ("codeqwen1.5-7b", "qwen"),
        ("qwen", "qwen"),
        ("deepseek", "deepseek"),
        ("command", "command"),
        ("c4ai/command-a-03-2025", "command"),
        ("command-r7b-12-2024", "command"),
        ("gpt-oss-120b", "gpt"),
        ("gpt2", "gpt"),
        # what only looks like one of them
        ("writer/palmyra-med-70b", None),
        ("palmistry-7b", None),
        ("helsinki-nlp/opus-mt-en-de", None),
        ("octopus-v2", None),
        ("opusculum", None),
        ("sonnets-writer", None),
        ("haikus", None),
        ("claudette-7b", None),
        ("cognitivecomputations/dolphin-2.9", None),
        ("dolphin3", None),
        ("sapphire-7b", None),
        ("phind-34b", None),
        ("delphi-2", None),
        ("ollama/unknown-8b", None),
        ("ollama/qwen2", "qwen"),
        ("llamas-7b", None),
        ("codellamas", None),
        ("vicunas", None),
        ("meditronic-1", None),
        ("alpacas", None),
        ("gemmary-2b", None),
        ("geminid", None),
        ("mistralian-7b", None),
        ("mist-7b", None),
        ("minstrel-7b", None),
        ("qwenty-1", None),
        ("deepseeker", None),
        ("deepthink-7b", None),
        ("voice-command-recognizer", None),
        ("commander-7b", None),
        ("command-room", None),
        ("recommand-1", None),
        ("maya-8b", None),
        ("coherent-7b", None),
        ("groq/unknown", None),
        ("grokking-1", None),
        ("biogpt-large", None),
        ("gpt4all-13b", None),
        ("eleutherai/gpt-j-6b", None),
        ("eleutherai/gpt-neox-20b", None),
        ("cerebras-gpt-13b", None),
        ("aidc-ai/marco-o1", None),
        ("", None),
    ],
)
def test_families(model_id: str, family: str | None) -> None:
    assert family_of(model_id) == family


def key(number: int) -> InstanceKey:
    return (f"id{number}", 0, None)


def test_the_means_are_of_all_ratings_not_of_instances() -> None:
    """HELM's mean of an instance is of every rating of every judge; a judge's is of every rating that it gave."""
    made = Ratings()
    made.add("a", key(0), {"accuracy": 1, "clarity": 1, "completeness": 1})
    made.add("b", key(0), {"accuracy": 5})
    made.add("a", key(1), {"accuracy": 5})
    assert made.of_instances() == {key(0): 2.0, key(1): 5.0}
    assert made.of_instances(left_out="a") == {key(0): 5.0}
    assert made.report().means == {"a": 2.0, "b": 5.0}
    assert made.means_of(key(0)) == {"a": 1.0, "b": 5.0}


def test_an_answer_with_nothing_in_it_has_the_lowest_rating() -> None:
    made = ratings(a=[5], b=[3])
    made.rate_lowest(key(7))
    assert made.of_instances() == {key(0): 4.0, key(7): 1.0}
    assert {type(value) for value in made.of_instances().values()} == {float}
    assert made.report().leave_one_out == {"a": 2.0, "b": 3.0}
    assert made.report().means == {"a": 5.0, "b": 3.0}


def test_criteria_are_rated_apart() -> None:
    """Two judges with the same means agree in nothing if they mean different criteria."""
    made = Ratings()
    for number in range(4):
        made.add("a", key(number), {"accuracy": 5, "clarity": 1})
        made.add("b", key(number), {"accuracy": 1, "clarity": 5})
    report = made.report()
    assert report.weighted_kappa == {"a/b": pytest.approx(-1.0)}
    assert report.krippendorff_alpha is not None
    assert report.krippendorff_alpha < -0.5


def test_kappa_weighs_by_the_whole_scale() -> None:
    """From 2 to 5 are three steps although nobody gave a 3 or a 4: observed 18/4, expected over all 16 pairs."""
    report = ratings(a=[1, 2, 5, 5], b=[1, 5, 2, 5]).report()
    expected = 1 - (18 / 4) / (sum((x - y) ** 2 for x in (1, 2, 5, 5) for y in (1, 5, 2, 5)) / 16)
    assert report.weighted_kappa["a/b"] == pytest.approx(expected)
    assert type(report.weighted_kappa["a/b"]) is float


_GIVEN = st.lists(st.none() | st.integers(1, 5), min_size=1, max_size=6)


@settings(max_examples=40)
@given(_GIVEN, _GIVEN, _GIVEN)
@example([None], [2], [2, 1])  # what two rated is rated the same: 0 by 0
def test_figures_of_any_ratings_are_defined_or_absent(
    a: list[int | None], b: list[int | None], c: list[int | None]
) -> None:
    """And none of them depends on which judge is called what."""
    report, renamed = ratings(a=a, b=b, c=c).report(), ratings(x=c, y=b, z=a).report()
    said = {name: [rating for rating in column if rating] for name, column in {"a": a, "b": b, "c": c}.items()}
    assert report.means == {name: pytest.approx(fmean(column)) for name, column in said.items() if column}
    figures = [report.krippendorff_alpha, *report.weighted_kappa.values()]
    assert all(figure is None or (math.isfinite(figure) and figure <= 1 + 1e-9) for figure in figures)
    assert (report.krippendorff_alpha is None) == (renamed.krippendorff_alpha is None)
    if report.krippendorff_alpha is not None:
        assert report.krippendorff_alpha == pytest.approx(renamed.krippendorff_alpha)
    assert all(
        mean is None or HELMS_FORM.values[0] <= mean <= HELMS_FORM.values[-1] for mean in report.leave_one_out.values()
    )


JUDGES = ("a", "b", "c")


def judged(*given: dict[str, int | tuple[int, ...]] | None) -> Ratings:
    """Of each instance its judges' judged, one a criterion; None: an answer with nothing in it."""
    made = Ratings()
    for number, of_instance in enumerate(given):
        if of_instance is None:
            made.rate_lowest(key(number))
        for judge, marks in (of_instance or {}).items():
            several = marks if isinstance(marks, tuple) else (marks,)
            made.add(judge, key(number), {f"criterion {place}": mark for place, mark in enumerate(several)})
    return made


def metric(said: Ratings, unjudged: int = 0, helm_mean: float | None = None) -> MetricValues:
    """As HELM computes it, with its default of 1 for the unjudged, which come last."""
    values = said.of_instances()
    values |= {key(len(values) + number): 1.0 for number in range(unjudged)}
    return MetricValues(
        "jury", "jury", helm_mean, merged=helm_mean is None, scale=(1.0, 5.0), values=values, split="test"
    )


def test_each_judge_owes_a_judgement_of_each_answer() -> None:
    said = judged({"a": 4, "b": 2, "c": 3}, {"a": 4}, None)
    failed = key(7)
    asked = {key(0), key(1), key(2), failed}
    assert judgements_of(said, JUDGES, asked) == Judgements(due=9, given=4)
    assert judgements_of(said, JUDGES, asked).coverage == pytest.approx(4 / 9)
    assert judgements_of(said, ("a", "d"), {key(0), key(1)}) == Judgements(due=4, given=2)
    assert judgements_of(said, JUDGES, {key(1)}) == Judgements(due=3, given=1)


def test_rated_by_all_needs_every_judge() -> None:
    said = judged({"a": 4, "b": 2}, {"a": 4}, {"b": 1, "a": 1}, None)
    assert rated_by_all(said, ("a", "b")) == {key(0), key(2)}
    assert rated_by_all(said, ("a",)) == {key(0), key(1), key(2)}
    assert rated_by_all(said, JUDGES) == set()
    assert rated_by_all(said, ()) == set()


def test_the_score_of_all_judges_is_over_what_each_of_them_rated() -> None:
    said = judged({"a": 5, "b": 3}, {"a": 1}, {"a": 2, "b": 2})
    score = score_of_all_judges(metric(said), said, ("a", "b"))
    assert score is not None
    assert (score.value, score.stats.count, score.split) == (3.0, 2, "test")


def test_an_answer_with_nothing_in_it_needs_no_judge() -> None:
    """Without it, saying nothing would make this score better."""
    said = judged({"a": 5, "b": 3}, {"a": 1}, None)
    score = score_of_all_judges(metric(said), said, ("a", "b"))
    assert score is not None
    assert (score.value, score.stats.count) == (2.5, 2)


def test_where_all_or_nothing_is_whole_there_is_no_such_score() -> None:
    whole = judged({"a": 5, "b": 3}, None)
    assert score_of_all_judges(metric(whole), whole, ("a", "b")) is None
    half = judged({"a": 5}, {"b": 3}, None)
    assert score_of_all_judges(metric(half), half, ("a", "b")) is None


def test_what_judges_rated_of_another_split_does_not_count() -> None:
    said = judged({"a": 5, "b": 3}, {"a": 1})
    other = metric(said)
    del other.values[key(0)]
    assert score_of_all_judges(other, said, ("a", "b")) is None


def test_bounds_fill_in_each_missing_judgement() -> None:
    """(5, 3, ?), (?, ?, 2), and one that nobody judged."""
    said = judged({"a": 5, "b": 3, "c": 4}, {"a": 5, "b": 3}, {"c": 2})
    low, high = bounds_over_judgements(metric(said, unjudged=1), said, JUDGES) or (0.0, 0.0)
    assert low == pytest.approx((4 + (5 + 3 + 1) / 3 + (1 + 1 + 2) / 3 + 1) / 4)
    assert high == pytest.approx((4 + (5 + 3 + 5) / 3 + (5 + 5 + 2) / 3 + 5) / 4)


def test_bounds_are_on_the_benchmarks_own_scale() -> None:
    said = judged({"a": 5, "b": 3})
    said.form = JuryForm((0, 10))
    assert bounds_over_judgements(replace(metric(said), scale=None), said, JUDGES) == (8 / 3, 18 / 3)


def test_bounds_go_by_judges_whose_criteria_are_several() -> None:
    said = judged({"a": (5, 3, 4)})
    assert bounds_over_judgements(metric(said), said, ("a", "b")) == (2.5, 4.5)


def test_marks_beyond_the_scale_have_no_bounds() -> None:
    beyond = judged({"a": 9})
    assert bounds_over_judgements(metric(beyond), beyond, ("a", "b")) is None
    below = judged({"a": 0})
    assert bounds_over_judgements(metric(below), below, ("a", "b")) is None
    whole = judged({"a": 9, "b": 9}, {"a": 3})
    assert bounds_over_judgements(metric(whole), whole, ("a", "b")) is None
    assert bounds_over_judgements(MetricValues("jury", "jury", 2.0, merged=False), Ratings(), JUDGES) is None


def agreement(alpha: float | None, *said: dict[str, int | tuple[int, ...]]) -> list[str]:
    made = judged(*said)
    return [note.text for note in notes_on_agreement(replace(made.report(), krippendorff_alpha=alpha), made)]


def test_judges_that_agree_beyond_belief_are_told() -> None:
    """Over twenty answers that two or more rated, whatever one of them rated alone."""
    both: list[dict[str, int | tuple[int, ...]]] = [{"a": 3, "b": 3}] * 20
    told = (
        "the judges agree more than different models do (Krippendorff's alpha 0.981 over 20 answers):"
        " does one model, or a cache, answer for several of them?"
    )
    assert agreement(0.981, *both) == [told]
    assert agreement(0.98, *both) == []
    assert agreement(None, *both) == []
    assert agreement(1.0, *both[1:], {"a": 3}, {"b": 3}) == []


@pytest.mark.parametrize(
    ("low", "high", "count", "said"),
    [
        (0.51, 0.91, 20, "gives longer answers better marks: the rank correlation of mark and length is 0.71 (95 %"),
        (0.5, 0.9, 20, None), (0.51, 0.9, 19, None), (-0.9, -0.51, 20, "gives shorter answers better marks"),
        (-0.9, -0.5, 20, None), (-0.9, 0.9, 20, None),
    ],
)  # fmt: skip
def test_a_judge_whose_marks_follow_the_length_is_named(low: float, high: float, count: int, said: str | None) -> None:
    made = judged({"a": 1})
    found = {"a": RankCorrelation((low + high) / 2, low, high, count), "b": None}
    notes = [note.text for note in notes_on_agreement(replace(made.report(), length_correlation=found), made)]
    assert [note.startswith(f"judge a {said}") for note in notes] == [True] * (said is not None)


def test_a_judge_may_fail_as_often_as_the_limit_says() -> None:
    counts = {
        "whole": JudgeCounts(20, 20, 0), "just": JudgeCounts(30, 27, 3), "more": JudgeCounts(19, 17, 2),
        "gone": JudgeCounts(20, 0, 20), "idle": JudgeCounts(0, 0, 0),
    }  # fmt: skip
    more, gone = judges_that_failed(counts, 0.1)
    assert more.startswith("judge more gave no usable judgement of 2 of 19 answers, and max_judge_failures is 0.1: ")
    assert gone.startswith("judge gone gave no usable judgement of 20 of 20 answers")
    assert "extra.judges" in gone
    assert len(judges_that_failed(counts, 0)) == 3
    assert judges_that_failed(counts, 1) == ()
