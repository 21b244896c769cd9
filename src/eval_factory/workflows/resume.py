"""The memory of an output folder of its last run, so that a finished one is neither run nor
collected again.

Collecting again would write what stands there if every file of the result is what its checksums
say, and all that a collection reads beside the folder is what it was: the program, its framework
file, the installed packages, the data, the user's keys. All of it is known by content; of anything
that cannot be known, the run is collected again.
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
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.results import TaskResult
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import parse_json, write_atomic
from eval_factory.core.secrets import Redactor
from eval_factory.executors.process import git_hash
from eval_factory.helm.environments import environment_of
from eval_factory.plan.run_plan import Plan
from eval_factory.report.checksums import digests_of, listed_checksums
from eval_factory.tasks.framework import DATA_PATH, framework_path
from eval_factory.tasks.upstreams import UPSTREAMS, Upstream

OF_INPUTS = (
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
"""Fields of the provenance: the program, the machine, the data, when helm-run sent its first and
its last event.
"""


@dataclass(frozen=True)
class DataRead:
    """The facts by which the data of a run are known again."""

    # the record of the data bundle, as it stands in the provenance
    bundle: Mapping[str, Any] | None = None
    # name of a file of the user's own -> SHA-256
    own_files: Mapping[str, str] = field(default_factory=dict)
    # more files than HELM's own list has; None: no list is read from disk
    all_files: bool | None = None
    # classes of metrics of pictures that could not be computed: when they can, the run goes on
    uncomputed: tuple[str, ...] = ()


@dataclass(frozen=True)
class LastRunState:
    """A run that came to its end."""

    identity: str
    versions: Mapping[str, str | None]
    run_id: str
    wall_s: float
    runs: Sequence[str]  # run folders, relative to the output folder
    complete: bool
    data_bundle: Mapping[str, Any] | None = None
    data_files: Mapping[str, str] = field(default_factory=dict)
    all_files: bool | None = None
    program: str | None = None  # SHA-256 of the program that collected
    given: str | None = None  # SHA-256 of what the user had set
    files: Mapping[str, str] = field(default_factory=dict)
    """Path in the output folder -> SHA-256, of every file of the result that is written before
    this one.
    """
    inputs: str | None = None  # `digest_of_inputs` of the collection
    uncomputed: Sequence[str] = ()

    def of_files(self, digests: Mapping[str, str], rundir: RunDir) -> LastRunState:
        """Return the state with the digests of the result's files; the state's own file, and what
        is made of it, are not among them.
        """
        made_after = {file.name for file in (rundir.run_state, rundir.attestation)}
        return replace(
            self, files={name: digest for name, digest in digests.items() if name not in made_after}
        )

    def digest_of_inputs(self, provenance: Mapping[str, Any]) -> str:
        """SHA-256 of all that the collection read and wrote, as far as it is remembered here and in
        the provenance.

        SHA256SUMS alone can be written again by anybody.
        """
        state = asdict(replace(self, inputs=None))
        if not state["uncomputed"]:  # states that are older than this field have none
            del state["uncomputed"]
        inputs = [
            state,
            {name: provenance[name] for name in OF_INPUTS},
        ]
        return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()


def versions(upstream: Upstream) -> dict[str, str | None]:
    """Return the versions of eval-factory and of the upstream: a result of others is not this
    one's.
    """
    return {
        "eval_factory": __version__,
        upstream.package: environment_of(upstream).version_of(upstream.package),
    }


def is_of_current_version(state: LastRunState) -> bool:
    """Return True if this eval-factory made it, with an upstream as it is installed."""
    return any(state.versions == versions(upstream) for upstream in UPSTREAMS.values())


def read_state(rundir: RunDir) -> LastRunState | None:
    """Return the state that the last run left; None if no run finished, or the state cannot be
    read.
    """
    try:
        return LastRunState(**parse_json(rundir.run_state.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def finished_run(plan: Plan, read: DataRead) -> LastRunState | None:
    """Return the folder's last run if it is complete, of the same identity and data, and still
    there with its files.
    """
    state = read_state(plan.rundir)
    if (
        state is None
        or not state.complete
        or state.identity != plan.identity
        or state.versions != versions(plan.upstream)
    ):
        return None
    then = DataRead(state.data_bundle, state.data_files, state.all_files, tuple(state.uncomputed))
    if then != read:
        return None
    root = plan.rundir.root
    files = {root / name: digest for name, digest in state.files.items()}
    made = []
    for file in files:
        if file.parent == plan.rundir.made_pictures:
            made.append(file)
    if any(not file.is_file() or sha256_of(file) != files[file] for file in made):
        return None
    if not (state.runs and all(any((root / name).glob("*.json")) for name in state.runs)):
        return None
    return state


def ended_run(
    plan: Plan, runs: Sequence[Path], *, run_id: str, wall_s: float, complete: bool, read: DataRead
) -> LastRunState:
    """Return the state of a run that has just ended."""
    return LastRunState(
        identity=plan.identity,
        versions=versions(plan.upstream),
        run_id=run_id,
        wall_s=wall_s,
        runs=[folder.relative_to(plan.rundir.root).as_posix() for folder in runs],
        complete=complete,
        data_bundle=read.bundle,
        data_files=read.own_files,
        all_files=read.all_files,
        program=this_program_sha256(),
        given=digest_of_given(plan),
        uncomputed=read.uncomputed,
    )


def remember(rundir: RunDir, state: LastRunState) -> None:
    """Write down that a run ended."""
    write_atomic(rundir.run_state, json.dumps(asdict(state), indent=2))


def remember_result(
    rundir: RunDir, state: LastRunState, digests: Mapping[str, str], provenance: Mapping[str, Any]
) -> dict[str, str]:
    """Write the state with the digests of the result's files. Returns these digests, and that of
    the state, which is one of the files itself.
    """
    state = state.of_files(digests, rundir)
    remember(rundir, replace(state, inputs=state.digest_of_inputs(provenance)))
    return {**digests, rundir.run_state.name: sha256_of(rundir.run_state)}


def archive_other_results(plan: Plan, data_files: Mapping[str, str]) -> Path | None:
    """Return where the results of the folder were moved to, if they are of another configuration or
    of other data.

    What is written from now on says what is run next; beside it they would be taken for its
    results.
    """
    rundir = plan.rundir
    if not any(file.exists() for file in rundir.results):
        return None
    try:
        provenance = parse_own(rundir.evaluation_config.read_text(encoding="utf-8"))["provenance"]
        files = provenance["dataset_files"].items()
        own_files = {}
        for name, digest in files:
            if name == DATA_PATH or name.startswith(f"{DATA_PATH}/"):
                own_files[name] = digest
        if (provenance["run_identity"], own_files) == (plan.identity, data_files):
            return None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        pass  # it does not say whose it is
    return rundir.archive((*rundir.results, rundir.run_config, rundir.packages))


def digest_of_given(plan: Plan) -> str:
    """SHA-256 of what the user set."""
    return hashlib.sha256(
        json.dumps(plan.evaluation.as_given(), sort_keys=True, default=str).encode()
    ).hexdigest()


def checkout_commit() -> str | None:
    """Return the commit of the checkout that this program runs from."""
    home = framework_path().parent
    # a wheel may lie in any checkout
    if home == Path(eval_factory.__file__).parent:
        return None
    return git_hash(home)


@cache
def this_program_sha256() -> str:
    """Read once in a process: a program that is changed meanwhile is not the one that is at
    work.
    """
    return program_sha256(Path(eval_factory.__file__).parent)


def program_sha256(package: Path) -> str:
    """Return the hash of every file of the package but what Python makes of them: a checkout
    changes without its version.
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
    """Return the result as it stands; None if it has to be collected again. `git_hash`: the commit
    of the checkout that the program is from, now.
    """
    rundir = plan.rundir
    state = read_state(rundir)
    listed = listed_checksums(rundir)
    if state is None or rundir.attestation.name not in listed:
        return None
    statement = sha256_of(rundir.attestation) if rundir.attestation.is_file() else "missing"
    if {**digests_of(rundir, runs), rundir.attestation.name: statement} != listed:
        return None
    from eval_factory.helm import names
    from eval_factory.scoring import provenance
    from eval_factory.scoring.judge_passports import PASSPORT, passport_text

    passport = passport_text(plan)
    copy = rundir.model_configs / PASSPORT
    if passport is not None and not (copy.is_file() and copy.read_text("utf-8") == passport):
        return None
    scenario = names.scenario_name(runs[0]) or plan.evaluation.task.helm.scenario
    now = replace(state, program=this_program_sha256(), given=digest_of_given(plan)).of_files(
        listed, rundir
    )
    made = provenance.provenance_of(plan, scenario, "", git_hash, None, run_id=state.run_id)
    if state.inputs != now.digest_of_inputs(vars(made)):
        return None
    texts = (
        file.read_text("utf-8", errors="replace")
        for file in (*rundir.results, *rundir.responses.glob("*"))
        if file.is_file()
    )
    # a key that was not known when they were written
    if any(redactor.finds(text) for text in texts):
        return None
    from eval_factory.report.reader import StoredInstances, result_in

    # this very program checked it
    document = parse_own(rundir.evaluation_config.read_text("utf-8"))
    result = result_in(document, StoredInstances(rundir))
    return replace(result, something_to_ask=False)  # else it would not be a run that is complete
