"""Compares a result with people's ratings of a sample of its answers: the corrected score, the
agreement, and each judge's bias.

These figures are the result's `clinicians`. A rating counts only if the rated answer has not
changed since the rating. If a person rated an answer in full (all questions about the answer), the
person's ratings make a score, which is computed like the main metric. The people's score of an
answer is the mean of these scores.

A mark is a judge's rating: its answer to one question about one answer. People rate a sample of the
answers, which is drawn from each stratum (a group of answers) separately. A sheet is the form that
the people fill in. The source of an answer is what its question was made from, such as a note or a
patient; answers of one source are not independent.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from eval_factory.core.annotations import (
    CRITERIA_SHEET,
    HOW_GOOD,
    IS_CORRECT,
    Annotations,
    AnswerKey,
    Question,
    RatedQuestion,
    Sample,
    SampledAnswer,
    has_judges,
    read_annotations,
)
from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.results import (
    Clinicians,
    CorrectedScore,
    InstanceRecord,
    JudgeAgreement,
    Score,
    TaskResult,
    TooFewRated,
)
from eval_factory.core.rundir import RunDir
from eval_factory.scoring.agreement import (
    RatingsByRater,
    agreement_among_raters,
    agreement_of_judge_with_people,
)
from eval_factory.scoring.intervals import lower_end_of_scale, note_on_few_sources
from eval_factory.scoring.prediction_powered import (
    METHOD,
    MIN_RATED,
    Stratum,
    TooFewRatedError,
    TooFewSourcesError,
    bias_of_judge,
    corrected_mean,
)
from eval_factory.tasks.physician_labels import LabelledItem

OTHER_ANSWERS = (
    "{count} ratings are not used: the answers or questions that they rate have changed since"
)
"""The note on ratings of answers that have changed since they were rated."""
OTHER_METRIC = (
    "{count} ratings are not used: they were made for the metric {metric}, and this result has no "
    "main score by this metric"
)
"""The note if no rating can be used because all were made for another metric."""


def with_clinicians(result: TaskResult, rundir: RunDir) -> TaskResult:
    """Return the result with the figures from the people's ratings in the output folder.

    Without ratings, return the result unchanged.

    Raises:
        PrerequisiteError: the ratings cannot be read.
    """
    annotations = read_annotations(rundir.ratings)
    if not annotations.ratings:
        return result
    return replace(result, clinicians=clinicians_of(result, annotations))


def people_scores(result: TaskResult, rundir: RunDir) -> dict[AnswerKey, float]:
    """Return the people's score of each answer that at least one person rated in full.

    Without ratings or without a main score, return an empty mapping.

    Raises:
        PrerequisiteError: ratings.jsonl cannot be read.
    """
    rated = _read_rated_result(result, rundir)
    if rated is None:
        return {}
    return rated.scores_by_people()


def _read_rated_result(result: TaskResult, rundir: RunDir) -> RatedResult | None:
    """Return the result with its ratings; None if there are no ratings or no main score."""
    annotations = read_annotations(rundir.ratings)
    score = result.scores.get(result.main_metric)
    if not annotations.ratings or score is None:
        return None
    return _match_ratings(result, annotations, _samples_of_main_kind(annotations), score)


Marks = dict[str, list[float | None]]
"""Judge -> its mark of each item; None for an item without a mark. If the run has no judges, the
only key is the name of the metric.
"""


class RatedItems(NamedTuple):
    """The items that people rated, with the judges' marks of these items.

    An item is one question about one answer. If only two marks are possible, True replaces the
    higher mark and False the lower mark.
    """

    # The field `judged` of the items is always False, because it could hold one judge's mark only.
    items: list[LabelledItem]
    marks: Marks
    possible_marks: list[float]  # the lowest first


def rated_items(result: TaskResult, rundir: RunDir) -> RatedItems:
    """Return the items that people rated, and the judges' marks of these items.

    Raises:
        PrerequisiteError: ratings.jsonl cannot be read, nobody has rated an answer, or the result
            has no main score.
    """
    rated = _read_rated_result(result, rundir)
    if rated is None:
        raise PrerequisiteError(
            f"{rundir.root}: nobody has rated its answers; 'eval-factory annotate' makes the sheets"
        )
    possible_marks = rated.possible_marks()

    def mark_of(value: float) -> float:
        """Return the value; if only two marks are possible, True (the higher mark) or False."""
        if len(possible_marks) > 2:
            return value
        return value == possible_marks[-1]

    items = []
    marks_of_items: list[dict[str, float]] = []
    for record in result.instances:
        answer = rated.answers.get(AnswerKey(record.id, record.trial))
        if answer is None:
            continue
        for number, ratings in answer.ratings_by_question():
            items.append(
                LabelledItem(
                    conversation=record.cluster or record.id,
                    judged=False,
                    labels=tuple(map(mark_of, ratings.values())),
                    physicians=tuple(ratings),
                    category=_category_of(rated, record, number),
                    length=len(record.completion or ""),  # A missing answer has the length 0.
                )
            )
            marks = {}
            for judge, mark_by_question in answer.marks.items():
                if number in mark_by_question:
                    marks[judge] = mark_of(mark_by_question[number])
            marks_of_items.append(marks)
    by_judge: Marks = {}
    for judge in dict.fromkeys(chain.from_iterable(marks_of_items)):  # each judge once
        by_judge[judge] = [marks.get(judge) for marks in marks_of_items]
    return RatedItems(items, by_judge, list(map(mark_of, possible_marks)))


def _category_of(rated: RatedResult, record: InstanceRecord, number: int) -> str | None:
    """Return the category of the question with this number, from 0, about an answer.

    The category of a rubric's criterion is its first tag, or None if it has no tags. On other
    sheets, the category is the name of the question.
    """
    if rated.rated_question.kind != CRITERIA_SHEET:
        key = AnswerKey(record.id, record.trial)
        return str(rated.answers[key].questions[number].name)
    tags = list(record.criteria[number].get("tags") or ())
    if not tags:
        return None
    return str(tags[0])


_RatingsOfAnswer = dict[str, dict[int, float]]
"""The people's ratings of one answer: rater -> number of the question, from 0 -> rating."""


