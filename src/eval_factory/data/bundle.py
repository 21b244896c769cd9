"""A bundle on disk: its folders, what a task needs of it, and how something new gets into it."""

from __future__ import annotations

import contextlib
import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from eval_factory.data.manifest import (
    LOCK,
    MANIFEST,
    STAGING_PREFIX,
    FileEntry,
    HubEntry,
    Manifest,
    files_under,
    now,
    read_manifest,
    write_manifest,
)  # fmt: skip
from eval_factory.data.sources import Sources, TaskSources
from eval_factory.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.rundir import sha256_of

SCENARIOS, HF_HOME, NLTK_DATA, TIKTOKEN = "scenarios", "hf", "nltk_data", "tiktoken"
FILE_LISTS, PRESENTATION = "file_lists", "presentation"

LIST_LIMIT = 1000
"""GitHub's list of a folder stops there, so HELM never sees more."""


@dataclass(frozen=True)
class Need:
    """One thing that a task reads. `paths`: what of a bundle's files it is; empty where nothing is there."""

    kind: str
    name: str
    source: str
    paths: tuple[str, ...] = ()
    missing: str | None = None
    """What is not there, for a message."""


def needs_of(
    task: TaskSources, manifest: Manifest, root: Path, sources: Sources, *, all_files: bool = False
) -> list[Need]:
    """Each thing that a task needs, found in a bundle or not, by its manifest."""
    listed = manifest.paths()
    needs = []
    for file in task.files:
        path = f"{SCENARIOS}/{task.scenario}/{file.path}"
        found = [path] if path in listed else []
        if file.instead and (other := f"{SCENARIOS}/{task.scenario}/{file.instead}") in listed:
            found.append(other)
        missing = None if found else path
        needs.append(Need("file", file.path, sources.url(file.url), tuple(found), missing))
    if task.listing is not None:
        needs.append(_listing_need(task, manifest, root, sources, all_files=all_files))
    for dataset in task.hub:
        entry = manifest.hub_entry(dataset.id, dataset.config)
        inside = tuple(path for path in listed if entry is not None and path.startswith(f"{entry.folder}/"))
        source = f"{sources.origins['hub']}/datasets/{dataset.id}"
        needs.append(Need("hub", dataset.id, source, inside, None if inside else f"{HF_HOME}: {dataset.id}"))
    for name in task.tiktoken:
        path = f"{TIKTOKEN}/{sources.tiktoken[name].path}"
        source = sources.url(sources.tiktoken[name].url)
        found = [path] if path in listed else []
        needs.append(Need("tiktoken", name, source, tuple(found), None if found else path))
    return needs


def _listing_need(task: TaskSources, manifest: Manifest, root: Path, sources: Sources, *, all_files: bool) -> Need:
    assert task.listing is not None  # noqa: S101 - for mypy; the caller looked
    source, name = sources.url(task.listing.files), "texts"
    listed, file_list = manifest.paths(), f"{FILE_LISTS}/{task.scenario}.json"
    if file_list not in listed:
        return Need("listing", name, source, (), file_list)
    names = read_file_list(root / file_list)
    names = names if all_files else names[:LIST_LIMIT]
    paths = [f"{SCENARIOS}/{task.scenario}/{name}" for name in names]
    found = (file_list, *(path for path in paths if path in listed))
    absent = [path for path in paths if path not in listed]
    if not absent and len(names) >= task.listing.count:
        return Need("listing", name, source, found)
    if not absent:
        return Need("listing", name, source, found, f"{file_list} names {len(names)} of {task.listing.count} files")
    more = f" and {len(absent) - 1} more" if len(absent) > 1 else ""
    return Need("listing", name, source, found, f"{absent[0]}{more}")


def read_file_list(path: Path) -> list[str]:
    """The names in a list of files.

    Raises:
        PrerequisiteError: it is none.
    """
    try:
        names = json.loads(path.read_text(encoding="utf-8"))["names"]
        if all(isinstance(name, str) and "/" not in name for name in names):
            return list(names)
    except (OSError, ValueError, KeyError, TypeError):
        pass
    raise PrerequisiteError(f"{path}: is no list of files\n  eval-factory data verify says what else is wrong")


def file_list_text(names: list[str], source: str) -> str:
    return json.dumps({"source": source, "names": names}, indent=1, ensure_ascii=False) + "\n"


