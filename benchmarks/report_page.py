#!/usr/bin/env python3
"""The page of results with many instances: its size, and how fast Debian's chromium paints, filters and opens.

`PYTHONPATH=tests python benchmarks/report_page.py`: the tests' browser is used, so it needs their packages.
`--criteria 11 --judges 1` makes them conversations of a rubric, as HealthBench's are.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from made_up_answers import instances
from made_up_rubrics import conversations

from chromium import Chromium
from eval_factory.core.results import InstanceRecord
from stored_results import result, written

READY = "document.documentElement.dataset.ready === arguments[0]"
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
"""Until what is left is painted, with the pause after the last letter."""
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


@dataclass(frozen=True)
class Measured:
    """One page; seconds are medians."""

    count: int
    write_s: float
    megabytes: float
    seconds: dict[str, float]


def measured(browser: Chromium, records: list[InstanceRecord], repeat: int) -> Measured:
    with tempfile.TemporaryDirectory() as name:
        made = result(records)
        start = time.monotonic()
        page = written(Path(name) / "run", made) / "report.html"
        write_s = time.monotonic() - start
        found = [_once(browser, page) for _ in range(repeat)]
        medians = {step: statistics.median(one[step] for one in found) for step in found[0]}
        return Measured(len(records), write_s, page.stat().st_size / 1e6, medians)


def _once(browser: Chromium, page: Path) -> dict[str, float]:
    browser.open(page)
    browser.wait("performance.getEntriesByName('first-contentful-paint').length")
    paint = browser.run("return performance.getEntriesByName('first-contentful-paint')[0].startTime / 1000")
    browser.wait("document.documentElement.dataset.ready")
    table = browser.run("return performance.now() / 1000")
    browser.wait(READY, "all")
    texts = browser.run("return performance.now() / 1000")

    def timed(script: str, *arguments: str) -> float:
        return float(browser.driver.execute_async_script(script, *arguments))

    steps = {"first paint": paint, "table": table, "all texts read": texts, "filter": timed(PRESS, "[data-flag=wrong]")}
    timed(PRESS, "[data-flag=wrong]")  # off again: the search goes through all instances
    return {**steps, "search": timed(TYPE, "id7"), "open": timed(OPEN)}


def table_of(rows: list[Measured]) -> str:
    steps = list(rows[0].seconds)
    lines = [f"| instances | written in | size | {' | '.join(steps)} |", "|---" * (3 + len(steps)) + "|"]
    for row in rows:
        times = " | ".join(f"{row.seconds[step]:.2f} s" for step in steps)
        lines.append(f"| {row.count:,} | {row.write_s:.1f} s | {row.megabytes:.1f} MB | {times} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--instances", type=int, nargs="+", default=[100, 1000, 10_000])
    parser.add_argument("--repeat", type=int, default=5)
    parser.add_argument("--criteria", type=int, default=0, help="of each instance, as of a rubric")
    parser.add_argument("--judges", type=int, default=1, help="that say something of each criterion")
    arguments = parser.parse_args()

    def records(count: int) -> list[InstanceRecord]:
        if not arguments.criteria:
            return list(instances(count))
        return list(conversations(count, arguments.criteria, arguments.judges))

    with tempfile.TemporaryDirectory() as profile:
        browser = Chromium(Path(profile))
        try:
            print(table_of([measured(browser, records(count), arguments.repeat) for count in arguments.instances]))
        finally:
            browser.close()


if __name__ == "__main__":
    main()
