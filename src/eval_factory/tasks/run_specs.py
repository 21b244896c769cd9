"""HELM's run specs: their index, what they execute of an answer, and `config.type: helm:<run entry>` as a task.

scripts/make_helm_index.py makes the index, `helm_index.json`; HELM itself is not imported.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from eval_factory.core.errors import did_you_mean
from eval_factory.tasks.framework import About, Framework, HelmEntry, Task

JURY_PARAMETER = "jury_config_path"
"""The parameter of run specs whose jury the user can choose."""


@dataclass(frozen=True)
class IndexedRunSpec:
    """One run spec as the index knows it. What is not known is None or empty."""

    module: str
    """Under `helm.benchmark.run_specs`."""
    description: str = ""
    parameters: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Name -> `type` (annotation) and `default`; without a default it is required."""
    any_parameter: bool = False
    main_metrics: tuple[str, ...] = ()
    """More than one where it depends on the parameters: the first that a run has is its main metric."""
    main_split: str | None = None
    scenario: str | None = None
    """The folder that its data are kept in."""
    scenario_class: str | None = None
    annotators: tuple[str, ...] = ()
    judge_deployments: tuple[str, ...] = ()
    """Judges that HELM prescribes, and asks with its own clients unless the run spec takes a jury."""
    packages: tuple[str, ...] = ()
    """Modules that it imports in any case, and that neither HELM nor eval-factory brings along."""
    executes: Mapping[str, str] | None = None
    """What of an answer HELM executes (Python, C++, SQL ...) -> where in HELM; found by reading its source."""
    asks: str | None = None
    """What it asks of a model beside text for text: then a text endpoint cannot be evaluated with it."""
    zero_shot: bool = False
    """Whether its prompts are known to hold no examples."""
    choices: str | None = None
    """Of questions with lettered options: the letters say an option's place (`by place`), or the instructions say what
    each stands for (`by meaning`)."""

    @property
    def required(self) -> list[str]:
        return [name for name, record in self.parameters.items() if "default" not in record]

    @property
    def prescribed_judges(self) -> tuple[str, ...]:
        return () if self.has_jury else self.judge_deployments

    @property
    def has_jury(self) -> bool:
        return JURY_PARAMETER in self.parameters


@dataclass(frozen=True)
class RunSpecIndex:
    """Every run spec of one version of HELM."""

    helm: str
    expanders: tuple[str, ...]
    """Arguments that every run spec takes."""
    packages: Mapping[str, str]
    """Module -> what to install for it: `sacrebleu~=2.2`."""
    run_specs: Mapping[str, IndexedRunSpec]


@lru_cache(maxsize=1)
def load_index() -> RunSpecIndex:
    content = json.loads(Path(__file__).with_name("helm_index.json").read_bytes())
    run_specs = {}
    for name, record in content["run_specs"].items():
        fields: dict[str, Any] = {
            key: tuple(value) if isinstance(value, list) else value for key, value in record.items()
        }
        run_specs[name] = IndexedRunSpec(**fields)
    return RunSpecIndex(content["helm"], tuple(content["expanders"]), content["packages"], run_specs)


CODE_EXECUTION_FLAG = "--allow_code_execution"
KEY = "config.params.extra.allow_code_execution"

NEEDS_NO_PERMISSION = frozenset({"ehr_sql"})
"""Their SQL runs in processes that can only read, for a limited time (`helm_plugin/patches/sql_execution.py`)."""

ONLY_WITH = {"cleva": ("task", "code_synthesis")}
"""Run specs that execute answers with one value of one parameter only."""

NOT_CONFINED = frozenset({"bigcodebench", "unitxt", "image2musicsheet"})
"""What these execute runs where HELM, or somebody's package, runs it; eval-factory has no hand in it."""


def executed_by(run_spec: str, arguments: Mapping[str, str]) -> Mapping[str, str]:
    """What a run executes of the answers (Python, C++ ...) -> where in HELM; empty where nothing is."""
    spec = load_index().run_specs.get(run_spec)
    name, value = ONLY_WITH.get(run_spec, ("", ""))
    if spec is None or not spec.executes or (name and arguments.get(name, value) != value):
        return {}
    return spec.executes


def needs_permission(run_spec: str, spec: IndexedRunSpec) -> bool:
    return bool(spec.executes) and run_spec not in NEEDS_NO_PERMISSION


def needs_sandbox(run_spec: str, arguments: Mapping[str, str]) -> bool:
    """Whether programs of the model's are executed here; SQL is not: its processes only read."""
    executes = executed_by(run_spec, arguments)
    return bool(executes.keys() - {"SQL"}) and run_spec not in NOT_CONFINED


