"""`config` and `target` as NVIDIA's programs write them, key by key, as a run config of ours for one task."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from typing import Any

from eval_factory.config.foreign_configs.findings import Finding
from eval_factory.config.foreign_configs.hydra_texts import variable_for
from eval_factory.config.foreign_keys import ADAPTER, HARMLESS_INTERCEPTORS, NO_EFFECT, ONLY
from eval_factory.config.merge import is_credential
from eval_factory.config.model import AdapterConfig, ApiEndpoint, Extra, Params
from eval_factory.config.rules import SCENARIO_PARAMETERS
from eval_factory.core.validation_messages import did_you_mean
from eval_factory.tasks.framework import Task

CONFIG, PARAMS, EXTRA, ENDPOINT = "config", "config.params", "config.params.extra", "target.api_endpoint"
_VARIABLE, _WHOLE_VARIABLE = "${", re.compile(r"\$\{([A-Za-z_]\w*)\}")
_USE_PROMPT, _PROMPT = "use_system_prompt", "custom_system_prompt"
_SAME_HERE = "changes no result: it is always done the same way here"
_NOTHING = "leave it out"
_NO_KEY = "has no counterpart"

_HERE: Mapping[str, tuple[str, ...]] = {
    CONFIG: ("type", "output_dir", "params"),
    PARAMS: tuple(Params.model_fields),
    EXTRA: tuple(Extra.model_fields),
    "target": ("api_endpoint",),
    ENDPOINT: (*ApiEndpoint.model_fields, "api_key_name"),
    ADAPTER: tuple(AdapterConfig.model_fields),
}
"""Section -> the keys that it has here."""

_ADVICE: Mapping[str, tuple[str, str]] = {
    "disable_cache": ("answers are always kept, so that none is paid for twice", "'--fresh' forgets them before a run"),
    "tokenizer": ("tokens are counted by the endpoint", _NOTHING),
    "tokenizer_backend": ("tokens are counted by the endpoint", _NOTHING),
    "num_fewshot": (
        "HELM's benchmark says how many examples a prompt holds",
        "run it as helm:NAME:max_train_instances=N (docs/any-helm-benchmark.md)",
    ),
    "n_samples": ("each prompt is asked once", "run it into several folders, and compare them"),
    "num_repeats": ("each prompt is asked once", "run it into several folders, and compare them"),
    "judge": ("judges have another form", "write them under config.params.extra.judges (docs/judges.md)"),
    "headers_to_add": ("requests have no headers of the user's", "give a key as api_key, or a token as oauth"),
    "headers_to_remove": ("requests have no headers of the user's", _NOTHING),
    "headers_to_rename": ("requests have no headers of the user's", _NOTHING),
    "discovery": ("no interceptor of the user's is loaded", _NOTHING),
}
"""What is known of keys that have no counterpart: why, and what to do."""

_TYPES: Mapping[str, str] = {"chat": "chat", "completions": "completions", "vlm": "chat"}


@dataclass
class RunSections:
    """One layer of a foreign configuration on its way into ours.

    A layer is what one place of the file says: of a launcher's config, all tasks, or one.
    """

    task: Task
    prefix: str
    """In front of each path of a finding: where in the file the layer stands."""
    renamed: Mapping[str, str] = field(default_factory=dict)
    """Variable in the container -> variable of the user's that it is filled from."""
    findings: list[Finding] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    """Variables of the container that hold a key: what is written names the user's in their place."""

    def translated(self, layer: Mapping[str, Any]) -> dict[str, Any]:
        """`config` and `target` of ours. `use_system_prompt` is still in them: another layer may say it."""
        config = self._known(CONFIG, layer.get(CONFIG))
        if "params" in config:
            config["params"] = self._params(config["params"])
        target = self._known("target", layer.get("target"))
        if "api_endpoint" in target:
            target["api_endpoint"] = self._endpoint(target["api_endpoint"])
        return {CONFIG: config, "target": target}

    def say(self, path: str, why: str, advice: str) -> None:
        self.findings.append(Finding(f"{self.prefix}{path}", why, advice))

    def _known(self, section: str, given: Any, also: Collection[str] = ()) -> dict[str, Any]:
        """The keys of a section that there are here. A null says nothing, but of a credential: that none is sent."""
        if not isinstance(given, Mapping):
            if given is not None:
                self.say(section, "is no mapping of keys to values", "write it as one")
            return {}
        kept = {}
        for name, value in given.items():
            if value is None and not is_credential(name):
                continue
            if name in _HERE[section] or name in also:
                kept[name] = value
            else:
                self._without_counterpart(section, name, value)
        return kept

    def _without_counterpart(self, section: str, name: str, value: Any) -> None:
        path = f"{section}.{name}"
        if path in ONLY:
            allowed, done = ONLY[path]
            if value not in allowed:
                self.say(path, f"would change the results and is not followed: {done}", _NOTHING)
        elif name in NO_EFFECT.get(section, ()):
            self.say(path, _SAME_HERE, _NOTHING)
        else:
            why, advice = _ADVICE.get(name, (_NO_KEY, f"leave it out{did_you_mean(name, _HERE[section])}"))
            self.say(path, why, advice)

    def _params(self, given: Any) -> dict[str, Any]:
        params = self._known(PARAMS, given, also=("task",))
        named = params.pop("task", None)
        if named not in (None, self.task.name, self.task.helm.run_spec):
            self.say(f"{PARAMS}.task", f"is another task than {self.task.name}", "name the task that is meant")
        samples = params.get("limit_samples")
        if isinstance(samples, float) and samples.is_integer():
            params["limit_samples"] = int(samples)
        if "extra" in params:
            params["extra"] = self._extra(params["extra"])
        return params

    def _extra(self, given: Any) -> dict[str, Any]:
        extra = self._known(EXTRA, given)
        for name in [name for name in extra if name in SCENARIO_PARAMETERS]:
            if name not in self.task.helm.parameters:
                del extra[name]
                self.say(f"{EXTRA}.{name}", f"{self.task.name} has no {name}", _NOTHING)
        for name in [name for name in extra if name.endswith("_api_key")]:
            extra[name] = self._variable(extra[name])
        return extra

    def _variable(self, name: Any) -> Any:
        """The name of the user's variable. Where a key itself would be filled in, its variable is meant."""
        if not isinstance(name, str):
            return name
        variable = _WHOLE_VARIABLE.fullmatch(name)
        name = variable[1] if variable else name
        self.keys.add(name)
        return self.renamed.get(name, name)

    def _endpoint(self, given: Any) -> dict[str, Any]:
        endpoint = self._known(ENDPOINT, given)
        is_said = "api_key_name" in endpoint or "api_key" in endpoint
        named = endpoint.pop("api_key_name", None)
        if isinstance(named, str) and (named.startswith("<") or named == f"${{{variable_for('api_key_name')}}}"):
            self.say(f"{ENDPOINT}.api_key_name", "is a mark for a name", "write the NAME of the key's variable")
        elif isinstance(named, str) and _VARIABLE in named:
            endpoint["api_key"] = named  # the environment says which variable it is
        elif is_said:
            endpoint["api_key"] = self._variable(endpoint.get("api_key") if named is None else named)
        if "type" in endpoint:
            self._type(endpoint)
        if "adapter_config" in endpoint:
            endpoint["adapter_config"] = self._adapter(endpoint["adapter_config"])
        return endpoint

    def _type(self, endpoint: dict[str, Any]) -> None:
        given = endpoint.pop("type")
        if given in _TYPES:
            endpoint["type"] = _TYPES[given]
        else:
            self.say(f"{ENDPOINT}.type", "is no endpoint that answers with text", "give chat or completions")

    def _adapter(self, given: Any) -> dict[str, Any]:
        adapter = self._known(ADAPTER, given, also=("interceptors", _USE_PROMPT))
        interceptors = adapter.pop("interceptors", [])
        for number, entry in enumerate(interceptors if isinstance(interceptors, list) else []):
            told = entry if isinstance(entry, Mapping) else {"name": entry}
            if told.get("enabled") is not False:
                config = told.get("config")
                self._interceptor(
                    f"{ADAPTER}.interceptors[{number}]",
                    str(told.get("name")),
                    config if isinstance(config, Mapping) else {},
                    adapter,
                )
        return adapter

    def _interceptor(self, path: str, name: str, config: Mapping[str, Any], adapter: dict[str, Any]) -> None:
        taken: dict[str, Any] = {}
        if name == "payload_modifier":
            taken = {key: key for key in ("params_to_add", "params_to_remove", "params_to_rename")}
        elif name == "system_message":
            taken = {"system_message": _PROMPT}
            adapter[_USE_PROMPT] = True
        elif name == "reasoning":
            taken = {key: key for key in ("start_reasoning_token", "end_reasoning_token")}
        elif name == "nvcf":
            adapter["use_nvcf"] = True
        elif name in HARMLESS_INTERCEPTORS:
            self.say(path, f"{name}: {_SAME_HERE}", _NOTHING)
            return
        else:
            self.say(path, f"there is no interceptor {name} here", _NOTHING)
            return
        for key, value in config.items():
            if key in taken and value is not None:
                adapter[taken[key]] = value
            elif value is not None:
                self.say(f"{path}.config.{key}", _NO_KEY, _NOTHING)


def settle_system_prompt(run: Mapping[str, Any]) -> Finding | None:
    """Of a merged run: their system prompt is sent only where `use_system_prompt` is true; ours, where it is given."""
    adapter = run["target"].get("api_endpoint", {}).get("adapter_config", {})
    used = adapter.pop(_USE_PROMPT, False)
    if used or adapter.pop(_PROMPT, None) is None:
        return None
    path = f"{ADAPTER}.{_PROMPT}"
    return Finding(path, f"is not sent where {_USE_PROMPT} is not true", f"give {path} in what is written to send it")
