"""Reads folders of lm-evaluation-harness.

A folder has files `results_*.json` and, next to them, `samples_<task>_*.jsonl`. This module follows
the files that version 0.4.13 writes (`lm_eval/loggers/evaluation_tracker.py`); it does not import
the program. A sample always has the prompt; the question without instructions is often missing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from eval_factory.importing.foreign_run import ForeignRun, ForeignSample, ReportedValue
from eval_factory.importing.sources import (
    SourceError,
    count_of,
    digest_of,
    file_next_to,
    json_document,
    json_lines,
    list_of,
    number_of,
    parsed,
    sample_id,
)

PROGRAM = "lm-evaluation-harness"
_NO_FILTER = "none"
_MULTIPLE_CHOICE = "multiple_choice"
_LIKELIHOODS = ("loglikelihood", "loglikelihood_rolling")
"""The output types of tasks that measure the likelihood of a text: the model writes no text."""
# the fields of a data set that may have the question or the options; the first one found is used
_QUESTION_FIELDS = ("question", "query", "input", "sent1")
_OPTION_FIELDS = ("choices", "options")
_NOT_METRICS = ("alias", "sample_len", "name", "sample_count")  # fields among the metrics


def results_files(folder: Path) -> list[Path]:
    """Return the files of results in a folder and its subfolders, sorted by path."""
    return sorted(folder.rglob("results_*.json"))


def is_results_file(path: Path) -> bool:
    """Return True if the content of a file is a record of results of lm-evaluation-harness."""
    try:
        document = json_document(path)
    except SourceError:
        return False
    return isinstance(document, dict) and "results" in document and "configs" in document


def read(path: Path) -> list[ForeignRun]:
    """Read one file of results, and return one run for each task that has a configuration.

    Raises:
        SourceError: a field is missing, or a file of samples cannot be read.
    """
    document = json_document(path)
    if not isinstance(document, dict):
        raise SourceError(f"{path}: is not a JSON object")
    for name in ("results", "configs"):
        if not isinstance(document.get(name), dict):
            raise SourceError(f"{path}: has no field {name}")
    runs = []
    for task in document["configs"]:
        if task in document["results"]:
            runs.append(_run(path, document, task))
    if not runs:
        raise SourceError(f"{path}: has no result of a task")
    return runs


def _run(path: Path, document: Mapping[str, Any], task: str) -> ForeignRun:
    """Return the run of one task in a file of results."""
    config = document["configs"][task] or {}
    directions = (document.get("higher_is_better") or {}).get(task) or {}
    reported = _reported(document["results"][task], directions)
    if not reported:
        raise SourceError(f"{path}: has no value of {task}")
    samples = _samples_file(path, task)
    files = {path.name: digest_of(path)}
    open_samples = None
    unknown = ["tokens", "seconds of an answer", "cost"]
    notes = []
    if samples is not None:
        files[samples.name] = digest_of(samples)
        open_samples = partial(_samples, samples, config)
    else:
        notes.append(
            "The source has no answers to single questions: `lm_eval --log_samples` writes them."
        )
    if config.get("output_type") == _MULTIPLE_CHOICE:
        notes.append("The answers are the options that the model finds most likely, not its words.")
    if config.get("output_type") in _LIKELIHOODS:
        notes.append("The model wrote no answers: how likely given texts are was measured.")
    general = document.get("config") or {}
    return ForeignRun(
        program=PROGRAM,
        version=str(document.get("lm_eval_version") or "unknown"),
        task=task,
        model=str(document.get("model_name") or general.get("model_args") or "unknown"),
        main_metric=_main_metric(config, list(reported)),
        reported=reported,
        samples=open_samples,
        files=files,
        dataset=str(config["dataset_path"]) if config.get("dataset_path") else None,
        stated_samples=_stated_samples(document, task),
        settings={
            "task_version": (document.get("versions") or {}).get(task),
            "few_shot": (document.get("n-shot") or {}).get(task),
            "limit": general.get("limit"),
            "generation": config.get("generation_kwargs") or {},
            "output_type": config.get("output_type"),
            "git_hash": document.get("git_hash"),
        },
        unknown=tuple(unknown),
        notes=tuple(notes),
    )


def _stated_samples(document: Mapping[str, Any], task: str) -> int | None:
    """Return the number of answers that the results state for a task; None if not stated."""
    counts = (document.get("n-samples") or {}).get(task)
    if not isinstance(counts, dict):
        return None
    return count_of(counts.get("effective"))


def _samples_file(path: Path, task: str) -> Path | None:
    """Return the file of a task's samples; None if the file does not exist.

    The name of this file has the same timestamp as the name of the results file.
    """
    timestamp = path.stem.removeprefix("results_")
    return file_next_to(path, f"samples_{task}_{timestamp}.jsonl")


def metric_name(key: str) -> str:
    """Return the name of a metric with its filter.

    Examples are `acc` for `acc,none`, and `exact_match.strict-match` for
    `exact_match,strict-match`.
    """
    name, _, filter_name = key.partition(",")
    if filter_name in ("", _NO_FILTER):
        return name
    return f"{name}.{filter_name}"


def _reported(values: Mapping[str, Any], directions: Mapping[str, Any]) -> dict[str, ReportedValue]:
    """Return the reported values by metric. `directions`: metric -> True if higher is better."""
    reported = {}
    for key, value in values.items():
        name, _, filter_name = key.partition(",")
        number = number_of(value)
        if number is None or name in _NOT_METRICS or name.endswith("_stderr"):
            continue
        stderr = number_of(values.get(f"{name}_stderr,{filter_name}"))
        higher_is_better = directions.get(name)
        if not isinstance(higher_is_better, bool):
            higher_is_better = None
        reported[metric_name(key)] = ReportedValue(number, stderr, higher_is_better)
    return reported


def _main_metric(config: Mapping[str, Any], names: list[str]) -> str:
    """Return the first metric in the task's configuration, with its first filter.

    Returns the first reported metric if the configuration lists no reported metric.
    """
    for metric in config.get("metric_list") or []:
        if not isinstance(metric, dict):
            continue
        for name in names:
            if name == metric.get("metric") or name.startswith(f"{metric.get('metric')}."):
                return name
    return names[0]


def _samples(path: Path, config: Mapping[str, Any]) -> Iterator[ForeignSample]:
    """Yield each answer once, with the values of all filters.

    The file has all answers with the first filter, then all answers with the next filter. A first
    pass therefore collects the values. A second pass yields the answers in the order of their first
    lines.
    """
    values: dict[str, dict[str, float]] = {}
    for number, line in enumerate(json_lines(path), start=1):
        location = f"{path}, line {number}"
        key = sample_id(line.get("doc_id"), location)
        line_values = _values(line, location)
        answer_values = values.setdefault(key, {})
        if line_values.keys() & answer_values.keys():
            raise SourceError(f"{location}: answer {key} occurs twice with the same filter")
        answer_values.update(line_values)
    yielded = set()
    for number, line in enumerate(json_lines(path), start=1):
        location = f"{path}, line {number}"
        key = sample_id(line["doc_id"], location)
        if key not in yielded:
            yielded.add(key)
            yield _sample(line, key, values[key], config, location)


def _values(line: Mapping[str, Any], location: str) -> dict[str, float]:
    """Return the values of a line's metrics, by the name of the metric with its filter."""
    values = {}
    filter_name = str(line.get("filter", _NO_FILTER))
    for metric in list_of(line.get("metrics"), "metrics", location):
        number = number_of(line.get(metric))
        if number is not None:
            values[metric_name(f"{metric},{filter_name}")] = number
    return values


