"""A result in the making.

Its parts see each request with its answer (`add`), each by all of them before the next one, and
complete it then.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core import results
from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.cut_prompts import NONE_CUT, CutPromptsFound
from eval_factory.scoring.groups import Groups
from eval_factory.scoring.notes import Notes
from eval_factory.scoring.reportable import Unreadable
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.scoring.tally import Tally


@dataclass
class Draft:
    plan: Plan
    run: output.HelmRun
    main_split: str | None
    tally: Tally
    metrics: list[MetricValues]
    usage: results.Usage
    changes: Sequence[str] = ()  # how requests were changed so that the endpoint took them
    looks: int = 1  # how often the sample may be looked at, with `extra.stop_when`
    earlier_notes: Collection[str] = ()  # of an earlier collection
    notes: Notes = field(default_factory=Notes)
    scores: dict[str, results.Score] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    further_scores: dict[str, results.Score] = field(default_factory=dict)
    """A jury's scores of other instances or with other values, which stand after all others."""
    main: str = ""
    main_metric_notes: Sequence[str] = ()  # the notes on how the main metric was chosen
    main_values: MetricValues | None = None
    # instances without a value of the main metric that counts
    missing: set[InstanceKey] = field(default_factory=set)
    missing_as_zero: bool = False  # True if these count as 0
    instances: results.Instances = field(
        default_factory=lambda: results.Instances(0, 0, 0, 0, 0, 0, 0)
    )
    unreadable: Mapping[Unreadable, int] = field(default_factory=dict)
    """Kind of the answers that say nothing -> how many there are."""
    cut_prompts: CutPromptsFound = NONE_CUT  # prompts that the server cut
    prompts_with_form: int = 0
    """The number of prompts whose answers have a form by the benchmark: not further turns and the
    like.
    """
    answers_with_form: int = 0  # how many of these answers came
    judged: str | None = None
    """The noun of what judges were asked about, such as "answers"; None if no score is theirs."""
    judgements: results.Judgements | None = None
    jury: results.JuryReport | None = None
    rubric: results.RubricReport | None = None
    choice_orders: results.ChoiceOrders | None = None
    asked_again: results.AskedAgain | None = None
    judge_probe: results.JudgeProbe | None = None
    stopped_early: results.StoppedEarly | None = None
    floors: Mapping[str, results.Floor] = field(default_factory=dict)
    groups: Groups = field(default_factory=Groups)
    asked: Mapping[str, results.AskedEndpoint] = field(default_factory=dict)
    """Role -> what was asked there, and what answered."""

    @property
    def jury_metric(self) -> str | None:
        return self.run.jury.metric if self.run.jury else None

    @property
    def failed_as_zero(self) -> bool:
        return self.plan.evaluation.extra.on_failure == "zero"
