#!/usr/bin/env python3
"""Measures the memory of `eval-factory import` for a source of each format.

    python benchmarks/import_memory.py --samples 100000

A source has invented samples of about 1,500 characters each, and is imported by a process of its
own. The exit code is 1 if an import uses more than `--limit` MB. Linux and macOS: the kernel states
the greatest memory of a process (`ru_maxrss`).
"""

from __future__ import annotations

import argparse
import csv
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from tools import BIN, invented_words

WORDS_OF_A_QUESTION = 60
WORDS_OF_AN_OPTION = 4
COLUMNS = ("--id", "nr", "--question", "question", "--options", "options", "--right", "gold")
ANSWERS = ("--answer", "answer")


def questions(count: int) -> Iterator[dict[str, Any]]:
    """Yield made-up questions with four options and an answer that is right for two of three."""
    source, words = invented_words()
    for number in range(count):
        options = [" ".join(source.choices(words, k=WORDS_OF_AN_OPTION)) for _ in range(4)]
        right = "ABCD"[number % 4]
        answer = right if number % 3 else "ABCD"[(number + 1) % 4]
        yield {
            "number": number,
            "question": f"{number}: {' '.join(source.choices(words, k=WORDS_OF_A_QUESTION))}?",
            "options": options,
            "right": right,
            "answer": f"ANSWER: {answer}",
            "value": float(answer == right),
        }


def prompt_of(question: dict[str, Any]) -> str:
    """Return a question with its options in lines of their own."""
    lines = [question["question"]]
    for letter, option in zip("ABCD", question["options"], strict=True):
        lines.append(f"{letter}. {option}")
    return "\n".join(lines)


def inspect_sample(question: dict[str, Any]) -> dict[str, Any]:
    """Return a sample as inspect_ai writes it."""
    answer = question["answer"]
    return {
        "id": question["number"],
        "epoch": 1,
        "input": question["question"],
        "choices": question["options"],
        "target": question["right"],
        "messages": [
            {"role": "user", "content": prompt_of(question)},
            {"role": "assistant", "content": answer},
        ],
        "output": {
            "choices": [{"message": {"content": answer}, "stop_reason": "stop"}],
            "usage": {"input_tokens": 90, "output_tokens": 3},
            "time": 0.5,
        },
        "scores": {"choice": {"value": "C" if question["value"] else "I", "explanation": answer}},
        "metadata": {"ward": f"ward {question['number'] % 7}"},
    }


def inspect_header(count: int) -> dict[str, Any]:
    """Return the header of a log of inspect_ai."""
    right = sum(1 for number in range(count) if number % 3)
    metrics = {"accuracy": {"value": right / count}}
    return {
        "version": 2,
        "status": "success",
        "eval": {"task": "made_up", "model": "org/model", "packages": {"inspect_ai": "0.3.285"}},
        "results": {
            "total_samples": count,
            "scores": [{"name": "choice", "scorer": "choice", "metrics": metrics}],
        },
        "stats": {"started_at": "2026-11-01T00:00:00+00:00"},
    }


def write_eval(folder: Path, count: int) -> list[str]:
    """Write a log of inspect_ai as an archive.

    The entries are deflated. Those of real logs may be compressed with zstd instead.
    """
    path = folder / "log.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        file.writestr("header.json", json.dumps(inspect_header(count)))
        for question in questions(count):
            name = f"samples/{question['number']}_epoch_1.json"
            file.writestr(name, json.dumps(inspect_sample(question)))
    return [str(path)]


def write_json_log(folder: Path, count: int) -> list[str]:
    """Write a log in one JSON document."""
    path = folder / "log.json"
    with path.open("w", encoding="utf-8") as file:
        file.write(json.dumps(inspect_header(count))[:-1] + ', "samples": [')
        for question in questions(count):
            if question["number"]:
                file.write(",\n")
            file.write(json.dumps(inspect_sample(question)))
        file.write("]}")
    return [str(path)]


def write_lm_eval(folder: Path, count: int) -> list[str]:
    """Write a folder of lm-evaluation-harness with two filters."""
    filters = ("strict-match", "flexible-extract")
    right = sum(1 for number in range(count) if number % 3)
    document = {
        "results": {
            "made_up": {f"exact_match,{name}": right / count for name in filters},
        },
        "configs": {"made_up": {"output_type": "generate_until"}},
        "n-samples": {"made_up": {"original": count, "effective": count}},
        "model_name": "org/model",
        "lm_eval_version": "0.4.13",
    }
    (folder / "results_1.json").write_text(json.dumps(document), encoding="utf-8")
    with (folder / "samples_made_up_1.jsonl").open("w", encoding="utf-8") as file:
        for name in filters:
            for question in questions(count):
                line = {
                    "doc_id": question["number"],
                    "doc": {"question": question["question"], "choices": question["options"]},
                    "target": question["right"],
                    "arguments": {"gen_args_0": {"arg_0": prompt_of(question), "arg_1": {}}},
                    "resps": [[question["answer"]]],
                    "filtered_resps": [question["answer"]],
                    "filter": name,
                    "metrics": ["exact_match"],
                    "exact_match": question["value"],
                }
                file.write(json.dumps(line) + "\n")
    return [str(folder)]


