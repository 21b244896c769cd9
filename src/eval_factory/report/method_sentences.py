"""How a run was made, in sentences: each says only what the result knows, and none where it knows nothing.

They are the words of the methods text and of the reporting checklists. Values that others wrote are one printable line.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from eval_factory.core.foreign_text import one_line
from eval_factory.core.results import MODEL_ROLE, Score, Stats
from eval_factory.report.bibliography import Citations
from eval_factory.report.rubric_lines import agreement_sentences, of_criteria, rests_on
from eval_factory.report.run_facts import RunFacts, counted, listed, number

INTERVALS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "wilson": ("Wilson's score interval", ("wilson",)),
    "wilson-clustered": (
        "Wilson's score interval on the effective number of instances, with Student's t for the normal quantile",
        ("wilson", "korn"),
    ),
    "student-t": ("Student's t interval of the mean", ("student",)),
    "student-t-clustered": ("Student's t interval with the cluster-robust variance", ("liang_zeger",)),
    "student-t-pseudo-values": (
        "Student's t interval of the values and one pseudo-value at each end of the scale",
        ("student", "agresti"),
    ),
    "student-t-pseudo-values-clustered": (
        "Student's t interval with the cluster-robust variance and a pseudo-cluster at each end of the scale",
        ("agresti", "liang_zeger"),
    ),
    "exact-one-sided": ("the exact one-sided bound for values that are all equal", ("clopper",)),
    "exact-one-sided-clustered": (
        "the exact one-sided bound for values that are all equal, on the effective number of sources",
        ("clopper",),
    ),
    "bca-bootstrap": ("the BCa bootstrap of 2,000 resamples with a fixed seed", ("efron",)),
    "bca-bootstrap-clustered": (
        "the BCa bootstrap of 2,000 resamples of whole sources with a fixed seed",
        ("efron",),
    ),
}
"""`ci_method` -> what it is, and its sources, as docs/statistics.md has them."""


def benchmark(facts: RunFacts, cite: Citations) -> Iterator[str]:
    """What was run, from which data."""
    task = facts.task
    what = f" ({task.description})" if task is not None and facts.extra.get("benchmark") is None else ""
    yield f"The benchmark was {facts.name}{what}, run with {facts.helm} {cite('helm')}."
    if facts.result.comparability is not None and facts.result.comparability.medhelm_settings is not None:
        yield f"It is one of the benchmarks of MedHELM {cite('medhelm')}."
    if facts.parts:
        yield f"Chosen of it: {listed([f'{name} {value}' for name, value in facts.parts.items()])}."
    yield from data_source(facts)


def data_source(facts: RunFacts) -> Iterator[str]:
    """Source, revision and licence of the data, and their hashes."""
    task, record = facts.task, facts.result.provenance
    if facts.has_own_files:
        yield "Its data were files of the authors."
    elif task is not None:
        licence = f" (licence: {task.about.licence})" if task.about.licence is not None else ""
        yield f"Source of its data: {task.about.source}{licence}."
    revisions = sorted(set(record.dataset_revisions.values()))
    if revisions:
        word = "revision" if len(revisions) == 1 else "revisions"
        yield f"They were read at {word} {listed([one_line(one) for one in revisions])}."
    hashes = list(record.dataset_files.values())
    if len(hashes) == 1:
        yield f"The SHA-256 of the data file is {one_line(hashes[0])}."
    elif hashes:
        yield f"The result records the SHA-256 of {counted(len(hashes), 'data file')}."
    if record.answers_public is not None:
        when = "at an unknown time" if record.published is None else f"by {one_line(record.published)}"
        yield f"The benchmark was published {when}; its answers are {'' if record.answers_public else 'not '}public."


def instances(facts: RunFacts) -> Iterator[str]:
    """How many instances, and how they were drawn."""
    validity, task = facts.result.validity, facts.task
    asked = sum(validity.splits.values()) or validity.instances.requested
    of_splits = f" ({_splits(validity.splits)})" if validity.splits else ""
    whole = task is not None and task.about.instances is not None and not (facts.has_own_files or facts.parts)
    total = f", of {task.about.instances:,} that the benchmark has" if whole and task is not None else ""
    yield f"{counted(asked, 'instance')}{of_splits} {was(asked)} asked{total}."
    limit = facts.params.get("limit_samples")
    if limit is not None:
        seed = facts.result.provenance.seeds.get("helm_sample")
        with_seed = "" if seed is None else f" with seed {seed}"
        yield f"The number was limited to {limit:,}: where the data have more, HELM draws a random sample{with_seed}."
    elif "limit_samples" in facts.params:
        yield "No sample was drawn."
    if validity.instances.requested != asked:
        yield f"With trials and perturbations these are {counted(validity.instances.requested, 'request')}."
    if facts.main is not None and facts.main.stats.trials is not None:
        yield f"Each instance was asked {facts.main.stats.trials} times; of an instance its mean counts."


def was(count: int) -> str:
    """The verb for so many."""
    return "was" if count == 1 else "were"


def _splits(splits: Mapping[str, int]) -> str:
    return ", ".join(f"split {one_line(name)}: {count:,}" for name, count in splits.items())


def model(facts: RunFacts) -> Iterator[str]:
    """Which model, where, when, and what the answers say of it."""
    if facts.is_demo:
        yield "No model was evaluated: the target was the demo endpoint that comes with eval-factory."
        return
    kind = f" {facts.endpoint_type}" if facts.endpoint_type else ""
    host = f" at {facts.host}" if facts.host else ""
    yield f"The evaluated model was {facts.model_name}, asked through an OpenAI-compatible{kind} endpoint{host}."
    if facts.model is not None and facts.model.stated_models:
        named = [f"{one_line(name)} ({counted(count, 'answer')})" for name, count in facts.model.stated_models.items()]
        yield f"The answers themselves name as their model: {listed(named)}."
    if facts.model is not None and facts.model.other_model:
        yield f"{counted(facts.model.other_model, 'answer')} of these state another model than was asked for."


def dates(facts: RunFacts) -> Iterator[str]:
    """When the answers came, which may be in several runs, and when the last of these was."""
    record = facts.result.provenance
    for role, asked in record.endpoints.items():
        if asked.first_answer is None or asked.last_answer is None:
            continue
        whose = "The answers" if role == MODEL_ROLE else f"The judgements of {one_line(role)}"
        over = f", over {counted(asked.days, 'day')}" if asked.days else ""
        yield f"{whose} came from {one_line(asked.first_answer)} to {one_line(asked.last_answer)} (UTC){over}."
    if record.started_at is not None and record.ended_at is not None:
        run = "The run" if facts.result.usage.runs == 1 else f"The last of {facts.result.usage.runs} runs"
        yield f"{run} went from {one_line(record.started_at)} to {one_line(record.ended_at)} (UTC)."


def sampling(facts: RunFacts) -> Iterator[str]:
    """The settings as they were sent."""
    sets = facts.model.sampling if facts.model is not None else ()
    if sets:
        most = "" if len(sets) == 1 else f" in most of the {len(sets)} combinations of settings that were used"
        yield f"Requests were sent with {settings(sets[0])}{most}."
    stripped = facts.result.validity.instances.thinking_stripped
    if stripped:
        yield f"From {counted(stripped, 'answer')} the model's reasoning was removed before scoring."


def settings(sent: Mapping[str, Any]) -> str:
    """Of a request, beside model and question."""
    return listed([f"{one_line(str(name))} = {one_line(str(value))}" for name, value in sent.items()]) or "no settings"


def prompts(facts: RunFacts) -> Iterator[str]:
    """Of whose making they were, with examples or not, and their hash."""
    if facts.extra.get("benchmark") is not None:
        yield "The prompts were made from a template of the authors."
    else:
        yield f"The prompts were those of {facts.helm} for this benchmark."
    if facts.is_zero_shot:
        yield "They held no worked examples (zero-shot)."
    if "custom_system_prompt" in facts.adapter:
        given = facts.adapter["custom_system_prompt"] is not None
        yield "A system prompt of the authors was added." if given else "No system prompt was added."
    if facts.adapter.get("params_to_add"):
        yield f"Added to each request: {listed([one_line(str(name)) for name in facts.adapter['params_to_add']])}."
    cut = facts.result.validity.instances.prompt_truncated
    if cut:
        yield f"{counted(cut, 'prompt')} {was(cut)} cut to the longest length that was allowed."
    yield f"The SHA-256 of all prompts is {one_line(facts.result.provenance.prompts_sha256)}."


def metric(facts: RunFacts, cite: Citations) -> Iterator[str]:
    """The main metric, and what stands beside it."""
    main, label = facts.main, one_line(facts.result.main_metric)
    if main is None:
        yield f"The main metric, {label}, could not be computed."
        return
    yield f"The main metric was {label} as {facts.helm} computes it{_nature(main)}."
    if f"{facts.result.main_metric}.helm" in facts.result.scores:
        yield (
            f"{label} is over the judgements that were given; {label}.helm is HELM's own value, with its default where"
            " a judgement is missing."
        )
    if f"{facts.result.main_metric}.lenient" in facts.result.scores:
        yield (
            f"{label}.lenient counts the option that an answer states, however it is written (among the readings is the"
            f" rule of MMLU-Pro {cite('mmlu_pro')})."
        )
    floor = facts.result.validity.floors.get(facts.result.main_metric)
    if floor is not None:
        yield (
            f"Of the answers that need no model ({listed([one_line(name) for name in floor.answers])}), scored on the"
            f" same questions, the best was: {one_line(floor.named)}, {number(floor.value)}."
        )


def _nature(score: Score) -> str:
    """Unit, scale and direction, as far as known."""
    parts = [] if score.unit is None else [one_line(score.unit)]
    if score.scale is not None:
        parts.append(f"from {score.scale[0]:g} to {score.scale[1]:g}")
    if score.higher_is_better is not None:
        parts.append(f"{'higher' if score.higher_is_better else 'lower'} is better")
    return f" ({', '.join(parts)})" if parts else ""


def corrections(facts: RunFacts) -> Iterator[str]:
    """Known defects of the benchmark."""
    result = facts.result
    yield f"Known defects of benchmarks were looked up in list {result.provenance.errata_version} of eval-factory."
    corrected = [one_line(name) for name in result.scores if name.endswith(".corrected")]
    if corrected:
        yield f"A corrected value stands beside HELM's, from the same answers: {listed(corrected)}."


def jury(facts: RunFacts, cite: Citations) -> Iterator[str]:
    """The judges, what they were asked, and how far they agree."""
    validity = facts.result.validity
    if not validity.judges:
        return
    scale = facts.main.scale if facts.main is not None else None
    on_scale = "" if scale is None else f" on a scale from {scale[0]:g} to {scale[1]:g}"
    size = counted(len(validity.judges), "language model")
    if validity.rubric is None:
        yield f"The answers were rated{on_scale} by a jury of {size}: {_judges(facts)}."
    else:
        yield from rests_on(validity, validity.rubric, cite)
        yield f"The judges: {_judges(facts)}."
    hashes = sorted({digest for asked in facts.judges.values() for digest in asked.prompt_sha256 or ()})
    if hashes:
        yield f"The SHA-256 of the judges' prompt template: {listed([one_line(one) for one in hashes])}."
    if validity.judgements is not None:
        yield f"{validity.judgements.given:,} of {validity.judgements.due:,} judgements were given."
    yield from agreement(facts, cite)


def _judges(facts: RunFacts) -> str:
    named = []
    for role, counts in facts.result.validity.judges.items():
        asked = facts.judges.get(role)
        model_id = "" if asked is None else f" ({one_line(asked.model)}"
        how = f"; {settings(asked.sampling[0])})" if asked is not None and asked.sampling else ")" if asked else ""
        asked_of = of_criteria if facts.result.validity.rubric is not None else _of_answers
        named.append(f"{one_line(role)}{model_id}{how}, {counts.scored:,} of {asked_of(counts.asked)}")
    return "; ".join(named)


def _of_answers(count: int) -> str:
    return counted(count, "answer")


def agreement(facts: RunFacts, cite: Citations) -> Iterator[str]:
    rubric, found = facts.result.validity.rubric, facts.result.validity.jury
    if rubric is not None:
        yield from agreement_sentences(rubric, cite)
    if found is None:
        return
    if found.krippendorff_alpha is not None:
        yield (
            f"The agreement of the judges, by Krippendorff's alpha for ordinal ratings {cite('krippendorff')}, is"
            f" {found.krippendorff_alpha:.3f}."
        )
    kappas = [f"{one_line(pair)} {kappa:.3f}" for pair, kappa in found.weighted_kappa.items() if kappa is not None]
    if kappas:
        yield f"By Cohen's kappa with quadratic weights it is: {listed(kappas)}."


def intervals(facts: RunFacts, cite: Citations) -> Iterator[str]:
    """How the main score's interval was made, and groups were tested."""
    stats = facts.main.stats if facts.main is not None else None
    if stats is None:
        return
    if stats.ci_method is None:
        yield "No interval is given for the main score."
    elif stats.ci_method in INTERVALS:
        what, sources = INTERVALS[stats.ci_method]
        yield f"The 95 % interval of the main score is {what} {cite(*sources)}."
    else:
        yield f"The 95 % interval of the main score was made by: {one_line(stats.ci_method)}."
    yield from clusters(facts, stats, cite)
    if any(
        score.stats.p_value is not None
        for by in facts.result.groups.values()
        for of in by.values()
        for score in of.values()
    ):
        yield f"Groups were compared with all other instances, with Holm's correction in each field {cite('holm')}."


