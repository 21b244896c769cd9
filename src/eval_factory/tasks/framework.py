"""Reads `framework.yml`, and the tasks that plug-ins add.

`framework.yml` describes eval-factory's tasks and is the only source of default values. A plug-in
is an installed package with an entry point of the group `eval_factory.tasks`. The entry point's
module contains the file `eval_factory.yml` with up to three keys: `evaluations` as in
framework.yml, `errata` as in errata.yml, and `helm_plugin`, the module that registers run specs
inside helm-run. A plug-in's functions are named in the form `package.module:function`.
"""

from __future__ import annotations

import importlib
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property, lru_cache
from importlib import metadata, resources
from pathlib import Path
from typing import Any, ClassVar, Literal

from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.tasks.run_specs import IMAGES, IndexedRunSpec, load_index
from eval_factory.tasks.upstreams import HELM, Upstream

_FILE_NAME = "framework.yml"  # in the package, or at the top of a checkout (`framework_path`)
DATA_PATH_PARAMETER = "data_path"  # the parameter with the path of the user's own data
BENCHMARK_KEY = "benchmark"
"""The key of params.extra that names the file of a custom benchmark. Only tasks that run custom
benchmarks have this parameter.
"""
_PACKAGE = Path(__file__).resolve().parents[1]  # the folder of the package `eval_factory`
_GROUP = "eval_factory.tasks"  # the group of the plug-ins' entry points
_PLUG_IN_FILE = "eval_factory.yml"
_ENDPOINT_TYPES = "supported_endpoint_types"
"""A key of a task's `defaults.config`; run configs do not have this key."""
_PLUG_IN_KEYS = {"evaluations", "errata", "helm_plugin"}
_MALFORMED = (ValueError, TypeError, LookupError, AttributeError)
"""The exceptions of reading a malformed framework.yml or eval_factory.yml."""


@dataclass(frozen=True)
class PlugIn:
    """An installed package that adds tasks, and the content of its `eval_factory.yml`."""

    package: str  # the name of the installed distribution
    document: Mapping[str, Any]

    @property
    def helm_plugin(self) -> str | None:
        """The module that registers the plug-in's run specs inside helm-run, if there is one."""
        return self.document.get("helm_plugin")

    def rejection(self, reason: object) -> ConfigError:
        """Return the error that reports that the plug-in cannot be used."""
        return ConfigError(
            f"the package {self.package}, which adds tasks ({_GROUP}), cannot be used: {reason}\n"
            f"  correct the package, or remove it: pip uninstall {self.package}"
        )


def entry_points_of(group: str) -> Sequence[metadata.EntryPoint]:
    """Return the entry points of a group in this environment.

    A package with an unreadable list of entry points is skipped and named on standard error.
    """
    try:
        return tuple(metadata.entry_points(group=group))
    except Exception:  # a malformed entry_points.txt of any package can raise any exception
        return tuple(_readable_points(group))


def _readable_points(group: str) -> Iterator[metadata.EntryPoint]:
    """Yield the entry points of a group, package by package; unreadable packages are skipped."""
    for package in metadata.distributions():
        try:
            points = tuple(package.entry_points)
        except Exception as error:
            name = package.metadata["Name"]
            sys.stderr.write(
                f"warning: the package {name} has an entry_points.txt that cannot be read "
                f"({type(error).__name__}): its entry points are ignored; install it again\n"
            )
            continue
        yield from (point for point in points if point.group == group)


@lru_cache(maxsize=1)
def plug_ins() -> tuple[PlugIn, ...]:
    """Return the plug-ins of this environment, sorted by the names of their packages.

    The result is cached. Raises ConfigError if a plug-in cannot be read.
    """
    found: list[PlugIn] = []
    for point in sorted(entry_points_of(_GROUP), key=_package_name):
        package = _package_name(point)
        try:
            document = parse_own_text(
                (resources.files(point.module) / _PLUG_IN_FILE).read_text(encoding="utf-8")
            )
            unknown = sorted(set(document) - _PLUG_IN_KEYS)
        # The import of the plug-in's module may raise any exception. The file may be malformed.
        except (Exception, SystemExit) as error:
            unread = PlugIn(package, document={})
            raise unread.rejection(f"{type(error).__name__}: {error}") from error
        plug_in = PlugIn(package, document)
        if unknown:
            raise plug_in.rejection(
                f"{_PLUG_IN_FILE}: {', '.join(unknown)}: unknown key; known keys: "
                f"{', '.join(sorted(_PLUG_IN_KEYS))}"
            )
        found.append(plug_in)
    return tuple(found)