@dataclass
class RatedAnswer:
    """The people's ratings and the judges' marks of one answer."""

    questions: tuple[Question, ...]
    by_rater: _RatingsOfAnswer = field(default_factory=dict)
    marks: Mapping[str, Mapping[int, float]] = field(default_factory=dict)
    """Judge -> number of the question, from 0 -> mark."""

    def ratings_by_question(self) -> Iterator[tuple[int, RatingsByRater]]:
        """Yield the number of each rated question, from 0, and its ratings by rater."""
        for number in range(len(self.questions)):
            by_rater = {}
            for rater, ratings in self.by_rater.items():
                if number in ratings:
                    by_rater[rater] = ratings[number]
            if by_rater:
                yield number, by_rater

    def complete_ratings(self) -> list[list[float]]:
        """Return the ratings by each person who rated the answer in full.

        The ratings by a person are in the order of the questions.
        """
        complete = []
        for ratings in self.by_rater.values():
            if len(ratings) == len(self.questions):
                complete.append([ratings[number] for number in range(len(ratings))])
        return complete


@dataclass
class RatedResult:
    """A result with the ratings of its answers."""

    rated_question: RatedQuestion  # the question that people answered, and its scale
    # the last sample of the main kind (the kind with the most ratings); its strata are used for all
    # ratings
    sample: Sample
    # the main metric's value of every answer
    values: dict[AnswerKey, float] = field(default_factory=dict)
    scores_by_judge: dict[str, dict[AnswerKey, float]] = field(
        default_factory=lambda: defaultdict(dict)
    )
    """Judge -> answer -> score. Without judges, the only key is the name of the metric."""
    clusters: dict[AnswerKey, str] = field(default_factory=dict)  # the source of every answer
    lowest: dict[AnswerKey, float] = field(default_factory=dict)
    """The lowest possible score of every answer to a rubric's case."""
    answers: dict[AnswerKey, RatedAnswer] = field(default_factory=dict)  # the rated answers only
    unused: int = 0  # the number of ratings of answers that have changed or have no value

    def possible_marks(self) -> list[float]:
        """Return all possible marks, the lowest first."""
        return sorted(choice.value for choice in self.rated_question.choices)

    def scores_by_people(self) -> dict[AnswerKey, float]:
        """Return the people's score of each answer that at least one person rated in full."""
        scores = {}
        for key, answer in self.answers.items():
            ratings = answer.complete_ratings()
            if ratings:
                scores[key] = statistics.fmean(
                    self.rated_question.score_by(answer.questions, ratings_by_person)
                    for ratings_by_person in ratings
                )
        return scores

    def strata(
        self, values: Mapping[AnswerKey, float], people: Mapping[AnswerKey, float]
    ) -> list[Stratum]:
        """Return the strata that have answers.

        Answers that were not there when the sample was drawn make a stratum of their own.

        Args:
            values: the score of every answer by a judge, or by the main metric.
            people: the people's score of each rated answer.
        """
        # The strata of the sample have the numbers from 0. The next number is the stratum of the
        # answers that the sample could not draw.
        extra_stratum = len(self.sample.strata)
        keys_by_stratum: list[list[AnswerKey]] = [[] for _ in range(extra_stratum + 1)]
        for key in values:
            number = self.sample.stratum_of.get(key.as_text(), extra_stratum)
            keys_by_stratum[number].append(key)
        have_shared_sources = len(set(self.sources_of(values))) < len(values)
        strata = []
        for keys in keys_by_stratum:
            if not keys:
                continue
            rated = []
            pairs = []  # (people's score, the score in `values`) of each rated answer
            for key in keys:
                if key in people:
                    rated.append(key)
                    pairs.append((people[key], values[key]))
            stratum = Stratum([values[key] for key in keys], pairs)
            if have_shared_sources:
                stratum = replace(
                    stratum, sources=self.sources_of(keys), rated_sources=self.sources_of(rated)
                )
            strata.append(stratum)
        return strata

    def sources_of(self, keys: Iterable[AnswerKey]) -> list[str]:
        """Return the source of each answer."""
        return [self.clusters[key] for key in keys]

    def scale(self, people: Mapping[AnswerKey, float]) -> tuple[float, float]:
        """Return the lowest and the highest possible score of an answer by people.

        In a rubric, criteria with negative points can make a score lower than the published scale.
        The lowest possible score is then below the published scale, too.
        """
        possible_marks = self.possible_marks()
        low, high = self.rated_question.score.scale or (possible_marks[0], possible_marks[-1])
        if self.rated_question.kind == CRITERIA_SHEET:
            low = min(
                low, lower_end_of_scale(list(people.values()), list(self.lowest.values()), high)
            )
        return low, high


