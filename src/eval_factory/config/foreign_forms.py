"""Converts run configs of lm-evaluation-harness, inspect_ai and `nel eval run` into our form.

A file is converted value by value. For each key of the file, `foreign_forms.yml` names the key of
our run config, or states why our run config has no such key.

A benchmark of another program is never replaced by a task of eval-factory, even if both use the
same data. A message names the nearest task. If the file names no task of eval-factory, the new file
only holds the endpoint and the parameters. The user then adds the task by `run_eval --eval_type`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eval_factory.config.load import nest_paths
from eval_factory.core.errors import did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import load_packaged
from eval_factory.core.secrets import REDACTED, looks_like_key
from eval_factory.tasks.framework import Framework

_Tree = dict[str, Any]
AddNote = Callable[[str, str], None]
"""Records a finding: the path of a value in the file, and a message about the value."""

FORMS: Any = load_packaged("config/foreign_forms.yml")
# The forms of files:
LM_EVAL = "lm_eval"  # of lm-evaluation-harness
INSPECT = "inspect"  # of inspect_ai
NEL = "nel"  # of `nel eval run`, a command of NeMo Evaluator
# The keys of our run config:
_TYPE = "target.api_endpoint.type"
_URL = "target.api_endpoint.url"
_MODEL = "target.api_endpoint.model_id"
_KEY = "target.api_endpoint.api_key"
_OPENAI = "openai"  # the name of OpenAI among inspect's providers
# How much of a name or a type in the file a message shows, in characters.
_MAX_SHOWN_NAME = 120
_MAX_SHOWN_TYPE = 40
# The name of a benchmark of NEL that is a task of NVIDIA's container eval-factory/helm:
# `container://nvcr.io/nvidia/eval-factory/helm:26.03#helm.pubmed_qa`, of which the group is
# `pubmed_qa`.
_CONTAINER_TASK = re.compile(r"container://\S*/eval-factory/helm:[^#\s]*#(?:helm\.)?(\w+)\Z")
# The name of a benchmark of NEL with a version, such as `lm-eval://mmlu@1.0`.
_VERSIONED = re.compile(r"(?:harbor|gym|skills|lm-eval|vlmevalkit)://[\w./-]+@[\d.]+\Z")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?\Z")  # a reference to a variable: $NAME or ${NAME}


def without_versioned_names(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document with null in place of each name such as `lm-eval://mmlu@1.0`.

    A search for API keys would take the part before the `@` for a user name or a password.
    """
    benchmarks = document.get("benchmarks")
    if form_of(document) != NEL or not isinstance(benchmarks, list):
        return document
    entries = []
    for entry in benchmarks:
        if isinstance(entry, Mapping) and _VERSIONED.match(str(entry.get("name"))):
            entry = {**entry, "name": None}
        entries.append(entry)
    return {**document, "benchmarks": entries}


def form_of(document: Mapping[str, Any]) -> str | None:
    """Return `LM_EVAL`, `INSPECT` or `NEL`, the program whose form a run config has; else None."""
    if "services" in document and "benchmarks" in document:
        return NEL
    # These sections belong to the two forms that `foreign_configs` converts.
    sections = {"config", "target", "evaluation", "execution", "deployment"} & set(document)
    if sections:
        return None
    if {"generate_config", "eval_config"} & set(document):
        return INSPECT
    if "task" in document and "model_roles" in document:
        return INSPECT
    if "tasks" in document and {"model", "model_args"} & set(document):
        return LM_EVAL
    if "model" in document and {"model_args", "gen_kwargs"} & set(document):
        return LM_EVAL
    return None


@dataclass(frozen=True)
class ConvertedRun:
    """The converted settings of one benchmark of a file."""

    task: str | None  # the name of our task for this benchmark; None if we have no such task
    values: Mapping[str, Any]  # the dotted path in our run config -> the value

    @property
    def document(self) -> _Tree:
        """The settings as a run config, without `config.type` if there is no task."""
        values = dict(self.values)
        first_values = {}  # In the new file, the task and the folder come first.
        if self.task is not None:
            first_values["config.type"] = self.task
        folder = values.pop("config.output_dir", None)
        first_values["config.output_dir"] = folder or "results/imported"
        tree = nest_paths({**first_values, **values})
        tree.setdefault("target", {}).setdefault("api_endpoint", {})
        return tree


