"""Corrected values of metrics that are known to be wrong, from the same answers, beside HELM's own."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from builders import plan
from eval_factory.helm import output
from eval_factory.scoring.corrections import Case, Corrections, Rule, medec_flag, rule_of
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.errata import Erratum, load_errata
from facts import each_says, naming, says

MEDCALC = {"lower_limit": "9.5", "upper_limit": "10.5"}
LAB, RISK = ({"category": category, **MEDCALC} for category in ("lab test", "risk"))
DATES = {"category": "date", "lower_limit": "05/01/2020", "upper_limit": "05/03/2020"}
WEEKS = {
    "category": "date",
    "lower_limit": "('14 weeks', '1 days')",
    "upper_limit": "('14 weeks', '3 days')",
}
BORDER = {
    "category": "date",
    "lower_limit": "('13 weeks', '5 days')",
    "upper_limit": "('14 weeks', '2 days')",
}
ZERO = {
    "category": "date",
    "lower_limit": "('0 weeks', '49 days')",
    "upper_limit": "('9 weeks', '0 days')",
}


def listed(name: str) -> Erratum:
    return next(entry for entry in load_errata().errata if entry.id == name)


def value(name: str, completion: str, gold: str, **more: Any) -> float | None:
    return rule_of(listed(name))(
        Case(**{"prompt": "p", "helm": 0.0, **more}, completion=completion, gold=gold)
    )


def assert_is(found: float | None, expected: float | None) -> None:
    """True is 1 to Python, and is no number in results.jsonl."""
    assert (type(found), found) == (type(expected), expected)


def assert_values(name: str, gold: str, right: list[str], wrong: list[str], **more: Any) -> None:
    for answers, expected in ((right, 1.0), (wrong, 0.0)):
        for answer in answers:
            assert_is(value(name, answer, gold, **more), expected)


@pytest.mark.parametrize(
    ("extra", "gold", "right", "wrong"),
    [
        (
            LAB,
            "10",
            ["10.4", "9.5", "10.5", "the answer is 10"],
            ["11", "ten", "nan", "9.49", "10.51", "the answer is 11"],
        ),
        ({"category": "dosage", **MEDCALC}, "10", ["9.5"], []),
        ({"category": "physical", **MEDCALC}, "10", ["10"], []),
        (RISK, "10", ["10.1", "10.0", "10"], ["10.6"]),  # a score is rounded
        (
            {"category": "risk", "lower_limit": "9", "upper_limit": "11"},
            "10",
            [],
            ["9", "11"],
        ),  # and has no limits
        ({"category": "risk"}, "10", ["10 points"], []),
        (RISK, "none", [], ["10"]),
        *(
            ({"category": one, **MEDCALC}, "10 ", [" 10\n"], ["9.4"])
            for one in ("risk", "severity", "diagnosis")
        ),
        (DATES, "05/02/2020", ["05/02/2020", "05/03/2020"], ["05/04/2020", "May 2nd"]),
        ({"category": "date", **MEDCALC}, "10", [], ["10.1"]),  # a date is no number
        ({**DATES, "category": "lab test"}, "05/01/2020", [], ["05/02/2020"]),
        ({"category": "lab test", "upper_limit": "10.5"}, "10", [], ["10.1"]),
        ({"category": "lab test", "lower_limit": "9.5"}, "10", [], ["10.1"]),
        ({"category": "lab test", "lower_limit": 9.5, "upper_limit": 10.5}, "10", ["10.1"], []),
        (
            {"category": "date", "lower_limit": 5012020, "upper_limit": 5032020},
            "05/02/2020",
            [],
            ["05/01/2020"],
        ),
        ({}, "10", ["10"], ["10.1"]),
        (
            WEEKS,
            "('14 weeks', '2 days')",
            [
                "('14 weeks', '3 days')",
                "('14 weeks', '1 days')",
                "(14 weeks, 2 days)",
            ],  # the last as the prompt writes it
            [
                "('15 weeks', '3 days')",
                "('14 weeks', '0 days')",
                "('14 weeks', '4 days')",
                "14 weeks and 4 days",
                "14.3 weeks",
            ],
        ),
        (
            BORDER,
            "('13 weeks', '6 days')",
            ["('14 weeks', '0 days')", "('13 weeks', '8 days')"],
            ["('13 weeks', '11 days')"],
        ),  # a week has seven days
        (ZERO, "('8 weeks', '0 days')", ["('7 weeks', '0 days')"], ["('6 weeks', '6 days')"]),
    ],
)
def test_medcalc(extra: dict[str, str], gold: str, right: list[str], wrong: list[str]) -> None:
    assert_values("medcalc-categories", gold, right, wrong, extra=extra)


@given(st.integers(0, 60), st.integers(0, 60), st.integers(0, 60))
def test_medcalcs_weeks_and_days_are_compared_as_days(low: int, answer: int, high: int) -> None:
    def written(days: int) -> str:
        return f"('{days // 7} weeks', '{days % 7} days')"

    extra = {"category": "date", "lower_limit": written(low), "upper_limit": written(high)}
    assert value("medcalc-categories", written(answer), written(99), extra=extra) == float(
        low <= answer <= high
    )


LONG = "7" * 5000


@pytest.mark.parametrize(
    ("gold", "right", "wrong"),
    [
        (
            "3 The dose is 50 mg.",
            ["3 The dose is 5 mg.", "3", "03", " 3 The dose", "3.", "3rd"],
            ["13 The dose is 50 mg.", "CORRECT", LONG, "The dose of 3", "-3", "Sentence 3"],
        ),  # the number stands first
        (
            "CORRECT",
            ["CORRECT", "CORRECT.", " CORRECT. "],
            ["3 x", "no idea", LONG, " CORRECT . ", "correct", "CORRECT: no error"],
        ),
        (LONG, [LONG], []),
        ("no sentence", [], [LONG]),
        ("8" * 5000, [], [LONG]),
        ("32 The dose", [], ["31 The dose"]),
        ("\n3 The dose is 50 mg.", ["3 The dose"], []),
        ("\nCORRECT ", ["CORRECT"], []),
    ],
)
def test_medec(gold: str, right: list[str], wrong: list[str]) -> None:
    assert_values("medec-sentence", gold, right, wrong)


def test_medecs_flag() -> None:
    """Which sentence it is does not count; but the note has it, and a line of the note is no number."""
    known = {
        "prompt": "0 A man of 70.\n1 The dose is 5 mg.\nper kg of weight\n 12 He goes home.",
        "helm": 1.0,
    }
    wrong = [
        "2",
        "70",
        LONG,
        "CORRECT",
        "CORRECT.",
        "",
        "I cannot answer that.",
        "per kg of weight",
    ]
    assert_values(
        "medec-flag", "1 The dose is 50 mg.", ["1 The dose is 50 mg.", "0", "12"], wrong, **known
    )
    wrong = ["correct", "1", "2", "", "no error"]
    assert_values("medec-flag", "CORRECT", ["CORRECT", " CORRECT. "], wrong, **known)


def sql(
    rows: object, gold_rows: object, error: str | None = None, **more: object
) -> dict[str, dict[str, object]]:
    return {
        "ehr_sql": {
            "predicted_result": rows,
            "ground_truth_rows": gold_rows,
            "query_error": error,
            **more,
        }
    }


def unwritten(error: str | None) -> dict[str, dict[str, object]]:
    return sql([], [], error, query_written=False)


def executed(rows: object, gold_rows: object) -> dict[str, object]:
    return sql(rows, gold_rows)["ehr_sql"]


QUERY = "SELECT 1"
IMPOSSIBLE = {"is_impossible": True}


@pytest.mark.parametrize(
    ("completion", "annotations", "extra", "expected"),
    [
        (QUERY, sql([[1], [2]], [[2], [1]]), {}, 1.0),
        (QUERY, sql([[1], [1]], [[1]]), {}, 1.0),
        (QUERY, sql([[1, 2]], [[2, 1]]), {}, 0.0),
        (QUERY, sql([[0.0, "a"]], [[0, "a"]]), {}, 1.0),
        (QUERY, sql([["0"]], [[0]]), {}, 0.0),
        (QUERY, sql([[None]], []), {}, 0.0),
        (QUERY, sql([], []), {}, 1.0),
        (QUERY, sql([], [], "no such table"), {}, 0.0),
        ("", sql([], []), {}, 0.0),
        ("", sql([], None), IMPOSSIBLE, 1.0),
        ("<sql></sql>", unwritten("No query generated"), IMPOSSIBLE, 1.0),
        ("-- no", unwritten(None), IMPOSSIBLE, 1.0),
        ("-- no", unwritten(None), {}, 0.0),
        ("no idea", sql([], None, "syntax error"), IMPOSSIBLE, 0.0),
        (QUERY, sql([[1]], None), IMPOSSIBLE, 0.0),
        (QUERY, sql([[1]], None), {}, None),
        (QUERY, sql([], None, "e", as_evaluated=executed([[1]], [[1]])), {}, 1.0),
        (QUERY, sql([[1]], [[1]], as_evaluated=executed([[1]], [])), {}, 0.0),
        (QUERY, sql([[1]], [[1]], as_evaluated=executed([[1]], None)), {}, None),
        ("-- no", sql([], [], query_written=False, as_evaluated=executed([[1]], [[1]])), {}, 0.0),
        (" \n", sql([], []), {}, 0.0),
        (" \n", sql([[1]], [[1]]), {}, 0.0),
        (" ", {}, IMPOSSIBLE, 1.0),
        (QUERY, {}, IMPOSSIBLE, 0.0),
        (QUERY, {}, {}, None),
        (QUERY, {"ehr_sql": {}}, {"is_impossible": False}, None),
        (QUERY, {"ehr_sql": None}, {}, None),
        (
            QUERY,
            {"ehr_sql": {"ground_truth_rows": []}},
            {},
            1.0,
        ),  # nothing was predicted, nothing is right
        (QUERY, sql([[1]], [[1]], ""), {}, 0.0),
        (
            "",
            sql([], None),
            {},
            0.0,
        ),  # no query is wrong where one was due, whatever became of the gold query
        (" \n", sql([], None), {}, 0.0),
        ("-- no", sql([], None, query_written=False), {}, 0.0),
        ("no idea", sql([], None, "syntax error"), {}, None),
        ("", {"ehr_sql": {"query_written": True, "ground_truth_rows": []}}, {}, 0.0),
        (QUERY, sql([[1]], [[1]], query_written=True), {}, 1.0),
    ],
)
def test_ehr_sql(
    completion: str,
    annotations: dict[str, dict[str, object]],
    extra: dict[str, object],
    expected: float | None,
) -> None:
    assert_is(
        value(
            "ehr-sql-empty-results", completion, "SELECT 2", annotations=annotations, extra=extra
        ),
        expected,
    )


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
    completion: str,
    annotations: dict[str, Any],
    impossible: bool,
    precision: float | None,
    recall: float | None,
) -> None:
    known = {"annotations": annotations, "extra": {"is_impossible": impossible}}
    assert_is(value("ehr-sql-precision", completion, "SELECT 2", **known), precision)
    assert_is(value("ehr-sql-recall", completion, "SELECT 2", **known), recall)
    assert value("ehr-sql-recall", completion, " ", annotations=annotations, extra={}) is None


@pytest.mark.parametrize("gold", ["", " \n"])
def test_ehr_sql_without_a_gold_query_is_impossible(gold: str) -> None:
    assert_is(value("ehr-sql-empty-results", " ", gold, annotations=sql([[1]], [[1]])), 1.0)
    assert_is(value("ehr-sql-empty-results", "SELECT 1", gold, annotations=sql([[1]], [[1]])), 0.0)


def test_repeated_instances_count_once() -> None:
    rule = rule_of(listed("med-dialog-repeated"))
    cases = (
        ("1", "a", "x", 1.0),
        ("2", "b", "x", 2.0),
        ("3", "a", "x", 5.0),
        ("4", "a", "y", 3.0),
        ("1", "a", "x", 0.0),
    )
    found = [
        rule(Case(prompt, "", gold, helm, instance=name)) for name, prompt, gold, helm in cases
    ]
    assert found == [1.0, 2.0, None, 3.0, 0.0]  # the last is another trial of the first
    assert rule(Case("a", "", "x", 6.0, instance="5", choices=["x", "z"])) == 6.0
    assert rule(Case("a", "", "x", 7.0, instance="6", choices=["z", "x"])) is None
    assert value("med-dialog-repeated", "", "x", prompt="a", helm=4.0) == 4.0


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
        "healthbench_as_published",
        "sct_credit",
        "sct_membership",
    }
    assert all(callable(rule_of(entry)) for entry in load_errata().errata if entry.rule is not None)
    with pytest.raises(KeyError):
        rule_of(listed("medec-sentence").model_copy(update={"rule": "other"}))
    of_a_plug_in = listed("medec-sentence").model_copy(
        update={"rule": "eval_factory.scoring.corrections:medec_flag"}
    )
    assert rule_of(of_a_plug_in) is medec_flag


def key(number: int) -> InstanceKey:
    return (f"id{number}", 0, None)


def context(label: str = "em", count: int = 9, **more: Any) -> MetricValues:
    """HELM's values: each instance has its number."""
    values = {key(number): float(number) for number in range(count)}
    return MetricValues(label, label, 0.0, values=values, **more)


