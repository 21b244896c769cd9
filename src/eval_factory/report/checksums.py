"""Writes the two files that record what an output folder contained at the end of its run.

The two files are SHA256SUMS, which this module also reads, and the attestation. SHA256SUMS has the
format that GNU's `sha256sum -c` reads. The attestation is an in-toto statement
(https://in-toto.io/Statement/v1) whose predicate is in-toto's `test-result`
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

from eval_factory.core.enums import RunStatus
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import write_atomic

STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_UNESCAPED = {"\\": "\\", "n": "\n", "r": "\r"}
"""A dict from the character after a backslash, in an escaped name, to what both stand for."""


# `<64 hex digits>  helm/runs/stats.json`, with a backslash before the digits if the name has
# escapes. `sha256sum --binary` writes ` *` in place of the two spaces.
_CHECKSUM_LINE = re.compile(r"(?P<escaped>\\?)(?P<digest>[0-9a-f]{64}) [ *](?P<name>.+)")
_ESCAPE = re.compile(r"\\([\\nr])")  # a backslash, and the character that it escapes


class ChecksumsError(Exception):
    """Raised if a file is not a valid list of checksums."""


def write_checksums(rundir: RunDir, result: TaskResult, digests: Mapping[str, str]) -> None:
    """Write the attestation and SHA256SUMS of a finished result.

    `digests` are the SHA-256 that `digests_of` returned. SHA256SUMS is written last: if this file
    exists, the attestation does too.
    """
    statement = result_statement(result, digests)
    write_atomic(rundir.attestation, json.dumps(statement, indent=2, ensure_ascii=False) + "\n")
    listed = {**digests, rundir.attestation.name: sha256_of(rundir.attestation)}
    lines = []
    for name, digest in sorted(listed.items()):
        # As in GNU coreutils, backslashes and line breaks in a name are escaped. A line with an
        # escaped name begins with a backslash.
        escaped = name.replace("\\", "\\\\").replace("\n", "\\n").replace("\r", "\\r")
        escape_mark = ""
        if escaped != name:
            escape_mark = "\\"
        lines.append(f"{escape_mark}{digest}  {escaped}\n")
    write_atomic(rundir.checksums, "".join(lines))


def digests_of(
    rundir: RunDir, runs: Iterable[Path], known_digests: Mapping[str, str] = MappingProxyType({})
) -> dict[str, str]:
    """Return the SHA-256 of every file of the result, by the file's path in the output folder.

    Logs are left out, because the next command appends to them. Data sets are left out too; the
    provenance of the result has their SHA-256.

    Args:
        rundir: the output folder.
        runs: HELM's folders of the runs; every file in these folders is part of the result.
        known_digests: the SHA-256 of files that are known to be unchanged, by path. These files are
            not read again.
    """
    further_files = (
        rundir.run_config,
        rundir.packages,
        rundir.run_state,
        rundir.own_data,  # a record of the state of the user's files, not these files
        rundir.cache_db,
    )
    paths = {*rundir.result_files, *further_files}
    for folder, pattern in (
        (rundir.responses, "*"),
        (rundir.model_configs, "*"),
        (rundir.annotations, "*"),
        (rundir.helm, "*.json"),
        (rundir.made_pictures, "*"),
    ):
        paths.update(folder.glob(pattern))
    for folder in runs:
        paths.update(folder.rglob("*"))
    files = {}
    for path in sorted(paths):
        if path.is_file():
            files[path.relative_to(rundir.root).as_posix()] = path
    return {name: known_digests.get(name) or sha256_of(path) for name, path in files.items()}


def read_checksums(path: Path) -> dict[str, str]:
    """Return the listed SHA-256 of each file, by the file's path in the output folder.

    Raises:
        OSError: the list cannot be read.
        ChecksumsError: a line does not have the expected format, or its path leads out of the
            folder.
    """
    digests: dict[str, str] = {}
    # `surrogateescape`: the name of a file may be any bytes, also invalid UTF-8.
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    if not text:
        return digests
    # Not `splitlines`: a name may contain other line separators, such as U+2028.
    for number, line in enumerate(text.removesuffix("\n").split("\n"), start=1):
        match = _CHECKSUM_LINE.fullmatch(line)
        if match is None:
            raise ChecksumsError(f"line {number} is not a SHA-256 with the path of a file")
        name = match["name"]
        if match["escaped"]:
            name = _ESCAPE.sub(lambda escape: _UNESCAPED[escape[1]], name)
        if not leads_inside(name):
            raise ChecksumsError(f"line {number} names a file outside of the folder")
        digests[name] = match["digest"]
    return digests


def listed_checksums(rundir: RunDir) -> dict[str, str]:
    """Return the SHA-256 of each file in SHA256SUMS, by the file's path.

    The result is empty if SHA256SUMS is missing or invalid; `read_checksums` raises an error then.
    """
    try:
        return read_checksums(rundir.checksums)
    except (OSError, ChecksumsError):
        return {}


def leads_inside(name: str) -> bool:
    """Return True if a path is relative, not empty, and has no `..`.

    Only the text of the path is checked. Symbolic links are not.
    """
    path = Path(name)  # `Path("")` and `Path(".")` have no parts
    return not path.is_absolute() and ".." not in path.parts and bool(path.parts)


def result_statement(result: TaskResult, digests: Mapping[str, str]) -> dict[str, Any]:
    """Return the in-toto statement about the result and the files with these checksums.

    The statement's outcome is `FAILED` if the result must not be reported. The outcome is `WARNED`
    if the result may be reported although its status is not complete, because instances or
    judgements are missing. Otherwise the outcome is `PASSED`. The outcome does not say how good the
    score is.
    """
    if not result.reportable:
        outcome = "FAILED"
    elif result.status == RunStatus.COMPLETE:
        outcome = "PASSED"
    else:
        outcome = "WARNED"
    tests: dict[str, list[str]] = {"passedTests": [], "warnedTests": [], "failedTests": []}
    tests[f"{outcome.lower()}Tests"].append(result.task)
    subjects = [
        {"name": name, "digest": {"sha256": digest}} for name, digest in sorted(digests.items())
    ]
    return {
        "_type": STATEMENT_TYPE,
        "subject": subjects,
        "predicateType": "https://in-toto.io/attestation/test-result/v0.1",
        "predicate": {
            "result": outcome,
            "configuration": [
                subject for subject in subjects if subject["name"] == "run_config.yml"
            ],
            **tests,
            # in-toto does not define this field; its readers must ignore unknown fields.
            "evalFactory": {
                "task": result.task,
                "mainMetric": result.main_metric,
                "scores": {name: asdict(score) for name, score in result.scores.items()},
                "provenance": asdict(result.provenance),
            },
        },
    }
