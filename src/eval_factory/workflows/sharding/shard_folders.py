"""The folders of an evaluation's shards: made ready for a process, and emptied into cache.db when it has ended."""

from __future__ import annotations

import hashlib
import json
import sqlite3
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import PRIVATE, RunDir
from eval_factory.core.shard_spec import DONE_FILE, ShardSpec, folder_name, is_done
from eval_factory.endpoint import response_cache
from eval_factory.endpoint.merged_stores import copy_changes, merge_store
from eval_factory.helm import names
from eval_factory.helm.command import command_line
from eval_factory.helm.model_files import model_files
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.context import HUB_TOKEN, RunContext
from eval_factory.workflows.output_folder import ready_cache
from eval_factory.workflows.resume import DataRead, versions

THREADS = "--num-threads"
FOLDERS = "*-of-*"


@dataclass(frozen=True)
class Work:
    """What the shards of one invocation have in common."""

    plan: Plan
    """Of the whole."""
    of: int
    run_id: str
    known_as: str
    """By what the same work is known again."""
    settings: HelmRunSettings
    debug: bool = False

    def folder(self, index: int) -> Path:
        return self.plan.rundir.shards / folder_name(index, self.of)

    def left(self) -> list[int]:
        """The numbers of the shards that have something to ask."""
        return [index for index in range(1, self.of + 1) if not is_done(self.folder(index), self.known_as)]


def known_as(plan: Plan, read: DataRead) -> str:
    """The same for the same evaluation of the same data by the same versions, and for nothing else."""
    text = json.dumps([plan.identity, versions(), asdict(read)], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:20]


def make_ready(context: RunContext, work: Work, index: int) -> ShardSpec:
    """Write what the process of a shard reads."""
    rundir = RunDir(work.folder(index))
    rundir.create()
    (rundir.root / DONE_FILE).unlink(missing_ok=True)
    ready_cache(rundir, context.log)
    copy_changes(work.plan.rundir.cache_db, rundir.cache_db)
    _share_data(work.plan.rundir, rundir)
    own = part_of(work, rundir)
    for name, text in model_files(own, debug=work.debug).items():
        write_atomic(rundir.model_configs / name, text, mode=PRIVATE)
    write_atomic(rundir.model_configs / names.SETTINGS, work.settings.file_text(), mode=PRIVATE)
    evaluation = work.plan.evaluation
    spec = ShardSpec(
        index=index,
        of=work.of,
        run_id=work.run_id,
        work=work.known_as,
        argv=tuple(shard_command(own, own.model.parallelism, debug=work.debug)),
        secrets=(*evaluation.key_names(), HUB_TOKEN),
    )
    spec.write(rundir.root)
    return spec


def part_of(work: Work, rundir: RunDir) -> Plan:
    """The plan of one shard: in a folder of its own, with its part of the requests at once."""

    def share(parallelism: int) -> int:
        return -(-parallelism // work.of)

    plan = work.plan
    model = replace(plan.model, parallelism=share(plan.model.parallelism))
    judges = tuple(replace(judge, parallelism=share(judge.parallelism)) for judge in plan.judges)
    prescribed = tuple(replace(judge, parallelism=share(judge.parallelism)) for judge in plan.prescribed)
    return replace(plan, rundir=rundir, model=model, judges=judges, prescribed=prescribed)


def shard_command(plan: Plan, threads: int, *, debug: bool = False) -> list[str]:
    """helm-run's arguments, with the runner that asks a part."""
    argv = [
        names.SHARD_RUNNER_CLASS if word == names.RUNNER_CLASS else word for word in command_line(plan, debug=debug)
    ]
    if THREADS in argv:
        argv[argv.index(THREADS) + 1] = str(threads)
    return argv


def _share_data(whole: RunDir, shard: RunDir) -> None:
    """What scenarios downloaded, and what they make of it, is there once for all; the link outlives a move."""
    (whole.helm / names.SCENARIOS_FOLDER).mkdir(exist_ok=True)
    link = shard.helm / names.SCENARIOS_FOLDER
    if not link.is_symlink():
        up = Path(*([".."] * 3))  # helm, the shard, shards
        link.symlink_to(up / whole.helm.name / names.SCENARIOS_FOLDER, target_is_directory=True)


def gather(context: RunContext) -> None:
    """Put what all shards answered into cache.db, those of earlier invocations and of other divisions too.

    A store is deleted once cache.db has it. A kill on the way loses nothing: the next run does the rest.

    Raises:
        BusyError: somebody is writing into one of them.
        PrerequisiteError: cache.db cannot be written.
    """
    stores = [RunDir(folder) for folder in sorted(context.rundir.shards.glob(FOLDERS)) if _has_store(folder)]
    for shard in stores:
        with shard.locked(context.show):
            ready_cache(shard, context.log)  # a damaged one is archived
            try:
                merge_store(context.rundir.cache_db, shard.cache_db)
            except sqlite3.Error as error:
                raise PrerequisiteError(
                    f"cannot put {shard.cache_db} into {context.rundir.cache_db}: {error}\n"
                    "  check the disk and run the same command again; the answers stay where they are"
                ) from error
            _delete(shard.answers)
    if stores:
        context.log.info("the answers of %d shards were put into cache.db", len(stores))


def _has_store(folder: Path) -> bool:
    return not folder.is_symlink() and response_cache.is_ours(RunDir(folder).cache_db)


def _delete(files: Sequence[Path]) -> None:
    """The database goes last: what SQLite keeps beside it must not be left to another of the same name."""
    for file in reversed(files):
        file.unlink(missing_ok=True)
