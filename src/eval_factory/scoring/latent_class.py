"""Estimates a judge's sensitivity and specificity against the truth behind physicians' labels.

Physicians err, too. If a judge is compared with their labels alone, the judge's mistakes and the
physicians' mistakes are mixed. If items have labels of two or more physicians, the mistakes of
judge and physicians can be separated: A. P. Dawid and A. M. Skene, Applied Statistics 28:20-28,
1979; S. L. Hui and S. D. Walter, Biometrics 36:167-171, 1980. The model assumes that judge and
physicians err independently of each other, given the truth, and that physicians are exchangeable.
An item is a criterion of one answer: in truth, the answer meets the criterion or does not.
The functions are pure: they read no files.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eval_factory.scoring import intervals
from eval_factory.tasks.physician_labels import LabelledItems

if TYPE_CHECKING:
    from numpy.typing import NDArray

RESAMPLES = 1_000  # the number of resamples of the conversations
SEED = 20_261_128  # fixed, so that the same labels give the same rates
PSEUDO_ITEMS = 0.5
"""The number of pseudo-items added to the right and to the wrong decisions of each rate.

Half an item of each kind is Jeffreys' prior of a proportion. Without pseudo-items, a rate of which
the labels show no wrong decision would be exactly 1.
"""
MIN_DOUBLE = 20
"""The smallest number of items with two or more labels that allows an estimate."""
MAX_STEPS = 300  # the maximum number of steps of a fit
CONVERGED = 1e-4
"""The fit ends when no parameter changes by this much in a step, or after `MAX_STEPS` steps."""
START = (0.5, 0.85, 0.85, 0.9, 0.9)
"""The first values of the five parameters.

