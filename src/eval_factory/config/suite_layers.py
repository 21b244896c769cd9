"""Reads, normalizes and merges the layers of a suite.

A cell of a suite is one run: an evaluation with a variant of its parameters on a target (a model).

The layers, from the weakest to the strongest, are the preset, the files of `extends`, the file, the
flags, and `--overrides`. Each layer is checked and brought into a normal form: every evaluation has
a name and a known task, selections are replaced by the selected tasks, and paths are absolute.

When layers are merged, mappings are merged and lists are replaced. The lists `evaluations`,
`targets` and `variants` are an exception: entries with the same name are merged, and new entries
are appended. A null cancels the value of weaker layers, so that the default applies.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from eval_factory.config import foreign_keys
from eval_factory.config.evaluation import find_benchmark, rename_aliases, task_named
from eval_factory.config.load import interpolate, nest_paths, parse_overrides
from eval_factory.config.merge import Source, leaves_by_path, merge, section_at
from eval_factory.config.model import ApiEndpoint, Params
from eval_factory.config.model_problems import problems_with
from eval_factory.core.errors import ConfigError, did_you_mean
from eval_factory.core.plain_yaml import load_mapping, paths_not_writable
from eval_factory.core.safe_files import LEADS_OUT, expand_home, is_within
from eval_factory.core.secrets import REDACTED, looks_like_key
from eval_factory.tasks.framework import BENCHMARK_KEY, Framework, Task
from eval_factory.tasks.run_entry import CONFIG_TYPE, PATH_PARAMETERS, RunEntry, run_entry_prefix
from eval_factory.tasks.upstreams import MEDHELM

SUITE_KEY = "suite"  # the only key at the top of a suite's file
KEYS_PASSED_TO_CELLS = ("judges", "prices", "max_cost", "max_tokens_total")
"""Keys of a suite that become keys of config.params.extra in each cell. A limit of all cells is
also the limit of each cell, so that each cell counts the cost and the tokens of its answers.
"""
NAMED_LISTS = ("evaluations", "targets", "variants")  # lists whose entries are merged by name
_OPTIONAL_IN_ONE_FILE = ("url", "model_id")
"""Required keys of an endpoint. A single file may lack these keys, because another file may have
them. The keys are checked after all files are merged.
"""


def problems_of_values(tree: Mapping[str, Any], framework: Framework) -> Iterator[str]:
    """Yield the problems of the parameters and the endpoints in a well-formed section."""
    for path, params in params_of(tree):
        yield from _problems_of(
            params, path, run_path="config.params", model=Params, framework=framework
        )
    passed = {}
    for name in KEYS_PASSED_TO_CELLS:
        if tree.get(name) is not None:
            passed[name] = tree[name]
    # A run config has these keys in `extra`. A suite has them directly under `suite`, so `extra` is
    # removed from the paths in messages.
    problems_of_passed = _problems_of(
        {"extra": passed}, SUITE_KEY, run_path="config.params", model=Params, framework=framework
    )
    for problem in problems_of_passed:
        yield problem.replace(f"{SUITE_KEY}.extra.", f"{SUITE_KEY}.")
    for number, target in enumerate(tree.get("targets") or []):
        endpoint = target.get("api_endpoint") or {}
        path = f"{SUITE_KEY}.targets[{number}].api_endpoint"
        yield from _problems_of(
            endpoint, path, run_path="target.api_endpoint", model=ApiEndpoint, framework=framework
        )


def params_of(tree: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield the path and the value of each `params` in a well-formed section."""
    if tree.get("params"):
        yield f"{SUITE_KEY}.params", tree["params"]
    for kind in NAMED_LISTS:
        for number, entry in enumerate(tree.get(kind) or []):
            if isinstance(entry, dict) and entry.get("params"):
                yield f"{SUITE_KEY}.{kind}[{number}].params", entry["params"]


def _problems_of(
    section: Mapping[str, Any],
    path: str,
    *,
    run_path: str,
    model: type[BaseModel],
    framework: Framework,
) -> Iterator[str]:
    """Yield the problems of a part of a suite that is also a section of a run config.

    Args:
        section: the part to check.
        path: the path of the part in the suite.
        run_path: the path of the section in a run config.
        model: the model of the section.
        framework: all defaults.
    """
    tree = nest_paths({run_path: deepcopy(dict(section))})
    rename_aliases(tree, problems=[])  # `normal_form` reports if both names are used.
    # The check of each cell reports foreign keys, so remove them here.
    foreign_keys.take_keys([(Source.FILE, tree)])
    # The model has no defaults, so add those of a run config.
    layers = [(Source.FRAMEWORK, framework.defaults.run_config), (Source.FILE, tree)]
    run, _ = merge(layers)
    completed = section_at(run, run_path.split("."))
    if model is ApiEndpoint:
        # A null would be a wrong value, but a missing key is optional.
        for name in _OPTIONAL_IN_ONE_FILE:
            if completed.get(name) is None:
                completed.pop(name, None)
    optional_paths = [(name,) for name in _OPTIONAL_IN_ONE_FILE]
    yield from problems_with(completed, path, model, optional=optional_paths)


