"""Packs a data bundle into a tar.gz archive, and unpacks an archive (`data pack`, `data unpack`).

An archive can be carried to a machine without network. An archive from elsewhere is checked
completely before any of its files is written.
"""

from __future__ import annotations

import contextlib
import fcntl
import gzip
import io
import os
import shutil
import tarfile
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, NamedTuple

from eval_factory.core.errors import BusyError, ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import printable
from eval_factory.data import bundle
from eval_factory.data.bundle_changes import (
    finish_interrupted_change,
    has_unfinished_change,
    open_staging,
)
from eval_factory.data.sources import Sources, relative_path

SUFFIXES = (".tar.gz", ".tgz")
DEFAULT_MAX_BYTES = 20 << 30  # the maximum size of all unpacked files together: 20 GiB, in bytes
MAX_MANIFEST_SIZE = 64 << 20  # 64 MiB, in bytes
MAX_FILES = 100_000  # the maximum number of files in an archive
PAX_HEADERS = {"path", "size"}
"""The fields of extended headers that `pack` may write.

They are needed for names that are long or not ASCII, and for files of 8 GiB or more.
"""
_MAX_READ_SIZE = 1 << 20
"""The maximum number of bytes that are read at once.

The tarfile module reads more at once only for a header that states a larger size for itself. Such
an archive is refused, because the header could fill the memory.
"""
_COPY_BLOCK_SIZE = 1 << 18  # the number of bytes of a file that are copied at once


def pack(root: Path, target: Path) -> int:
    """Write a bundle into an archive; return the size of the archive in bytes.

    Equal bundles give archives with equal bytes.

    Args:
        root: the folder of the bundle.
        target: the path of the archive.

    Raises:
        ConfigError: the name of the archive does not end with a suffix of `SUFFIXES`, or the
            archive is inside of the bundle, or is a folder.
        BusyError: another process is writing this archive, or is changing the bundle.
        PrerequisiteError: the bundle does not match its manifest, or cannot be read.
    """
    _check_name(target)
    bundle.refuse_inside_bundle(root, target, described_as="an archive")
    if target.is_dir():
        raise ConfigError(f"{target}: is a folder; name a file")
    finish_interrupted_change(root)
    manifest = bundle.read_manifest(root)
    differences = bundle.compare_files(root, manifest)
    if differences:
        raise PrerequisiteError(_not_as_listed(root, differences.lines(), "nothing was packed"))
    names = [bundle.MANIFEST, *sorted(manifest.file_by_path())]
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f".{target.name}.part")
    with _opened_exclusively(partial, target) as raw:
        try:
            with (
                # without a name and a time, so that equal bundles give equal bytes
                gzip.GzipFile(
                    filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6
                ) as zipped,
                tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
            ):
                for name in names:
                    info = tarfile.TarInfo(name)
                    with (root / name).open("rb") as file:
                        info.size = os.fstat(file.fileno()).st_size
                        info.mode = 0o644
                        archive.addfile(info, file)
            # The archive is on the disk before it gets its name, also after a power failure.
            raw.flush()
            os.fsync(raw.fileno())
            partial.replace(target)
        except BaseException:
            partial.unlink(missing_ok=True)
            raise
    return target.stat().st_size


@contextmanager
def _opened_exclusively(partial: Path, target: Path) -> Iterator[IO[bytes]]:
    """Open the file `partial` for this process only, and empty it.

    A file that a killed process has left is overwritten.

    Raises:
        BusyError: another process is writing the archive `target`.
    """
    # The file is emptied only after it is locked: another process may be writing it.
    with os.fdopen(os.open(partial, os.O_RDWR | os.O_CREAT, 0o644), "wb") as raw:
        try:
            fcntl.flock(raw, fcntl.LOCK_EX | fcntl.LOCK_NB)
            # Another process may have renamed the file to `target` before this process had the
            # lock. The path then leads to another file, or to no file.
            is_exclusive = partial.stat().st_ino == os.fstat(raw.fileno()).st_ino
        except (BlockingIOError, FileNotFoundError):
            is_exclusive = False
        if not is_exclusive:
            raise BusyError(f"{target}: another process is packing into it")
        raw.truncate(0)
        yield raw


