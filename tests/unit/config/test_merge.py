from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.config.merge import Layer, Source, merge

FRAMEWORK = {"a": {"x": 1, "y": None, "z": 0}, "b": 5}


def test_later_layers_win_and_are_remembered() -> None:
    merged, sources = merge(
        [(Source.FRAMEWORK, FRAMEWORK), (Source.FILE, {"a": {"x": 2}}), (Source.FLAG, {"a": {"x": 3}, "c": 1})]
    )
    assert merged == {"a": {"x": 3, "y": None, "z": 0}, "b": 5, "c": 1}
    assert sources["a.x"] is Source.FLAG
    assert sources["b"] is Source.FRAMEWORK


def test_null_means_the_default() -> None:
    merged, sources = merge(
        [
            (Source.FRAMEWORK, FRAMEWORK),
            (Source.FILE, {"a": {"x": 2}, "b": None}),
            (Source.OVERRIDE, {"a": {"x": None}}),
        ]
    )
    assert merged["a"]["x"] == 1
    assert merged["b"] == 5
    assert sources["a.x"] is Source.FRAMEWORK


def test_null_section_restores_the_whole_default() -> None:
    merged, sources = merge([(Source.FRAMEWORK, FRAMEWORK), (Source.FILE, {"a": {"x": 9}}), (Source.FLAG, {"a": None})])
    assert merged["a"] == FRAMEWORK["a"]
    assert sources["a.x"] is Source.FRAMEWORK


def test_explicit_empty_values_are_kept() -> None:
    merged, _ = merge([(Source.FRAMEWORK, {"a": 1, "b": "x"}), (Source.FILE, {"a": 0, "b": ""})])
    assert merged == {"a": 0, "b": ""}


def test_layers_are_not_changed() -> None:
    layer = {"a": {"x": 2}}
    merged, _ = merge([(Source.FRAMEWORK, FRAMEWORK), (Source.FILE, layer)])
    merged["a"]["x"] = 99
    assert layer == {"a": {"x": 2}}
    assert FRAMEWORK["a"] == {"x": 1, "y": None, "z": 0}


def test_a_scalar_over_a_mapping_replaces_it() -> None:
    merged, sources = merge([(Source.FRAMEWORK, FRAMEWORK), (Source.FILE, {"a": "text"})])
    assert merged["a"] == "text"
    assert "a.x" not in sources


def test_null_takes_back_what_the_task_said_for_the_default_of_the_task() -> None:
    """The weaker of two defaults does not come back: the task's is the default that the user sees."""
    merged, sources = merge([(Source.FRAMEWORK, {"x": 1}), (Source.TASK, {"x": 2}), (Source.FILE, {"x": None})])
    assert (merged["x"], sources["x"]) == (2, Source.TASK)


def test_null_in_the_defaults_is_a_value() -> None:
    merged, sources = merge([(Source.FRAMEWORK, {"x": 1}), (Source.TASK, {"x": None})])
    assert merged == {"x": None}
    assert sources == {"x": Source.TASK}
    assert merge([(Source.FRAMEWORK, {"x": None})]) == ({"x": None}, {"x": Source.FRAMEWORK})


def test_layers_are_named_as_users_know_them() -> None:
    assert [source.value for source in Source] == [
        "framework default",
        "task default",
        "run config",
        "flag",
        "--overrides",
    ]


def test_null_where_there_is_no_default_is_kept_for_the_model_to_refuse() -> None:
    merged, sources = merge([(Source.FRAMEWORK, {"a": 1}), (Source.FILE, {"unknown": None, "s": {"u": None}})])
    assert merged == {"a": 1, "unknown": None, "s": {"u": None}}
    assert sources == {"a": Source.FRAMEWORK}


def test_null_after_a_mapping_forgets_its_sources() -> None:
    merged, sources = merge(
        [(Source.FRAMEWORK, {"a": {}}), (Source.FILE, {"a": {"mine": 1}}), (Source.OVERRIDE, {"a": None})]
    )
    assert merged == {"a": {}}
    assert sources == {"a": Source.FRAMEWORK}


