"""Formats the outcome of a gate as text, Markdown, JSON, JUnit and in-toto statements for signing.

An in-toto statement is a JSON document with a subject (files with their hashes) and a predicate:
what the signer claims about the subject. The predicate here is `eval-result`, as proposed in
in-toto/attestation, pull request 575 (November 2026). The proposal asks for a digest of the model,
but a model behind an endpoint has no digest. The statement therefore has a commitment: a hash of a
secret salt and the model's name. Only a person with the salt can verify the name.
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

from eval_factory.analysis.gate import BenchmarkOutcome, GateResult, start_time_of
from eval_factory.analysis.gate_checks import Check
from eval_factory.analysis.gate_policy import LIMITS
from eval_factory.core.enums import Verdict
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import printable
from eval_factory.core.results import Provenance
from eval_factory.core.rundir import PRIVATE, RunDir, sha256_of
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.tables import Table, prose
from eval_factory.core.tables import markdown_lines as in_markdown
from eval_factory.report.checksums import STATEMENT_TYPE
from eval_factory.report.reader import StoredResult, load_result

_SUITE = "eval-factory gate"  # the name of the test suite in a JUnit file


def gate_text(result: GateResult) -> str:
    """Return the outcome as a text for the screen, which ends with a line break."""
    policy = f"{result.policy}, sha256 {result.policy_sha256[:12]}, {_lock_text(result)}"
    lines = [f"gate: {result.outcome.upper()} ({policy})"]
    for benchmark in result.benchmarks:
        outcome = benchmark.outcome.upper()
        lines.append(f"  {outcome:<12}  {benchmark.task} ({_tier_text(benchmark)})")
        for check in benchmark.checks:
            lines.append(f"    {_limit_text(check)}: {check.message}")
    if result.not_in_policy:
        lines.append(f"not in the policy, not counted: {', '.join(result.not_in_policy)}")
    for note in result.notes:
        lines.append(f"note: {note}")
    return "".join(f"{printable(line)}\n" for line in lines)


def gate_markdown(result: GateResult) -> str:
    """Return the outcome as Markdown, with a table of all checks."""
    policy = (
        f"Policy {prose(result.policy.name)}, {_lock_text(result)}, "
        f"SHA-256 `{result.policy_sha256}`"
    )
    lines = [f"## Gate: {result.outcome.upper()}", "", policy, ""]
    rows = []
    for benchmark in result.benchmarks:
        tier = _tier_text(benchmark)
        for check in benchmark.checks:
            outcome = check.outcome.upper()
            rows.append([benchmark.task, tier, _limit_text(check), outcome, check.message])
    lines += in_markdown(Table(["benchmark", "tier", "limit", "outcome", "found"], rows))
    if result.not_in_policy:
        lines += ["", f"Not in the policy, not counted: {prose(', '.join(result.not_in_policy))}"]
    if result.notes:
        lines.append("")
    for note in result.notes:
        lines.append(f"- {prose(note)}")
    return "\n".join(lines) + "\n"


def gate_document(result: GateResult) -> dict[str, Any]:
    """Return the document that `--json` prints."""
    locked_at = None
    if result.locked_at is not None:
        locked_at = result.locked_at.isoformat()
    benchmarks = []
    for benchmark in result.benchmarks:
        fields = asdict(benchmark)
        if benchmark.candidate is not None:
            fields["candidate"] = str(benchmark.candidate)
        benchmarks.append(fields)
    return {
        "outcome": result.outcome,
        "exit_code": result.exit_code,
        "policy": str(result.policy),
        "policy_sha256": result.policy_sha256,
        "locked_at": locked_at,
        "benchmarks": benchmarks,
        "not_in_policy": list(result.not_in_policy),
        "notes": list(result.notes),
    }


def write_junit(result: GateResult, path: Path) -> None:
    """Write a JUnit file with a test case for each check of a limit.

    A check that does not pass is a failed test case if the benchmark counts as failed or
    inconclusive. If the benchmark counts as passed, the check is a skipped test case with the
    reason.
    """
    # junitparser is imported here because only this function needs it.
    from junitparser import Failure, JUnitXml, Skipped, TestCase, TestSuite

    suite = TestSuite(_SUITE)
    suite.add_property("policy_sha256", result.policy_sha256)
    suite.add_property("lock", _lock_text(result))
    for note in result.notes:
        suite.add_property("note", printable(note))
    for benchmark in result.benchmarks:
        class_name = printable(f"{_SUITE}.{benchmark.task}")
        for check in benchmark.checks:
            case = TestCase(printable(_limit_text(check)), classname=class_name, time=0)
            message = printable(f"{check.outcome}: {check.message}")
            if check.outcome != Verdict.PASS and benchmark.counted_as != Verdict.PASS:
                failure = Failure(message)
                failure.type = check.outcome
                case.result = [failure]
            elif check.outcome != Verdict.PASS:
                case.result = [Skipped(message)]
            suite.add_testcase(case)
    xml = JUnitXml(_SUITE)
    xml.add_testsuite(suite)
    xml.update_statistics()  # type: ignore[no-untyped-call]
    buffer = io.BytesIO()
    xml.write(buffer, pretty=True)
    write_atomic(path, buffer.getvalue().decode("utf-8"))


def _tier_text(benchmark: BenchmarkOutcome) -> str:
    """Return a benchmark's tier and metric, and the counted outcome if it differs."""
    parts: list[str] = [benchmark.tier]
    if benchmark.metric:
        parts.append(benchmark.metric)
    if benchmark.counted_as != benchmark.outcome:
        parts.append(f"counts as {benchmark.counted_as}")
    return ", ".join(parts)


