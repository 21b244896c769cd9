"""An answer to MedCalc-Bench as a model may write it -> the value that it states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.scoring.medcalc_values import (
    date_in,
    days_in,
    number_in,
    value_reader_of,
    whole_number_in,
)
from known import there

PROMPT = "Patient note: He has a score. Question: What is the patient's HEART score?\n\nQuestion: What is {}?\n\n"
WELLS_SCORE = "the patient’s score of Wells' criteria for Pulmonary Embolism"  # noqa: RUF001 - as the data write it


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (
            None,
            [
                "x = 1,2,3",
                "3.1.4",
                "CURB-65",
                "Either 999 or 18",
                "999 or 18",
                "18 mL/min or 20 mL/min",
                "999 oder 18",
                "between 10 and 15",
                "10 to 15",
                "10-15",
                "10 \N{EN DASH} 15",
                "05/02/2020",
                "2020-05-02",
                "ten",
                "",
            ],
        ),
        (
            7.0,
            [
                "x=7",
                "**7**",
                "7.",
                "7 or more",
                r"\boxed{7}",
                r"\boxed{7} of 9",
                r"\boxed{\mathbf{7}}",
                r"\text{7}",
                r"\boxed{x\mathrm{=7}}",
                "on 05/02/2020: 7",
                "7/9",
            ],
        ),
        (
            18.3,
            [
                "18.3 mL/min. The normal value is above 90.",
                "18.3 mL/min (normal: 90-120)",
                "**18.3 mL/min**. Normal is above 90.",
                "18.3, which is below 90",
                "18.3\n\nNormal: above 90",
                "about 18.3 mL/min/1.73 m2; normal is above 90",
                "The clearance is 18.3 mL/min, below the range of 90 to 120 or 80-110.",
                "The answer is 18.3 mL/min, since normal is above 90.",
                "The answer is 5. No, the answer is 18.3",
                "Die Antwort ist 18,3.",
                "1. 65 * 2 = 130.\n2. Divide by 7.1: 18.3",
                "1) Age of 65.\n2) 18.3",
                "65 years old, so 18.3",
                '{"answer": 18.3, "explanation": "The age is 65."}',
                '{"step_by_step_thinking": "65 * 2 = 130", "answer": "18.3 mL/min"}',
                '```json\n{"answer": "18,3", "explanation": "of 65"}\n```',
            ],
        ),
        (25.238, ["25.238", " 25.238 mL/min\n"]),
        (25.2, ["25.2 mL/min/1.73 m2", "25.2 mL/min/1.73m²"]),
        (14.5, ["14.5 kg/m^2", "14.5 kg/m^{2}"]),
        (0.247, ["0.247%", "0.247 %", r"0.247\%", "0,247"]),
        (1234.5, ["1,234.5", "1.234,5"]),
        (1234567.0, ["1,234,567"]),
        (12.34, ["12,34"]),
        (1.2345, ["1,2345"]),
        (-5.5, ["-5,5 mmol/L"]),
        (1234.0, ["1,234"]),
        (-0.828, ["-0.828 L", "\N{MINUS SIGN}0.828"]),
        (3.0, ["+3"]),
        (4.0, ["CHA2DS2-VASc: 4"]),
        (2.5, ["1 then 2.5"]),
        (7.5, ["7.5."]),
        (18.0, ["18 because the patient is 65."]),
        (12.0, ["140 - 104 - 24 = 12"]),
        (10.0, ["1e1"]),
        (5.0, ["5 m_2"]),
        (8.0, [r"\boxed{7} \boxed{8}", r"\boxed{7 \text{ mg} 8 \mathrm{kg}}"]),
    ],
)
def test_a_number_is_the_one_that_is_stated_without_its_unit(
    value: float | None, texts: list[str]
) -> None:
    """`12,34` has no thousands."""
    assert {text: number_in(text) for text in texts} == dict.fromkeys(texts, value)


@given(st.floats(-1e12, 1e12, allow_nan=False).map(lambda number: round(number, 3)))
def test_any_number_is_read_with_thousands_separators_and_a_unit(number: float) -> None:
    assert number_in(f"The value is {number:,.3f} mg/dL.") == number


@pytest.mark.parametrize(
    ("value", "texts"),
    [
        (
            4.0,
            [
                "4",
                "4.0",
                "4.4",
                "4 points. The maximum is 9.",
                "4 points: criteria 1, 2, 3",
                "4 (range 0-10)",
                "4. One for 2 out of 3",
                '{"answer": "4", "explanation": "1, 2, 3"}',
                "Score: 4 points",
                r"\boxed{4} out of 9, 8",
            ],
        ),
        (5.0, ["4.6"]),
        (-1.0, ["-1"]),
        (3.0, ["3 out of 5", "2, 4, 5", "3,0", "3/5"]),
        (13.0, ["13 out of 15"]),
        (2.0, ["2,4", "2 , 4"]),
        (None, ["Either 2 or 3", "2 to 3", "nan", "inf", "1" * 5000, "none"]),
        (-2.0, ["\N{MINUS SIGN}2"]),
    ],
)
def test_a_score_is_a_whole_number(value: float | None, texts: list[str]) -> None:
    assert {text: whole_number_in(text) for text in texts} == dict.fromkeys(texts, value)
    assert {type(whole_number_in(text)) for text in texts} == {type(value)}


DATES = [
    "09/03/2014",
    "9/3/2014",
    "2014-09-03",
    "Due: 09/03/2014.",
    "from 01/01/2014 to 09/03/2014",
    "from 2014-01-01 to 09/03/2014",
    r"\boxed{09/03/2014} not 01/01/2014",
    "09/03/2014. The last period began on 11/27/2013.",
    "11/27/2013 + 280 days = 09/03/2014",
    "The answer is 09/03/2014 (from 11/27/2013)",
    '{"answer": "09/03/2014", "explanation": "from 11/27/2013"}',
    "01/01/2014 or 01/02/2014? On 09/03/2014",
]
NO_DATES = [
    "",
    "May 2nd",
    "13/40/2014",
    "2014-13-01",
    "1/1/14",
    "109/03/2014x",
    "09/03/2014 or 09/04/2014",
    "09/03/20145",
    "12014-09-03",
]


def test_a_date_is_a_number_of_days_and_is_read_in_either_order() -> None:
    first = there(date_in("02/28/2020"))
    assert (date_in("03/01/2020"), type(first)) == (first + 2, float)
    same = there(date_in("09/03/2014"))
    assert {text: date_in(text) for text in DATES + NO_DATES} == dict.fromkeys(
        DATES, same
    ) | dict.fromkeys(NO_DATES)


WEEKS = [
    "('14 weeks', '2 days')",
    "(14 weeks, 2 days)",
    "(14 week, 2 day)",
    "14 weeks and 2 days",
    "14 Weeks, and 2 Days",
    "14 weeks 2 days",
    "14w2d",
    "14w 2d",
    "(14, 2)",
    "['14', '2']",
    "14, 2",
    '"14 weeks", "2 days"',
    "[14,2]",
    r"\boxed{(14\text{ weeks}, 2\text{ days})}",
    "The age is 14 weeks and 2 days.",
    "13 weeks, 9 days",
    "14 weeks and 2 days. Term is 40 weeks and 0 days.",
    '{"answer": "(14 weeks, 2 days)", "explanation": "not 1 week, 1 day"}',
]
NO_WEEKS = [
    "",
    "14",
    "142",
    "14 2",
    "14 weeks",
    "2 days",
    f"{'1' * 5000} weeks 2 days",
    "1.14 weeks 2 days",
    "14 weeks, 2 months",
    "14 weeks 2 days or 15 weeks 1 day",
    "09/03/2014",
]


def test_weeks_and_days_are_days() -> None:
    found = {text: days_in(text) for text in WEEKS + NO_WEEKS}
    assert found == dict.fromkeys(WEEKS, 14 * 7 + 2) | dict.fromkeys(NO_WEEKS)


@pytest.mark.parametrize(
    ("question", "category", "gold", "reader"),
    [
        ("the age", "date", "('0 weeks', '6 days')", days_in),
        ("the age", "date", "(0 weeks, 6 days)", date_in),
        ("the due date", "date", "09/23/2014", date_in),
        ("the patient's HEART score", "risk", "4", whole_number_in),
        ("the patient's Child-Pugh Score", "severity", "4", whole_number_in),
        ("the number of SIRS critiera", "diagnosis", "2", whole_number_in),
        (
            "the number of criteria met for the PERC Rule for Pulmonary Embolism (PE)",
            "diagnosis",
            "2",
            whole_number_in,
        ),
        (WELLS_SCORE, "risk", "1.5", number_in),
        ("the dose", "dosage", "4", number_in),
        ("the gap", "lab test", "4", number_in),
        ("the gap", None, "4", number_in),
    ],
)
def test_the_calculator_says_how_an_answer_is_read(
    question: str, category: str, gold: str, reader: object
) -> None:
    assert value_reader_of(PROMPT.format(question), category, gold) is reader
    about_another = f"Patient note: Question: {WELLS_SCORE}?\n\nQuestion: What is the patient's HEART score?\n\n"
    assert value_reader_of(about_another, "risk", "4") is whole_number_in
