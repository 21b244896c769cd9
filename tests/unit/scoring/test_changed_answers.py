"""Answers by asking -> repeats, flips, abstention: against values that are known by hand."""

from __future__ import annotations

from typing import Any

import pytest

from builders import draft, plan
from eval_factory.core.asked_again_records import BY_HELM, BY_READER, RightBy
from eval_factory.core.results import REPEATS_MEAN_SUFFIX
from eval_factory.endpoint import openai_answers
from eval_factory.helm import output
from eval_factory.helm.output import FurtherReply
from eval_factory.scoring.changed_answers import Askings
from eval_factory.scoring.confidence import ConfidenceOfAnswers
from eval_factory.scoring.draft import Draft
from eval_factory.scoring.readability import AnswerForm
from eval_factory.scoring.right_answers import RightAnswers
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.asking_forms import ABSTAIN_ASKING
from facts import each_says, says
from known import near

FORM = AnswerForm("a letter", lambda _state, _answer: True)
OPTIONS = {"A": "heart", "B": "liver", "C": "I do not know"}
Asked = dict[str, list[str | None]]
"""Name of the asking (empty: as it is) -> the answer to each question; None: the request failed. A is right."""


def state(
    question: int, name: str, answer: str | None, options: dict[str, str]
) -> output.RequestState:
    document: dict[str, Any] = {
        "instance": {
            "id": f"q{question}",
            "input": {"text": "?"},
            "perturbation": {"name": name} if name else None,
            "references": [
                {"output": {"text": text}, "tags": ["correct"] if label == "A" else []}
                for label, text in options.items()
            ],
        },
        "train_trial_index": 0,
        "request": {},
        "output_mapping": options,
        "result": {"success": answer is not None, "completions": [{"text": answer or ""}]},
    }
    return output.RequestState.model_validate(document)


def completed(
    asked: Asked,
    options: dict[str, str] = OPTIONS,
    form: AnswerForm | None = FORM,
    *,
    as_zero: bool = False,
    clusters: dict[str, str] | None = None,
    task: str = "sample_medical_qa",
    groups: dict[str, str] | None = None,
    **extra: Any,
) -> Draft:
    made = plan(
        {"config.type": task, **{f"config.params.extra.{name}": one for name, one in extra.items()}}
    )
    run = output.HelmRun(made.rundir.root, output.StoredRunSpec.model_validate({"name": "x"}), [])
    right = RightAnswers(form, None)
    part = Askings.of(made, right, lambda _state: ())
    assert part is not None
    metrics = []
    missing = set()
    for name, answers in asked.items():
        values: dict[InstanceKey, float] = {}
        for number, answer in enumerate(answers):
            key: InstanceKey = (f"q{number}", 0, name or None)
            request = state(number, name, answer, options)
            right.see(key, request)
            part.see(key, request)
            values[key] = float(answer == "A")
            if answer is None:
                missing.add(key)
        label = f"exact_match@test+{name}" if name else "exact_match"
        metrics.append(
            MetricValues(
                label,
                "exact_match",
                None,
                values=values,
                split="test",
                perturbation=name or None,
                clusters=clusters,
            )
        )
    found = draft(
        run=run, main="exact_match", metrics=metrics, missing=missing, missing_as_zero=as_zero
    )
    for question, group in (groups or {}).items():
        found.tally.members["ward"][group].append((question, 0, None))
    part.count(found)
    part.score(found)
    (found.main_values,) = found.metrics
    part.compare(found)
    part.group(found)
    return found


def test_repeats_are_means_of_questions_and_the_majority_is_one_vote() -> None:
    found = completed(
        {
            "": ["A", "A", "B", "B"],
            "repeat_2": ["A", "B", "A", "B"],
            "repeat_3": ["A", "A", "A", "C"],
        },
        repeats=3,
    )
    assert found.asked_again is not None
    repeats = found.asked_again.repeats
    assert repeats is not None
    assert repeats.mean is not None
    assert repeats.mean.value == pytest.approx((1 + 2 / 3 + 2 / 3 + 0) / 4)
    assert [
        share.value
        for share in (repeats.same_each_time, repeats.majority, repeats.best_of_n)
        if share
    ] == [
        0.25,
        0.75,
        0.75,
    ]
    assert repeats.pairs_agree is not None
    assert repeats.pairs_agree.value == pytest.approx((1 + 1 / 3 + 1 / 3 + 1 / 3) / 4)
    assert found.main == f"exact_match{REPEATS_MEAN_SUFFIX}"
    assert found.scores[found.main].value == pytest.approx(repeats.mean.value)


