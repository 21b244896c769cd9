"""The program for other programs: evaluate, see what a run would do, read a result. Returns
records, prints nothing.

    from eval_factory import evaluate, load_result  # what is used most; all is here

    evaluated = evaluate("run_config.yml", output_dir="out")
    print(evaluated.result.scores[evaluated.result.main_metric].value, evaluated.not_reportable)
    stored = load_result("out")

What goes wrong is raised as a subclass of `EvalFactoryError`, whose `exit_code` is that of the
command line; nothing here ends the process. It may be called in a notebook, in several threads at
once, and as often as one likes.
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

from eval_factory.config.evaluation import Request, arguments_of, as_tuple, build_evaluation
from eval_factory.config.load import plain_document
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
    from eval_factory.analysis.comparison import Compared
    from eval_factory.analysis.gate import GateResult
    from eval_factory.report.reader import StoredResult, load_result
    from eval_factory.tasks.task_info import ParameterInfo, TaskInfo, list_tasks
    from eval_factory.workflows.calibrate import Calibrated
    from eval_factory.workflows.estimate import Estimate
    from eval_factory.workflows.evaluated import Evaluated
    from eval_factory.workflows.recollect import Reproduction, Reran
    from eval_factory.workflows.suite.suite_report import CellReport, SuiteOptions, SuiteReport
    from eval_factory.workflows.verify import Finding, Verified
    from eval_factory.workflows.view import Pages


_AT_FIRST_USE = {
    "analysis.comparison": ("Compared",),
    "analysis.gate": ("GateResult",),
    "report.reader": ("StoredResult", "load_result"),
    "tasks.task_info": ("ParameterInfo", "TaskInfo", "list_tasks"),
    "workflows.calibrate": ("Calibrated",),
    "workflows.evaluate": ("Evaluated",),
    "workflows.recollect": ("Reproduction", "Reran"),
    "workflows.suite.suite_report": ("CellReport", "SuiteOptions", "SuiteReport"),
    "workflows.verify": ("Finding", "Verified"),
}
"""Module -> what is imported when somebody asks for it: a dry run needs none, and each takes a
part of its time.
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
    for module, names in _AT_FIRST_USE.items():
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
    """Run one evaluation to its end, or collect it again where it is complete already. A job of
    Slurm is waited for.

    Args:
        run_config: the YAML file, or what one would hold: `{"config": ..., "target": ...}`. It is
            not changed.
        output_dir: the output folder, over the file's `config.output_dir`.
        flags: path of a value (`config.params.limit_samples`) -> value; over the file's.
        overrides: `path.to.key=value,...`, over everything else, as `--overrides`.
        options: how it is run: what the command's flags say beside the configuration.
        env: where keys are looked for; this process's own if not given.
        screen: where progress and warnings are shown, such as `sys.stderr`; nowhere if not given.

    Raises:
        EvalFactoryError: with the exit code of what went wrong; a result that is not reportable
            raises nothing.
        InterruptedRunError: Ctrl-C, or a notebook's stop button, while helm-run works.
        KeyboardInterrupt: the same at another time.
    """
    request = arguments_of(run_config, output_dir, flags, overrides)
    with interruptible():
        found = _run(
            request, options or Options(), wait=True, env=_env(env), screen=screen or io.StringIO()
        )
    if isinstance(found, Submitted):
        raise InterruptedRunError(found.summary)
    return found


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
    """As `evaluate`, but a job of Slurm is not waited for: the same call again has its result
    when it has ended.
    """
    request = arguments_of(run_config, output_dir, flags, overrides)
    return _run(
        request, options or Options(), wait=False, env=_env(env), screen=screen or io.StringIO()
    )


