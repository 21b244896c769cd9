"""`manifest.json`: every file of a bundle with its hash and where it came from."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError

from eval_factory import __version__
from eval_factory.data.sources import RelativePath, Sha256
from eval_factory.errors import PrerequisiteError
from eval_factory.rundir import sha256_of, write_atomic

MANIFEST = "manifest.json"
LOCK = ".lock"
STAGING_PREFIX = ".staging-"
OURS = (MANIFEST, LOCK)
"""Names at the top of a bundle that the manifest does not list."""


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class FileEntry(_Strict):
    """One file. `source`: a URL, `hub:<id>@<revision>`, or `import:<folder name>`."""

    path: RelativePath
    size: Annotated[int, Field(ge=0, strict=True)]
    sha256: Sha256
    source: str
    date: str


class HubEntry(_Strict):
    """A prepared Hugging Face data set; `revision` is None where nobody knows it (imported data)."""

    id: RelativePath
    config: str | None
    revision: str | None
    folder: RelativePath
    source: str


def _different(files: list[FileEntry]) -> list[FileEntry]:
    names = [file.path.casefold() for file in files]
    if len(set(names)) != len(names):
        raise ValueError("two files have the same path")
    if any(file.path.split("/")[0] in OURS for file in files):
        raise ValueError("it lists itself")
    return files


class Manifest(_Strict):
    """What a bundle holds."""

    format: Literal[1] = 1
    made_by: str = f"eval-factory {__version__}"
    tasks: list[str] = []
    hub: list[HubEntry] = []
    files: Annotated[list[FileEntry], AfterValidator(_different)] = []

    def paths(self) -> dict[str, FileEntry]:
        return {file.path: file for file in self.files}

    def hub_entry(self, dataset: str, config: str | None) -> HubEntry | None:
        return next((entry for entry in self.hub if (entry.id, entry.config) == (dataset, config)), None)

    def text(self) -> str:
        """As it stands in the file: sorted, so that equal bundles have equal manifests."""
        document = self.model_dump(mode="json")
        document["files"].sort(key=lambda file: file["path"])
        document["hub"].sort(key=lambda entry: (entry["id"], entry["config"] or ""))
        document["tasks"].sort()
        return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


def parse_manifest(text: str | bytes, where: str) -> Manifest:
    """
    Raises:
        PrerequisiteError: it is no manifest, or one of another format.
    """
    try:
        return Manifest.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(str(part) for part in first["loc"])
        raise PrerequisiteError(f"{where}: is no manifest of a data bundle: {place}: {first['msg']}") from None


def read_manifest(root: Path) -> Manifest:
    """
    Raises:
        PrerequisiteError: there is none, or it cannot be read.
    """
    path = root / MANIFEST
    try:
        text = path.read_bytes()
    except OSError as error:
        raise PrerequisiteError(
            f"{root}: is no data bundle: {MANIFEST}: {error.strerror or error}\n"
            f"  make one: eval-factory data pull TASK --to {root} (or data import, data unpack)"
        ) from None
    return parse_manifest(text, str(path))


def write_manifest(root: Path, manifest: Manifest) -> None:
    write_atomic(root / MANIFEST, manifest.text())


def manifest_sha256(root: Path) -> str:
    return sha256_of(root / MANIFEST)


def now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


@dataclass(frozen=True)
class Differences:
    """How a folder differs from its manifest."""

    missing: tuple[str, ...] = ()
    altered: tuple[str, ...] = ()
    extra: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.missing or self.altered or self.extra)

    def lines(self) -> list[str]:
        kinds = (("missing", self.missing), ("altered", self.altered), ("extra", self.extra))
        return [f"{kind}: {path}" for kind, paths in kinds for path in paths]


def files_under(root: Path) -> Iterator[str]:
    """Relative paths of all that is no folder, links included, which are not followed."""
    for folder, folders, files in os.walk(root):
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in (*files, *linked):
            yield (Path(folder) / name).relative_to(root).as_posix()


def compare(root: Path, manifest: Manifest, *, only: Iterable[str] | None = None) -> Differences:
    """Hash the files and compare. `only`: look at these paths, and not for extra ones.

    A link in a file's place counts as altered: a bundle has none.
    """
    listed = manifest.paths()
    wanted = sorted(listed) if only is None else sorted(set(only) & set(listed))
    missing, altered = [], []
    for name in wanted:
        path, entry = root / name, listed[name]
        if not path.is_symlink() and not path.exists():
            missing.append(name)
        elif _through_link(root, path) or not _is_as_listed(path, entry):
            altered.append(name)
    extra: list[str] = []
    if only is None:
        extra = sorted(name for name in files_under(root) if name not in listed and name not in OURS)
    return Differences(tuple(missing), tuple(altered), tuple(extra))


def _is_as_listed(path: Path, entry: FileEntry) -> bool:
    return path.is_file() and path.stat().st_size == entry.size and sha256_of(path) == entry.sha256


def _through_link(root: Path, path: Path) -> bool:
    while path != root:
        if path.is_symlink():
            return True
        path = path.parent
    return False
