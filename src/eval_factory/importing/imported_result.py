"""Turns the run of another program into an ordinary result.

The values are those of the other program. This module adds what eval-factory can compute from the
samples: intervals, the best score without a model, groups, and notes.
"""

from __future__ import annotations

import hashlib
import json
import math
import platform
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace

from eval_factory import __version__
from eval_factory.core import formats
from eval_factory.core.enums import MODEL_ROLE, RunStatus
from eval_factory.core.results import (
    FailureCause,
    ImportedFrom,
    InstanceRecord,
    Provenance,
    Score,
    Spent,
    SpentByRole,
    Stats,
    TaskResult,
    Usage,
    Validity,
    program_with_version,
)
from eval_factory.core.secrets import Redactor
from eval_factory.importing.counting import (
    READER_METRIC,
    SPLIT,
    SampleCounts,
    SampleKey,
    key_of,
    question_means,
)
from eval_factory.importing.data_age import UNKNOWN_AGE, DataAge
from eval_factory.importing.foreign_run import ForeignRun, ForeignSample, ReportedValue
from eval_factory.importing.sources import SourceError
from eval_factory.reading import VERSION
from eval_factory.scoring.groups import Groups, scores_by_group
from eval_factory.scoring.intervals import PROPORTION, describe
from eval_factory.scoring.run_notes import note_on_cutoff
from eval_factory.scoring.scores import MetricValues
from eval_factory.tasks.errata import load_errata

_TOLERANCE = 1e-6
"""The largest difference between a reported value and the mean of its samples that counts as equal.
Programs round values, and add them in another order.
"""


def result_of(run: ForeignRun, redactor: Redactor, min_coverage: float, age: DataAge) -> TaskResult:
    """Return the result of another program's run.

    Args:
        run: the run of the other program.
        redactor: removes secrets from all texts.
        min_coverage: the share of answers that must have a value of the main metric. With a smaller
            share, the result must not be reported.
        age: the age of the data.

    Raises:
        SourceError: a sample occurs twice or cannot be read.
    """
    if age.published is None:
        run = replace(run, unknown=(*run.unknown, UNKNOWN_AGE))
    counts = _count_samples(run)
    notes = list(run.notes)
    scores, bounds = _scores_and_bounds(run, counts, notes)
    groups = _groups(run, counts)
    floor = counts.floor()
    instances = counts.instances()
    reasons = _not_reportable(run, scores, instances.requested)
    if instances.requested and instances.coverage < min_coverage:
        reasons.append(
            f"{instances.scored} of {instances.requested} answers have a value of "
            f"{run.main_metric}\n  --min_coverage accepts fewer"
        )
    notes += _note_texts(run, counts)
    notes += [note.text for note in groups.notes()]
    provenance = _provenance(run, counts, scores, age)
    notes += [note.text for note in note_on_cutoff(provenance, "--training_cutoff")]
    records = ImportedInstances(run, redactor, counts.signs, counts.read_values)
    return TaskResult(
        task=run.task,
        main_metric=run.main_metric,
        scores=scores,
        groups=groups.scores,
        validity=Validity(
            instances,
            {},
            bounds,
            None,
            tuple(redactor.text(note) for note in notes),
            failures=_failures(counts, redactor),
            main_split=SPLIT,
            splits={SPLIT: counts.requested} if counts.requested else {},
            not_reportable=tuple(redactor.text(reason) for reason in reasons),
            floors={} if floor is None else {run.main_metric: floor},
        ),
        usage=_usage(run, counts),
        provenance=provenance,
        instances=records,
        reportable=not reasons,
        status=RunStatus.COMPLETE if run.finished else RunStatus.PARTIAL,
        something_to_ask=False,
    )


def _count_samples(run: ForeignRun) -> SampleCounts:
    """Return the counts of all samples. Raises SourceError if a sample occurs twice."""
    counts = SampleCounts(run.main_metric)
    if run.samples is None:
        return counts
    for sample in run.samples():
        problem = counts.add(sample)
        if problem is not None:
            raise SourceError(f"{', '.join(run.files)}: {problem}")
    return counts


def _scores_and_bounds(
    run: ForeignRun, counts: SampleCounts, notes: list[str]
) -> tuple[dict[str, Score], dict[str, tuple[float, float]]]:
    """Return the scores by name, and the bounds of the scores.

    The scores include `READER_METRIC`, which counts the options that our reader of answers finds,
    if the source has no such score. Notes about the scores are appended to `notes`.
    """
    scores: dict[str, Score] = {}
    bounds = {}
    for name, reported in run.reported.items():
        scores[name] = _score(name, reported, counts, notes)
        limits = _bounds(scores[name], counts, name)
        if limits is not None:
            bounds[name] = limits
    if counts.read_values and READER_METRIC not in scores:
        means = question_means(counts.read_values)
        stats = describe(list(means.values()), None, PROPORTION, _clusters(counts, means))
        scores[READER_METRIC] = Score(
            stats.mean, stats, READER_METRIC, SPLIT, None, True, PROPORTION, "share"
        )
    return scores, bounds


