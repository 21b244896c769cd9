"""What exactly was run: versions, data, prompts, target."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib import metadata
from typing import Any

from eval_factory import __version__
from eval_factory.core.results import AskedEndpoint, Provenance
from eval_factory.core.rundir import sha256_of
from eval_factory.data.fingerprint import hashes_of
from eval_factory.data.pins import revisions_of
from eval_factory.demo.packaged_data import packaged_data
from eval_factory.helm import output, plugin_output
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring import run_environment
from eval_factory.tasks.errata import load_errata

RECORDED_PACKAGES = (
    "crfm-helm", "datasets", "numpy", "scipy", "nltk", "rouge-score", "requests", "urllib3", "pydantic", "pandas",
    "pyarrow", "huggingface-hub", "openpyxl", "python-docx", "tiktoken", "pyyaml", "jinja2",
)  # fmt: skip


def provenance_of(
    plan: Plan,
    scenario: str,
    prompts_sha256: str,
    git_hash: str | None,
    data_bundle: Mapping[str, Any] | None,
    endpoints: Mapping[str, AskedEndpoint] | None = None,
    run_id: str = "",
) -> Provenance:
    """The record of a finished run; files of the scenario and prompts by their SHA-256.

    Args:
        data_bundle: the record of the bundle as it was when the run began.
        run_id: of the helm-run that made the result.
    """
    data = dataset_files(plan, scenario)
    endpoint, about = plan.evaluation.run.target.api_endpoint, plan.evaluation.task.about
    replaced = about.access == "public" and plan.evaluation.run.config.params.extra.data_path is not None
    started_at, ended_at = run_environment.began_and_ended(plan.rundir.events, run_id)
    return Provenance(
        eval_factory=__version__,
        helm=_version("crfm-helm"),
        python=run_environment.python_version(),
        packages=versions_of_packages(),
        dataset_files=data,
        prompts_sha256=prompts_sha256,
        run_identity=plan.identity,
        errata_version=load_errata().version,
        git_hash=git_hash,
        target="demo baseline" if endpoint.is_demo else endpoint.model_id,
        data_bundle=data_bundle,
        code_execution=_code_execution(plan),
        patches=_patches(plan),
        endpoints=endpoints or {},
        dataset_revisions=revisions_of(plan, data),
        platform=run_environment.platform_of_this(),
        framework_sha256=run_environment.framework_sha256(),
        lock_sha256=run_environment.lock_sha256(),
        seeds=run_environment.SEEDS,
        started_at=started_at,
        ended_at=ended_at,
        published=None if replaced else about.published,
        answers_public=None if replaced else about.answers_public,
    )


def dataset_files(plan: Plan, scenario: str) -> dict[str, str]:
    """Name -> SHA-256 of what a finished run read: its scenario's files, the Hub's, the user's own, the package's."""
    files = output.scenario_files(plan.rundir.helm, scenario)
    data = {path.relative_to(plan.rundir.helm).as_posix(): sha256_of(path) for path in files}
    for dataset in plugin_output.hub_datasets(plan.rundir.helm):
        data.update({name: sha256_of(path) for name, path in dataset.files().items()})
    data.update(hashes_of(plan.rundir))
    data.update(packaged_data(plan.evaluation.task.helm.run_spec))
    if plan.evaluation.benchmark is not None:
        data.update(plan.evaluation.benchmark.sha256)
    return data


def _patches(plan: Plan) -> tuple[str, ...] | None:
    found = plugin_output.applied_patches(plan.rundir.helm)
    return None if found is None else tuple(found.of(plan.evaluation.task.helm.run_spec))


def _code_execution(plan: Plan) -> dict[str, Any] | None:
    found = plugin_output.code_execution(plan.rundir.helm)
    if found is None or plan.evaluation.task.helm.run_spec not in found.run_specs:
        return None
    before = {} if found.still_can is None else {"still_can": found.still_can}
    return {"confined_by": list(found.by), **before}


def versions_of_packages() -> dict[str, str]:
    """Of `RECORDED_PACKAGES`, those that are installed."""
    return {name: version for name in RECORDED_PACKAGES if (version := _version(name))}


@cache
def _version(package: str) -> str | None:
    """Read once in a process, as `run_environment.installed_packages` is: each is a file with a mail's header."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
