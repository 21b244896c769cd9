"""A gate's policy: read, checked, locked; its JSON Schema."""

from __future__ import annotations

import hashlib
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft7Validator

from eval_factory.analysis.gate_policy import (
    CONDITIONS,
    LIMITS,
    Defaults,
    Policy,
    gate_policy_schema,
    load_policy,
    write_lock,
)
from eval_factory.core.errors import ConfigError
from facts import naming


def policy_of(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "policy.yml"
    path.write_text(text)
    return load_policy(path)


def problems_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        policy_of(tmp_path, text)
    return [
        problem.removeprefix(f"{tmp_path / 'policy.yml'}: ") for problem in caught.value.problems
    ]


def test_a_benchmark_takes_from_the_defaults_what_it_does_not_say(tmp_path: Path) -> None:
    policy = policy_of(
        tmp_path,
        """
version: 1
defaults: {tier: critical, max_drop: 0.02, metric: exact_match, direction: higher_is_better}
benchmarks:
  pubmed_qa: {}
  medec: {tier: advisory, max_drop: 0, metric: flag, direction: lower_is_better, max_relative_drop: 0.1,
          relative_guard_below: 0.2}
""",
    )
    first, second = policy.benchmarks
    assert (first.task, first.tier, first.metric, first.direction) == (
        "pubmed_qa",
        "critical",
        "exact_match",
        "higher_is_better",
    )
    assert (first.max_drop, first.min, first.max_relative_drop) == (0.02, None, None)
    assert (second.tier, second.metric, second.direction) == ("advisory", "flag", "lower_is_better")
    assert (second.max_drop, second.max_relative_drop, second.relative_guard_below) == (0, 0.1, 0.2)
    assert policy.sha256 == hashlib.sha256((tmp_path / "policy.yml").read_bytes()).hexdigest()


def test_without_a_word_a_benchmark_blocks_by_its_main_metric_and_an_inconclusive_one_fails(
    tmp_path: Path,
) -> None:
    (only,) = policy_of(tmp_path, "version: 1\nbenchmarks: {medec: {min: 0.6}}").benchmarks
    assert (only.tier, only.can_block, only.metric, only.direction) == (
        "supporting",
        True,
        None,
        None,
    )
    assert (only.on_inconclusive, only.needs_baseline) == ("fail", False)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 1\non_inconclusive: pass\nbenchmarks: {a: {min: 1}}", "pass"),
        (
            "version: 1\non_inconclusive: pass\ndefaults: {on_inconclusive: fail}\nbenchmarks: {a: {min: 1}}",
            "fail",
        ),
        (
            "version: 1\ndefaults: {on_inconclusive: fail}\nbenchmarks: {a: {min: 1, on_inconclusive: pass}}",
            "pass",
        ),
    ],
)
def test_what_stands_nearest_says_what_an_inconclusive_one_counts(
    tmp_path: Path, text: str, expected: str
) -> None:
    assert policy_of(tmp_path, text).benchmarks[0].on_inconclusive == expected


@pytest.mark.parametrize(
    ("limits", "needs"),
    [
        ("{max_drop: 0}", True),
        ("{max_relative_drop: 0.1}", True),
        ("{min: 0.1}", False),
        ("{groups: {field: {x: {max_drop: 0.1}}}}", True),
        ("{groups: {field: {x: {min: 0.1}, y: {max_relative_drop: 0.1}}}}", True),
        ("{groups: {field: {x: {min: 0.1}}}}", False),
    ],
)
def test_a_limited_drop_needs_a_baseline(tmp_path: Path, limits: str, needs: bool) -> None:
    (only,) = policy_of(tmp_path, f"version: 1\nbenchmarks: {{a: {limits}}}").benchmarks
    assert only.needs_baseline is needs


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("version: 2\nbenchmarks: {a: {min: 1}}", "version: must be 1"),
        ("benchmarks: {a: {min: 1}}", "version: is missing"),
        ("version: 1", "benchmarks: is missing"),
        ("version: 1\nbenchmarks: {}", "benchmarks: names no benchmark"),
        (
            "version: 1\nbenchmarks: {a: {}}",
            "benchmarks.a: sets no limit; give it (or defaults) min, max_drop",
        ),
        ("version: 1\nbenchmarks: {a: {min: x}}", "benchmarks.a.min: must be a number"),
        (
            "version: 1\nbenchmarks: {a: {max_drop: -0.1}}",
            "benchmarks.a.max_drop: must be greater than or equal to 0",
        ),
        (
            "version: 1\nbenchmarks: {a: {max_relative_drop: 5}}",
            "benchmarks.a.max_relative_drop: must be less than",
        ),
        (
            "version: 1\nbenchmarks: {a: {max_drp: 0.1}}",
            "unknown key benchmarks.a.max_drp, did you mean 'max_drop'?",
        ),
        (
            "version: 1\nbenchmark: {a: {min: 1}}",
            "unknown key benchmark, did you mean 'benchmarks'?",
        ),
        (
            "version: 1\ndefaults: {groups: {}}\nbenchmarks: {a: {min: 1}}",
            "unknown key defaults.groups; known here:",
        ),
        (
            "version: 1\nbenchmarks: {a: {tier: high, min: 1}}",
            "benchmarks.a.tier: must be 'critical', 'supporting'",
        ),
        (
            "version: 1\nbenchmarks: {a: {groups: {f: {v: {}}}}}",
            "benchmarks.a.groups.f.v: sets no limit",
        ),
        (
            "version: 1\nbenchmarks: {a: {groups: {f: {v: {tier: critical}}}}}",
            "unknown key benchmarks.a.groups.f.v.tier; known here: max_drop, max_relative_drop, min, min_coverage",
        ),
        (
            "version: 1\nbenchmarks: {a: {min: 0.5, direction: lower_is_better}}",
            "benchmarks.a.min: has no meaning if",
        ),
        (
            "version: 1\nbenchmarks: {groups: {metrc: 1}}",
            "unknown key benchmarks.groups.metrc, did you mean 'metric'?",
        ),
        (
            "version: 1\nbenchmarks: {a: {groups: {groups: {v: {mtric: x}}}}}",
            "unknown key benchmarks.a.groups.groups.v.mtric; known here: max_drop, max_relative_drop, min, min_coverage",
        ),
        ("version: 1\nbenchmarks:\n\ta: {min: 1}", "line 3, column 1: found character '\\t'"),
        ("version: 1\nbenchmarks: {a: {min: .nan}}", "benchmarks.a.min: must be a finite number"),
        ("version: 1\nbenchmarks: {a: {min: true}}", "benchmarks.a.min: must be a number"),
        (
            "version: 1\nbenchmarks: {a: {min: 1}, a: {min: 2}}",
            "line 2, column 27: the key 'a' is written twice",
        ),
        (
            "version: 1\nbenchmarks: &b {a: *b}",
            "line 2, column 13: an alias refers to a value that contains it",
        ),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems_of(tmp_path, text)), problems_of(
        tmp_path, text
    )


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    assert len(problems_of(tmp_path, "version: 3\nbenchmarks: {a: {mix: 1}, b: {min: x}}")) == 3
    found = problems_of(tmp_path, "version: 1\nbenchmarks: {a: {}, b: {min: 1}, c: {}}")
    assert [problem.partition(":")[0] for problem in found] == ["benchmarks.a", "benchmarks.c"]


