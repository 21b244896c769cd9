"""A suite: evaluations x targets x variants of parameters, each of them an ordinary run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eval_factory.config.evaluation import Request
from eval_factory.core.budget import Budget
from eval_factory.core.suite_dir import SuiteDir


@dataclass(frozen=True)
class Cell:
    """One evaluation of one target."""

    target: str
    evaluation: str
    document: Mapping[str, Any]
    """The run config: `config` and `target`, with an absolute `output_dir`."""
    folder: Path

    @property
    def name(self) -> str:
        return f"{self.target}/{self.evaluation}"

    @property
    def request(self) -> Request:
        return Request(document=self.document)


@dataclass(frozen=True)
class Suite:
    """All cells, in the order in which they are run: evaluation by evaluation, target by target."""

    folder: SuiteDir
    cells: tuple[Cell, ...]
    budget: Budget
    """Of all cells together."""
    max_processes: int
    """Cells that run at once: bounds memory, for each is a helm-run."""
    max_attempts: int
    """How often a cell is begun in one invocation where another attempt can help."""
    max_outage_s: float
    """How long the cells of an endpoint that is gone are kept waiting."""
    limit_groups: Mapping[str, str]
    """Target -> name of the limits that it shares; targets with the same URL have the same name."""
    document: Mapping[str, Any]
    """The suite as it is run, `extends` and presets resolved: what suite_config.yml holds."""