def runs_of(
    form: str, document: Mapping[str, Any], framework: Framework, note: AddNote
) -> list[ConvertedRun]:
    """Return a run for each benchmark for which we have a task.

    If we have a task for none of the benchmarks, return a single run without a task. If the file
    lists no benchmarks, return an empty list.

    Args:
        form: the form of the file: `LM_EVAL`, `INSPECT` or `NEL`.
        document: the content of the file.
        framework: all tasks.
        note: records each value that has no counterpart, with the reason.
    """
    converters = {LM_EVAL: _lm_eval_runs, INSPECT: _inspect_runs, NEL: _nel_runs}
    conversion = _Conversion(form, framework, note)
    runs = list(converters[form](document, conversion))
    runs_with_task = [run for run in runs if run.task is not None]
    return runs_with_task or runs[:1]


@dataclass
class _Conversion:
    """The conversion of one file, or of one benchmark of a file of NEL."""

    form: str  # `LM_EVAL`, `INSPECT` or `NEL`
    framework: Framework
    note: AddNote
    values: _Tree = field(default_factory=dict)  # the dotted path in our run config -> the value

    @property
    def table(self) -> Mapping[str, Any]:
        """The part of `foreign_forms.yml` about this form."""
        table: Mapping[str, Any] = FORMS[self.form]
        return table

    def convert_section(
        self, section: Mapping[str, Any], prefix: str = "", file_prefix: str = ""
    ) -> None:
        """Convert each value of a section, and note the values without a counterpart.

        Args:
            section: the section of the file.
            prefix: the path of the section in the table, with a final dot; empty for the top.
            file_prefix: the path of the section in the file, with a final dot; empty for the top.
        """
        keys = self.table["keys"]
        for name, value in section.items():
            path = f"{prefix}{name}"
            our_path = keys.get(path)
            if value is None or value in ({}, [], ""):
                continue
            is_known_section = any(key.startswith(f"{path}.") for key in keys)
            if our_path is not None:
                self._put(our_path, value, f"{file_prefix}{name}")
            elif isinstance(value, Mapping) and is_known_section:
                self.convert_section(value, prefix=f"{path}.", file_prefix=f"{file_prefix}{name}.")
            else:
                self.note(f"{file_prefix}{name}", self.advice(path))

    def _put(self, our_path: str, value: Any, file_path: str) -> None:
        """Store a value under its path in our run config.

        The entries of a mapping are stored one by one, so that other keys can add entries.
        """
        if isinstance(value, Mapping):
            for name, entry in value.items():
                if "." in str(name):
                    message = f"has a dot in its name; write it into {our_path}"
                    self.note(f"{file_path}.{name}", message)
                else:
                    self._put(f"{our_path}.{name}", entry, f"{file_path}.{name}")
            return
        if self.values.get(our_path, value) != value:
            self.note(file_path, f"overrides another value of {our_path} in this file")
        self.values[our_path] = value

    def advice(self, path: str) -> str:
        """Return the advice about a key without a counterpart.

        If the table has no advice about the key itself, the advice about the innermost section of
        the key applies.
        """
        advice = self.table["advice"]
        parts = path.split(".")
        for count in range(len(parts), 0, -1):  # `a.b.c`, then `a.b`, then `a`
            key_or_section = ".".join(parts[:count])
            if key_or_section in advice:
                return str(advice[key_or_section])
        section, _, name = path.rpartition(".")
        known_names = []
        for key in self.table["keys"]:
            if key.rpartition(".")[0] == section:
                known_names.append(key.rpartition(".")[2])
        return f"has no counterpart; leave it out{did_you_mean(name, sorted(known_names))}"

    def note_missing(self, name: str) -> None:
        """Note a setting that the file lacks, because the other program's command line sets it."""
        self.note(name, self.table["missing"][name])

    def task(self, benchmark: Any, path: str) -> str | None:
        """Return the name of our task for a benchmark.

        If we have no task for this benchmark, return None and note the nearest task.

        Args:
            benchmark: the name of the benchmark.
            path: the path of this name in the file.
        """
        name = str(benchmark)
        match = _CONTAINER_TASK.match(name)
        if match is not None and self.framework.task(match.group(1)) is not None:
            return match.group(1)
        shown_name = repr(one_line(name, _MAX_SHOWN_NAME))
        if looks_like_key(name):
            shown_name = REDACTED
        # `pubmedqa` of `inspect_evals/pubmedqa`, `hub@main/pubmedqa` and `harbor://pubmedqa@1.0`
        without_version = re.sub(r"@[^/:#]*$", "", name)
        short_name = re.split(r"[/@:#]", without_version)[-1]
        near = self.table["tasks"].get(short_name)
        hint = "; 'eval-factory ls' lists the tasks"
        if near is not None:
            hint = (
                f"; the nearest task is {near}, which has other prompts and another way of scoring"
            )
        self.note(path, f"{shown_name} is not a task of eval-factory{hint}")
        return None


