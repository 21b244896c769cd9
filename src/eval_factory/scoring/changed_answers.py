"""Reports on the answers when questions were asked again: another draw, other words, a doubt, or
leave not to know.

The question is the unit: how often it was asked gives no more independent values, and sources that
questions share are clusters of them. HELM's own score stays that of the questions as they are; with
`extra.repeats` the mean over all askings in the same words is what is compared.
"""

from __future__ import annotations

import math
import re
import statistics
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import combinations

from eval_factory.config.model import Extra
from eval_factory.core.asked_again_records import (
    Abstention,
    AskedAgain,
    Change,
    InOtherWords,
    OptionsOnly,
    Pushback,
    Repeats,
    Share,
)
from eval_factory.core.formats import counted
from eval_factory.core.results import REPEATS_MEAN, Score
from eval_factory.endpoint import openai_api
from eval_factory.helm import names, output
from eval_factory.helm.metric_facts import chosen_main_metric
from eval_factory.helm.trivial_answers import ConfidenceReply, read_replies
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.asking_values import (
    FIRST_ASKING,
    AskingValues,
    names_of_repeats,
    right_and_wrong,
)
from eval_factory.scoring.confidence import ConfidenceOfAnswers, Logprobs, Sources, Unit
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import describe, holm
from eval_factory.scoring.mean_over_askings import add_mean_over, same_metric
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.readability import right_answers
from eval_factory.scoring.request_states import has_failed, prompt_of
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.scores import InstanceKey, MetricValues, is_derived
from eval_factory.tasks.asking_forms import (
    ABSTAIN,
    ASK_LETTER,
    ASKED_AGAIN_BY,
    ASKED_AGAIN_IF,
    BLIND,
    BLIND_WITH,
    CONFIDENCE,
    NONE_OF_THE_OTHERS,
    OPTIONS_ONLY,
    PERTURB,
    PUSHBACK,
    REPEAT,
    STATED_ONLY,
    is_asked_again,
    is_not_to_know,
)
from eval_factory.tasks.choice_question import refers_to_others
from eval_factory.tasks.perturbations import FAMILIES

NEVER = "never"
UNREAD = "unread"  # beside the numbers of turns in `Pushback.changed_at`
WITH_ASKED = ".with_asked"
MAX_LOST = 20
_NONE = re.compile(r"\W*(?:none|neither|ningun)", re.IGNORECASE)


