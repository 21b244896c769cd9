"""Data of the package are recorded as any other."""

from __future__ import annotations

import hashlib
from pathlib import Path

from eval_factory import demo
from eval_factory.demo.example import packaged_data


def test_the_samples_questions_are_named_with_their_hash() -> None:
    table = Path(demo.__path__[0]) / "sample" / "data.csv"
    digest = hashlib.sha256(table.read_bytes()).hexdigest()
    assert packaged_data("sample_medical_qa") == {"package:demo/sample/data.csv": digest}
    assert packaged_data("pubmed_qa") == {}