def _sample(
    line: Mapping[str, Any],
    key: str,
    values: Mapping[str, float],
    config: Mapping[str, Any],
    location: str,
) -> ForeignSample:
    """Return the sample of a line.

    Args:
        line: the first line of the answer.
        key: the id of the question.
        values: the values of the answer with all filters, by metric.
        config: the configuration of the task.
        location: names the line in error messages.
    """
    doc = line.get("doc")
    if not isinstance(doc, dict):
        raise SourceError(f"{location}: has no field doc")
    requests = _requests(line.get("arguments"))
    prompt = requests[0][0] if requests else ""
    kind = config.get("output_type")
    options: tuple[str, ...] = ()
    right: tuple[int, ...] = ()
    completion = None
    if kind == _MULTIPLE_CHOICE:
        options, have_same_prompt = _compared_options(requests)
        completion = _most_likely(line.get("resps"), options)
        if have_same_prompt:
            right = _right_options(line.get("target"), options)
    elif kind not in _LIKELIHOODS:
        options = _document_options(doc)
        completion = _first_text(line.get("resps"))
        right = _right_options(line.get("target"), options)
    has_answer = completion is not None or (kind in _LIKELIHOODS and bool(line.get("resps")))
    answers: tuple[str, ...] = ()
    if not right and line.get("target") is not None:
        answers = (str(line["target"]),)
    return ForeignSample(
        id=key,
        repeat=0,
        prompt=prompt,
        question=_document_question(doc),
        options=options,
        right_options=right,
        right_answers=answers,
        completion=completion,
        values=values,
        error=None if has_answer else "no answer is in the samples",
    )


