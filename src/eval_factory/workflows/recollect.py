"""Repeats a stored evaluation, or a part of it, in one of three ways.

`recollected` collects the result again from the stored files, without keys, network or data.
`reproduce` makes a run config that repeats the evaluation, and lists what has changed since;
`run_again` also runs it.
`rescore` scores the stored answers again with other judges, metrics or rules.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.config.load import load_run_config
from eval_factory.config.merge import is_credential
from eval_factory.config.resolved import Evaluation
from eval_factory.config.rules import BENCHMARK_KEY, own_data_of
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError, HelmError, PrerequisiteError
from eval_factory.core.foreign_text import one_line, printable
from eval_factory.core.plain_yaml import parse_own, to_yaml
from eval_factory.core.results import Provenance, TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import is_within, write_atomic
from eval_factory.core.secrets import Redactor, variables_in
from eval_factory.demo.example import packaged_data
from eval_factory.endpoint.response_cache import read_origin, write_origin
from eval_factory.helm import names, output
from eval_factory.helm.environments import environment_of_plan
from eval_factory.helm.judge_output import jury_form_in
from eval_factory.importing.imported_folder import write_again
from eval_factory.plan.role_servers import SERVERS_SECTION
from eval_factory.plan.run_plan import SENDS_METADATA, Plan, make_plan
from eval_factory.report.checksums import leads_inside
from eval_factory.report.documents import run_config
from eval_factory.report.reader import StoredResult, load_result
from eval_factory.scoring.judge_passports import PASSPORT
from eval_factory.tasks.conversations import holds_conversations
from eval_factory.tasks.custom_benchmark import Benchmark, load_benchmark
from eval_factory.tasks.framework import DATA_PATH, load_framework
from eval_factory.tasks.jury_form import JURY
from eval_factory.tasks.own_data import files_of
from eval_factory.workflows.context import claim, write_result
from eval_factory.workflows.import_results import is_imported
from eval_factory.workflows.options import Options
from eval_factory.workflows.resume import LastRunState, read_state

if TYPE_CHECKING:
    from eval_factory.scoring.provenance import Remembered
    from eval_factory.workflows.evaluated import Evaluated

COLLECTOR_FIELDS = (
    "eval_factory",
    "helm",
    "python",
    "packages",
    "platform",
    "framework_sha256",
    "lock_sha256",
)
"""Fields of the provenance that describe the program and the machine that collected the result, and
not the run itself.
"""
_PREFIXES_OF_OTHER_DATA = ("scenarios/", "hub:", f"{DATA_PATH}/", PASSPORT)
"""Beginnings of names of data files in the provenance: a custom benchmark has no such files."""
_MAX_PACKAGE_NAMES = 5  # the maximum number of packages that a line names
_MAX_FOLDER_LENGTH = 200  # the maximum length of a folder's path in a comment, in characters
_SCORE_DIGITS = 6  # the number of significant digits of scores that are compared


@dataclass(frozen=True)
class Recollected:
    """A result that was collected again and written to a temporary folder."""

    # the temporary folder, with all files of the result and run_config.yml
    rundir: RunDir
    result: TaskResult
    # notes on parts of the result that could not be computed again, or that another version wrote
    notes: tuple[str, ...]


def last_state(rundir: RunDir) -> LastRunState:
    """Return the state of the folder's last run.

    Raises:
        PrerequisiteError: The state is missing or unreadable, names no run folder or a folder
            outside of HELM's folder, or the output folder has an imported result.
    """
    state = read_state(rundir)
    if state is None and is_imported(rundir):
        raise PrerequisiteError(_imported_result_message(rundir.root))
    if state is None:
        raise PrerequisiteError(
            f"{rundir.run_state}: is missing or cannot be read, so nothing can be collected again"
        )
    run_names = []
    for name in state.runs:
        leads_into_folder = isinstance(name, str) and leads_inside(name)
        if leads_into_folder and is_within(rundir.root / name, rundir.helm):
            run_names.append(name)
    if not run_names or len(run_names) < len(state.runs):
        raise PrerequisiteError(
            f"{rundir.run_state}: runs: must name folders inside the output folder"
        )
    return state


def _imported_result_message(folder: Path) -> str:
    """Return the message for an imported result, which lacks HELM's files."""
    return (
        f"{folder}: is an imported result; this command needs HELM's files of a run.\n"
        "  compare, gate, report, annotate, export, rescore and verify read imported results"
    )


