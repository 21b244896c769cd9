"""What is paired of two results (a metric's values by instance), and the reasons why they cannot
be compared.
"""

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

CORRECTED_BY_TRUTH_SINCE = 2  # version of the statistics
Key = str  # the id of an instance; split and perturbation are those of the score


@dataclass(frozen=True)
class InstanceValues:
    """The instances of a score: of its split and perturbation."""

    values: Mapping[Key, float]  # means over trials; an instance that lacks one is in `failed`
    failed: AbstractSet[Key]
    prompts: Mapping[Key, bytes]  # a short hash of what was asked, over all trials
    # those of `failed` that were answered: the metric says nothing
    unscored: AbstractSet[Key] = frozenset()
    # what an instance shares its source with
    clusters: Mapping[Key, str] = field(default_factory=dict)
    # of a rubric's cases the least score; the highest is 1
    lowest: Mapping[Key, float] = field(default_factory=dict)
    metric: str | None = None

    @property
    def keys(self) -> AbstractSet[Key]:
        return self.prompts.keys()


def values_of(
    records: Iterable[InstanceRecord], score: Score, ids: Mapping[str, Key] | None = None
) -> InstanceValues:
    """Of the instances that are in the score's split and perturbation.

    `ids`: of a result of another program, id -> the key of the same question in the first result;
    the questions that are not in it are left out. None: ids are keys.
    """
    asked: dict[Key, list[str]] = {}
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
        asked.setdefault(key, []).append(record.prompt)
        if record.cluster is not None:
            clusters[key] = record.cluster
        if record.lowest_score is not None and not (score.metric or "").endswith(JUDGE_CORRECTED):
            lowest[key] = record.lowest_score
        if value is not None and record.error is None:
            values.setdefault(key, []).append(value)
        else:
            failed.add(key)
            if record.error is not None or record.unjudged:
                unanswered.add(key)
    prompts = {
        key: "\0".join(sorted(texts)).encode("utf-8", "surrogatepass")
        for key, texts in asked.items()
    }
    return InstanceValues(
        values={key: sum(found) / len(found) for key, found in values.items() if key not in failed},
        failed=failed,
        prompts={key: hashlib.sha256(text).digest()[:16] for key, text in prompts.items()},
        unscored=failed - unanswered,
        clusters=clusters,
        lowest=lowest,
        metric=score.metric,
    )


LENIENT = ".lenient"
READ_METRICS = (".lenient", ".corrected", ".reasoned", ".with_asked")
"""Parts of the names of metrics whose values the reader gives."""
ANSWER_STYLE = "answer_style"  # the name of the reason that two results were asked in two ways
NEVER_ACCEPTED = frozenset({ANSWER_STYLE, "metric", "no_pairs"})
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
"""Those that `--allow` knows; docs/compare.md says what each is."""


@dataclass(frozen=True)
class Reason:
    """One thing that makes two results not comparable."""

    name: str
    message: str


@dataclass(frozen=True)
class Side:
    """One of the results, as messages call it."""

    label: str
    stored: StoredResult
    values: InstanceValues
    metric: str = ""  # the name of the score that is compared
    # how its questions were paired with those of the first result; None: by their ids
    pairing: Pairing | None = None


def two_ways_of_asking(
    label: str, stored: StoredResult, other_label: str, other: StoredResult
) -> Iterator[Reason]:
    one = stored.extra.get("answer_style", "letter")
    two = other.extra.get("answer_style", "letter")
    if one != two:
        yield Reason(
            ANSWER_STYLE,
            f"{label} and {other_label} were asked in two ways (answer_style: {one} and {two}): "
            "their scores measure different things",
        )


def _other_readers(a: Side, b: Side) -> Iterator[Reason]:
    one = a.stored.result.provenance.reader_version
    other = b.stored.result.provenance.reader_version
    if one != other and is_read(a.values.metric or ""):
        yield Reason(
            "reader",
            f"{a.label} and {b.label} were read by different rules, versions {one} and {other}, "
            "and the answers cannot be read again; run the older one again",
        )


