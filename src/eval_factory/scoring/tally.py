"""The requests of a finished run and their answers, counted: who failed, what was empty, what the judges said.

They are gone through once, entry by entry; what is kept of an instance is numbers.
"""

from __future__ import annotations

import hashlib
import json
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

from eval_factory.core.failure_causes import Causes
from eval_factory.core.results import MODEL_ROLE, Instances, JudgeCounts
from eval_factory.endpoint import openai_api
from eval_factory.helm import names, output
from eval_factory.helm.judge_output import injection_signs, says_nothing
from eval_factory.helm.model_files import roles_by_deployment
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.clusters import Clusters
from eval_factory.scoring.corrections import Corrections
from eval_factory.scoring.jury import Ratings, family_of
from eval_factory.scoring.readability import Readability
from eval_factory.scoring.repeated_rows import RepeatedRows
from eval_factory.scoring.request_states import (
    categories_of,
    finish_reason_of,
    gold_and_choices,
    has_failed,
    key_of,
    text_of,
    was_filtered,
)
from eval_factory.scoring.scores import InstanceKey
from eval_factory.tasks.custom.jury_keys import jury_form_of
from eval_factory.tasks.quasi_match import QUASI_METRICS, becomes_nothing


@dataclass
class Tally:
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
    undecided: set[InstanceKey] = field(default_factory=set)
    """Cases of a rubric with a criterion that nobody judged."""
    members: dict[str, dict[str, list[InstanceKey]]] = field(
        default_factory=lambda: defaultdict(lambda: defaultdict(list))
    )
    """Field of the instances -> its value -> instances."""
    ratings: Ratings = field(default_factory=Ratings)
    injected: int = 0
    nothing_right: int = 0
    """Instances with a right answer that HELM's quasi metrics take for nothing."""
    rows: RepeatedRows = field(default_factory=RepeatedRows)
    clusters: dict[str, str] = field(default_factory=dict)
    """Id of an instance -> the source that it shares with others, where the task declares such."""
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


def tally_requests(
    plan: Plan, run: output.HelmRun, corrections: Corrections, readability: Readability | None = None,
    tell: Callable[[InstanceKey, output.RequestState], None] = lambda _key, _state: None,
    sources: Mapping[str, str] = MappingProxyType({}),
) -> Tally:  # fmt: skip
    """Go through a run's requests; each is told to `corrections` and `readability` too, and to `tell`.

    Args:
        sources: id of an instance -> its source, as an earlier collection found it.
    """
    tally = Tally(ratings=Ratings(form=jury_form_of(plan.evaluation.benchmark)))
    jury = _Jury.of(plan, run)
    clusters = Clusters.of(plan.evaluation.task.helm.cluster, _data_of(plan, run), sources)
    quasi = any(stat.name.name in QUASI_METRICS for stat in run.stats)
    for state in run.request_states():
        key = key_of(state)
        failed = has_failed(state)
        _count_instance(tally, key, state, clusters)
        corrections.add(key, state, None if failed else text_of(state))
        if readability is not None:
            readability.add(key, state, None if failed else text_of(state))
        tell(key, state)
        tally.nothing_right += quasi and _has_a_right_answer_of_nothing(state)
        if failed:
            _count_failure(tally, key, state)
        else:
            _count_answer(tally, key, state)
            if jury is not None:
                jury.count(tally, key, state)
    if jury is not None:
        tally.judges = jury.counts(plan)
        for judge in tally.judges:  # a judge that failed at first is not the last one of the report
            if judge in tally.ratings.by_judge:
                tally.ratings.by_judge[judge] = tally.ratings.by_judge.pop(judge)
    return tally


def _data_of(plan: Plan, run: output.HelmRun) -> Path:
    return output.scenario_folder(plan.rundir.helm, run.scenario_name or plan.evaluation.task.helm.scenario)


