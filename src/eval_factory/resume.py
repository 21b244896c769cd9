"""What an output folder remembers of its last run, so that a finished one is not run again."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from eval_factory import __version__
from eval_factory.plan import Plan
from eval_factory.rundir import RunDir, write_atomic


@dataclass(frozen=True)
class RunState:
    """A run that came to its end."""

    identity: str
    versions: Mapping[str, str]
    data_path: str | None
    run_id: str
    wall_s: float
    runs: Sequence[str]
    """Run folders, relative to the output folder."""
    complete: bool
    data_bundle: str | None = None
    """The manifest's hash of the data bundle that was read."""


def versions() -> dict[str, str]:
    """A result of other versions is not this one's."""
    return {"eval_factory": __version__, "crfm-helm": metadata.version("crfm-helm")}


def read_state(rundir: RunDir) -> RunState | None:
    """None where nothing finished, or what is written cannot be read."""
    try:
        return RunState(**json.loads(rundir.run_state.read_text(encoding="utf-8")))
    except (OSError, ValueError, TypeError):
        return None


def finished_run(plan: Plan, state: RunState | None, data_bundle: str | None = None) -> list[Path] | None:
    """The run folders of a complete run of the same identity and data, still there with their files."""
    if state is None or not state.complete or state.identity != plan.identity or state.versions != versions():
        return None
    if state.data_bundle != data_bundle:
        return None
    folders = [plan.rundir.root / name for name in state.runs]
    return folders if folders and all(any(folder.glob("*.json")) for folder in folders) else None


def remember(
    plan: Plan, runs: Sequence[Path], *, run_id: str, wall_s: float, complete: bool, data_bundle: str | None = None
) -> None:
    """Write down that a run ended."""
    state = RunState(
        identity=plan.identity,
        versions=versions(),
        data_path=plan.data_path,
        run_id=run_id,
        wall_s=wall_s,
        runs=[folder.relative_to(plan.rundir.root).as_posix() for folder in runs],
        complete=complete,
        data_bundle=data_bundle,
    )
    write_atomic(plan.rundir.run_state, json.dumps(asdict(state), indent=2))
