"""A score without its judge's mistakes: Rogan and Gladen's formula, and an interval that holds the true score."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import disagreeing_physicians
import numpy as np
import pytest
from judge_coverage import TO_CORRECT, coverage_of_correction
from scipy import stats

from eval_factory.scoring import judge_correction, latent_class
from eval_factory.scoring.judge_correction import (
    CasePoints,
    JudgeCorrectedScore,
    Labels,
    NotCorrected,
    corrected_by_labels,
    corrected_score,
    share_met_differs,
    weights_of,
)
from eval_factory.scoring.latent_class import MIN_DOUBLE, judge_rates, widened_percentile_interval
from eval_factory.tasks.physician_labels import LabelledItems, LabelledPairs
from facts import says
from known import near

EIGHT_OF_TEN = (8, 1, 2, 9)
"""A judge of sensitivity 0.8 and specificity 0.9."""


def judged(
    given: Sequence[float], possible: Any = None, clusters: Any = None, lowest: float = 0.0
) -> CasePoints:
    return CasePoints(given, possible or [1.0] * len(given), clusters or range(len(given)), lowest)


def fixed(found: JudgeCorrectedScore | NotCorrected) -> JudgeCorrectedScore:
    assert isinstance(found, JudgeCorrectedScore)
    return found


def labelled(
    *tables: tuple[int, int, int, int], category: str | None = None
) -> list[LabelledPairs]:
    """Of one conversation each."""
    return [LabelledPairs(at, category, table) for at, table in enumerate(tables)]


def test_one_criterion_a_case_has_rogan_and_gladens_share() -> None:
    """(0.52 + 0.9 - 1) / (0.8 + 0.9 - 1)."""
    found = fixed(
        corrected_by_labels(judged([1.0] * 52 + [0.0] * 48), labelled(*[EIGHT_OF_TEN] * 20), {})
    )
    assert (found.value, found.sensitivity, found.specificity) == (near(0.6), near(0.8), near(0.9))


def test_points_below_0_lessen_what_the_judge_gives_for_nothing() -> None:
    """(0.5 - 0.1 * 0.8) / 0.7, where all criteria together give 0.8: it is the mean of the corrected cases."""
    cases = judged([0.2, 0.8] * 30, [0.7, 0.9] * 30, lowest=-0.2)
    found = fixed(corrected_by_labels(cases, labelled(*[EIGHT_OF_TEN] * 20), {}))
    assert (found.value, found.score_of_case(0.2, 0.7)) == (near(0.6), near(0.13 / 0.7))
    both = zip(cases.points_given, cases.points_if_all_met, strict=True)
    assert statistics.fmean(found.score_of_case(*case) for case in both) == near(found.value)


def by_grid(cases: CasePoints, tables: Sequence[Sequence[float]]) -> tuple[float, float]:
    """The least and the greatest score that a t test does not reject, without a formula for its roots."""
    sizes = [sum(table) for table in tables]
    units = sum(sizes) ** 2 / sum(size**2 for size in sizes)
    extra = 0.5 * max(statistics.fmean(sizes), sum(sizes) / units - statistics.fmean(sizes) / 2)
    rows = [list(table) for table in tables]
    for kind in range(4):
        row = [0.0] * 4
        row[kind] = extra
        rows.append(row)

    def rates(these: Sequence[Sequence[float]]) -> tuple[float, float]:
        both, judge, physician, none = map(sum, zip(*these, strict=True))
        return both / (both + physician), none / (none + judge)

    left_out = [rates(rows[:at] + rows[at + 1 :]) for at in range(len(rows))]
    spread = (len(rows) - 1) ** 2 / len(rows) * np.cov(np.array(left_out).T)
    sensitivity, specificity = rates(rows)
    possible = statistics.fmean(cases.points_if_all_met)
    values = np.array(cases.points_given) - (1 - specificity) * np.array(cases.points_if_all_met)
    names, counts = np.unique(np.array(cases.clusters), return_counts=True)
    sources = len(values) ** 2 / (counts**2).sum()
    size = max(counts.mean(), len(values) / sources - counts.mean() / 2)
    scale = np.array([cases.lowest, 1]) - (1 - specificity) * possible
    ends = np.array([min(scale[0], values.min()), max(scale[1], values.max())])
    mean = (values.sum() + size * ends.sum()) / (len(values) + 2 * size)
    totals = [(values[np.array(cases.clusters) == name] - mean).sum() for name in names] + list(
        size * (ends - mean)
    )
    of_cases = (
        len(totals) / (len(totals) - 1) * np.square(totals).sum() / (len(values) + 2 * size) ** 2
    )
    score = np.linspace(-0.5, 1, 750_001)
    apart = (
        statistics.fmean(cases.points_given)
        - sensitivity * score
        - (1 - specificity) * (possible - score)
    )
    slope = np.stack([-score, possible - score])
    variance = of_cases + np.einsum("is,ij,js->s", slope, spread, slope)
    held = score[np.abs(apart) <= stats.t.ppf(0.975, min(units, sources) - 1) * np.sqrt(variance)]
    return held.min(), held.max()


@pytest.mark.parametrize("cases", [60, 300])
@pytest.mark.parametrize("sizes", [(1,), (9, 2, 2, 1, 1, 1)])
@pytest.mark.parametrize("below_0", [0.0, 0.6])
def test_an_interval_holds_every_score_that_a_test_does_not_reject(
    cases: int, sizes: Any, below_0: float
) -> None:
    rng = np.random.default_rng(7)
    possible = 1 - below_0 * rng.random(cases)
    source = np.repeat(range(cases), np.resize(sizes, cases))[:cases]
    given = (
        possible
        - 1
        + (2 - possible) * rng.beta(0.6 if cases == 60 else 12, 0.4 if cases == 60 else 12, cases)
    )
    tables = rng.multinomial(3 * np.resize(sizes, 9000 // cases), (0.5, 0.04, 0.04, 0.42)).tolist()
    run = judged(given.tolist(), possible.tolist(), source.tolist(), float(possible.mean()) - 1)
    found = fixed(corrected_by_labels(run, labelled(*tables), {}))
    assert (found.ci_low, found.ci_high) == near(by_grid(run, tables), abs=2e-6)
    assert run.lowest < found.ci_low < found.value < found.ci_high < 1


def test_a_judge_without_mistakes_leaves_the_score_and_its_cases() -> None:
    cases = judged([0.2, 0.9, -0.1] * 20, [1.0, 0.9, 0.5] * 20, lowest=-0.2)
    found = fixed(corrected_by_labels(cases, labelled(*[(2, 0, 0, 2)] * 40), {}))
    assert (found.value, statistics.fmean(cases.points_given), found.score_of_case(-0.1, 0.5)) == (
        near(1 / 3),
        near(1 / 3),
        near(-0.1),
    )


USUAL = judged([0.4, 0.6] * 30)
NO_MISTAKES = labelled(*[(8, 0, 0, 8)] * 300)
LABELS = "too few labels"
LITTLE = "depend too little"
SOURCES = "too few sources"
OTHERWISE = "makes other mistakes"
ONE_SOURCE = judged([0.4, 0.6] * 30, clusters=["a"] * 60)
NEARLY_TWO = judged([0.4, 0.6] * 30, clusters=["a"] * 33 + ["b"] * 27)
NOT_KNOWN: dict[str, tuple[CasePoints, list[LabelledPairs], str]] = {
    "no labels": (USUAL, [], LABELS),
    "empty labels": (USUAL, labelled(*[(0, 0, 0, 0)] * 30), LABELS),
    "four conversations": (USUAL, labelled(*[EIGHT_OF_TEN] * 4), LABELS),
    "met of everything": (USUAL, labelled(*[(3, 1, 0, 0)] * 50), LITTLE),
    "nothing that is not met": (USUAL, labelled(*[(5, 0, 1, 0)] * 50), LITTLE),
    "by chance": (USUAL, labelled(*[(3, 3, 2, 2)] * 90), LITTLE),
    "hardly better than chance": (USUAL, labelled(*[(4, 3, 2, 2)] * 8), LITTLE),
    "worse than chance": (USUAL, labelled(*[(1, 9, 9, 1)] * 50), LITTLE),
    "less than it gives for nothing": (
        judged([0.0] * 60),
        labelled(*[(90, 40, 10, 60)] * 100),
        OTHERWISE,
    ),
    "one source": (ONE_SOURCE, NO_MISTAKES, SOURCES),
    "nearly two sources": (NEARLY_TWO, NO_MISTAKES, SOURCES),
}


@pytest.mark.parametrize("name", NOT_KNOWN)
def test_nothing_is_said_that_cannot_be_known_but_why(name: str) -> None:
    cases, labels, reason = NOT_KNOWN[name]
    found = corrected_by_labels(cases, labels, {})
    assert isinstance(found, NotCorrected)
    says(found.reason, reason)


def test_two_sources_and_five_conversations_are_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of five, pseudo-clusters as large as they are would leave no interval."""
    fixed(corrected_by_labels(judged([0.4, 0.6] * 30, clusters=["a", "b"] * 30), NO_MISTAKES, {}))
    monkeypatch.setattr(judge_correction, "PSEUDO_SIZE_FACTOR", 0.01)
    four, five = (
        corrected_by_labels(USUAL, labelled(*[EIGHT_OF_TEN] * count), {}) for count in (4, 5)
    )
    assert isinstance(four, NotCorrected)
    assert isinstance(five, JudgeCorrectedScore)