def row_of(question: dict[str, Any]) -> list[str]:
    """Return the cells of a table."""
    options = " | ".join(question["options"])
    number = str(question["number"])
    return [number, question["question"], options, question["right"], question["answer"][-1]]


HEADER = ["nr", "question", "options", "gold", "answer"]


def write_csv(folder: Path, count: int) -> list[str]:
    """Write a table of comma-separated values."""
    path = folder / "table.csv"
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(HEADER)
        writer.writerows(map(row_of, questions(count)))
    return [str(path), *COLUMNS, *ANSWERS]


def write_jsonl(folder: Path, count: int) -> list[str]:
    """Write a table of JSON lines."""
    path = folder / "table.jsonl"
    with path.open("w", encoding="utf-8") as file:
        for question in questions(count):
            row = dict(zip(HEADER, row_of(question), strict=True))
            file.write(json.dumps(row) + "\n")
    return [str(path), *COLUMNS, *ANSWERS]


def write_xlsx(folder: Path, count: int) -> list[str]:
    """Write an Excel workbook."""
    from openpyxl import Workbook

    path = folder / "table.xlsx"
    book = Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(HEADER)
    for question in questions(count):
        sheet.append(row_of(question))
    book.save(path)
    return [str(path), *COLUMNS, *ANSWERS]


def write_eee(folder: Path, count: int) -> list[str]:
    """Write an aggregate record of Every Eval Ever with its samples."""
    right = sum(1 for number in range(count) if number % 3)
    document = {
        "evaluation_id": "made-up",
        "eval_library": {"name": "made_up", "version": "1"},
        "model_info": {"id": "org/model"},
        "evaluation_results": [
            {
                "evaluation_name": "made_up",
                "metric_config": {"metric_name": "exact_match", "lower_is_better": False},
                "score_details": {"score": right / count},
            }
        ],
        "detailed_evaluation_results": {"file_path": "samples.jsonl", "format": "jsonl"},
    }
    (folder / "record.json").write_text(json.dumps(document), encoding="utf-8")
    with (folder / "samples.jsonl").open("w", encoding="utf-8") as file:
        for question in questions(count):
            right_index = "ABCD".index(question["right"])
            line = {
                "sample_id": str(question["number"]),
                "evaluation_name": "made_up",
                "input": {
                    "raw": prompt_of(question),
                    "choices": question["options"],
                    "reference": [question["options"][right_index]],
                },
                "output": {"raw": [question["answer"]]},
                "evaluation": {"score": question["value"]},
            }
            file.write(json.dumps(line) + "\n")
    return [str(folder)]


FORMATS: dict[str, Callable[[Path, int], list[str]]] = {
    "inspect .eval": write_eval,
    "inspect .json": write_json_log,
    "lm-eval": write_lm_eval,
    "eee": write_eee,
    "CSV": write_csv,
    "JSON lines": write_jsonl,
    "XLSX": write_xlsx,
}
_MEASURED = """
import resource, subprocess, sys
code = subprocess.call(sys.argv[1:], stdout=subprocess.DEVNULL)
print(code, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
"""


def imported(arguments: list[str], output_dir: Path) -> tuple[int, float]:
    """Import a source, and return the exit code and the greatest memory of the process, in MB."""
    command = [str(BIN / "eval-factory"), "import", *arguments, "-o", str(output_dir)]
    measured = subprocess.run(
        [sys.executable, "-c", _MEASURED, *command], check=True, capture_output=True, text=True
    )
    code, max_rss = measured.stdout.split()
    return int(code), int(max_rss) * resource_unit() / 1e6


def resource_unit() -> int:
    """Return the unit of `ru_maxrss` in bytes: 1 on macOS, 1024 on other systems."""
    return 1 if sys.platform == "darwin" else 1024


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--limit", type=float, default=1000, help="MB")
    parser.add_argument("--formats", nargs="+", choices=FORMATS, default=list(FORMATS))
    options = parser.parse_args()
    is_within = True
    print("| source | size | at most | seconds |\n|---|---|---|---|")
    for name in options.formats:
        with tempfile.TemporaryDirectory() as folder:
            source = Path(folder) / "source"
            source.mkdir()
            arguments = FORMATS[name](source, options.samples)
            size = sum(file.stat().st_size for file in source.iterdir()) / 1e6
            started = time.monotonic()
            code, megabytes = imported(arguments, Path(folder) / "out")
            seconds = time.monotonic() - started
        print(f"| {name} | {size:.0f} MB | {megabytes:.0f} MB | {seconds:.0f} |", flush=True)
        if code not in (0, 1) or megabytes > options.limit:
            print(f"{name}: exit code {code}, {megabytes:.0f} MB", file=sys.stderr)
            is_within = False
    return 0 if is_within else 1


if __name__ == "__main__":
    sys.exit(main())
