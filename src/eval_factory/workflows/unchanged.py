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
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.executors.process import git_hash
from eval_factory.plan.run_plan import Plan
from eval_factory.report.checksums import ChecksumsError, digests_of, read_checksums
from eval_factory.tasks.framework import framework_path
from eval_factory.workflows.resume import RunState, read_state

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


def digest_of_given(plan: Plan) -> str:
    """SHA-256 of what the user set."""
    return hashlib.sha256(json.dumps(plan.evaluation.as_given(), sort_keys=True, default=str).encode()).hexdigest()


def commit_of_this() -> str | None:
    """Of the checkout that this program is of."""
    home = framework_path().parent
    return git_hash(home) if home != Path(eval_factory.__file__).parent else None  # a wheel may lie in any checkout


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
    plan: Plan, runs: Sequence[Path], before: Written | None, redactor: Redactor, *, git_hash: str | None
) -> TaskResult | None:
    """The result as it stands, with its checksums in their place again; None where it has to be collected again.

    Args:
        before: the checksums, which are gone since.
        git_hash: of the checkout that the program is of, now.
    """
    rundir = plan.rundir
    state = read_state(rundir)
    if before is None or state is None or state.inputs is None or _digests(rundir, runs, before) != before.digests:
        return None
    if state.inputs != _inputs_now(plan, runs, state, git_hash, before.digests):
        return None
    if _holds_a_secret(_texts(rundir), redactor):
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


def _inputs_now(
    plan: Plan, runs: Sequence[Path], state: RunState, git_hash: str | None, digests: Mapping[str, str]
) -> str:
    """What `digest_of_inputs` would be of a collection that is done now."""
    from eval_factory.helm import names
    from eval_factory.scoring import provenance
    from eval_factory.scoring.provenance import dataset_files

    scenario = names.scenario_name(runs[0]) or plan.evaluation.task.helm.scenario
    started_at, ended_at = provenance.began_and_ended(plan.rundir.events, state.run_id)
    now = replace(state, program=program_of_this(), given=digest_of_given(plan)).of_files(digests, plan.rundir)
    return now.digest_of_inputs({
        "eval_factory": eval_factory.__version__,
        "python": provenance.python_version(),
        "platform": provenance.platform_of_this(),
        "framework_sha256": sha256_of(framework_path()),
        "lock_sha256": provenance.lock_sha256(),
        "git_hash": git_hash,
        "dataset_files": dataset_files(plan, scenario),
        "started_at": started_at,
        "ended_at": ended_at,
    })  # fmt: skip


def _texts(rundir: RunDir) -> Iterable[str]:
    """What a collection writes without the secrets that are known to it."""
    for file in (*rundir.results, *rundir.responses.glob("*")):
        if file.is_file():
            yield file.read_text("utf-8", errors="replace")


def _holds_a_secret(texts: Iterable[str], redactor: Redactor) -> bool:
    """Whether a key that was not known when they were written stands in one of them."""
    return any(redactor.finds(text) for text in texts)
