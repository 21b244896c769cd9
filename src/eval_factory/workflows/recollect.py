"""Collects a stored result again from its stored files, without keys, network or data.

`recollected` yields the new result. The module also reads what a folder stores about its run: its
state, its run config, and the evaluation that the run config describes.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.config.evaluation import RunRequest, build_evaluation
from eval_factory.config.load import load_run_config
from eval_factory.config.resolved import Evaluation
from eval_factory.core import formats
from eval_factory.core.errors import ConfigError, HelmError, PrerequisiteError
from eval_factory.core.foreign_text import one_line
from eval_factory.core.plain_yaml import parse_own_text, to_yaml
from eval_factory.core.results import Provenance, TaskResult
from eval_factory.core.rundir import RunDir
from eval_factory.core.safe_files import is_within, write_atomic
from eval_factory.core.secrets import Redactor, variables_in
from eval_factory.helm import names
from eval_factory.helm.environments import environment_of_plan
from eval_factory.helm.judge_output import jury_form_in
from eval_factory.importing.imported_folder import write_reports_again
from eval_factory.plan.role_servers import SERVERS_SECTION
from eval_factory.plan.run_plan import SENDS_METADATA_KEY, Plan, make_plan
from eval_factory.report.checksums import leads_inside
from eval_factory.report.documents import run_config_document
from eval_factory.report.reader import StoredResult
from eval_factory.scoring.judge_passports import PASSPORT
from eval_factory.tasks.conversations import holds_conversations
from eval_factory.tasks.custom_benchmark import Benchmark
from eval_factory.tasks.framework import BENCHMARK_KEY, DATA_PATH_PARAMETER, load_framework
from eval_factory.tasks.jury_form import JURY_METRIC
from eval_factory.workflows.context import write_result
from eval_factory.workflows.import_results import is_imported
from eval_factory.workflows.resume import LastRunState, read_last_run_state

if TYPE_CHECKING:
    from eval_factory.scoring.provenance import RememberedFacts

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
_PREFIXES_OF_OTHER_DATA = ("scenarios/", "hub:", f"{DATA_PATH_PARAMETER}/", PASSPORT)
"""Beginnings of names of data files in the provenance: a custom benchmark has no such files."""
_MAX_PACKAGE_NAMES = 5  # the maximum number of packages that a line names


@dataclass(frozen=True)
class Recollected:
    """A result that was collected again and written to a temporary folder."""

    # the temporary folder, with all files of the result and run_config.yml
    rundir: RunDir
    result: TaskResult
    # notes on parts of the result that could not be computed again, or that another version wrote
    notes: tuple[str, ...]


def require_last_run_state(rundir: RunDir) -> LastRunState:
    """Return the state of the folder's last run.

    Raises:
        PrerequisiteError: The state is missing or unreadable, names no run folder or a folder
            outside of HELM's folder, or the output folder has an imported result.
    """
    state = read_last_run_state(rundir)
    if state is None and is_imported(rundir):
        raise PrerequisiteError(imported_result_message(rundir.root))
    if state is None:
        raise PrerequisiteError(
            f"{rundir.run_state}: is missing or cannot be read, so nothing can be collected again"
        )
    # Somebody may have altered the file, so that a name could lead to another folder.
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


def imported_result_message(folder: Path) -> str:
    """Return the message for an imported result, which lacks HELM's files."""
    return (
        f"{folder}: is an imported result; this command needs HELM's files of a run.\n"
        "  compare, gate, report, annotate, export, rescore and verify read imported results"
    )


def stored_run_config(rundir: RunDir) -> dict[str, Any]:
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
    document = stored_run_config(rundir)
    # Each variable must have a value, but no request is sent with it.
    env = dict.fromkeys(variables_in(document), "unknown")
    # Flags have priority over defaults, so each value is the value that the run used.
    stored_values = {name: document[name] for name in ("config", "target")}
    path = _extra_of(document).get(BENCHMARK_KEY)
    benchmark = None
    if isinstance(path, str):
        benchmark = _stored_benchmark(rundir, Path(path), stored.result)
    return build_evaluation(
        RunRequest(flags=stored_values), load_framework(), env, benchmark=benchmark
    )


