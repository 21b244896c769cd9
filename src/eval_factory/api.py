"""Contains the public Python functions of eval-factory, one for each main command.

The functions return records and print nothing:

    from eval_factory import evaluate, load_result

    evaluated = evaluate("run_config.yml", output_dir="out")
    print(evaluated.result.scores[evaluated.result.main_metric].value, evaluated.not_reportable)
    stored = load_result("out")

An error that a user can cause is a subclass of `EvalFactoryError`. Its `exit_code` is the exit code
of the command for this error. No function ends the process. The functions can be called in a
notebook, in several threads at once, and any number of times.

The most important functions can be imported from `eval_factory`, all functions from this module.
"""

from __future__ import annotations

import importlib
import io
import os
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from eval_factory.config.evaluation import (
    RunRequest,
    as_tuple,
    build_evaluation,
    request_of_arguments,
)
from eval_factory.config.load import as_yaml_values
from eval_factory.core.errors import (
    BusyError,
    ConfigError,
    EvalFactoryError,
    HelmError,
    InterruptedRunError,
    NotReportableError,
    PrerequisiteError,
)
from eval_factory.core.this_process import interruptible
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.options import BatchChoice, DryRun, Options, Submitted

if TYPE_CHECKING:
    from eval_factory.analysis.comparison_records import Compared
    from eval_factory.analysis.gate import GateResult
    from eval_factory.report.reader import StoredResult, load_result
    from eval_factory.tasks.task_info import ParameterInfo, TaskInfo, list_tasks
    from eval_factory.workflows.calibrate import Calibrated
    from eval_factory.workflows.estimate_records import Estimate
    from eval_factory.workflows.evaluated import Evaluated
    from eval_factory.workflows.reproduce import Reproduction, Reran
    from eval_factory.workflows.suite.suite_report import CellReport, SuiteOptions, SuiteReport
    from eval_factory.workflows.verify import Finding, Verified
    from eval_factory.workflows.view import Pages


_LAZY_NAMES = {
    "analysis.comparison_records": ("Compared",),
    "analysis.gate": ("GateResult",),
    "report.reader": ("StoredResult", "load_result"),
    "tasks.task_info": ("ParameterInfo", "TaskInfo", "list_tasks"),
    "workflows.calibrate": ("Calibrated",),
    "workflows.evaluated": ("Evaluated",),
    "workflows.reproduce": ("Reproduction", "Reran"),
    "workflows.suite.suite_report": ("CellReport", "SuiteOptions", "SuiteReport"),
    "workflows.verify": ("Finding", "Verified"),
}
"""Module -> its names that are imported at their first use. A dry run needs none of these modules,
and their import would slow down the dry run.
"""

__all__ = [
    "BatchChoice",
    "BusyError",
    "Calibrated",
    "CellReport",
    "Compared",
    "ConfigError",
    "DryRun",
    "EvalFactoryError",
    "Evaluated",
    "Finding",
    "GateResult",
    "HelmError",
    "InterruptedRunError",
    "NotReportableError",
    "Options",
    "ParameterInfo",
    "PrerequisiteError",
    "Reproduction",
    "Reran",
    "StoredResult",
    "Submitted",
    "SuiteOptions",
    "SuiteReport",
    "TaskInfo",
    "Verified",
    "calibrate",
    "cancel_batches",
    "compare",
    "dry_run",
    "estimate",
    "evaluate",
    "export_pages",
    "gate",
    "list_tasks",
    "load_result",
    "reproduce",
    "rescore",
    "run_again",
    "run_suite",
    "served_pages",
    "submit",
    "verify",
]