def _score(name: str, reported: ReportedValue, counts: SampleCounts, notes: list[str]) -> Score:
    """Return the reported value as a score.

    The score has an interval if the reported value is the mean of the samples' values. Otherwise a
    note is appended to `notes`.
    """
    values = counts.values.get(name, {})
    better = reported.higher_is_better
    plain = Stats.without_interval(len(values), reported.value, stderr=reported.stderr)
    if not values:
        return Score(reported.value, plain, name, SPLIT, None, better, None, None)
    means = question_means(values)
    scale = None
    if all(0 <= value <= 1 for value in values.values()):
        scale = PROPORTION
    question_mean = math.fsum(means.values()) / len(means)
    answer_mean = math.fsum(values.values()) / len(values)
    # With repeats, a program may average the means of the questions, or all answers.
    if not any(_is_equal(reported.value, mean) for mean in (question_mean, answer_mean)):
        notes.append(
            f"{name}: the reported {reported.value:g} is not the mean of its samples' values, "
            f"{question_mean:g}, so it has no interval."
        )
        return Score(reported.value, plain, name, SPLIT, None, better, scale, None)
    # A metric from 0 to 1 without a stated direction is taken as better if it is higher.
    if better is None and scale is not None:
        better = True
    stats = describe(list(means.values()), reported.value, scale, _clusters(counts, means))
    return Score(
        reported.value, stats, name, SPLIT, None, better, scale, "share" if scale else None
    )


