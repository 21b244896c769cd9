"""Records the provenance of a result: versions, data, prompts, model, platform, files and times.

The record contains no name of the machine or the user, and no path outside the output folder.
`eval-factory verify` computes the record of a stored result again. The machine that verifies may
lack the data files and the folder logs/; `RememberedFacts` then takes the facts from the stored
result.
"""

from __future__ import annotations

import hashlib
import json
import platform
import re
from collections.abc import Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import lru_cache
from itertools import product
from pathlib import Path
from typing import Any

from eval_factory import __version__
from eval_factory.core.results import (
    PACKAGE_PREFIX,
    UTC_FORMAT,
    AskedEndpoint,
    Provenance,
    TaskResult,
)
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.data.own_data_hashes import own_data_hashes_of
from eval_factory.data.pins import revisions_of
from eval_factory.demo.example import packaged_data_hashes
from eval_factory.endpoint import media, media_metadata
from eval_factory.endpoint.response_cache import read_origin
from eval_factory.helm import names, output
from eval_factory.helm.environments import Environment, environment_of_plan
from eval_factory.plan.run_plan import Plan, may_send_files
from eval_factory.reading import READER_VERSION
from eval_factory.scoring.judge_passports import PASSPORT
from eval_factory.scoring.methods import STATISTICS_VERSION
from eval_factory.tasks.asking_forms import MIN_ANSWER_TOKENS
from eval_factory.tasks.errata import load_errata
from eval_factory.tasks.framework import framework_path

SEEDS = {"helm_sample": 0, "helm_examples": 0}
"""The seeds that HELM uses to draw the instances of `limit_samples` and the examples of trial 0.

Trial n draws its examples with the seed n.
"""


def seeds_of(plan: Plan) -> dict[str, int]:
    """Return the seeds of a run.

    With `extra.sample_seed` or `extra.stop_when`, this program draws the instances instead of HELM.
    The key of the seed is then `sample` instead of `helm_sample`.
    """
    stop = plan.evaluation.stop_when
    seed = plan.evaluation.extra.sample_seed
    if stop is not None:
        seed = stop.seed
    if seed is None:
        return SEEDS
    return {"sample": seed, "helm_examples": SEEDS["helm_examples"]}


def platform_of_this() -> dict[str, str]:
    """Return facts about the operating system and interpreter; unknown facts are left out."""
    try:
        distribution = platform.freedesktop_os_release().get("PRETTY_NAME", "")
    except OSError:
        distribution = ""
        if platform.system() != "Linux":  # on Linux, the release is that of the kernel alone
            distribution = platform.release()
    facts = {
        "system": platform.system(),
        "distribution": distribution,
        "libc": " ".join(part for part in platform.libc_ver() if part),
        "machine": platform.machine(),
        "implementation": platform.python_implementation(),
    }
    return {name: value for name, value in facts.items() if value}


@lru_cache(maxsize=2)  # one entry for each upstream
def installed_packages(environment: Environment) -> str:
    """Return the installed distributions as sorted lines of the form `name==version`.

    The lock file is not used: the wheel does not contain it, and an environment may differ from it.
    """
    lines = set()
    for distribution in environment.distributions():
        metadata = distribution.metadata
        if "Name" in metadata:
            # The normal form of a name (PEP 503): "ruamel.yaml" becomes "ruamel-yaml".
            name = re.sub("[-_.]+", "-", metadata["Name"]).lower()
            lines.add(f"{name}=={metadata['Version']}\n")
    return "".join(sorted(lines))


def lock_sha256(environment: Environment) -> str:
    """Return the SHA-256 of the text of `installed_packages`."""
    return hashlib.sha256(installed_packages(environment).encode()).hexdigest()


def began_and_ended(events: Path, run_id: str) -> tuple[str | None, str | None]:
    """Return the times of a run's first and last event, in UTC (ISO 8601).

    Both are None if the file has no event of the run, or cannot be read.
    """
    times = []
    try:
        with events.open(encoding="utf-8") as lines:
            for line in lines:
                # A killed process may have left an incomplete line.
                with suppress(ValueError, TypeError, KeyError):
                    if run_id in line:  # parse only lines that may be events of this run
                        event = json.loads(line)
                        if str(event["run_id"]) == run_id:
                            times.append(float(event["time"]))
    except OSError:
        return None, None
    if not times:
        return None, None
    return utc_of(min(times)), utc_of(max(times))


def utc_of(seconds: float) -> str | None:
    """Return seconds since the epoch as UTC (ISO 8601); None if the number is out of range."""
    try:
        return datetime.fromtimestamp(seconds, timezone.utc).strftime(UTC_FORMAT)
    except (OverflowError, OSError, ValueError):
        return None


HELM_RUN_FILES = (
    names.RUN_SPEC_FILE,
    names.SCENARIO_FILE,
    names.SCENARIO_STATE_FILE,
    names.STATS_FILE,
    names.PER_INSTANCE_STATS_FILE,
)
"""The files that helm-run writes to a run folder; files that `helm-summarize` adds are ignored."""


