"""The conversion of other programs' configurations for `import_config`: those of
nemo-evaluator-launcher and EvalFactory here, others in `foreign_forms`.

A file becomes plain values, then `config` and `target` of each task, key by key, then one document.
What has no counterpart is listed, never dropped in silence. `foreign_configs.yml` has the tables.
https://docs.nvidia.com/nemo/evaluator/latest/libraries/nemo-evaluator-launcher/configuration/index.html
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from eval_factory.config.foreign_forms import form_of, runs_of, without_versions
from eval_factory.config.foreign_keys import (
    ADAPTER,
    INTERCEPTORS,
    NO_EFFECT,
    ONLY,
    TABLE,
    interceptors_in,
)
from eval_factory.config.load import each_text, nested
from eval_factory.config.merge import Source, is_credential, leaves, merge, section_at
from eval_factory.config.model import AdapterConfig, ApiEndpoint, Extra, Params
from eval_factory.config.suite_layers import name_of_type
from eval_factory.config.suite_model import OWN_OPTIONS
from eval_factory.core.enums import LOCAL, SLURM
from eval_factory.core.errors import ConfigError, did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.secrets import REDACTED, looks_like_key, written_keys
from eval_factory.core.urls import PORT
from eval_factory.tasks.framework import DATA_PATH, Framework, Task
from eval_factory.tasks.run_entry import is_run_entry, similar_name_hint, task_of_run_entry

_Tree = dict[str, Any]
_Layer = tuple[str, Mapping[str, Any]]
"""The settings in one place of a file: the path of the place, and `config` and `target`."""
_ADVICE = TABLE["advice"]
_SAID = TABLE["said"]
_LAUNCHER = TABLE["launcher"]
_KNOWN = TABLE["known"]
_OPTIONS: Mapping[str, Mapping[str, str]] = {LOCAL: {}, SLURM: TABLE["sbatch"]}
"""Executor -> key of `execution` -> option of sbatch."""
ENDPOINT = "target.api_endpoint"
PARAMS = "config.params"
EXTRA = "config.params.extra"
_READ: Mapping[str, tuple[str, ...]] = {  # section -> the keys that are read of it
    "config": ("type", "output_dir", "params"),
    PARAMS: tuple(Params.model_fields),
    EXTRA: tuple(Extra.model_fields),
    "target": ("api_endpoint",),
    ENDPOINT: (*ApiEndpoint.model_fields, "api_key_name"),
    ADAPTER: (*AdapterConfig.model_fields, "interceptors", "use_system_prompt"),
}
_MISSING = "???"
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")
_INTERPOLATION = re.compile(r"\$\{([^${}]*)\}")
_ENVIRONMENT = re.compile(r"oc\.env:\s*([A-Za-z_]\w*)\s*(?:,(.*))?\Z")
_SOURCE = re.compile(r"(?:host:|runtime:|\$\{|\$)?([A-Za-z_]\w*)\}?\Z")


@dataclass(frozen=True)
class Translation:
    """The run config that is written, and the settings that are not in it."""

    document: Mapping[str, Any]
    findings: tuple[str, ...]
    """A line each: the key in the file; why it is not in the document, or not as it was; what
    the user can do.
    """

    @property
    def text(self) -> str:
        """The file to write: YAML, with a comment for each finding."""
        lines = ["# Made by 'eval-factory import_config'."]
        if self.findings:
            lines.append("# Settings that eval-factory does not have, or writes in another way:")
        body = yaml.safe_dump(dict(self.document), sort_keys=False, allow_unicode=True, width=1000)
        return "\n".join([*lines, *(f"# - {finding}" for finding in self.findings), body])


def translated(path: Path, framework: Framework) -> Translation:
    """Translate a file.

    Raises:
        ConfigError: it cannot be read, is of no known form, holds a key, or names no task that
            there is here.
    """
    document = load_mapping(path, _KNOWN)
    if keys := list(written_keys(without_versions(document))):
        raise ConfigError([f"{path}: {key_path}: {TABLE['written_key']}" for key_path in keys])
    work = _Import(path, framework, document)
    form = form_of(document)
    if form is not None:
        written = work.of_form(form)
    elif {"evaluation", "execution", "deployment"} & set(document):
        written = work.of_launcher()
    elif {"config", "target"} & set(document):
        written = work.of_run_config()
    else:
        raise ConfigError(f"{path}: is not a configuration in a known form; {_KNOWN}")
    return Translation(written, tuple(dict.fromkeys(work.findings)))


@dataclass
class _Import:
    """One file on its way."""

    path: Path
    framework: Framework
    document: Mapping[str, Any]
    findings: list[str] = field(default_factory=list)
    serve: _Tree | None = None  # the server of every target
    keys: set[str] = field(default_factory=set)
    """Variables of the container that hold a key: what is written names the user's in their
    place.
    """

    def note(self, path: str, message: str) -> None:
        self.findings.append(
            one_line(f"{path}: {message}", 2000)
        )  # names in a file are foreign text

    def kept(
        self, section: str, given: Any, known_keys: Collection[str], prefix: str = ""
    ) -> _Tree:
        """The keys of a section that are read; of the others, why not. A null of a credential
        says: none is sent.
        """
        if given is not None and not isinstance(given, Mapping):
            self.note(f"{prefix}{section}", "must be a mapping of keys to values")
        values = {}
        for name, value in _mapping(given).items():
            if value is not None or is_credential(name):
                values[name] = value
        for name in [
            name
            for name, value in values.items()
            if name not in known_keys and value not in ("", {}, [])
        ]:
            if name in NO_EFFECT.get(section, ()):
                of_all = _ADVICE["caching"]
            else:
                of_all = _ADVICE.get(f"{section}.*")
            why = (
                _ADVICE.get(name)
                or of_all
                or f"has no counterpart; leave it out{did_you_mean(name, sorted(known_keys))}"
            )
            if (only := ONLY.get(f"{section}.{name}")) is not None:
                why = f"cannot be changed here: {only['done']}; leave it out"
            self.note(f"{prefix}{section}.{name}".lstrip("."), why)
        kept_values: _Tree = {}
        for name, value in values.items():
            if name in known_keys:
                kept_values[name] = value
        return kept_values

    def of_run_config(self) -> _Tree:
        place = {}
        for name in ("executor", "slurm"):
            if name in self.document:
                place[name] = self.document[name]
        self.kept("", self.document, ("config", "target", *place))
        task = self.task(_mapping(self.document.get("config")).get("type"), "config.type")
        if task is None:
            raise ConfigError(f"{self.path}: {self.findings[-1]}")
        return {**_Run(self, task).document([("", self.document)]), **place}

    def of_form(self, form: str) -> _Tree:
        """A run config of lm-evaluation-harness, inspect_ai or `nel eval run`."""
        runs = [run.document for run in runs_of(form, self.document, self.framework, self.note)]
        if not runs:
            raise ConfigError(f"{self.path}: names no benchmark")
        if len(runs) == 1:
            return runs[0]
        names = [name_of_type(run["config"]["type"], self.framework) for run in runs]
        folder = runs[0]["config"]["output_dir"]
        return {"suite": {"output_dir": folder, **_suite_of(runs, _distinct(names), {}, None)}}

    def of_launcher(self) -> _Tree:
        self.document = {
            **self.document,
            "deployment": {**_mapping(self.document.get("deployment")), "port": PORT},
        }
        plain = each_text(self.kept("", self.document, _LAUNCHER[""]), self.plain)
        execution = _mapping(plain.get("execution"))
        deployment = plain["deployment"]
        executor, kind = self.types(plain.get("defaults"), execution, deployment)
        place = self.slurm(execution, executor)
        self.serve = self.server(kind, deployment, execution, place)
        runs = self.runs(plain)
        if not runs:
            raise ConfigError([f"{self.path}: names no task that eval-factory has", *self.findings])
        if len(runs) == 1 and self.serve is None:
            return {**runs[0], **place}
        names = [name_of_type(run["config"]["type"], self.framework) for run in runs]
        suite = _suite_of(runs, _distinct(names), place, self.serve)
        return {"suite": {"output_dir": execution.get("output_dir") or "results/suite", **suite}}

    def runs(self, plain: Mapping[str, Any]) -> list[_Tree]:
        """The run config of each task. The places that say something of it come weakest first."""
        evaluation = _mapping(plain.get("evaluation"))
        self.kept("evaluation", evaluation, _LAUNCHER["evaluation"])
        variables = {
            **_variables("env_vars", plain),
            **_variables("evaluation.env_vars", evaluation),
        }
        folder = _mapping(plain.get("execution")).get("output_dir")
        model = plain["deployment"].get("served_model_name")
        served = ("deployment.", nested({f"{ENDPOINT}.model_id": model}))
        above: list[_Layer] = [served, ("", plain), *_layers("evaluation", evaluation)]
        entries = evaluation.get("tasks")
        every = dict(variables)
        runs = []
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            path = f"evaluation.tasks[{number}]"
            section = entry if isinstance(entry, Mapping) else {"name": entry}
            task = self.task(section.get("name"), f"{path}.name")
            if task is None:
                continue
            here = {**variables, **_variables(f"{path}.env_vars", section)}
            every |= here
            if DATA_PATH in task.helm.parameters:
                data = {"dataset_dir": f"{EXTRA}.{DATA_PATH}"}
            else:
                data = {}
            self.kept(path, section, (*_LAUNCHER["task"], *data))
            places = {"endpoint_type": f"{ENDPOINT}.type", **data}
            last = {
                "config.output_dir": folder,
                **{variable_path: section.get(name) for name, variable_path in places.items()},
            }
            renamed = {}
            for variable_path, source in here.items():
                renamed[variable_path.rpartition(".")[2]] = source
            layers = [*above, *_layers(path, section), (f"{path}.", nested(last))]
            runs.append(_Run(self, task, renamed).document(layers))
        for variable_path, source in every.items():
            if (name := variable_path.rpartition(".")[2]) not in self.keys:
                value = "..." if source in (None, name) else f'"${source}"'
                self.note(variable_path, f"{_SAID['variable']} (export {name}={value})")
        return runs

    def task(self, name: Any, path: str) -> Task | None:
        """A task of another harness is another benchmark, also if it has the same data: it is
        named, never taken.
        """
        if not isinstance(name, str):
            self.note(path, "names no task; 'eval-factory ls' lists the tasks")
            return None
        if is_run_entry(name, self.framework):
            return task_of_run_entry(name, self.framework, [])
        task = self.framework.task(name)
        if task is None:
            near = similar_name_hint(name.rpartition(".")[2], self.framework)
            shown = REDACTED if looks_like_key(name) else repr(name)
            self.note(path, f"eval-factory has no task {shown}{near}; {_SAID['tasks']}")
        return task

    def plain(self, path: str, text: str) -> Any:
        """Return a text of Hydra's as ours, `???` as a variable; null, and a finding, if that
        cannot be.

        https://omegaconf.readthedocs.io/en/latest/usage.html (mandatory values, interpolation)
        """
        if text == _MISSING:
            name = re.sub(r"\W", "_", path.rpartition(".")[2]).upper()
            name = f"MODEL_{name}" if name == "URL" else name
            self.note(path, _SAID["not given"].format(name=name))
            return f"${{{name}}}"
        parts = _INTERPOLATION.split(text)  # texts, and between them what stands in `${}`
        values = [self.followed(part) if number % 2 else part for number, part in enumerate(parts)]
        if None in values or any("${" in part for part in parts):
            self.note(
                path,
                "refers to another value, which eval-factory does not look up; "
                "write the value itself",
            )
            return None
        if parts[0] == parts[-1] == "" and len(parts) == 3:
            return values[1]
        return "".join(map(str, values))

    def followed(self, name: str) -> str | int | float | None:
        """Return what stands in `${}`: a variable of the environment, or the path of a value in
        this file.
        """
        variable = _ENVIRONMENT.match(name)
        if variable:
            default = (variable[2] or "").strip().strip("'\"")
            has_one = variable[2] is not None and default not in ("null", "None")
            return f"${{{variable[1]}{f':-{default}' if has_one else ''}}}"
        *sections, last = name.split(".")
        value = section_at(self.document, sections).get(last)
        is_followed = (
            isinstance(value, (str, int, float)) and value != _MISSING and "${" not in str(value)
        )
        if not is_followed:
            return None
        return value

    def types(
        self, entries: Any, execution: Mapping[str, Any], deployment: Mapping[str, Any]
    ) -> tuple[str, str]:
        """The types of execution and deployment: said there, or by `defaults`, the files that
        the config is made of.
        """
        chosen = {
            "execution": LOCAL,
            "deployment": "generic" if "image" in deployment else "none",
        }
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            group, choice = (
                next(iter(entry.items()), ("", None)) if isinstance(entry, Mapping) else ("", entry)
            )
            if group in chosen:
                chosen[group] = str(choice or "none").partition("/")[0]
            elif choice != "_self_":
                self.note(f"defaults[{number}]", _SAID["defaults"])
        return str(execution.get("type", chosen["execution"])), str(
            deployment.get("type") or chosen["deployment"]
        )

    def slurm(self, execution: Mapping[str, Any], executor: str) -> _Tree:
        """Return `execution` as our `executor` and `slurm`: its keys are options of sbatch."""
        options = _OPTIONS.get(executor, {})
        self.kept("execution", execution, (*_LAUNCHER["execution"], *options))
        if executor not in _OPTIONS:
            self.note("execution.type", _ADVICE["execution.*"])
        if not options:
            return {}
        options_of_sbatch = {}
        for name, option in options.items():
            if value := execution.get(name):
                options_of_sbatch[option] = value
        slurm: _Tree = {}
        for name, value in {**options_of_sbatch.pop("", {}), **options_of_sbatch}.items():
            key = OWN_OPTIONS.get(name, name)
            text = str(value).removeprefix("gpu:")
            if isinstance(value, int) and value >= 3600:  # YAML takes 4:00:00 for 14400
                text = f"{value // 3600}:{value // 60 % 60:02}:{value % 60:02}"
            if key is None:
                self.note(
                    f"execution.sbatch_extra_flags.{name}",
                    "eval-factory sets it itself; leave it out",
                )
            elif name in OWN_OPTIONS:
                slurm[key] = value if key == "cpus" else text
            elif value not in (None, False):
                flag = f"--{name}"
                if value is not True:
                    flag += f'="{text}"' if " " in text else f"={text}"
                slurm.setdefault("extra", []).append(flag)
        place: _Tree = {"executor": executor}
        if slurm:
            place["slurm"] = slurm
        return place

    def server(
        self, kind: str, given: Mapping[str, Any], execution: Mapping[str, Any], place: _Tree
    ) -> _Tree | None:
        """Return `deployment` as the `serve` of a target; None if there is no server, or none that
        can be converted.
        """
        if kind == "none":
            return None
        command = str(given.get("command") or "").strip()
        form = TABLE["servers"].get(kind)
        if form is None or "\n" in command:  # a script; a server is started without a shell
            self.note(
                f"deployment ({', '.join(name for name in given if name != 'port')})",
                _ADVICE["deployment"],
            )
            return None
        self.kept("deployment", given, (*_LAUNCHER["deployment"], *form["options"]))
        model = (
            given.get("hf_model_handle")
            or given.get("checkpoint_path")
            or given.get("served_model_name")
        )
        values = {
            "served_model_name": model,
            "extra_args": "",
            **form["defaults"],
            **given,
            "model": model,
        }
        options = {} if command else form["options"]
        if place:
            # as many as a launcher asks for, which says nothing
            place.setdefault("slurm", {}).setdefault("gpus", "8")
        instances = execution.get("num_instances") or 1
        nodes = execution.get("num_nodes") or 1
        if instances != 1:
            self.note("execution.num_instances", _ADVICE["num_instances"])
        if nodes not in (1, instances):
            self.note("execution.num_nodes", _ADVICE["num_nodes"])
        inherited = []  # a server gets variables under their own names alone
        for variable_path, source in _variables("deployment.env_vars", given).items():
            if variable_path.endswith(f".{source}"):
                inherited.append(source)
            else:
                self.note(variable_path, _ADVICE["env_vars"])
        serve = {
            "command": " ".join((command or form["command"].format(**values)).split()),
            "machine_options": " ".join(
                f"{option} {values[name]}" for name, option in options.items() if values.get(name)
            ),
            "health": _mapping(given.get("endpoints")).get("health"),
            "start_time_limit_s": execution.get("endpoint_readiness_timeout"),
            "replicas": instances if instances != 1 else None,
            "env": inherited,
        }
        return {name: value for name, value in serve.items() if value}


@dataclass
class _Run:
    """The `config` and `target` of one task, from what several places of the file say of them."""

    work: _Import
    task: Task
    renamed: Mapping[str, str | None] = field(default_factory=dict)
    """Variable of the container -> the user's that it is filled from."""

    def document(self, layers: Iterable[_Layer]) -> _Tree:
        parts = []
        for prefix, tree in layers:
            parts.append(
                (
                    Source.FILE,
                    {
                        name: self.section(name, tree.get(name), prefix)
                        for name in ("config", "target")
                    },
                )
            )
        run, _ = merge(parts)
        config = run["config"]
        endpoint = run["target"].setdefault("api_endpoint", {})
        params = config.setdefault("params", {})
        extra = params.setdefault("extra", {})
        adapter = endpoint.get("adapter_config", {})
        if (
            not adapter.pop("use_system_prompt", False)
            and adapter.pop("custom_system_prompt", None) is not None
        ):
            path = f"{ADAPTER}.custom_system_prompt"
            self.work.note(path, _SAID["unused prompt"].format(path=path))
        for name in ("GPT_JUDGE_API_KEY", "LLAMA_JUDGE_API_KEY", "CLAUDE_JUDGE_API_KEY"):
            if self.renamed.get(name) not in (None, name) and self.task.helm.judges:
                extra.setdefault(name.lower(), self.renamed[name])
                self.work.keys.add(name)
        for name, theirs in (
            TABLE["defaults"].items() if self.task.name in TABLE["tasks"].split() else ()
        ):
            if name not in params and not (
                name == "max_new_tokens" and "num_output_tokens" in extra
            ):
                self.work.note(f"{PARAMS}.{name}", _SAID["default"].format(theirs=theirs))
        if self.work.serve is not None:
            endpoint.pop("url", None)  # a launcher too asks the server that it starts
        folder = config.get("output_dir", f"results/{self.task.name.replace(':', '_')}")
        config = {"type": self.task.name, "output_dir": folder, "params": _filled(params)}
        return {"config": _filled(config), "target": {"api_endpoint": _filled(endpoint)}}

    def section(self, path: str, given: Any, prefix: str) -> _Tree:
        """Return the section at `path` with our keys and values. `prefix`: the path in the file of
        the layer at hand, which findings begin with.
        """
        tree = self.work.kept(path, given, _READ[path], prefix)
        for name in tree:
            if f"{path}.{name}" in _READ:
                tree[name] = self.section(f"{path}.{name}", tree[name], prefix)
        if path == EXTRA:
            tree |= {name: self.variable(tree[name]) for name in tree if name.endswith("_api_key")}
        elif path == ENDPOINT:
            self.settle_endpoint(tree, tree.get("adapter_config", {}), prefix)
        return tree

    def variable(self, name: Any) -> Any:
        """The name of the user's variable. Where a key itself would be filled in, its variable
        is meant.
        """
        if not isinstance(name, str):
            return name
        variable = _VARIABLE.fullmatch(name)
        name = variable[1] if variable else name
        self.work.keys.add(name)
        return self.renamed.get(name) or name

    def settle_endpoint(self, endpoint: _Tree, adapter: _Tree, prefix: str) -> None:
        for number, name, interceptor in interceptors_in(adapter.pop("interceptors", [])):
            path = f"{INTERCEPTORS}[{number}]"
            form = TABLE["interceptors"].get(name)
            if form is None:
                if name in TABLE["harmless"]:
                    why = _ADVICE["caching"]
                else:
                    why = "there is no such interceptor; leave it out"
                self.work.note(f"{prefix}{path}", f"{name}: {why}")
                continue
            config = self.work.kept(
                f"{path}.config", interceptor.get("config"), form["keys"], prefix
            )
            adapter |= {
                **form.get("sets", {}),
                **{form["keys"][key]: value for key, value in config.items()},
            }
        # a null says that none is sent
        is_said = "api_key_name" in endpoint or "api_key" in endpoint
        named = endpoint.pop("api_key_name", None)
        if isinstance(named, str) and "${" in named:
            endpoint["api_key"] = named  # the environment says which variable it is
        elif is_said:
            endpoint["api_key"] = self.variable(endpoint.get("api_key") if named is None else named)
        kind = endpoint.pop("type", None)
        if kind in ("chat", "completions", "vlm"):
            endpoint["type"] = "chat" if kind == "vlm" else kind
        elif kind is not None:
            self.work.note(
                f"{prefix}{ENDPOINT}.type", "does not answer with text; give chat or completions"
            )


