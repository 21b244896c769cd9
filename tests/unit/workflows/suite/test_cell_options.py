from __future__ import annotations

from eval_factory.core.helm_run_settings import SharedLimitsSettings
from eval_factory.executors.runs import RunSpec
from eval_factory.workflows.options import Options
from eval_factory.workflows.suite.cell_process import options_of

LIMITS = SharedLimitsSettings("/socket", {"model": "group"})


def test_the_run_is_asked_what_the_spec_says() -> None:
    assert options_of(RunSpec("n", "a", "b", "c")) == Options()
    spec = RunSpec("n", "a", "b", "c", fresh=True, debug=True, probed=("model", "gpt"), limits=LIMITS)
    asked = Options(fresh=True, debug=True, probed=frozenset({"gpt", "model"}), limits=LIMITS)
    assert options_of(spec) == asked