def hashes_of_run_files(rundir: RunDir, runs: Iterable[Path]) -> dict[str, str]:
    """Return a dict from path to SHA-256 of the existing files that the result was computed from.

    Args:
        rundir: the output folder; the returned paths are relative to this folder.
        runs: HELM's run folders of the result.
    """
    files = [folder / name for folder, name in product(runs, HELM_RUN_FILES)]
    files += [
        rundir.helm / names.RUN_RECORD_FILE,
        rundir.helm / names.TRIVIAL_SCORES_FILE,
        rundir.cache_db,
    ]
    hashes = {}
    for file in files:
        if file.is_file():
            hashes[file.relative_to(rundir.root).as_posix()] = sha256_of(file)
    return hashes


def with_run_files(result: TaskResult, rundir: RunDir, runs: Iterable[Path]) -> TaskResult:
    """Return the result with the hashes of its files in its provenance.

    Close the folder's response cache first, because an open cache still changes.
    """
    return replace(
        result, provenance=replace(result.provenance, run_files=hashes_of_run_files(rundir, runs))
    )


# the packages whose versions are recorded, if they are installed
RECORDED_PACKAGES = (
    "crfm-helm",
    "medhelm",
    "datasets",
    "numpy",
    "scipy",
    "nltk",
    "rouge-score",
    "requests",
    "urllib3",
    "pydantic",
    "pandas",
    "pyarrow",
    "huggingface-hub",
    "openpyxl",
    "python-docx",
    "tiktoken",
    "pyyaml",
    "jinja2",
)


def _picture_changes(plan: Plan, pillow: str | None) -> str | None:
    """Return a text that states how pictures and sounds were changed before they were sent.

    Return None if nothing was changed.

    Args:
        plan: the plan of the run.
        pillow: the version of Pillow, which resizes pictures.
    """
    changes = []
    max_side = plan.model.max_image_side
    if max_side is not None:
        changes.append(
            f"longer side of {max_side} pixels at most, resampled by {media.RESAMPLING} of "
            f"Pillow {pillow}"
        )
    if may_send_files(plan.evaluation) and not plan.model.keeps_metadata:
        changes.append(f"without {media_metadata.REMOVED_METADATA}")
    return "; ".join(changes) or None


def provenance_of(
    plan: Plan,
    scenario: str,
    prompts_sha256: str,
    git_hash: str | None,
    data_bundle: Mapping[str, Any] | None,
    endpoints: Mapping[str, AskedEndpoint] | None = None,
    run_id: str = "",
) -> Provenance:
    """Return the provenance of a finished run.

    Args:
        plan: the plan of the run.
        scenario: HELM's name of the scenario.
        prompts_sha256: the hash of all prompts.
        git_hash: the commit of this program; None if unknown.
        data_bundle: the record of the data bundle at the start of the run, if the run used one.
        endpoints: a dict from each role to a record of its requests and of the models that
            answered.
        run_id: the id of the run in the file of events.
    """
    data_hashes = hashes_of_dataset_files(plan, scenario)
    endpoint = plan.evaluation.endpoint
    published, answers_public = _publication_of(plan)
    record = output.read_run_record(plan.rundir.helm)
    upstream = plan.upstream
    environment = environment_of_plan(plan)
    started_at, ended_at = began_and_ended(plan.rundir.events, run_id)
    return Provenance(
        eval_factory=__version__,
        helm=environment.version_of(upstream.package),
        upstream=upstream.name,
        python=platform.python_version(),
        packages=_versions_of_packages(plan, environment),
        dataset_files=data_hashes,
        prompts_sha256=prompts_sha256,
        run_identity=plan.identity,
        errata_version=load_errata().version,
        statistics_version=STATISTICS_VERSION,
        reader_version=READER_VERSION,
        git_hash=git_hash,
        target=_target_of(plan),
        data_bundle=data_bundle,
        code_execution=_code_execution(record),
        patches=_tuple_of(record.patches),
        endpoints=endpoints or {},
        dataset_revisions=revisions_of(plan, data_hashes),
        platform=platform_of_this(),
        framework_sha256=sha256_of(framework_path()),
        lock_sha256=lock_sha256(environment),
        seeds=seeds_of(plan),
        started_at=started_at,
        ended_at=ended_at,
        published=published,
        answers_public=answers_public,
        training_cutoff=endpoint.training_cutoff,
        rescored_from=_identity_of_origin(plan),
        pictures=_picture_changes(plan, environment.version_of("pillow")),
        asked_again_tokens=_asked_again_tokens(plan),
    )


def _publication_of(plan: Plan) -> tuple[str | None, bool | None]:
    """Return (the date when the task's data were published, True if their answers are public).

    An unknown fact is None. Both are None if the user's own data replace the public data.
    """
    about = plan.evaluation.task.about
    if about.access == "public" and plan.evaluation.extra.data_path is not None:
        return None, None
    return about.published, about.answers_public


