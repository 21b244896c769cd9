"""The jury report on ratings whose figures are known."""

from __future__ import annotations

import math
from statistics import fmean

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from eval_factory.core.jury_form import HELMS_FORM, JuryForm
from eval_factory.core.results import RankCorrelation
from eval_factory.scoring.jury_agreement import Ratings, family_of
from eval_factory.scoring.metric_values import InstanceKey


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


def test_agreement_is_whole() -> None:
    report = ratings(a=[1, 3, 5, 2], b=[1, 3, 5, 2]).report()
    assert report.krippendorff_alpha == pytest.approx(1.0)
    assert report.weighted_kappa == {"a/b": pytest.approx(1.0)}


def test_krippendorffs_example() -> None:
    """K. Krippendorff, Computing Krippendorff's Alpha-Reliability (2011): 0.815 for ordinal data, 0.849 for interval."""
    report = ratings(
        a=[1, 2, 3, 3, 2, 1, 4, 1, 2, None, None, None],
        b=[1, 2, 3, 3, 2, 2, 4, 1, 2, 5, None, 3],
        c=[None, 3, 3, 3, 2, 3, 4, 2, 2, 5, 1, None],
        d=[1, 2, 3, 3, 2, 4, 4, 1, 2, 5, 1, None],
    ).report()
    assert report.krippendorff_alpha == pytest.approx(0.815, abs=0.0005)
    assert type(report.krippendorff_alpha) is float  # it is written as YAML


def test_agreement_is_below_chance() -> None:
    report = ratings(a=[1, 5, 1, 5], b=[5, 1, 5, 1]).report()
    assert report.krippendorff_alpha is not None
    assert report.krippendorff_alpha < 0
    assert report.weighted_kappa == {"a/b": pytest.approx(-1.0)}


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


def test_means_of_an_instance() -> None:
    made = Ratings()
    made.add("a", ("x", 0, None), {"accuracy": 4, "clarity": 5})
    assert made.means_of(("x", 0, None)) == {"a": 4.5}
    assert made.means_of(("y", 0, None)) == {}


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


def test_without_the_only_judge_nothing_is_left() -> None:
    made = ratings(a=[4, 5])
    made.rate_lowest(("id9", 0, None))
    assert made.report().leave_one_out == {"a": None}


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


def test_a_jury_that_said_nothing_has_still_the_lowest_of_empty_answers() -> None:
    made = Ratings()
    assert made.of_instances() == {}
    made.rate_lowest(key(0))
    assert made.of_instances() == {key(0): 1.0}
    assert made.of_instances(left_out="a") == {}


def test_ratings_that_were_added_do_not_change_any_more() -> None:
    given_ratings = {"accuracy": 4}
    made = Ratings()
    made.add("a", key(0), given_ratings)
    given_ratings["accuracy"] = 1
    assert made.of_instances() == {key(0): 4.0}
    made.add("b", key(0), {})
    assert list(made.by_judge) == ["a"]


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


def test_each_pair_of_judges_has_its_kappa() -> None:
    report = ratings(a=[1, 5], b=[1, 5], c=[5, 1]).report()
    assert report.weighted_kappa == {"a/b": 1.0, "a/c": -1.0, "b/c": -1.0}


def test_kappa_weighs_by_the_whole_scale() -> None:
    """From 2 to 5 are three steps although nobody gave a 3 or a 4: observed 18/4, expected over all 16 pairs."""
    report = ratings(a=[1, 2, 5, 5], b=[1, 5, 2, 5]).report()
    expected = 1 - (18 / 4) / (sum((x - y) ** 2 for x in (1, 2, 5, 5) for y in (1, 5, 2, 5)) / 16)
    assert report.weighted_kappa["a/b"] == pytest.approx(expected)
    assert type(report.weighted_kappa["a/b"]) is float


def test_one_of_two_judges_without_a_rating_leaves_alpha_undefined() -> None:
    """No answer that both of them rated: nothing can be said of how far they agree."""
    apart = ratings(a=[1, 2, None, None], b=[None, None, 4, 5]).report()
    assert apart.krippendorff_alpha is None
    assert apart.weighted_kappa == {"a/b": None}
    one = ratings(a=[1, 2, 5], b=[None, None, None]).report()
    assert one.krippendorff_alpha is None
    assert one.means == {"a": pytest.approx(8 / 3)}


def test_all_the_same_rating_leaves_kappa_and_alpha_undefined() -> None:
    same = ratings(a=[4, 4, 4], b=[4, 4, 4], c=[4, 4, 4]).report()
    assert same.krippendorff_alpha is None
    assert set(same.weighted_kappa.values()) == {None}


def test_keys_with_and_without_perturbation_can_stand_together() -> None:
    made = Ratings()
    for judge in "ab":
        for number, perturbation in enumerate((None, "typos", None)):
            made.add(judge, ("id", 0 if number < 2 else 1, perturbation), {"accuracy": number + 1})
    report = made.report()
    assert report.krippendorff_alpha == pytest.approx(1.0)
    assert report.weighted_kappa == {"a/b": pytest.approx(1.0)}


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
