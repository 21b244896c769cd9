"""What a gate found of one benchmark as an in-toto statement, for one's own signature.

The predicate is `eval-result`, as it is proposed to the in-toto Attestation Framework (in-toto/attestation, pull
request 575, read in November 2026; not part of the framework yet): thresholds, and whether they were kept. A model
behind an endpoint has no digest, so it is committed to with a secret salt; whoever is to know the model is given it.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Any

from eval_factory.analysis.gate import Check
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.report.checksums import STATEMENT_TYPE
from eval_factory.report.reader import StoredResult

PREDICATE_TYPE = "https://in-toto.io/attestation/eval-result/v0.1"
SALT_BYTES = 16
COMMITMENT = "sha256-salted-v1"
"""SHA-256 of the salt, then the model's id in UTF-8."""
FILES_DIGEST, PROMPTS_DIGEST = "evalFactoryFilesV1", "evalFactoryPromptsV1"
"""SHA-256 of the sorted lines `<sha256 of a data file>` LF; of all prompts, where no data file is known."""


@dataclass(frozen=True)
class Registered:
    """A policy that was locked."""

    sha256: str
    at: datetime


def statement(
    stored: StoredResult,
    metric: str,
    checks: Sequence[Check],
    *,
    evaluator: str,
    salt: bytes,
    registered: Registered | None = None,
) -> dict[str, Any]:
    """The statement of a benchmark whose limits were held against numbers.

    Args:
        metric: the score that the limits are of.
        evaluator: a URI of who ran the evaluation.
        registered: the lock of the policy; it is told where the lock is older than the run.

    Raises:
        PrerequisiteError: the folder has no checksums, or its result does not say when it was made.
    """
    record = stored.result.provenance
    rundir = RunDir(stored.folder)
    if not rundir.checksums.is_file() or record.started_at is None or record.ended_at is None:
        raise PrerequisiteError(
            f"{stored.folder}: was made by a version that wrote neither checksums nor times, which a statement needs:"
            " run it again (nothing that was answered is asked again)"
        )
    receipt = _descriptor(rundir.checksums.name, sha256_of(rundir.checksums))
    began = datetime.fromisoformat(record.started_at.replace("Z", "+00:00"))
    version = f"crfm-helm {record.helm}, errata {record.errata_version}"
    before = registered is not None and registered.at <= began
    return {
        "_type": STATEMENT_TYPE,
        "subject": [receipt],
        "predicateType": PREDICATE_TYPE,
        "predicate": {
            "evaluator": {"id": evaluator},
            "evaluatedAt": record.ended_at,
            "suite": {"name": stored.result.task, "version": version},
            "claims": list(_claims(metric, checks)),
            "sampleSize": stored.result.scores[metric].stats.count,
            "commitments": {"model": {"alg": COMMITMENT, "value": commitment(salt, record.target), "salted": True}},
            "dataset": {"name": stored.result.task, "digest": _dataset(record.dataset_files, record.prompts_sha256)},
            "assuranceLevel": "self_attested",
            "subjectProfile": "receipt",
            **({"preRegistration": {"alg": "sha256", "value": registered.sha256}} if registered and before else {}),
            "evidence": [{**receipt, "mediaType": "text/plain"}],
            "harness": {"name": "eval-factory", "version": record.eval_factory},
        },
    }


def commitment(salt: bytes, identity: str) -> str:
    """What names an identity to those alone who know the salt."""
    return hashlib.sha256(salt + identity.encode("utf-8")).hexdigest()


def has_claims(checks: Sequence[Check]) -> bool:
    """Whether a limit was held against a number; a result that is missing has nothing to state."""
    return any(True for _ in _claims("", checks))


def _claims(metric: str, checks: Sequence[Check]) -> Iterator[dict[str, Any]]:
    """What is inconclusive was not passed: it was not shown."""
    for check in checks:
        if check.allowed is None:
            continue
        is_drop = check.limit != "min"
        of = f"{metric}[{check.group}]" if check.group else metric
        yield {
            "metric": f"drop of {of} from the baseline" if is_drop else of,
            "comparator": "<=" if is_drop else ">=",
            "threshold": format(Decimal(repr(check.allowed)), "f"),
            "passed": check.outcome == "pass",
        }


def _dataset(files: Mapping[str, str], prompts_sha256: str) -> dict[str, str]:
    if not files:
        return {PROMPTS_DIGEST: prompts_sha256}
    lines = "".join(f"{digest}\n" for digest in sorted(files.values()))
    return {FILES_DIGEST: hashlib.sha256(lines.encode()).hexdigest()}


def _descriptor(name: str, sha256: str) -> dict[str, Any]:
    return {"name": name, "digest": {"sha256": sha256}}
