"""What helm-run writes down of itself stands in a file that always holds the latest."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from eval_factory.helm_plugin.session import SHORTENED, CodeExecution, JudgePrompts


def test_the_file_holds_the_latest_and_nothing_of_an_earlier_run(tmp_path: Path) -> None:
    earlier, record, file = CodeExecution(), CodeExecution(), tmp_path / "x.json"
    earlier.count(SHORTENED)  # before somebody says where
    earlier.write_down(file)
    assert json.loads(file.read_text()) == {"shortened": 1}
    file.write_text('{"of": "an earlier run"}')
    for _ in range(2):
        record.write_down(file)
        assert not file.exists()
    record.count(SHORTENED)
    record.count(SHORTENED)
    assert json.loads(file.read_text()) == {"shortened": 2}
    assert file.read_text().endswith("}\n")
    record.begin(["b", "a"], ["bubblewrap"])
    record.begin(["c"], ["bubblewrap"])
    record.write_down(other := tmp_path / "of the next run.json")
    assert json.loads(other.read_text()) == {"shortened": 2, "run_specs": ["a", "b", "c"], "by": ["bubblewrap"]}


def test_templates_of_judges_prompts_are_written_as_hashes(tmp_path: Path) -> None:
    record = JudgePrompts()
    record.write_down(tmp_path / "x.json")
    for annotator, text in (("b", "z"), ("b", "a"), ("a", "z"), ("b", "z")):
        record.note(annotator, text)
    a, z = (hashlib.sha256(text).hexdigest() for text in (b"a", b"z"))
    assert json.loads((tmp_path / "x.json").read_text()) == {"b": sorted([a, z]), "a": [z]}
