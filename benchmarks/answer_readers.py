#!/usr/bin/env python3
"""Measures how often programs read labelled answers as people do.

The figures are in docs/results.md, Answers that say nothing. A reader finds the option that an
answer to a multiple-choice question states.

    python benchmarks/answer_readers.py ANSWERS.jsonl [--readers eval-factory inspect_ai]
    python benchmarks/answer_readers.py ANSWERS.jsonl --speed 10000

Each line of the file has `id`, `options` (label -> text), `answer` (the model's text) and `label`.
The label is that of the option which the answer states. It is any other word if the answer states
no option, or several. If lines have a `form`, the table also has a row for each form. The readers
of other programs are called from their packages, if these are installed. With `--speed N`, the
script prints the CPU time for N answers of 2,000 characters, which are made from those of the file.
"""

from __future__ import annotations

import argparse
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from pathlib import Path
from typing import Any

Read = Callable[[str, Mapping[str, str]], str | None]
LENGTH = 2000  # characters of an answer whose reading is timed


@dataclass(frozen=True)
class LabelledAnswer:
    """An answer, and the option that people read in it."""

    answer: str
    options: Mapping[str, str]
    label: str | None  # None: the answer does not state exactly one option
    form: str  # the form of the answer; empty if the line has none


def eval_factory() -> Read:
    """Return eval-factory's reader."""
    from eval_factory.reading import stated_option

    return stated_option


def inspect_ai() -> Read:
    """Return inspect_ai's reader: the letter after "ANSWER:", which its solver asks for."""
    from inspect_ai.model import ModelOutput
    from inspect_ai.solver import TaskState
    from inspect_ai.solver._multiple_choice import parse_answers

    def read(answer: str, options: Mapping[str, str]) -> str | None:
        state = TaskState(
            model="mockllm/model",
            sample_id=1,
            epoch=1,
            input="",
            messages=[],
            choices=list(options.values()),
            output=ModelOutput.from_content("mockllm/model", answer),
        )
        found = parse_answers(state, multiple_correct=False)
        return next(iter(found), None)

    return read


def lm_evaluation_harness(*, match: int) -> Read:
    """Return the reader of lm-evaluation-harness: its filter, with the pattern of its tasks.

    `match` is the number of the match that a task takes: 0 for the first, -1 for the last.
    """
    from lm_eval.filters.extraction import MultiChoiceRegexFilter

    reader = MultiChoiceRegexFilter(
        regex_pattern=r"(\([A-Z]\))", group_select=match, ignore_case=True, ignore_punctuation=True
    )

    def read(answer: str, options: Mapping[str, str]) -> str | None:
        choices = list(options.values())
        ((found,),) = reader.apply([[answer]], [{"choices": choices}])
        label = str(found).strip("()")
        return label if label in options else None

    return read


def lighteval() -> Read:
    """Return lighteval's reader, with the settings of its metric for multiple choices."""
    from lighteval.metrics.utils.extractive_match_utils import (
        IndicesExtractionConfig,
        extract_target_from_pred,
        get_extraction_regexes,
    )
    from lighteval.tasks.requests import Doc
    from lighteval.utils.language import Language

    letters = IndicesExtractionConfig(
        prefix_for_extraction="NativeLetters", try_extract_without_anchor=True
    )

    def read(answer: str, options: Mapping[str, str]) -> str | None:
        doc = Doc(query="", choices=list(options.values()), gold_index=0)
        patterns = get_extraction_regexes(doc, (letters,), Language.ENGLISH)
        found = extract_target_from_pred(answer, patterns, fallback_mode="first_match")
        return next((label for label in found if label in options), None)

    return read


def opencompass() -> Read:
    """Return the reader of OpenCompass, `first_option_postprocess`."""
    from opencompass.utils.text_postprocessors import first_option_postprocess

    def read(answer: str, options: Mapping[str, str]) -> str | None:
        if not options:
            return None
        found = first_option_postprocess(answer, "".join(options))
        return found if found in options else None

    return read


READERS: dict[str, Callable[[], Read]] = {
    "eval-factory": eval_factory,
    "inspect_ai": inspect_ai,
    "lm-evaluation-harness, last": partial(lm_evaluation_harness, match=-1),  # gpqa
    "lm-evaluation-harness, first": partial(lm_evaluation_harness, match=0),  # mmlu_flan_n_shot
    "lighteval": lighteval,
    "OpenCompass": opencompass,
}


def labelled_answers(file: Path) -> list[LabelledAnswer]:
    """Return the answers of a file."""
    answers = []
    for line in file.read_text(encoding="utf-8").splitlines():
        item: dict[str, Any] = json.loads(line)
        label = item["label"]
        if label not in item["options"]:
            label = None
        answers.append(LabelledAnswer(item["answer"], item["options"], label, item.get("form", "")))
    return answers


def outcome_of(read: Read, item: LabelledAnswer) -> str:
    """Return the column of the table in which an answer counts."""
    label = read(item.answer, item.options)
    if label == item.label:
        return "as labelled"
    return "not read" if label is None else "another option"


def rows(name: str, read: Read, answers: Sequence[LabelledAnswer]) -> list[str]:
    """Return the rows of a reader: for all answers, and for the answers of each form."""
    counts: dict[str, Counter[str]] = {}
    for item in answers:
        outcome = outcome_of(read, item)
        counts.setdefault("all", Counter())[outcome] += 1
        if item.form:
            counts.setdefault(item.form, Counter())[outcome] += 1
    lines = []
    for form, count_of in counts.items():
        total = sum(count_of.values())
        shares = [
            f"{count_of[outcome] / total:.1%}"
            for outcome in ("as labelled", "another option", "not read")
        ]
        lines.append(f"| {name} | {form} | {total} | {' | '.join(shares)} |")
    return lines


def seconds(read: Read, answers: Sequence[LabelledAnswer], count: int) -> float:
    """Return the CPU time for reading `count` answers of `LENGTH` characters.

    Each answer of the file is repeated, and then cut to this length.
    """
    long_answers = []
    for item in islice(cycle(answers), count):
        times = LENGTH // max(1, len(item.answer)) + 1
        text = f"{item.answer}\n\n" * times
        long_answers.append((text[:LENGTH], item.options))
    start = time.process_time()
    for answer, options in long_answers:
        read(answer, options)
    return time.process_time() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else None)
    parser.add_argument("answers", type=Path)
    parser.add_argument("--readers", nargs="+", choices=READERS, default=list(READERS))
    parser.add_argument("--speed", type=int, metavar="N")
    arguments = parser.parse_args()
    answers = labelled_answers(arguments.answers)
    table = ["| reader | answers | n | as labelled | another option | not read |", "|" + "---|" * 6]
    for name in arguments.readers:
        try:
            read = READERS[name]()
        except ImportError as error:
            print(f"{name}: not installed ({error.name})")
            continue
        if arguments.speed:
            cpu_s = seconds(read, answers, arguments.speed)
            print(f"{name}: {cpu_s:.1f} s for {arguments.speed} answers")
        else:
            table += rows(name, read, answers)
    if not arguments.speed:
        print("\n".join(table))


if __name__ == "__main__":
    main()
