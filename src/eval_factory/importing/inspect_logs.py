"""Reads logs of Inspect (`inspect_ai`) of log version 2.

A log is a `.eval` file (a ZIP archive of JSON documents) or a `.json` file. This module follows the
published format (inspect.aisi.org.uk/eval-logs.html); it does not import `inspect_ai`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from eval_factory.core.finish_reasons import from_inspect
from eval_factory.core.foreign_text import one_line
from eval_factory.importing.foreign_run import (
    ForeignRun,
    ForeignSample,
    ReportedValue,
    counts_of_turns,
)
from eval_factory.importing.json_stream import elements_of, object_without_lists, value_in
from eval_factory.importing.sources import (
    SourceError,
    archive,
    count_of,
    digest_of,
    list_of,
    number_of,
    sample_id,
    utc_time,
)
from eval_factory.report.exports.inspect_logs import OUR_PACKAGE

PROGRAM = "inspect_ai"
LOG_VERSION = 2
LETTER_VALUES = {"C": 1.0, "I": 0.0, "P": 0.5, "N": 0.0}
"""The values of correct, incorrect and partial answers, and of no answer, as in Inspect's
`value_to_float`.
"""
_UNKNOWN = "unknown"
# entries of a `.eval` archive; Inspect writes _START at the beginning and _HEADER at the end
_HEADER = "header.json"
_START = "_journal/start.json"
_SAMPLES = "samples/"
_PART_OF_A_SAMPLE = re.compile(r"_epoch_\d+/sample\.json$")
_LISTS = ("samples", "reductions")
"""The lists in a `.json` log whose length grows with the number of samples."""
_MEANS = ("accuracy", "mean")
"""The metrics of Inspect that are means over samples. The value of a scorer is its first
metric in this list.
"""
_MAX_GROUP_NAME = 80  # the maximum number of characters of a category's value


def is_log(path: Path) -> bool:
    """Return True if the content of a file is a log of Inspect."""
    try:
        if path.suffix == ".eval":
            with archive(path) as entries:
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
    version = header.get("version", 1)
    if version != LOG_VERSION:
        raise SourceError(
            f"{path}: is a log of version {version!r}, and only version {LOG_VERSION} can be read; "
            f"`inspect log convert` writes version {LOG_VERSION}"
        )
    facts = _required_mapping(header, "eval", path)
    results = header.get("results") or {}
    scorers = [item for item in results.get("scores") or [] if isinstance(item, dict)]
    reported = _reported(scorers)
    status = header.get("status")
    if not isinstance(status, str):
        raise SourceError(f"{path}: has no field status")
    stats = header.get("stats") or {}
    packages = facts.get("packages") or {}
    prompt_tokens, completion_tokens = _total_usage(stats.get("model_usage") or {})
    main = next(iter(reported), None)
    if main is None:  # a log that did not finish may still have samples with values
        main = _first_scorer(path, status, header)
    unknown = ["prompts as sent to the endpoint", "cost"]
    program, program_version = _program(packages)
    if program_version == _UNKNOWN:
        unknown.append(f"version of {program}")
    return ForeignRun(
        program=program,
        version=program_version,
        task=_required_text(facts, "task", path),
        model=_required_text(facts, "model", path),
        main_metric=main,
        reported=reported,
        samples=lambda: _samples(path),
        files={path.name: digest_of(path)},
        dataset=_dataset(facts),
        stated_samples=count_of(results.get("total_samples")),
        finished=status == "success",
        why_unfinished=None if status == "success" else _unfinished(status, header),
        started_at=utc_time(stats.get("started_at") or facts.get("created")),
        ended_at=utc_time(stats.get("completed_at")),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        settings=_settings(facts, header),
        unknown=tuple(unknown),
    )


def _program(packages: Mapping[str, Any]) -> tuple[str, str]:
    """Return the program that computed the values, and its version.

    A log that eval-factory exported lists eval-factory and the program that computed the values.
    """
    if not packages.get(PROGRAM) and OUR_PACKAGE in packages:
        for package, version in packages.items():
            if package != OUR_PACKAGE:
                return str(package), str(version)
    return PROGRAM, str(packages.get(PROGRAM) or _UNKNOWN)


def _dataset(facts: Mapping[str, Any]) -> str | None:
    """Return the location of the data set, or else its name, which is often incomplete."""
    dataset = facts.get("dataset") or {}
    location = dataset.get("location") or dataset.get("name")
    return str(location) if location else None


def _header(path: Path) -> dict[str, Any]:
    """Return the document of a log without its samples."""
    if path.suffix != ".eval":
        header = object_without_lists(path, _LISTS)
        if header is None:
            raise SourceError(f"{path}: is not a log of inspect_ai")
        return header
    with archive(path) as entries:
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
    with archive(path) as entries:
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
    output = sample.get("output") or {}
    choices = list_of(output.get("choices"), "output.choices", location)
    message: dict[str, Any] = {}
    stop_reason = None
    if choices and isinstance(choices[0], dict):
        message = choices[0].get("message") or {}
        stop_reason = choices[0].get("stop_reason")
    messages = []
    for item in list_of(sample.get("messages"), "messages", location):
        if isinstance(item, dict):
            messages.append(item)
    usage = output.get("usage") or {}
    options = tuple(map(str, list_of(sample.get("choices"), "choices", location)))
    targets = _targets(sample.get("target"))
    right = _right_options(targets, options)
    values, judgements = _values(sample.get("scores") or {}, location)
    categories = _categories(sample, messages)
    completion, reasoning = _texts(message.get("content"))
    error = _error(sample, output)
    return ForeignSample(
        id=sample_id(sample["id"], location),
        repeat=_repeat(sample["epoch"], location),
        prompt=_prompt(messages, sample["input"]),
        question=_prompt([], sample["input"]),  # without messages: the text of the input field
        options=options,
        right_options=right,
        right_answers=targets,
        turns=_turns(messages),
        completion=None if error else completion,
        values={} if error else values,
        error=error,
        finish_reason=_finish_reason(sample, stop_reason),
        prompt_tokens=count_of(usage.get("input_tokens")),
        completion_tokens=count_of(usage.get("output_tokens")),
        latency_s=number_of(output.get("time")),
        reasoning=reasoning,
        judgements=judgements,
        categories=categories,
    )


def _repeat(epoch: Any, location: str) -> int:
    """Return the number of the repeat, from 0. Inspect counts epochs from 1.

    Raises:
        SourceError: the epoch is not an integer of 1 or more.
    """
    number = count_of(epoch)
    if number is None or number < 1:
        raise SourceError(f"{location}: epoch is not a whole number from 1")
    return number - 1


def _targets(target: Any) -> tuple[str, ...]:
    """Return the right answers of a sample."""
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
        if len(target) == 1 and 0 <= ord(target.upper()) - ord("A") < len(options):
            indices.append(ord(target.upper()) - ord("A"))
        elif target in options:
            indices.append(options.index(target))
    return tuple(indices)


def _texts(content: Any) -> tuple[str, str | None]:
    """Return the text of a message and its reasoning; None if there is no reasoning.

    Pictures and sounds are skipped.
    """
    if isinstance(content, str):
        return content, None
    texts = []
    reasoning = []
    # The reader of samples (`refuse_other_form`) reports a TypeError as a wrong field.
    if content is not None and not isinstance(content, list):
        raise TypeError("content is neither text nor a list")
    for part in content or []:
        if not isinstance(part, dict):
            continue
        if part.get("type") == "text":
            texts.append(str(part.get("text", "")))
        elif part.get("type") == "reasoning":
            reasoning.append(str(part.get("reasoning", "")))
    return "\n".join(texts), "\n".join(reasoning) or None


def _prompt(messages: Sequence[Mapping[str, Any]], input_field: Any) -> str:
    """Return the prompt: the messages before the model's first answer, or else the input field."""
    prompt_texts = []
    for message in messages:
        if message.get("role") == "assistant":
            break
        prompt_texts.append(_texts(message.get("content"))[0])
    if prompt_texts:
        return "\n\n".join(prompt_texts)
    if isinstance(input_field, str):
        return input_field
    texts = []
    for message in input_field or []:
        if isinstance(message, dict):
            texts.append(_texts(message.get("content"))[0])
    return "\n\n".join(texts)


