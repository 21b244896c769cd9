from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.logs import open_log, stop_line, stop_message_in
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import REDACTED, Redactor

KEY = "a-known-key-value-1"


def test_a_line_of_the_log_is_redacted_printable_and_cannot_be_imitated(tmp_path: Path) -> None:
    rundir = RunDir(tmp_path)
    rundir.create()
    with open_log(rundir, Redactor([KEY]), debug=False) as log:
        log.info("begun")
        log.error(
            "first %s \x1b[2J\u2028\n  second\n2026-01-01 00:00:00,000 ERROR a false one", KEY
        )
    begun, first, second, third = rundir.program_log.read_text("utf-8").rstrip("\n").split("\n")
    assert begun.endswith(" INFO begun")
    assert first.endswith(f" ERROR first {REDACTED} \\x1b[2J\\u2028")
    assert second == "  second"
    assert third == "  2026-01-01 00:00:00,000 ERROR a false one"
    assert rundir.program_log.stat().st_mode & 0o777 == 0o600


def test_two_runs_at_once_write_each_into_its_own_folder(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folders = [RunDir(tmp_path / name) for name in ("a", "b")]
    for folder in folders:
        folder.create()
    a, b = folders
    with (
        open_log(a, Redactor(), debug=False) as first,
        open_log(b, Redactor(), debug=False) as second,
    ):
        first.info("of the first")
        second.warning("of the second")
        first.debug("unseen")
    written = [folder.program_log.read_text("utf-8") for folder in folders]
    assert [line.count("\n") for line in written] == [1, 1]
    assert written[0].endswith(" INFO of the first\n")
    assert written[1].endswith(" WARNING of the second\n")
    assert capsys.readouterr().err == ""


RUN = "3c0ffee0"
MESSAGE = (
    'cannot reach http://llm.example: no "connection"\n  check the URL\n  eval-factory stops: é'
)
LINE = stop_line(MESSAGE, HelmRunSettings(run_id=RUN).environment())
ANOTHER = stop_line(MESSAGE, HelmRunSettings(run_id="another").environment())


def test_a_message_of_several_lines_comes_through_among_others() -> None:
    assert "\n" not in LINE
    assert stop_message_in(1, ["model: HTTP 429", LINE, "model: more"], RUN) == MESSAGE
    assert stop_message_in(-9, [LINE], RUN) == MESSAGE
    # Without a run id, the user started helm-run by hand and reads the line.
    assert stop_line(MESSAGE, {}) == f"eval-factory stops: {MESSAGE}"


@pytest.mark.parametrize(
    ("returncode", "tail"),
    [
        (0, [LINE]),
        (1, []),
        (1, [ANOTHER]),
        (1, [stop_line(MESSAGE, {})]),
        (1, [f"model: {LINE}"]),
        (1, [LINE[:-3]]),
    ],
    ids=[
        "it did not fail",
        "nothing was said",
        "another run's",
        "no run's",
        "inside a line",
        "cut",
    ],
)
def test_what_is_not_its_own_is_not_believed(returncode: int, tail: list[str]) -> None:
    assert stop_message_in(returncode, tail, RUN) is None
