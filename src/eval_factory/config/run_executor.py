"""Where one run happens: `executor` and `slurm` at the top of a run config. No part of what is evaluated.

So they are taken out of the user's layers before the rest is merged: neither the identity nor a result knows them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from eval_factory.config.merge import Layer, with_defaults
from eval_factory.config.model import ExecutorName
from eval_factory.config.wrong_values import problems_with, shown_value
from eval_factory.tasks.framework import Framework

EXECUTOR, SLURM = "executor", "slurm"
KEYS = (EXECUTOR, SLURM)
SERVED = ("serve", "target.serve", "target.api_endpoint.serve")
"""Where somebody may look for a target's `serve`, which only a suite has."""
OF_A_SUITE = (
    ": run_eval starts no server; write a suite of one target with `serve` (docs/serve.md), and start run_suite"
)


@dataclass(frozen=True)
class RunExecutor:
    name: str = "local"
    slurm: Mapping[str, Any] = field(default_factory=dict)
    """Every key of `SlurmSection`."""

    @property
    def is_slurm(self) -> bool:
        return self.name == SLURM


def take_executor(layers: Sequence[Layer], framework: Framework, problems: list[str]) -> RunExecutor:
    """Remove the keys from the layers. Of `slurm` the strongest layer with a key counts; a null is the default."""
    defaults, known = framework.defaults.suite, get_args(ExecutorName)
    name, sections = defaults[EXECUTOR], []
    for source, tree in layers:
        chosen, section = tree.pop(EXECUTOR, None), tree.pop(SLURM, None)
        found = []
        if chosen is not None and chosen not in known:
            found.append(f"{EXECUTOR}: must be {' or '.join(map(repr, known))}, got {shown_value(chosen)}")
        if section is not None:
            from eval_factory.config.suite_model import SlurmSection  # takes long to import, and few have one

            found += problems_with(section, SLURM, SlurmSection)
        problems += [f"{source.value}: {problem}" for problem in found]
        if not found:
            name = name if chosen is None else chosen
            sections.append(section)
    return RunExecutor(name, with_defaults(defaults[SLURM], *sections))
