"""Two models whose right answers are known, run for real, and held against policies by the program."""

from __future__ import annotations

import csv
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from junitparser import Failure, JUnitXml

from eval_factory import api
from integration.support import program
from scripted_endpoint import ScriptedEndpoint

TASK = "custom.known"
OF_EACH_TOPIC = 40
WRONG_OLD = range(8)
WRONG_NEW = {"heart": range(8), "lung": range(20)}
LOCKED_BEFORE = {"min": 0.5}


@dataclass(frozen=True)
class Runs:
    """The present model has 32 of 40 right on each topic; the new one the same on the heart, 20 on the lung."""

    old: Path
    new: Path
    policy: Path
    """Locked after the present model's run and before the new one's."""


def rows() -> list[dict[str, str]]:
    return [
        {"question": f"What is {topic} {number}?", "topic": topic, "correct_answer": "AB"[number % 2],
         "incorrect_answers": json.dumps(["BA"[number % 2]])}
        for topic in WRONG_NEW for number in range(OF_EACH_TOPIC)
    ]  # fmt: skip


def run(folder: Path, name: str, wrong: Mapping[str, range]) -> Path:
    def answer(prompt: str) -> str:
        row = next((row for row in rows() if row["question"] in prompt), None)
        if row is None:  # the probe
            return "pong"
        number = int(row["question"].split()[-1].rstrip("?"))
        right = row["correct_answer"]
        return "AB".replace(right, "") if number in wrong[row["topic"]] else right

    with ScriptedEndpoint(answer) as endpoint:
        extra = {"benchmark": str(folder / "benchmark.yaml")}
        config = {"type": "custom", "output_dir": str(folder / name), "params": {"parallelism": 8, "extra": extra}}
        asked = {"url": endpoint.url, "model_id": f"test/{name}", "type": "chat"}
        (folder / "run.yml").write_text(yaml.safe_dump({"config": config, "target": {"api_endpoint": asked}}))
        finished = program("run_eval", "--run_config", str(folder / "run.yml"))
        assert finished.returncode == 0, finished.stderr
    return folder / name


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    folder = tmp_path_factory.mktemp("gate")
    with (folder / "data.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows()[0]))
        writer.writeheader()
        writer.writerows(rows())
    (folder / "prompt.txt").write_text("{question} Answer A or B.")
    (folder / "benchmark.yaml").write_text(
        "name: known\ndescription: Known\nprompt_file: prompt.txt\ndataset_file: data.csv\nmax_tokens: 5\n"
        "metrics: [{name: exact_match}]\n"
    )
    old = run(folder, "old", dict.fromkeys(WRONG_NEW, WRONG_OLD))
    policy = written(folder, LOCKED_BEFORE, "locked.yml")
    locked = program("gate", str(policy), "--lock")
    assert locked.returncode == 0, locked.stderr
    return Runs(old, run(folder, "new", WRONG_NEW), policy)


def written(folder: Path, limits: Mapping[str, Any], name: str = "policy.yml") -> Path:
    path = folder / name
    path.write_text(yaml.safe_dump({"version": 1, "benchmarks": {TASK: dict(limits)}}))
    return path


def gate(runs: Runs, policy: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    return program(
        "gate", str(policy), "--candidate", str(runs.new), "--baseline", str(runs.old), *arguments, cwd=None, **env
    )


@pytest.mark.parametrize(
    ("limits", "outcome", "code"),
    [
        ({"max_drop": 0.3, "min": 0.5}, "pass", 0),
        ({"max_drop": 0.05}, "fail", 1),
        ({"min": 0.8}, "fail", 1),
        ({"max_drop": 0.15}, "inconclusive", 1),
        ({"min": 0.65}, "inconclusive", 1),
        ({"max_drop": 0.3, "groups": {"topic": {"heart": {"max_drop": 0.1}}}}, "pass", 0),
        ({"max_drop": 0.3, "groups": {"topic": {"*": {"max_drop": 0.1}}}}, "fail", 1),
    ],
)
def test_a_gate_passes_fails_or_cannot_say(
    runs: Runs, tmp_path: Path, limits: dict[str, Any], outcome: str, code: int
) -> None:
    found = api.gate(written(tmp_path, limits), [runs.new], [runs.old])
    assert (found.outcome, found.exit_code) == (outcome, code)
    differences = {None: -0.15, "topic=heart": 0.0, "topic=lung": -0.3}
    for check in found.benchmarks[0].checks:
        expected = 0.65 if check.limit == "min" else differences[check.group]
        assert check.observed == pytest.approx(expected)
        assert check.ci_low is not None
        assert check.ci_high is not None
        assert check.ci_low < expected < check.ci_high


def test_reports_of_a_gate_that_fails(runs: Runs, tmp_path: Path) -> None:
    """The text, JUnit as a CI system reads it, and the page of a GitHub job: all of them say the same."""
    limits = {"min": 0.5, "groups": {"topic": {"*": {"max_drop": 0.1}}}}
    summary, junit = tmp_path / "summary.md", tmp_path / "new" / "junit.xml"
    finished = gate(runs, written(tmp_path, limits), "--junit", str(junit), GITHUB_STEP_SUMMARY=str(summary))
    assert finished.returncode == 1
    lines = finished.stdout.splitlines()
    assert lines[0].startswith(f"gate: FAIL ({tmp_path / 'policy.yml'}, sha256 ")
    assert lines[1] == f"  FAIL          {TASK} (supporting, exact_match)"
    assert [line.partition(":")[0] for line in lines[2:]] == [
        "    min", "    max_drop [topic=heart]", "    max_drop [topic=lung]",
    ]  # fmt: skip
    assert "-0.3 (95 % interval -0.4" in lines[4]
    (suite,) = JUnitXml.fromfile(str(junit))
    assert (suite.tests, suite.failures, suite.skipped, suite.errors) == (3, 1, 0, 0)
    (failed,) = (case for case in suite if case.result)
    assert (failed.classname, failed.name) == (f"eval-factory gate.{TASK}", "max_drop [topic=lung]")
    assert isinstance(failed.result[0], Failure)
    assert failed.result[0].message == f"fail: {lines[4].partition(': ')[2]}"
    told = summary.read_text("utf-8")
    assert told.startswith("## Gate: FAIL\n")
    assert f"| {TASK} | supporting, exact_match | max_drop `[topic=lung]` | FAIL | -0.3 (95 %" in told
    assert told.count("\n| ") == 5


def test_the_lock_shows_the_order_and_a_changed_policy_is_refused(runs: Runs, tmp_path: Path) -> None:
    kept = api.gate(runs.policy, [runs.new])
    assert (kept.outcome, kept.notes) == ("pass", ())
    assert kept.locked_at is not None
    earlier = program("gate", str(runs.policy), "--candidate", str(runs.old))
    assert earlier.returncode == 0
    assert f", locked on {kept.locked_at:%Y-%m-%d %H:%M} UTC)" in earlier.stdout
    assert f"note: {TASK}: its run began (20" in earlier.stdout
    assert "before the policy was locked" in earlier.stdout
    for file in (runs.policy, runs.policy.with_name("locked.yml.lock")):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    refused = gate(runs, written(tmp_path, {"min": 0.1}, "locked.yml"))
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "was changed after it was locked on 20" in refused.stderr
