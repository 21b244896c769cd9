"""What a run reads: looked for before the run, and put where helm-run finds it.

Files are copied into the output folder, never linked: ehr_sql's database is altered by runs, and the `datasets` package
writes locks beside what it reads. A bundle may so be read-only and shared, and go away while the model is asked.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import sha256_of
from eval_factory.data.bundle import (
    FILE_LISTS,
    HF_HOME,
    NLTK_DATA,
    SCENARIOS,
    TIKTOKEN,
    Need,
    needs_of,
)
from eval_factory.data.hub import DATASETS, HF_OFFLINE, cache_folder, caches_of
from eval_factory.data.manifest import FileEntry, Manifest, compare, manifest_sha256, read_manifest
from eval_factory.data.sources import Sources, TaskSources, load_sources
from eval_factory.helm.output import scenario_folder
from eval_factory.plan.run_plan import Plan
from eval_factory.tasks.framework import Task

SHOWN = 5
DEFAULT_VOCABULARY = "cl100k_base"
"""What counts tokens where `max_length` sets a limit."""
PLACES = {NLTK_DATA: "NLTK_DATA", TIKTOKEN: "TIKTOKEN_CACHE_DIR"}
"""Folders of a bundle that libraries find by a variable."""


@dataclass(frozen=True)
class BundleInUse:
    """A bundle whose files of one task are as the manifest says."""

    root: Path
    manifest: Manifest
    sha256: str
    """Of the manifest."""
    task: TaskSources
    needs: tuple[Need, ...]

    @property
    def paths(self) -> list[str]:
        """What of the bundle's files the run is given: what its task reads, and what HELM looks for in every run."""
        nltk = [file.path for file in self.manifest.files if file.path.startswith(f"{NLTK_DATA}/")]
        return [*(path for need in self.needs for path in need.paths), *nltk]

    def record(self) -> dict[str, Any]:
        """For the provenance: the manifest's hash, and of data sets of the Hub the revision and the files' hashes.

        The files of scenarios are recorded with all others of the output folder.
        """
        listed = self.manifest.paths()
        datasets = []
        for dataset in self.task.hub:
            entry = self.manifest.hub_entry(dataset.id, dataset.config)
            if entry is None:
                continue
            inside = [path for path in listed if path.startswith(f"{entry.folder}/")]
            read = sorted(path for path in inside if path.endswith((".arrow", ".json")))
            datasets.append(
                {
                    "id": entry.id,
                    "config": entry.config,
                    "revision": entry.revision,
                    "source": entry.source,
                    "files": {path.rpartition("/")[2]: listed[path].sha256 for path in read},
                }
            )
        return {"manifest_sha256": self.sha256, "hub": datasets}


def known_as(plan: Plan, sources: Sources) -> str | None:
    """The name by which the table of sources knows what this run reads.

    A run entry of HELM's goes by the name of our task that reads the same; None where there is none.
    """
    this = plan.evaluation.task
    if not this.helm.any_run_spec:
        return this.name if this.name in sources.tasks else None
    ours = [task for task in plan.evaluation.framework.evaluations if task.name in sources.tasks]
    same = [task for task in ours if _reads_the_same(task, this)]
    same.sort(key=lambda task: len(task.helm.fixed or {}), reverse=True)  # med_dialog_icliniq before med_dialog
    return same[0].name if same else None


def _reads_the_same(task: Task, entry: Task) -> bool:
    if entry.helm.run_spec != task.helm.run_spec and entry.helm.scenario != task.helm.scenario:
        return False
    for name, rule in task.helm.parameters.items():
        given = entry.helm.arguments.get(name)
        if rule.fixed is not None and given != rule.fixed:
            return False
        if rule.allowed and given is not None and given not in rule.allowed:
            return False
    return True


def task_sources(plan: Plan, sources: Sources) -> TaskSources:
    """What this run reads: of its subset, and with the vocabulary that a limit on prompts needs."""
    name = known_as(plan, sources)
    task = TaskSources(scenario=plan.evaluation.task.helm.scenario) if name is None else sources.tasks[name]
    task = task.with_values({name: str(value) for name, value in plan.scenario_arguments.items()})
    if task.files and plan.evaluation.run.config.params.extra.data_path is not None:
        task = task.model_copy(update={"files": ()})  # the user's own file takes their place
    vocabularies = task.tiktoken
    if plan.evaluation.run.config.params.extra.max_length is not None and not vocabularies:
        vocabularies = (DEFAULT_VOCABULARY,)
    return task.model_copy(update={"tiktoken": vocabularies})


