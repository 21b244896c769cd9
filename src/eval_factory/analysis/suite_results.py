"""Computes the results of a suite from its finished runs.

The results are the scores, comparisons, ranks and win rates, and the runs without a score. A cell
is the run of one evaluation for one target. A column is a benchmark's score for each model, as in
the tables of HELM's leaderboards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import fmean

from eval_factory.analysis.comparison import (
    better_and_worse,
    compare_pairs,
    ranks_of_models,
    with_corrected_p_values,
)
from eval_factory.analysis.comparison_reasons import ANSWER_STYLE, Side, values_of
from eval_factory.analysis.comparison_records import Comparison, Model, Pair, Ranked
from eval_factory.analysis.win_rates import (
    ALPHA_OF_EACH,
    GROUPS,
    GroupScore,
    LeaderboardColumn,
    WinRate,
    group_scores,
    win_rates,
)
from eval_factory.core import formats
from eval_factory.core.enums import CellRecord, RunStatus
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import (
    REPEATS_MEAN_SUFFIX,
    AskedAgain,
    InstanceRecord,
    Score,
    TaskResult,
)
from eval_factory.core.run_statuses import RUN_STATUSES, WITH_RESULT
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.report.result_sentences import floor_in_words
from eval_factory.report.verdicts import Verdict, verdict_of


@dataclass(frozen=True)
class FinishedCell(CellRecord):
    """A run of a suite after the runner has finished with it."""

    status: RunStatus
    folder: Path  # the output folder of the run
    reason: str | None = None  # the reason why the run failed or is partial
    attempts: int = 0  # the number of starts in the last invocation


@dataclass(frozen=True)
class RunUsage:
    """The requests and times of a run. These figures differ between equal runs."""

    attempts: int  # the number of starts in the last invocation
    requests: int  # all requests from the folder, with retries
    retries: int
    cached: int  # the number of answers from the cache, in the last helm-run
    wall_s: float  # the duration of the last helm-run, in seconds
    latency_p50_s: float | None
    latency_p95_s: float | None
    # HELM's efficiency: mean seconds per answer, for unperturbed instances of the main split
    inference_runtime_s: float | None


@dataclass(frozen=True)
class CellResult(CellRecord):
    """The result of one evaluation of one target. A value that is not known is None."""

    status: RunStatus
    folder: Path
    reason: str | None = None
    model: str | None = None  # the requested name of the model
    task: str | None = None
    upstream: str | None = None  # the name and version of the package if it is not HELM
    main_metric: str | None = None
    value: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    n: int | None = None  # the number of instances with a value
    higher_is_better: bool | None = None
    scale: tuple[float, float] | None = None
    unit: str | None = None
    reportable: bool = False
    not_reportable: tuple[str, ...] = ()  # short reasons why the value is not reportable
    verdict: Verdict | None = None  # None if the cell has no value
    floor: float | None = None  # the best score without a model, on the same questions
    floor_by: str | None = None  # the answers that reach the floor
    unreadable: int | None = None  # the number of answers that no score can read
    requested: int | None = None  # the number of instances to be scored
    failed: int | None = None  # the number of these instances without an answer
    coverage: float | None = None  # the share of these instances with a score
    # US dollars for all paid answers in the folder; None if no price is known
    cost: float | None = None
    unpriced: int = 0  # the number of answers that are not in the cost
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    group_scores: tuple[GroupScore, ...] = ()
    asked_again: AskedAgain | None = None
    # the score of the original questions, if questions were asked again
    first_asking: float | None = None
    collected_by: str | None = None  # the version of eval-factory that wrote the result
    usage: RunUsage | None = None

    @property
    def enters_win_rates(self) -> bool:
        """True if the cell has a value that is reportable: only such values count for win rates."""
        return self.value is not None and self.reportable


@dataclass(frozen=True)
class LeftOut:
    """A value or a benchmark that does not count for the win rates."""

    evaluation: str
    target: str | None  # None if the complete benchmark is left out
    reason: str

    @property
    def name(self) -> str:
        """The name of the cell or of the benchmark, for a message."""
        if self.target is None:
            return self.evaluation
        return f"{self.target}/{self.evaluation}"


@dataclass(frozen=True)
class ComparedBenchmark:
    """The comparison of all models on one evaluation, by its main metric."""

    evaluation: str
    pairs: tuple[Pair, ...]
    ranks: tuple[Ranked, ...]  # the ranks of models with at least one comparable pair

    @property
    def is_asked_in_two_ways(self) -> bool:
        """True if some models were asked for a letter and other models for reasoning.

        Their scores measure different things.
        """
        for pair in self.pairs:
            if any(reason.name == ANSWER_STYLE for reason in pair.reasons):
                return True
        return False

    @property
    def comparisons(self) -> list[Comparison]:
        """The comparisons of the comparable pairs."""
        return [pair.comparison for pair in self.pairs if pair.comparison is not None]


@dataclass(frozen=True)
class Missing:
    """A cell without a value."""

    cell: CellResult
    reason: str  # the reason why the cell has no value
    what_to_do: str  # the next action for the user


@dataclass(frozen=True)
class SuiteResults:
    """All results of a suite."""

    status: RunStatus
    targets: tuple[str, ...]
    evaluations: tuple[str, ...]
    cells: tuple[CellResult, ...]  # in the order of the suite
    win_rates: tuple[WinRate, ...]  # over the main metrics, as on HELM's leaderboards
    left_out: tuple[LeftOut, ...]  # the values and benchmarks that do not count for the win rates
    # the win rates in each of HELM's metric groups that a run computed
    group_win_rates: Mapping[str, tuple[WinRate, ...]]
    benchmarks: tuple[ComparedBenchmark, ...]
    missing: tuple[Missing, ...]

    @property
    def compared(self) -> list[ComparedBenchmark]:
        """The benchmarks on which at least two models have a main score."""
        return [benchmark for benchmark in self.benchmarks if benchmark.pairs]

    @property
    def has_win_rates(self) -> bool:
        """True if at least one model has a win rate."""
        return any(rate.win_rate is not None for rate in self.win_rates)

    def cell(self, target: str, evaluation: str) -> CellResult | None:
        """Return the cell of a target and an evaluation; None if the suite has no such cell."""
        for cell in self.cells:
            if (cell.target, cell.evaluation) == (target, evaluation):
                return cell
        return None


_MAX_REASON = 2_000  # the maximum length of a reason, in characters
_FORM_ERRORS = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError)
"""The errors that reading a result may raise if somebody has edited its document by hand."""


def suite_results(cells: Iterable[FinishedCell]) -> SuiteResults:
    """Return the results of all cells, in the order of the suite.

    A cell whose result cannot be read has the status FAILED.
    """
    runs = list(cells)
    targets = tuple(dict.fromkeys(run.target for run in runs))
    evaluations = tuple(dict.fromkeys(run.evaluation for run in runs))
    cell_by_key: dict[tuple[str, str], CellResult] = {}  # by (target, evaluation)
    benchmarks = []
    # The loop is over the benchmarks, so that the values of only one benchmark are in memory.
    for evaluation in evaluations:
        sides = []
        for run in runs:
            if run.evaluation == evaluation:
                cell, side = _cell_of_run(run)
                cell_by_key[cell.target, evaluation] = cell
                if side is not None:
                    sides.append(side)
        benchmarks.append(_compare_models(evaluation, sides))
    results = [cell_by_key[run.target, run.evaluation] for run in runs]  # in the order of the suite
    columns, left_out = _columns(results, benchmarks)
    status = RunStatus.PARTIAL
    if {cell.status for cell in results} == {RunStatus.COMPLETE}:
        status = RunStatus.COMPLETE
    return SuiteResults(
        status=status,
        targets=targets,
        evaluations=evaluations,
        cells=tuple(results),
        win_rates=win_rates(targets, columns, with_ranks=True),
        left_out=tuple(left_out),
        group_win_rates=dict(_group_win_rates(targets, results, benchmarks)),
        benchmarks=tuple(benchmarks),
        missing=tuple(_missing(cell) for cell in results if cell.value is None),
    )


def _compare_models(evaluation: str, sides: Sequence[Side]) -> ComparedBenchmark:
    """Return the comparison of all models on one evaluation."""
    pairs = compare_pairs(sides)
    models: dict[Model, None] = {}  # the models with at least one comparable pair
    for pair in pairs:
        if pair.comparison:
            models[pair.a] = None
            models[pair.b] = None
    return ComparedBenchmark(evaluation, pairs, ranks_of_models(list(models), pairs))


def _missing(cell: CellResult) -> Missing:
    """Return the reason why a cell has no value, and the next action."""
    status = RUN_STATUSES[cell.status]
    if status.has_result:
        usual_reason = "; ".join(cell.not_reportable) or "its main score could not be computed"
        what_to_do = "read the notes in its report; the same command resumes a partial run"
    else:
        usual_reason = status.usual_reason
        what_to_do = status.next_step
    return Missing(cell, cell.reason or usual_reason, what_to_do)


def _cell_of_run(run: FinishedCell) -> tuple[CellResult, Side | None]:
    """Return the cell of a run, and the run's values by instance if it has a main score."""
    reason = None
    if run.reason is not None:
        reason = one_line(run.reason, _MAX_REASON)
    cell_without_result = CellResult(run.target, run.evaluation, run.status, run.folder, reason)
    if run.status not in WITH_RESULT:
        return cell_without_result, None
    try:
        return _cell_of_result(cell_without_result, load_result(run.folder), run.attempts)
    except PrerequisiteError as error:
        fault = str(error)
    except _FORM_ERRORS as error:
        fault = (
            f"{run.folder}: eval-factory did not write its result in this form "
            f"({type(error).__name__}: {error})"
        )
    reason = one_line(fault, _MAX_REASON)
    return replace(cell_without_result, status=RunStatus.FAILED, reason=reason), None


