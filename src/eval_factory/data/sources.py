"""Reads the table `sources.yml`: which data each task needs, from which URL and at which revision.

The table also covers HELM's run entries.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from importlib import resources
from typing import Annotated, Literal
from urllib.parse import urlsplit

from pydantic import AfterValidator, StringConstraints

from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import printable
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.core.strict_model import StrictModel
from eval_factory.tasks.framework import Framework, Task, load_framework
from eval_factory.tasks.run_entry import is_run_entry, task_of_run_entry
from eval_factory.tasks.upstreams import UPSTREAMS

_MAX_NAME_SIZE = 240  # the maximum size of each part of a path, in bytes
_MAX_PATH_SIZE = 1000  # the maximum size of a path, in bytes
"""Linux allows 255 bytes for a name and 4096 bytes for a path.

The smaller maximums leave room for suffixes, and for the path of the bundle before the path.
"""
_CONTROL = "Cc"  # Unicode's category of control characters
_SURROGATE = "Cs"  # Unicode's category of halves of surrogate pairs, which UTF-8 cannot encode


def relative_path(text: str) -> str:
    """Return the path if it is relative and stays inside of the folder that it is relative to.

    Raises:
        ValueError: the path is absolute, names a drive, contains a backslash or control characters,
            is not UTF-8, or is too long; or a part of the path is empty, `.` or `..`.
    """
    parts = text.split("/")
    categories = set(map(unicodedata.category, text))
    if _SURROGATE in categories:
        raise ValueError(f"'{printable(text)}' is not UTF-8")
    has_special_part = any(part in ("", ".", "..") for part in parts)
    if has_special_part or "\\" in text or _CONTROL in categories:
        raise ValueError(f"'{printable(text)}' is not a plain relative path")
    if len(parts[0]) == 2 and parts[0][1] == ":":  # `C:`
        raise ValueError(f"'{printable(text)}' names a drive")
    has_long_part = any(len(part.encode()) > _MAX_NAME_SIZE for part in parts)
    if has_long_part or len(text.encode()) > _MAX_PATH_SIZE:
        raise ValueError(f"'{printable(text)[:60]}...' is too long for a path")
    return text


def path_clashes(paths: Iterable[str]) -> Iterator[str]:
    """Yield a message for each two paths that cannot both be files of one folder.

    Some file systems ignore the case of names, so that paths must not differ only in case.
    """
    # The keys of both dicts are in lower case.
    seen: dict[str, str] = {}  # from each path to the path as it is written
    folders: dict[str, str] = {}  # from each folder to a path in this folder
    for path in paths:
        folded = path.casefold()
        if folded in seen:
            if seen[folded] == path:
                clash = "is there twice"
            else:
                clash = f"and '{printable(seen[folded])}' differ in case only"
            yield f"'{printable(path)}' {clash}"
        seen[folded] = path
        # Add the folder of the path, and each folder above, up to one that was added before.
        folder = folded.rpartition("/")[0]
        while folder and folder not in folders:
            folders[folder] = path
            folder = folder.rpartition("/")[0]
    for name in sorted(seen.keys() & folders.keys()):
        yield f"'{printable(seen[name])}' is a file, and a folder of '{printable(folders[name])}'"


def plain_text(text: str) -> str:
    """Return the text if it has no control characters.

    Raises:
        ValueError: the text has control characters.
    """
    if {_CONTROL, _SURROGATE}.intersection(map(unicodedata.category, text)):
        raise ValueError(f"'{printable(text)}' holds control characters")
    return text


PlainText = Annotated[str, AfterValidator(plain_text)]
RelativePath = Annotated[str, AfterValidator(relative_path)]
Sha256 = Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]


class SourceFile(StrictModel):
    """A file that is downloaded: of a scenario, a perturbation, or a vocabulary.

    `path` is relative to the folder of the scenario or of the perturbations; `url` is a template
    (see `Sources.url`).
    """

    path: RelativePath
    url: str
    sha256: Sha256 | None = None
    upstream: str | None = None
    """The URL on a branch that HELM itself reads, if `url` is the URL of a commit. (It is not the
    name of one of `UPSTREAMS`.)
    """
    instead: RelativePath | None = None
    """The path of a file that HELM reads in place of this file, if the other file exists."""
    when: str | None = None
    """The part of the task's files (a subset, or a language) to which the file belongs; None if all
    parts need the file.
    """
    member: RelativePath | None = None
    """The path of the file in the zip archive at `url`; None if `url` is the file itself."""
    form: str | None = None
    """The name of the form that the file must have, a key of `tasks.published_forms.FORMS`."""


class Listing(StrictModel):
    """A folder of text files on GitHub."""

    url: str
    """The URL at which GitHub lists the folder."""
    files: str
    """The URL of the folder; the name of a file is appended to it."""
    count: int
    """The number of files that HELM reads: at most the `MAX_LISTED_FILES` of `data/bundle.py`."""
    upstream: str | None = None
    """The URL on a branch that HELM itself reads, if `url` is the URL of a commit."""


class HubDataset(StrictModel):
    """A data set of the Hugging Face Hub."""

    id: RelativePath
    config: str | None
    """The name of the configuration; None for the data set's default."""
    revision: str | None
    """The pinned revision; None if no revision is pinned."""
    script: bool = False
    """True if the data set has a loading script. HELM and `data pull` run the script."""


