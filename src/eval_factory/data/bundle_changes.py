"""Changes data bundles on disk.

A change of a bundle is made in a staging folder first, and then committed. A commit that was
interrupted is finished by the next command.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import ValidationError

from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import printable
from eval_factory.core.rundir import PRIVATE, sha256_of
from eval_factory.core.safe_files import write_atomic
from eval_factory.data.bundle import (
    COMMIT,
    FILE_LISTS,
    LOCK,
    MANIFEST,
    STAGING_PREFIX,
    FileEntry,
    HubEntry,
    Manifest,
    files_under,
    folders_between,
    read_manifest,
    tasks_with_all_data,
)
from eval_factory.data.sources import Sources

FILES = "files"  # the folder of files in a staging folder, next to the manifest


class Staging:
    """A folder inside of the bundle for new files; `commit` makes them a part of the bundle."""

    def __init__(self, root: Path, sources: Sources) -> None:
        self.root = root
        self.sources = sources
        self.source_of: dict[str, str] = {}
        """A dict from the path of each staged file to its source."""
        self.hub: list[HubEntry] = []
        """The staged data sets of the Hugging Face Hub."""
        self._begin()

    def _begin(self) -> None:
        """Create a new, empty folder for new files."""
        self._workspace = Path(tempfile.mkdtemp(prefix=STAGING_PREFIX, dir=self.root))
        self.folder = self._workspace / FILES
        self.folder.mkdir()
        self.source_of.clear()
        self.hub.clear()

    def add_file(self, relative: str, source: str) -> Path:
        """Register a new file, create its folder, and return the path at which to write the file.

        `commit` expects each registered file to exist.

        Args:
            relative: the path that the file will have in the bundle.
            source: the source of the file for the manifest.
        """
        target = self.folder / relative
        target.parent.mkdir(parents=True, exist_ok=True)
        self.source_of[relative] = source
        return target

    def stage_file_list(self, scenario: str, names: list[str], source: str) -> None:
        """Write the list of a scenario's text files, which `read_file_list` reads."""
        text = json.dumps({"source": source, "names": names}, indent=1, ensure_ascii=False) + "\n"
        self.add_file(f"{FILE_LISTS}/{scenario}.json", source).write_text(text, encoding="utf-8")

    def commit(self) -> Manifest:
        """Move the staged files into the bundle, and return the new manifest.

        The manifest also lists the files and data sets that the bundle had before. If this process
        is killed, the next command finishes the change.

        Raises:
            PrerequisiteError: a staged path clashes with a path of the bundle, or a folder cannot
                be written to.
        """
        old_manifest = Manifest()
        if (self.root / MANIFEST).is_file():
            old_manifest = read_manifest(self.root)
        files = old_manifest.file_by_path()
        # dict from (id, configuration) to the entry
        hub = {(entry.id, entry.config): entry for entry in old_manifest.hub}
        date = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        for entry in self.hub:
            old = hub.get((entry.id, entry.config))
            # The files of the old entry are removed: if the cache has two revisions of a data set,
            # `load_dataset` might read either.
            if old is not None:
                for name in list(files):
                    if name.startswith(f"{old.folder}/"):
                        del files[name]
            hub[(entry.id, entry.config)] = entry
        for name, source in sorted(self.source_of.items()):
            path = self.folder / name
            new = FileEntry(
                path=name,
                size=path.stat().st_size,
                sha256=sha256_of(path),
                source=source,
                date=date,
            )
            before = files.get(name)
            # A file that did not change keeps its entry, with the earlier date.
            if before is None or new.model_copy(update={"date": before.date}) != before:
                files[name] = new
        try:
            new_manifest = Manifest(hub=list(hub.values()), files=list(files.values()))
        except ValidationError as error:
            message = error.errors(include_url=False, include_input=False)[0]["msg"]
            # pydantic puts these words before the message of a ValueError.
            problem = message.removeprefix("Value error, ")
            raise PrerequisiteError(
                f"{self.root}: cannot contain the new files: {problem}; nothing was changed"
            ) from None
        tasks = tasks_with_all_data(new_manifest, self.root, self.sources, staged=self.folder)
        manifest = new_manifest.model_copy(update={"tasks": tasks})
        self.commit_as(manifest, manifest.text())
        return manifest

    def commit_as(self, manifest: Manifest, text: str) -> None:
        """Move the staged files into the bundle, with a manifest that already exists.

        Args:
            manifest: the manifest.
            text: the text of the manifest's file, which is written unchanged.

        Raises:
            PrerequisiteError: a staged path clashes with a path of the bundle, or a folder cannot
                be written to.
        """
        root = self.root
        names = []
        for name in manifest.file_by_path():
            if (self.folder / name).exists():
                names.append(name)
        for name in names:
            if (root / name).is_dir() and not (root / name).is_symlink():
                raise PrerequisiteError(
                    f"{root / name}: is a folder, but the bundle needs a file there; "
                    "nothing was changed"
                )
        folders = {root}  # the folders to which files are moved, and the folders above them
        for name in names:
            folders.update(folders_between(root, name))
        for folder in sorted(folders):
            if folder != root and folder.is_symlink():
                raise PrerequisiteError(
                    f"{folder}: is a link, and a bundle must not have links; nothing was changed"
                )
            if folder.exists() and not (folder.is_dir() and os.access(folder, os.W_OK | os.X_OK)):
                raise PrerequisiteError(f"{folder}: cannot be written to; nothing was changed")
        write_atomic(self._workspace / MANIFEST, text)
        # After this rename, the change is committed: any later command finishes it.
        self._workspace.replace(root / COMMIT)
        try:
            _finish(root)
        except KeyboardInterrupt:  # finish the change before the command ends
            _finish(root)
            raise
        self._begin()

    def discard(self) -> None:
        """Delete the staged files, and begin with an empty folder."""
        self.close()
        self._begin()

    def close(self) -> None:
        """Delete the staged files."""
        shutil.rmtree(self._workspace, ignore_errors=True)


