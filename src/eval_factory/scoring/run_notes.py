"""Writes the notes on a run's model, answers, judges, metrics and data."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from itertools import chain
from pathlib import Path

from eval_factory.core import formats
from eval_factory.core.results import Provenance, Score
from eval_factory.endpoint import openai_answers
from eval_factory.endpoint.response_cache import read_origin
from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.part import Part
from eval_factory.tasks.custom_table import note_on_quasi
from eval_factory.tasks.errata import CORRECTED_SUFFIX
from eval_factory.tasks.framework import About
from eval_factory.tasks.picture_metrics import metrics_of
from eval_factory.tasks.run_specs import NOT_CONFINED as NOT_CONFINED_RUN_SPECS
from eval_factory.tasks.run_specs import languages_executed

MAX_REASONS = 5  # the number of unknown finish reasons that get a note


class NotesOnRun(Part):
    """The part of a result that adds notes on requests, answers and data."""

    def note(self, draft: Draft) -> None:
        """Add the notes."""
        draft.notes.extend(notes_of(draft))
        draft.notes.extend(notes_on_data(draft.plan, draft.earlier_notes))


class NotesOnLabels(Part):
    """The part of a result that adds a note if the score reaches the limit set by wrong labels."""

    def weigh(self, draft: Draft) -> None:
        """Add the note."""
        about = draft.plan.evaluation.task.about
        draft.notes.extend(notes_on_labels(draft.main, draft.scores, about))


def notes_of(draft: Draft) -> list[Note]:
    """Return the notes on the requests and answers of a run."""
    number_of_instances = sum(len(ids) for ids in draft.tally.splits.values())
    groups_of_notes = (
        _notes_on_target(draft),
        _notes_on_answers(draft),
        _notes_on_scores(draft),
        draft.tally.repeated.notes(number_of_instances),
    )
    return list(chain.from_iterable(groups_of_notes))


def _notes_on_target(draft: Draft) -> Iterator[Note]:
    """Yield notes on who answered, and on which instances were asked."""
    plan = draft.plan
    tally = draft.tally
    if plan.asks_demo:
        text = (
            "the target was the embedded demo baseline, not a model: these scores measure nothing"
        )
        yield Note(Importance.NO_RESULT, text)
    if plan.has_answers:
        text = (
            "no model was asked: the answers are in the data, "
            "and target.api_endpoint.model_id only names them"
        )
        yield Note(Importance.BACKGROUND, text)
    origin = read_origin(plan.rundir.cache_db)  # the run whose answers this run scores again
    if origin is not None:
        text = (
            f"the model's answers are those of the run of {origin.started_at}; "
            "the model was not asked again"
        )
        yield Note(Importance.BACKGROUND, text)
    number_asked = len({instance for instance, _, _ in tally.requested})
    chosen = plan.evaluation.extra.instances
    if chosen is not None:
        text = (
            f"the score is of {formats.counted(number_asked, 'instance')} "
            "that extra.instances names, not of the benchmark"
        )
        yield Note(Importance.DOUBTFUL, text)
    number_in_data = number_asked
    drawn = output.read_run_record(plan.rundir.helm).drawn_sample
    if plan.evaluation.stop_when is not None and drawn is not None:
        # With stop_when, only a sample of the instances was asked.
        number_in_data = drawn.of
    described = plan.evaluation.task.about.instances
    if described is not None and described != number_in_data and not _is_partial(plan):
        text = (
            f"the data contain {number_in_data} instances, but {described} when this task was "
            "described: are they another version of the data?"
        )
        yield Note(Importance.DOUBTFUL, text)


def _is_partial(plan: Plan) -> bool:
    """Return True if the configuration chooses a part of the benchmark's instances."""
    evaluation = plan.evaluation
    if evaluation.extra.instances is not None or evaluation.params.limit_samples is not None:
        return True
    parameters = evaluation.task.helm.parameters
    return any(
        name in parameters and parameters[name].selects_instances
        for name in plan.scenario_arguments
    )


