"""Estimates the requests, tokens, cost and time of a suite, cell by cell.

This is a separate module, so that a dry run of a suite does not have to import the estimation code.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval_factory.config.suite import Suite
from eval_factory.core.budget import Budget
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.estimate import (
    Estimate,
    PromptSizes,
    Total,
    estimate,
    figures_in_words,
    own_scenarios,
    prompt_sizes,
    sum_or_none,
)
from eval_factory.workflows.suite.planned_cells import (
    checked_cells,
    missing_prerequisites,
    planned_of,
    refuse_wrong,
)


class SharedSizes:
    """Caches the sizes of prompts by the configuration of the evaluation.

    HELM's requests depend neither on the target nor on the output folder. Cells of one evaluation
    therefore share the sizes.
    """

    def __init__(
        self, look: Callable[[Plan, Mapping[str, str]], PromptSizes] = prompt_sizes
    ) -> None:
        self._look = look
        self._known: dict[str, PromptSizes] = {}

    def __call__(self, plan: Plan, env: Mapping[str, str]) -> PromptSizes:
        """Return the sizes of a run's prompts, as `prompt_sizes` does.

        If no data were found for the configuration so far, the data in the cell's own output folder
        are tried.
        """
        configuration = plan.evaluation.run.config.model_dump_json(exclude={"output_dir"})
        sizes = self._known.get(configuration)
        if sizes is None or (sizes.requests is None and own_scenarios(plan).is_dir()):
            sizes = self._known[configuration] = self._look(plan, env)
        return sizes


@dataclass(frozen=True)
class CellEstimate:
    """The estimate of one cell."""

    name: str
    group: str  # the name of the limits that apply to the endpoint of the cell's model
    estimate: Estimate


@dataclass(frozen=True)
class SuiteEstimate(Total):
    """The estimate of all cells of a suite that starts without any results or cached answers."""

    cells: tuple[CellEstimate, ...]
    budget: Budget

    @property
    def parts(self) -> Sequence[Estimate]:
        """The estimates of the cells."""
        return [cell.estimate for cell in self.cells]

    @property
    def hours(self) -> float | None:
        """The estimated duration in hours; None if the duration of a cell is unknown.

        Cells that share the limits of an endpoint add up. Groups of cells with different endpoints
        run at the same time.
        """
        by_group: dict[str, list[float | None]] = defaultdict(list)
        for cell in self.cells:
            by_group[cell.group].append(cell.estimate.hours)
        sums = [sum_or_none(hours) for hours in by_group.values()]
        known_hours = []
        for hours in sums:
            if hours is not None:
                known_hours.append(hours)
        if len(known_hours) != len(sums):
            return None
        return max(known_hours, default=0.0)

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate as a document for JSON output."""
        return {
            **self.figures(),
            "beyond": self.beyond,
            "cells": [
                {"cell": cell.name, "endpoint": cell.group, **cell.estimate.as_dict()}
                for cell in self.cells
            ],
        }

    def to_text(self) -> str:
        """Return the estimate as text: a line for each cell, unknown figures, and the total."""
        lines = [f"{cell.name}: {figures_in_words(cell.estimate)}" for cell in self.cells]
        # the reason of each unknown figure, by the figure and its model; equal reasons of several
        # cells appear once
        unknown: dict[str, str] = {}
        for cell in self.cells:
            for role in cell.estimate.roles:
                for name, source in role.sources.items():
                    if source.startswith("unknown"):
                        why = source.replace("config.params.extra.prices", "suite.prices")
                        unknown.setdefault(f"{name} of {role.model_id}", why)
        lines += [f"  {name}: {source}" for name, source in unknown.items()]
        lines.append(f"total: {figures_in_words(self)}")
        lines += self.lines_beyond()
        return "\n".join(
            [
                *lines,
                (
                    "  of a suite without earlier results: "
                    "finished and cached requests are not sent again"
                ),
                (
                    "  loading data and scoring take time too; "
                    "requests that are tried again are not counted"
                ),
            ]
        )


def estimate_suite(
    suite: Suite, env: Mapping[str, str], say: Callable[[str], object]
) -> SuiteEstimate:
    """Estimate the suite cell by cell, with typical sizes of prompts if these are known.

    No request is sent, no data is downloaded, and no key is needed. `say` gets progress messages
    and warnings about missing prerequisites.

    Raises:
        ConfigError: the configuration of a cell is wrong.
    """
    cells = checked_cells(suite, env)
    refuse_wrong(cells)
    for text in missing_prerequisites(cells):
        say(f"warning: a run would stop: {text}")
    estimates = []
    look = SharedSizes()
    for planned in planned_of(suite, cells):
        say(f"looking at {planned.cell.name} ...")
        estimated = estimate(planned.plan.evaluation, env, measure=look, quick=True)
        estimates.append(CellEstimate(planned.cell.name, planned.group, estimated))
    return SuiteEstimate(tuple(estimates), suite.budget)
