"""A user's own benchmark: a YAML file, a prompt, a CSV table, checked before anything is asked.

The form is that of HELM's configurable benchmark. HELM finds what is wrong with one late (after its start), by a
traceback, or not at all: a name in braces that is no column becomes an empty text. Here every mistake is found first
and said with its file, row and column. Messages never quote a cell: it may be a patient's.
"""

from __future__ import annotations

import csv
import hashlib
import json
import os
import re
import string
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from eval_factory.config.explain import did_you_mean, expectation
from eval_factory.config.load import load_mapping
from eval_factory.errors import ConfigError

CORRECT, INCORRECT = "correct_answer", "incorrect_answers"
JURY = "jury_score"
BERTSCORES = ("BERTScore-P", "BERTScore-R", "BERTScore-F")
METRICS = ("exact_match", "rouge_1", "rouge_2", "rouge_l", JURY, *BERTSCORES)
"""All that HELM's configurable benchmark computes."""

SCORE_FIELD = "score"
JUDGE_PLACES = ("QUESTION", "RESPONSE", "GOLD_RESPONSE")
"""What HELM fills into a judge's prompt."""

MOST_PROBLEMS_SHOWN = 10
LONGEST_CELL = 2**31 - 1

_NEEDS = "name, description, prompt_file, dataset_file and metrics"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}\Z")
_CRITERIA = re.compile(r"<rubric_criteria>\s*(\{.*?\})\s*</rubric_criteria>", re.DOTALL)  # HELM's


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


_Text = Annotated[str, StringConstraints(strict=True, min_length=1)]


class _Metric(_Strict):
    name: _Text
    prompt_file: _Text | None = None
    judges: list[Any] | None = None


class _File(_Strict):
    name: _Text
    description: _Text
    prompt_file: _Text
    dataset_file: _Text
    metrics: Annotated[list[_Metric], Field(min_length=1)]
    max_tokens: Annotated[int, Field(strict=True, ge=1)] | None = None


@dataclass(frozen=True)
class Benchmark:
    """A benchmark that was checked; paths are absolute."""

    path: Path
    name: str
    description: str
    prompt_file: Path
    dataset_file: Path
    max_tokens: int | None
    """None: HELM's own."""
    metrics: tuple[str, ...]
    """The first is the main metric."""
    judge_prompt_file: Path | None
    instances: int
    """Rows of the table."""
    sha256: Mapping[str, str]
    """Of each file, by its path from the benchmark's folder."""
    notes: tuple[str, ...]

    @property
    def main_metric(self) -> str:
        return self.metrics[0]

    @property
    def has_jury(self) -> bool:
        return self.judge_prompt_file is not None


@dataclass
class _Findings:
    problems: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def load_benchmark(path: Path) -> Benchmark:
    """Read and check a benchmark with all its files.

    Raises:
        ConfigError: with every mistake that was found, but for a table with a great many.
    """
    found = _Findings()
    shape = _shape(path, load_mapping(path, _NEEDS))
    folder = path.parent
    prompt_file = _absolute(folder, shape.prompt_file)
    dataset_file = _absolute(folder, shape.dataset_file)
    metrics = tuple(metric.name for metric in shape.metrics)
    _check_metrics(path, shape, found)
    columns = _columns_of_prompt(path, prompt_file, found)
    header = _header(path, dataset_file, found)
    judge_prompts = [
        _absolute(folder, metric.prompt_file)
        for metric in shape.metrics
        if metric.name == JURY and metric.prompt_file is not None
    ]
    for judge_prompt in judge_prompts:
        _check_judge_prompt(path, judge_prompt, header, found)
    instances = 0
    if header is not None:
        _check_columns(prompt_file, dataset_file, columns, header, metrics, found)
        instances = _check_rows(dataset_file, header, columns or [], found)
    if found.problems:
        raise ConfigError(found.problems)
    files = [path, prompt_file, dataset_file, *judge_prompts]
    return Benchmark(
        path=path,
        name=shape.name,
        description=shape.description,
        prompt_file=prompt_file,
        dataset_file=dataset_file,
        max_tokens=shape.max_tokens,
        metrics=metrics,
        judge_prompt_file=judge_prompts[0] if judge_prompts else None,
        instances=instances,
        sha256={Path(os.path.relpath(file, folder)).as_posix(): _sha256(file) for file in files},
        notes=tuple(found.notes),
    )


def _absolute(folder: Path, name: str) -> Path:
    return Path(os.path.abspath(folder / os.path.expanduser(name)))


