"""What is known of a run that is described in words: its result with the configuration that it was run with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import MODEL_ROLE, AskedEndpoint, Score, TaskResult
from eval_factory.tasks.framework import Task, load_framework
from eval_factory.tasks.run_specs import load_index

OWN_FILES = ("data_path", "benchmark")
"""Values of `params.extra` that name files of the user."""
PARTS = ("version", "subset", "language", "category", "subject", "condition")
"""Values of `params.extra` that choose a part of the data, or another edition of them."""

_THIS_MACHINE = ("localhost", "127.0.0.1", "[::1]", "::1")


@dataclass(frozen=True)
class RunFacts:
    """One run. Whatever others wrote is given as one printable line."""

    result: TaskResult
    config: Mapping[str, Any]
    """`config` of the run, with its defaults where they are known."""
    target: Mapping[str, Any]

    @property
    def task(self) -> Task | None:
        """The entry of framework.yml; None for a run entry of HELM's and a custom benchmark."""
        return load_framework().task(self.result.task)

    @property
    def name(self) -> str:
        return one_line(self.result.task)

    @property
    def params(self) -> Mapping[str, Any]:
        return self.config.get("params") or {}

    @property
    def extra(self) -> Mapping[str, Any]:
        return self.params.get("extra") or {}

    @property
    def adapter(self) -> Mapping[str, Any]:
        return (self.target.get("api_endpoint") or {}).get("adapter_config") or {}

    @property
    def endpoint_type(self) -> str | None:
        """chat or completions; None where it is not known."""
        told = (self.target.get("api_endpoint") or {}).get("type")
        return None if told is None else one_line(str(told))

    @property
    def has_own_files(self) -> bool:
        """Whether the data were files of the user, so that what framework.yml says of the source does not hold."""
        return any(self.extra.get(name) is not None for name in OWN_FILES)

    @property
    def parts(self) -> dict[str, str]:
        return {name: one_line(str(self.extra[name])) for name in PARTS if self.extra.get(name) is not None}

    @property
    def is_zero_shot(self) -> bool:
        """Whether the prompts are known to hold no worked examples."""
        task = self.task
        if task is None:
            return False
        spec = load_index().run_specs.get(task.helm.run_spec)
        return task.helm.zero_shot or (spec is not None and spec.zero_shot)

    @property
    def main(self) -> Score | None:
        return self.result.scores.get(self.result.main_metric)

    @property
    def model(self) -> AskedEndpoint | None:
        return self.result.provenance.endpoints.get(MODEL_ROLE)

    @property
    def model_name(self) -> str:
        return one_line(self.result.provenance.target)

    @property
    def host(self) -> str:
        """Of the evaluated model's endpoint; empty where it is not known, or is the machine of the run itself."""
        host = one_line(self.model.host) if self.model is not None else ""
        return "" if host.rpartition(":")[0] in _THIS_MACHINE or host in _THIS_MACHINE else host

    @property
    def is_demo(self) -> bool:
        """Whether the embedded demo endpoint answered, which is no model."""
        return self.result.provenance.target == "demo baseline" and (
            self.model is None or self.model.model != "demo baseline"
        )

    @property
    def judges(self) -> dict[str, AskedEndpoint]:
        return {role: asked for role, asked in self.result.provenance.endpoints.items() if role != MODEL_ROLE}

    @property
    def helm(self) -> str:
        version = self.result.provenance.helm
        return "HELM" if version is None else f"HELM {one_line(version)}"


def number(value: float) -> str:
    """A score as every page shows it."""
    return f"{value:.4f}"


def counted(count: int, word: str) -> str:
    return f"{count:,} {word if count == 1 else f'{word}s'}"


def listed(words: list[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}" if words else ""
