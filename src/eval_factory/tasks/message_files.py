"""Rows of a custom benchmark that are conversations: JSON lines in the place of a CSV table and its prompt.

Read here by the check and by the run, so that both see the same. Messages never quote what a field holds: it may be a
patient's.

Fields of a line of JSON that holds a conversation, checked: messages name the field and never what it holds.

Files of rubric cases, JSON lines: our own form and HealthBench's, checked with line and field.

Messages name the field and never quote what it holds: it may be a patient's. Of published data only that is refused
without which no score can be computed; in a file of the user's own whatever looks like a slip, too.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from eval_factory.core.errors import did_you_mean
from eval_factory.tasks.custom_table import (
    CLUSTER,
    CORRECT,
    ID,
    INCORRECT,
    RightAnswers,
    becomes_nothing,
    note_on_quasi,
)
from eval_factory.tasks.file_problems import Findings, not_utf8, other_kind, shortened, unreadable_file
from eval_factory.tasks.rubric_case import ROLES, SYSTEM, USER, Criterion, RubricCase, positive_points

_MESSAGE_KEYS = ("role", "content")
_HALF_OF_A_PAIR = re.compile("[\ud800-\udfff]")


def object_in(line: str, first_key: str) -> dict[str, Any] | str:
    """The JSON object that a line is, or what is wrong with it; `first_key` shows what one looks like."""
    try:
        row = json.loads(line, parse_constant=_no_number)
    except (ValueError, RecursionError) as error:
        reason = error.msg if isinstance(error, json.JSONDecodeError) else "it holds NaN, Infinity or too many levels"
        return f"is not JSON ({reason}); each line is one JSON object"
    return row if isinstance(row, dict) else f'must be a JSON object such as {{"{first_key}": ...}}'


def _no_number(_name: str) -> float:
    raise ValueError


def unknown_fields(row: Mapping[str, Any], known: Iterable[str], where: str = "") -> Iterator[str]:
    known = tuple(known)
    for name in row:
        if name not in known:
            hint = did_you_mean(name, known) or f"; known here: {', '.join(known)}"
            yield f"{where}{name}: is no known field{hint}"


def text_problems(where: str, value: Any) -> Iterator[str]:
    if value is None:
        yield f"{where}: is missing"
    elif not isinstance(value, str):
        yield f"{where}: must be text"
    elif not value.strip():
        yield f"{where}: is empty"
    elif _HALF_OF_A_PAIR.search(value):
        yield f"{where}: holds half a surrogate pair (\\ud800 to \\udfff), which is no character"


def name_problems(where: str, value: Any, longest: int) -> Iterator[str]:
    problems = list(text_problems(where, value))
    if not problems and (len(value) > longest or any(ord(letter) < 32 for letter in value)):
        problems.append(f"{where}: must be one line of at most {longest} characters")
    yield from problems


def message_problems(where: str, value: Any, *, own: bool) -> Iterator[str]:
    """`own`: a file of the user's own, in which whatever looks like a slip is told."""
    if not isinstance(value, list) or not value:
        yield f'{where}: must be a list of messages such as [{{"role": "user", "content": "..."}}]'
        return
    for number, message in enumerate(value):
        if not isinstance(message, dict):
            yield f"{where}.{number}: must be an object with role and content"
            continue
        if own:
            yield from unknown_fields(message, _MESSAGE_KEYS, f"{where}.{number}.")
        role = message.get("role")
        if role not in ROLES:
            yield f"{where}.{number}.role: must be one of {', '.join(ROLES)}"
        elif role == SYSTEM and number > 0:
            yield f"{where}.{number}.role: a system message can only be the first"
        if own or not isinstance(message.get("content"), str):
            yield from text_problems(f"{where}.{number}.content", message.get("content"))
    last = value[-1]
    if isinstance(last, dict) and last.get("role") in ROLES and last["role"] != USER:
        yield f"{where}.{len(value) - 1}.role: the last message must be the user's: it is what the model answers"


CONVERSATION_RUN_SPEC = "eval_factory_conversations"
"""The run spec of our plug-in that runs them."""

ENDING = ".jsonl"
"""Of a `dataset_file` that holds conversations; any other is a table."""

MESSAGES = "messages"
LONGEST_NAME = 200