def reasons_against(a: Side, b: Side) -> Iterator[Reason]:
    """Every reason that speaks against comparing the two; none where they may be compared."""
    both = f"{a.label} and {b.label}"
    one = a.stored.result
    other = b.stored.result
    record = one.provenance
    others = other.provenance
    if is_imported(a.stored) or is_imported(b.stored):
        yield from _reasons_across_programs(a, b)
        return
    if one.task != other.task:
        yield Reason("task", f"{both} are of different tasks: {one.task} and {other.task}")
    if record.upstream != others.upstream:
        versions = f"{record.helm_package} {record.helm} and {others.helm_package} {others.helm}"
        why = (
            "instances, gold answers or scores of one benchmark may differ between them "
            "(docs/upstreams.md)"
        )
        yield Reason("upstream", f"{both} were made by two upstreams, {versions}: {why}")
    yield from _demo_beside_model(a, b)
    yield from two_ways_of_asking(a.label, a.stored, b.label, b.stored)
    if prompts := _other_prompts(a, b):
        yield Reason("prompts", f"{both} were asked in different words: {prompts}")
    if files := _other_data(record, others):
        yield Reason("data", f"{both} were made with different data: {files}")
    yield from _other_rules(a, b)
    yield from _other_judging(a, b)
    handled = [side.stored.extra.get("on_failure", "exclude") for side in (a, b)]
    if handled[0] != handled[1]:
        yield Reason(
            "settings",
            f"{both} count failed instances differently: on_failure {' and '.join(handled)}",
        )
    yield from _other_instances(a, b)


def _other_rules(a: Side, b: Side) -> Iterator[Reason]:
    """Yield a reason for each rule of scoring that differs: errata, the reader, HELM."""
    both = f"{a.label} and {b.label}"
    record = a.stored.result.provenance
    others = b.stored.result.provenance
    if record.errata_version != others.errata_version:
        versions = f"errata {record.errata_version} and {others.errata_version}"
        yield Reason(
            "errata", f"{both} were scored with different lists of known defects: {versions}"
        )
    yield from _other_readers(a, b)
    if record.upstream == others.upstream and record.helm != others.helm:
        yield Reason(
            "helm",
            f"{both} were scored by different versions of HELM: {record.helm} and {others.helm}",
        )


def _other_judging(a: Side, b: Side) -> Iterator[Reason]:
    """Yield a reason for each difference of judges, what they saw and what corrected them."""
    both = f"{a.label} and {b.label}"
    record = a.stored.result.provenance
    others = b.stored.result.provenance
    if judges := _other_judges(record, others):
        yield Reason(
            "judges", f"{both} were rated by different judges, or with different prompts: {judges}"
        )
    if bool(a.stored.extra.get("judges_see_images")) != bool(
        b.stored.extra.get("judges_see_images")
    ):
        yield Reason(
            "judges",
            f"{both} were rated differently: the judges of one saw the pictures "
            "(judges_see_images)",
        )
    same_passport = record.dataset_files.get(PASSPORT_FILE) == others.dataset_files.get(
        PASSPORT_FILE
    )
    if (a.values.metric or "").endswith(JUDGE_CORRECTED) and not same_passport:
        yield Reason("judges", f"{both} were corrected with different passports of their judge")
    corrected_otherwise = {
        version < CORRECTED_BY_TRUTH_SINCE
        for version in (record.statistics_version, others.statistics_version)
    }
    if (a.values.metric or "").endswith(JUDGE_CORRECTED) and len(corrected_otherwise) > 1:
        why = "physicians' labels in one, the truth behind them in the other; rescore the older one"
        yield Reason("judges", f"{both} were corrected to two different things: {why}")


def _other_instances(a: Side, b: Side) -> Iterator[Reason]:
    only_a = len(a.values.keys - b.values.keys)
    only_b = len(b.values.keys - a.values.keys)
    if only_a or only_b:
        both = f"{a.label} and {b.label}"
        counts = f"{only_a} are in {a.label} alone, {only_b} in {b.label} alone"
        yield Reason("instances", f"{both} asked different instances: {counts}")


def is_read(metric: str) -> bool:
    """Whether a metric depends on what the reader finds in answers."""
    return any(part in metric for part in READ_METRICS)


