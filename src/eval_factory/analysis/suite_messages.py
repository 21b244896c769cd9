"""Formats a suite's results as sentences and tables, for its page, its Markdown and papers.

The functions are pure: they read no files.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import chain
from typing import NamedTuple

from eval_factory.analysis.comparison_records import Comparison, difference_text
from eval_factory.analysis.suite_results import CellResult, ComparedBenchmark, SuiteResults
from eval_factory.analysis.win_rates import EFFICIENCY, GROUPS, WinRate
from eval_factory.core import formats
from eval_factory.core.enums import RunStatus
from eval_factory.core.formats import counted
from eval_factory.core.results import AskedAgain, Share
from eval_factory.core.tables import Code, Table, TableCell
from eval_factory.report.asked_again_sentences import families_by_harm
from eval_factory.report.result_sentences import value_text
from eval_factory.report.verdicts import Verdict

NO_VALUE = "-"  # the text for a value that is not known
WIN_RATES_NOTE = (
    "The mean win rate is computed as on HELM's leaderboards: it is the share of the other models "
    "that a model beats (a tie counts one half), as a mean over the benchmarks. It counts a lead "
    "of any size, even one by chance. So the table also shows how many comparisons show a "
    "difference (won, lost) and how many show none (open), and the ranks that a model may have: "
    "all these ranks hold together with 95 % confidence."
)
PAIRS_NOTE = (
    "A difference is b - a, on the instances for which both models have a value. "
    "p is corrected (Holm) for the number of pairs of the benchmark. A difference is shown if "
    "both the corrected test and the interval exclude a difference of 0."
)
GROUPS_NOTE = (
    "HELM's other metric groups, if the runs computed their scores. "
    "Robustness and fairness are the main metric over the worst variant of each question; in the "
    "other groups, lower is better."
)


def completeness_sentence(results: SuiteResults) -> str:
    """Return the sentence on the number of runs with each status."""
    counts = Counter(cell.status for cell in results.cells)
    runs = counted(len(results.cells), "run")
    shape = (  # the size of the suite
        f"{counted(len(results.targets), 'model')} "
        f"on {counted(len(results.evaluations), 'benchmark')}"
    )
    if results.status == RunStatus.COMPLETE:
        return f"Complete: {runs} of {shape}."
    incomplete = []
    for status in RunStatus:
        if counts[status] and status != RunStatus.COMPLETE:
            incomplete.append(f"{counts[status]} {status}")
    complete = f"{counts[RunStatus.COMPLETE]} of {runs} of {shape} are complete"
    return f"Not complete: {complete}; {', '.join(incomplete) or 'none'}."


def score_text(cell: CellResult | None) -> str:
    """Return the main score as a text; the status if the cell has no score; "-" without a cell."""
    if cell is None:
        return NO_VALUE
    if cell.value is None:
        return cell.status
    return value_text(cell.value, cell)


def interval_text(cell: CellResult) -> str:
    """Return the interval of the main score as a text; empty if there is none."""
    if cell.ci_low is None or cell.ci_high is None:
        return ""
    return f"{value_text(cell.ci_low, cell)} to {value_text(cell.ci_high, cell)}"


@dataclass(frozen=True)
class Mark:
    """A warning or remark that is shown with a score."""

    text: str
    colour: str = "warn"  # a class of page.css
    sign: str = ""  # a symbol that is shown with the text

    def __str__(self) -> str:
        return self.text


def marks(cell: CellResult) -> Iterator[Mark]:
    """Yield the warnings and remarks on a cell's score; nothing without a score."""
    if cell.value is None:
        return
    verdict = cell.verdict
    if verdict is None:  # never in a cell with a value that `suite_results` made
        verdict = Verdict.GOOD if cell.reportable else Verdict.REFUSED
    if verdict is not Verdict.GOOD:
        appearance = verdict.value
        yield Mark(appearance.phrase, appearance.colour, appearance.mark)
    if cell.unreadable:
        yield Mark(f"{formats.counted(cell.unreadable, 'answer')} unread")
    if cell.status != RunStatus.COMPLETE:
        yield Mark(cell.status)
    if cell.upstream is not None:
        yield Mark(f"by {cell.upstream}", "note")


FLOOR_LABEL = "best score without a model"
"""The name of the row with the floors: the best scores without a model, as by always answering A.
"""


