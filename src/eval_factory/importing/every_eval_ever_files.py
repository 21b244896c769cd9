"""Reads records of the community schema Every Eval Ever.

A source is an aggregate record, with a file of samples next to it. This module follows version
0.3.0 of the schema (github.com/evaleval/every_eval_ever), and the files that the schema's own
converters write. An optional field is missing or null; `or {}` covers both cases.

A record has the results of one or more evaluations. Each evaluation makes one run here.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from eval_factory.core.finish_reasons import finish_reason_from_inspect
from eval_factory.importing.foreign_run import (
    ForeignRun,
    ForeignSample,
    ReportedValue,
    counts_of_turns,
)
from eval_factory.importing.sources import (
    SourceError,
    checked_id,
    count_or_none,
    digest_of,
    file_next_to,
    json_document,
    json_lines_at,
    json_lines_with_offsets,
    list_of,
    number_or_none,
    utc_time,
)
from eval_factory.report.exports.every_eval_ever import SOURCE_NAME

PROGRAM = "every_eval_ever"
UNNAMED_METRIC = "score"
"""The name of the metric if a record does not name its metric."""
VERSIONS = ("0.2.", "0.3.")  # the beginnings of the schema's versions that can be read
_METRIC_NAME_FIELDS = ("metric_name", "metric_id", "evaluation_description")
"""The fields of `metric_config` that may name a metric. The names come from the first field whose
values differ between all results of an evaluation.
"""
_HASHES = ("sha256", "md5")  # the hash algorithms of the schema
# metadata that are not categories
_NOT_CATEGORIES = ("split", "finish_reason", "stop_reason", "epoch")
_MAX_EPOCH_DIGITS = 8  # a longer number does not count repeats
_MAX_CATEGORY_VALUE = 80  # the maximum number of characters of a category's value


class _SampleKey(NamedTuple):
    """Identifies a sample of an evaluation."""

    id: str
    repeat: int  # from 0


def is_record(path: Path) -> bool:
    """Return True if the content of a file is an aggregate record."""
    try:
        document = json_document(path)
    except SourceError:
        return False
    return isinstance(document, dict) and {"evaluation_id", "evaluation_results"} <= set(document)


def read(path: Path) -> list[ForeignRun]:
    """Read an aggregate record, and return one run for each evaluation in the record.

    Raises:
        SourceError: a field is missing, or the version of the record cannot be read. Or the file of
            samples does not have the checksum, or the number of rows, that the record states.
    """
    document = json_document(path)
    version = str(document.get("schema_version", VERSIONS[-1]))  # the newest if not stated
    if not version.startswith(VERSIONS):
        raise SourceError(
            f"{path}: is a record of version {version}, and only versions 0.2 and 0.3 can be read; "
            "convert it with `every_eval_ever` 0.3"
        )
    evaluations = _evaluations(path, document)
    files = {path.name: digest_of(path)}
    sample_index = None
    file_facts = document.get("detailed_evaluation_results")
    samples_file = _samples_file(path, file_facts)
    if samples_file is not None:
        files[samples_file.name] = _checked_digest(samples_file, file_facts, path)
        source_metadata = document.get("source_metadata") or {}
        is_our_export = source_metadata.get("source_name") == SOURCE_NAME
        sample_index = _index_samples(samples_file, evaluations, file_facts, is_our_export)
    runs = []
    for evaluation in evaluations:
        runs.append(_run(document, evaluation, sample_index, files))
    return runs


@dataclass(frozen=True)
class _Evaluation:
    """The results of one evaluation of a record."""

    name: str
    main_metric: str
    reported: Mapping[str, ReportedValue]  # metric -> reported value
    metric_by_result_id: Mapping[str, str]  # `evaluation_result_id` -> metric
    stated_samples: int | None  # the number of samples of the main metric; None if not stated
    dataset: str | None


@dataclass(slots=True)
class _SampleLines:
    """The position and the values of a sample's lines; each line has the value of one metric."""

    offset: int  # the number of bytes in the file before the first of these lines
    # metric -> value; None if the line has no number
    values: dict[str, float | None] = field(default_factory=dict)


@dataclass
class _SampleIndex:
    """The index of a file of samples. The texts of the samples stay in the file."""

    path: Path
    # name of the evaluation -> key of the sample -> lines of the sample
    by_evaluation: dict[str, dict[_SampleKey, _SampleLines]] = field(default_factory=dict)
    unmatched_lines: int = 0  # the number of lines that belong to no evaluation of the record


