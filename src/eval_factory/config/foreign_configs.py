"""Converts other programs' configurations into our form, for the command `import_config`.

This module finds out which program a file is of. A run config of EvalFactory, a program of NVIDIA,
is converted by `foreign_run_document`, a config of nemo-evaluator-launcher by `foreign_launcher`,
and the run configs of all further programs by `foreign_forms`. Every key without a counterpart is
listed as a finding (`foreign_file`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from eval_factory.config.foreign_file import FileImport, Tree, mapping
from eval_factory.config.foreign_forms import form_of, runs_of, without_versioned_names
from eval_factory.config.foreign_keys import TABLE
from eval_factory.config.foreign_launcher import LauncherImport
from eval_factory.config.foreign_run_document import RunDocument
from eval_factory.config.foreign_suite import distinct_names, suite_document
from eval_factory.config.suite_layers import name_of_type
from eval_factory.core.errors import ConfigError
from eval_factory.core.plain_yaml import load_mapping
from eval_factory.core.secrets import paths_of_written_keys
from eval_factory.tasks.framework import Framework

_KNOWN_FORMS = TABLE["known"]  # a text that lists the forms that can be converted


@dataclass(frozen=True)
class Translation:
    """The result of a conversion: the new configuration, and the findings about other settings."""

    document: Mapping[str, Any]
    findings: tuple[str, ...]
    """A line for each setting that the document lacks or holds in another form. A line names the
    key in the file, the reason, and what the user can do.
    """

    @property
    def text(self) -> str:
        """The YAML of the new configuration, with a comment for each finding."""
        lines = ["# Made by 'eval-factory import_config'."]
        if self.findings:
            lines.append("# Settings that eval-factory does not have, or writes in another way:")
        lines += [f"# - {finding}" for finding in self.findings]
        # The large width keeps a long text on one line.
        body = yaml.safe_dump(dict(self.document), sort_keys=False, allow_unicode=True, width=1000)
        return "\n".join([*lines, body])


def translate_config(path: Path, framework: Framework) -> Translation:
    """Convert the configuration file of another program.

    Raises:
        ConfigError: the file cannot be read, has no known form, holds an API key, or names no task
            of eval-factory.
    """
    document = load_mapping(path, needs=_KNOWN_FORMS)
    # A name with a version, such as `lm-eval://mmlu@1.0`, looks like a URL with a password.
    paths_of_api_keys = list(paths_of_written_keys(without_versioned_names(document)))
    if paths_of_api_keys:
        raise ConfigError(
            [f"{path}: {key_path}: {TABLE['written_key']}" for key_path in paths_of_api_keys]
        )
    file_import = FileImport(path, framework, document)
    form = form_of(document)
    if form is not None:
        written = _from_other_form(file_import, form)
    elif {"evaluation", "execution", "deployment"} & set(document):
        file_import = LauncherImport(path, framework, document)
        written = file_import.run_or_suite()
    elif {"config", "target"} & set(document):
        written = _from_run_config(file_import)
    else:
        raise ConfigError(f"{path}: is not a configuration in a known form; {_KNOWN_FORMS}")
    return Translation(written, tuple(dict.fromkeys(file_import.findings)))


def _from_run_config(file_import: FileImport) -> Tree:
    """Convert a run config of EvalFactory or NeMo Evaluator."""
    document = file_import.document
    executor_keys = {}
    for name in ("executor", "slurm"):
        if name in document:
            executor_keys[name] = document[name]
    top_level_keys = ("config", "target", *executor_keys)
    file_import.note_unknown_keys(section="", value=document, known_keys=top_level_keys)
    task = file_import.task(mapping(document.get("config")).get("type"), "config.type")
    if task is None:
        # The last finding states why there is no task.
        raise ConfigError(f"{file_import.path}: {file_import.findings[-1]}")
    only_layer = ("", document)
    run = RunDocument(file_import, task).document([only_layer])
    return {**run, **executor_keys}


def _from_other_form(file_import: FileImport, form: str) -> Tree:
    """Convert a run config of lm-evaluation-harness, inspect_ai or `nel eval run`."""
    framework = file_import.framework
    foreign_runs = runs_of(form, file_import.document, framework, file_import.note)
    runs = [run.document for run in foreign_runs]
    if not runs:
        raise ConfigError(f"{file_import.path}: names no benchmark")
    if len(runs) == 1:
        return runs[0]
    names = [name_of_type(run["config"]["type"], framework) for run in runs]
    folder = runs[0]["config"]["output_dir"]
    suite = suite_document(runs, distinct_names(names), executor_keys={}, serve=None)
    return {"suite": {"output_dir": folder, **suite}}
