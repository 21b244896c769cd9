"""Statistics of paired values, and ranks."""

from __future__ import annotations

import math
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np
import pytest
import statsmodels.api as sm
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import optimize, stats
from statsmodels.stats.contingency_tables import mcnemar

from eval_factory.scoring import paired
from eval_factory.scoring.intervals import holm_corrected
from eval_factory.scoring.paired import (
    equivalence,
    mcnemar_mde,
    paired_difference,
    sign_flip_interval,
    sign_flip_p,
    tango_interval,
    with_labels_uncertainty,
)
from facts import says
from known import ends, near


def test_holm_by_hand_and_what_is_not_known_counts_too() -> None:
    assert holm_corrected([0.03, 0.01], count_missing=True) == pytest.approx([0.03, 0.02])
    assert holm_corrected([0.03, None, 0.01], count_missing=True) == [
        pytest.approx(0.06),
        None,
        pytest.approx(0.03),
    ]
    assert holm_corrected([], count_missing=True) == []


@pytest.mark.parametrize(
    ("shown", "ranks"),
    [
        ([], [(1, 3), (1, 3), (1, 3)]),
        ([(0, 1), (0, 2), (1, 2)], [(1, 1), (2, 2), (3, 3)]),
        ([(2, 0)], [(2, 3), (1, 3), (1, 2)]),
        ([(2, 0), (2, 1)], [(2, 3), (2, 3), (1, 1)]),
    ],
)
def test_a_rank_counts_who_is_better_and_worse(
    shown: list[tuple[int, int]], ranks: list[tuple[int, int]]
) -> None:
    assert paired.rank_intervals(3, shown) == ranks


def right(both: int, a_only: int, b_only: int, neither: int) -> tuple[list[float], list[float]]:
    """0/1 values of two models with these counts of instances."""
    a = [1.0] * (both + a_only) + [0.0] * (b_only + neither)
    b = [1.0] * both + [0.0] * a_only + [1.0] * b_only + [0.0] * neither
    return a, b


COUNTS = st.integers(0, 30)


def test_tangos_interval_of_a_published_table() -> None:
    """Bentur et al. 2009 in M. W. Fagerland, S. Lydersen, P. Laake, Statistics in Medicine 33:2850-2875, 2014."""
    assert tango_interval(1, 7, 21) == pytest.approx((-0.517, -0.026), abs=5e-4)


def likelihood_score(difference: float, b_only: int, a_only: int, count: int) -> float:
    """The score statistic, with the nuisance parameter found by search."""

    def loss(share: float) -> float:
        shares = [share + difference, share, 1 - 2 * share - difference]
        return -float(
            stats.multinomial.logpmf([b_only, a_only, count - b_only - a_only], count, shares)
        )

    low = max(0.0, -difference)
    high = (1 - difference) / 2
    share = optimize.minimize_scalar(
        loss, bounds=(low, high), method="bounded", options={"xatol": 1e-10}
    ).x
    return float(
        (b_only - a_only - count * difference)
        / math.sqrt(count * (2 * share + difference - difference**2))
    )


@pytest.mark.parametrize(
    ("b_only", "a_only", "count"), [(6, 16, 161), (40, 20, 160), (3, 1, 10), (50, 50, 1000)]
)
@pytest.mark.parametrize(("confidence", "critical"), [(0.95, 1.959964), (0.90, 1.644854)])
def test_tangos_interval_ends_where_the_score_test_rejects(
    b_only: int, a_only: int, count: int, confidence: float, critical: float
) -> None:
    low, high = tango_interval(b_only, a_only, count, confidence)
    assert likelihood_score(low, b_only, a_only, count) == pytest.approx(critical, abs=1e-3)
    assert likelihood_score(high, b_only, a_only, count) == pytest.approx(-critical, abs=1e-3)


@settings(max_examples=60)
@given(COUNTS, COUNTS, st.integers(0, 200))
def test_tangos_interval_is_symmetric_and_agrees_with_mcnemars_test(
    b_only: int, a_only: int, others: int
) -> None:
    count = b_only + a_only + others
    if count == 0:
        return
    low, high = tango_interval(b_only, a_only, count)
    assert tango_interval(a_only, b_only, count) == pytest.approx((-high, -low), abs=1e-9)
    assert -1 <= low <= (b_only - a_only) / count <= high <= 1
    assert low < high
    if b_only + a_only:
        chi_square = mcnemar([[others, a_only], [b_only, 0]], exact=False, correction=False)
        assert (low > 0 or high < 0) == (chi_square.pvalue < 0.05)


