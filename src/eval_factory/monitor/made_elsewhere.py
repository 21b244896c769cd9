"""Checks imported results of a panel, and copies them into the panel's folder.

Another program asks the questions of such a panel, for example because it watches an agent. Each
imported result is one asking of the panel.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from eval_factory.core.enums import RunStatus
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.formats import counted
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.report.reader import StoredResult, load_result

GIVE_RESULTS = (
    "another program asks the questions of this panel: import the result of that program, and "
    "pass the imported folder with --from DIR"
)


def identity_of(result: TaskResult) -> str:
    """Return a text that is equal for all askings of a panel that may be compared.

    For a run of this program, the text is the identity of the run. For an imported result, the text
    is a hash of its program, task, model and prompts.
    """
    provenance = result.provenance
    if provenance.imported is None:
        return provenance.run_identity
    content = [
        provenance.imported.program,
        result.task,
        provenance.target,
        provenance.prompts_sha256,
    ]
    return f"imported-{hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]}"


def identities_of(folders: Mapping[str, Path]) -> dict[str, str]:
    """Return the identity of each task's result; `folders` has the folders of the results."""
    identities = {}
    for task, folder in folders.items():
        identities[task] = identity_of(load_result(folder).result)
    return identities


def result_folders(source: Path, tasks: Sequence[str]) -> dict[str, Path]:
    """Return the folder of each task's result.

    If there is one task, the folder is `source`. Otherwise the folders are in `source`, and have
    the names of the tasks.
    """
    if len(tasks) == 1:
        return {tasks[0]: source}
    return {task: source / task for task in tasks}


def refuse_unfit(
    sources: Sequence[Path], tasks: Sequence[str], sizes: Sequence[int], model: str
) -> None:
    """Check that imported results are askings of the panel.

    Args:
        sources: the folders of the imported results, one for each asking.
        tasks: the tasks of the panel.
        sizes: the number of questions of each task.
        model: the model that the panel watches.

    Raises:
        ConfigError: There is no result, or a result is not an asking of the panel.
        PrerequisiteError: A folder contains no result.
    """
    if not sources:
        raise ConfigError(GIVE_RESULTS)
    problems: list[str] = []
    for source in sources:
        folders = result_folders(source, tasks)
        for task, size in zip(tasks, sizes, strict=True):
            stored = load_result(folders[task])
            problems += _fit_problems(str(folders[task]), stored, size, model)
    if problems:
        raise ConfigError(problems)


def refuse_unequal(
    sources: Sequence[Path],
    tasks: Sequence[str],
    *,
    count: int,
    earlier_runs: Sequence[Path] = (),
) -> None:
    """Check the number of imported results, and that all of them may be compared.

    Args:
        sources: the folders of the imported results, one for each asking.
        tasks: the tasks of the panel.
        count: the number of results that are needed.
        earlier_runs: the folders of the results that the panel already has.

    Raises:
        ConfigError: The number of results is wrong, the panel already has one of the results, or
            the results have different identities (`identity_of`).
        PrerequisiteError: A folder contains no result.
    """
    if len(sources) != count:
        raise ConfigError(
            f"--from: was passed {counted(len(sources), 'time')}, but is needed "
            f"{counted(count, 'time')} (for a baseline, the number in baseline.repeats)"
        )
    earlier = list(earlier_runs)
    for source in sources:
        folders = result_folders(source, tasks)
        problems = list(_duplicate_problems(folders.values(), earlier))
        if identities_of(folders) != identities_of(result_folders(sources[0], tasks)):
            problems.append(
                f"{source}: cannot be compared with {sources[0]}: the program, the task, the model "
                "or the prompts differ"
            )
        if problems:
            raise ConfigError(problems)
        earlier += folders.values()


def _fit_problems(label: str, stored: StoredResult, size: int, model: str) -> Iterator[str]:
    """Yield the reasons why a result is not an asking of a panel's task.

    For `size` and `model` see `refuse_unfit`; `label` begins each message.
    """
    result = stored.result
    if result.provenance.imported is None:
        yield f"{label}: is a run of this program; --from takes imported results"
        return
    if result.status != RunStatus.COMPLETE or not result.reportable:
        reasons = "; ".join(result.validity.short_reasons) or "the result is partial"
        yield (
            f"{label}: is not evidence: a panel needs complete results that may be reported: "
            f"{reasons}"
        )
    if result.provenance.target != model:
        yield (
            f"{label}: is a result of the model {result.provenance.target}; "
            f"the panel watches {model}"
        )
    questions = len({record.id for record in result.instances})
    if questions != size:
        yield f"{label}: has {counted(questions, 'question')}; the panel's `size` is {size}"


def _duplicate_problems(folders: Iterable[Path], earlier: Sequence[Path]) -> Iterator[str]:
    """Yield a problem for each result in `folders` that is also in an earlier folder.

    The `run_identity` of an imported result is a hash of its files, too: unlike `identity_of`, it
    differs between two askings.
    """
    earlier_by_identity = {}
    for folder in earlier:
        earlier_by_identity[load_result(folder).result.provenance.run_identity] = folder
    for folder in folders:
        duplicate = earlier_by_identity.get(load_result(folder).result.provenance.run_identity)
        if duplicate is not None:
            yield f"{folder}: the panel already has this result, as {duplicate}"


def copy_results(source: Path, tasks: Sequence[str], target_folder: Path) -> None:
    """Copy the results of one asking to `target_folder`, a folder of the panel for this asking.

    Raises:
        ConfigError: The panel's folder contains another result.
        PrerequisiteError: A folder cannot be copied.
        BusyError: Another process has locked the folder of a result.
    """
    for task, folder in result_folders(source, tasks).items():
        _copy(folder, target_folder / task)


def _copy(source: Path, target: Path) -> None:
    """Copy a result's folder; do nothing if the same result was copied before."""
    if target.exists():
        if sha256_of(RunDir(target).checksums) != sha256_of(RunDir(source).checksums):
            raise ConfigError(
                f"{target}: contains another result than {source}: "
                "pass the earlier folder again, or start with --new_baseline WHY"
            )
        return
    # Copy to a temporary name first, so that a killed process leaves no incomplete result.
    unfinished = target.with_name(f".{target.name}.{uuid.uuid4().hex[:8]}.part")
    rundir = RunDir(source)
    temporary_files = (rundir.lock_file.name, rundir.lock_holder.name, "*.part", "*.tmp")
    try:
        with rundir.locked():
            target.parent.mkdir(parents=True, exist_ok=True)
            ignore = shutil.ignore_patterns(*temporary_files)
            shutil.copytree(source, unfinished, symlinks=True, ignore=ignore)
        unfinished.rename(target)
    except (OSError, shutil.Error) as error:
        raise PrerequisiteError(f"{source}: cannot be copied to {target}: {error}") from error
    finally:
        # After an error only: the renamed copy does not have this name any more.
        shutil.rmtree(unfinished, ignore_errors=True)
