"""Runs a gate: checks the results of a candidate against the limits of a policy.

A candidate is the model that a gate accepts or refuses; a baseline is the earlier model with which
the candidate is compared. A drop is the amount by which the candidate's score is worse than the
baseline's. A check of a limit passes, fails, or is inconclusive because the sample is too small.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

from eval_factory.analysis.comparison import compare
from eval_factory.analysis.comparison_of_two import difference_of
from eval_factory.analysis.comparison_reasons import values_of
from eval_factory.analysis.comparison_records import Comparison
from eval_factory.analysis.gate_policy import (
    EVERY_VALUE,
    BenchmarkPolicy,
    Direction,
    Limits,
    Policy,
    Tier,
)
from eval_factory.core import formats
from eval_factory.core.enums import Evidence, Verdict
from eval_factory.core.errors import ConfigError
from eval_factory.core.results import InstanceRecord, Provenance, Score, Validity
from eval_factory.report.reader import StoredResult, load_result, run_folders
from eval_factory.report.verdicts import doubts_of
from eval_factory.scoring.paired import PairedDifference, non_inferiority

# evidence of non-inferiority -> (the outcome, the words in front of the permitted drop)
_OUTCOMES = {
    Evidence.SHOWN: (Verdict.PASS, "not worse by more than"),
    Evidence.REFUTED: (Verdict.FAIL, "worse by more than"),
    Evidence.INCONCLUSIVE: (Verdict.INCONCLUSIVE, "may be worse by more than"),
}


@dataclass(frozen=True)
class Check:
    """The check of one limit of one score."""

    # the limit's key in the policy; `result` if there is no number to compare with a limit
    limit: str
    outcome: Verdict
    message: str
    # `field=value`, or `field` if the result has no groups by this field; None means all instances
    group: str | None = None
    # the limit, in the unit of the number; for a drop, the largest permitted drop
    allowed: float | None = None
    # the measured number; for a drop, the difference of the scores (candidate - baseline)
    observed: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None
    can_fail: bool = True  # False if no possible score of the candidate breaks the limit


@dataclass(frozen=True)
class BenchmarkOutcome:
    """The outcome of a gate for one benchmark."""

    task: str
    tier: Tier
    metric: str | None
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
        yield _check_without_number("no candidate has a result of this benchmark")
        return
    result = candidate.result
    if not result.reportable:
        why = "; ".join(result.validity.short_reasons) or "too few instances have a score"
        yield _check_without_number(f"the candidate's result is not reportable: {why}")
        return
    score = result.scores.get(metric)
    if score is None:
        names = ", ".join(sorted(result.scores)) or "none"
        yield _check_without_number(f"the candidate has no score {metric}; it has {names}")
        return
    if policy.min is not None:
        yield _check_of_min(score, policy.min, policy.direction)
    if policy.min_coverage is not None:
        yield _check_of_coverage(result.validity.coverage, policy.min_coverage)
    if policy.min_judge_agreement is not None:
        yield _check_of_judges(result.validity, policy.min_judge_agreement)
    change = None
    if policy.needs_baseline:
        if baseline is None:
            yield _check_without_number("no baseline has a result of this benchmark")
            return
        # `compare` must use the loaded results, because `load` may have read older answers again.
        loaded = {baseline.folder: baseline, candidate.folder: candidate}
        compared = compare(list(loaded), metric=metric, load=lambda folder: loaded[Path(folder)])
        if not compared.comparable:
            why = "; ".join(reason.message for reason in compared.reasons)
            yield _check_without_number(f"baseline (A) and candidate (B) cannot be compared: {why}")
            return
        (comparison,) = compared.comparisons  # two results make one pair
        change = _Change.between(
            baseline, candidate, comparison, direction=policy.direction, scale=score.scale
        )
        yield from change.checks_of_drops(comparison.paired, policy)
    yield from _checks_of_groups(policy, metric, candidate, change)


def _check_of_coverage(coverage: float, min_coverage: float, group: str | None = None) -> Check:
    """Return the check of the smallest permitted coverage, of all instances or of a group."""
    outcome = Verdict.FAIL
    if coverage >= min_coverage:
        outcome = Verdict.PASS
    message = f"coverage is {formats.short(coverage)}; at least {min_coverage:g} is needed"
    return Check(
        "min_coverage", outcome, message, group=group, allowed=min_coverage, observed=coverage
    )


def _check_of_judges(validity: Validity, min_alpha: float) -> Check:
    """Return the check of the lowest permitted agreement of judges.

    Judges that are not shown to agree more than by chance fail the check, whatever their alpha is.
    The check also fails if a judge gives every answer the same marks, or gives every criterion the
    same decision.
    """
    alpha = None
    weakness = ""
    if validity.jury is not None:
        alpha = validity.jury.krippendorff_alpha
        if validity.jury.is_shown_to_agree is False:
            weakness = "; the judges are not shown to agree more than by chance"
        if validity.jury.constant:
            weakness = f"; {', '.join(validity.jury.constant)} gives every answer the same marks"
    elif validity.rubric is not None:
        alpha = validity.rubric.krippendorff_alpha
        if validity.rubric.is_shown_to_agree is False:
            weakness = "; the judges are not shown to agree more than by chance"
        if validity.rubric.constant:
            weakness = (
                f"; {', '.join(validity.rubric.constant)} gives every criterion the same decision"
            )
    needed = f"at least {min_alpha:g} is needed{weakness}"
    if alpha is None:
        message = f"the agreement of judges is not defined; {needed}"
        return Check("min_judge_agreement", Verdict.FAIL, message)
    outcome = Verdict.FAIL
    if alpha >= min_alpha and not weakness:
        outcome = Verdict.PASS
    message = f"Krippendorff's alpha is {formats.coefficient(alpha)}; {needed}"
    return Check("min_judge_agreement", outcome, message, allowed=min_alpha, observed=alpha)


def _check_without_number(why: str, group: str | None = None) -> Check:
    """Return the failed check of a benchmark or group without a number to compare with a limit."""
    return Check("result", Verdict.FAIL, why, group=group)


def _check_of_min(
    score: Score, minimum: float, direction: Direction | None, group: str | None = None
) -> Check:
    """Return the check of the lowest permitted score, by the interval of the score.

    The check fails if a lower score is better, because `min` has no meaning then. Without an
    interval, a score below the minimum fails, and any other score is inconclusive.

    Args:
        score: the score.
        minimum: the lowest permitted score.
        direction: the better direction in the policy; None for the metric's own direction.
        group: the group, as `field=value`; None for all instances.
    """
    low = score.stats.ci_low
    high = score.stats.ci_high
    value = formats.short(score.value)
    outcome = Verdict.INCONCLUSIVE
    if direction is None:
        lower_is_better = score.higher_is_better is False  # None: the direction is unknown
    else:
        lower_is_better = direction == "lower_is_better"
    if lower_is_better:
        outcome = Verdict.FAIL
        message = (
            "a lower score is better here, so min has no meaning; "
            "limit a drop (max_drop), or give direction"
        )
    elif low is None or high is None:
        if score.value < minimum:
            outcome = Verdict.FAIL
        message = f"{value} without an interval; at least {minimum:g} is needed"
    else:
        words = "may be below or above"
        if low >= minimum:
            outcome = Verdict.PASS
            words = "is at least"
        elif high < minimum:
            outcome = Verdict.FAIL
            words = "is below"
        between = f"(95 % interval {formats.short(low)} to {formats.short(high)})"
        message = f"{value} {between} {words} {minimum:g}"
    lowest_possible = -math.inf if score.scale is None else score.scale[0]
    return Check(
        "min",
        outcome,
        message,
        group=group,
        allowed=minimum,
        observed=score.value,
        ci_low=low,
        ci_high=high,
        can_fail=minimum > lowest_possible,
    )


@dataclass(frozen=True)
class _Change:
    """The change from the baseline to the candidate."""

    baseline: StoredResult
    comparison: Comparison
    higher_is_better: bool
    # True if the same model gave the same answers, so that no drop is possible
    unchanged: bool
    scale: tuple[float, float] | None  # the scale of the scores

    @classmethod
    def between(
        cls,
        baseline: StoredResult,
        candidate: StoredResult,
        comparison: Comparison,
        *,
        direction: Direction | None,
        scale: tuple[float, float] | None,
    ) -> _Change:
        """Return the change from a baseline to a candidate.

        Args:
            baseline: the earlier result.
            candidate: the new result.
            comparison: the comparison of both results.
            direction: the better direction in the policy; None for the metric's own direction.
            scale: the scale of the scores.
        """
        higher_is_better = comparison.higher_is_better
        if direction is not None:
            higher_is_better = direction == "higher_is_better"
        unchanged = (
            baseline.result.provenance.target == candidate.result.provenance.target
            and not comparison.paired.discordant
            and _answers_of(baseline) == _answers_of(candidate)
        )
        return cls(
            baseline,
            comparison,
            higher_is_better=higher_is_better,
            unchanged=unchanged,
            scale=scale,
        )

    def checks_of_drops(
        self, difference: PairedDifference, limits: Limits, group: str | None = None
    ) -> Iterator[Check]:
        """Yield a check for each limit of a drop.

        The check tests by the paired interval whether the candidate is not inferior. The limit
        `max_relative_drop` treats the baseline's score as a fixed number. If no drop is possible
        (`unchanged`), the candidate passes every limit.

        Args:
            difference: the difference (candidate - baseline) over all instances or over a group.
            limits: the limits.
            group: the group, as `field=value`; None for all instances.
        """
        if limits.max_drop is not None:
            yield self._check_of_drop("max_drop", limits.max_drop, difference, group)
        share = limits.max_relative_drop  # of the baseline's score
        if share is None:
            return
        baseline = formats.short(difference.value_a)
        guard = limits.relative_guard_below
        # With a guard, the limit only applies to baselines whose score is below the guard.
        if guard is not None and difference.value_a >= guard:
            message = (
                f"this limit does not apply: the baseline's score {baseline} "
                f"is not below relative_guard_below, {guard:g}"
            )
            # No score of the candidate can break a limit that does not apply.
            yield Check("max_relative_drop", Verdict.PASS, message, group=group, can_fail=False)
            return
        allowed = share * abs(difference.value_a)
        share_words = f", {formats.short(allowed)} of the baseline's {baseline}"
        yield self._check_of_drop("max_relative_drop", allowed, difference, group, share_words)

    def _check_of_drop(
        self,
        limit: str,
        allowed: float,
        difference: PairedDifference,
        group: str | None,
        share_words: str = "",
    ) -> Check:
        """Return the check of a limit of a drop.

        Args:
            limit: the limit's key in the policy.
            allowed: the largest permitted drop, in the unit of the score.
            difference: the difference (candidate - baseline).
            group: the group, as `field=value`; None for all instances.
            share_words: the words that explain `allowed` as a share of the baseline's score.
        """
        evidence = non_inferiority(difference, allowed, higher_is_better=self.higher_is_better)
        outcome, words = _OUTCOMES[evidence]
        if self.unchanged:
            outcome = Verdict.PASS
            words = "the baseline's own answers, not worse by more than"
        observed = formats.short(difference.difference, sign="+")
        low = difference.ci_low
        high = difference.ci_high
        if low is not None and high is not None:
            between = f"{formats.short(low, sign='+')} to {formats.short(high, sign='+')}"
            observed += f" (95 % interval {between})"
        message = (
            f"{observed} on {difference.n} pairs: {words} {formats.short(allowed)}{share_words}"
        )
        if outcome == Verdict.INCONCLUSIVE and difference.mde is not None:
            detectable = formats.short(difference.mde)
            message += f"; a sample of this size shows differences of {detectable} and more"
        return Check(
            limit,
            outcome,
            message,
            group=group,
            allowed=allowed,
            observed=difference.difference,
            ci_low=low,
            ci_high=high,
            can_fail=allowed < self._largest_drop(difference.value_a),
        )

    def _largest_drop(self, baseline: float) -> float:
        """Return the largest possible drop from the baseline's score; infinite without a scale."""
        if self.scale is None:
            return math.inf
        low, high = self.scale
        if self.higher_is_better:
            return baseline - low
        return high - baseline