def test_no_discordant_pair_has_an_interval_all_the_same() -> None:
    """By hand: n d / (1 - d) = z squared."""
    z2 = 1.959963984540054**2
    assert tango_interval(0, 0, 100) == pytest.approx((-z2 / (100 + z2), z2 / (100 + z2)), abs=1e-9)
    found = paired_difference(*right(60, 0, 0, 40))
    assert (found.difference, found.p_value, found.discordant) == (0.0, 1.0, 0)
    assert found.ci_high == pytest.approx(z2 / (100 + z2))


@pytest.mark.parametrize(("a_only", "b_only"), [(16, 6), (1, 7), (0, 5), (12, 12), (0, 0)])
def test_right_or_wrong_is_mcnemars_exact_test(a_only: int, b_only: int) -> None:
    found = paired_difference(*right(59, a_only, b_only, 80))
    n = 139 + a_only + b_only
    assert found.p_value == pytest.approx(mcnemar([[59, a_only], [b_only, 80]], exact=True).pvalue)
    assert (found.n, found.clusters, found.discordant) == (n, None, a_only + b_only)
    assert found.method == paired.MCNEMAR
    assert (found.value_a, found.value_b) == ((59 + a_only) / n, (59 + b_only) / n)
    assert found.difference == pytest.approx((b_only - a_only) / n)
    assert (found.ci_low, found.ci_high) == tango_interval(b_only, a_only, n, 0.95)
    assert (found.ci90_low, found.ci90_high) == tango_interval(b_only, a_only, n, 0.90)
    assert found.mde == mcnemar_mde(a_only + b_only, n)


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("n", "discordant"), [(50, 0), (50, 20), (200, 20), (400, 80), (1000, 0), (1000, 100)]
)
def test_the_smallest_difference_of_proportions_is_shown_in_four_of_five_samples(
    n: int, discordant: int
) -> None:
    """By test and interval, of 20,000 samples; Connor's formula is for the approximate test: 76 to 79 %."""
    mde = mcnemar_mde(discordant, n)
    assert mde is not None
    share = max(discordant / n, mde)
    tables = np.random.default_rng(3).multinomial(
        n, [(share + mde) / 2, (share - mde) / 2, 1 - share], size=20_000
    )
    pairs, counts = np.unique(tables[:, :2], axis=0, return_counts=True)
    p_values = np.array(
        [stats.binomtest(int(b), int(a + b)).pvalue if a + b else 1.0 for b, a in pairs]
    )
    # Tango's, of no difference
    scores = (pairs[:, 0] - pairs[:, 1]) / np.sqrt(np.maximum(1, pairs.sum(axis=1)))
    assert 0.79 < counts[(p_values < 0.05) & (scores > 1.959964)].sum() / 20_000 < 0.81


def test_where_few_pairs_differ_the_smallest_difference_brings_its_own() -> None:
    """Six discordant pairs that are all b's are the fewest with p < 0.05: by the binomial table, 0.0779 of 100."""
    mde = mcnemar_mde(0, 100)
    greater = mcnemar_mde(30, 100)
    assert mde is not None
    assert stats.binom.sf(5, 100, mde) == pytest.approx(0.8, abs=1e-6)
    assert mcnemar_mde(1, 100) == pytest.approx(mde)
    assert mcnemar_mde(0, 5) is None
    assert mcnemar_mde(6, 6) == pytest.approx(2 * 0.8 ** (1 / 6) - 1)
    assert (greater or 0.0) > mde


@pytest.mark.simulation
@pytest.mark.parametrize("n", [8, 20, 60, 200])
def test_the_smallest_mean_difference_is_shown_in_four_of_five_samples(n: int) -> None:
    """Of ratings from 1 to 5; pseudo-values at the ends of the scale make it more than that for small samples."""
    rng = np.random.default_rng(n)
    scale = (1.0, 5.0)
    before = [1.5] * n

    def sample(shift: float) -> paired.PairedDifference:
        after = np.clip(1.5 + shift + rng.choice([-0.5, 0.0, 0.5], n), 1, 5)
        return paired_difference(before, [float(value) for value in after], scale=scale)

    mde = float(np.median([sample(0).mde or math.nan for _ in range(20)]))
    assert np.mean([sample(mde).is_significant for _ in range(100)]) > 0.78


