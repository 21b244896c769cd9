"""Reads logs of Inspect (`inspect_ai`) of log version 2.

A log is a `.eval` file (a ZIP archive of JSON documents) or a `.json` file. This module follows the
published format (inspect.aisi.org.uk/eval-logs.html); it does not import `inspect_ai`. An optional
field of a log is missing or null; `or {}` covers both cases.

In Inspect, a scorer gives each sample a score, whose value may be a number, a letter, or a dict of
these. Metrics such as `accuracy` are computed from the scores. Here, the name of a scorer becomes
the name of a metric. An epoch is a repeat of all questions.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_factory.core.finish_reasons import finish_reason_from_inspect
from eval_factory.core.foreign_text import one_line
from eval_factory.importing.foreign_run import (
    ForeignRun,
    ForeignSample,
    ReportedValue,
    counts_of_turns,
    option_index,
)
from eval_factory.importing.json_stream import elements_of, object_without_lists, value_in
from eval_factory.importing.sources import (
    SourceError,
    checked_id,
    count_or_none,
    digest_of,
    list_of,
    number_or_none,
    open_archive,
    utc_time,
)
from eval_factory.report.exports.inspect_logs import OUR_PACKAGE

PROGRAM = "inspect_ai"
LOG_VERSION = 2
# the numbers for the letters of scores, as in Inspect's `value_to_float`
LETTER_VALUES = {
    "C": 1.0,  # correct
    "I": 0.0,  # incorrect
    "P": 0.5,  # partially correct
    "N": 0.0,  # no answer
}
_UNKNOWN = "unknown"
# the names of entries in a `.eval` archive
_START = "_journal/start.json"  # written when the evaluation begins
_HEADER = "header.json"  # written when the evaluation ends
_SAMPLES = "samples/"  # the beginning of the names of samples
_PART_OF_A_SAMPLE = re.compile(r"_epoch_\d+/sample\.json$")  # "samples/17_epoch_1/sample.json"
_LISTS = ("samples", "reductions")
"""The lists in a `.json` log whose length grows with the number of samples. `reductions` are the
scores of each sample over its epochs.
"""
_MEANS = ("accuracy", "mean")
"""The metrics of Inspect that are means over samples. Of these metrics, the first that a scorer has
is the reported value.
"""
# the texts around a request in an error message; Inspect writes a line break there as `\n`
_REQUEST_BEGINS = "\\nRequest:\\n{"
_REQUEST_ENDS = "\\n}\\n\\n"
_MAX_CATEGORY_VALUE = 80  # the maximum number of characters of a category's value


def is_log(path: Path) -> bool:
    """Return True if the content of a file is a log of Inspect."""
    try:
        if path.suffix == ".eval":
            with open_archive(path) as entries:
                names = entries.names()
            return _HEADER in names or _START in names
        return isinstance(value_in(path, "eval"), dict)
    except SourceError:
        return False


def read(path: Path) -> ForeignRun:
    """Read one log. The samples are read each time a caller iterates over them.

    Raises:
        SourceError: the log has another version, is incomplete, or lacks a field.
    """
    header = _header(path)
    version = header.get("version", 1)  # a log without a version counts as one of version 1
    if version != LOG_VERSION:
        raise SourceError(
            f"{path}: is a log of version {version!r}, and only version {LOG_VERSION} can be read; "
            f"`inspect log convert` writes version {LOG_VERSION}"
        )
    evaluation = _required_mapping(header, "eval", path)
    results = header.get("results") or {}
    reported = _reported(
        [entry for entry in results.get("scores") or [] if isinstance(entry, dict)]
    )
    status = header.get("status")
    if not isinstance(status, str):
        raise SourceError(f"{path}: has no field status")
    stats = header.get("stats") or {}
    prompt_tokens, completion_tokens = _total_usage(stats.get("model_usage") or {})
    main = next(iter(reported), None)
    if main is None:  # a log that did not finish may still have samples with values
        main = _first_metric(path, status, header)
    unknown = ["prompts as sent to the endpoint", "cost"]
    program, program_version = _program(evaluation.get("packages") or {})
    if program_version == _UNKNOWN:
        unknown.append(f"version of {program}")
    return ForeignRun(
        program=program,
        version=program_version,
        task=_required_text(evaluation, "task", path),
        model=_required_text(evaluation, "model", path),
        main_metric=main,
        reported=reported,
        samples=lambda: _samples(path),
        files={path.name: digest_of(path)},
        dataset=_dataset(evaluation),
        stated_samples=count_or_none(results.get("total_samples")),
        finished=status == "success",
        why_unfinished=None if status == "success" else _why_unfinished(status, header),
        started_at=utc_time(stats.get("started_at") or evaluation.get("created")),
        ended_at=utc_time(stats.get("completed_at")),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        settings=_settings(evaluation, header),
        unknown=tuple(unknown),
    )


def _program(packages: Mapping[str, Any]) -> tuple[str, str]:
    """Return the program that computed the values, and the version of this program.

    `packages`: the packages that the log lists, with their versions. A log that eval-factory
    exported lists eval-factory and the program that computed the values.
    """
    if not packages.get(PROGRAM) and OUR_PACKAGE in packages:
        for package, version in packages.items():
            if package != OUR_PACKAGE:
                return str(package), str(version)
    return PROGRAM, str(packages.get(PROGRAM) or _UNKNOWN)


def _dataset(evaluation: Mapping[str, Any]) -> str | None:
    """Return the location of the data set, or else its name, which is often incomplete."""
    dataset = evaluation.get("dataset") or {}
    location = dataset.get("location") or dataset.get("name")
    return str(location) if location else None


def _header(path: Path) -> dict[str, Any]:
    """Return the document of a log without its samples."""
    if path.suffix != ".eval":
        header = object_without_lists(path, _LISTS)
        if header is None:
            raise SourceError(f"{path}: is not a log of inspect_ai")
        return header
    with open_archive(path) as entries:
        names = entries.names()
        if _HEADER not in names:
            raise SourceError(
                f"{path}: has no {_HEADER}: inspect was killed before it ended; "
                "`inspect eval-retry` completes the log"
            )
        document = entries.document(_HEADER)
    if not isinstance(document, dict):
        raise SourceError(f"{path}: {_HEADER} is not a JSON object")
    return document


def _raw_samples(path: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield each sample of a log, with its location for error messages."""
    if path.suffix != ".eval":
        for number, sample in enumerate(elements_of(path, "samples")):
            yield f"{path}: sample {number}", sample
        return
    with open_archive(path) as entries:
        for name in entries.names():
            if _PART_OF_A_SAMPLE.search(name):
                raise SourceError(
                    f"{path}: stores its samples in parts, as `inspect log convert-chunked` writes "
                    "them; import the original log"
                )
            if name.startswith(_SAMPLES) and name.endswith(".json"):
                yield f"{path}: {name}", entries.document(name)