def test_null_restores_only_what_it_names() -> None:
    merged, sources = merge(
        [
            (Source.FRAMEWORK, {"a": {"x": 1}, "ab": 2}),
            (Source.FILE, {"a": {"x": 5}, "ab": 6}),
            (Source.FLAG, {"a": None}),
        ]
    )
    assert merged == {"a": {"x": 1}, "ab": 6}
    assert sources == {"a.x": Source.FRAMEWORK, "ab": Source.FILE}


def test_a_mapping_over_a_scalar_replaces_it() -> None:
    """A list of judges, say, is replaced whole; nothing of what was there stays, its source neither."""
    merged, sources = merge([(Source.FRAMEWORK, {"a": 5, "l": [1]}), (Source.FILE, {"a": {"x": 1}, "l": {"y": 2}})])
    assert merged == {"a": {"x": 1}, "l": {"y": 2}}
    assert sources == {"a.x": Source.FILE, "l.y": Source.FILE}


def test_restored_defaults_are_copies() -> None:
    """Whoever changes the merged tree changes no default: the framework is read once for many runs."""
    framework = {"list": [{"x": 1}], "section": {"deep": [1]}}
    merged, _ = merge(
        [
            (Source.FRAMEWORK, framework),
            (Source.FILE, {"list": [], "section": {"deep": []}}),
            (Source.FLAG, {"list": None, "section": None}),
        ]
    )
    merged["list"][0]["x"] = 9
    merged["section"]["deep"].append(2)
    assert framework == {"list": [{"x": 1}], "section": {"deep": [1]}}


def test_an_empty_mapping_is_a_leaf_until_something_is_in_it() -> None:
    assert merge([(Source.FRAMEWORK, {"a": {}})])[1] == {"a": Source.FRAMEWORK}
    assert merge([(Source.FRAMEWORK, {"a": {}}), (Source.FILE, {"a": {"x": 1}})])[1] == {"a.x": Source.FILE}
    assert merge([(Source.FRAMEWORK, {"a": {"x": 1}}), (Source.FILE, {"a": {}})])[1] == {"a.x": Source.FRAMEWORK}


_ITEMS = st.integers(0, 3) | st.dictionaries(st.just("x"), st.lists(st.integers(0, 3), max_size=1), max_size=1)
_LEAVES = st.none() | st.integers(0, 3) | st.just("") | st.lists(_ITEMS, max_size=2)
_TREES = st.recursive(
    st.dictionaries(st.sampled_from("abc"), _LEAVES, max_size=3),
    lambda children: st.dictionaries(st.sampled_from("abc"), children | _LEAVES, max_size=3),
    max_leaves=6,
)


def _without_nulls(tree: Any) -> Any:
    if not isinstance(tree, dict):
        return tree
    return {key: _without_nulls(value) for key, value in tree.items() if value is not None}


@given(_TREES, _TREES)
def test_a_layer_over_itself_changes_nothing(framework: dict[str, Any], user: dict[str, Any]) -> None:
    once, sources = merge([(Source.FRAMEWORK, framework), (Source.FILE, user)])
    assert merge([(Source.FRAMEWORK, framework), (Source.FILE, user), (Source.FILE, user)]) == (once, sources)


@given(_TREES, _TREES)
def test_every_value_that_a_user_writes_is_there(framework: dict[str, Any], user: dict[str, Any]) -> None:
    merged, sources = merge([(Source.FRAMEWORK, framework), (Source.FILE, user)])
    _assert_holds(merged, _without_nulls(user))
    assert all(source in (Source.FRAMEWORK, Source.FILE) for source in sources.values())


def _assert_holds(merged: Any, written: dict[str, Any]) -> None:
    for key, value in written.items():
        if isinstance(value, dict):
            _assert_holds(merged[key], value)
        else:
            assert merged[key] == value