def floor_texts(results: SuiteResults, evaluation: str) -> list[str]:
    """Return two texts: the best score without a model on a benchmark, and how it is reached.

    The second text names the answers, such as always A. If runs have different questions, their
    floors may differ; the first text then has the lowest and the highest floor. Return an empty
    list if no floor is known.
    """
    by_floor = {}  # floor -> a cell with this floor, which has the unit
    for cell in results.cells:
        if cell.evaluation == evaluation and cell.floor is not None:
            by_floor[cell.floor] = cell
    if not by_floor:
        return []
    names = [cell.floor_by for cell in by_floor.values() if cell.floor_by]
    answers = ", ".join(dict.fromkeys(names))
    lowest = value_text(min(by_floor), by_floor[min(by_floor)])
    highest = value_text(max(by_floor), by_floor[max(by_floor)])
    if lowest == highest:
        return [lowest, answers]
    return [f"{lowest} to {highest}", answers]


_DOUBTFUL = Verdict.CHANCE
"""The verdict with the colour and the mark of a suite that is incomplete or has no scores."""


class SuiteVerdict(NamedTuple):
    """The content of the first card of a suite's page."""

    colour: str  # a class of page.css
    mark: str  # a symbol
    lines: list[str]  # a line for each kind of doubt


def verdict_of_suite(results: SuiteResults) -> SuiteVerdict:
    """Return the colour and the mark of the page's first card, and a line for each kind of doubt.

    Colour and mark show the worst verdict on a score. Demos count only if there are no other
    scores. A suite that is not complete, or has no scores, gets the colour of a doubtful score.
    """
    verdicts = [cell.verdict for cell in results.cells if cell.verdict is not None]
    lines = []
    for verdict in Verdict:
        count = verdicts.count(verdict)
        if count and verdict is not Verdict.GOOD:
            lines.append(f"{counted(count, 'score')}: {verdict.value.phrase}.")
    unread = sum(cell.unreadable for cell in results.cells if cell.unreadable is not None)
    if unread:
        lines.append(
            f"{counted(unread, 'answer')} could not be read: no score counts them as right."
        )
    measured = [verdict for verdict in verdicts if verdict is not Verdict.DEMO]
    worst: Verdict = _DOUBTFUL  # for a suite without scores
    if measured:
        worst = max(measured, key=list(Verdict).index)  # the class lists the best verdict first
    elif verdicts:
        worst = Verdict.DEMO
    if results.status != RunStatus.COMPLETE and worst.value.colour == "good":
        worst = _DOUBTFUL
    return SuiteVerdict(worst.value.colour, worst.value.mark, lines)


def metrics_of(results: SuiteResults, evaluation: str) -> str:
    """Return the main metric of a benchmark, or all main metrics if they differ between runs."""
    names: dict[str, None] = {}  # a set that keeps its order
    for cell in results.cells:
        if cell.evaluation == evaluation and cell.main_metric:
            names[cell.main_metric] = None
    return ", ".join(names)


def total_cost_sentence(results: SuiteResults) -> str:
    """Return the sentence on the total known cost; empty if no cost is known."""
    costs = [cell.cost for cell in results.cells if cell.cost is not None]
    if not costs:
        return ""
    total = formats.money(sum(costs))
    if len(costs) < len(results.cells) or any(cell.unpriced for cell in results.cells):
        total = f"at least {total}"
    return f"All paid answers cost {total}."


def rank_texts(results: SuiteResults) -> dict[tuple[str, str], str]:
    """Return the possible ranks of each target, such as "1 to 2", by (evaluation, target)."""
    by_cell = {}
    for benchmark in results.benchmarks:
        for rank in benchmark.ranks:
            by_cell[benchmark.evaluation, rank.model.label] = str(rank)
    return by_cell


PAIR_HEADER = ("benchmark", "a", "b", "result", "n", "b - a", "95 % interval", "p")


def pair_rows(benchmarks: Iterable[ComparedBenchmark]) -> list[list[str]]:
    """Return a row for each compared pair, with the columns of `PAIR_HEADER`."""
    rows = []
    for benchmark in benchmarks:
        for comparison in benchmark.comparisons:
            difference = comparison.paired
            between = NO_VALUE
            if difference.ci_low is not None and difference.ci_high is not None:
                low = _difference(difference.ci_low, comparison)
                high = _difference(difference.ci_high, comparison)
                between = f"{low} to {high}"
            rows.append(
                [
                    benchmark.evaluation,
                    comparison.a.label,
                    comparison.b.label,
                    _finding(comparison),
                    formats.count(difference.n),
                    _difference(difference.difference, comparison),
                    between,
                    formats.p_value(comparison.p_holm, missing=NO_VALUE),
                ]
            )
    return rows