def clusters(facts: RunFacts, stats: Stats, cite: Citations) -> Iterator[str]:
    if stats.clusters is None:
        return
    rule = facts.task.helm.cluster if facts.task is not None else None
    what = f" ({rule.what})" if rule is not None else ""
    yield f"The instances share {counted(stats.clusters, 'source')}{what}, which the interval takes into account."
    if stats.design_effect is not None:
        yield f"The design effect {cite('kish')} is {stats.design_effect:.2f}."


def missing(facts: RunFacts) -> Iterator[str]:
    """What has no score, how it was treated, and what it could change."""
    counts, result = facts.result.validity.instances, facts.result
    yield f"{counts.scored:,} of {counts.requested:,} requested instances have a score; {counts.failed:,} failed."
    if counts.failed and facts.extra.get("on_failure") in ("exclude", "zero"):
        left = facts.extra["on_failure"] == "exclude"
        yield "Failed instances were left out of the score." if left else "Failed instances count as 0."
    if counts.unjudged:
        yield f"{counted(counts.unjudged, 'answer')} got no usable judgement, and so no score."
    said = {
        "were empty": counts.empty,
        "were cut off": counts.truncated,
        "were in no form that was asked for": counts.unparsed,
    }
    found = [f"{count:,} {what}" for what, count in said.items() if count]
    if found:
        yield f"Of the answers {listed(found)}."
    bounds = result.validity.bounds.get(result.main_metric)
    if bounds is not None and bounds[0] != bounds[1]:
        yield (
            f"Whatever the missing values are, the main score with them lies from {number(bounds[0])} to"
            f" {number(bounds[1])}."
        )


