"""Merges the layers of a user's configuration into one validated evaluation.

Problems are collected, so that one error can report several problems. A problem names the file or
flag that holds the wrong value, and if possible the value that the user probably meant.
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from pydantic import ValidationError

from eval_factory.config import foreign_keys
from eval_factory.config.load import (
    as_yaml_values,
    interpolate,
    load_run_config,
    nest_paths,
    parse_overrides,
)
from eval_factory.config.merge import Layer, Source, ValueSources, merge, section_at
from eval_factory.config.model import RunConfig
from eval_factory.config.model_problems import known_keys, unknown_key_message, wrong_value_message
from eval_factory.config.resolved import FLAG_OF_KEY, Evaluation
from eval_factory.config.rules import with_task_rules
from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import paths_not_writable
from eval_factory.core.secrets import REDACTED, looks_like_key
from eval_factory.tasks.framework import BENCHMARK_KEY, ClusterRule, Framework, Task
from eval_factory.tasks.run_entry import (
    is_run_entry,
    similar_name_hint,
    task_of_run_entry,
    task_of_upstream,
)
from eval_factory.tasks.upstreams import HELM, UPSTREAMS, Upstream

if TYPE_CHECKING:
    from eval_factory.tasks.custom_benchmark import Benchmark


def find_benchmark(
    written_path: str, config_folder: Path | None, key_path: str, problems: list[str]
) -> Path | None:
    """Return the absolute path of a custom benchmark's file; None if there is a problem.

    A relative path is looked up in the current folder and in the folder of the configuration file.
    If the two folders have different files of this name, there is a problem.

    Args:
        written_path: the path as the user wrote it.
        config_folder: the folder of the run config or suite that names the benchmark; None if no
            file names the benchmark.
        key_path: the key that names the benchmark.
        problems: the list to which a problem is added.
    """
    folders = [Path.cwd()]
    if config_folder is not None:
        folders.append(Path(os.path.abspath(config_folder)))
    paths: list[Path] = []
    for folder in folders:
        path = Path(os.path.abspath(folder / os.path.expanduser(written_path)))
        if path not in paths:
            paths.append(path)
    existing = [path for path in paths if path.exists()]  # at most two paths
    if not existing:
        problems.append(f"{key_path}: there is no file {' or '.join(map(str, paths))}")
        return None
    if not all(existing[0].samefile(path) for path in existing):
        problems.append(
            f"{key_path}: {written_path} is both {existing[0]} (from the current folder) and "
            f"{existing[1]} (next to the run config); write the full path"
        )
        return None
    return existing[0]


@dataclass(frozen=True)
class RunRequest:
    """The input of a command: the run config, the flags and the overrides."""

    run_config: Path | None = None
    document: Mapping[str, Any] | None = None
    """The content of a run config as a mapping, which a program passes in place of a file. If there
    is a file too, the values of the file are stronger.
    """
    flags: Mapping[str, Any] = field(default_factory=dict)  # dotted path of the value -> value
    overrides: tuple[str, ...] = ()  # the texts of `--overrides`


def build_evaluation(
    request: RunRequest,
    framework: Framework,
    env: Mapping[str, str],
    task: Task | None = None,
    benchmark: Benchmark | None = None,
) -> Evaluation:
    """Merge all layers, validate the values, and return the evaluation.

    Args:
        request: the user's input.
        framework: all tasks and defaults.
        env: the environment variables, which replace `${NAME}`.
        task: the task to run, if the caller runs a task that config.type cannot name.
        benchmark: the custom benchmark, if the caller has it already; the file that
            `extra.benchmark` names is then not read.

    Raises:
        ConfigError: the configuration has one problem or several, which the error lists.
    """
    problems: list[str] = []
    user_layers = _user_layers(request, env, problems)
    foreign = foreign_keys.take_keys(user_layers)
    executor = foreign_keys.take_executor(user_layers, framework, problems)
    if task is None:
        task = _configured_task(user_layers, framework, problems)
    layers = [(Source.FRAMEWORK, framework.defaults.run_config)]
    if task is not None:
        layers.append((Source.TASK, task.run_config))
    layers += user_layers
    for _, tree in layers:
        rename_aliases(tree, problems)
    problems += foreign_keys.problems_of(foreign, task, framework)
    merged, sources = merge(layers)
    foreign_keys.remove_unused_prompt(merged, foreign)
    _replace_share_by_count(merged, task, problems)
    run = _validated(merged, sources, request, problems)
    if run is None or task is None:
        raise ConfigError(list(dict.fromkeys(problems)))
    warning = foreign_keys.warning_of(foreign)
    evaluation = Evaluation(
        task, framework, run, sources, warnings=(warning,) if warning else (), executor=executor
    )
    if BENCHMARK_KEY in task.helm.parameters:
        evaluation = _with_benchmark(evaluation, benchmark, request, problems)
    evaluation = with_task_rules(evaluation, problems)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return evaluation


def _configured_task(
    user_layers: Sequence[Layer], framework: Framework, problems: list[str]
) -> Task | None:
    """Return the task that the user's config.type names; None if there is no such task.

    The reason is added to `problems`, unless config.type is not a text: `_validated` reports that.
    """
    name = strongest_value(user_layers, "config", "type")
    if name is None:
        problems.append(
            "config.type: is missing; it names the task ('eval-factory ls' lists all tasks)"
        )
    if not isinstance(name, str):
        return None
    upstream_name = strongest_value(user_layers, "config", "params", "extra", "upstream")
    upstream = HELM
    if isinstance(upstream_name, str):  # `_validated` reports an unknown name
        upstream = UPSTREAMS.get(upstream_name, HELM)
    return task_named(name, framework, problems, upstream)


def read_layers(request: RunRequest, env: Mapping[str, str]) -> list[Layer]:
    """Return the layers of the user's input, the weakest layer first.

    Raises:
        ConfigError: the run config or the overrides cannot be read.
    """
    # Ignore unset variables here: `build_evaluation` reports them.
    return _user_layers(request, env, problems=[])


def strongest_value(layers: Sequence[Layer], *path: str) -> Any:
    """Return the value at a path from the strongest layer; None if no layer has a value there.

    The weakest layer comes first.
    """
    *section, key = path
    for _, tree in reversed(layers):
        value = section_at(tree, section).get(key)
        if value is not None:
            return value
    return None


def _user_layers(request: RunRequest, env: Mapping[str, str], problems: list[str]) -> list[Layer]:
    """Return the layers of the user's input without empty layers, the weakest layer first."""
    layers: list[Layer] = []
    if request.document is not None:
        layers.append((Source.FILE, as_yaml_values(request.document)))
    if request.run_config is not None:
        layers.append((Source.FILE, load_run_config(request.run_config)))
    layers += [
        (Source.FLAG, nest_paths(request.flags)),
        (Source.OVERRIDE, parse_overrides(request.overrides)),
    ]
    layers = [
        (source, interpolate(tree, env, tree_path="", problems=problems)) for source, tree in layers
    ]
    unwritable: list[str] = []
    for source, tree in layers:
        for path in paths_not_writable(tree):
            unwritable.append(f"{source.value}: {path}: contains bytes that are not UTF-8")
    if unwritable:
        raise ConfigError(unwritable)
    return [(source, tree) for source, tree in layers if tree]