def _run(
    request: Request, options: Options, *, wait: bool, env: Mapping[str, str], screen: TextIO
) -> Evaluated | Submitted:
    """Run where the configuration says: here, or as a job of Slurm, which is collected if it has
    ended.
    """
    evaluation = build_evaluation(request, load_framework(), env)
    if not evaluation.executor.is_local:
        from eval_factory.workflows.suite.slurm_run import run_as_job

        return run_as_job(evaluation, options, wait=wait, env=env, screen=screen)
    from eval_factory.executors.slurm_runs import refuse_run_in_slurm
    from eval_factory.workflows.evaluate import evaluate as run

    refuse_run_in_slurm(evaluation.output_dir, env)
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
    """Cancel the batches of a run that are open. Arguments as of `evaluate`.

    Returns:
        A line for each; what they answered until then is paid, and kept by the next run.
    """
    from eval_factory.workflows.batches import cancel

    request = arguments_of(run_config, output_dir, flags, overrides)
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
    """Run every evaluation of every target of a suite, each in a process of its own, and write one
    table.

    Arguments as of `evaluate`, with `{"suite": ...}` for a run config. `preset`: a suite that comes
    with eval-factory, as the base of this one. Raises EvalFactoryError: the suite could not be run
    at all, or was interrupted, and the table holds what is finished. A cell that fails raises
    nothing: its `reason`, and the report's `exit_code`, say so.
    """
    from eval_factory.config.suite import build_suite
    from eval_factory.workflows.suite.run_suite import run_suite as run
    from eval_factory.workflows.suite.suite_journal import ScreenLines
    from eval_factory.workflows.suite.suite_report import SuiteOptions as Chosen

    given = plain_document(flags or {})
    given |= {} if preset is None else {"suite.preset": preset}
    given |= {} if output_dir is None else {"suite.output_dir": os.fspath(output_dir)}
    document = plain_document(run_config) if isinstance(run_config, Mapping) else None
    path = None if run_config is None or isinstance(run_config, Mapping) else Path(run_config)
    chosen = options or Chosen()
    suite = build_suite(
        path, document=document, flags=given, overrides=as_tuple(chosen.overrides), env=_env(env)
    )
    chosen = replace(chosen, reuse=tuple(Path(folder) for folder in chosen.reuse))
    with interruptible():
        return run(suite, chosen, env=_env(env), screen=ScreenLines(screen or io.StringIO()))


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
    """The same merged, checked and rendered; nothing is started or written. Raises what
    `evaluate` would of that.
    """
    request = arguments_of(run_config, output_dir, flags, overrides)
    from eval_factory.workflows.dry_run import dry_run as look

    return look(request, options or Options(), env=_env(env), screen=screen or io.StringIO())


def estimate(
    run_config: Path | str | Mapping[str, Any] | None = None,
    *,
    output_dir: Path | str | None = None,
    flags: Mapping[str, Any] | None = None,
    overrides: Iterable[str] = (),
    env: Mapping[str, str] | None = None,
) -> Estimate:
    """Return what a run will ask, take and cost; no endpoint is asked, nothing is downloaded."""
    from eval_factory.workflows.estimate import estimate as look

    request = arguments_of(run_config, output_dir, flags, overrides)
    return look(build_evaluation(request, load_framework(), _env(env)), _env(env))