def _evaluations(path: Path, document: Mapping[str, Any]) -> list[_Evaluation]:
    """Return the evaluations of a record, in the order of their first results."""
    results_by_name: dict[str, list[Mapping[str, Any]]] = {}
    for result in document["evaluation_results"]:
        if not isinstance(result, dict):
            raise SourceError(
                f"{path}: evaluation_results has an element that is not a JSON object"
            )
        results_by_name.setdefault(str(result.get("evaluation_name")), []).append(result)
    if not results_by_name:
        raise SourceError(f"{path}: has no results")
    return [_evaluation(path, name, results) for name, results in results_by_name.items()]


def _evaluation(path: Path, name: str, results: Sequence[Mapping[str, Any]]) -> _Evaluation:
    """Return one evaluation with its results that have a value.

    The main metric is the metric that an export of eval-factory has marked, or else the first
    metric.

    Raises:
        SourceError: no result has a value.
    """
    reported = {}
    metric_by_result_id = {}
    sample_counts = {}
    marked = None
    for metric, result in zip(_metric_names(path, name, results), results, strict=True):
        score_details = result.get("score_details") or {}
        value = number_or_none(score_details.get("score"))
        if value is None:
            continue
        lower_is_better = (result.get("metric_config") or {}).get("lower_is_better")
        higher_is_better = None if lower_is_better is None else not lower_is_better
        uncertainty = score_details.get("uncertainty") or {}
        stderr = (uncertainty.get("standard_error") or {}).get("value")
        reported[metric] = ReportedValue(value, number_or_none(stderr), higher_is_better)
        sample_counts[metric] = count_or_none(uncertainty.get("num_samples"))
        if result.get("evaluation_result_id"):
            metric_by_result_id[str(result["evaluation_result_id"])] = metric
        if (score_details.get("details") or {}).get("main_metric") == "true":
            marked = metric
    if not reported:
        raise SourceError(f"{path}: has no value of {name}")
    main_metric = marked or next(iter(reported))
    return _Evaluation(
        name,
        main_metric,
        reported,
        metric_by_result_id,
        stated_samples=sample_counts[main_metric],
        dataset=_dataset(results[0]),
    )


def _dataset(result: Mapping[str, Any]) -> str | None:
    """Return the id of the data set on the Hub, or else its first address; None if unknown."""
    source = result.get("source_data") or {}
    if source.get("hf_repo"):
        return str(source["hf_repo"])
    addresses = _as_list(source.get("url"))
    return str(addresses[0]) if addresses else None


def _metric_names(
    path: Path, evaluation: str, results: Sequence[Mapping[str, Any]]
) -> Sequence[str]:
    """Return a name for the metric of each result. All names are different.

    Raises:
        SourceError: no field distinguishes the results of the evaluation.
    """
    configs = [result.get("metric_config") or {} for result in results]
    if len(results) == 1:
        return [str(configs[0].get("metric_name") or configs[0].get("metric_id") or UNNAMED_METRIC)]
    candidates = []  # lists with a name for each result
    for name_field in _METRIC_NAME_FIELDS:
        candidates.append([config.get(name_field) for config in configs])
    candidates.append([result.get("evaluation_result_id") for result in results])
    for names in candidates:
        # `all` comes first: an empty list or dict in place of a name counts as no name, and `set`
        # would raise a TypeError for it.
        if all(names) and len(set(names)) == len(names):
            return [str(name) for name in names]
    raise SourceError(
        f"{path}: the results of {evaluation} have no different names; "
        "give each result its own metric_name in its metric_config"
    )


def _samples_file(path: Path, file_facts: Any) -> Path | None:
    """Return the file of samples that the record names, in the folder of the record.

    Returns None if the record names no file, or if the file does not exist. `file_facts` is the
    record's field `detailed_evaluation_results`, which describes the file.
    """
    if not isinstance(file_facts, dict) or not file_facts.get("file_path"):
        return None
    return file_next_to(path, Path(str(file_facts["file_path"])).name)


def _checked_digest(file: Path, file_facts: Mapping[str, Any], path: Path) -> str:
    """Return the SHA-256 of the file of samples.

    Raises SourceError if the file does not have the checksum in the record.
    """
    digest = digest_of(file)
    algorithm = file_facts.get("hash_algorithm")
    stated = file_facts.get("checksum")
    if stated and algorithm in _HASHES:
        actual = digest if algorithm == "sha256" else digest_of(file, algorithm)
        if actual != stated:
            raise SourceError(f"{file}: differs from the checksum in {path.name}")
    return digest