def _requests(arguments: Any) -> list[tuple[str, str]]:
    """Return (prompt, continuation) of each request of a sample.

    Newer versions of the program write an object with names, older versions a list.
    """
    listed: list[Any] = []
    if isinstance(arguments, dict):
        for request in arguments.values():
            if isinstance(request, dict):
                listed.append([request.get("arg_0"), request.get("arg_1")])
    elif isinstance(arguments, list):
        listed = arguments
    requests = []
    for request in listed:
        if isinstance(request, list | tuple) and request:
            continuation = request[1] if len(request) > 1 else ""
            requests.append((_prompt_text(request[0]), str(continuation)))
    return requests


def _compared_options(requests: Sequence[tuple[str, str]]) -> tuple[tuple[str, ...], bool]:
    """Return the options that were compared, and True if all of them continue the same prompt.

    In tasks with `multiple_input`, such as WinoGrande, each option has its own prompt. An option is
    then the prompt with its continuation, and the target does not identify the right option.
    """
    # The metric acc_mutual_info makes another request for each option, without a prompt. These
    # requests are left out. If the first request has no prompt, the question has none.
    compared = [request for request in requests if request[0] or not requests[0][0]]
    if len({prompt for prompt, _ in compared}) == 1:
        return tuple(continuation.strip() for _, continuation in compared), True
    return tuple(f"{prompt}{continuation}" for prompt, continuation in compared), False


def _prompt_text(prompt: Any) -> str:
    """Return the text of a prompt. A chat's prompt is a list of messages, or its JSON text."""
    if isinstance(prompt, list) and len(prompt) == 1 and isinstance(prompt[0], str):
        prompt = _messages_in(prompt[0])
    if isinstance(prompt, list):
        texts = [str(message.get("content")) for message in prompt if isinstance(message, dict)]
        return "\n\n".join(texts)
    return str(prompt)


def _messages_in(text: str) -> Any:
    """Return the messages if a text is the JSON of a list; otherwise return the text."""
    if not text.startswith("["):
        return text
    try:
        return parsed(text, "a prompt")
    except SourceError:
        return text


def _most_likely(responses: Any, options: tuple[str, ...]) -> str | None:
    """Return the option with the greatest log-likelihood; the first one if several are equal.

    Returns None if a log-likelihood cannot be read.
    """
    best = None
    best_likelihood = None
    if not isinstance(responses, list):
        return None
    for option, response in zip(options, responses, strict=False):
        # The pair (log-likelihood, is greedy) is inside of one or more lists.
        pair = response
        while isinstance(pair, list) and pair and isinstance(pair[0], list):
            pair = pair[0]
        try:
            likelihood = float(pair[0])
        except (TypeError, ValueError, IndexError, KeyError):
            return None
        if best_likelihood is None or likelihood > best_likelihood:
            best = option
            best_likelihood = likelihood
    return best


def _first_text(responses: Any) -> str | None:
    """Return the first text in nested lists of responses; None if there is no text."""
    text = responses
    while isinstance(text, list) and text:
        text = text[0]
    if isinstance(text, str):
        return text
    return None


def _document_options(doc: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options that the data set has for a question; empty if there are none."""
    for name in _OPTION_FIELDS:
        options = doc.get(name)
        if isinstance(options, dict):
            options = options.get("text", list(options.values()))
        if isinstance(options, list) and all(isinstance(option, str) for option in options):
            return tuple(options)
    return ()


def _document_question(doc: Mapping[str, Any]) -> str | None:
    """Return the question that the data set has; None if no known field has the question."""
    for name in _QUESTION_FIELDS:
        if isinstance(doc.get(name), str):
            return str(doc[name])
    return None


def _right_options(target: Any, options: tuple[str, ...]) -> tuple[int, ...]:
    """Return the index of the right option, in a tuple; empty if the target is not an option.

    The target is the index of the option, its letter or its text.
    """
    if isinstance(target, int) and not isinstance(target, bool) and 0 <= target < len(options):
        return (target,)
    if not isinstance(target, str):
        return ()
    text = target.strip()
    # an index has at most three digits: a longer number is the text of an option
    if text.isdecimal() and len(text) < 4 and int(text) < len(options):
        return (int(text),)
    if text in options:
        return (options.index(text),)
    letter = text.strip("()").upper()
    if len(letter) == 1 and 0 <= ord(letter) - ord("A") < len(options):
        return (ord(letter) - ord("A"),)
    return ()
