"""Compressed data in a page: what goes in comes out, and a browser takes it for data."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from eval_factory.report.page import data_blocks
from eval_factory.report.page.data_blocks import block, unpacked


def packed_text(made: str) -> bytes:
    return gzip.decompress(base64.b64decode(made.partition(">")[2].partition("<")[0]))


def test_lines_come_out_as_they_went_in() -> None:
    lines = ['"</script><script>alert(1)</script>"', json.dumps("ü\u202e\0 \x1b[2J"), "[1]"]
    made = block(2, "index", lines)
    assert made.startswith('<script type="application/x-eval-factory" data-run="2" data-part="index">')
    assert made.count("<") == 2
    assert made.endswith("</script>")
    assert packed_text(made).decode() == "\n".join(lines)
    assert unpacked(f"a{made}b") == f"a{made.partition('>')[0]}>\n" + "\n".join(lines) + "\n</script>b"


def test_the_same_lines_make_the_same_block_at_any_time() -> None:
    assert block(0, "0", ["x"]) == block(0, "0", ["x"])
    assert base64.b64decode(block(0, "0", ["x"]).partition(">")[2].partition("<")[0])[4:8] == bytes(4)  # no date in it


def test_half_a_character_is_escaped_as_json_does_it() -> None:
    assert json.loads(packed_text(block(0, "0", ['"\ud83d"']))) == "\ud83d"


@pytest.mark.parametrize("content", ["", "QQ==", "====", base64.b64encode(gzip.compress(b"x")[:-4]).decode()])
def test_what_cannot_be_unpacked_is_left(content: str) -> None:
    page = f'<script type="application/x-eval-factory" data-run="0" data-part="0">{content}</script>'
    assert unpacked(page) == page


def test_a_block_that_unpacks_to_too_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made = block(0, "0", ["x" * 100])
    monkeypatch.setattr(data_blocks, "LARGEST", 100)
    assert unpacked(made) != made
    monkeypatch.setattr(data_blocks, "LARGEST", 99)
    assert unpacked(made) == made
