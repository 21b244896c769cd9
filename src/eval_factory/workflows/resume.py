"""What an output folder remembers of its last run, so that a finished one is not run again."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from eval_factory import __version__
from eval_factory.core.plain_yaml import parse_own
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.core.safe_files import write_atomic
from eval_factory.plan.run_plan import Plan
from eval_factory.tasks.framework import DATA_PATH

OF_INPUTS = (
    "eval_factory", "python", "platform", "framework_sha256", "lock_sha256", "git_hash", "dataset_files", "started_at",
    "ended_at",
)  # fmt: skip
"""Fields of the provenance: the program, the machine, the data, and when helm-run told its first and last event."""


@dataclass(frozen=True)
class DataRead:
    """By what the data of a run are known again."""

    bundle: Mapping[str, Any] | None = None
    """The record of the data bundle, as it stands in the provenance."""
    own: Mapping[str, str] = field(default_factory=dict)
    """Name of a file of the user's own -> SHA-256."""
    all_files: bool | None = None
    """Whether more files than HELM's own list has; None where no list is answered from disk."""


@dataclass(frozen=True)
class RunState:
    """A run that came to its end."""

    identity: str
    versions: Mapping[str, str]
    run_id: str
    wall_s: float
    runs: Sequence[str]
    """Run folders, relative to the output folder."""
    complete: bool
    data_bundle: Mapping[str, Any] | None = None
    data_files: Mapping[str, str] = field(default_factory=dict)
    all_files: bool | None = None
    program: str | None = None
    """SHA-256 of the program that collected (`unchanged.program_of_this`)."""
    given: str | None = None
    """SHA-256 of what the user had set."""
    files: Mapping[str, str] | None = None
    """Path in the output folder -> SHA-256, of every file of the result that is written before this one; None where an
    earlier version collected."""
    inputs: str | None = None
    """`digest_of_inputs` of the collection; None where an earlier version collected."""

    def of_files(self, digests: Mapping[str, str], rundir: RunDir) -> RunState:
        """With the digests of the result's files; this one, and what is made of it, are not among them."""
        made_after = {file.name for file in (rundir.run_state, rundir.attestation)}
        return replace(self, files={name: digest for name, digest in digests.items() if name not in made_after})

    def digest_of_inputs(self, provenance: Mapping[str, Any]) -> str:
        """SHA-256 of all that the collection read and wrote, as far as it is remembered here and in the provenance.

        SHA256SUMS alone can be written again by anybody.
        """
        inputs = [asdict(replace(self, inputs=None)), {name: provenance[name] for name in OF_INPUTS}]
        return hashlib.sha256(json.dumps(inputs, sort_keys=True, default=str).encode()).hexdigest()

    def sealed(self, provenance: Mapping[str, Any]) -> RunState:
        return replace(self, inputs=self.digest_of_inputs(provenance))


def versions() -> dict[str, str]:
    """A result of other versions is not this one's."""
    return {"eval_factory": __version__, "crfm-helm": metadata.version("crfm-helm")}


def read_state(rundir: RunDir) -> RunState | None:
    """None where nothing finished, or what is written cannot be read."""
    try:
        return RunState(**json.loads(rundir.run_state.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def finished_run(plan: Plan, state: RunState | None, read: DataRead) -> list[Path] | None:
    """The run folders of a complete run of the same identity and data, still there with their files."""
    if state is None or not state.complete or state.identity != plan.identity or state.versions != versions():
        return None
    if DataRead(state.data_bundle, state.data_files, state.all_files) != read:
        return None
    folders = [plan.rundir.root / name for name in state.runs]
    return folders if folders and all(any(folder.glob("*.json")) for folder in folders) else None


def ended_run(
    plan: Plan, runs: Sequence[Path], *, run_id: str, wall_s: float, complete: bool, read: DataRead
) -> RunState:
    """A run that has just ended."""
    return RunState(
        identity=plan.identity,
        versions=versions(),
        run_id=run_id,
        wall_s=wall_s,
        runs=[folder.relative_to(plan.rundir.root).as_posix() for folder in runs],
        complete=complete,
        data_bundle=read.bundle,
        data_files=read.own,
        all_files=read.all_files,
    )


def remember(rundir: RunDir, state: RunState) -> None:
    """Write down that a run ended."""
    write_atomic(rundir.run_state, json.dumps(asdict(state), indent=2))


def digest_of_state(rundir: RunDir) -> dict[str, str]:
    """The name of what is remembered -> SHA-256: written after the result, and one of the folder's files."""
    return {rundir.run_state.name: sha256_of(rundir.run_state)}


def archive_other_results(plan: Plan, data_files: Mapping[str, str]) -> Path | None:
    """Where the results that stand in the folder were moved to, if they are of another configuration or of other data.

    What is written from now on says what is run next; beside it they would be taken for its results.
    """
    rundir = plan.rundir
    if not any(file.exists() for file in rundir.results):
        return None
    if _recorded(rundir) == (plan.identity, data_files):
        return None
    return rundir.archive((*rundir.results, rundir.run_config, rundir.packages))


def _recorded(rundir: RunDir) -> tuple[str, dict[str, str]] | None:
    """Identity and own data of the result that stands there; None where it does not say."""
    try:
        text = rundir.evaluation_config.read_text(encoding="utf-8")
        provenance = parse_own(text)["provenance"]
        files = provenance["dataset_files"].items()
        own = {name: digest for name, digest in files if name == DATA_PATH or name.startswith(f"{DATA_PATH}/")}
        return provenance["run_identity"], own
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None
