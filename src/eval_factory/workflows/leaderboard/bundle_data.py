"""What a leaderboard's entries read of a data bundle, and the variables that tell helm-run where data are."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import replace

from eval_factory.config.evaluation import Request, build_evaluation
from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import PRIVATE
from eval_factory.data.network import offline, urls_of
from eval_factory.data.pins import pins_of
from eval_factory.data.place import BundleInUse, check_data, place, with_bundle
from eval_factory.helm import names
from eval_factory.plan.run_plan import Plan, make_plan
from eval_factory.tasks.run_entry import prefix_of
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.leaderboard.conf_entries import DEPLOYMENT, MODEL, Entry


def place_entries_data(context: RunContext, plan: Plan, entries: Sequence[Entry]) -> HelmRunSettings:
    """Put what the entries read of the bundle where helm-run looks. Returns what helm-run is told of it."""
    extra = plan.evaluation.run.config.params.extra
    of_entries = _plans(plan, entries)
    settings = HelmRunSettings(pins=pins_of(*of_entries))
    if extra.data_dir is not None:
        in_use = _bundles(of_entries, context)
        needs = tuple(dict.fromkeys(need for bundle, _ in in_use for need in bundle.needs))
        for bundle, of_entry in in_use:
            place(replace(bundle, needs=needs), of_entry)  # of all entries: some share a folder
            settings = with_bundle(settings, bundle, of_entry)
        context.log.info("data bundle %s: %d entries", extra.data_dir, len(in_use))
    if extra.offline:
        settings = offline(settings, plan, context.env)
        context.log.info("offline: only %s may be contacted", ", ".join(urls_of(plan, context.env)) or "nothing")
    write_atomic(plan.rundir.model_configs / names.SETTINGS, settings.file_text(), mode=PRIVATE)
    return settings


def _plans(plan: Plan, entries: Sequence[Entry]) -> list[Plan]:
    found = []
    for entry in entries:
        with contextlib.suppress(ConfigError):  # HELM says why, when its turn comes
            found.append(_plan_of(plan, entry))
    return found


def _bundles(plans: Sequence[Plan], context: RunContext) -> list[tuple[BundleInUse, Plan]]:
    """Of each whose data the bundle holds; of the others is said what is missing."""
    found = []
    for plan in plans:
        try:
            bundle = check_data(plan, context.env)
        except ConfigError:
            continue
        except PrerequisiteError as error:
            context.show(f"warning: {str(error).replace('; nothing was started', '')}")
            continue
        if bundle is not None:
            found.append((bundle, plan))
    return found


def _plan_of(plan: Plan, entry: Entry) -> Plan:
    """The entry as a run of its own."""
    framework, target = plan.evaluation.framework, plan.evaluation.run.target.api_endpoint
    flags = {
        "config.type": prefix_of(framework) + entry.without(MODEL, DEPLOYMENT).description,
        "config.output_dir": str(plan.rundir.root),
        "config.params.extra.data_dir": plan.evaluation.run.config.params.extra.data_dir,
        "target.api_endpoint.url": target.url,
        "target.api_endpoint.model_id": target.model_id,
    }
    return make_plan(build_evaluation(Request(flags=flags), framework, {}))
