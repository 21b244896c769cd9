"""Runs a gate: checks the results of a candidate against the limits of a policy.

A candidate is the model that a gate accepts or refuses; a baseline is the earlier model with which
the candidate is compared. A drop is the amount by which the candidate's score is worse than the
baseline's. A check of a limit passes, fails, or is inconclusive because the sample is too small.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Literal

from eval_factory.analysis.comparison import compare
from eval_factory.analysis.gate_checks import (
    Check,
    check_of_coverage,
    check_of_judges,
    check_of_min,
    check_without_number,
)
from eval_factory.analysis.gate_drops import Change
from eval_factory.analysis.gate_groups import checks_of_groups
from eval_factory.analysis.gate_policy import BenchmarkPolicy, Policy, Tier
from eval_factory.core.enums import Verdict
from eval_factory.core.errors import ConfigError
from eval_factory.core.results import Provenance
from eval_factory.report.reader import StoredResult, load_result, run_folders
from eval_factory.report.verdicts import doubts_of


@dataclass(frozen=True)
class BenchmarkOutcome:
    """The outcome of a gate for one benchmark."""

    task: str
    tier: Tier  # an advisory benchmark is shown, but does not count; the other tiers count
    metric: (
        str | None
    )  # the name of the score; None if there is no result and no name in the policy
    outcome: Verdict
    checks: tuple[Check, ...]
    # The outcome for the gate. An inconclusive outcome may count as passed; an advisory benchmark
    # always counts as passed.
    counted_as: Verdict
    candidate: Path | None = None  # the output folder of the result; None if there is no result


@dataclass(frozen=True)
class GateResult:
    """The outcome of a gate."""

    policy: Path
    policy_sha256: str
    outcome: Verdict
    benchmarks: tuple[BenchmarkOutcome, ...]
    # tasks of candidates that the policy does not name; they do not count for the outcome
    not_in_policy: tuple[str, ...]
    locked_at: datetime | None = None  # the time at which the policy was locked; None: not locked
    notes: tuple[str, ...] = ()  # on limits without effect, on the lock, and on doubtful scores

    @property
    def exit_code(self) -> int:
        """0 if the gate is passed, else 1."""
        if self.outcome == Verdict.PASS:
            return 0
        return 1


def evaluate_policy(
    policy: Policy,
    candidates: Sequence[Path],
    baselines: Sequence[Path] = (),
    load: Callable[[Path], StoredResult] = load_result,
) -> GateResult:
    """Check the candidates' results against the policy.

    Args:
        policy: the policy, from `load_policy`.
        candidates: output folders, or folders of output folders.
        baselines: folders with the results from which drops are measured.
        load: reads the result of a folder.

    Raises:
        ConfigError: there are two results of one task, a folder is both candidate and baseline, or
            the policy limits a drop and there is no baseline.
        PrerequisiteError: a folder has no result.
    """
    candidate_results = _by_task(candidates, "candidate", load)
    baseline_results = _by_task(baselines, "baseline", load)
    for task in candidate_results.keys() & baseline_results.keys():
        folder = candidate_results[task].folder
        if folder.resolve() == baseline_results[task].folder.resolve():
            fault = f"is both the candidate and the baseline of {task}"
            raise ConfigError(f"{folder}: {fault}; give the baseline's own folder")
    if policy.needs_baseline and not baselines:
        raise ConfigError(
            f"{policy.path}: limits a drop: give the earlier result with --baseline DIR"
        )
    outcomes = []
    for benchmark in policy.benchmarks:
        candidate = candidate_results.get(benchmark.task)
        outcomes.append(_benchmark_outcome(benchmark, candidate, baseline_results))
    tasks_in_policy = {benchmark.task for benchmark in policy.benchmarks}
    outcome = _worst(benchmark.counted_as for benchmark in outcomes)
    if outcome == Verdict.PASS and not _could_fail(policy, outcomes):
        # A gate that every model passes shows nothing.
        outcome = Verdict.INCONCLUSIVE
    notes = list(_notes_of_limits(policy, outcomes))
    for task in sorted(candidate_results.keys() & tasks_in_policy):
        notes += _notes_of_lock(task, candidate_results[task], policy.locked_at)
        notes += _doubts_about(task, "candidate", candidate_results[task])
        if task in baseline_results:
            notes += _doubts_about(task, "baseline", baseline_results[task])
    return GateResult(
        policy=policy.path,
        policy_sha256=policy.sha256,
        outcome=outcome,
        benchmarks=tuple(outcomes),
        not_in_policy=tuple(sorted(candidate_results.keys() - tasks_in_policy)),
        locked_at=policy.locked_at,
        notes=tuple(notes),
    )


def _benchmark_outcome(
    policy: BenchmarkPolicy, candidate: StoredResult | None, baselines: Mapping[str, StoredResult]
) -> BenchmarkOutcome:
    """Return the outcome of one benchmark.

    Args:
        policy: the policy for the benchmark.
        candidate: the candidate's result; None if there is none.
        baselines: the baseline's result of each task.
    """
    metric = policy.metric
    folder = None
    if candidate is not None:
        metric = metric or candidate.result.main_metric
        folder = candidate.folder
    checks = tuple(_checks(policy, metric, candidate, baselines.get(policy.task)))
    outcome = _worst(check.outcome for check in checks)
    counted_as = outcome
    is_tolerated = outcome == Verdict.INCONCLUSIVE and policy.on_inconclusive == "pass"
    if is_tolerated or not policy.can_block:
        counted_as = Verdict.PASS
    return BenchmarkOutcome(
        task=policy.task,
        tier=policy.tier,
        metric=metric,
        outcome=outcome,
        checks=checks,
        counted_as=counted_as,
        candidate=folder,
    )


def _could_fail(policy: Policy, outcomes: Sequence[BenchmarkOutcome]) -> bool:
    """Return True if a bad model could fail the gate.

    Only benchmarks that count, and whose inconclusive outcome counts as failed, are examined. If
    the policy has no such benchmark, return True: the user chose a gate that is easy to pass.
    """
    checks: list[Check] = []
    for benchmark, outcome in zip(policy.benchmarks, outcomes, strict=True):
        if benchmark.can_block and benchmark.on_inconclusive != "pass":
            checks.extend(outcome.checks)
    return not checks or any(check.can_fail for check in checks)


def _notes_of_limits(policy: Policy, outcomes: Sequence[BenchmarkOutcome]) -> Iterator[str]:
    """Yield a note for each limit that no score could break.

    Also yield a note if all benchmarks are advisory.
    """
    for outcome in outcomes:
        for check in outcome.checks:
            if not check.can_fail:
                group_words = ""
                if check.group is not None:
                    group_words = f" of {check.group}"
                yield (
                    f"{outcome.task}: no score could break {check.limit}{group_words}; "
                    "give a limit that a bad model breaks"
                )
    if not any(benchmark.can_block for benchmark in policy.benchmarks):
        yield "every benchmark is advisory: nothing could fail this gate"


def _doubts_about(
    task: str, model: Literal["candidate", "baseline"], stored: StoredResult
) -> Iterator[str]:
    """Yield a note for each doubt about a reportable score.

    The limits of the policy may not cover these doubts.

    Args:
        task: the task.
        model: the model whose score it is.
        stored: the result.
    """
    if stored.result.reportable:
        for doubt in doubts_of(stored.result):
            yield f"{task}: the {model}'s score: {doubt.value.phrase}"


def start_time_of(provenance: Provenance) -> datetime | None:
    """Return the time at which a run started; None if the result has no time."""
    if provenance.started_at is None:
        return None
    # Python 3.10 does not read the Z of a time.
    return datetime.fromisoformat(provenance.started_at.replace("Z", "+00:00"))


def _notes_of_lock(task: str, candidate: StoredResult, locked_at: datetime | None) -> Iterator[str]:
    """Yield a note if the lock does not prove that the policy is older than the candidate's run."""
    if locked_at is None:
        return
    provenance = candidate.result.provenance
    started = start_time_of(provenance)
    runs = candidate.result.usage.runs
    if started is None:
        yield (
            f"{task}: the result does not say when its run started; "
            "the policy's lock proves nothing about this result"
        )
    elif started < locked_at:
        locked = f"before the policy was locked ({locked_at:%Y-%m-%dT%H:%M:%SZ})"
        yield (
            f"{task}: the run started ({provenance.started_at}) {locked}; "
            "the lock proves nothing about this result"
        )
    elif runs > 1:
        yield (
            f"{task}: {runs} runs made this result; only the last is known to have started "
            "after the lock"
        )


