"""What a reader has to know of the requests and answers of a run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator

from eval_factory.core.results import Instances
from eval_factory.endpoint import openai_api
from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.tally import Tally
from eval_factory.tasks.quasi_match import note_on_quasi

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
    whole = plan.evaluation.run.config.params.limit_samples is None
    rules = plan.evaluation.task.helm.parameters
    whole &= not any(name in rules and rules[name].chooses_a_part for name in plan.scenario_arguments)
    if known is not None and found != known and whole:
        other = f"the data hold {found} instances, {known} when this task was described: another version of them?"
        yield Note(Importance.DOUBTFUL, other)


def _notes_on_answers(plan: Plan, run: output.HelmRun, instances: Instances, tally: Tally) -> Iterator[Note]:
    if tally.cut_off_empty:
        too_few = openai_api.TOO_FEW_TOKENS.format(granted=run.run_spec.adapter_spec.max_tokens)
        yield Note(Importance.INCOMPLETE, f"{tally.cut_off_empty} of {instances.requested}: {too_few}")
    if instances.failed:
        handling = plan.evaluation.run.config.params.extra.on_failure
        how = "count as 0" if handling == "zero" else "are left out of the scores; bounds show the range"
        if handling == "zero" and run.jury is not None:
            what = "0" if tally.ratings.form.lowest > 0 else "a failure"
            how += f", but in the jury's score: {what} is no mark of a jury's, they are left out of it and stand inside"
            how += " its bounds"
        again = "; the same command asks them again" if tally.something_to_ask else ""
        yield Note(Importance.INCOMPLETE, f"{instances.failed} instances failed and {how}{again}")
    yield from _notes_on_unscorable(tally)
    if instances.unjudged and run.rubric is None:
        yield Note(
            Importance.INCOMPLETE,
            f"{instances.unjudged} instances have no judgement and are left out of the jury's score"
            " (HELM's own value, named .helm, gives them its default)",
        )


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
        yield Note(
            Importance.DOUBTFUL,
            f"{tally.injected} answers speak to their judges (see `injection` in results.jsonl):"
            " what stands in them was not taken for a judgement; look at their scores",
        )


def _notes_on_judges(tally: Tally, judged: str) -> Iterator[Note]:
    for judge, counts in tally.judges.items():
        if counts.failed:
            yield Note(
                Importance.INCOMPLETE,
                f"judge {judge} gave no usable judgement of {counts.failed} of {counts.asked} {judged};"
                " the same command asks it again",
            )
        if counts.same_family:
            yield Note(Importance.DOUBTFUL, f"judge {judge} is of the evaluated model's family")


def _notes_on_unscorable(tally: Tally) -> Iterator[Note]:
    for reason, count in Counter(tally.unscorable.values()).most_common():
        yield Note(
            Importance.INCOMPLETE,
            f"{count} of the failed were answered, and HELM cannot score the answer: {reason};"
            " answers are kept in responses/ and not asked for again",
        )
