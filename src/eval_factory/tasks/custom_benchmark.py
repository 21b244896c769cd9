"""Reads and checks a custom benchmark: a YAML file, and the files that it names.

The YAML file names a prompt and a table, or conversations, or rubric cases. A file with a prompt
and a table has the form of HELM's configurable benchmark. HELM itself finds mistakes late or not at
all: if the prompt names a column that does not exist, HELM fills in an empty text. Messages never
quote a cell of the data, because a cell may contain patient data.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

from pydantic import AfterValidator, Field, StringConstraints, ValidationError

from eval_factory.core import safe_files
from eval_factory.core.errors import ConfigError, did_you_mean, unmet_expectation
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.rundir import sha256_of
from eval_factory.core.strict_model import StrictModel
from eval_factory.core.table_files import file_of_table
from eval_factory.tasks import conversations, custom_table
from eval_factory.tasks.custom_table import PictureCheck, picture_columns
from eval_factory.tasks.file_problems import Findings, first_problems, why_unreadable
from eval_factory.tasks.jury_form import (
    HELMS_JURY_FORM,
    JURY_METRIC,
    MAX,
    MIN,
    JuryForm,
    check_judge_prompt,
    jury_form_of,
)
from eval_factory.tasks.message_files import EVAL_FACTORY_FORM, read_rubric_file
from eval_factory.tasks.rubric_case import RUBRIC_METRIC

BERTSCORES = ("BERTScore-P", "BERTScore-R", "BERTScore-F")
BEST_REFERENCE_METRICS = ("rouge_1", "rouge_2", "rouge_l", *BERTSCORES)
"""Metrics that score an answer against its best-matching reference, even if this reference is a
wrong answer (HELM's SummarizationMetric).
"""

EXACT_MATCH = "exact_match"  # HELM then also computes the quasi and prefix forms of this metric

# all metrics of HELM's configurable benchmark
METRICS = (EXACT_MATCH, JURY_METRIC, *BEST_REFERENCE_METRICS)

RUBRIC = "rubric"  # the `kind` of a benchmark whose judges decide about the criteria of a rubric

_Text = Annotated[str, StringConstraints(strict=True, min_length=1)]
# such as `my-notes_2.1`: the name of a folder, of at most 80 characters
_Name = Annotated[_Text, Field(pattern=re.compile(r"\A[A-Za-z0-9][A-Za-z0-9_.-]{0,79}\Z"))]

_MAX_STEPS = 100  # the greatest difference between the highest and the lowest rating
# a number that a user wrote as the word for a rating: "5", "-1", "2.5"
_NUMBER = re.compile(r"[+-]?\d+(\.\d*)?")
_RESERVED = re.compile(r'[{}$<>"\\\x00-\x1f]')
"""Finds characters with a special meaning in the judges' prompt, such as the start of a placeholder
or the end of a JSON text. `\\x00-\\x1f` are the control characters, with the line break.
"""
_SCALE_EXAMPLES = (
    "write {min: 0, max: 10}, or a word for each rating such as {poor: 0, fair: 1, good: 2}"
)


def _prompt_text(min_length: int, max_length: int) -> AfterValidator:
    """Return a validator of a text for the judges' prompt; lengths are in characters."""

    def check(text: str) -> str:
        if text.strip() != text or not min_length <= len(text) <= max_length:
            raise ValueError(
                f"must be a text of {min_length} to {max_length} characters, "
                "without spaces around it"
            )
        if _RESERVED.search(text):
            raise ValueError(
                'must not hold any of { } $ < > " \\ or a line break: '
                "the text becomes part of the judges' prompt"
            )
        return text

    return AfterValidator(check)


def _checked_scale(scale: dict[str, int]) -> dict[str, int]:
    """Return a valid scale unchanged. Raises ValueError if the scale is not valid."""
    words = {name.casefold() for name in scale}
    values = set(scale.values())
    if len(scale) < 2:
        raise ValueError(f"must have at least two keys; {_SCALE_EXAMPLES}")
    if max(values) - min(values) > _MAX_STEPS:
        raise ValueError(
            f"has more than {_MAX_STEPS} steps from {min(values)} to {max(values)}; use a "
            "coarser scale"
        )
    if scale.keys() == {MIN, MAX}:
        if scale[MIN] >= scale[MAX]:
            raise ValueError(f"{MAX} must be above {MIN}, which is {scale[MIN]}")
    elif any(_NUMBER.fullmatch(name) for name in scale):
        raise ValueError(f"each rating needs a word, not a number; {_SCALE_EXAMPLES}")
    elif len(words) < len(scale) or len(values) < len(scale):
        raise ValueError(
            "two words differ only in capital letters, or two words have the same rating"
        )
    return scale


_Word = Annotated[str, Field(strict=True), _prompt_text(min_length=1, max_length=80)]
_Description = Annotated[str, Field(strict=True), _prompt_text(min_length=0, max_length=1000)]


class _Criterion(StrictModel):
    """One of the criteria that a jury rates."""

    name: _Word
    description: _Description = ""


def _checked_names(criteria: list[_Criterion]) -> list[_Criterion]:
    """Return the criteria unchanged. Raises ValueError if two criteria have the same name."""
    if len({criterion.name for criterion in criteria}) < len(criteria):
        raise ValueError("a name is listed twice")
    return criteria


_Scale = Annotated[dict[_Word, Annotated[int, Field(strict=True)]], AfterValidator(_checked_scale)]
_Criteria = Annotated[list[_Criterion], Field(min_length=1), AfterValidator(_checked_names)]


class _Metric(StrictModel):
    """An entry of `metrics`. Only the metric of a jury has more fields than `name`."""

    name: _Text
    prompt_file: _Text | None = None
    judges: list[Any] | None = None
    scale: _Scale | None = None
    criteria: _Criteria | None = None


class _TableFile(StrictModel):
    """The YAML file of a benchmark with a prompt and a table, or with conversations."""

    name: _Name
    description: _Text
    prompt_file: _Text
    dataset_file: _Text
    metrics: Annotated[list[_Metric], Field(min_length=1)]
    max_tokens: Annotated[int, Field(strict=True, ge=1)] | None = None
    has_answers: Annotated[bool, Field(strict=True)] = False


class _RubricFile(StrictModel):
    """The YAML file of a benchmark with rubric cases."""

    kind: Literal["rubric"]
    name: _Name
    description: _Text
    dataset_file: _Text
    max_tokens: Annotated[int, Field(strict=True, ge=1)] | None = None


_YamlFile = TypeVar("_YamlFile", _TableFile, _RubricFile)


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A custom benchmark whose files were checked; paths are absolute."""

    path: Path  # the YAML file
    name: str
    description: str
    prompt_file: Path  # `dataset_file`, if the benchmark has no prompt
    dataset_file: Path
    max_tokens: int | None  # the limit of an answer; None: HELM's own limit
    metrics: tuple[str, ...]  # the first is the main metric
    judge_prompt_file: Path | None = None
    instances: int  # the number of rows, conversations or cases
    sha256: Mapping[str, str]
    """Dict from the path of each file, relative to the YAML file's folder, to its SHA-256. The
    entry `(pictures)` is a hash of all pictures, if there are any.
    """
    notes: tuple[str, ...] = ()
    has_clusters: bool = False  # True if the data name the source that several instances share
    # True if the data are conversations, whose messages are sent; the benchmark has no prompt
    has_conversations: bool = False
    is_rubric: bool = False
    """True if judges decide about the criteria of a rubric. `dataset_file` then holds cases, and
    the benchmark has no prompt.
    """
    has_answers: bool = False  # True if the data contain the answers to judge: no model is asked
    rows_with_pictures: int = 0  # the number of rows with pictures
    # the prompt of the first row with pictures, with a line for each picture
    first_with_pictures: str | None = None
    jury_form: JuryForm = HELMS_JURY_FORM  # the form of the jury's answers, if there is a jury

    @property
    def main_metric(self) -> str:
        """The name of the main metric, which is the first metric."""
        return self.metrics[0]

    @property
    def has_jury(self) -> bool:
        """True if judges score the answers, by a rubric or by ratings."""
        return self.is_rubric or self.judge_prompt_file is not None

    @property
    def gold_metric(self) -> str | None:
        """The first metric that needs right answers; None if there is none."""
        return next((name for name in self.metrics if name != JURY_METRIC), None)


def load_benchmark(path: Path) -> Benchmark:
    """Read and check a custom benchmark with all its files, and return the benchmark.

    Raises:
        ConfigError: a key of the YAML file is unknown, missing or malformed; or, if all keys are
            correct, a file has mistakes. Only the first mistakes of a file are listed.
    """
    document = load_mapping(path, needs="name, description, prompt_file, dataset_file and metrics")
    if document.get("kind") == RUBRIC:
        return _rubric_benchmark(path, document)
    if "kind" in document:
        raise ConfigError(
            f"{path}: kind: must be {RUBRIC}; a benchmark with a prompt and a table does not have "
            "this key"
        )
    return _table_benchmark(path, document)


def _table_benchmark(path: Path, document: Mapping[str, Any]) -> Benchmark:
    """Read and check a benchmark with a table or conversations.

    Raises ConfigError if a file has mistakes.
    """
    findings = Findings()
    has_conversations = conversations.holds_conversations(document.get("dataset_file"))
    if has_conversations:
        document = _with_dataset_as_prompt(path, document, findings)
    yaml_file = _validated(path, document, _TableFile)
    _check_metrics(path, yaml_file.metrics, findings)
    if yaml_file.has_answers and not has_conversations:
        findings.problems.append(
            f"{path}: has_answers: only conversations have answers; name a dataset_file in .jsonl"
        )
    no_jury = _Metric(
        name=JURY_METRIC
    )  # a placeholder without values, for a benchmark without a jury
    jury = next((metric for metric in yaml_file.metrics if metric.name == JURY_METRIC), no_jury)
    unchecked = Benchmark(
        path=path,
        name=yaml_file.name,
        description=yaml_file.description,
        prompt_file=_absolute(path, yaml_file.prompt_file),
        dataset_file=_absolute(path, yaml_file.dataset_file),
        max_tokens=yaml_file.max_tokens,
        metrics=tuple(metric.name for metric in yaml_file.metrics),
        judge_prompt_file=None if jury.prompt_file is None else _absolute(path, jury.prompt_file),
        instances=0,  # `instances` and `sha256` are replaced below, after the check of the data
        sha256={},
        has_conversations=has_conversations,
        has_answers=yaml_file.has_answers,
        jury_form=jury_form_of(jury.model_dump()),
    )
    pictures = PictureCheck(path.parent)
    check_data = _check_conversations if has_conversations else _check_table
    row_count, columns = check_data(unchecked, pictures, findings)
    if findings.problems:
        raise ConfigError(findings.problems)
    files = [unchecked.prompt_file, unchecked.dataset_file]
    if unchecked.judge_prompt_file is not None:
        files.append(unchecked.judge_prompt_file)
    sha256 = _hashes(path, *files)
    if pictures.row_count:
        sha256["(pictures)"] = pictures.sha256
    return replace(
        unchecked,
        instances=row_count,
        sha256=sha256,
        notes=tuple(findings.notes),
        has_clusters=custom_table.CLUSTER_FIELD in columns,
        rows_with_pictures=pictures.row_count,
        first_with_pictures=pictures.first_prompt,
    )


def _with_dataset_as_prompt(
    path: Path, document: Mapping[str, Any], findings: Findings
) -> dict[str, Any]:
    """Return the YAML document of conversations, with the `dataset_file` as its `prompt_file`.

    Conversations have no prompt, so a `prompt_file` in the document is a problem. The key is added
    only because `_TableFile` requires it.
    """
    if "prompt_file" in document:
        findings.problems.append(
            f"{path}: prompt_file: leave it out; eval-factory sends the messages of "
            f"{document['dataset_file']}"
        )
    return {**document, "prompt_file": document["dataset_file"]}


def _rubric_benchmark(path: Path, document: Mapping[str, Any]) -> Benchmark:
    """Read and check a benchmark with rubric cases. Raises ConfigError if a file has mistakes."""
    yaml_file = _validated(path, document, _RubricFile)
    file = _absolute(path, yaml_file.dataset_file)
    try:
        content = read_rubric_file(file, EVAL_FACTORY_FORM)
    except OSError as error:
        raise ConfigError(f"{file}: {why_unreadable(error, 'dataset_file', path)}") from None
    if content.problems:
        raise ConfigError([f"{file}: {problem}" for problem in first_problems(content.problems)])
    return Benchmark(
        path=path,
        name=yaml_file.name,
        description=yaml_file.description,
        prompt_file=file,
        dataset_file=file,
        max_tokens=yaml_file.max_tokens,
        metrics=(RUBRIC_METRIC,),
        instances=len(content.rows),
        sha256=_hashes(path, file),
        # All cases have a cluster or none has (`read_rubric_file`). The same is true of answers.
        has_clusters=any(case.cluster is not None for case in content.rows),
        is_rubric=True,
        has_answers=any(case.answer is not None for case in content.rows),
    )


def _absolute(path: Path, name: str) -> Path:
    """Return the absolute path of a file; `name` is relative to the folder of the YAML file."""
    return Path(os.path.abspath(path.parent / os.path.expanduser(name)))


def _hashes(path: Path, *files: Path) -> dict[str, str]:
    """Return a dict from the path to the SHA-256 of the YAML file and of each further file.

    The paths are relative to the folder of the YAML file.
    """
    hashes = {}
    for file in (path, *files):
        hashes[Path(os.path.relpath(file, path.parent)).as_posix()] = sha256_of(file_of_table(file))
    return hashes


def _validated(path: Path, document: Mapping[str, Any], model: type[_YamlFile]) -> _YamlFile:
    """Return the content of the YAML file. Raises ConfigError if a key or value is not valid."""
    try:
        return model.model_validate(document)
    except ValidationError as error:
        problems = [_explained(path, detail, model) for detail in error.errors(include_url=False)]
        raise ConfigError(problems) from None


def _explained(path: Path, detail: Any, model: type[StrictModel]) -> str:
    """Return the message for one of pydantic's errors."""
    location = detail["loc"]
    kind = detail["type"]
    # pydantic ends the location with "[key]" if the key of a mapping is not valid.
    key = ".".join(str(part) for part in location if part != "[key]")
    if kind == "value_error":
        return f"{path}: {key}: {detail['ctx']['error']}"
    if kind == "extra_forbidden":
        # The length of the location shows the model: 1 for `key`, 3 for `metrics.0.key`. A longer
        # location is that of a criterion's key: `metrics.0.criteria.0.key`.
        models: dict[int, type[StrictModel]] = {1: model, 3: _Metric}
        known_keys = sorted(models.get(len(location), _Criterion).model_fields)
        listed = ", ".join(known_keys)
        subject = "known keys:"
        if model is _RubricFile:
            subject = "a benchmark of kind rubric has"
        hint = did_you_mean(str(location[-1]), known_keys) or f"; {subject} {listed}"
        return f"{path}: unknown key {key}{hint}"
    # Only the benchmark's name has a pattern.
    if kind == "string_pattern_mismatch":
        return (
            f"{path}: name: must be letters, digits, - _ and . (it names folders), at most 80, "
            f"got {detail['input']!r}"
        )
    if location[0] == "metrics" and kind == "model_type":
        return f"{path}: {key}: must be a mapping such as {{name: exact_match}}"
    if kind == "missing":
        return f"{path}: {key}: is missing"
    if kind in ("string_too_short", "too_short"):
        return f"{path}: {key}: must not be empty"
    return f"{path}: {key}: {unmet_expectation(detail)}"


def _check_table(
    benchmark: Benchmark, pictures: PictureCheck, findings: Findings
) -> tuple[int, list[str]]:
    """Check the prompt, the judges' prompt and the table; return (number of rows, columns).

    If the names of the columns cannot be read, (0, []) is returned.
    """
    path = benchmark.path
    file = benchmark.dataset_file
    metrics = benchmark.metrics
    problems_before = len(findings.problems)
    columns = custom_table.columns_of_prompt(path, benchmark.prompt_file, findings)
    # A prompt cannot be filled in if `columns_of_prompt` has reported wrong braces.
    can_be_filled = columns is not None and len(findings.problems) == problems_before
    header = custom_table.header_of(path, file, findings)
    if benchmark.judge_prompt_file is not None:
        check_judge_prompt(path, benchmark.judge_prompt_file, header, findings, benchmark.jury_form)
    if header is None:
        return 0, []
    custom_table.check_columns(
        benchmark.prompt_file,
        file,
        columns=columns,
        header=header,
        gold_metric=benchmark.gold_metric,
        findings=findings,
    )
    _check_incorrect_answers(file, metrics, header, findings)
    prompt = safe_files.read_text(benchmark.prompt_file) if can_be_filled else ""
    # Right answers are compared with the prompt's options only for exact match.
    prompt_with_options = None
    if EXACT_MATCH in metrics:
        prompt_with_options = prompt
    # `dict.fromkeys` removes repeated columns and preserves their order.
    columns_used = list(dict.fromkeys([*picture_columns(header), *(columns or [])]))
    # A prompt that names unknown columns cannot be filled in. Pictures are then checked without it.
    has_only_known_columns = set(columns_used) <= set(header)
    pictures.template = prompt if has_only_known_columns else ""
    row_count = custom_table.check_rows(
        file,
        header=header,
        columns=columns_used,
        findings=findings,
        pictures=pictures,
        prompt=prompt_with_options,
    )
    return row_count, header


def _check_conversations(
    benchmark: Benchmark, pictures: PictureCheck, findings: Findings
) -> tuple[int, list[str]]:
    """Check the conversations and the judges' prompt; return (number of rows, usable fields)."""
    path = benchmark.path
    file = benchmark.dataset_file
    metrics = benchmark.metrics
    rows = conversations.check_conversations(
        path,
        file,
        gold_metric=benchmark.gold_metric,
        findings=findings,
        pictures=pictures,
        is_compared=EXACT_MATCH in metrics,
        has_answers=benchmark.has_answers,
    )
    fields = conversations.usable_fields(rows)
    if benchmark.judge_prompt_file is not None:
        # Without rows, the fields of the conversations are unknown.
        known_fields = fields if rows else None
        check_judge_prompt(
            path, benchmark.judge_prompt_file, known_fields, findings, benchmark.jury_form
        )
    _check_incorrect_answers(file, metrics, fields, findings)
    return len(rows), fields


def _check_incorrect_answers(
    file: Path, metrics: Sequence[str], header: Sequence[str], findings: Findings
) -> None:
    """Add a problem if a metric would count the incorrect answers in the data as right."""
    metric = next((name for name in metrics if name in BEST_REFERENCE_METRICS), None)
    if metric and custom_table.INCORRECT_ANSWERS_FIELD in header:
        findings.problems.append(
            f"{file}: HELM's {metric} counts an incorrect answer as right, like the correct one;"
            f" leave out the column {custom_table.INCORRECT_ANSWERS_FIELD} or the metric"
        )


def _check_metrics(path: Path, metrics: Sequence[_Metric], findings: Findings) -> None:
    """Add the problems and notes about the list of metrics in the YAML file."""
    names = [metric.name for metric in metrics]
    for number, metric in enumerate(metrics):
        label = f"{path}: metrics.{number}"
        if metric.name not in METRICS:
            hint = did_you_mean(metric.name, METRICS) or f"; its metrics: {', '.join(METRICS)}"
            findings.problems.append(
                f"{label}.name: HELM's configurable benchmark has no metric {metric.name!r}{hint}"
            )
        elif metric.name in names[:number]:
            findings.problems.append(f"{label}.name: {metric.name} is listed twice")
        if metric.name == JURY_METRIC:
            if metric.prompt_file is None:
                findings.problems.append(
                    f"{label}.prompt_file: is missing; {JURY_METRIC} needs the judges' prompt"
                )
            if metric.judges is not None:
                findings.notes.append(
                    f"eval-factory does not ask the judges that {path.name} names: it asks those "
                    "of config.params.extra.judges, or the default jury"
                )
            continue
        jury_values = (metric.prompt_file, metric.judges, metric.scale, metric.criteria)
        if any(value is not None for value in jury_values):
            findings.problems.append(
                f"{label}: only {JURY_METRIC} has prompt_file and judges, scale and criteria"
            )
    if names[0] in BERTSCORES:
        findings.problems.append(
            f"{path}: metrics.0.name: HELM computes {names[0]} "
            "only if torch finds a GPU, so it cannot be the main"
            " metric; put another metric first"
        )
    elif set(names) & set(BERTSCORES):
        findings.notes.append(
            "HELM computes BERTScore only if torch finds a GPU; otherwise the score is absent"
        )
