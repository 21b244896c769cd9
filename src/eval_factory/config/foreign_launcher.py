"""Converts a config of nemo-evaluator-launcher ("the launcher") into our form.

The launcher is a program of NVIDIA that runs each task in a container. First, the references in its
file are resolved. Then the run config of each task is made (`foreign_run_document.py`). Last, the
run configs of several tasks are combined into one suite (`foreign_suite.py`).
https://docs.nvidia.com/nemo/evaluator/latest/libraries/nemo-evaluator-launcher/configuration/index.html
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from eval_factory.config.foreign_file import ADVICE, MESSAGES, FileImport, Tree, last_name, mapping
from eval_factory.config.foreign_keys import TABLE
from eval_factory.config.foreign_run_document import ENDPOINT, FileLayer, RunDocument
from eval_factory.config.foreign_suite import distinct_names, suite_document
from eval_factory.config.load import map_texts, nest_paths
from eval_factory.config.merge import section_at
from eval_factory.config.model import EXTRA_PATH
from eval_factory.config.suite_layers import name_of_type
from eval_factory.config.suite_model import RESERVED_OPTIONS
from eval_factory.core.enums import EXECUTOR_NAMES, LOCAL, SLURM
from eval_factory.core.errors import ConfigError
from eval_factory.core.urls import PORT_PLACEHOLDER
from eval_factory.tasks.framework import DATA_PATH_PARAMETER, Task

# a section of the launcher's file -> its keys that are read, or that do not matter here
_LAUNCHER_KEYS = TABLE["launcher"]
_SBATCH_OPTIONS: Mapping[str, str] = TABLE["sbatch"]
"""A key of the launcher's section `execution` -> the option of sbatch that the key sets."""
_MISSING = "???"  # Hydra's mark of a value that the user has to set
# A reference of Hydra, without another reference inside: `${deployment.port}`, `${oc.env:NAME}`.
_REFERENCE = re.compile(r"\$\{([^${}]*)\}")
# The content of a reference to an environment variable: `oc.env:NAME` or `oc.env:NAME,default`.
_VARIABLE_REFERENCE = re.compile(r"oc\.env:\s*(?P<name>[A-Za-z_]\w*)\s*(?:,(?P<default>.*))?\Z")
# A value of `env_vars` that names the user's variable: `host:NAME`, `$NAME` or NAME, for example.
_USER_VARIABLE = re.compile(r"(?:host:|runtime:|\$\{|\$)?([A-Za-z_]\w*)\}?\Z")


