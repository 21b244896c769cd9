"""The rule of `extra.stop_when`: what is known at each look at a growing sample, and if it holds.

Each look's interval misses the mean in alpha / K of all samples, K being the number of looks: so
one of them misses it in alpha of them at most (Bonferroni's inequality), wherever one stops.
Confidence sequences made by betting (I. Waudby-Smith and A. Ramdas, JRSS B 86:1-27, 2024) are wider
at so few looks: benchmarks/stop_when_coverage.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from eval_factory.config.model import StopWhen
from eval_factory.core.errors import ConfigError, PrerequisiteError
from eval_factory.core.results import Look, StoppedEarly
from eval_factory.core.safe_files import parse_json
from eval_factory.helm import names, output
from eval_factory.plan.run_plan import STOP_WHEN, Plan
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import PROPORTION, TAIL_ALPHA
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.scores import InstanceKey, helm_mean, mean_score, with_missing_counted


def looks_up_to(first: int, all_instances: int) -> tuple[int, ...]:
    """Instances at each look."""
    return (
        (first, *looks_up_to(2 * first, all_instances))
        if first < all_instances
        else (all_instances,)
    )


def bias_of_stopping(stop: StopWhen) -> str | None:
    """A run that stops because its score is good stops rather where chance made it good; None of a
    rule that looks at the width alone.
    """
    if stop.beats_floor:
        size = (
            "2 to 5 points of a model that is 3 to 10 above the best score without a model, "
            "simulated"
        )
        shown = f"a score at which a run stopped is too good on average ({size})"
    elif stop.differs_from is not None:
        shown = "a difference at which a run stopped is too large on average"
    else:
        return None
    advice = "report the interval, which holds, or ask all instances"
    return f"stop_when: {stop.text}: {shown}; {advice}"


@dataclass(frozen=True)
class Looks(Part):
    """The looks at the instances of one run, which stand in the order in which they were drawn."""

    plan: Plan
    stop: StopWhen
    drawn: output.DrawnSample
    others: Mapping[str, float]  # id -> the other run's value, with `differs_from`
    _place: dict[str, int] = field(default_factory=dict)  # id -> which one it is, from 0

    @classmethod
    def of(cls, plan: Plan) -> Looks | None:
        """Return the looks, or None without a rule. Raises HelmError; PrerequisiteError: the other
        run's values cannot be read.
        """
        stop = plan.evaluation.stop_when
        drawn = output.read_run_record(plan.rundir.helm).drawn_sample
        if stop is None or drawn is None:
            return None
        file = plan.rundir.model_configs / names.OTHER_RUN
        try:
            others = (
                parse_json(file.read_text(encoding="utf-8"))["values"] if stop.differs_from else {}
            )
        except (OSError, ValueError, LookupError) as error:
            raise PrerequisiteError(f"{file}: cannot be read: {error}") from None
        return cls(plan, stop, drawn, others)

    @property
    def most(self) -> int:
        """Instances that may be asked."""
        return min(self.plan.evaluation.params.limit_samples or self.drawn.of, self.drawn.of)

    @property
    def sizes(self) -> tuple[int, ...]:
        return looks_up_to(self.stop.first, self.most)

    def see(self, key: InstanceKey, _state: output.RequestState) -> None:
        self._place.setdefault(key[0], len(self._place))

    def weigh(self, draft: Draft) -> None:
        """Report what was known at each look; a rule may be about the floor.

        Raises:
            ConfigError: no interval can hold at several looks.
        """
        stop = self.stop
        asked = self.drawn.asked
        looks = tuple(self._look(draft, size) for size in self.sizes if size <= asked)
        holds = bool(looks) and self._holds(draft, looks[-1])
        run = draft.usage.this_run.total
        paid = draft.usage.all_runs.total.cost
        saved = round((run.requests + run.cached) / asked * (self.most - asked))
        cost = (
            paid.value / paid.priced_requests * saved
            if paid is not None and not paid.unpriced_requests
            else None
        )
        rule: dict[str, Any] = {
            **stop.rules,
            "alpha": stop.alpha,
            "seed": stop.seed,
            "first": stop.first,
        }
        stopped = holds and asked < self.most
        draft.stopped_early = StoppedEarly(
            rule, looks, asked, self.drawn.of, holds, stopped, saved, cost
        )
        if asked < self.drawn.of:
            drawn_how = (
                f"{asked} of {self.drawn.of} instances, drawn at random with seed {stop.seed}"
            )
            draft.notes.add(
                Importance.DOUBTFUL, f"the score is of a sample: {drawn_how} (stop_when)"
            )
        if stopped and (bias := bias_of_stopping(stop)) is not None:
            draft.notes.add(Importance.DOUBTFUL, bias)
        if asked == self.most:
            when = "held only when" if holds else "never held:"
            text = (
                f"stop_when: {stop.text} {when} all {asked} instances that may be asked were asked"
            )
            draft.notes.add(Importance.BACKGROUND, text)

    def _look(self, draft: Draft, size: int) -> Look:
        metric = draft.main_values
        if metric is None or not metric.values:
            return Look(size, None, None, None)
        if metric.helm_mean not in (None, helm_mean(metric.values)):
            why = "is not a mean over instances: no interval holds at several looks"
            raise ConfigError(f"{STOP_WHEN}: {draft.main} {why}")
        first = {key: value for key, value in metric.values.items() if self._place[key[0]] < size}
        values = with_missing_counted(first, draft.missing, failed_as_zero=draft.missing_as_zero)
        if self.stop.differs_from is not None:
            values = {
                key: value - self.others[key[0]]
                for key, value in values.items()
                if key[0] in self.others
            }
            score = draft.scores.get(draft.main)
            low, high = (score.scale if score is not None else None) or PROPORTION
            if not all(
                low <= one <= high for one in (*metric.values.values(), *self.others.values())
            ):
                raise ConfigError(
                    f"{STOP_WHEN}.differs_from: the scale of {draft.main} has no known ends"
                )
            metric = replace(metric, scale=(low - high, high - low), lowest=None)
        if not values:
            return Look(size, None, None, None)
        # a level other than 95 % counts as so many looks more, or fewer
        found = mean_score(
            replace(metric, looks=len(self.sizes) * 2 * TAIL_ALPHA / self.stop.alpha), values
        )
        return Look(size, found.value, found.stats.ci_low, found.stats.ci_high)

    def _holds(self, draft: Draft, look: Look) -> bool:
        stop = self.stop
        floor = draft.floors.get(draft.main)
        if look.ci_low is None or look.ci_high is None:
            return False
        if stop.half_width is not None:
            return (look.ci_high - look.ci_low) / 2 <= stop.half_width
        if stop.differs_from is not None:
            return not look.ci_low <= 0 <= look.ci_high
        if floor is None or floor.assumed:
            return False
        return look.ci_high < floor.value if floor.lower_is_better else look.ci_low > floor.value
