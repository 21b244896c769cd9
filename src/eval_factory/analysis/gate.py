"""A gate: the policy (what a candidate has to reach on which benchmark; read, checked, locked),
held against results.

Each limit is kept or broken, or the sample is too small to say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from itertools import chain
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from eval_factory.analysis.comparison import Comparison, compare, difference_of
from eval_factory.analysis.comparison_reasons import values_of
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError, did_you_mean, expectation
from eval_factory.core.nouns import Evidence, Verdict
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.results import InstanceRecord, Provenance, Score, Validity
from eval_factory.core.safe_files import parse_json, read_text, write_atomic
from eval_factory.core.strict_model import DescribedModel, StrictModel, plain_schema
from eval_factory.report.reader import StoredResult, load_result, run_folders
from eval_factory.scoring.paired import PairedDifference, non_inferiority

Tier = Literal["critical", "supporting", "advisory"]
Direction = Literal["higher_is_better", "lower_is_better"]
OnInconclusive = Literal["fail", "pass"]

# in the place of a group's value: each group of the field has to keep these limits
EVERY_VALUE = "*"


class Limits(DescribedModel):
    """What a score, of all instances or of a group, has to keep. All limits are in the metric's
    own unit.
    """

    min: Annotated[float, Field(strict=True)] | None = None
    """The candidate's score is at least so much."""
    max_drop: Annotated[float, Field(ge=0, strict=True)] | None = None
    """It is worse than the baseline's by at most so much. Needs a baseline."""
    max_relative_drop: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """It is worse than the baseline's by at most this share of the baseline's. Needs a baseline."""
    relative_guard_below: Annotated[float, Field(strict=True)] | None = None
    """`max_relative_drop` counts only where the baseline's score is below this."""
    min_coverage: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    """At least this share of the instances, or of the judgements of all of them, has a score."""

    @property
    def has_limit(self) -> bool:
        limits = (self.min, self.max_drop, self.max_relative_drop, self.min_coverage)
        return any(limit is not None for limit in limits)

    @property
    def limits_a_drop(self) -> bool:
        return self.max_drop is not None or self.max_relative_drop is not None


class Defaults(Limits):
    """For every benchmark that does not say otherwise."""

    tier: Tier | None = None
    """An advisory benchmark is shown and counts for nothing; the others block. supporting if not
    given.
    """
    metric: str | None = None
    """The score's name; the task's main metric if not given."""
    direction: Direction | None = None
    """Which way the metric is better; the metric's own if not given."""
    on_inconclusive: OnInconclusive | None = None
    """What it counts as where the sample is too small to say; the policy's if not given."""
    min_judge_agreement: Annotated[float, Field(le=1, strict=True)] | None = None
    """Krippendorff's alpha of the judges is at least so much, and more than chance."""

    @property
    def has_limit(self) -> bool:
        return super().has_limit or self.min_judge_agreement is not None


class BenchmarkLimits(Defaults):
    """One benchmark's."""

    groups: dict[str, dict[str, Limits]] = Field(default_factory=dict)
    """Field of the instances -> its value, or `*` for every other value -> limits of that group."""


class PolicyFile(DescribedModel):
    """The file."""

    version: Literal[1]
    """Of this format."""
    on_inconclusive: OnInconclusive = "fail"
    """What a benchmark counts as where the sample is too small to say."""
    defaults: Defaults = Field(default_factory=Defaults)
    """For every benchmark that does not say otherwise."""
    benchmarks: Annotated[dict[str, BenchmarkLimits], Field(min_length=1)]
    """Task -> what a candidate has to keep; {} takes the defaults."""


class BenchmarkPolicy(BenchmarkLimits):
    """One benchmark's part of a policy, with the defaults filled in."""

    task: str
    tier: Tier
    on_inconclusive: OnInconclusive

    @property
    def blocks(self) -> bool:
        """Whether it counts for the gate's outcome; an advisory benchmark is shown only."""
        return self.tier != "advisory"

    @property
    def needs_baseline(self) -> bool:
        of_groups = chain.from_iterable(by_value.values() for by_value in self.groups.values())
        return any(one.limits_a_drop for one in (self, *of_groups))


@dataclass(frozen=True)
class Policy:
    path: Path
    sha256: str  # of the file as it stands
    benchmarks: tuple[BenchmarkPolicy, ...]
    locked_at: datetime | None = None  # None: it is not locked


