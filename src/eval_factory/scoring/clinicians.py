"""People's ratings of a sample of the answers -> the result's `clinicians`: corrected score,
agreement, bias.

Only ratings of answers that are still the same are used. Who rated an answer in full gives it a
score as the main metric would; the people's score of an answer is the mean of these.
"""

from __future__ import annotations

import statistics
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain

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
    JudgeAgreement,
    Score,
    TaskResult,
    TooFewRated,
)
from eval_factory.core.rundir import RunDir
from eval_factory.scoring.agreement import Unit, agreement_among, agreement_with
from eval_factory.scoring.intervals import few_sources, lower_end
from eval_factory.scoring.prediction_powered import (
    LEAST_RATED,
    METHOD,
    Stratum,
    TooFewRatedError,
    TooFewSourcesError,
    bias_of_judge,
    corrected_mean,
)
from eval_factory.tasks.message_files import LabelledItem

OTHER_ANSWERS = (
    "{count} ratings are of answers or questions that have changed since: they are not used"
)


def with_clinicians(result: TaskResult, rundir: RunDir) -> TaskResult:
    """The result with what people's ratings in its folder say. Raises PrerequisiteError: they
    cannot be read.
    """
    annotations = read_annotations(rundir.ratings)
    return (
        replace(result, clinicians=clinicians_of(result, annotations))
        if annotations.ratings
        else result
    )


def people_scores(result: TaskResult, rundir: RunDir) -> dict[AnswerKey, float]:
    """The people's score of each answer that they rated. Raises PrerequisiteError: ratings.jsonl
    cannot be read.
    """
    found = _rated(result, rundir)
    return {} if found is None else found.people()


def _rated(result: TaskResult, rundir: RunDir) -> RatedResult | None:
    """None where nobody rated its answers."""
    annotations = read_annotations(rundir.ratings)
    score = result.scores.get(result.main_metric)
    return (
        _read(result, annotations, _alike(annotations), score)
        if annotations.ratings and score
        else None
    )


# judge -> its mark of each item; the metric itself where there is no judge
Marks = dict[str, list[float | None]]


def rated_items(
    result: TaskResult, rundir: RunDir
) -> tuple[list[LabelledItem], Marks, list[float]]:
    """What people rated of a result (`judged` says nothing), what judges did, and all marks that
    there are, the least first. Of two marks whether it is the higher one. Raises PrerequisiteError:
    ratings.jsonl cannot be read, or nobody has rated an answer of this result.
    """
    found = _rated(result, rundir)
    if found is None:
        rate = "'eval-factory annotate' makes the sheets"
        raise PrerequisiteError(f"{rundir.root}: nobody has rated its answers; {rate}")
    scale = sorted(choice.value for choice in found.asked.choices)

    def mark_of(value: float) -> float:
        return value if len(scale) > 2 else value == scale[-1]

    items = []
    rows = []
    of_rubric = found.asked.kind == CRITERIA_SHEET
    for record in result.instances:
        if (one := found.rated.get(AnswerKey(record.id, record.trial))) is None:
            continue
        for number, unit in one.units():
            tags = (
                list(record.criteria[number].get("tags") or ())
                if of_rubric
                else [one.questions[number].name]
            )
            labels = tuple(map(mark_of, unit.values()))
            category = str(tags[0]) if tags else None
            source = record.cluster or record.id
            length = len(record.completion or "")
            items.append(LabelledItem(source, False, labels, tuple(unit), category, length))
            rows.append(
                {
                    judge: mark_of(given[number])
                    for judge, given in one.marks.items()
                    if number in given
                }
            )
    judges = dict.fromkeys(chain.from_iterable(rows))
    return (
        items,
        {judge: [row.get(judge) for row in rows] for judge in judges},
        list(map(mark_of, scale)),
    )


_ByRater = dict[str, dict[int, float]]  # rater -> number of the question, from 0 -> rating


@dataclass
class RatedAnswer:
    questions: tuple[Question, ...]
    by_rater: _ByRater = field(default_factory=dict)
    marks: Mapping[str, Mapping[int, float]] = field(default_factory=dict)  # judge -> the same

    def units(self) -> Iterator[tuple[int, Unit]]:
        """(number of the question, rater -> rating), of what was rated."""
        for number in range(len(self.questions)):
            unit = {
                rater: given[number] for rater, given in self.by_rater.items() if number in given
            }
            if unit:
                yield number, unit


