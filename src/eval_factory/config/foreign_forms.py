"""Converts run configs of lm-evaluation-harness, inspect_ai and `nel eval run` into our form.

A file is converted value by value. For each key of the file, `foreign_forms.yml` names the key of
our run config, or states why our run config has no such key. A benchmark of another program is
never replaced by a task of eval-factory, even if both use the same data; a message only names the
nearest task. If no task is known, the new file holds the endpoint and the parameters only, and the
user adds the task by `run_eval --eval_type`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from eval_factory.config.load import nested
from eval_factory.core.errors import did_you_mean
from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import packaged
from eval_factory.core.secrets import REDACTED, looks_like_key
from eval_factory.tasks.framework import Framework

_Tree = dict[str, Any]
Note = Callable[[str, str], None]
"""Records a finding: the path of a value in the file, and a message about the value."""

FORMS: Any = packaged("config/foreign_forms.yml")
LM_EVAL = "lm_eval"
INSPECT = "inspect"
NEL = "nel"
_TYPE = "target.api_endpoint.type"
_URL = "target.api_endpoint.url"
_MODEL = "target.api_endpoint.model_id"
_KEY = "target.api_endpoint.api_key"
_OPENAI = "openai"  # the name of OpenAI among inspect's providers
# The name of a benchmark of NEL that is a task of the container eval-factory/helm.
_HELM = re.compile(r"container://\S*/eval-factory/helm:[^#\s]*#(?:helm\.)?(\w+)\Z")
# The name of a benchmark of NEL with a version, such as `scheme://benchmark@1.0`.
_VERSIONED = re.compile(r"(?:harbor|gym|skills|lm-eval|vlmevalkit)://[\w./-]+@[\d.]+\Z")
_VARIABLE = re.compile(r"\$\{?(\w+)\}?\Z")  # a reference to a variable: $NAME or ${NAME}


def without_versions(document: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the document without names such as `scheme://benchmark@1.0`.

    The search for API keys in a document would take such a name for a URL with a login.
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

    task: str | None  # the name of the task here; None if no task is this benchmark
    values: Mapping[str, Any]  # the dotted path in our run config -> the value

    @property
    def document(self) -> _Tree:
        """The settings as a run config, without `config.type` if no task is this benchmark."""
        values = dict(self.values)
        folder = values.pop("config.output_dir", None)
        config = {"config.output_dir": folder or "results/imported"}
        if self.task is not None:
            config = {"config.type": self.task, **config}
        tree = nested({**config, **values})
        tree.setdefault("target", {}).setdefault("api_endpoint", {})
        return tree


def runs_of(
    form: str, document: Mapping[str, Any], framework: Framework, note: Note
) -> list[ConvertedRun]:
    """Return a run for each benchmark that is a task here; else a single run without a task.

    The list is empty if the file has no benchmarks, which only happens in the form `NEL` or with an
    empty list of tasks.

    Args:
        form: the form of the file: `LM_EVAL`, `INSPECT` or `NEL`.
        document: the content of the file.
        framework: all tasks.
        note: records each value that has no counterpart, with the reason.
    """
    readers: Mapping[str, _Reader] = {
        LM_EVAL: _lm_eval_runs,
        INSPECT: _inspect_runs,
        NEL: _nel_runs,
    }
    conversion = _Conversion(form, framework, note)
    runs = list(readers[form](document, conversion))
    runs_with_task = [run for run in runs if run.task is not None]
    return runs_with_task or runs[:1]


@dataclass
class _Conversion:
    """The conversion of one file, or of one benchmark of a file of NEL."""

    form: str
    framework: Framework
    note: Note
    values: _Tree = field(default_factory=dict)  # the dotted path in our run config -> the value

    @property
    def table(self) -> Mapping[str, Any]:
        """The part of `foreign_forms.yml` about this form."""
        table: Mapping[str, Any] = FORMS[self.form]
        return table

    def take(self, tree: Mapping[str, Any], prefix: str = "", file_prefix: str = "") -> None:
        """Convert each value of a section, and note the values without a counterpart.

        Args:
            tree: the section: name -> value.
            prefix: the path of the section in the table, with a final dot.
            file_prefix: the path of the section in the file, with a final dot.
        """
        keys = self.table["keys"]
        for name, value in tree.items():
            path = f"{prefix}{name}"
            our_path = keys.get(path)
            if value is None or value in ({}, [], ""):
                continue
            if our_path is not None:
                self._put(our_path, value, f"{file_prefix}{name}")
            elif isinstance(value, Mapping) and any(key.startswith(f"{path}.") for key in keys):
                self.take(value, f"{path}.", f"{file_prefix}{name}.")
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

        The table's advice for the longest beginning of the path is returned.
        """
        advice = self.table["advice"]
        parts = path.split(".")
        for count in range(len(parts), 0, -1):
            beginning = ".".join(parts[:count])
            if beginning in advice:
                return str(advice[beginning])
        section, _, name = path.rpartition(".")
        known_names = []
        for key in self.table["keys"]:
            if key.rpartition(".")[0] == section:
                known_names.append(key.rpartition(".")[2])
        return f"has no counterpart; leave it out{did_you_mean(name, sorted(known_names))}"

    def missing(self, name: str) -> None:
        """Note a setting that the file lacks, because the other program's command line sets it."""
        self.note(name, self.table["missing"][name])

    def task(self, name: Any, path: str) -> str | None:
        """Return the name of the task that is this benchmark.

        If no task is this benchmark, return None and note the nearest task.
        """
        helm = _HELM.match(str(name))
        if helm is not None and self.framework.task(helm[1]) is not None:
            return str(helm[1])
        shown_name = REDACTED if looks_like_key(str(name)) else repr(one_line(str(name), 120))
        short_name = re.split(r"[/@:#]", str(name))[-1]
        near = self.table["tasks"].get(short_name)
        hint = "; 'eval-factory ls' lists the tasks"
        if near is not None:
            hint = (
                f"; the nearest task is {near}, which has other prompts and another way of scoring"
            )
        self.note(path, f"{shown_name} is not a task of eval-factory{hint}")
        return None


