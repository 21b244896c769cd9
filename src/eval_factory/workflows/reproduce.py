"""Repeats a stored evaluation: as it was, or with other judges, metrics or rules.

`reproduce` makes a run config that repeats the evaluation, and lists what has changed since;
`run_again` also runs it and compares the two results.
`rescore` scores the stored answers again with other judges, metrics or rules.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.merge import is_credential
from eval_factory.config.own_data import own_data_of
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.results import Provenance, TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.secrets import variables_in
from eval_factory.demo.example import packaged_data_hashes
from eval_factory.endpoint.response_cache import read_origin, write_origin
from eval_factory.helm import output
from eval_factory.helm.environments import environment_of_plan
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.report.reader import load_result
from eval_factory.tasks.custom_benchmark import load_benchmark
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.own_data import files_of
from eval_factory.workflows.context import claim_output_folder
from eval_factory.workflows.import_results import is_imported
from eval_factory.workflows.options import Options
from eval_factory.workflows.recollect import (
    imported_result_message,
    listed_packages,
    stored_evaluation,
    stored_run_config,
    versions_that_differ,
)

if TYPE_CHECKING:
    from eval_factory.workflows.evaluated import Evaluated

_MAX_FOLDER_LENGTH = 200  # the maximum length of a folder's path in a comment, in characters
_SCORE_DIGITS = 6  # the number of significant digits of scores that are compared


@dataclass(frozen=True)
class Reproduction:
    """A run config that repeats an evaluation, with its differences and its needs."""

    run_config: str  # the text of the run config
    differences: tuple[str, ...]  # changes since the evaluation: versions, errata, data
    needs: tuple[str, ...]  # keys and files that the run needs and that are missing
    file: Path | None  # the path of the run config; None if no file was written

    def lines(self) -> list[str]:
        """Return a line for each difference and each need."""
        return [
            *(f"differs: {line}" for line in self.differences),
            *(f"needs: {line}" for line in self.needs),
        ]


@dataclass(frozen=True)
class Reran:
    """An evaluation that was repeated, compared with the original."""

    evaluated: Evaluated
    # differences in the questions, prompts or data; empty if both runs are the same evaluation
    differences: tuple[str, ...]
    scores: tuple[str, ...]  # a line for each score with the old and the new value


def reproduce(folder: Path, output_dir: Path | None, *, env: Mapping[str, str]) -> Reproduction:
    """Return a run config that repeats the evaluation of a folder, and what it needs.

    If `output_dir` is not None, the run config is also written to this folder.

    Raises:
        PrerequisiteError: The folder has no result, or an imported result.
        ConfigError: The configuration is not valid in this version, or the two folders overlap.
    """
    stored = load_result(folder)
    rundir = RunDir(folder)
    if stored.result.provenance.imported is not None:
        raise PrerequisiteError(imported_result_message(folder))
    evaluation = stored_evaluation(rundir, stored)
    new_folder = output_dir or folder.with_name(f"{folder.resolve().name}.reproduced")
    config = config_for(folder, new_folder)
    provenance = stored.result.provenance
    shown_folder = one_line(str(stored.folder), _MAX_FOLDER_LENGTH)
    original = f"{shown_folder} (run {provenance.run_identity})"
    text = (
        f"# Repeats the evaluation of {original}: eval-factory run_eval --run_config THIS_FILE\n"
        f"{to_yaml(config)}"
    )
    plan = make_plan(evaluation)
    new_plan = replace(plan, rundir=RunDir(new_folder))
    differences = tuple(differences_now(new_plan, provenance, rundir))
    file = None
    if output_dir is not None:
        claim_output_folder(RunDir(output_dir))
        file = output_dir / "reproduce.yml"
        write_atomic(file, text)
    return Reproduction(text, differences, tuple(_need_lines(plan, env)), file)


def config_for(folder: Path, new_folder: Path) -> dict[str, Any]:
    """Return the configuration of a folder's run, with `new_folder` as its output folder.

    The configuration has all values that the run used, but no nulls: a null leaves the value to the
    benchmark.

    Raises:
        PrerequisiteError: The folder has an imported result.
        ConfigError: The two folders overlap.
    """
    if is_imported(RunDir(folder)):
        raise PrerequisiteError(imported_result_message(folder))
    original = folder.resolve()
    copy = new_folder.resolve()
    if original == copy or original in copy.parents or copy in original.parents:
        raise ConfigError(
            f"--output_dir: {new_folder} overlaps with the original {folder}; choose another folder"
        )
    document = stored_run_config(RunDir(folder))
    config: dict[str, Any] = without_unset({name: document[name] for name in ("config", "target")})
    config["config"]["output_dir"] = str(new_folder)
    return config


def without_unset(tree: Any) -> Any:
    """Return the nested value without its nulls, because a null means the same as no value.

    Two kinds of nulls have another meaning and are preserved. The null of a credential means that
    no key is sent. Nulls under `params_to_...` are sent to the endpoint.
    """
    if not isinstance(tree, Mapping):
        return tree
    remaining = {}
    for name, value in tree.items():
        if value is None and not is_credential(name):
            continue
        if name.startswith("params_to_"):
            remaining[name] = value
        else:
            remaining[name] = without_unset(value)
    return remaining


def differences_now(plan: Plan, old: Provenance, rundir: RunDir) -> Iterator[str]:
    """Yield a line for each version and each data file that has changed since the run.

    Args:
        plan: The plan of the new run.
        old: The provenance of the stored result.
        rundir: The output folder of the stored result.
    """
    # imported late: the import is slow
    from eval_factory.scoring.provenance import installed_packages, provenance_of

    # Only versions are compared with this record, so the name of the scenario may be empty.
    current = provenance_of(
        plan,
        scenario="",
        prompts_sha256=old.prompts_sha256,
        git_hash=old.git_hash,
        data_bundle=old.data_bundle,
    )
    installed = installed_packages(environment_of_plan(plan))
    yield from versions_that_differ(old, current, listed_packages(rundir), installed)
    if old.errata_version != current.errata_version:
        yield (
            f"errata: version {old.errata_version} then, {current.errata_version} here: "
            "corrected scores may differ"
        )
    digests = _current_digests(plan, old, rundir)
    for name, old_digest in old.dataset_files.items():
        if name not in digests:
            yield f"data: {name} is no longer on this machine; its SHA-256 was {old_digest}"
        elif digests[name] != old_digest:
            yield f"data: {name} has SHA-256 {digests[name]}; it was {old_digest}"


def _current_digests(plan: Plan, old: Provenance, rundir: RunDir) -> dict[str, str]:
    """Return the SHA-256 of each data file of the run that is still on this machine, by its name.

    The arguments are those of `differences_now`.
    """
    files = {}
    for name in old.dataset_files:
        if name.startswith("scenarios/"):
            files[name] = rundir.helm / name
    for dataset in output.read_run_record(rundir.helm).datasets:
        files |= dataset.files()
    own_data = own_data_of(plan.evaluation)
    if own_data:
        files |= files_of(own_data.layout, own_data.path, own_data.values)
    digests = {}
    for name, path in files.items():
        if path.is_file():
            digests[name] = sha256_of(path)
    digests |= packaged_data_hashes(plan.evaluation.task.helm.run_spec)
    benchmark = plan.evaluation.benchmark
    if benchmark is not None:
        # Without a readable benchmark, its data files count as no longer on this machine.
        with suppress(ConfigError, OSError):
            digests |= load_benchmark(benchmark.path).sha256
    return digests


def _need_lines(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each key that is not set, and for each path that no longer exists."""
    for endpoint in plan.endpoints:
        if endpoint.key_names and not any(env.get(name) for name in endpoint.key_names):
            yield f"the key of {endpoint.role}: set {' or '.join(endpoint.key_names)}"
    for name in variables_in(plan.evaluation.as_dict()):
        if not env.get(name):
            yield f"a secret of the configuration: set {name}"
    extra = plan.evaluation.extra
    paths = {}
    for name in ("data_path", "data_dir", "benchmark", "judge_passport"):
        paths[name] = getattr(extra, name)
    paths["stop_when.differs_from"] = extra.stop_when.differs_from
    for name, path in paths.items():
        if path is not None and not Path(path).exists():
            yield (
                f"config.params.extra.{name}: {path} does not exist; "
                "put the file there, or change the path"
            )


