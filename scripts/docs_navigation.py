"""Where each page of docs/ has its place: the site's navigation, and docs/README.md, which is made of it.

A page that is not here fails a test. A place may be kept for a page that is not written yet: it is left out meanwhile.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
MAP = "README.md"
"""Made by scripts/make_reference.py; the site's first page."""
NAVIGATION: dict[str, dict[str, str]] = {
    "Tutorial": {
        "tutorial.md": "from nothing to two models compared, step by step",
    },
    "How to": {
        "coming-from.md": "what you typed in EvalFactory, helm-run, lm_eval, inspect_ai or NeMo Evaluator",
        "install.md": "pip, pipx, uv, with and without torch",
        "suites.md": "many benchmarks, many models: one command, one table",
        "scale.md": "large evaluations: memory, time, what breaks first",
        "slurm.md": "one evaluation, or the cells of a suite, as jobs of Slurm",
        "serve.md": "models that the suite serves itself: on a machine with GPUs, or in a job of Slurm",
        "kubernetes.md": "an example: a suite as an Indexed Job",
        "custom-benchmarks.md": "a benchmark of your own: a YAML file, a prompt, a table",
        "rubrics.md": "answers judged by physicians' criteria: HealthBench, or a rubric of your own",
        "question-sets.md": "MedXpertQA, CareQA, AfriMed-QA, MetaMedQA, LongHealth: their data, and how they are read",
        "any-helm-benchmark.md": "HELM's other 300 run specs",
        "clinicians.md": "a score corrected by people who rate a sample of the answers",
        "judges.md": "juries, keys, tokens (OAuth), certificates and proxies, NVIDIA Cloud Functions",
        "cost.md": "what a run costs, limits at which it stops, estimates before it",
        "offline.md": "data bundles, and runs without a network",
        "compare.md": "is one model better than another",
        "gate.md": "may a model go live: a policy, held against results",
        "ci.md": "evaluations in continuous integration",
        "report.md": "pages, tables and texts for papers, of results that are there",
        "view.md": "results in HELM's web pages",
        "verify.md": "was a result altered; how to sign it, and to do it again",
        "leaderboards.md": "HELM's public leaderboards, for your model",
        "exports.md": "results for other programs",
        "python.md": "runs, results and comparisons in programs and notebooks; data frames",
    },
    "Reference": {
        "tasks.md": "every task, its data, and how it was tried",
        "reference/config.md": "every key of a run config: type, default, flag, effect on the run's identity",
        "reference/commands.md": "every command with its options",
        "reference/result.md": "every field of a result",
        "reference/environment.md": "every environment variable",
        "schemas/README.md": "the same for editors and programs, as JSON Schemas",
    },
    "Explanation": {
        "suite-results.md": "the table of a suite: fields, win rates, ranks, comparisons",
        "results.md": "how a result is read: scores, failures, notes, usage",
        "statistics.md": "how each interval is made, and how often it holds",
        "validity.md": "what right, empty and random answers score, beside bare HELM",
        "errata.md": "known defects of benchmarks, and what is done about them",
        "helm.md": "what HELM does that a reader of scores should know",
        "glossary.md": "the terms",
        "design.md": "how the program is built, where to look for what",
        "development.md": "how to work on the project: checks, locks, layers",
    },
}
INTRODUCTION = """\
What eval-factory is, and the shortest way to a first result: `README.md` of the project. What is promised about keys,
logs, offline runs and executed code: `SECURITY.md`. Everything else is here.
"""


def places() -> dict[str, dict[str, str]]:
    """The navigation without the places of pages that are not there."""
    return {
        section: {name: about for name, about in pages.items() if (DOCS / name).is_file()}
        for section, pages in NAVIGATION.items()
    }


def title_of(name: str) -> str:
    """A page's own heading.

    Raises:
        ValueError: it does not begin with one.
    """
    text = (DOCS / name).read_text("utf-8")
    found = re.match(r"# (.+)\n", text)
    if not found:
        raise ValueError(f"docs/{name} does not begin with a heading")
    return found[1]


def map_page(generated: str) -> str:
    """docs/README.md: every page with what it is about."""
    lines = ["# eval-factory: documentation", "", generated, "", INTRODUCTION]
    for section, pages in places().items():
        lines += [f"## {section}", "", "| page | about |", "|---|---|"]
        lines += [f"| [{title_of(name)}]({name}) | {about} |" for name, about in pages.items()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
