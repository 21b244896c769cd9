"""Adds scores to an imported result: the score of the reader, and the scores of judges.

The reader (`reading/`) finds the option that an answer states. The values that the source of the
import states are not changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from eval_factory.core.results import (
    MODEL_ROLE,
    InstanceRecord,
    Provenance,
    Score,
    Spent,
    SpentByRole,
    TaskResult,
    Usage,
    Validity,
)
from eval_factory.core.rundir import RunDir, sha256_of
from eval_factory.importing.counting import (
    READER_METRIC,
    SampleKey,
    options_by_letter,
    question_means,
    reader_score,
)
from eval_factory.importing.foreign_run import MAX_OPTIONS
from eval_factory.importing.imported_folder import DEFAULT_MIN_COVERAGE
from eval_factory.importing.imported_result import IDENTITY_DIGITS
from eval_factory.reading import READER_VERSION, stated_option
from eval_factory.report.reader import StoredResult
from eval_factory.scoring.reportable import why_not_reportable
from eval_factory.tasks.choice_question import options_shown


@dataclass(frozen=True)
class ChangedInstances:
    """The instances of a result. Each iteration applies the function `change` to every instance."""

    instances: Iterable[InstanceRecord]
    # takes the number of an instance as text, from "1", and the instance; returns the changed
    # instance
    change: Callable[[str, InstanceRecord], InstanceRecord]

    def __iter__(self) -> Iterator[InstanceRecord]:
        for number, record in enumerate(self.instances, start=1):
            yield self.change(str(number), record)


def _references_are_options(record: InstanceRecord) -> bool:
    """Return True if the references are options of the question.

    If all references are correct, they are accepted answers, not options.
    """
    if not 1 < len(record.references) <= MAX_OPTIONS:
        return False
    return any("correct" not in (reference.get("tags") or ()) for reference in record.references)


def options_of(record: InstanceRecord) -> dict[str, str]:
    """Return the options of a question by their letters.

    The options are the references of the instance, or else the options that its prompt lists.
    """
    if _references_are_options(record):
        return options_by_letter(str(reference.get("text")) for reference in record.references)
    return options_shown(record.prompt)


def _right_letters(record: InstanceRecord, options: Mapping[str, str]) -> set[str]:
    """Return the letters of the right options.

    A reference is an option itself, or the letter or the text of an option. `options` is a dict
    from letter to option.
    """
    right_letters = set()
    for index, reference in enumerate(record.references):
        if "correct" not in (reference.get("tags") or ()):
            continue
        text = str(reference.get("text")).strip()
        possible_letter = text.strip("().").upper()
        if _references_are_options(record):
            right_letters.add(chr(ord("A") + index))
        elif possible_letter in options:
            right_letters.add(possible_letter)
        else:
            right_letters |= {letter for letter, option in options.items() if option == text}
    return right_letters


def reader_value(record: InstanceRecord) -> float | None:
    """Return the reader's value of an answer: 1 if it states a right option, else 0.

    Returns None if there is no answer, or if the options or the right option are not known.
    """
    if record.completion is None or record.error is not None:
        return None
    options = options_of(record)
    right_letters = _right_letters(record, options)
    if len(options) < 2 or not right_letters:
        return None
    # The value is 0 if the answer states no option: `stated_option` then returns None.
    return float(stated_option(record.completion, options) in right_letters)


def with_reader_score(result: TaskResult) -> TaskResult | None:
    """Return the result with the score of the current reader.

    A score that an older version of the reader added is replaced.

    Returns None in each of these cases:
    - The source itself has this score, or the current reader has added the score already.
    - There are no answers, or the options or the right option of an answer are not known.
    """
    imported = result.provenance.imported
    is_added_score = imported is not None and READER_METRIC in imported.added
    is_outdated = is_added_score and result.provenance.reader_version != READER_VERSION
    if READER_METRIC in result.scores and not is_outdated:
        return None
    values: dict[SampleKey, float] = {}
    clusters: dict[str, str] = {}
    for record in result.instances:
        value = reader_value(record)
        if value is not None:
            values[record.id, record.trial, None] = value  # None: not perturbed
            clusters[record.id] = record.cluster or record.id
        elif record.completion is not None and record.error is None:
            return None  # this answer has no value: a score of the other answers would mislead
    if not values:
        return None
    means = question_means(values)
    cluster_of_each = [clusters[question] for question in means]
    # If no two questions share a cluster, the source has no clusters.
    are_clustered = len(set(cluster_of_each)) < len(cluster_of_each)
    score = reader_score(means, cluster_of_each if are_clustered else None)

    def with_value(_number: str, record: InstanceRecord) -> InstanceRecord:
        """Return an instance with the reader's value."""
        value = values.get((record.id, record.trial, None))
        if value is None:
            return record
        return replace(record, metrics={**record.metrics, READER_METRIC: value})

    provenance = _with_added_names(result.provenance, (READER_METRIC,))
    return replace(
        _with_scores(result, {READER_METRIC: score}),
        instances=ChangedInstances(result.instances, with_value),
        provenance=replace(provenance, reader_version=READER_VERSION),
    )