def _samples(path: Path) -> Iterator[ForeignSample]:
    """Yield the samples of a log. Raises SourceError if a sample cannot be read."""
    for location, sample in _raw_samples(path):
        if not isinstance(sample, dict):
            raise SourceError(f"{location}: is not a JSON object")
        yield _sample(sample, location)


def _sample(sample: Mapping[str, Any], location: str) -> ForeignSample:
    """Return a sample of a log as a `ForeignSample`.

    `location` names the sample in error messages.
    """
    for name in ("id", "epoch", "input"):
        if name not in sample:
            raise SourceError(f"{location}: has no field {name}")
    # The field `output.choices` has the model's answers, the field `choices` has the options.
    output = sample.get("output") or {}
    answers = list_of(output.get("choices"), "output.choices", location)
    answer: dict[str, Any] = {}
    stop_reason = None
    if answers and isinstance(answers[0], dict):
        answer = answers[0].get("message") or {}
        stop_reason = answers[0].get("stop_reason")
    messages = []
    for item in list_of(sample.get("messages"), "messages", location):
        if isinstance(item, dict):
            messages.append(item)
    usage = output.get("usage") or {}
    options = tuple(map(str, list_of(sample.get("choices"), "choices", location)))
    targets = _targets(sample.get("target"))
    values, judgements = _values(sample.get("scores") or {}, location)
    completion, reasoning = _texts(answer.get("content"))
    error = _error(sample, output)
    question = _input_text(sample["input"])
    prompt = _prompt(messages)
    if prompt is None:
        prompt = question
    return ForeignSample(
        id=checked_id(sample["id"], location),
        repeat=_repeat(sample["epoch"], location),
        prompt=prompt,
        question=question,
        options=options,
        right_options=_right_options(targets, options),
        right_answers=targets,
        turns=_turns(messages),
        completion=None if error else completion,
        values={} if error else values,
        error=error,
        finish_reason=_finish_reason(sample, stop_reason),
        prompt_tokens=count_or_none(usage.get("input_tokens")),
        completion_tokens=count_or_none(usage.get("output_tokens")),
        latency_s=number_or_none(output.get("time")),
        reasoning=reasoning,
        judgements=judgements,
        categories=_categories(sample, messages),
    )


