"""Finds the data of a run before it starts, copies them to the output folder, and records them in
the result.

Files of a bundle are copied, not linked: runs of ehr_sql alter its database, and the `datasets`
package writes lock files next to the data. A bundle can therefore be read-only and shared by
several runs, and may be removed while the model is asked.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import ALL_FILES_VARIABLE, HelmRunSettings
from eval_factory.core.rundir import sha256_of
from eval_factory.data import bundle as bundles
from eval_factory.data.hub import (
    DATASETS,
    HF_OFFLINE,
    dataset_cache_folder,
    datasets_cache_folder,
)
from eval_factory.data.sources import (
    AUGMENTATION,
    Sources,
    TaskSources,
    load_sources,
    name_in_table,
    sources_of,
)
from eval_factory.helm.environments import environment_of_plan
from eval_factory.helm.output import scenario_folder
from eval_factory.plan.run_plan import Plan

DEFAULT_VOCABULARY = "cl100k_base"  # the vocabulary for counting tokens if `max_length` is set
LIBRARY_FOLDERS = {bundles.NLTK_DATA: "NLTK_DATA", bundles.TIKTOKEN: "TIKTOKEN_CACHE_DIR"}
"""Folders of a bundle, with the environment variable by which a library finds each folder."""


@dataclass(frozen=True)
class BundleInUse:
    """A bundle for a run, whose files for the run's task match the manifest."""

    root: Path
    manifest: bundles.Manifest
    sha256: str  # the SHA-256 of the manifest
    task: TaskSources
    needs: tuple[bundles.Need, ...]

    @property
    def paths(self) -> list[str]:
        """The paths of the files for the run: the files of its task, and the data of NLTK.

        HELM looks for the data of NLTK in every run.
        """
        nltk = []
        for file in self.manifest.files:
            if file.path.startswith(f"{bundles.NLTK_DATA}/"):
                nltk.append(file.path)
        return [*chain.from_iterable(need.paths for need in self.needs), *nltk]

    def record(self) -> dict[str, Any]:
        """Return a description of the bundle for the provenance of the result.

        The record has two keys. `manifest_sha256`: the SHA-256 of the manifest. `hub`: for each
        data set of the Hub, its entry in the manifest, with the hashes of its files. Files of
        scenarios are not in this record: the result lists them as files of the output folder.
        """
        listed = self.manifest.file_by_path()
        datasets = []
        for dataset in self.task.hub:
            entry = self.manifest.hub_entry(dataset.id, dataset.config)
            if entry is not None:
                data_paths = []  # the data and their descriptions, without lock files
                for path in listed:
                    if path.startswith(f"{entry.folder}/") and path.endswith((".arrow", ".json")):
                        data_paths.append(path)
                data_paths.sort()
                files = {path.rpartition("/")[2]: listed[path].sha256 for path in data_paths}
                datasets.append({**entry.model_dump(exclude={"folder"}), "files": files})
        return {"manifest_sha256": self.sha256, "hub": datasets}


def task_sources(plan: Plan, sources: Sources) -> TaskSources:
    """Return the data that the run reads with the values of its scenario's parameters.

    If the length of prompts is limited and the task has no vocabulary, the vocabulary for counting
    tokens is added. If the user has data of his own, the task's files and data sets are left out.
    """
    values = {name: str(value) for name, value in plan.scenario_arguments.items()}
    task = sources_of(plan.evaluation.task, plan.evaluation.framework, values, sources)
    if plan.evaluation.extra.data_path is not None:
        # The user's own files replace the files and data sets of the task.
        task = task.model_copy(update={"files": (), "other_parts": (), "hub": ()})
    vocabularies = task.tiktoken
    if plan.evaluation.extra.max_length is not None and not vocabularies:
        vocabularies = (DEFAULT_VOCABULARY,)
    return task.model_copy(update={"tiktoken": vocabularies})


def how_to_get_data(plan: Plan, *, options: str) -> str:
    """Return the message that tells the user how to get missing data of this run.

    `options`: the text after the task in the `data pull` command, such as `--to DIR`.
    """
    sources = load_sources()
    name = name_in_table(plan.evaluation.task, plan.evaluation.framework, sources)
    task = task_sources(plan, sources)
    has_perturbation_files = bool(sources.perturbation_files(task))
    lines = []
    data_of_table = (has_perturbation_files, task.files, task.listing, task.hub, task.tiktoken)
    if any(data_of_table):
        # `data pull` learns of a perturbation only from a run entry. A run with a perturbation is
        # the run of a run entry, and `task_name` is this run entry.
        if has_perturbation_files or name is None:
            task_argument = plan.task_name
        else:
            task_argument = f"{name}:{task.variant}".rstrip(":")  # the name alone without a variant
        lines.append(
            f"  on a machine with a network: eval-factory data pull "
            f"{shlex.quote(task_argument)} {options}"
        )
    if name is None or not lines:
        folder = scenario_folder(plan.rundir.helm, plan.evaluation.task.helm.scenario)
        nothing = "nothing else" if lines else "nothing"
        lines.append(
            f"  'eval-factory data pull' has {nothing} for "
            f"{plan.task_name}: run the task once with a network, or put its files into {folder} "
            "and its data sets of the Hub into HF_HOME"
        )
    return "\n".join(lines)


