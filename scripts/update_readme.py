#!/usr/bin/env python3
"""Writes the README's table of tasks from framework.yml; a test checks that it is up to date."""

from __future__ import annotations

import re
from pathlib import Path

from eval_factory.config.framework import Framework, load_framework

README = Path(__file__).resolve().parents[1] / "README.md"
BLOCK = re.compile(r"(<!-- tasks -->\n).*(<!-- /tasks -->)", re.DOTALL)


def task_table(framework: Framework) -> str:
    """Markdown, a row a task."""
    rows = ["| task | what it measures | main metric | instances | access |", "|---|---|---|---|---|"]
    for task in framework.evaluations:
        count = "" if task.about.instances is None else f"{task.about.instances:,}"
        rows.append(
            f"| `{task.name}` | {task.description} | `{task.helm.main_metric}` | {count} | {task.about.access} |"
        )
    return "\n".join(rows) + "\n"


def with_table(readme: str) -> str:
    """The README with its table replaced."""
    return BLOCK.sub(lambda match: match[1] + task_table(load_framework()) + match[2], readme)


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), encoding="utf-8")
