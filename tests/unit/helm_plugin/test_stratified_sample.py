"""Which instances are drawn with `extra.sample_seed`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.core.helm_run_settings import SampleSettings
from eval_factory.helm.output import Instance
from eval_factory.helm_plugin.stratified_sample import (
    in_rank_order,
    shares_of,
    stratified_sample,
    stratifying_field,
)

SIZES = {"heart": 60, "lung": 30, "skin": 9, "eye": 1}
SETTINGS = SampleSettings(7)


def instance(
    number: int, text: str | None = None, sub_split: str | None = None, **fields: object
) -> Instance:
    record = {
        "id": f"id{number}",
        "input": {"text": text or f"Question {number}?"},
        "sub_split": sub_split,
    }
    return Instance.model_validate({**record, "extra_data": fields})


def questions() -> list[Instance]:
    topics = list(Counter(SIZES).elements())
    return [instance(number, topic=topic, row=str(number)) for number, topic in enumerate(topics)]


def ids(sample: Sequence[Instance]) -> list[str]:
    return [one.id for one in sample]


def test_each_group_is_there_in_proportion_and_a_small_one_once() -> None:
    drawn = stratified_sample(questions(), 20, SETTINGS)
    topics = [one.extra_data["topic"] for one in drawn if one.extra_data]
    assert Counter(topics) == {"heart": 11, "lung": 6, "skin": 2, "eye": 1}
    assert len(set(ids(drawn))) == 20
    assert len(set(topics[:10])) > 1, "a run that a limit stops has asked of several"


def test_the_order_of_the_data_does_not_matter_nor_do_ids_that_are_places() -> None:
    there = questions()
    drawn = stratified_sample(there, 20, SETTINGS)
    mixed = sorted(there, key=lambda one: one.id[::-1])
    assert ids(stratified_sample(mixed, 20, SETTINGS)) == ids(drawn)
    renamed = [one.model_copy(update={"id": f"id{place}"}) for place, one in enumerate(mixed)]
    again = stratified_sample(renamed, 20, SETTINGS)
    assert [one.input.text for one in again] == [one.input.text for one in drawn]


def test_one_order_of_all_whatever_groups_they_are_in() -> None:
    there = questions()
    order = ids(in_rank_order(there, 7))
    assert sorted(order) == sorted(ids(there))
    assert order != ids(there) != ids(in_rank_order(there, 8)) != order
    assert order == ids(in_rank_order(there[::-1], 7))


def test_one_question_about_many_pictures_does_not_come_sorted_by_its_answers() -> None:
    shown = [
        SimpleNamespace(media_objects=[SimpleNamespace(text=None, location=f"/x/{n}")])
        for n in range(20)
    ]
    asked = [SimpleNamespace(text="Red?", multimedia_content=one) for one in shown]
    rows = [SimpleNamespace(id=f"{n:02}", references=[], input=one) for n, one in enumerate(asked)]
    assert in_rank_order(rows, 1) != rows


def test_another_seed_is_another_sample_and_a_greater_one_holds_the_smaller() -> None:
    there = questions()
    assert set(ids(stratified_sample(there, 20, SampleSettings(8)))) != set(
        ids(stratified_sample(there, 20, SETTINGS))
    )
    samples = [set(ids(stratified_sample(there, size, SETTINGS))) for size in (10, 20, 40, 80, 99)]
    assert all(smaller < greater for smaller, greater in pairwise(samples))
    plain = [instance(number) for number in range(50)]
    ranked = ids(stratified_sample(plain, 49, SETTINGS))
    assert all(
        ids(stratified_sample(plain, size, SETTINGS)) == ranked[:size] for size in range(1, 49)
    )


def test_rows_of_one_text_are_told_apart_by_their_answers_and_then_by_their_ids() -> None:
    same = [instance(number, "Which?") for number in range(6)]
    assert ids(stratified_sample(same[::-1], 3, SETTINGS)) == ["id0", "id1", "id2"]
    answers = [
        [{"output": {"text": one}} for one in texts]
        for texts in ("ab", "cd", "ef", "gh", "ij", "kl")
    ]
    record = {"id": "x", "input": {"text": "Which?"}}
    texts = [Instance.model_validate({**record, "references": one}) for one in answers]
    turned = [Instance.model_validate({**record, "references": one[::-1]}) for one in answers]
    drawn, again = (stratified_sample(of, 3, SETTINGS) for of in (texts, turned[::-1]))
    assert [{r.output.text for r in one.references} for one in drawn] == [
        {r.output.text for r in one.references} for one in again
    ]


def test_the_field() -> None:
    there = questions()
    assert stratifying_field(there, None) == "topic", "row has too many values"
    assert stratifying_field(there, "topic") is None, "it names what instances share"
    assert (
        stratifying_field([instance(n, topic="a", place="ab"[n % 2]) for n in range(9)], None)
        == "place"
    )
    two = [
        instance(n, kind="ab"[n % 2], sub_split="xy"[n % 2], topic="cd"[n % 2]) for n in range(9)
    ]
    assert stratifying_field(two, None) == "sub_split"
    assert (
        stratifying_field([one.model_copy(update={"sub_split": "x"}) for one in two], None)
        == "kind"
    )
    assert stratifying_field([], None) is None


def test_instances_without_a_value_are_a_group() -> None:
    there = [instance(n, **({"topic": "ab"[n % 2]} if n < 20 else {})) for n in range(40)]
    drawn = stratified_sample(there, 8, SETTINGS)
    assert Counter((one.extra_data or {}).get("topic") for one in drawn) == {
        "a": 2,
        "b": 2,
        None: 4,
    }


@pytest.mark.parametrize(
    ("sizes", "size", "expected"),
    [
        ({"a": 50, "b": 30, "c": 20}, 10, {"a": 5, "b": 3, "c": 2}),
        ({"a": 61, "b": 39}, 10, {"a": 6, "b": 4}),
        ({"a": 97, "b": 2, "c": 1}, 10, {"a": 8, "b": 1, "c": 1}),
        ({"a": 97, "b": 2, "c": 1}, 3, {"a": 1, "b": 1, "c": 1}),
        ({"a": 97, "b": 2, "c": 1}, 2, {"a": 2, "b": 0, "c": 0}),
        ({"": 9}, 4, {"": 4}),
    ],
)
def test_shares(sizes: dict[str, int], size: int, expected: dict[str, int]) -> None:
    assert shares_of(sizes, size, 0) == expected


def test_of_equal_groups_the_seed_says_which_go_without() -> None:
    equal = dict.fromkeys("abcdef", 5)
    assert (
        len(
            {
                tuple(name for name, share in shares_of(equal, 3, seed).items() if share)
                for seed in range(20)
            }
        )
        > 5
    )


@given(st.dictionaries(st.text(), st.integers(1, 500), min_size=1, max_size=70), st.data())
def test_shares_add_up_and_nobody_gives_more_than_there_is(
    sizes: dict[str, int], data: st.DataObject
) -> None:
    total = sum(sizes.values())
    size = data.draw(st.integers(1, total))
    shares = shares_of(sizes, size, 3)
    assert sum(shares.values()) == size
    assert shares.keys() == sizes.keys()
    assert all(0 <= share <= sizes[name] for name, share in shares.items())
    if size >= len(sizes):
        assert min(shares.values()) >= 1
    assert all(
        share < sizes[name] * size / total + 1 or share == 1 for name, share in shares.items()
    )