def _package_name(point: metadata.EntryPoint) -> str:
    """Return the name of the package that has an entry point."""
    if point.dist is None:
        return point.value  # the name of the module
    return point.dist.name


def is_plug_in_function(name: str | None) -> bool:
    """Return True if a name has the form of a plug-in's function: `package.module:function`."""
    return name is not None and ":" in name


def function_named(name: str) -> Any:
    """Return the function with the name `package.module:function`.

    The module is imported. Raises ImportError or AttributeError if the function does not exist, or
    any exception that the import raises.
    """
    module, _, function = name.partition(":")
    return getattr(importlib.import_module(module), function)


class _Record:
    """The base class of the records in framework.yml.

    Records do not check the types of their values, because pydantic would slow down every command.
    A test checks framework.yml with pydantic instead; `__pydantic_config__` is for this test.
    """

    __pydantic_config__: ClassVar[Any] = {"extra": "forbid"}


@dataclass(frozen=True)
class FrameworkInfo(_Record):
    """The description of the harness, which is HELM as eval-factory runs it."""

    name: str  # the start of names in `config.type`, such as `helm.NAME`
    pkg_name: str  # the name of the Python package
    full_name: str
    description: str
    url: str


@dataclass(frozen=True)
class FileLayout(_Record):
    """A file of the user's own data, and the content that HELM needs in this file."""

    # A path or glob pattern under `data_path`; `{NAME}` is replaced by the value of the parameter
    # NAME. None: `data_path` is the file itself.
    file: str | None = None
    columns: tuple[str, ...] = ()  # the columns that must exist
    format: str | None = None  # the format of the file; None: the file's extension decides
    read_by: Literal["csv", "pandas"] = "csv"
    """The module with which HELM reads a CSV file. pandas accepts a byte-order mark and .gz files,
    and treats the texts NA and None as empty cells.
    """
    # dict from a column to the allowed values of its cells
    allowed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    filled: tuple[str, ...] = ()  # the columns in which no cell may be empty
    dates: tuple[str, ...] = ()  # the columns that must hold timestamps
    counted: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Dict from a column to the values that HELM reads: HELM ignores rows with other values."""
    # HELM ignores rows in which one of these columns is empty
    skipped_if_empty: tuple[str, ...] = ()
    elements: dict[str, dict[str, tuple[str, ...]]] = field(default_factory=dict)
    """Dict from the path of an element in an XML file to a dict from each attribute to its allowed
    values.
    """
    # another file in the folder of this file; both must have the same number of lines
    lines_as: str | None = None
    # further requirements of HELM, as a text: HELM itself reports an error if they are not met
    also: str | None = None

    def with_values(self, values: Mapping[str, str | None]) -> FileLayout:
        """Return the layout with each `{NAME}` replaced by the value of the parameter NAME.

        A `{NAME}` whose value is None stays.
        """

        def fill(text: str) -> str:
            for name, value in values.items():
                if value is not None:
                    text = text.replace(f"{{{name}}}", value)
            return text

        file = None if self.file is None else fill(self.file)
        elements = {fill(path): attributes for path, attributes in self.elements.items()}
        return replace(self, file=file, elements=elements)

    def as_dict(self) -> dict[str, Any]:
        """Return the values that differ from their defaults."""
        defaults = asdict(FileLayout())
        changed = {}
        for name, value in asdict(self).items():
            if value != defaults[name]:
                changed[name] = value
        return changed


@dataclass(frozen=True)
class ScenarioParameter(_Record):
    """A parameter of a task's scenario: a key of `params.extra`."""

    required: bool = False
    fixed: str | None = None  # the value, if the user cannot choose the value
    allowed: tuple[str, ...] = ()  # all allowed values; empty if any value is allowed
    path: bool = False  # True if the value is the path of a file or folder
    # another key of `params.extra` with the same meaning for this task
    other_name: str | None = None
    about: str | None = None  # a description, if the name alone is not clear
    helm_name: str | None = None  # HELM's name of the parameter, if it differs from the key
    layout: tuple[FileLayout, ...] = ()  # the files that must exist at the path

    @property
    def selects_instances(self) -> bool:
        """True if the parameter selects some of the task's instances."""
        return not (self.required or self.fixed or self.path)