def rename_aliases(tree: dict[str, Any], problems: list[str]) -> None:
    """Rename `api_key_name` in a layer to `api_key`, so that layers with either name merge."""
    endpoint = section_at(tree, ("target", "api_endpoint"))
    if "api_key_name" in endpoint:
        name = endpoint.pop("api_key_name")
        if endpoint.get("api_key", name) != name:
            problems.append(
                "target.api_endpoint: api_key and api_key_name are the same setting; "
                "give one of them"
            )
        endpoint["api_key"] = name


def task_named(
    name: str, framework: Framework, problems: list[str], upstream: Upstream = HELM
) -> Task | None:
    """Return the task that config.type names; None if there is no such task.

    Args:
        name: the name of a task, or a run entry of HELM.
        framework: all tasks.
        problems: the list to which the reason is added if there is no task.
        upstream: the HELM distribution that runs the task.
    """
    if is_run_entry(name, framework):
        return task_of_run_entry(name, framework, problems, upstream)
    task = framework.task(name)
    if task is not None:
        return task if upstream is HELM else task_of_upstream(upstream, task, problems)
    reason = framework.refused.get(name)
    if reason is not None:
        problems.append(f"config.type: {name} cannot be run: {reason}")
        return None
    shown_name = REDACTED if looks_like_key(name) else repr(name)
    near = similar_name_hint(name, framework)
    problems.append(
        f"config.type: there is no task {shown_name}{near}; 'eval-factory ls' lists all tasks"
    )
    return None