def run_again(folder: Path, output_dir: Path, *, env: Mapping[str, str], screen: TextIO) -> Reran:
    """Repeat the evaluation of `folder` in `output_dir`, and compare the two results.

    Raises:
        EvalFactoryError: The run failed; the error has the exit code of the command.
    """
    # imported late: this module imports the code that sends requests
    from eval_factory.workflows.evaluate import evaluate

    reproduction = reproduce(folder, output_dir, env=env)
    screen.writelines(f"{printable(line)}\n" for line in reproduction.lines())
    evaluated = evaluate(
        RunRequest(run_config=reproduction.file), Options(), env=env, screen=screen
    )
    old = load_result(folder).result
    new = load_result(output_dir).result
    return Reran(
        evaluated, tuple(evaluation_differences(old, new)), tuple(compared_scores(old, new))
    )


def evaluation_differences(old_result: TaskResult, new_result: TaskResult) -> Iterator[str]:
    """Yield a line for each difference between the evaluations of two results."""
    old_provenance = old_result.provenance
    new_provenance = new_result.provenance
    if old_provenance.run_identity != new_provenance.run_identity:
        yield f"run identity: {old_provenance.run_identity} then, {new_provenance.run_identity} now"
    if old_provenance.prompts_sha256 != new_provenance.prompts_sha256:
        yield "the prompts are not the same"
    for name in sorted(old_provenance.dataset_files.keys() | new_provenance.dataset_files.keys()):
        old = old_provenance.dataset_files.get(name)
        new = new_provenance.dataset_files.get(name)
        if old != new:
            yield f"data: {name}: SHA-256 {old or 'none'} then, {new or 'none'} now"
    if old_provenance.errata_version != new_provenance.errata_version:
        yield (
            f"errata: version {old_provenance.errata_version} then, "
            f"{new_provenance.errata_version} now"
        )
    if old_result.reportable and not new_result.reportable:
        yield "the first result may be reported, but the new result may not"