@pytest.mark.parametrize("given", [-0.3, -0.1, 0.0, 0.1, 0.12, 0.78, 0.8, 0.82, 0.9, 1.0])
def test_value_and_interval_stay_in_the_scale(given: float) -> None:
    found = corrected_by_labels(
        judged([given] * 60, lowest=-0.3), labelled(*[EIGHT_OF_TEN] * 20), {}
    )
    assert (
        isinstance(found, NotCorrected) or -0.3 <= found.ci_low <= found.value <= found.ci_high <= 1
    )
    assert not -0.1 < given < 0.8 or fixed(found).value == near((given - 0.1) / 0.7), (
        "it is not clipped"
    )


def test_the_divisor_is_as_uncertain_as_two_shares_of_labels_are() -> None:
    """Of 300 labels that say met, and of 300 that do not, the judge is right about nine of ten: of
    each alone, and then always of one and the other of a conversation.
    """
    tables = [(1, 0, 0, 0)] * 270 + [(0, 0, 1, 0)] * 30
    tables += [(0, 0, 0, 1)] * 270 + [(0, 1, 0, 0)] * 30
    found = fixed(corrected_by_labels(USUAL, labelled(*tables), {}))
    assert found.youden_stderr == near((2 * 0.9 * 0.1 / 300) ** 0.5, rel=0.02)
    together = labelled(*[(1, 0, 0, 1)] * 270 + [(0, 1, 1, 0)] * 30)
    found = fixed(corrected_by_labels(USUAL, together, {}))
    assert found.youden_stderr == near(2 * (0.9 * 0.1 / 300) ** 0.5, rel=0.02)