def stored_document(rundir: RunDir) -> dict[str, Any]:
    """Return the content of run_config.yml in an output folder.

    Raises:
        ConfigError: The file is missing, or is not a run config.
    """
    document = load_run_config(rundir.run_config)
    if not all(isinstance(document.get(name), dict) for name in ("config", "target")):
        raise ConfigError(f"{rundir.run_config}: has no `config` and `target`")
    _set_old_defaults(document)
    return document


def _set_old_defaults(document: dict[str, Any]) -> None:
    """Set keys that a run config of an earlier version lacks to the value that its run used.

    Otherwise the keys would get today's defaults, with which a run asks additional questions.
    """
    # A run writes its complete configuration, so `_extra_of` returns the section of the document.
    _extra_of(document).setdefault("chance_questions", None)


def _extra_of(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return `config.params.extra` of a run config; an empty dict if the run config lacks it."""
    params = document["config"].get("params")
    extra = params.get("extra") if isinstance(params, dict) else None
    if isinstance(extra, dict):
        return extra
    return {}


def stored_evaluation(rundir: RunDir, stored: StoredResult) -> Evaluation:
    """Return the evaluation as the run configured it.

    Secrets remain placeholders (`${NAME}`). A custom benchmark is read from the output folder, so
    that its original files are not needed.

    Raises:
        ConfigError: run_config.yml is not valid in this version.
    """
    document = stored_document(rundir)
    # Each variable must have a value, but no request is sent with it.
    env = dict.fromkeys(variables_in(document), "unknown")
    stored_values = {name: document[name] for name in ("config", "target")}
    path = _extra_of(document).get(BENCHMARK_KEY)
    benchmark = None
    if isinstance(path, str):
        benchmark = _stored_benchmark(rundir, Path(path), stored.result)
    return build_evaluation(
        Request(flags=stored_values), load_framework(), env, benchmark=benchmark
    )


def _stored_benchmark(rundir: RunDir, path: Path, result: TaskResult) -> Benchmark:
    """Return the custom benchmark of a run, read from the file that the run wrote for HELM.

    Raises:
        ConfigError: This file is missing or cannot be read.
    """
    digests = {}
    for name, digest in result.provenance.dataset_files.items():
        if name != DATA_PATH and not name.startswith(_PREFIXES_OF_OTHER_DATA):
            digests[name] = digest
    file = rundir.model_configs / names.BENCHMARK
    try:
        document = parse_own(file.read_text(encoding="utf-8"))
        is_rubric = "metric" in document  # a rubric has one metric and no prompt
        metrics = [{"name": document["metric"]}] if is_rubric else document["metrics"]
        judge_prompt_file = None
        for metric in metrics:
            if metric["name"] == JURY:
                judge_prompt_file = Path(metric["prompt_file"])
        return Benchmark(
            path=path,
            name=document["name"],
            description=document["description"],
            prompt_file=Path(document["dataset_file" if is_rubric else "prompt_file"]),
            dataset_file=Path(document["dataset_file"]),
            max_tokens=document.get("max_tokens"),
            metrics=tuple(metric["name"] for metric in metrics),
            judge_prompt_file=judge_prompt_file,
            instances=document.get("instances", 0),
            sha256=digests,
            notes=tuple(document.get("notes", ())),
            has_clusters=document.get("has_clusters", False),
            # The file does not state the number of these rows: 1 means that there are some.
            rows_with_pictures=int("pictures_beside" in document),
            has_conversations=not is_rubric and holds_conversations(document["dataset_file"]),
            is_rubric=is_rubric,
            has_answers=document.get("has_answers", False),
            jury_form=jury_form_in(rundir.model_configs),
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigError(f"{file}: cannot be read: {error}") from error


@contextmanager
def recollected(rundir: RunDir, stored: StoredResult) -> Iterator[Recollected]:
    """Yield the result collected again from the stored files, in a temporary folder.

    The output folder is not changed. An imported result is written again from its own files.

    Raises:
        ConfigError, PrerequisiteError, HelmError: A file is missing or cannot be read.
    """
    if stored.result.provenance.imported is not None:
        with tempfile.TemporaryDirectory(prefix="eval-factory-verify-") as name:
            temporary_dir = RunDir(Path(name))
            yield Recollected(temporary_dir, write_again(stored, temporary_dir), ())
        return
    state = last_state(rundir)
    evaluation = stored_evaluation(rundir, stored)
    with tempfile.TemporaryDirectory(prefix="eval-factory-verify-") as name:
        temporary_dir = RunDir(Path(name))
        # The collector reads these folders through links.
        for folder in ("helm", "logs", "annotations", "model_configs"):
            (temporary_dir.root / folder).symlink_to(
                (rundir.root / folder).absolute(), target_is_directory=True
            )
        # These files are copied: SQLite writes files next to the database that it reads.
        for original in (*rundir.answers, rundir.own_data):
            if original.is_file():
                shutil.copyfile(original, temporary_dir.root / original.name)
        # `make_plan` reads facts about earlier runs from run_config.yml of the output folder.
        plan = replace(make_plan(evaluation, rundir), rundir=temporary_dir)
        yield _collect_again(rundir, stored, state, plan)


def _collect_again(
    rundir: RunDir, stored: StoredResult, state: LastRunState, plan: Plan
) -> Recollected:
    """Collect the result of a run into the plan's folder, and compare the versions."""
    # imported late: these imports are slow
    from eval_factory.scoring.collect import collect
    from eval_factory.scoring.provenance import installed_packages, run_files

    old = stored.result.provenance
    remembered = _stored_facts(stored, plan)
    result = collect(
        plan,
        [plan.rundir.root / name for name in state.runs],
        run_id=state.run_id,
        wall_s=state.wall_s,
        git_hash=old.git_hash,
        data_bundle=state.data_bundle,
        remembered=remembered,
    )
    installed = installed_packages(environment_of_plan(plan))
    notes = versions_that_differ(old, result.provenance, _listed_packages(rundir), installed)
    if remembered.unread:  # set by `collect`
        notes.append(
            f"{remembered.unread} data files are missing, or are stored outside of the folder:"
            " their hashes were not computed again"
        )
    if not plan.rundir.events.is_file() and old.started_at is not None:
        notes.append(
            "logs/events.jsonl is missing: the start and the end of the run were not checked again"
        )
    # The notes report other versions. The new result gets the stored versions, so that the two
    # results do not differ because of versions.
    collector_fields = {name: getattr(old, name) for name in COLLECTOR_FIELDS}
    files = run_files(rundir, [rundir.root / name for name in state.runs])
    provenance = replace(result.provenance, run_files=files, **collector_fields)
    result = replace(result, provenance=provenance)
    _write_recollected(rundir, plan, result)
    return Recollected(plan.rundir, result, tuple(notes))


def _write_recollected(rundir: RunDir, plan: Plan, result: TaskResult) -> None:
    """Write the result and run_config.yml to the plan's folder.

    `rundir`: the output folder of the stored result, which has the command of the run.
    """
    import jsonschema  # imported late: the import is slow

    document = stored_document(rundir)
    config = plan.evaluation.as_dict()
    command = str(document.get("command", ""))
    # Only the stored result says which values the user set and which are defaults. Its values may
    # have been altered, so only its keys are used; the values are those of run_config.yml.
    old_result = parse_own(rundir.evaluation_config.read_text(encoding="utf-8"))
    set_by_user = {}
    for name in ("config", "target"):
        set_by_user[name] = values_at(old_result.get(name), config[name])
    try:
        write_result(plan, result, command, set_by_user, Redactor())
    except jsonschema.ValidationError as error:
        raise HelmError(f"{rundir.helm}: gives an invalid result: {error.message}") from error
    info = plan.evaluation.framework.framework
    further_keys = {}
    for name in (SERVERS_SECTION, SENDS_METADATA):
        if name in document:
            further_keys[name] = document[name]
    write_atomic(
        plan.rundir.run_config,
        to_yaml(run_config(config, command, info.name, info.pkg_name, further_keys)),
    )


def _stored_facts(stored: StoredResult, plan: Plan) -> Remembered:
    """Return the facts about data and logs that only the stored result still has."""
    from eval_factory.scoring.provenance import Remembered

    cluster_by_id: dict[str, str] = {}
    cluster_rule = plan.evaluation.task.helm.cluster
    # `records`: the data files that name the cluster of an instance; they may be gone
    if cluster_rule is not None and cluster_rule.records:
        # Unreadable lines are reported later, when the two results are compared.
        with suppress(PrerequisiteError):
            for instance in stored.result.instances:
                if instance.cluster is not None:
                    cluster_by_id[instance.id] = instance.cluster
    return Remembered(
        stored.result.provenance,
        notes=stored.result.validity.notes,
        sources=cluster_by_id,
    )


def values_at(part: Any, full: Any) -> Any:
    """Return the values of `full` whose keys `part` has, also in nested mappings and lists."""
    if isinstance(part, list) and isinstance(full, list) and len(part) == len(full):
        return [values_at(item, full_item) for item, full_item in zip(part, full, strict=True)]
    if not isinstance(part, Mapping) or not isinstance(full, Mapping):
        return full
    return {name: values_at(part[name], full[name]) for name in part if name in full}


def versions_that_differ(
    stored: Provenance, current: Provenance, stored_packages: str = "", installed: str = ""
) -> list[str]:
    """Return a line for each version of the program or the machine that is not that of the run.

    Versions that the run did not record are not compared. Packages that were added since the run
    are no difference.

    Args:
        stored: The provenance of the stored result.
        current: The provenance as it would be on this machine.
        stored_packages: The text of packages.txt in the output folder.
        installed: A list of the installed packages in the same format.
    """
    lines = []
    for name in COLLECTOR_FIELDS:
        old = getattr(stored, name)
        new = getattr(current, name)
        if old == new or old is None:
            continue
        if name == "lock_sha256" and stored_packages:
            # Instead of the two digests, the line shows the packages whose versions differ.
            reported = {*stored.packages, *current.packages}
            lines += _other_packages(stored_packages, installed, reported)
            continue
        if isinstance(old, Mapping) and isinstance(new, Mapping):
            for key in old:
                if old[key] != new.get(key):
                    lines.append(f"{key}: {old[key]} then, {new.get(key)} here")
        else:
            lines.append(f"{name}: {old} then, {new} here")
    return [f"another version: {line}" for line in lines]


def _other_packages(stored_packages: str, installed: str, reported: Collection[str]) -> list[str]:
    """Return a line that counts and names the packages that are missing or have another version.

    `reported` are the names of packages that already have a line of their own.
    """
    installed_lines = set(installed.splitlines())
    differing = []
    for line in stored_packages.splitlines():
        name = line.partition("==")[0]
        if line not in installed_lines and name not in reported:
            differing.append(name)
    if not differing:
        return []
    first_names = formats.first_of(differing, _MAX_PACKAGE_NAMES)
    count = formats.counted(len(differing), "package")
    return [f"packages.txt: {count} not installed here in that version: {one_line(first_names)}"]


def _listed_packages(rundir: RunDir) -> str:
    """Return the text of the run's packages.txt; "" if the file is missing or unreadable."""
    try:
        return rundir.packages.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""


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
        raise PrerequisiteError(_imported_result_message(folder))
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
        claim(RunDir(output_dir))
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
        raise PrerequisiteError(_imported_result_message(folder))
    original = folder.resolve()
    copy = new_folder.resolve()
    if original == copy or original in copy.parents or copy in original.parents:
        raise ConfigError(
            f"--output_dir: {new_folder} overlaps with the original {folder}; choose another folder"
        )
    document = stored_document(RunDir(folder))
    config: dict[str, Any] = without_unset({name: document[name] for name in ("config", "target")})
    config["config"]["output_dir"] = str(new_folder)
    return config


def without_unset(tree: Any) -> Any:
    """Return the nested value without its nulls, because a null means the same as no value.

    Two kinds of nulls have another meaning and are preserved. The null of a credential means that
    no key is sent. Nulls under `params_to_...` are sent to the endpoint.
    """
    if isinstance(tree, Mapping):
        return {
            name: value if name.startswith("params_to_") else without_unset(value)
            for name, value in tree.items()
            if value is not None or is_credential(name)
        }
    return tree


def differences_now(plan: Plan, old: Provenance, rundir: RunDir) -> Iterator[str]:
    """Yield a line for each version and data file of this machine that is not that of the run.

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
    yield from versions_that_differ(old, current, _listed_packages(rundir), installed)
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
    digests |= packaged_data(plan.evaluation.task.helm.run_spec)
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
    evaluated = evaluate(Request(run_config=reproduction.file), Options(), env=env, screen=screen)
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
    return formats.significant(score.value, _SCORE_DIGITS)


def rescore(
    folder: Path, request: Request, output_dir: Path, *, env: Mapping[str, str], screen: TextIO
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
    # The answers are copied at the launch, when the new folder is locked.
    options = Options(
        asks_model=False, on_launch=lambda _record: copy_answers(RunDir(folder), provenance, rundir)
    )
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
