"""The evaluation of an output folder once more: its run config, what is another now, and a run that is compared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from eval_factory.config.evaluation import Request
from eval_factory.config.merge import is_credential
from eval_factory.config.rules import own_data_of
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.results import Provenance, TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.secrets import variables_in
from eval_factory.demo.example import packaged_data
from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.report.reader import load_result
from eval_factory.scoring.provenance import provenance_of
from eval_factory.tasks.custom_benchmark import load_benchmark
from eval_factory.tasks.own_data import files_of
from eval_factory.workflows.context import claim
from eval_factory.workflows.options import Options
from eval_factory.workflows.recollect import stored_document, stored_evaluation, versions_that_differ, without_shards

if TYPE_CHECKING:
    from eval_factory.workflows.evaluate import Evaluated


@dataclass(frozen=True)
class Reproduction:
    """How an evaluation is done again."""

    run_config: str
    """The text of a run config."""
    differences: tuple[str, ...]
    """What is another now than it was then: versions, errata, data."""
    needs: tuple[str, ...]
    """What has to be set, or put in place, before it can run."""
    file: Path | None
    """Where the run config was written; None without a folder."""

    def lines(self) -> list[str]:
        """What a reader has to know before a run."""
        return [*(f"differs: {line}" for line in self.differences), *(f"needs: {line}" for line in self.needs)]


@dataclass(frozen=True)
class Reran:
    """An evaluation that was done again."""

    evaluated: Evaluated
    differences: tuple[str, ...]
    """Of what was asked: prompts, data. The two runs are not the same evaluation where there are any."""
    scores: tuple[str, ...]
    """A line a score: then and now."""

    @property
    def is_the_same(self) -> bool:
        return not self.differences


def reproduce(folder: Path, output_dir: Path | None, *, env: Mapping[str, str]) -> Reproduction:
    """Write the run config, where there is a folder for it, and look at what it needs.

    Raises:
        PrerequisiteError: there is no result.
        ConfigError: its configuration is not one of this version, or the folder is the original's.
    """
    stored = load_result(folder)
    rundir = RunDir(folder)
    evaluation, missing = stored_evaluation(rundir, stored)
    target = output_dir or folder.with_name(f"{folder.resolve().name}.reproduced")
    original, other = folder.resolve(), target.resolve()
    if original == other or original in other.parents or other in original.parents:
        raise ConfigError(f"--output_dir: {target} is, or holds, or is in the original {folder}; choose another folder")
    document, former = without_shards(stored_document(rundir))
    # all values that were used, but those that were left to the benchmark
    config: dict[str, Any] = without_unset({name: document[name] for name in ("config", "target")})
    config["config"]["output_dir"] = str(target)
    then = stored.result.provenance
    named = f"{one_line(str(stored.folder), 200)} (run {then.run_identity})"
    text = f"# The evaluation of {named} once more: eval-factory run_eval --run_config THIS_FILE\n{to_yaml(config)}"
    plan = make_plan(evaluation)
    found = (
        *(f"config.params.extra.{name}: {value} then, left out here" for name, value in former.items() if value),
        *differences_now(replace(plan, rundir=RunDir(target)), then, rundir),
        *missing,
    )
    file = None
    if output_dir is not None:
        claim(RunDir(output_dir))
        file = output_dir / "reproduce.yml"
        write_atomic(file, text)
    return Reproduction(text, found, tuple(_needs(plan, env)), file)


def without_unset(tree: Any) -> Any:
    """A null is the same as nothing, which is what a person would write.

    But that of a credential says: send no key; and one among the user's own keys is sent.
    """
    if isinstance(tree, Mapping):
        return {
            name: value if name.startswith("params_to_") else without_unset(value)
            for name, value in tree.items()
            if value is not None or is_credential(name)
        }
    return tree


def differences_now(plan: Plan, then: Provenance, rundir: RunDir) -> Iterator[str]:
    """A line for each version and each file of data that is another on this machine, now."""
    here = provenance_of(plan, "", then.prompts_sha256, then.git_hash, then.data_bundle)
    yield from versions_that_differ(then, here)
    if then.errata_version != here.errata_version:
        yield f"errata: version {then.errata_version} then, {here.errata_version} here: corrected scores may differ"
    files = {name: rundir.helm / name for name in then.dataset_files if name.startswith("scenarios/")}
    for dataset in output.hub_datasets(rundir.helm):
        files |= dataset.files()
    own = own_data_of(plan.evaluation.task, plan.evaluation.run.config.params.extra)
    files |= files_of(own.layout, own.path, own.values) if own else {}
    now = {name: sha256_of(path) for name, path in files.items() if path.is_file()}
    now |= packaged_data(plan.evaluation.task.helm.run_spec)
    benchmark = plan.evaluation.benchmark
    if benchmark is not None:
        with suppress(ConfigError, OSError):
            now |= load_benchmark(benchmark.path).sha256
    for name, digest in then.dataset_files.items():
        if name not in now:
            yield f"data: {name} is not here any more; it had SHA-256 {digest}"
        elif now[name] != digest:
            yield f"data: {name} has SHA-256 {now[name]}; it had {digest}"


def _needs(plan: Plan, env: Mapping[str, str]) -> Iterator[str]:
    """Keys by the names of their variables; data that are not where they were."""
    for endpoint in plan.endpoints:
        if endpoint.key_names and not any(env.get(name) for name in endpoint.key_names):
            yield f"the key of {endpoint.role}: set {' or '.join(endpoint.key_names)}"
    for name in variables_in(plan.evaluation.as_dict()):
        if not env.get(name):
            yield f"a secret of the configuration: set {name}"
    extra = plan.evaluation.run.config.params.extra
    for name in ("data_path", "data_dir", "benchmark"):
        path = getattr(extra, name)
        if path is not None and not Path(path).exists():
            yield f"config.params.extra.{name}: {path} is not there; put it there, or write its new place"


def run_again(folder: Path, output_dir: Path, *, env: Mapping[str, str], screen: TextIO) -> Reran:
    """Do the evaluation in `output_dir`, and compare the two results.

    Raises:
        EvalFactoryError: with the exit code of what went wrong.
    """
    from eval_factory.workflows.evaluate import evaluate  # imports what asks endpoints

    prepared = reproduce(folder, output_dir, env=env)
    screen.writelines(f"{printable(line)}\n" for line in prepared.lines())
    evaluated = evaluate(Request(run_config=prepared.file), Options(), env=env, screen=screen)
    then, now = load_result(folder).result, load_result(output_dir).result
    return Reran(evaluated, tuple(what_was_asked(then, now)), tuple(scores_beside(then, now)))


def what_was_asked(then: TaskResult, now: TaskResult) -> Iterator[str]:
    """A line for each way in which two results are not of the same evaluation."""
    before, after = then.provenance, now.provenance
    if before.run_identity != after.run_identity:
        yield f"run identity: {before.run_identity} then, {after.run_identity} now"
    if before.prompts_sha256 != after.prompts_sha256:
        yield "the prompts are not the same"
    for name in sorted(before.dataset_files.keys() | after.dataset_files.keys()):
        old, new = before.dataset_files.get(name), after.dataset_files.get(name)
        if old != new:
            yield f"data: {name}: SHA-256 {old or 'none'} then, {new or 'none'} now"
    if before.errata_version != after.errata_version:
        yield f"errata: version {before.errata_version} then, {after.errata_version} now"
    if then.reportable and not now.reportable:
        yield "the first result may be reported, and this one may not"


def scores_beside(then: TaskResult, now: TaskResult) -> Iterator[str]:
    """A line a score of either, the main one first."""
    for name in dict.fromkeys([*then.scores, *now.scores]):
        scores = [result.scores.get(name) for result in (then, now)]
        old, new = ("absent" if one is None else formats.significant(one.value, 6) for one in scores)
        yield f"{name}: {old} then, {new} now ({'the same' if old == new else 'differs'})"