def _turns(messages: Sequence[Mapping[str, Any]]) -> tuple[dict[str, Any], ...]:
    """Return the messages of a conversation before its last answer.

    The tuple is empty if there is only one such message, because the prompt has its text.
    """
    turns = []
    for message in messages:
        text = _texts(message.get("content"))[0]
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
    """Return the values by metric, and the explanations by scorer.

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
            # The keys are the judge and the criterion. A scorer has no criteria, so its name is
            # used for both.
            judgements[scorer] = {scorer: {"explanation": str(explanation)}}
    return values, judgements


def _named_values(scorer: str, value: Any) -> Iterator[tuple[str, float]]:
    """Yield (metric, value) of each number in a scorer's value; a list has no numbers."""
    if isinstance(value, dict):
        for name, part in value.items():
            number = _number(part)
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
            return number_of(float(value))
        except ValueError:
            return None
    return number_of(value)


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

    The request has the prompt. Without the request, equal errors have equal messages.
    """
    before, request_mark, request = message.partition("\\nRequest:\\n{")
    if not request_mark:
        return message
    _, end_mark, cause = request.partition("\\n}\\n\\n")
    if not end_mark:
        return before
    return f"{before}{cause}"


def _finish_reason(sample: Mapping[str, Any], stop_reason: Any) -> str | None:
    """Return why an answer ended: a limit of Inspect or the endpoint's reason; None if unknown."""
    limit = sample.get("limit")
    if isinstance(limit, dict) and limit.get("type"):
        return f"limit:{limit['type']}"
    if not stop_reason:
        return None
    return from_inspect(str(stop_reason))


