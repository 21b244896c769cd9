"""Reads, checks and locks the policy of a gate: the limits for a candidate on each benchmark.

A candidate is the model that a gate accepts or refuses; a baseline is a model that the candidate is
compared with. A lock is a file that records the hash of a policy, and the time of locking.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from eval_factory.core.errors import ConfigError, did_you_mean, unmet_expectation
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.safe_files import parse_json, read_text, write_atomic
from eval_factory.core.strict_model import DescribedModel, StrictModel, plain_schema

# Critical and supporting benchmarks count alike for the outcome; an advisory one is only shown.
Tier = Literal["critical", "supporting", "advisory"]
Direction = Literal["higher_is_better", "lower_is_better"]
OnInconclusive = Literal["fail", "pass"]

EVERY_VALUE = "*"
"""The value in a policy that stands for every value of a field that the policy does not name."""


@dataclass(frozen=True)
class LimitKind:
    """A kind of limit, with its texts for reports and statements."""

    words: str  # the words in front of the number, in a list of a policy's limits
    claim: str  # the subject of a claim in a signed statement; {score} is the name of the score
    comparator: str  # the comparison of the measured number with the limit, such as ">="
    is_drop: bool = False  # True if the limit compares the score with a baseline's score


LIMITS: Mapping[str, LimitKind] = {
    "min": LimitKind("at least", "{score}", ">="),
    "max_drop": LimitKind(
        "worse by at most", "drop of {score} from the baseline", "<=", is_drop=True
    ),
    "max_relative_drop": LimitKind(
        "worse by at most this share", "drop of {score} from the baseline", "<=", is_drop=True
    ),
    "min_coverage": LimitKind("a score for at least this share", "coverage of {score}", ">="),
    "min_judge_agreement": LimitKind(
        "agreement of judges (Krippendorff's alpha) at least",
        "Krippendorff's alpha of the judges of {score}",
        ">=",
    ),
}
"""Every limit, by its key in a policy and in a check."""
CONDITIONS: Mapping[str, str] = {
    "relative_guard_below": "that share only if the baseline's score is below"
}
"""The numbers that are no limits, but state when a limit applies: key -> words in front of it."""


class Limits(DescribedModel):
    """The limits of a score, of all instances or of a group, in the unit of the score."""

    min: Annotated[float, Field(strict=True)] | None = None
    """The lowest permitted score of the candidate."""
    max_drop: Annotated[float, Field(ge=0, strict=True)] | None = None
    """The largest permitted drop of the score from the baseline's score. Needs a baseline."""
    max_relative_drop: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """The largest permitted drop, as a share of the baseline's score. Needs a baseline."""
    relative_guard_below: Annotated[float, Field(strict=True)] | None = None
    """`max_relative_drop` applies only if the baseline's score is below this score."""
    min_coverage: Annotated[float, Field(gt=0, le=1, strict=True)] | None = None
    """The smallest permitted share of instances, or of their judgements, that have a score."""

    @property
    def numbers(self) -> dict[str, float]:
        """The number of each limit that is set, by key, in the order of `LIMITS`."""
        numbers = {}
        for key in LIMITS:
            number = getattr(self, key, None)  # a group has no `min_judge_agreement`
            if number is not None:
                numbers[key] = number
        return numbers

    @property
    def in_words(self) -> list[tuple[str, float]]:
        """(words, number) of each limit and condition that is set, for a document."""
        worded = [(LIMITS[key].words, number) for key, number in self.numbers.items()]
        for key, words in CONDITIONS.items():
            number = getattr(self, key)
            if number is not None:
                worded.append((words, number))
        return worded

    @property
    def limits_a_drop(self) -> bool:
        """True if a limit compares the score with a baseline's score."""
        return any(LIMITS[key].is_drop for key in self.numbers)


