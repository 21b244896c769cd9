"""Reads and checks the conversations of custom benchmarks: files of JSON lines with messages.

The check before a run and the run itself both use these functions, so both report the same
problems. Error messages never quote the value of a field, because the value may be patient data.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.tasks import rubric_case
from eval_factory.tasks.choice_question import options_shown
from eval_factory.tasks.custom_table import (
    CLUSTER_FIELD,
    CORRECT_ANSWER_FIELD,
    ID_FIELD,
    INCORRECT_ANSWERS_FIELD,
    PictureCheck,
    RightAnswerCheck,
)
from eval_factory.tasks.file_problems import Findings, ReadFile, why_unreadable
from eval_factory.tasks.gold_forms import right_letters
from eval_factory.tasks.message_files import (
    MESSAGES_FIELD,
    message_problems,
    read_rows,
    short_line_problems,
    text_problems,
    with_texts,
)
from eval_factory.tasks.rubric_case import ANSWER_KEY

CONVERSATION_RUN_SPEC = "eval_factory_conversations"  # eval-factory's run spec for conversations


@dataclass(frozen=True)
class Conversation:
    """One line of a custom benchmark's file of conversations."""

    messages: tuple[Mapping[str, str], ...]
    """Messages with `role` and `content`; the last message is the user's. In a `content`, the
    character U+FFFC marks the place of a picture.
    """
    id: str | None = None
    correct: str | None = None  # the right answer
    incorrect: tuple[str, ...] = ()  # wrong answers
    further_fields: Mapping[str, str] = field(default_factory=dict)
    """The other fields of the line that are not null, as texts; stored with the instance. `cluster`
    is one of them.
    """
    pictures: tuple[str, ...] = ()  # the pictures' paths, in the order of the marks


def holds_conversations(dataset_file: object) -> bool:
    """Return True if the name of a `dataset_file` ends with .jsonl; other files are tables."""
    return isinstance(dataset_file, str) and dataset_file.lower().endswith(".jsonl")


def read_conversations(file: Path) -> ReadFile[Conversation]:
    """Return the conversations of a custom benchmark's file, and the problems of the file.

    Raises OSError if the file cannot be read.
    """
    content = read_rows(
        file,
        id_key=ID_FIELD,
        example_key=MESSAGES_FIELD,
        row_noun="instance",
        rows_noun="conversations",
        problems_of=_conversation_problems,
        row_of=_conversation,
    )
    rule = "lines have one; all have it or none has"
    content.all_or_none(ID_FIELD, [row.id for row in content.rows], rule)
    content.all_or_none(
        CLUSTER_FIELD, [row.further_fields.get(CLUSTER_FIELD) for row in content.rows], rule
    )
    return content


def right_letters_of(rows: Sequence[Conversation]) -> list[str]:
    """Return the letter of each row's right option, for right answers in a form of `gold_forms`.

    The list is empty if a row has no right answer, or if `gold_forms.right_letters` finds no
    letters.
    """
    pairs = []
    for row in rows:
        if row.correct is None:
            return []
        pairs.append((row.correct, options_shown(row.messages[-1]["content"])))
    return right_letters(pairs)


def usable_fields(rows: Sequence[Conversation]) -> list[str]:
    """Return the names of the fields that the benchmark can use.

    The id, the right answer and the cluster are each included if all rows have this field. The
    wrong answers are included if any row has wrong answers.
    """
    if not rows:
        return []
    fields = []
    if all(row.id is not None for row in rows):
        fields.append(ID_FIELD)
    if all(row.correct is not None for row in rows):
        fields.append(CORRECT_ANSWER_FIELD)
    if any(row.incorrect for row in rows):
        fields.append(INCORRECT_ANSWERS_FIELD)
    if all(CLUSTER_FIELD in row.further_fields for row in rows):
        fields.append(CLUSTER_FIELD)
    return fields