def _cell_of_result(
    cell_without_result: CellResult, stored: StoredResult, attempts: int
) -> tuple[CellResult, Side | None]:
    """Return the cell of a stored result, and its values by instance if it has a main score.

    Args:
        cell_without_result: the cell without the facts of the result.
        stored: the result.
        attempts: the number of starts in the last invocation.
    """
    result = stored.result
    main = result.scores.get(result.main_metric)
    cell = _with_cost(_with_facts(cell_without_result, result), result)
    side = None
    times: list[float] = []
    if main is not None:
        # Reading the records is slow, so they are read once: `_timed` fills `times` while
        # `values_of` reads every record.
        values = values_of(_timed(result.instances, main, times), main)
        side = Side(cell_without_result.target, stored, values, result.main_metric)
        cell = _with_score(cell, result, main)
    runtime = None
    if times:
        runtime = fmean(times)
    all_runs = result.usage.all_runs.total
    usage = RunUsage(
        attempts=attempts,
        requests=all_runs.requests,
        retries=all_runs.retries,
        cached=result.usage.this_run.total.cached,
        wall_s=result.usage.wall_s,
        latency_p50_s=all_runs.latency_p50_s,
        latency_p95_s=all_runs.latency_p95_s,
        inference_runtime_s=runtime,
    )
    return replace(cell, usage=usage), side


