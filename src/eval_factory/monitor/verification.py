"""Verifies a panel's ledger: the hashes and the order of its lines, the runs' files, all figures.

The figures in the ledger are computed again from the runs, and compared. Only simulations by
another version of this program are not repeated; `uncompared_figures_lines` reports these.
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
from eval_factory.monitor import simulation
from eval_factory.monitor.course import (
    FIGURES_VERSION,
    PanelTests,
    limits_of,
    power_of,
    replayed_tests,
)
from eval_factory.monitor.ledger import (
    BASELINE,
    BASELINE_AGAIN_FIELD,
    BEGUN,
    CHANGE,
    LOOK,
    NEW_MODEL,
    NOT_MADE,
    History,
    Ledger,
    Line,
    reader_version_of,
)
from eval_factory.monitor.ledger_order import (
    FORM_ERRORS,
    MAX_CLOCK_DIFFERENCE,
    order_problems,
    time_of,
)
from eval_factory.monitor.made_elsewhere import identity_of
from eval_factory.monitor.measurement import VALUES_FILE, measure, read_values, run_folders_of
from eval_factory.monitor.panel import Limit, digest_of
from eval_factory.reading import READER_VERSION
from eval_factory.report.checksums import ChecksumsError, read_checksums
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.workflows.read_again import read_by_one_version

# The same simulation may give slightly different numbers on another kind of processor.
_MAX_SHARE_DIFFERENCE = 0.02  # the tolerated difference of shares of simulated panels
_MAX_WEEKS_DIFFERENCE = 1  # the tolerated difference of the number of looks until the alarm
_MAX_SHOWN = 80  # the maximum number of characters of a figure in a message


def verify_panel(folder: Path, head: str | None = None) -> list[str]:
    """Return the signs that a ledger was changed, or that it contradicts its runs.

    Args:
        folder: the panel's folder.
        head: a hash that a look printed; the ledger must have a line with this hash.

    Raises:
        PrerequisiteError: The ledger cannot be read.
    """
    history = Ledger(folder).read()
    # Each line contains the hash of the line before it; `history.head` is that of the last line.
    hashes = [line.get("previous") for line in history.lines]
    if head is not None and head not in (history.head, *hashes):
        lost = f"ledger.jsonl: no line has the hash {head}: lines were changed or removed"
        return [*history.problems, lost]
    if history.problems:  # the figures of changed lines need no further check
        return list(history.problems)
    findings = _collected(folder.name, _folder_problems(folder, history))
    findings += _collected("ledger.jsonl", order_problems(history.lines))
    limits: list[Limit] = []  # the limits of the last baseline: the permitted drops of scores
    for line in history.lines:
        label = f"line {line['number']}"
        try:
            if line["kind"] == BASELINE:
                limits = limits_of(line)
            for problem in _file_problems(folder, line, limits):
                findings.append(f"{label}: {problem}")
            for problem in _run_problems(folder, line, history):
                findings.append(f"{label}: {problem}")
            if line["kind"] == BASELINE:
                for problem in _figure_problems(folder, line, history):
                    findings.append(f"{label}, {problem}")
        except EvalFactoryError as error:
            for text in str(error).splitlines():
                findings.append(f"{label}: {text}")
        except FORM_ERRORS as error:
            findings.append(
                f"{label}: this version cannot read the line ({type(error).__name__}: {error})"
            )
    return findings


def _collected(label: str, problems: Iterator[str]) -> list[str]:
    """Return the problems. If a line of the ledger cannot be read, the last problem reports this.

    `label` begins the last problem.
    """
    findings: list[str] = []
    try:
        findings.extend(problems)  # the generator reads the lines only now, so it raises here
    except FORM_ERRORS as error:
        kind = type(error).__name__
        findings.append(f"{label}: this version cannot read one of the lines ({kind}: {error})")
    return findings


def _folder_problems(folder: Path, history: History) -> Iterator[str]:
    """Yield a problem for each folder in the panel's folder that no line accounts for."""
    yield from _look_folder_problems(folder, history)
    yield from _baseline_folder_problems(folder, history)
    yield from _change_folder_problems(folder, history)


