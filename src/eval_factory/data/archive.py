"""`data pack` and `unpack`: one tar.gz to carry across a firewall, looked through before anything of it is written."""

from __future__ import annotations

import gzip
import os
import shutil
import tarfile
import tempfile
import zlib
from pathlib import Path
from typing import IO, Any

from eval_factory.data.bundle import first_missing
from eval_factory.data.manifest import MANIFEST, Manifest, compare, parse_manifest, read_manifest
from eval_factory.data.sources import relative_path
from eval_factory.errors import ConfigError, PrerequisiteError

SUFFIXES = (".tar.gz", ".tgz")
DEFAULT_LIMIT = 20 << 30
"""Bytes that an archive may unpack to."""
LARGEST_MANIFEST = 64 << 20
MOST_MEMBERS = 1_000_000
_LARGEST_READ = 1 << 20
"""More than this tarfile asks for at once only where a header says so, to hold it in memory."""
SHOWN = 5


def pack(root: Path, target: Path) -> int:
    """Write a bundle into an archive; the same bundle gives the same bytes. Returns its size.

    Raises:
        ConfigError: the archive's name says another format.
        PrerequisiteError: the bundle is not what its manifest says.
    """
    _check_name(target)
    manifest = read_manifest(root)
    differences = compare(root, manifest)
    if differences:
        raise PrerequisiteError(_not_as_listed(root, differences.lines(), "nothing was packed"))
    names = [MANIFEST, *sorted(manifest.paths())]
    target.parent.mkdir(parents=True, exist_ok=True)
    descriptor, partial = tempfile.mkstemp(prefix=f".{target.name}.", suffix=".part", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as raw:
            with (
                gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0, compresslevel=6) as zipped,
                tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
            ):
                for name in names:
                    _add(archive, root, name)
            raw.flush()
            os.fsync(raw.fileno())
        Path(partial).chmod(0o644)
        Path(partial).replace(target)
    except BaseException:
        Path(partial).unlink(missing_ok=True)
        raise
    return target.stat().st_size


def _add(archive: tarfile.TarFile, root: Path, name: str) -> None:
    info = tarfile.TarInfo(name)
    with (root / name).open("rb") as file:
        info.size = os.fstat(file.fileno()).st_size
        info.mode = 0o644
        archive.addfile(info, file)


def unpack(source: Path, root: Path, *, limit: int = DEFAULT_LIMIT) -> Manifest:
    """Make the bundle `root` of an archive: looked through, unpacked beside, verified, then renamed.

    Raises:
        ConfigError: `root` is not empty, or `source` no such file.
        PrerequisiteError: the archive holds what a bundle has not, or is damaged; nothing is left of it.
    """
    _check_name(source)
    if not source.is_file():
        raise ConfigError(f"{source}: is no file")
    if root.exists() and (not root.is_dir() or any(root.iterdir())):
        raise ConfigError(f"{root}: is there already and not empty; name another folder")
    made = first_missing(root.parent)
    try:
        manifest, total = _looked_through(source, limit)
        root.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(root.parent).free
        if free < total:
            raise PrerequisiteError(f"{root}: {total} bytes are needed and {free} are free")
        folder = Path(tempfile.mkdtemp(prefix=f".{root.name}.", suffix=".part", dir=root.parent))
        try:
            _extract(source, folder, limit)
            differences = compare(folder, manifest)
            if differences:
                raise PrerequisiteError(_not_as_listed(source, differences.lines(), "nothing was unpacked"))
            folder.chmod(0o755)
            folder.replace(root)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        return manifest
    except (tarfile.TarError, EOFError, zlib.error, gzip.BadGzipFile) as error:
        raise PrerequisiteError(f"{source}: is damaged, or no tar.gz: {error}; nothing was unpacked") from None
    except BaseException:
        if made is not None and made.exists() and not root.exists():
            shutil.rmtree(made, ignore_errors=True)
        raise


class _Bounded:
    """A decompressed archive of which no more is read than a limit, and no large piece at once."""

    def __init__(self, file: IO[bytes], limit: int) -> None:
        self._file, self._limit = file, limit

    def read(self, size: int = -1) -> bytes:
        if size < 0 or size > _LARGEST_READ:
            raise tarfile.ReadError("a header is larger than any that is needed")
        if self._file.tell() > self._limit:
            raise tarfile.ReadError(f"it unpacks to more than {self._limit} bytes")
        return self._file.read(size)

    def seek(self, offset: int, whence: int = 0) -> int:
        if whence == 0 and offset > self._limit:
            raise tarfile.ReadError(f"it unpacks to more than {self._limit} bytes")
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _opened(zipped: Any, limit: int) -> tarfile.TarFile:
    overhead = 4096 * 1024 + limit // 8
    bounded: Any = _Bounded(zipped, limit + overhead)
    return tarfile.open(fileobj=bounded, mode="r:")


