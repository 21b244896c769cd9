"""Files of other programs are read with care."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path

import pytest

from eval_factory.importing import sources
from eval_factory.importing.sources import SourceError, json_document, json_lines, open_archive
from foreign_results import write_zstd_zip


def test_an_entry_that_is_compressed_with_zstd_is_read(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    write_zstd_zip(path, {"header.json": b'{"a": 1}', "other.json": b"[2]"})
    with open_archive(path) as entries:
        assert entries.names() == ["header.json", "other.json"]
        assert entries.document("header.json") == {"a": 1}
        assert entries.document("other.json") == [2]


def test_an_entry_that_was_changed_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "log.eval"
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("header.json", '{"a": 1}')
    path.write_bytes(path.read_bytes().replace(b'{"a": 1}', b'{"a": 2}'))
    with open_archive(path) as entries, pytest.raises(SourceError, match=r"header\.json"):
        entries.document("header.json")


def test_a_bomb_is_refused_before_it_is_unpacked(tmp_path: Path) -> None:
    path = tmp_path / "bomb.eval"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("header.json", b"0" * (sources.MAX_ENTRY_BYTES + 1))
    with open_archive(path) as entries, pytest.raises(SourceError, match="refused"):
        entries.document("header.json")


def test_a_bomb_that_lies_about_its_size_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bomb.eval"
    size = 3 * 1024**2
    write_zstd_zip(path, {"header.json": b"[" + b" " * size + b"]"})
    content = path.read_bytes()
    stated = (size + 2).to_bytes(4, "little")
    assert stated in content
    header = len("PK..") + 18
    small = (9).to_bytes(4, "little")
    content = content[:header] + small + content[header + 4 :]
    directory = content.index(b"PK\x01\x02") + 24
    path.write_bytes(content[:directory] + small + content[directory + 4 :])
    with open_archive(path) as entries, pytest.raises(SourceError, match=r"header\.json"):
        entries.document("header.json")


@pytest.mark.parametrize("text", ["[Infinity]", "[-Infinity]", "[1e999]", "[" * 100_000, "{"])
def test_numbers_and_depths_beyond_all_bounds_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text)
    with pytest.raises(SourceError, match=r"x\.json"):
        json_document(path)


def test_nan_is_no_value(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text("[NaN, 1.5]")
    assert json_document(path) == [None, 1.5]


def test_a_fifo_is_no_source(tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    os.mkfifo(path)
    with pytest.raises(SourceError):
        json_document(path)
    with pytest.raises(SourceError):
        list(json_lines(path))


def test_a_line_that_is_no_object_is_named(tmp_path: Path) -> None:
    path = tmp_path / "x.jsonl"
    path.write_text('{"a": 1}\n\n[2]\n')
    with pytest.raises(SourceError, match="line 3"):
        list(json_lines(path))


@pytest.mark.parametrize(
    "value", ["../x", "a/../../b", "/etc/passwd", "~root", "", "a\nb", 1.5, True]
)
def test_an_id_that_leads_elsewhere_is_refused(value: object) -> None:
    with pytest.raises(SourceError):
        sources.checked_id(value, "here")


@pytest.mark.parametrize(
    ("value", "text"), [("HumanEval/3", "HumanEval/3"), (7, "7"), ("a..b", "a..b")]
)
def test_an_ordinary_id_is_kept(value: object, text: str) -> None:
    assert sources.checked_id(value, "here") == text


@pytest.mark.parametrize(
    ("value", "number"),
    [(True, 1.0), (2, 2.0), (0.5, 0.5), ("1", None), (10**400, None), (float("inf"), None)],
)
def test_only_finite_numbers_are_numbers(value: object, number: float | None) -> None:
    assert sources.number_or_none(value) == number
