"""Prepares an output folder for a run: finds the keys, claims and locks the folder, opens the log.

The resulting `RunContext` is passed to every step of the run. The module also writes the files of a
result, and deletes the files of the last run for --fresh.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TextIO

from eval_factory.config.resolved import Evaluation
from eval_factory.core.errors import ConfigError
from eval_factory.core.formats import first_of
from eval_factory.core.rundir import Lock, RunDir
from eval_factory.core.secrets import Redactor
from eval_factory.helm import names
from eval_factory.helm.picture_metrics import uncomputed_metric_lines
from eval_factory.plan.run_plan import Plan

if TYPE_CHECKING:
    import logging

    from eval_factory.core.results import TaskResult

SHOWN_FILES = 5  # the maximum number of files that an error message names
# the variable with the token of the Hugging Face Hub
HUB_TOKEN = "HF_TOKEN"  # noqa: S105 - a variable's name, not a token


@dataclass(frozen=True)
class RunContext:
    """An output folder that this process has locked, with the log and the screen of the run."""

    rundir: RunDir
    lock: Lock
    env: Mapping[str, str]  # the user's environment variables, and keys from other sources
    redactor: Redactor
    log: logging.Logger
    screen: TextIO

    def say(self, text: str) -> None:
        """Write the text to the log and the screen."""
        self.log.info(text)
        self.show_unlogged(text)

    def show_unlogged(self, text: str) -> None:
        """Write the text to the screen alone."""
        self.screen.write(f"{text}\n")


def redactor_of(evaluation: Evaluation, env: Mapping[str, str]) -> Redactor:
    """Return a redactor that hides the secrets of a run.

    The secrets are those of the endpoints, the passwords of proxies, and the token of the Hugging
    Face Hub, because HELM may print this token.
    """
    return Redactor.from_environment(env, [*evaluation.key_variables(), HUB_TOKEN])


def show_warnings(evaluation: Evaluation, screen: TextIO) -> None:
    """Write the warnings about the configuration to the screen."""
    screen.writelines(f"warning: {text}\n" for text in evaluation.warnings)


def show_uncomputed_metrics(plans: Iterable[Plan], env: Mapping[str, str], screen: TextIO) -> None:
    """Write to the screen which picture metrics this machine cannot compute.

    The warning comes before the run sends requests that cost money.
    """
    screen.writelines(f"{line}\n" for line in uncomputed_metric_lines(plans, env))


@contextmanager
def lock_folder(
    plan: Plan, env: Mapping[str, str], screen: TextIO, *, debug: bool = False
) -> Iterator[RunContext]:
    """Yield the context of a run: find the keys, claim and lock the output folder, open the log.

    Raises:
        ConfigError: The folder is not an output folder, and a run would overwrite its files.
        PrerequisiteError: A key is missing, or the folder cannot be written.
        BusyError: Another run has locked the folder.
    """
    from eval_factory.core.logs import open_log
    from eval_factory.plan.credentials import credentials_report

    report = credentials_report(plan, env)
    env = {**env, **report.added_keys}
    redactor = redactor_of(plan.evaluation, env)
    for key in report.added_keys.values():
        redactor.learn(key)
    claim_output_folder(plan.rundir)
    with (
        plan.rundir.locked(lambda text: print(text, file=screen)) as lock,
        open_log(plan.rundir, redactor, debug=debug) as log,
    ):
        for text in plan.evaluation.warnings:
            log.info(f"warning: {text}")  # `show_warnings` has written these to the screen
        for line in report.lines:
            log.info(line)
        for warning in report.warnings:
            screen.write(f"warning: {warning}\n")
        yield RunContext(plan.rundir, lock, env=env, redactor=redactor, log=log, screen=screen)


def claim_output_folder(rundir: RunDir) -> None:
    """Create the output folder, or check that an existing folder may become an output folder.

    Raises:
        ConfigError: The folder is not an output folder of eval-factory, and it contains files that
            a run would replace or delete.
        PrerequisiteError: The folder cannot be created or written to.
    """
    if not rundir.marker.is_file():
        overwritten_files = (
            *rundir.result_files,
            rundir.run_config,
            rundir.packages,
            rundir.checksums,
            rundir.attestation,
            *rundir.answer_files,
        )
        at_risk_paths = []
        for path in overwritten_files:
            if os.path.lexists(path):  # also True for a broken link
                at_risk_paths.append(path)
        folders = (rundir.responses, rundir.model_configs, rundir.helm_runs, rundir.made_pictures)
        at_risk_paths += [folder for folder in folders if folder.is_dir() and any(folder.iterdir())]
        at_risk = sorted(path.relative_to(rundir.root).as_posix() for path in at_risk_paths)
        if at_risk:
            raise ConfigError(
                f"config.output_dir: {rundir.root} "
                "is not an output folder of eval-factory, and contains files that a run would"
                f" replace or delete: {first_of(at_risk, SHOWN_FILES)}\n"
                "  choose another folder with --output_dir, or move these files away"
            )
    rundir.create()


def write_result(
    plan: Plan,
    result: TaskResult,
    *,
    command: str,
    user_config: Mapping[str, Any],
    redactor: Redactor,
) -> TaskResult:
    """Write the metrics, the documents and the pages of a result to its output folder.

    Args:
        plan: The plan of the run.
        result: The result to write.
        command: The command line that the documents name.
        user_config: The parts of `config` and `target` that the user set.
        redactor: The redactor of the run's secrets.

    Returns:
        The result as evaluation_config.yaml states it: with rounded numbers and no instances.
    """
    from eval_factory.report.write import write_metrics, write_reports
    from eval_factory.scoring.journal import read_answers, read_roles, response_statistics

    cache_db = plan.rundir.cache_db
    config = plan.evaluation.as_dict()
    write_metrics(result, response_statistics(cache_db), plan.rundir)
    answers = {role: read_answers(cache_db, role) for role in read_roles(cache_db)}
    return write_reports(
        result,
        plan.rundir,
        config=config,
        command=command,
        redactor=redactor,
        responses=answers,
        user_config=user_config,
    )


def start_over(rundir: RunDir) -> None:
    """Delete the answers, the results and the records about the last run, for --fresh.

    Data that scenarios downloaded, and files that were archived, are not deleted.
    """
    for folder in (rundir.helm_runs, rundir.responses, rundir.made_pictures):
        shutil.rmtree(folder, ignore_errors=True)
    for path in (
        rundir.run_state,
        rundir.packages,
        rundir.helm / names.TRIVIAL_SCORES_FILE,
        *rundir.result_files,
        *rundir.answer_files,
        rundir.batches,
    ):
        path.unlink(missing_ok=True)