@dataclass
class RatedResult:
    asked: RatedQuestion
    sample: Sample  # the last one of those that are used: its strata hold for all
    # the main metric's, of every answer
    values: dict[AnswerKey, float] = field(default_factory=dict)
    judged: dict[str, dict[AnswerKey, float]] = field(default_factory=lambda: defaultdict(dict))
    """Judge -> its score of every answer that it judged."""
    clusters: dict[AnswerKey, str] = field(default_factory=dict)
    lowest: dict[AnswerKey, float] = field(default_factory=dict)
    """Of a rubric's cases the least score that each can have."""
    rated: dict[AnswerKey, RatedAnswer] = field(default_factory=dict)
    unused: int = 0  # ratings of answers that are not these any more

    def people(self) -> dict[AnswerKey, float]:
        """The people's score of each answer, of those who rated all of it; none where nobody
        did.
        """
        found = {}
        for key, one in self.rated.items():
            in_full = [given for given in one.by_rater.values() if len(given) == len(one.questions)]
            if in_full:
                ratings = ([given[at] for at in range(len(given))] for given in in_full)
                found[key] = statistics.fmean(
                    self.asked.score_by(one.questions, each) for each in ratings
                )
        return found

    def strata(
        self, values: Mapping[AnswerKey, float], people: Mapping[AnswerKey, float]
    ) -> list[Stratum]:
        """`values`: the judge's, of every answer. `people`: the people's, of those that they
        rated.
        """
        found: list[list[AnswerKey]] = [[] for _ in [*self.sample.strata, None]]
        for key in values:
            found[self.sample.stratum_of.get(key.as_text(), len(self.sample.strata))].append(key)
        shared = len({self.clusters[key] for key in values}) < len(values)
        strata = []
        for keys in filter(None, found):
            rated = [key for key in keys if key in people]
            sources = (
                [self.clusters[key] for key in some] if shared else () for some in (keys, rated)
            )
            pairs = [(people[key], values[key]) for key in rated]
            strata.append(Stratum([values[key] for key in keys], pairs, *sources))
        return strata

    def scale(self, people: Mapping[AnswerKey, float]) -> tuple[float, float]:
        """Of the people's scores; where points of a rubric can be lost, it begins below the
        published one's.
        """
        choices = self.asked.choices
        low, high = self.asked.score.scale or (choices[0].value, choices[-1].value)
        if self.asked.kind == CRITERIA_SHEET:
            low = min(low, lower_end(list(people.values()), list(self.lowest.values()), high))
        return low, high


def clinicians_of(result: TaskResult, annotations: Annotations) -> Clinicians:
    """`annotations`: with at least one rating."""
    alike = _alike(annotations)
    score = result.scores.get(result.main_metric)
    if score is None or (score.metric or result.main_metric) != alike[-1].metric:
        lost = OTHER_ANSWERS.format(count=len(annotations.ratings))
        return Clinicians(0, 0, 0, 0, too_few=TooFewRated(0, LEAST_RATED), notes=(lost,))
    found = _read(result, annotations, alike, score)
    people = found.people()
    corrected = too_few = None
    # points of a rubric can be lost on it; what was corrected on it is clipped
    scale = found.scale(people)
    low, high = found.asked.score.scale or scale
    try:
        made = corrected_mean(found.strata(found.values, people), scale)
    except TooFewRatedError as error:
        too_few = TooFewRated(*error.args)
    except TooFewSourcesError:
        pass  # a note says so
    else:
        said = (made.value, made.low, made.high, made.judge_mean)
        value, start, end, judge = (min(high, max(low, one)) for one in said)
        corrected = CorrectedScore(result.main_metric, value, start, end, METHOD, made.power, judge)
    units = []
    for answer in found.rated.values():
        units += [unit for _, unit in answer.units()]
    raters = set(chain.from_iterable(units))
    marks = sorted(choice.value for choice in found.asked.choices)
    agreement = agreement_among(units, marks) if len(raters) > 1 else None
    judges = result.validity.in_judges_order(dict(_judges(found, people, marks)))
    notes = tuple(_notes(found, people, len(annotations.samples) - len(alike)))
    sizes = len(people), len(found.values), len(raters), sum(map(len, units))
    return Clinicians(*sizes, corrected, too_few, agreement, judges, notes)


def _alike(annotations: Annotations) -> list[Sample]:
    """The sheets that ask the same, in the order in which they came; of several kinds the one
    with most ratings.
    """
    times = Counter(one.sheet for one in annotations.ratings)
    found: dict[tuple[object, ...], list[Sample]] = defaultdict(list)
    for sample in annotations.samples:
        found[sample.kind, sample.metric, sample.choices].append(sample)
    return max(found.values(), key=lambda alike: sum(times[one.id] for one in alike))


