from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from eval_factory.helm_plugin.run_records import RecordFile


def test_the_file_holds_the_latest(tmp_path: Path) -> None:
    known: dict[str, Any] = {"a": 1}
    record, file = RecordFile(lambda: known), tmp_path / "x.json"
    record.write_down(file)
    assert json.loads(file.read_text()) == {"a": 1}
    with record.lock:
        known["b"] = 2
        record.changed()
    assert json.loads(file.read_text()) == {"a": 1, "b": 2}


def test_what_an_earlier_run_wrote_goes_where_there_is_nothing_to_say(tmp_path: Path) -> None:
    known: dict[str, Any] = {}
    record, file = RecordFile(lambda: known), tmp_path / "x.json"
    record.changed()  # nobody has said where
    file.write_text("{}")
    record.write_down(file)
    record.write_down(file)
    assert not file.exists()
    known["a"] = 1
    record.changed()
    assert file.read_text().endswith("}\n")
