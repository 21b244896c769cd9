"""Reads and checks files of JSON lines with conversations. Three kinds of files exist:

- rows of a custom benchmark;
- rubric cases, in eval-factory's own form or in HealthBench's forms;
- physicians' decisions about criteria, in the form of HealthBench's meta-evaluation; a line may
  also hold a judge's decision.

The check before a run and the run itself both use these functions, so both report the same
mistakes, each with its line and field. Messages never quote the value of a field, because the value
may be patient data. In published data, a mistake is reported only if the mistake prevents a score.
In a user's own file, everything that looks like a mistake is reported.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from eval_factory.core.errors import did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.core.safe_files import MAX_BYTES_OF_TABLE, finite_number, open_text
from eval_factory.tasks import custom_table, rubric_case
from eval_factory.tasks.choice_question import options_shown
from eval_factory.tasks.custom_table import CLUSTER, CORRECT, ID, INCORRECT, PictureCheck, text_of
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
MESSAGES = "messages"  # the field with the messages, in eval-factory's own form

FileForm = Literal["rubric", "healthbench", "healthbench_professional"]
OWN: FileForm = "rubric"
HEALTHBENCH: FileForm = "healthbench"
PROFESSIONAL: FileForm = "healthbench_professional"
_ID = {OWN: "id", HEALTHBENCH: "prompt_id", PROFESSIONAL: "id"}
_MESSAGES = {OWN: MESSAGES, HEALTHBENCH: "prompt", PROFESSIONAL: "conversation.messages"}
_TAGS = {OWN: "tags", HEALTHBENCH: "example_tags", PROFESSIONAL: "example_tags"}
_RUBRICS = {OWN: "rubrics", HEALTHBENCH: "rubrics", PROFESSIONAL: "rubric_items"}
"""These four tables state, for each form, the field with the id, messages, tags or criteria."""
_OWN_FIELDS = ("id", MESSAGES, "rubrics", "reference", "cluster", "tags", "canary", ANSWER, SAMPLE)
MAX_POINTS = 1_000_000  # the limit of a criterion's points, above and below 0

# half of a surrogate pair: JSON can contain it, but UTF-8 cannot encode it
_LONE_SURROGATE = re.compile("[\ud800-\udfff]")


def read_rows(
    file: Path,
    id_key: str,
    first_key: str,
    nouns: tuple[str, str],
    problems_of: Callable[[Mapping[str, Any]], Iterable[str]],
    row_of: Callable[[Mapping[str, Any]], Row],
) -> ReadFile[Row]:
    """Return the rows without mistakes, and each mistake, such as `line 3: messages.0.role: ...`.

    Empty lines are skipped. A file without lines, or with another kind of content than text, is a
    mistake too.

    Args:
        file: the path of a file of JSON lines.
        id_key: the field with a unique id of each row; rows without the field are accepted.
        first_key: a field that messages use to show the form of a line.
        nouns: (plural noun for the content of the file, noun for a row in the results).
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
    first_lines: dict[str, int] = {}  # id -> number of the first line with this id
    empty = f"has no {nouns[0]}; each line is a JSON object"
    with (
        content.reading(file, empty=empty),
        open_text(file, encoding="utf-8-sig", max_size=MAX_BYTES_OF_TABLE) as opened,
    ):
        for number, line in enumerate(opened, start=1):
            if not line.strip():
                continue
            row = object_in(line, first_key)
            if isinstance(row, str):
                content.problems.append(f"line {number}: {row}")
                continue
            problems = list(problems_of(row))
            row_id = row.get(id_key)
            # `setdefault` stores the number of the first line, and returns it for later lines.
            if isinstance(row_id, str) and first_lines.setdefault(row_id, number) != number:
                problems.append(
                    f"{id_key}: is the same as in line {first_lines[row_id]}; the results identify "
                    f"the {nouns[1]} by this field, so each value must be unique"
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
    others: Mapping[str, str] = field(default_factory=dict)
    """The other fields of the line as texts, including `cluster`; stored with the instance."""
    pictures: tuple[str, ...] = ()  # the pictures' paths, in the order of the marks


def holds_conversations(dataset_file: object) -> bool:
    """Return True if the name of a `dataset_file` ends with .jsonl; other files are tables."""
    return isinstance(dataset_file, str) and dataset_file.lower().endswith(".jsonl")


def read_conversations(file: Path) -> ReadFile[Conversation]:
    """Return the conversations of a custom benchmark's file, and the mistakes in the file.

    Raises OSError if the file cannot be read.
    """
    content = read_rows(
        file, ID, MESSAGES, ("conversations", "instance"), _conversation_problems, _conversation
    )
    rule = "lines have one; all have it or none has"
    content.all_or_none(ID, [row.id for row in content.rows], rule)
    content.all_or_none(CLUSTER, [row.others.get(CLUSTER) for row in content.rows], rule)
    return content


def right_letters_of(rows: Sequence[Conversation]) -> list[str]:
    """Return the letter of each row's right option, for right answers in another form.

    All right answers must have the same form, such as `B. text` or the number 2 (see
    `gold_forms.right_letters`). Otherwise the list is empty. The list is also empty if a row has no
    right answer, or if the right answers are already letters or texts of options.
    """
    pairs = []
    for row in rows:
        if row.correct is None:
            return []
        pairs.append((row.correct, options_shown(row.messages[-1]["content"])))
    return right_letters(pairs)


def fields_of(rows: Iterable[Conversation]) -> list[str]:
    """Return the names of the fields that the benchmark can use.

    The id, the right answer and the cluster are each included if all rows have this field; the
    wrong answers are included if any row has wrong answers.
    """
    rows = list(rows)
    if not rows:
        return []
    fields = []
    if all(row.id is not None for row in rows):
        fields.append(ID)
    if all(row.correct is not None for row in rows):
        fields.append(CORRECT)
    if any(row.incorrect for row in rows):
        fields.append(INCORRECT)
    if all(CLUSTER in row.others for row in rows):
        fields.append(CLUSTER)
    return fields


def check_conversations(
    path: Path,
    file: Path,
    needing: str | None,
    findings: Findings,
    pictures: PictureCheck,
    *,
    quasi: bool,
    has_answers: bool = False,
) -> list[Conversation]:
    """Read the conversations of a benchmark, and add their problems to the findings.

    Args:
        path: the benchmark's YAML file, which names the file of conversations.
        file: the file of conversations.
        needing: the name of a metric that needs right answers; None if no metric needs them.
        findings: the lists to which problems and notes are added.
        pictures: the check of the pictures that rows name.
        quasi: True if HELM computes its quasi metrics for the benchmark.
        has_answers: True if each line must have the answer to judge: the model is then not asked.

    Returns:
        The conversations of all lines whose form has no mistakes; empty if the file cannot be read.
    """
    try:
        read = read_conversations(file)
    except OSError as error:
        findings.problems.append(f"{file}: {why_unreadable(error, 'dataset_file', path)}")
        return []
    problems = [f"{file}: {problem}" for problem in read.problems]
    instances = custom_table.Instances("line", quasi, problems, can_map=True)
    for row, line in zip(read.rows, read.lines, strict=True):
        label = f"{file}: line {line}: "
        if needing is not None and row.correct is None:
            instances.problems.append(f"{label}{CORRECT}: is missing, but {needing} needs it")
        if has_answers and ANSWER not in row.others:
            instances.problems.append(
                f"{label}{ANSWER}: is missing; has_answers says that each line has one"
            )
        named = [(f"picture {number}", name) for number, name in enumerate(row.pictures, start=1)]
        text = rubric_case.conversation_text(row.messages)
        for problem in pictures.problems_of(named, text):
            instances.problems.append(f"{label}{problem}")
        if row.correct is not None:
            instances.compare(label, row.messages[-1]["content"], row.correct, row.incorrect)
        # Rows with equal messages and pictures are reported as repeated questions.
        instances.add(
            line,
            (*((message["role"], message["content"]) for message in row.messages), *row.pictures),
            row.correct,
        )
    instances.complete(file, len(read.rows), findings)
    return read.rows


def _conversation(row: Mapping[str, Any]) -> Conversation:
    """Return the conversation of a row without problems. Further fields with null are dropped."""
    further = {}
    for name, value in row.items():
        if name not in (ID, MESSAGES, CORRECT, INCORRECT) and value is not None:
            further[name] = str(value)
    incorrect = tuple(row.get(INCORRECT) or ())
    pictures = []
    for message in row[MESSAGES]:
        if isinstance(message["content"], list):
            for part in message["content"]:
                if part["type"] == "image":
                    pictures.append(part["path"])
    return Conversation(
        _messages(row[MESSAGES]), row.get(ID), row.get(CORRECT), incorrect, further, tuple(pictures)
    )


def _messages(record: Iterable[Mapping[str, Any]]) -> tuple[Mapping[str, str], ...]:
    """Return the messages with a text as `content`, also if the file has a list of parts."""
    return tuple({"role": turn["role"], "content": text_of(turn["content"])} for turn in record)


def _conversation_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a row of conversations."""
    yield from message_problems(MESSAGES, row.get(MESSAGES), is_own=True, pictures=True)
    for name in (ID, CLUSTER):
        if row.get(name) is not None:
            yield from name_problems(name, row[name])
    correct = row.get(CORRECT)
    incorrect = row.get(INCORRECT)
    if correct is not None:
        yield from text_problems(CORRECT, correct)
    if incorrect is not None and not isinstance(incorrect, list):
        yield f'{INCORRECT}: must be a list of texts such as ["B", "C"]'
    for number, answer in enumerate(incorrect if isinstance(incorrect, list) else []):
        yield from text_problems(f"{INCORRECT}.{number}", answer)
        if (
            isinstance(answer, str)
            and isinstance(correct, str)
            and answer.strip() == correct.strip()
        ):
            yield f"{INCORRECT}.{number}: is the same as {CORRECT}"
    for name, value in row.items():
        if isinstance(value, (list, dict)) and name not in (
            MESSAGES,
            INCORRECT,
            ID,
            CLUSTER,
            CORRECT,
        ):
            yield f"{name}: must be text or a number; it is stored with the instance's results"


def read_rubric_file(path: Path, form: FileForm) -> ReadFile[RubricCase]:
    """Return the rubric cases of a file in this form, and the mistakes in the file.

    Raises OSError if the file cannot be read.
    """
    # The id is also the field that messages show, because it is the first field of a line.
    name = _ID[form]
    nouns = ("cases", "case")
    # `_case_problems` and `_case` expect HealthBench's names in a criterion, and one field for the
    # messages.
    renamed = _as_healthbench if form == PROFESSIONAL else dict
    content = read_rows(
        path,
        name,
        name,
        nouns,
        lambda row: _case_problems(renamed(row), form),
        lambda row: _case(renamed(row), form),
    )
    rule = "cases have one; a case that shares nothing gets a name of its own"
    content.all_or_none("cluster", [case.cluster for case in content.rows], rule)
    content.all_or_none(
        ANSWER, [case.answer for case in content.rows], "cases have one; all have it or none has"
    )
    return content


def _plain_criterion(criterion: Any) -> Any:
    """Return a criterion of HealthBench Professional with HealthBench's names of fields.

    A value that is not an object is returned unchanged, and `_criterion_problems` reports it.
    """
    if not isinstance(criterion, Mapping):
        return criterion
    text = criterion.get("criterion_text", criterion.get("criterion"))
    return {"criterion": text, "points": criterion.get("points")}


def _as_healthbench(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row of HealthBench Professional (arXiv 2604.27470; MIT) in HealthBench's form.

    The messages, the criteria and the tags are each in one field, under the name that the tables
    of fields state for this form. A row may also hold a physician's answer, which is not used for
    the score.
    """
    conversation = row.get("conversation")
    criteria = row.get("rubric_items")
    messages = conversation.get("messages") if isinstance(conversation, Mapping) else None
    if isinstance(criteria, list):
        criteria = list(map(_plain_criterion, criteria))
    tags = []
    for name in ("use_case", "type", "difficulty", "specialty"):
        if row.get(name):
            tags.append(f"{name}:{row[name]}")
    return {
        **row,
        _MESSAGES[PROFESSIONAL]: messages,
        _RUBRICS[PROFESSIONAL]: criteria,
        _TAGS[PROFESSIONAL]: tags,
    }


def _case(row: Mapping[str, Any], form: FileForm) -> RubricCase:
    """Return the rubric case of a row without problems."""
    criteria = []
    for entry in row[_RUBRICS[form]]:
        tags = tuple(entry.get("tags") or ())
        criteria.append(Criterion(entry["criterion"], entry["points"], tags))
    canary = row.get("canary")
    own_fields: Mapping[str, Any] = {}  # empty for published files, which lack these fields
    if form == OWN:
        own_fields = row
    return RubricCase(
        row[_ID[form]],
        _messages(row[_MESSAGES[form]]),
        tuple(criteria),
        reference=own_fields.get("reference"),
        cluster=own_fields.get("cluster"),
        tags=tuple(row.get(_TAGS[form]) or ()),
        canary=canary if isinstance(canary, str) else None,
        answer=own_fields.get(ANSWER),
        sample=own_fields.get(SAMPLE),
    )


def _case_problems(row: Mapping[str, Any], form: FileForm) -> Iterator[str]:
    """Yield the problems of a row of rubric cases."""
    is_own = form == OWN
    yield from name_problems(_ID[form], row.get(_ID[form]))
    yield from message_problems(_MESSAGES[form], row.get(_MESSAGES[form]), is_own=is_own)
    name = _RUBRICS[form]
    criteria = row.get(name)
    if isinstance(criteria, list) and criteria:
        problems: list[str] = []
        for number, criterion in enumerate(criteria):
            problems += _criterion_problems(f"{name}.{number}", criterion, is_own=is_own)
        yield from problems
        if (
            not problems
            and positive_points(Criterion("", criterion["points"]) for criterion in criteria) <= 0
        ):
            yield f"{name}: no criterion has positive points, so no score can be computed"
    else:
        yield (
            f'{name}: must be a list of criteria such as [{{"criterion": "...", "points": '
            '5, "tags": []}]'
        )
    yield from _tag_problems(_TAGS[form], row.get(_TAGS[form]))
    if is_own:
        yield from unknown_fields(row, _OWN_FIELDS)
        if row.get("reference") is not None:
            yield from text_problems("reference", row["reference"])
        if row.get("cluster") is not None:
            yield from name_problems("cluster", row["cluster"])
        if not isinstance(row.get(ANSWER, ""), str):
            yield (
                f"{ANSWER}: must be text, which may be empty; the model is not asked about a case "
                "with an answer"
            )
        if type(row.get(SAMPLE, 0)) is not int:
            yield f"{SAMPLE}: must be a whole number"


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


def object_in(line: str, first_key: str) -> dict[str, Any] | str:
    """Return the JSON object of a line, or a message that describes the mistake in the line.

    Args:
        line: a line of the file.
        first_key: a field that the message uses to show the form of an object.
    """
    try:
        # `int` raises ValueError for NaN and Infinity.
        row = json.loads(
            line, parse_constant=int, parse_float=finite_number, object_pairs_hook=_object_of
        )
    except RepeatedKeyError as error:
        return f"an object has the key {error} twice"
    except (ValueError, RecursionError) as error:
        reason = (
            error.msg
            if isinstance(error, json.JSONDecodeError)
            else "it holds NaN, Infinity or too many levels"
        )
        return f"is not JSON ({reason}); each line is one JSON object"
    return row if isinstance(row, dict) else f'must be a JSON object such as {{"{first_key}": ...}}'


def unknown_fields(row: Mapping[str, Any], keys: Iterable[str], label: str = "") -> Iterator[str]:
    """Yield a problem for each field that is not one of `keys`; `label` begins each problem."""
    keys = tuple(keys)
    for name in row:
        if name not in keys:
            hint = did_you_mean(name, keys) or f"; known fields: {', '.join(keys)}"
            yield f"{label}{name}: is not a known field{hint}"


def text_problems(label: str, value: Any) -> Iterator[str]:
    """Yield the problem, if any, of a value that must be a non-empty text.

    `label` begins the problem.
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
    """Yield the problem, if any, of a value that must be a non-empty text of one short line.

    `label` begins the problem.
    """
    problems = list(text_problems(label, value))
    if not problems and (len(value) > 200 or any(ord(letter) < 32 for letter in value)):
        problems.append(f"{label}: must be one line of at most 200 characters")
    yield from problems


def message_problems(
    label: str, value: Any, *, is_own: bool, pictures: bool = False
) -> Iterator[str]:
    """Yield the problems of a row's messages.

    Args:
        label: the path of the field with the messages; it begins each problem.
        value: the value of the field.
        is_own: True if the file is the user's own: everything that looks like a mistake is then
            reported.
        pictures: True if messages may name pictures.
    """
    if not isinstance(value, list) or not value:
        yield f'{label}: must be a list of messages such as [{{"role": "user", "content": "..."}}]'
        return
    for number, message in enumerate(value):
        if not isinstance(message, dict):
            yield f"{label}.{number}: must be an object with role and content"
            continue
        if is_own:
            yield from unknown_fields(message, ("role", "content"), f"{label}.{number}.")
        role = message.get("role")
        if role not in ROLES:
            yield f"{label}.{number}.role: must be one of {', '.join(ROLES)}"
        elif role == SYSTEM and number > 0:
            yield f"{label}.{number}.role: a system message can only be the first"
        content = message.get("content")
        if isinstance(content, list) and pictures and role == USER:
            yield from _part_problems(f"{label}.{number}.content", content)
        elif is_own or not isinstance(content, str):
            yield from text_problems(f"{label}.{number}.content", content)
    last = value[-1]
    if isinstance(last, dict) and last.get("role") in ROLES and last["role"] != USER:
        yield (
            f"{label}.{len(value) - 1}.role: the last message must be the user's, "
            "because the model answers this message"
        )


def _part_problems(label: str, parts: Sequence[Any]) -> Iterator[str]:
    """Yield the problems of the parts (texts and pictures) of one message."""
    # [None] makes an empty list of parts a problem, too.
    for number, part in enumerate(parts or [None]):
        key = None  # the second key of the part, which its type decides
        if isinstance(part, dict):
            key = {"text": "text", "image": "path"}.get(str(part.get("type")))
        if key is None or len(part) != 2:
            yield (
                f'{label}.{number}: must be {{"type": "text", "text": "..."}} or {{"type": '
                '"image", "path": "..."}'
            )
        else:
            yield from text_problems(f"{label}.{number}.{key}", part.get(key))


def _criterion_problems(label: str, criterion: Any, *, is_own: bool) -> Iterator[str]:
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
    elif abs(points) > MAX_POINTS or (is_own and points == 0):
        yield f"{label}.points: must not be 0, and at most {MAX_POINTS} above or below 0"
    yield from _tag_problems(f"{label}.tags", criterion.get("tags"))
    if is_own:
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


# Files of physicians' decisions, as in HealthBench's meta-evaluation (arXiv 2505.08775, section 6;
# MIT). A line is about one criterion of one answer. The fields of a line are `prompt` (or
# `prompt_id`), `completion`, `rubric`, `category`, `binary_labels` and `anonymized_physician_ids`.
# A further field holds the judge's decision, unless eval-factory asks judges itself: the line then
# needs all texts that are shown to a judge.

MIN_ITEMS = 10  # no figures are computed for a category, or another part, with fewer items
ITEM = "item_id"
LABELS = "binary_labels"
PHYSICIANS = "anonymized_physician_ids"
CATEGORY = "category"
LANGUAGE = "language"
_NO_BOOLEAN = "must be true or false, without quotes"


@dataclass(frozen=True)
class LabelledAnswer:
    """The texts that are shown to a judge: a conversation, an answer and a criterion."""

    messages: tuple[Mapping[str, str], ...]
    answer: str
    criterion: str


@dataclass(frozen=True)
class LabelledItem:
    """The decisions of a judge and of physicians about one criterion of one answer."""

    conversation: str  # an id of the conversation
    # the judge's decision: 1.0 if the criterion is met, else 0.0; or the judge's rating on a scale
    judged: float
    labels: tuple[float, ...]  # the decisions of the physicians, in the same form
    physicians: tuple[str, ...]  # the name of the physician of each of `labels`
    category: str | None = None
    length: int | None = None  # the answer's length in characters; None if the line has no answer
    language: str | None = None
    text: LabelledAnswer | None = None  # set if eval-factory asks judges itself


@dataclass(frozen=True)
class LabelledPairs:
    """The numbers of pairs (judge's decision, physician's decision) of one conversation and
    category.
    """

    conversation: Hashable
    category: str | None
    # the number of pairs with: both "met", only the judge "met", only the physician "met", neither
    counts: tuple[int, int, int, int]


@dataclass(frozen=True)
class LabelledItems:
    """The number of items of one conversation and category with the same decisions."""

    conversation: Hashable
    category: str | None
    judged: bool  # True if the judge decided "met"
    labels: int  # the number of physicians who decided about each item
    met: int  # the number of these physicians who decided "met"
    items: int  # the number of items with these three values


def read_labels(file: Path, column: str | None) -> ReadFile[LabelledItem]:
    """Return the items of a file of physicians' decisions without mistakes, and every mistake.

    Args:
        file: the path of a file of JSON lines.
        column: the field with the judge's decision; None if eval-factory asks judges itself. Items
            then hold the texts for the judges, and `judged` is False and has no meaning.

    Raises:
        OSError: the file cannot be read.
    """

    def problems_of(row: Mapping[str, Any]) -> Iterator[str]:
        yield from _problems(row)
        if column is None:
            yield from _text_problems(row)
        elif row.get(column) is None:
            hint = did_you_mean(column, [one_line(name) for name in row if name != column])
            yield f"{one_line(column)}: is missing; it is the field with the judge's decision{hint}"
        elif not isinstance(row[column], bool):
            yield f"{one_line(column)}: {_NO_BOOLEAN}"

    identities: list[_ItemIdentity] = []

    def item_of(row: Mapping[str, Any]) -> LabelledItem:
        identities.append(_identity_of(row))
        return _item(row, column)

    no_id = ""  # no field has to be unique: several lines may be about one item
    content = read_rows(file, no_id, "prompt", ("labels", "line"), problems_of, item_of)
    content.problems += _contradictions(identities, content)
    rule = "lines have one; all have it or none has"
    content.all_or_none(CATEGORY, [item.category for item in content.rows], rule)
    content.all_or_none(LANGUAGE, [item.language for item in content.rows], rule)
    if content.rows and not content.problems and all(len(item.labels) < 2 for item in content.rows):
        content.problems.append(
            f"no line has the decisions of two physicians ({LABELS}): the judge's agreement is "
            "compared with the physicians' agreement"
        )
    return content


@dataclass(frozen=True)
class _ItemIdentity:
    """The item that a line is about, identified by ids and by texts."""

    ids: Hashable  # None if the line does not have enough ids to identify the item
    texts: str  # the texts of the item as JSON


def _identity_of(row: Mapping[str, Any]) -> _ItemIdentity:
    """Return the identity of the item of a line.

    The ids are the field `item_id`; or else `completion_id`, together with the criterion and the
    category.
    """
    fields = [row.get(name) for name in ("prompt", "prompt_id", "completion", "rubric", CATEGORY)]
    texts = json.dumps(fields, sort_keys=True)
    if row.get(ITEM) is not None:
        return _ItemIdentity(str(row[ITEM]).strip(), texts)
    if row.get("completion_id") is None or row.get("rubric") is None:
        return _ItemIdentity(None, texts)
    ids = (str(row["completion_id"]).strip(), json.dumps(row["rubric"]), row.get(CATEGORY))
    return _ItemIdentity(ids, texts)


def _contradictions(
    identities: Sequence[_ItemIdentity], content: ReadFile[LabelledItem]
) -> Iterator[str]:
    """Yield a problem for each line that contradicts an earlier line about the same item.

    Two lines contradict each other if their texts differ, or if the judge or a physician has
    different decisions in the two lines. Lines without enough ids are not compared.
    """
    # (ids, physician or None for the judge) -> (decision, first line with the decision)
    decided: dict[tuple[Hashable, str | None], tuple[float, int]] = {}
    # ids -> (texts, first line with the ids)
    texts_of_ids: dict[Hashable, tuple[str, int]] = {}
    for identity, item, line in zip(identities, content.rows, content.lines, strict=True):
        if identity.ids is None:
            continue
        texts, first = texts_of_ids.setdefault(identity.ids, (identity.texts, line))
        if texts != identity.texts:
            yield (
                f"line {line}: has the same id as line {first}, but other texts or another "
                "category; give each item its own id"
            )
            continue
        decisions: list[tuple[str | None, float]] = [(None, item.judged)]
        decisions += zip(item.physicians, item.labels, strict=True)
        for who, decision in decisions:
            first_decision, first = decided.setdefault((identity.ids, who), (decision, line))
            if first_decision != decision:
                # The message does not name the physician, because values of fields are not quoted.
                name = "the judge" if who is None else "a physician"
                yield (
                    f"line {line}: {name} decides about the same item (id) in another way than "
                    f"in line {first}; remove one of the two lines"
                )
                break


def _problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a line of physicians' decisions.

    The judge's decision in the line, if any, is not checked here.
    """
    labels = row.get(LABELS)
    physicians = row.get(PHYSICIANS)
    if row.get("prompt_id") is not None:
        yield from name_problems("prompt_id", row["prompt_id"])
    elif not isinstance(row.get("prompt"), (str, list)) or not row["prompt"]:
        yield "prompt: is missing; prompt (or prompt_id) identifies the lines of one conversation"
    if row.get("completion") is not None and not isinstance(row["completion"], str):
        yield "completion: must be text"
    yield from _id_problems(row)
    if not isinstance(labels, list) or not labels:
        yield f"{LABELS}: must be a list of physicians' decisions such as [true, false]"
    else:
        for number, label in enumerate(labels):
            if not isinstance(label, bool):
                yield f"{LABELS}.{number}: {_NO_BOOLEAN}"
    if not isinstance(physicians, list) or not physicians:
        yield f"{PHYSICIANS}: must be a list of names, one for each of {LABELS}"
        return
    for number, name in enumerate(physicians):
        yield from text_problems(f"{PHYSICIANS}.{number}", name)
    if isinstance(labels, list) and len(labels) != len(physicians):
        yield f"{PHYSICIANS}: has {len(physicians)} names, and {LABELS} {len(labels)} decisions"
    elif len({name for name in physicians if isinstance(name, str)}) < len(physicians):
        yield f"{PHYSICIANS}: the same physician is named twice"


def _id_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield the problems of a line's category, language and ids."""
    for name in (CATEGORY, LANGUAGE):
        if row.get(name) is not None:
            yield from name_problems(name, row[name])
    for name in (ITEM, "completion_id"):
        if not (row.get(name) is None or type(row[name]) is int or isinstance(row[name], str)):
            yield f"{name}: must be text, or a whole number"


def _text_problems(row: Mapping[str, Any]) -> Iterator[str]:
    """Yield a problem for each missing text that is shown to judges."""
    if isinstance(row.get("prompt"), list):
        yield from message_problems("prompt", row["prompt"], is_own=False)
    elif not isinstance(row.get("prompt"), str):
        yield "prompt: is missing; the judge is shown the conversation"
    if row.get("completion") is None:
        yield "completion: is missing; the judge is shown the answer"
    yield from text_problems("rubric", row.get("rubric"))


def _item(row: Mapping[str, Any], column: str | None) -> LabelledItem:
    """Return the item of a line without problems; `column` as in `read_labels`."""
    name = row.get("prompt_id")
    answer = row.get("completion")
    # A hash of the conversation replaces a missing id.
    if name is None:
        name = hashlib.sha256(json.dumps(row["prompt"], sort_keys=True).encode()).hexdigest()
    text = None
    judged = False
    if column is not None:
        judged = row[column]
    else:
        prompt = row["prompt"]
        turns = [{"role": USER, "content": prompt}] if isinstance(prompt, str) else prompt
        messages = tuple({"role": turn["role"], "content": turn["content"]} for turn in turns)
        text = LabelledAnswer(messages, row["completion"], row["rubric"])
    return LabelledItem(
        name,
        judged,
        tuple(row[LABELS]),
        tuple(row[PHYSICIANS]),
        row.get(CATEGORY),
        None if answer is None else len(answer),
        row.get(LANGUAGE),
        text,
    )