def _mapping(value: Any) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        return {}
    return value


def _filled(tree: _Tree) -> _Tree:
    filled: _Tree = {}
    for name, value in tree.items():
        if value not in ({}, []):
            filled[name] = value
    return filled


def _variables(path: str, section: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the user's variable that each variable of the container in `env_vars` is filled from,
    by the latter's path; None: a value is given.
    """
    sources = {}
    for name, value in _mapping(section.get("env_vars")).items():
        sources[f"{path}.{name}"] = _SOURCE.match(str(value))
    return {name: match[1] if match else None for name, match in sources.items()}


def _layers(path: str, section: Mapping[str, Any]) -> list[_Layer]:
    """Return what one place says of `config` and `target`; `overrides` has dotted paths."""
    overrides = {
        path.lstrip("+"): value for path, value in _mapping(section.get("overrides")).items()
    }
    theirs = _mapping(section.get("nemo_evaluator_config"))
    return [(f"{path}.nemo_evaluator_config.", theirs), (f"{path}.overrides.", nested(overrides))]


def _suite_of(
    runs: Sequence[_Tree], names: Sequence[str], place: _Tree, serve: _Tree | None
) -> _Tree:
    """The suite whose cells are these runs, and no others; what they share is written once."""
    params_of = [leaves(run["config"].get("params", {})) for run in runs]
    flat = [{".".join(path): value for path, value in params.items()} for params in params_of]
    shared = {}
    for key, value in flat[0].items():
        if all(params.get(key, _MISSING) == value for params in flat):
            shared[key] = value
    endpoints = [run["target"]["api_endpoint"] for run in runs]
    different = []
    for number, endpoint in enumerate(endpoints):
        if endpoint not in endpoints[:number]:
            different.append(endpoint)
    targets = dict(zip(_distinct(["model"] * len(different)), different, strict=True))
    evaluations: list[Any] = []
    excluded = []
    for run, name, params, own_endpoint in zip(runs, names, flat, endpoints, strict=True):
        task = run["config"]["type"]
        own_params = nested({key: params[key] for key in params if key not in shared})
        entry = {"type": task, "name": name, **({"params": own_params} if own_params else {})}
        evaluations.append(task if entry == {"type": task, "name": task} else entry)
        for target, endpoint in targets.items():
            if endpoint != own_endpoint:
                excluded.append({"evaluation": name, "target": target})
    suite = {
        **place,
        "params": nested(shared),
        "evaluations": evaluations,
        "targets": [
            _filled({"name": name, "api_endpoint": endpoint, "serve": serve or {}})
            for name, endpoint in targets.items()
        ],
        "exclude": excluded,
    }
    return _filled(suite)


def _distinct(names: Sequence[str]) -> list[str]:
    """A name that is there already gets a number: `medec`, `medec-2`."""
    times = [names[: number + 1].count(name) for number, name in enumerate(names)]
    return [name if of == 1 else f"{name}-{of}" for name, of in zip(names, times, strict=True)]
