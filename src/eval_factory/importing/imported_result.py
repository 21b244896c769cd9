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
    question_means,
    reader_score,
    sample_key_of,
)
from eval_factory.importing.data_age import UNKNOWN_AGE, DataAge
from eval_factory.importing.foreign_run import ForeignRun, ForeignSample, ReportedValue
from eval_factory.importing.sources import SourceError
from eval_factory.reading import READER_VERSION
from eval_factory.scoring.groups import Groups, scores_by_group
from eval_factory.scoring.intervals import PROPORTION, describe
from eval_factory.scoring.run_notes import note_on_cutoff
from eval_factory.scoring.scores import MetricValues
from eval_factory.tasks.errata import load_errata

_TOLERANCE = 1e-6
"""A reported value and the mean of its samples may differ by this, relatively or absolutely.
Programs round values, and add values in another order.
"""

IDENTITY_DIGITS = 32  # the number of hexadecimal digits in the run identity of an imported result


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
    floor = counts.floor()  # the best score without a model
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
    records = ImportedInstances(run, redactor, counts.signs, counts.reader_values)
    return TaskResult(
        task=run.task,
        main_metric=run.main_metric,
        scores=scores,
        groups=groups.scores,
        validity=Validity(
            instances,
            judges={},
            bounds=bounds,
            jury=None,
            notes=tuple(redactor.redact_text(note) for note in notes),
            failures=_failures(counts, redactor),
            main_split=SPLIT,
            splits={SPLIT: counts.requested} if counts.requested else {},
            not_reportable=tuple(redactor.redact_text(reason) for reason in reasons),
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
    """Return the scores by name, and the bounds (lowest, highest) by the name of the score.

    If the source has no score `READER_METRIC`, this score is added. It is computed by our reader
    (`reading/`), which finds the option that an answer states. Notes about the scores are appended
    to `notes`.
    """
    scores: dict[str, Score] = {}
    bounds = {}
    for name, reported in run.reported.items():
        scores[name] = _score(name, reported, counts, notes)
        bounds_of_score = _bounds(scores[name], counts)
        if bounds_of_score is not None:
            bounds[name] = bounds_of_score
    if counts.reader_values and READER_METRIC not in scores:
        means = question_means(counts.reader_values)
        scores[READER_METRIC] = reader_score(means, _clusters(counts, means))
    return scores, bounds


def _score(name: str, reported: ReportedValue, counts: SampleCounts, notes: list[str]) -> Score:
    """Return the reported value as a score.

    The score has an interval if the reported value is the mean of the samples' values. If it is
    not, a note is appended to `notes`.
    """
    values = counts.values.get(name, {})
    score = Score(
        reported.value,
        Stats.without_interval(len(values), reported.value, stderr=reported.stderr),
        name,
        SPLIT,
        higher_is_better=reported.higher_is_better,
    )
    if not values:
        return score
    if all(0 <= value <= 1 for value in values.values()):
        score = replace(score, scale=PROPORTION)
    means = question_means(values)
    question_mean = math.fsum(means.values()) / len(means)
    answer_mean = math.fsum(values.values()) / len(values)
    # With repeats, a program may average the means of the questions, or all answers.
    if not any(_is_equal(reported.value, mean) for mean in (question_mean, answer_mean)):
        notes.append(
            f"{name}: the reported {reported.value:g} is not the mean of its samples' values, "
            f"{question_mean:g}, so it has no interval."
        )
        return score
    stats = describe(
        list(means.values()), reported.value, score.scale, clusters=_clusters(counts, means)
    )
    score = replace(score, stats=stats, unit="share" if score.scale else None)
    if score.scale is not None and score.higher_is_better is None:
        # Of a metric from 0 to 1 without a stated direction, a higher value is taken as better.
        score = replace(score, higher_is_better=True)
    return score


def _is_equal(reported: float, mean: float) -> bool:
    """Return True if a reported value and a mean differ by no more than rounding."""
    return math.isclose(reported, mean, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE)


def _clusters(counts: SampleCounts, means: Mapping[str, float]) -> list[str] | None:
    """Return the cluster of each question in `means`; None if the source has no clusters."""
    if not counts.clusters:
        return None
    # A question without a cluster is a cluster of its own.
    return [counts.clusters.get(question, question) for question in means]


def _bounds(score: Score, counts: SampleCounts) -> tuple[float, float] | None:
    """Return the bounds of a score: its values if all missing values are 0, and if all are 1.

    Returns None if no sample has a value of the metric, or if the scale of the metric is not known.
    """
    values = counts.values.get(score.metric, {})
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
    metric = MetricValues(
        label=run.main_metric,
        name=run.main_metric,
        helm_mean=None,
        values=values,
        split=SPLIT,
        clusters=counts.clusters or None,  # None: the source has no clusters
    )
    return scores_by_group(metric, counts.members, set(counts.failed), failed_as_zero=False)


def _not_reportable(run: ForeignRun, scores: Mapping[str, Score], sample_count: int) -> list[str]:
    """Return the reasons why the result must not be reported; a reason may have lines of advice.

    `sample_count`: the number of samples that the source has.
    """
    reasons = []
    stated = run.stated_samples
    if sample_count and stated is not None and sample_count < stated:
        reasons.append(
            f"the source has {sample_count} of {stated} answers\n  import the complete source"
        )
    if not sample_count:
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
    stderrs = []
    for name, reported in run.reported.items():
        if reported.stderr is not None:
            stderrs.append(f"{reported.stderr:.4g} of {name}")
    if stderrs:
        yield f"{run.program} states a standard error of {formats.first_of(stderrs, limit=5)}."
    without_samples = [name for name in run.reported if name not in counts.values]
    if without_samples and counts.requested:
        shown = formats.first_of(without_samples, limit=3)
        yield f"No single question has a value of {shown}; these scores have no interval."
    if counts.comparable_without_option:
        yield (
            f"{counts.comparable_without_option} of {counts.comparable} answers state no option "
            f"that can be read; {READER_METRIC} counts them as wrong."
        )
    if counts.duplicates:
        yield f"{counts.duplicates} questions have the same prompt as another question."
    if counts.without_value:
        yield f"{counts.without_value} answers have no value of {run.main_metric}."


def _failures(counts: SampleCounts, redactor: Redactor) -> tuple[FailureCause, ...]:
    """Return the most frequent errors of the samples, redacted."""
    return tuple(
        replace(failure, cause=redactor.redact_text(failure.cause)) for failure in counts.failures()
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
    return Usage(
        this_run=by_role,
        all_runs=by_role,
        runs=1,
        wall_s=0.0,  # eval-factory has sent no request
        cost_unknown="the program that asked did not record the cost",
    )


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
        run_identity=hashlib.sha256(identity.encode()).hexdigest()[:IDENTITY_DIGITS],
        errata_version=load_errata().version,
        reader_version=READER_VERSION,
        git_hash=None,
        target=run.model,
        started_at=run.started_at,
        ended_at=run.ended_at,
        published=age.published,
        answers_public=age.answers_public,
        training_cutoff=age.training_cutoff,
        imported=ImportedFrom(
            run.program, run.version, files=dict(run.files), unknown=run.unknown, added=added
        ),
    )


@dataclass(frozen=True)
class ImportedInstances:
    """The instances of another program's run.

    Each iteration reads the samples from the source again. The signs, and the values of
    `READER_METRIC`, were computed when the samples were counted.
    """

    run: ForeignRun
    redactor: Redactor
    signs: Mapping[SampleKey, tuple[str, ...]]
    reader_values: Mapping[SampleKey, float]  # see `SampleCounts.reader_values`

    def __iter__(self) -> Iterator[InstanceRecord]:
        if self.run.samples is None:
            return
        for sample in self.run.samples():
            key = sample_key_of(sample)
            signs = self.signs.get(key, ())
            yield _instance_record(sample, signs, self.reader_values.get(key), self.redactor)


def _instance_record(
    sample: ForeignSample, signs: tuple[str, ...], reader_value: float | None, redactor: Redactor
) -> InstanceRecord:
    """Return a sample as an instance, with redacted texts.

    Args:
        sample: one answer, as the other program stored it.
        signs: the signs of the answer.
        reader_value: the value of `READER_METRIC`; None if there is none.
        redactor: removes secrets from all texts.
    """
    metrics = dict(sample.values)
    if reader_value is not None:
        # A source that is an export of eval-factory may have its own value of this metric.
        metrics.setdefault(READER_METRIC, reader_value)
    redacted = redactor.redact_tree  # redacts the texts at all levels of a value
    return InstanceRecord(
        id=redactor.redact_text(sample.id),
        split=SPLIT,
        sub_split=None,
        trial=sample.repeat,
        perturbation=None,
        prompt=redactor.redact_text(sample.prompt),
        references=tuple(redacted(list(sample.references))),
        categories=redacted(dict(sample.categories)),
        completion=None if sample.completion is None else redactor.redact_text(sample.completion),
        metrics=metrics,
        finish_reason=sample.finish_reason,
        prompt_tokens=sample.prompt_tokens,
        completion_tokens=sample.completion_tokens,
        latency_s=sample.latency_s,
        cached=False,
        error=None if sample.error is None else redactor.redact_text(sample.error),
        judges={},
        unjudged=False,
        injection=(),
        signs=signs,
        cluster=sample.cluster,
        turns=tuple(redacted(list(sample.turns))),
        reasoning=None if sample.reasoning is None else redactor.redact_text(sample.reasoning),
        judgements=redacted(dict(sample.judgements)),
        question=None if sample.question is None else redactor.redact_text(sample.question),
    )