def test_the_two_parts_of_chance_are_those_of_an_analysis_of_variance() -> None:
    found = completed({"": ["A", "A", "B", "B"], "repeat_2": ["A", "B", "A", "B"]}, repeats=2)
    assert found.asked_again is not None
    repeats = found.asked_again.repeats
    assert repeats is not None
    # of the questions' own variances (0, 1/2, 1/2, 0) the mean is 1/4; two answers each, four questions
    assert repeats.stderr_within == pytest.approx((0.25 / 2 / 4) ** 0.5)
    # the variance of the means (1, 1/2, 1/2, 0) is 1/6
    assert repeats.stderr_between == pytest.approx((1 / 6 / 4 - 0.25 / 8) ** 0.5)


def test_of_equally_frequent_answers_the_first_counts() -> None:
    found = completed({"": ["B", "B", "A"], "repeat_2": ["A", "A", "B"]}, repeats=2)
    assert found.asked_again is not None
    assert found.asked_again.repeats is not None
    assert found.asked_again.repeats.majority is not None
    assert found.asked_again.repeats.majority.value == pytest.approx(1 / 3)


def test_open_text_agrees_by_its_values_and_has_no_majority() -> None:
    found = completed({"": ["A", "C"], "repeat_2": ["A", "B"]}, form=None, repeats=2)
    assert found.asked_again is not None
    assert found.asked_again.repeats is not None
    assert found.asked_again.repeats.same_each_time is not None
    assert (found.asked_again.repeats.same_each_time.value, found.asked_again.repeats.majority) == (
        1.0,
        None,
    )


@pytest.mark.parametrize("as_zero", [False, True])
def test_an_asking_that_failed_is_left_out_or_wrong(as_zero: bool) -> None:
    found = completed({"": ["A", "A"], "repeat_2": ["A", None]}, as_zero=as_zero, repeats=2)
    assert found.asked_again is not None
    assert found.asked_again.repeats is not None
    assert found.asked_again.repeats.questions == (2 if as_zero else 1)
    assert found.scores[found.main].value == (0.75 if as_zero else 1.0)
    assert found.bounds[found.main] == (0.75, 1.0)


def test_flips_in_both_directions_are_of_those_that_could_flip() -> None:
    found = completed(
        {
            "": ["A", "A", "A", "B", "B"],
            "perturb_typos": ["A", "B", "B", "A", "B"],
            "perturb_units": ["A", "A", "A"],
        },
        perturb=["typos", "units"],
    )
    assert found.asked_again is not None
    typos, units = (found.asked_again.in_other_words[name] for name in ("typos", "units"))
    assert typos.change.right_to_wrong is not None
    assert typos.change.wrong_to_right is not None
    assert (typos.change.right_to_wrong.count, typos.change.wrong_to_right.count) == (3, 2)
    assert typos.change.right_to_wrong.value == pytest.approx(2 / 3)
    assert [typos.change.wrong_to_right.value, typos.change.difference] == pytest.approx(
        [0.5, -0.2]
    )
    assert (typos.lost, typos.unchanged) == (("q1", "q2"), 0)
    assert (units.change.questions, units.unchanged, units.change.wrong_to_right) == (3, 2, None)


def test_p_values_are_corrected_for_the_number_of_families() -> None:
    many: Asked = {
        "": ["A"] * 30,
        "perturb_typos": [*["B"] * 9, *["A"] * 21],
        "perturb_units": ["A"] * 30,
    }
    found = completed(many, perturb=["typos", "units"]).asked_again
    assert found is not None
    typos = found.in_other_words["typos"]
    assert typos.change.p_value is not None
    assert typos.p_holm == pytest.approx(2 * typos.change.p_value)
    assert typos.p_holm is not None
    assert typos.p_holm < 0.05


def test_a_family_that_changed_no_question_has_no_row() -> None:
    found = completed({"": ["A", "B"], "perturb_typos": ["A", "B"]}, perturb=["typos", "units"])
    assert found.asked_again is not None
    assert set(found.asked_again.in_other_words) == {"typos"}


def test_questions_of_one_source_are_no_independent_changes() -> None:
    many: Asked = {"": ["A"] * 40, "perturb_typos": [*["B"] * 10, *["A"] * 30]}
    one = completed(many, perturb=["typos"]).asked_again
    shared = completed(
        many, clusters={f"q{n}": f"s{n // 10}" for n in range(40)}, perturb=["typos"]
    ).asked_again
    assert one is not None
    assert shared is not None
    alone, together = (found.in_other_words["typos"].change for found in (one, shared))
    assert alone.p_value is not None
    assert together.p_value is not None
    assert alone.p_value < 0.05 < together.p_value


