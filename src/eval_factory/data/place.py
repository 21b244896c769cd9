"""What a run reads: looked for before the run, and put where helm-run finds it.

Files are copied into the output folder, never linked: ehr_sql's database is altered by runs, and the `datasets` package
writes locks beside what it reads. A bundle may so be read-only and shared.
"""

from __future__ import annotations

import filecmp
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.config.task_rules import SCENARIO_PARAMETERS
from eval_factory.data.bundle import (
    FILE_LISTS,
    HF_HOME,
    NLTK_DATA,
    SCENARIOS,
    TIKTOKEN,
    Need,
    needs_of,
)
from eval_factory.data.hub import DATASETS, cache_folder, caches_of
from eval_factory.data.manifest import Manifest, compare, manifest_sha256, read_manifest
from eval_factory.data.sources import Sources, TaskSources, load_sources
from eval_factory.engine.listing import ALL_FILES_VARIABLE, LISTS_VARIABLE
from eval_factory.errors import PrerequisiteError
from eval_factory.helm.output import scenario_folder
from eval_factory.plan import Plan
from eval_factory.rundir import sha256_of

SHOWN = 5
HF_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
DEFAULT_VOCABULARY = "cl100k_base"
"""What counts tokens where `max_length` sets a limit."""


@dataclass(frozen=True)
class BundleInUse:
    """A bundle whose files of one task are as the manifest says."""

    root: Path
    manifest: Manifest
    sha256: str
    """Of the manifest."""
    task: TaskSources
    needs: tuple[Need, ...]


def task_sources(plan: Plan, sources: Sources) -> TaskSources:
    """What this run reads: of its subset, and with the vocabulary that a limit on prompts needs."""
    extra = plan.evaluation.run.config.params.extra
    task = sources.task(plan.task_name).with_values({name: getattr(extra, name) for name in SCENARIO_PARAMETERS})
    vocabularies = task.tiktoken
    if extra.max_length is not None and not vocabularies:
        vocabularies = (DEFAULT_VOCABULARY,)
    return task.model_copy(update={"tiktoken": vocabularies})


def asked_of(plan: Plan) -> str:
    """What to give to `data pull` for this run."""
    variant = task_sources(plan, load_sources()).variant
    return f"{plan.task_name}:{variant}" if variant else plan.task_name


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
    differences = compare(root, manifest, only=_paths(needs))
    if differences:
        lines = "\n".join(f"  {line}" for line in differences.lines()[:SHOWN])
        raise PrerequisiteError(
            f"{root}: files of {plan.task_name} are not what the manifest says\n{lines}\n"
            f"  get them anew: eval-factory data pull {asked_of(plan)} --to {root}"
        )
    return BundleInUse(root, manifest, manifest_sha256(root), task, needs)


def _paths(needs: tuple[Need, ...]) -> list[str]:
    return [path for need in needs for path in need.paths]


def _all_files(env: Mapping[str, str]) -> bool:
    return env.get(ALL_FILES_VARIABLE) == "1"


def _not_there(plan: Plan, where: str, missing: list[str], to: str) -> str:
    asked = asked_of(plan)
    shown = "\n".join(f"  missing: {name}" for name in missing[:SHOWN])
    more = f"\n  and {len(missing) - SHOWN} more" if len(missing) > SHOWN else ""
    return (
        f"{where} does not hold all that {plan.task_name} reads; nothing was started\n{shown}{more}\n"
        f"  on a machine with a network: eval-factory data pull {asked} {to}"
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
    """Copy what the run reads into the output folder; what an earlier run made or altered there goes."""
    target = scenario_folder(plan.rundir.helm, bundle.task.scenario)
    prefix = f"{SCENARIOS}/{bundle.task.scenario}/"
    wanted = {path.removeprefix(prefix): path for path in _paths(bundle.needs) if path.startswith(prefix)}
    if wanted:
        _replace_links(plan.rundir.helm, target)
        _mirror(bundle.root, wanted, target)
    prefix = f"{HF_HOME}/"
    wanted = {path.removeprefix(prefix): path for path in _paths(bundle.needs) if path.startswith(prefix)}
    if wanted:
        _replace_links(plan.rundir.helm, plan.rundir.hf_home)
        _mirror(bundle.root, wanted, plan.rundir.hf_home)


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


def _mirror(root: Path, wanted: Mapping[str, str], target: Path) -> None:
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
    for name, source in wanted.items():
        copy = target / name
        if copy.is_file() and filecmp.cmp(root / source, copy, shallow=False):
            continue
        copy.parent.mkdir(parents=True, exist_ok=True)
        partial = copy.with_name(f"{copy.name}.part")
        shutil.copyfile(root / source, partial)
        partial.replace(copy)


def variables_of(bundle: BundleInUse, plan: Plan) -> dict[str, str]:
    """What tells the libraries inside helm-run where the bundle's files are."""
    found = dict(HF_OFFLINE)
    found["HF_HOME"] = str(plan.rundir.hf_home)
    found["HF_DATASETS_CACHE"] = str(plan.rundir.hf_home / DATASETS)
    for name, variable in ((NLTK_DATA, "NLTK_DATA"), (TIKTOKEN, "TIKTOKEN_CACHE_DIR")):
        if any(file.path.startswith(f"{name}/") for file in bundle.manifest.files):
            found[variable] = str(bundle.root / name)
    if bundle.task.listing is not None:
        found[LISTS_VARIABLE] = str(bundle.root / FILE_LISTS)
    return found


def bundle_record(plan: Plan) -> dict[str, Any] | None:
    """For the provenance: the bundle's hash, and of data sets of the Hub the revision and the hash of what was read.

    The files of scenarios are recorded with all others of the output folder.
    """
    root = data_dir_of(plan)
    if root is None:
        return None
    manifest = read_manifest(root)
    datasets = []
    for dataset in task_sources(plan, load_sources()).hub:
        entry = manifest.hub_entry(dataset.id, dataset.config)
        if entry is None:
            continue
        folder = plan.rundir.hf_home / entry.folder.removeprefix(f"{HF_HOME}/")
        read = sorted(path for path in folder.glob("*") if path.suffix in (".arrow", ".json"))
        datasets.append(
            {
                "id": entry.id,
                "config": entry.config,
                "revision": entry.revision,
                "source": entry.source,
                "files": {path.name: sha256_of(path) for path in read},
            }
        )
    return {"manifest_sha256": manifest_sha256(root), "hub": datasets}