def _demo_beside_model(a: Side, b: Side) -> Iterator[Reason]:
    demos = [side.label for side in (a, b) if side.stored.result.is_demo]
    if len(demos) == 1:
        yield Reason("reportable", f"{demos[0]} is a demo, and the other result is of a model")


def _reasons_across_programs(a: Side, b: Side) -> Iterator[Reason]:
    """Reasons against comparing results of which another program made at least one.

    Tasks have other names there, and data are known by the questions that were paired.
    """
    both = f"{a.label} and {b.label}"
    if prompts := _other_prompts(a, b):
        yield Reason("prompts", f"{both} were asked in different words: {prompts}")
    yield from _other_readers(a, b)
    makers = [_maker(side) for side in (a, b)]
    if makers[0] != makers[1]:
        scored = " and ".join(
            f"{side.metric} of {maker}" for side, maker in zip((a, b), makers, strict=True)
        )
        yield Reason("program", f"{both} were scored by two programs: {scored}")
    elif a.metric != b.metric:
        yield Reason("program", f"{both} are of two scores: {a.metric} and {b.metric}")


def _maker(side: Side) -> str:
    """Return the program, with its version, that computed the score of a side.

    The reader's score is this program's in every result.
    """
    provenance = side.stored.result.provenance
    if side.metric.endswith(LENIENT):
        return "the reader"
    if provenance.imported is not None:
        return f"{provenance.imported.program} {provenance.imported.version}"
    return f"{provenance.helm_package} {provenance.helm}"


def reasons_of(side: Side) -> Iterator[Reason]:
    """What one result alone has against it."""
    validity = side.stored.result.validity
    least = side.stored.extra.get("min_coverage", 1.0)
    if validity.coverage < least:
        found = formats.percent(validity.coverage)
        needed = formats.percent(least)
        share = f"{found} of its instances have a score, {needed} are needed"
        yield Reason(
            "coverage",
            f"{side.label} covers too little: {share}; run it again, or lower min_coverage",
        )
    has_score = side.stored.result.reportable or validity.coverage < least
    reasons = [reason for reason in validity.short_reasons if reason != DEMO]
    if not has_score and not validity.not_reportable:
        reasons = ["there is no main score"]
    if reasons:
        yield Reason("reportable", f"{side.label} is not reportable: {'; '.join(reasons)}")


def _other_prompts(a: Side, b: Side) -> str | None:
    shared = a.values.prompts.keys() & b.values.prompts.keys()
    differing = sum(a.values.prompts[key] != b.values.prompts[key] for key in shared)
    if differing:
        return f"{differing} of {len(shared)} prompts differ"
    if is_imported(a.stored) or is_imported(b.stored):
        return None
    adapters = [
        (side.stored.target.get("api_endpoint") or {}).get("adapter_config") or {}
        for side in (a, b)
    ]
    own, others = (adapter.get("custom_system_prompt") or None for adapter in adapters)
    if own != others:
        return "their system prompts differ"
    hashes = {side.stored.result.provenance.prompts_sha256 for side in (a, b)}
    if len(hashes) > 1 and a.values.prompts.keys() == b.values.prompts.keys():
        return "the hashes of their prompts differ"
    return None


def _other_data(one: Provenance, other: Provenance) -> str | None:
    """By content: the same file may lie in different places. A judge's passport is none of what
    was asked.
    """
    files, others = (
        {name: digest for name, digest in record.dataset_files.items() if name != PASSPORT_FILE}
        for record in (one, other)
    )
    if sorted(files.values()) == sorted(others.values()):
        return None
    return formats.first_of(sorted({name for name, _ in files.items() ^ others.items()}), 3) or None


def _other_judges(one: Provenance, other: Provenance) -> str | None:
    own, others = (
        {
            role: (asked.model, asked.main_model, asked.prompt_sha256)
            for role, asked in record.endpoints.items()
        }
        for record in (one, other)
    )
    judges = sorted((own.keys() | others.keys()) - {MODEL_ROLE})
    return (
        formats.first_of([name for name in judges if own.get(name) != others.get(name)], 3) or None
    )