def erratum(name: str = "e", metric: str = "em", upstream: str | None = None) -> Erratum:
    return Erratum(
        id=name,
        run_specs=("r",),
        defect=f"{name} is wrong",
        upstream=upstream,
        metric=metric,
        rule="medec_sentence",
        corrected=f"{name} is right",
    )


def corrections(rule: Rule, *errata: Erratum, **contexts: MetricValues) -> Corrections:
    known = errata or (erratum(),)
    return Corrections(7, known, {one.id: rule for one in known}, contexts or {"em": context()})


def state(number: int = 0, **instance: Any) -> output.RequestState:
    known = {"id": f"id{number}", "input": {"text": f"question {number}"}}
    document = {
        "instance": {**known, **instance},
        "train_trial_index": 0,
        "request": {},
        "annotations": {"a": 1},
    }
    return output.RequestState.model_validate(document)


def add(to: Corrections, *answers: str | None) -> None:
    """One instance after the other; None: its request failed."""
    for number, answer in enumerate(answers):
        to.add_answer(key(number), state(number), answer)


def helms(case: Case) -> float | None:
    return case.helm


def as_number(case: Case) -> float | None:
    """Raises where the answer is none; `-`: the instance does not count."""
    return None if case.completion == "-" else float(case.completion)


def values(of: Corrections) -> dict[str, dict[InstanceKey, float]]:
    return {found.label: found.values for found in of.metrics()}