def _finding(comparison: Comparison) -> str:
    """Return a phrase that names the better model, or says that no difference is shown."""
    if not comparison.significant:
        return "no difference is shown"
    if comparison.advantage > 0:
        return f"{comparison.b.label} is better"
    return f"{comparison.a.label} is better"


def pair_table(benchmarks: Iterable[ComparedBenchmark], *, without_column: str = "") -> Table:
    """Return the table of the compared pairs.

    Args:
        benchmarks: the compared benchmarks.
        without_column: the name of a column to leave out; empty for all columns.
    """
    header = list(PAIR_HEADER)
    rows = pair_rows(benchmarks)
    if without_column:
        column = header.index(without_column)
        for row in (header, *rows):
            del row[column]
    return Table(header, rows, number_columns=4)  # the last four columns have numbers


def refused_pairs(benchmark: ComparedBenchmark) -> list[tuple[str, list[str]]]:
    """Return the pairs that cannot be compared: the two models, and the reasons."""
    refused = []
    for pair in benchmark.pairs:
        if pair.comparison is None:
            reasons = [reason.message for reason in pair.reasons]
            refused.append((f"{pair.a.label} and {pair.b.label}", reasons))
    return refused


def _difference(difference: float, comparison: Comparison) -> str:
    """Return a difference with its sign as a text; 0 has no sign.

    A difference of shares is in percentage points.
    """
    text = difference_text(formats.rounded(difference), comparison.scale, sign="+")
    if float(text) == 0:
        return text[1:]  # without the sign
    return text


def win_rate_table(rates: Iterable[WinRate], *, with_comparisons: bool = True) -> Table:
    """Return a table with a row for each model, the best first and those without a win rate last.

    Args:
        rates: the win rates.
        with_comparisons: whether a column has the results of each model's comparisons.
    """
    header = ["model", "mean win rate", "rank", "comparisons", "benchmarks"]
    if not with_comparisons:
        header.remove("comparisons")
    rows = []
    for rate in sorted(rates, key=_best_first):
        row = [rate.model, _win_rate(rate), _ranks_of(rate)]
        if with_comparisons:
            row.append(_decided(rate))
        rows.append([*row, str(rate.columns)])
    return Table(header, rows, number_columns=len(header) - 1)


def _best_first(rate: WinRate) -> float:
    """Return the sort key of a win rate; a model without a win rate is last."""
    if rate.win_rate is None:
        return math.inf
    return -rate.win_rate


def _ranks_of(rate: WinRate) -> str:
    """Return the possible ranks of a model as a text."""
    if rate.best_rank is None:
        return NO_VALUE
    if rate.best_rank == rate.worst_rank:
        return str(rate.best_rank)
    return f"{rate.best_rank} to {rate.worst_rank}"


def _decided(rate: WinRate) -> str:
    """Return the numbers of comparisons that a model won, lost, and that are open, as a text."""
    if rate.won is None:
        return NO_VALUE
    return f"{rate.won} won, {rate.lost} lost, {rate.undecided} open"


def _win_rate(rate: WinRate) -> str:
    return formats.coefficient(rate.win_rate, missing=NO_VALUE)


def group_tables(results: SuiteResults, *, with_efficiency: bool = False) -> dict[str, Table]:
    """Return a table for each of HELM's metric groups except accuracy, in HELM's order.

    The keys are the groups; those without scores are left out. A table has a row for each score,
    with the value of every target.

    Args:
        results: the results of the suite.
        with_efficiency: True if the group of efficiency is included. It is not for stored results,
            because times differ between equal runs.
    """
    groups = list(GROUPS)
    if with_efficiency:
        groups.append(EFFICIENCY)
    tables: dict[str, Table] = {}
    for group in groups:
        rows: list[list[TableCell]] = []
        for evaluation in results.evaluations:
            rows += _group_rows(results, evaluation, group)
        if rows:
            header = ["benchmark", "score", *results.targets]
            tables[group] = Table(header, rows, number_columns=len(results.targets))
    return tables


def _group_rows(results: SuiteResults, evaluation: str, group: str) -> Iterator[list[TableCell]]:
    """Yield a row for each score of a metric group on a benchmark."""
    by_target: list[dict[str, str]] = []
    for target in results.targets:
        by_target.append(_group_values(results.cell(target, evaluation), group))
    for label in dict.fromkeys(chain.from_iterable(by_target)):
        yield [evaluation, Code(label), *(values.get(label, NO_VALUE) for values in by_target)]


