"""A result in the making: the draft, and the parts that see the requests of a run go by and then complete it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from eval_factory.core.results import (
    AskedEndpoint,
    ChoiceOrders,
    Floor,
    Instances,
    Judgements,
    JuryReport,
    RubricReport,
    Score,
    Usage,
)
from eval_factory.helm import output
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.groups import Groups
from eval_factory.scoring.notes import Notes
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.scoring.tally import Tally


@dataclass
class Draft:
    """What is known of a result so far."""

    plan: Plan
    run: output.HelmRun
    main_split: str | None
    tally: Tally
    metrics: list[MetricValues]
    usage: Usage
    notes: Notes = field(default_factory=Notes)
    scores: dict[str, Score] = field(default_factory=dict)
    bounds: dict[str, tuple[float, float]] = field(default_factory=dict)
    beside: dict[str, Score] = field(default_factory=dict)
    """A jury's scores of other instances or with other values, which stand after all others."""
    main: str = ""
    why: Sequence[str] = ()
    """What is to be said of how the main metric was chosen."""
    main_values: MetricValues | None = None
    missing: set[InstanceKey] = field(default_factory=set)
    """Instances without a value of the main metric that counts."""
    as_zero: bool = False
    """Whether these count as 0."""
    instances: Instances = field(default_factory=lambda: Instances(0, 0, 0, 0, 0, 0, 0))
    not_reportable: list[str] = field(default_factory=list)
    judgements: Judgements | None = None
    jury: JuryReport | None = None
    rubric: RubricReport | None = None
    choice_orders: ChoiceOrders | None = None
    floors: Mapping[str, Floor] = field(default_factory=dict)
    groups: Groups = field(default_factory=Groups)
    asked: Mapping[str, AskedEndpoint] = field(default_factory=dict)
    """Role -> what was asked there, and what answered."""

    @property
    def jury_metric(self) -> str | None:
        return self.run.jury.metric if self.run.jury else None

    @property
    def failed_as_zero(self) -> bool:
        return self.plan.evaluation.run.config.params.extra.on_failure == "zero"


class Part:
    """Sees each request with its answer, then completes the draft."""

    def add(self, key: InstanceKey, state: output.RequestState) -> None:
        """One request; each is seen by all parts before the next one."""

    def complete(self, draft: Draft) -> None:
        """Once, after all requests and after the parts that stand before this one."""


class LaterStep(Part):
    """A step that needs no request, or a later one of a part that stands before it."""

    def __init__(self, step: Callable[[Draft], None]) -> None:
        self._step = step

    def complete(self, draft: Draft) -> None:
        self._step(draft)
