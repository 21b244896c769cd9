"""CHAI's card and the TRIPOD-LLM checklist: every element once, with the run's own numbers or what nobody knows."""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import chain
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from described_runs import CONFIG, TARGET, hostile, of_a_jury, plain
from eval_factory.core.results import (
    Agreement,
    Clinicians,
    CorrectedScore,
    ImportedFrom,
    JudgeAgreement,
    TaskResult,
    TooFewRated,
)
from eval_factory.report.described_run import DescribedRun
from eval_factory.report.paper_templates import paper_texts
from eval_factory.report.papers import CHAI as NAMESPACE
from eval_factory.report.papers import methods_text, model_card, tripod_llm
from facts import says
from unit.core.test_rendered_tables import MARKDOWN

UNKNOWN = paper_texts()["model_card"]["unknown"]

KINDS = ["UsefulnessUsabilityEfficacy", "FairnessEquity", "SafetyReliability"]
PARTS = [
    "MetricGoal",
    "Results",
    "Interpretation",
    "TestType",
    "TestingDataDescription",
    "ValidationProcessAndJustification",
]
"""In the order of the schema's sequence, each needed."""


def parsed(made: TaskResult) -> ET.Element:
    return ET.fromstring(model_card(made, CONFIG, TARGET))  # noqa: S314 - our own text


def name(element: ET.Element) -> str:
    space, _, local = element.tag.removeprefix("{").partition("}")
    assert space == NAMESPACE
    return local


def text(made: TaskResult, kind: int, part: str) -> str:
    return parsed(made)[kind][PARTS.index(part)].text or ""


def results(made: TaskResult, kind: int) -> dict[str, Any]:
    found = parsed(made)[kind][1]
    return {one[0].text or "": json.loads(one[1].text or "") for one in found}


@pytest.mark.parametrize("made", [plain, of_a_jury, hostile])
def test_it_has_the_elements_of_the_schema_in_their_order(made: Callable[[], TaskResult]) -> None:
    root = parsed(made())
    assert name(root) == "KeyMetrics"
    assert [name(kind) for kind in root] == KINDS
    for kind in root:
        assert [name(part) for part in kind] == PARTS
        assert all((part.text or "").strip() for part in kind if name(part) != "Results")
        assert len(kind[1]) >= 1
        assert all([name(part) for part in found] == ["Label", "ValueJson"] for found in kind[1])


def test_scores_with_their_intervals() -> None:
    assert results(plain(), 0) == {
        "exact_match": {
            "kind": "estimate_ci",
            "estimate": 0.7368,
            "lower": 0.5121,
            "upper": 0.8819,
            "level": 95,
            "unit": "share",
        }
    }
    made = plain()
    score = made.scores["exact_match"]
    bare = replace(score, unit=None, stats=replace(score.stats, ci_low=None))
    other = replace(made, scores={"a": bare, "b": replace(score, value=math.nan)})
    assert results(other, 0) == {
        "a": {"kind": "single", "value": 0.7368},
        "b": {"kind": "single", "value": None},
    }
    assert results(replace(made, scores={}), 0) == {UNKNOWN: {"kind": "single", "value": None}}


def test_groups_or_that_nothing_is_known() -> None:
    assert results(plain(), 1) == {UNKNOWN: {"kind": "single", "value": None}}
    says(text(plain(), 1, "MetricGoal"), "Not known", "no groups")
    says(text(plain(), 1, "Interpretation"), "not measured")
    made = plain()
    grouped = replace(made, groups={"sex": {"f": dict(made.scores), "m": {}}})
    assert list(results(grouped, 1)) == ["exact_match, sex: f"]
    says(text(grouped, 1, "MetricGoal"), "groups", "by sex")
    says(text(grouped, 1, "Interpretation"), "attributes of patients")


def test_counts_of_what_can_be_relied_on() -> None:
    found = {label: value["value"] for label, value in results(plain(), 2).items()}
    assert found == {
        "Instances requested": 20,
        "Instances scored": 19,
        "Instances failed": 1,
        "Instances empty": 2,
        "Instances truncated": 3,
        "Instances unparsed": 4,
        "Instances refused": 0,
        "Instances unjudged": 0,
    }
    assert {value["kind"] for value in results(plain(), 2).values()} == {"single"}
    assert "whether answers are safe" in text(plain(), 2, "Interpretation")