class Nltk(StrictModel):
    """A zip file; its members below `members` are put into `folder` of NLTK_DATA."""

    url: str
    folder: RelativePath
    members: str


class Perturbation(StrictModel):
    """The files that HELM reads to perturb questions.

    The paths of `files` are relative to HELM's folder of perturbations.
    """

    augmentations: tuple[str, ...]
    """The values of `data_augmentation` that cause this perturbation."""
    files: tuple[SourceFile, ...] = ()
    module: str | None = None
    """A Python module that HELM also imports for this perturbation."""
    reason: str | None = None
    """Why `data pull` cannot download the files; None if it can."""
    online: bool = False
    """True if the perturbation needs a network service in every run."""


class Presentation(StrictModel):
    """HELM's conf files with the runs of its leaderboards.

    `files`: the SHA-256 of each file, by its name.
    """

    url: str
    files: dict[RelativePath, Sha256]


class Variant(StrictModel):
    """Other data of a task, which the task reads if its parameters have certain values.

    `data pull TASK:name=value` downloads these data.
    """

    when: dict[str, str]
    """A dict from each of these parameters to its value."""
    hub: tuple[HubDataset, ...]
    """The data sets that replace those of the task."""


class TaskSources(StrictModel):
    """The data that a task reads."""

    scenario: RelativePath
    """The name of the folder in which HELM stores the files of the scenario."""
    files: tuple[SourceFile, ...] = ()
    part_parameter: str = "subset"
    """The parameter whose value names the part of the files that a run reads, as in `when`."""
    default_part: str | None = None
    """The part that a run without this parameter reads; None: all parts."""
    other_parts: tuple[SourceFile, ...] = ()
    """The files of the parts that a run does not read. `with_values` moves them here."""
    listing: Listing | None = None
    hub: tuple[HubDataset, ...] = ()
    tiktoken: tuple[str, ...] = ()
    """The names of the vocabularies with which tokens are counted."""
    perturbations: tuple[str, ...] = ()
    """The names of the perturbations of a run entry with `data_augmentation`."""
    own_data: bool = False
    """True if the task reads data of the user's own."""
    variants: tuple[Variant, ...] = ()
    variant: str = ""
    """The chosen variant in the form of `TASK:name=value`, such as `version=v1.2`; else empty."""

    def with_values(self, values: Mapping[str, str | None]) -> TaskSources:
        """Return the data that the task reads with these values of its parameters.

        If the values name no part of the files, and the task has no default part, the files of all
        parts are returned.
        """
        part = values.get(self.part_parameter) or self.default_part
        files = []
        other_parts = []
        for file in self.files:
            if part is None or file.when in (None, part):
                files.append(file)
            else:
                other_parts.append(file)
        update: dict[str, object] = {"files": tuple(files), "other_parts": tuple(other_parts)}
        for variant in self.variants:
            if variant.when.items() <= values.items():  # each parameter of `when` has its value
                settings = [f"{name}={value}" for name, value in variant.when.items()]
                update |= {"hub": variant.hub, "variant": ",".join(settings)}
                break
        return self.model_copy(update=update)


