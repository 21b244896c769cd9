"""What helm-run reads, written into the output folder."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import PRIVATE
from eval_factory.core.safe_files import write_atomic
from eval_factory.helm import names
from eval_factory.helm.model_files import model_files
from eval_factory.plan.run_plan import Plan
from eval_factory.plan.same_servers import KEPT_BY, kept_by
from eval_factory.report.documents import run_config, to_yaml
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.old_shards import take_in
from eval_factory.workflows.output_folder import ready_cache, remove_unfinished, start_over
from eval_factory.workflows.resume import archive_other_results


def prepare(
    context: RunContext,
    plan: Plan,
    argv: Sequence[str],
    settings: HelmRunSettings,
    data_files: Mapping[str, str],
    *,
    fresh: bool,
    debug: bool,
) -> None:
    """Write what helm-run reads; make sure that cache.db and the results that stand here are this run's.

    Args:
        data_files: name of a file of the user's own -> SHA-256.
    """
    rundir, log = context.rundir, context.log
    remove_unfinished(rundir, log)
    if fresh:
        start_over(rundir)
        log.info("--fresh: the answers kept so far were deleted")
    archived = archive_other_results(plan, data_files)
    if archived is not None:
        context.say(
            f"the results in {rundir.root} are of another configuration or of other data; moved to {archived.name}"
        )
    ready_cache(rundir, log)
    take_in(rundir, log)
    for name, text in model_files(plan, debug=debug).items():
        write_atomic(rundir.model_configs / name, text, mode=PRIVATE)
    write_atomic(rundir.model_configs / names.SETTINGS, settings.file_text(), mode=PRIVATE)
    info = plan.evaluation.framework.framework
    config: Any = context.redactor.tree(plan.evaluation.as_dict())
    same = context.redactor.tree(kept_by(plan.endpoints, plan.servers_before))
    document = run_config(
        config, context.redactor.text(shlex.join(argv)), info.name, info.pkg_name, {KEPT_BY: same} if same else {}
    )
    write_atomic(rundir.run_config, to_yaml(document))
    log.info("run %s: %s", plan.identity, shlex.join(argv))
