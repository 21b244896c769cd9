"""What an earlier version's shards answered is put into cache.db whole, once, and their folders go."""

from __future__ import annotations

import logging
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from eval_factory.core.budget import Price
from eval_factory.core.errors import BusyError
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.paid_answers import spent_so_far, write_prices
from eval_factory.endpoint.response_cache import Answer, Attempt, RequestChanges, ResponseCache
from eval_factory.workflows.prepare import copy_store, take_in

LOG = logging.getLogger("test")
CHANGES = RequestChanges("http://h/v1", "m", {"max_tokens": "max_completion_tokens"})


def keep(folder: Path, *keys: str, changed: RequestChanges | None = None) -> RunDir:
    folder.mkdir(parents=True, exist_ok=True)
    cache = ResponseCache(RunDir(folder).cache_db, "run")
    for number, key in enumerate(keys):
        attempt = Attempt(key, "model", 1, "answered", None, None, 10.1 + number, 0.5, 3, 4)
        cache.save(Answer(key, "model", "m", {}, {"text": folder.name}, 10.1 + number, 0.5), attempt, changed)
    cache.close()
    return RunDir(folder)


def texts(rundir: RunDir) -> dict[str, str]:
    with closing(sqlite3.connect(rundir.cache_db)) as connection:
        return dict(connection.execute("SELECT key, json_extract(response, '$.text') FROM responses"))


@pytest.fixture
def killed(tmp_path: Path) -> RunDir:
    """A run of three shards, of which the last had answered nothing and the first what was known before, too."""
    whole = keep(tmp_path / "out", "a")
    keep(whole.shards / "1-of-3", "a", "b", changed=CHANGES)
    write_prices(whole.shards.joinpath("1-of-3", "cache.db"), "run", {"model": Price(1.0, 2.0)})
    keep(whole.shards / "2-of-3", "c")
    (whole.shards / "3-of-3" / "helm").mkdir(parents=True)
    return whole


def test_a_kill_on_the_way_loses_nothing_and_counts_nothing_twice(
    killed: RunDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(_path: Path) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as own:
        own.setattr("eval_factory.workflows.prepare.shutil.rmtree", gone)
        with pytest.raises(KeyboardInterrupt):
            take_in(killed, LOG)
    take_in(killed, LOG)
    assert texts(killed).keys() == {"a", "b", "c"}
    assert spent_so_far(killed.cache_db, {}).requests == 3


def test_answers_in_a_log_that_a_kill_left_come_too(tmp_path: Path) -> None:
    whole, shard = keep(tmp_path / "out"), keep(tmp_path / "shard")
    cache = ResponseCache(shard.cache_db, "run")
    cache.save(
        Answer("k", "model", "m", {}, {"text": "t"}, 1.0, 1.0), Attempt("k", "model", 1, "answered", 200, None, 1, 1)
    )
    copied = tmp_path / "copied"
    copied.mkdir()
    for file in shard.answers:
        copied.joinpath(file.name).write_bytes(file.read_bytes())
    cache.close()
    copy_store(copied / "cache.db", whole.cache_db)
    assert texts(whole) == {"k": "t"}


def test_a_damaged_store_is_left_and_said_so(killed: RunDir, caplog: pytest.LogCaptureFixture) -> None:
    (killed.shards / "1-of-3" / "cache.db").write_bytes(b"no database" * 500)
    with caplog.at_level(logging.WARNING):
        take_in(killed, LOG)
    assert texts(killed).keys() == {"a", "c"}
    assert [path.name for path in killed.shards.iterdir()] == ["1-of-3"]
    assert "1-of-3/cache.db" in caplog.text
    assert "it is not used" in caplog.text


def test_where_the_earlier_version_is_at_work_nothing_is_taken(killed: RunDir, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eval_factory.core.rundir.ORPHAN_WAIT_S", 0.0)
    shard = RunDir(killed.shards / "2-of-3")
    with shard.locked(), pytest.raises(BusyError):
        take_in(killed, LOG)
    assert texts(shard) == {"c": "2-of-3"}
