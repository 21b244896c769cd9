from __future__ import annotations

import copy
from itertools import chain
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.config.merge import Source, merge

FRAMEWORK, TASK, FILE, FLAG, OVERRIDE = Source


@pytest.mark.parametrize(
    ("layers", "merged", "sources"),
    [
        # later layers win
        (
            {
                FRAMEWORK: {"a": {"x": 1, "y": None}, "b": 5},
                FILE: {"a": {"x": 2}},
                FLAG: {"a": {"x": 3}, "c": 1},
            },
            {"a": {"x": 3, "y": None}, "b": 5, "c": 1},
            {"a.x": FLAG, "a.y": FRAMEWORK, "b": FRAMEWORK, "c": FLAG},
        ),
        (
            {FRAMEWORK: {"a": 1, "b": "x"}, FILE: {"a": 0, "b": ""}},
            {"a": 0, "b": ""},
            {"a": FILE, "b": FILE},
        ),
        ({FRAMEWORK: {"a": {"x": 1}}, FILE: {"a": "text"}}, {"a": "text"}, {"a": FILE}),
        (
            {FRAMEWORK: {"a": 5, "l": [1]}, FILE: {"a": {"x": 1}, "l": {"y": 2}}},
            {"a": {"x": 1}, "l": {"y": 2}},
            {"a.x": FILE, "l.y": FILE},
        ),
        (
            {FRAMEWORK: {"a": 1, "ab": {"x": 2}, "b": {"a": 3}}, FILE: {"a": {"y": 4}}},
            {"a": {"y": 4}, "ab": {"x": 2}, "b": {"a": 3}},
            {"a.y": FILE, "ab.x": FRAMEWORK, "b.a": FRAMEWORK},
        ),
        # an empty mapping is a leaf until something is in it
        ({FRAMEWORK: {"a": {}}}, {"a": {}}, {"a": FRAMEWORK}),
        ({FRAMEWORK: {"a": {}}, FILE: {"a": {"x": 1}}}, {"a": {"x": 1}}, {"a.x": FILE}),
        ({FRAMEWORK: {"a": {"x": 1}}, FILE: {"a": {}}}, {"a": {"x": 1}}, {"a.x": FRAMEWORK}),
        # a null of the user's means the default, the task's where it has one, and only of what it names
        *(
            ({FRAMEWORK: {"a": 1}, source: {"a": None}}, {"a": 1}, {"a": FRAMEWORK})
            for source in (FILE, FLAG, OVERRIDE)
        ),
        (
            {
                FRAMEWORK: {"a": {"x": 1}, "b": 5},
                FILE: {"a": {"x": 2}, "b": None},
                OVERRIDE: {"a": {"x": None}},
            },
            {"a": {"x": 1}, "b": 5},
            {"a.x": FRAMEWORK, "b": FRAMEWORK},
        ),
        ({FRAMEWORK: {"x": 1}, TASK: {"x": 2}, FILE: {"x": None}}, {"x": 2}, {"x": TASK}),
        (
            {
                FRAMEWORK: {"a": {"x": 1}, "ab": 2},
                FILE: {"a": {"x": 5}, "ab": 6},
                FLAG: {"a": None},
            },
            {"a": {"x": 1}, "ab": 6},
            {"a.x": FRAMEWORK, "ab": FILE},
        ),
        (
            {FRAMEWORK: {"a": {}}, FILE: {"a": {"mine": 1}}, OVERRIDE: {"a": None}},
            {"a": {}},
            {"a": FRAMEWORK},
        ),
        (
            {
                FRAMEWORK: {"a": {"x": 1}, "x": 2, "b": {"c": {"x": 3}}},
                FILE: {"a": {"x": 7}, "x": 8, "b": {"c": {"x": 9}}},
                FLAG: {"b": {"c": {"x": None}}},
            },
            {"a": {"x": 7}, "x": 8, "b": {"c": {"x": 3}}},
            {"a.x": FILE, "x": FILE, "b.c.x": FRAMEWORK},
        ),
        # what is written into a restored default does not change the default
        (
            {
                FRAMEWORK: {"a": {"x": 1, "deep": {"y": 2}}},
                FILE: {"a": None},
                FLAG: {"a": {"x": 3, "deep": {"y": 4}}},
                OVERRIDE: {"a": {"x": None, "deep": None}},
            },
            {"a": {"x": 1, "deep": {"y": 2}}},
            {"a.x": FRAMEWORK, "a.deep.y": FRAMEWORK},
        ),
        # a default of nothing is a default: what stood there before it does not come back
        ({FRAMEWORK: {"x": None}}, {"x": None}, {"x": FRAMEWORK}),
        ({FRAMEWORK: {"x": 1}, TASK: {"x": None}}, {"x": None}, {"x": TASK}),
        (
            {
                FRAMEWORK: {"a": {"x": 1}},
                TASK: {"a": {"x": None}},
                FILE: {"a": {"x": 5}},
                FLAG: {"a": {"x": None}},
            },
            {"a": {"x": None}},
            {"a.x": TASK},
        ),
        (
            {
                FRAMEWORK: {"a": {"x": 1}, "b": 2},
                TASK: {"a": 3, "b": {"y": 4}},
                FILE: {"a": {"mine": 5}, "b": 6},
                FLAG: {"a": None, "b": None},
            },
            {"a": 3, "b": {"y": 4}},
            {"a": TASK, "b.y": TASK},
        ),
        # where there is no default, a null is kept for the model to refuse
        (
            {FRAMEWORK: {"a": 1}, FILE: {"unknown": None, "s": {"u": None}}},
            {"a": 1, "unknown": None, "s": {"u": None}},
            {"a": FRAMEWORK},
        ),
        (
            {FRAMEWORK: {"a": 5}, FILE: {"a": {"x": None, "y": {"z": None}}}},
            {"a": {"x": None, "y": {"z": None}}},
            {},
        ),
        # YAML has numbers for keys; the model refuses them by their path
        ({FILE: {1: "a", "b": {2: "c"}}}, {1: "a", "b": {2: "c"}}, {"1": FILE, "b.2": FILE}),
    ],
)
def test_layers_are_merged_and_every_value_knows_its_own(
    layers: dict[Source, Any], merged: Any, sources: dict[str, Source]
) -> None:
    assert merge(list(layers.items())) == (merged, sources)


