"""Converts other programs' configurations into our form, for the command `import_config`.

This module converts configurations of two programs of NVIDIA: of nemo-evaluator-launcher ("the
launcher", which runs each task in a container) and of EvalFactory. `foreign_forms` converts the
configurations of all further programs.

First, the references in a launcher's file are resolved. Then the `config` and `target` of each task
are made key by key. Last, the run configs of several tasks are combined into one suite. Every key
without a counterpart is listed as a finding. `foreign_configs.yml` holds the tables.
https://docs.nvidia.com/nemo/evaluator/latest/libraries/nemo-evaluator-launcher/configuration/index.html
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from eval_factory.config.foreign_forms import form_of, runs_of, without_versioned_names
from eval_factory.config.foreign_keys import (
    ADAPTER,
    INTERCEPTORS,
    NO_EFFECT,
    ONLY,
    TABLE,
    active_interceptors,
)
from eval_factory.config.load import map_texts, nest_paths
from eval_factory.config.merge import Source, is_credential, leaves_by_path, merge, section_at
from eval_factory.config.model import (
    EXTRA_PATH,
    PARAMS_PATH,
    AdapterConfig,
    ApiEndpoint,
    Extra,
    Params,
)
from eval_factory.config.suite_layers import name_of_type
from eval_factory.config.suite_model import RESERVED_OPTIONS
from eval_factory.core.enums import EXECUTOR_NAMES, LOCAL, SLURM
from eval_factory.core.errors import ConfigError, did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.secrets import REDACTED, looks_like_key, paths_of_written_keys
from eval_factory.core.urls import PORT_PLACEHOLDER
from eval_factory.tasks.framework import DATA_PATH_PARAMETER, Framework, Task
from eval_factory.tasks.run_entry import (
    CONFIG_TYPE,
    is_run_entry,
    similar_name_hint,
    task_of_run_entry,
)

_Tree = dict[str, Any]
_FileLayer = tuple[str, Mapping[str, Any]]
"""The path of a section in a file, and the section, whose `config` and `target` are converted. The
path has a final dot; it is empty for the top of the file.
"""
_ADVICE = TABLE["advice"]  # the name of a key, or `section.*` -> the advice about the key
_MESSAGES = TABLE["messages"]  # the name of a message -> the message, with placeholders
# a section of the launcher's file -> its keys that are read, or that do not matter here
_LAUNCHER_KEYS = TABLE["launcher"]
_KNOWN_FORMS = TABLE["known"]  # a text that lists the forms that can be converted
_SBATCH_OPTIONS: Mapping[str, str] = TABLE["sbatch"]
"""A key of the launcher's section `execution` -> the option of sbatch that the key sets."""
_OPTIONS_OF_TIMES = ("time", "time-min")
ENDPOINT = "target.api_endpoint"
_KEYS_READ: Mapping[str, tuple[str, ...]] = {  # the path of a section -> the keys that are read
    "config": ("type", "output_dir", "params"),
    PARAMS_PATH: tuple(Params.model_fields),
    EXTRA_PATH: tuple(Extra.model_fields),
    "target": ("api_endpoint",),
    ENDPOINT: (*ApiEndpoint.model_fields, "api_key_name"),
    ADAPTER: (*AdapterConfig.model_fields, "interceptors", "use_system_prompt"),
}
_MAX_FINDING = 2000  # the maximum length of a finding, in characters
_MISSING = "???"  # Hydra's mark of a value that the user has to set
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")  # `${NAME}`
# A reference of Hydra, without another reference inside: `${deployment.port}`, `${oc.env:NAME}`.
_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
# The content of a reference to an environment variable: `oc.env:NAME` or `oc.env:NAME,default`.
_VARIABLE_REFERENCE = re.compile(r"oc\.env:\s*(?P<name>[A-Za-z_]\w*)\s*(?:,(?P<default>.*))?\Z")
# A value of `env_vars` that names the user's variable: `host:NAME`, `$NAME` or NAME, for example.
_USER_VARIABLE = re.compile(r"(?:host:|runtime:|\$\{|\$)?([A-Za-z_]\w*)\}?\Z")


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
        lines += [f"# - {finding}" for finding in self.findings]
        # The large width keeps a long text on one line.
        body = yaml.safe_dump(dict(self.document), sort_keys=False, allow_unicode=True, width=1000)
        return "\n".join([*lines, body])