def __getattr__(name: str) -> Any:
    """Return the object with a name of `_LAZY_NAMES` (PEP 562), and import its module.

    Raises:
        AttributeError: `_LAZY_NAMES` does not list the name.
    """
    for module, names in _LAZY_NAMES.items():
        if name in names:
            return getattr(importlib.import_module(f"eval_factory.{module}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def evaluate(
    run_config: Path | str | Mapping[str, Any] | None = None,
    *,
    output_dir: Path | str | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    options: Options | None = None,
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> Evaluated:
    """Run one evaluation, and return its result.

    If the output folder already has the complete result of this evaluation, no request is sent. If
    the configuration says that the run is a Slurm job, the function waits for the job.

    Args:
        run_config: The path of the YAML file, or its content as a mapping
            (`{"config": ..., "target": ...}`). The mapping is not changed.
        output_dir: The output folder; replaces the file's `config.output_dir`.
        flags: Values by their paths (`config.params.limit_samples`); replace the file's values.
        overrides: Texts `path.to.key=value,...` as in `--overrides`; replace all other values.
        options: The options that are not part of the configuration.
        env: The environment variables, with the keys; None: the variables of this process.
        screen: The stream for progress and warnings, such as `sys.stderr`; None: not shown.

    Raises:
        EvalFactoryError: The run failed. A result that is not reportable raises no error.
        InterruptedRunError: The user pressed Ctrl-C, or stopped the notebook's cell, while helm-run
            was running; or the Slurm job continues without this function.
        KeyboardInterrupt: The user pressed Ctrl-C, or stopped the notebook's cell, at another time.
    """
    request = request_of_arguments(run_config, output_dir, flags, overrides)
    with interruptible():
        outcome = _run(
            request, options or Options(), wait=True, env=_env(env), screen=screen or io.StringIO()
        )
    if isinstance(outcome, Submitted):
        raise InterruptedRunError(outcome.summary)
    return outcome


def submit(
    run_config: Path | str | Mapping[str, Any] | None = None,
    *,
    output_dir: Path | str | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    options: Options | None = None,
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> Evaluated | Submitted:
    """Run one evaluation as `evaluate` does, but do not wait for a Slurm job.

    Returns:
        The result, or a `Submitted` if a Slurm job was submitted or has not ended. When the job has
        ended, the same call returns the result.
    """
    request = request_of_arguments(run_config, output_dir, flags, overrides)
    return _run(
        request, options or Options(), wait=False, env=_env(env), screen=screen or io.StringIO()
    )


def _run(
    request: RunRequest, options: Options, *, wait: bool, env: Mapping[str, str], screen: TextIO
) -> Evaluated | Submitted:
    """Run the evaluation in this process or as a Slurm job, as the configuration says.

    If a Slurm job of this run has ended, its result is returned.
    """
    evaluation = build_evaluation(request, load_framework(), env)
    if not evaluation.executor.is_local:
        from eval_factory.workflows.suite.slurm_run import run_as_job

        return run_as_job(evaluation, options, wait=wait, env=env, screen=screen)
    from eval_factory.executors.slurm_runs import refuse_run_in_slurm
    from eval_factory.workflows.evaluate import evaluate as run

    refuse_run_in_slurm(evaluation.output_dir, env)
    # With `evaluation`, the function does not build the evaluation from the request again.
    return run(request, options, env=env, screen=screen, evaluation=evaluation)


def cancel_batches(
    run_config: Path | str | Mapping[str, Any] | None = None,
    *,
    output_dir: Path | str | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    choice: BatchChoice | None = None,
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> list[str]:
    """Cancel the open batches of a run. The arguments are those of `evaluate`.

    Returns:
        A line for each batch. Requests that a batch has already answered cost money; the next run
        stores these answers.
    """
    from eval_factory.workflows.batches import cancel

    request = request_of_arguments(run_config, output_dir, flags, overrides)
    return cancel(request, choice or BatchChoice(), env=_env(env), screen=screen or io.StringIO())


def run_suite(
    run_config: Path | str | Mapping[str, Any] | None = None,
    *,
    preset: str | None = None,
    output_dir: Path | str | None = None,
    flags: Mapping[str, Any] | None = None,
    options: SuiteOptions | None = None,
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> SuiteReport:
    """Run every evaluation of a suite for every target, and write one table of all results.

    Each cell (an evaluation of a target) runs in its own process. A cell that fails raises no
    error: the cell's `reason` and the report's `exit_code` report the failure.

    Args:
        run_config: The path of the suite's YAML file, or its content (`{"suite": ...}`).
        preset: The name of a suite that comes with eval-factory and is the base of this suite.
        output_dir: As for `evaluate`.
        flags: As for `evaluate`.
        options: The options that are not part of the suite's configuration.
        env: As for `evaluate`.
        screen: As for `evaluate`.

    Raises:
        EvalFactoryError: The suite could not be run at all, or was interrupted. The table then has
            the finished cells.
    """
    from eval_factory.config.suite import build_suite
    from eval_factory.workflows.suite.run_suite import run_suite as run
    from eval_factory.workflows.suite.suite_journal import ScreenLines
    from eval_factory.workflows.suite.suite_report import SuiteOptions as DefaultOptions

    suite_flags = as_yaml_values(flags or {})
    if preset is not None:
        suite_flags["suite.preset"] = preset
    if output_dir is not None:
        suite_flags["suite.output_dir"] = os.fspath(output_dir)
    document = None
    path = None
    if isinstance(run_config, Mapping):
        document = as_yaml_values(run_config)
    elif run_config is not None:
        path = Path(run_config)
    suite_options = options or DefaultOptions()
    suite = build_suite(
        path,
        document=document,
        flags=suite_flags,
        overrides=as_tuple(suite_options.overrides),
        env=_env(env),
    )
    suite_options = replace(
        suite_options, reuse=tuple(Path(folder) for folder in suite_options.reuse)
    )
    with interruptible():
        return run(suite, suite_options, env=_env(env), screen=ScreenLines(screen or io.StringIO()))


def dry_run(
    run_config: Path | str | Mapping[str, Any] | None = None,
    *,
    output_dir: Path | str | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    options: Options | None = None,
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> DryRun:
    """Return a preview of a run; nothing is started and no file is written.

    The arguments are those of `evaluate`. Raises the same errors as `evaluate` for a wrong
    configuration.
    """
    from eval_factory.workflows.dry_run import dry_run as preview

    request = request_of_arguments(run_config, output_dir, flags, overrides)
    return preview(request, options or Options(), env=_env(env), screen=screen or io.StringIO())


def estimate(
    run_config: Path | str | Mapping[str, Any] | None = None,
    *,
    output_dir: Path | str | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
) -> Estimate:
    """Return an estimate of the requests, tokens, cost and time of a run.

    No request is sent, and nothing is downloaded. The arguments are those of `evaluate`.
    """
    from eval_factory.workflows.estimate import estimate as estimate_run

    request = request_of_arguments(run_config, output_dir, flags, overrides)
    evaluation = build_evaluation(request, load_framework(), _env(env))
    return estimate_run(evaluation, _env(env))


def compare(
    folders: Sequence[Path | str],
    *,
    metric: str | None = None,
    margin: float | None = None,
    allow: Collection[str] = (),
    min_paired: float = 0.9,
) -> Compared:
    """Compare every pair of results in output folders, on the instances that both results have.

    Results that cannot be compared raise no error: the field `reasons` says why.

    Args:
        folders: The output folders.
        metric: The name of a score; None: the main metric.
        margin: The largest difference that does not matter, in the metric's own unit.
        allow: The names of reasons against a comparison that are accepted.
        min_paired: For imported results: the share of questions that both results must have.
    """
    from eval_factory.analysis.comparison import compare as compare_results
    from eval_factory.report.reader import compared_runs
    from eval_factory.workflows.read_again import read_by_one_version

    runs = compared_runs(as_tuple(folders))
    with read_by_one_version(runs) as load:
        return compare_results(
            runs,
            metric=metric,
            margin=margin,
            allow=allow,
            min_paired=min_paired,
            load=load,
        )


def gate(
    policy: Path | str, candidates: Sequence[Path | str], baselines: Sequence[Path | str] = ()
) -> GateResult:
    """Check results against the limits of a policy.

    A broken limit raises no error: the fields `outcome` and `exit_code` report the broken limit.

    Args:
        policy: The path of the policy's YAML file.
        candidates: The output folders to check, or folders that contain output folders.
        baselines: The output folders to compare with.
    """
    from eval_factory.analysis.gate import evaluate_policy
    from eval_factory.analysis.gate_policy import load_policy
    from eval_factory.report.reader import run_folders
    from eval_factory.workflows.read_again import read_by_one_version

    loaded_policy = load_policy(Path(policy))
    new = [Path(folder) for folder in as_tuple(candidates)]
    old = [Path(folder) for folder in as_tuple(baselines)]
    with read_by_one_version(run_folders([*new, *old])) as load:
        return evaluate_policy(loaded_policy, new, old, load)


def calibrate(
    labels: Path | str,
    *,
    judge_labels: str | Sequence[str] = (),
    judge: str | Sequence[str] = (),
    to: Path | str | None = None,
    judges_from: Path | str | None = None,
    probes: int | None = None,
    screen: TextIO | None = None,
) -> Calibrated:
    """Compare judges' decisions with people's decisions, as the command `calibrate` does.

    Args:
        labels: The label file, JSON lines in the format of HealthBench's meta-evaluation. It can
            also be the folder of a run whose answers people rated: the run's judges are calibrated.
        judge_labels: The fields of the label file that contain a judge's decisions; empty if the
            judges are asked.
        judge: With one field in `judge_labels`: the name of its judge. With a run config or a run's
            folder: the names of the judges; empty: all judges.
        to: The folder for the passports: new, empty, or with passports of the same labels. Needed
            if judges are asked.
        judges_from: The run config whose judges are asked for their decisions.
        probes: The number of answers about which each judge is asked again, with changes; None: 50.
        screen: The stream for progress and warnings; None: not shown.
    """
    from eval_factory.workflows import calibrate as work
    from eval_factory.workflows.ask_judges import DEFAULT_PROBES, JudgingOptions

    passport_folder = None if to is None else Path(to)
    judges = as_tuple(judge)
    decision_fields = as_tuple(judge_labels)
    # `judge` may name the judge of a single field. With several fields, each judge has the name of
    # its field.
    max_names = 1 if len(decision_fields) == 1 else 0
    if decision_fields and len(judges) > max_names:
        raise ConfigError(
            "calibrate: several judges get the names of their fields: leave out --judge"
        )
    is_rated_run = Path(labels).is_dir() and judges_from is None
    if is_rated_run and not decision_fields:
        return work.calibrate_run(Path(labels), judges, passport_folder)
    if judges_from is None:
        only_judge = judges[0] if judges else None
        return work.calibrate(Path(labels), decision_fields, only_judge, passport_folder)
    if passport_folder is None:
        raise ConfigError("calibrate: --to DIR is missing: the judges' answers are stored there")
    asking = JudgingOptions(
        run_config=Path(judges_from),
        judges=judges,
        folder=passport_folder,
        probes=DEFAULT_PROBES if probes is None else probes,
    )
    with interruptible():
        return work.calibrate_by_asking(
            Path(labels), asking, env=os.environ, screen=screen or io.StringIO()
        )


def verify(folder: Path | str) -> Verified:
    """Check the checksums and the documents of a run's or a suite's output folder.

    The documents are made again from the stored answers, and compared with the files. No file of
    the folder is changed. An altered file raises no error: `findings` lists every alteration, and
    `unreadable` says why a folder cannot be verified.
    """
    from eval_factory.workflows.suite.suite_check import verify_suite
    from eval_factory.workflows.verify import verify as verify_folder

    # `verify_suite` is an argument because its module imports `workflows/verify.py`.
    return verify_folder(Path(folder), verify_suite=verify_suite)


def reproduce(
    folder: Path | str,
    output_dir: Path | str | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> Reproduction:
    """Return a run config that repeats the evaluation of an output folder.

    The returned record also lists what has changed on this machine since the evaluation. With
    `output_dir`, the run config is also written to this folder.
    """
    from eval_factory.report.reader import find_only_run
    from eval_factory.workflows.reproduce import reproduce as reproduce_run

    return reproduce_run(
        find_only_run(folder, command="reproduce"),
        None if output_dir is None else Path(output_dir),
        env=_env(env),
    )


def run_again(
    folder: Path | str,
    output_dir: Path | str,
    *,
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> Reran:
    """Repeat the evaluation of an output folder in another folder, and compare the two results."""
    from eval_factory.report.reader import find_only_run
    from eval_factory.workflows.reproduce import run_again as run

    return run(
        find_only_run(folder, command="reproduce"),
        Path(output_dir),
        env=_env(env),
        screen=screen or io.StringIO(),
    )


def rescore(
    folder: Path | str,
    output_dir: Path | str,
    run_config: Path | str | None = None,
    *,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> Evaluated:
    """Score the answers of an output folder again, and write the result to another folder.

    The model is not asked. `run_config`, `flags` and `overrides` are the settings that differ from
    those of the stored run, as for `evaluate`.

    Raises:
        PrerequisiteError: With these settings, the model would have to be asked.
    """
    from eval_factory.report.reader import find_only_run
    from eval_factory.workflows.reproduce import rescore as run

    # `run` itself puts `output_dir` into the request.
    request = request_of_arguments(run_config, output_dir=None, flags=flags, overrides=overrides)
    run_folder = find_only_run(folder, command="rescore")
    with interruptible():
        return run(
            run_folder, request, Path(output_dir), env=_env(env), screen=screen or io.StringIO()
        )


def export_pages(
    folders: Sequence[Path | str],
    target: Path | str,
    *,
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> Pages:
    """Write HELM's own web pages about output folders to files in a new or empty folder."""
    from eval_factory.workflows.view import write_pages

    return write_pages(
        [*map(Path, as_tuple(folders))], Path(target), env=_env(env), screen=screen or io.StringIO()
    )


def served_pages(
    folders: Sequence[Path | str],
    *,
    port: int = 0,
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> AbstractContextManager[Pages]:
    """Return a context manager that serves HELM's own web pages about output folders.

    The pages are served on this machine. They can be opened at `address` inside the `with` block.
    """
    from eval_factory.workflows.view import serve_pages

    return serve_pages(
        [*map(Path, as_tuple(folders))], port=port, env=_env(env), screen=screen or io.StringIO()
    )


def _env(env: Mapping[str, str] | None) -> Mapping[str, str]:
    """Return `env`, or the environment of this process if `env` is None."""
    return os.environ if env is None else env