The parameters are, in this order: share of items met, sensitivity and specificity of the judge,
sensitivity and specificity of a physician. The data fit equally well if met and not met change
places; rates above 0.5 lead the fit to the solution in which judge and physicians are mostly right.
"""


@dataclass(frozen=True)
class JudgeRates:
    """The estimated sensitivity and specificity of a judge, with their resampled values."""

    sensitivity: float
    specificity: float
    resampled: NDArray[Any]
    """Sensitivity and specificity for each resample of the conversations: (resamples, 2)."""
    effective_conversations: float
    """The number of conversations of equal size that would give the same precision.

    It is less than the number of conversations if their sizes differ.
    """


@dataclass(frozen=True, eq=False)
class _Kinds:
    """The kinds of items, as matrices; items of a kind got the same decisions.

    With these matrices, one step of the fit for all resamples takes two matrix products.
    """

    log_odds_not_met: NDArray[Any]
    """The coefficients (10, kinds) of the log odds that an item is not met in truth.

    Rows 0 to 4 belong to the logarithms of the five parameters p, rows 5 to 9 to those of 1 - p.
    """
    decisions: NDArray[Any]
    """One row for each kind: (kinds, 4).

    The columns are: the constant 1, the judge's decision (1 if the judge says met, else 0), the
    number of labels, the number of labels that say met.
    """

    @classmethod
    def of(cls, judged: NDArray[Any], labels: NDArray[Any], labels_met: NDArray[Any]) -> _Kinds:
        """Return the matrices of kinds with these decisions. Each argument has a value per kind.

        Args:
            judged: 1 if the judge says met, else 0.
            labels: number of labels of an item.
            labels_met: number of these labels that say met.
        """
        import numpy as np

        zeros = np.zeros(len(judged))
        ones = np.ones(len(judged))
        judged_not_met = ones - judged
        labels_not_met = labels - labels_met
        # The likelihood of an item is a product of powers of the parameters p, and of 1 - p. These
        # arrays contain the exponents of p and of 1 - p, if the item is met in truth or not met.
        # Each array has a row for each parameter, in the order of `START`.
        if_met = np.array([ones, judged, zeros, labels_met, zeros])
        complement_if_met = np.array([zeros, judged_not_met, zeros, labels_not_met, zeros])
        if_not_met = np.array([zeros, zeros, judged_not_met, zeros, labels_not_met])
        complement_if_not_met = np.array([ones, zeros, judged, zeros, labels_met])
        log_odds_not_met = np.vstack(
            [if_not_met - if_met, complement_if_not_met - complement_if_met]
        )
        return cls(log_odds_not_met, np.column_stack([ones, judged, labels, labels_met]))


def judge_rates(
    items: Sequence[LabelledItems], weights: Mapping[str | None, float]
) -> JudgeRates | None:
    """Return the judge's sensitivity and specificity, with resampled values of both.

    Conversations are resampled, because the items of one conversation are not independent.
    Pseudo-items get random weights in each resample: the labels may contain no example of a rare
    mistake, and its rate would then hardly differ between resamples. Return None if fewer than
    `MIN_DOUBLE` items have two or more labels, or if there are too few conversations.

    Args:
        items: groups of the labelled items of a judge's passport, the file that `calibrate` writes.
            The items of a group are of one conversation and category, and got the same decisions.
        weights: dict from a category to the weight of its items; 1 if the category is absent.
    """
    import numpy as np  # imported here, so that `eval-factory ls` starts quickly

    double_labelled = sum(group.items for group in items if group.labels > 1)
    if double_labelled < MIN_DOUBLE:
        return None
    # a kind: (the judge's decision, the number of labels, the number of labels that say met)
    kinds = sorted({(group.judged, group.labels, group.met) for group in items})
    column_of_kind = {kind: column for column, kind in enumerate(kinds)}
    rows: dict[Hashable, NDArray[Any]] = {}
    for group in items:
        row = rows.setdefault(group.conversation, np.zeros(len(kinds)))
        weight = weights.get(group.category, 1.0)
        column = column_of_kind[group.judged, group.labels, group.met]
        row[column] += weight * group.items
    # the weighted number of items of each kind in each conversation: (conversations, kinds)
    tables = np.array([row for row in rows.values() if row.any()])
    sizes = tables.sum(axis=1)
    # the formula of `intervals.effective_clusters`, for weighted sizes
    effective_conversations = float(sizes.sum() ** 2 / (sizes**2).sum())
    if effective_conversations < intervals.MIN_UNITS:
        return None
    judged, labels, labels_met = np.array(kinds, float).T
    kind_matrices = _Kinds.of(judged, labels, labels_met)
    counts_of_all = tables.sum(axis=0)[None]  # a table with one row: (1, kinds)
    # 8: right and wrong decisions for each of the four sensitivities and specificities of `START`
    equal_pseudo_items = np.full((1, 8), PSEUDO_ITEMS)
    fitted = _fitted(kind_matrices, counts_of_all, equal_pseudo_items, np.array([START]))
    rng = np.random.default_rng(SEED)
    # how often each conversation is drawn in each resample: (resamples, conversations)
    drawn = rng.multinomial(len(tables), np.full(len(tables), 1 / len(tables)), size=RESAMPLES)
    # The mean of a gamma distribution with scale 1 is its shape: on average, each resample has as
    # many pseudo-items as the fit to all conversations.
    pseudo_items = rng.gamma(PSEUDO_ITEMS, size=(RESAMPLES, 8))
    start = np.repeat(fitted, RESAMPLES, axis=0)
    resampled = _fitted(kind_matrices, drawn @ tables, pseudo_items, start)
    # Columns 1 and 2 are the judge's sensitivity and specificity, as in `START`.
    return JudgeRates(
        sensitivity=float(fitted[0, 1]),
        specificity=float(fitted[0, 2]),
        resampled=resampled[:, 1:3],
        effective_conversations=effective_conversations,
    )


def _fitted(
    kinds: _Kinds, counts: NDArray[Any], pseudo_items: NDArray[Any], start: NDArray[Any]
) -> NDArray[Any]:
    """Return the most likely parameters for each row of counts: (rows, 5), ordered as `START`.

    The method is expectation and maximisation (A. P. Dempster, N. M. Laird and D. B. Rubin, JRSS B
    39:1-38, 1977).

    Args:
        kinds: the kinds of items.
        counts: weighted number of items of each kind: (rows, kinds).
        pseudo_items: number of pseudo-items for each of the last four parameters: (rows, 8). The
            columns alternate between pseudo-items with a right and with a wrong decision.
        start: the first values of the parameters: (rows, 5).
    """
    import numpy as np

    fitted = np.clip(start, 0.01, 0.99)
    right_pseudo_items = pseudo_items[:, 0::2]
    all_pseudo_items = right_pseudo_items + pseudo_items[:, 1::2]
    sums = counts @ kinds.decisions  # in each row: the four sums that `decisions` describes
    # `PSEUDO_ITEMS` items that are met, and as many items that are not met, are added.
    items = sums[:, 0] + 2 * PSEUDO_ITEMS
    for _ in range(MAX_STEPS):
        logs = np.hstack([np.log(fitted), np.log1p(-fitted)])
        # Expectation: the probability that an item of each kind is met in truth. The log odds are
        # limited, because exp() of a greater number overflows.
        log_odds_not_met = np.clip(logs @ kinds.log_odds_not_met, -500, 500)
        probability_met = 1 / (1 + np.exp(log_odds_not_met))
        sums_if_met = (counts * probability_met) @ kinds.decisions
        # First for the items that are met in truth, then for the items that are not met: number of
        # items, of items that the judge calls met, of labels, of labels that say met.
        items_met, right_met, labels_if_met, right_labels_met = sums_if_met.T
        items_not_met, wrong_met, labels_if_not_met, wrong_labels_met = (sums - sums_if_met).T
        right_not_met = items_not_met - wrong_met
        right_labels_not_met = labels_if_not_met - wrong_labels_met
        # Maximisation: each rate is the number of right decisions divided by that of all decisions.
        right_decisions = [right_met, right_not_met, right_labels_met, right_labels_not_met]
        all_decisions = [items_met, items_not_met, labels_if_met, labels_if_not_met]
        rates = np.column_stack(right_decisions) + right_pseudo_items
        rates /= np.column_stack(all_decisions) + all_pseudo_items
        prevalence = (items_met + PSEUDO_ITEMS) / items
        # A parameter of 0 or 1 has no logarithm, or its complement has none.
        updated = np.column_stack([prevalence, rates]).clip(1e-9, 1 - 1e-9)
        largest_change = float(np.abs(updated - fitted).max())
        fitted = updated
        if largest_change < CONVERGED:
            break
    return fitted


def widened_percentile_interval(values: NDArray[Any], units: float) -> intervals.Bounds:
    """Return the percentile interval of resampled values, widened by Student's t distribution.

    The usual percentiles are too narrow if there are few units. For n units, the lower percentile
    is therefore Phi(-sqrt(n / (n - 1)) t(.975, n - 1)) instead of 2.5 % (T. C. Hesterberg, The
    American Statistician 69:371-386, 2015, section 4). Phi is the normal distribution function.

    Args:
        values: one value for each resample.
        units: the effective number of the units that were resampled.
    """
    import numpy as np
    from scipy import special

    widening = float(np.sqrt(units / (units - 1)))
    lower_percentile = float(special.ndtr(-widening * intervals.t_quantile(units - 1)))
    low, high = np.quantile(values, [lower_percentile, 1 - lower_percentile])
    return float(low), float(high)
