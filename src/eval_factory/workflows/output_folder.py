"""The output folder of a run: it is ours, nothing unfinished lies about, its cache is whole."""

from __future__ import annotations

import logging
import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from eval_factory.core.errors import ConfigError
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint import response_cache
from eval_factory.helm import names

SHOWN_FILES = 5
_UNFINISHED = re.compile(r".+\.(part|tmp)")
"""Names of files that are not whole yet: ours, HELM's output as our patch writes it, and HELM's downloads."""
_PART_OF = re.compile(r"\.(?P<name>.+)\.[^.]+\.part")
"""What `write_atomic` names a file until it is whole."""


def claim(rundir: RunDir, *, fresh: bool = False) -> None:
    """Make the folder ours, before anything is written there.

    Raises:
        ConfigError: it is not, and holds files that a run would replace or delete.
        PrerequisiteError: it cannot be made or written to.
    """
    if not is_ours(rundir):
        at_risk = sorted(path.relative_to(rundir.root).as_posix() for path in _at_risk(rundir, fresh=fresh))
        if at_risk:
            more = f" and {len(at_risk) - SHOWN_FILES} more" if len(at_risk) > SHOWN_FILES else ""
            raise ConfigError(
                f"config.output_dir: {rundir.root} is no output folder of eval-factory, and holds what a run would"
                f" replace or delete: {', '.join(at_risk[:SHOWN_FILES])}{more}\n"
                "  choose another folder with --output_dir, or move these away"
            )
    rundir.create()


def is_ours(rundir: RunDir) -> bool:
    """Whether eval-factory has used the folder before; earlier versions left no marker, but a log and a cache."""
    if any(path.is_file() for path in (rundir.marker, rundir.program_log, rundir.run_state)):
        return True
    return response_cache.is_ours(rundir.cache_db)


def _at_risk(rundir: RunDir, *, fresh: bool) -> Iterator[Path]:
    """What stands there under names that a run writes to, or `--fresh` deletes; another's cache.db is only renamed."""
    files = (
        *rundir.results,
        rundir.run_config,
        rundir.packages,
        rundir.checksums,
        rundir.attestation,
        *(rundir.answers if fresh else ()),
    )
    yield from (path for path in files if os.path.lexists(path))
    for folder in (rundir.responses, rundir.model_configs, rundir.helm_runs, rundir.shards):
        if folder.is_dir() and any(folder.iterdir()):
            yield folder


def ready_cache(rundir: RunDir, log: logging.Logger) -> None:
    """Make sure that cache.db is there and ours; a damaged one is archived."""
    try:
        response_cache.create_or_check(rundir.cache_db)
    except response_cache.DamagedCacheError as error:
        aside = response_cache.archive(rundir.cache_db)
        log.warning("cache.db: %s; it was renamed to %s and is not used", error, aside.name)
        response_cache.create_or_check(rundir.cache_db)


def remove_unfinished(rundir: RunDir, log: logging.Logger) -> None:
    """Delete files that a run which was killed had not finished; nobody else writes here, for the folder is locked."""
    found = [path for path in rundir.root.glob(".*.part") if _is_part_of_ours(rundir, path.name)]
    for folder in (rundir.responses, rundir.model_configs, rundir.helm):
        for parent, _, files in os.walk(folder):  # which follows no links
            found += [Path(parent) / name for name in files if _UNFINISHED.fullmatch(name)]
    for path in found:
        path.unlink(missing_ok=True)
    if found:
        log.info("%d files that a killed run had not finished were deleted", len(found))


def _is_part_of_ours(rundir: RunDir, name: str) -> bool:
    part = _PART_OF.fullmatch(name)
    return part is not None and rundir.writes(part["name"])


def start_over(rundir: RunDir) -> None:
    """Forget answers, results, floors. What scenarios downloaded stays, and so does what was moved aside."""
    for folder in (rundir.helm_runs, rundir.responses, rundir.shards):
        shutil.rmtree(folder, ignore_errors=True)
    for path in (
        rundir.run_state,
        rundir.packages,
        rundir.helm / names.TRIVIAL_SCORES_FILE,  # no answers of the model; but nothing is taken over
        *rundir.results,
        *(rundir.answers if response_cache.is_ours(rundir.cache_db) else ()),
    ):
        path.unlink(missing_ok=True)
