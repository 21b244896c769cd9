#!/usr/bin/env python3
"""Writes docs/tasks.md and docs/errata.md from the YAML files. A test checks that the pages are up
to date.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from eval_factory.helm_plugin.patches.patch_registry import PATCHES
from eval_factory.tasks.errata import Erratum, load_errata
from eval_factory.tasks.framework import Task, load_framework
from eval_factory.tasks.own_data import described_layout

ROOT = Path(__file__).resolve().parents[1]
GENERATED = "<!-- Written by scripts/update_readme.py; changes are lost. -->\n"
MANY = 3
"""An erratum with more run specs than this refers to an earlier erratum with the same run specs."""
KINDS: Mapping[str, Callable[[Task], bool]] = {
    "public, scored by rule": lambda task: task.about.access == "public" and not task.helm.judges,
    "public, scored by a jury": lambda task: (
        task.about.access == "public" and bool(task.helm.judges)
    ),
    "your own copy (gated)": lambda task: task.about.access == "gated",
    "your own data (private)": lambda task: task.about.access == "private",
}


def tasks_page() -> str:
    """Return the text of docs/tasks.md."""
    framework = load_framework()
    lines = [
        "# Tasks",
        GENERATED,
        (
            "`eval-factory ls TASK` prints everything known about a task: its parameters, "
            "the revision and licence of its"
        ),
        (
            "data, notes, and known defects. *Instances* is the size of the test split; "
            "the cell is empty if it was not counted."
        ),
        (
            "*Public since* is the month by which the paper or the data were public. The answers "
            "of public tasks are public, too."
        ),
        (
            "We ran tasks with a star on their real data. We ran the other tasks on small "
            "invented data, on which gold answers"
        ),
        "get full marks.",
    ]
    for kind, belongs in KINDS.items():
        lines += ["", f"## {kind[0].upper()}{kind[1:]}", "", *HEAD]
        lines += [_task_row(task, kind) for task in framework.evaluations if belongs(task)]
    lines += [
        "",
        "## Files of your own",
        "",
        "The lists show which file `extra.data_path` must name, or which files its folder must",
        "contain. The columns of a file follow after a colon. For public tasks, `extra.data_path`",
        "names the published file: see [question sets](question-sets.md) and",
        "[HealthBench](rubrics.md#healthbench).",
    ]
    layouts: dict[tuple[str, ...], list[str]] = {}
    for task in framework.evaluations:
        if task.about.access == "public":
            continue
        layout: list[str] = []
        for rule in task.helm.parameters.values():
            layout += described_layout(rule.layout, {})
        layouts.setdefault(tuple(layout), []).append(f"`{task.name}`")
    for rules, names in layouts.items():
        if rules:
            lines += ["", f"{', '.join(names)}:", "", *(f"- `{_in_short(rule)}`" for rule in rules)]
    return "\n".join(lines) + "\n"


def _in_short(rule: str) -> str:
    """Return the description of a file from an error message, shortened for the page."""
    short = rule.removeprefix("data_path itself is ").replace(" with the columns ", ": ")
    return short.replace(", and a file", "; and a file")


HEAD = (
    "| task | what it measures | main metric | instances | public since |",
    "|---|---|---|---|---|",
)
TRIED = {"real data": "\\*", "invented data": ""}
"""The kind of data on which a task was run -> the mark after the task's name."""


def _task_row(task: Task, kind: str) -> str:
    count = "" if task.about.instances is None else f"{task.about.instances:,}"
    name = f"`{task.name}`{TRIED[str(task.about.tried)]}"
    measures = task.description.removesuffix(f", {kind.partition(', ')[2]}")  # the heading says it
    return (
        f"| {name} | {measures} | `{task.helm.main_metric}` | {count} "
        f"| {task.about.published or ''} |"
    )


def errata_page() -> str:
    """Return the text of docs/errata.md."""
    errata = load_errata()
    lines = [
        "# Errata",
        GENERATED,
        (
            "Known defects of the medical benchmarks of HELM 0.5.16 and medhelm 0.8.0, "
            f"version {errata.version} of the"
        ),
        (
            "list (`provenance.errata_version`). Only medhelm has the defects `medhelm-...`. "
            "A result shows a corrected score"
        ),
        (
            "next to HELM's own score, with a note in `validity.notes`. "
            "Gold answers get the full corrected"
        ),
        "score (`tests/integration/test_gold_answers.py`,",
        "`tests/integration/test_invented_data.py`).",
        "",
    ]
    for entry in errata.errata:
        lines += [*_erratum(entry), ""]
    lines += [*_patches(), ""]
    return "\n".join(lines).rstrip() + "\n"


def _patches() -> list[str]:
    lines = [
        "## Patches of HELM",
        "",
        "A run applies the patches that it needs, in memory, inside helm-run. Its result names",
        "these patches (`provenance.patches`). A patch with a star does not change the output;",
        "`EVAL_FACTORY_WITHOUT=NAME` leaves this patch out.",
        "",
        "| patch | what it does | erratum |",
        "|---|---|---|",
    ]
    for patch in PATCHES:
        star = " *" if patch.only_speed else ""
        erratum = "" if patch.erratum is None else f"[{patch.erratum}](#{patch.erratum})"
        lines.append(f"| `{patch.name}`{star} | {patch.about} | {erratum} |")
    return lines


def _erratum(entry: Erratum) -> list[str]:
    """Return the section about an erratum.

    If an earlier erratum has the same run specs or the same correction, the section refers to it.
    """
    arguments = ", ".join(f"{name}={value}" for name, value in entry.arguments.items())
    benchmarks = ", ".join(f"`{name}`" for name in entry.run_specs) or "every benchmark"
    errata = load_errata().errata
    first = next(erratum for erratum in errata if erratum.run_specs == entry.run_specs)
    if len(entry.run_specs) > MANY and first.id != entry.id:
        benchmarks = f"the same tasks as [{first.id}](#{first.id})"
    if arguments:
        benchmarks += f" ({arguments})"
    same = next(erratum for erratum in errata if erratum.corrected == entry.corrected)
    corrected = entry.corrected if same.id == entry.id else f"as in [{same.id}](#{same.id})"
    if entry.corrected:
        remedy = f"Corrected in `{entry.label}`: {corrected}."
    elif entry.patched:
        remedy = f"Patched inside helm-run: {entry.patched}."
    else:
        remedy = f"Cannot occur here: {entry.avoided}."
    lines = [f"## `{entry.id}`", "", f"In {benchmarks}. {entry.defect}.", "", remedy]
    return [*lines, "", f"Upstream: {entry.upstream}."] if entry.upstream else lines


PAGES = {"docs/tasks.md": tasks_page, "docs/errata.md": errata_page}


if __name__ == "__main__":
    for name, page in PAGES.items():
        (ROOT / name).write_text(page(), encoding="utf-8")
