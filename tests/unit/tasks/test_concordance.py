"""Script concordance: which file is read, which rating an answer states, what it is worth."""

from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.tasks.concordance import credit_of_answer, rating_in, read_concordance_file

HEAD = "question_id,sct_stem,question,additional_info,-2,-1,0,1,2\n"


@pytest.mark.parametrize(
    ("text", "rating"),
    [
        ("Rating: +1", 1),
        ("Rating: 1", 1),
        ("Rating:+2", 2),
        ("**Rating:** -1", -1),
        ("rating: \u22122", -2),
        ("My rating is: 0, because 2 of 3", 0),
        ("+2", 2),
        (" -1.", -1),
        ("0 (no effect)", 0),
        ("`1`", 1),
        ("Rating: 10", None),
        ("Rating: 0.5", None),
        ("Rating: 1,5", None),
        ("Rating: 3", None),
        ("", None),
        ("I cannot say. Rating follows", None),
        ("It is likelier.", None),
        ("Likelier: +1", None),
    ],
)
def test_the_rating_that_an_answer_states(text: str, rating: int | None) -> None:
    assert rating_in(text) == rating


def test_credit_is_the_share_of_experts_to_that_of_the_most_frequent_rating() -> None:
    chosen = [0, 1, 2, 8, 4]
    assert [credit_of_answer(chosen, str(rating)) for rating in (-2, -1, 0, 1, 2)] == [
        0.0,
        0.125,
        0.25,
        1.0,
        0.5,
    ]
    assert credit_of_answer(chosen, "no idea") == 0.0
    assert credit_of_answer([0, 0, 0, 0, 0], "0") == 0.0


def test_a_file_in_the_published_form(tmp_path: Path) -> None:
    file = tmp_path / "sct.csv"
    file.write_text(
        HEAD
        + "a,Pain,Is it A?,Fever,0,1,4.5,2,0\nb,Pain,Is it B?,,1,0,0,0,0\nc,Pain,C?,None,0,0,0,0,3\n"
    )
    read = read_concordance_file(file)
    assert read.problems == []
    assert [(one.id, one.best, one.expert_counts[2]) for one in read.rows] == [
        ("a", "0", 4.5),
        ("c", "+2", 0.0),
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("question_id,sct_stem\n", "has no column question, additional_info, -2, -1, 0, 1, 2"),
        (HEAD, "has no case"),
        (
            HEAD + "a,b,c,d,1,1,x,1,1\n",
            "row 1: column 0: must be the number of experts who chose this rating",
        ),
        (
            HEAD + "a,b,c,d,1,1,-1,1,1\n",
            "row 1: column 0: must be the number of experts who chose this rating",
        ),
        (
            HEAD + "a,b,c,d,1,1,nan,1,1\n",
            "row 1: column 0: must be the number of experts who chose this rating",
        ),
        (HEAD + "a,b,c,d,0,0,0,0,0\n", "row 1: no expert chose a rating"),
        (
            HEAD + "a,b,c,d,1,0,0,0,0\na,b,c,e,1,0,0,0,0\n",
            "row 2: column question_id: is empty, or the same as in an earlier row",
        ),
    ],
)
def test_what_is_wrong_with_a_file(text: str, problem: str, tmp_path: Path) -> None:
    file = tmp_path / "sct.csv"
    file.write_text(text)
    assert read_concordance_file(file).problems == [problem]