def _with_facts(cell: CellResult, result: TaskResult) -> CellResult:
    """Return the cell with the facts of its result, except the score and the cost."""
    provenance = result.provenance
    validity = result.validity
    upstream = None
    if provenance.upstream != "helm":
        upstream = f"{provenance.upstream} {provenance.helm}"
    first_asking = None
    if validity.asked_again is not None:
        # With repeats, the main metric is the mean over the repeats: its label is the label of the
        # first asking's score and `REPEATS_MEAN_SUFFIX`.
        first_label = result.main_metric.replace(REPEATS_MEAN_SUFFIX, "")
        score = result.scores.get(first_label)
        if score is not None:
            first_asking = score.value
    return replace(
        cell,
        model=provenance.target,
        task=result.task,
        upstream=upstream,
        main_metric=result.main_metric,
        reportable=result.reportable,
        not_reportable=_why_not_reportable(result),
        unreadable=validity.instances.unreadable,
        requested=validity.instances.requested,
        failed=validity.instances.failed,
        coverage=validity.coverage,
        group_scores=tuple(group_scores(result)),
        collected_by=provenance.eval_factory,
        asked_again=validity.asked_again,
        first_asking=first_asking,
    )


def _with_cost(cell: CellResult, result: TaskResult) -> CellResult:
    """Return the cell with the tokens and the known cost of all runs in the folder."""
    paid = result.usage.all_runs.total
    cell = replace(cell, prompt_tokens=paid.prompt_tokens, completion_tokens=paid.completion_tokens)
    if paid.cost is None:
        return cell
    return replace(cell, cost=float(paid.cost.value), unpriced=paid.cost.unpriced_requests)


