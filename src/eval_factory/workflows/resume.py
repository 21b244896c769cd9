"""Stores the state of the last run in its output folder, so that a finished run is not repeated.

After helm-run, the result is collected: its documents are made from HELM's files and the answers.
A result is not even collected again if the collection would write the same files. Two conditions
must be met. First, every file of the result matches its checksum. Second, everything else that a
collection reads is unchanged: the program, its framework file, the installed packages, the data and
the user's configuration. All of these inputs are compared by content. If an input cannot be
compared, the result is collected again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any

import eval_factory
from eval_factory import __version__
from eval_factory.core.plain_yaml import parse_own_text
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import parse_json, write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.executors.process import git_hash
from eval_factory.helm.environments import environment_of
from eval_factory.plan.run_plan import Plan
from eval_factory.report.checksums import digests_of, listed_checksums
from eval_factory.tasks.framework import DATA_PATH_PARAMETER, framework_path
from eval_factory.tasks.upstreams import UPSTREAMS, Upstream

INPUT_FIELDS = (
    "eval_factory",
    "python",
    "platform",
    "framework_sha256",
    "lock_sha256",
    "git_hash",
    "dataset_files",
    "started_at",
    "ended_at",
)
"""Fields of the provenance that a collection depends on: the program, the machine, the data, and
the times of helm-run's first and last event.
"""


@dataclass(frozen=True)
class DataRead:
    """The facts that identify the data of a run."""

    # the record of the data bundle, as in the provenance
    bundle: Mapping[str, Any] | None = None
    # the SHA-256 of each of the user's own files, by name
    own_files: Mapping[str, str] = field(default_factory=dict)
    # True if the run reads all text files of the task's folder, False if only those that HELM's
    # list names; None if the task has no such folder, or if HELM downloads the list
    all_files: bool | None = None
    # Classes of picture metrics that could not be computed. When this machine can compute them, the
    # run is resumed.
    uncomputed: tuple[str, ...] = ()


@dataclass(frozen=True)
class LastRunState:
    """The state of the last run in an output folder, which has ended."""

    identity: str  # the hash of the configuration that determines the requests
    versions: Mapping[str, str | None]  # as `installed_versions` returns them
    run_id: str
    wall_s: float  # the wall time of helm-run, in seconds
    runs: Sequence[str]  # HELM's run folders, relative to the output folder
    complete: bool  # False if the same run would still send requests
    # These three fields and `uncomputed` are the fields of `DataRead`.
    data_bundle: Mapping[str, Any] | None = None
    data_files: Mapping[str, str] = field(default_factory=dict)  # `own_files` of `DataRead`
    all_files: bool | None = None
    program: str | None = None  # SHA-256 of the program that collected the result
    given: str | None = None  # SHA-256 of the configuration that the user set
    files: Mapping[str, str] = field(default_factory=dict)
    """The SHA-256 of every file of the result that is written before this state, by its path in the
    output folder.
    """
    inputs: str | None = None  # the value of `digest_of_inputs` for the collection
    uncomputed: Sequence[str] = ()

    def with_files(self, digests: Mapping[str, str], rundir: RunDir) -> LastRunState:
        """Return the state with the digests of the result's files.

        Two files are left out because they are written later: the state's own file, and the
        attestation, which is derived from the state.
        """
        later_files = (rundir.run_state.name, rundir.attestation.name)
        earlier_files = {}
        for name, digest in digests.items():
            if name not in later_files:
                earlier_files[name] = digest
        return replace(self, files=earlier_files)

    def digest_of_inputs(self, provenance: Mapping[str, Any]) -> str:
        """Return the SHA-256 of everything that the collection read and wrote.

        The digest covers this state and `INPUT_FIELDS` of the provenance. It is needed because
        anybody who alters a file can also rewrite SHA256SUMS.
        """
        state = asdict(replace(self, inputs=None))
        if not state["uncomputed"]:  # states of earlier versions lack this field
            del state["uncomputed"]
        inputs = [state, {name: provenance[name] for name in INPUT_FIELDS}]
        return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def installed_versions(upstream: Upstream) -> dict[str, str | None]:
    """Return the versions of eval-factory and of the installed upstream, by package.

    A run with other versions is repeated.
    """
    return {
        "eval_factory": __version__,
        upstream.package: environment_of(upstream).version_of(upstream.package),
    }


def is_of_current_version(state: LastRunState) -> bool:
    """Return True if this eval-factory and an installed upstream have the versions of the run."""
    return any(state.versions == installed_versions(upstream) for upstream in UPSTREAMS.values())


def read_last_run_state(rundir: RunDir) -> LastRunState | None:
    """Return the state of the folder's last run; None if no run ended or the file is unreadable."""
    try:
        return LastRunState(**parse_json(rundir.run_state.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def state_of_finished_run(plan: Plan, data: DataRead) -> LastRunState | None:
    """Return the state of the folder's last run if this run need not be repeated; otherwise None.

    The last run must be complete, and have the same identity, versions and data. Its run folders
    must exist, and the pictures that it made must be unchanged.
    """
    state = read_last_run_state(plan.rundir)
    if state is None or not state.complete:
        return None
    has_same_versions = state.versions == installed_versions(plan.upstream)
    if state.identity != plan.identity or not has_same_versions:
        return None
    earlier_data = DataRead(
        bundle=state.data_bundle,
        own_files=state.data_files,
        all_files=state.all_files,
        uncomputed=tuple(state.uncomputed),
    )
    if earlier_data != data:
        return None
    root = plan.rundir.root
    for name, digest in state.files.items():
        file = root / name
        # A collection writes the result's documents again, but it cannot make a picture again.
        is_made_picture = file.parent == plan.rundir.made_pictures
        if is_made_picture and (not file.is_file() or sha256_of(file) != digest):
            return None
    if not state.runs:
        return None
    for name in state.runs:
        has_files_of_helm = any((root / name).glob("*.json"))
        if not has_files_of_helm:
            return None
    return state


def state_of_ended_run(
    plan: Plan,
    runs: Sequence[Path],
    *,
    run_id: str,
    wall_s: float,
    complete: bool,
    data: DataRead,
) -> LastRunState:
    """Return the state of a run that has just ended."""
    return LastRunState(
        identity=plan.identity,
        versions=installed_versions(plan.upstream),
        run_id=run_id,
        wall_s=wall_s,
        runs=[folder.relative_to(plan.rundir.root).as_posix() for folder in runs],
        complete=complete,
        data_bundle=data.bundle,
        data_files=data.own_files,
        all_files=data.all_files,
        program=this_program_sha256(),
        given=digest_of_given(plan),
        uncomputed=data.uncomputed,
    )


def write_state(rundir: RunDir, state: LastRunState) -> None:
    """Write the state of a run that has ended to the folder."""
    write_atomic(rundir.run_state, json.dumps(asdict(state), indent=2))


def write_result_state(
    rundir: RunDir, state: LastRunState, digests: Mapping[str, str], provenance: Mapping[str, Any]
) -> dict[str, str]:
    """Write the state of a run with the digests of its result's files.

    Returns `digests` with one more entry: the digest of the state's own file.

    Args:
        rundir: The output folder.
        state: The state without digests.
        digests: The SHA-256 of each file of the result, by its path in the output folder.
        provenance: The provenance of the result.
    """
    state = state.with_files(digests, rundir)
    write_state(rundir, replace(state, inputs=state.digest_of_inputs(provenance)))
    return {**digests, rundir.run_state.name: sha256_of(rundir.run_state)}


def archive_other_results(plan: Plan, data_files: Mapping[str, str]) -> Path | None:
    """Archive the results in the folder if they belong to another configuration or to other data.

    The run is about to write its own run_config.yml; old results next to it would be mistaken for
    results of this run.

    Returns:
        The folder to which the results were moved; None if nothing was moved.
    """
    rundir = plan.rundir
    if not any(file.exists() for file in rundir.result_files):
        return None
    try:
        provenance = parse_own_text(rundir.evaluation_config.read_text(encoding="utf-8"))[
            "provenance"
        ]
        own_files = {}
        for name, digest in provenance["dataset_files"].items():
            if name == DATA_PATH_PARAMETER or name.startswith(f"{DATA_PATH_PARAMETER}/"):
                own_files[name] = digest
        if provenance["run_identity"] == plan.identity and own_files == data_files:
            return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass  # an unreadable result cannot be compared with this run, so it is archived, too
    return rundir.archive((*rundir.result_files, rundir.run_config, rundir.packages))


def digest_of_given(plan: Plan) -> str:
    """Return the SHA-256 of the configuration that the user set."""
    return hashlib.sha256(
        json.dumps(plan.evaluation.as_given(), sort_keys=True, default=str).encode()
    ).hexdigest()


def checkout_commit() -> str | None:
    """Return the Git commit of the checkout that this program runs from; None if there is none."""
    home = framework_path().parent
    # An installed package may be inside the checkout of an unrelated project.
    if home == Path(eval_factory.__file__).parent:
        return None
    return git_hash(home)


@cache
def this_program_sha256() -> str:
    """Return the SHA-256 of this program.

    The value is computed once per process: files that change later are not the running program.
    """
    return program_sha256(Path(eval_factory.__file__).parent)


def program_sha256(package: Path) -> str:
    """Return the SHA-256 of all files of a package, without compiled files.

    The version alone is not enough: the files of a checkout change while its version does not.
    """
    files = (
        path
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".pyc", ".pyo")
    )
    digests = {path.relative_to(package).as_posix(): sha256_of(path) for path in files}
    return hashlib.sha256(json.dumps(digests, sort_keys=True).encode()).hexdigest()


def unchanged_result(
    plan: Plan, runs: Sequence[Path], redactor: Redactor, *, git_hash: str | None
) -> TaskResult | None:
    """Return the stored result if it is still valid; None if it must be collected again.

    Args:
        plan: The plan of the run.
        runs: HELM's run folders.
        redactor: The redactor, which may know keys that the stored files still contain.
        git_hash: The current Git commit of the program's checkout, or None.
    """
    rundir = plan.rundir
    state = read_last_run_state(rundir)
    listed = listed_checksums(rundir)
    if state is None or rundir.attestation.name not in listed:
        return None
    digests = digests_of(rundir, runs)
    digests[rundir.attestation.name] = "missing"  # differs from every digest
    if rundir.attestation.is_file():
        digests[rundir.attestation.name] = sha256_of(rundir.attestation)
    if digests != listed or not _has_same_passport(plan):
        return None
    # imported late: the import is slow
    from eval_factory.helm import names
    from eval_factory.scoring.provenance import provenance_of

    scenario = names.scenario_name(runs[0]) or plan.evaluation.task.helm.scenario
    current = replace(state, program=this_program_sha256(), given=digest_of_given(plan))
    current = current.with_files(listed, rundir)
    # The hash of the prompts and the data bundle may be empty: `INPUT_FIELDS` does not have them.
    provenance = provenance_of(
        plan,
        scenario,
        prompts_sha256="",
        git_hash=git_hash,
        data_bundle=None,
        run_id=state.run_id,
    )
    if state.inputs != current.digest_of_inputs(vars(provenance)):
        return None
    texts = (
        file.read_text("utf-8", errors="replace")
        for file in (*rundir.result_files, *rundir.responses.glob("*"))
        if file.is_file()
    )
    # A stored text may contain a key that the redactor did not know when the text was written.
    if any(redactor.finds(text) for text in texts):
        return None
    from eval_factory.report.reader import StoredInstances, result_of_document

    # The document needs no validation: the same program has written it.
    document = parse_own_text(rundir.evaluation_config.read_text("utf-8"))
    result = result_of_document(document, StoredInstances(rundir))
    return replace(result, something_to_ask=False)  # a complete run has nothing left to ask


def _has_same_passport(plan: Plan) -> bool:
    """Return True if the folder's copy of the configured passport is unchanged.

    Without a configured passport, there is nothing to compare.
    """
    # imported late: the import is slow
    from eval_factory.scoring.judge_passports import PASSPORT, passport_text

    passport = passport_text(plan)
    if passport is None:
        return True
    copy = plan.rundir.model_configs / PASSPORT
    return copy.is_file() and copy.read_text("utf-8") == passport
