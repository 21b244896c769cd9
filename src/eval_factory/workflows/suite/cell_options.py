"""What `evaluate` is asked for a cell."""

from __future__ import annotations

from eval_factory.workflows.options import Options
from eval_factory.workflows.suite.cell_spec import CellSpec


def options_of(spec: CellSpec) -> Options:
    return Options(
        fresh=spec.fresh,
        debug=spec.debug,
        probed=None if spec.probed is None else frozenset(spec.probed),
        limits=spec.limits,
    )
