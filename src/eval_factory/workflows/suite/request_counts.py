"""How many requests the cells of a suite send at least, as far as that is known before their data are read."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from eval_factory.config.evaluation import Evaluation
from eval_factory.plan.run_plan import Plan


@dataclass(frozen=True)
class RequestCount:
    """Requests of a cell that begins from nothing, each answered at the first attempt."""

    to_model: int | None
    """None: nobody knows how many instances there are, and no limit is set."""
    to_judges: int
    at_most: bool = False
    """Whether there may be fewer: the limit on the instances is known, and not how many there are."""
    by_criterion: bool = False
    """Whether judges are asked about each criterion of an answer, of which there may be more than the one that counts
    here."""

    @property
    def total(self) -> int | None:
        return None if self.to_model is None else self.to_model + self.to_judges


def count_of(plan: Plan) -> RequestCount:
    """A request an instance and trial to the model, and one to each judge."""
    instances, at_most = _instances(plan.evaluation)
    if instances is None:
        return RequestCount(None, 0)
    asked = instances * (plan.evaluation.run.config.params.extra.num_train_trials or 1)
    judges = len(plan.judges) + len(plan.prescribed)
    return RequestCount(asked, asked * judges, at_most, plan.evaluation.task.helm.rubric)


def _instances(evaluation: Evaluation) -> tuple[int | None, bool]:
    """How many are asked, and whether there may be fewer."""
    limit, there = evaluation.run.config.params.limit_samples, evaluation.task.about.instances
    extra = evaluation.run.config.params.extra
    rules = evaluation.task.helm.parameters
    part = any(rule.chooses_a_part and getattr(extra, name) is not None for name, rule in rules.items())
    if there is None:
        return limit, limit is not None
    return (there if limit is None else min(limit, there)), part


def sum_of(counts: Iterable[RequestCount]) -> RequestCount:
    """Of those that are known."""
    known = [count for count in counts if count.to_model is not None]
    return RequestCount(
        sum(count.to_model or 0 for count in known),
        sum(count.to_judges for count in known),
        any(count.at_most for count in known),
        any(count.by_criterion for count in known),
    )


def in_words(count: RequestCount) -> str:
    """`at most 120 requests to the model, 360 to judges`."""
    if count.to_model is None:
        return "an unknown number of requests"
    bound = "at most " if count.at_most else ""
    more = " or more" if count.by_criterion else ""
    judges = f", {count.to_judges:,}{more} to judges" if count.to_judges else ""
    return f"{bound}{count.to_model:,} request{'' if count.to_model == 1 else 's'} to the model{judges}"
