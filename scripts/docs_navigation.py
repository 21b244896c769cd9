"""Lists the pages of docs/ in the order of the site's navigation and of docs/README.md.

A test fails if a page is not listed here. A page that is listed, but is not written yet, is left
out of the navigation.
"""

from __future__ import annotations

import re
from pathlib import Path

DOCS = Path(__file__).resolve().parents[1] / "docs"
MAP = "README.md"  # the site's first page, which scripts/make_reference.py writes
NAVIGATION: dict[str, dict[str, str]] = {
    "Tutorial": {
        "tutorial.md": "half an hour, step by step",
        "next-steps.md": "a command for each thing that people do then",
    },
    "How to begin": {
        "install.md": "without torch, without a network",
        "coming-from.md": "EvalFactory, helm-run, lm_eval, inspect_ai, NeMo Evaluator",
        "python.md": "programs, notebooks, data frames",
    },
    "How to run": {
        "suites.md": "one command, one table",
        "cost.md": "what a run costs, and where it stops",
        "judges.md": "also OAuth, proxies, NVIDIA Cloud Functions",
        "offline.md": "data bundles",
        "scale.md": "several servers, memory, time",
        "slurm.md": "evaluations and suites as jobs",
        "serve.md": "models that the suite serves itself",
        "kubernetes.md": "an example",
        "ci.md": "GitHub and GitLab",
    },
    "How to choose or make a benchmark": {
        "any-helm-benchmark.md": "HELM's other 300 run specs",
        "question-sets.md": "MedXpertQA, CareQA, AfriMed-QA, MetaMedQA, LongHealth",
        "leaderboards.md": "MedHELM and others",
        "custom-benchmarks.md": "a YAML file, a prompt, a table",
        "plug-ins.md": "for others to install",
        "rubrics.md": "HealthBench, or a rubric of your own",
    },
    "How to use results": {
        "compare.md": "intervals, tests, ranks",
        "import.md": "inspect, lm-evaluation-harness, bare HELM, Every Eval Ever, tables",
        "does-it-hold.md": "repeats, other words, doubts, confidence",
        "monitor.md": "a panel, asked every week",
        "gate.md": "a policy, checked against results",
        "trust-a-judge.md": "compared with physicians' labels",
        "clinicians.md": "a score corrected by people's ratings",
        "report.md": "plots, tables, texts for papers",
        "view.md": "tables, prompts and answers in a browser",
        "verify.md": "was it altered; how to sign it",
        "exports.md": "Every Eval Ever, Hugging Face Hub, MLflow",
    },
    "Reference": {
        "tasks.md": "every task and its data",
        "reference/config.md": "type, default, flag, effect on the run's identity",
        "reference/commands.md": "options and exit codes",
        "reference/result.md": "`evaluation_config.yaml`",
        "reference/environment.md": "keys, network, data",
        "schemas/README.md": "for editors and programs",
    },
    "Explanation": {
        "results.md": "scores, floors, failures, notes, usage",
        "suite-results.md": "fields, win rates, ranks, comparisons",
        "statistics.md": "each interval, and how often it holds",
        "validity.md": "known answers, beside bare HELM",
        "errata.md": "known defects, and their remedy",
        "helm.md": "its traps",
        "upstreams.md": "crfm-helm or medhelm",
        "glossary.md": "the terms",
        "design.md": "where to look for what",
        "development.md": "checks, tests, locks",
        "release.md": "its steps and files",
    },
}
INTRODUCTION = """\
What eval-factory is: `README.md` of the project. What is promised about keys, logs, offline runs
and executed code: `SECURITY.md`.
"""


def places() -> dict[str, dict[str, str]]:
    """Return the navigation without pages that do not exist."""
    return {
        section: {name: about for name, about in pages.items() if (DOCS / name).is_file()}
        for section, pages in NAVIGATION.items()
    }


def title_of(name: str) -> str:
    """Return the heading of a page.

    Raises:
        ValueError: the page does not begin with a heading.
    """
    text = (DOCS / name).read_text("utf-8")
    heading = re.match(r"# (.+)\n", text)
    if not heading:
        raise ValueError(f"docs/{name} does not begin with a heading")
    return heading[1]


def map_page(generated: str) -> str:
    """Return the text of docs/README.md: a table of all pages and their subjects.

    `generated` is a comment which says that the page is written by a script.
    """
    lines = ["# eval-factory: documentation", "", generated, "", INTRODUCTION]
    for section, pages in places().items():
        lines += [f"## {section}", "", "| page | about |", "|---|---|"]
        lines += [f"| [{title_of(name)}]({name}) | {about} |" for name, about in pages.items()]
        lines.append("")
    return "\n".join(lines).rstrip() + "\n"
