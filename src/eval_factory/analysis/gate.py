"""A policy held against results: each limit is kept or broken, or the sample is too small to say."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from eval_factory.analysis.comparison import Comparison, compare, difference_of
from eval_factory.analysis.comparison_reasons import values_of
from eval_factory.analysis.gate_policy import EVERY_VALUE, BenchmarkPolicy, Direction, Limits, Policy, Tier
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError
from eval_factory.core.nouns import Evidence, Verdict
from eval_factory.core.results import InstanceRecord, Score
from eval_factory.report.reader import StoredResult, load_result, run_folders
from eval_factory.scoring.paired import PairedDifference, non_inferiority

_OF_EVIDENCE = {
    Evidence.SHOWN: (Verdict.PASS, "not worse by more than"),
    Evidence.REFUTED: (Verdict.FAIL, "worse by more than"),
    Evidence.INCONCLUSIVE: (Verdict.INCONCLUSIVE, "may be worse by more than"),
}


@dataclass(frozen=True)
class Check:
    """One limit of one score."""

    limit: str  # `min`, `max_drop`, `max_relative_drop`; `result` where there is nothing to hold a limit against
    outcome: Verdict
    message: str
    group: str | None = None  # `field=value`; None: all instances
    allowed: float | None = None
    """The limit, in the metric's own unit; of a drop, how far the candidate may be below the baseline."""
    observed: float | None = None  # the candidate's score, or its difference from the baseline's (candidate - baseline)
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True)
class BenchmarkOutcome:
    task: str
    tier: Tier
    metric: str | None
    outcome: Verdict
    checks: tuple[Check, ...]
    counted_as: Verdict  # what it is to the gate: an inconclusive one may count as passed, an advisory one always does
    candidate: Path | None = None  # the output folder of the result; None where there is none


@dataclass(frozen=True)
class GateResult:
    policy: Path
    policy_sha256: str
    outcome: Verdict
    benchmarks: tuple[BenchmarkOutcome, ...]
    not_in_policy: tuple[str, ...]  # tasks of candidates that the policy does not name; they count for nothing
    locked_at: datetime | None = None  # when the policy was locked; None where it is not
    notes: tuple[str, ...] = ()  # what a reader has to know of the lock

    @property
    def exit_code(self) -> int:
        return 0 if self.outcome == Verdict.PASS else 1


def evaluate_policy(
    policy: Policy, candidates: Sequence[Path], baselines: Sequence[Path] = (), locked_at: datetime | None = None
) -> GateResult:
    """Hold the candidate's results against the policy, and against the baseline's where it limits a drop.

    Args:
        candidates, baselines: output folders, or folders of output folders.
        locked_at: when the policy was locked, with a time zone.

    Raises:
        ConfigError: two results of one task; one folder on both sides; a drop is limited and there is no baseline.
        PrerequisiteError: a folder holds no result.
    """
    new, old = _by_task(candidates, "candidate"), _by_task(baselines, "baseline")
    for task in new.keys() & old.keys():
        if new[task].folder.resolve() == old[task].folder.resolve():
            both = f"is candidate and baseline of {task}"
            raise ConfigError(f"{new[task].folder}: {both}; give the baseline's own folder")
    if not baselines and any(one.needs_baseline and one.blocks for one in policy.benchmarks):
        raise ConfigError(f"{policy.path}: limits a drop, which needs --baseline DIR")
    found = []
    for one in policy.benchmarks:
        result = new.get(one.task)
        metric = one.metric or (result.result.main_metric if result else None)
        checks = tuple(_checks(one, metric, result, old.get(one.task)))
        outcome = _worst(check.outcome for check in checks)
        passes = not one.blocks or (outcome == Verdict.INCONCLUSIVE and one.on_inconclusive == "pass")
        counted_as, folder = Verdict.PASS if passes else outcome, result.folder if result else None
        found.append(BenchmarkOutcome(one.task, one.tier, metric, outcome, checks, counted_as, folder))
    named = {one.task for one in policy.benchmarks}
    return GateResult(
        policy=policy.path,
        policy_sha256=policy.sha256,
        outcome=_worst(one.counted_as for one in found),
        benchmarks=tuple(found),
        not_in_policy=tuple(sorted(new.keys() - named)),
        locked_at=locked_at,
        notes=() if locked_at is None else tuple(_not_covered(new, named, locked_at)),
    )


