"""What the requests of a finished run and their answers say: who failed, what was empty, what the judges said, notes.

They are gone through once, entry by entry; what is kept of an instance is numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections import Counter, defaultdict
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Any

from eval_factory.core.failure_causes import Causes
from eval_factory.core.results import MODEL_ROLE, Instances, JudgeCounts
from eval_factory.endpoint import openai_api
from eval_factory.helm import names, output
from eval_factory.helm.judge_output import injection_signs
from eval_factory.helm.model_files import deployment_of
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.corrections import Corrections
from eval_factory.scoring.jury_agreement import Ratings, family_of
from eval_factory.scoring.notes import Importance, Note
from eval_factory.scoring.scores import InstanceKey
from eval_factory.tasks.quasi_match import QUASI_METRICS, becomes_nothing, note_on_quasi

LONGEST_CATEGORY = 80
SUMMARIZATION = "SummarizationMetric"
TOXICITY_METRIC = ".ToxicityMetric"


@dataclass
class Seen:
    """What the requests and their answers say, added up."""

    judges: dict[str, JudgeCounts] = field(default_factory=dict)
    requested: set[InstanceKey] = field(default_factory=set)
    splits: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))
    """Split -> ids of the instances that were asked."""
    failed: set[InstanceKey] = field(default_factory=set)
    unscorable: dict[InstanceKey, str] = field(default_factory=dict)
    """Those of the failed that were answered, and why HELM cannot score them; none of them is asked again."""
    split_of_unscorable: dict[InstanceKey, str | None] = field(default_factory=dict)
    filtered: set[InstanceKey] = field(default_factory=set)
    empty: set[InstanceKey] = field(default_factory=set)
    truncated: set[InstanceKey] = field(default_factory=set)
    unjudged: set[InstanceKey] = field(default_factory=set)
    members: dict[str, dict[str, list[InstanceKey]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """Field of the instances -> its value -> instances."""
    ratings: Ratings = field(default_factory=Ratings)
    injected: int = 0
    nothing_right: int = 0
    """Instances with a right answer that HELM's quasi metrics take for nothing."""
    prompts: Any = field(default_factory=hashlib.sha256)
    causes: Causes = field(default_factory=Causes)

    @property
    def something_to_ask(self) -> bool:
        """Whether the same command would ask for anything again."""
        return bool(self.failed - self.unscorable.keys()) or any(counts.failed for counts in self.judges.values())

    @property
    def cut_off_empty(self) -> int:
        return len(self.truncated & self.empty)

    @property
    def silent(self) -> set[InstanceKey]:
        """Answered, with nothing in it."""
        return self.empty | self.filtered

    def counts(self, missing: set[InstanceKey]) -> Instances:
        """`missing`: those that the main metric's score does without."""
        return Instances(
            requested=len(self.requested),
            scored=len(self.requested - missing),
            failed=len(self.failed),
            empty=len(self.empty),
            truncated=len(self.truncated),
            filtered=len(self.filtered),
            unjudged=len(self.unjudged),
        )


def look_at_states(plan: Plan, run: output.HelmRun, corrections: Corrections) -> Seen:
    seen = Seen()
    jury = run.jury
    roles = {deployment_of(judge): judge.role for judge in plan.judges}
    judges = {roles.get(deployment, name): name for name, deployment in jury.judges.items()} if jury else {}
    asked, scored = dict.fromkeys(judges, 0), dict.fromkeys(judges, 0)
    quasi = any(stat.name.name in QUASI_METRICS for stat in run.stats)
    for state in run.request_states():
        key = key_of(state)
        seen.requested.add(key)
        seen.splits[state.instance.split or ""].add(state.instance.id)
        seen.prompts.update(json.dumps([state.instance.id, state.request.get("prompt")]).encode())
        fields = {name: value for name, value in categories_of(state.instance).items() if isinstance(value, str)}
        if state.instance.sub_split:
            fields["sub_split"] = state.instance.sub_split
        for name, value in fields.items():
            seen.members[name][value].append(key)
        corrections.add(key, state, None if has_failed(state) else text_of(state))
        seen.nothing_right += quasi and any(
            becomes_nothing(reference.output.text)
            for reference in state.instance.references
            if output.CORRECT_TAG in reference.tags
        )
        if has_failed(state):
            seen.failed.add(key)
            error = state.result.error if state.result else None
            seen.causes.add(MODEL_ROLE, error)
            if (error or "").startswith(names.UNSCORABLE):
                seen.unscorable[key] = str(error).removeprefix(names.UNSCORABLE)
                seen.split_of_unscorable[key] = state.instance.split
            continue
        empty = not text_of(state).strip()
        if was_filtered(state):
            seen.filtered.add(key)
        elif empty:
            seen.empty.add(key)
        if finish_reason_of(state) == openai_api.CUT_OFF:
            seen.truncated.add(key)
        if jury is not None:
            seen.injected += bool(injection_signs(text_of(state)))
            heard = False
            for judge, name in judges.items():
                ratings = output.ratings_of(state.annotations, jury, name)
                asked[judge] += not empty
                scored[judge] += bool(ratings)
                if not ratings and not empty:
                    seen.causes.add(judge, output.reason_of(state.annotations, jury, name))
                heard = heard or bool(ratings)
                seen.ratings.add(judge, key, ratings)
            if empty:
                seen.ratings.rate_lowest(key)
            elif not heard:  # HELM gives such an instance its default
                seen.unjudged.add(key)
    own = family_of(plan.model.model_id)
    families = {judge.role: family_of(judge.model_id) for judge in plan.judges}
    seen.judges = {
        judge: JudgeCounts(
            asked[judge],
            scored[judge],
            asked[judge] - scored[judge],
            None if own is None or families.get(judge) is None else families[judge] == own,
        )
        for judge in judges
    }
    return seen


