"""All that says something about a suite, weakest first: preset, `extends`, the file, flags, `--overrides`."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from eval_factory.config.load import interpolate, parse_overrides
from eval_factory.config.merge import Source
from eval_factory.config.suite_shape import TOP
from eval_factory.core.errors import ConfigError, did_you_mean
from eval_factory.core.plain_yaml import load_mapping, not_writable
from eval_factory.core.safe_files import LEADS_OUT, expanded, is_within
from eval_factory.core.secrets import REDACTED, looks_like_key

NEEDS = "`suite:` with `output_dir`, `evaluations` and `targets`, or with a `preset`"
MOST_EXTENDED = 20
COPY_IT = "a suite extends a file of its own folder, or below it: copy the file there"
_OF_RUN_CONFIGS = ("config", "target")
_ENDING = ".yml"
NO_PRESET = (None, "none")
"""These take back the preset that a weaker layer chooses."""


@dataclass(frozen=True)
class SuiteLayer:
    """What one file, or one other source, says of a suite."""

    origin: str
    """The file, or what else says it; nothing for what another program says."""
    tree: dict[str, Any]
    """What stands under `suite`, variables filled in."""
    folder: Path | None = None
    """Of its file."""
    is_preset: bool = False
    wins: bool = False
    """A flag or an override: its lists replace those of files, its `params` hold for every cell."""

    @property
    def begin(self) -> str:
        """What stands before a problem of it."""
        return f"{self.origin}: " if self.origin else ""


@dataclass(frozen=True)
class SuiteSources:
    """What the user gave."""

    path: Path | None
    document: Mapping[str, Any] | None
    flags: Mapping[str, Any]
    """Dotted path (`suite.params.limit_samples`) -> value."""
    overrides: tuple[str, ...]


def read_layers(sources: SuiteSources, env: Mapping[str, str], problems: list[str]) -> list[SuiteLayer]:
    """The layers, weakest first; `problems` gets what is wrong with variables and top keys.

    Raises:
        ConfigError: a file cannot be read, or extends itself; an override is none.
    """
    flags: dict[str, Any] = {}
    for path, value in sources.flags.items():
        *parents, last = path.split(".")
        tree = flags
        for name in parents:
            tree = tree.setdefault(name, {})
        tree[last] = value
    said = [
        *_files(sources, env, problems),
        _layer(Source.FLAG.value, flags, env, problems, wins=True),
        _layer(Source.OVERRIDE.value, parse_overrides(sources.overrides), env, problems, wins=True),
    ]
    chosen = next((layer for layer in reversed(said) if "preset" in layer.tree), None)
    wanted = chosen is not None and chosen.tree["preset"] not in NO_PRESET
    base = _preset(chosen, env, problems) if chosen is not None and wanted else []
    return [layer for layer in [*base, *said] if layer.tree]


def preset_names() -> list[str]:
    """The suites that come with eval-factory."""
    found = (Path(entry.name) for entry in _presets().iterdir())
    return sorted(path.stem for path in found if path.suffix == _ENDING)


def _presets() -> Path:
    return Path(str(resources.files("eval_factory.config"))) / "presets"


def _preset(chosen: SuiteLayer, env: Mapping[str, str], problems: list[str]) -> list[SuiteLayer]:
    known, name = preset_names(), chosen.tree["preset"]
    if not isinstance(name, str):
        return []  # the shape check says so
    if name not in known:
        shown = REDACTED if looks_like_key(name) else repr(name)
        hint = did_you_mean(name, known) or f"; there are {', '.join(known)}"
        problems.append(f"{chosen.begin}{TOP}.preset: there is no preset {shown}{hint}")
        return []
    path = _presets() / f"{name}{_ENDING}"
    layer = _layer(f"preset {name}", load_mapping(path, NEEDS), env, problems, folder=path.parent, is_preset=True)
    return [layer]


def _files(sources: SuiteSources, env: Mapping[str, str], problems: list[str]) -> Iterable[SuiteLayer]:
    """The file and those that it extends, the last extended one first."""
    if sources.document is not None:
        found = [_layer("", dict(sources.document), env, problems)]
        seen: list[Path] = []
    elif sources.path is not None:
        found, seen = [_file(sources.path, env, problems)], [sources.path]
    else:
        return []
    base = found[0].folder or Path.cwd()
    while (extended := found[-1].tree.get("extends")) is not None:
        if not isinstance(extended, str):
            break  # the shape check says so
        path = Path(os.path.normpath((found[-1].folder or Path()) / _home_filled_in(extended, found[-1])))
        seen.append(path)
        if os.path.realpath(path) in [os.path.realpath(known) for known in seen[:-1]]:
            way = " extends ".join(map(str, seen))
            raise ConfigError(f"{seen[0]}: {TOP}.extends: a file must not extend itself: {way}")
        if len(seen) > MOST_EXTENDED:
            raise ConfigError(f"{seen[0]}: {TOP}.extends: more than {MOST_EXTENDED} files extend one another")
        if not is_within(path, base):
            raise ConfigError(f"{found[-1].begin}{TOP}.extends: {path}: {LEADS_OUT.format(folder=base)}; {COPY_IT}")
        try:
            found.append(_file(path, env, problems, base))
        except ConfigError as error:
            raise ConfigError([f"{found[-1].begin}{TOP}.extends: {problem}" for problem in error.problems]) from None
    return reversed(found)


def _home_filled_in(text: str, layer: SuiteLayer) -> str:
    try:
        return expanded(text)
    except ValueError as error:
        raise ConfigError(f"{layer.begin}{TOP}.extends: {error}") from None


def _file(path: Path, env: Mapping[str, str], problems: list[str], inside: Path | None = None) -> SuiteLayer:
    folder = Path(os.path.abspath(path)).parent
    return _layer(str(path), load_mapping(path, NEEDS, inside), env, problems, folder=folder)


def _layer(
    origin: str, whole: dict[str, Any], env: Mapping[str, str], problems: list[str], **what_it_is: Any
) -> SuiteLayer:
    where = f"{origin}: " if origin else ""
    for key in whole:
        if key != TOP:
            problems.append(f"{where}{_unknown_top_key(key)}")
    tree = whole.get(TOP)
    if tree is None:
        if not what_it_is.get("wins") and not any(key in whole for key in _OF_RUN_CONFIGS):
            problems.append(f"{where}{TOP}: is missing; a suite needs {NEEDS}")
        tree = {}
    elif not isinstance(tree, dict):
        problems.append(f"{where}{TOP}: must be a mapping of keys to values")
        tree = {}
    found: list[str] = []
    tree = interpolate(tree, env, TOP, found)
    found += [f"{path}: contains bytes that are not UTF-8" for path in not_writable(tree, TOP)]
    problems += [f"{where}{problem}" for problem in found]
    return SuiteLayer(origin, tree, **what_it_is)


def _unknown_top_key(key: str) -> str:
    if key in _OF_RUN_CONFIGS:
        return f"{key}: belongs to a run config, which run_eval runs; a suite has all its keys under `{TOP}:`"
    shown = REDACTED if looks_like_key(key) else key
    return f"unknown key {shown}{did_you_mean(key, [TOP])}; a suite has all its keys under `{TOP}:`"
