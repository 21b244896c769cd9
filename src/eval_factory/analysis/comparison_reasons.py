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
from eval_factory.tasks.rubric_case import JUDGE_CORRECTED

CORRECTED_BY_TRUTH_SINCE = 2
"""The version of the statistics since which judges are corrected against the truth behind labels.
"""
Key = str  # the id of an instance


@dataclass(frozen=True)
class InstanceValues:
    """The values of a score's instances, in the score's split and perturbation."""

    values: Mapping[Key, float]  # means over trials, of instances with a value in each trial
    failed: AbstractSet[Key]  # the instances without a value in some trial
    prompts: Mapping[Key, bytes]  # a short hash of the prompts of all trials
    # failed instances that were answered and judged, but have no value of the metric
    unscored: AbstractSet[Key] = frozenset()
    # the source of each instance whose record states a source
    clusters: Mapping[Key, str] = field(default_factory=dict)
    # the lowest possible score of each case of a rubric; the highest score is 1
    lowest: Mapping[Key, float] = field(default_factory=dict)
    metric: str | None = None  # the name of the score's metric

    @property
    def keys(self) -> AbstractSet[Key]:
        """The ids of all instances."""
        return self.prompts.keys()

    def listed(self, keys: Iterable[Key]) -> list[float]:
        """Return the values of these instances, in the order of `keys`."""
        return [self.values[key] for key in keys]


