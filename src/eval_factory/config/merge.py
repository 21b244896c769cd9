"""Merges the layers of a configuration, and records the layer from which each value came."""

from __future__ import annotations

import enum
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from typing import Any


class Source(str, enum.Enum):
    """The layer in which a value was written, from the weakest layer to the strongest."""

    FRAMEWORK = "framework default"
    TASK = "task default"
    FILE = "run config"
    FLAG = "flag"
    OVERRIDE = "--overrides"


_DEFAULT_SOURCES = (Source.FRAMEWORK, Source.TASK)
"""The layers with defaults. All other layers are the user's."""
ValueSources = dict[str, Source]  # the dotted path of a value -> the layer that set the value
Layer = tuple[Source, dict[str, Any]]  # the kind of the layer, and its tree of values
KeyPath = tuple[Any, ...]  # the names of the sections, the outermost first, then the value's name
# The path of a leaf -> its value and its layer. The layer is None if a null removed the value.
_Leaves = dict[KeyPath, tuple[Any, Source | None]]


def is_credential(name: str) -> bool:
    """Return True if a configuration key names the variable of an API key.

    For such a key, null does not mean the default. It means that no API key is sent.
    """
    return name.removesuffix("_name").endswith("api_key")


def leaves_by_path(tree: Mapping[Any, Any], parent_path: KeyPath = ()) -> dict[KeyPath, Any]:
    """Return the leaves of a tree by their paths. An empty mapping is a leaf too."""
    leaf_by_path: dict[KeyPath, Any] = {}
    for name, value in tree.items():
        path = (*parent_path, name)
        if isinstance(value, Mapping) and value:
            leaf_by_path |= leaves_by_path(value, path)
        else:
            leaf_by_path[path] = value
    return leaf_by_path


def set_at_path(tree: dict[Any, Any], path: Sequence[Any], value: Any) -> None:
    """Set the value at a path in a tree. Missing sections on the path are added.

    A value on the path that is not a section is replaced by a section.
    """
    for name in path[:-1]:
        if not isinstance(tree.get(name), dict):
            tree[name] = {}
        tree = tree[name]
    tree[path[-1]] = value


def section_at(tree: Any, path: Iterable[Any]) -> dict[Any, Any]:
    """Return the mapping at a path; an empty mapping if the path leads to no mapping."""
    for name in path:
        tree = tree.get(name) if isinstance(tree, dict) else None
    if not isinstance(tree, dict):
        return {}
    return tree


def with_defaults(
    defaults: Mapping[str, Any], *sections: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Return the defaults, overwritten by the values of the sections.

    For each key, the strongest section with the key decides. A null there means the default.

    Args:
        defaults: the default of every key.
        sections: the sections, the strongest last; None is an empty section.
    """
    merged: dict[str, Any] = {}
    for section in sections:
        merged |= section or {}
    return {**defaults, **{key: value for key, value in merged.items() if value is not None}}


def merge(layers: Sequence[Layer]) -> tuple[dict[str, Any], ValueSources]:
    """Merge layers. A later layer overwrites earlier layers.

    A null means the default: it cancels the values of weaker user layers, so that the framework's
    default applies. A null for a credential stays null, because the default would send an API key
    to a host that should get no key.

    Returns:
        The merged tree, and the layer from which each leaf came, by the leaf's dotted path.
    """
    merged: _Leaves = {}
    defaults: _Leaves = {}
    for source, tree in layers:  # the layers with defaults come first
        for path, value in leaves_by_path(tree).items():
            if source not in _DEFAULT_SOURCES and _means_default(path, value):
                # Without a default, the null leaves neither a value nor a layer.
                new = _leaves_at(defaults, path) or {path: (None, None)}
            elif value == {} and _is_section_or_missing(merged, path):
                # An empty mapping adds nothing to a section, so the leaves of the section stay.
                new = _leaves_at(merged, path) or {path: (value, source)}
            else:
                new = {path: (value, source)}
            _remove_related(merged, path, stay=new)
            merged |= new
        if source in _DEFAULT_SOURCES:
            defaults = dict(merged)
    complete: dict[str, Any] = {}
    sources: ValueSources = {}
    for path, (value, value_source) in merged.items():
        set_at_path(complete, path, deepcopy(value))
        if value_source is not None:
            sources[".".join(map(str, path))] = value_source
    return complete, sources


def _means_default(path: KeyPath, value: Any) -> bool:
    """Return True if a user's value stands for the default: a null, but not for a credential."""
    return value is None and not is_credential(str(path[-1]))


def _is_section_or_missing(merged: _Leaves, path: KeyPath) -> bool:
    """Return True if the merged tree has a mapping at a path, or nothing.

    `merged` has no entry for a mapping with leaves: it has the leaves. It has an entry for an empty
    mapping, which is a leaf itself.
    """
    if path not in merged:
        return True
    value, _ = merged[path]
    return bool(value == {})


def _remove_related(leaf_by_path: _Leaves, path: KeyPath, stay: _Leaves) -> None:
    """Remove the leaves at, above and below a path, except leaves whose path is in `stay`.

    A new value replaces the section below its path. A new value within a section replaces the value
    that was at the path of the section.
    """
    for leaf_path in list(leaf_by_path):
        # Cut to the length of the shorter path, the two paths are equal if one contains the other.
        is_related = leaf_path[: len(path)] == path[: len(leaf_path)]
        if is_related and leaf_path not in stay:
            del leaf_by_path[leaf_path]


def _leaves_at(leaf_by_path: _Leaves, path: KeyPath) -> _Leaves:
    """Return the leaf at a path, or all leaves below the path."""
    selected: _Leaves = {}
    for leaf_path, leaf in leaf_by_path.items():
        if leaf_path[: len(path)] == path:
            selected[leaf_path] = leaf
    return selected