def _not_covered(new: Mapping[str, StoredResult], named: Collection[str], locked_at: datetime) -> Iterator[str]:
    """Candidates of which the lock does not show that the policy was there before them."""
    for task in sorted(new.keys() & named):
        result = new[task].result
        began = result.provenance.started_at
        if began is None:
            yield f"{task}: the result does not say when its run began; the policy's lock proves nothing for it"
        elif datetime.fromisoformat(began.replace("Z", "+00:00")) < locked_at:
            locked = f"before the policy was locked ({locked_at:%Y-%m-%dT%H:%M:%SZ})"
            yield f"{task}: its run began ({began}) {locked}; the lock proves nothing for it"
        elif result.usage.runs > 1:
            yield f"{task}: was made by {result.usage.runs} runs; only the last is known to have begun after the lock"


def _by_task(folders: Sequence[Path], side: str) -> dict[str, StoredResult]:
    found: dict[str, StoredResult] = {}
    for path in run_folders(folders):
        stored = load_result(path)
        task = stored.result.task
        if task in found and found[task].folder.resolve() != stored.folder.resolve():
            raise ConfigError(
                f"two {side}s are of {task}: {found[task].folder} and {stored.folder}; give one"
                " (of a suite: the folder of one target)"
            )
        found[task] = stored
    return found


def _worst(outcomes: Iterator[Verdict]) -> Verdict:
    found = set(outcomes)
    return next((one for one in (Verdict.FAIL, Verdict.INCONCLUSIVE) if one in found), Verdict.PASS)


def _checks(
    policy: BenchmarkPolicy, metric: str | None, new: StoredResult | None, old: StoredResult | None
) -> Iterator[Check]:
    """What is missing fails: nothing was shown of it, and `on_inconclusive: pass` must not hide it."""
    if new is None or metric is None:
        yield _nothing("no candidate has a result of it")
        return
    if not new.result.reportable:
        why = "; ".join(new.result.validity.short_reasons) or "too few instances have a score"
        yield _nothing(f"the candidate's result is not reportable: {why}")
        return
    score = new.result.scores.get(metric)
    if score is None:
        known = ", ".join(sorted(new.result.scores)) or "none"
        yield _nothing(f"the candidate has no score {metric}; it has {known}")
        return
    if policy.min is not None:
        yield _least(score, policy.min, policy.direction)
    change = None
    if policy.needs_baseline:
        if old is None:
            yield _nothing("no baseline has a result of it")
            return
        compared = compare([old.folder, new.folder], metric=metric)
        if not compared.comparable:
            why = "; ".join(reason.message for reason in compared.reasons)
            yield _nothing(f"cannot be compared with the baseline (A; B is the candidate): {why}")
            return
        (comparison,) = compared.comparisons
        higher = comparison.higher_is_better if policy.direction is None else policy.direction == "higher_is_better"
        unchanged = old.result.provenance.target == new.result.provenance.target and not comparison.paired.discordant
        if unchanged:
            answers, others = (
                {(one.id, one.split, one.trial, one.perturbation): one.completion for one in side.result.instances}
                for side in (old, new)
            )
            unchanged = answers == others
        change = _Change(old, comparison, higher, unchanged)
        yield from change.drops(comparison.paired, policy)
    yield from _of_groups(policy, metric, new, change)


def _nothing(why: str, group: str | None = None) -> Check:
    """There is no number to hold a limit against."""
    return Check("result", Verdict.FAIL, why, group)


def _least(score: Score, least: float, direction: Direction | None, group: str | None = None) -> Check:
    low, high = score.stats.ci_low, score.stats.ci_high
    if direction == "lower_is_better" or (direction is None and score.higher_is_better is False):
        outcome = Verdict.FAIL
        message = "lower is better: a least score says nothing; limit a drop (max_drop), or give direction"
    elif low is None or high is None:
        outcome = Verdict.FAIL if score.value < least else Verdict.INCONCLUSIVE
        message = f"{formats.short(score.value)} without an interval; at least {least:g} is asked"
    else:
        outcome, words = Verdict.INCONCLUSIVE, "may be below or above"
        if low >= least:
            outcome, words = Verdict.PASS, "is at least"
        elif high < least:
            outcome, words = Verdict.FAIL, "is below"
        between = f"(95 % interval {formats.short(low)} to {formats.short(high)})"
        message = f"{formats.short(score.value)} {between} {words} {least:g}"
    return Check("min", outcome, message, group, least, score.value, low, high)


