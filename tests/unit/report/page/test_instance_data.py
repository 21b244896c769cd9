"""Instances -> the index and the chunks of a page."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from eval_factory.core.results import InstanceRecord, Score, Stats
from eval_factory.core.secrets import REDACTED
from eval_factory.report.documents import instance_line, result_line
from eval_factory.report.page import instance_data
from eval_factory.report.page.instance_data import _CHUNK, _FLAGS, InstanceBlocks, InstancePacker, readable_page
from stored_results import criterion, instance

STATS = Stats(4, 0.5, None, None, None, None, None)
SHARE = Score(0.5, STATS, "exact_match", "test", None, True, (0.0, 1.0), "share")
RATING = replace(SHARE, metric="jury", scale=(1.0, 5.0))


def packed(records: Sequence[InstanceRecord], main: Score | None = SHARE, **how: Any) -> InstanceBlocks:
    packer = InstancePacker(main, **how)
    for record in records:
        packer.add(instance_line(record), result_line(record))
    return packer.finish()


def lines_of(blocks: InstanceBlocks, number: int) -> list[Any]:
    """Of the index (0), or of a chunk (from 1)."""
    part = readable_page(blocks.blocks[number])
    return [json.loads(line) for line in part.split("\n")[1:-1]]


def rows(blocks: InstanceBlocks) -> list[list[Any]]:
    return lines_of(blocks, 0)[1:]


def test_every_instance_is_found_by_its_place_in_the_chunks() -> None:
    made = packed([instance(f"q{number}", 1.0) for number in range(2 * _CHUNK + 1)])
    assert made.total == 2 * _CHUNK + 1
    assert [len(lines_of(made, number)) for number in (1, 2, 3)] == [_CHUNK, _CHUNK, 1]
    assert ['data-part="0"' in made.blocks[1], 'data-part="2"' in made.blocks[3]] == [True, True]
    for place, row in enumerate(rows(made)):
        chunk, at = divmod(place, _CHUNK)
        assert row[0] == f"q{place}"
        if at in (0, _CHUNK - 1):
            assert lines_of(made, 1 + chunk)[at]["answer"] == f"answer to q{place}"


def test_nothing_was_asked() -> None:
    made = packed([])
    assert (made.total, len(made.blocks), rows(made)) == (0, 1, [])
    assert made.counts == dict.fromkeys(_FLAGS, 0)


def test_a_row_says_what_the_table_shows() -> None:
    record = instance(
        "q0", 1.0, trial=2, perturbation="typos", split="valid", latency_s=0.123456, completion_tokens=7,
        prompt="Question:  What \n is it? ", completion="a " * 60, categories={"ward": "b", "odd": "c"},
    )  # fmt: skip
    made = packed([record, instance("q1", None)], fields=("ward",))
    head, first, second = lines_of(made, 0)
    assert head["groups"] == [["ward", ["b"]]]
    assert (head["chunk"], head["middle"], head["texts"], head["metric"]) == (_CHUNK, None, True, "exact_match")
    assert first[:5] == ["q0", 2, "typos", "valid", 1.0]
    assert first[6:] == [[0], 0.1235, 7, "What is it?", ("a " * 24)[:47] + "…"]
    assert second[4] is None
    assert second[6] == [None]
    assert made.numbers.values == []  # another split, and one that failed
    assert made.numbers.latencies == [0.1235, 0.1]


def flags(blocks: InstanceBlocks) -> list[set[str]]:
    return [{flag for place, flag in enumerate(_FLAGS) if row[5] >> place & 1} for row in rows(blocks)]


def test_right_and_wrong() -> None:
    records = [instance("a", 1.0), instance("b", 0.0), instance("c", None)]
    assert flags(packed(records)) == [{"right"}, {"wrong"}, {"failed"}]
    assert flags(packed(records, replace(SHARE, higher_is_better=False)))[:2] == [{"wrong"}, {"right"}]
    assert packed(records).counts["wrong"] == 1


@pytest.mark.parametrize(
    ("main", "values", "middle", "low"),
    [
        (RATING, [1.0, 3.0, 4.5], 3.0, [True, False, False]),
        (replace(RATING, higher_is_better=False), [1.0, 3.0, 4.5], 3.0, [False, False, True]),
        (replace(RATING, scale=None), [1.0, 2.0, 6.0], 3.0, [True, True, False]),
        (SHARE, [0.25, 0.5, 1.0], 0.5, [True, False, False]),
    ],
)
def test_of_other_values_the_low_ones_are_found(
    main: Score, values: list[float], middle: float, low: list[bool]
) -> None:
    made = packed([instance(f"q{at}", one, main.metric) for at, one in enumerate(values)], main)
    assert made.middle == middle
    assert ["wrong" in found for found in flags(made)] == low
    assert ["right" in found for found in flags(made)] == [not one for one in low]


def test_without_a_main_score_nothing_is_right_or_wrong() -> None:
    assert flags(packed([instance("a", 1.0)], None)) == [set()]


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, []), ({"completion": " \n"}, ["empty"]), ({"finish_reason": "length"}, ["cut_off"]),
        ({"error": "x", "completion": None}, ["failed"]),
        ({"error": "x", "completion": "", "finish_reason": "content_filter"}, ["filtered"]),
        ({"judges": {"a": 1.0, "b": 2.9}}, []), ({"judges": {"a": 1.0, "b": 3.0}}, ["disagree"]),
        ({"unjudged": True}, ["unjudged"]), ({"injection": ("asks for marks",)}, ["injection"]),
        ({"signs": ("unparsed", "of another version", "thinking_stripped")}, ["unparsed", "thinking_stripped"]),
    ],
)  # fmt: skip
def test_what_an_instance_can_be_filtered_by(changes: dict[str, Any], found: list[str]) -> None:
    assert list(instance_data.flags_of(instance("a", 1.0, **changes))) == found


def test_an_opened_instance_has_all_of_it() -> None:
    record = instance(
        "q0", 1.0, turns=({"role": "system", "content": "be brief"}, {"role": "user", "content": "Who?\nYou"}),
        reasoning="hm", judges={"gpt": 4.0}, judgements={"gpt": {"accuracy": {"score": 4, "explanation": "fine"}}},
        categories={"ward": "b"}, injection=("x",), cluster="s1", cached=True,
    )  # fmt: skip
    made = packed([record, instance("q1", 0.0)])
    first, second = lines_of(made, 1)
    assert first["turns"] == [dict(turn) for turn in record.turns]
    assert "prompt" not in first
    assert rows(made)[0][9] == "Who? You"
    assert first["judges"] == {"gpt": {"accuracy": {"score": 4, "explanation": "fine"}}}
    assert (first["marks"], first["reasoning"], first["cluster"], first["cached"]) == ({"gpt": 4.0}, "hm", "s1", True)
    assert (first["categories"], first["injection"], first["metrics"]) == ({"ward": "b"}, ["x"], {"exact_match": 1.0})
    assert second["prompt"] == "What is q1?"
    assert second["references"] == [["yes", True], ["no", False]]
    assert not {"turns", "reasoning", "error", "judges", "cached", "cluster", "same_prompt"} & second.keys()


def test_without_texts_nothing_is_left_of_them() -> None:
    secret = "Mrs Miller"
    record = instance(
        "q0", 0.0, prompt=secret, references=({"text": secret, "tags": ["correct"]},), completion=secret,
        reasoning=secret, turns=({"role": "user", "content": secret},), categories={"name": secret}, judges={"g": 1.0},
        judgements={"g": {"a": {"explanation": secret}}}, error=f"HTTP 400: {secret}",
    )  # fmt: skip
    whole, without = packed([record]), packed([record], with_texts=False)
    assert secret in readable_page("".join(whole.blocks))
    assert secret not in readable_page("".join(without.blocks))
    assert lines_of(without, 1) == [
        {"metrics": {"exact_match": 0.0}, "finish_reason": "stop", "prompt_tokens": 1, "marks": {"g": 1.0}}
    ]
    assert lines_of(without, 0)[0]["texts"] is False


def test_a_prompt_that_another_result_has_is_not_repeated() -> None:
    first = packed([instance("a", 1.0), instance("b", 1.0)], beside_others=True)
    others = [instance("a", 0.0), instance("b", 0.0, prompt="another")]
    other = packed(others, run=1, known_prompts=first.prompts, beside_others=True)
    same, changed = lines_of(other, 1)
    assert same["same_prompt"] is True
    assert "prompt" not in same
    assert (changed["prompt"], "same_prompt" in changed) == ("another", False)
    assert 'data-run="1"' in other.blocks[0]


@pytest.mark.parametrize(
    ("texts", "shared"),
    [
        (["ex 1\nex 2\nWho?", "ex 1\nex 2\nWhat?"], "ex 1\nex 2\n"), (["Why", "Who"], ""), (["one\ntwo"], ""), ([], ""),
    ],
)  # fmt: skip
def test_what_all_prompts_begin_with_is_no_preview(texts: list[str], shared: str) -> None:
    assert instance_data.common_beginning(texts) == shared


def test_the_table_shows_what_comes_after_the_examples() -> None:
    records = [instance(f"q{at}", 1.0, prompt=f"many examples\nWho is {at}?") for at in range(3)]
    assert [row[9] for row in rows(packed(records))] == ["Who is 0?", "Who is 1?", "Who is 2?"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("one  \n two", "one two"), ("x" * 10, "x" * 10), ("x" * 11, "x" * 9 + "…"), ("xx xx xx xxx", "xx xx xx…"),
        (f"a {REDACTED} and more than ten", f"a {REDACTED}"), (f"{REDACTED}", REDACTED),
        (f"xxxxxxxxxxxx {REDACTED}", "x" * 9 + "…"),
    ],
)  # fmt: skip
def test_the_first_words_of_a_text(text: str, words: str) -> None:
    assert instance_data.first_words(text, 10) == words


def test_ten_thousand_instances_take_less_than_twelve_megabytes() -> None:
    """2.7 kB each, of words that differ from one to the next as those of abstracts do."""
    words = [f"{stem}{end}" for stem in STEMS for end in ("", "s", "ed", "ing", "al", "ity", "ation", "ally")]
    state, total = 12345, 0
    packer = InstancePacker(SHARE)
    for number in range(_CHUNK * 8):
        said: list[str] = []
        letters = 0
        while letters + len(said) < 2_700:
            state = (state * 1103515245 + 12345) % 2**31
            said.append(words[(state >> 8) % len(words) * ((state >> 20) % 97) // 96 % len(words)])
            letters += len(said[-1])
        record = instance(f"q{number}", float(number % 2), prompt=" ".join(said))
        total += len(record.prompt)
        packer.add(instance_line(record), result_line(record))
    made = packer.finish()
    assert total > 2_700 * _CHUNK * 8
    assert sum(map(len, made.blocks)) * 5 < 12_000_000


STEMS = [
    "patient", "hospital", "treat", "measure", "infect", "operat", "diagnos", "clinic", "effect", "control", "random",
    "signific", "group", "compar", "result", "increas", "decreas", "risk", "factor", "surviv", "mortal", "cancer",
    "tumor", "therap", "drug", "dose", "blood", "pressur", "heart", "cardi", "pulmon", "renal", "liver", "hepat",
    "brain", "neur", "child", "adult", "woman", "man", "age", "year", "month", "week", "follow", "outcom", "complicat",
    "surg", "resect", "biops",
]  # fmt: skip


CRITERIA = (
    criterion(4, "not met", "axis:a", "private", text="shared", one=False),
    criterion(2, "met", "axis:b", text="other", one=True),
)


def test_criteria_of_a_rubric_are_in_the_chunks_and_what_they_cost_in_the_index() -> None:
    made = packed([
        instance("a", 0.5, criteria=CRITERIA), instance("b", 1.0, criteria=CRITERIA[1:]),
        instance("c", 0.5, criteria=CRITERIA[:1]), instance("d", None, criteria=CRITERIA[:1]),
    ])  # fmt: skip
    assert [one.label for one in made.lost] == ["axis:a", "private", "shared"]
    assert made.lost[0].times == 2  # not the one whose request failed
    assert lines_of(made, 0)[0]["lost"] == [["axis:a", True], ["private", True], ["shared", False]]
    assert [row[10:] for row in rows(made)] == [["answer to a", [0, 1, 2]], ["answer to b", []],
                                                ["answer to c", [0, 1, 2]], ["", []]]  # fmt: skip
    assert [row[1] for row in lines_of(made, 1)[0]["criteria"]] == ["shared", "other"]
    assert made.counts["criterion_not_met"] == 2
    assert made.counts["criterion_undecided"] == 0


def test_without_texts_only_tags_of_groups_and_numbers_of_criteria_are_packed() -> None:
    made = packed([instance(key, 0.5, criteria=CRITERIA) for key in "ab"], with_texts=False, tags={"axis:a"})
    assert lines_of(made, 0)[0]["lost"] == [["axis:a", True]]
    assert lines_of(made, 1)[0]["criteria"][0] == [1, None, 4, ["axis:a"], "not met", 4, [["one", 0, None]]]
    assert not any(word in readable_page("".join(made.blocks)) for word in ("private", "shared", "other", "words of"))


def test_instances_without_criteria_have_no_column_of_them() -> None:
    made = packed([instance("a", 1.0)])
    assert made.lost == ()
    assert "lost" not in lines_of(made, 0)[0]
    assert len(rows(made)[0]) == 11
    assert "criteria" not in lines_of(made, 1)[0]
