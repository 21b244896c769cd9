"""Reads data bundles, compares them with their manifests, and finds the data that tasks need.

A bundle is a folder of data with a manifest that lists all files. `bundle_changes.py` changes
bundles.
"""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from eval_factory import __version__
from eval_factory.core import safe_files
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import printable
from eval_factory.core.formats import first_of
from eval_factory.core.rundir import sha256_of
from eval_factory.core.strict_model import StrictModel
from eval_factory.data.sources import (
    HubDataset,
    Listing,
    PlainText,
    RelativePath,
    Sha256,
    SourceFile,
    Sources,
    TaskSources,
    path_clashes,
    relative_path,
)

MANIFEST = "manifest.json"
LOCK = ".lock"  # the name of the lock file of a bundle
STAGING_PREFIX = ".staging-"  # the beginning of the names of staging folders
# the name that a staging folder gets when its change is committed: its files are then moved into
# the bundle; if the process is killed meanwhile, the next command moves them
COMMIT = ".commit"
# names in the top folder of a bundle that the manifest does not list
_UNLISTED_NAMES = (MANIFEST, LOCK, COMMIT)

# the folders of a bundle
SCENARIOS = "scenarios"
HF_HOME = "hf"
PREPARED_DATASETS = f"{HF_HOME}/datasets/"  # the folder of data sets of the Hub
NLTK_DATA = "nltk_data"
TIKTOKEN = "tiktoken"
FILE_LISTS = "file_lists"
PRESENTATION = "presentation"
PERTURBATIONS = "perturbations"

# GitHub lists at most this number of files of a folder. HELM reads no further files, unless the
# user sets the variable `ALL_FILES_VARIABLE` of `core/helm_run_settings.py`.
MAX_LISTED_FILES = 1000


class FileEntry(StrictModel):
    """A file of a bundle, as the manifest lists it.

    `size`: in bytes. `source`: a URL, `hub:<id>@<revision>`, or `import:<folder name>`. `date`: the
    time at which the file became a part of the bundle, in UTC.
    """

    path: RelativePath
    size: Annotated[int, Field(ge=0, strict=True)]
    sha256: Sha256
    source: PlainText
    date: PlainText


def _prepared_folder(folder: str) -> str:
    """Return the folder; raise ValueError if it is not in the folder of prepared data sets."""
    if not folder.startswith(PREPARED_DATASETS):
        raise ValueError(f"the folder is not in {PREPARED_DATASETS}")
    return folder


class HubEntry(StrictModel):
    """A prepared data set of the Hugging Face Hub.

    Prepared means converted to the format of the cache from which `load_dataset` reads without the
    Hub. `revision`: None if the revision is unknown, as for imported data.
    """

    id: RelativePath
    config: PlainText | None
    revision: PlainText | None
    folder: Annotated[RelativePath, AfterValidator(_prepared_folder)]
    source: PlainText


def _is_never_listed(path: str) -> bool:
    """Return True if no manifest lists the path.

    Such paths are the manifest itself, the lock file, and the files of unfinished changes.
    """
    top = path.split("/")[0]
    return top in _UNLISTED_NAMES or top.startswith(STAGING_PREFIX)


def _checked_files(files: list[FileEntry]) -> list[FileEntry]:
    """Return the files; raise ValueError if two paths clash, or a path must not be listed."""
    problem = next(path_clashes(file.path for file in files), None)
    if problem is not None:
        raise ValueError(problem)
    # Some file systems ignore the case of names.
    if any(_is_never_listed(file.path.casefold()) for file in files):
        raise ValueError("the manifest lists itself, the lock file or an unfinished change")
    return files


class Manifest(StrictModel):
    """The manifest of a bundle: the list of its files and data sets."""

    format: Literal[1] = 1
    made_by: PlainText = f"eval-factory {__version__}"
    tasks: list[PlainText] = []
    """The tasks whose data were complete when the manifest was written.

    Other versions of eval-factory may need other data for these tasks. Use
    `tasks_with_all_data` to find out which tasks are complete.
    """
    hub: list[HubEntry] = []
    files: Annotated[list[FileEntry], AfterValidator(_checked_files)] = []

    def file_by_path(self) -> dict[str, FileEntry]:
        """Return a dict from the path of each file to its entry."""
        return {file.path: file for file in self.files}

    def hub_entry(self, dataset: str, config: str | None) -> HubEntry | None:
        """Return the data set with this id and configuration; None if the bundle has none."""
        return next(
            (entry for entry in self.hub if (entry.id, entry.config) == (dataset, config)), None
        )

    def text(self) -> str:
        """Return the text of the manifest's file. The lists in the text are sorted."""
        document = self.model_dump(mode="json")
        document["files"].sort(key=lambda file: file["path"])
        document["hub"].sort(key=lambda entry: (entry["id"], entry["config"] or ""))
        document["tasks"].sort()
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def parse_manifest(text: str | bytes, origin: str) -> Manifest:
    """Parse the text of a manifest. `origin`: the name of the file for error messages.

    Raises:
        PrerequisiteError: the text is not a manifest, or has another format.
    """
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        # A hostile manifest may have very long keys.
        field = printable(".".join(str(part) for part in first["loc"]))[:200]
        raise PrerequisiteError(
            f"{origin}: is not the manifest of a data bundle: {field}: {first['msg']}"
        ) from None