def test_labels_of_a_conversation_are_one_and_count_as_their_category_does() -> None:
    one = (8, 1, 2, 9)
    other = (2, 1, 0, 3)
    parts = (
        labelled(*[one] * 15, category="a")
        + labelled(*[other] * 15, category="b")
        + labelled(*[other] * 15)
    )
    whole = labelled(*[(2 * 8 + 3 * 2 + 2, 2 + 3 + 1, 4, 2 * 9 + 3 * 3 + 3)] * 15)
    found = corrected_by_labels(
        USUAL, [*parts, LabelledPairs("c", "none", one)], {"a": 2, "b": 3, "none": 0}
    )
    assert fixed(found) == corrected_by_labels(USUAL, whole, {})


def test_labels_get_the_mix_of_the_run() -> None:
    pairs: dict[str | None, int] = {"a": 30, "b": 10}
    assert weights_of(pairs, {"a": 15.0, "b": 5.0})[0] == near({"a": 1.0, "b": 1.0}), (
        "it is the same"
    )
    weights = weights_of(pairs, {"a": 5.0, "b": 15.0})[0]
    assert (weights, sum(weights[name] * pairs[name] for name in pairs)) == (
        near({"a": 1 / 3, "b": 3.0}),
        near(40),
    )


def test_what_has_too_few_labels_is_like_all_that_are_labelled() -> None:
    """Half of the points are of category a; the others are of one with nine pairs, of none, and of no name."""
    pairs: dict[str | None, int] = {"a": 60, "b": 9, None: 31, "elsewhere": 20}
    weights = weights_of(pairs, {"a": 8.0, "b": 3.0, "c": 4.0, None: 1.0})[0]
    assert weights == near({"a": 0.5 + 0.5 * 120 / 60, "b": 0.5, None: 0.5, "elsewhere": 0.5})
    assert weights_of(pairs, {})[0] == dict.fromkeys(pairs, 1.0) == weights_of(pairs, {"a": 0.0})[0]


def test_a_lenient_judges_score_is_wrong_and_the_interval_holds_the_true_one() -> None:
    """It says met of 97 % of what is met and of half of the rest. Half is met, so it gives 73.5 % for 50 %."""
    rng = np.random.default_rng(3)
    chances = (0.485, 0.25, 0.015, 0.25)
    held = wrong = 0
    for _ in range(200):
        cases = judged((rng.binomial(6, 0.735, 150) / 6).tolist())
        found = fixed(
            corrected_by_labels(cases, labelled(*rng.multinomial(2, chances, 120).tolist()), {})
        )
        if found.ci_low <= 0.5 <= found.ci_high:
            held += 1
        if abs(statistics.fmean(cases.points_given) - 0.5) > 0.05:
            wrong += 1
    assert (wrong, held >= 180) == (200, True)