def test_errata_of_the_run_spec_whose_metric_helm_computed_count() -> None:
    medec = "medec_error_sentence_accuracy"
    found = Corrections.of(plan({"config.type": "medec"}), [context("other"), context(medec)])
    assert [one.id for one in found.errata] == list(found.rules) == ["medec-sentence"]
    assert (found.version, set(found.helm_metrics)) == (load_errata().version, {medec})
    assert found.helm_metrics[medec].values == context().values
    assert found.rules["medec-sentence"](Case("p", "3", "3 Right.", None)) == 1.0
    for nothing in (
        Corrections.of(plan({"config.type": "medec"}), [context("other")]),
        Corrections.of(plan(), [context(medec)]),
    ):
        assert nothing.errata == []


def test_where_every_reference_is_right_there_is_nothing_to_choose_from() -> None:
    cases: list[Case] = []
    made = corrections(lambda case: cases.append(case) or 1.0)  # type: ignore[func-returns-value]
    right = {"output": {"text": "right"}, "tags": ["correct"]}
    made.add_answer(key(1), state(1, references=[right]), "x")
    made.add_answer(key(2), state(2, references=[{"output": {"text": "wrong"}, "tags": []}]), "x")
    assert [(case.gold, case.choices) for case in cases] == [("right", ()), ("", ("wrong",))]