def _finish(root: Path) -> None:
    """Finish a commit that was interrupted at any point.

    This call may be interrupted, too; the next call then finishes the commit.

    The manifest is moved last: if the commit's folder has none, all files were moved already.

    Raises:
        PrerequisiteError: a file cannot be moved; a later call continues at this file.
    """
    commit = root / COMMIT
    try:
        if (commit / MANIFEST).is_file():
            manifest = read_manifest(commit)
            before = read_manifest(root) if (root / MANIFEST).is_file() else Manifest()
            for name in manifest.file_by_path():
                # An earlier, interrupted call may have moved the file.
                if (commit / FILES / name).is_file():
                    (root / name).parent.mkdir(parents=True, exist_ok=True)
                    (commit / FILES / name).replace(root / name)
            listed = manifest.file_by_path().keys()
            # Data sets that the new manifest no longer lists are deleted.
            for entry in before.hub:
                in_use = any(path.startswith(f"{entry.folder}/") for path in listed)
                if not in_use and (root / entry.folder).is_dir():
                    shutil.rmtree(root / entry.folder)
            for name in before.file_by_path().keys() - listed:
                (root / name).unlink(missing_ok=True)
            (commit / MANIFEST).replace(root / MANIFEST)
        shutil.rmtree(commit)
    except OSError as error:
        raise PrerequisiteError(
            f"{root}: a change is not finished: {error.filename}: {error.strerror or error}\n"
            f"  correct this problem, then finish the change: eval-factory data verify {root}"
        ) from error


def finish_interrupted_change(root: Path) -> None:
    """Finish an interrupted change, and delete staging folders that killed commands have left.

    Without an interrupted change, the folders stay if another process is changing the bundle, or if
    the bundle cannot be written to.

    Raises:
        BusyError: there is an interrupted change, and another process is changing the bundle.
        PrerequisiteError: an interrupted change cannot be finished.
    """
    from filelock import FileLock, Timeout

    unfinished = has_unfinished_change(root)
    is_bundle = unfinished or (root / MANIFEST).is_file()
    if not is_bundle or not _leftovers(root):
        return
    try:
        with FileLock(root / LOCK, mode=PRIVATE).acquire(timeout=0):
            _recover(root)
    except Timeout:
        if unfinished:
            raise BusyError(f"{root}: another process is changing this data bundle") from None
    except OSError as error:
        if unfinished:
            raise PrerequisiteError(
                f"{root}: a change was interrupted, and cannot be finished: {error}"
            ) from None


def has_unfinished_change(root: Path) -> bool:
    """Return True if a committed change is not finished.

    Some files of the bundle may be new already, while the manifest is still old.
    """
    return (root / COMMIT / MANIFEST).is_file()


def _leftovers(root: Path) -> list[Path]:
    """Return the existing folders of unfinished changes."""
    return [*root.glob(COMMIT), *root.glob(f"{STAGING_PREFIX}*")]


def _recover(root: Path) -> None:
    """Finish a committed change, and delete the folders of other unfinished changes."""
    if (root / COMMIT).exists():
        _finish(root)
    for folder in _leftovers(root):
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def open_staging(root: Path, sources: Sources) -> Iterator[Staging]:
    """Lock a bundle, or create one, and provide a staging folder during the `with` block.

    Files that were not committed are deleted at the end of the block.

    Raises:
        ConfigError: the folder contains files, but is not a bundle.
        BusyError: another process is changing the bundle.
        PrerequisiteError: the folder cannot be written to.
    """
    from filelock import FileLock, Timeout

    try:
        new_folders = []  # the folders that do not exist yet, innermost first
        for folder in (root, *root.parents):
            if not folder.exists():
                new_folders.append(folder)
        if root.exists() and not root.is_dir():
            raise ConfigError(f"{root}: is not a folder")
        if root.is_dir() and not (root / MANIFEST).is_file() and not has_unfinished_change(root):
            for name in files_under(root):
                if name != LOCK and not name.startswith(STAGING_PREFIX):
                    problem = f"is neither empty nor a data bundle (it holds {printable(name)})"
                    raise ConfigError(f"{root}: {problem}; name another folder")
        root.mkdir(parents=True, exist_ok=True)
        lock = FileLock(root / LOCK, mode=PRIVATE)
        lock.acquire(timeout=0)
    except Timeout:
        raise BusyError(f"{root}: another process is changing this data bundle") from None
    except OSError as error:
        raise PrerequisiteError(
            f"{root}: cannot be written to: {error.strerror or error}"
        ) from error
    try:
        _recover(root)
        stage = Staging(root, sources)
        try:
            yield stage
        finally:
            stage.close()
    finally:
        lock.release()
        # Nothing was committed into a new bundle: the lock file and the new folders are deleted.
        if not (root / MANIFEST).exists() and not (root / COMMIT).exists():
            (root / LOCK).unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # stop at the first folder that is not empty
                for folder in new_folders:
                    folder.rmdir()