def clinicians_of(result: TaskResult, annotations: Annotations) -> Clinicians:
    """Return the figures from people's ratings. `annotations` must have at least one rating."""
    samples = _samples_of_main_kind(annotations)
    score = result.scores.get(result.main_metric)
    metric = result.main_metric
    if score is not None and score.metric:
        metric = score.metric  # HELM's name, without the split
    if score is None or metric != samples[-1].metric:
        unused_note = OTHER_METRIC.format(count=len(annotations.ratings), metric=samples[-1].metric)
        return Clinicians(
            rated=0,
            answers=0,
            raters=0,
            ratings=0,
            too_few=TooFewRated(rated=0, needed=MIN_RATED),
            notes=(unused_note,),
        )
    rated = _match_ratings(result, annotations, samples, score)
    people = rated.scores_by_people()
    corrected = None
    too_few = None
    try:
        corrected = _corrected_score(result.main_metric, rated, people)
    except TooFewRatedError as error:
        rated_answers, needed = error.args
        too_few = TooFewRated(rated_answers, needed)
    except TooFewSourcesError:
        pass  # `_notes` reports the number of sources
    ratings_of_questions = []
    for answer in rated.answers.values():
        for _, ratings in answer.ratings_by_question():
            ratings_of_questions.append(ratings)
    raters = set(chain.from_iterable(ratings_of_questions))
    possible_marks = rated.possible_marks()
    agreement = None
    if len(raters) > 1:
        agreement = agreement_among_raters(ratings_of_questions, possible_marks)
    judges = dict(_judge_agreements(rated, people, possible_marks))
    return Clinicians(
        rated=len(people),
        answers=len(rated.values),
        raters=len(raters),
        ratings=sum(map(len, ratings_of_questions)),
        corrected=corrected,
        too_few=too_few,
        agreement=agreement,
        judges=result.validity.in_judges_order(judges),
        notes=tuple(_notes(rated, people, len(annotations.samples) - len(samples))),
    )


