"""`import_config`: configurations of nemo-evaluator-launcher and EvalFactory made ours.

A file becomes plain values, then `config` and `target` of each task, key by key, then one document, which our own
loader checks. What has no counterpart is listed, never dropped in silence. `foreign_configs.yml` has the tables.
https://docs.nvidia.com/nemo/evaluator/latest/libraries/nemo-evaluator-launcher/configuration/index.html
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.config.load import each_text, nested
from eval_factory.config.merge import Source, is_credential, leaves, merge, section_at
from eval_factory.config.model import AdapterConfig, ApiEndpoint, Extra, Params
from eval_factory.config.rules import SCENARIO_PARAMETERS
from eval_factory.config.suite import build_suite
from eval_factory.config.suite_model import OF_THE_SUITE, OWN_OPTIONS
from eval_factory.config.taken_keys import ADAPTER, INTERCEPTORS, NO_EFFECT, ONLY, TABLE, TASK, interceptors_in
from eval_factory.core.errors import ConfigError, did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.secrets import REDACTED, looks_like_key, written_keys
from eval_factory.core.urls import PORT
from eval_factory.tasks.framework import DATA_PATH, Framework, Task
from eval_factory.tasks.run_entry import is_run_entry, near_name, task_of_run_entry

_Tree = dict[str, Any]
_Layer = tuple[str, Mapping[str, Any]]
"""What one place of a file says: the path of the place, and `config` and `target`."""
_ADVICE, _SAID, _LAUNCHER, _KNOWN = TABLE["advice"], TABLE["said"], TABLE["launcher"], TABLE["known"]
LAUNCHER, EVAL_FACTORY = "nemo-evaluator-launcher", "EvalFactory"
ENDPOINT, PARAMS, EXTRA = "target.api_endpoint", "config.params", "config.params.extra"
_READ: Mapping[str, tuple[str, ...]] = {
    "config": ("type", "output_dir", "params"),
    PARAMS: (*Params.model_fields, "task"),
    EXTRA: tuple(Extra.model_fields),
    "target": ("api_endpoint",),
    ENDPOINT: (*ApiEndpoint.model_fields, "api_key_name"),
    ADAPTER: (*AdapterConfig.model_fields, "interceptors", "use_system_prompt"),
}
"""Section -> the keys that are read of it."""
_MISSING, _VARIABLE = "???", re.compile(r"\$\{([A-Za-z_]\w*)\}")
_INTERPOLATION = re.compile(r"\$\{((?:[^${}]|\$\{[^${}]*\})*)\}")
_ENVIRONMENT = re.compile(r"(?:oc\.decode:\s*\$\{)?oc\.env:\s*([A-Za-z_]\w*)\s*(?:,([^${}]*))?\}?\s*\Z")
_SOURCE = re.compile(r"(?:host:|runtime:|\$\{|\$)?([A-Za-z_]\w*)\}?\Z")


@dataclass(frozen=True)
class Translation:
    """What is to be written, and what is not in it."""

    program: str
    document: Mapping[str, Any]
    findings: tuple[str, ...]
    """A line each: the key in the file; why it is not in the document, or not as it was; what the user can do."""
    unchanged: bool  # the file runs here as it is

    @property
    def text(self) -> str:
        """The file to write: YAML, with a comment for each finding."""
        lines = [f"# Made by 'eval-factory import_config' of a configuration of {self.program}."]
        lines += ["# What has no counterpart here, or another one:"] if self.findings else []
        body = yaml.safe_dump(dict(self.document), sort_keys=False, allow_unicode=True, width=1000)
        return "\n".join([*lines, *(f"# - {finding}" for finding in self.findings), body])


def translated(path: Path, framework: Framework) -> Translation:
    """Translate a file.

    Raises:
        ConfigError: it cannot be read, is of no known form, is a suite already, holds a key, names no task that there
            is here, or says something that no run could be made of.
    """
    document = load_mapping(path, _KNOWN)
    if keys := list(written_keys(document)):
        raise ConfigError([f"{path}: {where}: {TABLE['written_key']}" for where in keys])
    for refused in TABLE["refused"]:
        if set(document).issuperset(refused["sections"]):
            raise ConfigError(f"{path}: {refused['why'].format(path=path, known=_KNOWN)}")
    work = _Import(path, framework, document)
    if {"evaluation", "execution", "deployment"} & set(document):
        program, written = LAUNCHER, work.of_launcher()
    elif {"config", "target"} & set(document):
        program, written = EVAL_FACTORY, work.of_run_config()
    else:
        raise ConfigError(f"{path}: is no configuration that is known; {_KNOWN}")

    def note_what_is_asked(where: str, text: str) -> None:
        if text == f"${{{variable_for(where)}}}":  # the file leaves it to the user
            work.note(where, _SAID["not given"].format(name=variable_for(where)))

    each_text(written, note_what_is_asked)
    unchanged = written == {name: value for name, value in document.items() if name in written}
    return Translation(program, written, tuple(dict.fromkeys(work.findings)), unchanged)


@dataclass
class _Import:
    """One file on its way."""

    path: Path
    framework: Framework
    document: Mapping[str, Any]
    findings: list[str] = field(default_factory=list)
    serve: _Tree | None = None  # the server of every target
    keys: set[str] = field(default_factory=set)
    """Variables of the container that hold a key: what is written names the user's in their place."""

    def note(self, where: str, said: str) -> None:
        self.findings.append(one_line(f"{where}: {said}", 2000))  # names in a file are foreign text

    def kept(self, section: str, given: Any, known: Collection[str], prefix: str = "") -> _Tree:
        """The keys of a section that are read; of the others, why not. A null of a credential says: none is sent."""
        if not isinstance(given, Mapping):
            if given is not None:
                self.note(f"{prefix}{section}", "is no mapping of keys to values; write it as one")
            return {}
        said = {name: value for name, value in given.items() if value is not None or is_credential(name)}
        for name, value in said.items():
            only = ONLY.get(f"{section}.{name}")
            if name in known or value in ("", {}, []) or (only is not None and value in only["values"]):
                continue
            of_all = _ADVICE["caching"] if name in NO_EFFECT.get(section, ()) else _ADVICE.get(f"{section}.*")
            why = _ADVICE.get(name) or of_all or f"has no counterpart; leave it out{did_you_mean(name, sorted(known))}"
            if only is not None:
                why = f"would change the results and is not followed: {only['done']}; leave it out"
            self.note(f"{prefix}{section}.{name}".lstrip("."), why)
        return {name: value for name, value in said.items() if name in known}

    def of_run_config(self) -> _Tree:
        place = {name: self.document[name] for name in ("executor", "slurm") if name in self.document}
        self.kept("", self.document, ("config", "target", *place))
        name = _mapping(self.document.get("config")).get("type")
        task = self.task(name, "config.type")
        if task is None:
            raise ConfigError(f"{self.path}: {self.findings[-1]}")
        run = {**_Run(self, task).document([("", self.document)]), **place}
        run["config"]["type"] = name
        self.check(run, task)
        self.defaults_not_given([(task, run)])
        return run

    def of_launcher(self) -> _Tree:
        self.document = {**self.document, "deployment": {**_mapping(self.document.get("deployment")), "port": PORT}}
        read = {name: value for name, value in self.document.items() if name in _LAUNCHER["plain"]}
        plain = each_text(read, self.plain)
        execution, deployment = _mapping(plain.get("execution")), plain["deployment"]
        executor, kind = self.types(execution, deployment)
        self.kept("", self.document, _LAUNCHER[""])
        place = self.slurm(execution, executor)
        self.serve = self.server(kind, deployment, execution, place)
        runs = self.runs(plain)
        if not runs:
            lines = [f"  {one}" for one in self.findings if one.startswith("evaluation.tasks")] or [f"  {_KNOWN}"]
            raise ConfigError([f"{self.path}: names no task that eval-factory has", *lines])
        self.defaults_not_given(runs)
        alone = {**runs[0][1], **place} if len(runs) == 1 and self.serve is None else None
        for task, run in runs:
            self.check(alone or run, task)
        if alone is not None:
            return alone
        suite = _suite_of(runs, execution.get("output_dir") or "results/suite", place, self.serve)
        self.check(suite, None)
        return suite

    def runs(self, plain: Mapping[str, Any]) -> list[tuple[Task, _Tree]]:
        """Each task with its run config. The places that say something of it come weakest first."""
        evaluation = plain.get("evaluation")
        evaluation = {"tasks": evaluation} if isinstance(evaluation, list) else _mapping(evaluation)  # a list at first
        self.kept("evaluation", evaluation, _LAUNCHER["evaluation"])
        variables = {**_variables("env_vars", plain), **_variables("evaluation.env_vars", evaluation)}
        folder, model = _mapping(plain.get("execution")).get("output_dir"), plain["deployment"].get("served_model_name")
        served = ("deployment.", nested({f"{ENDPOINT}.model_id": model}))
        above: list[_Layer] = [served, ("", plain), *_layers("evaluation", evaluation)]
        entries, every, runs = evaluation.get("tasks"), dict(variables), []
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            path, said = f"evaluation.tasks[{number}]", entry if isinstance(entry, Mapping) else {"name": entry}
            task = self.task(said.get("name"), f"{path}.name")
            if task is None:
                continue
            here = {**variables, **_variables(f"{path}.env_vars", said)}
            every |= here
            last = {f"{ENDPOINT}.type": said.get("endpoint_type"), "config.output_dir": folder}
            reads_data = DATA_PATH in task.helm.parameters
            last |= {f"{EXTRA}.{DATA_PATH}": said.get("dataset_dir")} if reads_data else {}
            self.kept(path, said, (*_LAUNCHER["task"], *(["dataset_dir"] if reads_data else [])))
            renamed = {where.rpartition(".")[2]: source for where, source in here.items()}
            layers = [*above, *_layers(path, said), (f"{path}.", nested(last))]
            runs.append((task, _Run(self, task, renamed).document(layers)))
        for where, source in every.items():
            if (name := where.rpartition(".")[2]) not in self.keys:
                value = "..." if source in (None, name) else f'"${source}"'
                self.note(where, f"{_SAID['variable']} (export {name}={value})")
        return runs

    def task(self, name: Any, where: str) -> Task | None:
        """A task of another harness is another benchmark, also where it has the same data: it is named, never taken."""
        if not isinstance(name, str):
            self.note(where, "names no task; 'eval-factory ls' lists the tasks")
            return None
        if is_run_entry(name, self.framework):
            return task_of_run_entry(name, self.framework, [])
        task = self.framework.task(name)
        if task is None:
            near = near_name(name.rpartition(".")[2], self.framework)
            shown = REDACTED if looks_like_key(name) else repr(name)
            self.note(where, f"eval-factory has no task {shown}{near}; {_SAID['tasks']}")
        return task

    def plain(self, path: str, text: str, depth: int = 0) -> Any:
        """A text of Hydra's as ours, `???` as a variable; null, and a finding, where that cannot be.

        https://omegaconf.readthedocs.io/en/latest/usage.html (mandatory values, interpolation)
        """
        if text == _MISSING:
            return f"${{{variable_for(path)}}}"
        parts = _INTERPOLATION.split(text)  # texts, and between them what stands in `${}`
        values = [self.followed(part, path, depth) if number % 2 else part for number, part in enumerate(parts)]
        if any(value is None or (not number % 2 and "${" in value) for number, value in enumerate(values)):
            self.note(path, "is an interpolation that is not followed here; write the value itself")
            return None
        return values[1] if parts[0] == parts[-1] == "" and len(parts) == 3 else "".join(map(str, values))

    def followed(self, name: str, path: str, depth: int) -> Any:
        variable = _ENVIRONMENT.match(name)
        if variable:
            default = (variable[2] or "").strip().strip("'\"")
            has_one = variable[2] is not None and default not in ("null", "None")
            return f"${{{variable[1]}{f':-{default}' if has_one else ''}}}"
        *sections, last = name.split(".")
        value = section_at(self.document, sections).get(last)
        if not isinstance(value, (str, int, float)) or value == _MISSING or depth >= 10:
            return None
        return self.plain(path, value, depth + 1) if isinstance(value, str) else value

    def types(self, execution: Mapping[str, Any], deployment: Mapping[str, Any]) -> tuple[str, str]:
        """The types of execution and deployment: said there, or by the files that the config is made of."""
        chosen = {"execution": "local", "deployment": "generic" if "image" in deployment else "none"}
        entries = self.document.get("defaults")
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            group, choice = next(iter(entry.items()), ("", None)) if isinstance(entry, Mapping) else ("", entry)
            if group in chosen:
                chosen[group] = str(choice or "none").partition("/")[0]
            elif choice != "_self_":
                self.note(f"defaults[{number}]", _SAID["defaults"])
        return str(execution.get("type", chosen["execution"])), str(deployment.get("type") or chosen["deployment"])

    def slurm(self, execution: Mapping[str, Any], executor: str) -> _Tree:
        """`execution` as our `executor` and `slurm`: its keys are options of sbatch."""
        options = TABLE["sbatch"] if executor == "slurm" else {}
        self.kept("execution", execution, (*_LAUNCHER["execution"], *options))
        if executor != "slurm":
            if executor != "local":
                self.note("execution.type", _ADVICE["execution.*"])
            return {}
        asked = {option: value for name, option in options.items() if (value := execution.get(name))}
        slurm: _Tree = {}
        for name, value in {**asked.pop("", {}), **asked}.items():
            key, text = OWN_OPTIONS.get(name, name), str(value).removeprefix("gpu:")
            if isinstance(value, int) and value >= 3600:  # YAML takes 4:00:00 for 14400
                text = f"{value // 3600}:{value // 60 % 60:02}:{value % 60:02}"
            if key is None:
                self.note(f"execution.sbatch_extra_flags.{name}", "eval-factory sets it itself; leave it out")
            elif name in OWN_OPTIONS:
                slurm[key] = value if key == "cpus" else text
            elif value not in (None, False):
                said = "" if value is True else f'="{text}"' if " " in text else f"={text}"
                slurm.setdefault("extra", []).append(f"--{name}{said}")
        return {"executor": "slurm", **({"slurm": slurm} if slurm else {})}

    def server(self, kind: str, given: Mapping[str, Any], execution: Mapping[str, Any], place: _Tree) -> _Tree | None:
        """`deployment` as the `serve` of a target."""
        own, form = str(given.get("command") or "").strip(), TABLE["servers"].get(kind)
        if kind == "none":
            return None
        if form is None or "\n" in own:  # a script; a server is started without a shell
            self.note(f"deployment ({', '.join(name for name in given if name != 'port')})", _ADVICE["deployment"])
            return None
        self.kept("deployment", given, (*_LAUNCHER["deployment"], *form["options"]))
        model = given.get("hf_model_handle") or given.get("checkpoint_path") or given.get("served_model_name")
        said = {"served_model_name": model, "extra_args": "", **form["defaults"], **given, "model": model}
        options = {} if own else form["options"]
        if place:
            place.setdefault("slurm", {}).setdefault("gpus", "8")  # as many as a launcher asks for, which says nothing
        instances, nodes = execution.get("num_instances") or 1, execution.get("num_nodes") or 1
        if instances != 1:
            self.note("execution.num_instances", _ADVICE["num_instances"])
        if nodes not in (1, instances):
            self.note("execution.num_nodes", _ADVICE["num_nodes"])
        inherited = []  # a server gets variables under their own names alone
        for where, source in _variables("deployment.env_vars", given).items():
            if where.endswith(f".{source}"):
                inherited.append(source)
            else:
                self.note(where, _ADVICE["env_vars"])
        serve = {
            "command": " ".join((own or form["command"].format(**said)).split()),
            "machine_options": " ".join(f"{option} {said[name]}" for name, option in options.items() if said.get(name)),
            "health": _mapping(given.get("endpoints")).get("health"),
            "start_time_limit_s": execution.get("endpoint_readiness_timeout"),
            "replicas": instances if instances != 1 else None,
            "env": inherited,
        }
        return _without_nothing(serve)

    def check(self, document: Mapping[str, Any], task: Task | None) -> None:
        """Load a run config, or without a task a suite, as a run would, whatever its variables hold."""

        def sample(path: str, text: str) -> Any:
            """A value in the place of a variable: one that is valid where it stands."""
            name = path.rpartition(".")[2].partition("[")[0]
            rule = task.helm.parameters.get(name) if task is not None else None
            if not _VARIABLE.fullmatch(text):
                return _VARIABLE.sub("x", text)
            if rule is not None and rule.allowed:
                return rule.allowed[0]
            return TABLE["samples"].get(name, 1 if name in Params.model_fields else "STANDIN")

        tree = each_text(document, sample)
        try:
            if task is None:
                build_suite(None, document=tree, env={})
            else:
                # its server may be yet to start
                tree["target"]["api_endpoint"].setdefault("url", TABLE["samples"]["url"])
                build_evaluation(Request(document=tree), self.framework, {})
        except ConfigError as error:
            head = f"{self.path}: cannot be run here as it is; change it there, and try again:"
            raise ConfigError([head, *(f"  {problem}" for problem in error.problems)]) from None

    def defaults_not_given(self, runs: Sequence[tuple[Task, _Tree]]) -> None:
        """The container asks with defaults of its own; here the benchmark's hold."""
        defaults: Mapping[str, Any] = TABLE["defaults"]
        without: dict[tuple[str, ...], dict[str, None]] = {}
        for task, run in runs:
            params = run["config"].get("params", {})
            given = {*params, *(["max_new_tokens"] if "num_output_tokens" in params.get("extra", {}) else [])}
            missing = tuple(name for name in defaults if name not in given)
            if missing and task.name in TABLE["tasks"].split():
                without.setdefault(missing, {})[task.name] = None
        for missing, names in without.items():
            theirs = ", ".join(f"{name} {defaults[name]}" for name in missing)
            self.note(f"{', '.join(missing)} of {', '.join(names)}", _SAID["default"].format(theirs=theirs))


