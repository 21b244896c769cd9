"""`manifest.json`: every file of a bundle with its hash and where it came from."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from pydantic import AfterValidator, Field, ValidationError

from eval_factory import __version__
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.foreign_text import printable
from eval_factory.core.rundir import sha256_of
from eval_factory.core.strict_model import StrictModel
from eval_factory.data.sources import RelativePath, Sha256, clashes, plain_text

MANIFEST = "manifest.json"
LOCK = ".lock"
STAGING_PREFIX = ".staging-"
COMMIT = ".commit"
"""A staging folder's name from the moment on that its files are the bundle's: `bundle.finish` moves them."""
PREPARED = "hf/datasets/"
"""Where data sets of the Hub are."""
OURS = (MANIFEST, LOCK, COMMIT)
"""Names at the top of a bundle that the manifest does not list."""


Plain = Annotated[str, AfterValidator(plain_text)]


class FileEntry(StrictModel):
    """One file. `source`: a URL, `hub:<id>@<revision>`, or `import:<folder name>`."""

    path: RelativePath
    size: Annotated[int, Field(ge=0, strict=True)]
    sha256: Sha256
    source: Plain
    date: Plain


def _prepared(folder: str) -> str:
    if not folder.startswith(PREPARED):
        raise ValueError(f"it is not in {PREPARED}")
    return folder


class HubEntry(StrictModel):
    """A prepared Hugging Face data set; `revision` is None where nobody knows it (imported data)."""

    id: RelativePath
    config: Plain | None
    revision: Plain | None
    folder: Annotated[RelativePath, AfterValidator(_prepared)]
    source: Plain


def is_ours(path: str) -> bool:
    """Whether it belongs to what keeps a bundle, or to a change of it that is not done."""
    top = path.split("/")[0]
    return top in OURS or top.startswith(STAGING_PREFIX)


def _different(files: list[FileEntry]) -> list[FileEntry]:
    problem = next(clashes(file.path for file in files), None)
    if problem is not None:
        raise ValueError(problem)
    if any(is_ours(file.path.casefold()) for file in files):
        raise ValueError("it lists itself")
    return files


class Manifest(StrictModel):
    """What a bundle holds."""

    format: Literal[1] = 1
    made_by: Plain = f"eval-factory {__version__}"
    tasks: list[Plain] = []
    """Complete ones, when it was written: what a manifest says, not what was found."""
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
        place = printable(".".join(str(part) for part in first["loc"]))[:200]
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
        hint = f"make one: eval-factory data pull TASK --to {root} (or data import, data unpack)"
        if (root / COMMIT).exists():
            hint = f"its making was interrupted; this finishes it: eval-factory data verify {root}"
        raise PrerequisiteError(f"{root}: is no data bundle: {MANIFEST}: {error.strerror or error}\n  {hint}") from None
    return parse_manifest(text, str(path))


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
        return [f"{kind}: {printable(path)}" for kind, paths in kinds for path in paths]


def files_under(root: Path) -> Iterator[str]:
    """Relative paths of all that is no folder, links included, which are not followed.

    Raises:
        PrerequisiteError: a folder cannot be read.
    """

    def unreadable(error: OSError) -> None:
        raise PrerequisiteError(f"{printable(str(error.filename))}: cannot be read: {error.strerror}")

    for folder, folders, files in os.walk(root, onerror=unreadable):
        linked = [name for name in folders if (Path(folder) / name).is_symlink()]
        for name in (*files, *linked):
            yield (Path(folder) / name).relative_to(root).as_posix()


def compare(root: Path, manifest: Manifest, *, only: Iterable[str] | None = None) -> Differences:
    """Hash the files and compare. `only`: look at these paths, and not for extra ones.

    A link in a file's place counts as altered: a bundle has none.

    Raises:
        PrerequisiteError: a file cannot be read.
    """
    listed = manifest.paths()
    wanted = sorted(listed) if only is None else sorted(set(only) & set(listed))
    missing, altered = [], []
    for name in wanted:
        path, entry = root / name, listed[name]
        try:
            path.lstat()
            if _through_link(root, path) or not _is_as_listed(path, entry):
                altered.append(name)
        except (FileNotFoundError, NotADirectoryError):
            missing.append(name)
        except OSError as error:
            raise PrerequisiteError(f"{path}: cannot be read: {error.strerror or error}") from None
    extra: list[str] = []
    if only is None:
        extra = sorted(name for name in files_under(root) if name not in listed and not is_ours(name))
    return Differences(tuple(missing), tuple(altered), tuple(extra))


def _is_as_listed(path: Path, entry: FileEntry) -> bool:
    return path.is_file() and path.stat().st_size == entry.size and sha256_of(path) == entry.sha256


def _through_link(root: Path, path: Path) -> bool:
    while path != root:
        if path.is_symlink():
            return True
        path = path.parent
    return False
