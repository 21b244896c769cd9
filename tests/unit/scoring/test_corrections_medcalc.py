"""An answer to MedCalc-Bench as a model may write it -> the value that it states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.scoring.corrections import date_in, days_in, number_in, reader_of, whole_number_in
from unit.scoring.known import there

PROMPT = "Patient note: He has a score. Question: What is the patient's HEART score?\n\nQuestion: What is {}?\n\n"
WELLS = "the patient’s score of Wells' criteria for Pulmonary Embolism"  # noqa: RUF001 - as the data write it


@pytest.mark.parametrize(("text", "value"), [
    ("25.238", 25.238), (" 25.238 mL/min\n", 25.238), ("25.2 mL/min/1.73 m2", 25.2),
    ("25.2 mL/min/1.73m²", 25.2), ("14.5 kg/m^2", 14.5), ("14.5 kg/m^{2}", 14.5), ("0.247%", 0.247),
    ("0.247 %", 0.247), (r"0.247\%", 0.247), ("1,234.5", 1234.5), ("1,234,567", 1234567.0),
    ("12,34", 12.34),  # no thousands
    ("1,2345", 1.2345), ("0,247", 0.247), ("-5,5 mmol/L", -5.5), ("1.234,5", 1234.5), ("1,234", 1234.0),
    ("x = 1,2,3", None), ("3.1.4", None), ("-0.828 L", -0.828), ("\N{MINUS SIGN}0.828", -0.828), ("+3", 3.0),
    ("CURB-65", None), ("CHA2DS2-VASc: 4", 4.0), ("1 then 2.5", 2.5), ("x=7", 7.0), ("**7**", 7.0), ("7.", 7.0),
    ("7.5.", 7.5), ("18.3 mL/min. The normal value is above 90.", 18.3), ("18.3 mL/min (normal: 90-120)", 18.3),
    ("**18.3 mL/min**. Normal is above 90.", 18.3), ("18.3, which is below 90", 18.3),
    ("18.3\n\nNormal: above 90", 18.3), ("18 because the patient is 65.", 18.0),
    ("about 18.3 mL/min/1.73 m2; normal is above 90", 18.3),
    ("The clearance is 18.3 mL/min, below the range of 90 to 120 or 80-110.", 18.3),
    ("The answer is 18.3 mL/min, since normal is above 90.", 18.3),
    ("The answer is 5. No, the answer is 18.3", 18.3), ("Die Antwort ist 18,3.", 18.3),
    ("1. 65 * 2 = 130.\n2. Divide by 7.1: 18.3", 18.3), ("1) Age of 65.\n2) 18.3", 18.3),
    ("65 years old, so 18.3", 18.3), ("140 - 104 - 24 = 12", 12.0),
    ('{"answer": 18.3, "explanation": "The age is 65."}', 18.3),
    ('{"step_by_step_thinking": "65 * 2 = 130", "answer": "18.3 mL/min"}', 18.3),
    ('```json\n{"answer": "18,3", "explanation": "of 65"}\n```', 18.3), ("Either 999 or 18", None),
    ("999 or 18", None), ("18 mL/min or 20 mL/min", None), ("999 oder 18", None), ("between 10 and 15", None),
    ("10 to 15", None), ("10-15", None), ("10 \N{EN DASH} 15", None), ("7 or more", 7.0), ("1e1", 10.0),
    ("5 m_2", 5.0), (r"\boxed{7}", 7.0), (r"\boxed{7} of 9", 7.0), (r"\boxed{7} \boxed{8}", 8.0),
    (r"\boxed{7 \text{ mg} 8 \mathrm{kg}}", 8.0), (r"\boxed{\mathbf{7}}", 7.0), (r"\text{7}", 7.0),
    (r"\boxed{x\mathrm{=7}}", 7.0), ("05/02/2020", None), ("2020-05-02", None), ("on 05/02/2020: 7", 7.0),
    ("7/9", 7.0), ("ten", None), ("", None),
])  # fmt: skip
def test_a_number_is_the_one_that_is_stated_without_its_unit(text: str, value: float | None) -> None:
    assert number_in(text) == value


@given(st.floats(-1e12, 1e12, allow_nan=False).map(lambda number: round(number, 3)))
def test_any_number_is_read_with_thousands_separators_and_a_unit(number: float) -> None:
    assert number_in(f"The value is {number:,.3f} mg/dL.") == number


@pytest.mark.parametrize(("text", "value"), [
    ("4", 4.0), ("4.0", 4.0), ("4.4", 4.0), ("4.6", 5.0), ("-1", -1.0), ("3 out of 5", 3.0), ("13 out of 15", 13.0),
    ("2, 4, 5", 3.0), ("2,4", 2.0), ("2 , 4", 2.0), ("3,0", 3.0), ("4 points. The maximum is 9.", 4.0),
    ("4 points: criteria 1, 2, 3", 4.0), ("4 (range 0-10)", 4.0), ("4. One for 2 out of 3", 4.0),
    ('{"answer": "4", "explanation": "1, 2, 3"}', 4.0), ("Either 2 or 3", None), ("2 to 3", None),
    ("Score: 4 points", 4.0), (r"\boxed{4} out of 9, 8", 4.0), ("\N{MINUS SIGN}2", -2.0), ("3/5", 3.0), ("nan", None),
    ("inf", None), ("1" * 5000, None), ("none", None),
])  # fmt: skip
def test_a_score_is_a_whole_number(text: str, value: float | None) -> None:
    found = whole_number_in(text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(("text", "same"), [
    ("09/03/2014", "09/03/2014"), ("9/3/2014", "09/03/2014"), ("2014-09-03", "09/03/2014"),
    ("Due: 09/03/2014.", "09/03/2014"), ("from 01/01/2014 to 09/03/2014", "09/03/2014"),
    ("from 2014-01-01 to 09/03/2014", "09/03/2014"), (r"\boxed{09/03/2014} not 01/01/2014", "09/03/2014"),
    ("09/03/2014. The last period began on 11/27/2013.", "09/03/2014"),
    ("11/27/2013 + 280 days = 09/03/2014", "09/03/2014"), ("The answer is 09/03/2014 (from 11/27/2013)", "09/03/2014"),
    ('{"answer": "09/03/2014", "explanation": "from 11/27/2013"}', "09/03/2014"),
    ("01/01/2014 or 01/02/2014? On 09/03/2014", "09/03/2014"),
])  # fmt: skip
def test_a_date_is_read_in_either_order(text: str, same: str) -> None:
    assert date_in(text) == date_in(same) is not None


def test_a_date_is_a_number_of_days() -> None:
    first = there(date_in("02/28/2020"))
    assert (date_in("03/01/2020"), type(first)) == (first + 2, float)


@pytest.mark.parametrize("text", [
    "", "May 2nd", "13/40/2014", "2014-13-01", "1/1/14", "109/03/2014x", "09/03/2014 or 09/04/2014", "09/03/20145",
    "12014-09-03",
])  # fmt: skip
def test_what_is_no_date_is_none(text: str) -> None:
    assert date_in(text) is None


@pytest.mark.parametrize("text", [
    "('14 weeks', '2 days')", "(14 weeks, 2 days)", "(14 week, 2 day)", "14 weeks and 2 days", "14 Weeks, and 2 Days",
    "14 weeks 2 days", "14w2d", "14w 2d", "(14, 2)", "['14', '2']", "14, 2", '"14 weeks", "2 days"', "[14,2]",
    r"\boxed{(14\text{ weeks}, 2\text{ days})}", "The age is 14 weeks and 2 days.", "13 weeks, 9 days",
    "14 weeks and 2 days. Term is 40 weeks and 0 days.",
    '{"answer": "(14 weeks, 2 days)", "explanation": "not 1 week, 1 day"}',
])  # fmt: skip
def test_weeks_and_days_are_days(text: str) -> None:
    assert days_in(text) == 14 * 7 + 2


@pytest.mark.parametrize("text", [
    "", "14", "142", "14 2", "14 weeks", "2 days", f"{'1' * 5000} weeks 2 days", "1.14 weeks 2 days",
    "14 weeks, 2 months", "14 weeks 2 days or 15 weeks 1 day", "09/03/2014",
])  # fmt: skip
def test_what_is_no_weeks_and_days_is_none(text: str) -> None:
    assert days_in(text) is None


@pytest.mark.parametrize(("question", "category", "gold", "reader"), [
    ("the age", "date", "('0 weeks', '6 days')", days_in), ("the age", "date", "(0 weeks, 6 days)", date_in),
    ("the due date", "date", "09/23/2014", date_in), ("the patient's HEART score", "risk", "4", whole_number_in),
    ("the patient's Child-Pugh Score", "severity", "4", whole_number_in),
    ("the number of SIRS critiera", "diagnosis", "2", whole_number_in),
    ("the number of criteria met for the PERC Rule for Pulmonary Embolism (PE)", "diagnosis", "2", whole_number_in),
    (WELLS, "risk", "1.5", number_in), ("the dose", "dosage", "4", number_in), ("the gap", "lab test", "4", number_in),
    ("the gap", None, "4", number_in),
])  # fmt: skip
def test_the_calculator_says_how_an_answer_is_read(question: str, category: str, gold: str, reader: object) -> None:
    assert reader_of(PROMPT.format(question), category, gold) is reader


def test_a_note_about_another_calculator_does_not_say_how_an_answer_is_read() -> None:
    prompt = f"Patient note: Question: {WELLS}?\n\nQuestion: What is the patient's HEART score?\n\n"
    assert reader_of(prompt, "risk", "4") is whole_number_in
