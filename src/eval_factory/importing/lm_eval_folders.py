"""Reads folders of lm-evaluation-harness.

A folder has files `results_*.json` and, next to them, `samples_<task>_*.jsonl`. This module follows
the files that version 0.4.13 writes (`lm_eval/loggers/evaluation_tracker.py`); it does not import
the program. In these files, an optional field is missing or null; `or {}` covers both cases.

A task of the program makes one run here. A sample always has the prompt; the question without
instructions is often missing. A filter of the program extracts the answer from the text of the
model. A task with several filters has the value of each metric once for each filter.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from eval_factory.importing.foreign_run import (
    ForeignRun,
    ForeignSample,
    ReportedValue,
    option_index,
)
from eval_factory.importing.sources import (
    SourceError,
    checked_id,
    count_or_none,
    digest_of,
    file_next_to,
    json_document,
    json_lines,
    list_of,
    number_or_none,
    parse_foreign_json,
)

PROGRAM = "lm-evaluation-harness"
_NO_FILTER = "none"  # the name of the filter of a metric without a filter
_MULTIPLE_CHOICE = "multiple_choice"
"""The output type of tasks that compare the likelihoods of options."""
_LIKELIHOOD_TYPES = ("loglikelihood", "loglikelihood_rolling")
"""The output types of tasks that measure the likelihood of one text: the model writes no text."""
# the fields of a data set that may have the question or the options; the first field that exists
# is used
_QUESTION_FIELDS = ("question", "query", "input", "sent1")
_OPTION_FIELDS = ("choices", "options")
# fields that the program writes among the metrics of a task
_NOT_METRICS = ("alias", "sample_len", "name", "sample_count")


class _Request(NamedTuple):
    """A request of the program."""

    prompt: str
    # the text whose likelihood after the prompt is measured; meaningless if the model writes a text
    continuation: str


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
    task_config = document["configs"][task] or {}
    general_config = document.get("config") or {}
    directions = (document.get("higher_is_better") or {}).get(task) or {}
    reported = _reported(document["results"][task], directions)
    if not reported:
        raise SourceError(f"{path}: has no value of {task}")
    files = {path.name: digest_of(path)}
    open_samples = None
    samples_file = _samples_file(path, task)
    if samples_file is not None:
        files[samples_file.name] = digest_of(samples_file)
        open_samples = partial(_samples, samples_file, task_config)
    return ForeignRun(
        program=PROGRAM,
        version=str(document.get("lm_eval_version") or "unknown"),
        task=task,
        model=str(document.get("model_name") or general_config.get("model_args") or "unknown"),
        main_metric=_main_metric(task_config, list(reported)),
        reported=reported,
        samples=open_samples,
        files=files,
        dataset=str(task_config["dataset_path"]) if task_config.get("dataset_path") else None,
        stated_samples=_stated_samples(document, task),
        settings={
            "task_version": (document.get("versions") or {}).get(task),
            "few_shot": (document.get("n-shot") or {}).get(task),
            "limit": general_config.get("limit"),
            "generation": task_config.get("generation_kwargs") or {},
            "output_type": task_config.get("output_type"),
            "git_hash": document.get("git_hash"),
        },
        unknown=("tokens", "seconds of an answer", "cost"),
        notes=tuple(_notes(task_config, has_samples=open_samples is not None)),
    )


def _notes(task_config: Mapping[str, Any], *, has_samples: bool) -> Iterator[str]:
    """Yield the notes for the report on a task."""
    if not has_samples:
        yield "The source has no answers to single questions: `lm_eval --log_samples` writes them."
    output_type = task_config.get("output_type")
    if output_type == _MULTIPLE_CHOICE:
        yield "The answers are the options that the model finds most likely, not its words."
    if output_type in _LIKELIHOOD_TYPES:
        yield "The model wrote no answers: how likely given texts are was measured."


def _stated_samples(document: Mapping[str, Any], task: str) -> int | None:
    """Return the number of answers that the results state for a task; None if not stated."""
    counts = (document.get("n-samples") or {}).get(task)
    if not isinstance(counts, dict):
        return None
    return count_or_none(counts.get("effective"))


def _samples_file(path: Path, task: str) -> Path | None:
    """Return the file of a task's samples; None if the file does not exist.

    The name of this file has the same timestamp as the name of the results file.
    """
    timestamp = path.stem.removeprefix("results_")
    return file_next_to(path, f"samples_{task}_{timestamp}.jsonl")


def metric_name(key: str) -> str:
    """Return the name of the metric with this key, which consists of the metric and its filter.

    Examples: `acc` for `acc,none`; `exact_match.strict-match` for `exact_match,strict-match`.
    """
    name, _, filter_name = key.partition(",")
    if filter_name in ("", _NO_FILTER):
        return name
    return f"{name}.{filter_name}"


def _reported(values: Mapping[str, Any], directions: Mapping[str, Any]) -> dict[str, ReportedValue]:
    """Return the reported values by the name of the metric.

    Args:
        values: the values of a task, by the key of the metric (see `metric_name`).
        directions: dict from metric to True if a higher value is better.
    """
    reported = {}
    for key, value in values.items():
        name, _, filter_name = key.partition(",")
        number = number_or_none(value)
        if number is None or name in _NOT_METRICS or name.endswith("_stderr"):
            continue
        stderr = number_or_none(values.get(f"{name}_stderr,{filter_name}"))
        higher_is_better = directions.get(name)
        if not isinstance(higher_is_better, bool):
            higher_is_better = None
        reported[metric_name(key)] = ReportedValue(number, stderr, higher_is_better)
    return reported


def _main_metric(task_config: Mapping[str, Any], reported: list[str]) -> str:
    """Return the first reported metric that the task's configuration lists, with its first filter.

    Returns the first reported metric if the configuration lists none of them.
    """
    for listed in task_config.get("metric_list") or []:
        if not isinstance(listed, dict):
            continue
        metric = listed.get("metric")
        for name in reported:
            if name == metric or name.startswith(f"{metric}."):
                return name
    return reported[0]


def _samples(path: Path, task_config: Mapping[str, Any]) -> Iterator[ForeignSample]:
    """Yield each answer once, with the values of all filters.

    The file has all answers with the first filter, then all answers with the next filter. A first
    pass therefore collects the values. A second pass yields the answers in the order of their first
    lines.
    """
    values_by_id: dict[str, dict[str, float]] = {}
    for number, line in enumerate(json_lines(path), start=1):
        location = f"{path}, line {number}"
        question_id = checked_id(line.get("doc_id"), location)
        line_values = _values(line, location)
        answer_values = values_by_id.setdefault(question_id, {})
        if line_values.keys() & answer_values.keys():
            raise SourceError(f"{location}: answer {question_id} occurs twice with the same filter")
        answer_values.update(line_values)
    yielded = set()
    for number, line in enumerate(json_lines(path), start=1):
        location = f"{path}, line {number}"
        question_id = checked_id(line["doc_id"], location)
        if question_id not in yielded:
            yielded.add(question_id)
            yield _sample(line, question_id, values_by_id[question_id], task_config, location)


def _values(line: Mapping[str, Any], location: str) -> dict[str, float]:
    """Return the values of a line, by the name of the metric with its filter."""
    values = {}
    filter_name = str(line.get("filter", _NO_FILTER))
    for metric in list_of(line.get("metrics"), "metrics", location):
        number = number_or_none(line.get(metric))
        if number is not None:
            values[metric_name(f"{metric},{filter_name}")] = number
    return values


def _sample(
    line: Mapping[str, Any],
    question_id: str,
    values: Mapping[str, float],
    task_config: Mapping[str, Any],
    location: str,
) -> ForeignSample:
    """Return the sample of a line.

    Args:
        line: the first line of the answer.
        question_id: the id of the question.
        values: the values of the answer with all filters, by metric.
        task_config: the configuration of the task.
        location: names the line in error messages.
    """
    doc = line.get("doc")  # the question in the form of its data set
    if not isinstance(doc, dict):
        raise SourceError(f"{location}: has no field doc")
    requests = _requests(line.get("arguments"))
    output_type = task_config.get("output_type")
    responses = line.get("resps")
    target = line.get("target")
    options: tuple[str, ...] = ()
    right_options: tuple[int, ...] = ()
    completion = None
    if output_type == _MULTIPLE_CHOICE:
        options, have_same_prompt = _compared_options(requests)
        completion = _most_likely(responses, options)
        if have_same_prompt:
            right_options = _right_options(target, options)
    elif output_type not in _LIKELIHOOD_TYPES:
        options = _options_in(doc)
        completion = _first_text(responses)
        right_options = _right_options(target, options)
    has_answer = completion is not None
    if output_type in _LIKELIHOOD_TYPES:
        has_answer = bool(responses)  # these responses are likelihoods, not texts
    right_answers: tuple[str, ...] = ()
    if not right_options and target is not None:
        right_answers = (str(target),)
    return ForeignSample(
        id=question_id,
        repeat=0,
        prompt=requests[0].prompt if requests else "",
        question=_question_in(doc),
        options=options,
        right_options=right_options,
        right_answers=right_answers,
        completion=completion,
        values=values,
        error=None if has_answer else "no answer is in the samples",
    )


def _requests(arguments: Any) -> list[_Request]:
    """Return the requests of a sample from its field `arguments`.

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
            requests.append(_Request(_prompt_text(request[0]), str(continuation)))
    return requests