def _corrected_score(
    metric: str, rated: RatedResult, people: Mapping[AnswerKey, float]
) -> CorrectedScore:
    """Return an estimate of the main score if people had rated every answer.

    The estimate is computed on the scale of the people's scores (`RatedResult.scale`), and then
    clipped to the published scale.

    Raises:
        TooFewRatedError, TooFewSourcesError: see `corrected_mean`.
    """
    scale = rated.scale(people)
    corrected = corrected_mean(rated.strata(rated.values, people), scale)
    low, high = rated.rated_question.score.scale or scale

    def clipped(value: float) -> float:
        return min(high, max(low, value))

    return CorrectedScore(
        metric,
        value=clipped(corrected.value),
        ci_low=clipped(corrected.low),
        ci_high=clipped(corrected.high),
        ci_method=METHOD,
        power=corrected.power,
        judge_value=clipped(corrected.judge_mean),
    )


def _samples_of_main_kind(annotations: Annotations) -> list[Sample]:
    """Return the samples of the kind with the most ratings, in the order in which they were drawn.

    Each sample has one sheet, which has the id of the sample. Samples are of one kind if the forms,
    metrics and choices of their sheets are equal.
    """
    ratings_on_sheet = Counter(rating.sheet for rating in annotations.ratings)
    by_kind: dict[tuple[object, ...], list[Sample]] = defaultdict(list)
    ratings_of_kind: Counter[tuple[object, ...]] = Counter()
    for sample in annotations.samples:
        kind = (sample.kind, sample.metric, sample.choices)
        by_kind[kind].append(sample)
        ratings_of_kind[kind] += ratings_on_sheet[sample.id]
    main_kind = max(by_kind, key=ratings_of_kind.__getitem__)
    return by_kind[main_kind]


def _ratings_by_answer(
    annotations: Annotations, samples: Sequence[Sample]
) -> dict[AnswerKey, list[tuple[SampledAnswer, _RatingsOfAnswer]]]:
    """Return the sampled answer and its ratings from each sheet, by answer.

    Ratings from sheets of other samples are left out.
    """
    answer_of_code = {}  # (sheet, code of an answer on the sheet) -> the sampled answer
    for sample in samples:
        for answer in sample.answers:
            answer_of_code[sample.id, answer.code] = answer
    by_code: dict[tuple[str, str], _RatingsOfAnswer] = defaultdict(lambda: defaultdict(dict))
    for rating in annotations.ratings:
        sheet_and_code = (rating.sheet, rating.code)
        if sheet_and_code in answer_of_code:
            number = rating.number - 1  # sheets number the questions from 1, this module from 0
            by_code[sheet_and_code][rating.rater][number] = rating.value
    by_key = defaultdict(list)
    for sheet_and_code, by_rater in by_code.items():
        drawn = answer_of_code[sheet_and_code]
        by_key[drawn.key].append((drawn, dict(by_rater)))
    return by_key


def _match_ratings(
    result: TaskResult, annotations: Annotations, samples: Sequence[Sample], score: Score
) -> RatedResult:
    """Return the result with the ratings of its answers.

    A rating is matched only if the text that the rater saw is still the text in the result.
    """
    unmatched = _ratings_by_answer(annotations, samples)
    sample = samples[-1]
    rated_question = RatedQuestion(
        sample.kind,
        sample.metric,
        score,
        jury=_criteria_of_jury(result, sample),
        choices=sample.choices,
        judged=has_judges(result, sample.kind),
    )
    rated = RatedResult(rated_question, sample)
    for record in result.instances:
        value = rated_question.value_of(record)
        if value is None:
            continue
        key = AnswerKey(record.id, record.trial)
        rated.values[key] = value
        rated.clusters[key] = record.cluster or record.id
        for judge, judge_score in rated_question.scores_of(record).items():
            rated.scores_by_judge[judge][key] = judge_score
        lowest = record.lowest_score
        if lowest is not None:
            rated.lowest[key] = lowest
        for drawn, by_rater in unmatched.pop(key, ()):
            if drawn.shown_sha256 != rated_question.sha256_of(record):
                rated.unused += sum(map(len, by_rater.values()))
                continue
            answer = rated.answers.setdefault(key, RatedAnswer(drawn.questions))
            answer.by_rater.update(by_rater)
            answer.marks = rated_question.judge_ratings_of(record)
    # The remaining ratings are of answers that are no longer in the result, or have no value.
    for _, by_rater in chain.from_iterable(unmatched.values()):
        rated.unused += sum(map(len, by_rater.values()))
    return rated