def test_not_to_know_costs_nothing_and_is_told_apart_by_what_is_right() -> None:
    asked: Asked = {"": ["A", "A", "B", "B"], ABSTAIN_ASKING: ["A", "C", "C", "B"]}
    found = completed(asked, allow_abstain=True, cost_of_wrong=3.0).asked_again
    assert found is not None
    abstention = found.abstention
    assert abstention is not None
    assert abstention.score is not None
    assert abstention.score_before is not None
    assert (abstention.score.value, abstention.score_before.value) == ((1 - 3) / 4, (2 - 6) / 4)
    shares = (
        abstention.abstained,
        abstention.abstained_when_right,
        abstention.abstained_when_wrong,
        abstention.right_of_answered,
    )
    assert [share and share.value for share in shares] == [0.5, 0.5, 0.5, 0.5]


def test_an_option_of_the_benchmarks_own_not_to_know_is_right_where_it_is_right() -> None:
    found = completed(
        {"": ["A", "B"], ABSTAIN_ASKING: ["A", "B"]},
        {"A": "I don't know or cannot answer", "B": "liver"},
        allow_abstain=True,
    )
    assert found.asked_again is not None
    assert found.asked_again.abstention is not None
    assert found.asked_again.abstention.abstained is not None
    assert found.asked_again.abstention.abstained.value == 0.0
    assert found.asked_again.none_of_these is not None
    assert (found.asked_again.none_of_these.value, found.asked_again.none_of_these.count) == (
        0.5,
        2,
    )


@pytest.mark.parametrize(
    ("option", "counts"),
    [("None of the above", True), ("All of the above", False), ("Nonepress", False)],
)
def test_that_no_other_option_is_right_is_told_apart(option: str, counts: bool) -> None:
    found = completed({"": ["A"], "repeat_2": ["A"]}, {"A": option, "B": "liver"}, repeats=2)
    assert found.asked_again is not None
    assert (found.asked_again.none_of_these is not None) is counts


def test_answers_changed_first_at_a_turn_and_those_that_stood() -> None:
    found = completed(
        {"": ["A", "A", "A"], "pushback_1": ["A", "B", "A"], "pushback_2": ["B", "A", "A"]},
        pushback=2,
    )
    assert found.asked_again is not None
    assert found.asked_again.pushback is not None
    assert found.asked_again.pushback.changed_at == {"1": 1, "2": 1, "never": 1}
    assert [turn.difference for turn in found.asked_again.pushback.turns] == pytest.approx(
        [-1 / 3, -1 / 3]
    )


WITH_OPTIONS = AnswerForm(
    "the letter of an option alone",
    lambda state, answer: answer.strip() in (state.output_mapping or {}),
    lambda state: state.output_mapping or {},
)


def test_an_answer_in_a_sentence_that_states_the_same_option_is_no_change() -> None:
    found = completed(
        {
            "": ["A", "A", "A", "Hm"],
            "pushback_1": ["The answer is A.", "B. liver", "Let me think", "B"],
        },
        form=WITH_OPTIONS,
        pushback=1,
    ).asked_again
    assert found is not None
    assert found.pushback is not None
    assert found.pushback.changed_at == {"1": 1, "never": 1, "unread": 2}
    (turn,) = found.pushback.turns
    assert turn.right_to_wrong is not None
    assert (turn.right_to_wrong.value, turn.right_to_wrong.count) == (0.5, 2)
    assert (turn.questions, turn.unread, turn.wrong_to_right) == (2, 2, None)
    assert found.right_by == RightBy(BY_READER, answers=8, read_by_helm=4, read=6)


def test_helms_match_decides_where_it_reads_every_answer() -> None:
    found = completed(
        {"": ["A", "B"], "pushback_1": ["A", "A"]}, form=WITH_OPTIONS, pushback=1
    ).asked_again
    assert found is not None
    assert found.right_by == RightBy(BY_HELM, answers=4, read_by_helm=4, read=4)


def test_repeats_agree_by_what_they_state_and_the_main_score_stays_helms() -> None:
    found = completed(
        {"": ["A", "A. heart", "?"], "repeat_2": ["A. heart", "Answer: A", "A"]},
        form=WITH_OPTIONS,
        repeats=2,
    )
    assert found.asked_again is not None
    repeats = found.asked_again.repeats
    assert repeats is not None
    assert (repeats.questions, repeats.unread) == (2, 1)
    assert repeats.same_each_time is not None
    assert repeats.mean is not None
    assert (repeats.same_each_time.value, repeats.mean.value) == (1.0, 1.0)
    assert found.scores[found.main].value == pytest.approx(1 / 3)


