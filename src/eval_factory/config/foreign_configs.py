"""Converts other programs' configurations into our form, for the command `import_config`.

This module converts configurations of nemo-evaluator-launcher and EvalFactory. `foreign_forms`
converts the configurations of all further programs. First, the references in a launcher's file are
resolved. Then the `config` and `target` of each task are made key by key. Last, the run configs of
several tasks are combined into one suite. Every key without a counterpart is listed as a finding.
`foreign_configs.yml` holds the tables.
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
"""The settings in one section of a file: the section's path, and its `config` and `target`."""
_ADVICE = TABLE["advice"]  # the name of a key, or `section.*` -> the advice about the key
_MESSAGES = TABLE["messages"]  # the name of a message -> the message, with placeholders
_LAUNCHER_KEYS = TABLE["launcher"]  # a section of the launcher's file -> the keys without findings
_KNOWN_FORMS = TABLE["known"]  # a text that lists the forms that can be converted
_OPTIONS: Mapping[str, Mapping[str, str]] = {LOCAL: {}, SLURM: TABLE["sbatch"]}
"""The name of an executor -> a key of the section `execution` -> the option of sbatch."""
ENDPOINT = "target.api_endpoint"
PARAMS = "config.params"
EXTRA = "config.params.extra"
_KEYS_READ: Mapping[str, tuple[str, ...]] = {  # the path of a section -> the keys that are read
    "config": ("type", "output_dir", "params"),
    PARAMS: tuple(Params.model_fields),
    EXTRA: tuple(Extra.model_fields),
    "target": ("api_endpoint",),
    ENDPOINT: (*ApiEndpoint.model_fields, "api_key_name"),
    ADAPTER: (*AdapterConfig.model_fields, "interceptors", "use_system_prompt"),
}
_MISSING = "???"  # Hydra's mark of a value that the user has to set
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")  # `${NAME}`
_INTERPOLATION = re.compile(r"\$\{([^${}]*)\}")  # a reference of Hydra
_ENVIRONMENT = re.compile(r"oc\.env:\s*([A-Za-z_]\w*)\s*(?:,(.*))?\Z")  # `oc.env:NAME,default`
_SOURCE = re.compile(r"(?:host:|runtime:|\$\{|\$)?([A-Za-z_]\w*)\}?\Z")  # a value of `env_vars`


@dataclass(frozen=True)
class Translation:
    """The result of a conversion: the new configuration, and the findings about other settings."""

    document: Mapping[str, Any]
    findings: tuple[str, ...]
    """A line for each setting that the document lacks or holds in another form. A line names the
    key in the file, the reason, and what the user can do.
    """

    @property
    def text(self) -> str:
        """The YAML of the new configuration, with a comment for each finding."""
        lines = ["# Made by 'eval-factory import_config'."]
        if self.findings:
            lines.append("# Settings that eval-factory does not have, or writes in another way:")
        body = yaml.safe_dump(dict(self.document), sort_keys=False, allow_unicode=True, width=1000)
        return "\n".join([*lines, *(f"# - {finding}" for finding in self.findings), body])


def translated(path: Path, framework: Framework) -> Translation:
    """Convert the configuration file of another program.

    Raises:
        ConfigError: the file cannot be read, has no known form, holds an API key, or names no task
            of eval-factory.
    """
    document = load_mapping(path, _KNOWN_FORMS)
    if keys := list(written_keys(without_versions(document))):
        raise ConfigError([f"{path}: {key_path}: {TABLE['written_key']}" for key_path in keys])
    file_import = _FileImport(path, framework, document)
    form = form_of(document)
    if form is not None:
        written = file_import.from_other_form(form)
    elif {"evaluation", "execution", "deployment"} & set(document):
        written = file_import.from_launcher()
    elif {"config", "target"} & set(document):
        written = file_import.from_run_config()
    else:
        raise ConfigError(f"{path}: is not a configuration in a known form; {_KNOWN_FORMS}")
    return Translation(written, tuple(dict.fromkeys(file_import.findings)))