def _repeat(epoch: Any, location: str) -> int:
    """Return the number of the repeat, from 0. Inspect counts epochs from 1.

    Raises:
        SourceError: the epoch is not an integer of 1 or more.
    """
    checked_epoch = count_or_none(epoch)
    if checked_epoch is None or checked_epoch < 1:
        raise SourceError(f"{location}: epoch is not a whole number from 1")
    return checked_epoch - 1


def _targets(target: Any) -> tuple[str, ...]:
    """Return the right answers of a sample, which Inspect calls its target."""
    if isinstance(target, list):
        return tuple(str(item) for item in target)
    if target in (None, ""):
        return ()
    return (str(target),)


def _right_options(targets: Sequence[str], options: Sequence[str]) -> tuple[int, ...]:
    """Return the indices of the right options.

    In logs of Inspect, a target is the letter of the option. In logs that other programs exported,
    a target may be the text of the option.
    """
    indices = []
    for target in targets:
        index = option_index(target, len(options))
        if index is not None:
            indices.append(index)
        elif target in options:
            indices.append(options.index(target))
    return tuple(indices)


def _texts(content: Any) -> tuple[str, str | None]:
    """Return the text of a message and its reasoning; None if there is no reasoning.

    Pictures and sounds are skipped.
    """
    if isinstance(content, str):
        return content, None
    if content is not None and not isinstance(content, list):
        # `unexpected_fields_refused` turns a TypeError into a message about the source.
        raise TypeError("content is neither text nor a list")
    texts = []
    reasoning = []
    for part in content or []:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "text":
            texts.append(str(part.get("text", "")))
        elif part.get("type") == "reasoning":
            reasoning.append(str(part.get("reasoning", "")))
    return "\n".join(texts), "\n".join(reasoning) or None


def _text(message: Mapping[str, Any]) -> str:
    """Return the text of a message without its reasoning."""
    text, _reasoning = _texts(message.get("content"))
    return text


def _prompt(messages: Sequence[Mapping[str, Any]]) -> str | None:
    """Return the text of the messages before the model's first answer; None if there are none."""
    texts = []
    for message in messages:
        if message.get("role") == "assistant":
            break
        texts.append(_text(message))
    if not texts:
        return None
    return "\n\n".join(texts)


def _input_text(input_field: Any) -> str:
    """Return the text of a sample's field `input`, which is a text or a list of messages."""
    if isinstance(input_field, str):
        return input_field
    texts = [_text(message) for message in input_field or [] if isinstance(message, dict)]
    return "\n\n".join(texts)


