"""A custom benchmark: a YAML file, a prompt, a CSV table, checked before anything is asked.

The form is that of HELM's configurable benchmark. HELM finds what is wrong with one late (after its start), by a
traceback, or not at all: a name in braces that is no column becomes an empty text. Here every mistake is found first
and said with its file, row and column. Messages never quote a cell: it may be a patient's.

`kind: rubric` in a benchmark's YAML: a file of cases with criteria takes the place of prompt and table.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, StringConstraints, ValidationError

from eval_factory.core.errors import ConfigError, did_you_mean, expectation
from eval_factory.core.jury_form import HELMS_FORM, JuryForm
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.rundir import sha256_of
from eval_factory.core.strict_model import StrictModel
from eval_factory.tasks import custom_table, message_files, prompt_check
from eval_factory.tasks.file_problems import Findings, shortened, unreadable_file
from eval_factory.tasks.message_files import OWN, RubricFile, read_rubric_file
from eval_factory.tasks.prompt_check import jury_keys
from eval_factory.tasks.rubric_case import RUBRIC_METRIC

JURY = "jury_score"
BERTSCORES = ("BERTScore-P", "BERTScore-R", "BERTScore-F")
TAKE_EVERY_REFERENCE = ("rouge_1", "rouge_2", "rouge_l", *BERTSCORES)
"""The best over all references, whether they are tagged correct or not (HELM's SummarizationMetric)."""

EXACT_MATCH = "exact_match"
"""HELM computes its quasi and prefix forms with it."""

METRICS = (EXACT_MATCH, JURY, *TAKE_EVERY_REFERENCE)
"""All that HELM's configurable benchmark computes."""

_FILES = ("prompt_file", "dataset_file")
_OF_JURY = ("prompt_file", "judges", "scale", "criteria")
_NEEDS = "name, description, prompt_file, dataset_file and metrics"
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,79}\Z")


_Text = Annotated[str, StringConstraints(strict=True, min_length=1)]


class _Metric(StrictModel):
    name: _Text
    prompt_file: _Text | None = None
    judges: list[Any] | None = None
    scale: Any = None
    criteria: Any = None


class _File(StrictModel):
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
    has_clusters: bool = False
    """Whether the table has a column that names the source of each row."""
    has_turns: bool = False
    """Whether its rows are conversations, sent turn by turn; there is no prompt then."""
    is_rubric: bool = False
    """Whether answers are judged criterion by criterion; `dataset_file` then holds cases, and there is no prompt."""
    jury_form: JuryForm = HELMS_FORM
    """The ratings and criteria of its jury, where it has one."""

    @property
    def main_metric(self) -> str:
        return self.metrics[0]

    @property
    def has_jury(self) -> bool:
        return self.is_rubric or self.judge_prompt_file is not None


def load_benchmark(path: Path) -> Benchmark:
    """Read and check a benchmark with all its files.

    Raises:
        ConfigError: with every mistake that was found, but for a table with a great many.
    """
    document = load_mapping(path, _NEEDS)
    if "kind" in document:
        return _of_kind(path, document)
    found = Findings()
    has_turns = message_files.holds_conversations(document.get("dataset_file"))
    if has_turns:
        document = _without_prompt(path, document, found)
    shape, readable = _shape(path, document, found)
    folder = path.parent
    form = _jury_form(path, readable.metrics, found)
    instances, header = _check_files(path, readable, form, found)
    if found.problems or shape is None:
        raise ConfigError(found.problems)
    prompt_file, dataset_file = _absolute(folder, shape.prompt_file), _absolute(folder, shape.dataset_file)
    judge_prompts = readable.judge_prompts(folder)
    files = [path, prompt_file, dataset_file, *judge_prompts]
    return Benchmark(
        path=path,
        name=shape.name,
        description=shape.description,
        prompt_file=prompt_file,
        dataset_file=dataset_file,
        max_tokens=shape.max_tokens,
        metrics=tuple(metric.name for metric in shape.metrics),
        judge_prompt_file=judge_prompts[0] if judge_prompts else None,
        instances=instances,
        sha256={Path(os.path.relpath(file, folder)).as_posix(): sha256_of(file) for file in files},
        notes=tuple(found.notes),
        has_clusters=custom_table.CLUSTER in header,
        has_turns=has_turns,
        jury_form=form,
    )


def _without_prompt(path: Path, document: dict[str, Any], found: Findings) -> dict[str, Any]:
    """Of a benchmark whose rows are conversations: they are what is sent."""
    if "prompt_file" in document:
        found.problems.append(
            f"{path}: prompt_file: leave it out; the messages of {document['dataset_file']} are what is sent"
        )
    return {**document, "prompt_file": document["dataset_file"]}