def load_policy(path: Path) -> Policy:
    """Read and check a policy. Raises ConfigError: with every mistake that was found; it is not the
    one that was locked, or the lock cannot be read.
    """
    document = load_mapping(
        path, "`version: 1` and `benchmarks`, a mapping of tasks to their limits"
    )
    try:
        file = PolicyFile.model_validate(document)
    except ValidationError as error:
        raise ConfigError(
            [_explained(path, detail) for detail in error.errors(include_url=False)]
        ) from None
    benchmarks = []
    for task, given in file.benchmarks.items():
        fields: dict[str, Any] = {"tier": "supporting", "on_inconclusive": file.on_inconclusive}
        for limits in (file.defaults, given):
            fields |= {name: value for name, value in limits if value is not None}
        benchmarks.append(BenchmarkPolicy(**{**fields, "task": task}))
    problems = [f"{path}: {problem}" for problem in chain.from_iterable(map(_problems, benchmarks))]
    if problems:
        raise ConfigError(problems)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Policy(path, sha256, tuple(benchmarks), _locked_at(path, sha256))


def _problems(one: BenchmarkPolicy) -> Iterator[str]:
    where = f"benchmarks.{one.task}"
    every: dict[str, Limits] = {where: one}
    for field, by_value in one.groups.items():
        every |= {f"{where}.groups.{field}.{value}": limits for value, limits in by_value.items()}
    for at, limits in every.items():
        if not limits.has_limit and not (limits is one and one.groups):
            it = "it (or defaults)" if limits is one else "it"
            limit_names = "min, max_drop, max_relative_drop or min_coverage"
            yield f"{at}: sets no limit; give {it} {limit_names}"
    if one.direction == "lower_is_better":
        kept = [at for at, limits in every.items() if limits.min is not None]
        yield from (f"{at}.min: cannot be kept where lower is better" for at in kept)


def _explained(path: Path, detail: Any) -> str:
    place = detail["loc"]
    where = ".".join(str(part) for part in place)
    if detail["type"] == "extra_forbidden":
        model: type[StrictModel] = Limits if "groups" in place[2:-1] else BenchmarkLimits
        if len(place) == 1:
            model = PolicyFile
        elif place[0] == "defaults":
            model = Defaults
        known = sorted(model.model_fields)
        hint = did_you_mean(str(place[-1]), known) or f"; known here: {', '.join(known)}"
        return f"{path}: unknown key {where}{hint}"
    known_faults = {"missing": "is missing", "too_short": "names no benchmark"}
    return f"{path}: {where}: {known_faults.get(detail['type']) or expectation(detail)}"


def gate_policy_schema() -> dict[str, Any]:
    """What a policy may hold."""
    description = "What a candidate's results have to keep (docs/gate.md)."
    return plain_schema(
        PolicyFile, {"title": "eval-factory: policy of a gate", "description": description}
    )


MAX_LOCK = 1 << 16  # bytes


def lock_path(policy: Path) -> Path:
    return policy.with_name(policy.name + ".lock")  # to be committed with it


def lock(policy: Policy, now: datetime) -> Path:
    """Write the lock; a policy that is locked keeps its lock, with its time."""
    path = lock_path(policy.path)
    if policy.locked_at is None:
        record = {
            "sha256": policy.sha256,
            "locked_at": now.astimezone(timezone.utc).isoformat(timespec="seconds"),
        }
        write_atomic(path, json.dumps(record, indent=2) + "\n")
    return path


def _locked_at(file: Path, sha256: str) -> datetime | None:
    path = lock_path(file)
    try:
        record = parse_json(read_text(path, max_size=MAX_LOCK))
        locked = record["sha256"]
        locked_at = datetime.fromisoformat(record["locked_at"])
        if locked_at.tzinfo is None:
            raise ValueError("a time without its zone")
        locked_at = locked_at.astimezone(timezone.utc)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f"{path}: is no lock of a policy; remove it and lock the policy again"
        ) from None
    if locked != sha256:
        raise ConfigError(
            f"{file}: was changed after it was locked on {locked_at:%Y-%m-%d %H:%M} UTC; "
            "restore it, or remove"
            f" {path.name} and lock the new one before the next run"
        )
    return locked_at


_OF_EVIDENCE = {
    Evidence.SHOWN: (Verdict.PASS, "not worse by more than"),
    Evidence.REFUTED: (Verdict.FAIL, "worse by more than"),
    Evidence.INCONCLUSIVE: (Verdict.INCONCLUSIVE, "may be worse by more than"),
}


