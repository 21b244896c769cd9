"""Rows of a custom benchmark that are conversations: JSON lines in the place of a CSV table and its prompt.

Read here by the check and by the run, so that both see the same. Messages never quote what a field holds: it may be a
patient's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.tasks.custom.table_check import CLUSTER, CORRECT, ID, INCORRECT, RightAnswers
from eval_factory.tasks.file_problems import Findings, not_utf8, other_kind, shortened, unreadable
from eval_factory.tasks.message_fields import message_problems, name_problems, object_in, text_problems
from eval_factory.tasks.quasi_match import becomes_nothing, note_on_quasi

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
        found.problems += unreadable(file, error, "dataset_file", path).problems
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