@dataclass
class _FileImport:
    """The conversion of one file, with the findings so far."""

    path: Path
    framework: Framework
    document: Mapping[str, Any]
    findings: list[str] = field(default_factory=list)
    serve: _Tree | None = None  # the server that is started for every target
    keys: set[str] = field(default_factory=set)
    """The container's variables that hold an API key. The new configuration names the user's own
    variables instead.
    """

    def note(self, path: str, message: str) -> None:
        """Add a finding about the setting at a path."""
        # Names in a file are foreign text, so they may hold line breaks and be very long.
        self.findings.append(one_line(f"{path}: {message}", 2000))

    def known_values(
        self, section: str, value: Any, known_keys: Collection[str], prefix: str = ""
    ) -> _Tree:
        """Return the values of a section whose keys are known, and note the other keys.

        Nulls are dropped, except the null of a credential, which means that no API key is sent. An
        unknown key with an empty value is not noted.

        Args:
            section: the path of the section.
            value: the section as the file holds it.
            known_keys: the keys that are read.
            prefix: the path of the layer in the file, with which findings begin.
        """
        if value is not None and not isinstance(value, Mapping):
            self.note(f"{prefix}{section}", "must be a mapping of keys to values")
        known: _Tree = {}
        for name, entry in _mapping(value).items():
            if entry is None and not is_credential(name):
                continue
            if name in known_keys:
                known[name] = entry
            elif entry not in ("", {}, []):
                advice = self._advice(section, name, known_keys)
                self.note(f"{prefix}{section}.{name}".lstrip("."), advice)
        return known

    def _advice(self, section: str, name: str, known_keys: Collection[str]) -> str:
        """Return the advice about a key that eval-factory does not read.

        The advice about the key itself is preferred to the advice about its section.
        """
        if (only := ONLY.get(f"{section}.{name}")) is not None:
            return f"cannot be changed here: {only['done']}; leave it out"
        if name in NO_EFFECT.get(section, ()):
            section_advice = _ADVICE["caching"]
        else:
            section_advice = _ADVICE.get(f"{section}.*")
        unknown = f"has no counterpart; leave it out{did_you_mean(name, sorted(known_keys))}"
        return str(_ADVICE.get(name) or section_advice or unknown)

    def from_run_config(self) -> _Tree:
        """Convert a run config of EvalFactory or NeMo Evaluator."""
        executor_keys = {}
        for name in ("executor", "slurm"):
            if name in self.document:
                executor_keys[name] = self.document[name]
        self.known_values("", self.document, ("config", "target", *executor_keys))
        task = self.task(_mapping(self.document.get("config")).get("type"), "config.type")
        if task is None:
            # The last finding states why there is no task.
            raise ConfigError(f"{self.path}: {self.findings[-1]}")
        return {**_RunDocument(self, task).document([("", self.document)]), **executor_keys}

    def from_other_form(self, form: str) -> _Tree:
        """Convert a run config of lm-evaluation-harness, inspect_ai or `nel eval run`."""
        runs = [run.document for run in runs_of(form, self.document, self.framework, self.note)]
        if not runs:
            raise ConfigError(f"{self.path}: names no benchmark")
        if len(runs) == 1:
            return runs[0]
        names = [name_of_type(run["config"]["type"], self.framework) for run in runs]
        folder = runs[0]["config"]["output_dir"]
        return {
            "suite": {"output_dir": folder, **_suite_document(runs, _distinct(names), {}, None)}
        }

    def from_launcher(self) -> _Tree:
        """Convert a config of nemo-evaluator-launcher."""
        # eval-factory chooses the port of a server itself: the file's port becomes a placeholder.
        self.document = {
            **self.document,
            "deployment": {**_mapping(self.document.get("deployment")), "port": PORT},
        }
        plain = each_text(
            self.known_values("", self.document, _LAUNCHER_KEYS[""]), self.without_references
        )
        execution = _mapping(plain.get("execution"))
        deployment = plain["deployment"]
        executor, kind = self.types(plain.get("defaults"), execution, deployment)
        executor_keys = self.slurm(execution, executor)
        self.serve = self.server(kind, deployment, execution, executor_keys)
        runs = self.runs(plain)
        if not runs:
            raise ConfigError([f"{self.path}: names no task that eval-factory has", *self.findings])
        if len(runs) == 1 and self.serve is None:
            return {**runs[0], **executor_keys}
        names = [name_of_type(run["config"]["type"], self.framework) for run in runs]
        suite = _suite_document(runs, _distinct(names), executor_keys, self.serve)
        return {"suite": {"output_dir": execution.get("output_dir") or "results/suite", **suite}}

    def runs(self, plain: Mapping[str, Any]) -> list[_Tree]:
        """Return the run config of each task that eval-factory has; other tasks are noted.

        Several sections set values for a task. These sections are merged from the weakest to the
        strongest: `deployment`, the top of the file, `evaluation`, and the task's own entry.
        """
        evaluation = _mapping(plain.get("evaluation"))
        self.known_values("evaluation", evaluation, _LAUNCHER_KEYS["evaluation"])
        variables = {
            **_variable_sources("env_vars", plain),
            **_variable_sources("evaluation.env_vars", evaluation),
        }
        folder = _mapping(plain.get("execution")).get("output_dir")
        model = plain["deployment"].get("served_model_name")
        served = ("deployment.", nested({f"{ENDPOINT}.model_id": model}))
        shared_layers: list[_Layer] = [
            served,
            ("", plain),
            *_config_layers("evaluation", evaluation),
        ]
        entries = evaluation.get("tasks")
        all_variables = dict(variables)
        runs = []
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            path = f"evaluation.tasks[{number}]"
            section = entry if isinstance(entry, Mapping) else {"name": entry}
            task = self.task(section.get("name"), f"{path}.name")
            if task is None:
                continue
            task_variables = {**variables, **_variable_sources(f"{path}.env_vars", section)}
            all_variables |= task_variables
            our_paths = {"endpoint_type": f"{ENDPOINT}.type"}
            known_keys = _LAUNCHER_KEYS["task"]
            if DATA_PATH in task.helm.parameters:
                our_paths["dataset_dir"] = f"{EXTRA}.{DATA_PATH}"
                known_keys = (*known_keys, "dataset_dir")
            self.known_values(path, section, known_keys)
            own_values = {"config.output_dir": folder}
            for name, our_path in our_paths.items():
                own_values[our_path] = section.get(name)
            renamed = {}
            for variable_path, source in task_variables.items():
                renamed[variable_path.rpartition(".")[2]] = source
            own_layers = [*_config_layers(path, section), (f"{path}.", nested(own_values))]
            runs.append(_RunDocument(self, task, renamed).document([*shared_layers, *own_layers]))
        # The document names the variables of API keys. The user must set all other variables.
        for variable_path, source in all_variables.items():
            if (name := variable_path.rpartition(".")[2]) not in self.keys:
                value = "..." if source in (None, name) else f'"${source}"'
                self.note(variable_path, f"{_MESSAGES['variable']} (export {name}={value})")
        return runs

    def task(self, name: Any, path: str) -> Task | None:
        """Return the task of this name; None, with a finding, if eval-factory has no such task.

        A task of another harness is another benchmark, even if both use the same data. It is
        therefore never replaced by a task of eval-factory.
        """
        if not isinstance(name, str):
            self.note(path, "names no task; 'eval-factory ls' lists the tasks")
            return None
        if is_run_entry(name, self.framework):
            return task_of_run_entry(name, self.framework, [])
        task = self.framework.task(name)
        if task is None:
            near = similar_name_hint(name.rpartition(".")[2], self.framework)
            shown_name = REDACTED if looks_like_key(name) else repr(name)
            self.note(path, f"eval-factory has no task {shown_name}{near}; {_MESSAGES['tasks']}")
        return task

    def without_references(self, path: str, text: str) -> Any:
        """Return a text of a Hydra file with its references resolved.

        `???` becomes a reference to a variable of the environment. If a reference cannot be
        resolved, None is returned, and a finding is added.

        https://omegaconf.readthedocs.io/en/latest/usage.html (mandatory values, interpolation)

        Args:
            path: the path of the text in the file.
            text: the text.
        """
        if text == _MISSING:
            name = re.sub(r"\W", "_", path.rpartition(".")[2]).upper()
            name = f"MODEL_{name}" if name == "URL" else name
            self.note(path, _MESSAGES["not given"].format(name=name))
            return f"${{{name}}}"
        # Parts with an even index are plain texts, parts with an odd index the content of a `${}`.
        parts = _INTERPOLATION.split(text)
        values = [self.resolved(part) if number % 2 else part for number, part in enumerate(parts)]
        # A `${` that is left belongs to a nested reference.
        if None in values or any("${" in part for part in parts):
            self.note(
                path,
                "refers to another value, which eval-factory does not look up; "
                "write the value itself",
            )
            return None
        # If the text is one single reference, the value keeps its type.
        if parts[0] == parts[-1] == "" and len(parts) == 3:
            return values[1]
        return "".join(map(str, values))

    def resolved(self, name: str) -> str | int | float | None:
        """Return the value of a reference `${name}`; None if the reference cannot be resolved.

        A reference names the path of a value in this file, or a variable of the environment. For a
        variable, its reference in eval-factory's form is returned: `${NAME}` or `${NAME:-default}`.
        """
        variable = _ENVIRONMENT.match(name)
        if variable:
            default = (variable[2] or "").strip().strip("'\"")
            has_default = variable[2] is not None and default not in ("null", "None")
            suffix = f":-{default}" if has_default else ""
            return f"${{{variable[1]}{suffix}}}"
        *sections, last = name.split(".")
        value = section_at(self.document, sections).get(last)
        is_plain = (
            isinstance(value, (str, int, float)) and value != _MISSING and "${" not in str(value)
        )
        return value if is_plain else None

    def types(
        self, entries: Any, execution: Mapping[str, Any], deployment: Mapping[str, Any]
    ) -> tuple[str, str]:
        """Return the type of the execution and the type of the deployment.

        A section states its type itself, or the list `defaults` names the file of the section. The
        first part of the file's path, such as `slurm` in `slurm/default`, is then the type.

        Args:
            entries: the list `defaults`, which names the files from which Hydra makes the config.
            execution: the section `execution`.
            deployment: the section `deployment`.
        """
        type_of = {
            "execution": LOCAL,
            "deployment": "generic" if "image" in deployment else "none",
        }
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            group = ""
            choice = entry
            if isinstance(entry, Mapping):
                group, choice = next(iter(entry.items()), ("", None))
            if group in type_of:
                type_of[group] = str(choice or "none").partition("/")[0]
            elif choice != "_self_":
                self.note(f"defaults[{number}]", _MESSAGES["defaults"])
        execution_type = execution.get("type", type_of["execution"])
        deployment_type = deployment.get("type") or type_of["deployment"]
        return str(execution_type), str(deployment_type)

    def slurm(self, execution: Mapping[str, Any], executor: str) -> _Tree:
        """Return our `executor` and `slurm` for a section `execution` of the launcher.

        The keys of `execution` become options of sbatch. The result is empty for an executor
        without such options.
        """
        options = _OPTIONS.get(executor, {})
        self.known_values("execution", execution, (*_LAUNCHER_KEYS["execution"], *options))
        if executor not in _OPTIONS:
            self.note("execution.type", _ADVICE["execution.*"])
        if not options:
            return {}
        sbatch_options = {}
        for name, option in options.items():
            if value := execution.get(name):
                sbatch_options[option] = value
        # The table maps `sbatch_extra_flags` to "": its value holds further options by their names.
        further_options = sbatch_options.pop("", {})
        slurm: _Tree = {}
        for name, value in {**further_options, **sbatch_options}.items():
            key = OWN_OPTIONS.get(name, name)  # our key; None if eval-factory sets the option
            text = str(value).removeprefix("gpu:")  # `gres: gpu:8` stands for eight GPUs
            if isinstance(value, int) and value >= 3600:  # YAML reads 4:00:00 as 14400 seconds.
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
        executor_keys: _Tree = {"executor": executor}
        if slurm:
            executor_keys["slurm"] = slurm
        return executor_keys

    def server(
        self,
        kind: str,
        deployment: Mapping[str, Any],
        execution: Mapping[str, Any],
        executor_keys: _Tree,
    ) -> _Tree | None:
        """Return our `serve` of a target for the launcher's `deployment` and `execution`.

        `kind` is the type of the deployment. Returns None if there is no server, or if the server
        cannot be converted. The default number of GPUs is added to non-empty `executor_keys`.
        """
        if kind == "none":
            return None
        command = str(deployment.get("command") or "").strip()
        form = TABLE["servers"].get(kind)
        # A command of several lines needs a shell, and eval-factory starts servers without a shell.
        if form is None or "\n" in command:
            self.note(
                f"deployment ({', '.join(name for name in deployment if name != 'port')})",
                _ADVICE["deployment"],
            )
            return None
        known_keys = (*_LAUNCHER_KEYS["deployment"], *form["options"])
        self.known_values("deployment", deployment, known_keys)
        model = (
            deployment.get("hf_model_handle")
            or deployment.get("checkpoint_path")
            or deployment.get("served_model_name")
        )
        # Later entries overwrite earlier ones: the file's values replace the defaults.
        values = {
            "served_model_name": model,
            "extra_args": "",
            **form["defaults"],
            **deployment,
            "model": model,
        }
        # A command of the file has its options in its own text.
        options = {} if command else form["options"]
        if executor_keys:
            # The launcher asks for eight GPUs if its config does not state their number.
            executor_keys.setdefault("slurm", {}).setdefault("gpus", "8")
        instances = execution.get("num_instances") or 1
        nodes = execution.get("num_nodes") or 1
        if instances != 1:
            self.note("execution.num_instances", _ADVICE["num_instances"])
        if nodes not in (1, instances):
            self.note("execution.num_nodes", _ADVICE["num_nodes"])
        serve = {
            "command": " ".join((command or form["command"].format(**values)).split()),
            "machine_options": " ".join(
                f"{option} {values[name]}" for name, option in options.items() if values.get(name)
            ),
            "health": _mapping(deployment.get("endpoints")).get("health"),
            "start_time_limit_s": execution.get("endpoint_readiness_timeout"),
            "replicas": instances if instances != 1 else None,
            "env": self.inherited_variables(deployment),
        }
        return {name: value for name, value in serve.items() if value}

    def inherited_variables(self, deployment: Mapping[str, Any]) -> list[str]:
        """Return the variables of the user's shell that the server gets under the same names.

        A variable of the server that is set in another way is noted.
        """
        inherited = []
        for variable_path, source in _variable_sources("deployment.env_vars", deployment).items():
            if source is not None and variable_path.endswith(f".{source}"):
                inherited.append(source)
            else:
                self.note(variable_path, _ADVICE["env_vars"])
        return inherited