def read_manifest(root: Path) -> Manifest:
    """Read the manifest of the bundle in a folder.

    Raises:
        PrerequisiteError: the folder has no manifest, or the manifest cannot be read.
    """
    path = root / MANIFEST
    try:
        text = safe_files.read_bytes(path)
    except OSError as error:
        hint = f"make one: eval-factory data pull TASK --to {root} (or data import, data unpack)"
        if (root / COMMIT).exists():
            hint = f"a change was interrupted; to finish it: eval-factory data verify {root}"
        raise PrerequisiteError(
            f"{root}: is not a data bundle: {MANIFEST}: {error.strerror or error}\n  {hint}"
        ) from None
    return parse_manifest(text, str(path))


@dataclass(frozen=True)
class Differences:
    """The paths at which a folder differs from its manifest."""

    missing: tuple[str, ...] = ()  # files that the folder does not have
    altered: tuple[str, ...] = ()  # files with another size or content, and links
    extra: tuple[str, ...] = ()  # files that the manifest does not list

    def __bool__(self) -> bool:
        return bool(self.missing or self.altered or self.extra)

    def lines(self) -> list[str]:
        """Return a line for each difference."""
        kinds = (("missing", self.missing), ("altered", self.altered), ("extra", self.extra))
        lines: list[str] = []
        for kind, paths in kinds:
            lines += [f"{kind}: {printable(path)}" for path in paths]
        return lines


def files_under(root: Path) -> Iterator[str]:
    """Yield the relative paths of all files and links below a folder. Links are not followed.

    Raises:
        PrerequisiteError: a folder cannot be read.
    """

    def raise_unreadable(error: OSError) -> None:
        """Raise an error that names the folder; os.walk would skip the folder."""
        raise PrerequisiteError(
            f"{printable(str(error.filename))}: cannot be read: {error.strerror}"
        )

    for folder, subfolders, files in os.walk(root, onerror=raise_unreadable):
        links = []  # os.walk lists a link to a folder among the folders
        for name in subfolders:
            if (Path(folder) / name).is_symlink():
                links.append(name)
        for name in (*files, *links):
            yield (Path(folder) / name).relative_to(root).as_posix()


def folders_between(root: Path, name: str) -> list[Path]:
    """Return the folders between `root` and the file `name`; `root` itself is not one of them."""
    depth = name.count("/")  # `a/b/file` is in two folders: `a/b` and `a`
    return list((root / name).parents)[:depth]


def compare_files(
    root: Path, manifest: Manifest, *, only: Iterable[str] | None = None
) -> Differences:
    """Compare the files of a folder with the manifest, by size and SHA-256.

    A bundle has no links: a file counts as altered if it, or a folder above it, is a link.

    Args:
        root: the folder.
        manifest: the manifest.
        only: the paths to compare; paths that the manifest does not list are ignored. None to
            compare all paths and to look for extra files too.

    Raises:
        PrerequisiteError: a file cannot be read.
    """
    listed = manifest.file_by_path()
    wanted = sorted(listed) if only is None else sorted(set(only) & set(listed))
    missing = []
    altered = []
    for name in wanted:
        path = root / name
        entry = listed[name]
        try:
            status = path.lstat()
            is_plain = stat.S_ISREG(status.st_mode) and not any(
                folder.is_symlink() for folder in folders_between(root, name)
            )
            if not is_plain or status.st_size != entry.size or sha256_of(path) != entry.sha256:
                altered.append(name)
        except (FileNotFoundError, NotADirectoryError):
            missing.append(name)
        except OSError as error:
            raise PrerequisiteError(f"{path}: cannot be read: {error.strerror or error}") from None
    extra: list[str] = []
    if only is None:
        for name in files_under(root):
            if name not in listed and not _is_never_listed(name):
                extra.append(name)
        extra.sort()
    return Differences(tuple(missing), tuple(altered), tuple(extra))


def first_lines(lines: Sequence[str], max_lines: int = 5) -> str:
    """Return the first `max_lines` lines, indented, and the number of further lines."""
    remainder = [f"and {len(lines) - max_lines} more"] if len(lines) > max_lines else []
    return "\n".join(f"  {line}" for line in [*lines[:max_lines], *remainder])


@dataclass(frozen=True)
class Need:
    """A file, a data set or a folder that a task reads."""

    # "file", "listing", "hub", "tiktoken" or "perturbation"; a listing is all text files of a
    # folder on GitHub, whose names are in a file of the bundle
    kind: str
    name: str  # the path of a file, the id of a data set, a vocabulary, or "texts" for a listing
    source: str  # the URL
    paths: tuple[str, ...] = ()  # the paths of those of its files that the bundle has
    missing: str | None = None  # what is missing, as a text; None if nothing is missing


