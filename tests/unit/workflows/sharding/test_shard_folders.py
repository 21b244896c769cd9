"""A shard's folder holds all that its process reads; its store ends up in cache.db."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import RunDir
from eval_factory.core.shard_spec import ShardDone, ShardSpec
from eval_factory.endpoint import response_cache
from eval_factory.endpoint.merged_stores import merge_store
from eval_factory.endpoint.response_cache import Answer, Attempt, ResponseCache, read_answers, read_attempts
from eval_factory.helm import names
from eval_factory.plan.run_plan import Plan, shards_of
from eval_factory.workflows.resume import DataRead
from eval_factory.workflows.sharding import shard_folders
from eval_factory.workflows.sharding.shard_folders import Work, gather, known_as, make_ready
from unit.builders import context, plan

SHARDS = "config.params.extra.shards"
LIMIT = "config.params.limit_samples"


def made(tmp_path: Path, **flags: int) -> Plan:
    made = plan({"config.output_dir": str(tmp_path / "out"), "config.params.parallelism": 5, **flags})
    made.rundir.create()
    response_cache.create_or_check(made.rundir.cache_db)
    return made


def keep(folder: Path, *keys: str) -> None:
    cache = ResponseCache(RunDir(folder).cache_db, "run")
    for key in keys:
        attempt = Attempt(key, "model", 1, "answered", 200, None, 1.5, 0.5)
        cache.save(Answer(key, "model", "m", {}, {}, 1.5, 0.5), attempt)
    cache.close()


@pytest.mark.parametrize(
    ("flags", "of"),
    [({}, 1), ({SHARDS: 4}, 4), ({SHARDS: 4, LIMIT: 3}, 3), ({SHARDS: 4, LIMIT: 9}, 4), ({LIMIT: 3}, 1)],
)
def test_there_are_never_more_shards_than_instances(flags: dict[str, int], of: int, tmp_path: Path) -> None:
    assert shards_of(made(tmp_path, **flags)) == of


def test_the_number_of_shards_changes_no_identity(tmp_path: Path) -> None:
    assert made(tmp_path, **{SHARDS: 4}).identity == made(tmp_path).identity


def test_work_is_known_again_by_what_is_run_and_by_its_data(tmp_path: Path) -> None:
    same = known_as(made(tmp_path), DataRead())
    assert known_as(made(tmp_path, **{SHARDS: 3}), DataRead()) == same
    assert known_as(made(tmp_path), DataRead(own={"data_path": "0" * 64})) != same
    assert known_as(made(tmp_path, **{LIMIT: 3}), DataRead()) != same


def test_a_folder_is_made_ready_for_its_process(tmp_path: Path) -> None:
    whole = made(tmp_path)
    work = Work(whole, 2, "r1", "w", HelmRunSettings(file_lists="/lists"))
    (work.folder(2)).mkdir(parents=True)
    ShardDone("w", 0).write(work.folder(2))
    assert work.left() == [1]
    spec = make_ready(context(whole.rundir), work, 2)
    assert work.left() == [1, 2]
    folder = whole.rundir.shards / "2-of-2"
    assert ShardSpec.read(folder) == spec
    assert (spec.index, spec.of, spec.run_id, spec.work) == (2, 2, "r1", "w")
    assert spec.secrets == ("OPENAI_API_KEY", "HF_TOKEN")
    argv = list(spec.argv)
    assert argv[argv.index("--num-threads") + 1] == "3"  # half of five, rounded up
    assert argv[argv.index("--runner-class-name") + 1] == names.SHARD_RUNNER_CLASS
    assert argv[argv.index("--output-path") + 1] == str(folder / "helm")
    deployments = (folder / "model_configs" / names.MODEL_DEPLOYMENTS).read_text()
    assert str(folder / "cache.db") in deployments
    assert "parallelism: 3" in deployments
    assert "/lists" in (folder / "model_configs" / names.SETTINGS).read_text()
    assert (folder / "helm" / "scenarios").resolve() == whole.rundir.helm / "scenarios"
    make_ready(context(whole.rundir), work, 2)


def test_all_stores_are_put_together_and_deleted(tmp_path: Path) -> None:
    whole = made(tmp_path)
    for name, key in (("1-of-2", "a"), ("3-of-7", "b")):
        (whole.rundir.shards / name).mkdir(parents=True)
        keep(whole.rundir.shards / name, key)
    mine = whole.rundir.shards / "2-of-2" / "cache.db"
    mine.parent.mkdir()
    mine.write_text("somebody else's")
    gather(context(whole.rundir))
    assert [row["key"] for row in read_answers(whole.rundir.cache_db)] == ["a", "b"]
    assert [str(path.name) for path in whole.rundir.shards.rglob("cache.db*")] == ["cache.db"]
    assert mine.read_text() == "somebody else's"
    gather(context(whole.rundir))
    assert len(list(read_answers(whole.rundir.cache_db))) == 2


def test_a_store_stays_where_cache_db_cannot_be_written(tmp_path: Path) -> None:
    whole = made(tmp_path)
    (whole.rundir.shards / "1-of-2").mkdir(parents=True)
    keep(whole.rundir.shards / "1-of-2", "a")
    whole.rundir.cache_db.write_text("no database at all, and long enough to be looked at as one: " * 20)
    with pytest.raises(PrerequisiteError, match="check the disk and run the same command again"):
        gather(context(whole.rundir))
    assert [row["key"] for row in read_answers(whole.rundir.shards / "1-of-2" / "cache.db")] == ["a"]


@pytest.mark.parametrize("step", range(8))
def test_a_kill_at_any_step_of_putting_together_loses_nothing(
    step: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two stores are merged, and three files of each deleted; the kill comes before that many of these eight steps."""
    whole = made(tmp_path)
    for name, key in (("1-of-2", "a"), ("2-of-2", "b")):
        (whole.rundir.shards / name).mkdir(parents=True)
        keep(whole.rundir.shards / name, key)
    left = iter(range(step))

    class Killed(BaseException):
        pass

    def until_killed(does: Callable[..., None]) -> Callable[..., None]:
        def one(first: Path, *arguments: object, **options: object) -> None:
            if first.name.startswith("cache.db") and next(left, None) is None:
                raise Killed
            does(first, *arguments, **options)

        return one

    with monkeypatch.context() as killing:
        killing.setattr(shard_folders, "merge_store", until_killed(merge_store))
        killing.setattr(Path, "unlink", until_killed(Path.unlink))
        with pytest.raises(Killed):
            gather(context(whole.rundir))
    gather(context(whole.rundir))
    assert [row["key"] for row in read_answers(whole.rundir.cache_db)] == ["a", "b"]
    assert len(list(read_attempts(whole.rundir.cache_db))) == 2
    assert list(whole.rundir.shards.rglob("cache.db*")) == []