def check_data(plan: Plan, env: Mapping[str, str]) -> BundleInUse | None:
    """Check that all data of the run are available.

    Returns:
        The bundle of the run; None if the run uses no bundle.

    Raises:
        PrerequisiteError: data are missing, or differ from the manifest of the bundle. The message
            names the data and the command that gets them.
    """
    sources = load_sources()
    extra = plan.evaluation.extra
    task = task_sources(plan, sources)
    if extra.data_dir is not None or extra.offline:
        _check_perturbations(plan, task, sources)
    if extra.data_dir is None:
        if extra.offline:
            _check_without_bundle(plan, task, sources, env)
        return None
    root = Path(os.path.abspath(os.path.expanduser(extra.data_dir)))
    manifest = bundles.read_manifest(root)
    all_files = env.get(ALL_FILES_VARIABLE) == "1"
    needs = tuple(bundles.needs_of(task, manifest, root, sources, all_files=all_files))
    missing = []
    for need in needs:
        if need.missing is not None:
            missing.append(need.missing)
    if missing:
        raise PrerequisiteError(
            _missing_data_message(plan, f"the data bundle {root}", missing, options=f"--to {root}")
        )
    sha256 = sha256_of(root / bundles.MANIFEST)
    bundle = BundleInUse(root, manifest, sha256=sha256, task=task, needs=needs)
    differences = bundles.compare_files(root, manifest, only=bundle.paths)
    if differences:
        lines = (
            f"{bundles.first_lines(differences.lines())}\n  get these files again:\n"
            f"{how_to_get_data(plan, options=f'--to {root}')}"
        )
        raise PrerequisiteError(
            f"{root}: files of {plan.task_name} differ from the manifest\n{lines}"
        )
    return bundle


def _check_perturbations(plan: Plan, task: TaskSources, sources: Sources) -> None:
    """Check that the perturbations of the run can work on this machine.

    Raises:
        PrerequisiteError: a perturbation needs the network in an offline run, or needs a package
            that is not installed.
    """
    advice = f"; nothing was started\n  leave {AUGMENTATION} out"
    for name in task.perturbations:
        perturbation = sources.perturbations[name]
        if perturbation.online and plan.evaluation.extra.offline:
            raise PrerequisiteError(
                f"{plan.task_name} cannot be run offline: {perturbation.reason}{advice}"
            )
        if perturbation.module is not None and not environment_of_plan(plan).has_module(
            perturbation.module
        ):
            raise PrerequisiteError(
                f"{plan.task_name} needs the package {perturbation.module} "
                "where HELM is installed; HELM would download the package"
                f"{advice}, or install the package"
            )


def takes_all_files(plan: Plan, env: Mapping[str, str]) -> bool | None:
    """Return True if the run reads all text files of a folder, not only those in GitHub's list.

    Returns False if the run reads only the files in GitHub's list. Returns None if the task reads
    no folder of text files, or if HELM gets the list from GitHub itself.
    """
    extra = plan.evaluation.extra
    reads_list_from_disk = extra.offline or extra.data_dir is not None
    if not reads_list_from_disk or task_sources(plan, load_sources()).listing is None:
        return None
    return env.get(ALL_FILES_VARIABLE) == "1"


def _missing_data_message(plan: Plan, location: str, missing: list[str], *, options: str) -> str:
    """Return the message that data of the run are missing at this location."""
    lines = bundles.first_lines([f"missing: {name}" for name in missing])
    summary = f"{location} does not have all data that {plan.task_name} reads; nothing was started"
    return f"{summary}\n{lines}\n{how_to_get_data(plan, options=options)}"


def _check_without_bundle(
    plan: Plan, task: TaskSources, sources: Sources, env: Mapping[str, str]
) -> None:
    """Check that the output folder and the caches of this machine have all data of the run.

    Raises:
        PrerequisiteError: data are missing.
    """
    folder = scenario_folder(plan.rundir.helm, task.scenario)
    missing = []
    for file in task.files:
        has_replacement = file.instead is not None and (folder / file.instead).is_file()
        if not has_replacement and not (folder / file.path).is_file():
            missing.append(str(folder / file.path))
    if task.listing is not None:
        count = len(list(folder.glob("*.txt")))
        if count < task.listing.count:
            missing.append(
                f"{task.listing.count - count} of {task.listing.count} text files in {folder}"
            )
    for dataset in task.hub:
        cache = datasets_cache_folder(env) / dataset_cache_folder(dataset.id)
        # the folders below the data set's: configuration, version, revision
        if not any(cache.glob(f"{dataset.config or '*'}/*/*/dataset_info.json")):
            missing.append(f"{dataset.id} in {datasets_cache_folder(env)} (HF_HOME)")
    perturbations = plan.rundir.bundled_folder(bundles.PERTURBATIONS)
    for file in sources.perturbation_files(task):
        if not (perturbations / file.path).is_file():
            missing.append(str(perturbations / file.path))
    cache_of_vocabularies = env.get("TIKTOKEN_CACHE_DIR")
    for name in task.tiktoken:
        file_name = sources.tiktoken[name].path
        if cache_of_vocabularies is None or not Path(cache_of_vocabularies, file_name).is_file():
            missing.append(f"tiktoken's {name} ({file_name}) in TIKTOKEN_CACHE_DIR")
    if missing:
        raise PrerequisiteError(
            _missing_data_message(
                plan, "this machine", missing, options="--to DIR, then run with --data_dir DIR"
            )
        )