def _versions_of_packages(plan: Plan, environment: Environment) -> dict[str, str]:
    """Return a dict from package to version, for the recorded packages and the task's plug-in."""
    names_of_packages = list(RECORDED_PACKAGES)
    if plan.evaluation.task.plug_in is not None:
        names_of_packages.append(plan.evaluation.task.plug_in.package)
    versions = {}
    for name in names_of_packages:
        version = environment.version_of(name)
        if version:
            versions[name] = version
    return versions


def _target_of(plan: Plan) -> str:
    """Return the id of the evaluated model; "demo baseline" for the demo endpoint."""
    endpoint = plan.evaluation.endpoint
    if endpoint.is_demo:
        return "demo baseline"
    return endpoint.model_id


def _code_execution(record: output.RunRecord) -> dict[str, Any] | None:
    """Return a record of the sandboxes that executed the code in answers.

    Return None if no code was executed.
    """
    if not record.executed_by:
        return None
    return {"confined_by": record.executed_by}


def _tuple_of(names_of_patches: Iterable[str] | None) -> tuple[str, ...] | None:
    """Return the names as a tuple; None if they were not recorded."""
    if names_of_patches is None:
        return None
    return tuple(names_of_patches)


def _identity_of_origin(plan: Plan) -> str | None:
    """Return the identity of the run whose answers this run scored again; None if not rescored."""
    origin = read_origin(plan.rundir.cache_db)
    if origin is None:
        return None
    return origin.run_identity


def _asked_again_tokens(plan: Plan) -> int | None:
    """Return the token limit of questions that are asked again; None if it is not raised.

    A smaller limit is raised to `MIN_ANSWER_TOKENS`, which is then the limit.
    """
    if not plan.allows_longer_answers:
        return None
    return MIN_ANSWER_TOKENS


def hashes_of_dataset_files(plan: Plan, scenario: str) -> dict[str, str]:
    """Return a dict from name to SHA-256 of the data files that a finished run read.

    These are the scenario's files, files of the Hugging Face Hub, the user's own files with the
    judge's passport, and files that this package contains.
    """
    hashes = {}
    for path in output.scenario_files(plan.rundir.helm, scenario):
        hashes[path.relative_to(plan.rundir.helm).as_posix()] = sha256_of(path)
    for dataset in output.read_run_record(plan.rundir.helm).datasets:
        for name, path in dataset.files().items():
            hashes[name] = sha256_of(path)
    hashes.update(own_data_hashes_of(plan.rundir))
    hashes.update(packaged_data_hashes(plan.evaluation.task.helm.run_spec))
    if plan.evaluation.benchmark is not None:
        hashes.update(plan.evaluation.benchmark.sha256)
    if plan.evaluation.extra.judge_passport is not None:
        hashes[PASSPORT] = sha256_of(plan.rundir.model_configs / PASSPORT)
    return hashes


OUTSIDE_PREFIXES = ("hub:", PACKAGE_PREFIX)
"""The prefixes of names of data files that are stored outside the output folder."""


@dataclass
class RememberedFacts:
    """The facts of a stored result that are used if the result is computed again."""

    provenance: Provenance
    notes: Collection[str] = ()  # `validity.notes`
    sources: Mapping[str, str] = field(default_factory=dict)
    """Id of an instance -> the source that the instance shares with other instances."""
    # the number of data files whose hash could not be confirmed; `complete_record` sets it
    unconfirmed: int = 0

    def complete_record(self, plan: Plan, computed: Provenance) -> Provenance:
        """Return the computed record, completed by facts of the stored record.

        The stored record provides the hashes of absent data files, and the times if the logs are
        absent. It also provides the hashes of data outside the output folder: other programs may
        have changed the Hub's cache, and a new version of this package may contain other data.

        Raises:
            HelmError: HELM's record of the run cannot be read.
        """
        stored = self.provenance
        current_hashes = computed.dataset_files
        stored_hashes = {}  # the hashes that the stored record provides
        for name, digest in stored.dataset_files.items():
            if name not in current_hashes or name.startswith(OUTSIDE_PREFIXES):
                stored_hashes[name] = digest
        # Leave out data outside the folder that the stored record does not name.
        hashes = {}
        for name, digest in current_hashes.items():
            if name in stored.dataset_files or not name.startswith(OUTSIDE_PREFIXES):
                hashes[name] = digest
        # A stored hash is confirmed if the file is here, and has this hash.
        self.unconfirmed = sum(
            current_hashes.get(name) != digest for name, digest in stored_hashes.items()
        )
        hashes |= stored_hashes  # these replace the current hashes of the same names
        with_times = computed
        if computed.started_at is None:  # the logs are absent
            with_times = stored
        return replace(
            computed,
            dataset_files=hashes,
            dataset_revisions=revisions_of(plan, hashes),
            started_at=with_times.started_at,
            ended_at=with_times.ended_at,
        )
