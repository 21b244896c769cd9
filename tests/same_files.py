"""Two output folders compared file by file: which fields of which files differ."""

from __future__ import annotations

import json
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

NOT_COMPARED = frozenset(
    {
        "cache.db", "cache.db-wal", "cache.db-shm", "logs", "shards", "scenarios", "SHA256SUMS",
        "attestation.intoto.json",
    }
)  # fmt: skip
"""What holds no result: the store and the journal, logs, what scenarios downloaded, checksums of the other files."""

OF_A_CLOCK = (
    "results.jsonl: *.latency_s", "responses/*.jsonl: *.latency_s", "responses/*.jsonl: *.created",
    "helm/scenario_state.json: *.result.request_time", "helm/scenario_state.json: *.result.request_datetime",
    "helm/*stats.json: *[[]inference_runtime[]].*", "helm/trivial_scores.json: limit_s",
    "helm/trivial_scores.json: spent_s", "eval_factory_metrics.json: evaluation.*_seconds",
    "eval_factory_metrics.json: response_stats.*", "evaluation_config.yaml: usage.wall_s",
    "evaluation_config.yaml: usage.*latency_p??_s", "evaluation_config.yaml: provenance.*ed_at",
    "evaluation_config.yaml: provenance.endpoints.*_answer",
    "evaluation_config.yaml: provenance.run_files.*", "report.html: ", "report.md: ",
)  # fmt: skip
"""What a clock measures, the checksums of files that hold it, and pages that show it: no two runs have the same. Answers
stand in `responses/` in the order in which they came."""


def may_not_differ(found: set[str]) -> set[str]:
    """The differences that no clock explains."""
    return {one for one in found if not any(fnmatchcase(one, pattern) for pattern in OF_A_CLOCK)}


def differences(one: Path, other: Path) -> set[str]:
    """`file: field` of all that is not the same; numbers of lists are left out, and names of folders are not compared."""
    ours, others = _files(one), _files(other)
    found = {f"{name}: in one only" for name in ours.keys() ^ others.keys()}
    for name in ours.keys() & others.keys():
        texts = [
            path.read_text("utf-8").replace(str(folder), "OUTPUT_DIR")
            for path, folder in ((ours[name], one), (others[name], other))
        ]
        if texts[0] != texts[1]:
            found |= {f"{name}: {field}" for field in _fields(_parsed(name, texts[0]), _parsed(name, texts[1]))}
    return found


def _files(folder: Path) -> dict[str, Path]:
    """By their paths, without the folders in which HELM puts a run."""
    found = {}
    for path in sorted(folder.rglob("*")):
        parts = path.relative_to(folder).parts
        if path.is_file() and NOT_COMPARED.isdisjoint(parts) and not parts[-1].startswith("."):
            found["/".join(("helm", parts[-1]) if parts[:2] == ("helm", "runs") else parts)] = path
    return found


def _parsed(name: str, text: str) -> Any:
    if name.endswith(".jsonl"):
        lines = [json.loads(line) for line in text.splitlines()]
        if name.startswith("responses/"):  # an answer that was of no use has the time behind its key
            lines = [{**line, "key": line["key"].partition("#")[0]} for line in sorted(lines, key=_place)]
        return lines
    if name.endswith(".json"):
        return json.loads(text)
    return yaml.safe_load(text) if name.endswith((".yaml", ".yml")) else text


def _place(line: dict[str, Any]) -> tuple[str, float]:
    return line["key"].partition("#")[0], line["created"]


def _fields(one: Any, other: Any, path: str = "") -> Iterator[str]:
    if isinstance(one, dict) and isinstance(other, dict):
        for name in one.keys() | other.keys():
            yield from _fields(one.get(name), other.get(name), f"{path}.{name}" if path else str(name))
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        for left, right in zip(one, other, strict=True):
            named = left["name"].get("name") if isinstance(left, dict) and isinstance(left.get("name"), dict) else None
            yield from _fields(left, right, f"{path}[{named or ''}]")
    elif one != other:
        yield path