def notes_of(plan: Plan, run: output.HelmRun, instances: Instances, seen: Seen, labels: Collection[str]) -> list[Note]:
    """What the requests and answers of a run say of its scores."""
    notes: list[Note] = []

    def note(importance: Importance, text: str) -> None:
        notes.append(Note(importance, text))

    cut_off_empty = seen.cut_off_empty
    if plan.model.url.startswith("demo:"):
        note(
            Importance.NO_RESULT,
            "the target was the embedded demo baseline, not a model: these scores measure nothing",
        )
    found, known = len({key[0] for key in seen.requested}), plan.evaluation.task.about.instances
    whole = plan.evaluation.run.config.params.limit_samples is None
    rules = plan.evaluation.task.helm.parameters
    whole &= not any(name in rules and rules[name].chooses_a_part for name in plan.scenario_arguments)
    if known is not None and found != known and whole:
        note(
            Importance.DOUBTFUL,
            f"the data hold {found} instances, {known} when this task was described: another version of them?",
        )
    if cut_off_empty:
        too_few = openai_api.TOO_FEW_TOKENS.format(granted=run.run_spec.adapter_spec.max_tokens)
        note(Importance.INCOMPLETE, f"{cut_off_empty} of {instances.requested}: {too_few}")
    if instances.failed:
        handling = plan.evaluation.run.config.params.extra.on_failure
        how = "count as 0" if handling == "zero" else "are left out of the scores; bounds show the range"
        again = "; the same command asks them again" if seen.something_to_ask else ""
        note(Importance.INCOMPLETE, f"{instances.failed} instances failed and {how}{again}")
    notes += _notes_on_unscorable(seen)
    if instances.unjudged:
        note(
            Importance.INCOMPLETE,
            f"{instances.unjudged} instances have no judgement and are left out of the jury's score"
            " (HELM's own value, named .helm, gives them its default)",
        )
    notes += _notes_on_judges(seen)
    if run.has_metric(SUMMARIZATION) and not any(label.startswith(("BERTScore", "summac")) for label in labels):
        note(Importance.BACKGROUND, "BERTScore and SummaC are absent: they need torch, a GPU and their weights")
    if any(spec.class_name.endswith(TOXICITY_METRIC) for spec in run.run_spec.metric_specs) and not any(
        "toxic" in stat.name.name for stat in run.stats
    ):
        note(Importance.BACKGROUND, "HELM's toxicity metrics are left out: they need the Perspective API")
    if seen.nothing_right and plan.evaluation.benchmark is None:  # a custom benchmark's check has said so, with the row
        which = f"{seen.nothing_right} of {instances.requested} instances"
        note(Importance.DOUBTFUL, note_on_quasi(which))
    if seen.injected:
        note(
            Importance.DOUBTFUL,
            f"{seen.injected} answers speak to their judges (see `injection` in results.jsonl):"
            " what stands in them was not taken for a judgement; look at their scores",
        )
    return notes


def _notes_on_judges(seen: Seen) -> Iterator[Note]:
    for judge, counts in seen.judges.items():
        if counts.failed:
            yield Note(
                Importance.INCOMPLETE,
                f"judge {judge} gave no usable judgement of {counts.failed} of {counts.asked} answers;"
                " the same command asks it again",
            )
        if counts.same_family:
            yield Note(Importance.DOUBTFUL, f"judge {judge} is of the evaluated model's family")


def _notes_on_unscorable(seen: Seen) -> Iterator[Note]:
    for reason, count in Counter(seen.unscorable.values()).most_common():
        yield Note(
            Importance.INCOMPLETE,
            f"{count} of the failed were answered, and HELM cannot score the answer: {reason};"
            " answers are kept in responses/ and not asked for again",
        )


def key_of(state: output.RequestState) -> InstanceKey:
    perturbation = state.instance.perturbation
    return state.instance.id, state.train_trial_index, perturbation.name if perturbation else None


def has_failed(state: output.RequestState) -> bool:
    result = state.result
    return result is None or (not result.success and result.error != openai_api.FILTERED_MESSAGE)


def was_filtered(state: output.RequestState) -> bool:
    result = state.result
    return result is not None and not result.success and result.error == openai_api.FILTERED_MESSAGE


def finish_reason_of(state: output.RequestState) -> str | None:
    if was_filtered(state):
        return openai_api.FILTERED
    completions = state.result.completions if state.result else []
    reason = completions[0].finish_reason if completions else None
    return reason.get("reason") if reason else None


def text_of(state: output.RequestState) -> str:
    return state.result.completions[0].text if state.result and state.result.completions else ""


def categories_of(instance: output.Instance) -> dict[str, Any]:
    """Short texts and numbers that a scenario keeps beside an instance."""
    return {
        name: value
        for name, value in (instance.extra_data or {}).items()
        if isinstance(value, (bool, int, float)) or (isinstance(value, str) and len(value) <= LONGEST_CATEGORY)
    }
