"""One evaluation asked by several processes, each a part of the instances; then helm-run scores all of it.

What was answered stands in cache.db when this is over, whatever became of a shard, and helm-run asks only for what is
missing there.
"""

from __future__ import annotations

import os
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace

from eval_factory.core.budget import Budget, Purse
from eval_factory.core.errors import InterruptedRunError
from eval_factory.core.helm_run_settings import HelmRunSettings, SharedLimitsSettings
from eval_factory.core.shard_spec import folder_name
from eval_factory.endpoint.limit_groups import RunEndpoints, limits_of
from eval_factory.endpoint.paid_answers import spent_so_far
from eval_factory.endpoint.run_replay import RunReplay
from eval_factory.plan.prices import prices_of
from eval_factory.plan.run_plan import Plan, shards_of
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.helm_run import HelmRun, environment_of
from eval_factory.workflows.resume import DataRead
from eval_factory.workflows.sharding.shard_ends import how_it_ended
from eval_factory.workflows.sharding.shard_folders import Work, gather, known_as, make_ready
from eval_factory.workflows.sharding.shard_threads import ShardThread, ShardThreads
from eval_factory.workflows.sharding.shard_watch import ShardWatch


@dataclass(frozen=True)
class Asked:
    """What came of the shards; nothing where there are none."""

    run_id: str | None = None
    """Under which they wrote the journal, and the run that scores is to go on."""
    wall_s: float = 0.0
    failed: HelmRun | None = None
    """The events of shards that said why they did not come to their end."""
    lost: str | None = None
    """What to say of shards that did not."""


def ask_in_shards(
    context: RunContext, plan: Plan, settings: HelmRunSettings, read: DataRead, *, debug: bool,
    asked_as: str | None = None,
) -> tuple[HelmRunSettings, Asked]:  # fmt: skip
    """Ask what is missing. Returns what the helm-run that scores is told, with it.

    Args:
        asked_as: the id of the run whose shards asked on other machines; cache.db has their answers.

    Raises:
        BusyError: somebody else works on a shard.
        PrerequisiteError: cache.db cannot be written, a process cannot be started.
        InterruptedRunError
    """
    began = time.monotonic()
    gather(context)
    if asked_as is not None:
        wall_s = RunReplay(plan.rundir.cache_db, asked_as).seconds_asked()
        return replace(settings, seconds_before=wall_s), Asked(asked_as, wall_s)
    of = shards_of(plan)
    work = Work(plan, of, uuid.uuid4().hex, known_as(plan, read), settings, debug)
    left = work.left() if of > 1 else []
    if not left:
        return settings, Asked()
    complete = f"; {of - len(left)} were complete before" if len(left) < of else ""
    context.say(f"asking in {len(left)} of {of} shards, each a process of its own{complete}")
    watch = ShardWatch(left)
    try:
        with told(work, began) as settings_of_shards:
            for index in left:
                make_ready(context, work, index)
            env = environment_of(context, plan.evaluation, settings_of_shards)
            ended = ShardThreads(context, work, env).run(left, watch)
    except KeyboardInterrupt:
        context.log.info("interrupted")
        raise InterruptedRunError(
            f"interrupted; what was answered is kept in {plan.rundir.shards}\n  run the same command again to go on"
        ) from None
    gather(context)
    asked = Asked(work.run_id, time.monotonic() - began, failed_of(work, ended, watch), lost_of(work, ended))
    context.log.info("%d of %d shards asked for %.1f s", len(left), of, asked.wall_s)
    seconds = sum(shard.seconds for shard in ended)
    return replace(settings, budget=what_is_left(settings, asked.wall_s), seconds_before=seconds), asked


@contextmanager
def told(work: Work, began: float) -> Iterator[HelmRunSettings]:
    """What each shard is told: where all of them together keep the limits, and where they count what they use."""
    from eval_factory.endpoint.limit_server import LimitServer  # loads asyncio, which no other run needs

    plan, settings = work.plan, work.settings
    with ExitStack() as servers:
        limits = settings.limits  # a suite's
        if limits is None:
            groups = limits_of([RunEndpoints(plan.endpoints)])
            server = servers.enter_context(LimitServer(groups.limits))
            limits = SharedLimitsSettings(server.address, groups.of_runs[0])
        purse = None
        if settings.budget:
            spent = spent_so_far(plan.rundir.cache_db, prices_of(plan).known)
            purse = servers.enter_context(LimitServer({}, Purse(settings.budget, spent, began=began))).address
        yield replace(
            settings,
            run_id=work.run_id,
            parent=os.getpid(),
            limits=limits,
            purse=purse,
            answers=str(plan.rundir.cache_db),
        )


def what_is_left(settings: HelmRunSettings, wall_s: float) -> Budget:
    """The other limits hold for all runs in the folder; what was asked for them stands in the journal."""
    most = settings.budget.max_wall_s
    return settings.budget if most is None else replace(settings.budget, max_wall_s=max(0.0, most - wall_s))


def failed_of(work: Work, ended: Sequence[ShardThread], watch: ShardWatch) -> HelmRun | None:
    """The shards that said why they ended, as one helm-run; None where none did."""
    events = watch.failures()
    codes = [shard.finished.returncode for shard in ended if shard.finished is not None and shard.finished.returncode]
    tails = [line for shard in ended if shard.finished is not None for line in shard.finished.tail]
    failed = HelmRun(work.run_id, 0.0, codes[0] if codes else 0, tuple(tails), tuple(events))
    return failed if events or failed.last_words is not None else None


def lost_of(work: Work, ended: Sequence[ShardThread]) -> str | None:
    """What to say of the shards that did not end well."""
    lost = {
        shard.index: how_it_ended(shard.finished.returncode, shard.starts)
        for shard in ended
        if shard.finished is not None and shard.finished.returncode
    }
    if not lost:
        return None
    names = ", ".join(f"{folder_name(index, work.of)} ({how})" for index, how in lost.items())
    return (
        f"{len(lost)} of {work.of} shards did not come to their end: {names}\n"
        f"  the answers of all are kept; run the same command again: only what is missing is asked\n"
        f"  logs: {work.plan.rundir.shards}/{folder_name(next(iter(lost)), work.of)}/logs"
    )
