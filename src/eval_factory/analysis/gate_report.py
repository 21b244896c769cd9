"""What a gate found, as text for a terminal, Markdown for a job's summary, JSON, and JUnit for a CI system."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval_factory.analysis.gate import BenchmarkOutcome, Check, GateResult, Outcome

SUITE = "eval-factory gate"
_WORD: dict[Outcome, str] = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}
_NO_XML = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What XML 1.0 cannot hold."""


def text(result: GateResult) -> str:
    lines = [f"gate: {_WORD[result.outcome]} ({result.policy}, sha256 {result.policy_sha256[:12]})"]
    for one in result.benchmarks:
        lines.append(f"  {_WORD[one.outcome]:<12}  {one.task} ({_kind(one)})")
        lines += [f"    {check.limit}{_of(check)}: {check.message}" for check in one.checks]
    if result.not_in_policy:
        lines.append(f"not in the policy, not counted: {', '.join(result.not_in_policy)}")
    return "\n".join(lines) + "\n"


def markdown(result: GateResult) -> str:
    lines = [
        f"## Gate: {_WORD[result.outcome]}",
        "",
        f"Policy `{result.policy.name}`, SHA-256 `{result.policy_sha256}`",
        "",
        "| benchmark | tier | limit | outcome | found |",
        "|---|---|---|---|---|",
    ]
    for one in result.benchmarks:
        lines += [
            f"| {_cell(one.task)} | {_kind(one)} | {_cell(check.limit + _of(check))} | {_WORD[check.outcome]}"
            f" | {_cell(check.message)} |"
            for check in one.checks
        ]
    if result.not_in_policy:
        lines += ["", f"Not in the policy, not counted: {_cell(', '.join(result.not_in_policy))}"]
    return "\n".join(lines) + "\n"


def document(result: GateResult) -> dict[str, Any]:
    """For `--json`."""
    return {
        "outcome": result.outcome,
        "exit_code": result.exit_code,
        "policy": str(result.policy),
        "policy_sha256": result.policy_sha256,
        "benchmarks": [{**asdict(one), "checks": [asdict(check) for check in one.checks]} for one in result.benchmarks],
        "not_in_policy": list(result.not_in_policy),
    }


def write_junit(result: GateResult, path: Path) -> None:
    """A test case for each limit. One that counts against the gate is a failure; what is advisory, or inconclusive and
    counted as passed, is a skipped one that says why.
    """
    from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite  # imported here: only JUnit needs it

    suite = TestSuite(SUITE)
    for one in result.benchmarks:
        for check in one.checks:
            case = TestCase(_xml(check.limit + _of(check)), classname=_xml(f"{SUITE}.{one.task}"), time=0)
            if check.outcome != "pass":
                counts = one.counted_as != "pass"
                case.result = [(Failure if counts else Skipped)(_xml(f"{check.outcome}: {check.message}"))]
                if counts:
                    case.result[0].type = check.outcome
            suite.add_testcase(case)
    xml = JUnitXml(SUITE)
    xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]
    xml.write(str(path), pretty=True)


def _kind(one: BenchmarkOutcome) -> str:
    counted = "" if one.counted_as == one.outcome else f", counts as {one.counted_as}"
    metric = f", {one.metric}" if one.metric else ""
    return f"{one.tier}{metric}{counted}"


def _of(check: Check) -> str:
    return f" [{check.group}]" if check.group else ""


def _cell(words: str) -> str:
    return words.replace("\\", "\\\\").replace("|", "\\|").replace("\n", " ").replace("<", "&lt;").replace("`", "\\`")


def _xml(words: str) -> str:
    return _NO_XML.sub("\ufffd", words)
