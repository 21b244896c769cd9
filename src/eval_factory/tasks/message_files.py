"""Reads and checks files of JSON lines with messages, and the rubric cases in such files.

Rubric cases are in eval-factory's form or in one of HealthBench's two forms. Two modules read other
kinds of files with the functions of this module: `conversations.py` and `physician_labels.py`.

The check before a run and the run itself both use these functions, so both report the same
problems, each with its line and field. Error messages never quote the value of a field, because the
value may be patient data.

Published data are checked leniently: a problem is reported only if it prevents a score. A user's
own file is checked strictly: everything that looks like a mistake is reported.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple

from eval_factory.core.errors import did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.core.safe_files import MAX_BYTES_OF_TABLE, finite_number, open_text
from eval_factory.tasks.custom_table import text_of
from eval_factory.tasks.file_problems import ReadFile, Row, kind_problem
from eval_factory.tasks.rubric_case import (
    ANSWER_KEY,
    MESSAGE_ROLES,
    SAMPLE_KEY,
    SYSTEM_ROLE,
    USER_ROLE,
    Criterion,
    RubricCase,
    positive_points,
)

MESSAGES_FIELD = "messages"  # the field with the messages, in eval-factory's form

FileForm = Literal["rubric", "healthbench", "healthbench_professional"]
EVAL_FACTORY_FORM: FileForm = "rubric"
HEALTHBENCH_FORM: FileForm = "healthbench"
PROFESSIONAL_FORM: FileForm = "healthbench_professional"


class _FieldNames(NamedTuple):
    """The names of the fields of a rubric case, in one form of files."""

    id: str
    messages: str
    tags: str
    criteria: str


_FIELD_NAMES: dict[FileForm, _FieldNames] = {
    EVAL_FACTORY_FORM: _FieldNames("id", MESSAGES_FIELD, "tags", "rubrics"),
    HEALTHBENCH_FORM: _FieldNames("prompt_id", "prompt", "example_tags", "rubrics"),
    PROFESSIONAL_FORM: _FieldNames("id", "conversation.messages", "example_tags", "rubric_items"),
}
# all fields of eval-factory's form
_FIELDS = (
    "id",
    MESSAGES_FIELD,
    "rubrics",
    "reference",
    "cluster",
    "tags",
    "canary",
    ANSWER_KEY,
    SAMPLE_KEY,
)
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
        example_key: the field that an error message shows as an example of a line: `{"id": ...}`.
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
    with (
        content.reading(file, empty=empty),  # reports a file without rows, or not in UTF-8
        open_text(file, encoding="utf-8-sig", max_size=MAX_BYTES_OF_TABLE) as opened,
    ):
        for number, line in enumerate(opened, start=1):
            if not line.strip():
                continue
            try:
                row = _object_of_line(line, example_key)  # the JSON object, before `row_of`
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


def with_texts(messages: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, str], ...]:
    """Return the messages with a text as `content`, also if the file has a list of parts."""
    with_texts = []
    for message in messages:
        with_texts.append({"role": message["role"], "content": text_of(message["content"])})
    return tuple(with_texts)


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
    # The message is `line 3: cluster: is missing, and 7 other cases have one; ...`.
    content.all_or_none(
        "cluster", clusters, "cases have one; a case that shares nothing gets a name of its own"
    )
    content.all_or_none(ANSWER_KEY, answers, "cases have one; all have it or none has")
    return content


def _flat(row: Mapping[str, Any], form: FileForm) -> Mapping[str, Any]:
    """Return a row with one field each for the messages, the criteria and the tags.

    `_case_problems` and `_case` expect this structure. The rows of eval-factory's form and of
    HealthBench already have it.
    """
    if form == PROFESSIONAL_FORM:
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
    names = _FIELD_NAMES[PROFESSIONAL_FORM]
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
        with_texts(row[names.messages]),
        tuple(criteria),
        reference=optional_fields.get("reference"),
        cluster=optional_fields.get("cluster"),
        tags=tuple(row.get(names.tags) or ()),
        canary=canary if isinstance(canary, str) else None,
        answer=optional_fields.get(ANSWER_KEY),
        sample=optional_fields.get(SAMPLE_KEY),
    )


def _case_problems(row: Mapping[str, Any], form: FileForm) -> Iterator[str]:
    """Yield the problems of a row of rubric cases."""
    names = _FIELD_NAMES[form]
    is_strict = form == EVAL_FACTORY_FORM
    yield from short_line_problems(names.id, row.get(names.id))
    yield from message_problems(names.messages, row.get(names.messages), is_strict=is_strict)
    yield from _criteria_problems(names.criteria, row.get(names.criteria), is_strict=is_strict)
    yield from _tag_problems(names.tags, row.get(names.tags))
    if form != EVAL_FACTORY_FORM:
        return
    yield from unknown_fields(row, _FIELDS)
    if row.get("reference") is not None:
        yield from text_problems("reference", row["reference"])
    if row.get("cluster") is not None:
        yield from short_line_problems("cluster", row["cluster"])
    if ANSWER_KEY in row and not isinstance(row[ANSWER_KEY], str):
        yield (
            f"{ANSWER_KEY}: must be text, which may be empty; the model is not asked about a case "
            "with an answer"
        )
    if (
        SAMPLE_KEY in row and type(row[SAMPLE_KEY]) is not int
    ):  # `isinstance` would accept True and False
        yield f"{SAMPLE_KEY}: must be a whole number"


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
    """Yield the problem, if any, of a value that must be a text that is not blank; `label` begins
    the problem.
    """
    if value is None:
        yield f"{label}: is missing"
    elif not isinstance(value, str):
        yield f"{label}: must be text"
    elif not value.strip():
        yield f"{label}: is empty"
    elif _LONE_SURROGATE.search(value):
        yield f"{label}: holds half a surrogate pair (\\ud800 to \\udfff), which is not a character"


def short_line_problems(label: str, value: Any) -> Iterator[str]:
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
    label: str, value: Any, *, is_strict: bool, may_name_pictures: bool = False
) -> Iterator[str]:
    """Yield the problems of a row's messages.

    Args:
        label: the path of the field with the messages; it begins each problem.
        value: the value of the field.
        is_strict: True: report everything that looks like a mistake (a user's own file). False:
            report only mistakes that prevent a score (published data).
        may_name_pictures: True if the user's messages may name pictures.
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
        if role not in MESSAGE_ROLES:
            yield f"{label}.{number}.role: must be one of {', '.join(MESSAGE_ROLES)}"
        elif role == SYSTEM_ROLE and number > 0:
            yield f"{label}.{number}.role: a system message can only be the first"
        content = message.get("content")
        may_be_list = may_name_pictures and role == USER_ROLE
        if may_be_list and isinstance(content, list):
            yield from _part_problems(f"{label}.{number}.content", content)
        elif is_strict or not isinstance(content, str):
            yield from text_problems(f"{label}.{number}.content", content)
    last = value[-1]
    if isinstance(last, dict) and last.get("role") in MESSAGE_ROLES and last["role"] != USER_ROLE:
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
        yield from short_line_problems(f"{label}.{number}", tag)