def _with_score(cell: CellResult, result: TaskResult, main: Score) -> CellResult:
    """Return the cell with the main score, its verdict and the best score without a model."""
    cell = replace(
        cell,
        value=main.value,
        ci_low=main.stats.ci_low,
        ci_high=main.stats.ci_high,
        n=main.stats.count,
        higher_is_better=main.higher_is_better,
        scale=main.scale,
        unit=main.unit,
        verdict=verdict_of(result),
    )
    floor = result.validity.floors.get(result.main_metric)
    if floor is None:
        return cell
    return replace(cell, floor=floor.value, floor_by=floor_in_words(floor))


def _why_not_reportable(result: TaskResult) -> tuple[str, ...]:
    """Return short reasons why a result is not reportable; empty if it is reportable."""
    if result.reportable:
        return ()
    validity = result.validity
    if validity.not_reportable:
        return validity.short_reasons
    if result.main_metric not in result.scores:
        return ("it has no main score",)
    return (f"only {formats.percent(validity.coverage)} of its instances have a score",)


def _timed(
    records: Iterable[InstanceRecord], main: Score, times: list[float]
) -> Iterator[InstanceRecord]:
    """Yield all records, and append latencies to `times`, in seconds.

    Only the latencies of unperturbed instances in the main score's split are appended.
    """
    for record in records:
        is_plain = record.split == main.split and record.perturbation is None
        if is_plain and record.latency_s is not None:
            times.append(record.latency_s)
        yield record


def _columns(
    results: Sequence[CellResult], benchmarks: Sequence[ComparedBenchmark]
) -> tuple[list[LeaderboardColumn], list[LeftOut]]:
    """Return the columns of the win rates, and the values that are left out.

    Models without any reportable value are ignored. All other models have a value in each of the
    returned columns.
    """
    columns = []
    left_out = []
    corrected_pairs_of_each = _pairs_corrected_for_all(benchmarks)
    for benchmark, corrected_pairs in zip(benchmarks, corrected_pairs_of_each, strict=True):
        entering = {}  # the cells whose values count, by target
        for cell in results:
            if cell.evaluation != benchmark.evaluation or cell.value is None:
                continue
            if cell.enters_win_rates:
                entering[cell.target] = cell
            else:
                reason = f"its value is not reportable: {'; '.join(cell.not_reportable)}"
                left_out.append(LeftOut(cell.evaluation, cell.target, reason))
        benchmark_reason = _reason_against(benchmark, entering)
        if benchmark_reason is not None:
            left_out.append(LeftOut(benchmark.evaluation, target=None, reason=benchmark_reason))
        elif entering:
            columns.append(_column(benchmark, entering, corrected_pairs))
    models = _models_in(columns)
    complete_columns = []
    for column in columns:
        if models_without_value := sorted(models - column.values.keys()):
            names = formats.first_of(models_without_value, limit=3)
            reason = f"there is no reportable value of {names}"
            left_out.append(LeftOut(column.name, target=None, reason=reason))
        else:
            complete_columns.append(column)
    return complete_columns, left_out


def _pairs_corrected_for_all(benchmarks: Sequence[ComparedBenchmark]) -> list[tuple[Pair, ...]]:
    """Return the pairs of each benchmark, with p values for win rates.

    Win rates use all benchmarks, so these p values are corrected for the number of pairs of all
    benchmarks. Ranks on a single benchmark use p values that are corrected for its own pairs only.
    """
    all_pairs = list(chain.from_iterable(benchmark.pairs for benchmark in benchmarks))
    all_corrected_pairs = with_corrected_p_values(all_pairs)  # in the same order
    corrected_pairs_of_each = []
    start = 0
    for benchmark in benchmarks:
        end = start + len(benchmark.pairs)
        corrected_pairs_of_each.append(all_corrected_pairs[start:end])
        start = end
    return corrected_pairs_of_each