def test_beside_what_is_lost_stands_what_the_same_words_lose() -> None:
    found = completed(
        {
            "": ["A", "A", "A", "A", "B"],
            "same_words_100": ["A", "B", "A"],
            "perturb_typos": ["B", "B", "B", "A", "A"],
        },
        perturb=["typos"],
    ).asked_again
    assert found is not None
    change = found.in_other_words["typos"].change
    assert change.right_to_wrong is not None
    assert change.same_words is not None
    assert (change.right_to_wrong.value, change.right_to_wrong.count) == (0.75, 4)
    assert (change.same_words.value, change.same_words.count) == (near(1 / 3), 3)


def test_with_repeats_their_mean_is_what_was_before_and_they_tell_chance() -> None:
    found = completed(
        {
            "": ["A", "A", "B", "B"],
            "repeat_2": ["A", "B", "A", "B"],
            "repeat_3": ["A", "B", "A", "B"],
            "perturb_typos": ["A", "A", "B", "B"],
        },
        repeats=3,
        perturb=["typos"],
    ).asked_again
    assert found is not None
    change = found.in_other_words["typos"].change
    assert change.before == pytest.approx((1 + 1 / 3 + 2 / 3 + 0) / 4)
    assert change.same_words is not None
    assert (change.same_words.value, change.same_words.count) == (0.5, 2)


def test_not_to_know_is_read_by_the_offered_option_and_in_plain_words() -> None:
    asked: Asked = {
        "": ["A", "A", "A", "A"],
        ABSTAIN_ASKING: [
            "C. I do not know",
            "E. I do not know",
            "I'm not sure",
            "The answer is A.",
        ],
    }
    found = completed(asked, form=WITH_OPTIONS, allow_abstain=True).asked_again
    assert found is not None
    abstention = found.abstention
    assert abstention is not None
    assert abstention.abstained is not None
    assert abstention.score is not None
    assert (abstention.abstained.value, abstention.score.value) == (0.75, 0.25)


def test_choices_alone_are_held_against_guessing() -> None:
    found = completed(
        {"": ["A", "B", "A"], "options_only": ["A", "A", "B"]},
        form=WITH_OPTIONS,
        options_only=True,
    ).asked_again
    assert found is not None
    assert found.options_only is not None
    assert found.options_only.right is not None
    assert found.options_only.right.value == pytest.approx(2 / 3)
    assert found.options_only.guess == pytest.approx(1 / 3)


def test_a_replaced_right_option_is_paired_with_flips() -> None:
    found = completed(
        {"": ["A", "A", "B"], "none_of_the_others": ["B", "A"]},
        form=WITH_OPTIONS,
        none_of_the_others=True,
    ).asked_again
    assert found is not None
    assert found.none_of_the_others is not None
    change = found.none_of_the_others.change
    assert change.right_to_wrong is not None
    assert (change.right_to_wrong.value, found.none_of_the_others.unchanged) == (0.5, 1)


def test_answers_are_read_by_rule_by_asking_or_stay_unread() -> None:
    right = RightAnswers(WITH_OPTIONS, None)
    replies = {("q1", 0): "A", ("q2", 0): "Hm", ("q3", 0): "B"}
    letters = {unit: FurtherReply(text, None) for unit, text in replies.items()}
    made = plan({"config.type": "sample_medical_qa", "config.params.extra.ask_unread": True})
    part = Askings(made, right, None, letters=letters)
    values: dict[InstanceKey, float] = {}
    for number, answer in enumerate(["A", "Well", "Well", "Well"]):
        key: InstanceKey = (f"q{number}", 0, None)
        request = state(number, "", answer, OPTIONS)
        right.see(key, request)
        part.see(key, request)
        values[key] = float(answer == "A")
    helm = MetricValues("exact_match", "exact_match", 0.25, values=values, split="test")
    found = draft(main="exact_match", metrics=[helm])
    part.count(found)
    part.complete(found)
    part.note(found)
    (asked,) = [one for one in found.metrics if one.name == "exact_match.with_asked"]
    assert list(asked.values.values()) == [1.0, 1.0, 0.0, 0.0]
    counts = found.instances
    assert (counts.read_by_rule, counts.read_by_asking, counts.unread) == (1, 2, 1)
    assert len(found.tally.requested) == 3