def copy_bundle_files(bundle: BundleInUse, plan: Plan) -> None:
    """Copy the files of the run from the bundle into the output folder.

    Other files that an earlier run has left in the same folders are deleted.

    Raises:
        PrerequisiteError: the bundle was changed after it was checked, or HELM's folder is a link.
    """
    # a dict from each folder of the bundle to its copy in the output folder
    targets = {
        f"{bundles.SCENARIOS}/{bundle.task.scenario}": scenario_folder(
            plan.rundir.helm, bundle.task.scenario
        )
    }
    for name in (bundles.HF_HOME, bundles.FILE_LISTS, bundles.PERTURBATIONS, *LIBRARY_FOLDERS):
        targets[name] = plan.rundir.bundled_folder(name)
    listed = bundle.manifest.file_by_path()
    wanted = {path: listed[path] for path in bundle.paths}
    for folder, target in targets.items():
        entries = {}
        for path, entry in wanted.items():
            if path.startswith(f"{folder}/"):
                entries[path.removeprefix(f"{folder}/")] = entry
        if entries:
            _remove_links(plan.rundir.helm, target)
            _mirror(bundle.root, entries, target)


def _remove_links(helm: Path, target: Path) -> None:
    """Remove `target` and the folders between `helm` and `target` if they are links.

    A link may lead to a shared folder or to the bundle, where nothing may be written or deleted.

    Raises:
        PrerequisiteError: HELM's folder `helm` itself is a link. It is not removed, for it leads to
            files of earlier runs.
    """
    if helm.is_symlink():
        raise PrerequisiteError(
            f"{helm}: is a link, and files of a data bundle are not copied through a link\n"
            "  link the output folder itself instead, or choose another with --output_dir"
        )
    for folder in reversed([target, *target.parents]):
        if folder.is_relative_to(helm) and folder.is_symlink():
            folder.unlink()


def _mirror(root: Path, wanted: Mapping[str, bundles.FileEntry], target: Path) -> None:
    """Copy files of the bundle `root` into `target`, and delete all other files there.

    `wanted`: a dict from the path of each copy, relative to `target`, to the file's entry.

    Raises:
        PrerequisiteError: a file of the bundle was changed.
    """
    present = list(target.rglob("*")) if target.is_dir() else []
    # in reverse order, so that the files of a folder come before the folder
    for path in sorted(present, reverse=True):
        if path.is_dir() and not path.is_symlink():
            if not any(path.iterdir()):
                path.rmdir()
        elif path.is_symlink() or path.relative_to(target).as_posix() not in wanted:
            path.unlink()
    for name, entry in wanted.items():
        copy = target / name
        if copy.is_file() and sha256_of(copy) == entry.sha256:
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        partial = copy.with_name(f"{copy.name}.part")
        shutil.copyfile(root / entry.path, partial)
        if sha256_of(partial) != entry.sha256:
            partial.unlink()
            raise PrerequisiteError(
                f"{root}: {entry.path} was changed while the run started; "
                "run the same command again"
            )
        partial.replace(copy)


def with_bundle(settings: HelmRunSettings, bundle: BundleInUse, plan: Plan) -> HelmRunSettings:
    """Return the settings of helm-run, with the locations of the bundle's files added.

    The variables of the Hub are set only if the task reads a data set of the Hub. Otherwise the run
    may still read data of the user's own from the Hub.
    """
    variables = {}
    top_folders = {path.partition("/")[0] for path in bundle.paths}
    if bundle.task.hub:
        home = plan.rundir.bundled_folder(bundles.HF_HOME)
        variables = {**HF_OFFLINE, "HF_HOME": str(home), "HF_DATASETS_CACHE": str(home / DATASETS)}
    for folder, variable in LIBRARY_FOLDERS.items():
        if folder in top_folders:
            variables[variable] = str(plan.rundir.bundled_folder(folder))
    lists = settings.file_lists
    if bundles.FILE_LISTS in top_folders:
        lists = str(plan.rundir.bundled_folder(bundles.FILE_LISTS))
    return replace(
        settings, library_variables={**settings.library_variables, **variables}, file_lists=lists
    )
