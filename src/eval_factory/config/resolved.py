"""Holds a run config after merging and validation.

An `Evaluation` combines the user's run config with the defaults of `framework.yml` and of the task.
`build_evaluation` makes it, and all later steps get the complete object.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.config.foreign_keys import RunExecutor
from eval_factory.config.merge import Source, ValueSources, leaves_by_path, set_at_path
from eval_factory.config.model import ApiEndpoint, Extra, Params, RunConfig, StopWhen
from eval_factory.core.secrets import variable_of, variables_in
from eval_factory.tasks.framework import Framework, Task

if TYPE_CHECKING:
    from eval_factory.tasks.custom_benchmark import Benchmark

OAUTH_SECRETS = ("CLIENT_ID", "CLIENT_SECRET")
"""The ends of the names of an OAuth service's secret variables, such as <SERVICE>_CLIENT_ID."""
OAUTH_SETTINGS = ("TOKEN_URL", "SCOPE")
"""The ends of the names of an OAuth service's other variables, whose values logs may show."""
FLAG_OF_KEY = {
    "config.output_dir": "--output_dir",
    "target.api_endpoint.url": "--model_url",
    "target.api_endpoint.model_id": "--model_id",
}
"""A key that every run needs -> the flag that sets the key's value."""
_ALWAYS_INCLUDED = {*FLAG_OF_KEY, "config.type", "target.api_endpoint.type"}
"""The keys that `Evaluation.as_given` includes even if their values are defaults."""


@dataclass(frozen=True)
class Evaluation:
    """A merged and validated run config, with its task and the layer that set each value."""

    task: Task
    framework: Framework
    run: RunConfig
    sources: ValueSources
    benchmark: Benchmark | None = None  # the custom benchmark that `task` runs, if it runs one
    warnings: tuple[str, ...] = ()  # about settings of the configuration that have no effect
    executor: RunExecutor = field(default_factory=RunExecutor)

    @property
    def params(self) -> Params:
        return self.run.config.params

    @property
    def extra(self) -> Extra:
        return self.run.config.params.extra

    @property
    def endpoint(self) -> ApiEndpoint:
        """The model's endpoint."""
        return self.run.target.api_endpoint

    @property
    def output_dir(self) -> Path:
        return Path(self.run.config.output_dir)

    @property
    def num_output_tokens(self) -> int | None:
        """The user's limit for the tokens of an answer; None if the user set no limit.

        `max_new_tokens` and `extra.num_output_tokens` are two names of this setting.
        """
        params = self.params
        return params.extra.num_output_tokens or params.max_new_tokens

    @property
    def max_output_tokens(self) -> int | None:
        """The user's or else the custom benchmark's limit for the tokens of an answer.

        None if HELM's own limit applies.
        """
        if self.num_output_tokens is not None:
            return self.num_output_tokens
        if self.benchmark is None:
            return None
        return self.benchmark.max_tokens

    @property
    def stop_when(self) -> StopWhen | None:
        """The section `extra.stop_when`; None if the section has no rule."""
        stop = self.extra.stop_when
        if not stop.rules:
            return None
        return stop

    def with_extra(self, update: Mapping[str, Any]) -> Evaluation:
        """Return a copy of the evaluation with these values in params.extra."""
        params = self.params.model_copy(update={"extra": self.extra.model_copy(update=update)})
        config = self.run.config.model_copy(update={"params": params})
        return replace(self, run=self.run.model_copy(update={"config": config}))

    def key_variables(self) -> list[str]:
        """Return the names of the environment variables that may hold a secret of this run."""
        extra = self.extra
        endpoint = self.endpoint
        urls = [endpoint.url, *(judge.url for judge in extra.judges or [])]
        headers = [endpoint.headers, *(judge.headers for judge in extra.judges or [])]
        fields = endpoint.adapter_config.params_to_add
        names = [endpoint.api_key, *variables_in([urls, fields, headers])]
        asks_default_jury = self.task.helm.judges and extra.judges is None
        # Three keys are for HELM's own judges: for its default jury, which `extra.judges` replaces,
        # and for the judges of some tasks, which HELM prescribes and nothing replaces.
        if asks_default_jury or self.task.helm.prescribed_judges:
            names += [
                extra.gpt_judge_api_key,
                extra.llama_judge_api_key,
                extra.claude_judge_api_key,
            ]
        names += [judge.api_key for judge in extra.judges or []]
        for service in self._usable_services():
            names += [variable_of(service, name) for name in OAUTH_SECRETS]
        unique: list[str] = []
        for name in dict.fromkeys(names):
            if name:
                unique.append(name)
        return unique

    def setting_variables(self) -> list[str]:
        """Return the names of the environment variables with settings of OAuth services.

        The values of these variables are not secrets.
        """
        pairs = product(self._usable_services(), OAUTH_SETTINGS)
        return [variable_of(service, name) for service, name in pairs]

    def _usable_services(self) -> list[str]:
        """Return the OAuth services that this run may use.

        `endpoint.api_key` names a variable. If the environment lacks this variable, the service at
        the endpoint's host signs in, which may be any service of framework.yml. If `api_key` names
        no variable, only the services that the configuration names are used.
        """
        services = self.oauth_services()
        if self.endpoint.api_key is None:
            return services
        return list(dict.fromkeys((*services, *self.framework.oauth)))

    def oauth_services(self) -> list[str]:
        """Return the OAuth services that the configuration names, each of them once."""
        judges = self.extra.judges or []
        services = [self.endpoint.oauth, *(judge.oauth for judge in judges)]
        unique: list[str] = []
        for service in dict.fromkeys(services):
            if service:
                unique.append(service)
        return unique

    def as_dict(self) -> dict[str, Any]:
        """Return `config` and `target` with all defaults."""
        return self.run.model_dump(mode="json")

    def as_given(self) -> dict[str, Any]:
        """Return `config` and `target` with the user's values only.

        The keys that every run needs are included even if their values are defaults.
        """
        user_keys = set()
        for name, source in self.sources.items():
            if source not in (Source.FRAMEWORK, Source.TASK):
                user_keys.add(name)
        tree: dict[str, Any] = {}
        for path, value in leaves_by_path(
            self.run.model_dump(mode="json", exclude_unset=True)
        ).items():
            if ".".join(path) in user_keys | _ALWAYS_INCLUDED:
                set_at_path(tree, path, value)
        return tree