@given(_TREES, _TREES)
def test_all_that_a_user_says_can_be_taken_back(framework: dict[str, Any], user: dict[str, Any]) -> None:
    taken_back = dict.fromkeys(framework)
    known = {key: value for key, value in user.items() if key in framework}
    layers = [(Source.FRAMEWORK, framework), (Source.FILE, known), (Source.OVERRIDE, taken_back)]
    assert merge(layers) == merge([(Source.FRAMEWORK, framework)])


@given(_TREES, _TREES)
def test_merging_changes_no_layer(framework: dict[str, Any], user: dict[str, Any]) -> None:
    before = copy.deepcopy((framework, user))
    merge([(Source.FRAMEWORK, framework), (Source.FILE, user), (Source.FLAG, dict.fromkeys(user))])
    assert (framework, user) == before


def test_null_takes_back_a_default_that_the_task_has_taken_back() -> None:
    """A default of nothing is a default: what stood there before it does not come back."""
    layers: list[Layer] = [
        (Source.FRAMEWORK, {"a": {"x": 1}}),
        (Source.TASK, {"a": {"x": None}}),
        (Source.FILE, {"a": {"x": 5}}),
    ]
    merged, sources = merge([*layers, (Source.FLAG, {"a": {"x": None}})])
    assert (merged, sources) == ({"a": {"x": None}}, {"a.x": Source.TASK})


def test_null_does_not_bring_back_a_part_of_a_default_that_the_task_replaced() -> None:
    """A mapping of the framework's for which the task has a scalar, and the other way round."""
    replaced: list[Layer] = [(Source.FRAMEWORK, {"a": {"x": 1}, "b": 2}), (Source.TASK, {"a": 3, "b": {"y": 4}})]
    user: list[Layer] = [(Source.FILE, {"a": {"mine": 5}, "b": 6}), (Source.FLAG, {"a": None, "b": None})]
    assert merge([*replaced, *user]) == ({"a": 3, "b": {"y": 4}}, {"a": Source.TASK, "b.y": Source.TASK})


def test_null_below_a_default_that_is_no_mapping_is_kept_for_the_model_to_refuse() -> None:
    merged, sources = merge([(Source.FRAMEWORK, {"a": 5}), (Source.FILE, {"a": {"x": None, "y": {"z": None}}})])
    assert merged == {"a": {"x": None, "y": {"z": None}}}
    assert sources == {}


def test_a_null_of_the_user_is_no_null_of_the_default_with_the_same_name_elsewhere() -> None:
    merged, sources = merge(
        [
            (Source.FRAMEWORK, {"a": {"x": 1}, "x": 2, "b": {"c": {"x": 3}}}),
            (Source.FILE, {"a": {"x": 7}, "x": 8, "b": {"c": {"x": 9}}}),
            (Source.FLAG, {"b": {"c": {"x": None}}}),
        ]
    )
    assert merged == {"a": {"x": 7}, "x": 8, "b": {"c": {"x": 3}}}
    assert sources == {"a.x": Source.FILE, "x": Source.FILE, "b.c.x": Source.FRAMEWORK}


def test_what_is_written_into_a_restored_default_does_not_change_the_default() -> None:
    """The file takes the section back, a flag says something in it, and --overrides take that back again."""
    merged, sources = merge(
        [
            (Source.FRAMEWORK, {"a": {"x": 1, "deep": {"y": 2}}}),
            (Source.FILE, {"a": None}),
            (Source.FLAG, {"a": {"x": 3, "deep": {"y": 4}}}),
            (Source.OVERRIDE, {"a": {"x": None, "deep": None}}),
        ]
    )
    assert merged == {"a": {"x": 1, "deep": {"y": 2}}}
    assert sources == {"a.x": Source.FRAMEWORK, "a.deep.y": Source.FRAMEWORK}