def _look_folder_problems(folder: Path, history: History) -> Iterator[str]:
    """Yield a problem for each folder of a look that no line accounts for."""
    # The name of a look's folder is its number with four digits.
    begun = {f"{line.get('look'):04}" for line in history.of_kind(BEGUN)}
    ended = set()
    for line in (*history.of_kind(LOOK), *history.of_kind(NOT_MADE)):
        ended.add(f"{line.get('look'):04}")
    for look_folder in sorted((folder / "looks").glob("*")):
        name = look_folder.name
        if look_folder.is_dir() and name not in begun:
            yield f"looks/{name}: no line of the ledger says that this look was started"
        elif (look_folder / VALUES_FILE).exists() and name not in ended:
            yield f"looks/{name}: was measured, but no line of the ledger names this folder"


def _baseline_folder_problems(folder: Path, history: History) -> Iterator[str]:
    """Yield a problem for each measured repeat of a baseline that no line accounts for."""
    recorded: set[str | None] = set()
    for line in history.of_kind(BASELINE):
        recorded.update(repeat.get("folder") for repeat in line.get("repeats", ()))
    for values_file in sorted(folder.glob(f"baseline/*/*/{VALUES_FILE}")):
        name = values_file.parent.relative_to(folder).as_posix()
        if name not in recorded:
            yield f"{name}: was measured, but no line of the ledger names this folder"


def _change_folder_problems(folder: Path, history: History) -> Iterator[str]:
    """Yield a problem for each folder of a change that no line accounts for."""
    recorded = {line.get("folder") for line in history.of_kind(CHANGE)}
    unfinished = f"changes/{len(recorded) + 1:04}"  # an unfinished change has no line yet
    for change_folder in sorted((folder / "changes").glob("*")):
        name = f"changes/{change_folder.name}"
        if change_folder.is_dir() and name not in recorded and name != unfinished:
            yield f"{name}: no line of the ledger names this folder"


def _askings_of(line: Line) -> Sequence[Line]:
    """Return the askings of a line: the repeats of a baseline, or the look or change itself.

    Other lines have no askings.
    """
    if line["kind"] == BASELINE:
        repeats: Sequence[Line] = line["repeats"]
        return repeats
    if line["kind"] in (LOOK, CHANGE):
        return [line]
    return []


def _runs_of(askings: Iterable[Line]) -> Iterator[Line]:
    """Yield the runs of these askings: an asking has a run for each task."""
    for asking in askings:
        yield from asking["runs"]


def _run_problems(folder: Path, line: Line, history: History) -> Iterator[str]:
    """Yield how a line's time, tasks and models contradict the results of its runs."""
    for run in _runs_of(_askings_of(line)):
        stored = load_result(folder / run["folder"])
        ended = stored.result.provenance.ended_at
        if ended is not None and time_of(line["at"]) < time_of(ended) - MAX_CLOCK_DIFFERENCE:
            yield f"at {line['at']} is before the end of {run['folder']} ({ended})"
        if Path(run["folder"]).name != run["task"]:
            yield f"{run['folder']}: is not a run of {run['task']}"
        target = _target_of(line, history, Path(run["folder"]).parent.name)
        if target.get("model") != _model_of(stored):
            model = _model_of(stored)
            yield f"the model is {target.get('model')}, but {run['folder']} asked {model}"


def _target_of(line: Line, history: History, name: str) -> Mapping[str, Any]:
    """Return the target that a run of this line should have asked.

    `name` is the name of the folder that contains the run. For a baseline or a look, this is the
    name of the target of the last baseline. Return an empty mapping if it is another name: the
    model of the run then counts as wrong.
    """
    if line["kind"] == CHANGE:
        key = "old"
        if name == NEW_MODEL:
            key = "new"
        target: Mapping[str, Any] = line[key]
        return target
    up_to_line = history.lines[: line["number"]]
    baselines = [earlier for earlier in up_to_line if earlier["kind"] == BASELINE]
    target = baselines[-1]["target"]
    if name != target["name"]:
        return {}
    return target


def _model_of(stored: StoredResult) -> str:
    """Return the id of the model that a run asked."""
    return str(stored.target["api_endpoint"]["model_id"])