def _compared_options(requests: Sequence[_Request]) -> tuple[tuple[str, ...], bool]:
    """Return the options that were compared, and True if all of them continue the same prompt.

    In tasks with `multiple_input`, such as WinoGrande, each option has its own prompt. An option is
    then the prompt with its continuation, and the target does not identify the right option.
    """
    compared = list(requests)
    if requests and requests[0].prompt:
        # The metric acc_mutual_info makes a further request without a prompt for each option.
        compared = [request for request in requests if request.prompt]
    if len({request.prompt for request in compared}) == 1:
        return tuple(request.continuation.strip() for request in compared), True
    return tuple(f"{request.prompt}{request.continuation}" for request in compared), False


def _prompt_text(prompt: Any) -> str:
    """Return the text of a prompt.

    The prompt of a chat is a list of messages, or a list with one text: the JSON of the messages.
    """
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
        return parse_foreign_json(text, location="a prompt")
    except SourceError:
        return text


def _most_likely(responses: Any, options: tuple[str, ...]) -> str | None:
    """Return the option with the greatest log-likelihood; of several such options, the first.

    Returns None if a log-likelihood cannot be read.
    """
    if not isinstance(responses, list):
        return None
    best = None
    best_likelihood = None
    # There may be more responses than options: see acc_mutual_info in `_compared_options`.
    for option, response in zip(options, responses, strict=False):
        likelihood = _log_likelihood(response)
        if likelihood is None:
            return None
        if best_likelihood is None or likelihood > best_likelihood:
            best = option
            best_likelihood = likelihood
    return best


