"""Makes a data bundle from a folder of benchmark data that a user has put together (`data import`).

The folder may contain scenarios/<scenario>/..., hub/<org>/<name>/... (copies of repositories of
data sets), nltk_data/, tiktoken/, presentation/ and perturbations/. At least one of these folders
must have files. Folders with other names are not imported. SHA256SUMS lists the checksums of the
files; without this list, the files are imported unchecked, after a warning.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.foreign_text import printable
from eval_factory.core.rundir import sha256_of
from eval_factory.core.safe_files import read_text
from eval_factory.data import bundle
from eval_factory.data.bundle_changes import Staging, open_staging
from eval_factory.data.hub import prepare_cache
from eval_factory.data.sources import HubDataset, Sources, path_clashes, relative_path
from eval_factory.tasks.file_problems import first_problems
from eval_factory.tasks.published_choices import read_choice_file


def describe_choice_file(path: Path, form: str, name: str) -> str:
    """Check a file of multiple-choice questions; return a text with the number of its questions.

    The text also states the number of rows that are left out, if there are any.

    Args:
        path: the file.
        form: the name of the form that the file must have, a key of `PUBLISHED_FORMS`.
        name: the name of the file for the error message.

    Raises:
        PrerequisiteError: the file does not have this form; the message names the file, the row and
            the column.
    """
    choice_file = read_choice_file(path, form)
    if choice_file.problems:
        lines = [f"  {problem}" for problem in first_problems(choice_file.problems)]
        raise PrerequisiteError("\n".join([f"{name}: is not of the form {form}", *lines]))
    note = ""
    if choice_file.left_out:
        note = f" ({choice_file.left_out} rows are left out, because they are not questions)"
    return f"{len(choice_file.rows)} questions in {path.name}{note}"


def describe_choice_files(scenarios: Path, sources: Sources) -> Iterator[str]:
    """Check each file in the folder `scenarios` for which a task declares a published form.

    Yields a line about each of these files, with the number of its questions.

    Raises:
        PrerequisiteError: a file does not have its published form.
    """
    for name, task in sources.tasks.items():
        for file in task.files:
            path = scenarios / task.scenario / file.path
            if file.form is not None and path.is_file():
                yield f"{name}: {describe_choice_file(path, file.form, str(path))}"


CHECKSUMS_FILE = "SHA256SUMS"
HUB_FOLDER = "hub"
COPIED_FOLDERS = (
    bundle.SCENARIOS,
    bundle.NLTK_DATA,
    bundle.TIKTOKEN,
    bundle.PRESENTATION,
    bundle.PERTURBATIONS,
)
KNOWN_FOLDERS = (*COPIED_FOLDERS, HUB_FOLDER)

_Say = Callable[[str], None]


def _stage_file_lists(folder: Path, sources: Sources, source: str, stage: Staging) -> None:
    """Stage the list of files of each scenario that reads all text files of its folder.

    `source`: the source of the lists for the manifest.
    """
    for task in sources.tasks.values():
        scenario_folder = folder / bundle.SCENARIOS / task.scenario
        if task.listing is not None and scenario_folder.is_dir():
            # sorted by bytes, as git sorts them
            texts = sorted((path.name for path in scenario_folder.glob("*.txt")), key=os.fsencode)
            stage.stage_file_list(task.scenario, texts, source)


def import_folder(folder: Path, root: Path, sources: Sources, say: _Say) -> bundle.Manifest:
    """Copy the files in the known folders of `folder` into the bundle `root`.

    Data sets of the Hub are converted to the cache format of the `datasets` package.

    Args:
        folder: the folder that the user has put together.
        root: the folder of the bundle.
        sources: the data that the tasks need.
        say: shows a line about the progress, or a warning.

    Returns:
        The manifest of the bundle.

    Raises:
        ConfigError: `folder` is not a folder, or has no files to import.
        PrerequisiteError: a file does not match SHA256SUMS, cannot be read, or cannot be a part of
            a bundle.
    """
    if not folder.is_dir():
        raise ConfigError(f"{folder}: is not a folder")
    names: list[str] = []  # the paths of the files, relative to `folder`
    for known in KNOWN_FOLDERS:
        if (folder / known).is_dir():
            names += [f"{known}/{name}" for name in bundle.files_under(folder / known)]
    names.sort()
    if not names:
        raise ConfigError(
            f"{folder}: has no files in any of {', '.join(KNOWN_FOLDERS)}, "
            "so there is nothing to import"
        )
    _check_files(folder, names)
    check_checksums(folder, names, say)
    for line in describe_choice_files(folder / bundle.SCENARIOS, sources):
        say(line)
    # the source of each file in the bundle's manifest
    source = f"import:{printable(os.fsdecode(folder.resolve().name))}"
    with open_staging(root, sources) as stage:
        for name in names:
            if not name.startswith(f"{HUB_FOLDER}/"):
                shutil.copyfile(folder / name, stage.add_file(name, source))
        _stage_file_lists(folder, sources, source, stage)
        datasets = _datasets_by_id(sources)
        repositories = (path for path in (folder / HUB_FOLDER).glob("*/*") if path.is_dir())
        for repository in sorted(repositories):
            dataset_id = repository.relative_to(folder / HUB_FOLDER).as_posix()
            dataset = datasets.get(dataset_id)
            if dataset is None:  # no task of the table needs it: no configuration is chosen
                dataset = HubDataset(id=dataset_id, config=None, revision=None)
            prepare_cache(repository, dataset, revision=None, source=source, staging=stage)
            say(f"{dataset_id}: prepared; its revision is not known")
        manifest = stage.commit()
    complete_tasks = ", ".join(manifest.tasks) or "none"
    say(f"{root}: {len(manifest.files)} files; tasks with all their data: {complete_tasks}")
    return manifest


def _datasets_by_id(sources: Sources) -> dict[str, HubDataset]:
    """Return the data sets of the Hub that tasks and their variants need, by their ids.

    If a task and a variant need the same data set, the configuration for the task is returned.
    """
    tasks = sources.tasks.values()
    variants = chain.from_iterable(task.variants for task in tasks)
    datasets_of_variants = chain.from_iterable(variant.hub for variant in variants)
    datasets_of_tasks = chain.from_iterable(task.hub for task in tasks)
    # The data sets of the tasks come last, and so replace those of the variants in the dict.
    return {dataset.id: dataset for dataset in chain(datasets_of_variants, datasets_of_tasks)}


def _check_files(folder: Path, names: list[str]) -> None:
    """Check that a bundle can contain these files: their names, and that they are plain files.

    Links are not reported here, but by `check_checksums`.

    Raises:
        PrerequisiteError: some files cannot; the message lists them.
    """
    problems = []
    for name in names:
        try:
            relative_path(name)
        except ValueError as error:
            problems.append(str(error))
        if not (folder / name).is_symlink() and not (folder / name).is_file():
            problems.append(f"'{printable(name)}' is not a plain file")
    # Data sets of the Hub are converted: the names of their files do not appear in the bundle.
    problems += path_clashes(name for name in names if not name.startswith(f"{HUB_FOLDER}/"))
    if problems:
        message = f"{folder}: a data bundle cannot hold these files; nothing was imported"
        raise PrerequisiteError(f"{message}\n{bundle.first_lines(problems)}")


def check_checksums(folder: Path, names: list[str], say: _Say) -> None:
    """Check that no file is a link, and compare the files with SHA256SUMS if the folder has it.

    Listed files outside of the known folders are checked too, although they are not imported.

    Raises:
        PrerequisiteError: some files are links, missing, altered or not listed; the message lists
            these files. Also raised if SHA256SUMS cannot be read.
    """
    problems = []
    for name in names:
        if (folder / name).is_symlink():
            problems.append(f"is a link: {name}")
    checksums_path = folder / CHECKSUMS_FILE
    if not checksums_path.is_file():
        say(f"warning: {folder} has no {CHECKSUMS_FILE}; its files are taken as they are")
    else:
        listed = _read_checksums(checksums_path)
        for name in names:
            if name not in listed:
                problems.append(f"not in {CHECKSUMS_FILE}: {name}")
        for name, digest in listed.items():
            path = folder / name
            if not path.is_file():
                problems.append(f"missing: {name}")
            elif sha256_of(path) != digest:
                problems.append(f"altered: {name}")
    if problems:
        message = f"{folder}: these files cannot be imported; nothing was imported"
        raise PrerequisiteError(f"{message}\n{bundle.first_lines(problems)}")


def _read_checksums(path: Path) -> dict[str, str]:
    """Read a list of checksums; return the SHA-256 of each file, by its path.

    Raises:
        PrerequisiteError: the list is not UTF-8 text, or a line is not a checksum and a path.
    """
    listed: dict[str, str] = {}
    try:
        text = read_text(path, encoding="utf-8-sig")
    except UnicodeDecodeError:
        raise PrerequisiteError(
            f"{path}: is not UTF-8 text; nothing was imported\n"
            "  in PowerShell, write the file with Out-File -Encoding utf8"
        ) from None
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        digest, _, name = line.rstrip("\r").partition(" ")
        # sha256sum separates the name by two blanks, or by a blank and an asterisk (binary mode).
        name = name.lstrip(" *").removeprefix("./")
        try:
            if len(digest) != 64:
                raise ValueError("is not a SHA-256 (64 characters) and the name of a file")
            listed[relative_path(name)] = digest.lower()
        except ValueError as error:
            raise PrerequisiteError(f"{path}: line {number}: {error}") from None
    return listed
