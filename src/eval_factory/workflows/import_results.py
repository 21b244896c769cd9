"""Imports results of other programs into output folders like those of eval-factory's own runs."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

from eval_factory.core.errors import ConfigError
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.core.secrets import Redactor

if TYPE_CHECKING:
    from eval_factory.importing.foreign_run import ForeignRun
    from eval_factory.importing.imported_folder import ImportOptions
    from eval_factory.importing.tables import Columns
    from eval_factory.report.reader import StoredResult

_IMPORTER_FIELDS = (
    "eval_factory",
    "python",
    "errata_version",
    "statistics_version",
    "reader_version",
)
"""Fields of the provenance that describe the importing eval-factory, not the source."""


@dataclass(frozen=True)
class Imported:
    """A result that was imported, with its output folder."""

    folder: Path
    result: TaskResult


def import_results(  # noqa: PLR0913 - one parameter for each option of the command
    source: Path | Sequence[Path],
    output_dir: Path,
    *,
    kind: str | None = None,
    columns: Columns | None = None,
    task: str | None = None,
    model: str = "unknown",
    min_coverage: float = 1.0,
    published: str | None = None,
    training_cutoff: str | None = None,
) -> list[Imported]:
    """Import every result in one or several sources.

    A single result is written to `output_dir` itself. Of several results, each is written to a
    subfolder. All sources are read completely before any file is written.

    `kind` is the format of the sources; if `kind` is None, the format of each source is detected.
    `task`, `model` and `columns` name the benchmark, the model and the columns of a source that is
    a table. `min_coverage` is the share of instances that must have a score. `published` is the
    month (`YYYY-MM`) since which the data are public, and `training_cutoff` the month in which the
    model's training data end.

    Raises:
        ConfigError: An option is wrong or missing, or an output folder contains other files.
        PrerequisiteError: The source cannot be read.
        BusyError: Another process has locked the folder.
    """
    from eval_factory.importing.data_age import require_month
    from eval_factory.importing.formats import detect_format, runs_in
    from eval_factory.importing.imported_folder import ImportOptions
    from eval_factory.importing.tables import Columns

    require_month("--published", published)
    require_month("--training_cutoff", training_cutoff)
    columns = columns or Columns()
    sources = [source] if isinstance(source, Path) else source
    runs: list[ForeignRun] = []
    import_options: list[ImportOptions] = []  # the options of each run, in the order of `runs`
    for path in sources:
        # The path is stored as an absolute path, because `verify` may run in another folder.
        source_path = path.expanduser().absolute()
        name = task or source_path.stem
        source_format = kind
        if source_format is None and source_path.exists():
            source_format = detect_format(source_path)
        source_runs = runs_in(source_path, source_format, columns, task=name, model=model)
        options = ImportOptions(
            source=source_path,
            source_format=str(source_format),  # not None: `runs_in` refuses a missing source
            columns=columns.named,
            task=name,
            model=model,
            min_coverage=min_coverage,
            published=published,
            training_cutoff=training_cutoff,
        )
        runs += source_runs
        import_options += [options] * len(source_runs)
    return _write_all(runs, import_options, output_dir)


def _write_all(
    runs: Sequence[ForeignRun], import_options: Sequence[ImportOptions], output_dir: Path
) -> list[Imported]:
    """Convert all runs, then write the output folder of each run, and return the results."""
    from eval_factory.importing.data_age import age_of_data
    from eval_factory.importing.imported_result import result_of

    redactor = Redactor.from_environment(os.environ)
    folders = _output_folders(runs, output_dir)
    for folder in folders:
        refuse_foreign_folder(folder)
    results = []
    for run, options in zip(runs, import_options, strict=True):
        age = age_of_data(run.dataset, options.published, options.training_cutoff)
        results.append(result_of(run, redactor, options.min_coverage, age))
    imported = []
    for run, options, folder, result in zip(runs, import_options, folders, results, strict=True):
        written = _write_folder(run, result, options, folder, redactor)
        imported.append(Imported(folder, written))
    return imported


def _output_folders(runs: Sequence[ForeignRun], output_dir: Path) -> list[Path]:
    """Return the output folder of each run; folders of runs with equal names get a number."""
    from eval_factory.importing.imported_folder import folder_name

    if len(runs) == 1:
        return [output_dir]
    folders: list[Path] = []
    for run in runs:
        name = folder_name(run)
        number = 2
        folder = output_dir / name
        while folder in folders:
            folder = output_dir / f"{name}-{number}"
            number += 1
        folders.append(folder)
    return folders


def refuse_foreign_folder(folder: Path, *, may_be_imported: bool = True) -> None:
    """Check that an imported result may be written to a folder.

    Args:
        folder: The output folder.
        may_be_imported: True if an imported result in the folder may be replaced.

    Raises:
        ConfigError: The folder contains another result or other files.
    """
    rundir = RunDir(folder)
    if not folder.exists() or not any(folder.iterdir()):
        return
    # The judgements that `rescore` added to an imported result are in `rundir.judged`.
    may_be_replaced = may_be_imported and is_imported(rundir) and not rundir.judged.exists()
    is_output_folder = rundir.marker.exists()
    has_result_to_keep = rundir.evaluation_config.exists() and not may_be_replaced
    if not is_output_folder or has_result_to_keep:
        raise ConfigError(
            f"{folder}: contains another result or other files; choose another folder"
        )


def is_imported(rundir: RunDir) -> bool:
    """Return True if the folder's run_config.yml says that an import wrote the folder."""
    from eval_factory.importing.imported_folder import FRAMEWORK

    if not rundir.run_config.is_file():
        return False
    text = rundir.run_config.read_text(encoding="utf-8", errors="replace")
    return f"\nframework_name: {FRAMEWORK}\n" in text