NEEDED_KEYS = "`suite:` with `output_dir`, `evaluations` and `targets`, or with a `preset`"
MAX_FILES = 20  # the maximum number of files of a suite
COPY_ADVICE = "a suite can extend a file only in its own folder, or below: copy the file there"
_RUN_CONFIG_KEYS = ("config", "target")  # the keys at the top of a run config
_PRESETS = Path(__file__).with_name("presets")


@dataclass(frozen=True)
class SuiteLayer:
    """A layer of a suite: the section `suite` from one file or from the command line."""

    name: str  # the file or the part of the command line; empty for a mapping of a program
    tree: dict[str, Any]  # the section `suite`, with variables replaced
    folder: Path | None = None  # the folder of the file
    is_preset: bool = False
    is_command_line: bool = False
    """True for flags and overrides. Their lists replace the lists of files, and their `params`
    apply to every cell.
    """

    @property
    def message_prefix(self) -> str:
        """The beginning of messages about the layer: its name, or an empty text."""
        if not self.name:
            return ""
        return f"{self.name}: "


def read_layers(
    file_or_document: Path | Mapping[str, Any] | None,
    flags: Mapping[str, Any],
    overrides: tuple[str, ...],
    env: Mapping[str, str],
    problems: list[str],
) -> list[SuiteLayer]:
    """Return the layers of a suite, the weakest layer first.

    Args:
        file_or_document: the suite's file, or its content; None if only flags are used.
        flags: a dict from the dotted path of a value to the value.
        overrides: the texts `path=value` of the command line.
        env: the environment variables.
        problems: the list to which problems of variables, top-level keys and presets are added.

    Raises:
        ConfigError: a file cannot be read or extends itself, or an override cannot be parsed.
    """
    layers = list(_files(file_or_document, env, problems))
    command_line = {Source.FLAG: nest_paths(flags), Source.OVERRIDE: parse_overrides(overrides)}
    for source, document in command_line.items():
        layers.append(_layer(source.value, document, env, problems, is_command_line=True))
    preset = _preset(layers, env, problems)
    if preset is not None:
        layers.insert(0, preset)
    return [layer for layer in layers if layer.tree]


def _preset(
    layers: Sequence[SuiteLayer], env: Mapping[str, str], problems: list[str]
) -> SuiteLayer | None:
    """Return the layer of the preset that the strongest layer with a preset names, or None."""
    naming_layers = [layer for layer in layers if "preset" in layer.tree]
    if not naming_layers:
        return None
    strongest = naming_layers[-1]
    name = strongest.tree["preset"]
    # `none`, and a null, cancel the preset of a weaker layer. Another check reports other types.
    if not isinstance(name, str) or name == "none":
        return None
    names = preset_names()
    if name not in names:
        shown_name = REDACTED if looks_like_key(name) else repr(name)
        hint = did_you_mean(name, names) or f"; there are {', '.join(names)}"
        problems.append(
            f"{strongest.message_prefix}{SUITE_KEY}.preset: there is no preset {shown_name}{hint}"
        )
        return None
    document = load_mapping(_PRESETS / f"{name}.yml", needs=NEEDED_KEYS)
    return _layer(f"preset {name}", document, env, problems, folder=_PRESETS, is_preset=True)


def preset_names() -> list[str]:
    """Return the names of all presets, sorted."""
    return sorted(path.stem for path in _PRESETS.glob("*.yml"))


