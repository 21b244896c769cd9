"""Reads the values of results by instance, and finds the reasons against comparing two results."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field

from eval_factory.analysis.pairing import Pairing, is_imported
from eval_factory.core import formats
from eval_factory.core.results import (
    DEMO,
    MODEL_ROLE,
    PASSPORT_FILE,
    InstanceRecord,
    Provenance,
    Score,
)
from eval_factory.report.reader import StoredResult
from eval_factory.tasks.rubric_case import JUDGE_CORRECTED_SUFFIX

CORRECTED_BY_TRUTH_SINCE = 2
"""The first version of the statistics that estimates the truth behind the physicians' labels.

It measures a judge's mistakes against this truth; the earlier version used the labels themselves.
"""
Key = str  # the id of an instance
_MAX_NAMES = 3  # the largest number of names that a message lists


@dataclass(frozen=True)
class InstanceValues:
    """The values of a score's instances, in the score's split and perturbation."""

    # the mean over the trials, for each instance that has a value in each trial
    means: Mapping[Key, float]
    failed: AbstractSet[Key]  # the instances without a value in at least one trial
    prompts: Mapping[Key, bytes]  # a short hash of the prompts of all trials
    # the failed instances that were answered and judged: the metric gives them no value
    unscored: AbstractSet[Key] = frozenset()
    # the source of each instance whose record states a source
    clusters: Mapping[Key, str] = field(default_factory=dict)
    # the lowest possible score of each case of a rubric; the highest score is 1
    lowest: Mapping[Key, float] = field(default_factory=dict)
    metric: str | None = None  # the name of the score's metric

    @property
    def all_keys(self) -> AbstractSet[Key]:
        """The ids of all instances."""
        return self.prompts.keys()

    def listed(self, keys: Iterable[Key]) -> list[float]:
        """Return the values of these instances, in the order of `keys`."""
        return [self.means[key] for key in keys]


def values_of(
    records: Iterable[InstanceRecord], score: Score, ids: Mapping[str, Key] | None = None
) -> InstanceValues:
    """Return the values of the instances in the score's split and perturbation.

    Args:
        records: the instances of a result.
        score: the score whose metric is read.
        ids: a dict from ids to the ids of the same questions in the first result, if another
            program made a result. Instances that are not in it are left out. None: ids are equal.
    """
    prompts: dict[Key, list[str]] = {}
    values: dict[Key, list[float]] = {}
    failed = set()
    unanswered_or_unjudged = set()
    clusters = {}
    lowest = {}
    for record in records:
        if not score.covers(record):
            continue
        key = record.id
        if ids is not None:
            if key not in ids:
                continue
            key = ids[key]
        value = record.metrics.get(score.metric)
        prompts.setdefault(key, []).append(record.prompt)
        if record.cluster is not None:
            clusters[key] = record.cluster
        # A case's score that is corrected for a judge's mistakes may be below the lowest score.
        if record.lowest_score is not None and not _is_judge_corrected(score.metric):
            lowest[key] = record.lowest_score
        if value is not None and record.error is None:
            values.setdefault(key, []).append(value)
        else:
            failed.add(key)
            if record.error is not None or record.unjudged:
                unanswered_or_unjudged.add(key)
    means = {}
    for key, trials in values.items():
        if key not in failed:
            means[key] = sum(trials) / len(trials)
    return InstanceValues(
        means=means,
        failed=failed,
        prompts={key: _hash_of(texts) for key, texts in prompts.items()},
        unscored=failed - unanswered_or_unjudged,
        clusters=clusters,
        lowest=lowest,
        metric=score.metric,
    )


def _hash_of(prompts: Iterable[str]) -> bytes:
    """Return a short hash of the prompts of one instance; their order does not change the hash."""
    text = "\0".join(sorted(prompts))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).digest()[:16]


def _is_judge_corrected(metric: str | None) -> bool:
    """Return True if the metric is corrected for the mistakes of a judge."""
    return metric is not None and metric.endswith(JUDGE_CORRECTED_SUFFIX)


LENIENT = ".lenient"
"""The end of the name of a lenient score, which counts an answer in any form that the answer reader
understands.
"""
_READER_METRICS = (LENIENT, ".corrected", ".reasoned", ".with_asked")
"""Parts of the names of metrics whose values depend on the answer reader.

