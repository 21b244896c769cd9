"""A judge's passport applied to a run: the score, its parts, what it assumes, and when it is not there."""

from __future__ import annotations

from dataclasses import replace
from itertools import product

import pytest

from builders import draft, plan
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.judge_passports import BiasWithInterval, StoredPassport
from eval_factory.scoring.rubric import JudgedCase, RubricTally
from eval_factory.scoring.rubric_correction import RubricCorrection
from eval_factory.scoring.scores import MetricValues, score_of
from eval_factory.tasks.physician_labels import LabelledItems, LabelledPairs
from eval_factory.tasks.rubric_case import Criterion
from facts import says
from known import near, there

PAIRS = [LabelledPairs(at, "tells" if at % 2 else None, (6, 2, 0, 2)) for at in range(60)]
"""Sensitivity 1, specificity a half."""
ITEMS = [
    LabelledItems(one.conversation, one.category, judged, 2, met, count)
    for one, (judged, met, count) in product(PAIRS, ((True, 2, 6), (True, 0, 2), (False, 0, 2)))
]
"""The same of two physicians who always agree."""
PASSPORT = StoredPassport("kind", "2026-11-27", "ab", PAIRS, 0.8, (100.0, 200.0), ITEMS)
LABEL = "rubric_score.judge_corrected"


def tally(met: int = 80, of: int = 100, length: int = 150) -> RubricTally:
    """Cases of a criterion worth 4 and one worth -1, which nobody calls met; `met` of them by judge kind."""
    made = RubricTally("rubric_score", ("kind", "other"), {"kind": None, "other": None})
    criteria = (Criterion("good", 4, ("axis:x", "tells")), Criterion("bad", -1, ("axis:x",)))
    for at in range(of):
        vote = {"kind": at < met, "other": False}
        made.cases[f"c{at}", 0, None] = JudgedCase(
            criteria, (vote, {"kind": False, "other": False})
        )
        made.lengths[f"c{at}", 0, None] = length
    return made


def corrected(
    rubric: RubricTally, passport: StoredPassport = PASSPORT, **extra: object
) -> tuple[RubricCorrection, Draft]:
    values = {
        key: 0.0 if case.votes is None else there(case.score_by("kind"))
        for key, case in rubric.cases.items()
    }
    metric = MetricValues("rubric_score", "rubric_score", None, values=values, split="test")
    of = plan({f"config.params.extra.{name}": value for name, value in extra.items()})
    found = draft(metrics=[metric], plan=of)
    part = RubricCorrection(passport, rubric)
    rubric.count(found)
    part.count(found)
    for one in found.metrics:
        found.scores[one.label] = there(score_of(one, set(), failed_as_zero=False))
    part.publish(found)
    rubric.report(found)
    part.report(found)
    return part, found


def test_the_score_is_that_of_the_formula_case_by_case() -> None:
    _, found = corrected(tally())
    # given 0.8; to have 0.75; (0.8 - 0.5 * 0.75) / 0.5
    assert found.scores[LABEL].value == near(0.85, rel=0.01)
    values = next(one for one in found.metrics if one.label == LABEL).values
    assert values["c0", 0, None] == near((1 - 0.375) / 0.5, rel=0.01)
    assert values["c99", 0, None] == near((0 - 0.375) / 0.5, rel=0.01)
    stats = found.scores[LABEL].stats
    assert there(stats.ci_low) < 0.85 < there(stats.ci_high) <= 1
    assert (stats.ci_method, stats.stderr, stats.count) == ("latent-class-bootstrap", None, 100)
    low, high = there(found.scores[LABEL].scale)
    assert (low, high) == near(((-0.25 - 0.375) / 0.5, (1 - 0.375) / 0.5), rel=0.01)


def test_the_report_has_the_judges_own_score_and_the_categories_that_labels_and_run_share() -> None:
    _, found = corrected(tally())
    correction = there(there(found.rubric).correction)
    assert (correction.judge, correction.judge_score, correction.value) == (
        "kind",
        near(0.8),
        near(0.85, rel=0.01),
    )
    assert (correction.sensitivity, correction.specificity, correction.labels) == (
        near(1.0, rel=0.01),
        near(0.5, rel=0.01),
        600,
    )
    assert correction.matched_points == near(0.8)
    (part,) = correction.categories.values()
    assert (part.criteria, part.judge, part.value) == (100, near(0.8), near(0.6, rel=0.02))
    assert there(part.ci_low) < 0.6 < there(part.ci_high)


def test_a_case_that_the_judge_left_open_is_left_out_and_a_failed_one_counts_as_chosen() -> None:
    rubric = tally()
    criteria = rubric.cases["c0", 0, None].criteria
    rubric.cases["c0", 0, None] = JudgedCase(
        criteria, ({"kind": None, "other": True}, {"kind": False, "other": False})
    )
    part = RubricCorrection(PASSPORT, rubric)
    _ = None
    metric = MetricValues(
        "rubric_score", "rubric_score", None, values=dict.fromkeys(rubric.cases, 0.5), split="test"
    )
    assert len(part._cases(metric, failed_as_zero=False)) == 99
    rubric.cases["c1", 0, None] = JudgedCase(criteria, None)
    assert len(part._cases(metric, failed_as_zero=False)) == 98
    assert part._cases(metric, failed_as_zero=True)["c1", 0, None] == (0.0, 0.0)