def compared_scores(old_result: TaskResult, new_result: TaskResult) -> Iterator[str]:
    """Yield a line for each score of either result, the main score first."""
    for name in dict.fromkeys([*old_result.scores, *new_result.scores]):
        old = _score_text(old_result, name)
        new = _score_text(new_result, name)
        yield f"{name}: {old} then, {new} now ({'the same' if old == new else 'differs'})"


def _score_text(result: TaskResult, name: str) -> str:
    """Return the value of a score with `_SCORE_DIGITS` digits; "absent" if the score is absent."""
    score = result.scores.get(name)
    if score is None:
        return "absent"
    return formats.significant(score.value, digits=_SCORE_DIGITS)


def rescore(
    folder: Path, request: RunRequest, output_dir: Path, *, env: Mapping[str, str], screen: TextIO
) -> Evaluated:
    """Score the answers of a finished run again, with other judges, metrics or rules.

    Rescoring is an ordinary run in `output_dir` that begins with a copy of the finished run's
    cache.db and sends no request to the model. If a change of settings needs an answer that the
    cache lacks, the run ends before a judge is asked. The folder of the finished run is not
    changed.

    Args:
        folder: The output folder of the finished run, or of an imported result.
        request: The settings that differ from those of the finished run.
        output_dir: The folder for the new result.
        env: The environment with the keys.
        screen: The stream for progress and warnings.

    Raises:
        PrerequisiteError: The folder has no result, its answers were altered, or the model would
            have to be asked.
        ConfigError: `output_dir` contains answers of another run, or for the same reasons as in
            `evaluate`.
    """
    if is_imported(RunDir(folder)):
        from eval_factory.workflows.rescore_imported import rescore_imported

        return rescore_imported(folder, request, output_dir, env=env, screen=screen)
    # imported late: this module imports the code that sends requests
    from eval_factory.workflows.evaluate import evaluate

    provenance = load_result(folder).result.provenance
    rundir = RunDir(output_dir)
    document = config_for(folder, output_dir)
    flags = {**request.flags, "config.output_dir": str(output_dir)}
    request = replace(request, document=document, flags=flags)
    # The model gets no request, so the secrets of its endpoint may be missing.
    not_sent = dict.fromkeys(variables_in(document["target"]), "not sent")
    evaluation = build_evaluation(request, load_framework(), {**not_sent, **env})

    # called at the launch, because the new folder is locked then
    def copy_answers_of_finished_run(_launch_record: Mapping[str, Any]) -> None:
        copy_answers(RunDir(folder), provenance, rundir)

    options = Options(asks_model=False, on_launch=copy_answers_of_finished_run)
    return evaluate(request, options, env=env, screen=screen, evaluation=evaluation)


def copy_answers(source: RunDir, provenance: Provenance, rundir: RunDir) -> None:
    """Copy the model's and the judges' answers of a finished run to a folder without answers.

    If the folder already has a copy of the same answers, the function does nothing.

    Args:
        source: The output folder of the finished run.
        provenance: The provenance of the finished run. Its hash of cache.db shows that the answers
            were not changed since.
        rundir: The folder that receives the copy.

    Raises:
        ConfigError: `rundir` has answers of another run.
        PrerequisiteError: The answers of the finished run are missing or were changed.
    """
    origin = read_origin(rundir.cache_db)  # the run from which the answers in this cache come
    if rundir.cache_db.exists():
        if origin is None or origin.run_identity != provenance.run_identity:
            raise ConfigError(
                f"--output_dir: {rundir.root} has answers of another run; choose another folder"
            )
        return
    recorded_digest = provenance.run_files.get(source.cache_db.name)
    if not source.cache_db.is_file() or sha256_of(source.cache_db) != recorded_digest:
        raise PrerequisiteError(
            f"{source.cache_db}: has changed since the result was made ('verify' says more)"
        )
    # A temporary folder, because SQLite writes files next to the database that it reads.
    with tempfile.TemporaryDirectory(dir=rundir.root, prefix=".rescore-") as name:
        # `shutil.copy` also copies the mode: the answers may be private.
        copy = Path(shutil.copy(source.cache_db, Path(name) / rundir.cache_db.name))
        # If the answers of the finished run are a copy too, the time is that of their first run.
        earlier = read_origin(copy)
        started_at = earlier.started_at if earlier else provenance.started_at
        write_origin(copy, provenance.run_identity, started_at or "an unknown time")
        copy.replace(rundir.cache_db)