@dataclass
class _Run:
    """`config` and `target` of one task, from what several places of the file say of them."""

    work: _Import
    task: Task
    renamed: Mapping[str, str | None] = field(default_factory=dict)
    """Variable of the container -> the user's that it is filled from."""
    prefix: str = ""  # of the paths of findings: where in the file the layer at hand stands

    def document(self, layers: Iterable[_Layer]) -> _Tree:
        parts = []
        for self.prefix, tree in layers:
            parts.append((Source.FILE, {name: self.section(name, tree.get(name)) for name in ("config", "target")}))
        run, _ = merge(parts)
        config, endpoint = run["config"], run["target"].setdefault("api_endpoint", {})
        params = config.setdefault("params", {})
        extra, adapter = params.setdefault("extra", {}), endpoint.get("adapter_config", {})
        if not adapter.pop("use_system_prompt", False) and adapter.pop("custom_system_prompt", None) is not None:
            path = f"{ADAPTER}.custom_system_prompt"
            self.work.note(path, _SAID["unused prompt"].format(path=path))
        for name in ("GPT_JUDGE_API_KEY", "LLAMA_JUDGE_API_KEY", "CLAUDE_JUDGE_API_KEY"):
            if self.renamed.get(name) not in (None, name) and self.task.helm.judges:
                extra.setdefault(name.lower(), self.renamed[name])
                self.work.keys.add(name)
        for name, rule in self.task.helm.parameters.items():
            if name in SCENARIO_PARAMETERS and rule.required:
                extra.setdefault(name, f"${{{name.upper()}}}")
        if self.work.serve is None:
            endpoint.setdefault("url", f"${{{variable_for('url')}}}")
        else:
            endpoint.pop("url", None)  # a launcher too asks the server that it starts
        endpoint.setdefault("model_id", f"${{{variable_for('model_id')}}}")
        params = {name: value for name, value in params.items() if value != {}}
        in_order = ("url", "model_id", "type", "api_key", *endpoint)
        return {
            "config": {
                "type": self.task.name,
                "output_dir": config.get("output_dir", f"results/{self.task.name.replace(':', '_')}"),
                **({"params": params} if params else {}),
            },
            "target": {"api_endpoint": {name: endpoint[name] for name in in_order if endpoint.get(name, {}) != {}}},
        }

    def section(self, path: str, given: Any) -> _Tree:
        tree = self.work.kept(path, given, _READ[path], self.prefix)
        for name in tree:
            if f"{path}.{name}" in _READ:
                tree[name] = self.section(f"{path}.{name}", tree[name])
        if path == PARAMS:
            self.settle_params(tree, tree.get("extra", {}))
        elif path == ENDPOINT:
            self.settle_endpoint(tree, tree.get("adapter_config", {}))
        return tree

    def note(self, path: str, said: str) -> None:
        self.work.note(f"{self.prefix}{path}", said)

    def settle_params(self, params: _Tree, extra: _Tree) -> None:
        for name in list(extra):
            if name in SCENARIO_PARAMETERS and name not in self.task.helm.parameters:
                del extra[name]
                self.note(f"{EXTRA}.{name}", f"{self.task.name} has no {name}; leave it out")
            elif name.endswith("_api_key"):
                extra[name] = self.variable(extra[name])
        if params.pop("task", None) not in (None, self.task.name, self.task.helm.run_spec):
            self.note(TASK, f"is another task than {self.task.name}; name the task that is meant")
        samples = params.get("limit_samples")
        if isinstance(samples, float) and samples.is_integer():
            params["limit_samples"] = int(samples)

    def variable(self, name: Any) -> Any:
        """The name of the user's variable. Where a key itself would be filled in, its variable is meant."""
        if not isinstance(name, str):
            return name
        variable = _VARIABLE.fullmatch(name)
        name = variable[1] if variable else name
        self.work.keys.add(name)
        return self.renamed.get(name) or name

    def settle_endpoint(self, endpoint: _Tree, adapter: _Tree) -> None:
        for number, name, one in interceptors_in(adapter.pop("interceptors", [])):
            path, known = f"{INTERCEPTORS}[{number}]", TABLE["interceptors"].get(name)
            if known is None:
                harmless = f"{name}: {_ADVICE['caching']}" if name in TABLE["harmless"] else None
                self.note(path, harmless or f"there is no interceptor {name} here; leave it out")
                continue
            config = self.work.kept(f"{path}.config", one.get("config"), known["keys"], self.prefix)
            adapter |= {**known.get("sets", {}), **{known["keys"][key]: value for key, value in config.items()}}
        said = "api_key_name" in endpoint or "api_key" in endpoint
        named = endpoint.pop("api_key_name", None)
        if isinstance(named, str) and (named.startswith("<") or named == "${API_KEY_NAME}"):
            self.note(f"{ENDPOINT}.api_key_name", "is a mark for a name; write the NAME of the key's variable")
        elif isinstance(named, str) and "${" in named:
            endpoint["api_key"] = named  # the environment says which variable it is
        elif said:
            endpoint["api_key"] = self.variable(endpoint.get("api_key") if named is None else named)
        kind = endpoint.pop("type", None)
        if kind in ("chat", "completions", "vlm"):
            endpoint["type"] = "chat" if kind == "vlm" else kind
        elif kind is not None:
            self.note(f"{ENDPOINT}.type", "is no endpoint that answers with text; give chat or completions")


