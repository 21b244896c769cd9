"""What became of the answers when questions were asked again: another draw, other words, a doubt,
leave not to know, their choices in another order.

The question is the unit: how often it was asked gives no more independent values, and sources that
questions share are clusters of them. HELM's own score stays that of the questions as they are; with
`extra.repeats` the mean over all askings in the same words is what is compared.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from eval_factory.core.askings import (
    Abstention,
    AskedAgain,
    Change,
    InOtherWords,
    Pushback,
    Repeats,
    Share,
)
from eval_factory.core.results import ALL_ORDERS, REPEATS_MEAN, ChoiceOrders, Score
from eval_factory.endpoint import openai_api
from eval_factory.helm import output
from eval_factory.helm.metric_facts import facts_of
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.confidence import ConfidenceOfAnswers, Logprobs, Sources, Unit, share_of
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import PROPORTION, describe, holm
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.paired import paired_difference
from eval_factory.scoring.readability import AnswerForm, option_read, right_answers
from eval_factory.scoring.request_states import has_failed, prompt_of, text_of
from eval_factory.scoring.rubric import clipped
from eval_factory.scoring.scores import (
    InstanceKey,
    MetricValues,
    bounds_of,
    is_derived,
    score_of,
    sources_of,
    with_missing_counted,
)
from eval_factory.tasks.asked_again import (
    ABSTAIN,
    ASKED_AGAIN_BY,
    ASKED_AGAIN_IF,
    BLIND,
    BLIND_WITH,
    CONFIDENCE,
    PERTURB,
    PUSHBACK,
    REPEAT,
    STATED_ONLY,
    abstains,
    is_asked_again,
)
from eval_factory.tasks.choice_question import number_of_order, refers_to_others, why_kept

AS_IT_IS = ""  # the name of a question's first asking
MIN_IN_GROUP = 10
MAX_LOST = 20
MAX_STORED = 200
NO_OPTION = "no option"  # what an answer is counted as that names none
_NONE = re.compile(r"\W*(?:none|neither|ningun)", re.IGNORECASE)


@dataclass
class Askings:
    plan: Plan
    form: AnswerForm | None
    pattern: str | None  # by which HELM finds a label in an answer; None: the answer is the label
    confidence: ConfidenceOfAnswers | None
    metrics: list[MetricValues] = field(default_factory=list)
    """HELM's, and those made of them, of questions that were asked again."""
    answers: dict[Unit, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    """Name of the asking -> what was answered; a request that failed is not in it."""
    mean: MetricValues | None = None  # of the main metric over all askings in the same words
    prompts: dict[Unit, int] = field(default_factory=dict)  # hashes of the questions as they are
    unchanged: set[InstanceKey] = field(default_factory=set)
    """Questions that HELM asked again without a change: it leaves out only those whose inputs
    are of one class.
    """
    # questions whose right option is that none of the others is
    none_right: set[Unit] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        plan: Plan,
        run: output.HelmRun,
        form: AnswerForm | None,
        logprobs: Callable[[output.RequestState], Logprobs],
    ) -> Askings | None:
        """None where each question is asked once."""
        extra = plan.evaluation.run.config.params.extra
        ours = any(getattr(extra, name) for name in (*ASKED_AGAIN_BY, *ASKED_AGAIN_IF))
        if not ours and "data_augmentation" not in plan.evaluation.task.helm.arguments:
            return None
        confidence = ConfidenceOfAnswers.of(plan, logprobs)
        return cls(plan, form, run.run_spec.adapter_spec.output_mapping_pattern, confidence)

    def add(self, key: InstanceKey, state: output.RequestState) -> None:
        unit = key[:2]
        if key[2] is not None and not is_asked_again(key[2]):
            if self.prompts.get(unit) == hash(prompt_of(state)):
                self.unchanged.add(key)
            return
        if key[2] is None:
            self.prompts[unit] = hash(prompt_of(state))
            right = right_answers(state)
            if state.output_mapping and right and all(map(_is_none_of_these, right)):
                self.none_right.add(unit)
        if not has_failed(state):
            label = option_read(text_of(state), self.pattern)
            said = " ".join((state.output_mapping or {}).get(label, label).casefold().split())
            if len(said) > MAX_STORED:  # memory does not grow with what models write
                said = f"{said[:MAX_STORED]} {hash(said)}"
            self.answers[unit][key[2] or AS_IT_IS] = said
            if key[2] is None and self.confidence is not None:
                self.confidence.add(unit, state, label)

    def count_replies(self, draft: Draft) -> None:
        """Those about confidence are of no request state: one that failed is asked for again, as
        any is.
        """
        if self.confidence is None or self.confidence.in_one:
            return
        for unit, found in self.confidence.replies.items():
            key: InstanceKey = (*unit, CONFIDENCE)
            draft.tally.requested.add(key)
            if found.error not in (None, openai_api.FILTERED_MESSAGE):
                draft.tally.fail(key, found.error or "")

    def take(self, draft: Draft) -> None:
        """The metrics of what was asked again are none of the run's scores."""
        again = [one for one in draft.metrics if is_asked_again(one.perturbation)]
        # HELM's worst cases mix several askings
        self.metrics = [one for one in again if not is_derived(one)]
        draft.metrics = [one for one in draft.metrics if not is_asked_again(one.perturbation)]

    def complete(self, draft: Draft) -> None:
        """Add the report; with repeats, the main metric becomes its mean over them."""
        main = draft.main_values
        if main is None or not main.values:
            why = "what was asked again cannot be reported: the main metric has no values"
            draft.notes.add(Importance.DOUBTFUL, why)
            return
        self._notes(draft)
        extra = self.plan.evaluation.run.config.params.extra
        found = _Values(self, main, draft)
        first = found.of(AS_IT_IS)
        if extra.repeats is not None:
            again = [
                one
                for one in _same_as(main, self.metrics)
                if str(one.perturbation).startswith(REPEAT)
            ]
            self.mean = add_mean_over(draft, [main, *again], REPEATS_MEAN)
        draft.asked_again = AskedAgain(
            repeats=None
            if extra.repeats is None
            else self.repeats(found, extra.repeats, draft.scores),
            in_other_words=self.in_other_words(
                found, {name: PERTURB + name for name in extra.perturb or ()} or found.helms
            ),
            pushback=None if extra.pushback is None else self.pushback(found, extra.pushback),
            confidence=None
            if self.confidence is None
            else self.confidence.report(first, found.sources),
            abstention=self.abstention(found, extra.cost_of_wrong) if extra.allow_abstain else None,
            blind=self.blind(found, draft) if extra.blind_control else {},
            none_of_these=found.share(
                {
                    unit: float(value >= 1.0)
                    for unit, value in sorted(first.items())
                    if unit in self.none_right
                }
            ),
        )

    def repeats(self, found: _Values, times: int, scores: Mapping[str, Score]) -> Repeats:
        names = [AS_IT_IS, *(f"{REPEAT}{number}" for number in range(2, times + 1))]
        by_name = [found.of(name) for name in names]
        units = [unit for unit in by_name[0] if all(unit in values for values in by_name)]
        if not units or self.mean is None:
            return Repeats(times, 0)
        mean = scores[self.mean.label].stats
        values = {unit: [of_name[unit] for of_name in by_name] for unit in units}
        answers: Mapping[Unit, Sequence[object]] = values
        if self.form is not None:
            # None: it failed
            answers = {unit: [self.answers[unit].get(name) for name in names] for unit in units}
        between, within = _parts(values, found.sources)
        pairs = {
            unit: statistics.fmean(a == b for a, b in combinations(of_unit, 2))
            for unit, of_unit in answers.items()
        }
        return Repeats(
            times,
            len(units),
            mean=Share(mean.mean, mean.count, mean.ci_low, mean.ci_high),
            stderr_between=between,
            stderr_within=within,
            same_each_time=found.share(
                {unit: float(len(set(of_unit)) == 1) for unit, of_unit in answers.items()}
            ),
            pairs_agree=found.share(pairs),
            majority=None
            if self.form is None
            else found.share(
                {unit: values[unit][_most_frequent(answers[unit])] for unit in units}, found.scale
            ),
            best_of_n=found.share(
                {unit: max(of_unit) for unit, of_unit in values.items()}, found.scale
            ),
        )

    def in_other_words(
        self, found: _Values, families: Mapping[str, str]
    ) -> dict[str, InOtherWords]:
        """`families`: family -> the name of its perturbation."""
        before = found.of(AS_IT_IS)
        changes = {}
        for family, name in families.items():
            after = found.of(name)
            if (change := found.change(before, after)) is not None:
                groups = found.by_group(before, after)
                lost = [
                    unit[0] for unit, value in after.items() if before.get(unit, 0.0) >= 1.0 > value
                ]
                shown = tuple(lost[:MAX_LOST]) if found.has_right else ()
                changes[family] = InOtherWords(change, found.not_asked(name), None, groups, shown)
        corrected = zip(
            changes.items(), holm([one.change.p_value for one in changes.values()]), strict=True
        )
        return {family: replace(one, p_holm=p_holm) for (family, one), p_holm in corrected}

    def pushback(self, found: _Values, most: int) -> Pushback:
        before = found.of(AS_IT_IS)
        names = [f"{PUSHBACK}{turn}" for turn in range(1, most + 1)]
        turns = [found.change(before, found.of(name)) for name in names]
        changed: Counter[str] = Counter()
        for asked in self.answers.values():
            if AS_IT_IS in asked and all(name in asked for name in names):
                others = (
                    turn for turn, name in enumerate(names, 1) if asked[name] != asked[AS_IT_IS]
                )
                changed[str(next(others, "never"))] += 1
        return Pushback(
            tuple(one for one in turns if one is not None), dict(sorted(changed.items()))
        )

    def blind(self, found: _Values, draft: Draft) -> dict[str, Change]:
        changes = {
            with_: found.change(found.of(AS_IT_IS), found.of(BLIND + with_)) for with_ in BLIND_WITH
        }
        known = {with_: change for with_, change in changes.items() if change is not None}
        for with_, change in known.items():
            if change.ci_high is None or change.ci_high >= 0:
                no_worse = (
                    f"with {BLIND_WITH[with_]} in place of its own the score is not shown "
                    "to be worse"
                )
                draft.notes.add(
                    Importance.DOUBTFUL, f"{no_worse}: the pictures may not have been needed"
                )
        return known

    def abstention(self, found: _Values, cost: float) -> Abstention:
        before = found.of(AS_IT_IS)
        after = found.of(ABSTAIN)
        units = [unit for unit in before if unit in after]
        # a benchmark may have such an option of its own, which is right where it is right
        silent = {
            unit: after[unit] < 1.0 and abstains(self.answers[unit].get(ABSTAIN, ""))
            for unit in units
        }
        scored = {unit: 0.0 if silent[unit] else _at_cost(after[unit], cost) for unit in units}
        is_right = {unit: before[unit] >= 1.0 for unit in units}
        return Abstention(
            cost,
            found.share({unit: float(silent[unit]) for unit in units}),
            found.share({unit: float(after[unit] >= 1.0) for unit in units if not silent[unit]}),
            found.share(scored, scale=(-cost, 1.0)),
            found.share({unit: _at_cost(before[unit], cost) for unit in units}, scale=(-cost, 1.0)),
            found.share({unit: float(silent[unit]) for unit in units if not is_right[unit]}),
            found.share({unit: float(silent[unit]) for unit in units if is_right[unit]}),
        )

    def _notes(self, draft: Draft) -> None:
        extra = self.plan.evaluation.run.config.params.extra
        helm = self.plan.evaluation.task.helm
        if extra.repeats and not draft.run.run_spec.adapter_spec.temperature:
            why = (
                "at temperature 0 repeats differ only by what the endpoint itself does not hold "
                "equal"
            )
            draft.notes.add(Importance.BACKGROUND, f"{why}; config.params.temperature sets it")
        if extra.confidence == STATED_ONLY:
            why = "answers were asked for with their confidence in one"
            draft.notes.add(
                Importance.DOUBTFUL,
                f"{why}: the prompts, and so the score, are not the benchmark's own",
            )
        if extra.perturb and (helm.any_run_spec or self.plan.evaluation.benchmark is not None):
            why = (
                "nobody has checked that other words leave the right answers of this benchmark "
                "as they are"
            )
            draft.notes.add(
                Importance.DOUBTFUL, f"{why}: `perturb` is checked for the tasks of eval-factory"
            )

    def lead(self, draft: Draft) -> None:
        """The mean over repeats is the main score: groups are made of it, and it is what is
        compared.
        """
        if self.mean is None:
            return
        if draft.main in draft.floors:
            draft.floors = {**draft.floors, self.mean.label: draft.floors[draft.main]}
        self.metrics.append(self.mean)
        draft.main = self.mean.label
        draft.main_values = self.mean
        every: set[InstanceKey] = {(*unit, None) for unit in self.answers}
        draft.missing = every - self.mean.values.keys()


