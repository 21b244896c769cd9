"""What a gate found: as text, Markdown, JSON, JUnit, and as an in-toto statement, for one's own
signature.

The statement's predicate is `eval-result` as proposed in in-toto/attestation, pull request 575
(November 2026). A model behind an endpoint has no digest, so it is committed to with a secret salt;
whoever is to know the model gets the salt.
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from decimal import Decimal
from pathlib import Path
from typing import Any

from eval_factory.analysis.gate import BenchmarkOutcome, Check, GateResult, started_at
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import printable
from eval_factory.core.nouns import Verdict
from eval_factory.core.rundir import PRIVATE, RunDir, sha256_of
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.tables import Table, prose
from eval_factory.core.tables import markdown as in_markdown
from eval_factory.report.checksums import STATEMENT_TYPE
from eval_factory.report.reader import StoredResult, load_result

_SUITE = "eval-factory gate"


def gate_text(result: GateResult) -> str:
    lines = [
        (
            f"gate: {result.outcome.upper()} ({result.policy}, sha256 {result.policy_sha256[:12]}, "
            f"{_lock(result)})"
        )
    ]
    for one in result.benchmarks:
        lines.append(f"  {one.outcome.upper():<12}  {one.task} ({_kind(one)})")
        lines += [f"    {check.limit}{_of(check)}: {check.message}" for check in one.checks]
    if result.not_in_policy:
        lines.append(f"not in the policy, not counted: {', '.join(result.not_in_policy)}")
    lines += [f"note: {note}" for note in result.notes]
    return "".join(f"{printable(line)}\n" for line in lines)


def gate_markdown(result: GateResult) -> str:
    policy = (
        f"Policy {prose(result.policy.name)}, {_lock(result)}, SHA-256 `{result.policy_sha256}`"
    )
    lines = [f"## Gate: {result.outcome.upper()}", "", policy, ""]
    rows = []
    for one in result.benchmarks:
        for check in one.checks:
            limit = check.limit + _of(check)
            rows.append([one.task, _kind(one), limit, check.outcome.upper(), check.message])
    lines += in_markdown(Table(["benchmark", "tier", "limit", "outcome", "found"], rows))
    if result.not_in_policy:
        lines += ["", f"Not in the policy, not counted: {prose(', '.join(result.not_in_policy))}"]
    if result.notes:
        lines += ["", *(f"- {prose(note)}" for note in result.notes)]
    return "\n".join(lines) + "\n"


def gate_document(result: GateResult) -> dict[str, Any]:
    """For `--json`."""
    return {
        "outcome": result.outcome,
        "exit_code": result.exit_code,
        "policy": str(result.policy),
        "policy_sha256": result.policy_sha256,
        "locked_at": None if result.locked_at is None else result.locked_at.isoformat(),
        "benchmarks": [
            {**asdict(one), "candidate": None if one.candidate is None else str(one.candidate)}
            for one in result.benchmarks
        ],
        "not_in_policy": list(result.not_in_policy),
        "notes": list(result.notes),
    }


def write_junit(result: GateResult, path: Path) -> None:
    """A test case for each limit. One that counts against the gate is a failure; what is advisory,
    or inconclusive and counted as passed, is a skipped one that says why.
    """
    from junitparser import (
        Failure,
        JUnitXml,
        Skipped,
        TestCase,
        TestSuite,
    )  # imported here: only JUnit needs it

    suite = TestSuite(_SUITE)
    suite.add_property("policy_sha256", result.policy_sha256)
    suite.add_property("lock", _lock(result))
    for note in result.notes:
        suite.add_property("note", printable(note))
    for one in result.benchmarks:
        for check in one.checks:
            case = TestCase(
                printable(check.limit + _of(check)),
                classname=printable(f"{_SUITE}.{one.task}"),
                time=0,
            )
            if check.outcome != Verdict.PASS:
                counts = one.counted_as != Verdict.PASS
                case.result = [
                    (Failure if counts else Skipped)(printable(f"{check.outcome}: {check.message}"))
                ]
                if counts:
                    case.result[0].type = check.outcome
            suite.add_testcase(case)
    xml = JUnitXml(_SUITE)
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
    return (
        "not locked"
        if result.locked_at is None
        else f"locked on {result.locked_at:%Y-%m-%d %H:%M} UTC"
    )


def write_statements(result: GateResult, folder: Path, evaluator: str) -> list[Path]:
    """A statement for each benchmark whose limits were held against numbers, and its salt, which is
    a secret.

    `<task>.eval-result.intoto.json` is there to be signed and given away, `<task>.eval-result.salt`
    (hexadecimal, mode
    0600) to be kept. A salt that is there is used again, so that the same result gives the same
      statement.

    Raises:
        PrerequisiteError: a candidate's folder has no checksums, or its result does not say when it
            was made.
        OSError: the folder cannot be written.
    """
    written = []
    for one in result.benchmarks:
        if one.candidate is None or one.metric is None or not list(_claims(one.metric, one.checks)):
            continue
        folder.mkdir(parents=True, exist_ok=True)
        stored = load_result(one.candidate)
        name = re.sub(r"[^A-Za-z0-9._-]", "-", one.task)
        if name != one.task:  # `helm:mmlu:subject=anatomy` holds what no file system has to take
            name += f"-{hashlib.sha256(one.task.encode()).hexdigest()[:8]}"
        salt_path = folder / f"{name}.eval-result.salt"
        try:
            salt = bytes.fromhex(salt_path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            salt = secrets.token_bytes(16)
            write_atomic(salt_path, salt.hex() + "\n", mode=PRIVATE)
        except ValueError:
            raise PrerequisiteError(
                f"{salt_path}: is no salt; move it away, and a new one is made"
            ) from None
        made = gate_statement(
            stored, one.metric, one.checks, evaluator=evaluator, salt=salt, of=result
        )
        written.append(folder / f"{name}.eval-result.intoto.json")
        write_atomic(written[-1], json.dumps(made, indent=2, ensure_ascii=False) + "\n")
    return written


def gate_statement(
    stored: StoredResult,
    metric: str,
    checks: Sequence[Check],
    *,
    evaluator: str,
    salt: bytes,
    of: GateResult,
) -> dict[str, Any]:
    """The statement of a benchmark whose limits were held against numbers; `evaluator`: a URI of
    who ran it.

    The lock of the policy is in it where it is older than the run.
    """
    record = stored.result.provenance
    rundir = RunDir(stored.folder)
    started = started_at(record)
    if not rundir.checksums.is_file() or started is None or record.ended_at is None:
        raise PrerequisiteError(
            f"{stored.folder}: was made by a version that wrote neither checksums nor times, "
            "which a statement needs:"
            " run it again (nothing that was answered is asked again)"
        )
    # SHA-256 of the sorted lines `<sha256 of a data file>` LF; of all prompts, where no data file
    # is known
    dataset = {"evalFactoryPromptsV1": record.prompts_sha256}
    if record.dataset_files:
        lines = "".join(f"{digest}\n" for digest in sorted(record.dataset_files.values()))
        dataset = {"evalFactoryFilesV1": hashlib.sha256(lines.encode()).hexdigest()}
    model = {"alg": "sha256-salted-v1", "value": commitment(salt, record.target), "salted": True}
    receipt = {"name": rundir.checksums.name, "digest": {"sha256": sha256_of(rundir.checksums)}}
    version = f"{record.helm_package} {record.helm}, errata {record.errata_version}"
    before = of.locked_at is not None and of.locked_at <= started
    return {
        "_type": STATEMENT_TYPE,
        "subject": [receipt],
        "predicateType": "https://in-toto.io/attestation/eval-result/v0.1",
        "predicate": {
            "evaluator": {"id": evaluator},
            "evaluatedAt": record.ended_at,
            "suite": {"name": stored.result.task, "version": version},
            "claims": list(_claims(metric, checks)),
            "sampleSize": stored.result.scores[metric].stats.count,
            "commitments": {"model": model},
            "dataset": {"name": stored.result.task, "digest": dataset},
            "assuranceLevel": "self_attested",
            "subjectProfile": "receipt",
            **({"preRegistration": {"alg": "sha256", "value": of.policy_sha256}} if before else {}),
            "evidence": [{**receipt, "mediaType": "text/plain"}],
            "harness": {"name": "eval-factory", "version": record.eval_factory},
        },
    }


def commitment(salt: bytes, identity: str) -> str:
    """`sha256-salted-v1`: what names an identity to those alone who know the salt."""
    return hashlib.sha256(salt + identity.encode("utf-8")).hexdigest()


_CLAIMED = {
    "max_drop": "drop of {of} from the baseline",
    "max_relative_drop": "drop of {of} from the baseline",
    "min_coverage": "coverage of {of}",
    "min_judge_agreement": "Krippendorff's alpha of the judges of {of}",
}
"""Limit -> what a claim is about; the score itself of any other."""


def _claims(metric: str, checks: Sequence[Check]) -> Iterator[dict[str, Any]]:
    """Of limits that were held against a number. What is inconclusive was not passed: it was not
    shown.
    """
    for check in checks:
        if check.allowed is None:
            continue
        is_drop = check.limit in ("max_drop", "max_relative_drop")
        of = f"{metric}[{check.group}]" if check.group else metric
        yield {
            "metric": _CLAIMED.get(check.limit, "{of}").format(of=of),
            "comparator": "<=" if is_drop else ">=",
            "threshold": format(Decimal(repr(check.allowed)), "f"),
            "passed": check.outcome == Verdict.PASS,
        }