class Defaults(Limits):
    """The limits of every benchmark that sets no other limits."""

    tier: Tier | None = None
    """An advisory benchmark is shown, but does not count for the outcome; the other tiers count.
    The default is supporting.
    """
    metric: str | None = None
    """The name of the score. The default is the task's main metric."""
    direction: Direction | None = None
    """The better direction of the metric. The default is the metric's own direction."""
    on_inconclusive: OnInconclusive | None = None
    """The outcome if the sample is too small to decide. The default is the policy's outcome."""
    min_judge_agreement: Annotated[float, Field(le=1, strict=True)] | None = None
    """The lowest permitted Krippendorff's alpha of the judges, which must also agree more than by
    chance.
    """


class BenchmarkLimits(Defaults):
    """The limits of one benchmark."""

    groups: dict[str, dict[str, Limits]] = Field(default_factory=dict)
    """Field of the instances -> its value, or `*` for every other value -> limits of the group."""


class PolicyFile(DescribedModel):
    """A policy file as the user writes it."""

    version: Literal[1]
    """The version of this format."""
    on_inconclusive: OnInconclusive = "fail"
    """The outcome of a benchmark whose sample is too small to decide."""
    defaults: Defaults = Field(default_factory=Defaults)
    """The limits of every benchmark that sets no other limits."""
    benchmarks: Annotated[dict[str, BenchmarkLimits], Field(min_length=1)]
    """Task -> its limits for a candidate; {} uses the defaults."""


class BenchmarkPolicy(BenchmarkLimits):
    """The part of a policy for one benchmark, with the defaults filled in."""

    task: str
    tier: Tier
    on_inconclusive: OnInconclusive

    @property
    def can_block(self) -> bool:
        """True if the benchmark can stop the candidate; an advisory benchmark is only shown."""
        return self.tier != "advisory"

    @property
    def needs_baseline(self) -> bool:
        """True if a limit of the score or of a group limits a drop."""
        if self.limits_a_drop:
            return True
        for by_value in self.groups.values():
            for limits in by_value.values():
                if limits.limits_a_drop:
                    return True
        return False


@dataclass(frozen=True)
class Policy:
    """A policy that was read and checked, with its lock if there is one."""

    path: Path
    sha256: str  # the SHA-256 of the current file
    benchmarks: tuple[BenchmarkPolicy, ...]
    locked_at: datetime | None = None  # None if the policy is not locked

    @property
    def needs_baseline(self) -> bool:
        """True if a benchmark that counts for the outcome limits a drop."""
        return any(
            benchmark.can_block and benchmark.needs_baseline for benchmark in self.benchmarks
        )


def load_policy(path: Path) -> Policy:
    """Read and check a policy.

    Raises:
        ConfigError: the policy or its lock cannot be read, the policy has mistakes, or the policy
            was changed after it was locked.
    """
    document = load_mapping(
        path, needs="`version: 1` and `benchmarks`, a mapping of tasks to their limits"
    )
    try:
        policy_file = PolicyFile.model_validate(document)
    except ValidationError as error:
        details = error.errors(include_url=False)
        raise ConfigError([_explained(path, detail) for detail in details]) from None
    benchmarks = []
    for task, limits_of_task in policy_file.benchmarks.items():
        fields: dict[str, Any] = {
            "tier": "supporting",
            "on_inconclusive": policy_file.on_inconclusive,
        }
        # The limits of the task come last, so that they replace the defaults.
        for limits in (policy_file.defaults, limits_of_task):
            for name, value in limits:  # a pydantic model yields its fields
                if value is not None:
                    fields[name] = value
        fields["task"] = task
        benchmarks.append(BenchmarkPolicy(**fields))
    problems = []
    for benchmark in benchmarks:
        for problem in _problems(benchmark):
            problems.append(f"{path}: {problem}")
    if problems:
        raise ConfigError(problems)
    sha256 = hashlib.sha256(path.read_bytes()).hexdigest()
    return Policy(path, sha256, tuple(benchmarks), _locked_at(path, sha256))