def _stored_benchmark(rundir: RunDir, path: Path, result: TaskResult) -> Benchmark:
    """Return the custom benchmark of a run, read from the file that the run wrote for HELM.

    Raises:
        ConfigError: This file is missing or cannot be read.
    """
    digests = {}
    for name, digest in result.provenance.dataset_files.items():
        if name != DATA_PATH_PARAMETER and not name.startswith(_PREFIXES_OF_OTHER_DATA):
            digests[name] = digest
    file = rundir.model_configs / names.BENCHMARK_FILE
    try:
        document = parse_own_text(file.read_text(encoding="utf-8"))
        is_rubric = "metric" in document
        if is_rubric:  # a rubric has one metric, and no prompt file of its own
            metrics = [{"name": document["metric"]}]
            prompt_key = "dataset_file"
        else:
            metrics = document["metrics"]
            prompt_key = "prompt_file"
        judge_prompt_file = None
        for metric in metrics:
            if metric["name"] == JURY_METRIC:
                judge_prompt_file = Path(metric["prompt_file"])
        return Benchmark(
            path=path,
            name=document["name"],
            description=document["description"],
            prompt_file=Path(document[prompt_key]),
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
            yield Recollected(temporary_dir, write_reports_again(stored, temporary_dir), ())
        return
    state = require_last_run_state(rundir)
    evaluation = stored_evaluation(rundir, stored)
    with tempfile.TemporaryDirectory(prefix="eval-factory-verify-") as name:
        temporary_dir = RunDir(Path(name))
        # The collector reads these folders through links.
        for folder in ("helm", "logs", "annotations", "model_configs"):
            (temporary_dir.root / folder).symlink_to(
                (rundir.root / folder).absolute(), target_is_directory=True
            )
        # These files are copied: SQLite writes files next to the database that it reads.
        for original in (*rundir.answer_files, rundir.own_data):
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
    from eval_factory.scoring.provenance import hashes_of_run_files, installed_packages

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
    notes = versions_that_differ(old, result.provenance, listed_packages(rundir), installed)
    if remembered.unconfirmed:  # set by `collect`
        notes.append(
            f"{remembered.unconfirmed} data files are missing, or are stored outside of the folder:"
            " their hashes were not computed again"
        )
    if not plan.rundir.events.is_file() and old.started_at is not None:
        notes.append(
            "logs/events.jsonl is missing: the start and the end of the run were not checked again"
        )
    # The notes report other versions. The new result gets the stored versions, so that the two
    # results do not differ because of versions.
    collector_fields = {name: getattr(old, name) for name in COLLECTOR_FIELDS}
    files = hashes_of_run_files(rundir, [rundir.root / name for name in state.runs])
    provenance = replace(result.provenance, run_files=files, **collector_fields)
    result = replace(result, provenance=provenance)
    _write_recollected(rundir, plan, result)
    return Recollected(plan.rundir, result, tuple(notes))


def _write_recollected(rundir: RunDir, plan: Plan, result: TaskResult) -> None:
    """Write the result and run_config.yml to the plan's folder.

    `rundir`: the output folder of the stored result, which has the command of the run.
    """
    import jsonschema  # imported late: the import is slow

    document = stored_run_config(rundir)
    config = plan.evaluation.as_dict()
    command = str(document.get("command", ""))
    # Only the stored result says which values the user set and which are defaults. Its values may
    # have been altered, so only its keys are used; the values are those of run_config.yml.
    old_result = parse_own_text(rundir.evaluation_config.read_text(encoding="utf-8"))
    set_by_user = {}
    for name in ("config", "target"):
        set_by_user[name] = values_at(old_result.get(name), config[name])
    try:
        # A redactor without secrets: the new texts are compared with the stored texts, which
        # today's secrets must not alter.
        write_result(plan, result, command=command, user_config=set_by_user, redactor=Redactor())
    except jsonschema.ValidationError as error:
        raise HelmError(f"{rundir.helm}: gives an invalid result: {error.message}") from error
    info = plan.evaluation.framework.framework
    further_keys = {}
    for name in (SERVERS_SECTION, SENDS_METADATA_KEY):
        if name in document:
            further_keys[name] = document[name]
    made = run_config_document(
        config,
        command,
        framework_name=info.name,
        pkg_name=info.pkg_name,
        further=further_keys,
    )
    write_atomic(plan.rundir.run_config, to_yaml(made))


def _stored_facts(stored: StoredResult, plan: Plan) -> RememberedFacts:
    """Return the facts about data and logs that only the stored result still has."""
    from eval_factory.scoring.provenance import RememberedFacts

    cluster_by_id: dict[str, str] = {}
    cluster_rule = plan.evaluation.task.helm.cluster
    # A cluster is the source that several instances share. `records` are data files that name the
    # clusters; these files may be gone.
    if cluster_rule is not None and cluster_rule.records:
        # Unreadable lines are reported later, when the two results are compared.
        with suppress(PrerequisiteError):
            for instance in stored.result.instances:
                if instance.cluster is not None:
                    cluster_by_id[instance.id] = instance.cluster
    return RememberedFacts(
        stored.result.provenance,
        notes=stored.result.validity.notes,
        sources=cluster_by_id,
    )


def values_at(part: Any, full: Any) -> Any:
    """Return the values of `full` whose keys `part` has, also in nested mappings and lists.

    For example, `{"a": 0, "b": {"c": 0}}` and `{"a": 1, "b": {"c": 2, "d": 3}}` give
    `{"a": 1, "b": {"c": 2}}`.
    """
    if isinstance(part, list) and isinstance(full, list) and len(part) == len(full):
        return [values_at(item, full_item) for item, full_item in zip(part, full, strict=True)]
    if not isinstance(part, Mapping) or not isinstance(full, Mapping):
        return full
    return {name: values_at(part[name], full[name]) for name in part if name in full}


def versions_that_differ(
    stored: Provenance, current: Provenance, stored_packages: str = "", installed: str = ""
) -> list[str]:
    """Return a line for each difference between the versions of a run and those of this machine.

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


def listed_packages(rundir: RunDir) -> str:
    """Return the text of the run's packages.txt; "" if the file is missing or unreadable."""
    try:
        return rundir.packages.read_text(encoding="utf-8")
    except (OSError, ValueError):
        return ""