class _Values:
    """The main metric's values by asking, and what is made of them with the questions' sources."""

    def __init__(self, askings: Askings, main: MetricValues, draft: Draft) -> None:
        self._main = main
        self._members = draft.tally.members
        self.scale = main.scale
        of_main = _same_as(main, (*askings.metrics, *draft.metrics))
        same = {
            str(one.perturbation): one
            for one in of_main
            if one.perturbation and not is_derived(one)
        }
        self._by_name = {AS_IT_IS: main.values}
        for name, one in same.items():
            self._by_name[name] = {
                key: value for key, value in one.values.items() if key not in askings.unchanged
            }
        self.helms = {
            name: name
            for name in same
            if not is_asked_again(name) and number_of_order(name) is None
        }
        """Perturbations of HELM's."""
        self.has_right = (facts_of(main.name, main.scale).scale or PROPORTION) == PROPORTION
        """Whether an answer is right where its value is 1; a rating is not."""
        self._missing = draft.missing
        self._as_zero = draft.as_zero

    def of(self, name: str) -> dict[Unit, float]:
        """Without those that failed, or with 0 for them as the score has it."""
        known = self._by_name.get(name, {})
        counted = with_missing_counted(
            known, self._missing & known.keys(), failed_as_zero=self._as_zero
        )
        return {key[:2]: value for key, value in counted.items()}

    def not_asked(self, name: str) -> int:
        """Questions that were not asked in this way."""
        asked = {key[:2] for key in self._by_name.get(name, {})}
        return sum(key[:2] not in asked for key in self._by_name[AS_IT_IS])

    def sources(self, units: Sequence[Unit]) -> list[str] | None:
        """Trials of a question share it."""
        questions = [question for question, _ in units]
        shared = sources_of(self._main, questions)
        return questions if shared is None and len(set(questions)) < len(questions) else shared

    def share(
        self, values: Mapping[Unit, float], scale: tuple[float, float] | None = PROPORTION
    ) -> Share | None:
        """None of nothing. `scale`: of the values; that of shares if not given."""
        return share_of(values, self.sources, scale)

    def change(self, before: Mapping[Unit, float], after: Mapping[Unit, float]) -> Change | None:
        """None where no question has both values."""
        units = [unit for unit in before if unit in after]
        if not units:
            return None
        one = [before[unit] for unit in units]
        other = [after[unit] for unit in units]
        found = paired_difference(one, other, clusters=self.sources(units), scale=self.scale)
        was_right = {unit: float(after[unit] < 1.0) for unit in units if before[unit] >= 1.0}
        was_wrong = {unit: float(after[unit] >= 1.0) for unit in units if before[unit] < 1.0}
        return Change(
            len(units),
            found.value_a,
            found.value_b,
            found.difference,
            found.ci_low,
            found.ci_high,
            found.p_value,
            *((self.share(was_right), self.share(was_wrong)) if self.has_right else ()),
        )

    def by_group(
        self, before: Mapping[Unit, float], after: Mapping[Unit, float]
    ) -> dict[str, dict[str, Change]]:
        found: dict[str, dict[str, Change]] = {}
        for name, by_value in self._members.items():
            for value, keys in by_value.items():
                units = {key[:2] for key in keys} & before.keys() & after.keys()
                if MIN_IN_GROUP <= len(units) < len(before):
                    change = self.change({unit: before[unit] for unit in sorted(units)}, after)
                    if change is not None:
                        found.setdefault(name, {})[value] = change
        return found


