"""Writes an imported result into an output folder, like the result of any run."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.importing.foreign_run import ForeignRun
from eval_factory.report.checksums import digests_of, write_checksums
from eval_factory.report.documents import run_config_document
from eval_factory.report.reader import StoredResult
from eval_factory.report.write import write_reports
from eval_factory.scoring.clinicians import with_clinicians

DEFAULT_MIN_COVERAGE = 1.0  # the value without the option --min_coverage
FRAMEWORK = "imported"  # the name of framework and package in run_config.yml
_UNSAFE = re.compile(r"[^A-Za-z0-9._-]+")  # characters that a folder name must not have
_MAX_PART = 60  # the maximum length of the task, and of the model, in a folder name


@dataclass(frozen=True)
class ImportOptions:
    """The options of an import, stored in the output folder so that the import can be repeated."""

    source: Path
    source_format: str  # one of `formats.FORMATS`
    columns: Mapping[str, str]  # field of `tables.Columns` -> name of the column in the table
    task: str
    model: str
    min_coverage: float
    published: str | None = None
    training_cutoff: str | None = None

    def command(self, output_dir: Path) -> str:
        """Return the command that makes the same folder again, as text for a shell."""
        # Imported late, because this import loads the readers of all formats.
        from eval_factory.importing.formats import TABLE

        words = ["eval-factory", "import", str(self.source), "-o", str(output_dir)]
        words += ["--format", self.source_format]
        if self.source_format == TABLE:
            words += ["--task", self.task, "--model", self.model]
        for name, column in self.columns.items():
            words += [f"--{name}", column]
        if self.min_coverage != DEFAULT_MIN_COVERAGE:
            words += ["--min_coverage", str(self.min_coverage)]
        if self.published is not None:
            words += ["--published", self.published]
        if self.training_cutoff is not None:
            words += ["--training_cutoff", self.training_cutoff]
        return shlex.join(words)


def folder_name(run: ForeignRun) -> str:
    """Return the name of the folder for one of several results of a source."""
    parts = [_UNSAFE.sub("_", text).strip("._") for text in (run.task, run.model)]
    return "-".join(part[:_MAX_PART] for part in parts if part) or "result"


def config_of_import(run: ForeignRun, options: ImportOptions, output_dir: Path) -> dict[str, Any]:
    """Return `config` and `target` of an imported result."""
    return {
        "config": {
            "type": run.task,
            "output_dir": str(output_dir),
            "params": {"extra": {"min_coverage": options.min_coverage}},
            "imported": {
                "source": str(options.source),
                "format": options.source_format,
                "columns": dict(options.columns),
                "task": options.task,
                "model": options.model,
                "published": options.published,
                "training_cutoff": options.training_cutoff,
                "settings": dict(run.settings),
            },
        },
        "target": {"api_endpoint": {"model_id": run.model}},
    }


def write_import(
    result: TaskResult,
    rundir: RunDir,
    config: Mapping[str, Any],
    command: str,
    redactor: Redactor,
) -> TaskResult:
    """Write the folder of one imported result, and return the result as it was written.

    The checksums are written last: if they exist, all other files do too.

    Args:
        result: the imported result.
        rundir: the output folder.
        config: `config` and `target`, as `config_of_import` returns them.
        command: the command that makes the same folder again.
        redactor: removes secrets from every text before the text is written.
    """
    rundir.forget_checksums()
    written = write_reports(
        result,
        rundir,
        config=config,
        command=command,
        redactor=redactor,
        responses={},  # only eval-factory's own runs have stored responses
    )
    document = run_config_document(
        redactor.redact_tree(config),
        redactor.redact_text(command),
        framework_name=FRAMEWORK,
        pkg_name=FRAMEWORK,
    )
    write_atomic(rundir.run_config, to_yaml(document))
    files = digests_of(rundir, runs=())  # an imported result has no run folders of HELM
    files |= written.provenance.run_files  # the files of the judges' run, if any
    write_checksums(rundir, written, files)
    return written


def write_reports_again(stored: StoredResult, rundir: RunDir) -> TaskResult:
    """Write the reports of an imported result into another folder, and return the result.

    The ratings of clinicians are read again. The source of the import is not read.
    """
    result = with_clinicians(stored.result, RunDir(stored.folder))
    config = {"config": stored.config, "target": stored.target}
    write_reports(
        result, rundir, config=config, command=stored.command, redactor=Redactor(), responses={}
    )
    return result