def _files(
    file_or_document: Path | Mapping[str, Any] | None, env: Mapping[str, str], problems: list[str]
) -> Iterable[SuiteLayer]:
    """Return the layers of the file and of all extended files, the weakest layer first."""
    if file_or_document is None:
        return []
    if isinstance(file_or_document, Path):
        layers = [_file(file_or_document, env, problems)]
    else:
        document = dict(file_or_document)
        layers = [_layer(name="", document=document, env=env, problems=problems)]
    base = layers[0].folder or Path.cwd()  # the folder that must contain all extended files
    while True:
        extending = layers[-1]  # the layer whose `extends` names the next file
        extended = extending.tree.get("extends")
        if not isinstance(extended, str):
            break  # None if there is no further file. `build_suite` reports other values.
        message_prefix = f"{extending.message_prefix}{SUITE_KEY}.extends: "
        try:
            path = Path(os.path.normpath((extending.folder or Path()) / expand_home(extended)))
        except ValueError as error:
            raise ConfigError(f"{message_prefix}{error}") from None
        if len(layers) >= MAX_FILES:
            raise ConfigError(
                f"{file_or_document}: {SUITE_KEY}.extends: more than {MAX_FILES} files, or a file "
                f"extends itself: {path}"
            )
        if not is_within(path, base):
            leads_out = LEADS_OUT.format(folder=base)
            raise ConfigError(f"{message_prefix}{path}: {leads_out}; {COPY_ADVICE}")
        try:
            layers.append(_file(path, env, problems, inside=base))
        except ConfigError as error:
            raise ConfigError(
                [f"{message_prefix}{problem}" for problem in error.problems]
            ) from None
    return reversed(layers)  # An extended file is weaker than the file that extends it.


def _file(
    path: Path, env: Mapping[str, str], problems: list[str], inside: Path | None = None
) -> SuiteLayer:
    """Return the layer of a file.

    If the folder `inside` is set, the file must be inside this folder.
    """
    folder = Path(os.path.abspath(path)).parent
    document = load_mapping(path, needs=NEEDED_KEYS, inside=inside)
    return _layer(str(path), document, env, problems, folder=folder)


def _layer(
    name: str,
    document: dict[str, Any],
    env: Mapping[str, str],
    problems: list[str],
    **attributes: Any,
) -> SuiteLayer:
    """Return the layer of a document, with variables replaced.

    Args:
        name: the file or the part of the command line; empty for a mapping of a program.
        document: the content of the layer.
        env: the environment variables.
        problems: the list to which problems are added.
        attributes: the attributes `folder`, `is_preset` and `is_command_line` of the layer.
    """
    layer = SuiteLayer(name, tree={}, **attributes)
    message_prefix = layer.message_prefix
    advice = f"a suite has all its keys under `{SUITE_KEY}:`"
    for key in document:
        if key in _RUN_CONFIG_KEYS:
            problems.append(
                f"{message_prefix}{key}: belongs to a run config, which run_eval runs; {advice}"
            )
        elif key != SUITE_KEY:
            shown_key = REDACTED if looks_like_key(key) else key
            hint = did_you_mean(key, [SUITE_KEY])
            problems.append(f"{message_prefix}unknown key {shown_key}{hint}; {advice}")
    tree = document.get(SUITE_KEY)
    if tree is None:
        is_run_config = any(key in document for key in _RUN_CONFIG_KEYS)
        if not layer.is_command_line and not is_run_config:
            problems.append(f"{message_prefix}{SUITE_KEY}: is missing; a suite needs {NEEDED_KEYS}")
        tree = {}
    elif not isinstance(tree, dict):
        problems.append(f"{message_prefix}{SUITE_KEY}: must be a mapping of keys to values")
        tree = {}
    problems_of_tree: list[str] = []
    tree = interpolate(tree, env, SUITE_KEY, problems_of_tree)
    for path in paths_not_writable(tree, SUITE_KEY):
        problems_of_tree.append(f"{path}: contains bytes that are not UTF-8")
    problems += [f"{message_prefix}{problem}" for problem in problems_of_tree]
    return replace(layer, tree=tree)


DEFAULT_VARIANT = "default"  # the name of the only variant of a suite without variants
# Characters that a folder's name cannot contain: `:` and `=` in `helm:mmlu:subject=anatomy`.
_UNSAFE_IN_NAME = re.compile(r"[^A-Za-z0-9._-]+")
_MAX_NAME_LENGTH = 60  # in characters, without the hash of a long name


def name_of_type(task_type: str, framework: Framework) -> str:
    """Return the name of an evaluation with this `type`.

    The name for `helm.pubmed_qa` is `pubmed_qa`. The name for `helm:mmlu:subject=anatomy` is
    `helm-mmlu-subject-anatomy`. A long name is cut, and ends with a hash of the type.
    """
    short_type = task_type.removeprefix(f"{framework.framework.name}.")
    name = _UNSAFE_IN_NAME.sub("-", short_type).strip("-.")
    if 0 < len(name) <= _MAX_NAME_LENGTH:
        return name
    digest = hashlib.sha256(task_type.encode()).hexdigest()[:8]
    return f"{name[:_MAX_NAME_LENGTH]}-{digest}".strip("-.")