def how_to_get(plan: Plan, to: str) -> str:
    """What to do where data of this run are missing; `to`: the end of the command."""
    sources = load_sources()
    name = known_as(plan, sources)
    if name is None:
        folder = scenario_folder(plan.rundir.helm, plan.evaluation.task.helm.scenario)
        return (
            f"  'eval-factory data pull' does not know what {plan.task_name} reads: run it once with a network, or put"
            f" its files into {folder} and its data sets of the Hub into HF_HOME"
        )
    task = task_sources(plan, sources)
    if not task.can_be_pulled:
        whose = "are your own files" if task.own_data else "come with eval-factory"
        return (
            f"  the data of {plan.task_name} {whose}, so 'eval-factory data pull' has nothing for it: run it once with"
            " a network, or put what it wanted into HF_HOME"
        )
    asked = f"{name}:{task.variant}" if task.variant else name
    return f"  on a machine with a network: eval-factory data pull {asked} {to}"


def data_dir_of(plan: Plan) -> Path | None:
    text = plan.evaluation.run.config.params.extra.data_dir
    return None if text is None else Path(os.path.abspath(os.path.expanduser(text)))


def check_data(plan: Plan, env: Mapping[str, str]) -> BundleInUse | None:
    """Look for all that the run will read. None: no bundle is used.

    Raises:
        PrerequisiteError: something is not there, or not what the manifest says; the message names it and the command.
    """
    sources = load_sources()
    root = data_dir_of(plan)
    task = task_sources(plan, sources)
    if root is None:
        if plan.evaluation.run.config.params.extra.offline:
            _check_without_bundle(plan, task, sources, env)
        return None
    manifest = read_manifest(root)
    needs = tuple(needs_of(task, manifest, root, sources, all_files=_all_files(env)))
    missing = [need.missing for need in needs if need.missing is not None]
    if missing:
        raise PrerequisiteError(_not_there(plan, f"the data bundle {root}", missing, f"--to {root}"))
    bundle = BundleInUse(root, manifest, manifest_sha256(root), task, needs)
    differences = compare(root, manifest, only=bundle.paths)
    if differences:
        lines = "\n".join(f"  {line}" for line in differences.lines()[:SHOWN])
        raise PrerequisiteError(
            f"{root}: files of {plan.task_name} are not what the manifest says\n{lines}\n"
            f"  get them anew\n{how_to_get(plan, f'--to {root}')}"
        )
    return bundle


def _all_files(env: Mapping[str, str]) -> bool:
    return HelmRunSettings.from_environment(env).all_files is True


def takes_all_files(plan: Plan, env: Mapping[str, str]) -> bool | None:
    """Whether more files are read than HELM's own list has; None where no list is answered from disk."""
    extra = plan.evaluation.run.config.params.extra
    answered = extra.offline or extra.data_dir is not None
    return _all_files(env) if answered and task_sources(plan, load_sources()).listing is not None else None


def _not_there(plan: Plan, where: str, missing: list[str], to: str) -> str:
    shown = "\n".join(f"  missing: {name}" for name in missing[:SHOWN])
    more = f"\n  and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return (
        f"{where} does not hold all that {plan.task_name} reads; nothing was started\n{shown}{more}\n"
        f"{how_to_get(plan, to)}"
    )


def _check_without_bundle(plan: Plan, task: TaskSources, sources: Sources, env: Mapping[str, str]) -> None:
    """What an earlier run left in the output folder, and what the environment's caches hold."""
    folder = scenario_folder(plan.rundir.helm, task.scenario)
    missing = []
    for file in task.files:
        instead = file.instead is not None and (folder / file.instead).is_file()
        if not instead and not (folder / file.path).is_file():
            missing.append(str(folder / file.path))
    if task.listing is not None:
        count = sum(1 for _ in folder.glob("*.txt"))
        if count < task.listing.count:
            missing.append(f"{task.listing.count - count} of {task.listing.count} text files in {folder}")
    for dataset in task.hub:
        cache = caches_of(env) / cache_folder(dataset.id)
        if not any(cache.glob(f"{dataset.config or '*'}/*/*/dataset_info.json")):
            missing.append(f"{dataset.id} in {caches_of(env)} (HF_HOME)")
    for name in task.tiktoken:
        cached = env.get("TIKTOKEN_CACHE_DIR")
        if cached is None or not (Path(cached) / sources.tiktoken[name].path).is_file():
            missing.append(f"tiktoken's {name} ({sources.tiktoken[name].path}) in TIKTOKEN_CACHE_DIR")
    if missing:
        raise PrerequisiteError(_not_there(plan, "this machine", missing, "--to DIR, then run with --data_dir DIR"))