def _shape(path: Path, document: dict[str, Any]) -> _File:
    try:
        shape = _File.model_validate(document)
    except ValidationError as error:
        raise ConfigError([_explained(path, detail) for detail in error.errors(include_url=False)]) from None
    if not _NAME.match(shape.name):
        raise ConfigError(
            f"{path}: name: must be letters, digits, - _ and . (it names folders), at most 80, got {shape.name!r}"
        )
    return shape


def _explained(path: Path, detail: Any) -> str:
    place = detail["loc"]
    where = ".".join(str(part) for part in place)
    if detail["type"] == "extra_forbidden":
        known = sorted((_File if len(place) == 1 else _Metric).model_fields)
        hint = did_you_mean(str(place[-1]), known) or f"; known here: {', '.join(known)}"
        return f"{path}: unknown key {where}{hint}"
    if detail["type"] == "missing":
        return f"{path}: {where}: is missing"
    if detail["type"] in ("string_too_short", "too_short"):
        return f"{path}: {where}: must not be empty"
    if place[0] == "metrics" and detail["type"] == "model_type":
        return f"{path}: {where}: must be a mapping such as {{name: exact_match}}"
    return f"{path}: {where}: {expectation(detail)}"


def _check_metrics(path: Path, shape: _File, found: _Findings) -> None:
    names = [metric.name for metric in shape.metrics]
    for number, metric in enumerate(shape.metrics):
        where = f"{path}: metrics.{number}"
        if metric.name not in METRICS:
            hint = did_you_mean(metric.name, METRICS) or f"; there are {', '.join(METRICS)}"
            found.problems.append(f"{where}.name: HELM's configurable benchmark has no metric {metric.name!r}{hint}")
        elif names.index(metric.name) != number:
            found.problems.append(f"{where}.name: {metric.name} stands there twice")
        if metric.name == JURY and metric.prompt_file is None:
            found.problems.append(f"{where}.prompt_file: is missing; {JURY} needs the judges' prompt")
        if metric.name != JURY and (metric.prompt_file is not None or metric.judges is not None):
            found.problems.append(f"{where}: only {JURY} has prompt_file and judges")
        if metric.name == JURY and metric.judges is not None:
            found.notes.append(
                f"the judges that {path.name} names are not asked: judges are those of config.params.extra.judges,"
                " or the default jury"
            )
    if names[0] in BERTSCORES:
        found.problems.append(
            f"{path}: metrics.0.name: HELM computes {names[0]} only where torch finds a GPU, so it cannot be the main"
            " metric; put another one first"
        )
    elif set(names) & set(BERTSCORES):
        found.notes.append("HELM computes BERTScore only where torch finds a GPU; elsewhere it is absent")


