"""MedCalc-Bench's own 1,047 rows: the calculator's kind, and its gold answer in the forms that models write it in."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from eval_factory.scoring.corrections import Case, medcalc_by_calculator
from eval_factory.scoring.medcalc_values import value_reader_of

GESTATIONAL_AGE = 69
DATES = (13, 68)


pytestmark = pytest.mark.medical_data


@pytest.fixture(scope="module")
def rows(medical_data: Path) -> list[dict[str, Any]]:
    import pyarrow.parquet as parquet

    (file,) = (medical_data / "hub" / "ncbi" / "MedCalc-Bench" / "data").glob("test-*.parquet")
    found: list[dict[str, Any]] = parquet.read_table(file).to_pylist()
    return found


def case(row: dict[str, Any], answer: str) -> Case:
    """As HELM's scenario gives the row."""
    return Case(
        prompt=f"Patient note: {row['Patient Note']}\n\nQuestion: {row['Question']}\n",
        completion=answer,
        gold=row["Ground Truth Answer"],
        helm=0.0,
        extra={
            "category": row["Category"],
            "lower_limit": row["Lower Limit"],
            "upper_limit": row["Upper Limit"],
        },
    )


def forms(row: dict[str, Any]) -> Iterator[str]:
    gold = row["Ground Truth Answer"]
    calculator = row["Calculator ID"]
    yield from (gold, f"**{gold}**", f"\\boxed{{{gold}}}", f"The answer is {gold}.")
    if calculator == GESTATIONAL_AGE:
        weeks, days = re.findall(r"\d+", gold)
        yield from (
            f"({weeks} weeks, {days} days)",
            f"{weeks} weeks and {days} days",
            f"({weeks}, {days})",
        )
    elif calculator in DATES:
        month, day, year = gold.split("/")
        yield from (f"{year}-{month}-{day}", f"{int(month)}/{int(day)}/{year}")
    else:
        number = float(gold)
        yield from (
            str(number),
            f"{number:,}",
            f"{gold}%",
            f"{gold} mg/dL",
            f"{gold} mL/min/1.73 m2",
            f"{gold} kg/m^2",
        )


def test_the_kind_of_every_calculator_is_known(rows: list[dict[str, Any]]) -> None:
    kinds = Counter(
        (
            row["Output Type"],
            value_reader_of(case(row, "").prompt, row["Category"], row["Ground Truth Answer"]),
        )
        for row in rows
    )
    assert {(kind, reader.__name__): count for (kind, reader), count in kinds.items()} == {
        ("decimal", "number_in"): 627,
        ("integer", "whole_number_in"): 360,
        ("date", "date_in"): 40,
        ("integer", "days_in"): 20,
    }


def test_every_gold_answer_is_right_in_every_form(rows: list[dict[str, Any]]) -> None:
    wrong = []
    for row in rows:
        for form in forms(row):
            if medcalc_by_calculator(case(row, form)) != 1.0:
                wrong.append((row["Calculator Name"], form))
    assert wrong == []
    assert len(rows) == 1047


def test_another_answer_is_wrong(rows: list[dict[str, Any]]) -> None:
    for row in rows:
        off = "(99 weeks, 0 days)" if row["Calculator ID"] == GESTATIONAL_AGE else "01/01/1900"
        if row["Calculator ID"] not in (GESTATIONAL_AGE, *DATES):
            off = str(float(row["Upper Limit"]) + 1)
        for answer in (off, "", "I cannot answer that."):
            assert medcalc_by_calculator(case(row, answer)) == 0.0