def _column(
    benchmark: ComparedBenchmark,
    entering: Mapping[str, CellResult],
    corrected_pairs: Iterable[Pair],
) -> LeaderboardColumn:
    """Return the column of a benchmark.

    Args:
        benchmark: the benchmark.
        entering: the cells whose values count, by target.
        corrected_pairs: the benchmark's pairs, with p values that are corrected for the pairs of
            all benchmarks.
    """
    # All cells have the same task and direction: `_reason_against` found no reason against them.
    first = next(iter(entering.values()))
    values = {}
    for target, cell in entering.items():
        if cell.value is not None:
            values[target] = cell.value
    return LeaderboardColumn(
        benchmark.evaluation,
        values,
        lower_is_better=first.higher_is_better is False,
        shown=_labels_of(better_and_worse(benchmark.pairs)),
        certain=_labels_of(better_and_worse(corrected_pairs, p_below=ALPHA_OF_EACH)),
        source=first.task,
    )


def _labels_of(pairs: Iterable[tuple[Model, Model]]) -> frozenset[tuple[str, str]]:
    """Return the pairs (better model, worse model) with the labels of the models."""
    return frozenset((better.label, worse.label) for better, worse in pairs)


def _models_in(columns: Iterable[LeaderboardColumn]) -> set[str]:
    """Return the names of the models with a value in at least one of the columns."""
    models: set[str] = set()
    for column in columns:
        models.update(column.values)
    return models


def _reason_against(benchmark: ComparedBenchmark, entering: Mapping[str, CellResult]) -> str | None:
    """Return the reason why a benchmark does not count for the win rates.

    Return None if the benchmark counts, or if none of its values counts.

    Args:
        benchmark: the benchmark.
        entering: the cells whose values count, by target.
    """
    for pair in benchmark.pairs:
        if pair.a.label in entering and pair.b.label in entering:
            for reason in pair.reasons:
                # Two values without common instances cannot be tested, but count for win rates.
                if reason.name != "no_pairs":
                    return f"its results cannot be compared: {reason.message}"
    if len(entering) == 1:
        return "only one model has a value that counts"
    if any(cell.higher_is_better is None for cell in entering.values()):
        return "it is not known whether a higher value is better"
    return None


def _group_win_rates(
    targets: Sequence[str],
    results: Sequence[CellResult],
    benchmarks: Sequence[ComparedBenchmark],
) -> Iterator[tuple[str, tuple[WinRate, ...]]]:
    """Yield each metric group that a run computed, with its win rates.

    A column is a score of a benchmark, as in HELM's tables. A column is left out if it lacks a
    model that another column has. A benchmark is left out if its models were asked in two ways.
    """
    in_two_ways = set()
    for benchmark in benchmarks:
        if benchmark.is_asked_in_two_ways:
            in_two_ways.add(benchmark.evaluation)
    entering = []
    for cell in results:
        if cell.enters_win_rates and cell.evaluation not in in_two_ways:
            entering.append(cell)
    for group in GROUPS:
        columns = _group_columns(entering, group)
        models = _models_in(columns)
        complete_columns = [column for column in columns if column.values.keys() == models]
        if complete_columns:
            yield group, win_rates(targets, complete_columns, with_ranks=False)


def _group_columns(cells: Iterable[CellResult], group: str) -> list[LeaderboardColumn]:
    """Return a column for each score of a metric group, with all models that have the score."""
    columns: dict[tuple[str, str], LeaderboardColumn] = {}  # by (evaluation, label of the score)
    for cell in cells:
        for score in cell.group_scores:
            if score.group == group:
                key = (cell.evaluation, score.label)
                new_column = LeaderboardColumn(
                    " ".join(key), values={}, lower_is_better=score.lower_is_better
                )
                column = columns.get(key, new_column)
                values = {**column.values, cell.target: score.value}
                columns[key] = replace(column, values=values)
    return list(columns.values())