def _with_scores(result: TaskResult, scores: Mapping[str, Score]) -> TaskResult:
    """Return the result with further scores."""
    return replace(result, scores={**result.scores, **scores})


def _with_added_names(provenance: Provenance, names: Iterable[str]) -> Provenance:
    """Return the provenance with further names of scores that eval-factory added."""
    imported = provenance.imported
    if imported is None:
        return provenance
    added = tuple(dict.fromkeys((*imported.added, *names)))
    return replace(provenance, imported=replace(imported, added=added))


def with_judged_scores(result: TaskResult, judged: StoredResult, rundir: RunDir) -> TaskResult:
    """Return the result with the scores of judges, who rated the answers in a separate run.

    Args:
        result: the result that gets the scores.
        judged: the run in which judges rated the same answers.
        rundir: the output folder of the new result; the folder of `judged` is inside.
    """
    judged_result = judged.result
    new_scores = {
        name: score for name, score in judged_result.scores.items() if name not in result.scores
    }
    provenance = _with_added_names(result.provenance, new_scores)
    identity = f"{provenance.run_identity} {judged_result.provenance.run_identity}"
    endpoints = dict(provenance.endpoints)
    for role, endpoint in judged_result.provenance.endpoints.items():
        if role != MODEL_ROLE:
            endpoints[role] = endpoint
    return replace(
        _with_scores(result, new_scores),
        validity=_validity(result, judged, new_scores),
        usage=_usage(result.usage, judged_result.usage),
        instances=_judged_instances(result, judged_result, new_scores),
        reportable=result.reportable and judged_result.reportable,
        provenance=replace(
            provenance,
            run_identity=hashlib.sha256(identity.encode()).hexdigest()[:IDENTITY_DIGITS],
            endpoints=endpoints,
            run_files=_files_of(judged.folder, rundir),
        ),
    )


def _files_of(folder: Path, rundir: RunDir) -> dict[str, str]:
    """Return a dict from path to SHA-256 of the files in `folder` that have the judges' scores.

    The paths are relative to the folder `rundir`.
    """
    judged = RunDir(folder)
    digests = {}
    for path in (judged.evaluation_config, judged.instances, judged.results_jsonl):
        digests[path.relative_to(rundir.root).as_posix()] = sha256_of(path)
    return digests


def _validity(
    result: TaskResult, judged: StoredResult, new_scores: Mapping[str, Score]
) -> Validity:
    """Return the validity of a result together with the validity of the judges' run."""
    before = result.validity
    judging = judged.result.validity
    reasons = list(before.not_reportable)
    for reason in judging.not_reportable:
        reasons.append(f"of the judges: {reason}")
    reason_of_run = why_not_reportable(
        judged.result, judged.extra.get("min_coverage", DEFAULT_MIN_COVERAGE)
    )
    # Low coverage and a missing main score are not stored in `not_reportable`. If no reason is
    # stored, `reason_of_run` is one of these two.
    if reason_of_run is not None and not judging.not_reportable:
        first_line = reason_of_run.partition("\n")[0]
        reasons.append(f"of the judges: {first_line.removeprefix('NOT REPORTABLE: ')}")
    notes = [*before.notes, *(f"Of the judges: {note}" for note in judging.notes)]
    taken_names = judged.result.scores.keys() - new_scores.keys()
    if taken_names:
        notes.append(
            "The source already has scores with these names, so that the scores of the judges' run "
            f"were not added: {', '.join(sorted(taken_names))}."
        )
    bounds = dict(before.bounds)
    floors = dict(before.floors)
    for name in new_scores:
        if name in judging.bounds:
            bounds[name] = judging.bounds[name]
        if name in judging.floors:
            floors[name] = judging.floors[name]
    return replace(
        before,
        instances=replace(before.instances, unjudged=judging.instances.unjudged),
        judges=judging.judges,
        bounds=bounds,
        floors=floors,
        jury=judging.jury,
        rubric=judging.rubric,
        judge_probe=judging.judge_probe,
        notes=tuple(notes),
        failures=(*before.failures, *judging.failures),
        not_reportable=tuple(reasons),
    )