@dataclass(frozen=True)
class Conversation:
    """One line of a file that was checked."""

    messages: tuple[Mapping[str, str], ...]
    """Each with `role` and `content`; the last is the user's."""
    id: str | None = None
    correct: str | None = None
    incorrect: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    """Its other fields, `cluster` among them, as texts; they stay with the instance."""


@dataclass
class ConversationFile:
    """The conversations of a file, and what is wrong with it: each problem with its line."""

    rows: list[Conversation] = field(default_factory=list)
    lines: list[int] = field(default_factory=list)
    """Of each row its line."""
    problems: list[str] = field(default_factory=list)

    def fields(self) -> list[str]:
        """Those that all rows have, of those that mean something."""
        has = {
            ID: [row.id is not None for row in self.rows],
            CORRECT: [row.correct is not None for row in self.rows],
            INCORRECT: [bool(row.incorrect) for row in self.rows],
            CLUSTER: [CLUSTER in row.others for row in self.rows],
        }
        return [name for name, there in has.items() if there and (all(there) or (name == INCORRECT and any(there)))]


def holds_conversations(dataset_file: object) -> bool:
    return isinstance(dataset_file, str) and dataset_file.lower().endswith(ENDING)


def read_conversations(file: Path) -> ConversationFile:
    """All rows, and every mistake: `line 3: messages.0.role: ...`. Empty lines are no rows.

    Raises:
        OSError: it cannot be read.
    """
    found = ConversationFile()
    kind = other_kind(file)
    if kind is not None:
        found.problems.append(kind)
        return found
    first: dict[str, int] = {}
    try:
        with file.open(encoding="utf-8-sig") as opened:
            for number, line in enumerate(opened, start=1):
                if line.strip():
                    _add_line(found, line, number, first)
    except UnicodeDecodeError:
        found.problems += [problem.removeprefix(f"{file}: ") for problem in not_utf8(file).problems]
        return found
    if not found.rows and not found.problems:
        found.problems.append("has no conversations; each line is a JSON object")
    found.problems += _gaps(found)
    return found


def check_conversations(
    path: Path, file: Path, needing: str | None, found: Findings, *, quasi: bool
) -> ConversationFile:
    """What is wrong in the file, and what is noted of it.

    Args:
        path: the benchmark's YAML, which names the file.
        needing: the metric that cannot do without right answers, if one cannot.
        quasi: the benchmark has HELM's quasi metrics.
    """
    try:
        read = read_conversations(file)
    except OSError as error:
        found.problems += unreadable_file(file, error, "dataset_file", path).problems
        return ConversationFile()
    problems = list(read.problems)
    if needing is not None:
        lines = [line for row, line in zip(read.rows, read.lines, strict=True) if row.correct is None]
        problems += [f"line {line}: {CORRECT}: is missing, which {needing} needs" for line in lines]
    if quasi:
        problems += _answers_without_option(read)
    found.problems += [f"{file}: {problem}" for problem in shortened(problems, inside="its lines")]
    found.notes += _notes(read, file.name, quasi=quasi)
    return read


def _add_line(found: ConversationFile, line: str, number: int, first: dict[str, int]) -> None:
    where = f"line {number}"
    row = object_in(line, MESSAGES)
    if isinstance(row, str):
        found.problems.append(f"{where}: {row}")
        return
    problems = list(_problems_of(row))
    name = row.get(ID)
    if isinstance(name, str) and name in first:
        problems.append(f"{ID}: is the same as in line {first[name]}; it names the instance in the results")
    elif isinstance(name, str):
        first[name] = number
    found.problems += [f"{where}: {problem}" for problem in problems]
    if not problems:
        found.rows.append(_conversation(row))
        found.lines.append(number)


def _conversation(row: Mapping[str, Any]) -> Conversation:
    known = (ID, MESSAGES, CORRECT, INCORRECT)
    return Conversation(
        tuple({"role": one["role"], "content": one["content"]} for one in row[MESSAGES]),
        row.get(ID),
        row.get(CORRECT),
        tuple(row.get(INCORRECT) or ()),
        {name: str(value) for name, value in row.items() if name not in known and value is not None},
    )


