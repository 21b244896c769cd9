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
from eval_factory.workflows.estimate import estimate
from eval_factory.workflows.estimate_records import Estimate, Total, estimate_text, sum_or_none
from eval_factory.workflows.measured_prompts import (
    PromptSizes,
    prompt_sizes,
    scenarios_of_earlier_runs,
)
from eval_factory.workflows.suite.planned_cells import (
    checked_cells,
    missing_prerequisites,
    planned_cells_of,
    refuse_wrong_configs,
)


class SharedSizes:
    """Caches the sizes of prompts by the configuration of the evaluation.

    HELM's requests depend neither on the target nor on the output folder. Cells of one evaluation
    therefore share the sizes.
    """

    def __init__(
        self, measure: Callable[[Plan, Mapping[str, str]], PromptSizes] = prompt_sizes
    ) -> None:
        self._measure = measure
        self._sizes_of: dict[str, PromptSizes] = {}

    def __call__(self, plan: Plan, env: Mapping[str, str]) -> PromptSizes:
        """Return the sizes of a run's prompts, as `prompt_sizes` does.

        If no data were found for the configuration so far, the measurement is repeated for each
        cell that has data in its own output folder.
        """
        configuration = plan.evaluation.run.config.model_dump_json(exclude={"output_dir"})
        sizes = self._sizes_of.get(configuration)
        if sizes is None or (sizes.requests is None and scenarios_of_earlier_runs(plan).is_dir()):
            sizes = self._measure(plan, env)
            self._sizes_of[configuration] = sizes
        return sizes


@dataclass(frozen=True)
class CellEstimate:
    """The estimate of one cell."""

    name: str
    limit_group: str  # the name of the limit group of the cell's target
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

        The hours of cells that share limits are added. Cells with different limits run at the same
        time.
        """
        cell_hours: dict[str, list[float | None]] = defaultdict(list)
        for cell in self.cells:
            cell_hours[cell.limit_group].append(cell.estimate.hours)
        longest = 0.0
        for hours_of_cells in cell_hours.values():
            group_hours = sum_or_none(hours_of_cells)
            if group_hours is None:
                return None
            longest = max(longest, group_hours)
        return longest

    def as_dict(self) -> dict[str, Any]:
        """Return the estimate as a document for JSON output."""
        return {
            **self.sums_record(),
            "beyond": self.exceeded_limits,
            # `endpoint` has the name of the limit group: its targets usually ask one endpoint
            "cells": [
                {"cell": cell.name, "endpoint": cell.limit_group, **cell.estimate.as_dict()}
                for cell in self.cells
            ],
        }

    def to_text(self) -> str:
        """Return the estimate as text: a line for each cell, unknown figures, and the total."""
        lines = [f"{cell.name}: {estimate_text(cell.estimate)}" for cell in self.cells]
        # Dict from each unknown figure of a model to the reason. If several cells have the same
        # unknown figure, the first cell's reason is shown.
        reasons: dict[str, str] = {}
        for cell in self.cells:
            for role in cell.estimate.roles:
                for figure, source in role.sources.items():
                    # the source of an unknown figure says why the figure is unknown
                    if source.startswith("unknown"):
                        # a suite states prices under another key than a run config
                        reason = source.replace("config.params.extra.prices", "suite.prices")
                        reasons.setdefault(f"{figure} of {role.model_id}", reason)
        lines += [f"  {figure}: {reason}" for figure, reason in reasons.items()]
        lines.append(f"total: {estimate_text(self)}")
        lines += self.exceeded_limit_lines()
        lines.append(
            "  the figures are for a suite without earlier results: "
            "finished and cached requests are not sent again, which reduces the figures"
        )
        lines.append(
            "  loading data and scoring take time too; "
            "requests that are tried again are not counted"
        )
        return "\n".join(lines)


def estimate_suite(
    suite: Suite, env: Mapping[str, str], say: Callable[[str], object]
) -> SuiteEstimate:
    """Estimate the suite cell by cell.

    If the typical sizes of a task's prompts are not known, its requests are prepared and measured.
    No request is sent, no data is downloaded, and no key is needed. `say` gets progress messages
    and warnings about missing prerequisites.

    Raises:
        ConfigError: the configuration of a cell is wrong.
    """
    cells = checked_cells(suite, env)
    refuse_wrong_configs(cells)
    for text in missing_prerequisites(cells):
        say(f"warning: a run would stop: {text}")
    estimates = []
    shared_sizes = SharedSizes()
    for planned in planned_cells_of(suite, cells):
        say(f"looking at {planned.cell.name} ...")
        # `quick`: no requests are prepared for a task whose typical sizes are known
        estimated = estimate(planned.plan.evaluation, env, measure=shared_sizes, quick=True)
        estimates.append(CellEstimate(planned.cell.name, planned.group, estimated))
    return SuiteEstimate(tuple(estimates), suite.budget)
