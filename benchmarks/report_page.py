#!/usr/bin/env python3
"""The page of results with many instances: its size, and how fast Debian's chromium shows, filters and opens them.

`PYTHONPATH=tests python benchmarks/report_page.py`: the tests' browser is used, so it needs their packages.
"""

from __future__ import annotations

from dataclasses import dataclass

FILTER_S = """
    const done = arguments[arguments.length - 1], box = document.querySelector('input[type=search]');
    const start = performance.now();
    box.value = arguments[0];
    box.dispatchEvent(new Event('input', {bubbles: true}));
    const settled = () => requestAnimationFrame(() => setTimeout(() => done((performance.now() - start) / 1000)));
    setTimeout(settled, DEBOUNCE_MS);
"""


@dataclass(frozen=True)
class Measured:
    """One page; seconds are medians."""

    count: int
    write_s: float
    megabytes: float
    paint_s: float
    table_s: float
    filter_s: float
    open_s: float