def how_executed(run_spec: str, executes: Mapping[str, str]) -> str:
    places = "; ".join(f"{what}, in HELM's {place}" for what, place in executes.items())
    if run_spec in NEEDS_NO_PERMISSION:
        return f"executes what a model answers ({places}) in processes that only read and are ended after a time"
    unconfined = run_spec in NOT_CONFINED
    how = "where HELM does it, which eval-factory cannot confine" if unconfined else "in a confined process"
    if run_spec in ONLY_WITH:
        how += f"; with {'='.join(ONLY_WITH[run_spec])} alone"
    return f"executes what a model answers ({places}), {how}"


def refusal(run_spec: str, arguments: Mapping[str, str]) -> str | None:
    """Why a run needs the user's permission; None where it needs none."""
    executes = executed_by(run_spec, arguments)
    if not executes or run_spec in NEEDS_NO_PERMISSION:
        return None
    allow = f"it is refused unless you allow it: {CODE_EXECUTION_FLAG}, or {KEY}: true in the run config"
    return f"{run_spec} {how_executed(run_spec, executes)}; {allow}"


def wrong_processor(arguments: Mapping[str, str]) -> str | None:
    """HELM imports and calls the function that `process_output` names, with the answers."""
    known, named = "helm.benchmark.metrics.output_processors.", arguments.get("process_output")
    if named is None or named.startswith(known):
        return None
    return f"process_output names a function that is called with the answers; it has to be one of {known}*"


WHERE = "config.type"

OURS = {
    "model": "eval-factory names the model: give target.api_endpoint.model_id",
    "model_deployment": "eval-factory names the deployment: give target.api_endpoint.model_id",
    JURY_PARAMETER: "eval-factory writes the jury's configuration: give config.params.extra.judges",
}
"""Arguments of a run entry that are not the user's to give, and what to give instead."""

SAME_SETTING = {
    "num_output_tokens": ("max_new_tokens", "extra.num_output_tokens"),
    "temperature": ("temperature",),
    "num_train_trials": ("extra.num_train_trials",),
    "max_eval_instances": ("limit_samples",),
}
"""Arguments that are another name of something in config.params: only one of them may be given."""

JUDGE_DEPLOYMENT = "annotator_model_deployment"
"""The parameter by which a run spec lets its judge be chosen."""

PATH_PARAMETERS = frozenset({"data_path", "config_path", "path"})
"""Parameters of HELM's run specs that name a file or folder. helm-run has another working directory than the user."""

ENDPOINT_TYPES = ["chat", "completions"]


@dataclass(frozen=True)
class RunEntry:
    """The name of a run spec and its arguments, as written."""

    name: str
    arguments: dict[str, str]

    @property
    def text(self) -> str:
        joined = ",".join(f"{key}={value}" for key, value in self.arguments.items())
        return f"{self.name}:{joined}" if joined else self.name


def prefix_of(framework: Framework) -> str:
    return f"{framework.framework.name}:"


def is_run_entry(name: str, framework: Framework) -> bool:
    return name.startswith(prefix_of(framework))


def task_of_run_entry(name: str, framework: Framework, problems: list[str]) -> Task | None:
    """The task that runs `name`, or None and what is wrong with it added to `problems`."""
    index = load_index()
    found: list[str] = []
    # split as HELM does: at the first colon, at commas, at the first equals sign of each
    run_spec, colon, rest = name.removeprefix(prefix_of(framework)).partition(":")
    arguments: dict[str, str] = {}
    for part in rest.split(",") if colon else []:
        key, equals, value = part.partition("=")
        key = key.strip()
        if not equals or not key:
            found.append(f"{WHERE}: a run entry is name:key=value,key=value; what is wrong is {part!r}")
        elif key in arguments:
            found.append(f"{WHERE}: {key} is given twice")
        arguments[key] = value.strip()
    entry = RunEntry(run_spec.strip(), arguments)
    spec = index.run_specs.get(entry.name)
    if spec is None and framework.task(entry.name) is not None:
        without = f"write it without {prefix_of(framework)!r}"
        found.append(f"{WHERE}: {entry.name!r} is a task of eval-factory's own: {without}")
    elif spec is None:
        near = did_you_mean(entry.name, list(index.run_specs))
        lists = "'eval-factory ls --all' lists them"
        found.append(f"{WHERE}: HELM {index.helm} has no run spec {entry.name!r}{near}; {lists}")
    else:
        found += [f"{WHERE}: {problem}" for problem in mistakes(entry, spec, index)]
    problems += found
    return None if found or spec is None else _task(entry, spec, framework)