def translate_config(path: Path, framework: Framework) -> Translation:
    """Convert the configuration file of another program.

    Raises:
        ConfigError: the file cannot be read, has no known form, holds an API key, or names no task
            of eval-factory.
    """
    document = load_mapping(path, needs=_KNOWN_FORMS)
    # A name with a version, such as `lm-eval://mmlu@1.0`, looks like a URL with a password.
    paths_of_api_keys = list(paths_of_written_keys(without_versioned_names(document)))
    if paths_of_api_keys:
        raise ConfigError(
            [f"{path}: {key_path}: {TABLE['written_key']}" for key_path in paths_of_api_keys]
        )
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
    api_key_variables: set[str] = field(default_factory=set)
    """The container's variables that hold an API key. The new configuration names the user's own
    variables instead.
    """

    def note(self, path: str, message: str) -> None:
        """Add a finding about the setting at a path."""
        # Names in a file are foreign text, so they may hold line breaks and be very long.
        self.findings.append(one_line(f"{path}: {message}", _MAX_FINDING))

    def note_unknown_keys(self, section: str, value: Any, known_keys: Collection[str]) -> None:
        """Note the keys of a section that are not read; the arguments are those of known_values."""
        self.known_values(section, value, known_keys)

    def known_values(
        self, section: str, value: Any, known_keys: Collection[str], prefix: str = ""
    ) -> _Tree:
        """Return the values of a section whose keys are known, and note the other keys.

        Nulls are dropped, except the null of a credential, which means that no API key is sent. An
        unknown key with an empty value is not noted.

        Args:
            section: the path of the section in its layer; empty for the top.
            value: the section as the file holds it.
            known_keys: the keys that are read.
            prefix: the path of the layer in the file, with a final dot; empty for the top.
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
        only = ONLY.get(f"{section}.{name}")
        if only is not None:
            return f"cannot be changed here: {only['done']}; leave it out"
        if name in _ADVICE:
            return str(_ADVICE[name])
        if name in NO_EFFECT.get(section, ()):
            return str(_ADVICE["caching"])  # This advice fits all keys without an effect.
        if f"{section}.*" in _ADVICE:
            return str(_ADVICE[f"{section}.*"])
        return f"has no counterpart; leave it out{did_you_mean(name, sorted(known_keys))}"

    def from_run_config(self) -> _Tree:
        """Convert a run config of EvalFactory or NeMo Evaluator."""
        executor_keys = {}
        for name in ("executor", "slurm"):
            if name in self.document:
                executor_keys[name] = self.document[name]
        top_level_keys = ("config", "target", *executor_keys)
        self.note_unknown_keys(section="", value=self.document, known_keys=top_level_keys)
        task = self.task(_mapping(self.document.get("config")).get("type"), "config.type")
        if task is None:
            # The last finding states why there is no task.
            raise ConfigError(f"{self.path}: {self.findings[-1]}")
        only_layer = ("", self.document)
        run = _RunDocument(self, task).document([only_layer])
        return {**run, **executor_keys}

    def from_other_form(self, form: str) -> _Tree:
        """Convert a run config of lm-evaluation-harness, inspect_ai or `nel eval run`."""
        runs = [run.document for run in runs_of(form, self.document, self.framework, self.note)]
        if not runs:
            raise ConfigError(f"{self.path}: names no benchmark")
        if len(runs) == 1:
            return runs[0]
        names = [name_of_type(run["config"]["type"], self.framework) for run in runs]
        folder = runs[0]["config"]["output_dir"]
        suite = _suite_document(runs, _distinct(names), executor_keys={}, serve=None)
        return {"suite": {"output_dir": folder, **suite}}

    def from_launcher(self) -> _Tree:
        """Convert a config of nemo-evaluator-launcher."""
        # eval-factory chooses the port of a server itself: the file's port becomes a placeholder.
        self.document = {
            **self.document,
            "deployment": {**_mapping(self.document.get("deployment")), "port": PORT_PLACEHOLDER},
        }
        top_level_keys = _LAUNCHER_KEYS[""]
        known = self.known_values(section="", value=self.document, known_keys=top_level_keys)
        resolved = map_texts(known, self.without_references)
        execution = _mapping(resolved.get("execution"))
        deployment = resolved["deployment"]
        executor, deployment_type = self.types(resolved.get("defaults"), execution, deployment)
        executor_keys = self.slurm(execution, executor)
        self.serve = self.server(deployment_type, deployment, execution, executor_keys)
        runs = self.runs(resolved)
        if not runs:
            raise ConfigError([f"{self.path}: names no task that eval-factory has", *self.findings])
        # Only a suite can start a server, so one run with a server becomes a suite too.
        if len(runs) == 1 and self.serve is None:
            return {**runs[0], **executor_keys}
        names = [name_of_type(run["config"]["type"], self.framework) for run in runs]
        suite = _suite_document(runs, _distinct(names), executor_keys, self.serve)
        return {"suite": {"output_dir": execution.get("output_dir") or "results/suite", **suite}}

    def runs(self, resolved: Mapping[str, Any]) -> list[_Tree]:
        """Return the run config of each task that eval-factory has; other tasks are noted.

        Several sections set values for a task. These sections are merged from the weakest to the
        strongest: `deployment`, the top of the file, `evaluation`, and the task's own entry.

        `resolved` is the launcher's file with its references resolved.
        """
        evaluation = _mapping(resolved.get("evaluation"))
        self.note_unknown_keys("evaluation", evaluation, _LAUNCHER_KEYS["evaluation"])
        shared_variables = {
            **_user_variables("env_vars", resolved),
            **_user_variables("evaluation.env_vars", evaluation),
        }
        model = resolved["deployment"].get("served_model_name")
        folder = _mapping(resolved.get("execution")).get("output_dir")
        shared_layers: list[_FileLayer] = [
            ("deployment.", nest_paths({f"{ENDPOINT}.model_id": model})),
            ("", resolved),
            *_config_layers("evaluation", evaluation),
        ]
        entries = evaluation.get("tasks")
        all_variables = dict(shared_variables)
        runs = []
        for number, entry in enumerate(entries if isinstance(entries, list) else []):
            path = f"evaluation.tasks[{number}]"
            section = entry if isinstance(entry, Mapping) else {"name": entry}
            task = self.task(section.get("name"), f"{path}.name")
            if task is None:
                continue
            variables = {**shared_variables, **_user_variables(f"{path}.env_vars", section)}
            all_variables |= variables
            own_values = {"config.output_dir": folder, **self.task_values(path, section, task)}
            own_layers = [*_config_layers(path, section), (f"{path}.", nest_paths(own_values))]
            run = _RunDocument(self, task, _by_name(variables))
            runs.append(run.document([*shared_layers, *own_layers]))
        self.note_variables(all_variables)
        return runs

    def task_values(self, path: str, section: Mapping[str, Any], task: Task) -> _Tree:
        """Return the values of our keys for the launcher's keys in the entry of a task.

        Args:
            path: the path of the entry in the file.
            section: the entry.
            task: the task.

        Returns:
            A dict from the dotted path of our key to its value.
        """
        our_paths = {"endpoint_type": f"{ENDPOINT}.type"}
        known_keys = _LAUNCHER_KEYS["task"]
        if DATA_PATH_PARAMETER in task.helm.parameters:
            our_paths["dataset_dir"] = f"{EXTRA_PATH}.{DATA_PATH_PARAMETER}"
            known_keys = (*known_keys, "dataset_dir")
        self.note_unknown_keys(path, section, known_keys)
        return {our_path: section.get(name) for name, our_path in our_paths.items()}

    def note_variables(self, user_variables: Mapping[str, str | None]) -> None:
        """Note the variables of the container that the user must set before a run.

        The variables of API keys are not among them, because the new configuration names them.

        Args:
            user_variables: a dict from the path of a variable of the container to the name of the
                user's variable (`_user_variables`).
        """
        for path, user_variable in user_variables.items():
            name = _last_name(path)
            if name not in self.api_key_variables:
                value = "..."  # the user fills in the value
                if user_variable not in (None, name):
                    value = f'"${user_variable}"'
                self.note(path, f"{_MESSAGES['variable']} (export {name}={value})")

    def task(self, name: Any, path: str) -> Task | None:
        """Return the task of this name; None, with a finding, if eval-factory has no such task.

        A task of another harness is another benchmark, even if both use the same data. It is
        therefore never replaced by a task of eval-factory.
        """
        if not isinstance(name, str):
            self.note(path, "names no task; 'eval-factory ls' lists the tasks")
            return None
        if is_run_entry(name, self.framework):
            mistakes: list[str] = []
            task = task_of_run_entry(name, self.framework, mistakes)
            for mistake in mistakes:
                self.note(path, mistake.removeprefix(f"{CONFIG_TYPE}: "))
            return task
        task = self.framework.task(name)
        if task is None:
            short_name = name.rpartition(".")[2]  # without the name of the harness
            near = similar_name_hint(short_name, self.framework)
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
            # The variable for `target.api_endpoint.model_id` is MODEL_ID.
            variable = re.sub(r"\W", "_", _last_name(path)).upper()
            if variable == "URL":
                variable = f"MODEL_{variable}"  # URL alone would not show whose URL it is.
            self.note(path, _MESSAGES["not given"].format(name=variable))
            return f"${{{variable}}}"
        # Parts with an even index are plain texts, parts with an odd index the content of a `${}`:
        # `http://${host}/v1` has the parts `http://`, `host` and `/v1`.
        parts = _REFERENCE.split(text)
        values = []
        for index, part in enumerate(parts):
            values.append(part if index % 2 == 0 else self.resolved(part))
        # A `${` that is left belongs to a nested reference.
        if None in values or any("${" in part for part in parts):
            self.note(
                path,
                "refers to another value, which eval-factory does not look up; "
                "write the value itself",
            )
            return None
        # If the text is one single reference, the value keeps its type.
        if len(parts) == 3 and parts[0] == "" and parts[2] == "":
            return values[1]
        return "".join(map(str, values))

    def resolved(self, name: str) -> str | int | float | None:
        """Return the value of a reference `${name}`; None if the reference cannot be resolved.

        A reference names the path of a value in this file, or a variable of the environment. For a
        variable, its reference in eval-factory's form is returned: `${NAME}` or `${NAME:-default}`.
        """
        match = _VARIABLE_REFERENCE.match(name)
        if match:
            suffix = ""
            if match["default"] is not None:
                default = match["default"].strip().strip("'\"")
                if default not in ("null", "None"):
                    suffix = f":-{default}"
            return f"${{{match['name']}{suffix}}}"
        *sections, last = name.split(".")
        value = section_at(self.document, sections).get(last)
        if not isinstance(value, (str, int, float)):
            return None
        if value == _MISSING or "${" in str(value):
            return None
        return value

    def types(
        self, defaults: Any, execution: Mapping[str, Any], deployment: Mapping[str, Any]
    ) -> tuple[str, str]:
        """Return the type of the execution and the type of the deployment.

        A section states its type itself, or the list `defaults` names the file of the section. The
        first part of the file's path, such as `slurm` in `slurm/default`, is then the type. If
        neither states a type, the execution is local, and a deployment without an image is `none`.

        Args:
            defaults: the list `defaults`, which names the files from which Hydra makes the config.
                An entry is `section: file`, the name of a file, or `_self_` for this file.
            execution: the section `execution`.
            deployment: the section `deployment`.
        """
        type_of_section = {
            "execution": LOCAL,
            "deployment": "generic" if "image" in deployment else "none",
        }
        for number, entry in enumerate(defaults if isinstance(defaults, list) else []):
            section = ""
            file = entry
            if isinstance(entry, Mapping):
                section, file = next(iter(entry.items()), ("", None))
            if section in type_of_section:
                type_of_section[section] = str(file or "none").partition("/")[0]
            elif file != "_self_":
                self.note(f"defaults[{number}]", _MESSAGES["defaults"])
        execution_type = execution.get("type", type_of_section["execution"])
        deployment_type = deployment.get("type") or type_of_section["deployment"]
        return str(execution_type), str(deployment_type)

    def slurm(self, execution: Mapping[str, Any], executor: str) -> _Tree:
        """Return our `executor` and `slurm` for a section `execution` of the launcher.

        For Slurm, the keys of `execution` become options of sbatch. For other executors, the result
        is empty.
        """
        option_of_key = _SBATCH_OPTIONS if executor == SLURM else {}
        self.note_unknown_keys(
            "execution", execution, (*_LAUNCHER_KEYS["execution"], *option_of_key)
        )
        if executor not in EXECUTOR_NAMES:
            self.note("execution.type", _ADVICE["execution.*"])
        if executor != SLURM:
            return {}
        options = {}
        for key, option in option_of_key.items():
            if value := execution.get(key):
                options[option] = value
        # In the user's file, `sbatch_extra_flags` maps further options to their values. The table
        # gives this key the empty name, under which the loop has stored the mapping.
        further_options = options.pop("", {})
        slurm = self.slurm_section({**further_options, **options})
        executor_keys: _Tree = {"executor": executor}
        if slurm:
            executor_keys["slurm"] = slurm
        return executor_keys

    def slurm_section(self, options: Mapping[str, Any]) -> _Tree:
        """Return our section `slurm` for these options of sbatch and their values."""
        slurm: _Tree = {}
        for option, value in options.items():
            text = _option_text(option, value)
            if option in RESERVED_OPTIONS:
                our_key = RESERVED_OPTIONS[option]
                if our_key is None:
                    self.note(
                        f"execution.sbatch_extra_flags.{option}",
                        "eval-factory sets it itself; leave it out",
                    )
                else:
                    slurm[our_key] = value if our_key == "cpus" else text
            elif value is True:
                slurm.setdefault("extra", []).append(f"--{option}")
            elif value is not None and value is not False:  # 0 is a value, such as `nice: 0`
                quoted_text = f'"{text}"' if " " in text else text
                slurm.setdefault("extra", []).append(f"--{option}={quoted_text}")
        return slurm

    def server(
        self,
        deployment_type: str,
        deployment: Mapping[str, Any],
        execution: Mapping[str, Any],
        executor_keys: _Tree,
    ) -> _Tree | None:
        """Return our `serve` of a target for the launcher's `deployment` and `execution`.

        Returns None if there is no server, or if the server cannot be converted. The default number
        of GPUs is added to non-empty `executor_keys`.
        """
        if deployment_type == "none":
            return None
        command = str(deployment.get("command") or "").strip()
        server = TABLE["servers"].get(deployment_type)
        # A command of several lines needs a shell, and eval-factory starts servers without a shell.
        if server is None or "\n" in command:
            self.note(
                f"deployment ({', '.join(name for name in deployment if name != 'port')})",
                _ADVICE["deployment"],
            )
            return None
        known_keys = (*_LAUNCHER_KEYS["deployment"], *server["options"])
        self.note_unknown_keys("deployment", deployment, known_keys)
        model = (
            deployment.get("hf_model_handle")
            or deployment.get("checkpoint_path")
            or deployment.get("served_model_name")
        )
        # Later entries overwrite earlier ones: the file's values replace the defaults.
        values = {
            "served_model_name": model,
            "extra_args": "",
            **server["defaults"],
            **deployment,
            "model": model,
        }
        machine_options = []  # options that change the speed of the server, not the answers
        if not command:  # A command in the file has its options in its own text.
            command = server["command"].format(**values)
            for name, option in server["options"].items():
                if values.get(name):
                    machine_options.append(f"{option} {values[name]}")
        if executor_keys:
            # The launcher asks for eight GPUs if its config does not state their number.
            executor_keys.setdefault("slurm", {}).setdefault("gpus", "8")
        serve = {
            "command": " ".join(command.split()),
            "machine_options": " ".join(machine_options),
            "health": _mapping(deployment.get("endpoints")).get("health"),
            "start_time_limit_s": execution.get("endpoint_readiness_timeout"),
            "replicas": self.replicas(execution),
            "env": self.inherited_variables(deployment),
        }
        return {name: value for name, value in serve.items() if value}

    def replicas(self, execution: Mapping[str, Any]) -> Any:
        """Return the number of servers of the model; None for one server.

        More than one server is noted, because each server of eval-factory runs on one node. The
        number of nodes is noted if it is neither 1 nor the number of servers.
        """
        servers = execution.get("num_instances") or 1
        nodes = execution.get("num_nodes") or 1
        if servers != 1:
            self.note("execution.num_instances", _ADVICE["num_instances"])
        if nodes not in (1, servers):
            self.note("execution.num_nodes", _ADVICE["num_nodes"])
        return None if servers == 1 else servers

    def inherited_variables(self, deployment: Mapping[str, Any]) -> list[str]:
        """Return the variables of the user's shell that the server gets under the same names.

        A variable of the server that is set in another way is noted.
        """
        inherited = []
        user_variables = _user_variables("deployment.env_vars", deployment)
        for path, user_variable in user_variables.items():
            if user_variable is not None and path.endswith(f".{user_variable}"):
                inherited.append(user_variable)
            else:
                self.note(path, _ADVICE["env_vars"])
        return inherited


@dataclass
class _RunDocument:
    """The conversion of one task's settings into the `config` and `target` of a run config."""

    file_import: _FileImport
    task: Task
    user_variables: Mapping[str, str | None] = field(default_factory=dict)
    """A variable of the container -> the user's variable that sets its value, or None."""

    def document(self, layers: Iterable[_FileLayer]) -> _Tree:
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
        self.remove_unused_prompt(endpoint.get("adapter_config", {}))
        self.set_judge_keys(extra)
        self.note_other_defaults(params, extra)
        if self.file_import.serve is not None:
            endpoint.pop("url", None)  # The launcher also ignores the URL if it starts a server.
        folder = config.get("output_dir", f"results/{self.task.name.replace(':', '_')}")
        config = {"type": self.task.name, "output_dir": folder, "params": _without_empty(params)}
        return {
            "config": _without_empty(config),
            "target": {"api_endpoint": _without_empty(endpoint)},
        }

    def remove_unused_prompt(self, adapter: _Tree) -> None:
        """Remove from `adapter_config` a system prompt that would not be sent, and note it."""
        uses_prompt = adapter.pop("use_system_prompt", False)
        if not uses_prompt and adapter.pop("custom_system_prompt", None) is not None:
            path = f"{ADAPTER}.custom_system_prompt"
            self.file_import.note(path, _MESSAGES["unused prompt"].format(path=path))

    def set_judge_keys(self, extra: _Tree) -> None:
        """Set the keys of `extra` that name the variables with the API keys of HELM's judges."""
        if not self.task.helm.judges:
            return
        # From these variables, the container reads the API keys of the three default judges.
        for name in ("GPT_JUDGE_API_KEY", "LLAMA_JUDGE_API_KEY", "CLAUDE_JUDGE_API_KEY"):
            user_variable = self.user_variables.get(name)
            # eval-factory reads variables with these names by default: then set no key.
            if user_variable not in (None, name):
                extra.setdefault(name.lower(), user_variable)
                self.file_import.api_key_variables.add(name)

    def note_other_defaults(self, params: _Tree, extra: _Tree) -> None:
        """Note the parameters for which NVIDIA's container and eval-factory have other defaults.

        A parameter that the file sets is not noted, nor are the parameters of a task that the
        container does not have.
        """
        if self.task.name not in TABLE["tasks"].split():
            return
        set_names = set(params)
        if "num_output_tokens" in extra:
            set_names.add("max_new_tokens")  # another name of the same setting
        for name, theirs in TABLE["defaults"].items():
            if name not in set_names:
                message = _MESSAGES["default"].format(theirs=theirs)
                self.file_import.note(f"{PARAMS_PATH}.{name}", message)

    def section(self, path: str, value: Any, prefix: str) -> _Tree:
        """Return a section with our keys and values.

        Args:
            path: the path of the section in a run config.
            value: the section as the file holds it.
            prefix: the path of the layer in the file, with a final dot; empty for the top.
        """
        tree = self.file_import.known_values(path, value, _KEYS_READ[path], prefix)
        for name in tree:
            if f"{path}.{name}" in _KEYS_READ:
                tree[name] = self.section(f"{path}.{name}", tree[name], prefix)
            elif path == EXTRA_PATH and name.endswith("_api_key"):
                tree[name] = self.variable_of_key(tree[name])
        if path == ENDPOINT:
            self.convert_endpoint(tree, tree.get("adapter_config", {}), prefix)
        return tree

    def variable_of_key(self, name: Any) -> Any:
        """Return the name of the user's variable that holds an API key.

        `name` is the name of the container's variable. `${NAME}`, which would insert the API key
        itself, is read as the name. A value that is not a text is returned unchanged.
        """
        if not isinstance(name, str):
            return name
        match = _VARIABLE.fullmatch(name)
        if match:
            name = match.group(1)
        self.file_import.api_key_variables.add(name)
        return self.user_variables.get(name) or name

    def convert_endpoint(self, endpoint: _Tree, adapter: _Tree, prefix: str) -> None:
        """Convert the interceptors, the API key's variable and the type of an endpoint.

        Args:
            endpoint: the section of the endpoint, which is changed.
            adapter: the endpoint's `adapter_config`, which is changed.
            prefix: the path of the layer in the file, with a final dot; empty for the top.
        """
        for interceptor in active_interceptors(adapter.pop("interceptors", [])):
            path = f"{INTERCEPTORS}[{interceptor.number}]"
            known_interceptor = TABLE["interceptors"].get(interceptor.name)
            if known_interceptor is None:
                if interceptor.name in TABLE["harmless"]:
                    why = _ADVICE["caching"]  # This advice fits all interceptors without an effect.
                else:
                    why = "there is no such interceptor; leave it out"
                self.file_import.note(f"{prefix}{path}", f"{interceptor.name}: {why}")
                continue
            our_keys = known_interceptor["keys"]  # a key of the interceptor -> our key
            config = self.file_import.known_values(
                f"{path}.config", interceptor.section.get("config"), our_keys, prefix
            )
            adapter |= known_interceptor.get("sets", {})
            adapter |= {our_keys[key]: value for key, value in config.items()}
        # A null is a setting too: it means that no API key is sent.
        has_key_setting = "api_key_name" in endpoint or "api_key" in endpoint
        key_name = endpoint.pop("api_key_name", None)
        if isinstance(key_name, str) and "${" in key_name:
            # A variable of the environment holds the name of the API key's variable.
            endpoint["api_key"] = key_name
        elif has_key_setting:
            if key_name is None:
                key_name = endpoint.get("api_key")
            endpoint["api_key"] = self.variable_of_key(key_name)
        endpoint_type = endpoint.pop("type", None)
        if endpoint_type == "vlm":  # a chat endpoint that accepts pictures
            endpoint_type = "chat"
        if endpoint_type in ("chat", "completions"):
            endpoint["type"] = endpoint_type
        elif endpoint_type is not None:
            self.file_import.note(
                f"{prefix}{ENDPOINT}.type", "does not answer with text; give chat or completions"
            )