def reportable(facts: RunFacts) -> Iterator[str]:
    if not facts.result.reportable:
        yield "By the limits that were set for the run, this score may not be reported; the result says why."


def deviations(facts: RunFacts) -> Iterator[str]:
    """How the settings differ from MedHELM's leaderboard."""
    record = facts.result.comparability
    if record is None or record.medhelm_settings is None:
        return
    if record.medhelm_settings:
        yield "The settings were those of MedHELM's leaderboard, as far as they are known."
        return
    told = [one_line(one.in_words("leaderboard:")) for one in record.deviations]
    yield f"The settings differ from those of MedHELM's leaderboard in: {'; '.join(told)}."


def software(facts: RunFacts) -> Iterator[str]:
    """Versions of the programs, and the kind of machine."""
    record = facts.result.provenance
    used = [f"eval-factory {one_line(record.eval_factory)}"]
    used += [] if record.helm is None else [f"crfm-helm {one_line(record.helm)}"]
    yield f"The evaluation was run with {listed([*used, f'Python {one_line(record.python)}'])}."
    others = [
        f"{one_line(name)} {one_line(version)}" for name, version in record.packages.items() if name != "crfm-helm"
    ]
    if others:
        yield f"Packages: {', '.join(others)}."
    if record.patches:
        many = counted(len(record.patches), "patch") if len(record.patches) == 1 else f"{len(record.patches)} patches"
        yield f"{many} of HELM {was(len(record.patches))} applied, which the result names."
    machine = [one_line(record.platform[name]) for name in ("distribution", "machine") if record.platform.get(name)]
    if machine:
        yield f"The machine: {', '.join(machine)}."
    if record.code_execution is not None:
        yield "What the model answered was executed in a confined process."
    yield f"The identity of the run is {one_line(record.run_identity)}."