def mistakes(entry: RunEntry, spec: IndexedRunSpec, index: RunSpecIndex) -> Iterator[str]:
    if spec.asks is not None:
        yield f"{entry.name} asks a model for {spec.asks}; eval-factory evaluates endpoints for text"
    takes = [name for name in spec.parameters if name not in OURS]
    for name in entry.arguments:
        if name in OURS:
            yield f"{name} cannot be given here; {OURS[name]}"
        elif name and name not in takes and name not in index.expanders and not spec.any_parameter:
            near = did_you_mean(name, [*takes, *index.expanders])
            yield (
                f"{entry.name} has no parameter {name!r}{near}; {parameters_of(entry.name, spec)};"
                f" every run spec takes: {', '.join(for_every_run_spec(index))}"
            )
    if (wrong := wrong_processor(entry.arguments)) is not None:
        yield wrong
    missing = [name for name in spec.required if name not in entry.arguments]
    if missing:
        yield (
            f"{entry.name} needs {', '.join(missing)}: write"
            f" helm:{entry.name}:{','.join(f'{name}=...' for name in missing)}; {parameters_of(entry.name, spec)}"
        )


def given_twice(task: Task, params: Any) -> Iterator[str]:
    for name, elsewhere in SAME_SETTING.items():
        for path in elsewhere if name in task.helm.arguments else ():
            section = params.extra if path.startswith("extra.") else params
            if getattr(section, path.removeprefix("extra.")) is not None:
                yield f"{WHERE}: {name} and config.params.{path} are the same setting; give one of them"


def parameters_of(name: str, spec: IndexedRunSpec) -> str:
    """A sentence with each parameter, its default, and which are needed."""
    shown = [signature(parameter, known) for parameter, known in spec.parameters.items() if parameter not in OURS]
    if spec.any_parameter:
        return f"{name} takes any parameter"
    return f"its parameters: {', '.join(shown)}" if shown else f"{name} has no parameters of its own"


def for_every_run_spec(index: RunSpecIndex) -> list[str]:
    """The arguments of HELM's own for any run spec, but for those that eval-factory gives."""
    return [name for name in index.expanders if name not in OURS]


def signature(name: str, rule: Any) -> str:
    """`name=default`, or `name` with what it needs."""
    if "default" in rule:
        return f"{name}={rule['default']}"
    return f"{name} ({rule['type']}, needed)" if "type" in rule else f"{name} (needed)"


def near_name(name: str, framework: Framework) -> str:
    """A hint where `name` is no task: the task that it is nearly, or HELM's run spec that it is or nearly is."""
    spec = name.partition(":")[0]
    if spec in load_index().run_specs:
        return f"; HELM has a run spec of that name: {prefix_of(framework)}{name}"
    prefix = prefix_of(framework)  # before both, a name has to be nearer than others have
    run_specs = [prefix + known for known in load_index().run_specs]
    return did_you_mean(name, framework.names()) or did_you_mean(prefix + spec, run_specs, cutoff=0.85)


def _task(entry: RunEntry, spec: IndexedRunSpec, framework: Framework) -> Task:
    name = prefix_of(framework) + entry.text
    chosen = entry.arguments.get(JUDGE_DEPLOYMENT)
    prescribed = (str(chosen),) if chosen else spec.prescribed_judges
    arguments = {
        key: os.path.abspath(os.path.expanduser(value)) if key in PATH_PARAMETERS else value
        for key, value in entry.arguments.items()
    }
    # what is known of the run spec, from our own tasks that it is the run spec of
    of_ours = [task for task in framework.evaluations if task.helm.run_spec == entry.name]
    notes = [
        note
        for task in of_ours
        if all(rule.fixed in (None, entry.arguments.get(key)) for key, rule in task.helm.parameters.items())
        for note in task.about.notes
    ]
    if prescribed:
        notes.append(
            f"scored by judges that HELM prescribes ({', '.join(prescribed)}), asked at the target's URL or"
            " where extra.judges says: what they failed to judge is not counted here"
        )
    return Task(
        name=name,
        description=spec.description,
        defaults={"config": {"type": name, "supported_endpoint_types": ENDPOINT_TYPES}},
        helm=HelmEntry(
            run_spec=entry.name,
            scenario=spec.scenario or entry.name,
            main_metric=spec.main_metrics[0] if spec.main_metrics else None,
            judges=tuple(framework.judges) if spec.has_jury else (),
            any_run_spec=True,
            arguments=arguments,
            main_metrics=spec.main_metrics,
            main_split=spec.main_split,
            prescribed_judges=prescribed,
            cluster=of_ours[0].helm.cluster if of_ours else None,
        ),
        about=About(
            tags=("helm",),
            access="unknown",
            source=f"what HELM's scenario {spec.scenario_class or entry.name} reads or downloads",
            instances=None,
            notes=tuple(dict.fromkeys(notes)),
        ),
    )