def _lm_eval_runs(document: Mapping[str, Any], conversion: _Conversion) -> Iterator[ConvertedRun]:
    """Yield a run for each task that a run config of lm-evaluation-harness names."""
    settings = dict(document)  # the settings that are not converted yet
    tasks = settings.pop("tasks", None)
    model = settings.pop("model", None)
    if model is not None:
        model = str(model)
    for section in ("model_args", "gen_kwargs"):
        if isinstance(settings.get(section), str):
            settings[section] = _arguments_in(settings[section])
    # In the harness, `model` names the program that asks the model, such as `openai-completions`.
    endpoint_type = conversion.table["models"].get(model)
    if endpoint_type is not None:
        conversion.values[_TYPE] = endpoint_type
    elif model is not None:
        conversion.note("model", f"{one_line(model, _MAX_SHOWN_NAME)} {conversion.advice('model')}")
    # These models of the harness ask OpenAI's own endpoint, which needs a key.
    if model in conversion.table["keyed"]:
        _take_provider(_OPENAI, conversion)
    conversion.convert_section({"model_args": settings.pop("model_args", None)})
    # Taken last, so that gen_kwargs overwrite the limits of model_args.
    conversion.convert_section(settings)
    if tasks is None:
        conversion.note_missing("tasks")
        yield ConvertedRun(task=None, values=conversion.values)
        return
    if isinstance(tasks, str):
        tasks = tasks.split(",")
    entries = tasks if isinstance(tasks, list) else []
    for number, entry in enumerate(entries):
        # An entry is the name of a task, or a section with the name under `task`.
        name = str(entry).strip()
        if isinstance(entry, Mapping):
            name = entry.get("task", entry)
        yield ConvertedRun(conversion.task(name, f"tasks[{number}]"), conversion.values)


def _arguments_in(text: str) -> _Tree:
    """Return arguments such as `a=1,b=c` as a mapping."""
    values: _Tree = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            values[name.strip()] = _number_or_text(value.strip())
    return values


def _number_or_text(text: str) -> Any:
    """Return a text as a whole number or as a number, if it is one."""
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _inspect_runs(document: Mapping[str, Any], conversion: _Conversion) -> Iterator[ConvertedRun]:
    """Yield the run of a run config of inspect_ai."""
    settings = dict(document)  # the settings that are not converted yet
    task = settings.pop("task", None)
    model = settings.pop("model", None)
    # The task and the model are names, or sections that hold the name under the same key.
    if isinstance(task, Mapping):
        further_settings = {name: task[name] for name in task if name != "task"}
        conversion.convert_section(further_settings, prefix="task.", file_prefix="task.")
        task = task.get("task")
    model_section = dict(model) if isinstance(model, Mapping) else {"model": model}
    model_name = model_section.pop("model", None)
    if model_name is not None:
        _take_model(str(model_name), conversion, has_url=bool(model_section.get("base_url")))
    else:
        conversion.note_missing("model")
    model_config = model_section.pop("config", None)
    if isinstance(model_config, Mapping):
        # The table lists these settings under `generate_config`, where a file may have them too.
        conversion.convert_section(
            model_config, prefix="generate_config.", file_prefix="model.config."
        )
    conversion.convert_section(model_section, prefix="model.", file_prefix="model.")
    # Taken last, so that the file's generate_config overwrites the model's own config.
    conversion.convert_section(settings)
    conversion.values.setdefault(_TYPE, "chat")
    if task is None:
        conversion.note_missing("task")
        yield ConvertedRun(task=None, values=conversion.values)
    else:
        yield ConvertedRun(conversion.task(task, "task"), conversion.values)


def _take_model(name: str, conversion: _Conversion, *, has_url: bool) -> None:
    """Convert the name of a model of inspect: `PROVIDER/model`, or `openai-api/SERVICE/model`.

    The second form uses the variables SERVICE_BASE_URL and SERVICE_API_KEY. `has_url` is True if
    the file also states the URL of the endpoint.
    """
    provider, _, model = name.partition("/")
    if _take_provider(provider, conversion):
        conversion.values[_MODEL] = model
    elif provider == "openai-api" and "/" in model:
        service, _, model = model.partition("/")
        service_prefix = re.sub(r"\W", "_", service).upper()
        conversion.values[_MODEL] = model
        conversion.values[_URL] = f"${{{service_prefix}_BASE_URL}}"
        conversion.values[_KEY] = f"{service_prefix}_API_KEY"
    else:
        conversion.values[_MODEL] = model or name  # A name without "/" has no provider.
        missing_url = "" if has_url else f"the URL of an OpenAI-compatible endpoint as {_URL}, and "
        conversion.note(
            "model",
            f"{one_line(name, _MAX_SHOWN_NAME)}: give {missing_url}the name of its key's variable "
            f"as {_KEY}",
        )
    if has_url:  # The caller converts the URL that the file states.
        conversion.values.pop(_URL, None)