def _mapping(value: Any) -> Mapping[str, Any]:
    """Return the value if it is a mapping; an empty mapping for any other value."""
    if not isinstance(value, Mapping):
        return {}
    return value


def _last_name(path: str) -> str:
    """Return the last name of a dotted path: `NAME` of `evaluation.env_vars.NAME`."""
    return path.rpartition(".")[2]


def _without_empty(tree: _Tree) -> _Tree:
    """Return the tree without entries at its top level that are an empty mapping or list."""
    return {name: value for name, value in tree.items() if value not in ({}, [])}


def _user_variables(path: str, section: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the user's variable that sets each variable of the container.

    In `env_vars`, a key is a variable of the container. Its value names the user's variable, or
    states the value itself.

    Args:
        path: the path of the section's `env_vars` in the file.
        section: the section with `env_vars`.

    Returns:
        A dict from the path of a variable of the container to the name of the user's variable. The
        name is None if the file states the value itself.
    """
    user_variables: dict[str, str | None] = {}
    for name, value in _mapping(section.get("env_vars")).items():
        match = _USER_VARIABLE.match(str(value))
        user_variables[f"{path}.{name}"] = match.group(1) if match else None
    return user_variables


def _by_name(user_variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the result of `_user_variables` with the names of variables in place of paths."""
    return {_last_name(path): variable for path, variable in user_variables.items()}


def _option_text(option: str, value: Any) -> str:
    """Return the value of an option of sbatch as a text, such as `4:00:00` for `time`."""
    # YAML reads 4:00:00 as 14400 seconds. A number below 3600 is a number of minutes.
    if option in _OPTIONS_OF_TIMES and isinstance(value, int) and value >= 3600:
        minutes, seconds = divmod(value, 60)
        hours, minutes_of_hour = divmod(minutes, 60)
        return f"{hours}:{minutes_of_hour:02}:{seconds:02}"
    return str(value).removeprefix("gpu:")  # `gres: gpu:8` stands for eight GPUs.


def _config_layers(path: str, section: Mapping[str, Any]) -> list[_FileLayer]:
    """Return the two layers of a section: its `nemo_evaluator_config`, then its `overrides`.

    The keys of `overrides` are dotted paths, and Hydra allows a `+` before them.
    """
    overrides = {}
    for key, value in _mapping(section.get("overrides")).items():
        overrides[key.lstrip("+")] = value
    config = _mapping(section.get("nemo_evaluator_config"))
    return [
        (f"{path}.nemo_evaluator_config.", config),
        (f"{path}.overrides.", nest_paths(overrides)),
    ]


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
    params_by_run = []  # for each run, a dict from the dotted path of a parameter to its value
    for run in runs:
        values = leaves_by_path(run["config"].get("params", {}))
        params_by_run.append({".".join(path): value for path, value in values.items()})
    shared = {}
    for key, value in params_by_run[0].items():
        if all(key in params and params[key] == value for params in params_by_run):
            shared[key] = value
    endpoints = [run["target"]["api_endpoint"] for run in runs]
    distinct_endpoints: list[_Tree] = []
    for endpoint in endpoints:
        if endpoint not in distinct_endpoints:
            distinct_endpoints.append(endpoint)
    target_names = _distinct(["model"] * len(distinct_endpoints))
    targets = dict(zip(target_names, distinct_endpoints, strict=True))
    evaluations: list[Any] = []
    excluded = []
    for run, name, params, own_endpoint in zip(runs, names, params_by_run, endpoints, strict=True):
        task = run["config"]["type"]
        own_params = nest_paths({key: params[key] for key in params if key not in shared})
        if own_params:
            evaluations.append({"type": task, "name": name, "params": own_params})
        elif name != task:
            evaluations.append({"type": task, "name": name})
        else:
            evaluations.append(task)
        # A suite combines each evaluation with each target. Exclude the cells that are not runs.
        for target, endpoint in targets.items():
            if endpoint != own_endpoint:
                excluded.append({"evaluation": name, "target": target})
    suite = {
        **executor_keys,
        "params": nest_paths(shared),
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
    counts: Counter[str] = Counter()  # a name -> the number of its occurrences so far
    for name in names:
        counts[name] += 1
        if counts[name] == 1:
            distinct_names.append(name)
        else:
            distinct_names.append(f"{name}-{counts[name]}")
    return distinct_names