def _index_samples(
    file: Path,
    evaluations: Sequence[_Evaluation],
    file_facts: Mapping[str, Any],
    is_our_export: bool,
) -> _SampleIndex:
    """Return the index of the file of samples, after one pass over the file.

    Raises:
        SourceError: a line cannot be read or occurs twice, or lines are missing.
    """
    by_name = {evaluation.name: evaluation for evaluation in evaluations}
    index = _SampleIndex(file, {name: {} for name in by_name})
    line_count = 0
    for offset, line in json_lines_with_offsets(file):
        line_count += 1
        location = f"{file}, row {line_count}"
        evaluation_and_metric = _evaluation_and_metric(line, evaluations, by_name)
        if evaluation_and_metric is None:
            index.unmatched_lines += 1
            continue
        evaluation_name, metric = evaluation_and_metric
        key = _key_of(line, location, is_our_export)
        lines_of_sample = index.by_evaluation[evaluation_name].setdefault(key, _SampleLines(offset))
        if metric in lines_of_sample.values:
            raise SourceError(
                f"{location}: question {key.id}, asking {key.repeat + 1}, occurs twice"
            )
        lines_of_sample.values[metric] = number_or_none((line.get("evaluation") or {}).get("score"))
    stated = count_or_none(file_facts.get("total_rows"))
    if stated is not None and line_count < stated:
        raise SourceError(f"{file}: has {line_count} of the {stated} rows that its record states")
    return index


def _evaluation_and_metric(
    line: Mapping[str, Any],
    evaluations: Sequence[_Evaluation],
    by_name: Mapping[str, _Evaluation],
) -> tuple[str, str] | None:
    """Return the names of a line's evaluation and metric; None if it belongs to no evaluation.

    The line's `evaluation_result_id` is used first, then its `evaluation_name`. If neither is known
    and the record has only one evaluation, the line belongs to this evaluation: some converters
    write another name into the lines.
    """
    result_id = str(line.get("evaluation_result_id"))
    for evaluation in evaluations:
        if result_id in evaluation.metric_by_result_id:
            return evaluation.name, evaluation.metric_by_result_id[result_id]
    evaluation_of_line = by_name.get(str(line.get("evaluation_name")))
    if evaluation_of_line is None and len(evaluations) == 1:
        evaluation_of_line = evaluations[0]
    if evaluation_of_line is None:
        return None
    return evaluation_of_line.name, evaluation_of_line.main_metric


def _key_of(line: Mapping[str, Any], location: str, is_our_export: bool) -> _SampleKey:
    """Return the key of the sample to which a line belongs.

    `metadata.epoch` counts repeats from 1. Exports of eval-factory append the number of the repeat
    to the id, such as `#1`. This suffix is removed only from ids of such an export, because ids of
    other programs may have a similar suffix.
    """
    question_id = checked_id(line.get("sample_id"), location)
    epoch = str((line.get("metadata") or {}).get("epoch"))
    repeat = 0
    if epoch.isdecimal() and len(epoch) <= _MAX_EPOCH_DIGITS:
        repeat = max(0, int(epoch) - 1)
    if repeat and is_our_export:
        question_id = question_id.removesuffix(f"#{repeat}")
    return _SampleKey(question_id, repeat)


def _run(
    document: Mapping[str, Any],
    evaluation: _Evaluation,
    sample_index: _SampleIndex | None,
    files: Mapping[str, str],
) -> ForeignRun:
    """Return the run of one evaluation of a record."""
    library = document.get("eval_library") or {}
    model = document.get("model_info") or {}
    open_samples = None
    notes = []
    if sample_index is not None:
        if sample_index.unmatched_lines:
            notes.append(
                f"{sample_index.unmatched_lines} lines of {sample_index.path.name} name no "
                "evaluation of the record. These lines are left out."
            )
        lines_by_key = sample_index.by_evaluation[evaluation.name]
        if lines_by_key:
            open_samples = partial(_samples_at, sample_index.path, lines_by_key)
    return ForeignRun(
        program=str(library.get("name") or PROGRAM),
        version=str(library.get("version") or "unknown"),
        task=evaluation.name,
        model=str(model.get("id") or model.get("name") or "unknown"),
        main_metric=evaluation.main_metric,
        reported=evaluation.reported,
        samples=open_samples,
        files=files,
        dataset=evaluation.dataset,
        stated_samples=evaluation.stated_samples,
        started_at=utc_time(document.get("evaluation_timestamp")),
        settings={"evaluation_id": document["evaluation_id"]},
        unknown=("seconds of the whole run", "cost"),
        notes=tuple(notes),
    )


