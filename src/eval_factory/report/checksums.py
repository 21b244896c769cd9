"""SHA256SUMS and an in-toto statement of an output folder, for one's own signature and for `verify`.

SHA256SUMS has the form that GNU's `sha256sum -c` reads. The statement is of the in-toto Attestation Framework
(https://in-toto.io/Statement/v1) with its predicate for results of tests
(https://github.com/in-toto/attestation/blob/main/spec/predicates/test-result.md).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eval_factory.core.nouns import RunStatus
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import write_atomic

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "https://in-toto.io/attestation/test-result/v0.1"
EXTENSION = "evalFactory"
"""The predicate's field that is not in-toto's; the framework allows such, and has readers ignore those they do not
know."""

_LINE = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-f]{64}) [ *](?P<name>.+)")
_ESCAPES = {"\\\\": "\\", "\\n": "\n", "\\r": "\r"}


class ChecksumsError(Exception):
    """The file is no list of checksums."""


def write_checksums(
    rundir: RunDir, runs: Iterable[Path], result: TaskResult, known: Mapping[str, str] | None = None
) -> None:
    """Of a finished result; SHA256SUMS is written last: where it is there, everything is.

    Args:
        runs: the run folders of the result.
        result: as it was written, so that a reader of the statement finds the same numbers.
        known: what `digests_of` gives, where somebody has it already.
    """
    digests = digests_of(rundir, runs) if known is None else dict(known)
    document = result_statement(result, digests)
    write_atomic(rundir.attestation, json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    digests[rundir.attestation.name] = sha256_of(rundir.attestation)
    write_atomic(rundir.checksums, "".join(_line(name, digest) for name, digest in sorted(digests.items())))


def forget_checksums(rundir: RunDir) -> None:
    """Before anything of a result is changed: what a killed run leaves is not to be taken for complete."""
    for file in (rundir.checksums, rundir.attestation):
        file.unlink(missing_ok=True)


def digests_of(rundir: RunDir, runs: Iterable[Path], known: Mapping[str, str] = MappingProxyType({})) -> dict[str, str]:
    """Path in the output folder -> SHA-256 of every file that is part of the result.

    Args:
        known: those of files that have not changed since.
    """
    files = {path.relative_to(rundir.root).as_posix(): path for path in files_of_result(rundir, runs)}
    return {name: known.get(name) or sha256_of(path) for name, path in files.items()}


def files_of_result(rundir: RunDir, runs: Iterable[Path]) -> list[Path]:
    """Not logs, which the next command goes on writing; not data sets, whose hashes are in the provenance."""
    others = (rundir.run_config, rundir.packages, rundir.run_state, rundir.own_data, rundir.cache_db)
    single = (*rundir.results, *others)
    found = {path for path in single if path.is_file()}
    for folder, pattern in (
        (rundir.responses, "*"), (rundir.model_configs, "*"), (rundir.annotations, "*"), (rundir.helm, "*.json"),
    ):  # fmt: skip
        found |= {path for path in folder.glob(pattern) if path.is_file()}
    for folder in runs:
        found |= {path for path in folder.rglob("*") if path.is_file()}
    return sorted(found)


def read_checksums(path: Path) -> dict[str, str]:
    """Path in the output folder -> SHA-256 that it had.

    Raises:
        ChecksumsError: a line has another form, or a path leads out of the folder.
        OSError: it cannot be read.
    """
    found: dict[str, str] = {}
    for number, line in enumerate(path.read_text(encoding="utf-8", errors="surrogateescape").splitlines(), start=1):
        match = _LINE.fullmatch(line)
        if match is None:
            raise ChecksumsError(f"line {number} is no SHA-256 with the path of a file")
        name = match["name"]
        if match["escaped"]:
            name = re.sub(r"\\[\\nr]", lambda escape: _ESCAPES[escape[0]], name)
        if not leads_inside(name):
            raise ChecksumsError(f"line {number} names a file outside of the folder")
        found[name] = match["digest"]
    return found


def leads_inside(name: str) -> bool:
    """Whether a relative path stays in the folder that it begins in, as far as its text tells."""
    path = Path(name)
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts)


def result_statement(result: TaskResult, digests: Mapping[str, str]) -> dict[str, Any]:
    """The in-toto statement: these files, and what they say.

    `WARNED` is a result with instances, or judgements, missing that may be reported all the same; `FAILED` one that
    may not be. It says nothing of how good the score is.
    """
    outcome = "FAILED" if not result.reportable else "PASSED" if result.status == RunStatus.COMPLETE else "WARNED"
    configuration = [subject for subject in _descriptors(digests) if subject["name"] == "run_config.yml"]
    return {
        "_type": STATEMENT_TYPE,
        "subject": _descriptors(digests),
        "predicateType": _PREDICATE_TYPE,
        "predicate": {
            "result": outcome,
            "configuration": configuration,
            **{f"{kind.lower()}Tests": [result.task] * (kind == outcome) for kind in ("PASSED", "WARNED", "FAILED")},
            EXTENSION: {
                "task": result.task,
                "mainMetric": result.main_metric,
                "scores": {name: asdict(score) for name, score in result.scores.items()},
                "provenance": asdict(result.provenance),
            },
        },
    }


def _descriptors(digests: Mapping[str, str]) -> list[dict[str, Any]]:
    return [{"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())]


def _line(name: str, digest: str) -> str:
    """As GNU coreutils writes it: a name with a backslash or a line break is escaped, and its line begins so."""
    escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
    return f"{'' if escaped == name else chr(92)}{digest}  {escaped}\n"
