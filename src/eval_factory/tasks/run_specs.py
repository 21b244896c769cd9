"""Reads the index of an upstream's run specs, and lists the run specs that execute answers.

The index is `<upstream>_index.json`, written by scripts/make_helm_index.py. HELM itself is not
imported.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from eval_factory.tasks.upstreams import HELM, MEDHELM, UPSTREAMS, Upstream

IMAGES = "images"  # a value of `media`, and the type of an endpoint whose answers are pictures
SOUNDS = "sounds"  # a value of `media`
IMAGE_GENERATION = "image generation"  # a value of `asks`
JURY_PARAMETER = "jury_config_path"  # the parameter of run specs whose jury the user can choose


@dataclass(frozen=True)
class IndexedRunSpec:
    """The index entry of one run spec. Unknown facts are None or empty."""

    module: str  # the module under `helm.benchmark.run_specs` that defines the run spec
    description: str = ""
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """A dict from a name to `type` (annotation) and `default`. A parameter without `default` is
    required.
    """
    any_parameter: bool = False  # True if the run spec accepts parameters of any name
    main_metrics: tuple[str, ...] = ()
    """The possible main metrics, which may depend on the parameters: the first of these metrics
    that a run has is the main metric.
    """
    main_split: str | None = None  # the split whose scores are reported
    scenario: str | None = None  # the scenario's name, which is also the folder of its data
    scenario_class: str | None = None
    annotators: tuple[str, ...] = ()
    judge_deployments: tuple[str, ...] = ()
    """The judges that HELM's code names. HELM asks them with its own clients, unless the run spec
    has a parameter for a jury.
    """
    packages: tuple[str, ...] = ()
    """The modules that each run imports and that neither HELM nor eval-factory installs."""
    executes: Mapping[str, str] | None = None
    """A dict from the language of code in answers that HELM executes (Python, C++, SQL ...) to the
    part of HELM's source that executes the code; None or empty if HELM executes no answers.
    """
    asks: str | None = None
    """The kind of request, if it is not a request for text: "image generation", "critiques of
    answers". Such a run spec cannot be run, unless the kind is `IMAGE_GENERATION`. (`Task.asks` is
    something else: a short description of the task.)
    """
    media: str | None = None  # the media in prompts in addition to text: `images` or `sounds`
    zero_shot: bool = False  # True if prompts are known to contain no examples
    choices: str | None = None
    """The meaning of the options' letters. `by place`: a letter is the position of an option in the
    question's list. `by meaning`: the instructions define the meaning of each letter.
    """

    @property
    def makes_images(self) -> bool:
        """True if the answers are pictures, from an endpoint of the type `images`."""
        return self.asks == IMAGE_GENERATION

    @property
    def endpoint_types(self) -> list[str]:
        """The required types of endpoints; empty if any endpoint with text answers can be used."""
        if self.makes_images:
            return [IMAGES]
        return ["chat"] if self.media else []

    @property
    def required(self) -> list[str]:
        """The parameters that a run entry must set."""
        return [name for name, record in self.parameters.items() if "default" not in record]

    @property
    def prescribed_judges(self) -> tuple[str, ...]:
        """The judges that the user cannot replace by a jury."""
        return () if self.has_jury else self.judge_deployments

    @property
    def has_jury(self) -> bool:
        """True if the user can choose the jury."""
        return JURY_PARAMETER in self.parameters


@dataclass(frozen=True)
class RunSpecIndex:
    """The index of all run specs of one version of HELM."""

    helm: str  # the version of HELM
    # the arguments that every run spec accepts: HELM's "run expanders"
    expanders: tuple[str, ...]
    # a dict from a module to the requirement to install, such as `sacrebleu~=2.2`
    packages: Mapping[str, str]
    run_specs: Mapping[str, IndexedRunSpec]


@lru_cache(maxsize=len(UPSTREAMS))
def load_index(upstream: Upstream = HELM) -> RunSpecIndex:
    """Read an upstream's index; the result is cached."""
    content = json.loads(Path(__file__).with_name(f"{upstream.name}_index.json").read_bytes())
    run_specs = {}
    for name, record in content["run_specs"].items():
        fields: dict[str, Any] = {}
        for key, value in record.items():
            fields[key] = tuple(value) if isinstance(value, list) else value
        run_specs[name] = IndexedRunSpec(**fields)
    return RunSpecIndex(
        helm=content["helm"],
        expanders=tuple(content["expanders"]),
        packages=content["packages"],
        run_specs=run_specs,
    )


