"""The form that a benchmark asks for, and the answers that have it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.helm import output
from eval_factory.scoring.answer_forms import Form, form_of, nothing_is_right, right_answers
from eval_factory.tasks.framework import HelmEntry, load_framework
from unit.scoring.test_collect import write_run

OPTIONS = {"A": "yes", "B": "no"}


def references(*texts: str) -> list[dict[str, Any]]:
    """The first is the right one."""
    return [{"output": {"text": text}, "tags": [] if number else ["correct"]} for number, text in enumerate(texts)]


def entry(*texts: str, **more: Any) -> dict[str, Any]:
    instance = {"id": "id", "input": {"text": "q"}, "split": "test", "references": references(*texts)}
    return {"instance": instance, "train_trial_index": 0, "request": {"max_tokens": 5}, **more}


def state(*texts: str, **more: Any) -> output.RequestState:
    return output.RequestState.model_validate(entry(*texts, **more))


def run(folder: Path, *states: dict[str, Any], metric: str = "exact_match", **adapter: Any) -> output.HelmRun:
    write_run(folder, list(states), {metric: [1.0] * len(states)})
    read = output.read_run(folder)
    spec = read.run_spec.model_copy(update={"adapter_spec": read.run_spec.adapter_spec.model_copy(update=adapter)})
    return output.HelmRun(read.folder, spec, read.stats if metric == "exact_match" else read.stats[:1])


def helm(**more: Any) -> HelmEntry:
    return HelmEntry(run_spec="r", scenario="s", main_metric="exact_match", **more)


def joint(tmp_path: Path, **adapter: Any) -> Form:
    form = form_of(helm(), run(tmp_path / "r", entry("yes"), method="multiple_choice_joint", **adapter), "exact_match")
    assert form is not None
    return form


def of_task(name: str) -> Form:
    task = load_framework().task(name)
    assert task is not None
    form = form_of(task.helm, None, "")  # type: ignore[arg-type]  # framework.yml says it, whatever ran
    assert form is not None
    return form


def test_options_are_answered_by_their_label_alone(tmp_path: Path) -> None:
    form, asked = joint(tmp_path), state("no", output_mapping=OPTIONS)
    assert [form.reads(asked, answer) for answer in ("A", " B\n", "B.", "C", "no", "b")] == [True, True] + [False] * 4
    assert dict(form.labels(asked)) == OPTIONS
    assert [form.is_right(asked, label) for label in ("A", "B", "C", None)] == [False, True, False, False]
    assert not form.reads(state("no"), "A")
    assert form.about == "the letter of an option alone"


def test_the_right_option_is_compared_without_the_blanks_around_it(tmp_path: Path) -> None:
    asked = state(" no ", output_mapping={"A": "no\n"})
    assert joint(tmp_path).is_right(asked, "A")


@pytest.mark.parametrize(("pattern", "whole"), [(r"\(([AB])\)", False), (r"[AB]", True)])
def test_helms_own_pattern_finds_the_label(pattern: str, tmp_path: Path, *, whole: bool) -> None:
    form, asked = joint(tmp_path, output_mapping_pattern=pattern), state("no", output_mapping=OPTIONS)
    assert form.reads(asked, "It is (B)")
    assert form.reads(asked, "B") is whole
    assert not form.reads(asked, "neither")


def test_letters_as_references_are_a_form(tmp_path: Path) -> None:
    generation = run(tmp_path / "r", entry("B"), entry("A", "E"), method="generation")
    form = form_of(helm(), generation, "exact_match")
    assert form is not None
    asked = state("B")
    assert form.about == "one of A, B, C, D, E alone"
    assert [form.reads(asked, answer) for answer in ("E", " A ", "F", "B.")] == [True, True, False, False]
    assert form.is_right(asked, "B")
    assert not form.is_right(asked, "A")
    assert form_of(helm(), generation, "quasi_exact_match") is None


def test_few_letters_stand_for_four(tmp_path: Path) -> None:
    form = form_of(helm(), run(tmp_path / "r", entry("B"), method="generation"), "exact_match")
    assert form is not None
    assert list(form.labels(state("B"))) == ["A", "B", "C", "D"]


@pytest.mark.parametrize("texts", [("B", "Take it with food."), ("AB",), ("a",), ("1",), ()])
def test_open_text_has_no_form(texts: tuple[str, ...], tmp_path: Path) -> None:
    assert form_of(helm(), run(tmp_path / "r", entry("A"), entry(*texts), method="generation"), "exact_match") is None


@pytest.mark.parametrize("method", ["", "multiple_choice_separate_original", "multiple_choice_joint_chain_of_thought"])
def test_what_is_asked_otherwise_has_no_form(method: str, tmp_path: Path) -> None:
    assert form_of(helm(), run(tmp_path / "r", entry("A"), method=method), "exact_match") is None


def test_where_helm_matches_nothing_exactly_there_is_no_form(tmp_path: Path) -> None:
    judged = run(tmp_path / "r", entry("A"), metric="accuracy", method="multiple_choice_joint")
    assert form_of(helm(), judged, "exact_match") is None


@pytest.mark.parametrize(
    ("gold", "read", "not_read"),
    [
        ("141.04", ["141", " 4.0\n", "-3", "1e2"], ["141 mL/min", "about 5", "nan", "inf", "1,000", "07/21/2024"]),
        ("07/21/2024", ["7/1/2024", "07/21/2024"], ["2024-07-21", "3", "21/07/2024"]),
        ("('14 weeks', '2 days')", ["('13 weeks', '0 days')", "13 weeks and 2 days", "13 weeks, 1 days"], ["93", "13 weeks"]),
        ("moderate", ["anything"], []),
    ],
)  # fmt: skip
def test_a_calculated_value(gold: str, read: list[str], not_read: list[str]) -> None:
    form, asked = of_task("medcalc_bench"), state(gold)
    assert all(form.reads(asked, answer) for answer in read)
    assert not any(form.reads(asked, answer) for answer in not_read)
    assert not form.labels(asked)


def test_a_sentence_with_an_error() -> None:
    form, asked = of_task("medec"), state("CORRECT")
    assert all(form.reads(asked, answer) for answer in ("CORRECT", " CORRECT.", "3", "3 A sentence.", "12."))
    assert not any(form.reads(asked, answer) for answer in ("Correct", "Sentence 3", "The text is CORRECT", "?"))


def test_a_query() -> None:
    form, asked = of_task("ehr_sql"), state("SELECT 1")
    queries = (
        "select 1", "WITH a AS (SELECT 1) SELECT * FROM a", "```sql\nSELECT 1;\n```", "<sql>SELECT 1</sql>",
        "Here: <SQL> SELECT 1 </ sql >", "-- why\nSELECT 1", "(SELECT 1)", "`SELECT 1`",
    )  # fmt: skip
    assert all(form.reads(asked, answer) for answer in queries)
    assert not any(form.reads(asked, answer) for answer in ("none", "Here is it: SELECT 1", "selected", "```\n```"))


@pytest.mark.parametrize("answer", ["<sql></sql>", "```sql\n```", "```\n```"])
def test_no_query_may_be_what_is_asked_for(answer: str) -> None:
    form = of_task("ehr_sql")
    assert form.reads(output.RequestState.model_validate(with_extra(is_impossible=True)), answer)
    assert not form.reads(state("SELECT 1"), answer)


def test_two_labels_that_only_the_prompt_says() -> None:
    form, asked = of_task("medhallu"), state("1")
    assert [form.reads(asked, answer) for answer in ("0", "1", "1.", "2")] == [True, True, False, False]
    assert form.is_right(asked, "1")


def test_nothing_may_be_what_is_asked_for() -> None:
    assert nothing_is_right(state(" "))
    assert nothing_is_right(output.RequestState.model_validate(with_extra(is_impossible=True)))
    assert not nothing_is_right(output.RequestState.model_validate(with_extra(is_impossible=False)))
    assert not nothing_is_right(state("null"))
    assert not nothing_is_right(state())


def with_extra(**extra: Any) -> dict[str, Any]:
    asked = entry("null")
    return {**asked, "instance": {**asked["instance"], "extra_data": extra}}


def test_right_answers_are_those_that_are_marked_so() -> None:
    assert right_answers(state("a", "b")) == ["a"]
