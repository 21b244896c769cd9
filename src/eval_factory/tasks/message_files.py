"""Reads and checks files of JSON lines with conversations. Two kinds of files exist:

- conversations of a custom benchmark;
- rubric cases, in eval-factory's form or in one of HealthBench's two forms.

`physician_labels.py` reads a third kind with the functions of this module.

The check before a run and the run itself both use these functions, so both report the same
mistakes, each with its line and field. Error messages never quote the value of a field, because the
value may be patient data.

Published data are checked leniently: a mistake is reported only if it prevents a score. A user's
own file is checked strictly: everything that looks like a mistake is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NamedTuple

from eval_factory.core.errors import did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.core.safe_files import MAX_BYTES_OF_TABLE, finite_number, open_text
from eval_factory.tasks import rubric_case
from eval_factory.tasks.choice_question import options_shown
from eval_factory.tasks.custom_table import (
    CLUSTER,
    CORRECT,
    ID,
    INCORRECT,
    PictureCheck,
    RightAnswerCheck,
    text_of,
)
from eval_factory.tasks.file_problems import Findings, ReadFile, Row, kind_problem, why_unreadable
from eval_factory.tasks.gold_forms import right_letters
from eval_factory.tasks.rubric_case import (
    ANSWER,
    ROLES,
    SAMPLE,
    SYSTEM,
    USER,
    Criterion,
    RubricCase,
    positive_points,
)

CONVERSATION_RUN_SPEC = "eval_factory_conversations"  # eval-factory's run spec for conversations
MESSAGES = "messages"  # the field with the messages, in eval-factory's form

FileForm = Literal["rubric", "healthbench", "healthbench_professional"]
EVAL_FACTORY_FORM: FileForm = "rubric"
HEALTHBENCH: FileForm = "healthbench"
PROFESSIONAL: FileForm = "healthbench_professional"


class _FieldNames(NamedTuple):
    """The names of the fields of a rubric case, in one form of files."""

    id: str
    messages: str
    tags: str
    criteria: str


_FIELD_NAMES: dict[FileForm, _FieldNames] = {
    EVAL_FACTORY_FORM: _FieldNames("id", MESSAGES, "tags", "rubrics"),
    HEALTHBENCH: _FieldNames("prompt_id", "prompt", "example_tags", "rubrics"),
    PROFESSIONAL: _FieldNames("id", "conversation.messages", "example_tags", "rubric_items"),
}
# all fields of eval-factory's form
_FIELDS = ("id", MESSAGES, "rubrics", "reference", "cluster", "tags", "canary", ANSWER, SAMPLE)
MAX_NAME_LENGTH = 200  # the maximum length of an id, a cluster or a tag, in characters
MAX_POINTS = 1_000_000  # the limit of a criterion's points, above and below 0

# half of a surrogate pair: JSON can contain it, but UTF-8 cannot encode it
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_rows(
    file: Path,
    *,
    id_key: str | None,
    example_key: str,
    row_noun: str,
    rows_noun: str,
    problems_of: Callable[[Mapping[str, Any]], Iterable[str]],
    row_of: Callable[[Mapping[str, Any]], Row],
) -> ReadFile[Row]:
    """Return the rows without problems, and each problem, such as `line 3: messages.0.role: ...`.

    Entries of a list are numbered from 0 in the path of a field. Empty lines are skipped. A file
    without lines, or a file that is not text, is a problem too.

    Args:
        file: the path of a file of JSON lines.
        id_key: the field with a unique id of each row; rows without the field are accepted. None:
            no field must be unique.
        example_key: the field in the example of a line that an error message shows.
        row_noun: the noun for a row in error messages.
        rows_noun: the plural noun for the rows of the file.
        problems_of: yields the problems of a JSON object, each with the path of the field.
        row_of: makes the row of a JSON object without problems.

    Raises:
        OSError: the file cannot be read.
    """
    content: ReadFile[Row] = ReadFile()
    kind = kind_problem(file)
    if kind is not None:
        content.problems.append(kind)
        return content
    first_lines: dict[str, int] = {}  # dict from an id to the number of the first line with this id
    empty = f"has no {rows_noun}; each line is a JSON object"
    # `reading` adds a problem if the file is not UTF-8 or has no rows.
    with (
        content.reading(file, empty=empty),
        open_text(file, encoding="utf-8-sig", max_size=MAX_BYTES_OF_TABLE) as opened,
    ):
        for number, line in enumerate(opened, start=1):
            if not line.strip():
                continue
            try:
                row = _object_of_line(line, example_key)
            except ValueError as error:
                content.problems.append(f"line {number}: {error}")
                continue
            problems = list(problems_of(row))
            row_id = None if id_key is None else row.get(id_key)
            # `setdefault` stores the number of the first line, and returns it for later lines.
            if isinstance(row_id, str) and first_lines.setdefault(row_id, number) != number:
                problems.append(
                    f"{id_key}: is the same as in line {first_lines[row_id]}; the results identify "
                    f"the {row_noun} by this field, so each value must be unique"
                )
            content.problems += [f"line {number}: {problem}" for problem in problems]
            if not problems:
                content.rows.append(row_of(row))
                content.lines.append(number)
    return content


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
        id_key=ID,
        example_key=MESSAGES,
        row_noun="instance",
        rows_noun="conversations",
        problems_of=_conversation_problems,
        row_of=_conversation,
    )
    rule = "lines have one; all have it or none has"
    content.all_or_none(ID, [row.id for row in content.rows], rule)
    content.all_or_none(CLUSTER, [row.further_fields.get(CLUSTER) for row in content.rows], rule)
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
        fields.append(ID)
    if all(row.correct is not None for row in rows):
        fields.append(CORRECT)
    if any(row.incorrect for row in rows):
        fields.append(INCORRECT)
    if all(CLUSTER in row.further_fields for row in rows):
        fields.append(CLUSTER)
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
                f"{label}{CORRECT}: is missing, but {gold_metric} needs it"
            )
        if has_answers and ANSWER not in row.further_fields:
            answer_check.problems.append(
                f"{label}{ANSWER}: is missing; has_answers says that each line has one"
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
        if name not in (ID, MESSAGES, CORRECT, INCORRECT) and value is not None:
            further_fields[name] = str(value)
    pictures = []
    for message in row[MESSAGES]:
        if isinstance(message["content"], list):
            for part in message["content"]:
                if part["type"] == "image":
                    pictures.append(part["path"])
    return Conversation(
        messages=_with_texts(row[MESSAGES]),
        id=row.get(ID),
        correct=row.get(CORRECT),
        incorrect=tuple(row.get(INCORRECT) or ()),
        further_fields=further_fields,
        pictures=tuple(pictures),
    )


def _with_texts(messages: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, str], ...]:
    """Return the messages with a text as `content`, also if the file has a list of parts."""
    with_texts = []
    for message in messages:
        with_texts.append({"role": message["role"], "content": text_of(message["content"])})
    return tuple(with_texts)


def _conversation_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a row of conversations."""
    yield from message_problems(MESSAGES, row.get(MESSAGES), is_strict=True, pictures=True)
    for name in (ID, CLUSTER):
        if row.get(name) is not None:
            yield from name_problems(name, row[name])
    if row.get(CORRECT) is not None:
        yield from text_problems(CORRECT, row[CORRECT])
    if row.get(INCORRECT) is not None:
        yield from _incorrect_problems(row[INCORRECT], row.get(CORRECT))
    checked_above = (MESSAGES, INCORRECT, ID, CLUSTER, CORRECT)
    for name, value in row.items():
        if isinstance(value, (list, dict)) and name not in checked_above:
            yield f"{name}: must be text or a number; it is stored with the instance's results"