def variable_for(path: str) -> str:
    """The variable of the environment that stands for a value which is not in the file: MODEL_URL."""
    name = path.rpartition(".")[2]
    return re.sub(r"\W", "_", f"model_{name}" if name == "url" else name).upper()


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _variables(path: str, section: Mapping[str, Any]) -> dict[str, str | None]:
    """`env_vars`: path of a variable of the container -> the user's that it is filled from; None: a value is given."""
    found = {f"{path}.{name}": _SOURCE.match(str(value)) for name, value in _mapping(section.get("env_vars")).items()}
    return {name: match[1] if match else None for name, match in found.items()}


def _layers(path: str, section: Mapping[str, Any]) -> list[_Layer]:
    """What one place says of `config` and `target`; `overrides` has dotted paths."""
    overrides = {where.lstrip("+"): value for where, value in _mapping(section.get("overrides")).items()}
    theirs = _mapping(section.get("nemo_evaluator_config"))
    return [(f"{path}.nemo_evaluator_config.", theirs), (f"{path}.overrides.", nested(overrides))]


def _suite_of(runs: Sequence[tuple[Task, _Tree]], output_dir: Any, place: _Tree, serve: _Tree | None) -> _Tree:
    """The suite whose cells are these runs, and no others; what they share is written once."""
    params_of = [leaves(run["config"].get("params", {})) for _, run in runs]
    flat = [{".".join(path): value for path, value in params.items()} for params in params_of]
    shared = {key: value for key, value in flat[0].items() if all(one.get(key, _MISSING) == value for one in flat)}
    names = _distinct([_slug(task.name) for task, _ in runs])
    endpoints = [run["target"]["api_endpoint"] for _, run in runs]
    different = [one for number, one in enumerate(endpoints) if one not in endpoints[:number]]
    targets = dict(zip(_distinct([_target_name(one["model_id"]) for one in different]), different, strict=True))
    evaluations: list[Any] = []
    excluded = []
    for (task, _), name, params, own_endpoint in zip(runs, names, flat, endpoints, strict=True):
        own = nested({key: value for key, value in params.items() if key not in shared})
        entry = _without_nothing({"type": task.name, "name": name if name != task.name else None, "params": own})
        evaluations.append(task.name if len(entry) == 1 else entry)
        excluded += [{"evaluation": name, "target": other} for other, one in targets.items() if one != own_endpoint]
    served = [_without_nothing({"name": name, "api_endpoint": one, "serve": serve}) for name, one in targets.items()]
    suite = {
        "output_dir": output_dir,
        **place,
        "params": nested(shared),
        "evaluations": evaluations,
        "targets": served,
        "exclude": excluded,
    }
    return {"suite": _without_nothing(suite)}


def _without_nothing(tree: _Tree) -> _Tree:
    return {name: value for name, value in tree.items() if value}


def _slug(text: str) -> str:
    return re.sub(r"[^A-Za-z0-9._-]+", "-", text)[:60].strip("-.")


def _target_name(model_id: str) -> str:
    """The last part of the model's id, where a folder may be called so."""
    name = _slug(model_id.rpartition("/")[2])
    if not name or looks_like_key(name):
        return "model"
    return f"model-{name}" if name.lower().startswith(OF_THE_SUITE) else name


def _distinct(names: Sequence[str]) -> list[str]:
    found: list[str] = []
    for name in names:
        same = sum(other == name or other.startswith(f"{name}-") for other in found)
        found.append(name if name not in found else f"{name}-{same + 1}")
    return found
