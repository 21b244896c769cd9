"""The folder of a suite: every file name in it. The cells' folders in it are ordinary output folders (`RunDir`)."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from eval_factory.core.rundir import RunDir

RESERVED_NAMES = frozenset({".suite"})
"""No target may be called so; neither may one begin with `suite_`."""
OF_ONE_RUN = ".slurm"
"""In the output folder of a run that is done by Slurm: a suite with this run as its one cell."""


@dataclass(frozen=True)
class SuiteDir:
    """Paths under a suite's `output_dir`. Creating it touches nothing on disk."""

    root: Path

    @property
    def config(self) -> Path:
        """The suite as it is run: `extends` and presets resolved."""
        return self.root / "suite_config.yml"

    @property
    def results_yaml(self) -> Path:
        return self.root / "suite_results.yaml"

    @property
    def results_csv(self) -> Path:
        return self.root / "suite_results.csv"

    @property
    def results_md(self) -> Path:
        return self.root / "suite_results.md"

    @property
    def results_html(self) -> Path:
        return self.root / "suite_results.html"

    @property
    def usage_yaml(self) -> Path:
        """What the cells took: times, requests, attempts. No two runs of a suite have the same."""
        return self.root / "suite_usage.yaml"

    @property
    def leaderboard(self) -> Path:
        """Of a leaderboard: every run of every model, and what came of it."""
        return self.root / "leaderboard.json"

    @property
    def state(self) -> Path:
        """What is no result: the lock, the events, the log, the run configs of the cells."""
        return self.root / ".suite"

    @property
    def lock(self) -> Path:
        return self.state / "lock"

    @property
    def events(self) -> Path:
        """What happened to the cells, a JSON object a line; of several invocations one after another."""
        return self.state / "events.jsonl"

    @property
    def log(self) -> Path:
        return self.state / "suite.log"

    @property
    def socket(self) -> Path:
        """Where the socket of the limits is, while the suite runs."""
        return self.state / "socket.json"

    def cell(self, target: str, evaluation: str) -> Path:
        """A cell's output folder."""
        return self.root / target / evaluation

    def cell_config(self, target: str, evaluation: str) -> Path:
        """The run config of a cell, for `run_eval`."""
        return self.state / "cells" / target / f"{evaluation}.yml"

    def server_log(self, target: str) -> Path:
        """What the server of a target said, of all its starts."""
        return self.state / "servers" / f"{target}.log"

    @property
    def server_logs(self) -> tuple[Path, ...]:
        """Of all servers that were started here, and by the last job of each target on Slurm."""
        last = {start.parent: start for start in sorted(self.state.glob("slurm/served/*/*"), key=os.path.getmtime)}
        folders = [self.state, *(start / self.state.name for start in last.values())]
        return tuple(log for folder in folders for log in sorted(folder.glob("servers/*.log")))

    def cell_log(self, target: str, evaluation: str) -> Path:
        """What `run_eval` would have shown of the cell, of all its attempts."""
        return self.state / "cells" / target / f"{evaluation}.log"

    @property
    def table(self) -> tuple[Path, ...]:
        """All that says what came out."""
        return (self.results_yaml, self.results_csv, self.results_md, self.results_html, self.usage_yaml)

    @property
    def own(self) -> tuple[Path, ...]:
        """Everything that is read of the suite and of the runs in it."""
        folders = map(RunDir, (self.named, *self.named.glob("*/*")))
        runs = [run for run in folders if run.marker.exists() or run.evaluation_config.exists()]
        return (self.config, *self.table, self.leaderboard, self.state, *(path for run in runs for path in run.own))

    @property
    def named(self) -> Path:
        """The folder by which its user knows it."""
        return self.root


class RunSuiteDir(SuiteDir):
    """A suite of one run, in that run's output folder, which is the folder of its one cell."""

    def cell(self, target: str, evaluation: str) -> Path:  # noqa: ARG002 - there is but one
        return self.root.parent

    @property
    def run_config(self) -> Path:
        """The run, with where it is done, for `run_eval`."""
        return self.root / "run_config.yml"

    @property
    def named(self) -> Path:
        return self.root.parent


def suite_dir(root: Path) -> SuiteDir:
    """Of a suite, or of a run that is one."""
    return RunSuiteDir(root) if root.name == OF_ONE_RUN else SuiteDir(root)