@dataclass(frozen=True)
class Check:
    """One limit of one score."""

    # the limit's key in the policy; `result` where there is nothing to hold a limit against
    limit: str
    outcome: Verdict
    message: str
    group: str | None = None  # `field=value`; None: all instances
    # the limit, in the metric's own unit; of a drop, how far below the baseline
    allowed: float | None = None
    # the candidate's score, or its difference from the baseline's (candidate - baseline)
    observed: float | None = None
    ci_low: float | None = None
    ci_high: float | None = None


@dataclass(frozen=True)
class BenchmarkOutcome:
    task: str
    tier: Tier
    metric: str | None
    outcome: Verdict
    checks: tuple[Check, ...]
    # what it is to the gate: an inconclusive one may count as passed, an advisory one always does
    counted_as: Verdict
    candidate: Path | None = None  # the output folder of the result; None where there is none


@dataclass(frozen=True)
class GateResult:
    policy: Path
    policy_sha256: str
    outcome: Verdict
    benchmarks: tuple[BenchmarkOutcome, ...]
    # tasks of candidates that the policy does not name; they count for nothing
    not_in_policy: tuple[str, ...]
    locked_at: datetime | None = None  # when the policy was locked; None where it is not
    notes: tuple[str, ...] = ()  # what a reader has to know of the lock

    @property
    def exit_code(self) -> int:
        return 0 if self.outcome == Verdict.PASS else 1


def evaluate_policy(
    policy: Policy,
    candidates: Sequence[Path],
    baselines: Sequence[Path] = (),
    load: Callable[[Path], StoredResult] = load_result,
) -> GateResult:
    """Hold the candidate's results against the policy, and against the baseline's where it limits a
    drop; both are output folders, or folders of output folders. `load`: what reads the result of a
    folder.

    Raises:
        ConfigError: two results of one task; one folder on both sides; a drop is limited and there
            is no baseline.
        PrerequisiteError: a folder holds no result.
    """
    new = _by_task(candidates, "candidate", load)
    old = _by_task(baselines, "baseline", load)
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
        passes = not one.blocks or (
            outcome == Verdict.INCONCLUSIVE and one.on_inconclusive == "pass"
        )
        counted_as = Verdict.PASS if passes else outcome
        folder = result.folder if result else None
        found.append(
            BenchmarkOutcome(one.task, one.tier, metric, outcome, checks, counted_as, folder)
        )
    named = {one.task for one in policy.benchmarks}
    of_lock = (_of_lock(task, new[task], policy.locked_at) for task in sorted(new.keys() & named))
    return GateResult(
        policy=policy.path,
        policy_sha256=policy.sha256,
        outcome=_worst(one.counted_as for one in found),
        benchmarks=tuple(found),
        not_in_policy=tuple(sorted(new.keys() - named)),
        locked_at=policy.locked_at,
        notes=tuple(chain.from_iterable(of_lock)),
    )


def started_at(record: Provenance) -> datetime | None:
    return (
        None
        if record.started_at is None
        else datetime.fromisoformat(record.started_at.replace("Z", "+00:00"))
    )


def _of_lock(task: str, candidate: StoredResult, locked_at: datetime | None) -> Iterator[str]:
    """Where the lock does not show that the policy was there before the candidate."""
    record = candidate.result.provenance
    runs = candidate.result.usage.runs
    started = started_at(record)
    if locked_at is None:
        return
    if started is None:
        yield (
            f"{task}: the result does not say when its run started; "
            "the policy's lock proves nothing for it"
        )
    elif started < locked_at:
        locked = f"before the policy was locked ({locked_at:%Y-%m-%dT%H:%M:%SZ})"
        yield (
            f"{task}: its run started ({record.started_at}) {locked}; "
            "the lock proves nothing for it"
        )
    elif runs > 1:
        yield (
            f"{task}: was made by {runs} runs; only the last is known to have started "
            "after the lock"
        )