def values_of(
    records: Iterable[InstanceRecord], score: Score, ids: Mapping[str, Key] | None = None
) -> InstanceValues:
    """Return the values of the instances in the score's split and perturbation.

    Args:
        records: the instances of a result.
        score: the score whose metric is read.
        ids: id -> the id of the same question in the first result, if another program made a
            result. Instances that are not in this mapping are left out. None if ids are equal.
    """
    prompts: dict[Key, list[str]] = {}
    values: dict[Key, list[float]] = {}
    failed = set()
    unanswered = set()
    clusters = {}
    lowest = {}
    for record in records:
        if not score.is_over(record):
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
        if record.lowest_score is not None and not _is_judge_corrected(score.metric):
            lowest[key] = record.lowest_score
        if value is not None and record.error is None:
            values.setdefault(key, []).append(value)
        else:
            failed.add(key)
            if record.error is not None or record.unjudged:
                unanswered.add(key)
    means = {}
    for key, trials in values.items():
        if key not in failed:
            means[key] = sum(trials) / len(trials)
    return InstanceValues(
        values=means,
        failed=failed,
        prompts={key: _hash_of(texts) for key, texts in prompts.items()},
        unscored=failed - unanswered,
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
    return metric is not None and metric.endswith(JUDGE_CORRECTED)


LENIENT = ".lenient"  # the end of the name of a lenient score
READ_METRICS = (".lenient", ".corrected", ".reasoned", ".with_asked")
"""Parts of the names of metrics whose values depend on the answer reader."""
ANSWER_STYLE = "answer_style"
"""The name of the reason that two results have different settings of `answer_style`."""
NEVER_ACCEPTED = frozenset({ANSWER_STYLE, "metric", "no_pairs"})
"""The names of the reasons that `--allow` does not accept."""
ACCEPTED_REASONS = (
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
    metric: str = ""  # the name of the compared score
    # the pairing of its questions with the first result's; None if they are paired by their ids
    pairing: Pairing | None = None


def two_ways_of_asking(
    label: str, stored: StoredResult, other_label: str, other_stored: StoredResult
) -> Iterator[Reason]:
    """Yield a reason if the model had to answer with a letter in only one of the results.

    In the other result, the model had to reason before its answer (`answer_style`).
    """
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
    if version_a != version_b and is_read(a.values.metric or ""):
        yield Reason(
            "reader",
            f"the answers of {a.label} and {b.label} were read by different rules, "
            f"versions {version_a} and {version_b}, "
            "and the answers cannot be read again; run the older result again",
        )


def reasons_against(a: Side, b: Side) -> Iterator[Reason]:
    """Yield every reason against comparing two results; nothing if the two are comparable.

    `reasons_of` yields the reasons against any comparison of a single result.
    """
    if is_imported(a.stored) or is_imported(b.stored):
        yield from _reasons_across_programs(a, b)
        return
    pair = f"{a.label} and {b.label}"
    task_a = a.stored.result.task
    task_b = b.stored.result.task
    record_a = a.stored.result.provenance
    record_b = b.stored.result.provenance
    if task_a != task_b:
        yield Reason("task", f"{pair} are of different tasks: {task_a} and {task_b}")
    if record_a.upstream != record_b.upstream:
        versions = (
            f"{record_a.helm_package} {record_a.helm} and {record_b.helm_package} {record_b.helm}"
        )
        why = (
            "instances, gold answers or scores of one benchmark may differ between them "
            "(docs/upstreams.md)"
        )
        yield Reason("upstream", f"{pair} were made with two packages of HELM, {versions}: {why}")
    yield from _demo_and_model(a, b)
    yield from two_ways_of_asking(a.label, a.stored, b.label, b.stored)
    if prompts := _different_prompts(a, b):
        yield Reason("prompts", f"{pair} were asked in different words: {prompts}")
    if files := _different_data(record_a, record_b):
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


def _different_rules(a: Side, b: Side) -> Iterator[Reason]:
    """Yield a reason for each difference in the rules of scoring: errata, answer reader, HELM."""
    pair = f"{a.label} and {b.label}"
    record_a = a.stored.result.provenance
    record_b = b.stored.result.provenance
    if record_a.errata_version != record_b.errata_version:
        versions = f"errata {record_a.errata_version} and {record_b.errata_version}"
        yield Reason(
            "errata", f"{pair} were scored with different lists of known defects: {versions}"
        )
    yield from _different_readers(a, b)
    if record_a.upstream == record_b.upstream and record_a.helm != record_b.helm:
        versions = f"{record_a.helm} and {record_b.helm}"
        yield Reason("helm", f"{pair} were scored by different versions of HELM: {versions}")


def _different_judging(a: Side, b: Side) -> Iterator[Reason]:
    """Yield a reason for each difference in the judges, their pictures and their correction."""
    pair = f"{a.label} and {b.label}"
    record_a = a.stored.result.provenance
    record_b = b.stored.result.provenance
    if judges := _different_judges(record_a, record_b):
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
    passport_a = record_a.dataset_files.get(PASSPORT_FILE)
    passport_b = record_b.dataset_files.get(PASSPORT_FILE)
    if passport_a != passport_b:
        yield Reason("judges", f"{pair} were corrected with different passports of their judge")
    if _is_corrected_by_truth(record_a) != _is_corrected_by_truth(record_b):
        why = (
            "one to the physicians' labels, the other to the truth behind the labels; rescore the "
            "older result"
        )
        yield Reason("judges", f"{pair} were corrected to two different things: {why}")


def _judges_see_images(side: Side) -> bool:
    """Return True if the judges saw the pictures of the questions."""
    return bool(side.stored.extra.get("judges_see_images"))


def _is_corrected_by_truth(record: Provenance) -> bool:
    """Return True if a judge's mistakes were measured against the truth behind the labels."""
    return record.statistics_version >= CORRECTED_BY_TRUTH_SINCE


def _different_instances(a: Side, b: Side) -> Iterator[Reason]:
    """Yield a reason if an instance is in one result only."""
    only_a = len(a.values.keys - b.values.keys)
    only_b = len(b.values.keys - a.values.keys)
    if only_a or only_b:
        pair = f"{a.label} and {b.label}"
        counts = f"{only_a} are in {a.label} alone, {only_b} in {b.label} alone"
        yield Reason("instances", f"{pair} asked different instances: {counts}")


def is_read(metric: str) -> bool:
    """Return True if a metric depends on the answer reader."""
    return any(part in metric for part in READ_METRICS)


def _demo_and_model(a: Side, b: Side) -> Iterator[Reason]:
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

    A lenient score is always computed by this program's answer reader.
    """
    provenance = side.stored.result.provenance
    if side.metric.endswith(LENIENT):
        return "the reader"
    if provenance.imported is not None:
        return provenance.imported.source
    return f"{provenance.helm_package} {provenance.helm}"


def reasons_of(side: Side) -> Iterator[Reason]:
    """Yield the reasons against any comparison of this result."""
    validity = side.stored.result.validity
    min_coverage = side.stored.extra.get("min_coverage", 1.0)
    if validity.coverage < min_coverage:
        covered = formats.percent(validity.coverage)
        needed = formats.percent(min_coverage)
        share = f"{covered} of its instances have a score, and {needed} are needed"
        yield Reason(
            "coverage",
            f"{side.label} has too few scores: {share}; run it again, or lower min_coverage",
        )
    # If the coverage is too small, the reason above already explains why nothing is reportable.
    is_explained = side.stored.result.reportable or validity.coverage < min_coverage
    reasons = [reason for reason in validity.short_reasons if reason != DEMO]
    if not is_explained and not validity.not_reportable:
        reasons = ["there is no main score"]
    if reasons:
        yield Reason("reportable", f"{side.label} is not reportable: {'; '.join(reasons)}")


def _different_prompts(a: Side, b: Side) -> str | None:
    """Return the difference of the prompts as a text; None if they do not differ."""
    shared = a.values.prompts.keys() & b.values.prompts.keys()
    differing = sum(a.values.prompts[key] != b.values.prompts[key] for key in shared)
    if differing:
        return f"{differing} of {len(shared)} prompts differ"
    if is_imported(a.stored) or is_imported(b.stored):
        return None
    if _system_prompt(a) != _system_prompt(b):
        return "their system prompts differ"
    hash_a = a.stored.result.provenance.prompts_sha256
    hash_b = b.stored.result.provenance.prompts_sha256
    if hash_a != hash_b and a.values.prompts.keys() == b.values.prompts.keys():
        return "the hashes of their prompts differ"
    return None


def _system_prompt(side: Side) -> str | None:
    endpoint = side.stored.target.get("api_endpoint") or {}
    adapter = endpoint.get("adapter_config") or {}
    return adapter.get("custom_system_prompt") or None


def _different_data(record_a: Provenance, record_b: Provenance) -> str | None:
    """Return the names of the data files whose contents differ; None if no contents differ.

    Equal files may be stored in different places.
    """
    files_a = _data_files(record_a)
    files_b = _data_files(record_b)
    if sorted(files_a.values()) == sorted(files_b.values()):
        return None
    # Files that are equal in name and contents are in both sets of items, so `^` leaves them out.
    names = sorted(dict(files_a.items() ^ files_b.items()))
    return formats.first_of(names, 3) or None


def _data_files(record: Provenance) -> dict[str, str]:
    """Return the SHA-256 of each data file of a run, by name.

    A judge's passport (the file with the results of its calibration) is left out, because it has no
    questions.
    """
    files = dict(record.dataset_files)
    files.pop(PASSPORT_FILE, None)
    return files


def _different_judges(record_a: Provenance, record_b: Provenance) -> str | None:
    """Return the names of the judges that differ in model or prompt; None if no judge differs."""
    judges_a = _judges_of(record_a)
    judges_b = _judges_of(record_b)
    differing = []
    for name in sorted(judges_a.keys() | judges_b.keys()):
        if judges_a.get(name) != judges_b.get(name):
            differing.append(name)
    return formats.first_of(differing, 3) or None


def _judges_of(record: Provenance) -> dict[str, tuple[object, ...]]:
    """Return judge -> (requested model, model that answered, hash of the prompt).

    A judge's ratings depend on these three.
    """
    judges: dict[str, tuple[object, ...]] = {}
    for role, endpoint in record.endpoints.items():
        if role != MODEL_ROLE:
            judges[role] = (endpoint.model, endpoint.main_model, endpoint.prompt_sha256)
    return judges