def test_each_of_the_users_layers_may_take_back() -> None:
    for source in (Source.FILE, Source.FLAG, Source.OVERRIDE):
        merged, sources = merge([(Source.FRAMEWORK, {"a": 1}), (Source.FILE, {"a": 2}), (source, {"a": None})])
        assert (merged, sources) == ({"a": 1}, {"a": Source.FRAMEWORK})


def test_keys_that_are_no_text_have_paths_of_text() -> None:
    """YAML has numbers for keys; the model refuses them by their path."""
    merged, sources = merge([(Source.FRAMEWORK, {}), (Source.FILE, {1: "a", "b": {2: "c"}})])  # type: ignore[dict-item]
    assert merged == {1: "a", "b": {2: "c"}}
    assert sources == {"1": Source.FILE, "b.2": Source.FILE}


def test_a_mapping_over_a_mapping_of_the_same_name_forgets_no_neighbour() -> None:
    """Neither a name that begins alike nor a longer path."""
    merged, sources = merge(
        [(Source.FRAMEWORK, {"a": 1, "ab": {"x": 2}, "b": {"a": 3}}), (Source.FILE, {"a": {"y": 4}})]
    )
    assert merged == {"a": {"y": 4}, "ab": {"x": 2}, "b": {"a": 3}}
    assert sources == {"a.y": Source.FILE, "ab.x": Source.FRAMEWORK, "b.a": Source.FRAMEWORK}


def _containers(tree: Any) -> dict[int, Any]:
    """Every mapping and list in a tree, by its identity."""
    if not isinstance(tree, (dict, list)):
        return {}
    inner = tree.values() if isinstance(tree, dict) else tree
    return {id(tree): tree} | {number: found for item in inner for number, found in _containers(item).items()}


@given(_TREES, _TREES, _TREES)
def test_the_merged_tree_shares_nothing_with_its_layers(
    framework: dict[str, Any], task: dict[str, Any], user: dict[str, Any]
) -> None:
    layers = [(Source.FRAMEWORK, framework), (Source.TASK, task), (Source.FILE, user)]
    taken_back = (Source.FLAG, dict.fromkeys({**framework, **task, **user}))
    for merged, _ in (merge(layers), merge([*layers, taken_back])):
        assert not _containers(merged).keys() & _containers([framework, task, user]).keys()


@given(_TREES, _TREES, _TREES)
def test_every_leaf_has_one_source_and_nothing_else_has(
    framework: dict[str, Any], task: dict[str, Any], user: dict[str, Any]
) -> None:
    merged, sources = merge([(Source.FRAMEWORK, framework), (Source.TASK, task), (Source.FILE, user)])
    leaves = _leaves(merged)
    assert sources.keys() <= leaves.keys()
    assert all(leaves[path] is None for path in leaves.keys() - sources.keys() if leaves[path] != {})


def _leaves(tree: dict[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, value in tree.items():
        path = f"{prefix}{key}"
        found |= _leaves(value, f"{path}.") if isinstance(value, dict) and value else {path: value}
    return found


@pytest.mark.parametrize("name", ["api_key", "gpt_judge_api_key"])
def test_a_null_of_a_credential_is_no_default(name: str) -> None:
    """The default would send a key where the user wants to send none."""
    framework = (Source.FRAMEWORK, {name: "OPENAI_API_KEY"})
    file, override = (Source.FILE, {name: "MINE"}), (Source.OVERRIDE, {name: None})
    assert merge([framework, file, override]) == ({name: None}, {name: Source.OVERRIDE})
    assert merge([framework, (Source.FILE, {name: None})]) == ({name: None}, {name: Source.FILE})
    assert merge([framework, override, (Source.FLAG, {name: "MINE"})])[0] == {name: "MINE"}
    assert merge([framework, (Source.FILE, {})])[0] == {name: "OPENAI_API_KEY"}
    assert merge([(Source.FRAMEWORK, {"api_keys": 1}), (Source.FILE, {"api_keys": None})])[0] == {"api_keys": 1}