def _problems_of(row: Mapping[str, Any]) -> Iterator[str]:
    yield from message_problems(MESSAGES, row.get(MESSAGES), own=True)
    for name in (ID, CLUSTER):
        if row.get(name) is not None:
            yield from name_problems(name, row[name], LONGEST_NAME)
    correct = row.get(CORRECT)
    if correct is not None:
        yield from text_problems(CORRECT, correct)
    yield from _incorrect_problems(row.get(INCORRECT), correct)
    for name, value in row.items():
        if isinstance(value, (list, dict)) and name not in (MESSAGES, INCORRECT, ID, CLUSTER, CORRECT):
            yield f"{name}: must be text or a number; it stays with the instance as one"


def _incorrect_problems(value: Any, correct: Any) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, list):
        yield f'{INCORRECT}: must be a list of texts such as ["B", "C"]'
        return
    for number, answer in enumerate(value):
        yield from text_problems(f"{INCORRECT}.{number}", answer)
        if isinstance(answer, str) and isinstance(correct, str) and answer.strip() == correct.strip():
            yield f"{INCORRECT}.{number}: is the {CORRECT}"


def _gaps(found: ConversationFile) -> Iterator[str]:
    """Fields that only some rows have, where all or none must."""
    for name, values in (
        (ID, [row.id for row in found.rows]),
        (CLUSTER, [row.others.get(CLUSTER) for row in found.rows]),
    ):
        there = sum(value is not None for value in values)
        if 0 < there < len(values):
            line = found.lines[values.index(None)]
            yield f"line {line}: {name}: is missing, and {there} other lines have one; all have it or none has"


def _answers_without_option(read: ConversationFile) -> list[str]:
    answers, found = RightAnswers(), list[str]()
    for row, line in zip(read.rows, read.lines, strict=True):
        asked = row.messages[-1]["content"]
        if row.correct is not None:
            found += answers.problems_of(f"line {line}: ", asked, row.correct, row.incorrect)
    return found + answers.in_other_words()


def _notes(read: ConversationFile, name: str, *, quasi: bool) -> Iterator[str]:
    different = {tuple((one["role"], one["content"]) for one in row.messages) for row in read.rows}
    repeated = len(read.rows) - len(different)
    if repeated:
        yield f"{repeated} of {len(read.rows)} conversations of {name} are those of an earlier line: counted each time"
    nothing = [line for row, line in zip(read.rows, read.lines, strict=True) if becomes_nothing(row.correct or "x")]
    if quasi and nothing:
        yield note_on_quasi(f"{len(nothing)} of {len(read.rows)} lines of {name} (first: line {nothing[0]})")


FileForm = Literal["rubric", "healthbench"]
OWN: FileForm = "rubric"
HEALTHBENCH: FileForm = "healthbench"

_ID = {OWN: "id", HEALTHBENCH: "prompt_id"}
_MESSAGES = {OWN: "messages", HEALTHBENCH: "prompt"}
_TAGS = {OWN: "tags", HEALTHBENCH: "example_tags"}
_CRITERION_KEYS = ("criterion", "points", "tags")
LARGEST_POINTS = 1_000_000
LONGEST_ID, LONGEST_TAG = 200, 200


@dataclass
class RubricFile:
    """The cases of a file, and what is wrong with it: each problem with its line."""

    cases: list[RubricCase] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def has_clusters(self) -> bool:
        return any(case.cluster is not None for case in self.cases)


def read_rubric_file(path: Path, form: FileForm) -> RubricFile:
    """All cases, and every mistake: `line 3: rubrics.0.points: ...`. Empty lines are no cases.

    Raises:
        OSError: it cannot be read.
    """
    found = RubricFile()
    kind = other_kind(path)
    if kind is not None:
        found.problems.append(kind)
        return found
    first: dict[str, int] = {}
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, start=1):
                if line.strip():
                    _add_line_of_rubric_file(found, line, number, form, first)
    except UnicodeDecodeError:
        found.problems += [problem.removeprefix(f"{path}: ") for problem in not_utf8(path).problems]
        return found
    if not found.cases and not found.problems:
        found.problems.append("has no cases; each line is a JSON object")
    clusters = sum(case.cluster is not None for case in found.cases)
    if 0 < clusters < len(found.cases):
        without = next(case for case in found.cases if case.cluster is None)
        found.problems.append(
            f"line {first[without.id]}: cluster: is missing, and {clusters} other cases have one; a case that shares"
            " nothing gets a name of its own"
        )
    return found