The answer reader finds the option that an answer to a multiple-choice question states.
"""
ANSWER_STYLE = "answer_style"
"""The name of the reason that two results have different settings of `answer_style`."""
NEVER_ACCEPTED = frozenset({ANSWER_STYLE, "metric", "no_pairs"})
"""The names of the reasons that `--allow` does not accept."""
ACCEPTABLE_REASONS = (
    "coverage",
    "data",
    "errata",
    "helm",
    "instances",
    "judges",
    "prompts",
    "program",
    "reader",
    "reportable",
    "settings",
    "task",
    "upstream",
)
"""The names of the reasons that `--allow` accepts; docs/compare.md explains each reason."""


@dataclass(frozen=True)
class Reason:
    """A reason against comparing two results."""

    name: str
    message: str


@dataclass(frozen=True)
class Side:
    """One of the compared results, with its values."""

    label: str  # the name of the result in messages
    stored: StoredResult
    values: InstanceValues
    metric: str  # the name of the compared score
    # the pairing of its questions with the first result's; None if equal questions have equal ids
    pairing: Pairing | None = None


def two_ways_of_asking(
    label: str, stored: StoredResult, other_label: str, other_stored: StoredResult
) -> Iterator[Reason]:
    """Yield a reason if only one of the models had to reason before its answer (`answer_style`)."""
    style = stored.extra.get("answer_style", "letter")
    other_style = other_stored.extra.get("answer_style", "letter")
    if style != other_style:
        yield Reason(
            ANSWER_STYLE,
            f"{label} and {other_label} were asked in two ways "
            f"(answer_style: {style} and {other_style}): their scores measure different things",
        )


def _different_readers(a: Side, b: Side) -> Iterator[Reason]:
    """Yield a reason if the score depends on the answer reader and the reader's versions differ."""
    version_a = a.stored.result.provenance.reader_version
    version_b = b.stored.result.provenance.reader_version
    if version_a != version_b and _depends_on_reader(a.values.metric):
        yield Reason(
            "reader",
            f"the answers of {a.label} and {b.label} were read by different rules, "
            f"versions {version_a} and {version_b}, "
            "and the answers cannot be read again; run the older result again",
        )


def reasons_against_pair(a: Side, b: Side) -> Iterator[Reason]:
    """Yield every reason against comparing two results that concerns both of them.

    `reasons_against_result` yields the reasons that concern a single result.
    """
    if is_imported(a.stored) or is_imported(b.stored):
        yield from _reasons_across_programs(a, b)
        return
    pair = f"{a.label} and {b.label}"
    task_a = a.stored.result.task
    task_b = b.stored.result.task
    provenance_a = a.stored.result.provenance
    provenance_b = b.stored.result.provenance
    if task_a != task_b:
        yield Reason("task", f"{pair} are of different tasks: {task_a} and {task_b}")
    if provenance_a.upstream != provenance_b.upstream:
        versions = f"{_helm_version(provenance_a)} and {_helm_version(provenance_b)}"
        why = (
            "instances, gold answers or scores of one benchmark may differ between them "
            "(docs/upstreams.md)"
        )
        yield Reason("upstream", f"{pair} were made with two packages of HELM, {versions}: {why}")
    yield from _only_one_demo(a, b)
    yield from two_ways_of_asking(a.label, a.stored, b.label, b.stored)
    if prompts := _different_prompts(a, b):
        yield Reason("prompts", f"{pair} were asked in different words: {prompts}")
    if files := _different_data(provenance_a, provenance_b):
        yield Reason("data", f"{pair} were made with different data: {files}")
    yield from _different_rules(a, b)
    yield from _different_judging(a, b)
    on_failure_a = a.stored.extra.get("on_failure", "exclude")
    on_failure_b = b.stored.extra.get("on_failure", "exclude")
    if on_failure_a != on_failure_b:
        yield Reason(
            "settings",
            f"{pair} count failed instances differently: "
            f"on_failure {on_failure_a} and {on_failure_b}",
        )
    yield from _different_instances(a, b)


def _helm_version(provenance: Provenance) -> str:
    """Return the name and the version of the HELM package that made a result."""
    return f"{provenance.helm_package} {provenance.helm}"


