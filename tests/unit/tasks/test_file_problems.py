"""What is said of a file of the user's that cannot be read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from eval_factory.tasks.file_problems import other_kind

SHEET = "text; save it as 'CSV UTF-8' (a prompt: as plain text in UTF-8)"
UTF_8 = "UTF-8; save it as UTF-8 (or: iconv -f utf-16 -t utf-8)"


def put(folder: Path, content: bytes) -> Path:
    path = folder / "data.csv"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PK\x03\x04rest", f"is an Excel or Word file or another ZIP archive, not {SHEET}"),
        (b"\xd0\xcf\x11\xe0rest", f"is an Excel or Word file, not {SHEET}"),
        (b"PAR1rest", f"is a Parquet file, not {SHEET}"),
        (gzip.compress(b"a,b", mtime=0), "is compressed by gzip, not text; unpack it first"),
        ("a,b".encode("utf-16-le"), None), (b"\xff\xfea\0", f"is UTF-16, not {UTF_8}"),
        (b"\xfe\xff\0a", f"is UTF-16, not {UTF_8}"), (b"xPK\x03\x04", None), (b"", None),
    ],
)  # fmt: skip
def test_a_file_of_another_kind_is_known_by_its_first_bytes(content: bytes, kind: str | None, tmp_path: Path) -> None:
    assert other_kind(put(tmp_path, content)) == kind
