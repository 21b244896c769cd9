"""Data -> a compressed block of a page, and back."""

from __future__ import annotations

import base64
import gzip

import pytest

from eval_factory.core.safe_files import json_line
from eval_factory.report.page import blocks
from eval_factory.report.page.blocks import readable_page

ODD = ["</script><script>alert(1)</script>", "ü\u202e\0 \x1b[2J \U0001f600", "\ud83d", 1]


def test_lines_come_out_as_they_went_in() -> None:
    lines = [json_line(one) for one in ODD]
    made = blocks.compressed_block(2, "index", lines)
    assert made.count("<") == 2
    assert made == blocks.compressed_block(2, "index", lines)
    # no date in it
    assert base64.b64decode(made.partition(">")[2].partition("<")[0])[4:8] == bytes(4)
    beginning = '<script type="application/x-eval-factory" data-run="2" data-part="index">\n'
    assert readable_page(made) == beginning + "\n".join(lines) + "\n</script>"


@pytest.mark.parametrize(
    "packed",
    [
        "",
        "QQ==",
        "====",
        base64.b64encode(gzip.compress(b"x", mtime=0)[:-4]).decode(),
        base64.b64encode(gzip.compress(b"\x80", mtime=0)).decode(),
    ],
)
def test_what_cannot_be_unpacked_is_left(packed: str) -> None:
    page = (
        f'a<script type="application/x-eval-factory" data-run="0" data-part="0">{packed}</script>b'
    )
    assert readable_page(page) == page


def test_a_block_that_unpacks_to_too_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made = blocks.compressed_block(0, "0", ["1" * 100])
    monkeypatch.setattr(blocks, "_MAX_UNPACKED", 100)
    assert "1" * 100 in readable_page(made)
    monkeypatch.setattr(blocks, "_MAX_UNPACKED", 99)
    assert "1" * 100 not in readable_page(made)
