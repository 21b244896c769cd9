"""Defines the draft of a result, which the parts of the result complete.

All parts see a request with its answer (`Part.see`) before they see the next request. After the
last request, the parts complete the draft phase by phase.
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
    """An unfinished result. The parts add their findings to the fields of this class."""

    plan: Plan
    run: output.HelmRun
    main_split: str | None
    tally: Tally
    metrics: list[MetricValues]
    usage: results.Usage
    changes: Sequence[str] = ()  # the changes of requests that the endpoint required
    looks: int = 1
    """The planned number of looks: interim analyses of the growing sample (`extra.stop_when`)."""
    earlier_notes: Collection[str] = ()  # the notes of an earlier collection of this run
    notes: Notes = field(default_factory=Notes)
    scores: dict[str, results.Score] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    """Label of a metric -> its lowest and highest possible score, whatever the missing values."""
    further_scores: dict[str, results.Score] = field(default_factory=dict)
    """The jury's scores with HELM's default values, and over the instances that all judges rated.

    The result lists these scores last.
    """
    main: str = ""  # the label of the main metric
    main_metric_notes: Sequence[str] = ()  # the notes on the choice of the main metric
    main_values: MetricValues | None = None  # the values of the main metric
    # the instances without a value of the main metric that counts
    missing: set[InstanceKey] = field(default_factory=set)
    missing_as_zero: bool = False  # True if the missing instances count as 0
    instances: results.Instances = field(
        default_factory=lambda: results.Instances(
            requested=0, scored=0, failed=0, empty=0, truncated=0, filtered=0
        )
    )
    unreadable: Mapping[Unreadable, int] = field(default_factory=dict)
    """Kind of unreadable answer -> the number of answers of this kind."""
    cut_prompts: CutPromptsFound = NONE_CUT  # the prompts that the server cut
    prompts_with_form: int = 0
    """The number of prompts whose answers must have the benchmark's form. Further turns, such as
    doubts, do not count.
    """
    answers_with_form: int = 0  # the number of answers to the prompts in `prompts_with_form`
    judged: str | None = None
    """A plural noun for the texts that the judges rate, such as "answers"; None without judges."""
    judgements: results.Judgements | None = None
    jury: results.JuryReport | None = None
    rubric: results.RubricReport | None = None
    choice_orders: results.ChoiceOrders | None = None
    asked_again: results.AskedAgain | None = None
    judge_probe: results.JudgeProbe | None = None
    stopped_early: results.StoppedEarly | None = None
    floors: Mapping[str, results.Floor] = field(default_factory=dict)
    """Label of a score -> its floor: the best score without a model."""
    groups: Groups = field(default_factory=Groups)
    asked: Mapping[str, results.AskedEndpoint] = field(default_factory=dict)
    """Role of an endpoint -> the requests to the endpoint, and the model that answered."""

    @property
    def jury_metric(self) -> str | None:
        """The name of the jury's metric; None if the run has no jury."""
        return self.run.jury.metric if self.run.jury else None

    @property
    def failed_as_zero(self) -> bool:
        """True if failed instances count as 0 (`extra.on_failure`)."""
        return self.plan.evaluation.extra.on_failure == "zero"