def _group_values(cell: CellResult | None, group: str) -> dict[str, str]:
    """Return the values of a cell's scores in a metric group as texts, by label."""
    values: dict[str, str] = {}
    if cell is None:
        return values
    for score in cell.group_scores:
        if score.group == group:
            values[score.label] = formats.short(score.value)
    if group == EFFICIENCY and cell.usage is not None:
        seconds = cell.usage.inference_runtime_s
        if seconds is not None:
            values["inference_runtime"] = formats.seconds(seconds)
    return values


def group_win_rates(results: SuiteResults) -> dict[str, list[str]]:
    """Return the mean win rates in each metric group, as texts in the order of the targets."""
    rates = {}
    for group, models in results.group_win_rates.items():
        rates[group] = list(map(_win_rate, models))
    return rates


_ASKED_AGAIN_HEADER = (
    "model",
    "benchmark",
    "as it is",
    "mean of repeats",
    "same each time",
    "worst other words",
    "right lost by them",
    "right lost after doubts",
    "calibration error",
    "does not know, of what is wrong",
)


def asked_again_table(results: SuiteResults) -> Table:
    """Return a table with a row for each run whose questions were asked again.

    The table shows how stable the answers are. It has no rows if no run asked questions again.
    """
    rows: list[list[TableCell]] = []
    for cell in results.cells:
        if cell.asked_again is not None:
            rows.append(_asked_again_row(cell, cell.asked_again))
    return Table(_ASKED_AGAIN_HEADER, rows, number_columns=8)


def _asked_again_row(cell: CellResult, record: AskedAgain) -> list[TableCell]:
    """Return the row of a run, with the columns of `_ASKED_AGAIN_HEADER`."""
    mean_of_repeats = NO_VALUE
    same_each_time = None
    if record.repeats:
        mean_of_repeats = _main_score(cell)  # with repeats, the main score is their mean
        same_each_time = record.repeats.same_each_time
    worst_words = NO_VALUE
    lost_by_words = None
    families = families_by_harm(
        record.in_other_words
    )  # families of rewordings, the most harmful first
    if families:
        name, family = families[0]
        worst_words = f"{name} {formats.score(family.change.difference, sign='+')}"
        lost_by_words = family.change.right_to_wrong
    lost_by_doubts = None
    if record.pushback and record.pushback.turns:
        lost_by_doubts = record.pushback.turns[-1].right_to_wrong
    calibration_error = None
    if record.confidence:
        calibration_error = record.confidence.calibration_error
    abstained = None
    if record.abstention:
        abstained = record.abstention.abstained_when_wrong
    return [
        cell.target,
        cell.evaluation,
        formats.score(cell.first_asking, missing=NO_VALUE),
        mean_of_repeats,
        _percent_text(same_each_time),
        worst_words,
        _percent_text(lost_by_words),
        _percent_text(lost_by_doubts),
        _share_text(calibration_error),
        _percent_text(abstained),
    ]


def _main_score(cell: CellResult) -> str:
    """Return the main score with its interval as a text."""
    return _with_interval(formats.score(cell.value, missing=NO_VALUE), cell.ci_low, cell.ci_high)


def _share_text(share: Share | None) -> str:
    """Return a share with its interval as a text; "-" for None."""
    if share is None:
        return NO_VALUE
    return _with_interval(formats.score(share.value), share.ci_low, share.ci_high)


def _with_interval(value: str, low: float | None, high: float | None) -> str:
    """Return a value with its interval in parentheses, if it has an interval."""
    between = formats.between(low, high, " to ")
    if not between:
        return value
    return f"{value} ({between})"


def _percent_text(share: Share | None) -> str:
    """Return a share in percent, with the number of its questions, as a text; "-" for None."""
    if share is None:
        return NO_VALUE
    return f"{formats.percent(share.value, digits=0)} of {share.count:,}"


def missing_table(results: SuiteResults) -> Table:
    """Return the table of the cells without a score, with the reasons and the next actions."""
    rows = []
    for missing in results.missing:
        cell = missing.cell
        rows.append([cell.target, cell.evaluation, cell.status, missing.reason, missing.what_to_do])
    return Table(["model", "benchmark", "status", "reason", "what to do"], rows)


def token_and_cost_texts(cell: CellResult) -> list[str]:
    """Return the prompt tokens, the answer tokens and the known cost in US dollars, as texts."""
    prompt_tokens = formats.count(cell.prompt_tokens, missing=NO_VALUE)
    completion_tokens = formats.count(cell.completion_tokens, missing=NO_VALUE)
    if cell.cost is None:
        return [prompt_tokens, completion_tokens, NO_VALUE]
    cost = formats.money(cell.cost)
    if cell.unpriced:
        cost = f"at least {cost}"
    return [prompt_tokens, completion_tokens, cost]