def _same_as(main: MetricValues, metrics: Sequence[MetricValues]) -> list[MetricValues]:
    """Those of its name and split, of any perturbation."""
    return [one for one in metrics if (one.name, one.split) == (main.name, main.split)]


def add_mean_over(
    draft: Draft, metrics: Sequence[MetricValues], suffix: str
) -> MetricValues | None:
    """The score of one value a question, its mean over these metrics (the main one first), with its
    bounds. None, and nothing added, where no question has a value.
    """
    main = metrics[0]
    missing = draft.missing
    values: dict[InstanceKey, float] = {}
    for metric in metrics:
        values |= metric.values
    counted = with_missing_counted(values, missing, failed_as_zero=draft.as_zero)
    mean = _of_questions(main, counted, suffix)
    score = score_of(mean, set(), failed_as_zero=draft.as_zero) if mean.values else None
    if score is None:
        return None
    draft.scores[mean.label] = clipped(score) if draft.run.rubric else score
    ends = [
        {**values, **dict.fromkeys(missing & values.keys(), end)}
        for end in main.scale or PROPORTION
    ]
    low, high = (bounds_of(_of_questions(main, one, suffix), set()) for one in ends)
    if low is not None and high is not None:
        draft.bounds[mean.label] = (low[0], high[1])
    return mean