def _file_problems(folder: Path, line: Line, limits: Sequence[Limit]) -> Iterator[str]:
    """Yield a problem for each changed file of a line's runs and askings.

    Each run has a file of checksums; the ledger has the hash of this file. The stored values of an
    asking are compared with the values in its runs.
    """
    askings = _askings_of(line)
    for run in _runs_of(askings):
        rundir = RunDir(folder / run["folder"])
        try:
            if sha256_of(rundir.checksums, folder) != run["sha256"]:
                yield f"{run['folder']}/SHA256SUMS: does not have the hash in the ledger"
                continue
            for name, digest in read_checksums(rundir.checksums).items():
                if sha256_of(rundir.root / name, folder) != digest:
                    yield f"{run['folder']}/{name}: was changed"
        except (OSError, ChecksumsError) as error:
            file = getattr(error, "filename", None) or ""  # a ChecksumsError has no file name
            yield f"{run['folder']}: cannot be read: {file} {error}"
    if line["kind"] == CHANGE:  # A change has no stored values.
        return
    for asking in askings:
        target_folder = (folder / asking["runs"][0]["folder"]).parent
        stored = read_values(folder / asking["folder"], sha256=asking["values"])
        measured = measure(target_folder, limits)
        if not stored.answers:  # earlier versions of this program stored no hashes of answers
            measured = replace(measured, answers={})
        if measured != stored:
            yield f"{asking['folder']}/values.json: does not have the values of its runs"


def _figure_problems(folder: Path, baseline: Line, history: History) -> Iterator[str]:
    """Yield the figures of a baseline and its looks that differ from the computed figures."""
    tests = replayed_tests(baseline, folder)
    if digest_of(baseline["fixed"]) != baseline["panel"]:
        yield "panel: is not the hash of the fixed settings"
    looks = history.looks_after(baseline)
    yield from _configuration_problems(folder, baseline, looks)
    figures = _as_json(tests.baseline_entries())
    for key in ("alpha", "looks", "alarm_on"):
        figures[key] = baseline["fixed"][key]
    figures["harm_alpha"] = tests.rules.harm_alpha
    yield from _differences(baseline, figures)
    if not is_simulated_otherwise(baseline):
        power = _as_json(power_of(tests))
        if not _is_same_power(baseline["power"], power):
            yield "power: the simulation with these runs finds other drops"
    reader_version = reader_version_of(baseline)
    for index, line in enumerate(looks):
        if reader_version_of(line) != reader_version:
            # From this look on, the baseline and all looks are read by the version of the look.
            reader_version = reader_version_of(line)
            tests = _tests_read_again(baseline, folder, looks[:index])
        measurement = read_values(folder / line["folder"], sha256=line["values"])
        figures = tests.add_look(line["look"], measurement)
        if BASELINE_AGAIN_FIELD in line:
            figures[BASELINE_AGAIN_FIELD] = tests.baseline_entries()["limits"]
        figures = _as_json(figures)
        figures["evidence"] = index + 1  # the number of looks that count as evidence
        figures["panel"] = baseline["panel"]
        for text in _differences(line, figures):
            yield f"look {line['look']} (line {line['number']}): {text}"


def _configuration_problems(folder: Path, baseline: Line, looks: Sequence[Line]) -> Iterator[str]:
    """Yield a problem for each run with another configuration than the panel's."""
    for run in _runs_of([*_askings_of(baseline), *looks]):
        identity = identity_of(load_result(folder / run["folder"]).result)
        if identity != baseline["fixed"]["runs"][run["task"]]:
            yield f"{run['folder']}: is a run of another configuration than the panel's"


def _as_json(figures: Mapping[str, Any]) -> dict[str, Any]:
    """Return figures with JSON types, as a line of the ledger has them."""
    converted: dict[str, Any] = json.loads(json_line(figures))
    return converted


def is_simulated_otherwise(baseline: Line) -> bool:
    """Return True if another version of the simulation computed which drops the panel finds.

    The simulated findings are then not compared.
    """
    return bool(baseline.get("figures_version", 1) != FIGURES_VERSION)