def _given(
    annotations: Annotations, samples: Sequence[Sample]
) -> dict[AnswerKey, list[tuple[SampledAnswer, _ByRater]]]:
    """Answer -> of each sheet what was drawn, and what was said."""
    drawn_as = {}
    for sheet in samples:
        for answer in sheet.answers:
            drawn_as[sheet.id, answer.code] = answer
    by_answer: dict[tuple[str, str], _ByRater] = defaultdict(lambda: defaultdict(dict))
    for one in annotations.ratings:
        if (one.sheet, one.code) in drawn_as:
            by_answer[one.sheet, one.code][one.rater][one.number - 1] = one.value
    given = defaultdict(list)
    for sheet_and_code, by_rater in by_answer.items():
        drawn = drawn_as[sheet_and_code]
        given[drawn.key].append((drawn, dict(by_rater)))
    return given


def _read(
    result: TaskResult, annotations: Annotations, samples: Sequence[Sample], score: Score
) -> RatedResult:
    given = _given(annotations, samples)
    sample = samples[-1]
    questions = sample.answers[0].questions if sample.answers else ()
    names = tuple(question.name for question in questions)
    jury = () if result.validity.jury is None or names in ((IS_CORRECT,), (HOW_GOOD,)) else names
    judged = has_judges(result, sample.kind)
    found = RatedResult(
        RatedQuestion(sample.kind, sample.metric, score, jury, sample.choices, judged=judged),
        sample,
    )
    for record in result.instances:
        if (value := found.asked.value_of(record)) is None:
            continue
        key = AnswerKey(record.id, record.trial)
        found.values[key] = value
        found.clusters[key] = record.cluster or record.id
        for judge, given_score in found.asked.scores_of(record).items():
            found.judged[judge][key] = given_score
        if (lowest := record.lowest_score) is not None:
            found.lowest[key] = lowest
        for drawn, by_rater in given.pop(key, ()):
            if drawn.shown_sha256 != found.asked.sha256_of(record):
                found.unused += sum(map(len, by_rater.values()))
                continue
            rated = found.rated.setdefault(key, RatedAnswer(drawn.questions))
            rated.by_rater.update(by_rater)
            rated.marks = found.asked.marks_of(record)
    for _, by_rater in chain.from_iterable(given.values()):
        found.unused += sum(map(len, by_rater.values()))
    return found


def _judges(
    found: RatedResult, people: Mapping[AnswerKey, float], scale: Sequence[float]
) -> Iterator[tuple[str, JudgeAgreement]]:
    """Agreement and bias of each: the bias by the strata of the sample, the plain mean where too
    few were rated.
    """
    known = {judge for judge, scores in found.judged.items() if scores.keys() & found.rated.keys()}
    names: dict[str, None] = {}
    for answer in found.rated.values():
        names |= dict.fromkeys((*answer.marks, *sorted(known)))
    for judge in names:
        marks = []
        for answer in found.rated.values():
            marks_of_judge = answer.marks.get(judge, {})
            for number, unit in answer.units():
                if number in marks_of_judge:
                    marks.append((marks_of_judge[number], list(unit.values())))
        judged = found.judged.get(judge, {})
        rated = {key: score for key, score in people.items() if key in judged}
        bias = low = high = None
        if rated:
            try:
                made = bias_of_judge(found.strata(judged, rated), found.scale(people))
                bias = made.value
                low = made.low
                high = made.high
            except (TooFewRatedError, TooFewSourcesError):
                bias = statistics.fmean(judged[key] - score for key, score in rated.items())
        yield (
            judge,
            JudgeAgreement(
                **vars(agreement_with(marks, scale)), bias=bias, bias_low=low, bias_high=high
            ),
        )


def _notes(
    found: RatedResult, people: Mapping[AnswerKey, float], other_sheets: int
) -> Iterator[str]:
    if found.unused:
        yield OTHER_ANSWERS.format(count=found.unused)
    if other_sheets:
        another = "of another kind, scale or metric than most are"
        yield f"the ratings on {other_sheets} sheets are {another}: they are not used"
    if in_part := len(found.rated) - len(people):
        yield (
            f"{in_part} answers are rated in part: "
            "they count for the agreement, not for the corrected score"
        )
    if late := sum(key.as_text() not in found.sample.stratum_of for key in found.values):
        yield f"{late} answers came after the sample was drawn: no one could rate them"
    if (few := few_sources([found.clusters[key] for key in people])) is not None:
        yield f"of the rated answers, {few}"