def place(bundle: BundleInUse, plan: Plan) -> None:
    """Copy what the run reads into the output folder; what an earlier run made or altered there goes.

    Raises:
        PrerequisiteError: the bundle was changed since it was looked through.
    """
    target = scenario_folder(plan.rundir.helm, bundle.task.scenario)
    places = {f"{SCENARIOS}/{bundle.task.scenario}": target}
    places |= {name: plan.rundir.bundled(name) for name in (HF_HOME, FILE_LISTS, *PLACES)}
    listed = bundle.manifest.paths()
    placed = {path: name for need in bundle.needs for path, name in need.placed.items()}
    wanted = {placed.get(path, path): listed[path] for path in bundle.paths}
    for folder, target in places.items():
        inside = [name for name in wanted if name.startswith(f"{folder}/")]
        if inside:
            _replace_links(plan.rundir.helm, target)
            _mirror(bundle.root, {name.removeprefix(f"{folder}/"): wanted[name] for name in inside}, target)


def _replace_links(helm: Path, target: Path) -> None:
    """Take links out of the way: where they lead, nothing may be deleted or written. It may be shared, or the bundle.

    Raises:
        PrerequisiteError: HELM's folder itself is one; what earlier runs put there is not lost from sight.
    """
    if helm.is_symlink():
        raise PrerequisiteError(
            f"{helm}: is a link, and files of a data bundle are not placed through one\n"
            "  link the whole output folder instead, or choose another with --output_dir"
        )
    for folder in reversed([target, *target.parents]):
        if folder.is_relative_to(helm) and folder.is_symlink():
            folder.unlink()


def _mirror(root: Path, wanted: Mapping[str, FileEntry], target: Path) -> None:
    """Make `target` hold these files and no others."""
    if target.is_dir():
        for path in sorted(target.rglob("*"), reverse=True):
            if path.is_dir() and not path.is_symlink():
                continue
            if path.relative_to(target).as_posix() not in wanted or path.is_symlink():
                path.unlink()
        for path in sorted((path for path in target.rglob("*") if path.is_dir()), reverse=True):
            if not any(path.iterdir()):
                path.rmdir()
    for name, entry in wanted.items():
        copy = target / name
        if copy.is_file() and sha256_of(copy) == entry.sha256:
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        partial = copy.with_name(f"{copy.name}.part")
        shutil.copyfile(root / entry.path, partial)
        if sha256_of(partial) != entry.sha256:
            partial.unlink()
            raise PrerequisiteError(f"{root}: {entry.path} was changed while the run began; run the same command again")
        partial.replace(copy)


def with_bundle(settings: HelmRunSettings, bundle: BundleInUse, plan: Plan) -> HelmRunSettings:
    """The same, told where the bundle's files are.

    Where it holds no data set of the Hub for this run, nothing is said of the Hub: what else the run reads is the
    user's own, or is downloaded unless it is offline.
    """
    found = {}
    if bundle.task.hub:
        home = plan.rundir.bundled(HF_HOME)
        found = {**HF_OFFLINE, "HF_HOME": str(home), "HF_DATASETS_CACHE": str(home / DATASETS)}
    for folder, variable in PLACES.items():
        if _holds(bundle, folder):
            found[variable] = str(plan.rundir.bundled(folder))
    lists = str(plan.rundir.bundled(FILE_LISTS)) if _holds(bundle, FILE_LISTS) else settings.file_lists
    return replace(settings, libraries={**settings.libraries, **found}, file_lists=lists)


def _holds(bundle: BundleInUse, folder: str) -> bool:
    return any(path.startswith(f"{folder}/") for path in bundle.paths)