def _write_folder(
    run: ForeignRun,
    result: TaskResult,
    options: ImportOptions,
    folder: Path,
    redactor: Redactor,
) -> TaskResult:
    """Write the files of an imported result, and return the result as it was written."""
    from eval_factory.importing.imported_folder import config_of_import, write_import
    from eval_factory.scoring.clinicians import with_clinicians

    rundir = RunDir(folder)
    rundir.create()
    with rundir.locked():
        result = with_clinicians(result, rundir)
        config = config_of_import(run, options, folder)
        return write_import(result, rundir, config, options.command(folder), redactor)


@dataclass(frozen=True)
class ImportedAgain:
    """A second import of the source of an imported result."""

    # the temporary folder of this import; None if the source was deleted, or no longer contains the
    # result
    rundir: RunDir | None
    source: Path
    files: Mapping[str, str]  # the current SHA-256 of each file in the source, by name


@contextmanager
def imported_again(stored: StoredResult) -> Iterator[ImportedAgain]:
    """Import the source of a result again, into a temporary folder.

    Raises:
        SourceError: The source can no longer be read.
    """
    from eval_factory.importing.data_age import DataAge
    from eval_factory.importing.formats import runs_in
    from eval_factory.importing.imported_folder import ImportOptions, config_of_import, write_import
    from eval_factory.importing.imported_result import result_of
    from eval_factory.importing.tables import Columns
    from eval_factory.scoring.clinicians import with_clinicians

    source_record = stored.config["imported"]
    options = ImportOptions(
        source=Path(source_record["source"]),
        source_format=source_record["format"],
        columns=source_record["columns"],
        task=source_record["task"],
        model=source_record["model"],
        min_coverage=stored.extra["min_coverage"],
        published=source_record.get("published"),
        training_cutoff=source_record.get("training_cutoff"),
    )
    run = None
    if options.source.exists():
        columns = Columns(**options.columns)
        runs = runs_in(
            options.source, options.source_format, columns, task=options.task, model=options.model
        )
        run = _same_run(runs, stored)
    if run is None:
        yield ImportedAgain(rundir=None, source=options.source, files={})
        return
    with TemporaryDirectory() as folder:
        rundir = RunDir(Path(folder))
        rundir.create()
        old_provenance = stored.result.provenance
        # The facts about the data set are those of the first import: eval-factory's own list of
        # data sets may have changed since.
        age = DataAge(
            published=options.published or old_provenance.published,
            answers_public=old_provenance.answers_public,
            training_cutoff=options.training_cutoff,
        )
        # The texts are compared with the stored texts. Today's environment may have other secrets
        # than that of the first import: redacting these would alter texts that were stored. A text
        # that the first import redacted is named as a difference.
        without_secrets = Redactor()
        result = result_of(run, without_secrets, options.min_coverage, age)
        importer_fields = {name: getattr(old_provenance, name) for name in _IMPORTER_FIELDS}
        result = replace(result, provenance=replace(result.provenance, **importer_fields))
        result = _with_rescored_values(result, stored)
        result = with_clinicians(result, RunDir(stored.folder))
        config = config_of_import(run, options, Path(stored.config["output_dir"]))
        write_import(result, rundir, config, stored.command, without_secrets)
        yield ImportedAgain(rundir=rundir, source=options.source, files=run.files)


def _with_rescored_values(result: TaskResult, stored: StoredResult) -> TaskResult:
    """Return the result with the scores that `rescore` added.

    If the stored result was not rescored, `result` is returned unchanged.
    """
    from eval_factory.importing.added_scores import with_added_scores
    from eval_factory.report.reader import load_result

    imported = stored.result.provenance.imported
    if imported is None or imported.rescored_folder is None:
        return result
    rundir = RunDir(stored.folder)
    # An imported result has run files only if a run asked judges about its answers.
    judged = load_result(rundir.judged) if stored.result.provenance.run_files else None
    return with_added_scores(result, Path(imported.rescored_folder), rundir, judged)


def _same_run(runs: Sequence[ForeignRun], stored: StoredResult) -> ForeignRun | None:
    """Return the run from which the stored result was imported; None if it is not in `runs`."""
    imported = stored.result.provenance.imported
    for run in runs:
        is_same = (run.task, run.model) == (stored.result.task, stored.result.provenance.target)
        if imported is not None and is_same and set(run.files) == set(imported.files):
            return run
    return None