def name_with_variant(evaluation: str, variant: Mapping[str, Any]) -> str:
    """Return the name of an evaluation with its variant.

    The default variant, and a variant without parameters, add nothing to the name.
    """
    is_default = variant["name"] == DEFAULT_VARIANT or not variant.get("params")
    if is_default:
        return evaluation
    return f"{evaluation}_{variant['name']}"


def normal_form(layer: SuiteLayer, framework: Framework, problems: list[str]) -> dict[str, Any]:
    """Return the section of a well-formed layer in its normal form.

    Args:
        layer: the layer.
        framework: all tasks.
        problems: the list to which the problems of tasks, paths and names are added.
    """
    tree = deepcopy(layer.tree)
    problems_of_layer: list[str] = []
    for path, params in params_of(tree):
        _absolute_paths(params, path, layer, problems_of_layer)
    for number, target in enumerate(tree.get("targets") or []):
        alias_problems: list[str] = []
        rename_aliases({"target": target}, alias_problems)  # in the form of a run config
        path = f"{SUITE_KEY}.targets[{number}].api_endpoint"
        for problem in alias_problems:
            problems_of_layer.append(problem.replace("target.api_endpoint", path, 1))
    if tree.get("evaluations"):
        tree["evaluations"] = list(_evaluations(tree["evaluations"], framework, problems_of_layer))
    if tree.get("output_dir"):
        tree["output_dir"] = os.path.abspath(os.path.expanduser(tree["output_dir"]))
    for entry in tree.get("reuse") or []:
        entry["folder"] = os.path.abspath(os.path.expanduser(entry["folder"]))
    for kind in NAMED_LISTS:
        first_with_name: dict[str, int] = {}
        for number, entry in enumerate(tree.get(kind) or []):
            first = first_with_name.setdefault(str(entry["name"]).lower(), number)
            if first != number:
                problems_of_layer.append(
                    f"{SUITE_KEY}.{kind}[{number}]: {kind}[{first}] also has the name "
                    f"{str(entry['name'])!r}; give each entry its own `name` (capital and small "
                    "letters count as the same)"
                )
    problems += [f"{layer.message_prefix}{problem}" for problem in problems_of_layer]
    # `read_layers` has already read the preset and the extended files.
    for key in ("preset", "extends"):
        tree.pop(key, None)
    return tree


def _absolute_paths(
    params: dict[str, Any], key_path: str, layer: SuiteLayer, problems: list[str]
) -> None:
    """Make all paths in `params` absolute; `key_path` is the path of `params` in the suite."""
    extra = params.get("extra")
    if not isinstance(extra, dict):
        return
    for name in ("data_path", "data_dir", "judge_passport"):
        if isinstance(extra.get(name), str):
            extra[name] = os.path.abspath(os.path.expanduser(extra[name]))
    stop = extra.get("stop_when")
    if isinstance(stop, dict) and isinstance(stop.get("differs_from"), str):
        stop["differs_from"] = os.path.abspath(os.path.expanduser(stop["differs_from"]))
    written_path = extra.get(BENCHMARK_KEY)
    if isinstance(written_path, str):
        # A path in a preset is relative to the folder of the presets, and to no other folder.
        if layer.is_preset and layer.folder is not None:
            written_path = str(layer.folder / written_path)
        path = find_benchmark(
            written_path, layer.folder, f"{key_path}.extra.{BENCHMARK_KEY}", problems
        )
        extra[BENCHMARK_KEY] = written_path if path is None else str(path)


