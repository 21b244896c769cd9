"""What a stored result is written for holds the configuration that was run."""

from __future__ import annotations

from pathlib import Path

import pytest

from described_runs import plain
from eval_factory.report.purposes import PURPOSES, written_for
from eval_factory.report.reader import load_result
from stored_results import CONFIG, written


@pytest.mark.parametrize("purpose", PURPOSES)
def test_the_stored_result_and_its_configuration_are_told_of(purpose: str, tmp_path: Path) -> None:
    config = {**CONFIG, "config": {**CONFIG["config"], "params": {"limit_samples": 20, "extra": {}}}}
    text = written_for(purpose, load_result(written(tmp_path / "a", plain(), config)))
    assert "The number was limited to 20: where the data have more" in text
    assert "0.7368" in text
    assert text.endswith("\n")
    assert "What is q" not in text
    assert "answer to q" not in text


def test_there_is_no_other_purpose(tmp_path: Path) -> None:
    with pytest.raises(KeyError):
        written_for("poster", load_result(written(tmp_path / "a", plain())))
