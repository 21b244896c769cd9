"""Whether the answer holds, in words, on the page and in a suite's table."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from eval_factory.analysis.suite_results import FinishedCell, suite_results
from eval_factory.analysis.suite_words import asked_again_table
from eval_factory.core.askings import (
    Abstention,
    AskedAgain,
    Change,
    Confidence,
    InOtherWords,
    Pushback,
    Repeats,
    Share,
)
from eval_factory.core.nouns import RunStatus
from eval_factory.core.results import TaskResult
from eval_factory.report.reader import load_result
from eval_factory.report.sentences import MAX_ON_SCREEN, LostAnswers, asked_again_lines
from eval_factory.report.summary import markdown_report
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
    assert list(asked_again_lines(FOUND)) == [
        (
            "asked 3 times (40 questions): mean 0.7000 (95 % interval 0.6000 .. 0.8000); the same answer each time: 90 %; its most"
            " frequent answer scores 0.7200"
        ),
        (
            "of 30 questions that it got right, 1 was lost (and 1 of 10 others won) when laboratory values are in other units:"
            " -0.1000 (-0.2000 .. 0.1000), p 0.01 (Holm)"
        ),
        (
            "of 30 questions that it got right, 3 were lost (and 1 of 10 others won) when one word in twenty has a typing error: -0.0500"
            " (-0.2000 .. 0.1000), p 0.08 (Holm)"
        ),
        (
            "of 30 questions that it got right, 3 were lost (and 1 of 10 others won) when a worried sentence comes first: +0.0000"
            " (-0.2000 .. 0.1000), p 1 (Holm)"
        ),
        (
            "of 30 questions that it got right, 3 were lost (and 1 of 10 others won) when all is in lower case: +0.0100"
            " (-0.2000 .. 0.1000), p 1 (Holm)"
        ),
        "too few questions have other words of the kinds race to say anything",
        (
            "of 30 questions that it got right, 6 were lost (and 1 of 10 others won) after 2 doubts: -0.2000"
        ),
        "34 of 40 answers stood through all doubts",
        (
            "asked how sure it is, it is 90 % sure and 75 % right; calibration error 0.1500 (95 % interval 0.0500 .. 0.2500); of the"
            " half that it is surest of, 20 % are wrong; 2 answers without a readable confidence"
        ),
        (
            '"I do not know" was answered to 40 % of what it gets wrong and 0 % of what it gets right; score where a wrong answer'
            " costs 2: 0.5000, without that 0.2500"
        ),
        "of 4 questions where no other option is right, it says so for 25 %",
    ]
    assert list(asked_again_lines(None)) == []
    assert "other words of 1 more kind cost less: report.html" in list(
        asked_again_lines(FOUND, MAX_ON_SCREEN)
    )


def test_a_score_without_pictures_stands_against_that_with_them() -> None:
    (line,) = asked_again_lines(AskedAgain(blind={"blank": change(-0.1)}))
    told = "of 30 questions that it got right, 3 were lost (and 1 of 10 others won)"
    assert (
        line
        == f"{told} with a grey picture of the same size in place of its own: -0.1000 (-0.2000 .. 0.1000)"
    )


def test_what_says_nothing_is_said_to_say_nothing() -> None:
    empty = AskedAgain(
        Repeats(3, 0), {}, Pushback((), {}), Confidence("logprobs", 0, 40), Abstention(1.0)
    )
    assert list(asked_again_lines(empty)) == [
        "asked 3 times: no question has a value each time",
        (
            "by the log probabilities of its answers: too few answers with a confidence to say anything; 40 answers without a"
            " readable confidence"
        ),
        'with "I do not know" as an answer: no question has a value',
    ]
    ratings = InOtherWords(replace(change(-0.5), right_to_wrong=None, wrong_to_right=None), 0, 0.2)
    (line,) = asked_again_lines(AskedAgain(in_other_words={"misspellings": ratings}))
    assert (
        line
        == "the score changed when HELM's misspellings was applied: -0.5000 (-0.2000 .. 0.1000), p 0.2 (Holm)"
    )


def test_it_is_stored_and_read_again_without_what_is_not_known(tmp_path: Path) -> None:
    assert of(FOUND, tmp_path / "run").validity.asked_again == FOUND
    sparse = AskedAgain(Repeats(2, 1), confidence=Confidence("stated", 0, 0))
    assert of(sparse, tmp_path / "other").validity.asked_again == sparse
    assert "- asked 3 times (40 questions)" in markdown_report(of(FOUND))


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