def _turns(messages: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the messages of a conversation before its last answer, with `role` and `content`.

    The tuple is empty if there is only one such message, because the prompt has its text.
    """
    turns = []
    for message in messages:
        text = _text(message)
        for call in message.get("tool_calls") or []:
            if isinstance(call, dict):
                text += f"\n[tool call] {call.get('function')}({call.get('arguments')})"
        turns.append({"role": str(message.get("role")), "content": text.strip()})
    if turns and turns[-1]["role"] == "assistant":
        turns.pop()
    if len(turns) < 2:
        return ()
    return tuple(turns)


def _values(scores: Any, location: str) -> tuple[dict[str, float], dict[str, dict[str, Any]]]:
    """Return (values by metric, judgements as in `ForeignSample.judgements`).

    The judgements have the explanations of the scorers.

    Raises:
        SourceError: `scores` is not a JSON object.
    """
    values: dict[str, float] = {}
    judgements: dict[str, dict[str, Any]] = {}
    if not isinstance(scores, dict):
        raise SourceError(f"{location}: scores is not an object")
    for scorer, score in scores.items():
        if not isinstance(score, dict):
            continue
        for name, value in _named_values(scorer, score.get("value")):
            values[name] = value
        explanation = score.get("explanation")
        if explanation:
            # The keys are the judge and the criterion. A scorer has no criteria, so that the name
            # of the scorer is both keys.
            judgements[scorer] = {scorer: {"explanation": str(explanation)}}
    return values, judgements


def _named_values(scorer: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield (metric, number) of each number in a scorer's value. A list is skipped."""
    if isinstance(value, dict):
        for name, inner_value in value.items():
            number = _number(inner_value)
            if number is not None:
                yield f"{scorer}.{name}", number
        return
    if isinstance(value, list):
        return
    number = _number(value)
    if number is not None:
        yield scorer, number


def _number(value: Any) -> float | None:
    """Return the number of a score, which may be a letter or a word; None for other values."""
    if isinstance(value, str):
        if value in LETTER_VALUES:
            return LETTER_VALUES[value]
        lowered = value.strip().lower()
        if lowered in ("yes", "true"):
            return 1.0
        if lowered in ("no", "false"):
            return 0.0
        try:
            return number_or_none(float(value))
        except ValueError:
            return None
    return number_or_none(value)


def _error(sample: Mapping[str, Any], output: Mapping[str, Any]) -> str | None:
    """Return the reason why there is no answer; None if there is an answer.

    An answer that reached a limit is not an error.
    """
    for error in (sample.get("error"), output.get("error")):
        if isinstance(error, dict):
            return _without_request(str(error.get("message") or "error without a message"))
        if error:
            return _without_request(str(error))
    return None


def _without_request(message: str) -> str:
    """Return an error message without the request that Inspect writes into the message.

    The request contains the prompt. Without the request, equal errors have equal messages.
    """
    before, begin, request_and_cause = message.partition(_REQUEST_BEGINS)
    if not begin:
        return message
    _request, end, cause = request_and_cause.partition(_REQUEST_ENDS)
    if not end:
        return before
    return f"{before}{cause}"


def _finish_reason(sample: Mapping[str, Any], stop_reason: Any) -> str | None:
    """Return why an answer ended: a limit of Inspect or the endpoint's reason; None if unknown."""
    limit = sample.get("limit")
    if isinstance(limit, dict) and limit.get("type"):
        return f"limit:{limit['type']}"
    if not stop_reason:
        return None
    return finish_reason_from_inspect(str(stop_reason))


def _categories(sample: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the short metadata of a sample, and the numbers of turns and tool calls.

    The result groups its instances by these categories.
    """
    categories: dict[str, Any] = {}
    metadata = sample.get("metadata")
    if isinstance(metadata, dict):
        for name, value in metadata.items():
            if isinstance(value, str | int | bool) and len(str(value)) <= _MAX_CATEGORY_VALUE:
                categories[str(name)] = value
    categories.update(counts_of_turns(messages))
    return categories


def _reported(entries: Sequence[Mapping[str, Any]]) -> dict[str, ReportedValue]:
    """Return each scorer's mean with its standard error, as Inspect computed them.

    `entries`: the list `results.scores` of the log. A scorer with several values, such as a dict,
    has an entry for each value.
    """
    reported: dict[str, ReportedValue] = {}
    counts = Counter(str(entry.get("scorer")) for entry in entries)
    for entry in entries:
        metrics = entry.get("metrics") or {}
        scorer = entry.get("scorer")
        name = str(entry.get("name") or scorer)
        if scorer and counts[str(scorer)] > 1:
            name = f"{scorer}.{name}"  # the same name as in `_named_values`
        for mean in _MEANS:
            value = _metric(metrics, mean)
            if value is not None:
                reported.setdefault(name, ReportedValue(value, _metric(metrics, "stderr")))
                break
    return reported


def _metric(metrics: Mapping[str, Any], name: str) -> float | None:
    """Return the value of a scorer's metric; None if the scorer does not have the metric."""
    metric = metrics.get(name)
    if isinstance(metric, dict):
        return number_or_none(metric.get("value"))
    return None


def _first_metric(path: Path, status: str, header: Mapping[str, Any]) -> str:
    """Return the first metric of the first sample with values.

    Raises:
        SourceError: no sample has a value. The message states why the log is unfinished.
    """
    for sample in _samples(path):
        if sample.values:
            return next(iter(sample.values))
    raise SourceError(
        f"{path}: has no scores (status {one_line(_why_unfinished(status, header))}); "
        "`inspect score` or `inspect eval-retry` computes them"
    )


def _total_usage(by_model: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the numbers of prompt and completion tokens of all models, including judges."""
    prompt = _token_sum(by_model, "input_tokens")
    completion = _token_sum(by_model, "output_tokens")
    return prompt, completion


def _token_sum(by_model: Mapping[str, Any], name: str) -> int | None:
    """Return the sum of the field `name` over all models; None if the sum is 0 or not known."""
    counts = []
    for usage in by_model.values():
        if isinstance(usage, dict):
            count = count_or_none(usage.get(name))
            if count is not None:
                counts.append(count)
    return sum(counts) or None


def _why_unfinished(status: str, header: Mapping[str, Any]) -> str:
    """Return why a log is not complete: its status, with the error message if there is one."""
    error = header.get("error")
    if isinstance(error, dict) and error.get("message"):
        return f"{status}: {error['message']}"
    return status


def _settings(evaluation: Mapping[str, Any], header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the evaluation: task, data, epochs, solvers and generation."""
    config = evaluation.get("config") or {}
    plan = header.get("plan") or {}
    return {
        "task_version": evaluation.get("task_version"),
        "task_args": evaluation.get("task_args") or {},
        "dataset": (evaluation.get("dataset") or {}).get("name"),
        "epochs": config.get("epochs"),
        "limit": config.get("limit"),
        "solvers": [str(step.get("solver")) for step in plan.get("steps") or []],
        "generation": plan.get("config") or evaluation.get("model_generate_config") or {},
    }


def _required_mapping(document: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    """Return the object in the field `name`. Raises SourceError if there is no object."""
    value = document.get(name)
    if not isinstance(value, dict):
        raise SourceError(f"{path}: has no field {name}; is it a log of inspect_ai?")
    return value


def _required_text(evaluation: Mapping[str, Any], name: str, path: Path) -> str:
    """Return a text of the section `eval`. Raises SourceError if the text is missing."""
    value = evaluation.get(name)
    if not isinstance(value, str) or not value:
        raise SourceError(f"{path}: has no field eval.{name}")
    return value