def _by_task(
    folders: Sequence[Path],
    model: Literal["candidate", "baseline"],
    load: Callable[[Path], StoredResult],
) -> dict[str, StoredResult]:
    """Return the result of each task. The same folder may be in `folders` twice.

    Args:
        folders: output folders, or folders of output folders.
        model: the model of the results, for messages.
        load: reads the result of a folder.

    Raises:
        ConfigError: there are two results of one task.
    """
    results: dict[str, StoredResult] = {}
    for path in run_folders(folders):
        stored = load(path)
        task = stored.result.task
        if task in results and results[task].folder.resolve() != stored.folder.resolve():
            raise ConfigError(
                f"there are two {model}s for {task}: {results[task].folder} and {stored.folder}; "
                "give one of them (for a suite: the folder of one target)"
            )
        results[task] = stored
    return results


def _worst(outcomes: Iterable[Verdict]) -> Verdict:
    """Return the worst of the outcomes; PASS if there are none."""
    distinct = set(outcomes)
    for outcome in (Verdict.FAIL, Verdict.INCONCLUSIVE):
        if outcome in distinct:
            return outcome
    return Verdict.PASS


def _checks(
    policy: BenchmarkPolicy,
    metric: str | None,
    candidate: StoredResult | None,
    baseline: StoredResult | None,
) -> Iterator[Check]:
    """Yield a check for each limit of a benchmark.

    If the result, the score or the baseline is missing, yield a failed check instead. The check is
    not inconclusive, because `on_inconclusive: pass` must not hide that nothing was shown.

    Args:
        policy: the policy for the benchmark.
        metric: the name of the score; None if there is no candidate and the policy names no score.
        candidate: the candidate's result; None if there is none.
        baseline: the baseline's result; None if there is none.
    """
    if candidate is None or metric is None:
        yield check_without_number("no candidate has a result of this benchmark")
        return
    result = candidate.result
    if not result.reportable:
        why = "; ".join(result.validity.short_reasons) or "too few instances have a score"
        yield check_without_number(f"the candidate's result is not reportable: {why}")
        return
    score = result.scores.get(metric)
    if score is None:
        names = ", ".join(sorted(result.scores)) or "none"
        yield check_without_number(f"the candidate has no score {metric}; it has {names}")
        return
    if policy.min is not None:
        yield check_of_min(score, policy.min, policy.direction)
    if policy.min_coverage is not None:
        yield check_of_coverage(result.validity.coverage, policy.min_coverage)
    if policy.min_judge_agreement is not None:
        yield check_of_judges(result.validity, policy.min_judge_agreement)
    change = None
    if policy.needs_baseline:
        if baseline is None:
            yield check_without_number("no baseline has a result of this benchmark")
            return
        # `compare` must use the loaded results, because `load` may have read older answers again.
        loaded = {baseline.folder: baseline, candidate.folder: candidate}
        compared = compare(list(loaded), metric=metric, load=lambda folder: loaded[Path(folder)])
        if not compared.comparable:
            why = "; ".join(reason.message for reason in compared.reasons)
            yield check_without_number(f"baseline (A) and candidate (B) cannot be compared: {why}")
            return
        (comparison,) = compared.comparisons  # two results make one pair
        change = Change.between(
            baseline, candidate, comparison, direction=policy.direction, scale=score.scale
        )
        yield from change.checks_of_drops(comparison.paired, policy)
    yield from checks_of_groups(policy, metric, candidate, change)