GROUPS = [f"g{number % 40}" for number in range(200)]


def test_clustered_differences_are_statsmodels() -> None:
    """Cluster-robust, on a scale without ends; t with clusters - 1 degrees of freedom, for these are of one size."""
    rng = np.random.default_rng(5)
    a = [rng.normal(10, 3) for _ in GROUPS]
    b = [
        value + rng.normal(0.4, 1) + int(group[1:]) % 3
        for value, group in zip(a, GROUPS, strict=True)
    ]
    found = paired_difference(a, b, clusters=GROUPS)
    d = np.subtract(b, a)
    options = {"groups": np.array([int(group[1:]) for group in GROUPS])}
    fit = sm.OLS(d, np.ones(len(d))).fit(cov_type="cluster", cov_kwds=options, use_t=True)
    assert (found.method, found.clusters, found.n) == (paired.CLUSTERED_PAIRED_T, 40, 200)
    assert found.difference == pytest.approx(fit.params[0])
    assert (found.ci_low, found.ci_high) == pytest.approx(tuple(fit.conf_int()[0]))
    assert (found.ci90_low, found.ci90_high) == pytest.approx(tuple(fit.conf_int(alpha=0.1)[0]))
    assert found.p_value == pytest.approx(fit.pvalues[0])
    assert found.mde is not None
    power = stats.nct.sf(stats.t.ppf(0.975, 39), 39, found.mde / fit.bse[0])
    assert power == pytest.approx(0.8, abs=1e-6)


def test_unclustered_differences_on_a_scale_without_ends_are_the_paired_t_test() -> None:
    rng = np.random.default_rng(6)
    a = [rng.normal(10, 3) for _ in range(50)]
    b = [value + rng.normal(0.4, 1) for value in a]
    found = paired_difference(a, b)
    tested = stats.ttest_rel(b, a)
    interval = tested.confidence_interval(0.95)
    interval90 = tested.confidence_interval(0.9)
    assert found.method == paired.PAIRED_T
    assert found.p_value == pytest.approx(tested.pvalue)
    assert (found.ci_low, found.ci_high) == pytest.approx((interval.low, interval.high))
    assert (found.ci90_low, found.ci90_high) == pytest.approx((interval90.low, interval90.high))


def test_few_instances_are_flipped_and_all_flips_of_few_are_counted() -> None:
    assert sign_flip_p([1.0, 2.0, 3.0]) == 0.25  # +6 and -6 of the 8 sums
    assert sign_flip_p([1.0, 2.0, -0.5]) == 0.5
    assert sign_flip_p([0.0, 0.0]) == 1.0
    assert sign_flip_p([1.0] * 10) == 2 / 2**10
    many = [1.0] * 20 + [-1.0] * 6
    assert (
        sign_flip_p(many)
        == sign_flip_p(many)
        == pytest.approx(mcnemar([[0, 20], [6, 0]]).pvalue, abs=0.005)
    )


@pytest.mark.parametrize(
    ("count", "clusters", "method"),
    [
        (30, None, paired.SIGN_FLIP),
        (31, None, paired.PAIRED_T),
        (90, [str(number % 30) for number in range(90)], paired.CLUSTERED_SIGN_FLIP),
        (93, [str(number % 31) for number in range(93)], paired.CLUSTERED_PAIRED_T),
    ],
)
def test_the_method_follows_from_the_number_of_clusters(
    count: int, clusters: list[str] | None, method: str
) -> None:
    b = [0.25 + 0.02 * (number % 7) for number in range(count)]
    assert paired_difference([0.5] * count, b, clusters=clusters).method == method


