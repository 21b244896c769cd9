"""Compares the results of output folders, pair by pair.

A pair is compared on the instances that have a value in both results. The first result of a pair is
called a, the second result b. Each of them, with its values by instance, is a `Side`. An instance
whose values in a and b differ is a flip. If another program made a result, its questions are first
paired with the first result's questions (`pairing.py`), because the programs use different ids.
"""

from __future__ import annotations

import string
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import chain, combinations
from pathlib import Path

from eval_factory.analysis import comparison_reasons, pairing
from eval_factory.analysis.comparison_of_two import compare_two
from eval_factory.analysis.comparison_reasons import Reason, Side
from eval_factory.analysis.comparison_records import Compared, Model, Pair, Ranked
from eval_factory.core.errors import ConfigError
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.report.verdicts import verdict_of
from eval_factory.scoring import paired
from eval_factory.scoring.intervals import holm_corrected
from eval_factory.scoring.paired import ALPHA


def _wrong_arguments(
    folders: Sequence[Path | str], margin: float | None, allow: Collection[str]
) -> Iterator[str]:
    """Yield a message for each invalid argument of `compare`."""
    if len(folders) < 2:
        yield "compare: give two folders or more"
    if margin is not None and not margin > 0:  # also true for NaN
        yield f"compare: --margin {margin} is not above 0"
    unknown = ", ".join(sorted(set(allow) - set(comparison_reasons.ACCEPTABLE_REASONS)))
    if unknown:
        accepted = ", ".join(comparison_reasons.ACCEPTABLE_REASONS)
        yield f"compare: --allow {unknown}: there is no such reason; reasons: {accepted}"


def compare(
    folders: Sequence[Path | str],
    *,
    metric: str | None = None,
    margin: float | None = None,
    allow: Collection[str] = (),
    min_paired: float = pairing.MIN_PAIRED,
    load: Callable[[Path | str], StoredResult] = load_result,
) -> Compared:
    """Compare the results of output folders, each result with each other result.

    Args:
        folders: two or more output folders with results.
        metric: the name of a score; by default the main metric.
        margin: the margin of the tests of non-inferiority and equivalence, in the metric's unit.
            A margin of 0.05 is five percentage points of a share.
        allow: the names of reasons that are accepted.
        min_paired: if another program made one of the results, the smallest share of the smaller
            result's questions that must be paired.
        load: reads the result of a folder.

    Raises:
        ConfigError: there are fewer than two folders, a reason is unknown or cannot be accepted, or
            the margin is not positive.
        PrerequisiteError: a folder has no result.
    """
    if problems := list(_wrong_arguments(folders, margin, allow)):
        raise ConfigError(problems)
    stored = [load(folder) for folder in folders]
    models = tuple(_model(_label(number), result) for number, result in enumerate(stored))
    metrics = _compared_metrics(stored, metric)
    if score_reasons := _score_reasons(models, stored, metrics, is_main=metric is None):
        return Compared(models, reasons=tuple(score_reasons))
    sides = _sides(models, stored, metrics, min_paired)
    if pairing_reasons := tuple(_pairing_reasons(sides, min_paired)):
        return Compared(models, reasons=pairing_reasons)
    reasons = _value_reasons(sides)
    if refused := tuple(reason for reason in reasons if reason.name not in allow):
        return Compared(models, reasons=refused)
    pairs: tuple[Pair, ...] = ()
    for (a, model_a), (b, model_b) in combinations(zip(sides, models, strict=True), 2):
        comparison = compare_two(a, b, models=(model_a, model_b), margin=margin)
        pairs += (Pair(model_a, model_b, comparison),)
    ranks: tuple[Ranked, ...] = ()
    if len(models) > 2:
        pairs = with_corrected_p_values(pairs)
        ranks = ranks_of_models(models, pairs)
    return Compared(
        models,
        accepted=tuple(reasons),  # the user accepts them all, because none was refused above
        comparisons=tuple(pair.comparison for pair in pairs if pair.comparison is not None),
        ranks=ranks,
        pairings=_pairing_texts(sides),
    )


def _model(label: str, stored: StoredResult) -> Model:
    """Return the model of a stored result."""
    result = stored.result
    return Model(label, stored.folder, result.provenance.target, verdict_of(result))


def compare_pairs(sides: Sequence[Side]) -> tuple[Pair, ...]:
    """Return the comparison of each pair of results, by their main scores.

    Unlike `compare`, this function compares the comparable pairs even if another pair is not
    comparable. The p values are corrected for the number of compared pairs.
    """
    models = [_model(side.label, side.stored) for side in sides]
    pairs = []
    for (a, model_a), (b, model_b) in combinations(zip(sides, models, strict=True), 2):
        main = a.stored.result.main_metric
        reasons = _score_reasons(
            (model_a, model_b), (a.stored, b.stored), metrics=(main, main), is_main=True
        )
        if not reasons:
            reasons = _value_reasons((a, b))
        comparison = None
        if not reasons:
            comparison = compare_two(a, b, models=(model_a, model_b), margin=None)
        pairs.append(Pair(model_a, model_b, comparison, tuple(reasons)))
    return with_corrected_p_values(pairs)


def with_corrected_p_values(pairs: Sequence[Pair]) -> tuple[Pair, ...]:
    """Return the pairs with p values that are corrected for the number of compared pairs."""
    p_values = []
    for pair in pairs:
        if pair.comparison is not None:
            p_values.append(pair.comparison.paired.p_value)
    # A compared pair without a p value counts in the number of pairs, too.
    corrected_p_values = iter(holm_corrected(p_values, count_missing=True))
    corrected_pairs = []
    for pair in pairs:
        if pair.comparison is not None:
            comparison = replace(pair.comparison, p_holm=next(corrected_p_values))
            pair = replace(pair, comparison=comparison)
        corrected_pairs.append(pair)
    return tuple(corrected_pairs)


