"""Checks the lines of a ledger: the fields of each line, and the order of the lines.

A person who can write to the folder can compute the chain of hashes again. These checks detect
altered lines even if all hashes are valid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta, timezone

from eval_factory.core.enums import Verdict
from eval_factory.core.results import UTC_FORMAT
from eval_factory.monitor.course import FIGURES_VERSION
from eval_factory.monitor.ledger import (
    BASELINE,
    BASELINE_AGAIN_FIELD,
    BEGUN,
    CHANGE,
    LOOK,
    NOT_MADE,
    NOTE,
    READER_FIELD,
    Line,
)
from eval_factory.reading import READER_VERSION
from eval_factory.scoring.methods import STATISTICS_VERSION

MAX_CLOCK_DIFFERENCE = timedelta(minutes=5)
"""The greatest tolerated difference between the clocks of the machines that write a ledger."""

# the fields of all lines; `epoch` is the number of the baseline, and `panel` is the hash of the
# panel's fixed settings
_COMMON_FIELDS = frozenset(("number", "kind", "at", "previous", "epoch", "panel"))
_BASELINE_FIELDS = (
    "fixed why target alpha looks seed alarm_on harm_alpha policy_sha256 repeats limits "
    "watched power"
)
_LOOK_FIELDS = "look evidence folder values runs limits e alarm changed figures watched"
_CHANGE_FIELDS = "change folder old new outcome policy_sha256 checks runs"
FIELDS = {
    BASELINE: _COMMON_FIELDS | frozenset(_BASELINE_FIELDS.split()),
    BEGUN: _COMMON_FIELDS | {"look"},
    LOOK: _COMMON_FIELDS | frozenset(_LOOK_FIELDS.split()),
    NOT_MADE: _COMMON_FIELDS | {"look", "reason"},
    NOTE: _COMMON_FIELDS | {"by", "text"},
    CHANGE: _COMMON_FIELDS | frozenset(_CHANGE_FIELDS.split()),
}
"""Dict from the kind of a line to the fields that a line of this kind must have."""
_OPTIONAL_FIELDS = {READER_FIELD, BASELINE_AGAIN_FIELD, "statistics", "figures_version", "differ"}
"""Fields that lines of earlier versions of this program do not have."""
_VERSIONS = {
    READER_FIELD: READER_VERSION,
    "statistics": STATISTICS_VERSION,
    "figures_version": FIGURES_VERSION,
}
"""Dict from a field with a version to the newest version that this program knows."""
# Fields whose values are checked in each line that has the field.
_WHOLE_NUMBERS = ("number", "epoch", "look", "evidence", "change", "seed")
_TEXTS = ("why", "by", "text", "reason")
_OBJECTS = {
    "target": {"name", "model"},
    "old": {"name", "model"},
    "new": {"name", "model", "fixed"},
}
"""Dict from a field to the keys of its JSON object."""
_REPEAT_KEYS = {"folder", "values", "runs"}  # of each object in `repeats`
_RUN_KEYS = {"task", "folder", "sha256"}  # of each object in `runs`
_SHA256 = re.compile("[0-9a-f]{64}")
_MAX_SHOWN = 40  # the maximum number of characters of a wrong value in a message

FORM_ERRORS = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError)
"""The errors that code raises when the value of a field has another type than expected."""


def time_of(text: object) -> datetime:
    """Return the time that a text states. Raises ValueError if the text has another format."""
    return datetime.strptime(str(text), UTC_FORMAT).replace(tzinfo=timezone.utc)


def order_problems(lines: Sequence[Line]) -> Iterator[str]:
    """Yield signs that lines were changed, removed or inserted.

    The signs are missing fields, invalid values, and contradictions between lines. Raises one of
    FORM_ERRORS if a value has another type than this program writes.
    """
    state = _LedgerState()
    for line in lines:
        label = f"line {line.get('number')}"
        fields = FIELDS.get(str(line.get("kind")))
        if fields is None:
            yield f"{label}: has an unknown kind: {_shown(line.get('kind'))}"
            continue
        present = line.keys() - _OPTIONAL_FIELDS
        if fields != present:
            names = ", ".join(sorted(fields ^ present))  # ^: the names in only one of the two sets
            yield f"{label}: is not a {line['kind']} line: missing or unknown fields: {names}"
            continue
        for problem in (*_form_problems(line), *state.problems_of_next(line)):
            yield f"{label}: {problem}"


def _shown(value: object) -> str:
    """Return a wrong value as a text for a message."""
    return str(value)[:_MAX_SHOWN]


def _form_problems(line: Line) -> Iterator[str]:
    """Yield a problem for each value that this program would write in another form."""
    # `isinstance` would accept True, because a bool is an int.
    for name in _WHOLE_NUMBERS:
        if name in line and type(line[name]) is not int:
            yield f"{name} is not a whole number: {_shown(line[name])}"
    for name in _TEXTS:
        if name in line and not _is_text(line[name]):
            yield f"{name} is not a text"
    for name, newest in _VERSIONS.items():
        version = line.get(name, 1)
        if type(version) is not int or not 1 <= version <= newest:
            yield f"{name} is not a known version: {_shown(version)}"
    policy_sha256 = line.get("policy_sha256")
    if policy_sha256 is not None and not _SHA256.fullmatch(str(policy_sha256)):
        yield "policy_sha256 is not a hash"
    for name, keys in _OBJECTS.items():
        if name in line and line[name].keys() != keys:
            yield f"{name} has other fields than {', '.join(sorted(keys))}"
    repeats = line.get("repeats", [])
    runs = list(line.get("runs", []))
    for repeat in repeats:
        runs += repeat["runs"]
    if any(repeat.keys() != _REPEAT_KEYS for repeat in repeats):
        yield f"a repeat has other fields than {', '.join(sorted(_REPEAT_KEYS))}"
    if any(run.keys() != _RUN_KEYS for run in runs):
        yield f"a run has other fields than {', '.join(sorted(_RUN_KEYS))}"
    if line["kind"] == CHANGE and line["outcome"] not in set(Verdict):
        yield f"outcome is not a verdict: {_shown(line['outcome'])}"


def _is_text(value: object) -> bool:
    """Return True if the value is a text that is not blank."""
    return isinstance(value, str) and bool(value.strip())


class _LedgerState:
    """The state of a ledger after some lines; it determines which line may be next."""

    def __init__(self) -> None:
        self._baseline: Line | None = None
        self._begun: Line | None = None  # the line of a look that has not ended
        self._has_looks = False  # True if a look was made since the baseline
        self._last_look = 0  # the number of the last look
        self._last_change = 0  # the number of the last change
        self._latest = datetime.min.replace(tzinfo=timezone.utc)  # the latest time of a line

    def problems_of_next(self, line: Line) -> Iterator[str]:
        """Yield the problems of the next line, and update the state."""
        yield from self._time_problems(line)
        kind = line["kind"]
        if kind == BASELINE:
            yield from self._baseline_problems(line)
        elif self._baseline is None:
            yield f"a {kind} comes before the first baseline"
            return
        else:
            for name in ("epoch", "panel"):
                if line[name] != self._baseline[name]:
                    yield f"{name} is not that of the baseline"
        if kind == BEGUN:
            yield from self._begun_problems(line)
        elif kind in (LOOK, NOT_MADE):
            yield from self._end_problems(line)
        elif kind == CHANGE:
            self._last_change += 1
            yield from _number_problems(line, "change", self._last_change, "changes")
            yield from self._change_problems(line)

    def _change_problems(self, line: Line) -> Iterator[str]:
        """Yield how a change contradicts the baseline."""
        baseline = self._baseline or {}  # never empty: `problems_of_next` has checked it
        if line["old"] != baseline["target"]:
            yield "old is not the model that the baseline watches"
        if line["policy_sha256"] != baseline["policy_sha256"]:
            yield "the policy is not the policy that was fixed with the baseline"

    def _time_problems(self, line: Line) -> Iterator[str]:
        """Yield what is wrong with the time of a line."""
        try:
            time = time_of(line["at"])
        except ValueError:
            yield f"at is not a time: {_shown(line['at'])}"
            return
        # `time_of` also accepts numbers without leading zeros.
        if time.strftime(UTC_FORMAT) != line["at"]:
            yield f"at is not in the format of this program: {_shown(line['at'])}"
        if self._latest - time > MAX_CLOCK_DIFFERENCE:
            yield f"at {line['at']} is before the previous line"
        if time - datetime.now(timezone.utc) > MAX_CLOCK_DIFFERENCE:
            yield f"at {line['at']} is in the future"
        self._latest = max(self._latest, time)

    def _baseline_problems(self, line: Line) -> Iterator[str]:
        """Yield what is wrong with the line of a baseline."""
        last_epoch = 0
        # Before the first look, a baseline may be replaced by a baseline with more runs and the
        # same epoch.
        replaces_last = False
        if self._baseline is not None:
            last_epoch = self._baseline["epoch"]
            replaces_last = not self._has_looks and line["epoch"] == last_epoch
        if line["epoch"] != last_epoch + 1 and not replaces_last:
            yield f"epoch is {line['epoch']}, but {last_epoch + 1} was expected"
        if self._begun is not None:
            yield f"look {self._begun['look']} was started before, and has no end"
        if len(line["repeats"]) != line["fixed"]["repeats"]:
            yield "the number of repeats is not that of the panel"
        yield from _limit_problems(line)
        for number, repeat in enumerate(line["repeats"], start=1):
            if repeat["folder"] != f"baseline/{line['epoch']}/{number}":
                yield f"run {number} is in the folder {repeat['folder']}"
        self._baseline = line
        self._begun = None
        self._has_looks = False

    def _begun_problems(self, line: Line) -> Iterator[str]:
        """Yield what is wrong with the start of a look."""
        if self._begun is not None:
            yield f"look {self._begun['look']} was started before, and has no end"
        self._last_look += 1
        if line["look"] != self._last_look:
            yield f"look is {line['look']}, but {self._last_look} was expected"
        self._begun = line

    def _end_problems(self, line: Line) -> Iterator[str]:
        """Yield what is wrong with the end of a look."""
        if self._begun is None or self._begun["look"] != line["look"]:
            yield f"look {line['look']} ends, and was not started before"
        elif line["kind"] == LOOK:
            # The number is that of the started look, so only the folder can be wrong.
            yield from _number_problems(line, "look", line["look"], "looks")
        self._has_looks = self._has_looks or line["kind"] == LOOK
        self._begun = None


def _limit_problems(baseline: Line) -> Iterator[str]:
    """Yield how the limits of a baseline differ from the fixed limits of the panel."""
    stated = {}
    for limit in baseline["limits"]:
        stated[limit["name"]] = limit
        group = ""  # the limit is for the complete task
        if limit["field"] is not None or limit["value"] is not None:
            group = f", {limit['field']}={limit['value']}"
        if limit["name"] != f"{limit['task']}{group}":
            yield f"limits: {limit['name']} is not of its task and group"
    fixed = baseline["fixed"]["limits"]
    if list(stated) != list(fixed):
        yield "limits are not the fixed limits of the panel"
        return
    for name, limit in stated.items():
        metric, max_drop = fixed[name]
        # The metric is None for a limit of the task's main metric; its name is not checked.
        if max_drop != limit["max_drop"] or metric not in (None, limit["metric"]):
            yield f"limits: {name} is not the fixed limit of the panel"


def _number_problems(line: Line, key: str, expected: int, parent_folder: str) -> Iterator[str]:
    """Yield what is wrong with the number and the folder of a look or a change.

    `key` is the key of the number.
    """
    if line[key] != expected:
        yield f"{key} is {line[key]}, but {expected} was expected"
    if line["folder"] != f"{parent_folder}/{expected:04}":
        yield f"is in the folder {line['folder']}"
