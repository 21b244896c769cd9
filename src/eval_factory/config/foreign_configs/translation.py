"""A foreign configuration as a run config or a suite of ours, checked as a run would check it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from eval_factory.config.foreign_configs.config_forms import KNOWN, Form, form_of
from eval_factory.config.foreign_configs.findings import Finding
from eval_factory.config.foreign_configs.hydra_texts import variable_for
from eval_factory.config.foreign_configs.launcher_config import (
    DATASET_DIR,
    ENDPOINT_TYPE,
    LauncherConfig,
    Layer,
    Variable,
    WantedTask,
    read_launcher,
    unused_of_task,
)
from eval_factory.config.foreign_configs.run_sections import CONFIG, ENDPOINT, EXTRA, RunSections, settle_system_prompt
from eval_factory.config.foreign_configs.stand_ins import check, check_suite
from eval_factory.config.foreign_configs.suite_of_runs import Run, suite_of
from eval_factory.config.foreign_configs.written_keys import written_keys
from eval_factory.config.rules import SCENARIO_PARAMETERS
from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.redaction import REDACTED, looks_like_key
from eval_factory.tasks.framework import DATA_PATH, Framework, Task
from eval_factory.tasks.run_entry import is_run_entry, near_name, task_of_run_entry

THEIR_DEFAULTS: Mapping[str, Any] = {"temperature": 0.6, "top_p": 0.95, "max_new_tokens": 16384}
THEIR_TASKS = frozenset(
    {
        "medcalc_bench", "medec", "head_qa", "medbullets", "pubmed_qa", "ehr_sql", "race_based_med", "medhallu",
        "mtsamples_replicate", "mtsamples_procedures", "aci_bench", "medication_qa", "medi_qa",
        "med_dialog_healthcaremagic", "med_dialog_icliniq",
    }
)  # fmt: skip
"""The tasks of NVIDIA's container helm:26.03, and what it asks with where a configuration says nothing
(packages/nemo-evaluator-launcher/src/nemo_evaluator_launcher/resources/all_tasks_irs.yaml in NVIDIA-NeMo/Evaluator)."""

JUDGE_KEYS = ("GPT_JUDGE_API_KEY", "LLAMA_JUDGE_API_KEY", "CLAUDE_JUDGE_API_KEY")
_ENDPOINT_NEEDS = ("url", "model_id")
_WRITES_ITS_OWN: Mapping[str, tuple[str, str]] = {
    "command": ("eval-factory makes the command itself", "leave it out"),
    "framework_name": ("there is one framework here, HELM", "leave it out"),
    "pkg_name": ("there is one package here, HELM", "leave it out"),
}


@dataclass(frozen=True)
class Translation:
    """What is to be written, and what is not in it."""

    form: Form
    document: Mapping[str, Any]
    findings: tuple[Finding, ...]
    unchanged: bool
    """The file runs here as it is."""

    @property
    def is_suite(self) -> bool:
        return "suite" in self.document


@dataclass
class _Writing:
    """What is found while one file is translated."""

    path: Path
    framework: Framework
    findings: list[Finding] = field(default_factory=list)
    variables: list[Variable] = field(default_factory=list)
    keys: set[str] = field(default_factory=set)
    """Variables of the container whose place in what is written the user's own have taken."""
    without: dict[tuple[str, ...], list[str]] = field(default_factory=dict)
    """Parameters that the file does not give -> the tasks of which it does not."""

    def all_findings(self) -> tuple[Finding, ...]:
        """Each once."""
        variables = [one.finding for one in self.variables if one.name not in self.keys]
        defaults = [_their_defaults(missing, tasks) for missing, tasks in self.without.items()]
        return tuple(dict.fromkeys([*self.findings, *variables, *defaults]))


def translated(path: Path, framework: Framework) -> Translation:
    """Translate a file.

    Raises:
        ConfigError: it cannot be read, is of no known form, is ours already, holds a key, names no task that there is
            here, or says something that no run could be made of.
    """
    document = load_mapping(path, KNOWN)
    problems = [
        f"{path}: {where}: holds what looks like a key itself (it is not shown, and nothing is written); put it into"
        " an environment variable and write its NAME"
        for where in written_keys(document)
    ]
    if problems:
        raise ConfigError(problems)
    writing = _Writing(path, framework)
    form = form_of(document, path)
    written = _of_launcher(document, writing) if form is Form.LAUNCHER else _of_run_config(document, writing)
    given = {name: value for name, value in document.items() if name in written}
    return Translation(form, written, writing.all_findings(), unchanged=given == written)


