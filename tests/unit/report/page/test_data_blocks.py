"""Compressed data in a page: what goes in comes out, and a browser takes it for data."""

from __future__ import annotations

import base64
import gzip
import json

import pytest

from eval_factory.report.page import data_blocks
from eval_factory.report.page.data_blocks import (
    LEARNT_FROM,
    LONG,
    SHORT,
    BlockWriter,
    coded,
    codes_of,
    decoded,
    frequent_words,
    unpacked,
)

ODD = ['"</script><script>alert(1)</script>"', json.dumps("ü\u202e\0 \x1b[2J \U0001f600", ensure_ascii=False), "[1]"]


def written(chunks: list[list[str]], index: list[str]) -> str:
    writer = BlockWriter(2)
    for chunk in chunks:
        writer.add(chunk)
    return "".join(writer.finish(index))


def content(made: str, number: int) -> bytes:
    return base64.b64decode(made.split("</script>")[number].partition(">")[2])


def lines_of(made: str, part: str) -> list[object]:
    beginning = f'<script type="application/x-eval-factory" data-run="2" data-part="{part}">\n'
    inside = unpacked(made).partition(beginning)[2].partition("\n</script>")[0]
    return [json.loads(line) for line in inside.split("\n")]


@pytest.mark.parametrize("chunks", [0, 1, LEARNT_FROM - 1, LEARNT_FROM, LEARNT_FROM + 2])
def test_lines_come_out_as_they_went_in(chunks: int) -> None:
    words = [json.dumps(f"the patient has a measured pressure, number {number}") for number in range(9)]
    made = written([[*words, *ODD, str(number)] for number in range(chunks)], [*ODD, '"the patient"'])
    assert made.count("<") == 2 * (chunks + 2)
    assert lines_of(made, "index") == [*map(json.loads, ODD), "the patient"]
    for number in range(chunks):
        assert lines_of(made, str(number)) == [*map(json.loads, words), *map(json.loads, ODD), number]
    assert (b"patient" in gzip.decompress(content(made, 0))) is (chunks >= LEARNT_FROM)
    assert (b"patient" in gzip.decompress(content(made, 1))) is (chunks < LEARNT_FROM)


def test_the_same_lines_make_the_same_blocks_at_any_time() -> None:
    first = written([["1"]], ["2"])
    assert first == written([["1"]], ["2"])
    assert content(first, 1)[4:8] == bytes(4)  # no date in it


def test_half_a_character_is_escaped_as_json_does_it() -> None:
    assert lines_of(written([['"\ud83d"']], ["1"]), "0") == ["\ud83d"]


def test_the_words_that_save_most_come_first() -> None:
    text = " patient" * 5 + " is" * 9 + " pressure" * 4 + " rare" * 3 + "Aa" * 8
    assert frequent_words([text[:24], text[24:]]) == [" patient", " pressure", " is"]
    assert frequent_words(["x"]) == []


def test_every_word_has_its_code() -> None:
    words = [
        f" {a}{b}{c}x" for a in "abcdefghijklmnopqrstu" for b in "abcdefghijklmnopqrst" for c in "abcdefghijklmnopqrst"
    ]
    words = words[: SHORT + LONG]
    codes = codes_of(words)
    assert len(set(codes.values())) == SHORT + LONG
    assert (codes[words[0]], codes[words[SHORT - 1]]) == ("\x80", "\xbf")
    assert (codes[words[SHORT]], codes[words[SHORT + 128]], codes[words[-1]]) == ("\xc0\x80", "\xc1\x80", "\xff\xff")
    text = "".join(words) + " and others"
    assert decoded(coded(text, codes), words) == text
    assert len(coded(text, codes)) == SHORT + 2 * LONG + len(" and others")


@pytest.mark.parametrize("packed", ["", "QQ==", "====", base64.b64encode(gzip.compress(b"x", mtime=0)[:-4]).decode(),
                                    base64.b64encode(gzip.compress(b"\x80", mtime=0)).decode()])  # fmt: skip
def test_what_cannot_be_unpacked_is_left(packed: str) -> None:
    page = f'a<script type="application/x-eval-factory" data-run="0" data-part="0">{packed}</script>b'
    assert unpacked(page) == page


def test_a_block_that_unpacks_to_too_much_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    made = written([], ["1" * 100])
    monkeypatch.setattr(data_blocks, "LARGEST", 100)
    assert "1" * 100 in unpacked(made)
    monkeypatch.setattr(data_blocks, "LARGEST", 99)
    assert "1" * 100 not in unpacked(made)
