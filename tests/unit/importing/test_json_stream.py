"""A large JSON document is read value by value, as Python's own reader reads it whole."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from eval_factory.importing import json_stream
from eval_factory.importing.json_stream import elements_of, object_without_lists, value_in
from eval_factory.importing.sources import SourceError

DOCUMENT: dict[str, Any] = {
    "version": 2,
    "größe": -1.5e3,
    "eval": {"task": 'a "b" ]}', "samples": [1]},
    "samples": [{"id": number, "text": "ä€😀" * 5, "of": [[], {}]} for number in range(40)],
    "empty": [],
    "end": 12345,
}


@pytest.fixture(params=[1, 7, 64, 10_000])
def file(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(json_stream, "_CHUNK_BYTES", request.param)
    return tmp_path / "x.json"


@pytest.mark.parametrize("indent", [None, 2])
def test_parts_are_those_of_the_whole_document(file: Path, indent: int | None) -> None:
    file.write_text(json.dumps(DOCUMENT, indent=indent, ensure_ascii=False), encoding="utf-8-sig")
    assert list(elements_of(file, "samples")) == DOCUMENT["samples"]
    assert list(elements_of(file, "empty")) == list(elements_of(file, "none")) == []
    assert object_without_lists(file, ("samples", "eval")) == {**DOCUMENT, "samples": []}
    assert value_in(file, "end") == 12345


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"samples": [1, 2',
        '{"samples": [1 2]}',
        '{"samples": [1,, 2]}',
        '{"samples": [1]} x',
        '{"samples": [1], "samples": []}',
        '{"samples": [1], 5: 1}',
        '{"samples": [Infinity]}',
        '{"samples": [1e999]}',
        '{"samples": [1], "x": tru}',
        '{"samples": [' + "[" * 100_000,
    ],
)
def test_what_is_no_whole_document_is_refused(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
    with pytest.raises(SourceError, match=r"x\.json"):
        object_without_lists(file, ("samples",))


def test_a_value_that_never_ends_is_not_read_to_its_end(
    file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_stream, "MAX_LINE_BYTES", 1000)
    file.write_text('{"x": "' + "a" * 500_000, encoding="utf-8")
    with pytest.raises(SourceError, match="longer than"):
        value_in(file, "x")


def test_bytes_that_are_no_text_are_refused(file: Path) -> None:
    file.write_bytes(b'{"x": "\xff"}')
    with pytest.raises(SourceError):
        value_in(file, "x")


def test_another_document_has_no_values(file: Path) -> None:
    file.write_text("[1]")
    assert object_without_lists(file, ()) is None
    assert value_in(file, "x") is None