class LauncherImport(FileImport):
    """The conversion of one file of the launcher, with the findings so far."""

    def run_or_suite(self) -> Tree:
        """Return the run config of the file's only task, or the suite of its tasks."""
        # eval-factory chooses the port of a server itself: the file's port becomes a placeholder.
        self.document = {
            **self.document,
            "deployment": {**mapping(self.document.get("deployment")), "port": PORT_PLACEHOLDER},
        }
        top_level_keys = _LAUNCHER_KEYS[""]
        known = self.known_values(section="", value=self.document, known_keys=top_level_keys)
        resolved = map_texts(known, self.without_references)
        execution = mapping(resolved.get("execution"))
        deployment = resolved["deployment"]
        executor, deployment_type = self.types_of_sections(
            resolved.get("defaults"), execution, deployment
        )
        executor_keys = self.executor_keys(execution, executor)
        self.serve = self.serve_section(deployment_type, deployment, execution, executor_keys)
        runs = self.run_configs(resolved)
        if not runs:
            raise ConfigError([f"{self.path}: names no task that eval-factory has", *self.findings])
        # Only a suite can start a server, so one run with a server becomes a suite too.
        if len(runs) == 1 and self.serve is None:
            return {**runs[0], **executor_keys}
        names = [name_of_type(run["config"]["type"], self.framework) for run in runs]
        suite = suite_document(runs, distinct_names(names), executor_keys, self.serve)
        return {"suite": {"output_dir": execution.get("output_dir") or "results/suite", **suite}}

    def run_configs(self, resolved: Mapping[str, Any]) -> list[Tree]:
        """Return the run config of each task that eval-factory has; other tasks are noted.

        Several sections set values for a task. These sections are merged from the weakest to the
        strongest: `deployment`, the top of the file, `evaluation`, and the task's own entry.

        `resolved` is the launcher's file with its references resolved.
        """
        evaluation = mapping(resolved.get("evaluation"))
        self.note_unknown_keys("evaluation", evaluation, _LAUNCHER_KEYS["evaluation"])
        shared_variables = {
            **_user_variables("env_vars", resolved),
            **_user_variables("evaluation.env_vars", evaluation),
        }
        model = resolved["deployment"].get("served_model_name")
        folder = mapping(resolved.get("execution")).get("output_dir")
        shared_layers: list[FileLayer] = [
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
            run = RunDocument(self, task, _by_name(variables))
            runs.append(run.document([*shared_layers, *own_layers]))
        self.note_variables(all_variables)
        return runs

    def task_values(self, path: str, section: Mapping[str, Any], task: Task) -> Tree:
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
            name = last_name(path)
            if name not in self.api_key_variables:
                value = "..."  # the user fills in the value
                if user_variable not in (None, name):
                    value = f'"${user_variable}"'
                self.note(path, f"{MESSAGES['variable']} (export {name}={value})")

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
            variable = re.sub(r"\W", "_", last_name(path)).upper()
            if variable == "URL":
                variable = f"MODEL_{variable}"  # URL alone would not show whose URL it is.
            self.note(path, MESSAGES["not given"].format(name=variable))
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

    def types_of_sections(
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
            if isinstance(entry, Mapping):  # a mapping with one key
                section, file = next(iter(entry.items()), ("", None))
            if section in type_of_section:
                type_of_section[section] = str(file or "none").partition("/")[0]
            elif file != "_self_":
                self.note(f"defaults[{number}]", MESSAGES["defaults"])
        execution_type = execution.get("type", type_of_section["execution"])
        deployment_type = deployment.get("type") or type_of_section["deployment"]
        return str(execution_type), str(deployment_type)

    def executor_keys(self, execution: Mapping[str, Any], executor: str) -> Tree:
        """Return our `executor` and `slurm` for a section `execution` of the launcher.

        For Slurm, the keys of `execution` become options of sbatch. For other executors, the result
        is empty.
        """
        option_of_key = _SBATCH_OPTIONS if executor == SLURM else {}
        self.note_unknown_keys(
            "execution", execution, (*_LAUNCHER_KEYS["execution"], *option_of_key)
        )
        if executor not in EXECUTOR_NAMES:
            self.note("execution.type", ADVICE["execution.*"])
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
        executor_keys: Tree = {"executor": executor}
        if slurm:
            executor_keys["slurm"] = slurm
        return executor_keys

    def slurm_section(self, options: Mapping[str, Any]) -> Tree:
        """Return our section `slurm` for these options of sbatch and their values."""
        slurm: Tree = {}
        for option, value in options.items():
            text = str(value).removeprefix("gpu:")  # `gres: gpu:8` stands for eight GPUs.
            if option in RESERVED_OPTIONS:
                our_key = RESERVED_OPTIONS[option]
                if our_key is None:
                    self.note(
                        f"execution.sbatch_extra_flags.{option}",
                        "eval-factory sets it itself; leave it out",
                    )
                else:
                    # `cpus` is a number in our section; all other keys are texts.
                    slurm[our_key] = value if our_key == "cpus" else text
            elif value is True:
                slurm.setdefault("extra", []).append(f"--{option}")
            elif value is not None and value is not False:  # 0 is a value, such as `nice: 0`
                quoted_text = f'"{text}"' if " " in text else text
                slurm.setdefault("extra", []).append(f"--{option}={quoted_text}")
        return slurm

    def serve_section(
        self,
        deployment_type: str,
        deployment: Mapping[str, Any],
        execution: Mapping[str, Any],
        executor_keys: Tree,
    ) -> Tree | None:
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
                ADVICE["deployment"],
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
            "health": mapping(deployment.get("endpoints")).get("health"),
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
            self.note("execution.num_instances", ADVICE["num_instances"])
        if nodes not in (1, servers):
            self.note("execution.num_nodes", ADVICE["num_nodes"])
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
                self.note(path, ADVICE["env_vars"])
        return inherited


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
    for name, value in mapping(section.get("env_vars")).items():
        match = _USER_VARIABLE.match(str(value))
        user_variables[f"{path}.{name}"] = match.group(1) if match else None
    return user_variables


def _by_name(user_variables: Mapping[str, str | None]) -> dict[str, str | None]:
    """Return the result of `_user_variables` with the names of variables in place of paths."""
    return {last_name(path): variable for path, variable in user_variables.items()}


def _config_layers(path: str, section: Mapping[str, Any]) -> list[FileLayer]:
    """Return the two layers of a section: its `nemo_evaluator_config`, then its `overrides`.

    The keys of `overrides` are dotted paths, and Hydra allows a `+` before them.
    """
    overrides = {}
    for key, value in mapping(section.get("overrides")).items():
        overrides[key.lstrip("+")] = value
    config = mapping(section.get("nemo_evaluator_config"))
    return [
        (f"{path}.nemo_evaluator_config.", config),
        (f"{path}.overrides.", nest_paths(overrides)),
    ]
