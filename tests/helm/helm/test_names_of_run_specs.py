"""The names that we know against those of the installed HELM."""

from __future__ import annotations

import inspect

from eval_factory.helm import names
from eval_factory.tasks.message_files import CONVERSATION_RUN_SPEC


def test_the_run_specs_with_a_jury_are_helms() -> None:
    from helm.benchmark import run_spec

    run_spec.discover_run_spec_functions()
    specs = run_spec._REGISTERED_RUN_SPEC_FUNCTIONS
    helms = {name: function for name, function in specs.items() if function.__module__.startswith("helm.")}
    taking = {name for name, function in helms.items() if "jury_config_path" in inspect.signature(function).parameters}
    assert taking | {"medhelm_configurable_benchmark", CONVERSATION_RUN_SPEC} == names.JURY_RUN_SPECS