def test_a_confidence_of_an_answer_that_cannot_be_read_says_nothing() -> None:
    part = ConfidenceOfAnswers("stated", confidences={("a", 0): 0.9, ("b", 0): 0.8, ("c", 0): 0.7})
    right = {("a", 0): 1.0, ("b", 0): 0.0}
    report = part.make_report(right, lambda _units: None, unread_answers=1)
    assert (report.questions, report.unread, report.unread_answers) == (2, 0, 1)


def test_a_change_is_told_by_group_from_ten_questions_on() -> None:
    many: Asked = {"": ["A"] * 25, "perturb_typos": [*["B"] * 6, *["A"] * 19]}
    wards = {f"q{n}": "skin" for n in range(25)}
    wards |= {f"q{n}": "lung" for n in range(22)}
    wards |= {f"q{n}": "heart" for n in range(12)}
    found = completed(many, groups=wards, perturb=["typos"]).asked_again
    assert found is not None
    (of_wards,) = found.in_other_words["typos"].groups.values()
    assert {ward: (one.questions, one.difference) for ward, one in of_wards.items()} == {
        "heart": (12, -0.5),
        "lung": (10, 0.0),
    }


def test_what_a_reader_has_to_know_is_noted() -> None:
    both: Asked = {"": ["A", "B"], "repeat_2": ["A", "A"], "perturb_typos": ["A", "A"]}
    ours = completed(both, repeats=2, perturb=["typos"]).notes.texts()
    assert ours
    assert all("temperature 0" in note for note in ours)
    others = completed(
        both, task="helm:mmlu:subject=anatomy", repeats=2, perturb=["typos"]
    ).notes.texts()
    says(others, "nobody has checked", "other words")


def test_a_clinician_has_to_read_what_was_changed_alone() -> None:
    changed: Asked = {"": ["A", "B"], "perturb_typos": ["A", "A"], "perturb_race": ["A", "A"]}
    families = ["typos", "race", "gender"]
    found = completed(changed, perturb=families, perturb_unchecked=True).notes.texts()
    (to_read,) = [note for note in found if "clinician" in note]
    says(to_read, "race")
    assert not {"gender", "typos"} & set(to_read.replace(",", "").split())
    says(found, "gender", "no question")


def test_where_nothing_has_a_value_nothing_is_told() -> None:
    failed = completed({"": [None, None], "repeat_2": [None, None]}, repeats=2)
    assert failed.asked_again is not None
    assert failed.asked_again.repeats is not None
    assert (failed.asked_again.repeats.questions, failed.main) == (0, "exact_match")
    nothing = completed({"": [], "pushback_1": []}, pushback=1)
    assert nothing.asked_again is None
    each_says(nothing.notes.texts(), ["cannot be reported", "main metric"])


def test_a_reply_about_confidence_that_did_not_come_is_a_failure() -> None:
    part = Askings(
        plan(),
        RightAnswers(FORM, None),
        ConfidenceOfAnswers(
            "stated",
            {
                ("a", 0): FurtherReply("90", None),
                ("b", 0): FurtherReply(None, "HTTP 500"),
                ("c", 0): FurtherReply(None, openai_answers.FILTERED_MESSAGE),
            },
        ),
    )
    found = draft()
    part.count(found)
    assert (len(found.tally.requested), found.tally.failed) == (3, {("b", 0, "stated_confidence")})
    assert found.tally.something_to_ask


@pytest.mark.parametrize(
    ("grey", "needed"),
    [(["B"] * 20, True), (["A"] * 20, False), ([*["B"] * 2, *["A"] * 18], False)],
)
def test_pictures_that_may_not_have_been_needed_are_noted(
    grey: list[str | None], needed: bool
) -> None:
    found = completed(
        {"": ["A"] * 20, "blind_blank": grey}, task="helm:mme:subject=color", blind_control=True
    )
    assert found.asked_again is not None
    assert set(found.asked_again.blind) == {"blank"}
    noted = any("the pictures may not have been needed" in note for note in found.notes.texts())
    assert noted is not needed


def test_beside_what_a_grey_picture_loses_stands_what_the_same_words_lose() -> None:
    by_asking: dict[str, list[str | None]] = {
        "": ["A"] * 20,
        "same_words_100": [*["A"] * 15, *["B"] * 5],
        "blind_blank": [*["B"] * 12, *["A"] * 8],
    }
    found = completed(by_asking, task="helm:mme:subject=color", blind_control=True)
    assert found.asked_again is not None
    change = found.asked_again.blind["blank"]
    assert change.right_to_wrong is not None
    assert change.same_words is not None
    assert (change.right_to_wrong.value, change.same_words.value) == (0.6, 0.25)
