"""Instances and their criteria -> the index and the chunks of a page, compressed: what goes in comes out."""

from __future__ import annotations

import base64
import gzip
import json
import random
from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import pytest

from eval_factory.core.results import InstanceRecord, Score, Stats
from eval_factory.core.safe_files import json_line
from eval_factory.core.secrets import REDACTED
from eval_factory.core.signs import DISAGREE, HARM, NOT_MET, SIGNS, UNDECIDED
from eval_factory.report.documents import instance_fields, result_fields
from eval_factory.report.page import instance_data
from eval_factory.report.page.instance_data import (
    _CHUNK_SIZE,
    MAX_SHORT_TEXT,
    InstanceBlocks,
    TotalLoss,
    readable_page,
)
from eval_factory.scoring.rubric import VERDICTS
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


@pytest.mark.parametrize(
    ("texts", "shared"),
    [
        (["ex 1\nex 2\nWho?", "ex 1\nex 2\nWhat?"], "ex 1\nex 2\n"),
        (["Why", "Who"], ""),
        (["one\ntwo"], ""),
        ([], ""),
    ],
)
def test_what_all_prompts_begin_with_is_no_preview(texts: list[str], shared: str) -> None:
    assert instance_data.common_beginning(texts) == shared


def test_the_table_shows_what_comes_after_the_examples() -> None:
    records = [instance(f"q{at}", 1.0, prompt=f"many examples\nWho is {at}?") for at in range(3)]
    assert [row["prompt"] for row in rows(packed(records))] == [
        "Who is 0?",
        "Who is 1?",
        "Who is 2?",
    ]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one  \n two", "one two"),
        ("x" * 10, "x" * 10),
        ("x" * 11, "x" * 9 + "…"),
        ("xx xx xx xxx", "xx xx xx…"),
        (f"a {REDACTED} and more than ten", f"a {REDACTED}"),
        (f"{REDACTED}", REDACTED),
        (f"xxxxxxxxxxxx {REDACTED}", "x" * 9 + "…"),
    ],
)
def test_the_first_words_of_a_text(text: str, words: str) -> None:
    assert instance_data.first_words(text, 10) == words


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


def test_every_verdict_is_known() -> None:
    shares = {verdict: share for share, verdict in VERDICTS.items()}
    assert {verdict: instance_data._SHARES.get(verdict) for verdict in VERDICTS.values()} == shares


@pytest.mark.parametrize(
    ("points", "verdict", "lost"),
    [
        (8, "met", 0),
        (8, "not met", 8),
        (8, "tied", 4),
        (8, "unjudged", None),
        (-5, "met", 5),
        (-5, "not met", 0),
        (-5, "tied", 2.5),
        (-5, "unjudged", None),
    ],
)
def test_what_a_criterion_costs(points: float, verdict: str, lost: float | None) -> None:
    assert instance_data.points_lost(criterion(points, verdict)) == lost


@pytest.mark.parametrize(
    ("made", "signs"),
    [
        (criterion(8, "met", one=True), []),
        (criterion(8, "not met", one=False), [NOT_MET]),
        (criterion(-8, "not met", one=False), []),
        (criterion(-8, "met", one=True), [HARM]),
        (criterion(8, "tied", one=True, two=False), [DISAGREE]),
        (criterion(8, "tied", one=True, two=True), []),
        (criterion(8, "tied", one=False, two="nothing"), [UNDECIDED]),
        (criterion(8, "met", one=True, two="HTTP 500"), [UNDECIDED]),
        (criterion(8, "unjudged"), [UNDECIDED]),
    ],
)
def test_by_what_an_instance_is_chosen(made: dict[str, Any], signs: list[str]) -> None:
    record = instance("q", 0.5, criteria=(criterion(1, "met", one=True), made))
    assert list(instance_data.criterion_signs(record)) == signs
    failed = instance("q", None, criteria=(made,))
    assert list(instance_data.criterion_signs(failed)) == []


FIVE_CRITERIA = [
    criterion(3, "met", "axis:a", text="first", one=True),
    criterion(2, "not met", "axis:a", "private", text="second", one=False, two="HTTP 500"),
    criterion(9, "unjudged", text="third", one="nothing"),
    criterion(-7, "met", text="fourth", one=True),
    criterion(7, "not met", text="fifth", one=False),
]


def test_what_cost_most_comes_first_then_what_nobody_decided() -> None:
    rows = instance_data.criteria_rows(FIVE_CRITERIA, with_texts=True)
    assert [(row[0], row[1], row[5]) for row in rows] == [
        (4, "fourth", 7),
        (5, "fifth", 7),
        (2, "second", 2),
        (3, "third", None),
        (1, "first", 0),
    ]
    assert rows[2] == [
        2,
        "second",
        2,
        ["axis:a", "private"],
        "not met",
        2,
        [["one", 0, "words of one"], ["two", None, "HTTP 500"]],
    ]


