"""How far people agree about answers, and a judge with them. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from itertools import combinations

from eval_factory.core.clinician_results import Agreement
from eval_factory.scoring.krippendorff_alpha import ordinal_alpha
from eval_factory.scoring.rater_agreement import gwet_ac1, icc_agreement, weighted_kappa

Unit = Mapping[str, float]
"""Of one question about one answer: rater -> rating."""


def agreement_among(units: Sequence[Unit], scale: Sequence[float]) -> Agreement:
    """Of raters who did not all rate everything.

    Args:
        scale: the ratings that there are, the least first.
    """
    twice = [unit for unit in units if len(unit) > 1]
    raters = sorted({rater for unit in twice for rater in unit})
    whole = [[unit[rater] for rater in raters] for unit in twice if len(unit) == len(raters)]
    places = [[place_of(value, scale) for value in unit.values()] for unit in twice]
    kappas = [
        weighted_kappa([(unit[one], unit[other]) for unit in twice if one in unit and other in unit])
        for one, other in combinations(raters, 2)
    ]
    known = [kappa for kappa in kappas if kappa is not None]
    return Agreement(
        n=len(twice),
        alpha=ordinal_alpha(places),
        icc=icc_agreement(whole),
        weighted_kappa=statistics.fmean(known) if known else None,
        ac1=gwet_ac1(places, len(scale)),
    )


def agreement_with(marks: Sequence[tuple[float, Sequence[float]]], scale: Sequence[float]) -> Agreement:
    """Of a judge with the raters' mean; with their majority where the scale has two ends and nothing between.

    Args:
        marks: of each question about an answer the judge's mark and the people's ratings.
    """
    pairs = [(mark, said) for mark, ratings in marks if (said := consensus(ratings, scale)) is not None]
    places = [(place_of(mark, scale), place_of(said, scale)) for mark, said in pairs]
    return Agreement(
        n=len(pairs),
        alpha=ordinal_alpha(places),
        icc=icc_agreement(pairs),
        weighted_kappa=weighted_kappa(pairs),
        ac1=gwet_ac1(places, len(scale)),
    )


def consensus(ratings: Sequence[float], scale: Sequence[float]) -> float | None:
    """The mean; of two ratings the one that most gave, None where as many gave the other."""
    mean = statistics.fmean(ratings)
    if len(scale) > 2:
        return mean
    low, high = scale
    middle = (low + high) / 2
    return None if mean == middle else high if mean > middle else low


def place_of(value: float, scale: Sequence[float]) -> int:
    """The number of the rating that is nearest, from 0; of two that are as near, the lower one's."""
    return min(range(len(scale)), key=lambda place: abs(scale[place] - value))