@dataclass(frozen=True)
class ClusterRule(_Record):
    """The rule that finds an instance's cluster: the source that several instances share.

    `field` or `text` finds a value. Without `records`, this value is the cluster. With `records`,
    the value is looked up in these records, and a label of the matching record is the cluster
    (`scoring/tally.py`).
    """

    what: str  # the kind of source in one word, such as calculator or question
    field: str | None = None  # a field of the extra data that the scenario stores with an instance
    # a regular expression with one group, which finds the value in the instance's text
    text: str | None = None
    records: tuple[str, ...] = ()  # JSON files of the scenario, each with a list of records
    key: str | None = None  # the field of a record that is compared with the value
    # the fields of a record that may name the cluster: the first that exists is used
    labels: tuple[str, ...] = ()

    def check(self) -> None:
        """Check that the rule is complete and consistent. Raises ValueError for any other rule."""
        if (self.field is None) == (self.text is None):
            raise ValueError(
                "a cluster is found by `field` or by `text`: set exactly one of the two"
            )
        if self.text is not None:
            try:
                groups = re.compile(self.text).groups
            except re.error as error:
                raise ValueError(
                    f"the cluster's `text` is not a regular expression: {error}"
                ) from None
            if groups != 1:
                raise ValueError(f"the cluster's `text` must have one group, it has {groups}")
        fields_of_records = (bool(self.records), self.key is not None, bool(self.labels))
        is_complete = all(fields_of_records) and self.text is not None
        if any(fields_of_records) and not is_complete:
            raise ValueError("`records`, `key` and `labels` need each other, and they need `text`")

    def value_in(self, text: str, fields: Mapping[str, Any]) -> str | None:
        """Return the value that `field` or `text` finds in an instance; None if nothing is found.

        Args:
            text: the instance's text.
            fields: the extra data that the scenario stores with the instance.
        """
        if self.field is not None:
            value = fields.get(self.field)
            return None if value is None else str(value)
        match = None if self.text is None else re.search(self.text, text)
        return None if match is None else match[1]


@dataclass(frozen=True)
class HelmEntry(_Record):
    """The facts that are needed to run a task with HELM and to read its results.

    The fields `zero_shot`, `images` and `choices` are set only for the run specs of eval-factory
    and of plug-ins. For HELM's own run specs, the index of run specs has these facts.
    """

    run_spec: str
    scenario: str
    main_metric: str | None  # None for a run spec whose main metric HELM does not state
    judges: tuple[str, ...] = ()  # the names of the judges in the default jury
    parameters: dict[str, ScenarioParameter] = field(default_factory=dict)
    answer_labels: tuple[str, ...] = ()
    """The only valid answers, if the files of the run do not list them."""
    answer_form: Literal["value", "sentence", "sql", "rating"] | None = None
    """The form of answers that the prompt asks for; None for the usual forms, which
    `scoring/readability.py` recognizes.
    """
    cluster: ClusterRule | None = None  # set if several instances share a source
    rubric: bool = False  # True if judges decide about each criterion of a rubric
    zero_shot: bool = False  # True if prompts contain no examples
    images: bool = False  # True if prompts contain pictures
    choices: Literal["by place", "by meaning"] | None = None
    """The meaning of the options' letters (`IndexedRunSpec.choices`)."""
    upstream: Upstream = HELM  # the HELM distribution that the user chose; never in framework.yml
    is_run_entry: bool = False
    """True if the task is a run entry that a user wrote, and not an entry of framework.yml. The
    four fields below are set for run entries only.
    """
    arguments: dict[str, str] = field(default_factory=dict)  # of the run entry, in the user's order
    # possible main metrics: the first metric that the run has is the main metric
    main_metrics: tuple[str, ...] = ()
    main_split: str | None = None  # the split whose scores are reported
    prescribed_judges: tuple[str, ...] = ()  # deployments that HELM asks with its own clients

    @cached_property
    def indexed(self) -> IndexedRunSpec | None:
        """The run spec's entry in the upstream's index; None for run specs of eval-factory and of
        plug-ins.
        """
        return load_index(self.upstream).run_specs.get(self.run_spec)

    @property
    def media(self) -> str | None:
        """The media that prompts contain in addition to text; None if prompts are text only."""
        if self.images:
            return IMAGES
        if self.indexed is not None:
            return self.indexed.media
        return None

    @property
    def makes_images(self) -> bool:
        """True if the answers are pictures."""
        return self.indexed is not None and self.indexed.makes_images

    @property
    def is_zero_shot(self) -> bool:
        """True if prompts are known to contain no examples."""
        return self.zero_shot or (self.indexed is not None and self.indexed.zero_shot)

    @property
    def letter_meaning(self) -> str | None:
        """The meaning of the options' letters (`IndexedRunSpec.choices`); None without options."""
        if self.choices is not None:
            return self.choices
        if self.indexed is not None:
            return self.indexed.choices
        return None

    @property
    def fixed_parameters(self) -> dict[str, str] | None:
        """The parameters that the user cannot choose, with their values; None if there are none."""
        values = {}
        for name, rule in self.parameters.items():
            if rule.fixed is not None:
                values[name] = rule.fixed
        return values or None


