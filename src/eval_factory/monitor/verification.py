"""Compare a panel's ledger with its runs: the chain and order of its lines, the runs' files, and
every figure, computed again.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.core.errors import EvalFactoryError
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import json_line
from eval_factory.monitor import detector
from eval_factory.monitor.course import (
    FIGURES_VERSION,
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
    BASELINE_AGAIN,
    BEGUN,
    CHANGE,
    LOOK,
    NOT_MADE,
    History,
    Ledger,
    Line,
    line_reader,
)
from eval_factory.monitor.ledger_order import (
    FORM_ERRORS,
    MAX_CLOCK_DIFFERENCE,
    order_problems,
    time_of,
)
from eval_factory.monitor.made_elsewhere import identity_of
from eval_factory.monitor.panel import Limit, digest_of
from eval_factory.reading import VERSION
from eval_factory.report.checksums import ChecksumsError, read_checksums
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.workflows.read_again import read_by_one_rule

_SHARES_DIFFER = 0.02  # shares of simulated years, at most, between two processors
_WEEKS_DIFFER = 1


def verify_panel(folder: Path, head: str | None = None) -> list[str]:
    """Find what shows that a ledger is not what its runs say.

    The chain of its lines, the runs' files and every figure are checked. `head` is the hash that a
    look printed, of a line that has to be in the ledger. Raises PrerequisiteError: the ledger
    cannot be read.
    """
    history = Ledger(folder).read()
    hashes = [line.get("previous") for line in history.lines]
    if head is not None and head not in (history.head, *hashes):
        lost = f"ledger.jsonl: no line has the hash {head}: lines were changed, or dropped"
        return [*history.problems, lost]
    if history.problems:  # figures of lines that were changed say nothing
        return list(history.problems)
    findings = _safely(folder.name, _folder_problems(folder, history))
    findings += _safely("ledger.jsonl", order_problems(history.lines))
    limits: list[Limit] = []
    for line in history.lines:
        label = f"line {line['number']}"
        try:
            if line["kind"] == BASELINE:
                limits = limits_of(line)
            for problem in _of_files(folder, line, limits):
                findings.append(f"{label}: {problem}")
            for problem in _of_runs(folder, line, history):
                findings.append(f"{label}: {problem}")
            if line["kind"] == BASELINE:
                for problem in _figures(folder, line, history):
                    findings.append(f"{label}, {problem}")
        except EvalFactoryError as error:
            for text in str(error).splitlines():
                findings.append(f"{label}: {text}")
        except FORM_ERRORS as error:
            findings.append(
                f"{label}: this version cannot read the line ({type(error).__name__}: {error})"
            )
    return findings


def _safely(label: str, problems: Iterator[str]) -> list[str]:
    """The problems up to a line that cannot be understood, which is a problem itself."""
    findings: list[str] = []
    try:
        findings.extend(problems)
    except FORM_ERRORS as error:
        kind = type(error).__name__
        findings.append(f"{label}: this version cannot read one of the lines ({kind}: {error})")
    return findings


def _folder_problems(folder: Path, history: History) -> Iterator[str]:
    """Folders with answers that no line tells of."""
    begun = set()
    for line in history.of_kind(BEGUN):
        begun.add(f"{line.get('look'):04}")
    ended = set()
    for line in (*history.of_kind(LOOK), *history.of_kind(NOT_MADE)):
        ended.add(f"{line.get('look'):04}")
    for look in sorted((folder / "looks").glob("*")):
        if look.is_dir() and look.name not in begun:
            yield f"looks/{look.name}: no line of the ledger says that it was started"
        elif (look / VALUES).exists() and look.name not in ended:
            yield f"looks/{look.name}: was measured, and no line of the ledger tells of it"
    named: set[str | None] = set()
    for line in history.of_kind(BASELINE):
        named.update(part.get("folder") for part in line.get("repeats", ()))
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


def _runs_of(parts: Iterable[Line]) -> Iterator[Line]:
    for part in parts:
        yield from part["runs"]


def _of_runs(folder: Path, line: Line, history: History) -> Iterator[str]:
    """Check a line's time, and the models that it names, by the results of its runs."""
    for run in _runs_of(_parts_of(line)):
        stored = load_result(folder / run["folder"])
        ended = stored.result.provenance.ended_at
        if ended is not None and time_of(line["at"]) < time_of(ended) - MAX_CLOCK_DIFFERENCE:
            yield f"at {line['at']} is before the end of {run['folder']} ({ended})"
        if Path(run["folder"]).name != run["task"]:
            yield f"{run['folder']}: is not a run of {run['task']}"
        target = _target_of(line, history, Path(run["folder"]).parent.name)
        if target.get("model") != _model_of(stored):
            model = _model_of(stored)
            yield f"the model is {target.get('model')}, and {run['folder']} asked {model}"


def _target_of(line: Line, history: History, name: str) -> Mapping[str, Any]:
    """The ledger's entry for the target that a run asked."""
    if line["kind"] == CHANGE:
        key = "old"
        if name == "candidate":
            key = "new"
        target: Mapping[str, Any] = line[key]
        return target
    earlier = history.lines[: line["number"]]
    baselines = [earlier_line for earlier_line in earlier if earlier_line["kind"] == BASELINE]
    target = baselines[-1]["target"]
    if name != target["name"]:
        return {}
    return target


def _model_of(stored: StoredResult) -> str:
    return str(stored.target["api_endpoint"]["model_id"])