_Reader = Callable[[Mapping[str, Any], _Conversion], Iterator[ConvertedRun]]


def _lm_eval_runs(document: Mapping[str, Any], conversion: _Conversion) -> Iterator[ConvertedRun]:
    """Yield a run for each task that a run config of lm-evaluation-harness names."""
    rest = dict(document)
    has_tasks = rest.get("tasks") is not None
    names = rest.pop("tasks", None)
    if isinstance(names, str):
        names = names.split(",")
    if not isinstance(names, list):
        names = []
    model = rest.pop("model", None)
    if model is not None:
        model = str(model)
    for section in ("model_args", "gen_kwargs"):
        if isinstance(rest.get(section), str):
            rest[section] = _arguments(rest[section])
    kind = conversion.table["models"].get(model)
    if kind is not None:
        conversion.values[_TYPE] = kind
    elif model is not None:
        conversion.note("model", f"{one_line(model, 120)} {conversion.advice('model')}")
    # These models of the harness ask OpenAI's own endpoint, which needs a key.
    if model in conversion.table["keyed"]:
        _take_provider(_OPENAI, conversion)
    conversion.take({"model_args": rest.pop("model_args", None)})
    conversion.take(rest)  # Taken last, so that gen_kwargs overwrite the limits of model_args.
    if not has_tasks:
        conversion.missing("tasks")
        yield ConvertedRun(None, conversion.values)
    for number, entry in enumerate(names):
        name = entry.get("task", entry) if isinstance(entry, Mapping) else str(entry).strip()
        yield ConvertedRun(conversion.task(name, f"tasks[{number}]"), conversion.values)


def _arguments(text: str) -> _Tree:
    """Return arguments such as `a=1,b=c` as a mapping."""
    values: _Tree = {}
    for part in text.split(","):
        name, equals, value = part.partition("=")
        if equals:
            values[name.strip()] = _number_or_text(value.strip())
    return values


def _number_or_text(text: str) -> Any:
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def _inspect_runs(document: Mapping[str, Any], conversion: _Conversion) -> Iterator[ConvertedRun]:
    """Yield the run of a run config of inspect_ai."""
    rest = dict(document)
    task = rest.pop("task", None)
    model = rest.pop("model", None)
    if isinstance(task, Mapping):
        conversion.take({name: task[name] for name in task if name != "task"}, "task.", "task.")
        task = task.get("task")
    section = dict(model) if isinstance(model, Mapping) else {"model": model}
    name = section.pop("model", None)
    if name is not None:
        _take_model(str(name), conversion, has_url=bool(section.get("base_url")))
    else:
        conversion.missing("model")
    model_config = section.pop("config", None)
    if isinstance(model_config, Mapping):
        conversion.take(model_config, "generate_config.", "model.config.")
    conversion.take(section, "model.", "model.")
    conversion.take(rest)  # Taken last, so that generate_config overwrites the model's own config.
    conversion.values.setdefault(_TYPE, "chat")
    if task is None:
        conversion.missing("task")
        yield ConvertedRun(None, conversion.values)
    else:
        yield ConvertedRun(conversion.task(task, "task"), conversion.values)