def _incorrect_problems(incorrect: Any, correct: Any) -> Iterator[str]:
    """Yield the problems of a row's wrong answers; `correct` is the row's right answer."""
    if not isinstance(incorrect, list):
        yield f'{INCORRECT}: must be a list of texts such as ["B", "C"]'
        return
    for number, answer in enumerate(incorrect):
        yield from text_problems(f"{INCORRECT}.{number}", answer)
        if not isinstance(answer, str) or not isinstance(correct, str):
            continue
        if answer.strip() == correct.strip():
            yield f"{INCORRECT}.{number}: is the same as {CORRECT}"


def read_rubric_file(path: Path, form: FileForm) -> ReadFile[RubricCase]:
    """Return the rubric cases of a file in this form, and the problems of the file.

    Raises OSError if the file cannot be read.
    """
    id_key = _FIELD_NAMES[form].id
    content = read_rows(
        path,
        id_key=id_key,
        example_key=id_key,
        row_noun="case",
        rows_noun="cases",
        problems_of=lambda row: _case_problems(_flat(row, form), form),
        row_of=lambda row: _case(_flat(row, form), form),
    )
    clusters = [case.cluster for case in content.rows]
    answers = [case.answer for case in content.rows]
    content.all_or_none(
        "cluster", clusters, "cases have one; a case that shares nothing gets a name of its own"
    )
    content.all_or_none(ANSWER, answers, "cases have one; all have it or none has")
    return content


