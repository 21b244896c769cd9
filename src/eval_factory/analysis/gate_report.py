"""What a gate found, as text for a terminal, Markdown for a job's summary, JSON, and JUnit for a CI system."""

from __future__ import annotations

import io
from dataclasses import asdict
from pathlib import Path
from typing import Any

from eval_factory.analysis.gate import BenchmarkOutcome, Check, GateResult, Outcome
from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.foreign_text import printable
from eval_factory.core.markdown_cells import cell

SUITE = "eval-factory gate"
_WORD: dict[Outcome, str] = {"pass": "PASS", "fail": "FAIL", "inconclusive": "INCONCLUSIVE"}


def text(result: GateResult) -> str:
    lines = [f"gate: {_WORD[result.outcome]} ({result.policy}, sha256 {result.policy_sha256[:12]}, {_lock(result)})"]
    for one in result.benchmarks:
        lines.append(f"  {_WORD[one.outcome]:<12}  {one.task} ({_kind(one)})")
        lines += [f"    {check.limit}{_of(check)}: {check.message}" for check in one.checks]
    if result.not_in_policy:
        lines.append(f"not in the policy, not counted: {', '.join(result.not_in_policy)}")
    lines += [f"note: {note}" for note in result.notes]
    return "".join(f"{printable(line)}\n" for line in lines)


def markdown(result: GateResult) -> str:
    lines = [
        f"## Gate: {_WORD[result.outcome]}",
        "",
        f"Policy {cell(result.policy.name)}, {_lock(result)}, SHA-256 `{result.policy_sha256}`",
        "",
        "| benchmark | tier | limit | outcome | found |",
        "|---|---|---|---|---|",
    ]
    for one in result.benchmarks:
        lines += [
            f"| {cell(one.task)} | {cell(_kind(one))} | {cell(check.limit + _of(check))} | {_WORD[check.outcome]}"
            f" | {cell(check.message)} |"
            for check in one.checks
        ]
    if result.not_in_policy:
        lines += ["", f"Not in the policy, not counted: {cell(', '.join(result.not_in_policy))}"]
    if result.notes:
        lines += ["", *(f"- {cell(note)}" for note in result.notes)]
    return "\n".join(lines) + "\n"


def document(result: GateResult) -> dict[str, Any]:
    """For `--json`."""
    return {
        "outcome": result.outcome,
        "exit_code": result.exit_code,
        "policy": str(result.policy),
        "policy_sha256": result.policy_sha256,
        "locked_at": None if result.locked_at is None else result.locked_at.isoformat(),
        "benchmarks": [_benchmark(one) for one in result.benchmarks],
        "not_in_policy": list(result.not_in_policy),
        "notes": list(result.notes),
    }


def _benchmark(one: BenchmarkOutcome) -> dict[str, Any]:
    candidate = None if one.candidate is None else str(one.candidate)
    return {**asdict(one), "checks": [asdict(check) for check in one.checks], "candidate": candidate}


def write_junit(result: GateResult, path: Path) -> None:
    """A test case for each limit. One that counts against the gate is a failure; what is advisory, or inconclusive and
    counted as passed, is a skipped one that says why.
    """
    from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite  # imported here: only JUnit needs it

    suite = TestSuite(SUITE)
    suite.add_property("policy_sha256", result.policy_sha256)
    suite.add_property("lock", _lock(result))
    for note in result.notes:
        suite.add_property("note", printable(note))
    for one in result.benchmarks:
        for check in one.checks:
            case = TestCase(printable(check.limit + _of(check)), classname=printable(f"{SUITE}.{one.task}"), time=0)
            if check.outcome != "pass":
                counts = one.counted_as != "pass"
                case.result = [(Failure if counts else Skipped)(printable(f"{check.outcome}: {check.message}"))]
                if counts:
                    case.result[0].type = check.outcome
            suite.add_testcase(case)
    xml = JUnitXml(SUITE)
    xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]
    written = io.BytesIO()
    xml.write(written, pretty=True)
    write_atomic(path, written.getvalue().decode("utf-8"))


def _kind(one: BenchmarkOutcome) -> str:
    counted = "" if one.counted_as == one.outcome else f", counts as {one.counted_as}"
    metric = f", {one.metric}" if one.metric else ""
    return f"{one.tier}{metric}{counted}"


def _of(check: Check) -> str:
    return f" [{check.group}]" if check.group else ""


def _lock(result: GateResult) -> str:
    return "not locked" if result.locked_at is None else f"locked on {result.locked_at:%Y-%m-%d %H:%M} UTC"