def _limit_text(check: Check) -> str:
    """Return the key of a check's limit, with the group if there is one."""
    if check.group:
        return f"{check.limit} [{check.group}]"
    return check.limit


def _lock_text(result: GateResult) -> str:
    """Return "not locked", or "locked on" with the time."""
    if result.locked_at is None:
        return "not locked"
    return f"locked on {result.locked_at:%Y-%m-%d %H:%M} UTC"


def write_statements(result: GateResult, folder: Path, evaluator: str) -> list[Path]:
    """Write a statement and its secret salt for each benchmark with a measured number.

    The user signs and publishes `<task>.eval-result.intoto.json`, and keeps
    `<task>.eval-result.salt` (hexadecimal, mode 0600) secret. If the folder has a salt from an
    earlier call, it is used again, so that the same result always gives the same statement.

    Args:
        result: the outcome of a gate.
        folder: the folder for the files.
        evaluator: a URI of the person or organisation that ran the evaluation.

    Returns:
        The paths of the statements.

    Raises:
        PrerequisiteError: a candidate's result cannot be read, or has no checksums or no times; or
            the file of a salt does not contain a salt.
        OSError: the folder cannot be written.
    """
    written = []
    for benchmark in result.benchmarks:
        metric = benchmark.metric
        if benchmark.candidate is None or metric is None:
            continue
        # A check has an allowed value only if a measured number was compared with it.
        has_number = any(check.allowed is not None for check in benchmark.checks)
        if not has_number:
            continue
        folder.mkdir(parents=True, exist_ok=True)
        name = _file_name(benchmark.task)
        statement = gate_statement(
            load_result(benchmark.candidate),
            metric,
            benchmark.checks,
            evaluator=evaluator,
            salt=_salt(folder / f"{name}.eval-result.salt"),
            gate=result,
        )
        path = folder / f"{name}.eval-result.intoto.json"
        write_atomic(path, json.dumps(statement, indent=2, ensure_ascii=False) + "\n")
        written.append(path)
    return written


def _file_name(task: str) -> str:
    """Return a task's name as a file name.

    Characters that some file systems do not allow, such as the colons of
    `helm:mmlu:subject=anatomy`, are replaced, and a hash keeps changed names distinct.
    """
    name = re.sub(r"[^A-Za-z0-9._-]", "-", task)
    if name == task:
        return name
    return f"{name}-{hashlib.sha256(task.encode()).hexdigest()[:8]}"


