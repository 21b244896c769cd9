"""Prepares the data, the settings and the files that helm-run reads in the output folder."""

from __future__ import annotations

import logging
import os
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from eval_factory.core.helm_run_settings import ALL_FILES_VARIABLE, HelmRunSettings, SampleSettings
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.rundir import PRIVATE, RunDir
from eval_factory.core.safe_files import write_atomic
from eval_factory.data import run_data
from eval_factory.data.bundle import refuse_inside_bundle
from eval_factory.data.offline_hosts import offline_settings, urls_to_contact
from eval_factory.data.own_data_hashes import hash_own_data
from eval_factory.data.pins import pins_of
from eval_factory.endpoint import response_cache
from eval_factory.helm import names
from eval_factory.helm.command import model_files
from eval_factory.helm.picture_metrics import class_names_of, uncomputed_metrics, weights_folder
from eval_factory.plan.role_servers import SERVERS_SECTION, servers_section
from eval_factory.plan.run_plan import SENDS_METADATA_KEY, Plan
from eval_factory.report.documents import run_config_document
from eval_factory.workflows.context import RunContext, start_over
from eval_factory.workflows.resume import DataRead, archive_other_results


def prepare_output_folder(
    context: RunContext,
    plan: Plan,
    argv: Sequence[str],
    settings: HelmRunSettings,
    data_files: Mapping[str, str],
    *,
    fresh: bool,
    debug: bool,
) -> None:
    """Write the files that helm-run reads, and archive results of other runs.

    Args:
        context: The context of the run.
        plan: The plan of the run.
        argv: The command line of helm-run.
        settings: The settings of helm-run.
        data_files: The SHA-256 of each of the user's own files, by name.
        fresh: True to delete earlier answers and results first.
        debug: True to let HELM log more.
    """
    rundir = context.rundir
    log = context.log
    remove_unfinished(rundir, log)
    if fresh:
        start_over(rundir)
        log.info("--fresh: the stored answers were deleted")
    archived = archive_other_results(plan, data_files)
    if archived is not None:
        context.say(
            f"the results in {rundir.root} belong to another configuration or to other data; "
            f"moved to {archived.name}"
        )
    create_or_check_cache(rundir, log)
    for name, text in model_files(plan, debug=debug).items():
        write_atomic(rundir.model_configs / name, text, mode=PRIVATE)
    _write_passport(plan)
    write_atomic(rundir.model_configs / names.SETTINGS_FILE, settings.file_text(), mode=PRIVATE)
    write_run_config(context, plan, argv)
    log.info("run %s: %s", plan.identity, shlex.join(argv))


def _write_passport(plan: Plan) -> None:
    """Copy the judge's passport that the configuration names, if any, to the output folder.

    A passport is a file that says how often the judge agrees with physicians.
    """
    if plan.evaluation.extra.judge_passport is None:
        return
    # imported late: few runs have a passport
    from eval_factory.scoring.judge_passports import PASSPORT, passport_text

    text = passport_text(plan)
    if text is not None:
        write_atomic(plan.rundir.model_configs / PASSPORT, text, mode=PRIVATE)


def write_run_config(context: RunContext, plan: Plan, argv: Sequence[str]) -> None:
    """Write the configuration and the command of the run to run_config.yml."""
    info = plan.evaluation.framework.framework
    config: Any = context.redactor.redact_tree(plan.evaluation.as_dict())
    servers = context.redactor.redact_tree(servers_section(plan.endpoints, plan.earlier_servers))
    # two top-level keys of run_config.yml, which are only written if they are needed
    further_keys: dict[str, Any] = {}
    if servers:
        further_keys[SERVERS_SECTION] = servers
    if plan.sends_metadata_as_before:  # the folder's first run sent pictures with their metadata
        further_keys[SENDS_METADATA_KEY] = True
    document = run_config_document(
        config,
        context.redactor.redact_text(shlex.join(argv)),
        framework_name=info.name,
        pkg_name=info.pkg_name,
        further=further_keys,
    )
    write_atomic(context.rundir.run_config, to_yaml(document))


def find_bundle(plan: Plan, env: Mapping[str, str]) -> run_data.BundleInUse | None:
    """Return the data bundle of the run, after checking it; None if the run uses no bundle.

    Raises:
        ConfigError: The output folder is inside the bundle.
        PrerequisiteError: Data that the run will read are missing.
    """
    bundle = run_data.check_data(plan, env)
    if bundle is not None:
        refuse_inside_bundle(bundle.root, plan.rundir.root, described_as="an output folder")
    return bundle


