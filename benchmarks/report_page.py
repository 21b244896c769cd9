#!/usr/bin/env python3
"""Measures the pages of results with many instances: their size, and their speed in a browser.

    PYTHONPATH=tests/support:tests python benchmarks/report_page.py

It measures how fast Debian's chromium paints a page, filters and searches its table, and opens an
instance. It uses the browser of the tests, and needs their packages. With `--criteria 11 --judges
1`, the instances are conversations of a rubric, as those of HealthBench.
"""

from __future__ import annotations

import argparse
import random
import statistics
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import accumulate, product
from pathlib import Path
from typing import Any

from chromium import Chromium
from eval_factory.core.results import InstanceRecord
from stored_results import result, written

READY = "document.documentElement.dataset.ready === arguments[0]"
# The next three scripts return seconds: for typing a text into the search box, for pressing a
# button, and for opening the first instance.
TYPE = """
    const done = arguments[arguments.length - 1];
    const box = document.getElementById('search'), status = document.getElementById('status');
    const start = performance.now(), before = status.textContent;
    box.value = arguments[0];
    box.dispatchEvent(new Event('input', {bubbles: true}));
    const look = () => status.textContent === before ? requestAnimationFrame(look)
        : requestAnimationFrame(() => done((performance.now() - start) / 1000));
    look();
"""
"""The time until the remaining rows are painted. It includes the pause after the last letter."""
PRESS = """
    const done = arguments[arguments.length - 1], start = performance.now();
    document.querySelector(arguments[0]).click();
    requestAnimationFrame(() => setTimeout(() => done((performance.now() - start) / 1000)));
"""
OPEN = """
    const done = arguments[arguments.length - 1], start = performance.now();
    document.querySelector('#rows tr').click();
    const look = () => document.getElementById('detail-title')
        ? done((performance.now() - start) / 1000) : requestAnimationFrame(look);
    look();
"""


# Invented instances in the form of PubMedQA, as long as real ones, and as hard to compress.

INSTRUCTION = "Answer A for yes, B for no or C for maybe.\n\nContext: "
CONTEXT_WORDS = 270
"""The number of words in an instance. Its lines then have 2.8 kB, or 0.7 kB with gzip. The lines of
PubMedQA have 2.4 kB, or 0.55 kB.
"""
VOCABULARY = 9000  # the number of different words
SYLLABLES = list(map("".join, product("bcdfglmnprstv", "aeiou", ("", "n", "r", "s", "l"))))
ANSWERS = ("A", "B", "C")
FAILED_EVERY = 97  # One instance in this number of instances has failed.


def instances(count: int, seed: int = 7) -> Iterator[InstanceRecord]:
    """Yield instances, which are the same in each call."""
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    words = ["".join(chance.choices(SYLLABLES, k=chance.randint(1, 4))) for _ in range(VOCABULARY)]
    weights = list(accumulate(1 / (rank + 3) for rank in range(VOCABULARY)))
    for number in range(count):
        text = " ".join(chance.choices(words, cum_weights=weights, k=CONTEXT_WORDS))
        yield _instance(number, text, chance)


def _instance(number: int, text: str, chance: random.Random) -> InstanceRecord:
    right = chance.choice(ANSWERS)
    given = chance.choice(ANSWERS)
    failed = number % FAILED_EVERY == FAILED_EVERY - 1
    return InstanceRecord(
        id=f"id{number}",
        split="test",
        sub_split=None,
        trial=0,
        perturbation=None,
        prompt=f"{INSTRUCTION}{text}\n\nQuestion: {text[:90]}?\n A. yes\n B. no\n C. maybe\n"
        "Answer:",
        references=tuple(
            {"text": word, "tags": ["correct"] if letter == right else []}
            for letter, word in zip(ANSWERS, ("yes", "no", "maybe"), strict=True)
        ),
        categories={"specialty": f"specialty {number % 12}"},
        completion=None if failed else given,
        metrics={} if failed else {"exact_match": float(given == right)},
        finish_reason="stop",
        prompt_tokens=500 + number % 300,
        completion_tokens=1,
        latency_s=round(chance.lognormvariate(0, 0.6), 3),
        cached=False,
        error="HTTP 503: the model is overloaded" if failed else None,
        judges={},
        unjudged=False,
        injection=(),
    )


# Invented conversations in the form of HealthBench, with criteria and judges' decisions. The texts
# are as long as published ones.

ANSWER_WORDS = 300  # 2 kB
CRITERION_WORDS = 20  # 140 letters
EXPLANATION_WORDS = 45  # 300 letters
POOL = 200  # the number of prompts from which words are drawn
AXES = (
    "accuracy",
    "completeness",
    "context_awareness",
    "communication_quality",
    "instruction_following",
)


