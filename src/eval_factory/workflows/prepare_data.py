"""What a run reads: looked for before the run, recorded, and put where helm-run finds it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.data.bundle import refuse_inside
from eval_factory.data.fingerprint import look_at_own_data
from eval_factory.data.network import offline, urls_of
from eval_factory.data.pins import pins_of
from eval_factory.data.place import BundleInUse, check_data, place, takes_all_files, with_bundle
from eval_factory.plan.run_plan import Plan
from eval_factory.workflows.context import RunContext
from eval_factory.workflows.resume import DataRead


def find_bundle(plan: Plan, env: Mapping[str, str]) -> BundleInUse | None:
    """The data bundle of the run, looked through; None where none is used.

    Raises:
        ConfigError: the output folder is in it.
        PrerequisiteError: what the run will read is not there.
    """
    extra = plan.evaluation.run.config.params.extra
    if extra.data_dir is None and not extra.offline:
        return None
    found = check_data(plan, env)
    if found is not None:
        refuse_inside(found.root, plan.rundir.root, "an output folder")
    return found


def data_read(context: RunContext, plan: Plan, bundle: BundleInUse | None) -> DataRead:
    """By what the data of this run are known again; of the bundle as it is now; it may change later."""
    own = look_at_own_data(plan, context.say)
    extra = plan.evaluation.run.config.params.extra
    if extra.data_dir is None and not extra.offline:
        return DataRead(own=own)
    return DataRead(bundle.record() if bundle else None, own, takes_all_files(plan, context.env))


def settings_of(plan: Plan, bundle: BundleInUse | None, env: Mapping[str, str]) -> HelmRunSettings:
    """What helm-run is told of its data: where they are, at which revision, what may be contacted."""
    settings = HelmRunSettings(pins=pins_of(plan))
    is_offline = plan.evaluation.run.config.params.extra.offline
    if bundle is not None:
        settings = with_bundle(settings, bundle, plan)
    if is_offline:
        settings = offline(settings, plan, env)
    if bundle is not None or is_offline:
        settings = replace(settings, all_files=takes_all_files(plan, env))
    return settings


def place_data(context: RunContext, plan: Plan, bundle: BundleInUse | None) -> None:
    """Put a bundle's files where helm-run looks.

    Raises:
        PrerequisiteError: the bundle was changed since it was looked through.
    """
    if bundle is not None:
        place(bundle, plan)
        context.log.info("data bundle %s (manifest %s)", bundle.root, bundle.sha256)
    if plan.evaluation.run.config.params.extra.offline:
        context.log.info("offline: only %s may be contacted", ", ".join(urls_of(plan, context.env)) or "nothing")