def _by_task(
    folders: Sequence[Path], side: str, load: Callable[[Path], StoredResult]
) -> dict[str, StoredResult]:
    found: dict[str, StoredResult] = {}
    for path in run_folders(folders):
        stored = load(path)
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
    """What is missing fails: nothing was shown of it, and `on_inconclusive: pass` must not hide
    it.
    """
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
    if policy.min_coverage is not None:
        yield _covered(new.result.validity.coverage, policy.min_coverage)
    if policy.min_judge_agreement is not None:
        yield _judges_agree(new.result.validity, policy.min_judge_agreement)
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
        higher = (
            comparison.higher_is_better
            if policy.direction is None
            else policy.direction == "higher_is_better"
        )
        unchanged = (
            old.result.provenance.target == new.result.provenance.target
            and not comparison.paired.discordant
        )
        if unchanged:
            answers, others = (
                {
                    (one.id, one.split, one.trial, one.perturbation): one.completion
                    for one in side.result.instances
                }
                for side in (old, new)
            )
            unchanged = answers == others
        change = _Change(old, comparison, higher, unchanged)
        yield from change.drops(comparison.paired, policy)
    yield from _of_groups(policy, metric, new, change)


def _covered(coverage: float, least: float, group: str | None = None) -> Check:
    outcome = Verdict.PASS if coverage >= least else Verdict.FAIL
    message = f"coverage is {formats.short(coverage)}; at least {least:g} is asked"
    return Check("min_coverage", outcome, message, group, least, coverage)


def _judges_agree(validity: Validity, least: float) -> Check:
    """Judges that are not shown to agree fail, whatever their alpha is; so does a judge of a
    rubric that says the same of every criterion.
    """
    alpha = None
    weakness = ""
    if validity.jury is not None:
        alpha = validity.jury.krippendorff_alpha
        if validity.jury.is_shown_to_agree is False:
            weakness = "; the judges are not shown to agree more than by chance"
    elif validity.rubric is not None:
        alpha = validity.rubric.krippendorff_alpha
        if validity.rubric.constant:
            weakness = f"; {', '.join(validity.rubric.constant)} says the same of every criterion"
    if alpha is None:
        message = f"the agreement of judges is not defined; at least {least:g} is asked{weakness}"
        return Check("min_judge_agreement", Verdict.FAIL, message)
    outcome = Verdict.PASS if alpha >= least and not weakness else Verdict.FAIL
    message = f"Krippendorff's alpha is {formats.coefficient(alpha)}; at least {least:g} is asked"
    return Check("min_judge_agreement", outcome, message + weakness, None, least, alpha)


def _nothing(why: str, group: str | None = None) -> Check:
    """There is no number to hold a limit against."""
    return Check("result", Verdict.FAIL, why, group)


def _least(
    score: Score, least: float, direction: Direction | None, group: str | None = None
) -> Check:
    low = score.stats.ci_low
    high = score.stats.ci_high
    if direction == "lower_is_better" or (direction is None and score.higher_is_better is False):
        outcome = Verdict.FAIL
        message = (
            "lower is better: a least score says nothing; "
            "limit a drop (max_drop), or give direction"
        )
    elif low is None or high is None:
        outcome = Verdict.FAIL if score.value < least else Verdict.INCONCLUSIVE
        message = f"{formats.short(score.value)} without an interval; at least {least:g} is asked"
    else:
        outcome = Verdict.INCONCLUSIVE
        words = "may be below or above"
        if low >= least:
            outcome = Verdict.PASS
            words = "is at least"
        elif high < least:
            outcome = Verdict.FAIL
            words = "is below"
        between = f"(95 % interval {formats.short(low)} to {formats.short(high)})"
        message = f"{formats.short(score.value)} {between} {words} {least:g}"
    return Check("min", outcome, message, group, least, score.value, low, high)


