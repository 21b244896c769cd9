"""`report --for tripod-llm`: the TRIPOD-LLM checklist, as far as a run can fill it, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eval_factory.core.results import TaskResult
from eval_factory.report.bibliography import Citations
from eval_factory.report.markdown_text import code, prose, table
from eval_factory.report.run_facts import RunFacts
from eval_factory.report.tripod_answers import Answer, Run, answers
from eval_factory.report.tripod_items import ITEMS

OTHER_NUMBERS = {"6b": "6c", "6c": "6b", "7a": "6f", "7b": "6g", "7c": "7a", "7d": "7b", "7e": "7c"}
"""Item -> its number in copies of the checklist that count the items of the output on from the model's."""

LISTS = ("16d", "17")
"""Items whose answers are a list."""


def tripod_llm(result: TaskResult, config: Mapping[str, Any], target: Mapping[str, Any]) -> str:
    """Markdown: each item that the run can fill, with what is not known of it; then the items left for the authors."""
    cite = Citations("(ref. {})")
    source = cite("tripod_llm")
    found = answers(Run(RunFacts(result, config, target), cite))
    left = [[item, topic] for item, topic in ITEMS.items() if item not in found]
    return "\n".join([
        "# TRIPOD-LLM checklist",
        "",
        f"Of the run {code(result.provenance.run_identity)}: {code(result.task)}, {code(result.provenance.target)}.",
        f"Items are numbered as in Table 2 of the guideline {source}; a number in brackets is that of copies that have",
        "items 6f and 6g. The sentences of the items are in the guideline; their topics here are in other words.",
        "",
        "## Filled from the run",
        "",
        *(line for item, answer in found.items() for line in _item(item, answer)),
        "## Left for the authors",
        "",
        *table(["item", "topic"], left, numbers=0),
        "",
        "## References",
        "",
        *(f"{number}. {prose(one)}" for number, one in enumerate(cite.listed(), 1)),
        "",
    ])  # fmt: skip


def _item(item: str, answer: Answer) -> Iterator[str]:
    other = f" ({OTHER_NUMBERS[item]})" if item in OTHER_NUMBERS else ""
    yield f"### {item}{other} {ITEMS[item]}"
    yield ""
    if item in LISTS:
        yield from (*(f"- {prose(sentence)}" for sentence in answer.known), "")
    elif answer.known:
        yield from (" ".join(map(prose, answer.known)), "")
    yield f"*Not known to eval-factory: {'; '.join(answer.unknown)}.*"
    yield ""