def conversations(
    count: int, criteria: int, judges: int, seed: int = 11
) -> Iterator[InstanceRecord]:
    """Yield conversations, which are the same in each call.

    Args:
        count: the number of conversations.
        criteria: the number of criteria of each conversation.
        judges: the number of judges that decide about each criterion.
        seed: the seed of the random numbers.
    """
    chance = random.Random(seed)  # noqa: S311 - nothing secret
    words: list[str] = []
    for record in instances(POOL):
        words += record.prompt.split()
    for record in instances(count):
        turns = ({"role": "user", "content": record.prompt},)
        judged = tuple(_criterion(words, judges, chance) for _ in range(criteria))
        yield replace(
            record,
            turns=turns,
            references=(),
            completion=_text(words, ANSWER_WORDS, chance),
            criteria=judged,
            metrics={"exact_match": round(chance.uniform(-0.2, 1.0), 6)},
            error=None,
        )


def _criterion(words: list[str], judges: int, chance: random.Random) -> dict[str, Any]:
    met = chance.random() < 0.5
    decisions = {
        f"judge{number}": {
            "criteria_met": met,
            "explanation": _text(words, EXPLANATION_WORDS, chance),
        }
        for number in range(judges)
    }
    return {
        "criterion": _text(words, CRITERION_WORDS, chance),
        "points": chance.choice((-8, -5, 3, 5, 8, 10)),
        "tags": ["level:example", f"axis:{chance.choice(AXES)}"],
        "verdict": "met" if met else "not met",
        "judges": decisions,
    }


def _text(words: list[str], count: int, chance: random.Random) -> str:
    return " ".join(chance.choices(words, k=count))


@dataclass(frozen=True)
class Measured:
    """The figures of a page."""

    count: int  # the number of instances
    write_s: float  # the seconds for writing the output folder
    megabytes: float  # the size of the page
    seconds: dict[str, float]  # the median of each step in the browser


def measured(browser: Chromium, records: list[InstanceRecord], repeat: int) -> Measured:
    """Write the page of a result, and measure it `repeat` times."""
    with tempfile.TemporaryDirectory() as name:
        stored_result = result(records)
        start = time.monotonic()
        page = written(Path(name) / "run", stored_result) / "report.html"
        write_s = time.monotonic() - start
        rounds = [_once(browser, page) for _ in range(repeat)]
        medians = {}
        for step in rounds[0]:
            medians[step] = statistics.median(seconds[step] for seconds in rounds)
        return Measured(len(records), write_s, page.stat().st_size / 1e6, medians)


def _once(browser: Chromium, page: Path) -> dict[str, float]:
    """Return the seconds of each step. The first three are counted from the opening of the page."""
    browser.open(page)
    browser.wait("performance.getEntriesByName('first-contentful-paint').length")
    paint = browser.run(
        "return performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000"
    )
    browser.wait("document.documentElement.dataset.ready")
    table = browser.run("return performance.now() / 1000")
    browser.wait(READY, "all")
    texts = browser.run("return performance.now() / 1000")

    def timed(script: str, *arguments: str) -> float:
        return float(browser.driver.execute_async_script(script, *arguments))

    steps = {
        "first paint": paint,
        "table": table,
        "all texts read": texts,
        "filter": timed(PRESS, "[data-flag=wrong]"),
    }
    timed(PRESS, "[data-flag=wrong]")  # Switch the filter off, so that all instances are searched.
    return {**steps, "search": timed(TYPE, "id7"), "open": timed(OPEN)}


def table_of(rows: list[Measured]) -> str:
    steps = list(rows[0].seconds)
    lines = [
        f"| instances | written in | size | {' | '.join(steps)} |",
        "|---" * (3 + len(steps)) + "|",
    ]
    for row in rows:
        times = " | ".join(f"{row.seconds[step]:.2f} s" for step in steps)
        lines.append(f"| {row.count:,} | {row.write_s:.1f} s | {row.megabytes:.1f} MB | {times} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--criteria", type=int, default=0, help="of each instance, as of a rubric")
    parser.add_argument(
        "--judges", type=int, default=1, help="that say something of each criterion"
    )
    arguments = parser.parse_args()

    def records(count: int) -> list[InstanceRecord]:
        if not arguments.criteria:
            return list(instances(count))
        return list(conversations(count, arguments.criteria, arguments.judges))

    with tempfile.TemporaryDirectory() as profile:
        browser = Chromium(Path(profile))
        try:
            print(
                table_of(
                    [
                        measured(browser, records(count), arguments.repeat)
                        for count in arguments.instances
                    ]
                )
            )
        finally:
            browser.close()


if __name__ == "__main__":
    main()
