"""No shape of a key is found in medical texts."""

from __future__ import annotations

from pathlib import Path

from pyarrow import parquet

from eval_factory.core.secrets import Redactor


def test_no_shape_touches_the_real_data(medical_data: Path) -> None:
    redactor = Redactor()
    texts = 0
    for path in medical_data.rglob("*"):
        if path.is_file() and path.suffix in (".txt", ".csv", ".json", ".tab"):
            text = path.read_text("utf-8", errors="replace")
            assert redactor.redact_text(text) == text, path
            texts += 1
        elif path.suffix == ".parquet":
            for row in parquet.read_table(path).to_pylist():
                assert redactor.redact_text(str(row)) == str(row), path
            texts += 1
    assert texts > 1000
