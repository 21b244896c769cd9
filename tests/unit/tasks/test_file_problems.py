"""What is said of a file of the user's that cannot be read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from eval_factory.core.errors import ConfigError
from eval_factory.tasks.file_problems import not_utf8, other_kind, read_text

NAMED_IN = Path("benchmark.yaml")
SHEET = "text; save it as 'CSV UTF-8' (a prompt: as plain text in UTF-8)"
UTF_8 = "UTF-8; save it as UTF-8 (or: iconv -f utf-16 -t utf-8)"


def put(folder: Path, content: bytes) -> Path:
    path = folder / "data.csv"
    path.write_bytes(content)
    return path


def refused(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        read_text(path, "its table", NAMED_IN)
    return str(caught.value).removeprefix(f"{path}: ")


def test_text_is_read_as_it_stands(tmp_path: Path) -> None:
    assert read_text(put(tmp_path, "é\r\n\t".encode()), "its table", NAMED_IN) in ("é\r\n\t", "é\n\t")
    assert read_text(put(tmp_path, b""), "its table", NAMED_IN) == ""


@pytest.mark.parametrize(
    ("content", "kind"),
    [
        (b"PK\x03\x04rest", f"is an Excel or Word file or another ZIP archive, not {SHEET}"),
        (b"\xd0\xcf\x11\xe0rest", f"is an Excel or Word file, not {SHEET}"),
        (b"PAR1rest", f"is a Parquet file, not {SHEET}"),
        (gzip.compress(b"a,b", mtime=0), "is compressed by gzip, not text; unpack it first"),
        ("a,b".encode("utf-16-le"), None),
        (b"\xff\xfea\0", f"is UTF-16, not {UTF_8}"),
        (b"\xfe\xff\0a", f"is UTF-16, not {UTF_8}"),
        (b"xPK\x03\x04", None),
        (b"", None),
    ],
)
def test_a_file_of_another_kind_is_known_by_its_first_bytes(content: bytes, kind: str | None, tmp_path: Path) -> None:
    assert other_kind(put(tmp_path, content)) == kind


def test_a_spreadsheet_is_called_one(tmp_path: Path) -> None:
    assert refused(put(tmp_path, b"PK\x03\x04\xff")) == f"is an Excel or Word file or another ZIP archive, not {SHEET}"


def test_the_first_line_that_is_not_utf_8_is_named(tmp_path: Path) -> None:
    told = refused(put(tmp_path, "id,text\n1,ok\n2,né\n3,né\n".encode("latin-1")))
    assert told == "line 3: is not UTF-8; save the file as UTF-8 (of a latin-1 file: iconv -f latin1 -t utf-8)"


def test_a_file_whose_lines_are_all_utf_8_is_named_without_a_line(tmp_path: Path) -> None:
    path = put(tmp_path, b"fine\n")
    assert str(not_utf8(path)) == f"{path}: is not UTF-8"


def test_a_nul_character_is_told_with_its_line(tmp_path: Path) -> None:
    assert refused(put(tmp_path, b"a\nb\nc\0\n\0")) == "line 3: holds a NUL character (a byte that is 0)"
    assert refused(put(tmp_path, b"\0")).startswith("line 1: ")


def test_a_byte_order_mark_would_become_part_of_the_prompt(tmp_path: Path) -> None:
    assert refused(put(tmp_path, b"\xef\xbb\xbftext")) == (
        "begins with a byte order mark, which would become part of the prompt; save as UTF-8 without one"
    )
    assert read_text(put(tmp_path, b"a\xef\xbb\xbf"), "its table", NAMED_IN) == "a\ufeff"


def test_a_file_that_is_not_there_is_told_with_who_names_it(tmp_path: Path) -> None:
    assert refused(tmp_path / "none.csv") == (
        "there is no such file; benchmark.yaml names it as its table (relative to its own folder)"
    )
    assert refused(tmp_path) == "cannot be read: Is a directory (benchmark.yaml names it as its table)"