def unpack(
    archive_path: Path, root: Path, sources: Sources, *, max_bytes: int = DEFAULT_MAX_BYTES
) -> bundle.Manifest:
    """Unpack an archive into the new bundle `root`.

    The archive is checked, unpacked into a staging folder, verified against its manifest, and then
    moved.

    Args:
        archive_path: the path of the archive.
        root: the folder of the new bundle.
        sources: the table of sources.
        max_bytes: the maximum size of all unpacked files together, in bytes.

    Returns:
        The manifest; its `tasks` are those that were found complete, not those that the archive
        claims.

    Raises:
        ConfigError: `root` is not empty, or `archive_path` is not an archive.
        BusyError: another process is writing to `root`.
        PrerequisiteError: the archive is damaged, or contains something that a bundle cannot have.
            Nothing was unpacked.
    """
    _check_name(archive_path)
    if not archive_path.is_file():
        raise ConfigError(f"{archive_path}: is not a file")
    not_empty = ConfigError(f"{root}: already exists and is not empty; name another folder")
    # A folder with files but without a manifest is refused by `open_staging` below.
    if (root / bundle.MANIFEST).exists() and not has_unfinished_change(root):
        raise not_empty
    checked = _checked_manifest(archive_path, max_bytes)
    manifest = checked.manifest
    with open_staging(root, sources) as stage:
        # If an earlier command was interrupted while it moved its files to `root`, `open_staging`
        # has moved the rest. If these are the files of another archive, `root` is not empty.
        manifest_file = root / bundle.MANIFEST
        if manifest_file.exists() and manifest_file.read_bytes() != checked.manifest_bytes:
            raise not_empty
        needed = checked.total_size
        free = shutil.disk_usage(root).free
        if free < needed:
            raise PrerequisiteError(f"{root}: {needed} bytes are needed and {free} are free")
        _unpack_members(archive_path, manifest, stage.folder, max_bytes)
        differences = bundle.compare_files(stage.folder, manifest)
        if differences:
            raise PrerequisiteError(
                _not_as_listed(archive_path, differences.lines(), "nothing was unpacked")
            )
        tasks = sorted(bundle.tasks_with_all_data(manifest, stage.folder, sources))
        stage.commit_as(manifest, checked.manifest_bytes.decode())
    return manifest.model_copy(update={"tasks": tasks})


def _unpack_members(
    archive_path: Path, manifest: bundle.Manifest, folder: Path, max_bytes: int
) -> None:
    """Unpack the files of the manifest into the folder.

    Raises:
        PrerequisiteError: the archive was changed after `_checked_manifest` had checked it.
    """
    not_unpacked = set(manifest.file_by_path())
    # `_members` checks each member a second time, because the archive may have changed.
    with contextlib.closing(_members(archive_path, max_bytes)) as members:
        next(members, None)  # skip the manifest
        for archive, member in members:
            if member.name not in not_unpacked:
                raise PrerequisiteError(
                    f"{archive_path}: was changed while it was read; nothing was unpacked"
                )
            not_unpacked.remove(member.name)
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:  # `x`: raise an error if the file exists
                _copy(archive_path, archive, member, out)