@dataclass(frozen=True)
class About(_Record):
    """The facts about a task that `ls` shows."""

    tags: tuple[str, ...]
    access: Literal["public", "gated", "private", "unknown"]
    source: str  # a text that says where the data come from, such as `Hugging Face owner/name`
    instances: int | None  # the number of instances; None if it is not known
    # the data on which eval-factory's authors ran the task
    tried: Literal["real data", "invented data"] | None = None
    notes: tuple[str, ...] = ()
    licence: str | None = None  # of the data
    revision: str | None = None  # of the data
    size_mb: float | None = None  # of the data, in megabytes
    published: str | None = None
    """The month (`YYYY-MM`) by which the paper or the data were public; None if it is not known."""
    copies: tuple[str, ...] = ()
    """The ids (`owner/name`) of other data sets with the same questions; these are not read."""
    label_noise: tuple[float, float] | None = None
    """The lowest and the highest share of points that a model without errors loses to wrong labels,
    according to `label_audit`.
    """
    label_audit: str | None = None  # the source of `label_noise`

    @property
    def answers_public(self) -> bool | None:
        """True if everybody can read the right answers: a model may have been trained on these.

        None if the access is not known, as for a custom benchmark.
        """
        is_known = self.access != "unknown" and "custom" not in self.tags
        if not is_known:
            return None
        return self.access == "public"


@dataclass(frozen=True)
class JudgeDefault(_Record):
    """A judge of the default jury."""

    model_id: str
    api_key: str
    """The key of `params.extra` whose value is the name of the variable with the API key."""


@dataclass(frozen=True)
class OAuthService(_Record):
    """The token URL and the scope of an OAuth service; environment variables override both."""

    token_url: str | None = None
    scope: str | None = None


@dataclass(frozen=True)
class Task(_Record):
    """One benchmark that can be run. (A task of a Slurm job is a `QueuedTask`.)"""

    name: str
    description: str
    defaults: dict[str, Any]  # the task's values of a run config; they override the global defaults
    helm: HelmEntry
    about: About
    # what the task asks of a model, in about six words; `IndexedRunSpec.asks` is a kind of request
    asks: str = ""
    plug_in: PlugIn | None = None  # the package that adds the task; None for eval-factory's tasks

    @property
    def endpoint_types(self) -> tuple[str, ...]:
        """The types of endpoints that can answer the task, such as `chat`."""
        return tuple(self.defaults["config"][_ENDPOINT_TYPES])

    @property
    def run_config(self) -> dict[str, Any]:
        """The task's defaults in the form of a run config, without the types of endpoints."""
        config = dict(self.defaults["config"])
        del config[_ENDPOINT_TYPES]
        return {"config": config}

    def only_on(self, endpoint_types: Sequence[str]) -> Task:
        """Return the same task, restricted to these types of endpoints."""
        config = {**self.defaults["config"], _ENDPOINT_TYPES: list(endpoint_types)}
        return replace(self, defaults={**self.defaults, "config": config})

    def default_of(self, parameter: str) -> Any:
        """Return a parameter's default value; None if the scenario has a default of its own."""
        return self.defaults["config"].get("params", {}).get("extra", {}).get(parameter)


@dataclass(frozen=True)
class _Defaults(_Record):
    """The global defaults, for all tasks."""

    command: str  # a Jinja template of the command that runs helm-run
    config: dict[str, Any]  # the defaults of the section `config` of a run config
    target: dict[str, Any]  # the defaults of the section `target` of a run config
    suite: dict[str, Any]  # the defaults of a suite's config
    serve: dict[str, Any]  # the defaults of a target's server

    @property
    def run_config(self) -> dict[str, Any]:
        """The defaults of every run config; the defaults of a task override them."""
        return {"config": self.config, "target": self.target}


