"""Removes the keys of a run config that do not describe the evaluation, before layers are merged.

There are two kinds of such keys. The first kind are `executor` and `slurm`, which state where a run
is executed. These two keys belong neither to the run's identity nor to its result.

The second kind are foreign keys: keys of EvalFactory's and NeMo Evaluator's run configs. Foreign
keys that do not change a result are accepted, and a warning lists them. A foreign key that would
change the result is an error: eval-factory would ignore the key, and then send other requests than
the configuration describes. `foreign_configs.yml` lists the foreign keys.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, get_args

from eval_factory.config.merge import Layer, section_at, with_defaults
from eval_factory.config.model import ExecutorName
from eval_factory.config.model_problems import problems_with, shown_value
from eval_factory.core.enums import LOCAL, SLURM
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.tasks.framework import Framework, Task

TABLE: Any = load_packaged("config/foreign_configs.yml")
"""The tables of foreign_configs.yml by their names. A comment in the file explains each table."""
ADAPTER = "target.api_endpoint.adapter_config"
TASK = "config.params.task"  # the foreign key that names the task again
INTERCEPTORS = f"{ADAPTER}.interceptors"
"""The foreign key that lists interceptors: the steps in which NVIDIA's adapter changes, stores or
counts requests and answers.
"""
NO_EFFECT: Mapping[str, Sequence[str]] = TABLE["no_effect"]
"""The dotted path of a section -> the names of its foreign keys that do not change a result."""
ONLY: Mapping[str, Mapping[str, Any]] = {
    f"{ADAPTER}.{name}": only for name, only in TABLE["only"].items()
}
"""The dotted path of a key -> its accepted values (`values`), and what eval-factory always does
(`done`).
"""
_PATHS: list[str] = []  # the dotted paths of all foreign keys
for _section, _keys in NO_EFFECT.items():
    # `_section` is empty for the keys at the top of the file.
    _PATHS += [f"{_section}.{_key}".lstrip(".") for _key in _keys]
_PATHS += [*ONLY, INTERCEPTORS, TASK, "command", "framework_name"]
Foreign = dict[str, Any]  # the dotted path of a foreign key -> its value in the configuration
EXECUTOR = "executor"
EXECUTOR_KEYS = (EXECUTOR, SLURM)  # the keys that state where a run is executed


def known_in(section: str) -> list[str]:
    """Return the names of the foreign keys that a section may have."""
    names: list[str] = []
    for path in _PATHS:
        if path.rpartition(".")[0] == section:
            names.append(path.rpartition(".")[2])
    return names


def take_keys(layers: Sequence[Layer]) -> Foreign:
    """Remove the foreign keys from the layers, and return their values.

    A later layer overwrites earlier layers, and a null cancels the value of earlier layers.
    """
    foreign: Foreign = {}
    for _, tree in layers:
        for path in _PATHS:
            *parents, name = path.split(".")
            section = section_at(tree, parents)
            if name in section:
                foreign[path] = section.pop(name)
    return {path: value for path, value in foreign.items() if value is not None}


def problems_of(foreign: Foreign, task: Task | None, framework: Framework) -> Iterator[str]:
    """Yield a problem for each foreign key that asks for something that eval-factory cannot do.

    A foreign key that contradicts `config.type` or names another framework is a problem too.

    Args:
        foreign: the foreign keys of the configuration.
        task: the task that `config.type` names; None if there is no such task.
        framework: all tasks.
    """
    for path, value in foreign.items():
        only = ONLY.get(path)
        if only is not None and not _is_among(value, only["values"]):
            yield (
                f"{path}: would change the results, and eval-factory cannot do it: "
                f"{only['done']}; leave the key out"
            )
    if not isinstance(foreign.get(INTERCEPTORS, []), list):
        yield f"{INTERCEPTORS}: must be a list"
    for interceptor in active_interceptors(foreign.get(INTERCEPTORS)):
        if interceptor.name in TABLE["harmless"]:  # an interceptor that changes no result
            continue
        our_keys = TABLE["interceptors"].get(interceptor.name, {}).get("ours")
        if our_keys:
            advice = f"write {ADAPTER}: {our_keys} instead"
        else:
            advice = "eval-factory has no such interceptor"
        yield (
            f"{INTERCEPTORS}: {interceptor.name!r} would change the results, and eval-factory "
            f"does not use it; {advice}"
        )
    program = framework.framework.name
    if task is not None and TASK in foreign:
        names_of_task = (task.name, f"{program}.{task.name}", task.helm.run_spec)
        if foreign[TASK] not in names_of_task:
            yield f"{TASK}: is not the task of config.type, {task.name}; give only one of the two"
    if foreign.get("framework_name", program) != program:
        yield f"framework_name: is not {program!r}: the configuration is of another framework"
    # A result's run_config.yml holds eval-factory's own command, which is accepted.
    if "command" in foreign and framework.framework.pkg_name not in str(foreign["command"]):
        yield "command: eval-factory does not run this command; leave it out"


def _is_among(value: Any, accepted_values: Sequence[Any]) -> bool:
    """Return True if a value is accepted; True and 1 count as different values."""
    for accepted in accepted_values:
        # `True is 1` is false, but `True == 1` is true. Equal texts may be different objects.
        if value is accepted or (isinstance(value, str) and value == accepted):
            return True
    return False


class Interceptor(NamedTuple):
    """An entry of the list `interceptors`."""

    number: int  # the index of the entry in the list
    name: str
    section: Mapping[str, Any]  # the entry itself, with `name` and maybe `enabled` and `config`


def active_interceptors(value: Any) -> Iterator[Interceptor]:
    """Yield each interceptor that is not turned off.

    `value` is the value of the key `interceptors`. A value that is not a list yields nothing.
    """
    if not isinstance(value, list):
        return
    for number, entry in enumerate(value):
        section = entry if isinstance(entry, Mapping) else {"name": entry}
        if section.get("enabled") is not False:
            yield Interceptor(number, str(section.get("name")), section)


def remove_unused_prompt(merged: dict[str, Any], foreign: Foreign) -> None:
    """Remove the system prompt from the merged configuration if `use_system_prompt` is false."""
    adapter = section_at(merged, ADAPTER.split("."))
    if adapter and foreign.get(f"{ADAPTER}.use_system_prompt") is False:
        adapter["custom_system_prompt"] = None


def warning_of(foreign: Foreign) -> str | None:
    """Return a line that lists the foreign keys without an effect; None if there are no such keys.

    Keys of `ONLY` are not listed: an accepted value of such a key describes what eval-factory does.
    """
    sections: dict[str, list[str]] = {}
    for path in foreign:
        section, _, name = path.rpartition(".")
        if path not in ONLY:
            sections.setdefault(section, []).append(name)
    if not sections:
        return None
    groups = []
    for section, keys in sections.items():
        prefix = f"{section}: " if section else ""
        groups.append(prefix + ", ".join(keys))
    return f"keys without an effect here: {'; '.join(groups)}"


@dataclass(frozen=True)
class RunExecutor:
    """The executor of a run, with its settings."""

    name: str = LOCAL
    slurm: Mapping[str, Any] = field(default_factory=dict)  # each key of `SlurmSection` -> value

    @property
    def is_local(self) -> bool:
        """True if the run is executed on this machine."""
        return self.name == LOCAL


def take_executor(
    layers: Sequence[Layer], framework: Framework, problems: list[str]
) -> RunExecutor:
    """Remove `executor` and `slurm` from the layers, and return the executor of the run.

    For each key of `slurm`, the strongest layer that has the key decides, and a null means the
    default. A layer with a wrong value is ignored.

    Args:
        layers: the user's layers, which are changed.
        framework: all defaults.
        problems: the list to which wrong values are added.
    """
    defaults = framework.defaults.suite
    executors = get_args(ExecutorName)
    name = defaults[EXECUTOR]
    sections = []
    for source, tree in layers:
        chosen = tree.pop(EXECUTOR, None)
        section = tree.pop(SLURM, None)
        layer_problems = []
        if chosen is not None and chosen not in executors:
            layer_problems.append(
                f"{EXECUTOR}: must be {' or '.join(map(repr, executors))}, "
                f"got {shown_value(chosen)}"
            )
        if section is not None:
            # Imported late, because the import is slow and few run configs have this section.
            from eval_factory.config.suite_model import SlurmSection

            layer_problems += problems_with(section, SLURM, SlurmSection)
        problems += [f"{source.value}: {problem}" for problem in layer_problems]
        if not layer_problems:
            if chosen is not None:
                name = chosen
            sections.append(section)
    return RunExecutor(name, with_defaults(defaults[SLURM], *sections))
