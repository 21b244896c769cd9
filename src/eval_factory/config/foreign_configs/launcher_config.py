"""A config of nemo-evaluator-launcher, taken apart: which tasks, what is said of each, and what only a launcher does.

Its sections: https://docs.nvidia.com/nemo/evaluator/latest/libraries/nemo-evaluator-launcher/configuration/index.html
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from eval_factory.config.foreign_configs.findings import Finding
from eval_factory.config.foreign_configs.hydra_texts import plain_tree

_VARIABLE = re.compile(r"(?:host:|runtime:|\$\{|\$)?(?P<name>[A-Za-z_]\w*)\}?\Z")
_TASK, _ALL = "nemo_evaluator_config", "evaluation"
_NO_SERVER = ("none", None)

_CLUSTER = (
    "where a run is executed is written in another form here",
    "on Slurm: --executor slurm, with a section slurm (docs/slurm.md); else start eval-factory on that machine",
)
_SERVER = (
    "no model server is started by what is written: it asks an endpoint that is there",
    "start it yourself, and give its address as target.api_endpoint.url; or serve it by a suite (docs/serve.md)",
)
_SECTIONS: Mapping[str, tuple[str, str]] = {
    "auxiliary_deployments": (
        "no model server is started here",
        "start the judges' models yourself, and name them under config.params.extra.judges (docs/judges.md)",
    ),
    "export": ("results are exported after a run", "'eval-factory export --help' lists the formats"),
    "name": ("a run has no name but its folder's", "leave it out"),
}
_EXECUTION: Mapping[str, tuple[str, str]] = {
    "auto_export": ("results are exported after a run", "'eval-factory export --help' lists the formats"),
    "mounts": ("no container is started", "paths in the configuration are those of this machine"),
    "mode": ("a suite shares the endpoint's limits among its runs", "leave it out"),
}
_OF_A_TASK: Mapping[str, tuple[str, str]] = {
    "container": ("no container is started: HELM runs in eval-factory's own environment", "leave it out"),
    "dataset_dir": ("this task reads no folder of yours", "leave it out"),
    "dataset_mount_path": ("no container is started", "leave it out"),
    "pre_cmd": ("no command is run", "run it yourself before the evaluation"),
    "post_cmd": ("no command is run", "run it yourself after the evaluation"),
}
_UNKNOWN = ("has no counterpart", "leave it out")
_COMMANDS = ("pre_cmd", "post_cmd")
DATASET_DIR, ENDPOINT_TYPE = "dataset_dir", "endpoint_type"


@dataclass(frozen=True)
class Layer:
    """What one place says of `config` and `target`."""

    prefix: str
    tree: Mapping[str, Any]


@dataclass(frozen=True)
class Variable:
    """One of `env_vars`: a variable of the container."""

    path: str
    name: str
    source: str | None
    """The user's variable that it is filled from; None where a value is written out."""

    @property
    def finding(self) -> Finding:
        source = "..." if self.source in (None, self.name) else f'"${self.source}"'
        why = "variables are those that eval-factory is started with"
        return Finding(self.path, why, f"set it before the run (export {self.name}={source})")


@dataclass(frozen=True)
class WantedTask:
    """One entry of `evaluation.tasks`."""

    name: Any
    path: str
    layers: tuple[Layer, ...]
    """The weakest first."""
    variables: tuple[Variable, ...]
    """The weakest first."""
    entry: Mapping[str, Any]

    @property
    def renamed(self) -> dict[str, str]:
        """Variable of the container -> the user's variable that it is filled from."""
        return {one.name: one.source for one in self.variables if one.source not in (None, one.name)}


@dataclass(frozen=True)
class LauncherConfig:
    """All that is wanted of a config."""

    output_dir: Any
    tasks: tuple[WantedTask, ...]
    model_id: Any
    """Of the server that would be deployed, where there is one."""