def _answers_of(stored: StoredResult) -> dict[tuple[object, ...], str | None]:
    """Return the answer to each instance, by (id, split, trial, perturbation)."""
    answers: dict[tuple[object, ...], str | None] = {}
    for record in stored.result.instances:
        key = (record.id, record.split, record.trial, record.perturbation)
        answers[key] = record.completion
    return answers


def _checks_of_groups(
    policy: BenchmarkPolicy, metric: str, candidate: StoredResult, change: _Change | None
) -> Iterator[Check]:
    """Yield the checks of the limits for groups.

    Args:
        policy: the policy for the benchmark.
        metric: the name of the score.
        candidate: the candidate's result.
        change: the change from the baseline; None if no limit of the benchmark needs a baseline.
    """
    for field, by_value in policy.groups.items():
        groups = candidate.result.groups.get(field, {})
        if not groups:
            yield _check_without_number(f"the candidate has no groups by {field}", group=field)
            continue
        for value, limits in _limits_by_value(by_value, groups):
            group = f"{field}={value}"
            score = groups.get(value, {}).get(metric)
            if score is None:
                why = (
                    f"the candidate has no score {metric} of this group: "
                    "it is missing, or too small to be shown"
                )
                yield _check_without_number(why, group=group)
                continue
            if limits.min is not None:
                yield _check_of_min(score, limits.min, policy.direction, group=group)
            if limits.min_coverage is not None:
                coverage = _coverage_of_group(candidate, score, (field, value))
                yield _check_of_coverage(coverage, limits.min_coverage, group=group)
            if change is not None and limits.limits_a_drop:
                difference = difference_in_group(
                    change.baseline, candidate, change.comparison, (field, value)
                )
                if difference is None:
                    why = "baseline and candidate have no instance of this group in common"
                    yield _check_without_number(why, group=group)
                else:
                    yield from change.checks_of_drops(difference, limits, group)