def _log_likelihood(response: Any) -> float | None:
    """Return the log-likelihood in a response; None if it cannot be read.

    A response is the pair (log-likelihood, is greedy) inside of one or more lists.
    """
    pair = response
    while isinstance(pair, list) and pair and isinstance(pair[0], list):
        pair = pair[0]  # a list of lists: go one level down
    try:
        return float(pair[0])
    except (TypeError, ValueError, IndexError, KeyError):
        return None


def _first_text(responses: Any) -> str | None:
    """Return the first text in nested lists of responses; None if there is no text."""
    text = responses
    while isinstance(text, list) and text:
        text = text[0]
    if isinstance(text, str):
        return text
    return None


def _options_in(doc: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the options of a question; empty if no known field has options."""
    for name in _OPTION_FIELDS:
        options = doc.get(name)
        if isinstance(options, dict):  # {"text": ["...", ...], "label": [...]} or {"A": "...", ...}
            options = options.get("text", list(options.values()))
        if isinstance(options, list) and all(isinstance(option, str) for option in options):
            return tuple(options)
    return ()


def _question_in(doc: Mapping[str, Any]) -> str | None:
    """Return the text of a question; None if no known field has the text."""
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
    # A number of four or more digits is an option's text, not an index.
    if text.isdecimal() and len(text) < 4 and int(text) < len(options):
        return (int(text),)
    if text in options:
        return (options.index(text),)
    index = option_index(text.strip("()"), len(options))
    if index is None:
        return ()
    return (index,)
