"""Runs one evaluation as a Slurm job.

The run is treated as a suite with one cell, so that it can be submitted and resumed like any suite.
The suite's files are in the run's output folder. When the job has ended, this module collects the
result.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any, TextIO

from eval_factory.config.evaluation import RunRequest
from eval_factory.config.foreign_keys import EXECUTOR
from eval_factory.config.resolved import Evaluation
from eval_factory.config.suite import Suite, build_suite
from eval_factory.config.suite_layers import SUITE_KEY, name_of_type
from eval_factory.core.enums import SLURM, RunStatus
from eval_factory.core.errors import ConfigError, HelmError, NotReportableError, PrerequisiteError
from eval_factory.core.foreign_text import printable_lines
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.rundir import SINGLE_RUN_FOLDER, RunSuiteDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.executors.slurm_waves import SlurmStore
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.report.reader import load_result
from eval_factory.report.summary import result_summary
from eval_factory.scoring.reportable import why_not_reportable
from eval_factory.workflows.context import claim_output_folder, redactor_of, show_warnings
from eval_factory.workflows.evaluate import evaluate
from eval_factory.workflows.evaluated import Evaluated
from eval_factory.workflows.options import Options, Submitted
from eval_factory.workflows.suite.planned_cells import checked_cells, planned_cells_of
from eval_factory.workflows.suite.run_suite import run_suite
from eval_factory.workflows.suite.slurm_suite import script_lines
from eval_factory.workflows.suite.suite_journal import ScreenLines
from eval_factory.workflows.suite.suite_report import SuiteOptions

TARGET_NAME = "model"  # the name of the only target of the suite
# the error that `run_as_job` raises for the exit code of the cell
_ERROR_OF_EXIT_CODE = {
    error.exit_code: error
    for error in (NotReportableError, ConfigError, PrerequisiteError, HelmError)
}


class JobLines(ScreenLines):
    """Shows the lines about the job, but not the events.

    With only one cell, the events would repeat what the lines say.
    """

    def on_event(self, event: Mapping[str, Any]) -> None:
        """Ignore the event."""


def run_as_job(
    evaluation: Evaluation, options: Options, *, wait: bool, env: Mapping[str, str], screen: TextIO
) -> Evaluated | Submitted:
    """Submit the run as a job, or collect its result if its job has ended.

    With `wait`, also wait for the end of a submitted job, and collect the result.

    Raises:
        EvalFactoryError: the run cannot be submitted, or it failed; the error of a failed run has
            the exit code that a local run would have had.
    """
    if options.watch is not None:
        raise ConfigError(
            "--watch only shows runs on this machine; "
            "for a Slurm job, use 'eval-factory suite logs -f OUTPUT_DIR'"
        )
    plan = make_plan(evaluation)
    suite = suite_of(evaluation, plan, env)
    claim_output_folder(plan.rundir)
    folder = RunSuiteDir(suite.folder.root)
    # A wave is a submitted job array. It is open while its tasks may still be in Slurm: a task may
    # then have locked the folder.
    if not SlurmStore(folder).has_open_waves():
        # Raises BusyError if another process on this machine is running the same evaluation.
        with plan.rundir.locked():
            pass
    comment = (
        "# The run, as a Slurm job. To continue the run: "
        "eval-factory run_eval --run_config THIS_FILE\n"
    )
    write_atomic(folder.run_config, comment + to_yaml(run_config_of(evaluation, plan)))
    suite_options = SuiteOptions(
        fresh=options.fresh, debug=options.debug, no_preflight=options.no_preflight, wait=wait
    )
    (cell_report,) = run_suite(suite, suite_options, env=env, screen=JobLines(screen)).cells
    if cell_report.status == RunStatus.COMPLETE:
        # Collect again, with the current options: the user may have changed what counts as
        # reportable.
        collect_options = replace(options, fresh=False, only_collect=True)
        request = RunRequest()  # empty, because the evaluation was already built
        return evaluate(request, collect_options, env=env, screen=screen, evaluation=evaluation)
    show_warnings(evaluation, screen)
    root = shlex.quote(str(plan.rundir.root))
    if cell_report.status == RunStatus.WAITING:
        steps = (
            f"submitted to Slurm; the result will be in {plan.rundir.root}\n"
            "  when the job has ended, the same command shows the result; "
            "with --wait, the command waits for the end\n"
            f"  the state of the job: eval-factory suite status {root}\n"
            f"  the logs of the job: eval-factory suite logs -f {root}\n"
            f"  to end the job: eval-factory suite cancel {root}"
        )
        return Submitted(plan.rundir.root, steps)
    if cell_report.status == RunStatus.PARTIAL:
        return _partial_result(plan, env)
    raise _ERROR_OF_EXIT_CODE.get(cell_report.exit_code, HelmError)(
        f"{cell_report.reason or cell_report.status}\n"
        f"  the logs of the job: eval-factory suite logs {root}\n"
        "  the same command submits the run again, and reuses the answers that it already has"
    )


def _partial_result(plan: Plan, env: Mapping[str, str]) -> Evaluated:
    """Return the partial result as the job wrote it.

    `evaluate` is not called here: for a partial result, it would send the missing requests.
    """
    result = load_result(plan.rundir.root).result
    redactor = redactor_of(plan.evaluation, env)
    text = printable_lines(redactor.redact_text(result_summary(result, plan.rundir)))
    minimum = plan.evaluation.extra.min_coverage
    return Evaluated(result, plan.rundir, text, why_not_reportable(result, minimum))


def suite_of(evaluation: Evaluation, plan: Plan, env: Mapping[str, str]) -> Suite:
    """Return a suite whose only cell is this run.

    Raises:
        ConfigError: Slurm jobs cannot run this evaluation.
    """
    run = run_config_of(evaluation, plan)
    config = run["config"]
    entry = {"type": config["type"], "name": name_of_type(config["type"], evaluation.framework)}
    section = {
        "output_dir": str(plan.rundir.root / SINGLE_RUN_FOLDER),
        EXECUTOR: SLURM,
        SLURM: run[SLURM],
        "evaluations": [{**entry, "params": config.get("params")}],
        "targets": [{"name": TARGET_NAME, "api_endpoint": run["target"]["api_endpoint"]}],
    }
    return build_suite(path=None, document={SUITE_KEY: section}, env=env)


def run_config_of(evaluation: Evaluation, plan: Plan) -> dict[str, Any]:
    """Return a run config with the user's settings, the Slurm settings and the run's output_dir.

    Slurm settings without a value are left out.
    """
    run = evaluation.as_given()
    run["config"]["output_dir"] = str(plan.rundir.root)
    slurm_settings = {}
    for name, value in evaluation.executor.slurm.items():
        if value not in (None, []):
            slurm_settings[name] = value
    return {**run, EXECUTOR: SLURM, SLURM: slurm_settings}


def job_script(evaluation: Evaluation, env: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of the batch script, which `--dry_run` shows after the preview of the run.

    Raises:
        ConfigError: Slurm jobs cannot run this evaluation.
    """
    suite = suite_of(evaluation, make_plan(evaluation), env)
    yield from script_lines(suite, planned_cells_of(suite, checked_cells(suite, env)), env)
