"""Detects which program wrote a source, and reads the results in the source."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from itertools import count
from pathlib import Path

from eval_factory.core.errors import ConfigError
from eval_factory.core.rundir import RunDir
from eval_factory.importing import (
    every_eval_ever_files,
    helm_folders,
    inspect_logs,
    lm_eval_folders,
    tables,
)
from eval_factory.importing.foreign_run import ForeignRun, ForeignSample
from eval_factory.importing.sources import (
    SourceError,
    refuse_outside_links,
    unexpected_fields_refused,
)
from eval_factory.importing.tables import Columns

INSPECT = "inspect"
LM_EVAL = "lm-eval"
HELM = "helm"
EEE = "eee"  # Every Eval Ever
TABLE = "table"
FORMATS = (INSPECT, LM_EVAL, HELM, EEE, TABLE)


def runs_in(
    source: Path, stated_format: str | None, columns: Columns, *, task: str, model: str
) -> list[ForeignRun]:
    """Read all results in a source.

    Args:
        source: a file or a folder.
        stated_format: one of `FORMATS`; if None, the format is detected.
        columns: the columns, if the source is a table.
        task: the name of the benchmark, if the source is a table.
        model: the name of the model, if the source is a table.

    Raises:
        ConfigError: the format cannot be detected, or a column is missing.
        SourceError: the source cannot be read or is incomplete.
    """
    if not source.exists():
        raise SourceError(f"{source}: there is no such file or folder")
    if source.is_dir():
        refuse_outside_links(source)
    source_format = stated_format or detect_format(source)
    with unexpected_fields_refused(source):
        if source_format == TABLE:
            runs = [tables.read(source, columns, task, model)]
        else:
            runs = _READERS[source_format](source)
    return [_with_checked_samples(run) for run in runs]


def _with_checked_samples(run: ForeignRun) -> ForeignRun:
    """Return the run with samples that are checked when they are read."""
    if run.samples is None:
        return run
    files = ", ".join(run.files)
    return replace(run, samples=partial(_checked_samples, run.samples, files))


def _checked_samples(
    open_samples: Callable[[], Iterator[ForeignSample]], files: str
) -> Iterator[ForeignSample]:
    """Yield the samples of a run.

    Raises:
        SourceError: a sample has fields of unexpected types; the message has the number of the
            sample.
    """
    samples = open_samples()
    for number in count(1):
        # `yield` stays outside of the context: errors of the caller's code are not the source's.
        with unexpected_fields_refused(f"{files}, answer {number}"):
            sample = next(samples, None)
        if sample is None:
            return
        yield sample


def detect_format(source: Path) -> str:
    """Return the format of a source, one of `FORMATS`.

    Raises:
        ConfigError: the source has none of the formats, or is already a result of eval-factory.
    """
    detected = _format_of_folder(source) if source.is_dir() else _format_of_file(source)
    if detected is not None:
        return detected
    if RunDir(source).evaluation_config.is_file():
        raise ConfigError(
            f"{source}: is a result of eval-factory already: there is nothing to import"
        )
    known = ", ".join(FORMATS)
    raise ConfigError(f"{source}: the format is not recognised; name it with --format ({known})")


def _format_of_file(source: Path) -> str | None:
    """Return the format of a file; None if it has none of the formats."""
    suffix = source.suffix.lower()
    if suffix in tables.SUFFIXES:
        return TABLE
    if suffix == ".eval" or (suffix == ".json" and inspect_logs.is_log(source)):
        return INSPECT
    if suffix == ".json" and lm_eval_folders.is_results_file(source):
        return LM_EVAL
    if suffix == ".json" and every_eval_ever_files.is_record(source):
        return EEE
    return None


def _format_of_folder(source: Path) -> str | None:
    """Return the format of the files in a folder; None if no file has one of the formats.

    If the folder has files of several formats, the first format in the order of these tests is
    returned. Tables in a folder are not detected.
    """
    if helm_folders.runs_below(source):
        return HELM
    if any(map(lm_eval_folders.is_results_file, lm_eval_folders.results_files(source))):
        return LM_EVAL
    files = sorted(source.rglob("*.json"))
    if any(source.rglob("*.eval")) or any(map(inspect_logs.is_log, files)):
        return INSPECT
    if any(map(every_eval_ever_files.is_record, files)):
        return EEE
    return None


def _inspect_runs(source: Path) -> list[ForeignRun]:
    """Read the logs of Inspect in a file or folder."""
    if not source.is_dir():
        return [inspect_logs.read(source)]
    runs = []
    for path in sorted([*source.rglob("*.eval"), *source.rglob("*.json")]):
        if inspect_logs.is_log(path):
            runs.append(inspect_logs.read(path))
    return runs


def _lm_eval_runs(source: Path) -> list[ForeignRun]:
    """Read the results of lm-evaluation-harness in a file or folder."""
    if not source.is_dir():
        return lm_eval_folders.read(source)
    runs = []
    for path in lm_eval_folders.results_files(source):
        runs += lm_eval_folders.read(path)
    return runs


def _helm_runs(source: Path) -> list[ForeignRun]:
    """Read the runs of helm-run in a folder."""
    return [helm_folders.read(folder) for folder in helm_folders.runs_below(source)]


def _eee_runs(source: Path) -> list[ForeignRun]:
    """Read the records of Every Eval Ever in a file or folder."""
    if not source.is_dir():
        return every_eval_ever_files.read(source)
    runs = []
    for path in sorted(source.rglob("*.json")):
        if every_eval_ever_files.is_record(path):
            runs += every_eval_ever_files.read(path)
    return runs


_READERS: dict[str, Callable[[Path], list[ForeignRun]]] = {
    INSPECT: _inspect_runs,
    LM_EVAL: _lm_eval_runs,
    HELM: _helm_runs,
    EEE: _eee_runs,
}