def _of_kind(path: Path, document: dict[str, Any]) -> Benchmark:
    """Raises ConfigError."""

    if document["kind"] != RUBRIC:
        raise ConfigError(
            f"{path}: kind: must be {RUBRIC}; a benchmark with a prompt and a table is written without it"
        )
    return load_rubric_benchmark(path, document)


def _absolute(folder: Path, name: str) -> Path:
    return Path(os.path.abspath(folder / os.path.expanduser(name)))


@dataclass(frozen=True)
class _Readable:
    """The parts of the file that can be checked, even where other parts are wrong."""

    prompt_file: str | None
    dataset_file: str | None
    metrics: Mapping[int, _Metric]
    """By their place in the list."""

    def judge_prompts(self, folder: Path) -> list[Path]:
        names = [metric.prompt_file for metric in self.metrics.values() if metric.name == JURY]
        return [_absolute(folder, name) for name in names if name is not None]


def _shape(path: Path, document: dict[str, Any], found: Findings) -> tuple[_File | None, _Readable]:
    try:
        shape = _File.model_validate(document)
    except ValidationError as error:
        found.problems += [_explained(path, detail) for detail in error.errors(include_url=False)]
        return None, _readable(document)
    if not NAME.match(shape.name):
        found.problems.append(
            f"{path}: name: must be letters, digits, - _ and . (it names folders), at most 80, got {shape.name!r}"
        )
    return shape, _Readable(shape.prompt_file, shape.dataset_file, dict(enumerate(shape.metrics)))


def _readable(document: Mapping[str, Any]) -> _Readable:
    files = [name if isinstance(name, str) and name else None for name in map(document.get, _FILES)]
    metrics = {}
    given = document.get("metrics")
    for number, metric in enumerate(given if isinstance(given, list) else []):
        with contextlib.suppress(ValidationError):
            metrics[number] = _Metric.model_validate(metric)
    return _Readable(files[0], files[1], metrics)


def _jury_form(path: Path, metrics: Mapping[int, _Metric], found: Findings) -> JuryForm:
    for number, metric in metrics.items():
        if metric.name == JURY:
            return jury_keys(f"{path}: metrics.{number}", metric.scale, metric.criteria, found.problems)
    return HELMS_FORM


def _check_files(path: Path, readable: _Readable, form: JuryForm, found: Findings) -> tuple[int, list[str]]:
    """Look at the files that are named, and at what one says of another; the rows and columns of the table."""
    folder, metrics = path.parent, [metric.name for metric in readable.metrics.values()]
    _check_metrics(path, readable.metrics, found)
    if message_files.holds_conversations(readable.dataset_file):
        return _check_conversations(path, readable, form, found)
    columns = header = None
    so_far = len(found.problems)
    if readable.prompt_file is not None:
        columns = prompt_check.columns_of_prompt(path, _absolute(folder, readable.prompt_file), found)
    can_be_filled = columns is not None and len(found.problems) == so_far
    if readable.dataset_file is not None:
        header = custom_table.header_of(path, _absolute(folder, readable.dataset_file), found)
    for judge_prompt in readable.judge_prompts(folder):
        prompt_check.check_judge_prompt(path, judge_prompt, header, found, form)
    if header is None or readable.dataset_file is None:
        return 0, []
    dataset_file = _absolute(folder, readable.dataset_file)
    needing = next((name for name in metrics if name != JURY), None)
    prompt_file = _absolute(folder, readable.prompt_file or "")
    custom_table.check_columns(prompt_file, dataset_file, columns, header, needing, found)
    _check_incorrect_answers(dataset_file, metrics, header, found)
    prompt = prompt_file.read_text(encoding="utf-8") if can_be_filled else ""
    compared = prompt if EXACT_MATCH in metrics else None
    rows = custom_table.check_rows(dataset_file, header, columns or [], found, compared)
    return rows, header


def _check_conversations(path: Path, readable: _Readable, form: JuryForm, found: Findings) -> tuple[int, list[str]]:
    metrics = [metric.name for metric in readable.metrics.values()]
    file = _absolute(path.parent, readable.dataset_file or "")
    needing = next((name for name in metrics if name != JURY), None)
    read = message_files.check_conversations(path, file, needing, found, quasi=EXACT_MATCH in metrics)
    header = read.fields()
    for judge_prompt in readable.judge_prompts(path.parent):
        prompt_check.check_judge_prompt(path, judge_prompt, header if read.rows else None, found, form)
    _check_incorrect_answers(file, metrics, header, found)
    return len(read.rows), header