def _take_model(name: str, conversion: _Conversion, *, has_url: bool) -> None:
    """Convert the name of a model: `openai/gpt-4`, or `openai-api/SERVICE/model`.

    The second form uses the variables SERVICE_BASE_URL and SERVICE_API_KEY. `has_url` is True if
    the file also states the URL of the endpoint.
    """
    provider, _, model = name.partition("/")
    if _take_provider(provider, conversion):
        conversion.values[_MODEL] = model
    elif provider == "openai-api" and "/" in model:
        service, _, model = model.partition("/")
        prefix = re.sub(r"\W", "_", service).upper()
        url = f"${{{prefix}_BASE_URL}}"
        conversion.values |= {_MODEL: model, _URL: url, _KEY: f"{prefix}_API_KEY"}
    else:
        conversion.values[_MODEL] = model or name  # A name without "/" has no provider.
        url = "" if has_url else f"the URL of an OpenAI-compatible endpoint as {_URL}, and "
        conversion.note(
            "model",
            f"{one_line(name, 120)}: give {url}the name of its key's variable as {_KEY}",
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
        own_conversion = _Conversion(NEL, conversion.framework, conversion.note)
        solver = benchmark.pop("solver", None)
        model = solver.get("service") if isinstance(solver, Mapping) else None
        if not isinstance(model, str):
            model = None
        asked_services.add(model)
        _take_service(services.get(model), model, own_conversion)
        _take_solver(solver, f"benchmarks[{number}].solver.", own_conversion)
        task = own_conversion.task(benchmark.pop("name", None), f"benchmarks[{number}].name")
        own_conversion.take(benchmark, "benchmark.", f"benchmarks[{number}].")
        for section in ("output", "cluster", "sandboxes"):
            _take_section(document.get(section), section, own_conversion)
        yield ConvertedRun(task, own_conversion.values)
    for name in services:
        if name not in asked_services:
            conversion.note(f"services.{name}", conversion.advice("services"))


def _take_section(section: Any, name: str, conversion: _Conversion) -> None:
    """Convert a section of a file of NEL, or note it if no key of the section is known."""
    if isinstance(section, Mapping) and any(
        key.startswith(f"{name}.") for key in FORMS[NEL]["keys"]
    ):
        conversion.take(section, f"{name}.", f"{name}.")
    elif section:
        conversion.note(name, conversion.advice(name))


def _take_service(section: Any, name: Any, conversion: _Conversion) -> None:
    """Convert the service that a solver of NEL asks: its URL, its type and its API key.

    `section` is the service's section, and `name` is the service's name.
    """
    if not isinstance(section, Mapping):
        conversion.note(
            "services",
            f"a solver names {one_line(str(name), 120)}, and the file does not define this service",
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
    kind = service.pop("type", None)
    if kind != "api":
        conversion.note(
            f"services.{name}.type", f"{one_line(str(kind), 40)}: {conversion.advice('service')}"
        )
    key = service.pop("api_key", None)
    variable = _VARIABLE.match(str(key))
    if key and variable is not None:
        conversion.values[_KEY] = variable[1]
    elif key:
        conversion.note(
            f"services.{name}.api_key",
            f"does not name a variable; write the NAME of a variable as {_KEY}",
        )
    conversion.take(service, "service.", f"services.{name}.")


def _take_solver(solver: Any, file_prefix: str, conversion: _Conversion) -> None:
    """Convert the solver of a benchmark of NEL; `file_prefix` is the solver's path in the file."""
    if not isinstance(solver, Mapping):
        return
    rest = {}
    for name, value in solver.items():
        if name != "service":
            rest[name] = value
    kind = rest.pop("type", None)
    if kind not in ("simple", "container"):
        conversion.note(
            f"{file_prefix}type", f"{one_line(str(kind), 40)}: {conversion.advice('solver.type')}"
        )
    conversion.take(rest, "solver.", file_prefix)