def _of_run_config(document: Mapping[str, Any], writing: _Writing) -> dict[str, Any]:
    config = document.get(CONFIG)
    name = config.get("type") if isinstance(config, Mapping) else None
    task = _task(name, writing.framework)
    if task is None:
        missing = _missing_task(f"{CONFIG}.type", name, writing.framework)
        raise ConfigError(f"{writing.path}: {missing.text}")
    for key, value in document.items():
        if key not in (CONFIG, "target") and value is not None:
            known = ("has no counterpart", "leave it out")
            writing.findings.append(Finding(key, *_WRITES_ITS_OWN.get(key, known)))
    wanted = WantedTask(name, CONFIG, (Layer("", document),), (), {})
    return dict(_run(wanted, task, writing).document)


def _of_launcher(document: Mapping[str, Any], writing: _Writing) -> dict[str, Any]:
    launcher = read_launcher(document, writing.findings)
    runs = []
    for wanted in launcher.tasks:
        task = _task(wanted.name, writing.framework)
        if task is None:
            writing.findings.append(_missing_task(f"{wanted.path}.name", wanted.name, writing.framework))
        else:
            runs.append(_run(wanted, task, writing, launcher))
    if not runs:
        told = [f"  {finding.text}" for finding in writing.findings if finding.path.startswith("evaluation.tasks")]
        raise ConfigError([f"{writing.path}: names no task that eval-factory has", *(told or [f"  {KNOWN}"])])
    if len(runs) == 1:
        return dict(runs[0].document)
    suite = suite_of(runs, launcher.output_dir or "results/suite")
    check_suite(suite, writing.path)
    return suite


def _task(name: Any, framework: Framework) -> Task | None:
    if not isinstance(name, str):
        return None
    return task_of_run_entry(name, framework, []) if is_run_entry(name, framework) else framework.task(name)


def _missing_task(path: str, name: Any, framework: Framework) -> Finding:
    """A task of another harness is another benchmark, also where it has the same data: it is named, never taken."""
    if not isinstance(name, str):
        return Finding(path, "names no task", "'eval-factory ls' lists the tasks")
    near = near_name(name.rpartition(".")[2], framework)
    shown = REDACTED if looks_like_key(name) else repr(name)
    advice = "'eval-factory ls' lists the tasks, 'eval-factory ls --all' HELM's run specs"
    return Finding(path, f"eval-factory has no task {shown}{near}", advice)


def _run(wanted: WantedTask, task: Task, writing: _Writing, launcher: LauncherConfig | None = None) -> Run:
    name = wanted.name if launcher is None else task.name
    document: dict[str, Any] = {}
    for layer in wanted.layers:
        sections = RunSections(task, layer.prefix, wanted.renamed)
        _put_over(document, sections.translated(layer.tree))
        writing.findings += sections.findings
        writing.keys |= sections.keys
    _entry_of_task(wanted, task, document, writing)
    unused = settle_system_prompt(document)
    writing.findings += [unused] if unused else []
    writing.keys |= _judge_keys(wanted, task, document)
    writing.variables += wanted.variables
    _from_launcher(document, launcher)
    _needed(document, task)
    _note_missing(document, task, writing)
    whole = _in_order(document, name)
    writing.findings += _to_be_given(whole, "")
    check(whole, task, writing.framework, writing.path)
    return Run(task.name, whole)


def _put_over(tree: dict[str, Any], layer: Mapping[str, Any]) -> None:
    for name, value in layer.items():
        known = tree.get(name)
        if isinstance(value, Mapping) and isinstance(known, dict):
            _put_over(known, value)
        else:
            tree[name] = _copied(value)


def _copied(value: Any) -> Any:
    return {name: _copied(item) for name, item in value.items()} if isinstance(value, Mapping) else value