def _notes_on_pictures(plan: Plan, run: output.HelmRun) -> Iterator[Note]:
    """Yield a note on HELM's picture metrics that the run could not compute, with their needs."""
    helm = plan.evaluation.task.helm
    left_out = []
    for metric in metrics_of(helm.run_spec, {**helm.arguments, **plan.scenario_arguments}):
        _, _, class_name = metric.class_name.rpartition(".")  # without its module
        if run.has_metric(class_name):
            continue
        needed = [*metric.packages, *map(str, metric.weights)]
        if metric.people:  # people rate the pictures: no package computes this metric
            needed = ["people"]
        left_out.append(f"{metric.shown} (needs {', '.join(needed)})")
    if left_out:
        text = f"HELM's metrics that were not computed: {'; '.join(left_out)}"
        yield Note(Importance.INCOMPLETE, text)


def _notes_on_answers(draft: Draft) -> Iterator[Note]:
    """Yield notes on answers that are cut off, missing, unscorable or unjudged."""
    run = draft.run
    instances = draft.instances
    tally = draft.tally
    cut_off_empty = len(tally.truncated & tally.empty)  # cut off before any text
    if cut_off_empty:
        too_few = openai_answers.TOO_FEW_TOKENS_MESSAGE.format(
            granted=run.run_spec.adapter_spec.max_tokens
        )
        yield Note(Importance.INCOMPLETE, f"{cut_off_empty} of {instances.requested}: {too_few}")
    for reason, count in tally.unknown_reasons.most_common(MAX_REASONS):
        text = (
            f"{count} answers ended for a reason that eval-factory does not know: {reason!r}; "
            "they count as complete answers; look at them in results.jsonl"
        )
        yield Note(Importance.DOUBTFUL, text)
    if instances.failed:
        yield _note_on_failures(draft)
    unscorable_reasons = Counter(reason for reason, _ in tally.unscorable.values())
    for reason, count in unscorable_reasons.most_common():
        text = (
            f"{count} of the failed instances have an answer that HELM cannot score: {reason}; "
            "these answers stay in responses/, and the model is not asked again"
        )
        yield Note(Importance.INCOMPLETE, text)
    if instances.unjudged and run.rubric is None:
        text = (
            f"{instances.unjudged} instances have no judgement and are left out of the jury's "
            "score (HELM's own value, whose name ends with .helm, gives them HELM's default mark)"
        )
        yield Note(Importance.INCOMPLETE, text)


def _note_on_failures(draft: Draft) -> Note:
    """Return the note on failed instances: how these count, and whether to ask them again."""
    plan = draft.plan
    tally = draft.tally
    handling = "are left out of the scores; bounds show the range"
    if plan.evaluation.extra.on_failure == "zero":
        handling = "count as 0"
        if draft.run.jury is not None:
            # On a scale that contains 0, a judge can give 0: the reason is the missing answer.
            reason = "a judge cannot rate an answer that is not there"
            if tally.ratings.form.lowest > 0:
                reason = "no judge can give 0"
            handling += (
                f", but are left out of the jury's score, because {reason}: the bounds of that "
                "score count them"
            )
    again = ""
    may_succeed = tally.something_to_ask and not tally.causes.all_permanent
    # A run that scores the answers of another run again does not ask the model.
    asks_model = read_origin(plan.rundir.cache_db) is None
    if may_succeed and asks_model:
        again = "; the same command asks them again"
    text = f"{draft.instances.failed} instances failed and {handling}{again}"
    return Note(Importance.INCOMPLETE, text)


