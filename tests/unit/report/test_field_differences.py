"""Two files, field by field."""

from __future__ import annotations

import base64
import gzip
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.secrets import REDACTED
from eval_factory.report import field_differences
from eval_factory.report.field_differences import (
    _MAX_SHOWN,
    ABSENT,
    as_message_text,
    differences_of_files,
    same_text,
)


def found(stored: Any, made: Any) -> list[tuple[str, str, str]]:
    return [
        (one.field, one.stored, one.made)
        for one in field_differences.differences_of_documents(stored, made)
    ]


@pytest.mark.parametrize(
    ("stored", "made", "expected"),
    [
        ({"a": 1, "b": [1, {"c": 2}]}, {"b": [1, {"c": 2}], "a": 1}, []),
        ({"a": {"b": 1}}, {"a": {"b": 2}}, [("a.b", "1", "2")]),
        ({"a": 1}, {"a": 1.0}, [("a", "1", "1.0")]),
        ({"a": True}, {"a": 1}, [("a", "true", "1")]),
        ({"a": 1}, {}, [("a", "1", "nothing")]),
        ({}, {"a": None}, [("a", "nothing", "null")]),
        ({"a": [1, 2]}, {"a": [1, 3, 4]}, [("a[1]", "2", "3"), ("a[2]", "nothing", "4")]),
        ({"a": "x"}, {"a": ["x"]}, [("a", "x", '["x"]')]),
        ({"a": {}}, {"a": None}, [("a", "{}", "null")]),
        (1, 2, [("", "1", "2")]),
    ],
)
def test_documents(stored: Any, made: Any, expected: list[tuple[str, str, str]]) -> None:
    assert found(stored, made) == expected


def test_a_redacted_place_is_not_compared_and_the_rest_is() -> None:
    stored = f"key {REDACTED}, value {REDACTED} (1)"
    assert same_text(stored, "key sk-1, value a\nb (1)")
    assert not same_text(stored, "key sk-1, value a (2)")
    assert not same_text("a", REDACTED)
    assert not same_text("a.c", "abc")


def test_values_are_cut() -> None:
    assert as_message_text("x" * _MAX_SHOWN) == "x" * _MAX_SHOWN
    assert as_message_text("x" * (_MAX_SHOWN + 1)) == "x" * _MAX_SHOWN + " ..."
    assert (as_message_text(ABSENT), as_message_text(0.1), as_message_text(None)) == (
        "nothing",
        "0.1",
        "null",
    )


@pytest.mark.parametrize(
    ("name", "stored", "made", "expected"),
    [
        ("a.yaml", "a: 1\nb: 2\n", "a: 1\nb: 2\n", []),
        ("a.yaml", "a: 1\nb: 2\n", "a: 1\nb: 3\n", [("b", "2", "3")]),
        ("a.yml", "a: 0.1\n", "a: 0.2\n", [("a", "0.1", "0.2")]),
        ("a.yml", "a: [\n", "a: 1\n", [("", "cannot be read", "a document")]),
        (
            "a.yml",
            "a: 0.40509574683346666\n",
            "a: 0.40509574683346667\n",
            [("line 1", "666", "667")],
        ),
        ("a.json", '{"a": 1}', '{"a": 2}', [("a", "1", "2")]),
        ("a.jsonl", '{"a": 1}\n{"b": 2}\n', '{"a": 1}\n{"b": 3}\n', [("line 2: b", "2", "3")]),
        (
            "a.jsonl",
            '{"a": 1}\n',
            '{"a": 1}\n{"b": 3}\n',
            [("line 2", "", '{"b": 3}'), ("line 3", "nothing", "")],
        ),
        ("a.jsonl", "{\n", "{}\n", [("line 1", "{", "{}")]),
        (
            "a.html",
            "<p>1</p>\n<p>2</p>\n",
            "<p>1</p>\n<p>3</p>\n",
            [("line 2", "<p>2</p>", "<p>3</p>")],
        ),
        ("a.yml", f"a: x {REDACTED}\n", "a: x key\n", []),
        ("a.html", f"{REDACTED} 1\n", "key 1\n", []),
        ("a.html", f"{REDACTED} 1\n", "key 2\n", [("line 1", REDACTED, "key 2")]),
    ],
    ids=str,
)
def test_files(
    name: str, stored: str, made: str, expected: list[tuple[str, str, str]], tmp_path: Path
) -> None:
    for folder, text in (("stored", stored), ("made", made)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / name).write_text(text, "utf-8")
    differing = list(differences_of_files(tmp_path / "stored" / name, tmp_path / "made" / name))
    assert [one.field for one in differing] == [field for field, _, _ in expected]
    for one, (_, ours, theirs) in zip(differing, expected, strict=True):
        assert ours in one.stored
        assert theirs in one.made


@pytest.mark.parametrize(
    ("texts", "shown_of_each"),
    [
        (
            [b"x" * 500 + b"here %s is" % one + b"y" * 500 for one in (b"1", b"2")],
            ["here 1 is", "here 2 is"],
        ),
        ([b"\xff1", b"\xff2"], ["\\xff1", "\\xff2"]),
    ],
    ids=["a long line", "no text"],
)
def test_where_a_line_differs_is_shown(
    texts: list[bytes], shown_of_each: list[str], tmp_path: Path
) -> None:
    files = [tmp_path / "stored.html", tmp_path / "made.html"]
    for file, content in zip(files, texts, strict=True):
        file.write_bytes(content)
    (one,) = differences_of_files(*files)
    assert one.field == "line 1"
    assert [
        part in said for part, said in zip(shown_of_each, (one.stored, one.made), strict=True)
    ] == [True, True]


def test_pages_are_compared_by_what_their_data_say(tmp_path: Path) -> None:
    stored = tmp_path / "stored.html"
    made = tmp_path / "made.html"

    def write(path: Path, answer: str, level: int) -> None:
        packed = base64.b64encode(gzip.compress(f'[1]\n["{answer}"]'.encode(), level)).decode()
        block = f'<script type="application/x-eval-factory" data-run="0" data-part="0">{packed}</script>'
        path.write_text(f"<p>x</p>\n{block}")

    for level in (1, 9):  # another zlib, and the time of day
        write(stored, "yes", level)
        write(made, "yes", 5)
        assert list(differences_of_files(stored, made)) == []
    write(made, "no", 5)
    (one,) = differences_of_files(stored, made)
    assert (one.field, one.stored, one.made) == ("line 4", '["yes"]', '["no"]')
    write(stored, f"my {REDACTED}", 9)
    write(made, "my key", 5)
    assert list(differences_of_files(stored, made)) == []