def _different_rules(a: Side, b: Side) -> Iterator[Reason]:
    """Yield a reason for each difference in the rules of scoring: errata, answer reader, HELM."""
    pair = f"{a.label} and {b.label}"
    provenance_a = a.stored.result.provenance
    provenance_b = b.stored.result.provenance
    if provenance_a.errata_version != provenance_b.errata_version:
        versions = f"errata {provenance_a.errata_version} and {provenance_b.errata_version}"
        yield Reason(
            "errata", f"{pair} were scored with different lists of known defects: {versions}"
        )
    yield from _different_readers(a, b)
    if provenance_a.upstream == provenance_b.upstream and provenance_a.helm != provenance_b.helm:
        versions = f"{provenance_a.helm} and {provenance_b.helm}"
        yield Reason("helm", f"{pair} were scored by different versions of HELM: {versions}")


def _different_judging(a: Side, b: Side) -> Iterator[Reason]:
    """Yield a reason for each difference in the judges, their pictures and their correction."""
    pair = f"{a.label} and {b.label}"
    provenance_a = a.stored.result.provenance
    provenance_b = b.stored.result.provenance
    if judges := _different_judges(provenance_a, provenance_b):
        yield Reason(
            "judges", f"{pair} were rated by different judges, or with different prompts: {judges}"
        )
    if _judges_see_images(a) != _judges_see_images(b):
        yield Reason(
            "judges",
            f"{pair} were rated differently: the judges of one saw the pictures "
            "(judges_see_images)",
        )
    if not _is_judge_corrected(a.values.metric):
        return
    passport_a = provenance_a.dataset_files.get(PASSPORT_FILE)
    passport_b = provenance_b.dataset_files.get(PASSPORT_FILE)
    if passport_a != passport_b:
        yield Reason("judges", f"{pair} were corrected with different passports of their judge")
    if _is_corrected_by_truth(provenance_a) != _is_corrected_by_truth(provenance_b):
        why = (
            "one to the physicians' labels, the other to the truth behind the labels; "
            "rescore the older result"
        )
        yield Reason("judges", f"{pair} were corrected to two different things: {why}")


def _judges_see_images(side: Side) -> bool:
    """Return True if the judges saw the pictures of the questions."""
    return bool(side.stored.extra.get("judges_see_images"))


def _is_corrected_by_truth(provenance: Provenance) -> bool:
    """Return True if a judge's mistakes were measured against the truth behind the labels."""
    return provenance.statistics_version >= CORRECTED_BY_TRUTH_SINCE


def _different_instances(a: Side, b: Side) -> Iterator[Reason]:
    """Yield a reason if an instance is in one result only."""
    only_a = len(a.values.all_keys - b.values.all_keys)
    only_b = len(b.values.all_keys - a.values.all_keys)
    if only_a or only_b:
        pair = f"{a.label} and {b.label}"
        counts = f"{only_a} are in {a.label} alone, {only_b} in {b.label} alone"
        yield Reason("instances", f"{pair} asked different instances: {counts}")


def _depends_on_reader(metric: str | None) -> bool:
    """Return True if the values of a metric depend on the answer reader."""
    return metric is not None and any(part in metric for part in _READER_METRICS)


def _only_one_demo(a: Side, b: Side) -> Iterator[Reason]:
    """Yield a reason if one result is a demo and the other result is not."""
    if a.stored.result.is_demo == b.stored.result.is_demo:
        return
    demo = a
    if b.stored.result.is_demo:
        demo = b
    yield Reason("reportable", f"{demo.label} is a demo, and the other result is of a model")


def _reasons_across_programs(a: Side, b: Side) -> Iterator[Reason]:
    """Yield every reason against comparing two results if another program made at least one.

    Names of tasks and data are not compared: other programs use other names, and the paired
    questions already show that the data are the same.
    """
    pair = f"{a.label} and {b.label}"
    yield from _only_one_demo(a, b)
    if prompts := _different_prompts(a, b):
        yield Reason("prompts", f"{pair} were asked in different words: {prompts}")
    yield from _different_readers(a, b)
    program_a = _scoring_program(a)
    program_b = _scoring_program(b)
    if program_a != program_b:
        scores = f"{a.metric} of {program_a} and {b.metric} of {program_b}"
        yield Reason("program", f"{pair} were scored by two programs: {scores}")
    elif a.metric != b.metric:
        yield Reason("program", f"{pair} are of two scores: {a.metric} and {b.metric}")