@dataclass
class _RunDocument:
    """The conversion of one task's settings into the `config` and `target` of a run config."""

    source: _FileImport
    task: Task
    renamed: Mapping[str, str | None] = field(default_factory=dict)
    """A variable of the container -> the user's variable that sets its value."""

    def document(self, layers: Iterable[_Layer]) -> _Tree:
        """Return the run config that the layers describe; the weakest layer comes first."""
        converted = []
        for prefix, tree in layers:
            sections = {}
            for name in ("config", "target"):
                sections[name] = self.section(name, tree.get(name), prefix)
            converted.append((Source.FILE, sections))
        run, _ = merge(converted)
        config = run["config"]
        endpoint = run["target"].setdefault("api_endpoint", {})
        params = config.setdefault("params", {})
        extra = params.setdefault("extra", {})
        adapter = endpoint.get("adapter_config", {})
        uses_prompt = adapter.pop("use_system_prompt", False)
        if not uses_prompt and adapter.pop("custom_system_prompt", None) is not None:
            path = f"{ADAPTER}.custom_system_prompt"
            self.source.note(path, _MESSAGES["unused prompt"].format(path=path))
        # The container reads the API keys of HELM's three default judges from these variables.
        for name in ("GPT_JUDGE_API_KEY", "LLAMA_JUDGE_API_KEY", "CLAUDE_JUDGE_API_KEY"):
            if self.renamed.get(name) not in (None, name) and self.task.helm.judges:
                extra.setdefault(name.lower(), self.renamed[name])
                self.source.keys.add(name)
        # Tasks of NVIDIA's container, which has other defaults than eval-factory.
        if self.task.name in TABLE["tasks"].split():
            for name, theirs in TABLE["defaults"].items():
                is_set = name in params or (
                    name == "max_new_tokens" and "num_output_tokens" in extra
                )
                if not is_set:
                    self.source.note(f"{PARAMS}.{name}", _MESSAGES["default"].format(theirs=theirs))
        if self.source.serve is not None:
            endpoint.pop("url", None)  # The launcher also ignores the URL if it starts a server.
        folder = config.get("output_dir", f"results/{self.task.name.replace(':', '_')}")
        config = {"type": self.task.name, "output_dir": folder, "params": _without_empty(params)}
        return {
            "config": _without_empty(config),
            "target": {"api_endpoint": _without_empty(endpoint)},
        }

    def section(self, path: str, value: Any, prefix: str) -> _Tree:
        """Return a section with our keys and values.

        Args:
            path: the path of the section in a run config.
            value: the section as the file holds it.
            prefix: the path of the layer in the file, with which findings begin.
        """
        tree = self.source.known_values(path, value, _KEYS_READ[path], prefix)
        for name in tree:
            if f"{path}.{name}" in _KEYS_READ:
                tree[name] = self.section(f"{path}.{name}", tree[name], prefix)
        if path == EXTRA:
            tree |= {name: self.variable(tree[name]) for name in tree if name.endswith("_api_key")}
        elif path == ENDPOINT:
            self.convert_endpoint(tree, tree.get("adapter_config", {}), prefix)
        return tree

    def variable(self, name: Any) -> Any:
        """Return the name of the user's variable that holds an API key.

        `name` is the name of the container's variable. `${NAME}`, which would insert the API key
        itself, is read as the name.
        """
        if not isinstance(name, str):
            return name
        variable = _VARIABLE.fullmatch(name)
        name = variable[1] if variable else name
        self.source.keys.add(name)
        return self.renamed.get(name) or name

    def convert_endpoint(self, endpoint: _Tree, adapter: _Tree, prefix: str) -> None:
        """Convert the interceptors, the API key's variable and the type of an endpoint.

        Args:
            endpoint: the section of the endpoint, which is changed.
            adapter: the endpoint's `adapter_config`, which is changed.
            prefix: the path of the layer in the file, with which findings begin.
        """
        for number, name, interceptor in interceptors_in(adapter.pop("interceptors", [])):
            path = f"{INTERCEPTORS}[{number}]"
            form = TABLE["interceptors"].get(name)
            if form is None:
                if name in TABLE["harmless"]:
                    why = _ADVICE["caching"]
                else:
                    why = "there is no such interceptor; leave it out"
                self.source.note(f"{prefix}{path}", f"{name}: {why}")
                continue
            config = self.source.known_values(
                f"{path}.config", interceptor.get("config"), form["keys"], prefix
            )
            adapter |= {
                **form.get("sets", {}),
                **{form["keys"][key]: value for key, value in config.items()},
            }
        # A null is a setting too: it means that no API key is sent.
        has_key_setting = "api_key_name" in endpoint or "api_key" in endpoint
        key_name = endpoint.pop("api_key_name", None)
        if isinstance(key_name, str) and "${" in key_name:
            # A variable of the environment holds the name of the API key's variable.
            endpoint["api_key"] = key_name
        elif has_key_setting:
            key_name = endpoint.get("api_key") if key_name is None else key_name
            endpoint["api_key"] = self.variable(key_name)
        kind = endpoint.pop("type", None)
        if kind in ("chat", "completions", "vlm"):
            endpoint["type"] = "chat" if kind == "vlm" else kind
        elif kind is not None:
            self.source.note(
                f"{prefix}{ENDPOINT}.type", "does not answer with text; give chat or completions"
            )


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping; an empty mapping for any other value."""
    if not isinstance(value, Mapping):
        return {}
    return value


def _without_empty(tree: _Tree) -> _Tree:
    """Return the tree without entries at its top level that are an empty mapping or list."""
    return {name: value for name, value in tree.items() if value not in ({}, [])}


def _variable_sources(path: str, section: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the user's variable that sets each variable of the container.

    Args:
        path: the path of the section's `env_vars` in the file.
        section: the section with `env_vars`.

    Returns:
        The path of a variable of the container -> the name of the user's variable, or None if the
        file states the value itself.
    """
    sources: dict[str, str | None] = {}
    for name, value in _mapping(section.get("env_vars")).items():
        match = _SOURCE.match(str(value))
        sources[f"{path}.{name}"] = match[1] if match else None
    return sources