def _looked_through(source: Path, limit: int) -> tuple[Manifest, int]:
    """Every member is a plain file of the manifest, at a plain path, of the size that it says."""
    manifest: Manifest | None = None
    sizes: dict[str, int] = {}
    seen: set[str] = set()
    total = 0
    with gzip.open(source, "rb") as zipped, _opened(zipped, limit) as archive:
        for member in archive:
            total += member.size
            problem = _problem_of(member, seen)
            if problem is None and (total > limit or len(seen) > MOST_MEMBERS):
                problem = f"unpacks to more than {limit} bytes (--max_bytes raises the limit)"
            if problem is None and manifest is not None and sizes.get(member.name) != member.size:
                problem = f"{member.name!r} is not what the manifest lists"
            if problem is None and manifest is None and member.name != MANIFEST:
                problem = f"does not begin with {MANIFEST}: it is no packed data bundle"
            if problem is not None:
                raise PrerequisiteError(f"{source}: {problem}; nothing was unpacked")
            seen.add(member.name.casefold())
            if manifest is None:
                manifest = _manifest_in(archive, member, source)
                sizes = {file.path: file.size for file in manifest.files}
    if manifest is None:
        raise PrerequisiteError(f"{source}: holds nothing")
    missing = [f"missing: {name}" for name in sizes if name.casefold() not in seen]
    if missing:
        raise PrerequisiteError(_not_as_listed(source, missing, "nothing was unpacked"))
    return manifest, total


def _problem_of(member: tarfile.TarInfo, seen: set[str]) -> str | None:
    """Why a member is refused, whatever the manifest says. A packed bundle holds plain files only, no folders."""
    if member.issym() or member.islnk():
        return f"holds a link: {member.name!r}"
    if member.type not in (tarfile.REGTYPE, tarfile.AREGTYPE) or member.sparse is not None:
        return f"holds what is no plain file: {member.name!r}"
    try:
        relative_path(member.name)
    except ValueError as error:
        return f"holds a path that leads elsewhere: {error}"
    return f"holds {member.name!r} twice" if member.name.casefold() in seen else None


def _manifest_in(archive: tarfile.TarFile, member: tarfile.TarInfo, source: Path) -> Manifest:
    if member.size > LARGEST_MANIFEST:
        raise PrerequisiteError(f"{source}: its {MANIFEST} is too large; nothing was unpacked")
    file = archive.extractfile(member)
    parts = []
    while file is not None and (block := file.read(_LARGEST_READ // 4)):
        parts.append(block)
    return parse_manifest(b"".join(parts), f"{source}: {MANIFEST}")


def _extract(source: Path, folder: Path, limit: int) -> None:
    """What was looked through; the file may have been changed since, so Python's own filter looks as well."""
    with gzip.open(source, "rb") as zipped, _opened(zipped, limit) as archive:
        if hasattr(tarfile, "data_filter"):
            archive.extractall(folder, filter="data")
            return
        seen: set[str] = set()
        for member in archive:  # Python 3.10 before 3.10.12
            problem = _problem_of(member, seen)
            file = archive.extractfile(member) if problem is None else None
            if file is None:
                raise PrerequisiteError(f"{source}: {problem}; nothing was unpacked")
            target = folder / member.name
            target.parent.mkdir(parents=True, exist_ok=True)
            with target.open("xb") as out:
                shutil.copyfileobj(file, out)


def _check_name(path: Path) -> None:
    if not path.name.endswith(SUFFIXES):
        raise ConfigError(f"{path}: an archive's name ends with {' or '.join(SUFFIXES)}")


def _not_as_listed(where: Path, lines: list[str], consequence: str) -> str:
    shown = "\n".join(f"  {line}" for line in lines[:SHOWN])
    more = f"\n  and {len(lines) - SHOWN} more" if len(lines) > SHOWN else ""
    return f"{where}: differs from its manifest; {consequence}\n{shown}{more}"