@pytest.mark.parametrize(
    ("passport", "rubric", "said"),
    [
        (PASSPORT, tally(), ""),
        (
            PASSPORT,
            tally(length=99),
            (
                "the median answer of this run has 99 characters, and nine of ten labelled answers "
                "have 100 to 200"
            ),
        ),
        (PASSPORT, tally(length=201), "the median answer of this run has 201 characters"),
        (
            replace(PASSPORT, says_met=0.1),
            tally(),
            (
                "the judge says 'met' of 40 % of the criteria in this run, and of 10 % among the "
                "labels"
            ),
        ),
        (
            replace(PASSPORT, pairs=[replace(one, category="else") for one in PAIRS]),
            tally(),
            "only 0 % of the points belong to criteria",
        ),
        (
            replace(
                PASSPORT, pairs=[replace(one, category=None) for one in PAIRS], usual_lengths=None
            ),
            tally(),
            "",
        ),
    ],
)
def test_what_is_not_alike_is_said(
    passport: StoredPassport, rubric: RubricTally, said: str
) -> None:
    passport = passport if passport.says_met == 0.1 else replace(passport, says_met=0.4)
    _, found = corrected(rubric, passport)
    notes = [note for note in found.notes.texts() if LABEL in note]
    assert notes[0].startswith(LABEL)
    says(notes[0], "judge kind", "as often wrong")
    assert len(notes) == 1 + bool(said)
    assert not said or (said in notes[1] and "differs from the labels" in notes[1])


def test_labels_that_cannot_tell_give_no_score_and_a_note() -> None:
    pairs = [LabelledPairs(at, None, (5, 5, 0, 0)) for at in range(30)]
    useless = replace(PASSPORT, pairs=pairs, items=())
    part, found = corrected(tally(), useless)
    assert (part.corrected, LABEL in found.scores, there(found.rubric).correction) == (
        None,
        False,
        None,
    )
    (absent,) = [note for note in found.notes.texts() if note.startswith(f"{LABEL} is absent")]
    says(absent, "passport", "judge kind", "more or less often")
    assert "depend too little" not in absent


def test_labels_of_one_physician_correct_no_run_in_which_other_shares_are_met() -> None:
    """The judge says met of 80 % of the labelled items, and of 40 % of the run's criteria."""
    one_each = replace(PASSPORT, items=[replace(one, labels=1, met=one.met // 2) for one in ITEMS])
    part, found = corrected(tally(), one_each)
    assert part.corrected is None
    (note,) = [note for note in found.notes.texts() if LABEL in note]
    says(note, "absent", "two physicians", "more or less often")
    assert "first version" not in note
    pairs = [LabelledPairs(at, None, (3, 1, 0, 6)) for at in range(60)]
    _, found = corrected(tally(), replace(one_each, pairs=pairs))
    assert found.scores[LABEL].stats.ci_method == "rogan-gladen-fieller"
    assert there(there(there(found.rubric).correction).youden_stderr) > 0


def test_a_passport_of_the_first_version_corrects_to_its_labels_or_says_what_it_lacks() -> None:
    """It knows pairs, and not who of two physicians said what of an item."""
    first = replace(PASSPORT, items=(), bias=None)
    _, found = corrected(tally(), first)
    assert LABEL not in found.scores
    (note,) = [note for note in found.notes.texts() if LABEL in note]
    says(note, "absent", "first version", "'calibrate'")
    alike = replace(first, pairs=[LabelledPairs(at, None, (3, 1, 0, 6)) for at in range(60)])
    _, found = corrected(tally(), alike)
    assert found.scores[LABEL].stats.ci_method == "rogan-gladen-fieller"


def test_a_judge_whose_bias_is_not_shown_is_named_first() -> None:
    _, found = corrected(tally(), replace(PASSPORT, bias=BiasWithInterval(0.01, -0.02, 0.04)))
    notes = [note for note in found.notes.texts() if LABEL in note]
    assert "-2.0 to +4.0" in notes[0]
    for bias, interval in (
        (BiasWithInterval(0.03, 0.02, 0.04), "+2.0 to +4.0"),
        (BiasWithInterval(-0.03, -0.04, -0.02), "-4.0 to -2.0"),
    ):
        _, found = corrected(tally(), replace(PASSPORT, bias=bias))
        assert not any(interval in note for note in found.notes.texts())
    _, found = corrected(
        tally(), replace(PASSPORT, items=(), bias=BiasWithInterval(0.01, -0.02, 0.04))
    )
    notes = [note for note in found.notes.texts() if LABEL in note]
    assert ["-2.0 to +4.0" in note for note in notes] == [True, False], "also where it is absent"