def check_conversations(
    path: Path,
    file: Path,
    gold_metric: str | None,
    findings: Findings,
    pictures: PictureCheck,
    *,
    is_compared: bool,
    has_answers: bool = False,
) -> list[Conversation]:
    """Read the conversations of a benchmark, and add their problems to the findings.

    Args:
        path: the benchmark's YAML file, which names the file of conversations.
        file: the file of conversations.
        gold_metric: the name of a metric that needs right answers; None if there is none.
        findings: the lists to which problems and notes are added.
        pictures: the check of the pictures that rows name.
        is_compared: True if a model's answer must equal the right answer (HELM's exact match).
        has_answers: True if each line must have the answer to judge: the model is then not asked.

    Returns:
        The conversations of all lines whose form has no problems; empty if the file cannot be read.
    """
    try:
        content = read_conversations(file)
    except OSError as error:
        findings.problems.append(f"{file}: {why_unreadable(error, 'dataset_file', path)}")
        return []
    answer_check = RightAnswerCheck("line", is_compared=is_compared)
    answer_check.problems += [f"{file}: {problem}" for problem in content.problems]
    for row, line in zip(content.rows, content.lines, strict=True):
        label = f"{file}: line {line}: "
        if gold_metric is not None and row.correct is None:
            answer_check.problems.append(
                f"{label}{CORRECT_ANSWER_FIELD}: is missing, but {gold_metric} needs it"
            )
        if has_answers and ANSWER_KEY not in row.further_fields:
            answer_check.problems.append(
                f"{label}{ANSWER_KEY}: is missing; has_answers says that each line has one"
            )
        labelled_pictures = []
        for number, name in enumerate(row.pictures, start=1):
            labelled_pictures.append((f"picture {number}", name))
        text = rubric_case.conversation_text(row.messages)
        for problem in pictures.problems_of(labelled_pictures, text):
            answer_check.problems.append(f"{label}{problem}")
        if row.correct is not None:
            answer_check.compare(label, row.messages[-1]["content"], row.correct, row.incorrect)
        # Rows with equal messages and pictures are reported as repeated questions.
        texts = tuple((message["role"], message["content"]) for message in row.messages)
        answer_check.add(line, (texts, row.pictures), row.correct)
    answer_check.complete(file, len(content.rows), findings)
    return content.rows


def _conversation(row: Mapping[str, Any]) -> Conversation:
    """Return the conversation of a row without problems. Further fields with null are dropped."""
    further_fields = {}
    for name, value in row.items():
        if (
            name not in (ID_FIELD, MESSAGES_FIELD, CORRECT_ANSWER_FIELD, INCORRECT_ANSWERS_FIELD)
            and value is not None
        ):
            further_fields[name] = str(value)
    pictures = []
    for message in row[MESSAGES_FIELD]:
        if isinstance(message["content"], list):
            for part in message["content"]:
                if part["type"] == "image":
                    pictures.append(part["path"])
    return Conversation(
        messages=with_texts(row[MESSAGES_FIELD]),
        id=row.get(ID_FIELD),
        correct=row.get(CORRECT_ANSWER_FIELD),
        incorrect=tuple(row.get(INCORRECT_ANSWERS_FIELD) or ()),
        further_fields=further_fields,
        pictures=tuple(pictures),
    )


def _conversation_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a row of conversations."""
    messages = row.get(MESSAGES_FIELD)
    yield from message_problems(MESSAGES_FIELD, messages, is_strict=True, may_name_pictures=True)
    for name in (ID_FIELD, CLUSTER_FIELD):
        if row.get(name) is not None:
            yield from short_line_problems(name, row[name])
    if row.get(CORRECT_ANSWER_FIELD) is not None:
        yield from text_problems(CORRECT_ANSWER_FIELD, row[CORRECT_ANSWER_FIELD])
    if row.get(INCORRECT_ANSWERS_FIELD) is not None:
        yield from _incorrect_problems(row[INCORRECT_ANSWERS_FIELD], row.get(CORRECT_ANSWER_FIELD))
    checked_above = (
        MESSAGES_FIELD,
        INCORRECT_ANSWERS_FIELD,
        ID_FIELD,
        CLUSTER_FIELD,
        CORRECT_ANSWER_FIELD,
    )
    for name, value in row.items():
        if isinstance(value, (list, dict)) and name not in checked_above:
            yield f"{name}: must be text or a number; it is stored with the instance's results"


def _incorrect_problems(incorrect: Any, correct: Any) -> Iterator[str]:
    """Yield the problems of a row's wrong answers; `correct` is the row's right answer."""
    if not isinstance(incorrect, list):
        yield f'{INCORRECT_ANSWERS_FIELD}: must be a list of texts such as ["B", "C"]'
        return
    for number, answer in enumerate(incorrect):
        yield from text_problems(f"{INCORRECT_ANSWERS_FIELD}.{number}", answer)
        if not isinstance(answer, str) or not isinstance(correct, str):
            continue
        if answer.strip() == correct.strip():
            yield f"{INCORRECT_ANSWERS_FIELD}.{number}: is the same as {CORRECT_ANSWER_FIELD}"