def test_data_and_process_are_told_once() -> None:
    says(text(plain(), 0, "TestingDataDescription"), "20 instances", "split test: 20")
    process = text(plain(), 0, "ValidationProcessAndJustification")
    for said in (
        "org/model",
        "max_tokens = 1",
        "Wilson's score interval (ref. 3)",
        "Ref. 3: E. B. Wilson",
        "crfm-helm 0.5.16",
        "Not known to eval-factory: why this benchmark",
    ):
        assert said in process
    for kind in (1, 2):
        assert (
            text(plain(), kind, "TestingDataDescription")
            == "The same as for UsefulnessUsabilityEfficacy."
        )
        assert (
            text(plain(), kind, "ValidationProcessAndJustification")
            == "The same as for UsefulnessUsabilityEfficacy."
        )
    assert "5 of 6 judgements" in text(of_a_jury(), 0, "ValidationProcessAndJustification")


def test_goal_and_interpretation_invent_nothing() -> None:
    says(text(plain(), 0, "MetricGoal"), "exact_match of org/model", "on pubmed_qa", "Not known")
    told = "By the limits that were set for the run, this score may not"
    assert text(of_a_jury(), 0, "Interpretation").startswith(told)
    assert "the score; 1 failed" not in text(plain(), 0, "Interpretation")
    assert "1 failed" in text(plain(), 0, "Interpretation")
    assert "temperature 0.7 (leaderboard: 0.0)" in text(plain(), 0, "Interpretation").replace(
        "`", ""
    )


def test_hostile_text_stays_text() -> None:
    card = model_card(hostile(), CONFIG, TARGET)
    assert "<script" not in card
    assert card.replace("\n", "").isprintable()
    assert "\u202e" not in card
    label = parsed(hostile())[0][1][0][0].text or ""
    assert "`@someone`" in label
    assert "`<script>alert(1)</script>`" in label


NAMED = [
    "5a",
    "5d",
    "6a",
    "6b",
    "6d",
    "6f",
    "7a",
    "7b",
    "7c",
    "8a",
    "8b",
    "8c",
    "9a",
    "12",
    "14e",
    "14f",
    "16a",
    "16d",
    "17",
]
"""Items that a run fills, by the numbers of copies that have 6f and 6g."""


@pytest.mark.parametrize("made", [plain, of_a_jury, hostile])
def test_every_item_is_there_once(made: Callable[[], TaskResult]) -> None:
    text = tripod_llm(made(), CONFIG, TARGET)
    filled, left = text.split("## Left for the authors")
    of_headings = re.findall(r"^### (\d+[a-g]?) ", filled, re.MULTILINE)
    of_rows = re.findall(r"^\| (\d+[a-g]?) \|", left, re.MULTILINE)
    assert Counter([*of_headings, *of_rows]) == Counter(list(paper_texts()["tripod_llm"]))
    assert len(of_headings) == text.count("*Not known to eval-factory: ") == 22


def test_answers_stand_under_their_items_found_by_the_numbers_of_other_copies_too() -> None:
    text = tripod_llm(plain(), CONFIG, TARGET)
    says(text, "# TRIPOD-LLM checklist", "`identity`", "`pubmed_qa`", "`org/model`")
    says(text, "### 17 Performance", "exact_match = 0.7368", "95 % interval")
    says(text, "*Not known to eval-factory: assessment by people")
    says(text, "### 8c Annotation")
    says(text, "Table 2", "guideline (ref. 1)")
    says(text, "1. J. Gallifant")
    assert text.endswith(".\n")
    other = {
        found[1] or found[0]
        for found in re.findall(r"^### (\w+)(?: \((\w+)\))? ", text, re.MULTILINE)
    }
    assert set(NAMED) <= other
    says(text, "### 7a (6f)")


@pytest.mark.parametrize("made", [plain, of_a_jury, hostile])
def test_every_source_that_is_cited_is_listed(made: Callable[[], TaskResult]) -> None:
    text, _, references = tripod_llm(made(), CONFIG, TARGET).rpartition("## References")
    cited = {
        int(one)
        for one in chain.from_iterable(
            found.split(", ") for found in re.findall(r"\(ref\. (\d+(?:, \d+)*)\)", text)
        )
    }
    assert cited == {int(number) for number in re.findall(r"^(\d+)\. ", references, re.MULTILINE)}


def test_hostile_names_make_nothing_of_the_checklist() -> None:
    text = tripod_llm(rated(hostile()), CONFIG, TARGET)
    assert text.replace("\n", "").isprintable()
    tokens = MARKDOWN.parse(text)
    assert "html_block" not in {token.type for token in tokens}
    children = list(chain.from_iterable(token.children or [] for token in tokens))
    assert {child.type for child in children} == {
        "text",
        "softbreak",
        "code_inline",
        "em_open",
        "em_close",
    }
    assert "@someone" not in "".join(
        child.content for child in children if child.type != "code_inline"
    )