def _limits_by_value(
    by_value: Mapping[str, Limits], groups: Collection[str]
) -> Iterator[tuple[str, Limits]]:
    """Yield the value and the limits of each group of a field.

    The groups that the policy names come first, and then the other groups if the policy has limits
    for `EVERY_VALUE`.
    """
    for value, limits in by_value.items():
        if value != EVERY_VALUE:
            yield value, limits
    if EVERY_VALUE in by_value:
        for value in sorted(set(groups) - by_value.keys()):
            yield value, by_value[EVERY_VALUE]


def _coverage_of_group(stored: StoredResult, score: Score, group: tuple[str, str]) -> float:
    """Return the share of a group's answers, or of their judgements, that the score counts.

    In a judged result, judgements are counted; in any other result, answers. Return 0 if there
    should be no answer or judgement.

    Args:
        stored: the result.
        score: the score of the group.
        group: the field of the group and its value.
    """
    judge_count = len(stored.result.validity.judges)
    is_judged = stored.result.validity.judgements is not None and judge_count > 0
    due = 0  # the number of answers or judgements that there should be
    counted = 0
    for record in _records_in(stored, group):
        if not score.covers(record):
            continue
        if not is_judged:
            due += 1
            if record.error is None and not record.unjudged:
                counted += 1
        elif record.criteria:  # in a rubric, each judge decides about each criterion
            due += judge_count * len(record.criteria)
            counted += sum(map(_decisions, record.criteria))
        elif record.judges or not _is_empty(record):  # no judge is asked about an empty answer
            due += judge_count
            counted += len(record.judges)
    if not due:
        return 0.0
    return counted / due