class _Bounded:
    """A decompressed archive that refuses to read beyond a limit, or a very large block at once."""

    def __init__(self, file: gzip.GzipFile, max_bytes: int) -> None:
        self._file = file
        self._max_bytes = max_bytes

    def read(self, size: int = -1) -> bytes:
        """Read `size` bytes; raise ReadError beyond the limit, or if `size` is too large."""
        if size < 0 or size > _MAX_READ_SIZE:  # a negative size means: all bytes
            raise tarfile.ReadError("a header is larger than the headers of packed bundles")
        if self._file.tell() > self._max_bytes:
            raise tarfile.ReadError(f"the archive unpacks to more than {self._max_bytes} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        """Move to a position; raise ReadError beyond the limit."""
        if whence == 0 and offset > self._max_bytes:
            raise tarfile.ReadError(f"the archive unpacks to more than {self._max_bytes} bytes")
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        """Return the position in the decompressed archive."""
        return self._file.tell()


def _members(
    archive_path: Path, max_bytes: int
) -> Generator[tuple[tarfile.TarFile, tarfile.TarInfo]]:
    """Yield (opened archive, file) for each file of an archive.

    Callers close this generator, which closes the archive.

    Raises:
        PrerequisiteError: the file is not an archive, contains something else than plain files at
            relative paths, or unpacks to more than `max_bytes` bytes.
    """
    total = 0
    with gzip.open(archive_path, "rb") as zipped, _damage_reported(archive_path):
        # The archive also has headers. 4 MiB plus an eighth of `max_bytes` are allowed for them.
        max_size_of_headers = (4 << 20) + max_bytes // 8
        bounded: Any = _Bounded(zipped, max_bytes + max_size_of_headers)
        # `r:` is the mode for a tar file without compression: `zipped` has decompressed it already.
        # The `with` statement above closes the file.
        archive = tarfile.open(fileobj=bounded, mode="r:")  # noqa: SIM115
        while (member := archive.next()) is not None:
            # tarfile keeps a list of all members, which could fill the memory.
            archive.members.clear()  # type: ignore[attr-defined]
            total += member.size
            problem = _problem_of(archive, member)
            if problem is None and total > max_bytes:
                problem = f"unpacks to more than {max_bytes} bytes (--max_bytes raises the limit)"
            if problem is not None:
                raise PrerequisiteError(f"{archive_path}: {problem}; nothing was unpacked")
            yield archive, member


@contextmanager
def _damage_reported(archive_path: Path) -> Iterator[None]:
    """Turn the errors that libraries raise for a damaged or hostile archive into PrerequisiteError.

    Errors of the disk are raised unchanged.
    """
    try:
        yield
    except PrerequisiteError:
        raise
    except Exception as error:  # the kinds of errors differ between versions of the libraries
        if isinstance(error, OSError) and error.errno is not None:
            raise  # an error of the disk
        reason = printable(str(error)) or type(error).__name__
        raise PrerequisiteError(
            f"{archive_path}: is damaged, or not a tar.gz file: {reason}; nothing was unpacked"
        ) from None


def _problem_of(archive: tarfile.TarFile, member: tarfile.TarInfo) -> str | None:
    """Return why a member of the archive is refused; None if it is accepted.

    A packed bundle has only plain files, and no folders.
    """
    if member.issym() or member.islnk():
        return f"holds a link: {member.name!r}"
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
        return f"holds something that is not a plain file: {member.name!r}"
    # An archive may have extended headers for one member, and for all members.
    unknown = sorted({*member.pax_headers, *archive.pax_headers} - PAX_HEADERS)
    if unknown:
        return f"holds a header that no packed bundle has: {unknown[0]!r}"
    try:
        relative_path(member.name)
    except ValueError as error:
        return f"holds a path that leads elsewhere: {error}"
    return None


class _CheckedManifest(NamedTuple):
    """The manifest of an archive whose members match it."""

    manifest: bundle.Manifest
    manifest_bytes: bytes  # the content of the manifest's file
    total_size: int  # the size of all unpacked files together, in bytes


def _checked_manifest(archive_path: Path, max_bytes: int) -> _CheckedManifest:
    """Check that the members of an archive match its manifest, without unpacking them.

    Raises:
        PrerequisiteError: the archive has no manifest, or the names or sizes of its members differ
            from the manifest.
    """
    with contextlib.closing(_members(archive_path, max_bytes)) as members:
        # `pack` writes the manifest first
        archive, member = next(members, (None, None))
        if archive is None or member is None:
            raise PrerequisiteError(f"{archive_path}: holds nothing")
        if member.name != bundle.MANIFEST:
            raise PrerequisiteError(
                f"{archive_path}: does not begin with {bundle.MANIFEST}: "
                "it is not a packed data bundle"
            )
        if member.size > MAX_MANIFEST_SIZE:
            raise PrerequisiteError(
                f"{archive_path}: its {bundle.MANIFEST} is too large; nothing was unpacked"
            )
        buffer = io.BytesIO()
        _copy(archive_path, archive, member, buffer)
        manifest_bytes = buffer.getvalue()
        manifest = bundle.parse_manifest(manifest_bytes, f"{archive_path}: {bundle.MANIFEST}")
        if len(manifest.files) > MAX_FILES:
            raise PrerequisiteError(
                f"{archive_path}: lists more than {MAX_FILES} files; nothing was unpacked"
            )
        sizes = {file.path: file.size for file in manifest.files}
        for _, member in members:
            # `pop` removes the entry, so that a second member of the same name is not found.
            if sizes.pop(member.name, None) != member.size:
                raise PrerequisiteError(
                    f"{archive_path}: {member.name!r} is not in the manifest, has another size, "
                    "or occurs twice; nothing was unpacked"
                )
    if sizes:
        missing = [f"missing: {printable(name)}" for name in sizes]
        raise PrerequisiteError(_not_as_listed(archive_path, missing, "nothing was unpacked"))
    total_size = len(manifest_bytes) + sum(file.size for file in manifest.files)
    return _CheckedManifest(manifest, manifest_bytes, total_size)


def _copy(
    archive_path: Path, archive: tarfile.TarFile, member: tarfile.TarInfo, out: IO[bytes]
) -> None:
    """Copy the content of a member to `out`. `archive_path` is only for error messages."""
    with _damage_reported(archive_path):
        file = archive.extractfile(member)
        if file is None:  # never true: `_problem_of` refuses members without content
            return
        while block := file.read(_COPY_BLOCK_SIZE):
            out.write(block)


def _check_name(path: Path) -> None:
    """Raise ConfigError if the name of the archive has no known suffix."""
    if not path.name.endswith(SUFFIXES):
        raise ConfigError(f"{path}: an archive's name ends with {' or '.join(SUFFIXES)}")


def _not_as_listed(path: Path, lines: list[str], consequence: str) -> str:
    """Return the message that a bundle or an archive differs from its manifest."""
    return f"{path}: differs from its manifest; {consequence}\n{bundle.first_lines(lines)}"
