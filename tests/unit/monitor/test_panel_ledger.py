"""The chain of a panel's ledger, and what a kill leaves of it."""

from __future__ import annotations

import hashlib
import json
import threading
from pathlib import Path

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.safe_files import json_line, write_atomic
from eval_factory.monitor.ledger import Ledger
from facts import naming, says


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    found = Ledger(tmp_path / "panel")
    for number in range(5):
        found.append("note", text=f"n\u00fcmber {number}")
    return found


def test_lines_follow_each_other(ledger: Ledger) -> None:
    read = ledger.read()
    assert read.problems == ()
    assert [line["number"] for line in read.lines] == [1, 2, 3, 4, 5]
    assert ledger.head_file.read_text().split() == [read.head]
    assert len({line["previous"] for line in read.lines}) == 5


def test_an_empty_folder_has_no_lines_and_no_problems(tmp_path: Path) -> None:
    read = Ledger(tmp_path).read()
    assert (read.lines, read.problems) == ((), ())


@pytest.mark.parametrize(
    "spoil",
    [
        lambda lines: lines[1:],
        lambda lines: lines[:-1],
        lambda lines: [lines[0], *lines],
        lambda lines: [*lines, lines[-1]],
        lambda lines: [lines[1], lines[0], *lines[2:]],
        lambda lines: [*lines[:2], lines[2].replace(b"note", b"Note"), *lines[3:]],
        lambda lines: [*lines[:-1], lines[-1].replace(b"}", b" }")],
        lambda lines: [*lines[:2], b"[1]\n", *lines[3:]],
        lambda lines: [*lines, b"half"],
        lambda lines: lines[:0],
    ],
)
def test_what_is_changed_is_found_and_nothing_is_added_to_it(ledger: Ledger, spoil: object) -> None:
    lines = ledger.file.read_bytes().splitlines(keepends=True)
    spoilt = b"".join(spoil(lines))  # type: ignore[operator]
    ledger.file.write_bytes(spoilt)
    assert ledger.read().problems
    with pytest.raises(PrerequisiteError, match=naming("outside of eval-factory")):
        ledger.append("note", text="more")
    assert ledger.file.read_bytes() == spoilt


def test_a_head_that_is_gone_or_another_is_found(ledger: Ledger) -> None:
    ledger.head_file.write_text("0" * 64)
    assert ledger.read().problems
    ledger.head_file.unlink()
    assert ledger.read().problems


@pytest.mark.parametrize("writes", [1, 2, 3])
def test_a_kill_leaves_a_line_whole_or_not_at_all(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch, writes: int
) -> None:
    """Killed after the first head, in the middle of the line, before the second head."""
    heads = []

    class KilledError(BaseException):
        pass

    def write(self: Ledger, *given: str) -> None:
        heads.append(given)
        if len(heads) == 2:
            raise KilledError
        write_atomic(self.head_file, "".join(f"{head}\n" for head in given))

    monkeypatch.setattr(Ledger, "_write_heads", write)
    with pytest.raises(KilledError):
        ledger.append("note", text="the last")
    monkeypatch.undo()
    if writes < 3:
        whole = ledger.file.read_bytes()
        kept = whole[: whole[:-1].rindex(b"\n") + 1]
        ledger.file.write_bytes(kept if writes == 1 else whole[:-20])
    assert ledger.read().problems == ()
    assert len(ledger.read().lines) == (6 if writes == 3 else 5)
    ledger.append("note", text="after it")
    read = ledger.read()
    assert read.problems == ()
    assert read.lines[-1]["text"] == "after it"
    assert len(ledger.head_file.read_text().split()) == 1


def test_two_who_write_at_once_follow_each_other(tmp_path: Path) -> None:
    def write() -> None:
        for number in range(10):
            Ledger(tmp_path).append("note", text=str(number))

    threads = [threading.Thread(target=write) for _ in range(3)]
    for one in threads:
        one.start()
    for one in threads:
        one.join()
    read = Ledger(tmp_path).read()
    assert (len(read.lines), read.problems) == (30, ())


def test_a_line_that_leads_out_of_the_folder_is_not_read(ledger: Ledger, tmp_path: Path) -> None:
    other = tmp_path / "other.jsonl"
    other.write_text(json.dumps({"number": 1}) + "\n")
    ledger.file.unlink()
    ledger.file.symlink_to(other)
    with pytest.raises(PrerequisiteError, match="leads out"):
        ledger.read()


def test_a_line_with_another_number_is_found_though_the_chain_is_whole(ledger: Ledger) -> None:
    lines = ledger.file.read_bytes().splitlines(keepends=True)
    last = {**json.loads(lines[-1]), "number": 9}
    text = json_line(last).encode()
    ledger.file.write_bytes(b"".join(lines[:-1]) + text + b"\n")
    ledger.head_file.write_text(hashlib.sha256(text).hexdigest() + "\n")
    (problem,) = ledger.read().problems
    says(problem, "line 5", "9")