def answers_of(
    made: TaskResult, config: Any = CONFIG, target: Any = TARGET
) -> dict[str, list[str]]:
    """Item -> what is known, of the items that a run fills; sources are numbered over all of them."""
    run = DescribedRun(made, config, target)
    run.cite("tripod_llm")
    return {
        name: run.render_sentences(one["known"])
        for name, one in paper_texts()["tripod_llm"].items()
        if "known" in one
    }


def told(item: str, made: TaskResult, config: Any = CONFIG) -> str:
    return " ".join(answers_of(made, config)[item])


def test_only_a_run_of_this_program_can_be_repeated() -> None:
    made = plain()
    source = ImportedFrom("inspect_ai", "0.3.2", {}, ())
    imported = replace(made, provenance=replace(made.provenance, imported=source))
    says(tripod_llm(made, CONFIG, TARGET), "eval-factory reproduce")
    assert "eval-factory reproduce" not in tripod_llm(imported, CONFIG, TARGET)


def test_what_a_run_does_not_have_is_not_told() -> None:
    for item in ("7b", "8a", "8b", "8c"):
        assert told(item, plain()) == ""
    assert "may not be reported" not in told("17", plain())
    made = plain()
    bare = replace(
        made,
        provenance=replace(
            made.provenance, endpoints={}, platform={}, dataset_files={}, dataset_revisions={}
        ),
        usage=replace(
            made.usage,
            all_runs=replace(
                made.usage.all_runs,
                total=replace(
                    made.usage.all_runs.total,
                    prompt_tokens=None,
                    latency_p50_s=None,
                    requests=7,
                    cached=2,
                ),
            ),
        ),
        comparability=None,
        scores={},
        validity=replace(made.validity, floors={}),
    )
    says(told("12", bare), "took 1.0 s", "1 run", "7 requests", "2 answers", "a cache")
    assert told("7e", bare) == ""
    assert told("16d", bare) == ""
    own = told("14e", bare, {"params": {"extra": {"data_path": "x"}}})
    says(own, "files of the authors", "output folder")
    custom = told("5d", replace(bare, task="custom.x"), {"params": {"extra": {"benchmark": "x"}}})
    says(custom, "SHA-256", "all prompts")
    says(answers_of(bare, {}, {})["7c"][1], "API", "OpenAI-compatible endpoint")


def rated(made: TaskResult) -> TaskResult:
    """A result after `annotate import`."""
    corrected = CorrectedScore("score", 3.9, 3.1, 4.6, "ppi++-stratified", 0.5, 4.25)
    judges = {"kind": JudgeAgreement(2, 0.61)}
    agreement = Agreement(2, 0.55)
    return replace(
        made, clinicians=Clinicians(2, 3, 2, 4, corrected, agreement=agreement, judges=judges)
    )


def part(text: str, item: str) -> str:
    return text.partition(f"\n### {item} ")[2].partition("\n### ")[0]


@pytest.mark.parametrize("made", [plain, of_a_jury])
def test_papers_tell_of_the_people_who_rated_answers(made: Callable[[], TaskResult]) -> None:
    before = tripod_llm(made(), CONFIG, TARGET)
    after = tripod_llm(rated(made()), CONFIG, TARGET)
    for item in ("7d", "8b", "8c", "17"):
        assert "2 raters" not in part(before, item)
        says(part(after, item), "2 raters")
    says(part(before, "7d"), "people who assessed answers")
    assert "people who assessed answers" not in after
    says(part(after, "7b"), "alpha 0.55", "kind", "alpha 0.61")
    says(
        methods_text(rated(made()), CONFIG, TARGET),
        "4 ratings",
        "2 of 3 answers",
        "3.9000",
        "PPI++",
    )
    says(text(rated(made()), 0, "ValidationProcessAndJustification"), "2 raters")
    few = replace(rated(made()), clinicians=Clinicians(2, 3, 1, 2, too_few=TooFewRated(2, 20)))
    says(part(tripod_llm(few, CONFIG, TARGET), "7d"), "1 rater", "20 rated answers")


LETTERS = {
    3: "ab",
    5: "abcde",
    6: "abcde",
    7: "abcde",
    8: "abc",
    9: "ab",
    14: "abcdef",
    16: "abcd",
    19: "abcdefg",
}


def test_the_items_are_those_of_the_table_and_each_that_is_filled_says_what_it_does_not_know() -> (
    None
):
    items = paper_texts()["tripod_llm"]
    expected: list[str] = []
    for number in range(1, 20):
        expected += [f"{number}{letter}" for letter in LETTERS.get(number, [""])]
    assert list(items) == expected
    assert len({one["topic"] for one in items.values()}) == len(items)
    assert all(one["unknown"] for one in items.values() if "known" in one)
