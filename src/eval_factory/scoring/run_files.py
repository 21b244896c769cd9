"""The files that a result was computed from, by their SHA-256: a result names them, and so fits no other files."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.helm import names

OF_A_RUN = (
    names.RUN_SPEC_FILE,
    names.SCENARIO_FILE,
    names.SCENARIO_STATE_FILE,
    names.STATS_FILE,
    names.PER_INSTANCE_STATS_FILE,
)
"""HELM's own; what `helm-summarize` adds to a run folder later is not read."""

OF_THE_PLUGIN = (
    names.HUB_DATASETS_FILE,
    names.PATCHES_FILE,
    names.LIMITED_RECORDS_FILE,
    names.CODE_EXECUTION_FILE,
    names.JUDGE_PROMPTS_FILE,
    names.TRIVIAL_SCORES_FILE,
)


def run_files(rundir: RunDir, runs: Iterable[Path]) -> dict[str, str]:
    """Path in the output folder -> SHA-256, of those that are there.

    Args:
        runs: the run folders of the result.
    """
    files = [folder / name for folder in runs for name in OF_A_RUN]
    files += [rundir.helm / name for name in OF_THE_PLUGIN]
    files.append(rundir.cache_db)
    return {file.relative_to(rundir.root).as_posix(): sha256_of(file) for file in files if file.is_file()}


def with_run_files(result: TaskResult, rundir: RunDir, runs: Iterable[Path]) -> TaskResult:
    """The result with the hashes in its provenance. The folder's cache must not be open for writing any more."""
    return replace(result, provenance=replace(result.provenance, run_files=run_files(rundir, runs)))
