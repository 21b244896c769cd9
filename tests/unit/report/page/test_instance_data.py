"""Instances -> the index and the chunks of a page, compressed: what goes in comes out."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from eval_factory.core.results import InstanceRecord, Score, Stats
from eval_factory.core.signs import SIGNS
from eval_factory.report.documents import instance_fields, result_fields
from eval_factory.report.page import instance_data, shortened_texts
from eval_factory.report.page.blocks import readable_page
from eval_factory.report.page.instance_data import _CHUNK_SIZE, InstanceBlocks
from stored_results import criterion, instance

STATS = Stats.without_interval(4, 0.5)
SHARE = Score(0.5, STATS, "exact_match", "test", None, True, (0.0, 1.0), "share")
RATING = replace(SHARE, metric="jury", scale=(1.0, 5.0))


def packed(
    records: Sequence[InstanceRecord], main: Score | None = SHARE, **how: Any
) -> InstanceBlocks:
    packer = instance_data.InstancePacker(main, **how)
    for record in records:
        packer.add(instance_fields(record), result_fields(record))
    return packer.finish()


def lines_of(blocks: InstanceBlocks, number: int) -> list[Any]:
    """Of the index (0), or of a chunk (from 1)."""
    part = readable_page(blocks.blocks[number])
    return [json.loads(line) for line in part.split("\n")[1:-1]]


def rows(blocks: InstanceBlocks) -> list[dict[str, Any]]:
    return lines_of(blocks, 0)[1:]


def test_every_instance_is_found_by_its_place_in_the_chunks() -> None:
    made = packed([instance(f"q{number}", 1.0) for number in range(2 * _CHUNK_SIZE + 1)])
    assert made.total == 2 * _CHUNK_SIZE + 1
    assert [len(lines_of(made, number)) for number in (1, 2, 3)] == [_CHUNK_SIZE, _CHUNK_SIZE, 1]
    assert ['data-part="0"' in made.blocks[1], 'data-part="2"' in made.blocks[3]] == [True, True]
    for place, row in enumerate(rows(made)):
        chunk, at = divmod(place, _CHUNK_SIZE)
        assert row["id"] == f"q{place}"
        if at in (0, _CHUNK_SIZE - 1):
            assert lines_of(made, 1 + chunk)[at]["answer"] == f"answer to q{place}"


def test_nothing_was_asked_or_nothing_by_criteria() -> None:
    made = packed([])
    assert (made.total, len(made.blocks), rows(made)) == (0, 1, [])
    assert made.counts == dict.fromkeys(SIGNS, 0)
    made = packed([instance("a", 1.0)])
    assert made.costliest == ()
    assert "lost" not in lines_of(made, 0)[0]
    assert rows(made)[0]["lost"] == []
    assert "criteria" not in lines_of(made, 1)[0]


def test_a_row_says_what_the_table_shows() -> None:
    record = instance(
        "q0",
        1.0,
        trial=2,
        perturbation="typos",
        split="valid",
        latency_s=0.123456,
        completion_tokens=7,
        prompt="Question:  What \n is it? ",
        completion="a " * 60,
        categories={"ward": "b", "odd": "c"},
    )
    made = packed([record, instance("q1", None)], fields=("ward",))
    head, first, second = lines_of(made, 0)
    assert head["groups"] == ["ward"]
    assert (head["chunk"], head["middle"], head["texts"]) == (_CHUNK_SIZE, None, True)
    assert first == {
        "id": "q0",
        "trial": 2,
        "perturbation": "typos",
        "split": "valid",
        "value": 1.0,
        "flags": ["right"],
        "groups": ["b"],
        "latency": 0.1235,
        "tokens": 7,
        "prompt": "What is it?",
        "answer": ("a " * 24)[:47] + "…",
        "lost": [],
    }
    assert (second["value"], second["groups"]) == (None, [None])
    assert made.plot_numbers.values == []  # another split, and one that failed
    assert made.plot_numbers.latencies == [0.1235, 0.1]


def flags(blocks: InstanceBlocks) -> list[set[str]]:
    return [set(row["flags"]) for row in rows(blocks)]


def test_right_and_wrong() -> None:
    records = [instance("a", 1.0), instance("b", 0.0), instance("c", None)]
    assert flags(packed(records)) == [{"right"}, {"wrong"}, {"failed"}]
    assert flags(packed(records, replace(SHARE, higher_is_better=False)))[:2] == [
        {"wrong"},
        {"right"},
    ]
    assert packed(records).counts["wrong"] == 1
    assert flags(packed([instance("a", 1.0)], None)) == [set()]


@pytest.mark.parametrize(
    ("main", "values", "middle", "low"),
    [
        (RATING, [1.0, 3.0, 4.5], 3.0, [True, False, False]),
        (SHARE, [0.25, 0.5, 1.0], 0.5, [True, False, False]),
        (replace(RATING, higher_is_better=False), [1.0, 3.0, 4.5], 3.0, [False, False, True]),
        (replace(RATING, scale=None), [1.0, 2.0, 6.0], 3.0, [True, True, False]),
    ],
)
def test_the_low_ones_of_other_values(
    main: Score, values: list[float], middle: float, low: list[bool]
) -> None:
    made = packed([instance(f"q{at}", one, main.metric) for at, one in enumerate(values)], main)
    assert made.middle == middle
    assert ["wrong" in found for found in flags(made)] == low
    assert ["right" in found for found in flags(made)] == [not one for one in low]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []),
        ({"completion": " \n"}, ["empty"]),
        ({"finish_reason": "length"}, ["cut_off"]),
        ({"error": "x", "completion": None}, ["failed"]),
        ({"error": "x", "completion": "", "finish_reason": "content_filter"}, ["filtered"]),
        ({"judges": {"a": 1.0, "b": 2.9}}, []),
        ({"judges": {"a": 1.0, "b": 3.0}}, ["disagree"]),
        ({"unjudged": True}, ["unjudged"]),
        ({"injection": ("asks for marks",)}, ["injection"]),
        (
            {"signs": ("unparsed", "of another version", "thinking_stripped")},
            ["unparsed", "thinking_stripped"],
        ),
    ],
)
def test_what_an_instance_can_be_filtered_by(changes: dict[str, Any], found: list[str]) -> None:
    assert list(instance_data.page_signs_of(instance("a", 1.0, **changes))) == found


def test_an_opened_instance_has_all_of_it() -> None:
    record = instance(
        "q0",
        1.0,
        turns=({"role": "system", "content": "be brief"}, {"role": "user", "content": "Who?\nYou"}),
        reasoning="hm",
        judges={"gpt": 4.0},
        judgements={"gpt": {"accuracy": {"score": 4, "explanation": "fine"}}},
        categories={"ward": "b"},
        injection=("x",),
        cluster="s1",
        cached=True,
    )
    made = packed([record, instance("q1", 0.0)])
    first, second = lines_of(made, 1)
    assert first["turns"] == [dict(turn) for turn in record.turns]
    assert "prompt" not in first
    assert rows(made)[0]["prompt"] == "Who? You"
    assert first["judges"] == {"gpt": {"accuracy": {"score": 4, "explanation": "fine"}}}
    assert (first["marks"], first["reasoning"], first["cluster"], first["cached"]) == (
        {"gpt": 4.0},
        "hm",
        "s1",
        True,
    )
    assert (first["categories"], first["injection"], first["metrics"]) == (
        {"ward": "b"},
        ["x"],
        {"exact_match": 1.0},
    )
    assert second["prompt"] == "What is q1?"
    assert second["references"] == [["yes", True], ["no", False]]
    assert not {"turns", "reasoning", "error", "judges", "cached", "cluster"} & second.keys()


def test_the_table_shows_what_comes_after_the_examples() -> None:
    records = [instance(f"q{at}", 1.0, prompt=f"many examples\nWho is {at}?") for at in range(3)]
    assert [row["prompt"] for row in rows(packed(records))] == [
        "Who is 0?",
        "Who is 1?",
        "Who is 2?",
    ]


def test_ten_thousand_instances_take_less_than_twelve_megabytes() -> None:
    """2.7 kB each, of words that differ from one to the next as those of abstracts do."""
    words = [
        f"{stem}{end}"
        for stem, end in product(STEMS, ("", "s", "ed", "ing", "al", "ity", "ation", "ally"))
    ]
    drawn = random.Random(1)  # noqa: S311 - of words
    total = 0
    packer = instance_data.InstancePacker(SHARE)
    for number in range(_CHUNK_SIZE * 8):
        record = instance(
            f"q{number}", float(number % 2), prompt=" ".join(drawn.choices(words, k=310))
        )
        total += len(record.prompt)
        packer.add(instance_fields(record), result_fields(record))
    made = packer.finish()
    assert total > 2_700 * _CHUNK_SIZE * 8
    assert sum(map(len, made.blocks)) * 5 < 12_000_000


STEMS = [
    "patient",
    "hospital",
    "treat",
    "measure",
    "infect",
    "operat",
    "diagnos",
    "clinic",
    "effect",
    "control",
    "random",
    "signific",
    "group",
    "compar",
    "result",
    "increas",
    "decreas",
    "risk",
    "factor",
    "surviv",
    "mortal",
    "cancer",
    "tumor",
    "therap",
    "drug",
    "dose",
    "blood",
    "pressur",
    "heart",
    "cardi",
    "pulmon",
    "renal",
    "liver",
    "hepat",
    "brain",
    "neur",
    "child",
    "adult",
    "woman",
    "man",
    "age",
    "year",
    "month",
    "week",
    "follow",
    "outcom",
    "complicat",
    "surg",
    "resect",
    "biops",
]


CRITERIA = (
    criterion(4, "not met", "axis:a", "private", text="shared", one=False),
    criterion(2, "met", "axis:b", text="other", one=True),
)


def test_criteria_of_a_rubric_are_in_the_chunks_and_what_they_cost_in_the_index() -> None:
    made = packed(
        [
            instance("a", 0.5, criteria=CRITERIA),
            instance("b", 1.0, criteria=CRITERIA[1:]),
            instance("c", 0.5, criteria=CRITERIA[:1]),
            instance("d", None, criteria=CRITERIA[:1]),
        ]
    )
    assert [one.label for one in made.costliest] == ["axis:a", "private", "shared"]
    assert made.costliest[0].times == 2  # not the one whose request failed
    assert lines_of(made, 0)[0]["lost"] == [["axis:a", True], ["private", True], ["shared", False]]
    assert [row["lost"] for row in rows(made)] == [[0, 1, 2], [], [0, 1, 2], []]
    assert [row[1] for row in lines_of(made, 1)[0]["criteria"]] == ["shared", "other"]
    assert made.counts["criterion_not_met"] == 2
    assert made.counts["criterion_undecided"] == 0


@pytest.mark.parametrize("name", ["prompt", "completion", "reasoning"])
def test_a_page_holds_both_ends_of_a_very_long_text(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shortened_texts, "MAX_SHOWN_TEXT", 100)
    shown = "answer" if name == "completion" else name
    complete = "b" * 60 + "e" * 40
    long = "b" * 60 + "x" * 1_000 + "e" * 60
    (first, second) = lines_of(
        packed([instance("a", 1.0, **{name: complete}), instance("b", 1.0, **{name: long})]), 1
    )
    assert first[shown] == complete
    beginning, said, end = second[shown].split("\n\n")
    assert (beginning, end) == ("b" * 50, "e" * 50)
    assert "1,020 characters" in said