class Sources(StrictModel):
    """The content of the table `sources.yml`."""

    format: Literal[1]
    origins: dict[str, str]
    """A dict from the name of each origin to its address."""
    tasks: dict[str, TaskSources]
    tiktoken: dict[str, SourceFile]
    """A dict from the name of a vocabulary to its file."""
    nltk: dict[str, Nltk]
    """A dict from the name of a package of NLTK's data to its zip file."""
    perturbations: dict[str, Perturbation] = {}
    """A dict from the name of a perturbation of HELM, such as `dialect`, to its files."""
    presentation: Presentation | None = None

    def url(self, template: str) -> str:
        """Return the URL of a template such as `{raw}/pubmedqa/pubmedqa/...`.

        The name in braces is a key of `origins`. The origin's address replaces it.
        """
        return template.format_map(self.origins)

    def perturbation_files(self, task: TaskSources) -> list[SourceFile]:
        """Return the files of the task's perturbations."""
        files: list[SourceFile] = []
        for name in task.perturbations:
            files += self.perturbations[name].files
        return files

    def requested(self, text: str) -> TaskSources | None:
        """Return the sources of `TASK` or `TASK:name=value`.

        Returns None if the table has no such task, or if the task has no such variant.
        """
        name, _, variant = text.partition(":")
        task = self.tasks.get(name)
        if task is None or not variant:
            return task
        values = {}
        for part in variant.split(","):
            parameter, _, value = part.partition("=")
            values[parameter] = value
        sources = task.with_values(values)
        if sources.variant != variant:  # the task has no variant with exactly these values
            return None
        return sources

    def with_origins(self, origins: Mapping[str, str]) -> Sources:
        """Return the table with the URLs of mirrors in place of the origins.

        `origins`: the URL of each mirror, by the name of the origin.

        Raises:
            ConfigError: an origin is unknown, or the URL of a mirror is not valid.
        """
        problems = []
        for name, url in origins.items():
            if name not in self.origins:
                problems.append(
                    f"--origin: there is no origin {name!r}; origins: {', '.join(self.origins)}"
                )
            parts = urlsplit(url)
            if parts.scheme not in ("http", "https") or not parts.hostname or "@" in parts.netloc:
                problems.append(
                    f"--origin {name}: needs http(s)://host, without a user name or password"
                )
        if problems:
            raise ConfigError(problems)
        replaced = {name: url.rstrip("/") for name, url in origins.items()}
        return self.model_copy(update={"origins": {**self.origins, **replaced}})


@lru_cache(maxsize=1)
def load_sources() -> Sources:
    """Return the table of the installed package."""
    text = resources.files("eval_factory.data").joinpath("sources.yml").read_text(encoding="utf-8")
    return Sources.model_validate(parse_own_text(text))


AUGMENTATION = "data_augmentation"  # the argument of a run entry that names a perturbation of HELM


def name_in_table(task_to_run: Task, framework: Framework, sources: Sources) -> str | None:
    """Return the name of the table's entry with the data that a task reads.

    For a run entry of HELM, the name of a task that reads the same data is returned. Returns None
    if there is no entry.
    """
    if not task_to_run.helm.is_run_entry:
        if task_to_run.name not in sources.tasks:
            return None
        return task_to_run.name
    candidates = []
    for task in framework.evaluations:
        if task.name in sources.tasks and _reads_same_data(task, task_to_run):
            candidates.append(task)
    # Tasks with more fixed parameters come first: med_dialog_icliniq before med_dialog.
    candidates.sort(key=lambda task: len(task.helm.fixed_parameters or {}), reverse=True)
    if not candidates:
        return None
    return candidates[0].name


def _reads_same_data(task: Task, entry: Task) -> bool:
    """Return True if the run entry reads the same data as the task."""
    has_same_run_spec = entry.helm.run_spec == task.helm.run_spec
    if not has_same_run_spec and entry.helm.scenario != task.helm.scenario:
        return False
    for name, rule in task.helm.parameters.items():
        value = entry.helm.arguments.get(name)
        if rule.fixed is not None and value != rule.fixed:
            return False
        if rule.allowed and value is not None and value not in rule.allowed:
            return False
    return True


def sources_of(
    task_to_run: Task, framework: Framework, values: Mapping[str, str | None], sources: Sources
) -> TaskSources:
    """Return the data that a task reads with these values of its parameters.

    If the table has no entry for the task, only the data of its perturbations are returned.
    """
    name = name_in_table(task_to_run, framework, sources)
    task = TaskSources(scenario=task_to_run.helm.scenario) if name is None else sources.tasks[name]
    perturbations = []
    for key, perturbation in sources.perturbations.items():
        if values.get(AUGMENTATION) in perturbation.augmentations:
            perturbations.append(key)
    return task.with_values(values).model_copy(update={"perturbations": tuple(perturbations)})


def requested_sources(text: str, sources: Sources) -> TaskSources | None:
    """Return the sources of `TASK`, `TASK:name=value` or a run entry of HELM.

    Returns None if the table has no such task.

    Raises:
        ConfigError: the run entry is not valid, its data are unknown, or they cannot be pulled.
    """
    framework = load_framework()
    if not is_run_entry(text, framework):
        return sources.requested(text)
    problems: list[str] = []
    task_to_run = None
    for upstream in UPSTREAMS.values():  # the first upstream that has the run spec is used
        if task_to_run is None:
            task_to_run = task_of_run_entry(text, framework, problems, upstream)
    if task_to_run is None:
        raise ConfigError(problems[:1])  # each upstream may add a problem; one is enough
    task = sources_of(task_to_run, framework, task_to_run.helm.arguments, sources)
    for perturbation in task.perturbations:
        reason = sources.perturbations[perturbation].reason
        if reason is not None:
            raise ConfigError(f"{text}: cannot be pulled: {reason}; pull it without {AUGMENTATION}")
    if name_in_table(task_to_run, framework, sources) is None and not task.perturbations:
        raise ConfigError(f"{text}: 'eval-factory data pull' does not know which data it needs")
    return task
