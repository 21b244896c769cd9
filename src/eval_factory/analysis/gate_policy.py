"""A gate's policy: what a candidate has to reach on which benchmark. Read, checked, locked; its JSON Schema."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError

from eval_factory.core.errors import ConfigError, did_you_mean, expectation
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.strict_model import DescribedModel, StrictModel, plain_schema

Tier = Literal["critical", "supporting", "advisory"]
Direction = Literal["higher_is_better", "lower_is_better"]
OnInconclusive = Literal["fail", "pass"]

EVERY_VALUE = "*"  # in the place of a group's value: each group of the field has to keep these limits


class Limits(DescribedModel):
    """What a score, of all instances or of a group, has to keep. All limits are in the metric's own unit."""

    min: Annotated[float, Field(strict=True)] | None = None
    """The candidate's score is at least so much."""
    max_drop: Annotated[float, Field(ge=0, strict=True)] | None = None
    """It is worse than the baseline's by at most so much. Needs a baseline."""
    max_relative_drop: Annotated[float, Field(ge=0, le=1, strict=True)] | None = None
    """It is worse than the baseline's by at most this share of the baseline's. Needs a baseline."""
    relative_guard_below: Annotated[float, Field(strict=True)] | None = None
    """`max_relative_drop` counts only where the baseline's score is below this."""

    @property
    def limits_a_drop(self) -> bool:
        return self.max_drop is not None or self.max_relative_drop is not None


class Defaults(Limits):
    """For every benchmark that does not say otherwise."""

    tier: Tier | None = None
    """An advisory benchmark is shown and counts for nothing; the others block. supporting if not given."""
    metric: str | None = None  # the score's name; the task's main metric if not given
    direction: Direction | None = None  # which way the metric is better; the metric's own if not given
    on_inconclusive: OnInconclusive | None = None
    """What it counts as where the sample is too small to say; the policy's if not given."""


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
        of_groups = (limits for by_value in self.groups.values() for limits in by_value.values())
        return any(one.limits_a_drop for one in (self, *of_groups))


@dataclass(frozen=True)
class Policy:
    path: Path
    sha256: str  # of the file as it stands
    benchmarks: tuple[BenchmarkPolicy, ...]


def load_policy(path: Path) -> Policy:
    """Read and check a policy. Raises ConfigError: with every mistake that was found."""
    document = load_mapping(path, "`version: 1` and `benchmarks`, a mapping of tasks to their limits")
    try:
        file = PolicyFile.model_validate(document)
    except ValidationError as error:
        raise ConfigError([_explained(path, detail) for detail in error.errors(include_url=False)]) from None
    benchmarks = []
    for task, given in file.benchmarks.items():
        known = {name: value for limits in (file.defaults, given) for name, value in limits if value is not None}
        usual = {"tier": "supporting", "on_inconclusive": file.on_inconclusive}
        benchmarks.append(BenchmarkPolicy(**{**usual, **known, "task": task}))
    problems = [f"{path}: {problem}" for one in benchmarks for problem in _problems(one)]
    if problems:
        raise ConfigError(problems)
    return Policy(path, hashlib.sha256(path.read_bytes()).hexdigest(), tuple(benchmarks))


def _problems(one: BenchmarkPolicy) -> Iterator[str]:
    where = f"benchmarks.{one.task}"
    every: dict[str, Limits] = {where: one}
    for field, by_value in one.groups.items():
        every |= {f"{where}.groups.{field}.{value}": limits for value, limits in by_value.items()}
    for at, limits in every.items():
        if limits.min is None and not limits.limits_a_drop and not (limits is one and one.groups):
            it = "it (or defaults)" if limits is one else "it"
            yield f"{at}: sets no limit; give {it} min, max_drop or max_relative_drop"
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
    about = {
        "title": "eval-factory: policy of a gate",
        "description": "What a candidate's results have to keep (docs/gate.md).",
    }
    return plain_schema(PolicyFile, about)


def lock_path(policy: Path) -> Path:
    """`policy.yml` -> `policy.yml.lock`, to be committed with it."""
    return policy.with_name(policy.name + ".lock")


def lock(policy: Policy, now: datetime) -> Path:
    """Write the lock; a lock of the same policy stays as it is, with its time. Raises ConfigError: it is another's."""
    path = lock_path(policy.path)
    if path.exists():
        check_lock(policy)
        return path
    record = {"sha256": policy.sha256, "locked_at": now.astimezone(timezone.utc).isoformat(timespec="seconds")}
    write_atomic(path, json.dumps(record, indent=2) + "\n")
    return path


def check_lock(policy: Policy) -> datetime | None:
    """When the policy was locked; None where it is not. Raises ConfigError: it is not the one that was locked, or the
    lock cannot be read."""
    path = lock_path(policy.path)
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        sha256, locked_at = record["sha256"], datetime.fromisoformat(record["locked_at"])
        if locked_at.tzinfo is None:
            raise ValueError("a time without its zone")
        locked_at = locked_at.astimezone(timezone.utc)
    except FileNotFoundError:
        return None
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        raise ConfigError(f"{path}: is no lock of a policy; remove it and lock the policy again") from None
    if sha256 != policy.sha256:
        raise ConfigError(
            f"{policy.path}: was changed after it was locked on {locked_at:%Y-%m-%d %H:%M} UTC; restore it, or remove"
            f" {path.name} and lock the new one before the next run"
        )
    return locked_at
