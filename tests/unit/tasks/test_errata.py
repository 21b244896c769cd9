from __future__ import annotations

from pathlib import Path

import pytest

from eval_factory.scoring.correction_rules import Case, rule_of
from eval_factory.tasks.errata import Errata, Erratum, load_errata
from eval_factory.tasks.framework import load_framework

MEDCALC = {"lower_limit": "9.5", "upper_limit": "10.5"}
DATES = {"category": "date", "lower_limit": "05/01/2020", "upper_limit": "05/03/2020"}
WEEKS = {"category": "date", "lower_limit": "('14 weeks', '1 days')", "upper_limit": "('14 weeks', '3 days')"}


def erratum(name: str) -> Erratum:
    return next(entry for entry in load_errata().errata if entry.id == name)


def value(name: str, completion: str, gold: str, **more: object) -> float | None:
    return rule_of(erratum(name))(Case(prompt="p", completion=completion, gold=gold, helm=0.0, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("extra", "completion", "gold", "expected"),
    [
        ({"category": "lab test", **MEDCALC}, "10.4", "10", 1.0),
        ({"category": "lab test", **MEDCALC}, "11", "10", 0.0),
        ({"category": "lab test", **MEDCALC}, "ten", "10", 0.0),
        ({"category": "lab test", **MEDCALC}, "nan", "10", 0.0),
        ({"category": "dosage", **MEDCALC}, "9.5", "10", 1.0),
        ({"category": "physical", **MEDCALC}, "10", "10", 1.0),
        ({"category": "risk", **MEDCALC}, "10.1", "10", 0.0),
        ({"category": "risk", **MEDCALC}, "10", "10", 1.0),
        (DATES, "05/02/2020", "05/02/2020", 1.0),
        (DATES, "05/03/2020", "05/02/2020", 1.0),
        (DATES, "05/04/2020", "05/02/2020", 0.0),
        (DATES, "May 2nd", "05/02/2020", 0.0),
        (WEEKS, "('14 weeks', '3 days')", "('14 weeks', '2 days')", 1.0),
        (WEEKS, "('15 weeks', '3 days')", "('14 weeks', '2 days')", 0.0),
    ],
)
def test_medcalc(extra: dict[str, str], completion: str, gold: str, expected: float) -> None:
    assert value("medcalc-categories", completion, gold, extra=extra) == expected


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
    ],
)
def test_medec(completion: str, gold: str, expected: float) -> None:
    assert value("medec-sentence", completion, gold) == expected


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
    ],
)
def test_ehr_sql(
    completion: str, annotations: dict[str, dict[str, object]], extra: dict[str, object], expected: float | None
) -> None:
    found = value("ehr-sql-empty-results", completion, "SELECT 2", annotations=annotations, extra=extra)
    assert found == expected


def test_repeated_instances_count_once() -> None:
    rule = rule_of(erratum("med-dialog-repeated"))
    cases = [("a", "x", 1.0), ("b", "x", 2.0), ("a", "x", 5.0), ("a", "y", 3.0)]
    assert [rule(Case(prompt, "", gold, helm)) for prompt, gold, helm in cases] == [1.0, 2.0, None, 3.0]
    again = rule_of(erratum("med-dialog-repeated"))
    assert again(Case("a", "", "x", 4.0)) == 4.0


def test_every_erratum_is_about_something_that_we_have() -> None:
    run_specs = {task.helm.run_spec for task in load_framework().evaluations}
    for entry in load_errata().errata:
        assert set(entry.run_specs) <= run_specs, entry.id


def test_every_erratum_stands_in_the_documentation(root: Path) -> None:
    text = (root / "docs" / "errata.md").read_text("utf-8")
    for entry in load_errata().errata:
        assert f"`{entry.id}`" in text, entry.id


def test_a_defect_has_one_remedy() -> None:
    with pytest.raises(ValueError, match="one of corrected, patched and avoided"):
        Errata.model_validate({"version": 1, "errata": [{"id": "x", "run_specs": [], "defect": "d", "upstream": None}]})


def test_an_erratum_may_be_about_some_arguments_only() -> None:
    names = [entry.id for entry in load_errata().of("med_dialog", {"subset": "icliniq"})]
    assert "med-dialog-repeated" in names
    assert "med-dialog-repeated" not in [e.id for e in load_errata().of("med_dialog", {"subset": "healthcaremagic"})]
    assert "med-dialog-repeated" in [entry.id for entry in load_errata().of("med_dialog")]