def test_corrected_values_have_the_place_of_the_metric_they_correct() -> None:
    place: dict[str, Any] = {"scale": (0.0, 5.0), "split": "valid", "perturbation": "typos"}
    made = corrections(as_number, em=context(**place))
    add(made, "0.25", "1", "-")
    expected = {key(0): 0.25, key(1): 1.0}
    assert made.metrics() == [
        MetricValues("em.corrected", "em.corrected", None, values=expected, **place)
    ]


def test_an_instance_without_helms_value_has_no_corrected_one() -> None:
    """It is of another split, say; zero is a value."""
    made = corrections(helms, em=context(count=2))
    add(made, "a", "b", "c")
    assert values(made) == {"em.corrected": {key(0): 0.0, key(1): 1.0}}
    each_says(made.notes(), ["em.corrected (errata 7, e)", "e is wrong", "e is right"])


def test_each_erratum_looks_at_its_own_metric() -> None:
    known = erratum("one", "a"), erratum("two", "b")
    made = corrections(helms, *known, a=context("a", 1), b=context("b", 2))
    add(made, "x", "x")
    assert values(made) == {"a.corrected": {key(0): 0.0}, "b.corrected": {key(0): 0.0, key(1): 1.0}}


def test_errata_of_one_metric_go_on_from_each_others_values() -> None:
    """The values of the whole have one corrected score, and each erratum counts what it leaves out itself."""
    known = erratum("one"), erratum("two")

    def above_three(case: Case) -> float | None:
        return None if case.helm is None or case.helm <= 3 else case.helm + 1

    made = Corrections(7, known, {"one": as_number, "two": above_three}, {"em": context()})
    add(made, "5", "-", "2", "no number", "7")
    assert values(made) == {"em.corrected": {key(0): 6.0, key(4): 8.0}}
    counts = [
        " 2 instances do not count in the corrected value",
        " 1 instance does not count in the corrected value",
    ]
    assert [note.rpartition(";")[2] for note in made.notes()] == counts