def _replace_share_by_count(merged: dict[str, Any], task: Task | None, problems: list[str]) -> None:
    """Replace a share such as `limit_samples: 0.1` by a number of instances, rounded up.

    The share refers to the number of instances that the task is known to have.
    """
    params = section_at(merged, ("config", "params"))
    share = params.get("limit_samples")
    if task is None or not isinstance(share, float) or not 0 < share < 1:
        return
    instances = task.about.instances
    if instances is None:
        why = (
            f"eval-factory does not know how many instances {task.name} has: give a number instead "
            "of a share"
        )
        problems.append(f"config.params.limit_samples: {why}")
        params["limit_samples"] = None  # so that the validation does not report the share again
    else:
        # Round first: 0.07 * 100 is slightly more than 7, and must not become 8 instances.
        params["limit_samples"] = math.ceil(round(share * instances, 6))


def _validated(
    merged: dict[str, Any], sources: ValueSources, request: RunRequest, problems: list[str]
) -> RunConfig | None:
    """Return the merged configuration as a run config; None if the configuration has problems."""
    try:
        return RunConfig.model_validate(merged)
    except ValidationError as error:
        for detail in error.errors(include_url=False):
            # A text with "[" is not a key, but pydantic's name of an alternative of a union.
            path = ".".join(
                str(part) for part in detail["loc"] if isinstance(part, str) and "[" not in part
            )
            if path == "config.type" and any("config.type" in problem for problem in problems):
                continue  # reported already
            problems.append(_explained(path, detail, sources, request))
        return None


def _explained(path: str, detail: Any, sources: ValueSources, request: RunRequest) -> str:
    """Return the message about one of pydantic's findings.

    The message begins with the file or the flag from which the value came, if this is known.
    """
    if detail["type"] == "missing":
        if path in FLAG_OF_KEY:
            return f"{path}: is missing; write it in the run config or give {FLAG_OF_KEY[path]}"
        return f"{path}: is missing"
    # Only values have a source. For a section, take the source of its first value.
    source = None
    for value_path, value_source in sources.items():
        if value_path == path or value_path.startswith(f"{path}."):
            source = value_source
            break
    beginning = ""
    if source in (Source.FLAG, Source.OVERRIDE):
        beginning = f"{source.value}: "
    if source is Source.FILE and request.run_config is not None:
        beginning = f"{request.run_config}: "
    if detail["type"] != "extra_forbidden":
        return f"{beginning}{path}: {wrong_value_message(detail)}"
    parent, _, name = path.rpartition(".")
    if parent:
        names = known_keys(RunConfig, parent.split("."))
    else:
        names = [*known_keys(RunConfig, ()), *foreign_keys.EXECUTOR_KEYS]
    return f"{beginning}{unknown_key_message(path, name, names, foreign_keys.known_in(parent))}"


def _with_benchmark(
    evaluation: Evaluation, benchmark: Benchmark | None, request: RunRequest, problems: list[str]
) -> Evaluation:
    """Return the evaluation with its custom benchmark.

    Without a `benchmark`, the benchmark is read that the run config names. If it cannot be read,
    the reason is added to `problems`.
    """
    if benchmark is None:
        evaluation, benchmark = _named_benchmark(evaluation, request, problems)
    if benchmark is None:
        return evaluation
    return replace(evaluation, benchmark=benchmark, task=_task_of(benchmark, evaluation.task))


