"""Makes the run config of one task from a run config of EvalFactory, or from a launcher's layers.

The launcher is nemo-evaluator-launcher, a program of NVIDIA that runs each task in a container. The
sections `config` and `target` are made key by key. A layer is one of several sections that set
values for a task; a stronger layer overwrites the values of a weaker one. `foreign_configs.yml`
holds the tables.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from eval_factory.config.foreign_file import ADVICE, MESSAGES, FileImport, Tree, without_empty
from eval_factory.config.foreign_keys import ADAPTER, INTERCEPTORS, TABLE, active_interceptors
from eval_factory.config.merge import Source, merge
from eval_factory.config.model import (
    EXTRA_PATH,
    PARAMS_PATH,
    AdapterConfig,
    ApiEndpoint,
    Extra,
    Params,
)
from eval_factory.tasks.framework import Task

FileLayer = tuple[str, Mapping[str, Any]]
"""The path of a section in a file, and the section, whose `config` and `target` are converted. The
path has a final dot; it is empty for the top of the file.
"""
ENDPOINT = "target.api_endpoint"
_KEYS_READ: Mapping[str, tuple[str, ...]] = {  # the path of a section -> the keys that are read
    "config": ("type", "output_dir", "params"),
    PARAMS_PATH: tuple(Params.model_fields),
    EXTRA_PATH: tuple(Extra.model_fields),
    "target": ("api_endpoint",),
    ENDPOINT: (*ApiEndpoint.model_fields, "api_key_name"),
    ADAPTER: (*AdapterConfig.model_fields, "interceptors", "use_system_prompt"),
}
_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)\}")  # `${NAME}`


@dataclass
class RunDocument:
    """The conversion of one task's settings into the `config` and `target` of a run config."""

    file_import: FileImport
    task: Task
    user_variables: Mapping[str, str | None] = field(default_factory=dict)
    """A variable of the container -> the user's variable that sets its value, or None."""

    def document(self, layers: Iterable[FileLayer]) -> Tree:
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
        config = {"type": self.task.name, "output_dir": folder, "params": without_empty(params)}
        return {
            "config": without_empty(config),
            "target": {"api_endpoint": without_empty(endpoint)},
        }

    def remove_unused_prompt(self, adapter: Tree) -> None:
        """Remove from `adapter_config` a system prompt that would not be sent, and note it."""
        uses_prompt = adapter.pop("use_system_prompt", False)
        if not uses_prompt and adapter.pop("custom_system_prompt", None) is not None:
            path = f"{ADAPTER}.custom_system_prompt"
            self.file_import.note(path, MESSAGES["unused prompt"].format(path=path))

    def set_judge_keys(self, extra: Tree) -> None:
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

    def note_other_defaults(self, params: Tree, extra: Tree) -> None:
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
                message = MESSAGES["default"].format(theirs=theirs)
                self.file_import.note(f"{PARAMS_PATH}.{name}", message)

    def section(self, path: str, value: Any, prefix: str) -> Tree:
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

    def convert_endpoint(self, endpoint: Tree, adapter: Tree, prefix: str) -> None:
        """Convert the interceptors, the API key's variable and the type of an endpoint.

        An interceptor is a step in which NVIDIA's adapter changes, stores or counts requests and
        answers.

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
                    why = ADVICE["caching"]  # This advice fits all interceptors without an effect.
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
