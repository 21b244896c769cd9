"""Readable answers: the form that the benchmark asks for, refusals, answers with nothing in them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from builders import draft, plan
from eval_factory.core.results import Instances, Score, Stats
from eval_factory.endpoint import openai_answers
from eval_factory.endpoint.response_cache import Answer
from eval_factory.helm import output
from eval_factory.scoring.journal import CachedAnswer, cached_answer
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.readability import (
    AnswerForm,
    Readability,
    answer_form_of,
    empty_answer_is_right,
    part_read,
)
from eval_factory.scoring.reportable import Unreadable, reasons_against_reporting
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.tasks.framework import HelmEntry, load_framework
from facts import says
from known import there
from unit.scoring.test_collect import write_run

OPTIONS = {"A": "yes", "B": "no"}


def entry(*texts: str, **more: Any) -> dict[str, Any]:
    """The first is the right one."""
    references = [
        {"output": {"text": text}, "tags": ["correct"] if text is texts[0] else []}
        for text in texts
    ]
    instance = {"id": "id", "input": {"text": "q"}, "split": "test", "references": references}
    return {"instance": instance, "train_trial_index": 0, "request": {"max_tokens": 5}, **more}


def state(*texts: str, **more: Any) -> output.RequestState:
    return output.RequestState.model_validate(entry(*texts, **more))


def run(
    folder: Path, *states: dict[str, Any], metric: str = "exact_match", **adapter: Any
) -> output.HelmRun:
    write_run(folder, list(states), {metric: [1.0] * len(states)})
    read = output.read_run(folder)
    spec = read.run_spec.model_copy(
        update={"adapter_spec": read.run_spec.adapter_spec.model_copy(update=adapter)}
    )
    return output.HelmRun(
        read.folder, spec, read.stats if metric == "exact_match" else read.stats[:1]
    )


HELM = HelmEntry(run_spec="r", scenario="s", main_metric="exact_match")


def joint(tmp_path: Path, **adapter: Any) -> AnswerForm:
    joined = run(tmp_path / "r", entry("yes"), method="multiple_choice_joint", **adapter)
    return there(answer_form_of(HELM, joined, "exact_match"))


def of_task(name: str) -> AnswerForm:
    task = there(load_framework().task(name))
    return there(answer_form_of(task.helm, None, ""))  # type: ignore[arg-type]  # framework.yml says it, whatever ran


def test_options_are_answered_by_their_label_alone(tmp_path: Path) -> None:
    form = joint(tmp_path)
    asked = state("no", output_mapping=OPTIONS)
    assert [form.reads(asked, answer) for answer in ("A", " B\n", "B.", "C", "no", "b")] == [
        True,
        True,
    ] + [False] * 4
    assert dict(form.labels(asked)) == OPTIONS
    assert [form.is_right(asked, label) for label in ("A", "B", "C", None)] == [
        False,
        True,
        False,
        False,
    ]
    assert not form.reads(state("no"), "A")
    says(str(form.about), "the letter", "alone")
    assert form.is_right(state(" no ", output_mapping={"A": "no\n"}), "A"), (
        "but for the blanks around it"
    )


@pytest.mark.parametrize(("pattern", "whole"), [(r"\(([AB])\)", False), (r"[AB]", True)])
def test_helms_own_pattern_finds_the_label(pattern: str, tmp_path: Path, *, whole: bool) -> None:
    form = joint(tmp_path, output_mapping_pattern=pattern)
    asked = state("no", output_mapping=OPTIONS)
    assert [form.reads(asked, answer) for answer in ("It is (B)", "B", "neither")] == [
        True,
        whole,
        False,
    ]


def test_letters_as_references_are_a_form(tmp_path: Path) -> None:
    generation = run(tmp_path / "r", entry("B"), entry("A", "E"), method="generation")
    form = there(answer_form_of(HELM, generation, "exact_match"))
    asked = state("B")
    says(str(form.about), "A, B, C, D", "E alone")
    assert [form.reads(asked, answer) for answer in ("E", " A ", "F", "B.")] == [
        True,
        True,
        False,
        False,
    ]
    assert (form.is_right(asked, "B"), form.is_right(asked, "A")) == (True, False)
    assert answer_form_of(HELM, generation, "quasi_exact_match") is None
    few = there(
        answer_form_of(HELM, run(tmp_path / "few", entry("B"), method="generation"), "exact_match")
    )
    assert list(few.labels(asked)) == ["A", "B", "C", "D"]


@pytest.mark.parametrize("texts", [("B", "Take it with food."), ("AB",), ("a",), ("1",), ()])
def test_open_text_has_no_form(texts: tuple[str, ...], tmp_path: Path) -> None:
    open_text = run(tmp_path / "r", entry("A"), entry(*texts), method="generation")
    assert answer_form_of(HELM, open_text, "exact_match") is None
    judged = run(tmp_path / "judged", entry("A"), metric="accuracy", method="multiple_choice_joint")
    assert answer_form_of(HELM, judged, "exact_match") is None, "HELM matches nothing exactly"


@pytest.mark.parametrize(
    ("task", "gold", "read", "not_read"),
    [
        (
            "medcalc_bench",
            "141.04",
            ["141", " 4.0\n", "-3", "1e2"],
            ["141 mL/min", "about 5", "nan", "inf", "1,000", "07/21/2024"],
        ),
        (
            "medcalc_bench",
            "07/21/2024",
            ["7/1/2024", "07/21/2024"],
            ["2024-07-21", "3", "21/07/2024"],
        ),
        (
            "medcalc_bench",
            "('14 weeks', '2 days')",
            ["('13 weeks', '0 days')", "13 weeks and 2 days", "13 weeks, 1 days"],
            ["93", "13 weeks"],
        ),
        ("medcalc_bench", "moderate", ["anything"], []),
        (
            "medec",
            "CORRECT",
            ["CORRECT", " CORRECT.", "3", "3 A sentence.", "12."],
            ["Correct", "Sentence 3", "The text is CORRECT", "?"],
        ),
        ("medhallu", "1", ["0", "1"], ["1.", "2"]),  # two labels that only the prompt says
        (
            "ehr_sql",
            "SELECT 1",
            [
                "select 1",
                "WITH a AS (SELECT 1) SELECT * FROM a",
                "```sql\nSELECT 1;\n```",
                "<sql>SELECT 1</sql>",
                "Here: <SQL> SELECT 1 </ sql >",
                "-- why\nSELECT 1",
                "(SELECT 1)",
                "`SELECT 1`",
            ],
            ["none", "Here is it: SELECT 1", "selected", "```\n```"],
        ),
    ],
)
def test_the_form_that_a_task_asks_for(
    task: str, gold: str, read: list[str], not_read: list[str]
) -> None:
    form = of_task(task)
    asked = state(gold)
    assert all(form.reads(asked, answer) for answer in read)
    assert not any(form.reads(asked, answer) for answer in not_read)
    assert [bool(form.labels(asked)), form.is_right(asked, gold)] == [task == "medhallu"] * 2


@pytest.mark.parametrize("answer", ["<sql></sql>", "```sql\n```", "```\n```"])
def test_no_query_may_be_what_is_asked_for(answer: str) -> None:
    form = of_task("ehr_sql")
    assert (form.reads(unless(impossible=True), answer), form.reads(state("SELECT 1"), answer)) == (
        True,
        False,
    )


def unless(*, impossible: bool) -> output.RequestState:
    asked = entry("null")
    asked["instance"]["extra_data"] = {"is_impossible": impossible}
    return output.RequestState.model_validate(asked)


def test_nothing_may_be_what_is_asked_for() -> None:
    asked = state(" "), unless(impossible=True), unless(impossible=False), state("null"), state()
    assert [empty_answer_is_right(one) for one in asked] == [True, True, False, False, False]


LETTER = AnswerForm(
    "a letter", lambda _state, answer: answer in ("A", "B"), lambda _state: {"A": "yes", "B": "no"}
)
NUMBER = AnswerForm("a number", lambda _state, answer: answer.isdigit())
KEY: InstanceKey = ("id", 0, None)
REFUSAL = "I'm sorry, but I can't help with that."


def answered(told: dict[str, Any], answer: str | None) -> output.RequestState:
    """None: the request failed."""
    result = {
        "success": answer is not None,
        "completions": [{"text": answer or ""}],
        **(told.get("result") or {}),
    }
    return output.RequestState.model_validate({**told, "result": result})


def read(
    answer: str | None,
    form: AnswerForm | None = LETTER,
    raw: CachedAnswer | None = None,
    right: str = "no",
    **state: Any,
) -> Readability:
    readability = Readability(form, lambda _state: raw)
    readability.see(KEY, answered(entry(right, **state), answer))
    return readability


def counts(readability: Readability) -> dict[str, int]:
    """Those that are not 0."""
    nothing = Instances(requested=0, scored=0, failed=0, empty=0, truncated=0, filtered=0)
    return {
        name: count for name, count in vars(readability.with_own_counts(nothing)).items() if count
    }


@pytest.mark.parametrize(
    ("answer", "form", "raw", "expected"),
    [
        ("A", LETTER, None, set()),
        ("B.", LETTER, None, {"unparsed", "unreadable"}),
        ("x", NUMBER, CachedAnswer(), {"unparsed", "unreadable"}),
        ("any text", None, None, set()),
        ("", LETTER, None, {"unreadable"}),
        (" ", None, None, {"unreadable"}),
        (None, LETTER, CachedAnswer(stripped=True), set()),
        (REFUSAL, LETTER, None, {"refused"}),
        (REFUSAL, None, None, {"refused"}),
        ("", None, CachedAnswer(declined=True), {"refused"}),
        ("A", LETTER, CachedAnswer(declined=True), set()),
        ("A", LETTER, CachedAnswer(stripped=True), {"thinking_stripped"}),
        ("A", LETTER, CachedAnswer(stripped=True, unfinished=True), {"thinking_stripped"}),
        (
            "",
            LETTER,
            CachedAnswer(stripped=True, unfinished=True),
            {"thinking_stripped", "thinking_unfinished", "unreadable"},
        ),
        ("Well.", None, CachedAnswer(unfinished=True), {"thinking_unfinished", "unreadable"}),
        ("Well.", LETTER, CachedAnswer(unfinished=True), {"thinking_unfinished", "unreadable"}),
    ],
)
def test_each_answer_is_counted_for_what_it_is(
    answer: str | None, form: AnswerForm | None, raw: CachedAnswer | None, expected: set[str]
) -> None:
    readability = read(answer, form, raw)
    assert counts(readability).keys() == expected
    assert set(readability.signs_of(KEY)) == expected - {"unreadable"}
    assert readability.signs_of(("other", 0, None)) == ()


def test_nothing_may_be_the_right_answer_and_what_the_filter_withheld_is_not_unreadable() -> None:
    withheld = {"success": False, "error": openai_answers.FILTERED_MESSAGE}
    for readable in (
        read("", result=withheld),
        read("", right=" "),
        read("", request={"max_tokens": 0}),
    ):
        assert counts(readable) == {}
    assert counts(read("", request={})) == {"unreadable": 1}


GENERIC = "See a doctor, rest, and drink enough."


def read_all(form: AnswerForm | None, *asked: tuple[str, str], **state: Any) -> Readability:
    """Of (question, answer)."""
    readability = Readability(form, lambda _state: None)
    for number, (question, answer) in enumerate(asked):
        told = entry("gold", **state)
        told["instance"]["input"] = {"text": question}
        readability.see((f"id{number}", 0, state.get("perturbed")), answered(told, answer))
    return readability


def test_answers_are_identical_that_other_questions_got_too() -> None:
    same = ("q1", GENERIC), ("q2", f" {GENERIC.upper()}\n"), ("q3", GENERIC.replace(" ", "  "))
    assert counts(read_all(None, *same, ("q4", "Of q4 alone. " * 3))) == {"identical": 3}
    assert counts(read_all(None, ("q1", GENERIC), ("q1", GENERIC))) == {}, (
        "one question, asked twice"
    )
    assert counts(read_all(None, ("q1", GENERIC), ("q1", GENERIC), ("q2", GENERIC))) == {
        "identical": 3
    }


def test_where_equal_answers_are_normal_they_are_not_counted() -> None:
    generic = ("q1", GENERIC), ("q2", GENERIC)
    assert "identical" not in counts(read_all(LETTER, *generic))
    assert counts(read_all(None, *generic, output_mapping={"A": "yes"})) == {}
    assert counts(read_all(None, *generic, perturbed="typos")) == {}
    assert counts(read_all(None, ("q1", "y" * 20), ("q2", "y" * 20))) == {}, (
        "as long as a label may be"
    )
    assert counts(read_all(None, ("q1", "y" * 21), ("q2", "y" * 21))) == {"identical": 2}


def test_many_identical_answers_are_a_note() -> None:
    for identical, answered, failed, said in (
        (3, 20, 0, True),
        (2, 20, 0, False),
        (3, 29, 9, True),
        (19, 19, 0, False),
        (20, 28, 9, False),
        (0, 0, 0, False),
    ):
        counted = Instances(answered, answered, failed, 0, 0, 0, identical=identical)
        seen = Readability(None, lambda _state: None, prompts=answered, failed=failed)
        notes = seen.notes(plan(), counted, {})
        text = f"{identical} of {answered - failed} answers repeat word for word the answer to another question"
        assert [(note.importance, note.text.startswith(text)) for note in notes] == [
            (Importance.DOUBTFUL, True)
        ] * said


def test_shares_are_of_the_answers_that_have_a_form() -> None:
    """Further turns are requests too, and no benchmark says in which form they are answered."""
    made = draft(instances=Instances(40, 40, 0, 0, 0, 0))
    readability = read_all(LETTER, ("q1", "I think so."), ("q2", "Perhaps."), ("q3", "A"))
    readability.see(("id4", 0, None), answered(entry("gold"), None))
    readability.report(made)
    (reason,) = reasons_against_reporting(made)
    says(reason, "2 of 3")
    says(" ".join(made.notes.texts()), "2 of 3 answers")


def test_prompts_that_were_cut_are_counted_whatever_came() -> None:
    for readability in (read("A", prompt_truncated=True), read(None, prompt_truncated=True)):
        assert (counts(readability), readability.signs_of(KEY)) == (
            {"prompt_truncated": 1},
            ("prompt_truncated",),
        )


def test_the_lenient_value() -> None:
    values = {
        "B": 1.0,
        "(B)": 1.0,
        "A": 0.0,
        "A.": 0.0,
        "": 0.0,
        "?": 0.0,
        "I cannot answer B.": 0.0,
    }
    assert {answer: read(answer).lenient[KEY] for answer in values} == values
    letters = AnswerForm(
        "a letter", lambda _state, answer: answer in ("A", "B"), lambda _state: {"A": "A", "B": "B"}
    )
    asked = entry("B")
    asked["instance"]["input"] = {"text": "What is it?\nA. fever\nB. cough\n"}
    by_text = {
        "fever": 0.0,
        "A": 0.0,
        "cough.": 1.0,
        "B. cough": 1.0,
        "B. fever": 0.0,
    }  # as the prompt lists them
    for answer, value in by_text.items():
        readability = Readability(letters, lambda _state: None)
        readability.see(KEY, answered(asked, answer))
        assert readability.lenient == {KEY: value}


def test_there_is_none_of_failed_requests_and_of_other_forms() -> None:
    assert read(None).lenient == read("B", NUMBER).lenient == read("B", None).lenient == {}
    exact = MetricValues("exact_match", "exact_match", 0.0, values={KEY: 0.0})
    without = draft(metrics=[exact])
    made = draft(metrics=[exact])
    read("B.", None).complete(without)
    read("B.", LETTER).complete(made)
    assert (without.metrics, [one.values for one in made.metrics[1:]]) == ([exact], [{KEY: 1.0}])


def chat(content: str | None, reason: str = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content, **message}, "finish_reason": reason}]}


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (chat("B"), CachedAnswer()),
        (chat(" B ", "length"), CachedAnswer()),
        (chat("<think>hm</think>B"), CachedAnswer(stripped=True)),
        (chat("<think>hm", "length"), CachedAnswer(stripped=True, unfinished=True)),
        (chat("<thi", "length"), CachedAnswer(stripped=True, unfinished=True)),
        (chat("<thi"), CachedAnswer()),
        (chat("", "length", reasoning_content="hm"), CachedAnswer(unfinished=True)),
        (chat(None, "length", reasoning_content="hm"), CachedAnswer(unfinished=True)),
        (chat("", "stop", reasoning_content="hm"), CachedAnswer()),
        (chat("", "length"), CachedAnswer()),
        (chat("B", "length", reasoning_content="hm"), CachedAnswer()),
        (chat("", refusal="No."), CachedAnswer(declined=True)),
        (chat("", "refusal"), CachedAnswer(declined=True)),
        ({"choices": []}, CachedAnswer()),
    ],
)
def test_what_an_answer_was_before(response: dict[str, Any], expected: CachedAnswer) -> None:
    found, thought = cached_answer(Answer("k", "model", "m", {}, response, 1.0, 0.5), plan().model)
    assert replace(found, tokens=(None, None), latency_s=None, thought_key=None) == expected
    assert found.thought_key == (None if thought is None else "k")


def score(value: float, metric: str = "exact_match") -> Score:
    return Score(value, Stats.without_interval(4, value), metric)


UNPARSED = (
    "not in the form that the benchmark asks for (a letter): HELM's metrics read nothing from them"
)
OF_FOUR = Instances(requested=5, scored=4, failed=1, empty=0, truncated=0, filtered=0)


def texts(readability: Readability, **scores: Score) -> list[tuple[Importance, str]]:
    """Of five prompts; the other four were seen before, and one of those failed."""
    readability.prompts += 4
    readability.failed += 1
    here = plan({"config.params.extra.max_length": 300})
    return [(note.importance, note.text) for note in readability.notes(here, OF_FOUR, scores)]


def test_reasoned_answers_without_an_answer_are_not_measured_by_helms_form() -> None:
    extra = {"config.type": "sample_medical_qa", "config.params.extra.answer_style": "reasoned"}
    ((_, text),) = [(n.importance, n.text) for n in read("?").notes(plan(extra), OF_FOUR, {})]
    says(text, "1 of 1 answers", "last line", "wrong")
    assert "lenient" not in text


def test_each_count_is_told_by_its_own_note() -> None:
    assert texts(read("A")) == []
    for readability, importance, begins in (
        (
            read("B."),
            Importance.INCOMPLETE,
            f"1 of 4 answers are {UNPARSED}; 1 of them state one option in other words or signs, which exact_match.len",
        ),
        (
            read("", raw=CachedAnswer(unfinished=True)),
            Importance.INCOMPLETE,
            "1 of 4 answers were cut off while the model was thinking",
        ),
        (
            read("A", prompt_truncated=True),
            Importance.INCOMPLETE,
            "1 of 5 prompts were cut to max_length (300 tokens): the model saw",
        ),
        (
            read(REFUSAL),
            Importance.DOUBTFUL,
            "1 of 4 answers decline to answer; HELM's metrics score them like any other answer",
        ),
        (
            read("A", raw=CachedAnswer(stripped=True)),
            Importance.DOUBTFUL,
            "thinking (<think> to </think>, or another model's markers) was taken out of 1 of 4 answers before they",
        ),
    ):
        ((weight, text),) = texts(readability)
        assert (weight, text.startswith(begins)) == (importance, True)
    ((_, text),) = texts(
        read("A or B"), **{"exact_match": score(0.0), "exact_match.lenient": score(0.0)}
    )
    assert UNPARSED in text
    says(text, "1 of 4 answers", "0 of them", "one option")
    ((_, number),) = texts(read("x", NUMBER))
    says(number, "read nothing")


def test_the_gap_between_both_values_is_told_where_there_is_one() -> None:
    lenient = score(0.75, "exact_match.lenient")
    ((importance, text),) = texts(
        read("A"), **{"exact_match@valid": score(0.25), "exact_match.lenient@valid": lenient}
    )
    says(text, "exact_match.lenient@valid is 0.7500", "value 0.2500", "gap of +0.5000")
    says(text, '"B.", "(B)"', "in other words")
    assert importance is Importance.INCOMPLETE
    for without in ({"exact_match": score(0.75)}, dict[str, Score]()):
        assert texts(read("A"), **{**without, "exact_match.lenient": lenient}) == []


@pytest.mark.parametrize("tokens", [2050, 15000])
def test_above_max_unreadable_cut_prompts_make_a_score_not_reportable(tokens: int) -> None:
    readability = Readability(None, lambda _state: CachedAnswer((tokens, 2)))
    asked = entry("yes", request={"prompt": "The patient was seen again. " * 2200})
    readability.see(KEY, answered(asked, "B"))
    made = draft(instances=Instances(1, 1, 0, 0, 0, 0, 0))
    readability.complete(made)
    readability.report(made)
    is_cut = tokens == 2050
    assert made.instances.prompt_truncated == is_cut
    assert any("num_ctx" in reason for reason in reasons_against_reporting(made)) is is_cut
    assert any("num_ctx" in text for text in made.notes.texts()) is is_cut


@pytest.mark.parametrize(
    ("reason", "stored", "kind"),
    [
        ("length", CachedAnswer((100, 5)), Unreadable.CUT_OFF),
        ("length", CachedAnswer((4090, 2)), Unreadable.FULL_WINDOW),
        ("length", CachedAnswer((4090, 2), unfinished=True), Unreadable.FULL_WINDOW),
        ("length", CachedAnswer((100, 5), unfinished=True), Unreadable.UNFINISHED),
        ("stop", CachedAnswer((100, 5), thought_key="k"), Unreadable.IN_REASONING),
        ("stop", CachedAnswer((100, 1)), Unreadable.ENDED),
        (None, CachedAnswer(), Unreadable.ENDED),
    ],
)
def test_an_empty_answer_has_a_kind_by_its_finish_reason(
    reason: str | None, stored: CachedAnswer, kind: Unreadable
) -> None:
    readability = Readability(None, lambda _state: stored)
    completion = {"text": "", "finish_reason": {"reason": reason}}
    result = {"success": True, "completions": [completion]}
    readability.see(KEY, state("yes", result=result))
    assert list(readability.kinds.values()) == [kind]


def test_of_a_very_long_answer_the_beginning_and_the_end_are_read() -> None:
    middle = "word " * 1_000_000
    assert part_read("B") == "B"
    read_of_it = part_read(f"B. cough {middle} The answer is B")
    assert len(read_of_it) < 21_000
    assert read_of_it.startswith("B. cough")
    assert read_of_it.endswith("The answer is B")