def _check_incorrect_answers(file: Path, metrics: Sequence[str], header: Sequence[str], found: Findings) -> None:
    misled = next((name for name in metrics if name in TAKE_EVERY_REFERENCE), None)
    if misled and custom_table.INCORRECT in header:
        found.problems.append(
            f"{file}: HELM's {misled} counts an incorrect answer as right, like the correct one;"
            f" leave out the column {custom_table.INCORRECT} or the metric"
        )


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


def _check_metrics(path: Path, metrics: Mapping[int, _Metric], found: Findings) -> None:
    names = [metric.name for metric in metrics.values()]
    first = {metric.name: number for number, metric in reversed(list(metrics.items()))}
    for number, metric in metrics.items():
        where = f"{path}: metrics.{number}"
        if metric.name not in METRICS:
            hint = did_you_mean(metric.name, METRICS) or f"; there are {', '.join(METRICS)}"
            found.problems.append(f"{where}.name: HELM's configurable benchmark has no metric {metric.name!r}{hint}")
        elif first[metric.name] != number:
            found.problems.append(f"{where}.name: {metric.name} is listed twice")
        if metric.name == JURY and metric.prompt_file is None:
            found.problems.append(f"{where}.prompt_file: is missing; {JURY} needs the judges' prompt")
        if metric.name != JURY and any(getattr(metric, key) is not None for key in _OF_JURY):
            found.problems.append(f"{where}: only {JURY} has prompt_file and judges, scale and criteria")
        if metric.name == JURY and metric.judges is not None:
            found.notes.append(
                f"the judges that {path.name} names are not asked: judges are those of config.params.extra.judges,"
                " or the default jury"
            )
    if 0 in metrics and names[0] in BERTSCORES:
        found.problems.append(
            f"{path}: metrics.0.name: HELM computes {names[0]} only where torch finds a GPU, so it cannot be the main"
            " metric; put another one first"
        )
    elif set(names) & set(BERTSCORES):
        found.notes.append("HELM computes BERTScore only where torch finds a GPU; elsewhere it is absent")


RUBRIC = "rubric"


class _RubricYaml(StrictModel):
    kind: Literal["rubric"]
    name: Annotated[_Text, Field(pattern=re.compile(rf"\A{NAME.pattern}"))]
    description: _Text
    dataset_file: _Text
    max_tokens: Annotated[int, Field(strict=True, ge=1)] | None = None


def load_rubric_benchmark(path: Path, document: Mapping[str, Any]) -> Benchmark:
    """The benchmark that a YAML file with `kind: rubric` tells of.

    Raises:
        ConfigError: with every mistake that was found in it and in the file of cases.
    """
    problems: list[str] = []
    shape = None
    try:
        shape = _RubricYaml.model_validate(document)
    except ValidationError as error:
        problems += [_explained_in_rubric(path, detail) for detail in error.errors(include_url=False)]
    name = document.get("dataset_file")
    read, file = RubricFile(), path
    if isinstance(name, str) and name:
        file = Path(os.path.abspath(path.parent / os.path.expanduser(name)))
        try:
            read = read_rubric_file(file, OWN)
        except OSError as error:
            problems += unreadable_file(file, error, "dataset_file", path).problems
    problems += [f"{file}: {problem}" for problem in shortened(read.problems)]
    if problems or shape is None:
        raise ConfigError(problems)
    return Benchmark(
        path=path,
        name=shape.name,
        description=shape.description,
        prompt_file=file,
        dataset_file=file,
        max_tokens=shape.max_tokens,
        metrics=(RUBRIC_METRIC,),
        judge_prompt_file=None,
        instances=len(read.cases),
        sha256={Path(os.path.relpath(one, path.parent)).as_posix(): sha256_of(one) for one in (path, file)},
        notes=(),
        has_clusters=read.has_clusters,
        is_rubric=True,
    )


def _explained_in_rubric(path: Path, detail: Any) -> str:
    where = ".".join(str(part) for part in detail["loc"])
    if detail["type"] == "extra_forbidden":
        known = sorted(_RubricYaml.model_fields)
        hint = did_you_mean(where, known) or f"; a benchmark of kind rubric has {', '.join(known)}"
        return f"{path}: unknown key {where}{hint}"
    if detail["type"] == "missing":
        return f"{path}: {where}: is missing"
    if detail["type"] == "string_too_short":
        return f"{path}: {where}: must not be empty"
    if detail["type"] == "string_pattern_mismatch":
        return f"{path}: {where}: must be letters, digits, - _ and . (it names folders), at most 80"
    return f"{path}: {where}: {expectation(detail)}"