def test_long_texts_are_cut_and_say_so() -> None:
    assert instance_data.shortened_text("x" * MAX_SHORT_TEXT) == "x" * MAX_SHORT_TEXT
    long = "x" * (MAX_SHORT_TEXT + 1)
    assert (
        instance_data.shortened_text(long)
        == f"{'x' * MAX_SHORT_TEXT} … (2,001 characters: results.jsonl)"
    )
    one = criterion(
        1,
        "met",
        *[f"{number}{long}" for number in range(instance_data.MAX_TAGS + 1)],
        text=long,
        one=True,
    )
    one["judges"]["one"]["explanation"] = long
    ((_, words, _, tags, _, _, judges),) = instance_data.criteria_rows([one], with_texts=True)
    assert {len(text) for text in (words, judges[0][2], tags[0])} == {
        len(instance_data.shortened_text(long)),
        len(instance_data.shortened_text(f"1{long}")),
    }
    assert len(tags) == instance_data.MAX_TAGS


@pytest.mark.parametrize("name", ["prompt", "completion", "reasoning"])
def test_a_page_holds_both_ends_of_a_very_long_text(
    name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instance_data, "MAX_SHOWN_TEXT", 100)
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


def test_what_costs_most_over_all_answers_and_not_twice_in_one() -> None:
    points = instance_data.LossCounter()
    shared = [
        criterion(4, verdict, "axis:a", "axis:a", text="shared", one=True)
        for verdict in ("not met", "met")
    ]
    assert points.add(
        [shared[0], criterion(2, "not met", "axis:a", "rare", text="alone", one=False)]
    ) == (0, 1, 2, 3)
    assert points.add([shared[1], criterion(1, "unjudged", "axis:a", text="other")]) == ()
    assert points.add([shared[0], criterion(-6, "met", "axis:b", text="harm", one=True)]) == (
        0,
        1,
        5,
        6,
    )
    assert points.add([criterion(-6, "met", "axis:b", text="harm", one=True)]) == (5, 6)
    most = points.costliest()
    assert list(most.values()) == [
        TotalLoss("axis:b", True, 2, 2, 12.0, answers=2),
        TotalLoss("axis:a", True, 4, 2, 10.0, answers=3),
        TotalLoss("harm", False, 2, 2, 12.0, answers=2),
        TotalLoss("shared", False, 3, 2, 8.0, answers=3),
    ]
    assert list(most) == [5, 0, 6, 1]


def test_the_list_is_bounded_and_ties_are_in_order() -> None:
    points = instance_data.LossCounter()
    many = [
        criterion(1, "not met", f"axis:{number:03}", text=f"text {number:03}")
        for number in range(2 * instance_data.MAX_LOST)
    ]
    for _ in range(2):
        points.add(many)
    labels = [one.label for one in points.costliest().values()]
    assert labels == [
        f"{what}{n:03}" for what, n in product(("axis:", "text "), range(instance_data.MAX_LOST))
    ]


ODD = ["</script><script>alert(1)</script>", "ü\u202e\0 \x1b[2J \U0001f600", "\ud83d", 1]


def test_lines_come_out_as_they_went_in() -> None:
    lines = [json_line(one) for one in ODD]
    made = instance_data.compressed_block(2, "index", lines)
    assert made.count("<") == 2
    assert made == instance_data.compressed_block(2, "index", lines)
    # no date in it
    assert base64.b64decode(made.partition(">")[2].partition("<")[0])[4:8] == bytes(4)
    beginning = '<script type="application/x-eval-factory" data-run="2" data-part="index">\n'
    assert readable_page(made) == beginning + "\n".join(lines) + "\n</script>"


@pytest.mark.parametrize(
    "packed",
    [
        "",
        "QQ==",
        "====",
        base64.b64encode(gzip.compress(b"x", mtime=0)[:-4]).decode(),
        base64.b64encode(gzip.compress(b"\x80", mtime=0)).decode(),
    ],
)
def test_what_cannot_be_unpacked_is_left(packed: str) -> None:
    page = (
        f'a<script type="application/x-eval-factory" data-run="0" data-part="0">{packed}</script>b'
    )
    assert readable_page(page) == page


def test_a_block_that_unpacks_to_too_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made = instance_data.compressed_block(0, "0", ["1" * 100])
    monkeypatch.setattr(instance_data, "_MAX_UNPACKED", 100)
    assert "1" * 100 in readable_page(made)
    monkeypatch.setattr(instance_data, "_MAX_UNPACKED", 99)
    assert "1" * 100 not in readable_page(made)