def _take_provider(provider: str, conversion: _Conversion) -> bool:
    """Store the URL and the key's variable of a provider; return False for an unknown provider."""
    endpoint = FORMS[INSPECT]["providers"].get(provider)
    if endpoint is None:
        return False
    conversion.values[_URL] = endpoint["url"]
    if "api_key" in endpoint:
        conversion.values[_KEY] = endpoint["api_key"]
    return True


def _nel_runs(document: Mapping[str, Any], conversion: _Conversion) -> Iterator[ConvertedRun]:
    """Yield a run for each benchmark of a run config of `nel eval run`."""
    known_sections = ("services", "benchmarks", "output", "cluster", "sandboxes")
    for name in document:
        if name not in known_sections:
            conversion.note(name, conversion.advice(name))
    services = document["services"] if isinstance(document["services"], Mapping) else {}
    benchmarks = document["benchmarks"] if isinstance(document["benchmarks"], list) else []
    asked_services = set()
    for number, entry in enumerate(benchmarks):
        benchmark = dict(entry) if isinstance(entry, Mapping) else {"name": entry}
        path = f"benchmarks[{number}]"
        # Each benchmark has values of its own, because it may ask a service of its own.
        own_conversion = _Conversion(NEL, conversion.framework, conversion.note)
        solver = benchmark.pop("solver", None)
        service_name = solver.get("service") if isinstance(solver, Mapping) else None
        if not isinstance(service_name, str):
            service_name = None
        asked_services.add(service_name)
        _take_service(services.get(service_name), service_name, own_conversion)
        _take_solver(solver, f"{path}.solver.", own_conversion)
        task = own_conversion.task(benchmark.pop("name", None), f"{path}.name")
        own_conversion.convert_section(benchmark, prefix="benchmark.", file_prefix=f"{path}.")
        for section in ("output", "cluster", "sandboxes"):
            _take_section(document.get(section), section, own_conversion)
        yield ConvertedRun(task, own_conversion.values)
    for name in services:
        if name not in asked_services:
            conversion.note(f"services.{name}", conversion.advice("services"))


def _take_section(section: Any, name: str, conversion: _Conversion) -> None:
    """Convert a section of a file of NEL, or note it if no key of the section is known."""
    has_known_keys = any(key.startswith(f"{name}.") for key in FORMS[NEL]["keys"])
    if isinstance(section, Mapping) and has_known_keys:
        conversion.convert_section(section, prefix=f"{name}.", file_prefix=f"{name}.")
    elif section:
        conversion.note(name, conversion.advice(name))


def _take_service(section: Any, name: Any, conversion: _Conversion) -> None:
    """Convert the service that a solver of NEL asks: its URL, its type and its API key.

    `section` is the service's section, and `name` is the service's name.
    """
    if name is None:
        conversion.note("services", "a solver names no service; name one of this section")
        return
    if not isinstance(section, Mapping):
        conversion.note(
            "services",
            f"a solver names {one_line(str(name), _MAX_SHOWN_NAME)}, and the file does not define "
            "this service",
        )
        return
    service = dict(section)
    protocol = str(service.pop("protocol", None))
    if protocol in conversion.table["protocols"]:
        conversion.values[_TYPE] = conversion.table["protocols"][protocol]
    else:
        conversion.note(
            f"services.{name}.protocol", "does not answer with text; give chat or completions"
        )
    service_type = service.pop("type", None)
    if service_type != "api":
        shown_type = one_line(str(service_type), _MAX_SHOWN_TYPE)
        conversion.note(f"services.{name}.type", f"{shown_type}: {conversion.advice('service')}")
    api_key = service.pop("api_key", None)
    variable = _VARIABLE.match(str(api_key))
    if api_key and variable is not None:
        conversion.values[_KEY] = variable[1]
    elif api_key:
        conversion.note(
            f"services.{name}.api_key",
            f"does not name a variable; write the NAME of a variable as {_KEY}",
        )
    conversion.convert_section(service, prefix="service.", file_prefix=f"services.{name}.")


def _take_solver(solver: Any, file_prefix: str, conversion: _Conversion) -> None:
    """Convert the solver of a benchmark of NEL, except the solver's `service`.

    `file_prefix` is the path of the solver in the file, with a final dot.
    """
    if not isinstance(solver, Mapping):
        return
    settings = dict(solver)
    settings.pop("service", None)
    solver_type = settings.pop("type", None)
    if solver_type not in ("simple", "container"):
        shown_type = one_line(str(solver_type), _MAX_SHOWN_TYPE)
        conversion.note(f"{file_prefix}type", f"{shown_type}: {conversion.advice('solver.type')}")
    conversion.convert_section(settings, prefix="solver.", file_prefix=file_prefix)
