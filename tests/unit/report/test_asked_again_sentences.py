"""Tests of whether the answer holds, in words, on the page and in a suite's table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eval_factory.analysis.suite_messages import asked_again_table
from eval_factory.analysis.suite_results import FinishedCell, suite_results
from eval_factory.core.asked_again_records import (
    Abstention,
    AskedAgain,
    Change,
    Confidence,
    InOtherWords,
    OptionsOnly,
    Pushback,
    Repeats,
    RightBy,
    Share,
)
from eval_factory.core.enums import RunStatus
from eval_factory.core.results import TaskResult
from eval_factory.report.asked_again_sentences import (
    MAX_ON_SCREEN,
    LostAnswers,
    asked_again_lines,
)
from eval_factory.report.reader import load_result
from eval_factory.report.summary import markdown_report
from facts import each_says, says
from stored_results import instance, result, written


def change(difference: float, lost: int = 3, questions: int = 40) -> Change:
    right = Share(round(lost / 30, 6), 30, 0.01, 0.5)
    return Change(
        questions,
        0.75,
        round(0.75 + difference, 6),
        difference,
        -0.2,
        0.1,
        0.04,
        right,
        Share(0.1, 10),
    )


WORDS = {
    "typos": InOtherWords(change(-0.05), 0, 0.08),
    "units": InOtherWords(change(-0.1, 1), 20, 0.01),
    "worried": InOtherWords(change(0.0), 0, 1.0),
    "case": InOtherWords(change(0.01), 0, 1.0),
    "race": InOtherWords(change(-0.9, questions=9), 31, 1.0),
}
FOUND = AskedAgain(
    Repeats(
        3,
        40,
        Share(0.7, 40, 0.6, 0.8),
        0.05,
        0.02,
        Share(0.9, 40),
        Share(0.95, 40),
        Share(0.72, 40),
        Share(0.8, 40),
    ),
    WORDS,
    Pushback((change(-0.1), change(-0.2, 6)), {"1": 3, "2": 3, "never": 34}),
    Confidence(
        "stated",
        38,
        2,
        Share(0.9, 38),
        Share(0.75, 38),
        Share(0.15, 38, 0.05, 0.25),
        risk_coverage=((0.5, 0.2), (1.0, 0.25)),
    ),
    Abstention(
        2.0,
        Share(0.1, 40),
        Share(0.8, 36),
        Share(0.5, 40),
        Share(0.25, 40),
        Share(0.4, 10),
        Share(0.0, 30),
    ),
    Share(0.25, 4),
)


def of(found: AskedAgain, folder: Path | None = None) -> TaskResult:
    whole = result([instance(f"q{n}", 1.0) for n in range(4)])
    made = replace(whole, validity=replace(whole.validity, asked_again=found))
    return made if folder is None else load_result(written(folder, made)).result


def test_each_thing_is_a_sentence_and_what_costs_most_comes_first() -> None:
    each_says(
        asked_again_lines(FOUND),
        ["asked 3 times", "40 questions", "mean 0.7000", "0.6000 .. 0.8000", "90 %", "0.7200"],
        [
            "30 questions",
            "1 was lost",
            "1 of 10 others",
            "other units",
            "-0.1000 (-0.2000 .. 0.1000)",
            "p 0.01 (Holm)",
        ],
        ["3 were lost", "a typing error", "-0.0500 (-0.2000 .. 0.1000)", "p 0.08 (Holm)"],
        ["3 were lost", "a worried sentence", "+0.0000 (-0.2000 .. 0.1000)", "p 1 (Holm)"],
        ["3 were lost", "lower case", "+0.0100 (-0.2000 .. 0.1000)", "p 1 (Holm)"],
        ["too few", "race", "readable answers"],
        ["30 questions", "6 were lost", "1 of 10 others", "2 doubts: -0.2000"],
        ["34 of 40 answers", "through all doubts"],
        [
            "90 % sure",
            "75 % of its",
            "calibration error 0.1500",
            "0.0500 .. 0.2500",
            "20 % are wrong",
            "2 answers",
        ],
        ['"I do not know"', "40 %", "0 %", "costs 2: 0.5000", "0.2500"],
        ["4 questions", "25 %"],
    )
    assert list(asked_again_lines(None)) == []
    says(asked_again_lines(FOUND, MAX_ON_SCREEN), "1 more kind", "report.html")


def test_a_score_without_pictures_stands_against_that_with_them() -> None:
    (line,) = asked_again_lines(AskedAgain(blind={"blank": change(-0.1)}))
    told = "of 30 questions that the model got right, 3 were lost (and 1 of 10 others won)"
    assert line.startswith(told)
    says(line, "grey picture", "same size", "-0.1000 (-0.2000 .. 0.1000)")


def test_a_loss_stands_beside_what_the_same_words_lose_and_what_is_unread() -> None:
    held = replace(change(-0.1, 6), same_words=Share(0.5, 10, 0.2, 0.8), unread=3)
    (line,) = asked_again_lines(AskedAgain(pushback=Pushback((held,))))
    for part in ("6 were lost", "in the same words 5 of 10", "20 %", "80 %", "3 questions"):
        assert part in line


def test_where_nothing_was_right_before_what_was_won_is_told() -> None:
    won = replace(change(1.0), right_to_wrong=None, wrong_to_right=Share(1.0, 2))
    (line,) = asked_again_lines(AskedAgain(pushback=Pushback((won,))))
    assert "none of 2 questions" in line
    assert "2 were won" in line


def test_choices_give_answers_away_only_where_enough_questions_show_it() -> None:
    few, many = (OptionsOnly(change(0.0), Share(0.9, count, 0.6, 1.0), 0.25) for count in (3, 40))
    assert "too few" in next(asked_again_lines(AskedAgain(options_only=few)))
    assert "give answers away" in next(asked_again_lines(AskedAgain(options_only=many)))


def test_the_rule_of_what_is_right_is_named_once() -> None:
    (line,) = asked_again_lines(AskedAgain(right_by=RightBy("reader", 42, 1, 29)))
    assert "1 of 42" in line
    assert "29" in line


def test_what_says_nothing_is_said_to_say_nothing() -> None:
    empty = AskedAgain(
        Repeats(3, 0), {}, Pushback((), {}), Confidence("logprobs", 0, 40), Abstention(1.0)
    )
    each_says(
        asked_again_lines(empty),
        ["asked 3 times", "no question"],
        ["log probabilities", "too few answers", "40 answers"],
        ['"I do not know"', "no question"],
    )
    ratings = InOtherWords(replace(change(-0.5), right_to_wrong=None, wrong_to_right=None), 0, 0.2)
    (line,) = asked_again_lines(AskedAgain(in_other_words={"misspellings": ratings}))
    says(line, "HELM's misspellings", "-0.5000 (-0.2000 .. 0.1000)", "p 0.2 (Holm)")


def test_it_is_stored_and_read_again_without_what_is_not_known(tmp_path: Path) -> None:
    assert of(FOUND, tmp_path / "run").validity.asked_again == FOUND
    sparse = AskedAgain(Repeats(2, 1), confidence=Confidence("stated", 0, 0))
    assert of(sparse, tmp_path / "other").validity.asked_again == sparse
    says(markdown_report(of(FOUND)), "- asked 3 times", "40 questions")


def test_lost_answers_stand_beside_each_other() -> None:
    words = {"typos": replace(WORDS["typos"], lost=("q1", "q3")), "units": WORDS["units"]}
    lost = LostAnswers(AskedAgain(in_other_words=words))
    records = [
        instance("q1", 1.0),
        instance("q1", 0.0, perturbation="perturb_typos"),
        instance("q2", 0.0),
        instance("q3", 1.0),
    ]
    for record in [*records, instance("q1", 0.0, perturbation="perturb_units")]:
        lost.add(record)
    assert (lost.family, lost.pairs) == ("typos", [(records[0], records[1])])
    nothing = LostAnswers(None)
    nothing.add(records[0])
    assert nothing.pairs == []


def test_a_suite_has_a_row_for_each_run_that_was_asked_again(tmp_path: Path) -> None:
    again = tmp_path / "again"
    plain = tmp_path / "plain"
    written(again, of(FOUND))
    written(plain, result([instance("q", 1.0)]))
    cells = [
        FinishedCell(name, "t", RunStatus.COMPLETE, tmp_path / name) for name in ("again", "plain")
    ]
    table = asked_again_table(suite_results(cells))
    ((model, benchmark, _, *rest),) = table.rows
    assert (model, benchmark) == ("again", "t")
    assert rest == [
        "0.5000",
        "90 % of 40",
        "race -0.9000",
        "10 % of 30",
        "20 % of 30",
        "0.1500 (0.0500 to 0.2500)",
        "40 % of 10",
    ]
