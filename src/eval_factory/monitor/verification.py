"""A panel's ledger held against the runs: the chain and order of its lines, the runs' files, and
every figure again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

from eval_factory.core.errors import EvalFactoryError
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import json_line
from eval_factory.monitor import detector
from eval_factory.monitor.course import (
    VALUES,
    Course,
    course_of,
    limits_of,
    measure,
    power_of,
    read_values,
    run_folders_of,
)
from eval_factory.monitor.ledger import (
    BASELINE,
    BEGUN,
    CHANGE,
    LOOK,
    NOT_MADE,
    READER,
    History,
    Ledger,
    Line,
)
from eval_factory.monitor.ledger_order import CLOCKS_DIFFER, order_problems, time_of
from eval_factory.monitor.panel import Limit, digest_of
from eval_factory.reading import VERSION
from eval_factory.report.checksums import ChecksumsError, read_checksums
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.workflows.read_again import read_by_one_rule

_SHARES_DIFFER = 0.02  # of simulated years, at most, between two processors
_WEEKS_DIFFER = 1


def verify_panel(folder: Path, head: str | None = None) -> list[str]:
    """What shows that a ledger is not what its runs say: the chain of its lines, the runs' files,
    every figure again. `head`: the hash that a look printed, of a line that has to be in it. Raises
    PrerequisiteError: it cannot be read.
    """
    history = Ledger(folder).read()
    if head is not None and head not in (
        history.head,
        *(line.get("previous") for line in history.lines),
    ):
        lost = f"ledger.jsonl: holds no line with the hash {head}: lines were changed, or dropped"
        return [*history.problems, lost]
    if history.problems:  # figures of lines that were changed say nothing
        return list(history.problems)
    limits: list[Limit] = []
    findings = _safely(folder.name, _folder_problems(folder, history))
    findings += _safely("ledger.jsonl", order_problems(history.lines))
    for line in history.lines:
        where = f"line {line['number']}"
        try:
            limits = limits_of(line) if line["kind"] == BASELINE else limits
            findings += [f"{where}: {problem}" for problem in _of_files(folder, line, limits)]
            findings += [f"{where}: {problem}" for problem in _of_runs(folder, line, history)]
            if line["kind"] == BASELINE:
                findings += [f"{where}, {problem}" for problem in _figures(folder, line, history)]
        except EvalFactoryError as error:
            findings += [f"{where}: {text}" for text in str(error).splitlines()]
        except (LookupError, TypeError, ValueError, ArithmeticError) as error:
            findings.append(
                f"{where}: is no line of this version ({type(error).__name__}: {error})"
            )
    return findings


def _safely(where: str, problems: Iterator[str]) -> list[str]:
    """The problems up to where a line cannot be understood, which is one itself."""
    found: list[str] = []
    try:
        found.extend(problems)
    except (LookupError, TypeError, ValueError, ArithmeticError) as error:
        found.append(f"{where}: a line is none of this version ({type(error).__name__}: {error})")
    return found


def _folder_problems(folder: Path, history: History) -> Iterator[str]:
    """Folders with answers that no line tells of."""
    begun = {f"{line.get('look'):04}" for line in history.of_kind(BEGUN)}
    ends = [*history.of_kind(LOOK), *history.of_kind(NOT_MADE)]
    ended = {f"{line.get('look'):04}" for line in ends}
    for look in sorted((folder / "looks").glob("*")):
        if look.is_dir() and look.name not in begun:
            yield f"looks/{look.name}: no line of the ledger says that it was started"
        elif (look / VALUES).exists() and look.name not in ended:
            yield f"looks/{look.name}: was measured, and no line of the ledger tells of it"
    repeats = list(
        chain.from_iterable(line.get("repeats", ()) for line in history.of_kind(BASELINE))
    )
    named = {part.get("folder") for part in repeats}
    for values in sorted(folder.glob(f"baseline/*/*/{VALUES}")):
        name = values.parent.relative_to(folder).as_posix()
        if name not in named:
            yield f"{name}: was measured, and no line of the ledger tells of it"
    changes = {line.get("folder") for line in history.of_kind(CHANGE)}
    in_the_making = f"changes/{len(changes) + 1:04}"
    for change in sorted((folder / "changes").glob("*")):
        name = f"changes/{change.name}"
        if change.is_dir() and name not in changes and name != in_the_making:
            yield f"{name}: no line of the ledger tells of it"


def _parts_of(line: Line) -> Sequence[Line]:
    """The askings of a line: those of a baseline, or a look or a change itself."""
    if line["kind"] == BASELINE:
        repeats: Sequence[Line] = line["repeats"]
        return repeats
    if line["kind"] in (LOOK, CHANGE):
        return [line]
    return []


def _of_runs(folder: Path, line: Line, history: History) -> Iterator[str]:
    """When a line was written, and which models it names, by the results of its runs."""
    for run in chain.from_iterable(part["runs"] for part in _parts_of(line)):
        stored = load_result(folder / run["folder"])
        ended = stored.result.provenance.ended_at
        if ended is not None and time_of(line["at"]) < time_of(ended) - CLOCKS_DIFFER:
            yield f"at {line['at']} is before the end of {run['folder']} ({ended})"
        if Path(run["folder"]).name != run["task"]:
            yield f"{run['folder']}: is no run of {run['task']}"
        target = _target_of(line, history, Path(run["folder"]).parent.name)
        if target.get("model") != _model_of(stored):
            asked = _model_of(stored)
            yield f"the model is {target.get('model')}, and {run['folder']} asked {asked}"


def _target_of(line: Line, history: History, name: str) -> Mapping[str, Any]:
    """What the ledger says of the target that a run asked."""
    if line["kind"] == CHANGE:
        target: Mapping[str, Any] = line["new" if name == "candidate" else "old"]
        return target
    before = [one for one in history.lines[: line["number"]] if one["kind"] == BASELINE]
    target = before[-1]["target"]
    return target if name == target["name"] else {}


def _model_of(stored: StoredResult) -> str:
    return str(stored.target["api_endpoint"]["model_id"])


def _of_files(folder: Path, line: Line, limits: Sequence[Limit]) -> Iterator[str]:
    """Of every run that the line is about: its files are what its checksums say, and these what
    the ledger says.
    """
    parts = _parts_of(line)
    for run in chain.from_iterable(part["runs"] for part in parts):
        rundir = RunDir(folder / run["folder"])
        try:
            if sha256_of(rundir.checksums, folder) != run["sha256"]:
                yield f"{run['folder']}/SHA256SUMS: is not what the ledger says"
                continue
            for name, digest in read_checksums(rundir.checksums).items():
                if sha256_of(rundir.root / name, folder) != digest:
                    yield f"{run['folder']}/{name}: was changed"
        except (OSError, ChecksumsError) as error:
            yield (
                f"{run['folder']}: cannot be read: {getattr(error, 'filename', None) or ''} {error}"
            )
    for part in parts if line["kind"] != CHANGE else []:
        of_target = (folder / part["runs"][0]["folder"]).parent
        if measure(of_target, limits) != read_values(folder / part["folder"], part["values"]):
            yield f"{part['folder']}/values.json: is not what its runs say"


def _figures(folder: Path, baseline: Line, history: History) -> Iterator[str]:
    """Of a baseline and the looks after it, made again of what was measured."""
    course = course_of(baseline, folder)
    if digest_of(baseline["fixed"]) != baseline["panel"]:
        yield "panel: is not the hash of what is fixed"
    made = [baseline, *history.looks_after(baseline)]
    parts = chain.from_iterable(line.get("repeats", [line]) for line in made)
    for run in chain.from_iterable(part["runs"] for part in parts):
        if (
            load_result(folder / run["folder"]).result.provenance.run_identity
            != baseline["fixed"]["runs"][run["task"]]
        ):
            yield f"{run['folder']}: is a run of another configuration than the panel's"
    rules = {key: baseline["fixed"][key] for key in ("alpha", "looks", "alarm_on")}
    rules["harm_alpha"] = course.rules.harm_alpha
    yield from _other(baseline, {**json.loads(json_line(course.of_baseline())), **rules})
    if not _is_same_power(
        baseline["power"], json.loads(json_line(power_of(course_of(baseline, folder))))
    ):
        yield "power: is not what the runs say that the panel finds"
    reader = line_reader(baseline)
    for evidence, line in enumerate(made[1:], start=1):
        if line_reader(line) != reader:
            reader = line_reader(line)
            course = _read_again(baseline, folder, made[1:evidence])
        asked = read_values(folder / line["folder"], line["values"])
        # as a line of the ledger has it
        looked = json.loads(json_line(course.look(line["look"], asked)))
        again = {**looked, "evidence": evidence, "panel": baseline["panel"]}
        yield from (
            f"look {line['look']} (line {line['number']}): {text}" for text in _other(line, again)
        )


def line_reader(line: Line) -> int:
    """The version of the rule that read the answers when a line was written."""
    return int(line.get(READER, 1))


def _read_again(baseline: Line, folder: Path, looks: Sequence[Line]) -> Course:
    """What was measured before a look that another rule read, read by that rule."""
    with read_by_one_rule(run_folders_of(folder, [baseline, *looks]), VERSION) as load:
        return course_of(baseline, folder, looks, load)


def _other(line: Line, again: Line) -> Iterator[str]:
    for key in again:
        if not _same(line[key], again[key]):
            yield (
                f"{key} is {json.dumps(line[key])[:80]}, "
                f"and the runs say {json.dumps(again[key])[:80]}"
            )


def _same(one: Any, other: Any) -> bool:
    """To nine digits: another processor rounds in another way."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(_same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(_same, one, other))
    if isinstance(one, float) and isinstance(other, float):
        if not (math.isfinite(one) and math.isfinite(other)):
            return False
        return abs(one - other) <= 1e-9 * max(1.0, abs(one), abs(other))
    return bool(one == other)


def _is_same_power(one: Line, other: Line) -> bool:
    """Whether two simulations say the same: another processor may count a year otherwise."""
    if one.keys() != other.keys():
        return False
    return all(_is_same_limit(one[name], other[name]) for name in one)


def _is_same_limit(one: Line, other: Line) -> bool:
    if one.keys() != other.keys() or len(one["finds"]) != len(other["finds"]):
        return False
    for ours, theirs in zip(one["finds"], other["finds"], strict=True):
        if ours.keys() != theirs.keys() or not _same(ours["drop"], theirs["drop"]):
            return False
        if not abs(ours["share"] - theirs["share"]) <= _SHARES_DIFFER:
            return False
        weeks = (ours["weeks"], theirs["weeks"])
        if weeks[0] != weeks[1] and (None in weeks or abs(weeks[0] - weeks[1]) > _WEEKS_DIFFER):
            return False
    is_close = any(abs(find["share"] - detector.ENOUGH) <= _SHARES_DIFFER for find in one["finds"])
    return _same(one["drop"], other["drop"]) and (is_close or one["needed"] == other["needed"])