def _criteria_of_jury(result: TaskResult, sample: Sample) -> tuple[str, ...]:
    """Return the names of a sheet's questions if these are a jury's criteria, else no names."""
    if result.validity.jury is None or not sample.answers:
        return ()
    names = tuple(question.name for question in sample.answers[0].questions)
    if names in ((IS_CORRECT,), (HOW_GOOD,)):
        return ()  # The sheet asked a single question about the answer, and not the criteria.
    return names


def _judge_agreements(
    rated: RatedResult, people: Mapping[AnswerKey, float], possible_marks: Sequence[float]
) -> Iterator[tuple[str, JudgeAgreement]]:
    """Yield each judge with its agreement and bias. `people` are the people's scores."""
    judges_of_rated = []  # the judges with a score of at least one rated answer
    for judge, scores in rated.scores_by_judge.items():
        if scores.keys() & rated.answers.keys():
            judges_of_rated.append(judge)
    # The keys are the names of all judges. A dict keeps the order in which they are added: the
    # judges with a mark of the first answer, then those with a score, then those with a mark of a
    # later answer.
    names: dict[str, None] = {}
    for answer in rated.answers.values():
        for judge in (*answer.marks, *sorted(judges_of_rated)):
            names[judge] = None
    for judge in names:
        agreement = agreement_of_judge_with_people(_marks_and_ratings(rated, judge), possible_marks)
        bias = _bias(rated, people, judge)
        agreement_and_bias = JudgeAgreement(
            **vars(agreement),  # the fields of `Agreement`, from which `JudgeAgreement` derives
            bias=bias.value,
            bias_low=bias.low,
            bias_high=bias.high,
        )
        yield judge, agreement_and_bias


def _marks_and_ratings(rated: RatedResult, judge: str) -> list[tuple[float, list[float]]]:
    """Return a judge's mark and the people's ratings of each question that both rated."""
    pairs = []
    for answer in rated.answers.values():
        marks_of_judge = answer.marks.get(judge, {})
        for number, ratings in answer.ratings_by_question():
            if number in marks_of_judge:
                pairs.append((marks_of_judge[number], list(ratings.values())))
    return pairs


class _Bias(NamedTuple):
    """A judge's bias (its score less the people's score) with the ends of its interval."""

    value: float | None = None
    low: float | None = None
    high: float | None = None


def _bias(rated: RatedResult, people: Mapping[AnswerKey, float], judge: str) -> _Bias:
    """Return a judge's bias; it is undefined if people and the judge rated no answer in common.

    The estimate uses the strata of the sample. If too few answers or sources were rated, the bias
    is the plain mean difference, without an interval.
    """
    by_judge = rated.scores_by_judge.get(judge, {})
    by_people = {}
    differences = []
    for key, score in people.items():
        if key in by_judge:
            by_people[key] = score
            differences.append(by_judge[key] - score)
    if not by_people:
        return _Bias()
    try:
        bias = bias_of_judge(rated.strata(by_judge, by_people), rated.scale(people))
    except (TooFewRatedError, TooFewSourcesError):
        return _Bias(statistics.fmean(differences))
    return _Bias(bias.value, bias.low, bias.high)


def _notes(
    rated: RatedResult, people: Mapping[AnswerKey, float], other_sheets: int
) -> Iterator[str]:
    """Yield the notes on ratings that do not count, or that count only in part.

    `other_sheets` is the number of sheets of another kind, whose ratings are not used.
    """
    if rated.unused:
        yield OTHER_ANSWERS.format(count=rated.unused)
    if other_sheets:
        yield (
            f"the ratings on {other_sheets} sheets are not used: they are of another kind, "
            "scale or metric than most ratings"
        )
    partly_rated = len(rated.answers) - len(people)
    if partly_rated:
        yield (
            f"{partly_rated} answers are rated only in part: "
            "they count for the agreement, not for the corrected score"
        )
    # answers that the sample could not draw
    late = [key for key in rated.values if key.as_text() not in rated.sample.stratum_of]
    if late:
        yield f"{len(late)} answers came after the sample was drawn: no one could rate them"
    few_sources_note = note_on_few_sources(rated.sources_of(people))
    if few_sources_note is not None:
        yield f"of the rated answers, {few_sources_note}"