@dataclass(frozen=True)
class Framework(_Record):
    """The content of framework.yml, with the tasks of plug-ins."""

    framework: FrameworkInfo
    defaults: _Defaults
    judges: dict[str, JudgeDefault]
    oauth: dict[str, OAuthService]
    evaluations: tuple[Task, ...]
    refused: dict[str, str] = field(default_factory=dict)
    """Dict from the name of a benchmark that is not offered as a task to the reason."""

    def names(self) -> list[str]:
        """Return the names of all tasks."""
        return [task.name for task in self.evaluations]

    def task(self, name: str) -> Task | None:
        """Return the task with a name (`NAME` or `helm.NAME`); None if no task has this name."""
        short = name.removeprefix(f"{self.framework.name}.")
        return next((task for task in self.evaluations if task.name == short), None)


def framework_path(package: Path = _PACKAGE) -> Path:
    """Return the path of `framework.yml`: in the installed package, or at the top of a checkout.

    `package`: the folder of the installed package; only tests set another folder.
    """
    packaged = package / _FILE_NAME
    if packaged.is_file():
        return packaged
    top_of_checkout = _PACKAGE.parents[1]  # the package is `src/eval_factory` there
    return top_of_checkout / _FILE_NAME


@lru_cache(maxsize=1)
def load_framework() -> Framework:
    """Read framework.yml and the tasks of plug-ins; the result is cached.

    Raises ConfigError if framework.yml or a plug-in cannot be read.
    """
    path = framework_path()
    try:
        framework = framework_of(parse_own_text(path.read_text(encoding="utf-8")))
    except _MALFORMED as error:
        raise ConfigError(f"{path}: cannot be read: {error}") from error
    tasks = list(framework.evaluations)
    for plug_in in plug_ins():
        try:
            added = []
            for task in plug_in.document.get("evaluations", ()):
                added.append(replace(_task(task), plug_in=plug_in))
        except _MALFORMED as error:
            raise plug_in.rejection(f"evaluations: {error}") from error
        names = {task.name for task in tasks}
        for task in added:
            if task.name in names:
                raise plug_in.rejection(f"there is a task {task.name} already")
        tasks += added
    return replace(framework, evaluations=tuple(tasks))


def framework_of(record: Mapping[str, Any]) -> Framework:
    """Return the content of framework.yml as a `Framework`.

    Args:
        record: the parsed YAML document.

    Raises:
        TypeError, LookupError, AttributeError: a key is missing or unknown, or its value has
            another type.
        ValueError: the rule of a cluster is not valid.
    """
    converted = {
        "framework": FrameworkInfo(**record["framework"]),
        "defaults": _Defaults(**record["defaults"]),
        "judges": {name: JudgeDefault(**judge) for name, judge in record["judges"].items()},
        "oauth": {name: OAuthService(**service) for name, service in record["oauth"].items()},
        "evaluations": tuple(_task(task) for task in record["evaluations"]),
    }
    return Framework(**{**record, **converted})  # `refused` needs no conversion


def _task(record: Mapping[str, Any]) -> Task:
    """Return the task in an entry of `evaluations`. Raises the exceptions of `framework_of`."""
    helm = _with_tuples(record["helm"])
    if "cluster" in helm:
        helm["cluster"] = ClusterRule(**helm["cluster"])
        helm["cluster"].check()
    if "parameters" in helm:
        parameters = {}
        for name, rule in helm["parameters"].items():
            layout = tuple(map(file_layout, rule.get("layout", ())))
            parameters[name] = ScenarioParameter(**{**rule, "layout": layout})
        helm["parameters"] = parameters
    about = About(**_with_tuples(record["about"]))
    return Task(**{**record, "helm": HelmEntry(**helm), "about": about})


def file_layout(record: Mapping[str, Any]) -> FileLayout:
    """Return the layout in a mapping that has the form of `FileLayout.as_dict`."""
    return FileLayout(**_with_tuples(record))


def _with_tuples(value: Any) -> Any:
    """Return a value of a YAML document with tuples in place of lists, at all levels."""
    if isinstance(value, dict):
        return {name: _with_tuples(entry) for name, entry in value.items()}
    if isinstance(value, (list, tuple)):
        return tuple(_with_tuples(entry) for entry in value)
    return value