SCHEMA = gate_policy_schema()


def errors(document: Any) -> list[str]:
    return [error.message for error in Draft7Validator(SCHEMA).iter_errors(document)]


@pytest.mark.parametrize(
    ("benchmarks", "sound"),
    [
        ({"a": {}}, True),
        ({"a": {"min": None, "groups": {"title": {"$ref": {"min": 0.1}}}}}, True),
        ({"a": {"mim": 0.1}}, False),
        ({"a": {"groups": {"f": {"v": {"metric": "x"}}}}}, False),
        ({"a": {"groups": {"f": {"v": {"max_drop": -0.1}}}}}, False),
        ({"a": {"max_relative_drop": 1.1}}, False),
        ({"a": {"direction": "up"}}, False),
        ({"a": None}, False),
        ({}, False),
    ],
)
def test_it_refuses_another_shape(benchmarks: dict[str, Any], sound: bool) -> None:
    assert (errors({"version": 1, "benchmarks": benchmarks}) == []) is sound


NOW = datetime(2026, 11, 22, 6, 30, tzinfo=timezone.utc)


@pytest.fixture
def policy(tmp_path: Path) -> Policy:
    return policy_of(tmp_path, "version: 1\nbenchmarks: {medec: {min: 0.6}}\n")


def test_a_locked_policy_says_when(policy: Policy) -> None:
    assert write_lock(policy, NOW) == policy.path.with_name("policy.yml.lock")
    write_lock(load_policy(policy.path), NOW + timedelta(days=1))  # keeps the first time
    assert (policy.locked_at, load_policy(policy.path).locked_at) == (None, NOW)


def test_a_changed_policy_is_refused(policy: Policy) -> None:
    write_lock(policy, NOW)
    policy.path.write_text(policy.path.read_text().replace("0.6", "0.5"))
    with pytest.raises(ConfigError, match=naming("was changed", "2026-11-22 06:30 UTC", ".lock")):
        load_policy(policy.path)


UNREADABLE = {
    "empty": "",
    "nothing": "{}",
    "no_time": '{"sha256": "x"}',
    "no_moment": '{"sha256": "x", "locked_at": "soon"}',
    "no_zone": '{"sha256": "x", "locked_at": "2026-11-22T06:30:00"}',
    "number": '{"sha256": "x", "locked_at": 5}',
    "list": "[]",
    "deep": "[" * 100_000,
}


@pytest.mark.parametrize("content", UNREADABLE.values(), ids=UNREADABLE)
def test_a_lock_that_cannot_be_read_is_refused(policy: Policy, content: str) -> None:
    policy.path.with_name("policy.yml.lock").write_text(content)
    with pytest.raises(ConfigError, match=naming("not the lock", "remove the file")):
        load_policy(policy.path)


def test_a_time_of_another_zone_is_read_as_utc(policy: Policy) -> None:
    content = f'{{"sha256": "{policy.sha256}", "locked_at": "2026-11-22T11:30:00+05:00"}}'
    policy.path.with_name("policy.yml.lock").write_text(content)
    assert str(load_policy(policy.path).locked_at) == str(NOW)


def test_each_number_of_a_policy_is_in_the_table_of_limits_and_on_the_page_of_gates() -> None:
    numbers = {name for name, field in Defaults.model_fields.items() if "float" in str(field)}
    assert numbers == LIMITS.keys() | CONDITIONS.keys()
    page = (Path(__file__).parents[3] / "docs" / "gate.md").read_text()
    assert [name for name in numbers if f"`{name}`" not in page] == []


def test_a_policy_words_each_number_that_it_sets(tmp_path: Path) -> None:
    limits = dict.fromkeys((*LIMITS, *CONDITIONS), 0.5)
    (benchmark,) = policy_of(tmp_path, f"version: 1\nbenchmarks: {{a: {limits}}}").benchmarks
    assert dict(benchmark.in_words) == {
        **{kind.words: 0.5 for kind in LIMITS.values() if kind.words},
        **{words: 0.5 for words in CONDITIONS.values() if words},
    }
    assert len(benchmark.in_words) == len(limits)