def _count_instance(tally: Tally, key: InstanceKey, state: output.RequestState, sources: Clusters | None) -> None:
    instance = state.instance
    tally.requested.add(key)
    tally.splits[instance.split or ""].add(instance.id)
    asked = state.request.get("messages") or state.request.get("prompt")
    tally.prompts.update(json.dumps([instance.id, asked]).encode())
    if instance.perturbation is None:
        tally.rows.add(instance.id, f"{instance.split}: {instance.input.text}", *gold_and_choices(instance))
    fields = {name: value for name, value in categories_of(instance).items() if isinstance(value, str)}
    if instance.sub_split:
        fields["sub_split"] = instance.sub_split
    if sources is not None:
        if instance.perturbation is None or instance.id not in tally.clusters:
            tally.clusters[instance.id] = sources.label_of(instance)
        fields.pop(sources.rule.field or "", None)  # it says which instances are alike, not what they are
    for name, value in fields.items():
        tally.members[name][value].append(key)


def _has_a_right_answer_of_nothing(state: output.RequestState) -> bool:
    right = (reference for reference in state.instance.references if output.CORRECT_TAG in reference.tags)
    return any(becomes_nothing(reference.output.text) for reference in right)


def _count_failure(tally: Tally, key: InstanceKey, state: output.RequestState) -> None:
    tally.failed.add(key)
    error = state.result.error if state.result else None
    tally.causes.add(MODEL_ROLE, error)
    if (error or "").startswith(names.UNSCORABLE):
        tally.unscorable[key] = str(error).removeprefix(names.UNSCORABLE)
        tally.split_of_unscorable[key] = state.instance.split


def _count_answer(tally: Tally, key: InstanceKey, state: output.RequestState) -> None:
    if was_filtered(state):
        tally.filtered.add(key)
    elif not text_of(state).strip():
        tally.empty.add(key)
    if finish_reason_of(state) == openai_api.CUT_OFF:
        tally.truncated.add(key)


def judge_names(plan: Plan, jury: output.Jury | None) -> dict[str, str]:
    """Judge's role -> its name in HELM's annotations."""
    roles = roles_by_deployment(plan.judges)
    return {} if jury is None else {roles.get(deployment, name): name for name, deployment in jury.judges.items()}


@dataclass
class _Jury:
    """What the judges of a run said, answer by answer."""

    of_run: output.Jury
    names: dict[str, str]
    """Judge's role -> its name in HELM's annotations."""
    asked: dict[str, int]
    scored: dict[str, int]

    @classmethod
    def of(cls, plan: Plan, run: output.HelmRun) -> _Jury | None:
        if run.jury is None:
            return None
        names = judge_names(plan, run.jury)
        return cls(run.jury, names, dict.fromkeys(names, 0), dict.fromkeys(names, 0))

    def count(self, tally: Tally, key: InstanceKey, state: output.RequestState) -> None:
        """One answer; no judge is asked about an empty one."""
        text = text_of(state)
        empty = says_nothing(text)
        tally.injected += bool(injection_signs(text))
        tally.ratings.lengths[key] = len(text)
        heard = False
        for judge, name in self.names.items():
            ratings = output.ratings_of(state.annotations, self.of_run, name)
            self.asked[judge] += not empty
            self.scored[judge] += bool(ratings)
            if not ratings and not empty:
                tally.causes.add(judge, output.reason_of(state.annotations, self.of_run, name))
            heard = heard or bool(ratings)
            tally.ratings.add(judge, key, ratings)
        if empty:
            tally.ratings.rate_lowest(key)
        elif not heard:  # HELM gives such an instance its default
            tally.unjudged.add(key)

    def counts(self, plan: Plan) -> dict[str, JudgeCounts]:
        own = family_of(plan.model.model_id)
        families = {judge.role: family_of(judge.model_id) for judge in plan.judges}
        return {
            judge: JudgeCounts(
                self.asked[judge],
                self.scored[judge],
                self.asked[judge] - self.scored[judge],
                None if own is None or families.get(judge) is None else families[judge] == own,
            )
            for judge in self.names
        }