def compare(
    folders: Sequence[Path | str],
    *,
    metric: str | None = None,
    margin: float | None = None,
    allow: Collection[str] = (),
    min_paired: float = 0.9,
) -> Compared:
    """Compare the results in output folders, each with each, on the instances that both answered.
    `margin`: in the metric's own unit; `allow`: names of reasons against it; `min_paired`: the
    share of questions that have to be the same where another program made a result. What cannot be
    compared raises nothing: `reasons` says why.
    """
    from eval_factory.analysis.comparison import compare as compare_results
    from eval_factory.report.reader import compared_runs
    from eval_factory.workflows.read_again import read_by_one_rule

    runs = compared_runs(as_tuple(folders))
    with read_by_one_rule(runs) as load:
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
    """Hold output folders, or folders of them, against a policy (its YAML file). A limit that is
    not kept raises nothing: `outcome`, and `exit_code`, say so.
    """
    from eval_factory.analysis.gate import evaluate_policy
    from eval_factory.analysis.gate_policy import load_policy
    from eval_factory.report.reader import run_folders
    from eval_factory.workflows.read_again import read_by_one_rule

    read = load_policy(Path(policy))
    new = [Path(folder) for folder in as_tuple(candidates)]
    old = [Path(folder) for folder in as_tuple(baselines)]
    with read_by_one_rule(run_folders([*new, *old])) as load:
        return evaluate_policy(read, new, old, load)


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
    """Hold judges' decisions against physicians', as the command `calibrate`.

    Args:
        labels: JSON lines in the form of HealthBench's meta-evaluation; or the folder of a run
            whose answers people rated: its judges are held against them.
        judge_labels: fields of the labels with a judge's decision each; none where judges are
            asked.
        judge: of one field, what its judge is called; of a run config, the judges to ask; all where
            none is named.
        to: a folder for the passports: new, empty, or with those of the same labels. Who asks
            judges needs one.
        judges_from: a run config whose judges are asked for their decisions.
        probes: how many answers each judge is asked about again, with changes; 50 if not given.
        screen: where progress and warnings are shown; nowhere if not given.
    """
    from eval_factory.workflows import calibrate as work

    folder = None if to is None else Path(to)
    names = as_tuple(judge)
    if Path(labels).is_dir() and judges_from is None and not judge_labels:
        return work.calibrate_run(Path(labels), names, folder)
    if judges_from is None:
        return work.calibrate(
            Path(labels), as_tuple(judge_labels), names[0] if names else None, folder
        )
    if folder is None:
        raise ConfigError("calibrate: --to DIR is missing: what the judges answer is kept there")
    with interruptible():
        asking = work.Asking(
            Path(judges_from), names, folder, work.PROBES if probes is None else probes
        )
        return work.calibrate_by_asking(
            Path(labels), asking, env=_env(None), screen=screen or io.StringIO()
        )


def verify(folder: Path | str) -> Verified:
    """Check that an output folder is what it says it is: checksums, and every number made again.
    Nothing is changed, and nothing raised: what was altered is in `findings`; `unreadable` says why
    a folder cannot be verified.
    """
    from eval_factory.workflows.suite.suite_check import verify_suite
    from eval_factory.workflows.verify import verify as look

    return look(Path(folder), suite=verify_suite)


def reproduce(
    folder: Path | str,
    output_dir: Path | str | None = None,
    *,
    env: Mapping[str, str] | None = None,
) -> Reproduction:
    """A run config that does the evaluation of an output folder again, and what is another now
    than it was then.
    """
    from eval_factory.report.reader import one_run
    from eval_factory.workflows.recollect import reproduce as look

    return look(
        one_run(folder, "reproduce"),
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
    """Do the evaluation of an output folder again, in another folder, and compare the two."""
    from eval_factory.report.reader import one_run
    from eval_factory.workflows.recollect import run_again as run

    return run(
        one_run(folder, "reproduce"),
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
    """Score the answers of an output folder again, in another folder; the model is not asked.

    Arguments say what is another now, as of `evaluate`. Raises PrerequisiteError: that would ask
    the model something.
    """
    from eval_factory.report.reader import one_run
    from eval_factory.workflows.recollect import rescore as run

    request = arguments_of(run_config, None, flags, overrides)
    folder = one_run(folder, "rescore")
    with interruptible():
        return run(folder, request, Path(output_dir), env=_env(env), screen=screen or io.StringIO())


def export_pages(
    folders: Sequence[Path | str],
    target: Path | str,
    *,
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> Pages:
    """Write HELM's own web pages of output folders as files, into a folder that is new or empty."""
    from eval_factory.workflows.view import export

    return export(
        [*map(Path, as_tuple(folders))], Path(target), env=_env(env), screen=screen or io.StringIO()
    )


def served_pages(
    folders: Sequence[Path | str],
    *,
    port: int = 0,
    env: Mapping[str, str] | None = None,
    screen: TextIO | None = None,
) -> AbstractContextManager[Pages]:
    """Serve HELM's own web pages of output folders on this machine, at `address`, for as long as
    the context lasts.
    """
    from eval_factory.workflows.view import served

    return served(
        [*map(Path, as_tuple(folders))], port=port, env=_env(env), screen=screen or io.StringIO()
    )


def _env(env: Mapping[str, str] | None) -> Mapping[str, str]:
    return os.environ if env is None else env