def _notes_on_scores(draft: Draft) -> Iterator[Note]:
    """Yield notes on judges, and on metrics that are absent or misleading."""
    plan = draft.plan
    run = draft.run
    tally = draft.tally
    judged = "answers" if run.rubric is None else "criteria"
    for judge, counts in tally.judges.items():
        if counts.failed:
            text = (
                f"judge {judge} gave no usable judgement of {counts.failed} of {counts.asked} "
                f"{judged}; the same command asks it again"
            )
            yield Note(Importance.INCOMPLETE, text)
        if counts.same_family:
            yield Note(Importance.DOUBTFUL, f"judge {judge} is of the evaluated model's family")
    sees_images = plan.evaluation.extra.judges_see_images
    has_judges = bool(plan.judges or plan.prescribed)
    if has_judges and tally.has_pictures and not sees_images:
        text = (
            "the judges rated the answers without the questions' pictures "
            "(extra.judges_see_images: true shows them)"
        )
        yield Note(Importance.DOUBTFUL, text)
    if sees_images and not tally.has_pictures:
        yield Note(
            Importance.BACKGROUND, "judges_see_images has no effect: no question shows a picture"
        )
    if plan.evaluation.extra.only_generate:
        indexed = plan.evaluation.task.helm.indexed
        needed = "packages of their own"
        if indexed and indexed.packages:
            needed = ", ".join(indexed.packages)
        text = (
            f"only_generate: HELM's metrics of pictures were left out; they need {needed}; "
            "without only_generate, the same command scores the pictures, "
            "which are in helm/generated_images"
        )
        yield Note(Importance.NO_RESULT, text)
    elif plan.evaluation.task.helm.makes_images:
        yield from _notes_on_pictures(plan, run)
    yield from _notes_on_absent_metrics(draft)
    # HELM's quasi metrics ignore articles and punctuation. Nothing may then be left of a right
    # answer, such as the letter A. The check of a custom benchmark has already reported such rows.
    if tally.emptied_right_answers and plan.evaluation.benchmark is None:
        emptied = tally.emptied_right_answers
        share_of_instances = f"{emptied} of {draft.instances.requested} instances"
        yield Note(Importance.DOUBTFUL, note_on_quasi(share_of_instances))
    if tally.injected:
        text = (
            f"{tally.injected} answers give instructions to their judges "
            "(see `injection` in results.jsonl): no text of these answers was read as a "
            "judgement; look at their scores"
        )
        yield Note(Importance.DOUBTFUL, text)


def _notes_on_absent_metrics(draft: Draft) -> Iterator[Note]:
    """Yield notes on metrics that HELM computes only with further packages or services."""
    run = draft.run
    summarizes = run.has_metric("SummarizationMetric")
    if summarizes and not any(label.startswith(("BERTScore", "summac")) for label in draft.scores):
        yield Note(
            Importance.BACKGROUND,
            "BERTScore and SummaC are absent: they need torch, a GPU and their weights",
        )
    if run.has_metric("ToxicityMetric") and not any(
        "toxic" in stat.name.name for stat in run.stats
    ):
        yield Note(
            Importance.BACKGROUND,
            "HELM's toxicity metrics are left out: they need the Perspective API",
        )


_UNKNOWN_SANDBOX = (
    "HELM, not eval-factory, executed the answers: whether they ran in a sandbox is not known"
)
NO_ROWS = "the database (eicu.sqlite) has no rows: this score says nothing about a model"


def notes_on_data(plan: Plan, earlier: Collection[str] = ()) -> list[Note]:
    """Return the notes on the data of a run.

    Args:
        plan: the plan of the run.
        earlier: the notes of the stored result, if there is one. They are used if the data were
            deleted since.

    Raises:
        HelmError: HELM's record of the run cannot be read.
    """
    notes = []
    run_spec = plan.evaluation.task.helm.run_spec
    limited = output.read_run_record(plan.rundir.helm).limited_records
    if limited is not None:
        max_length = f"max_length={limited.max_length} tokens"
        if limited.left_out:
            text = (
                f"{limited.left_out} of {limited.records} records (patients at the time of a "
                f"prediction) have a prompt longer than {max_length} and are left out by HELM: the "
                "score says nothing about them"
            )
            notes.append(Note(Importance.INCOMPLETE, text))
        if limited.cut:
            text = (
                f"{limited.cut} of {limited.records} records are longer than {max_length}: HELM "
                "shows the model only their end"
            )
            notes.append(Note(Importance.INCOMPLETE, text))
    if run_spec == "ehr_sql":
        database = output.scenario_folder(plan.rundir.helm, run_spec) / "eicu.sqlite"
        is_empty = NO_ROWS in earlier
        if database.is_file():
            is_empty = not _has_rows(database)
        if is_empty:
            notes.append(Note(Importance.NO_RESULT, NO_ROWS))
    return notes + _notes_on_execution(plan)