def complete_tasks(manifest: Manifest, root: Path, sources: Sources) -> list[str]:
    """Tasks all of whose data the bundle holds; those that need none, or the user's own, are not counted."""
    found = []
    for name, task in sources.tasks.items():
        needs = needs_of(task, manifest, root, sources)
        if needs and not task.own_data and not any(need.missing for need in needs):
            found.append(name)
    return found


@dataclass
class Staging:
    """A folder inside the bundle where new files are put together; nothing counts before `commit`."""

    root: Path
    folder: Path
    sources: Sources
    origin_of: dict[str, str] = field(default_factory=dict)
    """Path of a staged file -> where it came from."""
    hub: list[HubEntry] = field(default_factory=list)

    def path(self, relative: str, source: str) -> Path:
        """Where to write a file that is to become `relative`."""
        target = self.folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        self.origin_of[relative] = source
        return target

    def commit(self) -> Manifest:
        """Move what is staged into the bundle and write the manifest."""
        manifest = read_manifest(self.root) if (self.root / MANIFEST).is_file() else Manifest()
        files, hub = manifest.paths(), {(entry.id, entry.config): entry for entry in manifest.hub}
        date = now()
        staged = {
            name: FileEntry(
                path=name, size=(self.folder / name).stat().st_size, sha256=sha256_of(self.folder / name),
                source=source, date=date,
            )
            for name, source in sorted(self.origin_of.items())
        }  # fmt: skip
        for entry in self.hub:
            old = hub.get((entry.id, entry.config))
            if old is not None:  # another revision beside it would make `load_dataset` choose
                files = {path: file for path, file in files.items() if not path.startswith(f"{old.folder}/")}
                shutil.rmtree(self.root / old.folder, ignore_errors=True)
            hub[(entry.id, entry.config)] = entry
        for name, file in staged.items():
            old_file = files.get(name)
            same = old_file is not None and (old_file.size, old_file.sha256) == (file.size, file.sha256)
            target = self.root / name
            target.parent.mkdir(parents=True, exist_ok=True)
            (self.folder / name).replace(target)
            files[name] = old_file if same and old_file is not None and old_file.source == file.source else file
        manifest = Manifest(hub=list(hub.values()), files=list(files.values()))
        manifest = manifest.model_copy(update={"tasks": complete_tasks(manifest, self.root, self.sources)})
        write_manifest(self.root, manifest)
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.origin_of.clear()
        self.hub.clear()
        return manifest

    def discard(self) -> None:
        """Forget what is staged."""
        shutil.rmtree(self.folder)
        self.folder.mkdir()
        self.origin_of.clear()
        self.hub.clear()


@contextmanager
def staging(root: Path, sources: Sources) -> Iterator[Staging]:
    """Change a bundle, or make one; what is not committed leaves no trace.

    Raises:
        ConfigError: the folder holds something else than a bundle.
        BusyError: another process is changing it.
        PrerequisiteError: it cannot be written to.
    """
    from filelock import FileLock, Timeout

    made = first_missing(root)
    if root.is_dir() and not (root / MANIFEST).is_file():
        others = [name for name in files_under(root) if name != LOCK and not name.startswith(STAGING_PREFIX)]
        if others:
            raise ConfigError(f"{root}: is not empty and no data bundle (it holds {others[0]}); name another folder")
    try:
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / LOCK)
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(f"{root}: another process is changing this data bundle") from None
    except OSError as error:
        raise PrerequisiteError(f"{root}: cannot be written to: {error.strerror or error}") from error
    try:
        for left in root.glob(f"{STAGING_PREFIX}*"):
            shutil.rmtree(left, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=root))
        try:
            yield Staging(root, folder, sources)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    finally:
        lock.release()
        if not (root / MANIFEST).exists():
            (root / LOCK).unlink(missing_ok=True)
            if made is not None:
                _remove_empty(root, made)


def first_missing(path: Path) -> Path | None:
    """The topmost folder of a path that does not exist yet."""
    missing = None
    while not path.exists():
        missing, path = path, path.parent
    return missing


def _remove_empty(folder: Path, up_to: Path) -> None:
    with contextlib.suppress(OSError):
        while True:
            folder.rmdir()
            if folder == up_to:
                return
            folder = folder.parent