def _salt(path: Path) -> bytes:
    """Return the salt in a file. If the file does not exist, create it with a new salt.

    Raises:
        PrerequisiteError: the file does not contain a salt.
    """
    try:
        return bytes.fromhex(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        salt = secrets.token_bytes(16)
        write_atomic(path, salt.hex() + "\n", mode=PRIVATE)
        return salt
    except ValueError:
        raise PrerequisiteError(
            f"{path}: is not a salt; move the file away, and a new salt is created"
        ) from None


def gate_statement(
    stored: StoredResult,
    metric: str,
    checks: Sequence[Check],
    *,
    evaluator: str,
    salt: bytes,
    gate: GateResult,
) -> dict[str, Any]:
    """Return the statement of a benchmark with a measured number.

    The statement has the hash of the policy as a pre-registration if the policy was locked before
    the run started.

    Args:
        stored: the candidate's result.
        metric: the name of the score.
        checks: the benchmark's checks.
        evaluator: a URI of the person or organisation that ran the evaluation.
        salt: the salt for the commitment to the model's name.
        gate: the outcome of the gate.

    Raises:
        PrerequisiteError: the candidate's folder has no checksums, or its result has no times.
    """
    provenance = stored.result.provenance
    rundir = RunDir(stored.folder)
    started = start_time_of(provenance)
    if not rundir.checksums.is_file() or started is None or provenance.ended_at is None:
        raise PrerequisiteError(
            f"{stored.folder}: a statement needs checksums and times, which this result does not "
            "have: run it again (nothing that was answered is asked again)"
        )
    # The list of checksums covers all files of the result, so its hash identifies the result.
    receipt = {"name": rundir.checksums.name, "digest": {"sha256": sha256_of(rundir.checksums)}}
    version = f"{_program_of(provenance)}, errata {provenance.errata_version}"
    pre_registration = {}
    if gate.locked_at is not None and gate.locked_at <= started:
        pre_registration = {"preRegistration": {"alg": "sha256", "value": gate.policy_sha256}}
    return {
        "_type": STATEMENT_TYPE,
        "subject": [receipt],
        "predicateType": "https://in-toto.io/attestation/eval-result/v0.1",
        "predicate": {
            "evaluator": {"id": evaluator},
            "evaluatedAt": provenance.ended_at,
            "suite": {"name": stored.result.task, "version": version},
            "claims": list(_claims(metric, checks)),
            "sampleSize": stored.result.scores[metric].stats.count,
            "commitments": {"model": _committed(commitment(salt, provenance.target))},
            "dataset": {"name": stored.result.task, "digest": _dataset_digest(provenance)},
            "assuranceLevel": "self_attested",
            "subjectProfile": "receipt",
            **pre_registration,
            "evidence": [{**receipt, "mediaType": "text/plain"}],
            "harness": {"name": "eval-factory", "version": provenance.eval_factory},
        },
    }


def _program_of(provenance: Provenance) -> str:
    """Return the program that asked the model and scored the answers, with its version."""
    if provenance.imported is not None:
        return provenance.imported.source
    return f"{provenance.helm_package} {provenance.helm}"


def _dataset_digest(provenance: Provenance) -> dict[str, str | None]:
    """Return the digest of the data, as a dict from the name of the method to the digest.

    The digest is the SHA-256 of a text with the sorted SHA-256 of all data files, one per line. If
    no data file is known, the digest is the SHA-256 of all prompts.
    """
    if not provenance.dataset_files:
        return {"evalFactoryPromptsV1": provenance.prompts_sha256}
    lines = "".join(f"{digest}\n" for digest in sorted(provenance.dataset_files.values()))
    return {"evalFactoryFilesV1": hashlib.sha256(lines.encode()).hexdigest()}


def _committed(value: str) -> dict[str, Any]:
    """Return a value of `commitment` with the name of its method, for a statement."""
    return {"alg": "sha256-salted-v1", "value": value, "salted": True}


def commitment(salt: bytes, identity: str) -> str:
    """Return the commitment `sha256-salted-v1` to a name: the SHA-256 of the salt and the name."""
    return hashlib.sha256(salt + identity.encode("utf-8")).hexdigest()


def _claims(metric: str, checks: Sequence[Check]) -> Iterator[dict[str, Any]]:
    """Yield a claim for each check that compared a measured number with a limit.

    An inconclusive check is claimed as not passed, because nothing was shown.
    """
    for check in checks:
        if check.allowed is None:  # nothing was measured
            continue
        score = metric
        if check.group:
            score = f"{metric}[{check.group}]"
        kind = LIMITS[check.limit]
        yield {
            "metric": kind.claim.format(score=score),
            "comparator": kind.comparator,
            # a text without an exponent: "0.00001", not "1e-05"
            "threshold": format(Decimal(repr(check.allowed)), "f"),
            "passed": check.outcome == Verdict.PASS,
        }