def _flat(row: Mapping[str, Any], form: FileForm) -> Mapping[str, Any]:
    """Return a row with one field each for the messages, the criteria and the tags.

    `_case_problems` and `_case` expect this structure. The rows of eval-factory's form and of
    HealthBench already have it.
    """
    if form == PROFESSIONAL:
        return _flat_professional(row)
    return row


def _plain_criterion(criterion: Any) -> Any:
    """Return a criterion of HealthBench Professional with HealthBench's names of fields.

    A value that is not an object is returned unchanged, and `_criterion_problems` reports it.
    """
    if not isinstance(criterion, Mapping):
        return criterion
    text = criterion.get("criterion_text", criterion.get("criterion"))
    return {"criterion": text, "points": criterion.get("points")}


def _flat_professional(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of HealthBench Professional (arXiv 2604.27470; MIT) as `_flat` describes it.

    The names of the fields are in `_FIELD_NAMES`, and error messages use these names. The name
    `conversation.messages` is the path of the messages in the file; here it is a single key. A row
    may also contain a physician's answer, which is not used for the score.
    """
    names = _FIELD_NAMES[PROFESSIONAL]
    conversation = row.get("conversation")
    criteria = row.get("rubric_items")
    messages = conversation.get("messages") if isinstance(conversation, Mapping) else None
    if isinstance(criteria, list):
        criteria = list(map(_plain_criterion, criteria))
    tags = []
    for name in ("use_case", "type", "difficulty", "specialty"):
        if row.get(name):
            tags.append(f"{name}:{row[name]}")
    return {**row, names.messages: messages, names.criteria: criteria, names.tags: tags}


def _case(row: Mapping[str, Any], form: FileForm) -> RubricCase:
    """Return the rubric case of a row without problems."""
    names = _FIELD_NAMES[form]
    criteria = []
    for entry in row[names.criteria]:
        tags = tuple(entry.get("tags") or ())
        criteria.append(Criterion(entry["criterion"], entry["points"], tags))
    canary = row.get("canary")
    # Only eval-factory's form defines these fields. They are not read from published files.
    optional_fields: Mapping[str, Any] = {}
    if form == EVAL_FACTORY_FORM:
        optional_fields = row
    return RubricCase(
        row[names.id],
        _with_texts(row[names.messages]),
        tuple(criteria),
        reference=optional_fields.get("reference"),
        cluster=optional_fields.get("cluster"),
        tags=tuple(row.get(names.tags) or ()),
        canary=canary if isinstance(canary, str) else None,
        answer=optional_fields.get(ANSWER),
        sample=optional_fields.get(SAMPLE),
    )


def _case_problems(row: Mapping[str, Any], form: FileForm) -> Iterator[str]:
    """Yield the problems of a row of rubric cases."""
    names = _FIELD_NAMES[form]
    is_strict = form == EVAL_FACTORY_FORM
    yield from name_problems(names.id, row.get(names.id))
    yield from message_problems(names.messages, row.get(names.messages), is_strict=is_strict)
    yield from _criteria_problems(names.criteria, row.get(names.criteria), is_strict=is_strict)
    yield from _tag_problems(names.tags, row.get(names.tags))
    if form != EVAL_FACTORY_FORM:
        return
    yield from unknown_fields(row, _FIELDS)
    if row.get("reference") is not None:
        yield from text_problems("reference", row["reference"])
    if row.get("cluster") is not None:
        yield from name_problems("cluster", row["cluster"])
    if ANSWER in row and not isinstance(row[ANSWER], str):
        yield (
            f"{ANSWER}: must be text, which may be empty; the model is not asked about a case "
            "with an answer"
        )
    if SAMPLE in row and type(row[SAMPLE]) is not int:  # `isinstance` would accept True and False
        yield f"{SAMPLE}: must be a whole number"


def _criteria_problems(label: str, criteria: Any, *, is_strict: bool) -> Iterator[str]:
    """Yield the problems of a list of criteria; arguments as in `message_problems`."""
    if not isinstance(criteria, list) or not criteria:
        yield (
            f'{label}: must be a list of criteria such as [{{"criterion": "...", "points": '
            '5, "tags": []}]'
        )
        return
    problems: list[str] = []
    for number, criterion in enumerate(criteria):
        problems += _criterion_problems(f"{label}.{number}", criterion, is_strict=is_strict)
    yield from problems
    if problems:
        return
    points = positive_points(
        Criterion(criterion["criterion"], criterion["points"]) for criterion in criteria
    )
    if points <= 0:
        yield f"{label}: no criterion has positive points, so no score can be computed"


class RepeatedKeyError(ValueError):
    """Raised for a JSON object with a repeated key; the text of the error is the key."""


def _object_of(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object as a mapping. Raises RepeatedKeyError if a key is repeated."""
    entries: dict[str, Any] = {}
    for name, value in pairs:
        if name in entries:
            raise RepeatedKeyError(one_line(name))
        entries[name] = value
    return entries


def _object_of_line(line: str, example_key: str) -> dict[str, Any]:
    """Return the JSON object of a line.

    Raises ValueError with a message for the user if the line has a problem; the message may show an
    object with the field `example_key`.
    """
    try:
        # `parse_constant` gets the texts NaN and Infinity, for which `int` raises ValueError.
        row = json.loads(
            line, parse_constant=int, parse_float=finite_number, object_pairs_hook=_object_of
        )
    except RepeatedKeyError as error:
        raise ValueError(f"an object has the key {error} twice") from None
    except (ValueError, RecursionError) as error:
        reason = "it holds NaN, Infinity or too many levels"
        if isinstance(error, json.JSONDecodeError):
            reason = error.msg
        raise ValueError(f"is not JSON ({reason}); each line is one JSON object") from None
    if not isinstance(row, dict):
        raise ValueError(f'must be a JSON object such as {{"{example_key}": ...}}')
    return row


def unknown_fields(row: Mapping[str, Any], keys: Iterable[str], label: str = "") -> Iterator[str]:
    """Yield a problem for each field that is not one of `keys`; `label` begins each problem."""
    keys = tuple(keys)
    for name in row:
        if name not in keys:
            hint = did_you_mean(name, keys) or f"; known fields: {', '.join(keys)}"
            yield f"{label}{name}: is not a known field{hint}"


def text_problems(label: str, value: Any) -> Iterator[str]:
    """Yield the problem, if any, of a value that must be a text with a word; `label` begins the
    problem.
    """
    if value is None:
        yield f"{label}: is missing"
    elif not isinstance(value, str):
        yield f"{label}: must be text"
    elif not value.strip():
        yield f"{label}: is empty"
    elif _LONE_SURROGATE.search(value):
        yield f"{label}: holds half a surrogate pair (\\ud800 to \\udfff), which is not a character"


def name_problems(label: str, value: Any) -> Iterator[str]:
    """Yield the problem, if any, of a value that must be one short line; `label` begins the
    problem.
    """
    problems = list(text_problems(label, value))
    yield from problems
    if problems:
        return
    has_control_characters = any(ord(character) < ord(" ") for character in value)
    if len(value) > MAX_NAME_LENGTH or has_control_characters:
        yield f"{label}: must be one line of at most {MAX_NAME_LENGTH} characters"


def message_problems(
    label: str, value: Any, *, is_strict: bool, pictures: bool = False
) -> Iterator[str]:
    """Yield the problems of a row's messages.

    Args:
        label: the path of the field with the messages; it begins each problem.
        value: the value of the field.
        is_strict: True: report everything that looks like a mistake (a user's own file). False:
            report only mistakes that prevent a score (published data).
        pictures: True if messages may name pictures.
    """
    if not isinstance(value, list) or not value:
        yield f'{label}: must be a list of messages such as [{{"role": "user", "content": "..."}}]'
        return
    for number, message in enumerate(value):
        if not isinstance(message, dict):
            yield f"{label}.{number}: must be an object with role and content"
            continue
        if is_strict:
            yield from unknown_fields(message, ("role", "content"), f"{label}.{number}.")
        role = message.get("role")
        if role not in ROLES:
            yield f"{label}.{number}.role: must be one of {', '.join(ROLES)}"
        elif role == SYSTEM and number > 0:
            yield f"{label}.{number}.role: a system message can only be the first"
        content = message.get("content")
        if isinstance(content, list) and pictures and role == USER:
            yield from _part_problems(f"{label}.{number}.content", content)
        elif is_strict or not isinstance(content, str):
            yield from text_problems(f"{label}.{number}.content", content)
    last = value[-1]
    if isinstance(last, dict) and last.get("role") in ROLES and last["role"] != USER:
        yield (
            f"{label}.{len(value) - 1}.role: the last message must be the user's, "
            "because the model answers this message"
        )


def _part_problems(label: str, parts: Sequence[Any]) -> Iterator[str]:
    """Yield the problems of the parts (texts and pictures) of one message."""
    # An empty list of parts is a problem too: `[None]` has a part without a type.
    for number, part in enumerate(parts or [None]):
        key = None  # the key of the part's text or path
        if isinstance(part, dict):
            key = {"text": "text", "image": "path"}.get(str(part.get("type")))
        if key is None or len(part) != 2:
            yield (
                f'{label}.{number}: must be {{"type": "text", "text": "..."}} or {{"type": '
                '"image", "path": "..."}'
            )
        else:
            yield from text_problems(f"{label}.{number}.{key}", part.get(key))


def _criterion_problems(label: str, criterion: Any, *, is_strict: bool) -> Iterator[str]:
    """Yield the problems of one criterion of a rubric; arguments as in `message_problems`."""
    if not isinstance(criterion, dict):
        yield f"{label}: must be an object with criterion and points"
        return
    yield from text_problems(f"{label}.criterion", criterion.get("criterion"))
    points = criterion.get("points")
    if points is None:
        yield f"{label}.points: is missing"
    elif isinstance(points, bool) or not isinstance(points, (int, float)):
        yield (
            f"{label}.points: must be a number; "
            "negative points are for what an answer should not do"
        )
    elif abs(points) > MAX_POINTS or (is_strict and points == 0):
        yield f"{label}.points: must not be 0, and at most {MAX_POINTS} above or below 0"
    yield from _tag_problems(f"{label}.tags", criterion.get("tags"))
    if is_strict:
        yield from unknown_fields(criterion, ("criterion", "points", "tags"), f"{label}.")


def _tag_problems(label: str, value: Any) -> Iterator[str]:
    """Yield the problems of a list of tags."""
    if value is None:
        return
    if not isinstance(value, list):
        yield f'{label}: must be a list of texts such as ["axis:accuracy"]'
        return
    for number, tag in enumerate(value):
        yield from name_problems(f"{label}.{number}", tag)