def needs_of(
    task: TaskSources, manifest: Manifest, root: Path, sources: Sources, *, all_files: bool = False
) -> list[Need]:
    """Return all data that a task needs, with the matching files in the manifest.

    Args:
        task: the data that the task reads.
        manifest: the manifest of the bundle.
        root: the folder of the bundle or of staged files. A scenario's list of files is read from
            its subfolder `FILE_LISTS`.
        sources: the table of sources.
        all_files: True to need all files of a listing, not only the first `MAX_LISTED_FILES`.
    """
    listed = manifest.file_by_path()
    folder = f"{SCENARIOS}/{task.scenario}"
    needs = [_file_need("file", file.path, folder, file, listed, sources) for file in task.files]
    if task.listing is not None:
        needs.append(
            _listing_need(task.scenario, task.listing, listed, root, sources, all_files=all_files)
        )
    needs += [_dataset_need(dataset, manifest, sources) for dataset in task.hub]
    for name in task.tiktoken:
        file = sources.tiktoken[name]
        needs.append(_file_need("tiktoken", name, TIKTOKEN, file, listed, sources))
    for file in sources.perturbation_files(task):
        needs.append(_file_need("perturbation", file.path, PERTURBATIONS, file, listed, sources))
    return needs


def _file_need(
    kind: str, name: str, folder: str, file: SourceFile, listed: Collection[str], sources: Sources
) -> Need:
    """Return the need for a file.

    Args:
        kind: the kind of the need.
        name: the name of the need.
        folder: the folder of the bundle to which the paths of `file` are relative.
        file: the file.
        listed: the paths of the bundle's files.
        sources: the table of sources.
    """
    path = f"{folder}/{file.path}"
    candidates = [path]
    if file.instead is not None:
        candidates.append(f"{folder}/{file.instead}")
    in_bundle = tuple(candidate for candidate in candidates if candidate in listed)
    missing = None if in_bundle else path
    return Need(kind, name, sources.url(file.url), paths=in_bundle, missing=missing)


def _dataset_need(dataset: HubDataset, manifest: Manifest, sources: Sources) -> Need:
    """Return the need for a data set of the Hub."""
    entry = manifest.hub_entry(dataset.id, dataset.config)
    paths = []
    if entry is not None:
        for path in manifest.file_by_path():
            if path.startswith(f"{entry.folder}/"):
                paths.append(path)
    source = f"{sources.origins['hub']}/datasets/{dataset.id}"
    missing = None if paths else f"{HF_HOME}: {dataset.id}"
    return Need("hub", dataset.id, source, paths=tuple(paths), missing=missing)


def _listing_need(
    scenario: str,
    listing: Listing,
    listed: Collection[str],
    root: Path,
    sources: Sources,
    *,
    all_files: bool,
) -> Need:
    """Return the need for all text files of a scenario's folder."""
    file_list = f"{FILE_LISTS}/{scenario}.json"
    source = sources.url(listing.files)
    if file_list not in listed:
        return Need("listing", "texts", source, missing=file_list)
    names = read_file_list(root / file_list)
    if not all_files:
        names = names[:MAX_LISTED_FILES]
    paths = [f"{SCENARIOS}/{scenario}/{name}" for name in names]
    present = []
    absent = []
    for path in paths:
        if path in listed:
            present.append(path)
        else:
            absent.append(path)
    missing = first_of(absent, 1) or None  # `first_of` returns an empty text if none is absent
    # `count` is the number of files that HELM reads, which is at most `MAX_LISTED_FILES`.
    is_list_incomplete = len(names) < listing.count
    if not absent and is_list_incomplete:
        missing = f"{file_list} names {len(names)} of {listing.count} files"
    return Need("listing", "texts", source, paths=(file_list, *present), missing=missing)


def read_file_list(path: Path) -> list[str]:
    """Return the names in a list of files.

    Raises:
        PrerequisiteError: the file is not a list of files.
    """
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["names"]
        if all("/" not in relative_path(name) for name in names):
            return list(names)
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        pass
    raise PrerequisiteError(
        f"{path}: is not a list of files\n  'eval-factory data verify' lists further problems"
    )


def tasks_with_all_data(
    manifest: Manifest, root: Path, sources: Sources, *, staged: Path | None = None
) -> list[str]:
    """Return the names of the tasks whose data are all in the bundle.

    Tasks that need no data, or data of the user's own, are left out.

    `staged`: a folder whose files are about to replace files in `root`.
    """
    complete = []
    for name, task in sources.tasks.items():
        folder = root
        if staged is not None and (staged / FILE_LISTS / f"{task.scenario}.json").is_file():
            folder = staged
        needs = needs_of(task, manifest, folder, sources)
        if needs and not task.own_data and not any(need.missing for need in needs):
            complete.append(name)
    return complete


def refuse_inside_bundle(root: Path, path: Path, *, described_as: str) -> None:
    """Check that `path` is not inside of the bundle `root`.

    `described_as`: the name of the path's kind for the message, such as `an archive`.

    Raises:
        ConfigError: `path` is inside of the bundle, which only the `data` commands may change.
    """
    if path.resolve().is_relative_to(root.resolve()):
        raise ConfigError(
            f"{path}: {described_as} cannot be inside the data bundle {root}; name another place"
        )
