"""The runs that an output folder holds: which may stay for the next helm-run, and what is missing in them."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from eval_factory.collect import has_failed
from eval_factory.errors import HelmError
from eval_factory.helm import names, output
from eval_factory.plan import EndpointPlan
from eval_factory.resume import versions
from eval_factory.rundir import RunDir, write_atomic

IDENTITY_VERSION = 1


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

    def text(self) -> str:
        unjudged = f", {self.unjudged} not judged" if self.unjudged else ""
        return f"{self.run}: {self.failed} of {self.requested} requests failed{unjudged}"


def gaps_of(folder: Path) -> Gaps:
    """Raises HelmError where the folder cannot be read."""
    run = output.read_run(folder)
    jury = run.jury
    requested = failed = unjudged = 0
    for state in run.request_states():
        requested += 1
        if has_failed(state):
            failed += 1
        elif jury and not any(output.ratings_of(state.annotations, jury, judge) for judge in jury.judges):
            unjudged += 1
    return Gaps(run.run_spec.name, requested, failed, unjudged)


def identity_of(
    conf: str, endpoints: Iterable[EndpointPlan], *, max_eval_instances: int, num_train_trials: int
) -> str:
    """A versioned hash of all that changes what runs hold; not of which runs there are."""
    values = {
        "endpoints": [[e.role, e.url, e.model_id, e.type, e.top_p, dict(e.adapter)] for e in endpoints],
        "max_eval_instances": max_eval_instances,
        "num_train_trials": num_train_trials,
        "conf": conf,
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


def forget_what_has_to_run_again(rundir: RunDir, suite: str, identity: str) -> int:
    """Delete runs of another identity and runs with gaps, so that helm-run makes them anew; answers are kept.

    Returns how many finished runs stay.
    """
    try:
        same = json.loads(rundir.run_state.read_text(encoding="utf-8")).get("identity") == identity
    except (OSError, ValueError, AttributeError):
        same = False
    if not same:
        shutil.rmtree(runs_folder(rundir, suite), ignore_errors=True)
    shutil.rmtree(withheld_folder(rundir, suite), ignore_errors=True)
    kept = 0
    for folder in run_folders(rundir, suite):
        try:
            whole = not gaps_of(folder)
        except HelmError:
            whole = False
        if whole:
            kept += 1
        else:
            shutil.rmtree(folder)
    write_atomic(rundir.run_state, json.dumps({"identity": identity}))
    return kept