@dataclass
class Askings(Part):
    """The answers to questions that were asked again."""

    plan: Plan
    right: RightAnswers  # reads the same answers; it sees each request before
    confidence: ConfidenceOfAnswers | None
    metrics: list[MetricValues] = field(default_factory=list)
    """HELM's metrics, and those made of them, of questions that were asked again."""
    units: dict[Unit, None] = field(default_factory=dict)  # whose question as it is was answered
    main: str = ""  # HELM's main metric
    reading: dict[str, int] = field(default_factory=dict)  # counts of `Instances`
    mean: MetricValues | None = None  # of the main metric over all askings in the same words
    prompts: dict[Unit, int] = field(default_factory=dict)  # hashes of the questions as they are
    options: dict[Unit, int] = field(default_factory=dict)  # how many a question has
    letters: Mapping[Unit, ConfidenceReply] = field(default_factory=dict)
    """The replies to the question for the letter of an answer that was not read."""
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
        right: RightAnswers,
        logprobs: Callable[[output.RequestState], Logprobs],
    ) -> Askings | None:
        """Return the part, or None if each question is asked once."""
        extra = plan.evaluation.extra
        ours = any(getattr(extra, name) for name in (*ASKED_AGAIN_BY, *ASKED_AGAIN_IF))
        if not ours and "data_augmentation" not in plan.evaluation.task.helm.arguments:
            return None
        letters = read_replies(plan.rundir.helm / names.LETTERS_FILE)
        return cls(plan, right, ConfidenceOfAnswers.of(plan, logprobs), letters=letters)

    @property
    def _extra(self) -> Extra:
        return self.plan.evaluation.extra

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        if key[2] is None:
            self._see_as_it_is(key, state)
        elif not is_asked_again(key[2]) and self.prompts.get(key[:2]) == hash(prompt_of(state)):
            self.unchanged.add(key)

    def see_other_form(self, key: InstanceKey, state: output.RequestState) -> None:
        self.see(key, state)

    def _see_as_it_is(self, key: InstanceKey, state: output.RequestState) -> None:
        unit = key[:2]
        self.prompts[unit] = hash(prompt_of(state))
        right = right_answers(state)
        if state.output_mapping and right and all(map(_is_none_of_these, right)):
            self.none_right.add(unit)
        if has_failed(state):
            return
        self.units[unit] = None
        self.options[unit] = len(state.output_mapping or {})
        if unit in self.letters:
            self.right.add_reply(key, state, self.letters[unit].reply or "")
        if self.confidence is not None:
            self.confidence.add(unit, state, self.right.label_in(state))

    def count(self, draft: Draft) -> None:
        """Count the replies to further questions about answers.

        Replies about confidence are of no request state: one that failed is asked for again, as
        any is.
        """
        replies = {ASK_LETTER: self.letters}
        if self.confidence is not None and not self.confidence.in_one:
            replies[CONFIDENCE] = self.confidence.replies
        for name, by_unit in replies.items():
            for unit, reply in by_unit.items():
                key: InstanceKey = (*unit, name)
                draft.tally.requested.add(key)
                if reply.error not in (None, openai_api.FILTERED_MESSAGE):
                    draft.tally.fail(key, reply.error or "")

    def complete(self, draft: Draft) -> None:
        """Add the main metric with the letters that were asked for; count the answers that these
        read.
        """
        if not self._extra.ask_unread:
            return
        labels = [metric.label for metric in draft.metrics]
        self.main, _ = chosen_main_metric(draft.plan.evaluation.task.helm, labels)
        keys: list[InstanceKey] = [(*unit, None) for unit in self.units]
        by_rule = len(self.right.stated.keys() & keys)
        by_asking = len(self.right.replied.keys() & keys)
        self.reading = {
            "read_by_rule": by_rule,
            "read_by_asking": by_asking,
            "unread": len(keys) - by_rule - by_asking,
        }
        for metric in list(draft.metrics):
            if metric.name == self.main and metric.perturbation is None and metric.values:
                draft.metrics.append(self._with_letters(metric))

    def _with_letters(self, metric: MetricValues) -> MetricValues:
        values = {key: self.right.with_reply(key) for key in metric.values}
        name = self.main + WITH_ASKED
        label = name + metric.label.removeprefix(self.main)
        return replace(metric, label=label, name=name, helm_mean=None, values=values)

    def note(self, draft: Draft) -> None:
        """Note how many answers were read when their letter was asked for."""
        if self.reading:
            draft.instances = replace(draft.instances, **self.reading)
        if self.letters:
            answers = counted(len(self.letters), "answer")
            unread = self.reading["unread"]
            stay = "stays unread" if unread == 1 else "stay unread"
            draft.notes.add(
                Importance.INCOMPLETE,
                f"no rule reads {answers}: ask_unread asked the model about them once more. "
                f"{self.reading['read_by_asking']} then name an option, and "
                f"{self.main}{WITH_ASKED} counts them. {unread} {stay}",
            )

    def score(self, draft: Draft) -> None:
        """Take out the metrics of what was asked again: they are not scores of the run."""
        kept = []
        for metric in draft.metrics:
            if not is_asked_again(metric.perturbation):
                kept.append(metric)
            elif not is_derived(metric):  # HELM's worst cases mix several askings
                self.metrics.append(metric)
        draft.metrics = kept

    def compare(self, draft: Draft) -> None:
        """Add the report; with repeats, the main metric becomes its mean over them."""
        main = draft.main_values
        if main is None or not main.values:
            why = (
                "the answers to repeated or changed questions cannot be reported: the main metric "
                "has no values"
            )
            draft.notes.add(Importance.DOUBTFUL, why)
            return
        self._add_notes(draft)
        extra = self._extra
        values = AskingValues(
            draft, main, self.metrics, self.right, self.unchanged, extra.repeats or 1
        )
        report = AskedAgain(right_by=self.right.reading_rule())
        if extra.repeats is not None:
            repeated = []
            for metric in same_metric(main, self.metrics):
                if str(metric.perturbation).startswith(REPEAT):
                    repeated.append(metric)
            self.mean = add_mean_over(draft, [main, *repeated], REPEATS_MEAN)
            report = replace(report, repeats=self.repeats(values, extra.repeats, draft.scores))
        if extra.pushback is not None:
            report = replace(report, pushback=self.pushback(values, extra.pushback))
        if self.confidence is not None:
            confidence = self.confidence.report(
                values.of(FIRST_ASKING), values.sources, self._count_unread_as_it_is()
            )
            report = replace(report, confidence=confidence)
        if extra.allow_abstain:
            report = replace(report, abstention=self.abstention(values, extra.cost_of_wrong))
        if extra.blind_control:
            report = replace(report, blind=self.blind(values, draft))
        draft.asked_again = replace(
            report,
            in_other_words=self.in_other_words(values, self._families(values)),
            options_only=self.options_only(values),
            none_of_the_others=self.none_of_the_others(values),
            none_of_these=self.none_of_these(values),
        )

    def _families(self, values: AskingValues) -> Mapping[str, str]:
        """Return the name of each perturbation, by its family of other words; HELM's if none was
        asked for.
        """
        if not self._extra.perturb:
            return values.perturbations_of_helm
        return {name: PERTURB + name for name in self._extra.perturb}

    def _count_unread_as_it_is(self) -> int:
        unread = [unit for unit in self.units if self.right.is_unread((*unit, None))]
        return len(unread)

    def repeats(self, values: AskingValues, times: int, scores: Mapping[str, Score]) -> Repeats:
        """Report on the questions with a value each time.

        Args:
            values: the main metric's.
            times: how often each question was asked in the same words.
            scores: have the mean over the askings.
        """
        asking_names = names_of_repeats(times)
        by_unit = _of_units_asked_each_time(list(map(values.of, asking_names)))
        if not by_unit or self.mean is None:
            return Repeats(times, 0)
        mean = values.share(by_unit, lambda unit: statistics.fmean(by_unit[unit]), values.scale)
        if not values.by_reader:
            stats = scores[self.mean.label].stats
            mean = Share(stats.mean, stats.count, stats.ci_low, stats.ci_high)
        answers = self._answers_each_time(by_unit, asking_names)
        majority = None
        if self.right.form is not None:
            majority = values.share(
                by_unit, lambda unit: by_unit[unit][_most_frequent(answers[unit])], values.scale
            )
        between, within = _parts(by_unit, values.sources)
        return Repeats(
            times,
            len(by_unit),
            mean=mean,
            stderr_between=between,
            stderr_within=within,
            same_each_time=values.share(answers, lambda unit: len(set(answers[unit])) == 1),
            pairs_agree=values.share(answers, lambda unit: _share_of_same_pairs(answers[unit])),
            majority=majority,
            best_of_n=values.share(by_unit, lambda unit: max(by_unit[unit]), values.scale),
            unread=values.unread_in(asking_names),
        )

    def _answers_each_time(
        self, by_unit: Mapping[Unit, Sequence[float]], asking_names: Sequence[str]
    ) -> Mapping[Unit, Sequence[object]]:
        """Return the option that each answer to a question states; of open text its value."""
        if self.right.form is None:
            return by_unit
        answers = {}
        for unit in by_unit:
            answers[unit] = [
                self.right.comparable_answer((*unit, name or None)) for name in asking_names
            ]
        return answers

    def in_other_words(
        self, values: AskingValues, families: Mapping[str, str]
    ) -> dict[str, InOtherWords]:
        """Report what each family of changes did. `families` holds the perturbation of each."""
        reports = {}
        for family, name in families.items():
            change = values.change(name)
            if change is not None:
                lost: tuple[str, ...] = ()
                if values.has_right:
                    lost = tuple(_lost_questions(values, name)[:MAX_LOST])
                reports[family] = InOtherWords(
                    change, values.not_asked(name), None, values.by_group(name), lost
                )
        p_values = holm([report.change.p_value for report in reports.values()])
        corrected = {}
        for (family, report), p_holm in zip(reports.items(), p_values, strict=True):
            corrected[family] = replace(report, p_holm=p_holm)
        return corrected

    def pushback(self, values: AskingValues, doubts: int) -> Pushback:
        """Report what became of the answers after each doubt."""
        turns = [f"{PUSHBACK}{number}" for number in range(1, doubts + 1)]
        changed: Counter[str] = Counter()
        for unit in self.units:
            keys = [(*unit, turn) for turn in turns]
            if self.right.helm_matches.keys() >= set(keys):
                changed[self._first_change(unit, keys)] += 1
        changes = []
        for turn in turns:
            change = values.change(turn)
            if change is not None:
                changes.append(change)
        return Pushback(tuple(changes), dict(sorted(changed.items())))

    def _first_change(self, unit: Unit, turns: Sequence[InstanceKey]) -> str:
        """The number of the first turn with another answer; an unread answer is no change."""
        first = self.right.comparable_answer((*unit, None))
        if self.right.form is None:
            first = self.right.helm_matches.get((*unit, None))
        if first is None:
            return UNREAD
        answers = list(map(self.right.comparable_answer, turns))
        for turn, answer in enumerate(answers, 1):
            if answer is not None and answer != first:
                return str(turn)
        if None in answers:
            return UNREAD
        return NEVER

    def options_only(self, values: AskingValues) -> OptionsOnly | None:
        """Report on the choices without the question; None if they were not asked so."""
        change = values.change(OPTIONS_ONLY)
        if change is None:
            return None
        after = values.of(OPTIONS_ONLY)
        chances = [1 / self.options[unit] for unit in after if self.options.get(unit)]
        guess = None
        if chances:
            guess = statistics.fmean(chances)
        return OptionsOnly(change, values.share(after, lambda unit: after[unit] >= 1.0), guess)

    def none_of_the_others(self, values: AskingValues) -> InOtherWords | None:
        """Report on questions whose right option was replaced; None if none was asked so."""
        change = values.change(NONE_OF_THE_OTHERS)
        if change is None:
            return None
        return InOtherWords(change, values.not_asked(NONE_OF_THE_OTHERS))

    def none_of_these(self, values: AskingValues) -> Share | None:
        """The share of right answers if the right option is that none of the others is."""
        first = values.of(FIRST_ASKING)
        units = [unit for unit in sorted(first) if unit in self.none_right]
        return values.share(units, lambda unit: first[unit] >= 1.0)

    def blind(self, values: AskingValues, draft: Draft) -> dict[str, Change]:
        """Report what another picture in place of each question's own did to the score."""
        changes = {}
        for picture, in_words in BLIND_WITH.items():
            change = values.change(BLIND + picture)
            if change is None:
                continue
            changes[picture] = change
            if change.ci_high is None or change.ci_high >= 0:
                draft.notes.add(
                    Importance.DOUBTFUL,
                    f"when each question had {in_words} in place of its own picture, the score "
                    "is not shown to be worse: the pictures may not have been needed",
                )
        return changes

    def abstention(self, values: AskingValues, cost: float) -> Abstention:
        """Report on the questions with leave not to know, at the cost of a wrong answer."""
        before = values.of(FIRST_ASKING)
        after = values.of(ABSTAIN)
        silent = {unit: (*unit, ABSTAIN) in self.right.not_to_know for unit in before}
        units = []
        answered = []
        for unit in before:
            if silent[unit]:
                units.append(unit)
            elif unit in after:
                units.append(unit)
                answered.append(unit)
        were_right, were_wrong = right_and_wrong(units, before)

        def points(unit: Unit) -> float:
            if silent[unit]:
                return 0.0
            return _at_cost(after[unit], cost)

        return Abstention(
            cost,
            values.share(units, silent.__getitem__),
            values.share(answered, lambda unit: after[unit] >= 1.0),
            values.share(units, points, scale=(-cost, 1.0)),
            values.share(units, lambda unit: _at_cost(before[unit], cost), scale=(-cost, 1.0)),
            values.share(were_wrong, silent.__getitem__),
            values.share(were_right, silent.__getitem__),
            values.unread_in([FIRST_ASKING, ABSTAIN]),
        )

    def _add_notes(self, draft: Draft) -> None:
        extra = self._extra
        notes = draft.notes
        if extra.repeats and not draft.run.run_spec.adapter_spec.temperature:
            notes.add(
                Importance.BACKGROUND,
                "at temperature 0 repeated answers differ only where the endpoint itself varies; "
                "config.params.temperature sets it",
            )
        if extra.confidence == STATED_ONLY:
            notes.add(
                Importance.DOUBTFUL,
                "each prompt asked for the answer and the model's confidence together: the "
                "prompts, and so the score, are not the benchmark's own",
            )
        perturbations = {metric.perturbation for metric in self.metrics}
        read_first = []
        for family in extra.perturb or ():
            if f"{PERTURB}{family}" not in perturbations:
                notes.add(
                    Importance.BACKGROUND,
                    f"perturb: {family} changed no question: it needs {FAMILIES[family].needs}",
                )
            elif FAMILIES[family].unchecked:
                read_first.append(family)
        if read_first:
            notes.add(
                Importance.DOUBTFUL,
                f"perturb: a clinician has to read the questions that {', '.join(read_first)} "
                "changed: the change may have made another answer right",
            )
        is_ours = not self.plan.evaluation.task.helm.any_run_spec
        if extra.perturb and not (is_ours and self.plan.evaluation.benchmark is None):
            notes.add(
                Importance.DOUBTFUL,
                "nobody has checked whether the right answers of this benchmark stay right in "
                "other words: `perturb` is checked only for the tasks of eval-factory",
            )

    def group(self, draft: Draft) -> None:
        """Make the mean over repeats the main score: groups are made of it, and it is what is
        compared. Judges, floors and labels were held against the questions as they are.
        """
        if self.mean is None:
            return
        if draft.main in draft.floors:
            draft.floors = {**draft.floors, self.mean.label: draft.floors[draft.main]}
        self.metrics.append(self.mean)
        draft.main = self.mean.label
        draft.main_values = self.mean
        every: set[InstanceKey] = {(*unit, None) for unit in self.units}
        draft.missing = every - self.mean.values.keys()