def facts_about_data(
    context: RunContext, plan: Plan, bundle: run_data.BundleInUse | None
) -> DataRead:
    """Return the facts by which a later run recognizes whether its data are those of this run.

    The record of the bundle is made before the run, because the bundle may change during the run.
    """
    return DataRead(
        bundle=bundle.record() if bundle else None,
        own_files=hash_own_data(plan, context.say),
        all_files=run_data.takes_all_files(plan, context.env),
        uncomputed=class_names_of(uncomputed_metrics(plan, context.env)),
    )


def data_settings(
    plan: Plan, bundle: run_data.BundleInUse | None, env: Mapping[str, str]
) -> HelmRunSettings:
    """Return helm-run's settings about its data.

    The settings state the location and the revision of the data, and the instances to draw. They
    also state the hosts that helm-run may contact.
    """
    extra = plan.evaluation.extra
    # The rules for configurations permit at most one of these three settings.
    sample = None
    if extra.sample_seed is not None:
        # `cluster` is the task's rule for the source that several instances share.
        cluster_rule = plan.evaluation.task.helm.cluster
        source_field = None if cluster_rule is None else cluster_rule.field
        sample = SampleSettings(extra.sample_seed, source=source_field)
    if extra.instances is not None:
        # No sample is drawn from a list of ids, so the seed has no effect.
        sample = SampleSettings(seed=0, ids=tuple(extra.instances))
    stop = plan.evaluation.stop_when
    if stop is not None:
        # The sample grows during the run: a larger sample must contain each smaller one.
        sample = SampleSettings(stop.seed, in_one_order=True)
    library_variables = {}
    if run_data.takes_all_files(plan, env):
        # The user has set this variable; helm-run reads all text files of a folder with it too.
        library_variables[ALL_FILES_VARIABLE] = "1"
    settings = HelmRunSettings(
        pins=pins_of(plan),
        probe_judges=extra.probe_judges,
        only_generate=extra.only_generate,
        sample=sample,
        library_variables=library_variables,
    )
    if bundle is not None:
        settings = run_data.with_bundle(settings, bundle, plan)
    if extra.offline:
        settings = offline_settings(settings, plan, env)
    if plan.evaluation.task.helm.makes_images:
        left_out = class_names_of(uncomputed_metrics(plan, {**env, **settings.library_variables}))
        settings = replace(settings, uncomputed=left_out, weights=str(weights_folder()))
    return settings


def place_data(context: RunContext, plan: Plan, bundle: run_data.BundleInUse | None) -> None:
    """Copy the files of the bundle, if any, to the folders in which helm-run expects its data.

    Raises:
        PrerequisiteError: The bundle has changed since it was checked.
    """
    if bundle is not None:
        run_data.copy_bundle_files(bundle, plan)
        context.log.info("data bundle %s (manifest %s)", bundle.root, bundle.sha256)
    if plan.evaluation.extra.offline:
        context.log.info(
            "offline: only %s may be contacted",
            ", ".join(urls_to_contact(plan, context.env)) or "nothing",
        )


def create_or_check_cache(rundir: RunDir, log: logging.Logger) -> None:
    """Create cache.db, or check the existing cache.db.

    A damaged cache.db is archived, and an empty one is created.
    """
    try:
        response_cache.create_or_check(rundir.cache_db)
    except response_cache.DamagedCacheError as error:
        log.warning(
            "cache.db: %s; moved to %s and not used",
            error,
            rundir.archive(rundir.answer_files).name,
        )
        response_cache.create_or_check(rundir.cache_db)


def remove_unfinished(rundir: RunDir, log: logging.Logger) -> None:
    """Delete the incomplete files of a killed run.

    The folder is locked, so no other process is writing to these files.
    """
    unfinished = []
    for path in rundir.root.glob(".*.part"):
        # `write_atomic` names an incomplete file `.NAME.RANDOM.part`: ".report.html.x7d2.part"
        match = re.fullmatch(r"\.(.+)\.[^.]+\.part", path.name)
        # Other programs may use such names, too: only the files of an output folder are deleted.
        if match is not None and rundir.writes(match[1]):
            unfinished.append(path)
    # These folders have files of eval-factory, HELM's output, and HELM's downloads.
    for folder in (rundir.responses, rundir.model_configs, rundir.helm):
        for parent, _, files in os.walk(folder):  # `os.walk` does not follow links
            for name in files:
                if re.fullmatch(r".+\.(part|tmp)", name):  # "data.jsonl.tmp"
                    unfinished.append(Path(parent) / name)
    for path in unfinished:
        path.unlink(missing_ok=True)
    if unfinished:
        log.info("%d files that a killed run had not finished were deleted", len(unfinished))
