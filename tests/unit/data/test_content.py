"""Whether a file is what its name says."""

from __future__ import annotations

import hashlib
import sqlite3
import zipfile
from contextlib import closing
from pathlib import Path

import pytest

from eval_factory.data.pull import Blob, is_page, problem_of

TEXT = b"id,answer\n1,yes\n"
SHA1_OF_HELLO = "ce013625030ba8dba906f756967f9e9ca394464a"
"""What `git hash-object` says of 'hello' and a newline."""


def put(folder: Path, content: bytes, name: str = "download.part") -> Path:
    path = folder / name
    path.write_bytes(content)
    return path


def test_a_blob_is_known_by_size_and_hash_as_git_counts_them(tmp_path: Path) -> None:
    blob = Blob(6, SHA1_OF_HELLO)
    assert blob.problem_of(put(tmp_path, b"hello\n")) is None
    assert blob.problem_of(put(tmp_path, b"hell")) == "4 of 6 bytes came"
    other = hashlib.sha1(b"blob 6\0hullo\n", usedforsecurity=False).hexdigest()
    assert blob.problem_of(put(tmp_path, b"hullo\n")) == (
        f"its content is not what is listed (git {other}, listed is {SHA1_OF_HELLO})"
    )


@pytest.mark.parametrize(
    ("content", "page"),
    [
        (b"<!DOCTYPE html><title>Sign in</title>", True), (b"\xef\xbb\xbf\n  <HTML lang=en>", True),
        (b"id,text\n1,<html>\n", False), (b" " * 1024 + b"<html>", False), (b"", False),
    ],
)  # fmt: skip
def test_a_web_page_is_known_by_its_beginning(content: bytes, page: bool, tmp_path: Path) -> None:
    assert is_page(put(tmp_path, content)) is page


@pytest.mark.parametrize("name", ["a.zip", "A.DOCX", "folder/a.xlsx"])
def test_every_member_of_a_zip_file_is_read(name: str, tmp_path: Path) -> None:
    path = tmp_path / "packed"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("word/document.xml", TEXT * 100)
    whole = path.read_bytes()
    assert problem_of(path, name) is None
    path.write_bytes(whole.replace(TEXT, TEXT.upper(), 1))
    assert problem_of(path, name) == "is no zip file that can be used: 'word/document.xml' in it is damaged"
    path.write_bytes(whole[: len(whole) // 2])
    assert str(problem_of(path, name)).startswith("is no zip file that can be used: ")
    assert problem_of(put(tmp_path, b""), name) == problem_of(put(tmp_path, b""), "a.csv") == "it is empty"


@pytest.mark.parametrize("content", [b'{"a": [1, 2', b"<html>", b"\xff\xfe", b"[" * 200_000])
def test_json_that_did_not_come_whole(content: bytes, tmp_path: Path) -> None:
    problem = problem_of(put(tmp_path, content), "a.json")
    assert str(problem).startswith("is no JSON, or not all of it came: ")


@pytest.fixture
def database(tmp_path: Path) -> Path:
    path = tmp_path / "a % b.sqlite"
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("CREATE TABLE patients (name TEXT)")
        connection.executemany("INSERT INTO patients VALUES (?)", [("x" * 1000,)] * 50)
    return path


def test_a_whole_and_a_damaged_database(database: Path, tmp_path: Path) -> None:
    whole = database.read_bytes()
    assert problem_of(database, "eicu.sqlite") is None
    assert database.read_bytes() == whole
    assert [path.name for path in database.parent.iterdir()] == [database.name], "nothing is left beside it"
    assert problem_of(put(tmp_path, TEXT), "eicu.sqlite") == "is no SQLite database"
    for content in (whole[: len(whole) // 2], whole[:8192] + b"\xff" * (len(whole) - 8192)):
        database.write_bytes(content)
        told = str(problem_of(database, "eicu.sqlite"))
        assert told.startswith("is a damaged SQLite database, or not all of it came: ")
