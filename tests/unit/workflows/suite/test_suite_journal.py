from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from eval_factory.core.rundir import SuiteDir
from eval_factory.core.secrets import Redactor
from eval_factory.workflows.suite.suite_journal import CELL_ENDED, SuiteJournal

KEY = "a-known-key-value-1"


class Looker:
    def __init__(self, folder: SuiteDir) -> None:
        self._folder = folder
        self.events: list[Mapping[str, Any]] = []
        self.lines: list[str] = []
        self.ticks = 0

    def on_event(self, event: Mapping[str, Any]) -> None:
        assert json.loads(self._folder.events.read_text().splitlines()[-1]) == event, "it is told before it is written"
        self.events.append(event)

    def tick(self) -> None:
        self.ticks += 1

    def say(self, text: str) -> None:
        self.lines.append(text)


def test_an_event_is_written_and_then_told_without_keys(tmp_path: Path) -> None:
    folder = SuiteDir(tmp_path)
    folder.state.mkdir()
    looker = Looker(folder)
    journal = SuiteJournal(folder, Redactor([KEY]), looker)
    journal.tell(CELL_ENDED, target="a", reason=f"no: {KEY}\nx")
    journal.tell("suite_ended", exit_code=0)
    lines = [json.loads(line) for line in folder.events.read_text().splitlines()]
    assert lines == looker.events
    assert [(line["event"], line.get("reason")) for line in lines] == [
        ("cell_ended", "no: [API_KEY_REDACTED]\nx"), ("suite_ended", None)]  # fmt: skip
    assert lines[0]["invocation"] == lines[1]["invocation"]
    assert abs(lines[0]["time"] - folder.events.stat().st_mtime) < 60
    assert folder.events.stat().st_mode & 0o777 == 0o600
    assert SuiteJournal(folder, Redactor(), looker)._invocation != journal._invocation


def test_what_is_said_stands_in_the_log(tmp_path: Path) -> None:
    folder = SuiteDir(tmp_path)
    folder.state.mkdir()
    looker = Looker(folder)
    journal = SuiteJournal(folder, Redactor([KEY]), looker)
    journal.say(f"waiting {KEY}")
    journal.tick()
    assert looker.lines == ["waiting [API_KEY_REDACTED]"]
    assert folder.log.read_text().endswith(" waiting [API_KEY_REDACTED]\n")
    assert looker.ticks == 1


def test_half_a_line_of_a_power_cut_swallows_no_event(tmp_path: Path) -> None:
    folder = SuiteDir(tmp_path)
    folder.state.mkdir()
    folder.events.write_text('{"event": "x"}\n{"event": "cell')
    SuiteJournal(folder, Redactor(), Looker(folder)).tell("suite_ended")
    lines = folder.events.read_text().splitlines()
    assert lines[:2] == ['{"event": "x"}', '{"event": "cell']
    assert json.loads(lines[2])["event"] == "suite_ended"


def test_a_disk_that_takes_nothing_ends_no_suite(tmp_path: Path) -> None:
    folder = SuiteDir(tmp_path / "none")
    told: list[Mapping[str, Any]] = []

    class Looking(Looker):
        def on_event(self, event: Mapping[str, Any]) -> None:
            told.append(event)

    SuiteJournal(folder, Redactor(), Looking(folder)).tell("suite_ended")
    assert [event["event"] for event in told] == ["suite_ended"]
