"""A suite's results in words, as its table and its page say them. Pure functions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from eval_factory.analysis.comparison import Comparison, Pair, difference
from eval_factory.analysis.suite_results import Benchmark, CellResult, SuiteResults
from eval_factory.analysis.win_rates import GROUPS, WinRate
from eval_factory.core import formats
from eval_factory.core.nouns import RunStatus
from eval_factory.report.sentences import amount, counted

NOTHING = "-"
WIN_RATES = (
    "The mean win rate is that of HELM's leaderboards: the share of the other models that a model beats, a tie counting"
    " one half, as a mean over the benchmarks. It counts a lead of any size, also one by chance. So beside it stand the"
    " comparisons that show a difference (won, lost) and those that show none (open), and the ranks that a model may"
    " have: all of them hold together with 95 % confidence."
)
PAIRS = (
    "Differences are b - a, on the instances that both have a value of. p is corrected (Holm) for the pairs of the"
    " benchmark. A difference is shown where the corrected test and the interval both exclude that there is none."
)
GROUPS_BESIDE = (
    "HELM's other metric groups, as far as runs computed them. Robustness and fairness are the main metric where each"
    " question counts with its worst variant; of the others, less is better."
)


def summary(results: SuiteResults) -> str:
    """How much of the suite there is."""
    total = len(results.cells)
    complete = sum(cell.status == RunStatus.COMPLETE for cell in results.cells)
    if results.status == RunStatus.COMPLETE:
        return f"Complete: {counted(total, 'run')} of {_shape(results)}."
    incomplete = (RunStatus.PARTIAL, RunStatus.FAILED, RunStatus.WAITING, RunStatus.MISSING)
    states = {name: sum(cell.status == name for cell in results.cells) for name in incomplete}
    others = ", ".join(f"{count} {name}" for name, count in states.items() if count)
    return f"Not complete: {complete} of {counted(total, 'run')} of {_shape(results)} are complete; {others or 'none'}."


def _shape(results: SuiteResults) -> str:
    return f"{counted(len(results.targets), 'model')} on {counted(len(results.evaluations), 'benchmark')}"


def value(cell: CellResult | None) -> str:
    """The main score; of a cell without one its status."""
    if cell is None:
        return NOTHING
    return cell.status if cell.value is None else amount(cell.value, cell)


def interval(cell: CellResult) -> str:
    if cell.ci_low is None or cell.ci_high is None:
        return ""
    return f"{amount(cell.ci_low, cell)} to {amount(cell.ci_high, cell)}"


def marks(cell: CellResult) -> Iterator[str]:
    """What a reader of the value has to know."""
    if cell.value is None:
        return
    if not cell.reportable:
        yield "not reportable"
    if cell.status != RunStatus.COMPLETE:
        yield cell.status


def metrics_of(results: SuiteResults, evaluation: str) -> str:
    """The main metric; of runs that differ in it, all."""
    names = [cell.main_metric for cell in results.cells if cell.evaluation == evaluation and cell.main_metric]
    return ", ".join(dict.fromkeys(names))


def cost(cell: CellResult) -> str:
    """US dollars; of what has a known price."""
    if cell.cost is None:
        return NOTHING
    return ("at least " if cell.unpriced else "") + formats.money(cell.cost)


def total_cost(results: SuiteResults) -> str:
    """Of the runs whose cost is known; empty where none is."""
    known = [cell.cost for cell in results.cells if cell.cost is not None]
    if not known:
        return ""
    least = len(known) < len(results.cells) or any(cell.unpriced for cell in results.cells)
    return f"All that was paid for cost {'at least ' if least else ''}{formats.money(sum(known))}."


def number(count: int | None) -> str:
    return formats.count(count, missing=NOTHING)


def share(part: float | None) -> str:
    return formats.percent(part, missing=NOTHING)


def win_rate(one: WinRate) -> str:
    return formats.coefficient(one.win_rate, missing=NOTHING)


def decided(one: WinRate) -> str:
    """`3 won, 0 lost, 5 open`."""
    return NOTHING if one.won is None else f"{one.won} won, {one.lost} lost, {one.undecided} open"


def rank(best: int | None, worst: int | None) -> str:
    if best is None or worst is None:
        return NOTHING
    return str(best) if best == worst else f"{best} to {worst}"


def by_win_rate(rates: tuple[WinRate, ...]) -> list[WinRate]:
    """The best first; those without one last."""
    return sorted(rates, key=lambda one: (one.win_rate is None, -(one.win_rate or 0)))


@dataclass(frozen=True)
class PairRow:
    """A comparison as a row of a table; of two that cannot be compared there is a reason alone."""

    evaluation: str
    a: str
    b: str
    n: str = NOTHING
    difference: str = NOTHING
    interval: str = NOTHING
    p: str = NOTHING
    said: str = ""
    reasons: tuple[str, ...] = ()


def pair_rows(benchmark: Benchmark) -> Iterator[PairRow]:
    for pair in benchmark.pairs:
        yield _pair_row(benchmark.evaluation, pair)


def _pair_row(evaluation: str, pair: Pair) -> PairRow:
    a, b, one = pair.a.label, pair.b.label, pair.comparison
    if one is None:
        return PairRow(evaluation, a, b, reasons=tuple(reason.message for reason in pair.reasons))
    found = one.paired
    ends = (found.ci_low, found.ci_high)
    between = NOTHING if None in ends else " to ".join(_difference(end, one) for end in ends if end is not None)
    better = b if one.advantage > 0 else a
    return PairRow(
        evaluation,
        a,
        b,
        n=number(found.n),
        difference=_difference(found.difference, one),
        interval=between,
        p=formats.p_value(one.p_holm, missing=NOTHING),
        said=f"{better} is better" if one.significant else "no difference is shown",
    )


def _difference(points: float, one: Comparison) -> str:
    """A share as points of 100; zero has no sign."""
    told = difference(formats.rounded(points), one.scale, sign="+")
    return told if float(told) else told[1:]


@dataclass(frozen=True)
class GroupRow:
    """One score of one of HELM's other metric groups, of every model."""

    group: str
    evaluation: str
    label: str
    values: tuple[str, ...]
    """Of each target, in their order."""


def group_rows(results: SuiteResults) -> Iterator[GroupRow]:
    """In HELM's order of the groups."""
    for group in GROUPS:
        for evaluation in results.evaluations:
            cells = [results.cell(target, evaluation) for target in results.targets]
            labels = dict.fromkeys(
                one.label for cell in cells if cell for one in cell.group_scores if one.group == group
            )
            for label in labels:
                yield GroupRow(group, evaluation, label, tuple(_group_value(cell, label) for cell in cells))


def _group_value(cell: CellResult | None, label: str) -> str:
    for one in () if cell is None else cell.group_scores:
        if one.label == label:
            return formats.short(one.value)
    return NOTHING
