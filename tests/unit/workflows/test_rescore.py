"""Whose answers a folder takes over, and from whom it takes none."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.response_cache import read_origin, write_origin
from eval_factory.report.reader import load_result
from eval_factory.scoring.journal import read_answers
from eval_factory.workflows.rescore import copy_answers


def test_answers_are_copied_once_and_from_one_run(folder: RunDir, tmp_path: Path) -> None:
    then, new = load_result(folder.root).result.provenance, RunDir(tmp_path / "new")
    new.create()
    before = {file.name: file.read_bytes() for file in folder.root.glob("*.*")}
    for _ in range(2):
        copy_answers(folder, then, new)
    assert {file.name: file.read_bytes() for file in folder.root.glob("*.*")} == before
    assert [row["key"] for row in read_answers(new.cache_db)] == ["k0", "k1", "k2", "k3"]
    origin = read_origin(new.cache_db)
    assert origin is not None
    assert (origin.run_identity, origin.started_at) == (then.run_identity, then.started_at)
    assert [file.name for file in new.root.iterdir() if file.name.startswith(".rescore")] == []
    with pytest.raises(ConfigError, match="has answers of another run"):
        copy_answers(folder, replace(then, run_identity="v1-other"), new)
    write_origin(folder.cache_db, "v1-first", "then")
    new.cache_db.unlink()
    with pytest.raises(PrerequisiteError, match="not what the result was made of"):
        copy_answers(folder, then, new)
    assert not new.cache_db.exists()