def _named_benchmark(
    evaluation: Evaluation, request: RunRequest, problems: list[str]
) -> tuple[Evaluation, Benchmark | None]:
    """Read the benchmark that the run config names.

    Returns:
        The evaluation, in which the path of the benchmark is now absolute; and the benchmark, or
        None if it cannot be read.
    """
    written_path = evaluation.extra.benchmark
    if written_path is None:
        return evaluation, None
    # Imported late, because only custom benchmarks need this module.
    from eval_factory.tasks.custom_benchmark import load_benchmark

    key_path = f"config.params.extra.{BENCHMARK_KEY}"
    # A path in a flag or an override is relative to the current folder only.
    config_folder = None
    if request.run_config and evaluation.sources.get(key_path) is Source.FILE:
        config_folder = request.run_config.parent
    path = find_benchmark(written_path, config_folder, key_path, problems)
    if path is None:
        return evaluation, None
    evaluation = evaluation.with_extra({BENCHMARK_KEY: str(path)})
    try:
        return evaluation, load_benchmark(path)
    except ConfigError as error:
        problems += error.problems
        return evaluation, None


def _task_of(benchmark: Benchmark, task: Task) -> Task:
    """Return a copy of a task that is changed to run a custom benchmark."""
    from eval_factory.tasks.conversations import CONVERSATION_RUN_SPEC
    from eval_factory.tasks.custom_table import CLUSTER_FIELD
    from eval_factory.tasks.rubric_case import RUBRIC_RUN_SPEC

    changes: dict[str, Any] = {
        "scenario": benchmark.name,
        "main_metric": benchmark.main_metric,
        "judges": (),
        "cluster": None,
        "images": benchmark.rows_with_pictures > 0,
    }
    if benchmark.has_jury:
        changes["judges"] = task.helm.judges
    if benchmark.has_clusters:  # a column names the source that several rows share (a cluster)
        changes["cluster"] = ClusterRule(what=f"column {CLUSTER_FIELD}", field=CLUSTER_FIELD)
    if benchmark.is_rubric or benchmark.has_conversations:
        run_spec = RUBRIC_RUN_SPEC if benchmark.is_rubric else CONVERSATION_RUN_SPEC
        changes |= {"run_spec": run_spec, "rubric": benchmark.is_rubric, "zero_shot": True}
    if benchmark.is_rubric or benchmark.has_conversations or benchmark.rows_with_pictures:
        # Only a chat endpoint accepts messages and pictures.
        task = task.only_on(["chat"])
    return replace(
        task,
        name=f"{task.name}.{benchmark.name}",
        description=benchmark.description,
        helm=replace(task.helm, **changes),
        about=replace(
            task.about,
            source=str(benchmark.path),
            instances=benchmark.instances,
            notes=benchmark.notes,
        ),
    )


def request_of_arguments(
    run_config: Path | str | Mapping[str, Any] | None,
    output_dir: Path | str | None,
    flags: Mapping[str, Any] | None,
    overrides: Iterable[str],
) -> RunRequest:
    """Return the arguments of `eval_factory.evaluate` as a request.

    Raises:
        ConfigError: a flag has a value that no file could hold.
    """
    plain_flags = as_yaml_values(flags or {})
    if output_dir is not None:
        plain_flags["config.output_dir"] = os.fspath(output_dir)
    texts = as_tuple(overrides)
    if isinstance(run_config, Mapping):
        return RunRequest(document=run_config, flags=plain_flags, overrides=texts)
    path = None if run_config is None else Path(run_config)
    return RunRequest(run_config=path, flags=plain_flags, overrides=texts)


_Item = TypeVar("_Item")


def as_tuple(items: Iterable[_Item]) -> tuple[_Item, ...]:
    """Return the items as a tuple. A single text or path becomes a tuple with one item."""
    if isinstance(items, (str, Path)):
        single: Any = items
        return (single,)
    return tuple(items)