def faults_of(path: Path, form: FileForm) -> list[str]:
    """The first mistakes, and how many more there are."""
    problems = read_rubric_file(path, form).problems
    return shortened(problems)


def _add_line_of_rubric_file(found: RubricFile, line: str, number: int, form: FileForm, first: dict[str, int]) -> None:
    where = f"line {number}"
    row = object_in(line, _ID[form])
    if isinstance(row, str):
        found.problems.append(f"{where}: {row}")
        return
    problems = list(_problems_of_of_rubric_file(row, form))
    name = row.get(_ID[form])
    if isinstance(name, str) and name in first:
        problems.append(f"{_ID[form]}: is the same as in line {first[name]}; it names the case in the results")
    elif isinstance(name, str):
        first[name] = number
    found.problems += [f"{where}: {problem}" for problem in problems]
    if not problems:
        found.cases.append(_case(row, form))


def _case(row: Mapping[str, Any], form: FileForm) -> RubricCase:
    criteria = tuple(Criterion(one["criterion"], one["points"], tuple(one.get("tags") or ())) for one in row["rubrics"])
    messages = tuple({"role": one["role"], "content": one["content"]} for one in row[_MESSAGES[form]])
    own = form == OWN
    canary = row.get("canary")
    return RubricCase(
        row[_ID[form]],
        messages,
        criteria,
        reference=row.get("reference") if own else None,
        cluster=row.get("cluster") if own else None,
        tags=tuple(row.get(_TAGS[form]) or ()),
        canary=canary if isinstance(canary, str) else None,
    )


def _problems_of_of_rubric_file(row: Mapping[str, Any], form: FileForm) -> Iterator[str]:
    yield from name_problems(_ID[form], row.get(_ID[form]), LONGEST_ID)
    yield from message_problems(_MESSAGES[form], row.get(_MESSAGES[form]), own=form == OWN)
    yield from _rubric_problems(row.get("rubrics"), own=form == OWN)
    yield from _tag_problems(_TAGS[form], row.get(_TAGS[form]))
    if form == OWN:
        yield from unknown_fields(row, ("id", "messages", "rubrics", "reference", "cluster", "tags", "canary"))
        if row.get("reference") is not None:
            yield from text_problems("reference", row["reference"])
        if row.get("cluster") is not None:
            yield from name_problems("cluster", row["cluster"], LONGEST_ID)


def _rubric_problems(value: Any, *, own: bool) -> Iterator[str]:
    if not isinstance(value, list) or not value:
        yield 'rubrics: must be a list of criteria such as [{"criterion": "...", "points": 5, "tags": []}]'
        return
    whole = True
    for number, one in enumerate(value):
        where = f"rubrics.{number}"
        problems = list(_criterion_problems(where, one, own=own))
        whole = whole and not problems
        yield from problems
    if whole and positive_points(Criterion("", one["points"]) for one in value) <= 0:
        yield "rubrics: no criterion has positive points, so no score can be computed"


def _criterion_problems(where: str, one: Any, *, own: bool) -> Iterator[str]:
    if not isinstance(one, dict):
        yield f"{where}: must be an object with criterion and points"
        return
    yield from text_problems(f"{where}.criterion", one.get("criterion"))
    points = one.get("points")
    if points is None:
        yield f"{where}.points: is missing"
    elif isinstance(points, bool) or not isinstance(points, (int, float)):
        yield f"{where}.points: must be a number; negative points are for what an answer should not do"
    elif abs(points) > LARGEST_POINTS or (own and points == 0):
        yield f"{where}.points: must not be 0, nor beyond {LARGEST_POINTS}"
    yield from _tag_problems(f"{where}.tags", one.get("tags"))
    if own:
        yield from unknown_fields(one, _CRITERION_KEYS, f"{where}.")


def _tag_problems(where: str, value: Any) -> Iterator[str]:
    if value is None:
        return
    if not isinstance(value, list):
        yield f'{where}: must be a list of texts such as ["axis:accuracy"]'
        return
    for number, tag in enumerate(value):
        yield from name_problems(f"{where}.{number}", tag, LONGEST_TAG)