def _read_text(path: Path, what: str, named_in: Path) -> str:
    """Raises ConfigError."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise _unreadable(path, error, what, named_in) from None
    except UnicodeDecodeError:
        raise _not_utf8(path) from None
    if text.startswith("\ufeff"):
        raise ConfigError(f"{path}: begins with a byte order mark, which would be asked too; save it as UTF-8 without")
    return text


def _unreadable(path: Path, error: OSError, what: str, named_in: Path) -> ConfigError:
    if isinstance(error, FileNotFoundError):
        return ConfigError(f"{path}: there is no such file; {named_in} names it as {what} (relative to its own folder)")
    return ConfigError(f"{path}: cannot be read: {error.strerror} ({named_in} names it as {what})")


def _not_utf8(path: Path) -> ConfigError:
    with path.open("rb") as file:
        for number, line in enumerate(file, start=1):
            try:
                line.decode("utf-8")
            except UnicodeDecodeError:
                return ConfigError(
                    f"{path}: line {number}: is not UTF-8; save the file as UTF-8"
                    " (of a latin-1 file: iconv -f latin1 -t utf-8)"
                )
    return ConfigError(f"{path}: is not UTF-8")


def _columns_of_prompt(path: Path, prompt_file: Path, found: _Findings) -> list[str] | None:
    """The names in the braces of the prompt, in their order; None where the prompt cannot be read."""
    try:
        text = _read_text(prompt_file, "prompt_file", path)
    except ConfigError as error:
        found.problems += error.problems
        return None
    if not text.strip():
        found.problems.append(f"{prompt_file}: is empty")
        return None
    columns: list[str] = []
    try:
        for _, name, form, conversion in string.Formatter().parse(text):
            if name is None:
                continue
            if not name or form or conversion or re.search(r"[.\[\]{}]", name) or name.isdigit():
                shown = name + (f"!{conversion}" if conversion else "") + (f":{form}" if form else "")
                found.problems.append(
                    f"{prompt_file}: line {_line_of(text, '{' + shown)}: {{{shown}}} is not the name of a column;"
                    " write {name} for the column name, and {{ and }} for braces that are to stay"
                )
                continue
            columns.append(name)
    except ValueError:
        found.problems.append(
            f"{prompt_file}: line {_line_of_lone_brace(text)}: has a brace without its other;"
            " write {{ and }} for braces that are to stay"
        )
        return None
    return list(dict.fromkeys(columns))


def _line_of(text: str, part: str) -> int:
    return text.count("\n", 0, max(text.find(part), 0)) + 1


def _line_of_lone_brace(text: str) -> int:
    """Where a brace stands that opens nothing or closes nothing."""
    opened: int | None = None
    position = 0
    while position < len(text):
        character = text[position]
        doubled = opened is None and text[position : position + 2] in ("{{", "}}")
        if character == "{" and not doubled:
            if opened is not None:
                break
            opened = position
        elif character == "}" and not doubled:
            if opened is None:
                return text.count("\n", 0, position) + 1
            opened = None
        position += 2 if doubled else 1
    return text.count("\n", 0, opened if opened is not None else position) + 1


def _check_judge_prompt(path: Path, file: Path, header: Sequence[str] | None, found: _Findings) -> None:
    try:
        text = _read_text(file, "the judges' prompt_file", path)
    except ConfigError as error:
        found.problems += error.problems
        return
    names: list[str] = [name for name in JUDGE_PLACES if f"{{{name}}}" in text]
    for match in string.Template.pattern.finditer(text):
        name = match["named"] or match["braced"]
        if name in JUDGE_PLACES:
            names.append(name)
        elif match["escaped"] is None:
            line = text.count("\n", 0, match.start()) + 1
            found.problems.append(f"{file}: line {line}: write $$ for a dollar sign")
    if "RESPONSE" not in names:
        found.problems.append(f"{file}: must hold {{RESPONSE}}, the answer to judge")
    if "GOLD_RESPONSE" in names and header is not None and CORRECT not in header:
        found.problems.append(f"{file}: holds {{GOLD_RESPONSE}}, but the data have no column {CORRECT}")
    for name in re.findall(r"\{([^{}\n]+)\}", text):
        meant = name.upper() in JUDGE_PLACES or re.fullmatch("[A-Z_]+", name) or name in (header or ())
        if meant and name not in JUDGE_PLACES:
            line = _line_of(text, f"{{{name}}}")
            known = ", ".join(JUDGE_PLACES)
            found.problems.append(
                f"{file}: line {line}: {{{name}}} is filled with nothing; a judge's prompt has {known}"
            )
    found.problems += [f"{file}: {problem}" for problem in _criteria_problems(text)]


def _criteria_problems(text: str) -> Iterator[str]:
    form = '<rubric_criteria>{"accuracy": ["score", "explanation"]}</rubric_criteria>'
    match = _CRITERIA.search(text)
    if match is None:
        yield f"says no criteria; it needs a block such as {form}"
        return
    line = text.count("\n", 0, match.start(1)) + 1
    try:
        criteria = json.loads(match[1])
    except ValueError as error:
        yield f"line {line}: what stands in <rubric_criteria> is no JSON object ({error}); write {form}"
        return
    if not criteria:
        yield f"line {line}: <rubric_criteria> names no criterion; write {form}"
    for name, fields in criteria.items():
        texts = isinstance(fields, list) and all(isinstance(item, str) for item in fields)
        if not texts or SCORE_FIELD not in fields:
            yield (
                f"line {line}: the criterion {name!r} must have a list of fields, {SCORE_FIELD!r} among them;"
                f" write {form}"
            )


def _header(path: Path, dataset_file: Path, found: _Findings) -> list[str] | None:
    """The names of the columns; None where the table cannot be read."""
    try:
        with dataset_file.open(encoding="utf-8-sig", newline="") as file:
            header = next(csv.reader(file, strict=True), None)
    except OSError as error:
        found.problems += _unreadable(dataset_file, error, "dataset_file", path).problems
        return None
    except UnicodeDecodeError:
        found.problems += _not_utf8(dataset_file).problems
        return None
    except csv.Error as error:
        found.problems.append(f"{dataset_file}: line 1: is not CSV: {error}")
        return None
    if not header:
        found.problems.append(f"{dataset_file}: has no rows; the first line names the columns")
        return None
    for number, name in enumerate(header, start=1):
        if not name.strip():
            found.problems.append(f"{dataset_file}: line 1: column {number} has no name")
        elif header.index(name) != number - 1:
            found.problems.append(f"{dataset_file}: line 1: two columns have the name {name!r}")
    return header


def _check_columns(
    prompt_file: Path,
    dataset_file: Path,
    columns: Sequence[str] | None,
    header: Sequence[str],
    metrics: Sequence[str],
    found: _Findings,
) -> None:
    has = ", ".join(header)
    for name in columns or []:
        if name not in header:
            hint = did_you_mean(name, header) or f"; it has {has}"
            found.problems.append(f"{prompt_file}: {{{name}}} is no column of {dataset_file}{hint}")
    if columns is not None and not columns:
        found.problems.append(f"{prompt_file}: names no column in braces, so every instance would be the same")
    for name in (name for name in columns or [] if name in (CORRECT, INCORRECT)):
        found.notes.append(f"the prompt holds {{{name}}}: the model is shown the answers")
    needed = CORRECT not in header and (set(metrics) != {JURY} or INCORRECT in header)
    if needed:
        hint = did_you_mean(CORRECT, header) or f"; it has {has}"
        needing = next((name for name in metrics if name != JURY), INCORRECT)
        found.problems.append(f"{dataset_file}: has no column {CORRECT}, which {needing} needs{hint}")


def _check_rows(file: Path, header: Sequence[str], columns: Sequence[str], found: _Findings) -> int:
    """Check each row; how many there are."""
    problems: list[str] = []
    first_with: dict[int, int] = {}
    repeated: list[tuple[int, int]] = []
    shown = [header.index(name) for name in columns if name in header]
    count = 0
    try:
        for count, (line, row) in enumerate(_rows(file), start=1):
            where = f"{file}: row {count} (line {line})"
            if len(row) != len(header):
                problems.append(
                    f"{where}: has {len(row)} cells where the first line names {len(header)} columns;"
                    " a cell that holds a comma, a quote or a line break stands in double quotes"
                )
                continue
            problems += [f"{where}, {problem}" for problem in _row_problems(dict(zip(header, row, strict=True)))]
            asked = hash(tuple(row[index] for index in shown))
            if asked in first_with:
                repeated.append((first_with[asked], count))
            else:
                first_with[asked] = count
    except UnicodeDecodeError:
        problems += _not_utf8(file).problems
    except csv.Error as error:
        problems.append(f"{file}: after row {count}: is not CSV: {error}")
    if count == 0 and not problems:
        problems.append(f"{file}: has no rows below its first line, which names the columns")
    more = len(problems) - MOST_PROBLEMS_SHOWN
    found.problems += problems[:MOST_PROBLEMS_SHOWN]
    if more > 0:
        found.problems.append(f"{file}: {more} more of the kind")
    if repeated and shown:
        first, second = repeated[0]
        rows = "1 row gives" if len(repeated) == 1 else f"{len(repeated)} rows give"
        found.notes.append(
            f"{rows} the same prompt as an earlier row of {file.name} (row {second} as row {first}): counted each time"
        )
    return count


def _rows(file: Path) -> Iterator[tuple[int, list[str]]]:
    """(number of the line where it ends, cells) of each row below the first line; empty lines are no rows."""
    csv.field_size_limit(LONGEST_CELL)
    with file.open(encoding="utf-8-sig", newline="") as opened:
        reader = csv.reader(opened, strict=True)
        next(reader, None)
        for row in reader:
            if len(row) > 1 or any(cell.strip() for cell in row):
                yield reader.line_num, row


def _row_problems(row: Mapping[str, str]) -> Iterator[str]:
    correct = row.get(CORRECT)
    if correct is not None and not correct.strip():
        yield f"column {CORRECT}: is empty"
    cell = row.get(INCORRECT)
    if cell is None:
        return
    must = f'column {INCORRECT}: must be a JSON list of texts such as ["B", "C"]'
    try:
        answers = json.loads(cell)
    except ValueError:
        yield f"{must}; it is {'no JSON' if cell.strip() else 'empty (write [] for none)'}"
        return
    if not isinstance(answers, list):
        yield f"{must}; it is {_kind(answers)}"
        return
    for number, answer in enumerate(answers, start=1):
        if not isinstance(answer, str):
            yield f"{must}; its entry {number} is {_kind(answer)}"
        elif correct is not None and answer.strip() == correct.strip():
            yield f"column {INCORRECT}: its entry {number} is the {CORRECT}"


def _kind(value: object) -> str:
    names = {dict: "an object", list: "a list", str: "a text", bool: "true or false", type(None): "null"}
    return names.get(type(value), "a number")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        digest = hashlib.sha256()
        while block := file.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()