def test_five_clusters_are_too_few_to_show_anything_and_six_are_not() -> None:
    """Of the signs of five, all alike have p = 2 / 32 at the least. Flipped are clusters and not their instances."""
    found = paired_difference([0.0] * 6, [1.0] * 6, clusters=list("aabbcc"))
    assert (found.p_value, found.mde, found.is_significant) == (0.25, None, False)
    after = [10.1, 10.3, 10.2, 10.4, 10.2, 10.3]
    for count, shows in ((5, False), (6, True)):
        for clusters in (None, [str(number) for number in range(count)]):
            found = paired_difference([10.0] * count, after[:count], clusters=clusters)
            assert found.p_value == 2.0 ** (1 - count)
            assert (found.mde is not None, found.is_significant, (found.ci_low or 0.0) > 0) == (
                shows,
                shows,
                True,
            )


def test_one_value_at_each_end_of_the_scale_by_hand() -> None:
    """40 equal differences of 0.1 on a scale of 0 to 1: with -1 and 1 the mean is 4/42."""
    found = paired_difference([0.2] * 40, [0.3] * 40)
    mean = 4 / 42
    spread = 40 * (0.1 - mean) ** 2 + (1 - mean) ** 2 + (1 + mean) ** 2
    half = stats.t.ppf(0.975, 39) * math.sqrt(spread * 40 / 39) / 42
    assert found.difference == pytest.approx(0.1)
    assert (found.ci_low, found.ci_high) == pytest.approx((mean - half, mean + half))


def test_equal_differences_have_a_width_where_the_scale_is_known() -> None:
    fives = paired_difference([5.0] * 40, [5.0] * 40, scale=(1.0, 5.0))
    assert -1 < (fives.ci_low or 0.0) == -(fives.ci_high or 0.0) < -0.2
    assert fives.p_value == 1.0
    without = paired_difference([5.0] * 40, [5.0] * 40)
    assert (without.ci_low, without.ci_high, without.p_value, without.mde) == (
        None,
        None,
        None,
        None,
    )
    # 40 clusters of 5 that never differ tell as much as 40 instances.
    clustered = paired_difference([0.5] * 200, [0.5] * 200, clusters=GROUPS)
    alone = paired_difference([0.5] * 40, [0.5] * 40)
    assert (clustered.ci_low, clustered.ci_high) == pytest.approx((alone.ci_low, alone.ci_high))


