"""The names that we know against those of the installed HELM."""

from __future__ import annotations

import inspect

from eval_factory.helm import names
from eval_factory.tasks.rubric.rubric_benchmark import RUBRIC_RUN_SPEC


def test_the_run_specs_with_a_jury_are_helms() -> None:
    from helm.benchmark import run_spec

    run_spec.discover_run_spec_functions()
    specs = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS
    taking = {name for name, function in specs.items() if "jury_config_path" in inspect.signature(function).parameters}
    of_the_plugin = {RUBRIC_RUN_SPEC, "healthbench"}  # where another test has loaded it
    assert (taking | {"medhelm_configurable_benchmark"}) - of_the_plugin == names.JURY_RUN_SPECS
