"""What a reader has to know of the requests and answers of a run, and of its data."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing
from pathlib import Path

from eval_factory.core import formats
from eval_factory.core.results import Instances, Score
from eval_factory.endpoint import openai_api
from eval_factory.helm import output
from eval_factory.helm.names import SQL_SHORT_LIMIT_S, SQL_TOTAL_LIMIT_S
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.tally import Tally
from eval_factory.tasks.custom_table import note_on_quasi
from eval_factory.tasks.errata import CORRECTED
from eval_factory.tasks.framework import About
from eval_factory.tasks.run_specs import NOT_CONFINED as NOT_CONFINED_RUN_SPECS
from eval_factory.tasks.run_specs import executed_by

SUMMARIZATION = "SummarizationMetric"
TOXICITY_METRIC = ".ToxicityMetric"


def notes_of(
    plan: Plan, run: output.HelmRun, instances: Instances, tally: Tally, labels: Collection[str]
) -> list[Note]:
    """What the requests and answers of a run say of its scores."""
    return [
        *_notes_on_target(plan, tally),
        *_notes_on_answers(plan, run, instances, tally),
        *_notes_on_judges(tally, "answers" if run.rubric is None else "criteria"),
        *_notes_on_metrics(run, labels),
        *_notes_on_texts(plan, instances, tally),
        *tally.rows.notes(sum(len(ids) for ids in tally.splits.values())),
    ]


def _notes_on_target(plan: Plan, tally: Tally) -> Iterator[Note]:
    if plan.model.url.startswith("demo:"):
        measures_nothing = "the target was the embedded demo baseline, not a model: these scores measure nothing"
        yield Note(Importance.NO_RESULT, measures_nothing)
    found, known = len({key[0] for key in tally.requested}), plan.evaluation.task.about.instances
    rules = plan.evaluation.task.helm.parameters
    in_part = any(name in rules and rules[name].chooses_a_part for name in plan.scenario_arguments)
    if known not in (None, found) and not in_part and plan.evaluation.run.config.params.limit_samples is None:
        other = f"the data hold {found} instances, {known} when this task was described: another version of them?"
        yield Note(Importance.DOUBTFUL, other)


def _notes_on_answers(plan: Plan, run: output.HelmRun, instances: Instances, tally: Tally) -> Iterator[Note]:
    if cut_off_empty := len(tally.truncated & tally.empty):
        too_few = openai_api.TOO_FEW_TOKENS.format(granted=run.run_spec.adapter_spec.max_tokens)
        yield Note(Importance.INCOMPLETE, f"{cut_off_empty} of {instances.requested}: {too_few}")
    if instances.failed:
        handling = plan.evaluation.run.config.params.extra.on_failure
        how = "count as 0" if handling == "zero" else "are left out of the scores; bounds show the range"
        if handling == "zero" and run.jury is not None:
            what = "0" if tally.ratings.form.lowest > 0 else "a failure"
            how += f", but in the jury's score: {what} is no mark of a jury's, they are left out of it and stand inside"
            how += " its bounds"
        again = "; the same command asks them again" if tally.something_to_ask else ""
        yield Note(Importance.INCOMPLETE, f"{instances.failed} instances failed and {how}{again}")
    for reason, count in Counter(tally.unscorable.values()).most_common():
        unscorable = f"{count} of the failed were answered, and HELM cannot score the answer: {reason}"
        kept = "answers are kept in responses/ and not asked for again"
        yield Note(Importance.INCOMPLETE, f"{unscorable}; {kept}")
    if instances.unjudged and run.rubric is None:
        unjudged = f"{instances.unjudged} instances have no judgement and are left out of the jury's score"
        default = "HELM's own value, named .helm, gives them its default"
        yield Note(Importance.INCOMPLETE, f"{unjudged} ({default})")


def _notes_on_metrics(run: output.HelmRun, labels: Collection[str]) -> Iterator[Note]:
    if run.has_metric(SUMMARIZATION) and not any(label.startswith(("BERTScore", "summac")) for label in labels):
        yield Note(Importance.BACKGROUND, "BERTScore and SummaC are absent: they need torch, a GPU and their weights")
    asks_for_toxicity = any(spec.class_name.endswith(TOXICITY_METRIC) for spec in run.run_spec.metric_specs)
    if asks_for_toxicity and not any("toxic" in stat.name.name for stat in run.stats):
        yield Note(Importance.BACKGROUND, "HELM's toxicity metrics are left out: they need the Perspective API")


def _notes_on_texts(plan: Plan, instances: Instances, tally: Tally) -> Iterator[Note]:
    # of a custom benchmark its check has said so, with the row
    if tally.nothing_right and plan.evaluation.benchmark is None:
        which = f"{tally.nothing_right} of {instances.requested} instances"
        yield Note(Importance.DOUBTFUL, note_on_quasi(which))
    if tally.injected:
        injected = f"{tally.injected} answers speak to their judges (see `injection` in results.jsonl)"
        ignored = "what stands in them was not taken for a judgement; look at their scores"
        yield Note(Importance.DOUBTFUL, f"{injected}: {ignored}")


def _notes_on_judges(tally: Tally, judged: str) -> Iterator[Note]:
    for judge, counts in tally.judges.items():
        if counts.failed:
            failed = f"judge {judge} gave no usable judgement of {counts.failed} of {counts.asked} {judged}"
            yield Note(Importance.INCOMPLETE, f"{failed}; the same command asks it again")
        if counts.same_family:
            yield Note(Importance.DOUBTFUL, f"judge {judge} is of the evaluated model's family")


EHR_SQL = "ehr_sql"
_LEFT_OUT = (
    "{count} of {of} patients (at the time of a prediction) have a prompt longer than max_length={limit} tokens and"
    " are left out by HELM: the score says nothing about them"
)
_CUT = "{count} of {of} records are longer than max_length={limit} tokens allows: HELM shows the model their end alone"
_EXECUTED = "what the model answered was executed, in {by}"
STILL_CAN = "NOT wholly confined on this machine: what was executed could {things}; install bubblewrap"
_ENDED = "{count} answers ended the process that executed them, and count as wrong"
_SHORTENED = (
    "{count} queries of the model were ended after {short:g} s, because its slow ones had taken {total:g} s together;"
    " they count as failed, as if they had taken their full time"
)
_NOT_CONFINED = "HELM had the answers executed, not eval-factory: nothing is known of how they were confined"
CEILING = (
    "{label}: the 95 % interval, up to {high}, reaches {lowest} .. {highest}, the most that wrong labels"
    " let a model score that is right: higher scores are no better ones"
)
NO_ROWS = "the database (eicu.sqlite) has no rows: this score says nothing about a model"


def notes_on_data(plan: Plan, earlier: Collection[str] = ()) -> list[Note]:
    """For `validity.notes` of a finished run. Raises HelmError.

    Args:
        earlier: notes of an earlier collection, which hold where the data are gone.
    """
    notes = []
    limited = output.limited_records(plan.rundir.helm)
    if limited is not None and limited.run_spec == plan.evaluation.task.helm.run_spec:
        for text, count in ((_LEFT_OUT, limited.left_out), (_CUT, limited.cut)):
            if count:
                found = text.format(count=count, of=limited.records, limit=limited.max_length)
                notes.append(Note(Importance.INCOMPLETE, found))
    if plan.evaluation.task.helm.run_spec == EHR_SQL:
        database = output.scenario_folder(plan.rundir.helm, EHR_SQL) / "eicu.sqlite"
        if not _has_rows(database) if database.is_file() else NO_ROWS in earlier:
            notes.append(Note(Importance.NO_RESULT, NO_ROWS))
    return notes + _notes_on_execution(plan)


def notes_on_labels(main: str, scores: Mapping[str, Score], about: About) -> Iterator[Note]:
    """Where the main score, or its corrected value, may be as high as wrong labels let a model come that is right."""
    if about.label_noise is None:
        return
    lowest, highest = (1 - share for share in reversed(about.label_noise))
    for label in (main, f"{main}{CORRECTED}"):
        high = scores[label].stats.ci_high if label in scores else None
        if high is not None and high >= lowest:
            ends = {"lowest": formats.decimals(lowest, 2), "highest": formats.decimals(highest, 2)}
            ceiling = CEILING.format(label=label, high=formats.score(formats.rounded(high)), **ends)
            yield Note(Importance.DOUBTFUL, f"{ceiling} ({about.label_audit})")


def _notes_on_execution(plan: Plan) -> list[Note]:
    helm = plan.evaluation.task.helm
    if helm.run_spec in NOT_CONFINED_RUN_SPECS:
        return [Note(Importance.DOUBTFUL, _NOT_CONFINED)]
    found = output.stored_code_execution(plan.rundir.helm)
    if found is None:
        return []
    notes = []
    if helm.run_spec in found.run_specs and executed_by(helm.run_spec, helm.arguments):
        notes.append(Note(Importance.BACKGROUND, _EXECUTED.format(by=", in ".join(found.by))))
        if found.still_can:
            notes.append(Note(Importance.DOUBTFUL, STILL_CAN.format(things=", ".join(found.still_can))))
    if found.ended:
        notes.append(Note(Importance.INCOMPLETE, _ENDED.format(count=found.ended)))
    if found.shortened:
        text = _SHORTENED.format(count=found.shortened, short=SQL_SHORT_LIMIT_S, total=SQL_TOTAL_LIMIT_S)
        notes.append(Note(Importance.INCOMPLETE, text))
    return notes


def _has_rows(database: Path) -> bool:
    """Whether any table has; also where the file cannot be read, of which nothing is known then."""
    uri = f"{database.absolute().as_uri()}?mode=ro&immutable=1"
    try:
        with closing(sqlite3.connect(uri, uri=True)) as connection:
            tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
            quoted = ('"' + name.replace('"', '""') + '"' for name in tables)
            return any(connection.execute(f"SELECT 1 FROM {name} LIMIT 1").fetchone() for name in quoted)  # noqa: S608
    except sqlite3.Error:
        return True