CODE_EXECUTION_FLAG = "--allow_code_execution"
CODE_EXECUTION_KEY = "config.params.extra.allow_code_execution"
"""The option and the configuration key with which the user allows the execution of answers."""

NEEDS_NO_PERMISSION = frozenset({"ehr_sql"})
"""Run specs whose SQL runs in processes that can only read, for a limited time
(`helm_plugin/patches/executed_queries.py`).
"""

# a dict from a run spec to the only parameter and value with which it executes answers
EXECUTES_ONLY_WITH = {"cleva": ("task", "code_synthesis")}

NOT_CONFINED = frozenset({"bigcodebench", "unitxt", "image2musicsheet"})
"""Run specs whose programs are executed by HELM or another package without a sandbox of
eval-factory.
"""


def languages_executed(run_spec: str, arguments: Mapping[str, str]) -> Mapping[str, str]:
    """Return the languages of code in answers that a run executes, as `IndexedRunSpec.executes`.

    The dict is empty if the run does not execute answers.

    Args:
        run_spec: the name of HELM's run spec.
        arguments: a dict from the names of the run entry's arguments to their values.
    """
    # The upstream is not known here; medhelm's entry is used for run specs that only medhelm has.
    spec = load_index().run_specs.get(run_spec) or load_index(MEDHELM).run_specs.get(run_spec)
    if spec is None or not spec.executes:
        return {}
    if run_spec in EXECUTES_ONLY_WITH:
        name, value = EXECUTES_ONLY_WITH[run_spec]
        # If the argument is not set, assume that the run executes answers.
        if arguments.get(name, value) != value:
            return {}
    return spec.executes


def needs_permission(run_spec: str, spec: IndexedRunSpec) -> bool:
    """Return True if the run spec can execute answers, and the user must allow the execution.

    The arguments of a run may prevent the execution: `execution_refusal` considers the arguments.
    """
    return bool(spec.executes) and run_spec not in NEEDS_NO_PERMISSION


def needs_sandbox(run_spec: str, arguments: Mapping[str, str]) -> bool:
    """Return True if a run executes programs in answers, and eval-factory can confine them.

    SQL needs no sandbox: its processes can only read.
    """
    executes = languages_executed(run_spec, arguments)
    return bool(executes.keys() - {"SQL"}) and run_spec not in NOT_CONFINED


def how_executed(run_spec: str, executes: Mapping[str, str]) -> str:
    """Return a clause that describes which code of HELM executes answers, and how confined it is.

    `executes`: the result of `languages_executed`.
    """
    code = "; ".join(f"{language}, in HELM's {part}" for language, part in executes.items())
    if run_spec in NEEDS_NO_PERMISSION:
        return (
            f"executes what a model answers ({code}) in processes that can only read and have "
            "a time limit"
        )
    manner = "in a confined process"
    if run_spec in NOT_CONFINED:
        manner = "in HELM's own process, which eval-factory cannot confine"
    if run_spec in EXECUTES_ONLY_WITH:
        manner += f"; only with {'='.join(EXECUTES_ONLY_WITH[run_spec])}"
    return f"executes what a model answers ({code}), {manner}"


def execution_refusal(run_spec: str, arguments: Mapping[str, str]) -> str | None:
    """Return the message for a run that needs the user's permission; None for any other run.

    The message does not depend on whether the user has given the permission.

    Args:
        run_spec: the name of HELM's run spec.
        arguments: a dict from the names of the run entry's arguments to their values.
    """
    executes = languages_executed(run_spec, arguments)
    if not executes or run_spec in NEEDS_NO_PERMISSION:
        return None
    allow = (
        f"it is refused unless you allow it: {CODE_EXECUTION_FLAG}, or {CODE_EXECUTION_KEY}: "
        "true in the run config"
    )
    return f"{run_spec} {how_executed(run_spec, executes)}; {allow}"


def processor_problem(arguments: Mapping[str, str]) -> str | None:
    """Return the message for a `process_output` argument that is not allowed.

    HELM imports the function that the argument names, and calls the function with each answer.
    Functions outside HELM's module are not allowed, because they could do anything. Returns None if
    the argument is allowed or not set.

    `arguments`: a dict from the names of the run entry's arguments to their values.
    """
    module = "helm.benchmark.metrics.output_processors."
    function = arguments.get("process_output")
    if function is None or function.startswith(module):
        return None
    return (
        "process_output names a function that is called with the answers; "
        f"the function has to be one of {module}*"
    )
