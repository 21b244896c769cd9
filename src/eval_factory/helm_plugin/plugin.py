"""Prepares a helm-run for eval-factory.

helm-run imports this module through its option --plugins. The import

- adds eval-factory's run specs and expanders to HELM;
- makes this process end with its parent process;
- sets up the network guard;
- applies the patches that the run needs (`patches/patch_registry.py`).
"""

from __future__ import annotations

import logging
import os
import sys
from pathlib import Path
from typing import Any

# These imports register run specs and expanders.
import eval_factory.demo.benchmark
import eval_factory.helm_plugin.choice_order_expander
import eval_factory.helm_plugin.choice_scenario
import eval_factory.helm_plugin.concordance_scenario
import eval_factory.helm_plugin.conversation_scenario
import eval_factory.helm_plugin.further_askings
import eval_factory.helm_plugin.rubric.rubric_scenario  # noqa: F401
from eval_factory.core import logs
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.this_process import end_with_parent
from eval_factory.helm_plugin import network_guard
from eval_factory.helm_plugin.patches.patch_registry import Stage, apply_patches


def prepare_helms_own_runner() -> None:
    """Make HELM's own runner import and patch the modules that a run uses before the run begins.

    HELM's own runner is used by the plain `helm-run` of the README. eval-factory's runner imports
    and patches the modules itself.
    """
    from helm.benchmark.runner import Runner

    from eval_factory.helm_plugin.runner import import_run_parts

    run_one = Runner.run_one

    def import_and_run_one(self: Any, run_spec: Any) -> None:
        import_run_parts(run_spec)
        run_one(self, run_spec)

    Runner.run_one = import_and_run_one


end_with_parent(HelmRunSettings.from_environment(os.environ).parent)
network_guard.read_settings_and_set_guard()
try:
    apply_patches(Stage.START)
except PrerequisiteError as error:  # a required patch cannot be applied
    print(logs.stop_line(str(error), os.environ), file=sys.stderr, flush=True)
    sys.exit(1)
if "--runner-class-name" not in sys.argv:
    prepare_helms_own_runner()
if not logging.getLogger("helm").isEnabledFor(logging.INFO):
    # HELM logs no progress. Some scenarios still print rows of the data to stdout, so discard
    # stdout until the process ends. Existing log handlers still write to the original stdout.
    sys.stdout = Path(os.devnull).open("w", encoding="utf-8", errors="replace")  # noqa: SIM115