def _of_files(folder: Path, line: Line, limits: Sequence[Limit]) -> Iterator[str]:
    """Check the files of every run of a line by its checksums, and these by the ledger."""
    parts = _parts_of(line)
    for run in _runs_of(parts):
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
    if line["kind"] == CHANGE:
        return
    for part in parts:
        of_target = (folder / part["runs"][0]["folder"]).parent
        stored = read_values(folder / part["folder"], part["values"])
        measured = measure(of_target, limits)
        if not stored.answers:  # a version wrote it that did not keep them
            measured = replace(measured, answers={})
        if measured != stored:
            yield f"{part['folder']}/values.json: is not what its runs say"


def _figures(folder: Path, baseline: Line, history: History) -> Iterator[str]:
    """Compute the figures of a baseline, and of the looks after it, again from the measurements."""
    course = course_of(baseline, folder)
    if digest_of(baseline["fixed"]) != baseline["panel"]:
        yield "panel: is not the hash of what is fixed"
    looks = history.looks_after(baseline)
    yield from _other_configurations(folder, baseline, looks)
    figures = json.loads(json_line(course.of_baseline()))
    for key in ("alpha", "looks", "alarm_on"):
        figures[key] = baseline["fixed"][key]
    figures["harm_alpha"] = course.rules.harm_alpha
    yield from _differences(baseline, figures)
    if not is_simulated_otherwise(baseline):
        yield from _power_problems(folder, baseline)
    reader = line_reader(baseline)
    for number, line in enumerate(looks):
        if line_reader(line) != reader:
            reader = line_reader(line)
            course = _read_again(baseline, folder, looks[:number])
        measurement = read_values(folder / line["folder"], line["values"])
        # the figures as a line of the ledger has them
        figures = course.look(line["look"], measurement)
        if BASELINE_AGAIN in line:
            figures[BASELINE_AGAIN] = course.of_baseline()["limits"]
        figures = json.loads(json_line(figures))
        figures["evidence"] = number + 1
        figures["panel"] = baseline["panel"]
        for text in _differences(line, figures):
            yield f"look {line['look']} (line {line['number']}): {text}"


def _other_configurations(folder: Path, baseline: Line, looks: Sequence[Line]) -> Iterator[str]:
    """Runs of another configuration than the panel's."""
    parts = [*baseline.get("repeats", [baseline]), *looks]
    for run in _runs_of(parts):
        identity = identity_of(load_result(folder / run["folder"]).result)
        if identity != baseline["fixed"]["runs"][run["task"]]:
            yield f"{run['folder']}: is a run of another configuration than the panel's"


def _power_problems(folder: Path, baseline: Line) -> Iterator[str]:
    power = json.loads(json_line(power_of(course_of(baseline, folder))))
    if not _is_same_power(baseline["power"], power):
        yield "power: is not what the runs say that the panel finds"


def is_simulated_otherwise(baseline: Line) -> bool:
    """Another version simulated what the panel finds: it is not compared."""
    return bool(baseline.get("figures_version", 1) != FIGURES_VERSION)


def computed_otherwise(history: History) -> list[str]:
    """The figures that an earlier version computed otherwise, which `verify_panel` leaves out."""
    lines = []
    for line in history.of_kind(BASELINE):
        if is_simulated_otherwise(line):
            lines.append(
                f"line {line['number']}: not compared: what the panel finds (power), which an "
                "earlier version simulated otherwise"
            )
    return lines


def _read_again(baseline: Line, folder: Path, looks: Sequence[Line]) -> Course:
    """The test before a look that another rule read, with the answers read by that rule."""
    with read_by_one_rule(run_folders_of(folder, [baseline, *looks]), VERSION) as load:
        return course_of(baseline, folder, looks, load)


def _differences(line: Line, figures: Line) -> Iterator[str]:
    for key in figures:
        if not _same(line[key], figures[key]):
            yield (
                f"{key} is {json.dumps(line[key])[:80]}, "
                f"and the runs say {json.dumps(figures[key])[:80]}"
            )


def _same(stored: Any, computed: Any) -> bool:
    """Compare two values to nine digits: another processor rounds in another way."""
    if isinstance(stored, bool) or isinstance(computed, bool):
        return stored is computed
    if isinstance(stored, dict) and isinstance(computed, dict):
        return stored.keys() == computed.keys() and all(
            _same(stored[key], computed[key]) for key in stored
        )
    if isinstance(stored, list) and isinstance(computed, list):
        return len(stored) == len(computed) and all(map(_same, stored, computed))
    if isinstance(stored, float) and isinstance(computed, float):
        if not (math.isfinite(stored) and math.isfinite(computed)):
            return False
        return abs(stored - computed) <= 1e-9 * max(1.0, abs(stored), abs(computed))
    return bool(stored == computed)


def _is_same_power(stored: Line, computed: Line) -> bool:
    """Compare two simulations, with tolerance: another processor may count a year otherwise."""
    if stored.keys() != computed.keys():
        return False
    return all(_is_same_limit(stored[name], computed[name]) for name in stored)


def _is_same_limit(stored: Line, computed: Line) -> bool:
    if stored.keys() != computed.keys() or len(stored["finds"]) != len(computed["finds"]):
        return False
    for ours, theirs in zip(stored["finds"], computed["finds"], strict=True):
        if ours.keys() != theirs.keys() or not _same(ours["drop"], theirs["drop"]):
            return False
        if isinstance(ours["share"], bool) or isinstance(ours["weeks"], bool):
            return False
        if not abs(ours["share"] - theirs["share"]) <= _SHARES_DIFFER:
            return False
        weeks = (ours["weeks"], theirs["weeks"])
        if weeks[0] != weeks[1] and (None in weeks or abs(weeks[0] - weeks[1]) > _WEEKS_DIFFER):
            return False
    is_close = any(
        abs(find["share"] - detector.ENOUGH) <= _SHARES_DIFFER for find in stored["finds"]
    )
    return _same(stored["drop"], computed["drop"]) and (
        is_close or stored["needed"] == computed["needed"]
    )