def _samples_at(
    file: Path, lines_by_key: Mapping[_SampleKey, _SampleLines]
) -> Iterator[ForeignSample]:
    """Yield the samples of an evaluation; the texts of each sample are read from its first line."""
    offsets = [lines.offset for lines in lines_by_key.values()]
    first_lines = json_lines_at(file, offsets)  # reads one line at a time
    for (key, lines), first_line in zip(lines_by_key.items(), first_lines, strict=True):
        yield _sample(first_line, key, lines.values)


def _sample(
    line: Mapping[str, Any], key: _SampleKey, values: Mapping[str, float | None]
) -> ForeignSample:
    """Return a sample.

    Args:
        line: the first line of the sample.
        key: the key of the sample.
        values: the values of all lines of the sample, by metric.
    """
    question = line.get("input") or {}
    output = line.get("output") or {}
    metadata = line.get("metadata") or {}
    messages = list_of(line.get("messages"), "messages", f"sample {key.id}")
    references = tuple(map(str, _as_list(question.get("reference"))))
    options = tuple(map(str, question.get("choices") or ()))
    turns = _turns(messages)
    answers = _as_list(output.get("raw"))
    completion = str(answers[0]) if answers else None
    # In a conversation, the answer is the last turn.
    if completion is None and turns and turns[-1]["role"] == "assistant":
        completion = turns.pop()["content"]
    error = line.get("error")
    if not error and completion is None:
        error = "the sample has no answer"
    usage = line.get("token_usage") or {}
    milliseconds = number_or_none((line.get("performance") or {}).get("latency_ms"))
    stop_reason = metadata.get("finish_reason") or metadata.get("stop_reason")
    return ForeignSample(
        id=key.id,
        repeat=key.repeat,
        prompt=str(question.get("raw") or ""),
        options=options,
        right_options=_right_options(references, options),
        right_answers=references,
        turns=tuple(turns) if len(turns) > 1 else (),  # the prompt has the text of a single turn
        completion=None if error else completion,
        values={} if error else _known_values(values),
        error=str(error).splitlines()[0] if error else None,
        finish_reason=finish_reason_from_inspect(str(stop_reason)) if stop_reason else None,
        prompt_tokens=count_or_none(usage.get("input_tokens")),
        completion_tokens=count_or_none(usage.get("output_tokens")),
        latency_s=None if milliseconds is None else milliseconds / 1000,
        reasoning="\n".join(map(str, _as_list(output.get("reasoning_trace")))) or None,
        categories=_categories(metadata, messages),
    )


def _known_values(values: Mapping[str, float | None]) -> dict[str, float]:
    """Return the values that are not None."""
    return {metric: value for metric, value in values.items() if value is not None}


def _as_list(value: Any) -> Sequence[Any]:
    """Return a field's value as a list. In earlier versions of the schema, it is a single text."""
    if isinstance(value, str):
        return [value]
    return value or []


def _right_options(references: Sequence[str], options: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the right options.

    The references are the texts of the right options, or else the letters of these options.
    """
    indices = [index for index, option in enumerate(options) if option in references]
    if not indices:
        letters = [chr(ord("A") + index) for index in range(len(options))]
        indices = [index for index, letter in enumerate(letters) if letter in references]
    return tuple(indices)


def _turns(messages: Sequence[Any]) -> list[dict[str, Any]]:
    """Return the messages of a conversation as turns, each with `role` and `content`.

    The model's tool calls are added to the content as text.
    """
    turns = []
    for message in messages:
        text = str(message.get("content") or "")
        for call in message.get("tool_calls") or []:
            text += f"\n[tool call] {call.get('name')}({call.get('arguments')})"
        turns.append({"role": str(message.get("role")), "content": text.strip()})
    return turns


def _categories(metadata: Mapping[str, Any], messages: Sequence[Any]) -> dict[str, Any]:
    """Return the short metadata of a sample, and the numbers of turns and tool calls.

    The result groups its instances by these categories.
    """
    categories: dict[str, Any] = {}
    for name, value in metadata.items():
        if name not in _NOT_CATEGORIES and len(str(value)) <= _MAX_CATEGORY_VALUE:
            categories[str(name)] = value
    categories.update(counts_of_turns(messages))
    return categories