def _problems(benchmark: BenchmarkPolicy) -> Iterator[str]:
    """Yield a message for each mistake in the limits of a benchmark."""
    key = f"benchmarks.{benchmark.task}"
    by_group: dict[str, Limits] = {}
    for field, by_value in benchmark.groups.items():
        for value, limits in by_value.items():
            by_group[f"{key}.groups.{field}.{value}"] = limits
    # Messages name the limits that both a benchmark and a group may have.
    *names, last_name = [name for name in LIMITS if name in Limits.model_fields]
    limit_names = f"{', '.join(names)} or {last_name}"
    if not benchmark.numbers and not benchmark.groups:
        yield f"{key}: sets no limit; give it (or defaults) {limit_names}"
    for group_key, limits in by_group.items():
        if not limits.numbers:
            yield f"{group_key}: sets no limit; give it {limit_names}"
    if benchmark.direction == "lower_is_better":
        for limits_key, limits in {key: benchmark, **by_group}.items():
            if limits.min is not None:
                yield (
                    f"{limits_key}.min: has no meaning if a lower score is better; limit a drop "
                    "(max_drop)"
                )


def _explained(path: Path, detail: Any) -> str:
    """Return the message about a mistake that pydantic found.

    Args:
        path: the policy.
        detail: an element of pydantic's `ValidationError.errors`.
    """
    key_path = detail["loc"]
    key = ".".join(map(str, key_path))
    if detail["type"] == "extra_forbidden":
        keys = sorted(_model_at(key_path).model_fields)
        hint = did_you_mean(str(key_path[-1]), keys) or f"; known here: {', '.join(keys)}"
        return f"{path}: unknown key {key}{hint}"
    usual_faults = {"missing": "is missing", "too_short": "names no benchmark"}
    return f"{path}: {key}: {usual_faults.get(detail['type']) or unmet_expectation(detail)}"


def _model_at(key_path: Sequence[str | int]) -> type[StrictModel]:
    """Return the model of the mapping that contains the last key of a path."""
    if len(key_path) == 1:
        return PolicyFile
    if key_path[0] == "defaults":
        return Defaults
    # The path of a group's key is (benchmarks, task, groups, field, value, key). The slice leaves
    # out the task, whose name may be "groups", and the key itself.
    if "groups" in key_path[2:-1]:
        return Limits
    return BenchmarkLimits


def gate_policy_schema() -> dict[str, Any]:
    """Return the JSON schema of a policy."""
    description = "The limits for a candidate's results (docs/gate.md)."
    return plain_schema(
        PolicyFile, {"title": "eval-factory: policy of a gate", "description": description}
    )


MAX_LOCK_SIZE = 64 * 1024  # the maximum size of a lock file, in bytes


def lock_path(policy: Path) -> Path:
    """Return the path of a policy's lock file, which is committed together with the policy."""
    return policy.with_name(policy.name + ".lock")


def write_lock(policy: Policy, now: datetime) -> Path:
    """Write the lock of a policy, and return the path of the lock.

    If the policy is already locked, its lock is not written again.

    Args:
        policy: the policy.
        now: the time that the lock states, with a time zone.
    """
    path = lock_path(policy.path)
    if policy.locked_at is None:
        record = {
            "sha256": policy.sha256,
            "locked_at": now.astimezone(timezone.utc).isoformat(timespec="seconds"),
        }
        write_atomic(path, json.dumps(record, indent=2) + "\n")
    return path


def _locked_at(file: Path, sha256: str) -> datetime | None:
    """Return the time at which a policy was locked; None if it is not locked.

    Args:
        file: the policy.
        sha256: the SHA-256 of the policy.

    Raises:
        ConfigError: the policy was changed after it was locked, or its lock cannot be read.
    """
    path = lock_path(file)
    try:
        record = parse_json(read_text(path, max_size=MAX_LOCK_SIZE))
        locked_sha256 = record["sha256"]
        locked_at = datetime.fromisoformat(record["locked_at"])
        if locked_at.tzinfo is None:
            raise ValueError("a time without its zone")  # caught below, like other faults
        locked_at = locked_at.astimezone(timezone.utc)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(
            f"{path}: is not the lock of a policy; remove the file and lock the policy again"
        ) from None
    if locked_sha256 != sha256:
        raise ConfigError(
            f"{file}: was changed after it was locked on {locked_at:%Y-%m-%d %H:%M} UTC; "
            f"restore it, or remove {path.name} and lock the new policy before the next run"
        )
    return locked_at