def _of_questions(
    main: MetricValues, values: Mapping[InstanceKey, float], suffix: str
) -> MetricValues:
    by_question: dict[Unit, list[float]] = defaultdict(list)
    for (question, trial, _), value in values.items():
        by_question[(question, trial)].append(value)
    means: dict[InstanceKey, float] = {
        (*unit, None): statistics.fmean(all_) for unit, all_ in by_question.items()
    }
    name = main.name + suffix
    label = name + main.label.removeprefix(main.name)
    return replace(main, label=label, name=name, helm_mean=None, values=means, counts={})


def _parts(
    values: Mapping[Unit, Sequence[float]], sources: Sources
) -> tuple[float | None, float | None]:
    """Standard errors of the mean over questions: by the draw of questions, and by the draw of
    answers.

    One-way analysis of variance: the mean of the questions' own variances, over all answers, is the
    part of the answers; what is left of the variance of the questions' means is that of the
    questions (0 where nothing is left).
    """
    times = len(next(iter(values.values())))
    total = describe(
        [statistics.fmean(of_unit) for of_unit in values.values()], clusters=sources(list(values))
    ).stderr
    within = statistics.fmean(map(statistics.variance, values.values())) / times / len(values)
    return None if total is None else math.sqrt(max(0.0, total**2 - within)), math.sqrt(within)