def _categories(sample: Mapping[str, Any], messages: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the short metadata of a sample, and the numbers of turns and tool calls.

    The result groups its instances by these categories.
    """
    categories: dict[str, Any] = {}
    metadata = sample.get("metadata")
    if isinstance(metadata, dict):
        for name, value in metadata.items():
            if isinstance(value, str | int | bool) and len(str(value)) <= _MAX_GROUP_NAME:
                categories[str(name)] = value
    categories.update(counts_of_turns(messages))
    return categories


def _reported(scorers: Sequence[Mapping[str, Any]]) -> dict[str, ReportedValue]:
    """Return each scorer's mean with its standard error, as Inspect computed them."""
    reported: dict[str, ReportedValue] = {}
    entries = Counter(str(scorer.get("scorer")) for scorer in scorers)
    for scorer in scorers:
        metrics = scorer.get("metrics") or {}
        name = str(scorer.get("name") or scorer.get("scorer"))
        # A scorer with several values has several entries, one for each value.
        if scorer.get("scorer") and entries[str(scorer["scorer"])] > 1:
            name = f"{scorer.get('scorer')}.{name}"
        for mean in _MEANS:
            value = _metric(metrics, mean)
            if value is not None:
                reported.setdefault(name, ReportedValue(value, _metric(metrics, "stderr")))
                break
    return reported


def _metric(metrics: Mapping[str, Any], name: str) -> float | None:
    """Return the value of a metric; None if the scorer does not have the metric."""
    metric = metrics.get(name)
    if isinstance(metric, dict):
        return number_of(metric.get("value"))
    return None


def _first_scorer(path: Path, status: str, header: Mapping[str, Any]) -> str:
    """Return the first metric of the samples. Raises SourceError if no sample has a value."""
    for sample in _samples(path):
        if sample.values:
            return next(iter(sample.values))
    raise SourceError(
        f"{path}: has no scores (status {one_line(_unfinished(status, header))}); "
        "`inspect score` or `inspect eval-retry` computes them"
    )


def _total_usage(by_model: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Return the numbers of prompt and completion tokens of all models, including judges."""
    prompt = _sum_of(by_model, "input_tokens")
    completion = _sum_of(by_model, "output_tokens")
    return prompt, completion


def _sum_of(by_model: Mapping[str, Any], name: str) -> int | None:
    """Return the sum of a count over all models; None if the sum is 0 or not known."""
    counts = []
    for usage in by_model.values():
        if isinstance(usage, dict):
            count = count_of(usage.get(name))
            if count is not None:
                counts.append(count)
    return sum(counts) or None


def _unfinished(status: str, header: Mapping[str, Any]) -> str:
    """Return why a log is not complete: its status, with the error message if there is one."""
    error = header.get("error")
    if isinstance(error, dict) and error.get("message"):
        return f"{status}: {error['message']}"
    return status


def _settings(facts: Mapping[str, Any], header: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of the evaluation: task, data, epochs, solvers and generation."""
    plan = header.get("plan") or {}
    return {
        "task_version": facts.get("task_version"),
        "task_args": facts.get("task_args") or {},
        "dataset": (facts.get("dataset") or {}).get("name"),
        "epochs": (facts.get("config") or {}).get("epochs"),
        "limit": (facts.get("config") or {}).get("limit"),
        "solvers": [str(step.get("solver")) for step in plan.get("steps") or []],
        "generation": plan.get("config") or facts.get("model_generate_config") or {},
    }


def _required_mapping(document: Mapping[str, Any], name: str, path: Path) -> dict[str, Any]:
    """Return an object of the log. Raises SourceError if the object is missing."""
    value = document.get(name)
    if not isinstance(value, dict):
        raise SourceError(f"{path}: has no field {name}; is it a log of inspect_ai?")
    return value


def _required_text(document: Mapping[str, Any], name: str, path: Path) -> str:
    """Return a text of the section `eval`. Raises SourceError if the text is missing."""
    value = document.get(name)
    if not isinstance(value, str) or not value:
        raise SourceError(f"{path}: has no field eval.{name}")
    return value