def test_layers_are_named_as_users_know_them() -> None:
    assert [source.value for source in Source] == [
        "framework default",
        "task default",
        "run config",
        "flag",
        "--overrides",
    ]


_ITEMS = st.integers(0, 3) | st.dictionaries(
    st.just("x"), st.lists(st.integers(0, 3), max_size=1), max_size=1
)
_LEAVES = st.none() | st.integers(0, 3) | st.just("") | st.lists(_ITEMS, max_size=2)
_TREES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), _LEAVES, max_size=3),
    lambda children: st.dictionaries(st.sampled_from("abc"), children | _LEAVES, max_size=3),
    max_leaves=6,
)


@given(_TREES, _TREES)
def test_a_layer_over_itself_changes_nothing(
    framework: dict[str, Any], user: dict[str, Any]
) -> None:
    """And no layer is changed."""
    before = copy.deepcopy((framework, user))
    once, sources = merge([(FRAMEWORK, framework), (FILE, user)])
    assert merge([(FRAMEWORK, framework), (FILE, user), (FILE, user)]) == (once, sources)
    merge([(FRAMEWORK, framework), (FILE, user), (FLAG, dict.fromkeys(user))])
    assert (framework, user) == before


def _containers(tree: Any) -> dict[int, Any]:
    """Every mapping and list in a tree, by its identity."""
    if not isinstance(tree, (dict, list)):
        return {}
    inner = tree.values() if isinstance(tree, dict) else tree
    return {id(tree): tree} | dict(chain.from_iterable(_containers(item).items() for item in inner))


@given(_TREES, _TREES, _TREES)
def test_the_merged_tree_shares_nothing_with_its_layers(
    framework: dict[str, Any], task: dict[str, Any], user: dict[str, Any]
) -> None:
    layers = [(FRAMEWORK, framework), (TASK, task), (FILE, user)]
    taken_back = (FLAG, dict.fromkeys({**framework, **task, **user}))
    for merged, _ in (merge(layers), merge([*layers, taken_back])):
        assert not _containers(merged).keys() & _containers([framework, task, user]).keys()


@pytest.mark.parametrize("name", ["api_key", "gpt_judge_api_key"])
def test_a_null_of_a_credential_is_no_default(name: str) -> None:
    """The default would send a key where the user wants to send none."""
    framework = (FRAMEWORK, {name: "OPENAI_API_KEY"})
    file = (FILE, {name: "MINE"})
    override = (OVERRIDE, {name: None})
    assert merge([framework, file, override]) == ({name: None}, {name: OVERRIDE})
    assert merge([framework, (FILE, {name: None})]) == ({name: None}, {name: FILE})
    assert merge([framework, override, (FLAG, {name: "MINE"})])[0] == {name: "MINE"}
    assert merge([framework, (FILE, {})])[0] == {name: "OPENAI_API_KEY"}
    assert merge([(FRAMEWORK, {"api_keys": 1}), (FILE, {"api_keys": None})])[0] == {"api_keys": 1}
