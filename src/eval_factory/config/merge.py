"""One merge function, and every value knows where it came from."""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import Any


class Source(str, enum.Enum):
    """Where a value was written, weakest first."""

    FRAMEWORK = "framework default"
    TASK = "task default"
    FILE = "run config"
    FLAG = "flag"
    OVERRIDE = "--overrides"


ValueSources = dict[str, Source]
Layer = tuple[Source, dict[str, Any]]


def is_credential(name: str) -> bool:
    """Whether a key names the variable of an API key. A null of it is a value: no key is sent, and not the default."""
    return name.removesuffix("_name").endswith("api_key")


def merge(layers: Sequence[Layer]) -> tuple[dict[str, Any], ValueSources]:
    """Merge mappings, the later over the earlier.

    A null means 'the default': it takes back what weaker layers of the user said and leaves the framework's value.
    That of a credential stays: the default would send a key to a host that the user wants to send none to.
    Returns the merged tree and, for each leaf's dotted path, the layer that decided it.
    """
    merged: dict[str, Any] = {}
    sources: ValueSources = {}
    defaults: dict[str, Any] = {}
    default_sources: ValueSources = {}
    for source, tree in layers:
        is_default = source in (Source.FRAMEWORK, Source.TASK)
        _merge_into(merged, sources, tree, source, "", defaults, default_sources)
        if is_default:
            _merge_into(defaults, default_sources, tree, source, "", {}, {})
    return merged, sources


def _merge_into(
    target: dict[str, Any],
    sources: ValueSources,
    tree: dict[str, Any],
    source: Source,
    prefix: str,
    defaults: dict[str, Any],
    default_sources: ValueSources,
) -> None:
    for key, value in tree.items():
        path = f"{prefix}.{key}" if prefix else str(key)
        default = defaults.get(key) if isinstance(defaults, dict) else None
        if value is None and source not in (Source.FRAMEWORK, Source.TASK) and not is_credential(str(key)):
            _restore(target, sources, key, path, default, default_sources, known=key in defaults)
        elif isinstance(value, dict) and value:
            if not isinstance(target.get(key), dict):
                _forget(sources, path)
                target[key] = {}
            sources.pop(path, None)  # an empty mapping had one; now its leaves have
            child: dict[str, Any] = target[key]
            child_defaults = default if isinstance(default, dict) else {}
            _merge_into(child, sources, value, source, path, child_defaults, default_sources)
        elif value != {} or not isinstance(target.get(key), dict):
            _forget(sources, path)
            target[key] = _copied(value)
            sources[path] = source


def _restore(
    target: dict[str, Any],
    sources: ValueSources,
    key: str,
    path: str,
    default: Any,
    default_sources: ValueSources,
    *,
    known: bool,
) -> None:
    _forget(sources, path)
    target[key] = _copied(default) if known else None
    for known_path, source in default_sources.items():
        if known_path == path or known_path.startswith(f"{path}."):
            sources[known_path] = source


def _forget(sources: ValueSources, path: str) -> None:
    for known in [known for known in sources if known == path or known.startswith(f"{path}.")]:
        del sources[known]


def _copied(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _copied(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_copied(item) for item in value]
    return value