def better_and_worse(
    pairs: Iterable[Pair], *, p_below: float = ALPHA
) -> Iterator[tuple[Model, Model]]:
    """Yield (better model, worse model) of each pair with a significant difference.

    Args:
        pairs: the pairs, with corrected p values.
        p_below: the level of the corrected p values, at most `ALPHA`.
    """
    for pair in pairs:
        comparison = pair.comparison
        if comparison is None or comparison.p_holm is None:
            continue
        if comparison.significant and comparison.p_holm < p_below:
            if comparison.advantage > 0:
                yield comparison.b, comparison.a
            else:
                yield comparison.a, comparison.b


def ranks_of_models(models: Sequence[Model], pairs: Iterable[Pair]) -> tuple[Ranked, ...]:
    """Return the ranks of each model that the significant differences of the pairs allow."""
    differences = []
    for better, worse in better_and_worse(pairs):
        differences.append((models.index(better), models.index(worse)))
    intervals = paired.rank_intervals(len(models), differences)
    ranks = []
    for model, (best, worst) in zip(models, intervals, strict=True):
        ranks.append(Ranked(model, best, worst))
    return tuple(ranks)


def _score_reasons(
    models: Sequence[Model],
    stored_results: Sequence[StoredResult],
    metrics: Sequence[str],
    *,
    is_main: bool,
) -> list[Reason]:
    """Return the reasons against comparing these scores.

    There is a reason for each result without the score, and for each result that was asked in
    another way than the first result. If `is_main` is True, there is also a reason for each result
    whose main metric is not the compared score.

    Args:
        models: the models.
        stored_results: the result of each model.
        metrics: the name of the compared score in each result.
        is_main: True if the results are compared by their main metrics.
    """
    reasons: list[Reason] = []
    for model, stored, metric in zip(models, stored_results, metrics, strict=True):
        main = stored.result.main_metric
        scores = stored.result.scores
        reasons += comparison_reasons.two_ways_of_asking(
            models[0].label, stored_results[0], model.label, stored
        )
        if is_main and main != metric:
            first = f"{models[0].label}'s is {metric}; name a score with --metric"
            reasons.append(Reason("metric", f"{model.label}'s main metric is {main}, {first}"))
        elif metric not in scores:
            listed = ", ".join(sorted(scores)) or "none"
            reasons.append(
                Reason("metric", f"{model.label} has no score {metric}; it has {listed}")
            )
    return reasons


def _compared_metrics(stored_results: Sequence[StoredResult], metric: str | None) -> list[str]:
    """Return the name of the compared score in each result.

    If the user names no metric, the name is the main metric of the first result. If another program
    made a result, the name is each result's own main metric, because programs use different names.
    """
    if metric is not None:
        return [metric] * len(stored_results)
    main_metrics = [stored.result.main_metric for stored in stored_results]
    if any(map(pairing.is_imported, stored_results)):
        return main_metrics
    return [main_metrics[0]] * len(stored_results)


def _sides(
    models: Sequence[Model],
    stored_results: Sequence[StoredResult],
    metrics: Sequence[str],
    min_paired: float,
) -> list[Side]:
    """Return the values of each result.

    If another program made a result, each value has the id of its question in the first result.

    Args:
        models: the models.
        stored_results: the result of each model.
        metrics: the name of the compared score in each result.
        min_paired: the smallest share of questions that must be paired.
    """
    across_programs = any(map(pairing.is_imported, stored_results))
    first = stored_results[0]
    sides: list[Side] = []
    for model, stored, metric in zip(models, stored_results, metrics, strict=True):
        pairing_with_first = None
        ids = None
        is_first = not sides  # the first result is not paired with itself
        if across_programs and not is_first:
            pairing_with_first = pairing.pair_questions(first, stored, min_paired)
            ids = pairing_with_first.ids
        values = comparison_reasons.values_of(
            stored.result.instances, stored.result.scores[metric], ids=ids
        )
        sides.append(Side(model.label, stored, values, metric, pairing=pairing_with_first))
    return sides


def _pairing_texts(sides: Sequence[Side]) -> tuple[str, ...]:
    """Return a text for each result whose questions were paired with the first result's."""
    texts = []
    for side in sides:
        if side.pairing is not None:
            texts.append(f"{sides[0].label} and {side.label}: {side.pairing}")
    return tuple(texts)


def _pairing_reasons(sides: Sequence[Side], min_paired: float) -> Iterator[Reason]:
    """Yield a reason for each result that has too few pairs of questions with the first result."""
    for side in sides:
        if side.pairing is not None and side.pairing.share < min_paired:
            why = pairing.too_few_text(side.pairing, min_paired)
            yield Reason("no_pairs", f"{sides[0].label} and {side.label}: {why}")


def _label(number: int) -> str:
    """Return the label of a model by its number, from 0: A to Z, then A2 to Z2, and so on."""
    earlier_alphabets, letter_number = divmod(number, len(string.ascii_uppercase))
    letter = string.ascii_uppercase[letter_number]
    if earlier_alphabets == 0:
        return letter
    return f"{letter}{earlier_alphabets + 1}"


def _value_reasons(sides: Sequence[Side]) -> list[Reason]:
    """Return the reasons against comparing these values: of each result, and of each pair."""
    reasons = list(chain.from_iterable(map(comparison_reasons.reasons_against_result, sides)))
    for a, b in combinations(sides, 2):
        reasons += comparison_reasons.reasons_against_pair(a, b)
        if not a.values.means.keys() & b.values.means.keys():
            text = f"there is no instance of which both {a.label} and {b.label} have a value"
            reasons.append(Reason("no_pairs", text))
    return reasons
