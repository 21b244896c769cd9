"""The runs that an output folder holds, of one model or several: which may stay, and what is missing in them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from types import MappingProxyType

from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.errors import HelmError
from eval_factory.core.rundir import RunDir
from eval_factory.helm import names, output
from eval_factory.helm.judge_output import says_nothing
from eval_factory.plan.run_plan import EndpointPlan
from eval_factory.scoring.request_states import has_failed, text_of
from eval_factory.workflows.resume import versions

IDENTITY_VERSION = 2
UNKNOWN = "unknown"


@dataclass(frozen=True)
class Settings:
    """Of the runs that a folder holds of one model."""

    identity: str
    max_eval_instances: int


@dataclass(frozen=True)
class Gaps:
    """Requests of one run that have no answer, or an answer that no judge judged."""

    run: str
    requested: int
    failed: int
    unjudged: int

    def __bool__(self) -> bool:
        return bool(self.failed or self.unjudged)

    @property
    def coverage(self) -> float:
        """The share of requests that were answered and judged; 0 where there was none."""
        return (self.requested - self.failed - self.unjudged) / self.requested if self.requested else 0.0

    def reason(self) -> str:
        unjudged = f", {self.unjudged} not judged" if self.unjudged else ""
        return f"{self.failed} of {self.requested} requests failed{unjudged}"


def gaps_of(folder: Path) -> Gaps:
    """Raises HelmError where the folder cannot be read."""
    run = output.read_run(folder)
    jury = run.jury
    requested = failed = unjudged = 0
    for state in run.request_states():
        requested += 1
        if has_failed(state):
            failed += 1
        elif (
            jury
            and not says_nothing(text_of(state))
            and not any(output.ratings_of(state.annotations, jury, judge) for judge in jury.judges)
        ):
            unjudged += 1
    return Gaps(run.run_spec.name, requested, failed, unjudged)


def identity_of(
    conf: str,
    endpoints: Iterable[EndpointPlan],
    *,
    max_eval_instances: int,
    num_train_trials: int,
    data: Mapping[str, str] = MappingProxyType({}),
) -> str:
    """A versioned hash of all that changes what a model's runs hold.

    Args:
        data: file of the user's own -> SHA-256.
    """
    values = {
        "endpoints": [
            [e.role, e.url, e.model_id, e.endpoint_type, e.top_p, e.max_length, vars(e.adapter)] for e in endpoints
        ],
        "max_eval_instances": max_eval_instances,
        "num_train_trials": num_train_trials,
        "conf": conf,
        "data": sorted(data.items()),
        "versions": versions(),
    }
    text = json.dumps(values, sort_keys=True, ensure_ascii=False)
    return f"leaderboard-v{IDENTITY_VERSION}-{hashlib.sha256(text.encode()).hexdigest()[:20]}"


def runs_folder(rundir: RunDir, suite: str) -> Path:
    return rundir.helm / names.RUNS_FOLDER / suite


def run_folders(rundir: RunDir, suite: str) -> list[Path]:
    """Folders of runs that came to their end."""
    return sorted(path.parent for path in runs_folder(rundir, suite).glob(f"*/{names.PER_INSTANCE_STATS_FILE}"))


def withheld_folder(rundir: RunDir, suite: str) -> Path:
    return rundir.helm / "withheld" / suite


def withhold(rundir: RunDir, suite: str, folder: Path) -> None:
    """Keep a run out of HELM's tables, where an answer that is missing counts as wrong, or as right."""
    target = withheld_folder(rundir, suite) / folder.name
    target.parent.mkdir(parents=True, exist_ok=True)
    folder.replace(target)


def forget_tables(rundir: RunDir, suite: str) -> None:
    """Tables of an earlier helm-summarize may count runs that are no more."""
    shutil.rmtree(runs_folder(rundir, suite) / "groups", ignore_errors=True)


def _state(rundir: RunDir) -> dict[str, dict[str, Settings]]:
    """Leaderboard -> model -> settings; nothing where it cannot be read: runs are then archived."""
    try:
        found = json.loads(rundir.leaderboard_state.read_text(encoding="utf-8"))
        return {suite: {name: Settings(**known) for name, known in models.items()} for suite, models in found.items()}
    except (OSError, ValueError, AttributeError, TypeError):
        return {}


def different_limits(rundir: RunDir, suite: str) -> list[int]:
    """The limits on instances of the models in the tables, where they are not the same."""
    in_tables = {output.model_of(folder) for folder in run_folders(rundir, suite)}
    known = _state(rundir).get(suite, {})
    limits = {settings.max_eval_instances for model, settings in known.items() if model in in_tables}
    return sorted(limits) if len(limits) > 1 else []


def archive_other_settings(rundir: RunDir, suite: str, model: str, settings: Settings) -> tuple[int, Path]:
    """Move a model's runs of other settings out of the tables, where nothing deletes them.

    Args:
        model: HELM's name of it. Runs of other models stay where they are.

    Returns how many were moved, and where to.
    """
    state = _state(rundir)
    before = state.get(suite, {}).get(model)
    archive = rundir.helm / "set_aside" / suite / (before.identity if before else UNKNOWN)
    moved = 0
    if before != settings:
        for folder in _of_model(run_folders(rundir, suite), model):
            shutil.rmtree(archive / folder.name, ignore_errors=True)
            archive.mkdir(parents=True, exist_ok=True)
            folder.replace(archive / folder.name)
            moved += 1
    state.setdefault(suite, {})[model] = settings
    document = {suite: {name: asdict(known) for name, known in models.items()} for suite, models in state.items()}
    write_atomic(rundir.leaderboard_state, json.dumps(document, indent=2))
    return moved, archive


def forget_what_has_to_run_again(rundir: RunDir, suite: str, model: str) -> int:
    """Delete a model's runs with gaps, so that helm-run makes them anew; answers are kept.

    Returns how many finished runs stay.
    """
    for folder in _of_model(withheld_folder(rundir, suite).glob("*"), model):
        shutil.rmtree(folder)
    kept = 0
    for folder in _of_model(run_folders(rundir, suite), model):
        try:
            gaps = gaps_of(folder)
            whole = gaps.requested > 0 and not gaps
        except HelmError:
            whole = False
        if whole:
            kept += 1
        else:
            shutil.rmtree(folder)
    return kept


def _of_model(folders: Iterable[Path], model: str) -> list[Path]:
    return [folder for folder in folders if output.model_of(folder) == model]
