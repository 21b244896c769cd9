from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from eval_factory.data.importing import import_folder
from unit.data.invented import Origin, folder_to_import, sources


@pytest.fixture
def origin() -> Iterator[Origin]:
    with Origin() as server:
        yield server


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    """A bundle of invented data, without a data set of the Hub."""
    given = folder_to_import(tmp_path / "given")
    sums = (given / "SHA256SUMS").read_text().splitlines(keepends=True)
    for path in sorted((given / "hub").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    (given / "hub").rmdir()
    (given / "SHA256SUMS").write_text("".join(line for line in sums if " hub/" not in line))
    import_folder(given, tmp_path / "bundle", sources(), lambda _line: None)
    return tmp_path / "bundle"
