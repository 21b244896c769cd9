#!/usr/bin/env python3
"""Writes what the documentation says of tasks and errata from their YAML files; a test checks that it is up to date."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from pathlib import Path

from eval_factory.tasks.errata import Erratum, load_errata
from eval_factory.tasks.framework import Framework, Task, load_framework
from eval_factory.tasks.own_data import described_layout

ROOT = Path(__file__).resolve().parents[1]
README = ROOT / "README.md"
BLOCK = re.compile(r"(<!-- tasks -->\n).*(<!-- /tasks -->)", re.DOTALL)
GENERATED = "<!-- Written by scripts/update_readme.py; changes are lost. -->\n"
KINDS: Mapping[str, Callable[[Task], bool]] = {
    "public, scored by rule": lambda task: task.about.access == "public" and not task.helm.judges,
    "public, scored by a jury": lambda task: task.about.access == "public" and bool(task.helm.judges),
    "your own copy (gated)": lambda task: task.about.access == "gated",
    "your own data (private)": lambda task: task.about.access == "private",
}


def task_table(framework: Framework) -> str:
    """Markdown: the names by kind."""
    rows = ["| kind | tasks |", "|---|---|"]
    for kind, belongs in KINDS.items():
        names = ", ".join(f"`{task.name}`" for task in framework.evaluations if belongs(task))
        rows.append(f"| {kind} | {names} |")
    return "\n".join(rows) + "\n"


def with_table(readme: str) -> str:
    """The README with its table replaced."""
    return BLOCK.sub(lambda match: match[1] + task_table(load_framework()) + match[2], readme)


def tasks_page() -> str:
    """docs/tasks.md."""
    framework = load_framework()
    lines = [
        "# Tasks", GENERATED,
        "`eval-factory ls TASK` says the same of one task. Instances are those of the test split, where somebody",
        "has counted them. *Tried* says on what data the task was run by us: on the real ones, or on small",
        "invented ones in the same form, which shows that it runs and that gold answers get full marks, and",
        "nothing about a model.",
        "*Public since*: the month by which the paper or the data were public; answers of public tasks are public.", "",
        "| task | what it measures | main metric | instances | access | public since | tried |",
        "|---|---|---|---|---|---|---|",
    ]  # fmt: skip
    for task in framework.evaluations:
        count = "" if task.about.instances is None else f"{task.about.instances:,}"
        lines.append(
            f"| [`{task.name}`](#{task.name}) | {task.description} | `{task.helm.main_metric}` | {count} |"
            f" {task.about.access} | {task.about.published or 'unknown'} | {task.about.tried or 'no'} |"
        )
    for task in framework.evaluations:
        lines += ["", *_section(task)]
    return "\n".join(lines) + "\n"


def _section(task: Task) -> list[str]:
    about = task.about
    data = [f"Data: {about.source}"]
    data += [f"revision `{about.revision[:12]}`"] if about.revision else []
    data += [f"licence: {about.licence}"] if about.licence else []
    lines = [f"## {task.name}", "", "; ".join(data) + "."]
    if task.helm.judges:
        lines.append("A [jury](judges.md) scores from 1 to 5.")
    for name, rule in task.helm.parameters.items():
        if rule.fixed is not None:
            continue
        needed = "needed" if rule.required else "optional"
        needed += f"; `{rule.other_name}` is another name of it" if rule.other_name else ""
        default = task.default_of(name)
        if default is not None:
            needed += f", default {default:,}" if isinstance(default, int) else f", default `{default}`"
        allowed = f": one of {', '.join(f'`{value}`' for value in rule.allowed)}" if rule.allowed else ""
        lines.append(f"- `{name}` ({needed}){allowed}{f': {rule.about}' if rule.about else ''}")
        values: Mapping[str, str | None] = {}
        lines += [f"  - `{line}`" for line in described_layout(rule.layout, values)]
    lines += [f"- {note}" for note in about.notes]
    errata = load_errata().of(task.helm.run_spec, task.helm.fixed)
    if errata:
        lines.append("- known defects: " + ", ".join(f"[`{entry.id}`](errata.md#{entry.id})" for entry in errata))
    return lines


def errata_page() -> str:
    """docs/errata.md."""
    known = load_errata()
    lines = [
        "# Errata", GENERATED,
        f"Known defects of HELM 0.5.16's medical benchmarks, version {known.version} of the list. A corrected score",
        "stands beside HELM's own, named `<metric>.corrected`, and never in its place; `validity.notes` says so, and",
        "`provenance.errata_version` names the version. Fed the gold answers, each corrected score is full",
        "(`tests/integration/test_gold_answers.py`, `tests/integration/test_invented_data.py`; the rules alone:",
        "`tests/unit/tasks/test_errata.py`).", "",
    ]  # fmt: skip
    for entry in known.errata:
        lines += [*_erratum(entry), ""]
    return "\n".join(lines).rstrip() + "\n"


def _erratum(entry: Erratum) -> list[str]:
    only = ", ".join(f"{name}={value}" for name, value in entry.arguments.items())
    where = ", ".join(f"`{name}`" for name in entry.run_specs) or "every benchmark"
    where += f" ({only})" if only else ""
    remedy = (
        f"Corrected in `{entry.label}`: {entry.corrected}." if entry.corrected
        else f"Patched inside helm-run: {entry.patched}." if entry.patched
        else f"Cannot occur here: {entry.avoided}."
    )  # fmt: skip
    lines = [f"## `{entry.id}`", "", f"In {where}. {entry.defect}.", "", remedy]
    return [*lines, "", f"Upstream: {entry.upstream}."] if entry.upstream else lines


PAGES = {"docs/tasks.md": tasks_page, "docs/errata.md": errata_page}


if __name__ == "__main__":
    README.write_text(with_table(README.read_text("utf-8")), encoding="utf-8")
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