def uncompared_figures_lines(history: History) -> list[str]:
    """Return a text about each figure that `verify_panel` does not compare.

    An earlier version of this program computed these figures by another method.
    """
    texts = []
    for line in history.of_kind(BASELINE):
        if is_simulated_otherwise(line):
            texts.append(
                f"line {line['number']}: not compared: the drops that the panel finds (power), "
                "because an earlier version simulated them by another method"
            )
    return texts


def _tests_read_again(baseline: Line, folder: Path, looks: Sequence[Line]) -> PanelTests:
    """Return the tests after these looks, with all answers read by the present `reading`."""
    with read_by_one_version(
        run_folders_of(folder, [baseline, *looks]), other_version=READER_VERSION
    ) as load:
        return replayed_tests(baseline, folder, looks, load=load)


def _differences(line: Line, figures: Line) -> Iterator[str]:
    """Yield the figures of a line that differ from the computed figures."""
    for key in figures:
        if not _is_same_value(line[key], figures[key]):
            yield (
                f"{key} is {json.dumps(line[key])[:_MAX_SHOWN]}, "
                f"but the runs give {json.dumps(figures[key])[:_MAX_SHOWN]}"
            )


def _is_same_value(stored: Any, computed: Any) -> bool:
    """Return True if two JSON values are equal; two floats may differ by a billionth.

    If a float is greater than 1, the tolerance is a billionth of the greater float. Floats may
    differ because another processor rounds in another way.
    """
    if isinstance(stored, bool) or isinstance(computed, bool):  # in Python, True is equal to 1
        return stored is computed
    if isinstance(stored, dict) and isinstance(computed, dict):
        return stored.keys() == computed.keys() and all(
            _is_same_value(stored[key], computed[key]) for key in stored
        )
    if isinstance(stored, list) and isinstance(computed, list):
        return len(stored) == len(computed) and all(map(_is_same_value, stored, computed))
    if isinstance(stored, float) and isinstance(computed, float):
        are_finite = math.isfinite(stored) and math.isfinite(computed)
        if not are_finite:
            return False
        return abs(stored - computed) <= 1e-9 * max(1.0, abs(stored), abs(computed))
    return bool(stored == computed)


def _is_same_power(stored: Line, computed: Line) -> bool:
    """Return True if two simulations agree, within the tolerance for other processors."""
    if stored.keys() != computed.keys():
        return False
    return all(_is_same_limit(stored[name], computed[name]) for name in stored)


def _is_same_limit(stored: Line, computed: Line) -> bool:
    """Return True if two simulations of a limit agree, within the tolerance.

    `stored` and `computed` have the keys that `power_of` describes.
    """
    if stored.keys() != computed.keys() or len(stored["finds"]) != len(computed["finds"]):
        return False
    for stored_drop, computed_drop in zip(stored["finds"], computed["finds"], strict=True):
        if not _is_same_drop(stored_drop, computed_drop):
            return False
    if not _is_same_value(stored["drop"], computed["drop"]):
        return False
    # If a share is near the threshold, the number of needed runs may differ: do not compare it.
    for find in stored["finds"]:
        if abs(find["share"] - simulation.RELIABLE_SHARE) <= _MAX_SHARE_DIFFERENCE:
            return True
    return bool(stored["needed"] == computed["needed"])


def _is_same_drop(stored: Line, computed: Line) -> bool:
    """Return True if two simulations of a drop agree, within the tolerance.

    `stored` and `computed` have the fields of a `DropFinding`.
    """
    if stored.keys() != computed.keys():
        return False
    if not _is_same_value(stored["drop"], computed["drop"]):
        return False
    if isinstance(stored["share"], bool) or isinstance(stored["weeks"], bool):
        return False  # Python would calculate with True as with 1
    if abs(stored["share"] - computed["share"]) > _MAX_SHARE_DIFFERENCE:
        return False
    if stored["weeks"] == computed["weeks"]:
        return True
    if stored["weeks"] is None or computed["weeks"] is None:
        return False
    return bool(abs(stored["weeks"] - computed["weeks"]) <= _MAX_WEEKS_DIFFERENCE)
