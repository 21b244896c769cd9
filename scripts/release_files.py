#!/usr/bin/env python3
"""Writes the files of a release next to its wheel and sdist: a lock, an SBOM, and SHA256SUMS.

The lock is requirements.lock and a line for the wheel, so that one command installs the wheel and
its packages. The SBOM lists the packages of the lock in the form CycloneDX 1.6, and is checked by
its schema. It names packages by their purl (package URL), without the address of an index. The same
commit gives the same files. Needs cyclonedx-python-lib (.venv-release).

Usage: release_files.py FOLDER
FOLDER contains the wheel and the sdist that check_release.py built.
"""

from __future__ import annotations

import hashlib
import re
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path

from cyclonedx.model import ExternalReference, ExternalReferenceType, HashAlgorithm, HashType, XsUri
from cyclonedx.model.bom import Bom
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.model.license import DisjunctiveLicense
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

ROOT = Path(__file__).resolve().parents[1]
NAME = "eval-factory-helm"


def component(name: str, version: str, hashes: list[str], **more: object) -> Component:
    """Return the SBOM's entry of a package.

    Args:
        name: the name of the package.
        version: its version.
        hashes: the SHA-256 of each file of this version that may be installed.
        more: further fields of the entry.
    """
    purl = PackageURL("pypi", name=name, version=version)
    typed_hashes = [HashType(alg=HashAlgorithm.SHA_256, content=sha256) for sha256 in hashes]
    files = ExternalReference(
        type=ExternalReferenceType.DISTRIBUTION, url=XsUri(str(purl)), hashes=typed_hashes
    )
    return Component(
        name=name,
        version=version,
        purl=purl,
        bom_ref=str(purl),
        external_references=[files],
        **more,
    )


def locked(lock: str) -> Iterator[Component]:
    """Yield the entry of each package in a lock.

    A package that only some systems or versions of Python need is optional.
    """
    for package in re.split(r"\n(?=\w)", lock):
        head = package.partition("\n")[0]  # such as: numpy==2.1.0 ; python_version < "3.13"
        name, version = re.findall(r"[^\s=;]+", head)[:2]
        has_condition = ";" in head
        scope = ComponentScope.OPTIONAL if has_condition else ComponentScope.REQUIRED
        yield component(name, version, re.findall(r"sha256:(\w+)", package), scope=scope)


def bill(version: str, lock: str, digest: str, made: datetime) -> str:
    """Return the SBOM as JSON.

    Args:
        version: the version of the release.
        lock: the text of requirements.lock.
        digest: the SHA-256 of the wheel.
        made: the time of the release's commit.

    Raises:
        ValueError: the SBOM does not follow CycloneDX's schema.
    """
    licence = DisjunctiveLicense(id="Apache-2.0")
    root = component(NAME, version, [digest], type=ComponentType.APPLICATION, licenses=[licence])
    bom = Bom(components=locked(lock), serial_number=uuid.uuid5(uuid.NAMESPACE_OID, digest + lock))
    bom.metadata.component = root
    bom.metadata.timestamp = made
    bom.register_dependency(root, bom.components)
    text: str = JsonV1Dot6(bom).output_as_string(indent=1)
    if error := JsonStrictValidator(SchemaVersion.V1_6).validate_str(text):
        raise ValueError(f"the SBOM: {error}")
    return text + "\n"


def main() -> None:
    folder = Path(sys.argv[1])
    (wheel,) = folder.glob("*.whl")
    version = wheel.name.split("-")[1]
    digest = hashlib.sha256(wheel.read_bytes()).hexdigest()
    lock = (ROOT / "requirements.lock").read_text("utf-8")
    committed = ["git", "log", "-1", "--format=%ct"]
    seconds = int(subprocess.run(committed, cwd=ROOT, check=True, capture_output=True).stdout)
    made = datetime.fromtimestamp(seconds, timezone.utc)
    line_of_wheel = f"{NAME}=={version} \\\n    --hash=sha256:{digest}\n"
    (folder / f"{NAME}-{version}.lock").write_text(lock + line_of_wheel, "utf-8")
    (folder / f"{NAME}-{version}.cdx.json").write_text(bill(version, lock, digest, made), "utf-8")
    listed = ["sha256sum", "--", *sorted(file.name for file in folder.iterdir())]
    sums = subprocess.run(listed, cwd=folder, check=True, capture_output=True).stdout
    (folder / "SHA256SUMS").write_bytes(sums)


if __name__ == "__main__":
    main()