def _most_frequent(answers: Sequence[object]) -> int:
    """The index of the first of the most frequent answer; of equally frequent ones, of that
    which came first.
    """
    return answers.index(Counter(answers).most_common(1)[0][0])


def _at_cost(value: float, cost: float) -> float:
    return 1.0 if value >= 1.0 else -cost


def _is_none_of_these(option: str) -> bool:
    return abstains(option) or (refers_to_others(option) and _NONE.match(option) is not None)


@dataclass
class ChoiceOrderCheck:
    """What becomes of the answers when the choices of a question stand in another order
    (`extra.shuffle_choices`).

    A question's orders are not independent of each other, so they make one value each.
    """

    wanted: int  # orders of each question
    pattern: str | None  # by which HELM finds a label in an answer; None: the answer is the label
    by_order: Sequence[MetricValues]  # HELM's metrics of the questions in other orders
    asked: dict[Unit, dict[int, str | None]] = field(default_factory=lambda: defaultdict(dict))
    """Order -> the text of the option that was chosen; a request that failed is not in it."""
    # how many orders each question was asked in
    orders: dict[Unit, int] = field(default_factory=Counter)
    kept: dict[Unit, str] = field(default_factory=dict)
    letters: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(
        cls, plan: Plan, run: output.HelmRun, metrics: Sequence[MetricValues]
    ) -> tuple[ChoiceOrderCheck | None, Sequence[MetricValues]]:
        """The check, and the metrics without those that are of other orders alone; None where
        there is one order.
        """
        wanted = plan.evaluation.run.config.params.extra.shuffle_choices
        if wanted is None:
            return None, metrics
        original = [one for one in metrics if one.perturbation is None]
        others = [
            one
            for one in metrics
            if one.perturbation is not None and number_of_order(one.perturbation)
        ]
        return cls(wanted, run.run_spec.adapter_spec.output_mapping_pattern, others), original

    def add(self, key: InstanceKey, state: output.RequestState) -> None:
        order = number_of_order(key[2])
        if order is None:
            return
        unit = key[:2]
        self.orders[unit] += 1
        if (
            why := why_kept([reference.output.text for reference in state.instance.references])
        ) is not None:
            self.kept[unit] = why
        if has_failed(state):
            return
        options = state.output_mapping or {}
        label = option_read(text_of(state), self.pattern)
        self.asked[unit][order] = options.get(label)
        self.letters[label if label in options else NO_OPTION] += 1

    def values_of(self, main: MetricValues) -> dict[int, MetricValues]:
        """Order -> the main metric's values in it."""
        numbered = [
            (number_of_order(one.perturbation), one) for one in _same_as(main, self.by_order)
        ]
        return {
            1: main,
            **{order: one for order, one in sorted(numbered, key=str) if order is not None},
        }

    def complete(self, draft: Draft) -> None:
        """Add the report, the main metric's score over all orders of each question, and its
        bounds.
        """
        main = draft.main_values
        draft.choice_orders = self.report(main, draft.missing)
        if main is not None:
            add_mean_over(draft, list(self.values_of(main).values()), ALL_ORDERS)

    def report(self, main: MetricValues | None, missing: set[InstanceKey]) -> ChoiceOrders:
        """Over the questions that were asked in more than one order."""
        moved = [unit for unit, count in self.orders.items() if count > 1]
        answered = {unit: self.asked[unit] for unit in moved if len(self.asked[unit]) > 1}
        changed = {
            unit: float(len(set(by_order.values())) > 1) for unit, by_order in answered.items()
        }
        clusters = (None if main is None else main.clusters) or {}

        def share(values: Mapping[Unit, float]) -> Share | None:
            return share_of(
                values,
                lambda units: [clusters.get(question, question) for question, _ in units],
                None,
            )

        means: dict[str, float | None] = {}
        worst: dict[Unit, float] = {}
        several = set(moved)
        lost = {key[:2] for key in missing}
        for order, metric in ({} if main is None else self.values_of(main)).items():
            asked = [
                value
                for key, value in metric.values.items()
                if key[:2] in several and key not in missing
            ]
            means[str(order)] = statistics.fmean(asked) if asked else None
            for key, value in metric.values.items():
                worst[key[:2]] = min(value, worst.get(key[:2], value))
        return ChoiceOrders(
            orders=self.wanted,
            questions=len(moved),
            kept=dict(sorted(Counter(self.kept.values()).items())),
            by_order=means,
            changed=share(changed),
            # of the questions whose every order was answered: each answer has the full value
            right_in_all=share(
                {
                    unit: float(worst[unit] >= 1.0)
                    for unit in moved
                    if unit in worst and unit not in lost
                }
            ),
            letters=dict(sorted(self.letters.items())),
        )