def _evaluations(
    entries: Sequence[Any], framework: Framework, problems: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield the evaluations of a layer, each with its `name`, its `type` (the task) and `params`.

    An entry with `select` becomes several evaluations.
    """
    for number, entry in enumerate(entries):
        path = f"{SUITE_KEY}.evaluations[{number}]"
        if isinstance(entry, str):  # The name of a task is a short form.
            entry = {"type": entry}
        if entry.get("select") is not None:
            yield from _selected(entry, path, framework, problems)
        elif entry.get("type") is None:
            # Another layer may state the type. `build_suite` checks the types after the merge.
            yield entry
        else:
            name = entry.get("name") or name_of_type(entry["type"], framework)
            task_type = _checked_type(entry["type"], f"{path}.type", framework, problems)
            yield {**entry, "name": name, "type": task_type}


def _selected(
    entry: Mapping[str, Any], path: str, framework: Framework, problems: list[str]
) -> Iterator[dict[str, Any]]:
    """Yield an evaluation for each task that an entry with `select` selects."""
    select = entry["select"]
    chosen = []
    for task in framework.evaluations:
        if _is_selected(task, select):
            chosen.append(task.name)
    for name in select.get("without") or []:
        if framework.task(name) is None:
            problems.append(
                f"{path}.select.without: there is no task "
                f"{name!r}{did_you_mean(name, framework.names())}"
            )
    if not chosen:
        problems.append(
            f"{path}.select: matches no task; 'eval-factory ls --json' shows the tags and the "
            "access of each task"
        )
    for name in chosen:
        evaluation = {"name": name, "type": name}
        if entry.get("params"):
            evaluation["params"] = deepcopy(entry["params"])
        yield evaluation


def _is_selected(task: Task, select: Mapping[str, Any]) -> bool:
    """Return True if a task meets all conditions of a section `select`."""
    if select.get("access") not in (None, task.about.access):
        return False
    tags = set(task.about.tags)
    if not tags.issuperset(select.get("tags") or []):
        return False
    if not tags.isdisjoint(select.get("not_tags") or []):
        return False
    return task.name not in (select.get("without") or [])


def _checked_type(
    task_type: str, path: str, framework: Framework, problems_of_suite: list[str]
) -> str:
    """Return the `type` of an evaluation, with absolute paths in a run entry.

    Args:
        task_type: the `type` as the user wrote it.
        path: the path of the key `type` in the suite.
        framework: all tasks.
        problems_of_suite: the list to which the reason is added if there is no such task.
    """
    problems: list[str] = []
    task = task_named(task_type, framework, problems)
    if task is None:
        task = task_named(task_type, framework, problems=[], upstream=MEDHELM)
        if task is not None:
            # The task exists for medhelm only. The check of each cell knows the cell's upstream,
            # and reports a wrong upstream.
            problems.clear()
    problems_of_suite += [problem.replace(CONFIG_TYPE, path, 1) for problem in problems]
    if task is None or not task.helm.is_run_entry:
        return task_type
    if PATH_PARAMETERS.isdisjoint(task.helm.arguments):
        return task_type
    # The arguments of the task hold absolute paths.
    run_entry = RunEntry(task.helm.run_spec, dict(task.helm.arguments))
    return f"{run_entry_prefix(framework)}{run_entry.text}"


def merged_section(layers: Sequence[tuple[SuiteLayer, dict[str, Any]]]) -> dict[str, Any]:
    """Merge layers in normal form, the weakest layer first, and return the merged section."""
    section: dict[str, Any] = {}
    for layer, tree in layers:
        if layer.is_command_line:
            # Parameters of the command line apply to every cell.
            _remove_params_of_entries(section, tree.get("params") or {})
        for key, value in tree.items():
            # Lists of the command line replace the lists of files, as a null does in any layer.
            replaces = layer.is_command_line or value is None
            if key in NAMED_LISTS and not replaces:
                section[key] = _merged_entries(section.get(key) or [], value)
            else:
                section[key] = overlaid(section.get(key), stronger=value)
    return section


def _remove_params_of_entries(section: Mapping[str, Any], params: Mapping[str, Any]) -> None:
    """Remove parameters from the entries of evaluations, targets and variants in a section.

    The values in `params` are stronger, but in a cell the value in an entry would overwrite them.
    """
    entries = list(chain.from_iterable(section.get(key) or [] for key in NAMED_LISTS))
    for path in leaves_by_path(params):  # such as ("extra", "max_cost")
        *parents, name = path
        for entry in entries:
            section_at(entry, ["params", *parents]).pop(name, None)


def _merged_entries(base: Sequence[Any], entries: Sequence[Any]) -> list[Any]:
    """Return the entries of `base`, merged by name with the stronger `entries`."""
    entries_by_name = {entry["name"].lower(): entry for entry in base}
    for entry in entries:
        name = entry["name"].lower()
        entries_by_name[name] = overlaid(entries_by_name.get(name), stronger=entry)
    return list(entries_by_name.values())


def overlaid(base: Any, *, stronger: Any) -> Any:
    """Return `base` overwritten by `stronger`.

    Mappings are merged. All other values are replaced, even by null.
    """
    if not isinstance(base, Mapping) or not isinstance(stronger, Mapping):
        return deepcopy(stronger)
    result = dict(base)
    for key, value in stronger.items():
        result[key] = overlaid(base.get(key), stronger=value)
    return result