def _decisions(criterion: Mapping[str, Any]) -> int:
    """Return the number of judges who decided about a criterion."""
    return sum("criteria_met" in judgement for judgement in criterion["judges"].values())


def _is_empty(record: InstanceRecord) -> bool:
    """Return True if there is an answer, and the answer has no text."""
    return record.completion is not None and not record.completion.strip()


def difference_in_group(
    a: StoredResult, b: StoredResult, comparison: Comparison, group: tuple[str, str]
) -> PairedDifference | None:
    """Return the difference (b - a) over the instances of a group with a value in both results.

    The metric and the scale are those of the comparison. Return None if no instance of the group
    has a value in both results.

    Args:
        a: the first result.
        b: the second result.
        comparison: the comparison of both results over all instances.
        group: the field of the group and its value.
    """
    score = a.result.scores[comparison.metric]
    values_a = values_of(_records_in(a, group), score)
    values_b = values_of(_records_in(b, group), score)
    keys = sorted(values_a.means.keys() & values_b.means.keys())
    if not keys:
        return None
    return difference_of(values_a, values_b, keys, comparison.scale)


def _records_in(stored: StoredResult, group: tuple[str, str]) -> Iterator[InstanceRecord]:
    """Yield the records of the instances in a group."""
    field, value = group
    for record in stored.result.instances:
        if record.group_value(field) == value:
            yield record
