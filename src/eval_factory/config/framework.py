"""`framework.yml`: where it is, and what it says. The only source of default values."""

from __future__ import annotations

from functools import lru_cache
from importlib import resources
from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict

FILE_NAME = "framework.yml"

try:
    _Loader: Any = yaml.CSafeLoader
except AttributeError:  # PyYAML built without libyaml
    _Loader = yaml.SafeLoader


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FrameworkInfo(_Strict):
    name: str
    pkg_name: str
    full_name: str
    description: str
    url: str


class FileLayout(_Strict):
    """A file of a user's own data; without `file` it is the path itself."""

    file: str | None = None
    """A path or pattern under the folder; {subject} and {condition} stand for the parameters."""
    columns: tuple[str, ...] = ()
    format: str | None = None
    """How it is read where the file's suffix does not say."""


class ScenarioParameter(_Strict):
    """A value of `params.extra` that a task's scenario accepts."""

    required: bool = False
    fixed: str | None = None
    allowed: tuple[str, ...] = ()
    path: bool = False
    layout: tuple[FileLayout, ...] = ()

    @property
    def chooses_a_part(self) -> bool:
        """Of the task's data: other instances are read than without it."""
        return not (self.required or self.fixed or self.path)


class HelmEntry(_Strict):
    """How HELM knows a task."""

    run_spec: str
    scenario: str
    main_metric: str | None
    """None for a run spec of which HELM does not say it."""
    judges: tuple[str, ...] = ()
    parameters: dict[str, ScenarioParameter] = {}
    any_run_spec: bool = False
    """Whether this is no entry of framework.yml but a run entry that a user wrote. The rest is for such ones only."""
    arguments: dict[str, str] = {}
    """Of the run entry, in the user's order."""
    main_metrics: tuple[str, ...] = ()
    """Where the main metric depends on the arguments: the first that the run has."""
    main_split: str | None = None
    prescribed_judges: tuple[str, ...] = ()
    """Deployments that HELM asks with its own clients."""


    @property
    def fixed(self) -> dict[str, str] | None:
        """Arguments that are not the user's to choose; None where there are none."""
        return {name: rule.fixed for name, rule in self.parameters.items() if rule.fixed is not None} or None


class About(_Strict):
    """What `ls` shows of a task."""

    tags: tuple[str, ...]
    access: Literal["public", "gated", "private", "unknown"]
    source: str
    instances: int | None
    tried: Literal["real data", "invented data"] | None = None
    notes: tuple[str, ...] = ()
    licence: str | None = None
    revision: str | None = None
    size_mb: float | None = None


class JudgeDefault(_Strict):
    """A judge of the default jury; `api_key` names the parameter of `params.extra` that names its variable."""

    model_id: str
    api_key: str


class OAuthService(_Strict):
    """Where a service gives tokens, and for what, unless the environment says otherwise."""

    token_url: str | None = None
    scope: str | None = None


class Task(_Strict):
    """One entry of `evaluations`."""

    name: str
    description: str
    defaults: dict[str, Any]
    helm: HelmEntry
    about: About

    @property
    def endpoint_types(self) -> tuple[str, ...]:
        return tuple(self.defaults["config"]["supported_endpoint_types"])


class Defaults(_Strict):
    command: str
    config: dict[str, Any]
    target: dict[str, Any]


class Framework(_Strict):
    """The whole file."""

    framework: FrameworkInfo
    defaults: Defaults
    judges: dict[str, JudgeDefault]
    oauth: dict[str, OAuthService]
    evaluations: tuple[Task, ...]

    def names(self) -> list[str]:
        return [task.name for task in self.evaluations]

    def task(self, name: str) -> Task | None:
        """The task of that name; `helm.NAME` is the same task."""
        short = name.removeprefix(f"{self.framework.name}.")
        return next((task for task in self.evaluations if task.name == short), None)


def framework_path() -> Path:
    """`framework.yml` in the wheel (beside the package's modules) or at the top of the checkout."""
    packaged = Path(str(resources.files("eval_factory"))) / FILE_NAME
    if packaged.is_file():
        return packaged
    return Path(__file__).resolve().parents[3] / FILE_NAME


@lru_cache(maxsize=1)
def load_framework() -> Framework:
    """Read and check the file once per process."""
    text = framework_path().read_text(encoding="utf-8")
    return Framework.model_validate(yaml.load(text, Loader=_Loader))  # noqa: S506 - a safe loader
