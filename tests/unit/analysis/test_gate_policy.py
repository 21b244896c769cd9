"""A policy file: defaults filled in, mistakes named."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from eval_factory.analysis.gate_policy import Policy, load_policy
from eval_factory.core.errors import ConfigError


def policy_of(tmp_path: Path, text: str) -> Policy:
    path = tmp_path / "policy.yml"
    path.write_text(text)
    return load_policy(path)


def problems_of(tmp_path: Path, text: str) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        policy_of(tmp_path, text)
    return [problem.removeprefix(f"{tmp_path / 'policy.yml'}: ") for problem in caught.value.problems]


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
    assert (first.limits.max_drop, first.limits.min, first.limits.max_relative_drop) == (0.02, None, None)
    assert (second.tier, second.metric, second.direction) == ("advisory", "flag", "lower_is_better")
    assert second.limits.max_drop == 0
    assert (second.limits.max_relative_drop, second.limits.relative_guard_below) == (0.1, 0.2)
    assert policy.sha256 == hashlib.sha256((tmp_path / "policy.yml").read_bytes()).hexdigest()


def test_without_a_word_a_benchmark_blocks_by_its_main_metric_and_an_inconclusive_one_fails(tmp_path: Path) -> None:
    (only,) = policy_of(tmp_path, "version: 1\nbenchmarks: {medec: {min: 0.6}}").benchmarks
    assert (only.tier, only.blocks, only.metric, only.direction) == ("supporting", True, None, None)
    assert only.on_inconclusive == "fail"
    assert not only.needs_baseline


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("version: 1\non_inconclusive: pass\nbenchmarks: {a: {min: 1}}", "pass"),
        ("version: 1\non_inconclusive: pass\ndefaults: {on_inconclusive: fail}\nbenchmarks: {a: {min: 1}}", "fail"),
        ("version: 1\ndefaults: {on_inconclusive: fail}\nbenchmarks: {a: {min: 1, on_inconclusive: pass}}", "pass"),
    ],
)
def test_what_stands_nearest_says_what_an_inconclusive_one_counts(tmp_path: Path, text: str, expected: str) -> None:
    assert policy_of(tmp_path, text).benchmarks[0].on_inconclusive == expected


@pytest.mark.parametrize(
    ("tier", "blocks"),
    [("critical", True), ("supporting", True), ("advisory", False)],
)
def test_only_an_advisory_benchmark_does_not_block(tmp_path: Path, tier: str, blocks: bool) -> None:
    (only,) = policy_of(tmp_path, f"version: 1\nbenchmarks: {{a: {{min: 1, tier: {tier}}}}}").benchmarks
    assert only.blocks is blocks


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
        ("version: 1\nbenchmarks: {a: {}}", "benchmarks.a: sets no limit; give it (or defaults) min, max_drop"),
        ("version: 1\nbenchmarks: {a: {min: x}}", "benchmarks.a.min: must be a number"),
        ("version: 1\nbenchmarks: {a: {max_drop: -0.1}}", "benchmarks.a.max_drop: must be greater than or equal to 0"),
        ("version: 1\nbenchmarks: {a: {max_relative_drop: 5}}", "benchmarks.a.max_relative_drop: must be less than"),
        ("version: 1\nbenchmarks: {a: {max_drp: 0.1}}", "unknown key benchmarks.a.max_drp, did you mean 'max_drop'?"),
        ("version: 1\nbenchmark: {a: {min: 1}}", "unknown key benchmark, did you mean 'benchmarks'?"),
        ("version: 1\ndefaults: {groups: {}}\nbenchmarks: {a: {min: 1}}", "unknown key defaults.groups; known here:"),
        ("version: 1\nbenchmarks: {a: {tier: high, min: 1}}", "benchmarks.a.tier: must be 'critical', 'supporting'"),
        ("version: 1\nbenchmarks: {a: {groups: {f: {v: {}}}}}", "benchmarks.a.groups.f.v: sets no limit"),
        (
            "version: 1\nbenchmarks: {a: {groups: {f: {v: {tier: critical}}}}}",
            "unknown key benchmarks.a.groups.f.v.tier; known here: max_drop, max_relative_drop, min",
        ),
        (
            "version: 1\nbenchmarks: {a: {min: 0.5, direction: lower_is_better}}",
            "benchmarks.a.min: cannot be kept where lower is better",
        ),
        (
            "version: 1\nbenchmarks: {groups: {metrc: 1}}",  # a benchmark of that name
            "unknown key benchmarks.groups.metrc, did you mean 'metric'?",
        ),
        (
            "version: 1\nbenchmarks: {a: {groups: {groups: {v: {mtric: x}}}}}",
            "unknown key benchmarks.a.groups.groups.v.mtric; known here: max_drop, max_relative_drop, min",
        ),
        ("version: 1\nbenchmarks:\n\ta: {min: 1}", "line 3, column 1: found character '\\t'"),
        ("version: 1\nbenchmarks: {a: {min: .nan}}", "benchmarks.a.min: must be a finite number"),
        ("version: 1\nbenchmarks: {a: {min: true}}", "benchmarks.a.min: must be a number"),
        ("version: 1\nbenchmarks: {a: {min: 1}, a: {min: 2}}", "line 2, column 27: the key 'a' is written twice"),
        ("version: 1\nbenchmarks: &b {a: *b}", "line 2, column 13: an alias refers to a value that contains it"),
    ],
)
def test_a_mistake_is_named_with_its_place(tmp_path: Path, text: str, problem: str) -> None:
    assert any(found.startswith(problem) for found in problems_of(tmp_path, text)), problems_of(tmp_path, text)


def test_all_mistakes_are_named_at_once(tmp_path: Path) -> None:
    assert len(problems_of(tmp_path, "version: 3\nbenchmarks: {a: {mix: 1}, b: {min: x}}")) == 3


def test_anchors_and_merged_keys_are_what_they_stand_for(tmp_path: Path) -> None:
    text = "version: 1\nbenchmarks:\n  a: &limits {min: 0.5, max_drop: 0.1}\n  b: {<<: *limits, min: 0.7}\n"
    first, second = policy_of(tmp_path, text).benchmarks
    assert (first.limits.min, first.limits.max_drop) == (0.5, 0.1)
    assert (second.limits.min, second.limits.max_drop) == (0.7, 0.1)


def test_far_more_benchmarks_than_there_are_is_another_file(tmp_path: Path) -> None:
    text = "version: 1\nbenchmarks:\n" + "".join(f"  b{number}: {{min: 1}}\n" for number in range(100_000))
    assert problems_of(tmp_path, text) == ["is larger than 256 KiB; is it another file?"]