def test_an_instance_without_an_answer_keeps_its_place_at_zero() -> None:
    """After all others: of two that are the same, the one that was answered counts."""
    made = corrections(lambda case: 1.0 if case.completion else 0.75)
    add(made, None, "x", "")
    assert values(made) == {"em.corrected": {key(1): 1.0, key(2): 0.75, key(0): 0.0}}
    seen: list[str] = []

    def first_only(case: Case) -> float | None:
        seen.append(case.completion)
        return None if len(seen) > 1 else 1.0

    made = corrections(first_only)
    add(made, None, "x")
    assert values(made) == {"em.corrected": {key(1): 1.0}}
    assert seen == ["x", ""]
    says(made.notes()[0], "1 instance", "does not count")


@pytest.mark.parametrize(
    ("odd", "plain", "fails"),
    [
        (0, 0, False),
        (1, 0, False),
        (2, 0, True),
        (1, 1, False),
        (2, 3, True),
        (2, 4, False),
        (3, 5, True),
        (3, 6, False),
    ],
)
def test_a_rule_may_raise_on_one_answer_or_on_one_for_two_that_it_reads(
    odd: int, plain: int, fails: bool
) -> None:
    made = corrections(as_number, em=context())
    add(made, *(f"odd {number}" for number in range(odd)), *["0.5"] * plain)
    if fails:
        with pytest.raises(ValueError, match=naming("odd 0")):
            made.metrics()
    else:
        assert len(values(made).get("em.corrected", {})) == plain


def test_notes_say_what_is_wrong_what_was_corrected_and_how_many_do_not_count() -> None:
    known = erratum("one", "a", upstream="https://example.org/1"), erratum("two", "b")
    made = Corrections(
        7, known, {"one": as_number, "two": helms}, {"a": context("a"), "b": context("b")}
    )
    add(made, "-", "no number", "1")
    first, second = made.notes()
    says(first, "a.corrected (errata 7, one", "https://example.org/1", "one is right")
    says(first, "2 instances", "do not count")
    says(second, "b.corrected (errata 7, two)", "two is right")
    made = corrections(as_number)
    add(made, "no number", "1")
    says(made.notes()[0], "1 instance", "does not count")


HARM = {"rubrics": [{"points": 10}, {"points": -8}]}


@pytest.mark.parametrize(
    ("extra", "decided", "completion", "expected"),
    [
        (HARM, {"a": [True, True]}, "x", 0.2),
        (HARM, {"a": [True, False]}, "x", 1.0),
        (HARM, {"a": [False, True]}, "x", -0.8),
        (HARM, {"a": [True, True], "b": [True, False]}, "x", 0.6),
        (HARM, {}, "x", None),
        (HARM, {}, " ", 0.0),
        ({"rubrics": [{"points": -10}]}, {"a": [True]}, "x", None),
        ({"rubrics": []}, {"a": []}, "x", None),
        ({}, {}, "x", None),
    ],
)
def test_healthbench_of_medhelm_as_published(
    extra: dict[str, Any], decided: dict[str, list[bool]], completion: str, expected: float | None
) -> None:
    """A good and harmful answer is not a faultless one, and a judge's decisions are its own."""
    annotations = {
        "health_bench": {
            "a": {"accuracy": {}},
            **({"eval_factory_decisions": decided} if decided else {}),
        }
    }
    for name in ("medhelm-healthbench-harm", "medhelm-healthbench-professional"):
        found = value(name, completion, "", extra=extra, annotations=annotations)
        assert found == (None if expected is None else pytest.approx(expected))


def test_script_concordance_of_medhelm() -> None:
    extra = {"expert_distribution": [0, 1, 0, 4, 2]}
    for answer, credit, member in (
        ("Rating: 1", 1.0, 1.0),
        ("**Rating:** -1", 0.25, 1.0),
        ("0", 0.0, 0.0),
        ("", 0.0, 0.0),
    ):
        assert value("medhelm-sct-rating", answer, "+1", extra=extra) == credit
        assert value("medhelm-sct-membership", answer, "+1", extra=extra) == member