def _config_layers(path: str, section: Mapping[str, Any]) -> list[_Layer]:
    """Return the two layers of a section: its `nemo_evaluator_config`, then its `overrides`.

    The keys of `overrides` are dotted paths, and Hydra allows a `+` before them.
    """
    overrides = {}
    for key, value in _mapping(section.get("overrides")).items():
        overrides[key.lstrip("+")] = value
    config = _mapping(section.get("nemo_evaluator_config"))
    return [(f"{path}.nemo_evaluator_config.", config), (f"{path}.overrides.", nested(overrides))]


def _suite_document(
    runs: Sequence[_Tree], names: Sequence[str], executor_keys: _Tree, serve: _Tree | None
) -> _Tree:
    """Return the suite whose cells are exactly these runs.

    Parameters that all runs share are written once.

    Args:
        runs: the run configs.
        names: the name of each run's evaluation.
        executor_keys: the suite's `executor` and `slurm`.
        serve: the server of every target; None if there is no server.
    """
    params_of = [leaves(run["config"].get("params", {})) for run in runs]
    flat = [{".".join(path): value for path, value in params.items()} for params in params_of]
    shared = {}
    for key, value in flat[0].items():
        # `_MISSING` as the default: a run without the parameter does not share its value.
        if all(params.get(key, _MISSING) == value for params in flat):
            shared[key] = value
    endpoints = [run["target"]["api_endpoint"] for run in runs]
    distinct_endpoints = []
    for number, endpoint in enumerate(endpoints):
        if endpoint not in endpoints[:number]:
            distinct_endpoints.append(endpoint)
    target_names = _distinct(["model"] * len(distinct_endpoints))
    targets = dict(zip(target_names, distinct_endpoints, strict=True))
    evaluations: list[Any] = []
    excluded = []
    for run, name, params, own_endpoint in zip(runs, names, flat, endpoints, strict=True):
        task = run["config"]["type"]
        own_params = nested({key: params[key] for key in params if key not in shared})
        entry = {"type": task, "name": name, **({"params": own_params} if own_params else {})}
        # An evaluation without own parameters and with its task's name is written as the name.
        evaluations.append(task if entry == {"type": task, "name": task} else entry)
        # A suite combines each evaluation with each target. Exclude the cells that are not runs.
        for target, endpoint in targets.items():
            if endpoint != own_endpoint:
                excluded.append({"evaluation": name, "target": target})
    suite = {
        **executor_keys,
        "params": nested(shared),
        "evaluations": evaluations,
        "targets": [
            _without_empty({"name": name, "api_endpoint": endpoint, "serve": serve or {}})
            for name, endpoint in targets.items()
        ],
        "exclude": excluded,
    }
    return _without_empty(suite)


def _distinct(names: Sequence[str]) -> list[str]:
    """Return the names, with a number added to each repeated name: `medec`, `medec-2`."""
    distinct_names = []
    for number, name in enumerate(names):
        count = names[: number + 1].count(name)
        distinct_names.append(name if count == 1 else f"{name}-{count}")
    return distinct_names
