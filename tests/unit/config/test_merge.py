from __future__ import annotations

from eval_factory.config.merge import Source, merge

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
        [(Source.FRAMEWORK, FRAMEWORK), (Source.FILE, {"a": {"x": 2}, "b": None}), (Source.OVERRIDE, {"a": {"x": None}})]
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
