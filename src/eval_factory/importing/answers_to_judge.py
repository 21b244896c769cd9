"""Writes the answers of an imported result as a custom benchmark, so that judges can rate them.

The benchmark contains the answers. A run of the benchmark therefore asks the judges but not the
model.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import load_mapping, to_yaml
from eval_factory.core.results import InstanceRecord
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import atomic_file, write_atomic
from eval_factory.report.reader import StoredResult
from eval_factory.tasks.custom_benchmark import RUBRIC
from eval_factory.tasks.message_files import EVAL_FACTORY_FORM, read_rubric_file
from eval_factory.tasks.rubric_case import USER_ROLE, RubricCase, conversation_text

BENCHMARK_FILE = "benchmark.yaml"
ANSWERS_FILE = "answers.jsonl"
JUDGE_PROMPT_FILE = "judge_prompt.txt"
_NO_PROMPT = "(the source has no prompt)"
_DESCRIPTION = "Answers of an imported result"


@dataclass(frozen=True)
class Judging:
    """The user's benchmark file, which states what judges are asked about the answers."""

    path: Path
    document: Mapping[str, Any]  # the content of the file
    # id of a question -> its case in the rubric; None if a jury rates the answers without a rubric
    cases: Mapping[str, RubricCase] | None

    @property
    def prompt_file(self) -> Path | None:
        """The file of the judges' prompt; None if no metric of the benchmark names a file."""
        metrics = self.document.get("metrics")
        if not isinstance(metrics, list):
            return None
        for metric in metrics:
            if isinstance(metric, dict) and isinstance(metric.get("prompt_file"), str):
                return self.path.parent / Path(metric["prompt_file"]).expanduser()
        return None


def read_judging(path: Path) -> Judging:
    """Read a benchmark file, and the file of cases if the benchmark is a rubric.

    Raises:
        ConfigError: a file cannot be read, or a case has an answer of its own.
    """
    document = load_mapping(path, needs="name, description and metrics")
    if document.get("kind") != RUBRIC:
        return Judging(path, document, cases=None)
    file = path.parent / str(document.get("dataset_file"))
    try:
        rubric_file = read_rubric_file(file, EVAL_FACTORY_FORM)
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror or error}") from None
    problems = [f"{file}: {problem}" for problem in rubric_file.problems]
    if any(case.answer is not None for case in rubric_file.rows):
        problems.append(f"{file}: leave out `answer`: the answers are those of the imported result")
    if problems:
        raise ConfigError(problems)
    return Judging(path, document, {case.id: case for case in rubric_file.rows})


def numbered_answers(records: Iterable[InstanceRecord]) -> Iterator[tuple[str, InstanceRecord]]:
    """Yield (number, record) of each answer. The numbers of the records begin with 1.

    Records without an answer are skipped but counted.
    """
    for number, record in enumerate(records, start=1):
        if record.completion is not None and record.error is None:
            yield str(number), record


def write_judged_answers(stored: StoredResult, judging: Judging, folder: Path) -> Path:
    """Write the benchmark with a result's answers into a folder; return the path of its YAML file.

    Raises:
        ConfigError: there is no answer that judges can rate, or the file of the judges' prompt
            cannot be read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    has_clusters = _has_clusters(stored)
    written = 0
    with atomic_file(folder / ANSWERS_FILE, mode=PRIVATE) as file:
        for number, record in numbered_answers(stored.result.instances):
            line = _answer_line(number, record, judging)
            if line is None:
                continue
            if has_clusters:
                # Repeats of a question have the same `record.id`, and so the same cluster.
                line["cluster"] = record.cluster or record.id
            file.write(json.dumps(line) + "\n")
            written += 1
    if not written:
        raise ConfigError(_nothing_to_judge(stored, judging))
    document = {**judging.document, "dataset_file": ANSWERS_FILE}
    document.setdefault("name", "judged")
    document.setdefault("description", _DESCRIPTION)
    if judging.cases is None:
        # The answers are written as conversations, whose benchmark must not have a prompt. The
        # judges' prompt is a different `prompt_file`: that of a metric.
        document.pop("prompt_file", None)
        document["has_answers"] = True
        document["metrics"] = _metrics_with_copied_prompt(judging, folder)
    write_atomic(folder / BENCHMARK_FILE, to_yaml(document))
    return folder / BENCHMARK_FILE


def _has_clusters(stored: StoredResult) -> bool:
    """Return True if an answer belongs to a cluster, or answers a repeat of a question."""
    records = stored.result.instances
    return any(record.trial > 0 or record.cluster is not None for record in records)


def _nothing_to_judge(stored: StoredResult, judging: Judging) -> str:
    """Return the error message if there are no answers to judge."""
    if judging.cases is None:
        return f"{stored.folder}: has no answer that judges could rate"
    return (
        f"{judging.path}: no case has the id of an answer in {stored.folder}\n"
        "  give each case the `id` that instances.jsonl has"
    )


def _answer_line(number: str, record: InstanceRecord, judging: Judging) -> dict[str, Any] | None:
    """Return the line of `ANSWERS_FILE` for an answer, as a JSON object.

    Returns None if the benchmark is a rubric that has no case for the answer. `number` becomes the
    id of the answer in the file.
    """
    content = _sendable_text(record.prompt)
    if record.turns:
        content = _sendable_text(conversation_text(record.turns))
    line: dict[str, Any] = {
        "id": number,
        "messages": [{"role": USER_ROLE, "content": content}],
        # An empty answer stays empty, because it is to be judged as it is.
        "answer": _sendable_text(record.completion or "", placeholder=""),
    }
    if judging.cases is None:
        right_answers = []
        for reference in record.references:
            if "correct" in (reference.get("tags") or ()):
                right_answers.append(str(reference.get("text")))
        if any(text.strip() for text in right_answers):
            line["correct_answer"] = _sendable_text("; ".join(right_answers))
        return line
    case = judging.cases.get(record.id)
    if case is None:
        return None
    line["rubrics"] = [criterion.as_dict() for criterion in case.criteria]
    line["tags"] = list(case.tags)
    line["sample"] = record.trial
    if case.reference is not None:
        line["reference"] = case.reference
    return line


def _sendable_text(text: str, placeholder: str = _NO_PROMPT) -> str:
    """Return a text that can be sent to a judge.

    A blank text is replaced by `placeholder`. Lone surrogates are replaced, because UTF-8 cannot
    encode them.
    """
    if not text.strip():
        return placeholder
    return text.encode("utf-8", "replace").decode("utf-8")


def _metrics_with_copied_prompt(judging: Judging, folder: Path) -> Any:
    """Copy the judges' prompt into the folder; return the metrics, which then name the copy.

    If no metric names a file of a prompt, the metrics are returned unchanged.

    Raises:
        ConfigError: the file of the prompt cannot be read.
    """
    metrics = judging.document.get("metrics")
    prompt_file = judging.prompt_file
    if prompt_file is None:
        return metrics
    try:
        shutil.copyfile(prompt_file, folder / JUDGE_PROMPT_FILE)
    except OSError as error:
        raise ConfigError(
            f"{judging.path}: prompt_file: {prompt_file} cannot be read: {error.strerror}"
        ) from None
    changed_metrics = []
    for metric in metrics or []:
        if isinstance(metric, dict) and "prompt_file" in metric:
            metric = {**metric, "prompt_file": JUDGE_PROMPT_FILE}
        changed_metrics.append(metric)
    return changed_metrics