def _is_equal(reported: float, mean: float) -> bool:
    """Return True if a reported value and a mean differ by no more than rounding."""
    return math.isclose(reported, mean, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _clusters(counts: SampleCounts, means: Mapping[str, float]) -> list[str] | None:
    """Return the cluster of each question in `means`; None if the source has no clusters."""
    if not counts.clusters:
        return None
    return [counts.clusters.get(question, question) for question in means]


def _bounds(score: Score, counts: SampleCounts, name: str) -> tuple[float, float] | None:
    """Return the lowest and the highest value that the score could have without missing values.

    The lowest value results if every missing value is 0, the highest if every missing value is 1.
    Returns None if the metric has no values of samples, or if its scale is not known.
    """
    values = counts.values.get(name, {})
    if score.scale is None or not values:
        return None
    missing = counts.requested - len(values)
    if not missing:
        return score.value, score.value
    total = math.fsum(values.values())
    return total / counts.requested, (total + missing) / counts.requested


def _groups(run: ForeignRun, counts: SampleCounts) -> Groups:
    """Return the main metric's scores by the categories of the samples."""
    values = counts.values.get(run.main_metric)
    if not values:
        return Groups()
    metric = MetricValues(run.main_metric, run.main_metric, None, None, values, SPLIT)
    metric.clusters = counts.clusters or None
    return scores_by_group(metric, counts.members, set(counts.failed), failed_as_zero=False)


def _not_reportable(run: ForeignRun, scores: Mapping[str, Score], answers: int) -> list[str]:
    """Return the reasons why the result must not be reported, each with advice on further lines.

    `answers` is the number of samples.
    """
    reasons = []
    stated = run.stated_samples
    if answers and stated is not None and answers < stated:
        reasons.append(
            f"the source has {answers} of {stated} answers\n  import the complete source"
        )
    if not answers:
        reasons.append(
            "the source has no answers, so that the value cannot be checked\n  "
            "import a source that has the answers to single questions"
        )
    if not run.finished:
        reasons.append(
            f"{run.program} did not finish: {run.why_unfinished}\n"
            "  finish the run with that program, then import it"
        )
    if run.main_metric not in scores:
        reasons.append(f"{run.program} reported no value of {run.main_metric}")
    return reasons


def _note_texts(run: ForeignRun, counts: SampleCounts) -> Iterator[str]:
    """Yield the notes about the run: its origin, unknown facts, and gaps in its samples."""
    yield (
        f"The answers and values are those of {program_with_version(run.program, run.version)}; "
        "eval-factory asked and scored nothing again."
    )
    if run.unknown:
        yield f"Unknown facts about this run: {', '.join(run.unknown)}."
    stated = []
    for name, reported in run.reported.items():
        if reported.stderr is not None:
            stated.append(f"{reported.stderr:.4g} of {name}")
    if stated:
        yield f"{run.program} states a standard error of {formats.first_of(stated, 5)}."
    without_samples = [name for name in run.reported if name not in counts.values]
    if without_samples and counts.requested:
        shown = formats.first_of(without_samples, 3)
        yield f"No single question has a value of {shown}; these scores have no interval."
    if counts.unread:
        yield (
            f"{counts.unread} of {counts.readable} answers state no option that can be read; "
            f"{READER_METRIC} counts them as wrong."
        )
    if counts.duplicates:
        yield f"{counts.duplicates} questions have the same prompt as another question."
    if counts.without_value:
        yield f"{counts.without_value} answers have no value of {run.main_metric}."


def _failures(counts: SampleCounts, redactor: Redactor) -> tuple[FailureCause, ...]:
    """Return the most frequent errors of the samples, redacted."""
    return tuple(
        replace(failure, cause=redactor.text(failure.cause)) for failure in counts.failures()
    )


def _usage(run: ForeignRun, counts: SampleCounts) -> Usage:
    """Return the requests and tokens of the other program."""
    # A sum of 0 means that no sample states its tokens, so the number is not known (None).
    prompt = run.prompt_tokens or counts.prompt_tokens or None
    completion = run.completion_tokens or counts.completion_tokens or None
    answered = counts.requested - len(counts.failed)
    spent = Spent(
        requests=answered,
        cached=0,
        retries=0,
        prompt_tokens=prompt,
        completion_tokens=completion,
        latency_p50_s=None,
        latency_p95_s=None,
    )
    by_role = SpentByRole(spent, {MODEL_ROLE: spent})
    # One run, which took 0 seconds here: eval-factory has sent no request.
    return Usage(by_role, by_role, 1, 0.0, "the program that asked did not record the cost")


def _provenance(
    run: ForeignRun, counts: SampleCounts, scores: Mapping[str, Score], age: DataAge
) -> Provenance:
    """Return the provenance: the other program, its files, and the scores that were added."""
    added = tuple(name for name in scores if name not in run.reported)
    identity = json.dumps([run.program, run.task, run.model, dict(run.files)], sort_keys=True)
    return Provenance(
        eval_factory=__version__,
        helm=None,
        python=platform.python_version(),
        packages={},
        dataset_files={},
        prompts_sha256=counts.prompts_sha256(),
        run_identity=hashlib.sha256(identity.encode()).hexdigest()[:32],
        errata_version=load_errata().version,
        reader_version=VERSION,
        git_hash=None,
        target=run.model,
        started_at=run.started_at,
        ended_at=run.ended_at,
        published=age.published,
        answers_public=age.answers_public,
        training_cutoff=age.training_cutoff,
        imported=ImportedFrom(run.program, run.version, dict(run.files), run.unknown, added),
    )


@dataclass(frozen=True)
class ImportedInstances:
    """The instances of another program's run.

    Each iteration reads the samples from the source again. Signs and values of the reader were
    computed before and are stored here.
    """

    run: ForeignRun
    redactor: Redactor
    signs: Mapping[SampleKey, tuple[str, ...]]
    read_values: Mapping[SampleKey, float]  # 1 if the reader finds a right option, else 0

    def __iter__(self) -> Iterator[InstanceRecord]:
        if self.run.samples is None:
            return
        for sample in self.run.samples():
            key = key_of(sample)
            signs = self.signs.get(key, ())
            yield _instance_record(sample, signs, self.read_values.get(key), self.redactor)


def _instance_record(
    sample: ForeignSample, signs: tuple[str, ...], read_value: float | None, redactor: Redactor
) -> InstanceRecord:
    """Return a sample as an instance, with redacted texts.

    Args:
        sample: one answer, as the other program stored it.
        signs: the signs of the answer.
        read_value: 1 if the reader finds a right option in the answer, 0 if not; None if the sample
            has no options.
        redactor: removes secrets from all texts.
    """
    metrics = dict(sample.values)
    if read_value is not None:
        metrics.setdefault(READER_METRIC, read_value)
    clean = redactor.tree
    return InstanceRecord(
        id=redactor.text(sample.id),
        split=SPLIT,
        sub_split=None,
        trial=sample.repeat,
        perturbation=None,
        prompt=redactor.text(sample.prompt),
        references=tuple(clean(list(sample.references))),
        categories=clean(dict(sample.categories)),
        completion=None if sample.completion is None else redactor.text(sample.completion),
        metrics=metrics,
        finish_reason=sample.finish_reason,
        prompt_tokens=sample.prompt_tokens,
        completion_tokens=sample.completion_tokens,
        latency_s=sample.latency_s,
        cached=False,
        error=None if sample.error is None else redactor.text(sample.error),
        judges={},
        unjudged=False,
        injection=(),
        signs=signs,
        cluster=sample.cluster,
        turns=tuple(clean(list(sample.turns))),
        reasoning=None if sample.reasoning is None else redactor.text(sample.reasoning),
        judgements=clean(dict(sample.judgements)),
        question=None if sample.question is None else redactor.text(sample.question),
    )
