from __future__ import annotations

from pathlib import Path

from eval_factory.core.logs import open_log
from eval_factory.core.redaction import REDACTED, Redactor
from eval_factory.core.rundir import RunDir

KEY = "a-known-key-value-1"


def test_a_line_of_the_log_is_redacted_printable_and_cannot_be_imitated(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    rundir.create()
    log = open_log(rundir, Redactor([KEY]), debug=False, beginning=["begun"])
    log.error("first %s \x1b[2J\u2028\n  second\n2026-01-01 00:00:00,000 ERROR a false one", KEY)
    begun, first, second, third = rundir.program_log.read_text("utf-8").rstrip("\n").split("\n")
    assert begun.endswith(" INFO begun")
    assert first.endswith(f" ERROR first {REDACTED} \\x1b[2J\\u2028")
    assert second == "  second"
    assert third == "  2026-01-01 00:00:00,000 ERROR a false one"
    assert rundir.program_log.stat().st_mode & 0o777 == 0o600
