"""Reports how answers change when questions are asked again: in the same words, in other words,
after a doubt, or with the permission to answer "I do not know".

The unit of the statistics is the question in one trial (`Unit`: the first two members of an
instance's key), because several askings of one question are not independent values. Questions with
a shared source are a cluster. HELM's own score is the score of
the original questions; with `extra.repeats`, the main score is the mean over all askings in the
same words.
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
from eval_factory.core.results import REPEATS_MEAN_SUFFIX, Score
from eval_factory.endpoint import openai_answers
from eval_factory.helm import names, output
from eval_factory.helm.metric_facts import chosen_main_metric
from eval_factory.helm.output import FurtherReply, read_further_replies
from eval_factory.plan.run_plan import Plan
from eval_factory.scoring.asking_values import (
    FIRST_ASKING,
    AskingValues,
    names_of_repeats,
    split_right_and_wrong,
)
from eval_factory.scoring.confidence import (
    ConfidenceOfAnswers,
    Logprobs,
    Sources,
    Unit,
    unit_of,
)
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.intervals import describe, holm_corrected
from eval_factory.scoring.mean_over_askings import (
    add_mean_over_askings,
    metrics_with_name_and_split_of,
)
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.part import Part
from eval_factory.scoring.readability import right_answers
from eval_factory.scoring.request_states import has_failed, prompt_of
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.scores import InstanceKey, MetricValues, is_derived
from eval_factory.tasks.asking_forms import (
    ABSTAIN_ASKING,
    ASKING_KEYS,
    BLIND_PICTURES,
    BLIND_PREFIX,
    CONFIDENCE_ASKING,
    LETTER_ASKING,
    NONE_OF_THE_OTHERS_ASKING,
    OPTIONS_ONLY_ASKING,
    PERTURB_PREFIX,
    PUSHBACK_PREFIX,
    REPEAT_PREFIX,
    STATED_ONLY,
    begins_not_to_know,
    is_further_asking,
)
from eval_factory.tasks.choice_question import refers_to_others
from eval_factory.tasks.perturbations import FAMILIES

NEVER = "never"
UNREAD = "unread"
"""Keys of `Pushback.changed_at`; its other keys are the numbers of turns."""
WITH_ASKED = ".with_asked"
"""The ending of the metric that also counts the letters from `extra.ask_unread`."""
# A question is lost if its first answer is right, and its answer in other words is wrong.
MAX_LOST = 20  # the largest number of lost questions that a report lists
# the start of an option such as "None of the above", "Neither A nor B" and (Spanish) "Ninguna"
_NONE = re.compile(r"\W*(?:none|neither|ningun)", re.IGNORECASE)


@dataclass
class Askings(Part):
    """The answers to questions that were asked again."""

    plan: Plan
    right: RightAnswers
    """The part that reads the answers. `RightAnswers` sees each request before this part does."""
    confidence: ConfidenceOfAnswers | None
    metrics: list[MetricValues] = field(default_factory=list)
    """HELM's metrics of the further askings, and other metrics computed from them."""
    units: dict[Unit, None] = field(default_factory=dict)
    """The questions whose original form was answered, in the order of the requests. The dict is an
    ordered set.
    """
    main_name: str = ""  # the name of HELM's main metric; set only with `extra.ask_unread`
    reading: dict[str, int] = field(default_factory=dict)
    """The counts of read and unread answers, by their field in `results.Instances`."""
    mean: MetricValues | None = None  # the mean of the main metric over askings in the same words
    prompt_hashes: dict[Unit, int] = field(default_factory=dict)  # of the original prompts
    option_counts: dict[Unit, int] = field(default_factory=dict)
    """The number of options of each question; 0 if its answers are open text."""
    letters: Mapping[Unit, FurtherReply] = field(default_factory=dict)
    """The replies to `extra.ask_unread`, which asks for the letter of an unread answer."""
    unchanged: set[InstanceKey] = field(default_factory=set)
    """The further askings by HELM whose prompt equals the original prompt. HELM should have skipped
    these, but it skips an unchanged input only if both inputs are objects of the same class.
    """
    # the questions whose right option is a "none of the above"
    none_right: set[Unit] = field(default_factory=set)

    @classmethod
    def of(
        cls,
        plan: Plan,
        right: RightAnswers,
        logprobs: Callable[[output.RequestState], Logprobs],
    ) -> Askings | None:
        """Return the part, or None if each question is asked once.

        Args:
            plan: the plan of the run.
            right: the part that reads the answers.
            logprobs: returns the log probabilities of the answer to a request.
        """
        extra = plan.evaluation.extra
        has_own_askings = any(getattr(extra, name) for name in ASKING_KEYS)
        has_askings_by_helm = "data_augmentation" in plan.evaluation.task.helm.arguments
        if not has_own_askings and not has_askings_by_helm:
            return None
        letters = {}
        if extra.ask_unread:
            letters = read_further_replies(plan.rundir.helm / names.LETTERS_FILE)
        return cls(plan, right, ConfidenceOfAnswers.of(plan, logprobs), letters=letters)

    @property
    def _extra(self) -> Extra:
        return self.plan.evaluation.extra

    def see(self, key: InstanceKey, state: output.RequestState) -> None:
        """Store facts about an original question, or that HELM asked it again without a change."""
        _, _, perturbation = key
        if perturbation is None:
            self._see_first_asking(key, state)
            return
        if is_further_asking(perturbation):
            return  # Only HELM's own perturbations may leave a prompt unchanged.
        if self.prompt_hashes.get(unit_of(key)) == hash(prompt_of(state)):
            self.unchanged.add(key)

    def _see_first_asking(self, key: InstanceKey, state: output.RequestState) -> None:
        """Store facts about a question in its original form, and about the answer."""
        unit = unit_of(key)
        self.prompt_hashes[unit] = hash(prompt_of(state))
        right_options = right_answers(state)
        if state.output_mapping and right_options and all(map(_is_none_of_these, right_options)):
            self.none_right.add(unit)
        if has_failed(state):
            return
        self.units[unit] = None
        self.option_counts[unit] = len(state.output_mapping or {})
        if unit in self.letters:
            reply = self.letters[unit].text or ""  # empty if the request for the letter failed
            self.right.add_reply(key, state, reply)
        if self.confidence is not None:
            self.confidence.add(unit, state, self.right.label_in(state))

    def count(self, draft: Draft) -> None:
        """Count the requests for a letter and for a stated confidence, and their failures.

        HELM has no request state for these requests, so the tally counts them here. A request that
        failed is sent again in the next run, like any failed request.
        """
        replies = {LETTER_ASKING: self.letters}
        if self.confidence is not None and not self.confidence.asked_together:
            replies[CONFIDENCE_ASKING] = self.confidence.replies
        for name, by_unit in replies.items():
            for unit, reply in by_unit.items():
                key: InstanceKey = (*unit, name)
                draft.tally.requested.add(key)
                # A reply that the content filter withheld is final, and not a failure.
                if reply.error is not None and reply.error != openai_answers.FILTERED_MESSAGE:
                    draft.tally.add_failure(key, reply.error)

    def complete(self, draft: Draft) -> None:
        """Add a main metric that counts the letters from `extra.ask_unread`, and count how the
        answers were read.
        """
        if not self._extra.ask_unread:
            return
        labels = [metric.label for metric in draft.metrics]
        self.main_name, _ = chosen_main_metric(draft.plan.evaluation.task.helm, labels)
        keys: list[InstanceKey] = [(*unit, None) for unit in self.units]
        read_by_rule = len(self.right.stated.keys() & keys)
        read_by_asking = len(self.right.correctness_of_reply.keys() & keys)
        self.reading = {
            "read_by_rule": read_by_rule,
            "read_by_asking": read_by_asking,
            "unread": len(keys) - read_by_rule - read_by_asking,
        }
        for metric in list(draft.metrics):
            if metric.name == self.main_name and metric.perturbation is None and metric.values:
                draft.metrics.append(self._with_letters(metric))

    def _with_letters(self, metric: MetricValues) -> MetricValues:
        """Return a copy of the main metric that also counts the letters from `extra.ask_unread`."""
        values = {key: self.right.value_with_reply(key) for key in metric.values}
        name = self.main_name + WITH_ASKED
        # The label of a metric may continue with the split, such as `f1@test`.
        label = name + metric.label.removeprefix(self.main_name)
        return replace(metric, label=label, name=name, helm_mean=None, values=values)

    def note(self, draft: Draft) -> None:
        """Store the counts of read answers, and note how many `extra.ask_unread` read."""
        if self.reading:
            draft.instances = replace(draft.instances, **self.reading)
        if self.letters:
            answers = counted(len(self.letters), "answer")
            unread = self.reading["unread"]
            stay = "stays unread" if unread == 1 else "stay unread"
            draft.notes.add(
                Importance.INCOMPLETE,
                f"no rule reads {answers}: ask_unread asked the model for the letter of each. "
                f"{self.reading['read_by_asking']} of the replies name an option, and "
                f"{self.main_name}{WITH_ASKED} counts these options. {unread} {stay}",
            )

    def score(self, draft: Draft) -> None:
        """Move the metrics of further askings from the draft to this part.

        These metrics are not scores of the run.
        """
        scores_of_run = []
        for metric in draft.metrics:
            if not is_further_asking(metric.perturbation):
                scores_of_run.append(metric)
            elif not is_derived(metric):  # HELM's worst-case metrics mix several askings
                self.metrics.append(metric)
        draft.metrics = scores_of_run

    def compare(self, draft: Draft) -> None:
        """Add the report on all askings; with repeats, add the score of the mean over the repeats.

        If the main metric has no values, add only a note.
        """
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
            draft,
            main,
            self.metrics,
            self.right,
            self.unchanged,
            times=extra.repeats or 1,  # Without `repeats`, each question is asked once.
        )
        report = AskedAgain(right_by=self.right.reading_rule())
        if extra.repeats is not None:
            repeated = []
            for metric in metrics_with_name_and_split_of(main, self.metrics):
                if str(metric.perturbation).startswith(REPEAT_PREFIX):
                    repeated.append(metric)
            self.mean = add_mean_over_askings(draft, [main, *repeated], REPEATS_MEAN_SUFFIX)
            report = replace(report, repeats=self.repeats(values, extra.repeats, draft.scores))
        if extra.pushback is not None:
            report = replace(report, pushback=self.pushback(values, extra.pushback))
        if self.confidence is not None:
            confidence = self.confidence.make_report(
                values.values_of(FIRST_ASKING), values.sources, self._count_unread_first_answers()
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
        """Return a dict from each family of changes in the words to the name of its perturbation.

        Without `extra.perturb`, return HELM's own perturbations.
        """
        if not self._extra.perturb:
            return values.perturbations_of_helm
        return {name: PERTURB_PREFIX + name for name in self._extra.perturb}

    def _count_unread_first_answers(self) -> int:
        """Count the questions in their original form with an answer that no rule reads."""
        unread = [unit for unit in self.units if self.right.is_unread((*unit, None))]
        return len(unread)

    def repeats(self, values: AskingValues, times: int, scores: Mapping[str, Score]) -> Repeats:
        """Report on the questions that have a value in every asking in the same words.

        Args:
            values: the main metric's values of each asking.
            times: the number of askings of each question in the same words.
            scores: the scores of the run, with the mean over the askings.
        """
        asking_names = names_of_repeats(times)
        by_unit = _values_in_every_asking(list(map(values.values_of, asking_names)))
        if not by_unit or self.mean is None:
            return Repeats(times, questions=0)
        if values.is_read_by_reader:
            # The values are those of read answers, so the main metric's `self.mean` does not fit.
            mean = values.mean_over_questions(
                by_unit, lambda unit: statistics.fmean(by_unit[unit]), values.scale
            )
        else:
            # `self.mean` was scored from the same values: its interval is used here, too.
            stats = scores[self.mean.label].stats
            mean = Share(stats.mean, stats.count, ci_low=stats.ci_low, ci_high=stats.ci_high)
        answers = self._answers_in_every_asking(by_unit, asking_names)

        def value_of_most_frequent(unit: Unit) -> float:
            return by_unit[unit][_most_frequent(answers[unit])]

        majority = None
        if self.right.form is not None:
            majority = values.mean_over_questions(by_unit, value_of_most_frequent, values.scale)
        between, within = _stderr_between_and_within(by_unit, values.sources)
        return Repeats(
            times,
            questions=len(by_unit),
            mean=mean,
            stderr_between=between,
            stderr_within=within,
            same_each_time=values.mean_over_questions(
                answers, lambda unit: len(set(answers[unit])) == 1
            ),
            pairs_agree=values.mean_over_questions(
                answers, lambda unit: _share_of_same_pairs(answers[unit])
            ),
            majority=majority,
            best_of_n=values.mean_over_questions(
                by_unit, lambda unit: max(by_unit[unit]), values.scale
            ),
            unread=values.count_unread_in(asking_names),
        )

    def _answers_in_every_asking(
        self, by_unit: Mapping[Unit, Sequence[float]], asking_names: Sequence[str]
    ) -> Mapping[Unit, Sequence[object]]:
        """Return the options that the answers to each question state; for open text, the values."""
        if self.right.form is None:
            return by_unit
        answers = {}
        for unit in by_unit:
            answers[unit] = [
                # The first asking has the name "", and None in the key of the instance.
                self.right.comparable_answer((*unit, name or None))
                for name in asking_names
            ]
        return answers

    def in_other_words(
        self, values: AskingValues, families: Mapping[str, str]
    ) -> dict[str, InOtherWords]:
        """Report the change of the score for each family of changes in the words.

        Families that changed no question are left out.

        Args:
            values: the main metric's values of each asking.
            families: a dict from each family to the name of its perturbation.
        """
        reports = {}
        for family, name in families.items():
            change = values.change_from_first(name)
            if change is not None:
                lost: tuple[str, ...] = ()
                if values.has_right:
                    lost = tuple(_lost_questions(values, name)[:MAX_LOST])
                reports[family] = InOtherWords(
                    change,
                    unchanged=values.count_not_asked(name),
                    groups=values.changes_by_group(name),
                    lost=lost,
                )
        # The correction of the p values needs the p values of all families.
        p_values = holm_corrected([report.change.p_value for report in reports.values()])
        corrected = {}
        for (family, report), p_holm in zip(reports.items(), p_values, strict=True):
            corrected[family] = replace(report, p_holm=p_holm)
        return corrected

    def pushback(self, values: AskingValues, doubts: int) -> Pushback:
        """Report how the answers changed after each doubt.

        A question counts in `changed_at` only if it has an answer after each doubt.

        Args:
            values: the main metric's values of each asking.
            doubts: the number of doubts, which are the further turns of the conversation.
        """
        turns = [f"{PUSHBACK_PREFIX}{number}" for number in range(1, doubts + 1)]
        changed: Counter[str] = Counter()
        for unit in self.units:
            keys = [(*unit, turn) for turn in turns]
            if self.right.helm_matches.keys() >= set(keys):  # an answer arrived in each turn
                changed[self._first_change(unit, keys)] += 1
        changes = []
        for turn in turns:
            change = values.change_from_first(turn)
            if change is not None:
                changes.append(change)
        return Pushback(tuple(changes), dict(sorted(changed.items())))

    def _first_change(self, unit: Unit, keys_of_turns: Sequence[InstanceKey]) -> str:
        """Return the number of the first turn whose answer differs from the first answer.

        An unread answer is not a change. The method returns `UNREAD` if the first answer is unread,
        or if some later answer is unread and no answer is a change. The method returns `NEVER` if
        all answers equal the first answer.
        """
        first_answer = self.right.comparable_answer((*unit, None))
        if first_answer is None:
            return UNREAD
        answers = list(map(self.right.comparable_answer, keys_of_turns))
        for turn, answer in enumerate(answers, 1):
            if answer is not None and answer != first_answer:
                return str(turn)
        if None in answers:
            return UNREAD
        return NEVER

    def options_only(self, values: AskingValues) -> OptionsOnly | None:
        """Report on the answers when only the options were shown, without the question.

        None if the run has no such asking.
        """
        change = values.change_from_first(OPTIONS_ONLY_ASKING)
        if change is None:
            return None
        after = values.values_of(OPTIONS_ONLY_ASKING)
        chances = [1 / self.option_counts[unit] for unit in after if self.option_counts.get(unit)]
        guess = None
        if chances:
            guess = statistics.fmean(chances)
        return OptionsOnly(change, right=values.share_right(after, after), guess=guess)

    def none_of_the_others(self, values: AskingValues) -> InOtherWords | None:
        """Report on the answers when the right option was replaced by "None of the others".

        None if the run has no such asking.
        """
        change = values.change_from_first(NONE_OF_THE_OTHERS_ASKING)
        if change is None:
            return None
        return InOtherWords(change, unchanged=values.count_not_asked(NONE_OF_THE_OTHERS_ASKING))

    def none_of_these(self, values: AskingValues) -> Share | None:
        """Return the share of right answers among questions whose right option is "none of these".

        None if there is no such question.
        """
        first_values = values.values_of(FIRST_ASKING)
        units = [unit for unit in sorted(first_values) if unit in self.none_right]
        return values.share_right(units, first_values)

    def blind(self, values: AskingValues, draft: Draft) -> dict[str, Change]:
        """Report the change of the score when each question's picture was replaced.

        The keys of the result are the kinds of replacement (`BLIND_PICTURES`).
        """
        changes = {}
        for picture, description in BLIND_PICTURES.items():
            change = values.change_from_first(BLIND_PREFIX + picture)
            if change is None:
                continue
            changes[picture] = change
            if change.ci_high is None or change.ci_high >= 0:
                draft.notes.add(
                    Importance.DOUBTFUL,
                    f"when each question had {description} in place of its own picture, the score "
                    "is not shown to be worse: the pictures may not have been needed",
                )
        return changes

    def abstention(self, values: AskingValues, cost: float) -> Abstention:
        """Report on the asking in which the model may answer "I do not know".

        `cost` is the number of points that a wrong answer loses.
        """
        before = values.values_of(FIRST_ASKING)
        after = values.values_of(ABSTAIN_ASKING)
        abstained = {unit: (*unit, ABSTAIN_ASKING) in self.right.not_to_know for unit in before}
        units = []
        answered = []
        for unit in before:
            if abstained[unit]:
                units.append(unit)
            elif unit in after:
                units.append(unit)
                answered.append(unit)
        were_right, were_wrong = split_right_and_wrong(units, before)

        def has_abstained(unit: Unit) -> bool:
            return abstained[unit]

        def points(unit: Unit) -> float:
            if abstained[unit]:
                return 0.0
            return _points_of_answer(after[unit], cost)

        def points_before(unit: Unit) -> float:
            return _points_of_answer(before[unit], cost)

        return Abstention(
            cost_of_wrong=cost,
            abstained=values.mean_over_questions(units, has_abstained),
            right_of_answered=values.share_right(answered, after),
            score=values.mean_over_questions(units, points, scale=(-cost, 1.0)),
            score_before=values.mean_over_questions(units, points_before, scale=(-cost, 1.0)),
            abstained_when_wrong=values.mean_over_questions(were_wrong, has_abstained),
            abstained_when_right=values.mean_over_questions(were_right, has_abstained),
            unread=values.count_unread_in([FIRST_ASKING, ABSTAIN_ASKING]),
        )

    def _add_notes(self, draft: Draft) -> None:
        """Add the notes on askings whose results need care."""
        extra = self._extra
        notes = draft.notes
        if extra.repeats and not draft.run.run_spec.adapter_spec.temperature:
            notes.add(
                Importance.BACKGROUND,
                "at temperature 0 repeated answers differ only where the endpoint itself varies; "
                "config.params.temperature sets the temperature",
            )
        if extra.confidence == STATED_ONLY:
            notes.add(
                Importance.DOUBTFUL,
                "each prompt asked for the answer and the model's confidence together: the "
                "prompts, and so the score, are not the benchmark's own",
            )
        perturbations = {metric.perturbation for metric in self.metrics}
        unchecked_families = []
        for family in extra.perturb or ():
            if f"{PERTURB_PREFIX}{family}" not in perturbations:
                notes.add(
                    Importance.BACKGROUND,
                    f"perturb: {family} changed no question: it needs {FAMILIES[family].needs}",
                )
            elif FAMILIES[family].unchecked:
                unchecked_families.append(family)
        if unchecked_families:
            notes.add(
                Importance.DOUBTFUL,
                "perturb: a clinician has to read the questions that "
                f"{', '.join(unchecked_families)} changed: the change may have made another "
                "answer right",
            )
        evaluation = self.plan.evaluation
        # neither a run entry of HELM that the user wrote, nor a benchmark of the user
        is_own_task = not evaluation.task.helm.is_run_entry and evaluation.benchmark is None
        if extra.perturb and not is_own_task:
            notes.add(
                Importance.DOUBTFUL,
                "nobody has checked whether the right answers of this benchmark stay right in "
                "other words: `perturb` is checked only for the tasks of eval-factory",
            )

    def group(self, draft: Draft) -> None:
        """Make the mean over repeats the main score, which groups and comparisons use.

        The floors (the best scores without a model), judges and labels came before this phase: they
        refer to the original questions.
        """
        if self.mean is None:
            return
        if draft.main in draft.floors:
            draft.floors = {**draft.floors, self.mean.label: draft.floors[draft.main]}
        self.metrics.append(self.mean)
        draft.main = self.mean.label
        draft.main_values = self.mean
        # A question with an original answer, but without a value in every repeat, is missing.
        answered: set[InstanceKey] = {(*unit, None) for unit in self.units}
        draft.missing = answered - self.mean.values.keys()


def _values_in_every_asking(
    askings: Sequence[Mapping[Unit, float]],
) -> dict[Unit, list[float]]:
    """Return the values of each question that has a value in every asking.

    The values of a question are in the order of the askings.
    """
    by_unit = {}
    for unit in askings[0]:
        if all(unit in values for values in askings):
            by_unit[unit] = [values[unit] for values in askings]
    return by_unit


def _lost_questions(values: AskingValues, name: str) -> list[str]:
    """Return the ids of the questions whose first answer is right and whose answer in this asking
    is wrong.
    """
    before = values.values_of(FIRST_ASKING)
    lost = []
    for unit, value in values.values_of(name).items():
        was_right = unit in before and before[unit] >= 1.0
        if was_right and value < 1.0:
            question_id = unit[0]
            lost.append(question_id)
    return lost


def _stderr_between_and_within(
    values: Mapping[Unit, Sequence[float]], sources: Sources
) -> tuple[float | None, float | None]:
    """Return two standard errors of the mean by a one-way analysis of variance.

    `between` is the error from the choice of questions, `within` from chance in the answers:

        within² = mean variance within questions / number of answers
        between² = stderr² of the questions' means - within², at least 0

    `between` is None if the standard error of the questions' means is not defined.

    Args:
        values: question -> its value in each asking; each question was asked equally often.
        sources: returns the source of each question.
    """
    times = len(next(iter(values.values())))
    mean_variance = statistics.fmean(map(statistics.variance, values.values()))
    within_squared = mean_variance / times / len(values)
    means = list(map(statistics.fmean, values.values()))
    stderr_of_means = describe(means, clusters=sources(list(values))).stderr
    between = None
    if stderr_of_means is not None:
        between = math.sqrt(max(0.0, stderr_of_means**2 - within_squared))
    return between, math.sqrt(within_squared)


def _share_of_same_pairs(answers: Sequence[object]) -> float:
    """Return the share of the pairs of answers in which both answers are equal."""
    return statistics.fmean(first == second for first, second in combinations(answers, 2))


def _most_frequent(answers: Sequence[object]) -> int:
    """Return the index at which the most frequent answer occurs first.

    If several answers are equally frequent, the answer that came first counts.
    """
    # Equally frequent elements are in the order in which they came.
    ((most_frequent, _count),) = Counter(answers).most_common(1)
    return answers.index(most_frequent)


def _points_of_answer(value: float, cost: float) -> float:
    """Return 1 for a right answer, and the negative cost for a wrong answer."""
    if value >= 1.0:
        return 1.0
    return -cost


def _is_none_of_these(option: str) -> bool:
    """Return True if the option means "none of the other options" or "not known"."""
    if begins_not_to_know(option):
        return True
    return refers_to_others(option) and _NONE.match(option) is not None