@dataclass(frozen=True)
class _Change:
    """From the baseline to the candidate."""

    old: StoredResult
    comparison: Comparison
    higher_is_better: bool
    # the same model gave the same answers: there is no change that a limit could be held against
    unchanged: bool

    def drops(
        self, found: PairedDifference, limits: Limits, group: str | None = None
    ) -> Iterator[Check]:
        """Non-inferiority of the candidate by the paired interval; the baseline's score is taken as
        it is.

        What passes a limit passes every laxer one: what is unchanged passes them all, the interval
        decides of the rest.
        """
        baseline = formats.short(found.value_a)
        share = limits.max_relative_drop
        guard = limits.relative_guard_below
        relative = None if share is None else share * abs(found.value_a)
        for limit, allowed in (("max_drop", limits.max_drop), ("max_relative_drop", relative)):
            if allowed is None:
                continue
            if limit == "max_relative_drop" and guard is not None and found.value_a >= guard:
                message = (
                    f"does not count: the baseline's {baseline} "
                    f"is not below relative_guard_below, {guard:g}"
                )
                yield Check(limit, Verdict.PASS, message, group)
                continue
            outcome, words = _OF_EVIDENCE[
                non_inferiority(found, allowed, higher_is_better=self.higher_is_better)
            ]
            if self.unchanged:
                outcome = Verdict.PASS
                words = "the baseline's own answers, not worse by more than"
            most = formats.short(allowed)
            between = ""
            if found.ci_low is not None and found.ci_high is not None:
                ends = (
                    f"{formats.short(found.ci_low, sign='+')} "
                    f"to {formats.short(found.ci_high, sign='+')}"
                )
                between = f" (95 % interval {ends})"
            message = (
                f"{formats.short(found.difference, sign='+')}{between} on {found.n} pairs: "
                f"{words} {most}"
            )
            if limit == "max_relative_drop":
                message += f", {most} of the baseline's {baseline}"
            if outcome == Verdict.INCONCLUSIVE and found.mde is not None:
                message += (
                    f"; such a sample shows differences of {formats.short(found.mde)} and more"
                )
            yield Check(
                limit,
                outcome,
                message,
                group,
                allowed,
                found.difference,
                found.ci_low,
                found.ci_high,
            )


def _of_groups(
    policy: BenchmarkPolicy, metric: str, new: StoredResult, change: _Change | None
) -> Iterator[Check]:
    for field, by_value in policy.groups.items():
        known = new.result.groups.get(field, {})
        if not known:
            yield _nothing(f"the candidate has no groups by {field}", field)
            continue
        others = sorted(known.keys() - by_value.keys()) if EVERY_VALUE in by_value else ()
        named = [value for value in by_value if value != EVERY_VALUE]
        for value in [*named, *others]:
            limits = by_value.get(value) or by_value[EVERY_VALUE]
            group = f"{field}={value}"
            score = known.get(value, {}).get(metric)
            if score is None:
                why = (
                    f"the candidate has no score {metric} of this group: "
                    "it is missing, or too small to be shown"
                )
                yield _nothing(why, group)
                continue
            if limits.min is not None:
                yield _least(score, limits.min, policy.direction, group)
            if limits.min_coverage is not None:
                coverage = _coverage_of_group(new, score, (field, value))
                yield _covered(coverage, limits.min_coverage, group)
            if change is not None and limits.limits_a_drop:
                found = difference_in_group(change.old, new, change.comparison, (field, value))
                if found is None:
                    yield _nothing(
                        "baseline and candidate have no instance of this group in common", group
                    )
                else:
                    yield from change.drops(found, limits, group)


def _coverage_of_group(stored: StoredResult, score: Score, group: tuple[str, str]) -> float:
    """The share of the group's answers, or of their judgements, that the score is made of."""
    field, value = group
    judges = len(stored.result.validity.judges)
    is_judged = stored.result.validity.judgements is not None and judges > 0
    due = 0
    given = 0
    for record in stored.result.instances:
        if record.group(field) != value or not score.is_over(record):
            continue
        if not is_judged:
            due += 1
            if record.error is None and not record.unjudged:
                given += 1
        elif record.criteria:
            due += judges * len(record.criteria)
            given += sum(map(_decisions, record.criteria))
        elif record.judges or not _is_silent(record):
            due += judges
            given += len(record.judges)
    if not due:
        return 0.0
    return given / due


def _decisions(criterion: Mapping[str, Any]) -> int:
    """How many judges decided it."""
    return sum("criteria_met" in words for words in criterion["judges"].values())


def _is_silent(record: InstanceRecord) -> bool:
    """The answer has nothing in it: no judge is asked about it."""
    return record.completion is not None and not record.completion.strip()


def difference_in_group(
    a: StoredResult, b: StoredResult, comparison: Comparison, group: tuple[str, str]
) -> PairedDifference | None:
    """Of the instances that both have a value of, as in the comparison of all; None where there
    is none.
    """
    field, value = group
    score = a.result.scores[comparison.metric]
    sides = [
        values_of(
            (record for record in one.result.instances if record.group(field) == value), score
        )
        for one in (a, b)
    ]
    keys = sorted(sides[0].values.keys() & sides[1].values.keys())
    return difference_of(sides[0], sides[1], keys, comparison.scale) if keys else None