def _scoring_program(side: Side) -> str:
    """Return the program that computed a score, with its version if the version matters.

    A lenient score is always computed by the answer reader of eval-factory.
    """
    provenance = side.stored.result.provenance
    if side.metric.endswith(LENIENT):
        return "the reader"
    if provenance.imported is not None:
        return provenance.imported.source
    return _helm_version(provenance)


def reasons_against_result(side: Side) -> Iterator[Reason]:
    """Yield the reasons against any comparison of this result."""
    validity = side.stored.result.validity
    min_coverage = side.stored.extra.get("min_coverage", 1.0)
    has_few_scores = validity.coverage < min_coverage
    if has_few_scores:
        covered = formats.percent(validity.coverage)
        needed = formats.percent(min_coverage)
        share = f"{covered} of its instances have a score, and {needed} are needed"
        yield Reason(
            "coverage",
            f"{side.label} has too few scores: {share}; run it again, or lower min_coverage",
        )
    # Two demos may be compared. `_only_one_demo` finds the pairs of a demo and another result.
    reasons = [reason for reason in validity.short_reasons if reason != DEMO]
    has_known_reason = bool(validity.not_reportable) or has_few_scores
    if not side.stored.result.reportable and not has_known_reason:
        reasons = ["there is no main score"]  # no other reason is left
    if reasons:
        yield Reason("reportable", f"{side.label} is not reportable: {'; '.join(reasons)}")


def _different_prompts(a: Side, b: Side) -> str | None:
    """Return the difference of the prompts as a text; None if they do not differ."""
    shared = a.values.prompts.keys() & b.values.prompts.keys()
    differing = sum(a.values.prompts[key] != b.values.prompts[key] for key in shared)
    if differing:
        return f"{differing} of {len(shared)} prompts differ"
    if is_imported(a.stored) or is_imported(b.stored):
        return None  # an imported result has no system prompt and no hash of prompts to compare
    if _system_prompt(a) != _system_prompt(b):
        return "their system prompts differ"
    hash_a = a.stored.result.provenance.prompts_sha256
    hash_b = b.stored.result.provenance.prompts_sha256
    if hash_a != hash_b and a.values.prompts.keys() == b.values.prompts.keys():
        return "the hashes of their prompts differ"
    return None


def _system_prompt(side: Side) -> str | None:
    """Return the system prompt that was sent with each question; None if there was none."""
    endpoint = side.stored.target.get("api_endpoint") or {}
    adapter = endpoint.get("adapter_config") or {}
    return adapter.get("custom_system_prompt") or None  # an empty prompt is not sent


def _different_data(provenance_a: Provenance, provenance_b: Provenance) -> str | None:
    """Return the names of the data files whose contents differ; None if no contents differ."""
    files_a = _data_files(provenance_a)
    files_b = _data_files(provenance_b)
    # Only the contents count: equal files may have different names.
    if sorted(files_a.values()) == sorted(files_b.values()):
        return None
    different_files = files_a.items() ^ files_b.items()  # (name, hash) that only one result has
    names = {name for name, _ in different_files}
    return formats.first_of(sorted(names), _MAX_NAMES)


def _data_files(provenance: Provenance) -> dict[str, str]:
    """Return the SHA-256 of each data file of a run, by name.

    A judge's passport (the file with the results of its calibration) is left out, because it has no
    questions.
    """
    files = dict(provenance.dataset_files)
    files.pop(PASSPORT_FILE, None)
    return files


def _different_judges(provenance_a: Provenance, provenance_b: Provenance) -> str | None:
    """Return the names of the judges that differ in model or prompt; None if no judge differs."""
    judges_a = _judges_of(provenance_a)
    judges_b = _judges_of(provenance_b)
    differing = []
    for name in sorted(judges_a.keys() | judges_b.keys()):
        if judges_a.get(name) != judges_b.get(name):
            differing.append(name)
    if not differing:
        return None
    return formats.first_of(differing, _MAX_NAMES)


def _judges_of(provenance: Provenance) -> dict[str, tuple[object, ...]]:
    """Return what a judge's ratings depend on, by the name of the judge.

    The values are tuples (requested model, model that answered, hash of the prompt).
    """
    judges: dict[str, tuple[object, ...]] = {}
    for role, endpoint in provenance.endpoints.items():
        if role != MODEL_ROLE:
            judges[role] = (endpoint.model, endpoint.main_model, endpoint.prompt_sha256)
    return judges