@pytest.mark.simulation
@pytest.mark.parametrize("name", TO_CORRECT)
def test_intervals_hold_the_true_score(name: str) -> None:
    assert coverage_of_correction(name, 1_000)[0] > 0.93


def test_physicians_who_disagree_do_not_move_the_score() -> None:
    """Labels of which 70 % are met and each physician flips 15 %; half is met in the run."""
    chance = np.random.default_rng(5)
    row = disagreeing_physicians.Row(0.15, 1000, 0.5)
    labels, cases, votes = disagreeing_physicians.sample(chance, row)
    found = corrected_score(cases, labels, {}, votes)
    assert isinstance(found, JudgeCorrectedScore)
    assert abs(found.value - 0.5) < 0.06
    assert found.ci_low < 0.5 < found.ci_high
    assert (found.sensitivity, found.specificity) == near((0.9, 0.9), abs=0.05)
    by_labels = corrected_by_labels(cases, labels.pairs, {})
    assert isinstance(by_labels, JudgeCorrectedScore)
    assert by_labels.value < 0.4


def test_too_few_double_labels_tell_no_truth() -> None:
    items = [LabelledItems(at, None, True, 2, 2, 1) for at in range(MIN_DOUBLE)]
    assert judge_rates(items[1:], {}) is None
    assert judge_rates(items, {}) is not None
    assert judge_rates([replace(one, conversation=0) for one in items], {}) is None


def em_of_items(
    items: Sequence[tuple[int, int, int]], pseudo: Sequence[float], start: Sequence[float]
) -> list[float]:
    """Forty steps of the textbook, item by item.

    Args:
        items: whether the judge says met, the number of labels, and how many of these say met.
        pseudo: the right and wrong pseudo-items of each figure.
        start: as `latent_class.START`.

    Returns:
        The share met, sensitivity and specificity of the judge, and those of a physician.
    """
    figures = list(start)
    for _ in range(40):
        of_met = latent_class.PSEUDO_ITEMS
        right = np.array(pseudo[0::2])
        of = np.array(pseudo[0::2]) + np.array(pseudo[1::2])
        met, judge_met, judge_not, label_met, label_not = figures
        for judged, labels, said in items:
            if_met = met * label_met**said * (1 - label_met) ** (labels - said)
            if_met *= judge_met if judged else 1 - judge_met
            if_not = (1 - met) * (1 - label_not) ** said * label_not ** (labels - said)
            if_not *= 1 - judge_not if judged else judge_not
            share = if_met / (if_met + if_not)
            rest = 1 - share
            of_met += share
            right += (share * judged, rest * (1 - judged), share * said, rest * (labels - said))
            of += (share, rest, share * labels, rest * labels)
        all_items = len(items) + 2 * latent_class.PSEUDO_ITEMS
        figures = [of_met / all_items, *(right / of).tolist()]
    return figures


