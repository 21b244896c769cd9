"""Whether collecting a finished run again would write what already stands in its folder.

It would where every file of the result is what its checksums say, and all that a collection reads beside the folder is
what it was: the program, its framework file, the installed packages, the data, the user's keys. All of it is known by
content; of anything that cannot be known, the run is collected again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

import eval_factory
from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.redaction import Redactor
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.plan.run_plan import Plan
from eval_factory.report.checksums import ChecksumsError, digests_of, read_checksums
from eval_factory.tasks.framework import framework_path

COMPILED = (".pyc", ".pyo")


@dataclass(frozen=True)
class Written:
    """SHA256SUMS and the statement of a result, as they were before a run began to change the folder."""

    checksums: str
    statement: str
    digests: Mapping[str, str]
    """Path in the folder -> SHA-256."""


def written_before(rundir: RunDir) -> Written | None:
    """None where the folder's result has no checksums that can be read."""
    try:
        digests = read_checksums(rundir.checksums)
        return Written(rundir.checksums.read_text("utf-8"), rundir.attestation.read_text("utf-8"), digests)
    except (OSError, UnicodeError, ChecksumsError):
        return None


def digest_of_inputs(
    plan: Plan, dataset_files: Mapping[str, str], began_and_ended: Sequence[str | None], git_hash: str | None,
    digests: Mapping[str, str],
) -> str:  # fmt: skip
    """SHA-256 of all that a collection reads, and of what it wrote: SHA256SUMS alone can be written again by anybody.

    Args:
        dataset_files: name -> SHA-256, as in the provenance.
        began_and_ended: of the helm-run, as its events tell.
        digests: of the files of the result; what holds this one, or is made of it, does not count.
    """
    from eval_factory.scoring import run_environment

    made_after = {file.name for file in (plan.rundir.run_state, plan.rundir.attestation)}
    inputs = {
        "program": program_of_this(),
        "framework": sha256_of(framework_path()),
        "packages": run_environment.installed_packages(),
        "machine": [eval_factory.__version__, run_environment.python_version(), run_environment.platform_of_this()],
        "git_hash": git_hash,
        "given": plan.evaluation.as_given(),
        "data": dict(dataset_files),
        "began_and_ended": list(began_and_ended),
        "files": {name: digest for name, digest in digests.items() if name not in made_after},
    }
    return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


@cache
def program_of_this() -> str:
    """Read once in a process: a program that is changed meanwhile is not the one that is at work."""
    return program_sha256(Path(eval_factory.__file__).parent)


def program_sha256(package: Path) -> str:
    """Of every file of the package but what Python makes of them: a checkout changes without its version."""
    files = (path for path in package.rglob("*") if path.is_file() and path.suffix not in COMPILED)
    found = {path.relative_to(package).as_posix(): sha256_of(path) for path in files}
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()


def unchanged_result(
    plan: Plan, runs: Sequence[Path], before: Written | None, redactor: Redactor, *, run_id: str, inputs: str | None,
    git_hash: str | None,
) -> TaskResult | None:  # fmt: skip
    """The result as it stands, with its checksums in their place again; None where it has to be collected again.

    Args:
        before: the checksums, which are gone since.
        inputs: `digest_of_inputs` when the result was collected.
        git_hash: of the checkout that the program is of, now.
    """
    rundir = plan.rundir
    if before is None or inputs is None or _digests(rundir, runs, before) != before.digests:
        return None
    if inputs != _inputs_now(plan, runs, run_id, git_hash, before.digests) or _holds_a_secret(_texts(rundir), redactor):
        return None
    from eval_factory.report.reader import StoredInstances, result_of

    document = parse_own(rundir.evaluation_config.read_text("utf-8"))  # this very program checked it
    result = result_of(document, StoredInstances(rundir))
    write_atomic(rundir.attestation, before.statement)
    write_atomic(rundir.checksums, before.checksums)
    return replace(result, something_to_ask=False)  # else it would not be a run that is complete


def _digests(rundir: RunDir, runs: Iterable[Path], before: Written) -> dict[str, str]:
    """Of the folder as it is, and of its statement as it was."""
    statement = hashlib.sha256(before.statement.encode()).hexdigest()
    return {**digests_of(rundir, runs), rundir.attestation.name: statement}


def _inputs_now(plan: Plan, runs: Sequence[Path], run_id: str, git_hash: str | None, digests: Mapping[str, str]) -> str:
    from eval_factory.helm import names
    from eval_factory.scoring.provenance import dataset_files
    from eval_factory.scoring.run_environment import began_and_ended

    scenario = names.scenario_name(runs[0]) or plan.evaluation.task.helm.scenario
    times = began_and_ended(plan.rundir.events, run_id)
    return digest_of_inputs(plan, dataset_files(plan, scenario), times, git_hash, digests)


def _texts(rundir: RunDir) -> Iterable[str]:
    """What a collection writes without the secrets that are known to it."""
    for file in (*rundir.results, *rundir.responses.glob("*")):
        if file.is_file():
            yield file.read_text("utf-8", errors="replace")


def _holds_a_secret(texts: Iterable[str], redactor: Redactor) -> bool:
    """Whether a key that was not known when they were written stands in one of them."""
    return any(redactor.finds(text) for text in texts)
