"""Applies the rule of `extra.stop_when`, which may end a run before all instances were asked.

The program looks at the score several times while the sample grows, and stops the run when the rule
is fulfilled. Let K be the number of looks. The interval of each look misses the true mean with a
probability of alpha / K. The probability that at least one of the intervals misses the true mean is
therefore at most alpha (Bonferroni's inequality), whenever the run stops. Confidence sequences made
by betting (I. Waudby-Smith and A. Ramdas, JRSS B 86:1-27, 2024) are wider for few looks, as
benchmarks/stop_when_coverage.py shows.
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
from eval_factory.plan.run_plan import STOP_WHEN_SETTING, Plan
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import PROPORTION, TAIL_ALPHA, Bounds
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    helm_mean,
    mean_score,
    with_missing_counted,
)


def look_sizes_up_to(first: int, all_instances: int) -> tuple[int, ...]:
    """Return the number of asked instances at each look.

    The number doubles from look to look. The last look is at all instances. For example, 100 and
    1,000 instances give the looks (100, 200, 400, 800, 1000).

    Args:
        first: the number of instances at the first look.
        all_instances: the number of instances that the run may ask.
    """
    if first >= all_instances:
        return (all_instances,)
    return (first, *look_sizes_up_to(2 * first, all_instances))


def bias_of_stopping(stop: StopWhen) -> str | None:
    """Return a warning that the score of a stopped run is biased; None if the rule causes no bias.

    A run that stops because of a good score stops more often if the score is good by chance. A rule
    about the width of the interval causes no such bias.
    """
    if stop.beats_floor:
        size = (
            "in simulations by 2 to 5 points, for a model that is 3 to 10 points above the best "
            "score without a model"
        )
        bias = f"the score of a run that stopped early is too good on average ({size})"
    elif stop.differs_from is not None:
        bias = "the difference of a run that stopped early is too large on average"
    else:
        return None
    advice = "report the interval, which allows for this, or ask all instances"
    return f"stop_when: {stop.text}: {bias}; {advice}"


@dataclass(frozen=True)
class Looks(Part):
    """The part of a result that reports the looks at the growing sample of a run.

    `see` must be called for the instances in the order in which they were drawn.
    """

    plan: Plan
    stop: StopWhen
    drawn: output.DrawnSample
    # id of an instance -> its value in the other run; empty if the rule is not `differs_from`
    other_values: Mapping[str, float]
    # id of an instance -> its position in the order of drawing, from 0
    _position: dict[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, plan: Plan) -> Looks | None:
        """Return the looks; None if the run has no rule, or if HELM drew no sample.

        Raises:
            HelmError: HELM's record of the run cannot be read.
            PrerequisiteError: The values of the other run cannot be read.
        """
        stop = plan.evaluation.stop_when
        drawn = output.read_run_record(plan.rundir.helm).drawn_sample
        if stop is None or drawn is None:
            return None
        file = plan.rundir.model_configs / names.OTHER_RUN_FILE
        other_values: Mapping[str, float] = {}
        try:
            if stop.differs_from:
                other_values = parse_json(file.read_text(encoding="utf-8"))["values"]
        except (OSError, ValueError, LookupError) as error:
            raise PrerequisiteError(f"{file}: cannot be read: {error}") from None
        return cls(plan, stop, drawn, other_values)

    @property
    def max_instances(self) -> int:
        """The number of instances that the run may ask."""
        # `limit_samples` is None if all instances may be asked; `drawn.of` is their number.
        return min(self.plan.evaluation.params.limit_samples or self.drawn.of, self.drawn.of)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The planned number of asked instances at each look; a run may stop before the last."""
        return look_sizes_up_to(self.stop.first, self.max_instances)

    def see(self, key: InstanceKey, _state: output.RequestState) -> None:
        """Store the position of the instance in the order of drawing."""
        instance, _, _ = key
        # An instance may be seen again, such as in another trial: it keeps its first position.
        self._position.setdefault(instance, len(self._position))

    def weigh(self, draft: Draft) -> None:
        """Report the score and interval at each look, and whether the run stopped early.

        Also add notes on the sample and on the rule.

        A floor is the best score without a model. The floors are added before this hook is called:
        a rule may compare them with the interval.

        Raises:
            ConfigError: No interval of this metric is valid at several looks, or the rule needs a
                scale with known ends.
        """
        stop = self.stop
        asked = self.drawn.asked
        looks = tuple(self._look(draft, size) for size in self.sizes if size <= asked)
        holds = bool(looks) and self._is_fulfilled(draft, looks[-1])
        saved_requests, saved_cost = self._saved(draft)
        rule: dict[str, Any] = {
            **stop.rules,
            "alpha": stop.alpha,
            "seed": stop.seed,
            "first": stop.first,
        }
        stopped = holds and asked < self.max_instances
        draft.stopped_early = StoppedEarly(
            rule,
            looks,
            asked=asked,
            of=self.drawn.of,
            holds=holds,
            stopped=stopped,
            saved_requests=saved_requests,
            saved_cost=saved_cost,
        )
        if asked < self.drawn.of:
            sample = f"{asked} of {self.drawn.of} instances, drawn at random with seed {stop.seed}"
            draft.notes.add(Importance.DOUBTFUL, f"the score is of a sample: {sample} (stop_when)")
        bias = bias_of_stopping(stop)
        if stopped and bias is not None:
            draft.notes.add(Importance.DOUBTFUL, bias)
        if asked == self.max_instances:
            when = "held only when" if holds else "never held:"
            text = (
                f"stop_when: {stop.text} {when} all {asked} instances that may be asked were asked"
            )
            draft.notes.add(Importance.BACKGROUND, text)

    def _saved(self, draft: Draft) -> tuple[int, float | None]:
        """Return the number of requests that the rule saved, and their cost.

        The cost is None if prices are not known.
        """
        asked = self.drawn.asked
        # Requests that the cache answered count, too: after a resume, an earlier run sent them.
        usage = draft.usage.this_run.total
        requests_per_instance = (usage.requests + usage.cached) / asked
        saved_requests = round(requests_per_instance * (self.max_instances - asked))
        # Of all runs, because this run may have paid for only some of the requests.
        cost = draft.usage.all_runs.total.cost
        if cost is None or cost.unpriced_requests:
            return saved_requests, None
        return saved_requests, cost.value / cost.priced_requests * saved_requests

    def _look(self, draft: Draft, size: int) -> Look:
        """Return the score and the interval of the first `size` instances.

        If the rule compares with another run, return the mean difference from that run instead of
        the score. A number that cannot be computed is None.

        Raises:
            ConfigError: No interval of this metric is valid at several looks, or the rule needs a
                scale with known ends.
        """
        metric = draft.main_values
        without_score = Look(size, value=None, ci_low=None, ci_high=None)
        if metric is None or not metric.values:
            return without_score
        # None: the values are not HELM's own, so their mean is the score.
        if metric.helm_mean not in (None, helm_mean(metric.values)):
            problem = "is not a mean over instances: no interval is valid at several looks"
            raise ConfigError(f"{STOP_WHEN_SETTING}: {draft.main} {problem}")
        first_values = {}
        for key, value in metric.values.items():
            instance, _, _ = key
            if self._position[instance] < size:
                first_values[key] = value
        values = with_missing_counted(
            first_values, draft.missing, failed_as_zero=draft.missing_as_zero
        )
        if self.stop.differs_from is not None:
            values = self._differences(values)
            metric = replace(metric, scale=self._scale_of_differences(draft, metric), lowest=None)
        if not values:
            return without_score
        # `mean_score` divides an alpha of 5 %, which is 2 * TAIL_ALPHA, by the number of looks.
        # Another alpha is expressed as more, or fewer, looks.
        looks = len(self.sizes) * 2 * TAIL_ALPHA / self.stop.alpha
        score_at_look = mean_score(replace(metric, looks=looks), values)
        stats = score_at_look.stats
        return Look(size, score_at_look.value, stats.ci_low, stats.ci_high)

    def _differences(self, values: Mapping[InstanceKey, float]) -> dict[InstanceKey, float]:
        """Return the differences of these values from the other run's values.

        Instances without a value in the other run are left out.
        """
        differences = {}
        for key, value in values.items():
            instance, _, _ = key
            if instance in self.other_values:
                differences[key] = value - self.other_values[instance]
        return differences

    def _scale_of_differences(self, draft: Draft, metric: MetricValues) -> Bounds:
        """Return the lowest and the highest possible difference between two values of the metric.

        Raises:
            ConfigError: A value of one of the runs lies outside the known scale of the metric.
        """
        low, high = PROPORTION
        score = draft.scores.get(draft.main)
        if score is not None and score.scale:
            low, high = score.scale
        all_values = (*metric.values.values(), *self.other_values.values())
        is_known = all(low <= value <= high for value in all_values)
        if not is_known:
            raise ConfigError(
                f"{STOP_WHEN_SETTING}.differs_from: the scale of {draft.main} has no known ends"
            )
        return low - high, high - low

    def _is_fulfilled(self, draft: Draft, look: Look) -> bool:
        """Return True if the interval at this look fulfils the rule."""
        stop = self.stop
        if look.ci_low is None or look.ci_high is None:
            return False
        if stop.half_width is not None:
            return (look.ci_high - look.ci_low) / 2 <= stop.half_width
        if stop.differs_from is not None:
            return not look.ci_low <= 0 <= look.ci_high
        # The remaining rule, `beats_floor`, wants a score above the best score without a model.
        floor = draft.floors.get(draft.main)
        if floor is None or floor.assumed:
            return False
        if floor.lower_is_better:
            return look.ci_high < floor.value
        return look.ci_low > floor.value