def read_launcher(document: Mapping[str, Any], findings: list[Finding]) -> LauncherConfig:
    """Take a config apart; what only a launcher does goes into `findings`."""
    used = {name: document[name] for name in ("config", "target", _ALL, "env_vars") if name in document}
    plain = plain_tree(used, document, "", findings)
    findings += _only_launchers(document)
    evaluation = plain.get(_ALL)
    evaluation = {"tasks": evaluation} if isinstance(evaluation, list) else _mapping(evaluation)  # a list at first
    findings += [Finding(f"{_ALL}.{name}", *_OF_A_TASK[name]) for name in _COMMANDS if evaluation.get(name)]
    layers: tuple[Layer, ...] = (Layer("", {name: plain[name] for name in ("config", "target") if name in plain}),)
    layers += tuple(_layers(_ALL, evaluation))
    variables = (
        *_variables("env_vars", plain.get("env_vars")),
        *_variables(f"{_ALL}.env_vars", evaluation.get("env_vars")),
    )
    entries = evaluation.get("tasks")
    return LauncherConfig(
        output_dir=_plain_value(document, "execution", "output_dir", findings),
        tasks=tuple(
            _wanted(f"{_ALL}.tasks[{number}]", entry, layers, variables)
            for number, entry in enumerate(entries if isinstance(entries, list) else [])
        ),
        model_id=_plain_value(document, "deployment", "served_model_name", findings),
    )


def _plain_value(document: Mapping[str, Any], section: str, name: str, findings: list[Finding]) -> Any:
    return plain_tree(_mapping(document.get(section)).get(name), document, f"{section}.{name}", findings)


def _wanted(path: str, entry: Any, above: tuple[Layer, ...], variables: tuple[Variable, ...]) -> WantedTask:
    told = entry if isinstance(entry, Mapping) else {"name": entry}
    return WantedTask(
        name=told.get("name"),
        path=path,
        layers=(*above, *_layers(path, told)),
        variables=(*variables, *_variables(f"{path}.env_vars", told.get("env_vars"))),
        entry=told,
    )


def unused_of_task(task: WantedTask, *, reads_data: bool) -> Iterator[Finding]:
    """Keys of a task's entry that nothing here stands for."""
    known = {"name", "env_vars", _TASK, "overrides", ENDPOINT_TYPE, *((DATASET_DIR,) if reads_data else ())}
    for name, value in task.entry.items():
        if name not in known and value not in (None, ""):
            yield Finding(f"{task.path}.{name}", *_OF_A_TASK.get(name, _UNKNOWN))


def _layers(path: str, section: Mapping[str, Any]) -> Iterator[Layer]:
    if _TASK in section:
        yield Layer(f"{path}.{_TASK}.", _mapping(section[_TASK]))
    if "overrides" in section:
        yield Layer(f"{path}.overrides.", _nested(_mapping(section["overrides"])))


def _nested(flat: Mapping[str, Any]) -> dict[str, Any]:
    """`{config.params.top_p: 1}` as `{config: {params: {top_p: 1}}}`, the form of `overrides`."""
    tree: dict[str, Any] = {}
    for path, value in flat.items():
        below = tree
        *above, last = path.lstrip("+").split(".")
        for name in above:
            child = below.get(name)
            below[name] = below = child if isinstance(child, dict) else {}
        below[last] = value
    return tree


def _only_launchers(document: Mapping[str, Any]) -> Iterator[Finding]:
    yield from _defaults(document.get("defaults"))
    for name, value in _mapping(document.get("execution")).items():
        if name not in ("output_dir", "type") and value not in (None, "", {}):
            yield Finding(f"execution.{name}", *_EXECUTION.get(name, _CLUSTER))
    deployment = _mapping(document.get("deployment"))
    if deployment and deployment.get("type", "") not in _NO_SERVER:
        yield Finding(f"deployment ({', '.join(map(str, deployment))})", *_SERVER)
    known = {"defaults", "execution", "deployment", "target", "config", _ALL, "env_vars"}
    for name, value in document.items():
        if name not in known and value not in (None, "", {}, []):
            yield Finding(str(name), *_SECTIONS.get(name, _UNKNOWN))


def _defaults(entries: Any) -> Iterator[Finding]:
    """Hydra's list of the files that a config is made of; none of them is read here."""
    for number, entry in enumerate(entries if isinstance(entries, list) else []):
        path = f"defaults[{number}]"
        group, choice = next(iter(entry.items()), ("", None)) if isinstance(entry, Mapping) else ("", entry)
        if group == "execution" and choice != "local":
            yield Finding(f"{path}.execution", *_CLUSTER)
        elif group == "deployment" and choice not in _NO_SERVER:
            yield Finding(f"{path}.deployment", *_SERVER)
        elif group not in ("execution", "deployment") and choice != "_self_":
            yield Finding(path, "is another file, which is not read", "copy what it says into the file, and try again")


def _variables(path: str, section: Any) -> Iterator[Variable]:
    for name, value in _mapping(section).items():
        match = _VARIABLE.match(str(value))
        yield Variable(f"{path}.{name}", str(name), match["name"] if match else None)


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}
