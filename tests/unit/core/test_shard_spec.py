"""A shard's record is read as it was written; what is done is known by the same work only."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.core.shard_spec import DONE_FILE, SPEC_FILE, ShardDone, ShardSpec, folder_name, is_done

SPEC = ShardSpec(2, 5, "run", "work", ("helm-run", "--suite", "s"), ("A_KEY",), private=True)


def test_a_spec_is_read_as_it_was_written(tmp_path: Path) -> None:
    assert SPEC.write(tmp_path) == tmp_path / SPEC_FILE
    assert ShardSpec.read(tmp_path) == SPEC
    assert (tmp_path / SPEC_FILE).stat().st_mode & 0o777 == 0o600
    assert SPEC.name == folder_name(2, 5) == "2-of-5"


def test_the_same_work_without_a_failure_is_done(tmp_path: Path) -> None:
    assert not is_done(tmp_path, "work")
    ShardDone("work", 0).write(tmp_path)
    assert is_done(tmp_path, "work")
    assert not is_done(tmp_path, "other work")
    ShardDone("work", 1).write(tmp_path)
    assert not is_done(tmp_path, "work")


@pytest.mark.parametrize("text", ["", "[]", '{"work": "work"}', '{"work": "work", "failed": 0, "more": 1}'])
def test_what_cannot_be_read_is_not_done(text: str, tmp_path: Path) -> None:
    (tmp_path / DONE_FILE).write_text(text)
    assert not is_done(tmp_path, "work")
