"""The checklist in Markdown: every item once, filled or left for the authors."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

import pytest

from described_runs import CONFIG, TARGET, hostile, of_a_jury, plain
from eval_factory.core.results import TaskResult
from eval_factory.report.papers import forms, tripod_llm
from unit.core.test_rendered_tables import MARKDOWN

NAMED = [
    "5a", "5d", "6a", "6b", "6d", "6f", "7a", "7b", "7c", "8a", "8b", "8c", "9a", "12", "14e", "14f", "16a", "16d",
    "17",
]  # fmt: skip
"""Items that a run fills, by the numbers of copies that have 6f and 6g."""


@pytest.mark.parametrize("made", [plain, of_a_jury, hostile])
def test_every_item_is_there_once(made: Callable[[], TaskResult]) -> None:
    text = tripod_llm(made(), CONFIG, TARGET)
    filled, left = text.split("## Left for the authors")
    of_headings = re.findall(r"^### (\d+[a-g]?) ", filled, re.MULTILINE)
    of_rows = re.findall(r"^\| (\d+[a-g]?) \|", left, re.MULTILINE)
    assert Counter([*of_headings, *of_rows]) == Counter(list(forms()["tripod_llm"]))
    assert len(of_headings) == text.count("*Not known to eval-factory: ") == 22


def test_the_items_of_other_copies_are_found_by_their_numbers_too() -> None:
    text = tripod_llm(plain(), CONFIG, TARGET)
    other = {found[1] or found[0] for found in re.findall(r"^### (\w+)(?: \((\w+)\))? ", text, re.MULTILINE)}
    assert set(NAMED) <= other
    assert "### 7a (6f) Measures of the quality" in text


def test_answers_stand_under_their_items() -> None:
    text = tripod_llm(plain(), CONFIG, TARGET)
    assert text.startswith("# TRIPOD-LLM checklist\n\nOf the run `identity`: `pubmed_qa`, `org/model`.\n")
    assert "### 17 Performance, by the measures that were set before\n\n- exact_match = 0.7368 (95 % interval" in text
    assert "\n\n*Not known to eval-factory: assessment by people, if there was any.*\n" in text
    assert "### 8c Annotation: who or what annotated\n\n*Not known to eval-factory:" in text
    assert "Table 2 of the guideline (ref. 1)" in text
    assert "\n1. J. Gallifant et al., The TRIPOD-LLM" in text
    assert text.endswith(".\n")


@pytest.mark.parametrize("made", [plain, of_a_jury, hostile])
def test_every_source_that_is_cited_is_listed(made: Callable[[], TaskResult]) -> None:
    text, _, references = tripod_llm(made(), CONFIG, TARGET).rpartition("## References")
    cited = {int(one) for found in re.findall(r"\(ref\. (\d+(?:, \d+)*)\)", text) for one in found.split(", ")}
    assert cited == {int(number) for number in re.findall(r"^(\d+)\. ", references, re.MULTILINE)}


def test_hostile_names_make_nothing() -> None:
    text = tripod_llm(hostile(), CONFIG, TARGET)
    assert text.replace("\n", "").isprintable()
    tokens = MARKDOWN.parse(text)
    assert "html_block" not in {token.type for token in tokens}
    children = [child for token in tokens for child in token.children or []]
    assert {child.type for child in children} == {"text", "softbreak", "code_inline", "em_open", "em_close"}
    assert "@someone" not in "".join(child.content for child in children if child.type != "code_inline")
