"""What a run can say to the items of TRIPOD-LLM, and what of each item it does not know."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import Score
from eval_factory.report import method_sentences as say
from eval_factory.report.bibliography import Citations
from eval_factory.report.run_facts import RunFacts, counted, listed, number


@dataclass(frozen=True)
class Answer:
    """To one item."""

    known: tuple[str, ...]
    """Sentences that hold for this run."""
    unknown: tuple[str, ...]
    """What the item asks for, and the authors have to say."""


@dataclass(frozen=True)
class Run:
    """What is told of, and the sources that were cited so far."""

    facts: RunFacts
    cite: Citations


def answers(run: Run) -> dict[str, Answer]:
    """Item -> answer, of the items to which a run can say anything."""
    return {item: Answer(tuple(known(run)), unknown) for item, (known, unknown) in _ITEMS.items()}


def _quality(run: Run) -> Iterator[str]:
    if run.facts.extra.get("benchmark") is None:
        yield f"{run.facts.helm} read the data and made the prompts of them."
    yield f"The SHA-256 of all prompts is {one_line(run.facts.result.provenance.prompts_sha256)}."
    cut = run.facts.result.validity.instances.prompt_truncated
    yield f"{counted(cut, 'prompt')} {say.was(cut)} cut to a length."
    yield from say.corrections(run.facts)


def _model(run: Run) -> Iterator[str]:
    yield from say.model(run.facts)
    yield from say.dates(run.facts)


def _development(run: Run) -> Iterator[str]:
    yield f"This run trained and tuned nothing: {run.facts.model_name} was asked as the endpoint serves it."


def _generation(run: Run) -> Iterator[str]:
    yield from say.sampling(run.facts)
    yield from say.prompts(run.facts)
    stats = run.facts.main.stats if run.facts.main is not None else None
    if stats is not None and stats.trials is not None:
        spread = (
            "" if stats.trial_stddev is None else f"; standard deviation of the trials {number(stats.trial_stddev)}"
        )
        yield f"Each instance was asked {stats.trials} times{spread}."


def _output(run: Run) -> Iterator[str]:
    counts = run.facts.result.validity.instances
    yield "The model gives text."
    yield f"Before it was scored, reasoning was removed from {counted(counts.thinking_stripped, 'answer')}."
    yield f"{counted(counts.unparsed, 'answer')} had none of the forms that the benchmark asks for."


def _measures(run: Run) -> Iterator[str]:
    yield from say.metric(run.facts, run.cite)
    others = [one_line(name) for name in run.facts.result.scores if name != run.facts.result.main_metric]
    if others:
        yield f"Beside it: {listed(others)}."


def _outcome(run: Run) -> Iterator[str]:
    yield from say.metric(run.facts, run.cite)
    kind = f" {run.facts.endpoint_type}" if run.facts.endpoint_type else ""
    yield f"Answers were asked for by the{kind} API of an OpenAI-compatible endpoint."
    yield from say.dates(run.facts)
    yield from say.intervals(run.facts, run.cite)


def _assessors(run: Run) -> Iterator[str]:
    yield from list(say.jury(run.facts, run.cite)) or [
        "No judge was asked: the measures are computed from the answers."
    ]


def _comparisons(run: Run) -> Iterator[str]:
    floor = run.facts.result.validity.floors.get(run.facts.result.main_metric)
    if floor is not None:
        yield f"The best answer that needs no model ({one_line(floor.named)}) scores {number(floor.value)}."
    yield from say.deviations(run.facts)


def _labelling(run: Run) -> Iterator[str]:
    hashes = sorted({digest for asked in run.facts.judges.values() for digest in asked.prompt_sha256 or ()})
    if run.facts.result.validity.judges:
        yield "Of the answers: language models rated them by a written instruction."
    if hashes:
        yield f"The SHA-256 of that instruction's template: {listed([one_line(one) for one in hashes])}."


def _annotators(run: Run) -> Iterator[str]:
    validity = run.facts.result.validity
    if validity.judges:
        judges = [f"{one_line(name)} {one.scored:,} of {one.asked:,}" for name, one in validity.judges.items()]
        what = "rated them" if validity.rubric is None else "judged them criterion by criterion"
        yield f"Of the answers: {counted(len(judges), 'judge')} {what} ({', '.join(judges)})."
    if validity.judgements is not None:
        yield f"{validity.judgements.given:,} of {validity.judgements.due:,} judgements were given."
    yield from say.agreement(run.facts, run.cite)


def _annotating_models(run: Run) -> Iterator[str]:
    for role, asked in run.facts.judges.items():
        sent = f", asked with {say.settings(asked.sampling[0])}" if asked.sampling else ""
        yield f"Of the answers: {one_line(role)} is {one_line(asked.model)}{sent}."


def _computing(run: Run) -> Iterator[str]:
    usage = run.facts.result.usage
    total = usage.all_runs.total
    yield f"The last run took {usage.wall_s:.1f} s; {counted(usage.runs, 'run')} made the result."
    sent, cached = counted(total.requests, "request"), counted(total.cached, "answer")
    yield f"{sent} {say.was(total.requests)} sent, {cached} came from a cache."
    if total.prompt_tokens is not None and total.completion_tokens is not None:
        yield f"They cost {total.prompt_tokens:,} prompt tokens and {total.completion_tokens:,} completion tokens."
    if total.latency_p50_s is not None and total.latency_p95_s is not None:
        yield f"An answer took {total.latency_p50_s:.3g} s (median); 95 % came within {total.latency_p95_s:.3g} s."
    machine = run.facts.result.provenance.platform.get("machine")
    if machine is not None:
        yield f"The evaluation, without the model, ran on one machine ({one_line(machine)})."


def _data(run: Run) -> Iterator[str]:
    yield from say.data_source(run.facts)
    if run.facts.task is not None and not run.facts.has_own_files:
        yield f"Access to them: {run.facts.task.about.access}."
    yield "The output folder holds prompts, references and answers (instances.jsonl, results.jsonl)."


def _code(run: Run) -> Iterator[str]:
    yield from say.software(run.facts)
    if run.facts.result.provenance.git_hash is not None:
        yield f"The commit of eval-factory is {one_line(run.facts.result.provenance.git_hash)}."
    yield "eval-factory reproduce, given the output folder, does the run again."


def _flow(run: Run) -> Iterator[str]:
    yield from say.instances(run.facts)
    yield from say.missing(run.facts)


def _analysed(run: Run) -> Iterator[str]:
    for name, score in run.facts.result.scores.items():
        yield f"{one_line(name)} over {counted(score.stats.count, 'instance')}."
    if run.facts.main is not None:
        yield from say.clusters(run.facts, run.facts.main.stats, run.cite)
    for field, groups in run.facts.result.groups.items():
        yield f"By {one_line(field)}: {counted(len(groups), 'group')}."


def _performance(run: Run) -> Iterator[str]:
    yield from say.reportable(run.facts)
    for name, score in run.facts.result.scores.items():
        yield f"{one_line(name)} = {_score(score)}."
    for field, groups in run.facts.result.groups.items():
        for value, scores in groups.items():
            if run.facts.result.main_metric in scores:
                found = scores[run.facts.result.main_metric]
                size = counted(found.stats.count, "instance")
                yield f"{one_line(field)} {one_line(value)} = {_score(found)}, {size}."


def _score(score: Score) -> str:
    low, high = score.stats.ci_low, score.stats.ci_high
    interval = "" if low is None or high is None else f" (95 % interval {number(low)} to {number(high)})"
    return f"{number(score.value)}{interval}"


_Known = Callable[[Run], Iterator[str]]

_ITEMS: Mapping[str, tuple[_Known, tuple[str, ...]]] = {
    "5a": (lambda run: say.benchmark(run.facts, run.cite), (
        "on which data the model was trained and tuned, and whether these are among them", "why this benchmark",
    )),
    "5d": (_quality, ("how those who published the data prepared and checked them, and whether alike for all groups",)),
    "5e": (lambda run: say.missing(run.facts), ("how unbalanced the data are, and what their authors left out",)),
    "6a": (_model, ("the end of the model's training", "a version that its name does not tell")),
    "6b": (_development, ("architecture, training, tuning and alignment of the model",)),
    "6c": (_generation, ("settings that the endpoint applies without being asked",)),
    "6d": (_output, ("what the endpoint does with the model's output before it answers",)),
    "7a": (_measures, ("whether these measures were set before the study",)),
    "7b": (lambda run: say.agreement(run.facts, run.cite), (
        "what the measures mean for the intended use", "how they agree with the judgement of people",
    )),
    "7c": (_outcome, ("the outcome of the study, where it is more than the benchmark's score",)),
    "7d": (_assessors, ("people who assessed answers, if any did",)),
    "7e": (_comparisons, ("comparisons with other models and with people (eval-factory compare makes the first)",)),
    "8a": (_labelling, ("how the benchmark's references were made",)),
    "8b": (_annotators, ("how many people made the benchmark's references, and how they agree",)),
    "8c": (_annotating_models, ("the background of those who made the benchmark's references",)),
    "9a": (lambda run: say.prompts(run.facts), ("how the authors of the prompts came to them",)),
    "12": (_computing, ("the machines behind the endpoint, what they cost, floating-point operations",)),
    "14e": (_data, ("whether and where the authors share the output folder",)),
    "14f": (_code, ("where the authors publish code of their own",)),
    "16a": (_flow, ("patients, where the data are of patients, and their follow-up",)),
    "16d": (_analysed, ("participants and outcome events, where the data are of patients",)),
    "17": (_performance, ("assessment by people, if there was any",)),
}  # fmt: skip
"""Item -> what is known, what is not."""