@dataclass(frozen=True)
class _Change:
    """From the baseline to the candidate."""

    old: StoredResult
    comparison: Comparison
    higher_is_better: bool
    unchanged: bool  # the same model gave the same answers: there is no change that a limit could be held against

    def drops(self, found: PairedDifference, limits: Limits, group: str | None = None) -> Iterator[Check]:
        """Non-inferiority of the candidate by the paired interval; the baseline's score is taken as it is.

        What passes a limit passes every laxer one: what is unchanged passes them all, the interval decides of the rest.
        """
        baseline, share, guard = formats.short(found.value_a), limits.max_relative_drop, limits.relative_guard_below
        relative = None if share is None else share * abs(found.value_a)
        for limit, allowed in (("max_drop", limits.max_drop), ("max_relative_drop", relative)):
            if allowed is None:
                continue
            if limit == "max_relative_drop" and guard is not None and found.value_a >= guard:
                message = f"does not count: the baseline's {baseline} is not below relative_guard_below, {guard:g}"
                yield Check(limit, Verdict.PASS, message, group)
                continue
            outcome, words = _OF_EVIDENCE[non_inferiority(found, allowed, higher_is_better=self.higher_is_better)]
            if self.unchanged:
                outcome, words = Verdict.PASS, "the baseline's own answers, not worse by more than"
            most, between = formats.short(allowed), ""
            if found.ci_low is not None and found.ci_high is not None:
                ends = f"{formats.short(found.ci_low, sign='+')} to {formats.short(found.ci_high, sign='+')}"
                between = f" (95 % interval {ends})"
            message = f"{formats.short(found.difference, sign='+')}{between} on {found.n} pairs: {words} {most}"
            if limit == "max_relative_drop":
                message += f", {most} of the baseline's {baseline}"
            if outcome == Verdict.INCONCLUSIVE and found.mde is not None:
                message += f"; such a sample shows differences of {formats.short(found.mde)} and more"
            yield Check(limit, outcome, message, group, allowed, found.difference, found.ci_low, found.ci_high)


def _of_groups(policy: BenchmarkPolicy, metric: str, new: StoredResult, change: _Change | None) -> Iterator[Check]:
    for field, by_value in policy.groups.items():
        known = new.result.groups.get(field, {})
        if not known:
            yield _nothing(f"the candidate has no groups by {field}", field)
            continue
        limits_of = dict(by_value)
        every = limits_of.pop(EVERY_VALUE, None)
        if every is not None:
            limits_of |= dict.fromkeys(sorted(known.keys() - by_value.keys()), every)
        for value, limits in limits_of.items():
            group = f"{field}={value}"
            score = known.get(value, {}).get(metric)
            if score is None:
                why = f"the candidate has no score {metric} of this group: it is missing, or too small to be shown"
                yield _nothing(why, group)
                continue
            if limits.min is not None:
                yield _least(score, limits.min, policy.direction, group)
            if change is not None and limits.limits_a_drop:
                found = difference_in_group(change.old, new, change.comparison, (field, value))
                if found is None:
                    yield _nothing("baseline and candidate have no instance of this group in common", group)
                else:
                    yield from change.drops(found, limits, group)


def difference_in_group(
    a: StoredResult, b: StoredResult, comparison: Comparison, group: tuple[str, str]
) -> PairedDifference | None:
    """Of the instances that both have a value of, as in the comparison of all; None where there is none."""
    field, value = group

    def is_member(record: InstanceRecord) -> bool:
        return record.group(field) == value

    score = a.result.scores[comparison.metric]
    sides = [values_of(filter(is_member, one.result.instances), score) for one in (a, b)]
    keys = sorted(sides[0].values.keys() & sides[1].values.keys())
    return difference_of(sides[0], sides[1], keys, comparison.scale) if keys else None