def _of_units_asked_each_time(
    askings: Sequence[Mapping[Unit, float]],
) -> dict[Unit, list[float]]:
    """Return each question's values, one an asking; only of questions with a value in all."""
    by_unit = {}
    for unit in askings[0]:
        if all(unit in values for values in askings):
            by_unit[unit] = [values[unit] for values in askings]
    return by_unit


def _lost_questions(values: AskingValues, name: str) -> list[str]:
    """Questions that were right as they are, and are not when they are asked in this way."""
    before = values.of(FIRST_ASKING)
    lost = []
    for unit, value in values.of(name).items():
        if before.get(unit, 0.0) >= 1.0 > value:
            lost.append(unit[0])
    return lost


def _parts(
    values: Mapping[Unit, Sequence[float]], sources: Sources
) -> tuple[float | None, float | None]:
    """Standard errors of the mean over questions: by the draw of questions, and by the draw of
    answers.

    One-way analysis of variance: the mean of the questions' own variances, over all answers, is the
    part of the answers; what is left of the variance of the questions' means is that of the
    questions (0 if nothing is left).
    """
    times = len(next(iter(values.values())))
    means = list(map(statistics.fmean, values.values()))
    total = describe(means, clusters=sources(list(values))).stderr
    within = statistics.fmean(map(statistics.variance, values.values())) / times / len(values)
    between = None
    if total is not None:
        between = math.sqrt(max(0.0, total**2 - within))
    return between, math.sqrt(within)


def _share_of_same_pairs(answers: Sequence[object]) -> float:
    return statistics.fmean(first == second for first, second in combinations(answers, 2))


def _most_frequent(answers: Sequence[object]) -> int:
    """The index of the first of the most frequent answer; of equally frequent ones, of that
    which came first.
    """
    return answers.index(Counter(answers).most_common(1)[0][0])


def _at_cost(value: float, cost: float) -> float:
    if value >= 1.0:
        return 1.0
    return -cost


def _is_none_of_these(option: str) -> bool:
    return is_not_to_know(option) or (refers_to_others(option) and _NONE.match(option) is not None)
