"""What is said of shards that did not come to their end, and what is left for the run that scores."""

from __future__ import annotations

from pathlib import Path

from eval_factory.core import events
from eval_factory.core.budget import Budget
from eval_factory.core.helm_run_settings import HelmRunSettings, SharedLimitsSettings
from eval_factory.endpoint.response_cache import Attempt, ResponseCache
from eval_factory.executors.base import Finished
from eval_factory.executors.progress import EventTail
from eval_factory.workflows.resume import DataRead
from eval_factory.workflows.sharding.ask_in_shards import Asked, ask_in_shards, failed_of, lost_of, told, what_is_left
from eval_factory.workflows.sharding.shard_folders import Work
from eval_factory.workflows.sharding.shard_threads import ShardThread
from eval_factory.workflows.sharding.shard_watch import ShardWatch
from unit.builders import context, plan


def ended(*codes: int) -> list[ShardThread]:
    tails = [EventTail(Path("/nowhere"), "r1") for _ in codes]
    return [
        ShardThread(n, tail, Finished(code, ())) for n, (code, tail) in enumerate(zip(codes, tails, strict=True), 1)
    ]


def work(tmp_path: Path, settings: HelmRunSettings | None = None) -> Work:
    return Work(plan({"config.output_dir": str(tmp_path)}), 4, "r1", "w", settings or HelmRunSettings())


def test_lost_shards_are_named_with_the_next_step(tmp_path: Path) -> None:
    assert lost_of(work(tmp_path), ended(0, 0)) is None
    said = lost_of(work(tmp_path), ended(0, -9, 137, 5))
    assert said is not None
    lines = said.split("\n")
    assert lines[0] == (
        "3 of 4 shards did not come to their end:"
        " 2-of-4 (killed by signal 9), 3-of-4 (killed by signal 9), 4-of-4 (exit code 5)"
    )
    assert "run the same command again" in lines[1]
    assert lines[2].endswith("/shards/2-of-4/logs")


def test_what_a_shard_said_counts_before_that_it_was_lost(tmp_path: Path) -> None:
    watch = ShardWatch([1, 2])
    assert failed_of(work(tmp_path), ended(0, -9), watch) is None
    watch.states[2].take({"event": events.FATAL, "message": "401"})
    failed = failed_of(work(tmp_path), ended(0, 1), watch)
    assert failed is not None
    assert (failed.returncode, [event["event"] for event in failed.events]) == (1, [events.FATAL])


def test_the_time_of_the_shards_is_taken_off_the_limit() -> None:
    limited = HelmRunSettings(budget=Budget(max_wall_s=10.0, max_requests=5))
    assert what_is_left(limited, 4.0) == Budget(max_wall_s=6.0, max_requests=5)
    assert what_is_left(limited, 11.0) == Budget(max_wall_s=0.0, max_requests=5)
    assert what_is_left(HelmRunSettings(), 4.0) == Budget()


def test_shards_share_limits_of_their_own_or_a_suites(tmp_path: Path) -> None:
    alone = work(tmp_path)
    with told(alone, 0.0) as settings:
        assert settings.limits is not None
        assert list(settings.limits.groups) == ["model"]
        assert (settings.purse, settings.run_id, settings.answers) == (None, "r1", str(tmp_path / "cache.db"))
    of_suite = HelmRunSettings(limits=SharedLimitsSettings("/s", {"model": "g"}), budget=Budget(max_requests=3))
    with told(work(tmp_path, of_suite), 0.0) as settings:
        assert settings.limits == of_suite.limits
        assert settings.purse is not None
        assert settings.purse != "/s"


def test_shards_that_asked_elsewhere_are_gone_on_with(tmp_path: Path) -> None:
    whole = plan({"config.output_dir": str(tmp_path), "config.params.extra.shards": 3})
    whole.rundir.create()
    cache = ResponseCache(whole.rundir.cache_db, "r7")
    for started in (10.0, 12.0):
        cache.journal(Attempt(f"k{started}", "model", 1, "answered", 200, None, started, 0.5))
    cache.close()
    settings = HelmRunSettings(file_lists="/lists")
    given = context(whole.rundir)
    told_then = HelmRunSettings(file_lists="/lists", seconds_before=2.5)
    asked = ask_in_shards(given, whole, settings, DataRead(), debug=False, asked_as="r7")
    assert asked == (told_then, Asked("r7", 2.5))
    assert not whole.rundir.shards.exists()
