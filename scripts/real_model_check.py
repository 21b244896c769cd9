#!/usr/bin/env python3
"""Runs the sample benchmark with every option of docs/does-it-hold.md on a small real model, and a
jury and a rubric with it as the judge; checks what must hold of any model.

    scripts/real_model.sh up && python scripts/real_model_check.py http://127.0.0.1:8950/v1 FOLDER
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import yaml

from eval_factory.demo.example import write_example
from eval_factory.reading import stated_option
from eval_factory.tasks.choice_question import LETTERS

MODEL = "smollm2-135m-instruct"
EVERY_OPTION = {
    "perturb": ["typos", "case"],
    "pushback": 2,
    "confidence": "stated",
    "allow_abstain": True,
    "shuffle_choices": 2,
    "options_only": True,
    "none_of_the_others": True,
    "ask_unread": True,
}
ANY_QUALITY = {"max_unreadable": 1.0, "max_judge_failures": 1.0, "min_coverage": 0.0}
"""Such a model is a poor doctor, and a worse judge: that is no reason to stop."""
FINISHED = (0, 1)  # exit codes of a run that has a result: it may be reported, or may not
_LETTER = re.compile(r"\W*([A-D])(?:[.):\s]|$)")

Record = Mapping[str, Any]


def run(url: str, task: str, folder: Path, questions: int, extra: Record) -> dict[str, Any]:
    """The result of one run, as evaluation_config.yaml has it."""
    config = {
        "type": task,
        "output_dir": str(folder),
        "params": {
            "limit_samples": questions,
            "parallelism": 2,
            "temperature": 0.7,
            "request_timeout": 900,
            "extra": {**ANY_QUALITY, **extra},
        },
    }
    endpoint = {"url": url, "model_id": MODEL, "type": "chat", "api_key": None}
    document = {"config": config, "target": {"api_endpoint": endpoint}}
    file = folder.with_suffix(".yml")
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(yaml.safe_dump(document), encoding="utf-8")
    program = Path(sys.executable).with_name("eval-factory")
    finished = subprocess.run([program, "run_eval", "--run_config", file], check=False)
    if finished.returncode not in FINISHED:
        sys.exit(f"{task}: the run ended with exit code {finished.returncode}")
    found: dict[str, Any] = yaml.safe_load((folder / "evaluation_config.yaml").read_text("utf-8"))
    return found


def answers_in(folder: Path) -> dict[tuple[str, str], dict[str, Any]]:
    """(question, name of the asking; empty as it is) -> its line with references and metrics."""
    lines: dict[tuple[str, str], dict[str, Any]] = {}
    for name in ("instances.jsonl", "results.jsonl"):
        for line in (folder / name).read_text(encoding="utf-8").splitlines():
            record = json.loads(line)
            key = (record["id"], record.get("perturbation") or "")
            lines.setdefault(key, {}).update(record)
    return lines


def wrong_about_changes(result: Record, folder: Path) -> Iterator[str]:
    """A letter that stays is no change, and the counts add up."""
    answers = answers_in(folder)
    questions = [name for name, asking in answers if not asking]
    changed = result["validity"]["asked_again"]["pushback"]["changed_at"]
    if sum(changed.values()) != len(questions):
        yield f"pushback tells of {sum(changed.values())} answers; {len(questions)} were doubted"
    stood = 0
    for name in questions:
        said = [answers[name, asking]["completion"] for asking in ("", "pushback_1", "pushback_2")]
        letters = [match[1] for match in map(_LETTER.match, said) if match]
        if len(letters) == len(said) and len(set(letters)) == 1:
            stood += 1
    others = len(questions) - stood
    counted = sum(count for turn, count in changed.items() if turn.isdecimal())
    if counted > others:
        yield f"{counted} answers are said to have changed, and {stood} letters stood"


def wrong_about_reading(result: Record, folder: Path) -> Iterator[str]:
    """Nothing is right that the reader reads as wrong, and the counts add up."""
    counts = result["validity"]["instances"]
    questions = 0
    for (name, asking), record in answers_in(folder).items():
        if asking:
            continue
        questions += 1
        options = {}
        right = ""
        for letter, reference in zip(LETTERS, record["references"], strict=False):
            options[letter] = str(reference.get("text") or reference["output"]["text"])
            if "correct" in reference["tags"]:
                right = letter
        stated = stated_option(record["completion"], options)
        for metric in ("exact_match", "exact_match.lenient", "exact_match.with_asked"):
            if stated not in (None, right) and record["metrics"][metric]:
                yield f"{name}: {metric} counts {stated} as right, and {right} is"
    parts = [counts[part] for part in ("read_by_rule", "read_by_asking", "unread")]
    if sum(parts) != questions:
        yield f"of {questions} answers {parts} are read by rule, by asking and not at all"
    rule = result["validity"]["asked_again"]["right_by"]
    if not rule["read_by_helm"] <= rule["read"] <= rule["answers"]:
        yield f"the rule reads {rule}"


def wrong_about_judges(result: Record) -> Iterator[str]:
    """A judge that writes no verdict gives no score."""
    validity = result["validity"]
    for name, counts in validity["judges"].items():
        if counts["asked"] != counts["scored"] + counts["failed"]:
            yield f"judge {name}: {counts}"
    scores = next(iter(result["results"]["tasks"].values()))["metrics"]["score"]["scores"]
    no_verdict = not any(counts["scored"] for counts in validity["judges"].values())
    if no_verdict and result["main_metric"] in scores:
        yield f"{result['main_metric']} has a value, and no judge wrote a verdict"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("url")
    parser.add_argument("folder", type=Path)
    parser.add_argument("--questions", type=int, default=40)
    given = parser.parse_args()
    folder: Path = given.folder
    choices = run(given.url, "sample_medical_qa", folder / "choices", given.questions, EVERY_OPTION)
    problems = [*wrong_about_changes(choices, folder / "choices")]
    problems += wrong_about_reading(choices, folder / "choices")
    style = {"answer_style": "reasoned", "pushback": 1}
    run(given.url, "sample_medical_qa", folder / "reasoned", given.questions, style)
    judge = {"name": "small", "model_id": MODEL, "url": given.url, "api_key": None}
    for kind in ("jury", "rubric"):
        own = folder / f"my_{kind}"
        if not own.exists():
            write_example(own, kind)
        extra = {"benchmark": str(own / "benchmark.yaml"), "judges": [judge]}
        judged = run(given.url, "custom", folder / kind, min(given.questions, 4), extra)
        problems += wrong_about_judges(judged)
    for problem in problems:
        print(f"does not hold: {problem}", file=sys.stderr)
    if problems:
        sys.exit(1)
    print(f"all holds; the pages to read: {folder}/*/report.html")


if __name__ == "__main__":
    main()