def test_rates_are_those_of_the_textbooks_steps_item_by_item(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Items of one, two and three labels; and each resample, which begins at the estimate."""
    monkeypatch.setattr(latent_class, "MAX_STEPS", 40)
    monkeypatch.setattr(latent_class, "CONVERGED", 0.0)
    monkeypatch.setattr(latent_class, "RESAMPLES", 3)
    chance = np.random.default_rng(11)
    items: list[tuple[int, int, int]] = []
    for _ in range(80):
        truth = chance.random() < 0.6
        labels = int(chance.integers(1, 4))
        said = int(chance.binomial(labels, 0.85 if truth else 0.2))
        items.append((int(chance.random() < (0.9 if truth else 0.25)), labels, said))
    kinds = []
    for at, (judged, labels, said) in enumerate(items):
        kinds.append(LabelledItems(at, None, bool(judged), labels, said, 1))
    found = judge_rates(kinds, {})
    assert found is not None
    expected = em_of_items(items, [latent_class.PSEUDO_ITEMS] * 8, latent_class.START)
    assert (found.sensitivity, found.specificity) == near(tuple(expected[1:3]), abs=1e-9)
    rng = np.random.default_rng(latent_class.SEED)
    drawn = rng.multinomial(80, np.full(80, 1 / 80), size=3)
    pseudo = rng.gamma(latent_class.PSEUDO_ITEMS, size=(3, 8))
    for at in range(3):
        resample = []
        for item, times in zip(items, drawn[at].tolist(), strict=True):
            resample += [item] * times
        of_resample = em_of_items(resample, pseudo[at].tolist(), expected)
        assert found.resampled[at].tolist() == near(of_resample[1:3], abs=1e-9)


def double_labelled(count: int, right: int, wrong: int) -> list[LabelledItems]:
    """Conversations of items that two physicians agree on; the judge is right and wrong as often
    of what is met as of what is not."""
    found: list[LabelledItems] = []
    for at in range(count):
        for met in (0, 2):
            found.append(LabelledItems(at, None, met == 2, 2, met, right))
            found.append(LabelledItems(at, None, met == 0, 2, met, wrong))
    return found


def by_truth(cases: CasePoints, items: list[LabelledItems]) -> JudgeCorrectedScore | NotCorrected:
    return corrected_score(cases, Labels([], items), {}, [])


def test_a_judge_whose_labels_allow_chance_corrects_nothing() -> None:
    """Six of ten right, in each conversation eight or four: many are enough, few are not."""
    mixed = []
    for number in range(200):
        items = double_labelled(1, 4 + 4 * (number % 2), 6 - 4 * (number % 2))
        mixed += [replace(item, conversation=number) for item in items]
    many = by_truth(USUAL, mixed)
    assert isinstance(many, JudgeCorrectedScore)
    rates = judge_rates(mixed, {})
    assert rates is not None
    assert many.youden_stderr == near(float(rates.resampled.sum(axis=1).std(ddof=1)))
    few = by_truth(USUAL, mixed[: 8 * len(items)])
    assert isinstance(few, NotCorrected)
    says(few.reason, LITTLE)


@pytest.mark.parametrize("given", [0.0, 1.0])
def test_equal_cases_leave_a_score_uncertain(given: float) -> None:
    """A pseudo-source at each end of the scale says that the next case may be another."""
    means, _ = judge_correction._resampled_means(judged([given] * 30), 200)
    assert means.mean() == near(given)
    assert means.std() > 0.005


@pytest.mark.parametrize("given", [0.0, 1.0])
def test_a_score_beyond_the_scale_is_of_a_judge_who_errs_otherwise(given: float) -> None:
    found = by_truth(judged([given] * 60), double_labelled(60, 7, 3))
    assert isinstance(found, NotCorrected)
    says(found.reason, OTHERWISE)


def test_the_levels_are_those_of_the_fewer_sources_of_run_and_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    units = []

    def spy(values: Any, of_units: float) -> Any:
        units.append(of_units)
        return widened_percentile_interval(values, of_units)

    monkeypatch.setattr(judge_correction, "widened_percentile_interval", spy)
    items = double_labelled(60, 9, 1)
    by_truth(judged([0.4, 0.6] * 30, clusters=[at // 6 for at in range(60)]), items)
    by_truth(judged([0.4, 0.6] * 300), items)
    assert units == [near(60), near(10), near(60), near(60)]


def test_shares_of_few_sources_are_not_shown_to_be_alike() -> None:
    pairs = labelled(*[(5, 0, 0, 5)] * 40)
    votes = [(float(at % 2), at // 2) for at in range(400)]
    assert not share_met_differs(votes, pairs)
    assert share_met_differs([(vote, 0) for vote, _ in votes], pairs)
    assert share_met_differs(votes, labelled(*[(200, 0, 0, 200)]))
    assert share_met_differs(votes[:1], pairs)


def test_the_side_with_fewer_sources_decides_how_far_shares_may_lie_apart() -> None:
    """Four conversations, of which 40, 50, 50 and 60 % are met, allow what forty do not."""
    tables = [(8, 0, 0, 12), (10, 0, 0, 10), (10, 0, 0, 10), (12, 0, 0, 8)]
    votes = [(float(at % 5 == 0), at) for at in range(900)]
    assert share_met_differs(votes, labelled(*tables * 10))
    assert not share_met_differs(votes, labelled(*tables))


def test_shares_are_as_uncertain_as_both_sides_together() -> None:
    """2.5 % of votes and 50 % of labels, of four sources each: by the uncertainty of the labels
    alone they would differ.
    """
    tables = [(8, 0, 0, 12), (10, 0, 0, 10), (10, 0, 0, 10), (12, 0, 0, 8)]
    votes = [(float(at in (0, 40)), at // 20) for at in range(80)]
    assert not share_met_differs(votes, labelled(*tables))