def notes_on_labels(main: str, scores: Mapping[str, Score], about: About) -> Iterator[Note]:
    """Yield a note if the main score, or its corrected value, may reach the limit of wrong labels.

    The limit is the score of a model that is always right; it is below 1 because some labels of
    the benchmark are wrong.
    """
    if about.label_noise is None:
        return
    least_noise, most_noise = about.label_noise
    lowest = 1 - most_noise
    highest = 1 - least_noise
    for label in (main, f"{main}{CORRECTED_SUFFIX}"):
        if label not in scores:
            continue
        high = scores[label].stats.ci_high
        if high is not None and high >= lowest:
            always_right = f"{formats.decimals(lowest, 2)} .. {formats.decimals(highest, 2)}"
            text = (
                f"{label}: the 95 % interval ends at {formats.score(formats.rounded(high))}; a "
                f"model that is always right would get {always_right}, because some labels are "
                f"wrong: a higher score is not better ({about.label_audit})"
            )
            yield Note(Importance.DOUBTFUL, text)


def notes_on_age(plan: Plan, provenance: Provenance) -> Iterator[Note]:
    """Yield a note if the dates allow that the model was trained on the answers.

    There is no note for the demo endpoint and the sample benchmark.
    """
    is_demo = plan.evaluation.endpoint.is_demo
    if not is_demo and "sample" not in plan.evaluation.task.about.tags:
        yield from note_on_cutoff(provenance, "target.api_endpoint.training_cutoff")


def note_on_cutoff(provenance: Provenance, cutoff_key: str) -> Iterator[Note]:
    """Yield a note if these dates allow that the model was trained on the answers.

    Args:
        provenance: contains the date of the data's publication, and the model's training cut-off.
        cutoff_key: the configuration key by which the user states the training cut-off.
    """
    public = provenance.published
    cutoff = provenance.training_cutoff
    if not provenance.answers_public:
        return
    if public and cutoff and cutoff < public:  # trained before the publication
        return
    public_text = "are public (since when is not known)"
    if public is not None:
        public_text = f"have been public since {public}"
    cutoff_text = f"is not known ({cutoff_key})"
    if cutoff:
        cutoff_text = f"is {cutoff}"
    text = (
        f"the questions and answers {public_text}, and the model's training cut-off {cutoff_text}: "
        "the model may have seen them"
    )
    yield Note(Importance.BACKGROUND, text)


def _notes_on_execution(plan: Plan) -> list[Note]:
    """Return notes on how the code in the answers was executed."""
    helm = plan.evaluation.task.helm
    if helm.run_spec in NOT_CONFINED_RUN_SPECS:
        return [Note(Importance.DOUBTFUL, _UNKNOWN_SANDBOX)]
    record = output.read_run_record(plan.rundir.helm)
    notes = []
    # The record names a sandbox even if no answer of this run spec is executed.
    if record.executed_by and languages_executed(helm.run_spec, helm.arguments):
        sandboxes = ", in ".join(record.executed_by)
        notes.append(
            Note(
                Importance.BACKGROUND,
                f"the code in the model's answers was executed in {sandboxes}",
            )
        )
    if record.ended:
        text = f"{record.ended} answers ended the process that executed them, and count as wrong"
        notes.append(Note(Importance.INCOMPLETE, text))
    return notes


def _has_rows(database: Path) -> bool:
    """Return True if a table of the SQLite database has rows, or if the file cannot be read."""
    # Read only; `immutable` also keeps SQLite from locking the file.
    uri = f"{database.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            tables = [
                name
                for (name,) in connection.execute(
                    "SELECT name FROM sqlite_master WHERE type = 'table'"
                )
            ]
            quoted = ('"' + name.replace('"', '""') + '"' for name in tables)
            return any(
                connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone()  # noqa: S608
                for name in quoted
            )
    except sqlite3.Error:  # such a file is not known to be empty
        return True
