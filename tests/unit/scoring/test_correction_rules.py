"""One instance's answer -> its corrected value, rule by rule."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eval_factory.scoring.correction_rules import Case, rule_of
from eval_factory.tasks.errata import Erratum, load_errata

MEDCALC = {"lower_limit": "9.5", "upper_limit": "10.5"}
DATES = {"category": "date", "lower_limit": "05/01/2020", "upper_limit": "05/03/2020"}
WEEKS = {"category": "date", "lower_limit": "('14 weeks', '1 days')", "upper_limit": "('14 weeks', '3 days')"}
BORDER = {
    "category": "date", "lower_limit": "('13 weeks', '5 days')", "upper_limit": "('14 weeks', '2 days')",
}  # fmt: skip
ZERO = {"category": "date", "lower_limit": "('0 weeks', '49 days')", "upper_limit": "('9 weeks', '0 days')"}


def erratum(name: str) -> Erratum:
    return next(entry for entry in load_errata().errata if entry.id == name)


def value(name: str, completion: str, gold: str, **more: object) -> float | None:
    return rule_of(erratum(name))(Case(prompt="p", completion=completion, gold=gold, helm=0.0, **more))  # type: ignore[arg-type]


def assert_is(found: float | None, expected: float | None) -> None:
    """True is 1 to Python, and is no number in results.jsonl."""
    assert (type(found), found) == (type(expected), expected)


@pytest.mark.parametrize(
    ("extra", "completion", "gold", "expected"),
    [
        ({"category": "lab test", **MEDCALC}, "10.4", "10", 1.0),
        ({"category": "lab test", **MEDCALC}, "11", "10", 0.0),
        ({"category": "lab test", **MEDCALC}, "ten", "10", 0.0),
        ({"category": "lab test", **MEDCALC}, "nan", "10", 0.0),
        ({"category": "dosage", **MEDCALC}, "9.5", "10", 1.0),
        ({"category": "physical", **MEDCALC}, "10", "10", 1.0),
        ({"category": "risk", **MEDCALC}, "10.1", "10", 1.0),  # a score is rounded
        ({"category": "risk", **MEDCALC}, "10.6", "10", 0.0),
        ({"category": "risk", **MEDCALC}, "10.0", "10", 1.0),
        ({"category": "risk", "lower_limit": "9", "upper_limit": "11"}, "9", "10", 0.0),  # and has no limits
        ({"category": "risk", "lower_limit": "9", "upper_limit": "11"}, "11", "10", 0.0),
        ({"category": "risk"}, "10 points", "10", 1.0),
        ({"category": "risk", **MEDCALC}, "10", "none", 0.0),
        ({"category": "risk", **MEDCALC}, "10", "10", 1.0),
        (DATES, "05/02/2020", "05/02/2020", 1.0),
        (DATES, "05/03/2020", "05/02/2020", 1.0),
        (DATES, "05/04/2020", "05/02/2020", 0.0),
        (DATES, "May 2nd", "05/02/2020", 0.0),
        (WEEKS, "('14 weeks', '3 days')", "('14 weeks', '2 days')", 1.0),
        (WEEKS, "('15 weeks', '3 days')", "('14 weeks', '2 days')", 0.0),
        *(({"category": category, **MEDCALC}, "9.4", "10", 0.0) for category in ("risk", "severity", "diagnosis")),
        *(({"category": category, **MEDCALC}, " 10\n", "10 ", 1.0) for category in ("risk", "severity", "diagnosis")),
        ({"category": "date", **MEDCALC}, "10.1", "10", 0.0),  # a date is no number
        ({**DATES, "category": "lab test"}, "05/02/2020", "05/01/2020", 0.0),
        ({"category": "lab test", **MEDCALC}, "9.5", "10", 1.0),
        ({"category": "lab test", **MEDCALC}, "9.49", "10", 0.0),
        ({"category": "lab test", **MEDCALC}, "10.5", "10", 1.0),
        ({"category": "lab test", **MEDCALC}, "10.51", "10", 0.0),
        ({"category": "lab test", **MEDCALC}, "the answer is 10", "10", 1.0),
        ({"category": "lab test", **MEDCALC}, "the answer is 11", "10", 0.0),
        ({"category": "lab test", "upper_limit": "10.5"}, "10.1", "10", 0.0),
        ({"category": "lab test", "lower_limit": 9.5, "upper_limit": 10.5}, "10.1", "10", 1.0),
        ({"category": "lab test", "lower_limit": "9.5"}, "10.1", "10", 0.0),
        ({"category": "date", "lower_limit": 5012020, "upper_limit": 5032020}, "05/01/2020", "05/02/2020", 0.0),
        ({}, "10", "10", 1.0),
        ({}, "10.1", "10", 0.0),
        (WEEKS, "('14 weeks', '1 days')", "('14 weeks', '2 days')", 1.0),
        (WEEKS, "('14 weeks', '0 days')", "('14 weeks', '2 days')", 0.0),
        (WEEKS, "('14 weeks', '4 days')", "('14 weeks', '2 days')", 0.0),
        (WEEKS, "(14 weeks, 2 days)", "('14 weeks', '2 days')", 1.0),  # as the prompt writes it
        (WEEKS, "14 weeks and 4 days", "('14 weeks', '2 days')", 0.0),
        (WEEKS, "14.3 weeks", "('14 weeks', '2 days')", 0.0),
        (BORDER, "('14 weeks', '0 days')", "('13 weeks', '6 days')", 1.0),
        (BORDER, "('13 weeks', '11 days')", "('13 weeks', '6 days')", 0.0),  # a week has seven days
        (BORDER, "('13 weeks', '8 days')", "('13 weeks', '6 days')", 1.0),
        (ZERO, "('7 weeks', '0 days')", "('8 weeks', '0 days')", 1.0),
        (ZERO, "('6 weeks', '6 days')", "('8 weeks', '0 days')", 0.0),
    ],
)
def test_medcalc(extra: dict[str, str], completion: str, gold: str, expected: float) -> None:
    assert_is(value("medcalc-categories", completion, gold, extra=extra), expected)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_medcalcs_weeks_and_days_are_compared_as_days(low: int, answer: int, high: int) -> None:
    def written(days: int) -> str:
        return f"('{days // 7} weeks', '{days % 7} days')"

    extra = {"category": "date", "lower_limit": written(low), "upper_limit": written(high)}
    assert value("medcalc-categories", written(answer), written(99), extra=extra) == float(low <= answer <= high)


@pytest.mark.parametrize(
    ("completion", "gold", "expected"),
    [
        ("3 The dose is 5 mg.", "3 The dose is 50 mg.", 1.0),
        ("3", "3 The dose is 50 mg.", 1.0),
        ("13 The dose is 50 mg.", "3 The dose is 50 mg.", 0.0),
        ("CORRECT", "3 The dose is 50 mg.", 0.0),
        ("CORRECT", "CORRECT", 1.0),
        ("CORRECT.", "CORRECT", 1.0),
        ("3 x", "CORRECT", 0.0),
        ("no idea", "CORRECT", 0.0),
        ("7" * 5000, "3 The dose is 50 mg.", 0.0),
        ("7" * 5000, "CORRECT", 0.0),
        ("7" * 5000, "7" * 5000, 1.0),
        ("7" * 5000, "no sentence", 0.0),
        ("7" * 5000, "8" * 5000, 0.0),
        ("31 The dose", "32 The dose", 0.0),
        ("03", "3 The dose is 50 mg.", 1.0),
        (" 3 The dose", "3 The dose is 50 mg.", 1.0),
        ("3 The dose", "\n3 The dose is 50 mg.", 1.0),
        (" CORRECT . ", "CORRECT", 0.0),
        (" CORRECT. ", "CORRECT", 1.0),
        ("CORRECT", "\nCORRECT ", 1.0),
        ("correct", "CORRECT", 0.0),
        ("CORRECT: no error", "CORRECT", 0.0),
        ("Sentence 3", "3 The dose is 50 mg.", 0.0),  # the number stands first
        ("The dose of 3", "3 The dose is 50 mg.", 0.0),
        ("-3", "3 The dose is 50 mg.", 0.0),
        ("3.", "3 The dose is 50 mg.", 1.0),
        ("3rd", "3 The dose is 50 mg.", 1.0),
    ],
)
def test_medec(completion: str, gold: str, expected: float) -> None:
    assert_is(value("medec-sentence", completion, gold), expected)


NOTE = "0 A man of 70.\n1 The dose is 5 mg.\nper kg of weight\n 12 He goes home."


@pytest.mark.parametrize(
    ("completion", "gold", "expected"),
    [
        ("1 The dose is 50 mg.", "1 The dose is 50 mg.", 1.0),
        ("0", "1 The dose is 50 mg.", 1.0),  # which sentence it is does not count
        ("12", "1 The dose is 50 mg.", 1.0),
        ("2", "1 The dose is 50 mg.", 0.0),  # the note has no such sentence
        ("70", "1 The dose is 50 mg.", 0.0),
        ("7" * 5000, "1 The dose is 50 mg.", 0.0),
        ("CORRECT", "1 The dose is 50 mg.", 0.0),
        ("CORRECT.", "1 The dose is 50 mg.", 0.0),
        ("", "1 The dose is 50 mg.", 0.0),
        ("I cannot answer that.", "1 The dose is 50 mg.", 0.0),  # as a line of the note is: no number
        ("per kg of weight", "1 The dose is 50 mg.", 0.0),
        ("CORRECT", "CORRECT", 1.0),
        (" CORRECT. ", "CORRECT", 1.0),
        ("correct", "CORRECT", 0.0),
        ("1", "CORRECT", 0.0),
        ("2", "CORRECT", 0.0),
        ("", "CORRECT", 0.0),
        ("no error", "CORRECT", 0.0),
    ],
)
def test_medecs_flag(completion: str, gold: str, expected: float) -> None:
    rule = rule_of(erratum("medec-flag"))
    assert_is(rule(Case(NOTE, completion, gold, helm=1.0)), expected)


def sql(rows: object, gold_rows: object, error: str | None = None) -> dict[str, dict[str, object]]:
    return {"ehr_sql": {"predicted_result": rows, "ground_truth_rows": gold_rows, "query_error": error}}


def unwritten(error: str | None) -> dict[str, dict[str, object]]:
    return {"ehr_sql": {**sql([], [], error)["ehr_sql"], "query_written": False}}


@pytest.mark.parametrize(
    ("completion", "annotations", "extra", "expected"),
    [
        ("SELECT 1", sql([[1], [2]], [[2], [1]]), {}, 1.0),
        ("SELECT 1", sql([[1], [1]], [[1]]), {}, 1.0),
        ("SELECT 1", sql([[1, 2]], [[2, 1]]), {}, 0.0),
        ("SELECT 1", sql([[0.0, "a"]], [[0, "a"]]), {}, 1.0),
        ("SELECT 1", sql([["0"]], [[0]]), {}, 0.0),
        ("SELECT 1", sql([[None]], []), {}, 0.0),
        ("SELECT 1", sql([], []), {}, 1.0),
        ("SELECT 1", sql([], [], "no such table"), {}, 0.0),
        ("", sql([], []), {}, 0.0),
        ("", sql([], None), {"is_impossible": True}, 1.0),
        ("<sql></sql>", unwritten("No query generated"), {"is_impossible": True}, 1.0),
        ("-- no", unwritten(None), {"is_impossible": True}, 1.0),
        ("-- no", unwritten(None), {}, 0.0),
        ("no idea", sql([], None, "syntax error"), {"is_impossible": True}, 0.0),
        ("SELECT 1", sql([[1]], None), {"is_impossible": True}, 0.0),
        ("SELECT 1", sql([[1]], None), {}, None),
        (
            "SELECT 1",
            {"ehr_sql": {**sql([], None, "e")["ehr_sql"], "as_evaluated": sql([[1]], [[1]])["ehr_sql"]}},
            {},
            1.0,
        ),
        ("SELECT 1", {"ehr_sql": {**sql([[1]], [[1]])["ehr_sql"], "as_evaluated": sql([[1]], [])["ehr_sql"]}}, {}, 0.0),
        (
            "SELECT 1",
            {"ehr_sql": {**sql([[1]], [[1]])["ehr_sql"], "as_evaluated": sql([[1]], None)["ehr_sql"]}},
            {},
            None,
        ),
        ("-- no", {"ehr_sql": {**unwritten(None)["ehr_sql"], "as_evaluated": sql([[1]], [[1]])["ehr_sql"]}}, {}, 0.0),
        (" \n", sql([], []), {}, 0.0),
        (" \n", sql([[1]], [[1]]), {}, 0.0),
        (" ", {}, {"is_impossible": True}, 1.0),
        ("SELECT 1", {}, {"is_impossible": True}, 0.0),
        ("SELECT 1", {}, {}, None),
        ("SELECT 1", {"ehr_sql": {}}, {"is_impossible": False}, None),
        ("SELECT 1", {"ehr_sql": None}, {}, None),
        ("SELECT 1", {"ehr_sql": {"ground_truth_rows": []}}, {}, 1.0),  # nothing was predicted, nothing is right
        ("SELECT 1", sql([[1]], [[1]], ""), {}, 0.0),
        ("", sql([], None), {}, 0.0),  # no query is wrong where one was due, whatever became of the gold query
        (" \n", sql([], None), {}, 0.0),
        ("-- no", {"ehr_sql": {**sql([], None)["ehr_sql"], "query_written": False}}, {}, 0.0),
        ("no idea", sql([], None, "syntax error"), {}, None),
        ("", {"ehr_sql": {"query_written": True, "ground_truth_rows": []}}, {}, 0.0),
        ("SELECT 1", {"ehr_sql": {**sql([[1]], [[1]])["ehr_sql"], "query_written": True}}, {}, 1.0),
    ],
)
def test_ehr_sql(
    completion: str, annotations: dict[str, dict[str, object]], extra: dict[str, object], expected: float | None
) -> None:
    assert_is(value("ehr-sql-empty-results", completion, "SELECT 2", annotations=annotations, extra=extra), expected)


@pytest.mark.parametrize(
    ("completion", "annotations", "impossible", "precision", "recall"),
    [
        ("SELECT 1", sql([], []), False, 1.0, 1.0),
        ("SELECT 1", sql([], [], "no such table"), False, 1.0, 1.0),
        ("SELECT 1", sql([], None), True, 0.0, None),
        (" ", sql([], []), False, None, 0.0),
        (" ", sql([], []), True, None, None),
        ("-- no", unwritten(None), False, None, 0.0),
        ("-- no", unwritten(None), True, None, None),
        ("SELECT 1", {"ehr_sql": None}, False, 1.0, 1.0),
    ],
)
def test_ehr_sqls_precision_and_recall_have_their_own_denominators(
    completion: str, annotations: dict[str, Any], impossible: bool, precision: float | None, recall: float | None
) -> None:  # fmt: skip
    known = {"annotations": annotations, "extra": {"is_impossible": impossible}}
    assert_is(value("ehr-sql-precision", completion, "SELECT 2", **known), precision)
    assert_is(value("ehr-sql-recall", completion, "SELECT 2", **known), recall)
    without_gold = {"annotations": annotations, "extra": {}}
    assert value("ehr-sql-recall", completion, " ", **without_gold) is None


@pytest.mark.parametrize("gold", ["", " \n"])
def test_ehr_sql_without_a_gold_query_is_impossible(gold: str) -> None:
    assert_is(value("ehr-sql-empty-results", " ", gold, annotations=sql([[1]], [[1]])), 1.0)
    assert_is(value("ehr-sql-empty-results", "SELECT 1", gold, annotations=sql([[1]], [[1]])), 0.0)


def test_repeated_instances_count_once() -> None:
    rule = rule_of(erratum("med-dialog-repeated"))
    cases = [
        ("1", "a", "x", 1.0),
        ("2", "b", "x", 2.0),
        ("3", "a", "x", 5.0),
        ("4", "a", "y", 3.0),
        ("1", "a", "x", 0.0),
    ]
    found = [rule(Case(prompt, "", gold, helm, instance=name)) for name, prompt, gold, helm in cases]
    assert found == [1.0, 2.0, None, 3.0, 0.0]  # the last is another trial of the first
    assert rule(Case("a", "", "x", 6.0, instance="5", choices=["x", "z"])) == 6.0
    assert rule(Case("a", "", "x", 7.0, instance="6", choices=["z", "x"])) is None
    again = rule_of(erratum("med-dialog-repeated"))
    assert again(Case("a", "", "x", 4.0)) == 4.0


def test_a_case_knows_nothing_beside_it_unless_it_is_told() -> None:
    one, other = Case("p", "c", "g", None), Case("p", "c", "g", None)
    assert (one.extra, one.annotations) == ({}, {})
    assert one.extra is not other.extra


def test_every_rule_of_the_list_is_known_and_no_other() -> None:
    rules = {entry.rule for entry in load_errata().errata} - {None}
    assert rules == {
        "medcalc_by_calculator",
        "medec_sentence",
        "medec_flag",
        "ehr_sql_same_rows",
        "ehr_sql_precision",
        "ehr_sql_recall",
        "first_of_repeated",
    }
    for entry in load_errata().errata:
        if entry.rule is not None:
            assert callable(rule_of(entry))
    with pytest.raises(KeyError):
        rule_of(erratum("medec-sentence").model_copy(update={"rule": "other"}))
