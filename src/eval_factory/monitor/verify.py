"""Whether a panel's ledger is what its runs say: the chain of its lines, the runs' files, and every figure again."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.errors import EvalFactoryError
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import json_line
from eval_factory.monitor.history import BASELINE, CHANGE, LOOK, History, limits_of
from eval_factory.monitor.ledger import Ledger
from eval_factory.monitor.measured import measure, read_values
from eval_factory.monitor.panel import Limit, digest_of
from eval_factory.report.checksums import ChecksumsError, read_checksums
from eval_factory.report.reader import load_result

_Line = Mapping[str, Any]


@dataclass(frozen=True)
class VerifiedPanel:
    findings: tuple[str, ...]  # what shows that something was changed; empty where nothing does
    lines: int
    looks: int
    head: str

    @property
    def intact(self) -> bool:
        return not self.findings


def verify_panel(folder: Path, head: str | None = None) -> VerifiedPanel:
    """
    Args:
        head: the hash that a look printed, of a line that has to be in the ledger.

    Raises:
        PrerequisiteError: the ledger cannot be read.
    """
    read = Ledger(folder).read()
    findings = list(read.problems)
    if head is not None and head not in (read.head, *(line.get("previous") for line in read.lines)):
        findings.append(f"ledger.jsonl: holds no line with the hash {head}: lines were changed, or dropped")
    if not findings:  # figures of lines that were changed say nothing
        history = History(read.lines)
        limits: list[Limit] = []
        for line in read.lines:
            where = f"line {line['number']}"
            try:
                limits = limits_of(line) if line["kind"] == BASELINE else limits
                findings += [f"{where}: {problem}" for problem in _of_files(folder, line, limits)]
                if line["kind"] == BASELINE:
                    findings += [f"{where}, {problem}" for problem in _figures(folder, line, history)]
            except EvalFactoryError as error:
                findings += [f"{where}: {text}" for text in str(error).splitlines()]
            except (LookupError, TypeError, ValueError, ArithmeticError) as error:
                findings.append(f"{where}: is no line of this version ({type(error).__name__}: {error})")
    made = sum(line.get("kind") == LOOK for line in read.lines)
    return VerifiedPanel(tuple(findings), len(read.lines), made, read.head)


def _of_files(folder: Path, line: _Line, limits: Sequence[Limit]) -> Iterator[str]:
    """Of every run that the line is about: its files are what its checksums say, and these what the ledger says."""
    parts = line["repeats"] if line["kind"] == BASELINE else [line] if line["kind"] in (LOOK, CHANGE) else []
    for run in [run for part in parts for run in part["runs"]]:
        rundir = RunDir(folder / run["folder"])
        try:
            if sha256_of(rundir.checksums, folder) != run["sha256"]:
                yield f"{run['folder']}/SHA256SUMS: is not what the ledger says"
                continue
            for name, digest in read_checksums(rundir.checksums).items():
                if sha256_of(rundir.root / name, folder) != digest:
                    yield f"{run['folder']}/{name}: was changed"
        except (OSError, ChecksumsError) as error:
            yield f"{run['folder']}: cannot be read: {getattr(error, 'filename', None) or ''} {error}"
    for part in parts if line["kind"] != CHANGE else []:
        target = part["runs"][0]["folder"].split("/")[-2]
        again = measure(folder / part["folder"], target, limits)
        stored = read_values(folder / part["folder"], part["values"])
        if json_line(again.as_document()) != json_line(stored.as_document()):
            yield f"{part['folder']}/values.json: is not what its runs say"


def _figures(folder: Path, baseline: _Line, history: History) -> Iterator[str]:
    """Of a baseline and the looks after it, made again of what was measured."""
    course = history.course(baseline, folder, tested=False)
    if digest_of(baseline["fixed"]) != baseline["panel"]:
        yield "panel: is not the hash of what is fixed"
    made = [baseline, *history.looks_after(baseline)]
    for run in [run for line in made for part in line.get("repeats", [line]) for run in part["runs"]]:
        if load_result(folder / run["folder"]).result.provenance.run_identity != baseline["fixed"]["runs"][run["task"]]:
            yield f"{run['folder']}: is a run of another configuration than the panel's"
    rules = {key: baseline["fixed"][key] for key in ("alpha", "looks", "alarm_on")}
    rules["harm_alpha"] = course.rules.harm_alpha
    yield from _other(baseline, {**_plain(course.of_baseline()), **rules})
    for evidence, line in enumerate(made[1:], start=1):
        asked = read_values(folder / line["folder"], line["values"])
        again = {**_plain(course.look(line["look"], asked)), "evidence": evidence, "panel": baseline["panel"]}
        yield from (f"look {line['look']} (line {line['number']}): {text}" for text in _other(line, again))


def _plain(fields: Mapping[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(json_line(dict(fields)))
    return found


def _other(line: _Line, again: _Line) -> Iterator[str]:
    for key in again:
        if not _same(line[key], again[key]):
            yield f"{key} is {json.dumps(line[key])[:80]}, and the runs say {json.dumps(again[key])[:80]}"


def _same(one: Any, other: Any) -> bool:
    """To nine digits: another processor rounds in another way."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= 1e-9 * max(1.0, abs(one), abs(other))
    return bool(one == other)
