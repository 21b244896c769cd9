"""One look at the data for all cells of a suite that make the same requests, whoever is asked them."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.prompt_sizes import PromptSizes, own_scenarios, prompt_sizes


class SharedSizes:
    """Looks once for each configuration beside target and folder: HELM's requests depend on nothing else."""

    def __init__(self, look: Callable[[Plan, Mapping[str, str]], PromptSizes] = prompt_sizes) -> None:
        self._look = look
        self._known: dict[str, PromptSizes] = {}

    def __call__(self, plan: Plan, env: Mapping[str, str]) -> PromptSizes:
        """As `prompt_sizes`. Where data were not found, a cell whose own folder has some is looked at itself."""
        about = plan.evaluation.run.config.model_dump_json(exclude={"output_dir"})
        known = self._known.get(about)
        if known is None or (known.requests is None and own_scenarios(plan).is_dir()):
            known = self._known[about] = self._look(plan, env)
        return known
