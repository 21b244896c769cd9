"""Floors: what trivial answers score on the questions of a run, by the metrics that the run was scored with."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.results import Floor, Score, Stats, TaskResult
from eval_factory.helm import names
from eval_factory.helm.trivial_answers import StrategyScores, TrivialScores
from eval_factory.scoring import corrections
from eval_factory.scoring.corrections import Case
from eval_factory.scoring.floors import notes_on_floors
from eval_factory.scoring.notes import Importance
from facts import each_says, says
from known import near
from unit.scoring.test_collect import JURY, TEST, VALID, result_of, state

FLAG = "medec_error_flag_accuracy"
SAMPLE = {"config.params.limit_samples": 4, "target.api_endpoint.training_cutoff": "2019-08"}
QUESTIONS = [(f"id{number}", 0, TEST) for number in range(4)]


def write_trivial(folder: Path, *strategies: StrategyScores, **fields: Any) -> None:
    """Beside what `result_of` writes in this folder."""
    helm = folder / "out" / "helm"
    helm.mkdir(parents=True)
    usual = {"run": "r", "questions": QUESTIONS, "strategies": list(strategies)}
    made = TrivialScores(**{**usual, **fields})
    made.write(helm)


def always(
    answer: str, *column: float | None, metric: str = "exact_match", **fields: Any
) -> StrategyScores:
    name = f"always {answer}" if answer else "empty"
    return StrategyScores(name=name, answer=answer, values={metric: list(column)}, **fields)


def of_medec(*golds: str) -> list[dict[str, Any]]:
    made = [state(number, "CORRECT") for number in range(len(golds))]
    for one, gold in zip(made, golds, strict=True):
        one["instance"]["input"] = {"text": "0 He coughs.\n1 He is well."}
        one["instance"]["references"] = [{"output": {"text": gold}, "tags": ["correct"]}]
    return made


def notes_about(result: TaskResult, text: str) -> list[str]:
    return [note for note in result.validity.notes if text in note]


def four_right(
    folder: Path, flags: dict[str, Any] | None = None, *metrics: str, **run: Any
) -> TaskResult:
    values = {metric: [1.0] * 4 for metric in metrics or ("exact_match",)}
    return result_of(
        folder, flags, states=[state(number, "yes") for number in range(4)], values=values, **run
    )


def flagged(folder: Path, states: list[dict[str, Any]], *values: float) -> TaskResult:
    return result_of(folder, {"config.type": "medec"}, states=states, values={FLAG: list(values)})


def test_floors_are_the_means_of_each_answer_and_the_first_of_the_best(tmp_path: Path) -> None:
    write_trivial(
        tmp_path, always("", 0, 0, 0, 0), always("A", 1, 1, 0, 1), always("B", 1, 1, 1, 0)
    )
    answers = {"empty": 0.0, "always A": 0.75, "always B": 0.75}
    floors_of = four_right(tmp_path, None, "exact_match", "other").validity.floors
    assert floors_of == {"exact_match": Floor("always A", 0.75, 4, answers)}


def test_each_split_has_its_own(tmp_path: Path) -> None:
    questions = [("id0", 0, TEST), ("id1", 0, VALID), ("id2", 0, VALID), ("id3", 0, None)]
    write_trivial(tmp_path, always("A", 1, 0, None, 1), questions=questions)
    states = [state(0, "yes"), state(1, "yes", split=VALID), state(2, "yes", split=VALID)]
    found = result_of(tmp_path, states=states, values={"exact_match": [1.0] * 3}).validity.floors
    of_splits = {label: (floor.value, floor.instances) for label, floor in found.items()}
    assert of_splits == {"exact_match": (1.0, 1), "exact_match@valid": (0.0, 1)}


TYPOS = {"name": "typos", "robustness": True, "computed_on": "perturbed"}


def test_what_was_perturbed_has_no_floor_and_changes_none(tmp_path: Path) -> None:
    """Trivial answers were scored on the questions as they are: a perturbed one is no other question."""
    write_trivial(
        tmp_path, always("CORRECT", 1, 0, 0, 0, metric=FLAG), always("0", 0, 1, 1, 1, metric=FLAG)
    )
    states = of_medec("CORRECT", "0 x", "1 x", "1 x")
    states += [
        {**one, "instance": {**one["instance"], "perturbation": TYPOS}}
        for one in of_medec(*["CORRECT"] * 4)
    ]
    states[4]["instance"]["references"] = []
    run = {"states": states, "values": {FLAG: [1.0] * 4 + [None] * 4, "exact_match": [1.0] * 8}}
    floors_of = result_of(
        tmp_path, {"config.type": "medec"}, **run, perturbation=TYPOS
    ).validity.floors
    assert set(floors_of) == {FLAG, f"{FLAG}.corrected"}
    assert floors_of[f"{FLAG}.corrected"] == Floor(
        "always 0", 0.75, 4, {"always CORRECT": 0.25, "always 0": 0.75}
    )


def test_a_metric_of_perturbed_questions_has_no_floor(tmp_path: Path) -> None:
    write_trivial(tmp_path, always("A", 1, 1, 0, 1))
    result = four_right(tmp_path, perturbation=TYPOS)
    assert "exact_match@test+typos" in result.scores
    assert set(result.validity.floors) == {"exact_match"}


def test_the_best_error_rate_is_the_lowest(tmp_path: Path) -> None:
    strategies = [always("", 3, 1, 2, 2, metric="wer"), always("A", 1, 1, 0, 0, metric="wer")]
    write_trivial(tmp_path, *strategies, lower_is_better=["wer"])
    floors_of = four_right(tmp_path, None, "wer").validity.floors
    assert floors_of == {
        "wer": Floor("always A", 0.5, 4, {"empty": 2.0, "always A": 0.5}, lower_is_better=True)
    }


def test_corrected_floors_are_by_the_rules_of_corrected_scores(tmp_path: Path) -> None:
    by_random = StrategyScores(
        name="random", answers=["CORRECT", "5 x", "1", "CORRECT"], values={FLAG: [1, 1, 1, 0]}
    )
    both = always("", 0, 1, 1, 1, metric=FLAG), always("0", 0, 1, 1, 1, metric=FLAG)
    write_trivial(tmp_path, *both, by_random)
    result = flagged(
        tmp_path,
        of_medec("CORRECT", "0 He has a cough.", "1 He is ill.", "1 He is ill."),
        1,
        0,
        0,
        0,
    )
    assert result.validity.floors[FLAG].answers == {"empty": 0.75, "always 0": 0.75, "random": 0.75}
    corrected = result.validity.floors[f"{FLAG}.corrected"]
    assert corrected == Floor("always 0", 0.75, 4, {"empty": 0.0, "always 0": 0.75, "random": 0.5})
    (note,) = notes_about(result, "does not show that the model read")
    says(note, f"{FLAG}: the 95 %")
    says(note, f"{FLAG}.corrected: the 95 %")


def test_a_failed_instance_has_its_floor(tmp_path: Path) -> None:
    write_trivial(tmp_path, always("CORRECT", 1, 0, 0, 0, metric=FLAG))
    states = of_medec("CORRECT", "0 x", "1 x", "1 x")
    states[0]["result"] = {"success": False, "completions": [{"text": ""}], "error": "HTTP 500"}
    result = flagged(tmp_path, states, 0, 0, 0, 0)
    assert (result.status, result.scores[FLAG].stats.count) == ("partial", 3)
    assert result.validity.floors[f"{FLAG}.corrected"] == Floor(
        "always CORRECT", 0.25, 4, {"always CORRECT": 0.25}
    )


def test_of_labels_the_lenient_readings_find_what_helm_finds(tmp_path: Path) -> None:
    by_random = StrategyScores(name="random", values={"exact_match": [0.5] * 4})
    write_trivial(tmp_path, always("", 0, 0, 0, 0), always("1", 1, 0, 0, 1), by_random)
    states = [
        state(
            number, "1", instance={"references": [{"output": {"text": right}, "tags": ["correct"]}]}
        )
        for number, right in enumerate("1001")
    ]
    result = result_of(
        tmp_path, {"config.type": "medhallu"}, states=states, values={"exact_match": [1.0, 0, 0, 1]}
    )
    lenient = result.validity.floors["exact_match.lenient"]
    assert lenient == result.validity.floors["exact_match"]
    assert lenient.answers == {"empty": 0.0, "always 1": 0.5, "random": 0.5}


def test_the_rows_of_an_executed_answer_are_compared_with_the_gold_rows(tmp_path: Path) -> None:
    metric = "ehr_sql_execution_accuracy"
    gold = ([[1]], [[2]], [[1]], None)
    one = {"predicted_result": [[1]], "query_error": None, "query_written": True}
    none = {"predicted_result": [], "query_error": "No query generated", "query_written": False}
    query = always("SELECT 1", 1, 0, 0, 0, metric=metric, annotation=one)
    write_trivial(tmp_path, always("", 0, 0, 0, 0, metric=metric, annotation=none), query)
    executed = [
        {"ehr_sql": {"ground_truth_rows": rows, "predicted_result": [[3]]}} for rows in gold
    ]
    states = [state(number, "SELECT 3", annotations=rows) for number, rows in enumerate(executed)]
    states[2]["instance"]["extra_data"] = {"is_impossible": True}
    result = result_of(
        tmp_path, {"config.type": "ehr_sql"}, states=states, values={metric: [0.0] * 4}
    )
    corrected = result.validity.floors[f"{metric}.corrected"]
    # an empty answer is right for the question that cannot be answered; where the gold query failed, no query counts
    assert corrected.answers == {"empty": 0.25, "always SELECT 1": near(1 / 3)}
    assert (corrected.best, corrected.instances) == ("always SELECT 1", 3)


OTHER_RUN = TrivialScores(
    run="another",
    questions=[("id0", 0, TEST)],
    strategies=[StrategyScores(name="empty", answer="", values={"exact_match": [1.0]})],
)


@pytest.mark.parametrize(
    "text", [None, "{", json.dumps(asdict(OTHER_RUN))], ids=["none", "broken", "another run's"]
)
def test_without_a_file_of_this_run_there_are_no_floors(text: str | None, tmp_path: Path) -> None:
    helm = tmp_path / "out" / "helm"
    helm.mkdir(parents=True)
    if text is not None:
        (helm / names.TRIVIAL_SCORES_FILE).write_text(text)
    result = result_of(tmp_path, SAMPLE, states=[state(0, "yes")], values={"exact_match": [1.0]})
    assert (result.validity.floors, result.validity.notes) == ({}, ())


def test_what_is_missing_is_said(tmp_path: Path) -> None:
    write_trivial(tmp_path, always("", 0, 0, 0, 0), error="ValueError in x.py:3")
    result = four_right(tmp_path, SAMPLE)
    assert result.validity.floors["exact_match"].answers == {"empty": 0.0}
    each_says(result.validity.notes[:-1], ["without a model", "ValueError in x.py:3"])


def test_a_column_of_another_length_costs_the_floors_and_nothing_else(tmp_path: Path) -> None:
    write_trivial(tmp_path, always("", 0, 0, 0))
    result = four_right(tmp_path, SAMPLE)
    assert result.validity.floors == {}
    each_says(result.validity.notes[:-1], ["model is incomplete", "ValueError"])
    assert result.scores["exact_match"].value == 1.0


def test_answers_that_are_missing_cost_what_is_not_helms_own(tmp_path: Path) -> None:
    write_trivial(
        tmp_path, StrategyScores(name="random", answers=["A"], values={"exact_match": [0, 0, 0, 0]})
    )
    result = four_right(tmp_path)
    assert result.validity.floors["exact_match"].value == 0.0
    assert notes_about(result, "IndexError")


@pytest.mark.parametrize("trivial", ["", "0"])
def test_a_rule_that_raises_on_a_trivial_answer_costs_corrected_floors_alone(
    trivial: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def rule(case: Case) -> float:
        return 1.0 / (case.completion != "0")

    monkeypatch.setattr(corrections, "rule_of", lambda _erratum: rule)
    write_trivial(tmp_path, always(trivial, 1, 1, 1, 1, metric=FLAG))
    result = flagged(tmp_path, of_medec("CORRECT", "0 x", "1 x", "1 x"), 1, 0, 0, 0)
    assert (f"{FLAG}.corrected" in result.validity.floors) is (trivial == "")
    assert result.validity.floors[FLAG].value == 1.0
    assert result.scores[f"{FLAG}.corrected"].value == 1.0
    assert bool(notes_about(result, "ZeroDivisionError")) is (trivial == "0")


def test_the_floor_of_a_jury_is_the_mark_of_an_empty_answer(tmp_path: Path) -> None:
    states = [
        state(n, "text", annotations={"aci_bench": {"a": {"x": {"score": 4}}}}) for n in range(3)
    ]
    values = {"aci_bench_accuracy": [4.0] * 3}
    result = result_of(
        tmp_path, {"config.type": "aci_bench"}, states=states, values=values, metric_specs=[JURY]
    )
    assert result.validity.floors == {
        "aci_bench_accuracy": Floor("empty", 1.0, 3, {"empty": 1.0}, assumed=True)
    }
    (note,) = notes_about(result, "is assumed")
    says(note, "without a model", "aci_bench_accuracy, 1, is assumed")
    assert result.validity.notes.index(note) > 0, "of the least weight"


def score(value: float, low: float | None, high: float | None) -> Score:
    return Score(
        value, Stats(10, value, stddev=None, stderr=None, ci_low=low, ci_high=high, ci_method=None)
    )


@pytest.mark.parametrize(
    ("interval", "lower_is_better", "said"),
    [
        ((0.51, 0.7), False, None),
        (
            (0.50, 0.7),
            False,
            "0.5000 .. 0.7000 includes",
        ),
        ((0.3, 0.5), False, "includes"),
        ((0.3, 0.49), False, "is worse than"),
        ((0.3, 0.49), True, None),
        ((0.3, 0.50), True, "includes"),
        ((0.5, 0.7), True, "includes"),
        ((0.51, 0.7), True, "is worse than"),
    ],
)
def test_a_note_says_that_a_score_is_not_above_its_floor(
    interval: tuple[float, float], lower_is_better: bool, said: str | None
) -> None:
    floor = Floor("always A", 0.5, 10, {"always A": 0.5}, lower_is_better=lower_is_better)
    notes = list(notes_on_floors("m", {"m": score(0.6, *interval)}, {"m": floor}))
    assert len(notes) == (said is not None)
    for note in notes:
        assert note.importance is Importance.DOUBTFUL
        assert str(said) in note.text
        says(note.text, "without a model", "(always A: 0.5000)", "does not show")


def test_a_score_without_an_interval_is_compared_itself() -> None:
    for value, said in ((0.51, False), (0.5, True), (0.49, True)):
        notes = notes_on_floors(
            "m", {"m": score(value, None, None)}, {"m": Floor("empty", 0.5, 1, {"empty": 0.5})}
        )
        begins = f"m: {value:.4f}, without an interval, is no better than"
        assert [note.text.startswith(begins) for note in notes] == [True] * said


LOW = score(0.1, 0.0, 0.2)
HIGH = score(0.9, 0.8, 1.0)
HALF = Floor("empty", 0.5, 1, {"empty": 0.5})


def told(**scores: Score) -> list[str]:
    """Return the notes if the best trivial answer has one half in each."""
    return [note.text for note in notes_on_floors("m", scores, dict.fromkeys(scores, HALF))]


@pytest.mark.parametrize("other", ["m.lenient", "m.corrected"])
def test_another_reading_of_the_same_answers_may_show_that_the_questions_were_read(
    other: str,
) -> None:
    (text,) = told(m=LOW, **{other: HIGH})
    says(text, "(empty: 0.5000)", f"{other}, which reads", "in another way", "is better")
    assert "does not show" not in text
    (text,) = told(m=LOW, **{other: LOW})
    says(text, "does not show")


def test_only_the_main_score_and_its_corrected_value_are_compared() -> None:
    assert told(m=HIGH, **{"m.lenient": LOW}) == []
    (text,) = told(other=LOW, m=HIGH, **{"m.corrected": LOW})
    says(text, "m.corrected: ", "0.0000 .. 0.2000", "worse")
    says(text, "does not show")
    assert list(notes_on_floors("m", {"m": LOW}, {"other": HALF})) == []
    assert list(notes_on_floors("m", {"other": LOW}, {"m": HALF})) == []
