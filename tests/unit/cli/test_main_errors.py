"""What becomes of an error of the file system that nobody expected."""

from __future__ import annotations

import errno
import os
import tempfile
from pathlib import Path

import pytest

from eval_factory.cli import main


@pytest.mark.parametrize(
    ("number", "path", "code", "said"),
    [
        (errno.ENAMETOOLONG, "x", 3, "eval-factory: x: "), (errno.EACCES, b"y", 3, "eval-factory: y: "), (errno.EACCES, None, 70, "a defect"),
        (errno.ENOSPC, "x", 3, "cannot write x: "), (errno.EROFS, "x", 3, "make room there, or make it writable, then run the same command again"), (errno.ENOSPC, None, 3, "cannot write the output: "), (errno.EBUSY, "x", 70, "a defect"),
    ],
)  # fmt: skip
def test_codes(
    number: int, path: str | bytes | None, code: int, said: str, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
) -> None:  # fmt: skip
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    error = OSError(number, os.strerror(number), path) if path else OSError(number, os.strerror(number))
    assert main._code_of(error) == code
    assert said in capsys.readouterr().err
    assert len(list(tmp_path.iterdir())) == (code == 70)


def test_a_reader_that_left_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(main, "nobody_reads", lambda _stream: True)
    monkeypatch.setattr(main, "silence", lambda _stream: None)
    assert main._code_of(BrokenPipeError(errno.EPIPE, "gone")) == 0
