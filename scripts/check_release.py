#!/usr/bin/env python3
"""Builds sdist and wheel into a folder, and checks them as an index and its users would.

The checks: the metadata follow the standard, and contain a description for the index's page; the
wheel contains all files of the package and nothing else; the sdist builds the same wheel.

Usage: check_release.py FOLDER
FOLDER must be empty; it is made if it does not exist.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from pathlib import Path

from packaging.errors import ExceptionGroup
from packaging.metadata import Metadata

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = "eval_factory"


def built(project: Path, target: str, folder: Path) -> Path:
    """Build a project with hatchling, and return the built file; `target`: `wheel` or `sdist`."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", target, "-d", str(folder)]
    subprocess.run(command, cwd=project, check=True, stdout=subprocess.DEVNULL)
    (file,) = folder.glob("*.whl" if target == "wheel" else "*.tar.gz")
    return file


def metadata_problems(text: bytes) -> list[str]:
    """Return the problems that an index would have with a METADATA or a PKG-INFO."""
    try:
        metadata = Metadata.from_email(text)
    except ExceptionGroup as group:
        return [f"metadata: {error}" for error in group.exceptions]
    if metadata.description_content_type != "text/markdown" or not metadata.description:
        return ["metadata: no description in Markdown"]
    # links without a scheme, such as "](docs/tasks.md)"
    links = re.findall(r"\]\((?!\w+:|#)[^)\s]+\)", metadata.description)
    return [f"metadata: a link that leads nowhere on an index: {link}" for link in links]


def content_problems(names: set[str], expected: set[str]) -> list[str]:
    """Return a problem for each missing file of a wheel, and for each file that is not expected.

    Args:
        names: the names of the wheel's files. The wheel's own metadata are always expected.
        expected: the names of the package's files.
    """
    further = {name for name in names - expected if not name.split("/")[0].endswith(".dist-info")}
    lacks = [f"the wheel lacks {name}" for name in sorted(expected - names)]
    return lacks + [f"the wheel holds {name}, too" for name in sorted(further)]


def expected_files(project: Path) -> set[str]:
    """Return the names of the package's files in a wheel."""
    source = project / "src"
    files = (
        path
        for path in (source / PACKAGE).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    )
    return {path.relative_to(source).as_posix() for path in files} | {f"{PACKAGE}/framework.yml"}


def contents(wheel: Path) -> dict[str, int]:
    """Return the checksum of each file's content, by the file's name in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return {entry.filename: entry.CRC for entry in archive.infolist()}


def problems(project: Path, folder: Path) -> list[str]:
    """Build sdist and wheel of a project into a folder, and return their problems."""
    wheel = built(project, "wheel", folder)
    sdist = built(project, "sdist", folder)
    files = contents(wheel)
    found = content_problems(set(files), expected_files(project))
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in files if name.endswith(".dist-info/METADATA"))
        found += metadata_problems(archive.read(name))
    with tempfile.TemporaryDirectory() as scratch:
        with tarfile.open(sdist) as packed:
            packed.extractall(scratch, filter="data")
        (unpacked,) = Path(scratch).iterdir()
        found += metadata_problems((unpacked / "PKG-INFO").read_bytes())
        again = contents(built(unpacked, "wheel", Path(scratch) / "again"))
    differ = sorted(name for name in {*files, *again} if files.get(name) != again.get(name))
    return found + [f"the sdist's wheel differs in {name}" for name in differ]


def main() -> int:
    folder = Path(sys.argv[1])
    if any(folder.glob("*")):
        print(
            f"{folder} is not empty: what is in it could be taken for what is built now",
            file=sys.stderr,
        )
        return 2
    found = problems(ROOT, folder)
    print("\n".join(found) or f"sound: {', '.join(sorted(path.name for path in folder.glob('*')))}")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