def _usage(before: Usage, judging: Usage) -> Usage:
    """Return the usage of the source together with the usage of the judges."""
    return replace(
        judging,
        this_run=_combined_spent(before.this_run, judging.this_run),
        all_runs=_combined_spent(before.all_runs, judging.all_runs),
        cost_unknown=before.cost_unknown,
    )


def _combined_spent(before: SpentByRole, judging: SpentByRole) -> SpentByRole:
    """Return the figures of the model from the source, those of the judges, and their total."""
    roles = {**judging.roles, MODEL_ROLE: before.roles[MODEL_ROLE]}
    all_spent = list(roles.values())
    total = Spent(
        requests=sum(spent.requests for spent in all_spent),
        cached=sum(spent.cached for spent in all_spent),
        retries=sum(spent.retries for spent in all_spent),
        prompt_tokens=_sum_of_known([spent.prompt_tokens for spent in all_spent]),
        completion_tokens=_sum_of_known([spent.completion_tokens for spent in all_spent]),
        # not known: percentiles of all requests do not follow from the percentiles of the roles
        latency_p50_s=None,
        latency_p95_s=None,
    )
    return SpentByRole(total, roles)


def _sum_of_known(counts: Iterable[int | None]) -> int | None:
    """Return the sum of the known counts; None if no count is known."""
    numbers = [count for count in counts if count is not None]
    if not numbers:
        return None
    return sum(numbers)


def _judged_instances(
    result: TaskResult, judged_result: TaskResult, new_scores: Mapping[str, Score]
) -> ChangedInstances:
    """Return the instances with the judges' marks and explanations, and the values of new scores.

    The id of an instance in the judges' run is the number of the instance in the result, from 1.
    """
    by_number = {record.id: record for record in judged_result.instances}

    def with_judgements(number: str, record: InstanceRecord) -> InstanceRecord:
        """Return an instance with the judgements of the answer with this number."""
        rated = by_number.get(number)
        if rated is None:
            return record
        metrics = {name: value for name, value in rated.metrics.items() if name in new_scores}
        return replace(
            record,
            metrics={**record.metrics, **metrics},
            judges=rated.judges,
            unjudged=rated.unjudged,
            injection=rated.injection,
            criteria=rated.criteria,
            judgements={**record.judgements, **_renamed_judgements(rated, record)},
        )

    return ChangedInstances(result.instances, with_judgements)


def _renamed_judgements(
    rated: InstanceRecord, record: InstanceRecord
) -> dict[str, Mapping[str, object]]:
    """Return the judgements in `rated` by judge.

    A judge with the same name as a scorer of the source is renamed to `NAME (rescored)`.
    """
    judgements = {}
    for judge, judgement in rated.judgements.items():
        name = judge
        if judge in record.judgements:
            name = f"{judge} (rescored)"
        judgements[name] = judgement
    return judgements


def with_added_scores(
    result: TaskResult, folder: Path, rundir: RunDir, judged: StoredResult | None
) -> TaskResult:
    """Return an imported result with the score of the reader, if known, and the judges' scores.

    Args:
        result: the imported result.
        folder: the output folder of the imported result.
        rundir: the output folder of the new result.
        judged: the run in which judges rated the answers; None if there was no such run.
    """
    provenance = result.provenance
    if provenance.imported is not None:
        imported = replace(provenance.imported, rescored_folder=str(folder.absolute()))
        provenance = replace(provenance, imported=imported, rescored_from=provenance.run_identity)
    result = replace(result, provenance=provenance)
    result = with_reader_score(result) or result  # None: nothing to add
    if judged is not None:
        result = with_judged_scores(result, judged, rundir)
    return result
