from __future__ import annotations

import json
from pathlib import Path

from eval_factory.workflows.suite.cell_loop import CellEnd, end_of


def test_the_end_is_what_the_record_says(tmp_path: Path) -> None:
    record = tmp_path / "end.json"
    record.write_text(json.dumps({"status": "partial", "not_reportable": "chance", "error": None}))
    assert end_of(1, record) == CellEnd(1, "partial", "chance")
    assert end_of(1, record).has_result
    record.write_text(json.dumps({"error": {"type": "HelmError", "message": "no"}}))
    assert end_of(4, record) == CellEnd(4, error_type="HelmError", error="no")
    assert not end_of(4, record).has_result


def test_who_was_killed_says_nothing(tmp_path: Path) -> None:
    assert end_of(-9, tmp_path / "none.json") == CellEnd(-9)
    (tmp_path / "half.json").write_text('{"stat')
    assert end_of(-9, tmp_path / "half.json") == CellEnd(-9)