@pytest.mark.parametrize("rest", [0.0, -0.5, -1.5])
def test_a_value_at_an_end_weighs_as_much_as_a_cluster(rest: float) -> None:
    """40 clusters of (1/2, 1/2, 1/2, rest) halved, every second one negative: their mean is 0."""
    weight = 4
    differences = [sign * value / 2 for sign, value in product((1, -1) * 20, (0.5, 0.5, 0.5, rest))]
    clusters = [str(number // 4) for number in range(160)]
    found = paired_difference(
        [0.45] * 160, [0.45 + value for value in differences], clusters=clusters, scale=(-1, 2)
    )
    spread = 40 * ((1.5 + rest) / 2) ** 2 + 2 * (3 * weight) ** 2
    half = stats.t.ppf(0.975, 39) * math.sqrt(spread * 40 / 39) / (160 + 2 * weight)
    assert found.ci_high == pytest.approx(half)
    assert found.ci_low == pytest.approx(-half)


def test_clusters_of_unequal_size_have_the_effective_number_for_their_degrees() -> None:
    """60 of 100 in one, 40 alone: 2.75 effective clusters, which may weigh 36.4 instances less half of 100 / 41."""
    rng = np.random.default_rng(7)
    clusters = ["0"] * 60 + [str(number) for number in range(1, 41)]
    b = rng.uniform(0, 1, 100).tolist()
    found = paired_difference([0.5] * 100, b, clusters=clusters)
    effective = 10_000 / 3640
    weight = 36.4 - 100 / 41 / 2
    d = np.subtract(b, 0.5)
    center = d.sum() / (100 + 2 * weight)
    squares = [
        (d[:60] - center).sum() ** 2,
        *(d[60:] - center) ** 2,
        *(weight * (end - center) ** 2 * weight for end in (-1, 1)),
    ]
    stderr = math.sqrt(sum(squares) * 41 / 40) / (100 + 2 * weight)
    half = stats.t.ppf(0.975, effective - 1) * stderr
    assert (found.ci_low, found.ci_high) == pytest.approx(
        (max(-1, center - half), min(1, center + half))
    )
    assert found.few_sources is not None
    says(str(found.few_sources), "41 sources", "2.7 of equal size")
    none = paired_difference([0.5] * 100, b, clusters=["0"] * 80 + clusters[80:])
    assert (none.ci_low, none.p_value, none.mde, none.is_significant) == (None, None, None, False)
    assert none.few_sources is not None
    says(str(none.few_sources), "no interval", "21 sources", "1.6")


def test_few_differences_of_all_sizes_end_where_the_scale_ends_and_could_show_none() -> None:
    assert paired_difference([0.01, 0.99] * 3 + [0.0], [0.99, 0.01] * 3 + [0.98]).mde is None
    three = paired_difference([0.1, 0.9, 0.5], [0.9, 0.1, 0.6])
    assert (three.ci_low, three.ci_high) == (-1.0, 1.0)
    other_scale = paired_difference([0.0, 1.0, 1.0], [1.0, 1.0, 0.0], scale=(0.0, 5.0))
    assert other_scale.method == paired.SIGN_FLIP, "ones and zeros on it are no proportions"


def test_one_cluster_or_one_pair_has_no_interval() -> None:
    one = paired_difference([0.5, 0.0], [0.75, 1.0], clusters=["x", "x"])
    assert (one.difference, one.ci_low, one.p_value, one.mde, one.clusters) == (
        0.625,
        None,
        None,
        None,
        1,
    )
    concluded = (paired.non_inferiority(one, 0.9), equivalence(one, 0.9), one.is_significant)
    assert concluded == ("inconclusive", "inconclusive", False)


@pytest.mark.parametrize(
    ("a", "b", "clusters"), [([], [], None), ([1.0], [1.0, 0.0], None), ([1.0], [0.0], ["x", "y"])]
)
def test_what_is_no_pairs_is_refused(
    a: list[float], b: list[float], clusters: list[str] | None
) -> None:
    with pytest.raises(ValueError, match=f"{len(a)} and {len(b)} values"):
        paired_difference(a, b, clusters=clusters)


FOUND = paired.PairedDifference(
    n=9,
    value_a=0.5,
    value_b=0.4,
    difference=-0.1,
    ci_low=-0.2,
    ci_high=-0.05,
    p_value=0.01,
    method="",
    mde=None,
    clusters=None,
    discordant=1,
    ci90_low=-0.18,
    ci90_high=-0.06,
)


@pytest.mark.parametrize(
    ("margin", "higher_is_better", "finding"),
    [
        (0.21, True, "shown"),
        (0.2, True, "inconclusive"),
        (0.05, True, "inconclusive"),
        (0.04, True, "refuted"),
        (0.01, False, "shown"),
        (0.0, False, "shown"),
    ],
)
def test_the_worse_end_decides_on_non_inferiority(
    margin: float, higher_is_better: bool, finding: str
) -> None:
    assert paired.non_inferiority(FOUND, margin, higher_is_better=higher_is_better) == finding
    turned = replace(FOUND, ci_low=0.05, ci_high=0.2)
    assert paired.non_inferiority(turned, margin, higher_is_better=not higher_is_better) == finding


@pytest.mark.parametrize(
    ("margin", "finding"),
    [(0.19, "shown"), (0.18, "inconclusive"), (0.06, "inconclusive"), (0.05, "refuted")],
)
def test_the_90_percent_interval_decides_on_equivalence(margin: float, finding: str) -> None:
    assert equivalence(FOUND, margin) == finding
    assert equivalence(replace(FOUND, ci90_low=0.06, ci90_high=0.18), margin) == finding


def test_significant_is_what_test_and_interval_both_say() -> None:
    assert [replace(FOUND, p_value=p_value).is_significant for p_value in (0.01, 0.05, None)] == [
        True,
        False,
        False,
    ]
    ends = [(-0.2, 0.0), (0.0, 0.2), (0.05, 0.2)]
    assert [replace(FOUND, ci_low=low, ci_high=high).is_significant for low, high in ends] == [
        False,
        False,
        True,
    ]


def covered(draws: list[tuple[list[float], list[float]]], truth: float, **options: Any) -> float:
    found = [paired_difference(a, b, **options) for a, b in draws]
    intervals = [
        (one.ci_low, one.ci_high)
        for one in found
        if one.ci_low is not None and one.ci_high is not None
    ]
    assert len(intervals) == len(draws)
    return sum(low <= truth <= high for low, high in intervals) / len(draws)


@pytest.mark.simulation
@pytest.mark.parametrize(
    ("n", "shares"),
    [(20, (0.05, 0.15)), (50, (0.02, 0.02)), (200, (0.05, 0.10)), (100, (0.0, 0.05))],
)
def test_the_interval_of_proportions_covers(n: int, shares: tuple[float, float]) -> None:
    rng = np.random.default_rng(11)
    a_only, b_only = shares
    tables = rng.multinomial(n, [0.5, a_only, b_only, 0.5 - a_only - b_only], size=400)
    assert covered([right(*map(int, table)) for table in tables], b_only - a_only) >= 0.93


@pytest.mark.simulation
def test_the_interval_of_a_jury_that_nearly_always_says_five_covers() -> None:
    """3 % of b's ratings are 1: a plain t interval covers 26 % at 10 instances."""
    rng = np.random.default_rng(12)
    draws = [
        ([5.0] * 10, [float(value) for value in rng.choice([5, 1], 10, p=[0.97, 0.03])])
        for _ in range(300)
    ]
    assert covered(draws, -0.12, scale=(1.0, 5.0)) >= 0.93


@pytest.mark.simulation
def test_the_interval_of_clustered_flips_covers() -> None:
    """32 clusters of 8; within one all flip towards b or none does, but for one instance in four."""
    rng = np.random.default_rng(13)
    clusters = [str(number // 8) for number in range(256)]
    draws = []
    for _ in range(300):
        shared = np.repeat(rng.random(32) < 0.1, 8)
        flips = np.where(rng.random(256) < 0.25, rng.random(256) < 0.1, shared)
        draws.append(([0.0] * 256, [float(flip) for flip in flips]))
    assert covered(draws, 0.1, clusters=clusters) >= 0.93
    assert covered(draws, 0.1) < 0.8  # as if the instances were independent


def test_labels_make_the_interval_of_a_corrected_difference_wider() -> None:
    """A difference of 0.2 whose divisor has a relative error of a tenth."""
    found = paired_difference([0.0] * 50 + [1.0] * 50, [0.0] * 30 + [1.0] * 70)
    wider = with_labels_uncertainty(found, 0.1)
    low, high = ends(found)
    expected = 0.2 - math.hypot(0.2 - low, 1.959964 * 0.02)
    assert ends(wider) == (near(expected, rel=1e-6), near(0.2 + math.hypot(high - 0.2, 0.0391993)))
    assert wider.p_value == found.p_value
    assert with_labels_uncertainty(found, 0.0) == found


def test_few_sources_show_what_their_test_shows() -> None:
    """Twenty sources of twenty, right in 50 and in 65 %: the interval is the test turned round."""
    chance = np.random.default_rng(2)
    before = (chance.random(400) < 0.5).astype(float).tolist()
    after = (chance.random(400) < 0.65).astype(float).tolist()
    sources = [str(number // 20) for number in range(400)]
    found = paired_difference(before, after, clusters=sources)
    low, high = ends(found)
    assert found.is_significant
    assert high - low < 0.2
    for shift, rejected in ((low - 1e-6, True), (low + 1e-6, False), (high - 1e-6, False)):
        moved = [
            sum(after[at] - before[at] - shift for at in range(20 * source, 20 * source + 20))
            for source in range(20)
        ]
        assert (sign_flip_p(moved) < 0.05) == rejected


@pytest.mark.parametrize("confidence", [0.95, 0.9])
def test_ends_of_seven_sources_are_where_their_test_turns(confidence: float) -> None:
    chance = np.random.default_rng(1)
    clusters = [chance.normal(0.3, 1, 3).tolist() for _ in range(7)]
    low, high = sign_flip_interval(clusters, confidence)
    for shift, rejected in (
        (low - 1e-6, True),
        (low + 1e-6, False),
        (high - 1e-6, False),
        (high + 1e-6, True),
    ):
        moved = [sum(values) - shift * len(values) for values in clusters]
        assert (sign_flip_p(moved) < 1 - confidence) == rejected


def test_fewer_than_six_unequal_sources_have_the_wide_interval() -> None:
    same = [1.0] * 40
    sources = [str(number // 2) for number in range(40)]
    low, high = ends(paired_difference(same, same, clusters=sources))
    assert low < -0.1 < 0.1 < high