def _entry_of_task(wanted: WantedTask, task: Task, document: dict[str, Any], writing: _Writing) -> None:
    """What a launcher's entry of a task says beside its `config` and `target`."""
    reads_data = DATA_PATH in task.helm.parameters
    writing.findings += unused_of_task(wanted, reads_data=reads_data)
    said: dict[str, Any] = {}
    if wanted.entry.get(ENDPOINT_TYPE) is not None:
        said["target"] = {"api_endpoint": {"type": wanted.entry[ENDPOINT_TYPE]}}
    if reads_data and wanted.entry.get(DATASET_DIR) is not None:
        said[CONFIG] = {"params": {"extra": {DATA_PATH: wanted.entry[DATASET_DIR]}}}
    sections = RunSections(task, f"{wanted.path}.")
    _put_over(document, sections.translated(said))
    writing.findings += sections.findings


def _judge_keys(wanted: WantedTask, task: Task, document: dict[str, Any]) -> set[str]:
    """The judges' variables that a container would be given under our names."""
    found = {name for name in JUDGE_KEYS if name in wanted.renamed and task.helm.judges}
    for name in sorted(found):
        extra = document[CONFIG].setdefault("params", {}).setdefault("extra", {})
        extra.setdefault(name.lower(), wanted.renamed[name])
    return found


def _from_launcher(document: dict[str, Any], launcher: LauncherConfig | None) -> None:
    """What stands elsewhere in a launcher's config."""
    if launcher is None:
        return
    if launcher.output_dir is not None:
        document[CONFIG]["output_dir"] = launcher.output_dir
    if launcher.model_id is not None:
        document["target"].setdefault("api_endpoint", {}).setdefault("model_id", launcher.model_id)


def _needed(document: dict[str, Any], task: Task) -> None:
    """What no run is without, as a variable that the user sets."""
    document[CONFIG].setdefault("output_dir", f"results/{task.name.replace(':', '_')}")
    endpoint = document["target"].setdefault("api_endpoint", {})
    extra = document[CONFIG].setdefault("params", {}).setdefault("extra", {})
    needed = [name for name in SCENARIO_PARAMETERS if name in task.helm.parameters]
    needed = [name for name in needed if task.helm.parameters[name].required]
    for section, tree, names in ((ENDPOINT, endpoint, _ENDPOINT_NEEDS), (EXTRA, extra, needed)):
        for name in names:
            tree.setdefault(name, f"${{{variable_for(f'{section}.{name}')}}}")


def _to_be_given(tree: Any, path: str) -> Iterator[Finding]:
    """Values that the file leaves to the user, each of them now a variable."""
    if isinstance(tree, Mapping):
        for name, value in tree.items():
            yield from _to_be_given(value, f"{path}.{name}" if path else str(name))
    elif tree == f"${{{variable_for(path)}}}":
        advice = f"export {variable_for(path)}=... before the run, or write the value there"
        yield Finding(path, f"is not given: what is written says {tree}", advice)


def _note_missing(document: Mapping[str, Any], task: Task, writing: _Writing) -> None:
    params = document[CONFIG]["params"]
    given = {*params, *(["max_new_tokens"] if "num_output_tokens" in params["extra"] else [])}
    missing = tuple(name for name in THEIR_DEFAULTS if name not in given)
    if task.name in THEIR_TASKS and missing:
        writing.without.setdefault(missing, []).append(task.name)


def _their_defaults(missing: Sequence[str], tasks: Sequence[str]) -> Finding:
    theirs = ", ".join(f"{name} {THEIR_DEFAULTS[name]}" for name in missing)
    why = f"not given: the benchmark's own hold here, and in NVIDIA's container (helm:26.03) {theirs}"
    advice = "give them to compare with scores of that container"
    return Finding(f"{', '.join(missing)} of {', '.join(dict.fromkeys(tasks))}", why, advice)


def _in_order(document: Mapping[str, Any], name: Any) -> dict[str, Any]:
    config = document[CONFIG]
    ordered = {"type": name, "output_dir": config["output_dir"]}
    params: Mapping[str, Any] = config.get("params", {})
    if any(value != {} for value in params.values()):
        ordered["params"] = {key: value for key, value in params.items() if value != {}}
    endpoint = document["target"]["api_endpoint"]
    first: Sequence[str] = ("url", "model_id", "type", "api_key")
    sorted_names = [*(key for key in first if key in endpoint), *(key for key in endpoint if key not in first)]
    kept = {key: endpoint[key] for key in sorted_names if endpoint[key] != {}}
    return {CONFIG: ordered, "target": {"api_endpoint": kept}}
