"""What was read from answers, counted."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.core.results import Instances, Score, Stats
from eval_factory.endpoint import openai_api
from eval_factory.helm import output
from eval_factory.plan.run_plan import EndpointPlan
from eval_factory.scoring.answer_forms import Form
from eval_factory.scoring.metric_values import InstanceKey, MetricValues
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.readability import Raw, Readability, raw_of
from unit.builders import plan
from unit.scoring.test_answer_forms import entry

LETTER = Form("a letter", lambda _state, answer: answer in ("A", "B"), lambda _state: {"A": "yes", "B": "no"})
NUMBER = Form("a number", lambda _state, answer: answer.isdigit())
KEY: InstanceKey = ("id", 0, None)
REFUSAL = "I'm sorry, but I can't help with that."


def read(
    answer: str | None, form: Form | None = LETTER, raw: Raw | None = None, right: str = "no", **state: Any
) -> Readability:
    readability = Readability(form, lambda _state: raw)
    readability.add(KEY, output.RequestState.model_validate(entry(right, **state)), answer)
    return readability


def counts(readability: Readability) -> dict[str, int]:
    """Those that are not 0."""
    nothing = Instances(requested=0, scored=0, failed=0, empty=0, truncated=0, filtered=0)
    return {name: count for name, count in vars(readability.counted(nothing)).items() if count}


@pytest.mark.parametrize(
    ("answer", "form", "raw", "expected"),
    [
        ("A", LETTER, None, set()),
        ("B.", LETTER, None, {"unparsed", "unreadable"}),
        ("x", NUMBER, Raw(), {"unparsed", "unreadable"}),
        ("any text", None, None, set()),
        ("", LETTER, None, {"unreadable"}),
        (" ", None, None, {"unreadable"}),
        (None, LETTER, Raw(stripped=True), set()),
        (REFUSAL, LETTER, None, {"refused"}),
        (REFUSAL, None, None, {"refused"}),
        ("", None, Raw(declined=True), {"refused"}),
        ("A", LETTER, Raw(declined=True), set()),
        ("A", LETTER, Raw(stripped=True), {"thinking_stripped"}),
        ("A", LETTER, Raw(stripped=True, unfinished=True), {"thinking_stripped"}),
        ("", LETTER, Raw(stripped=True, unfinished=True), {"thinking_stripped", "thinking_unfinished", "unreadable"}),
        ("Well.", None, Raw(unfinished=True), {"thinking_unfinished", "unreadable"}),
        ("Well.", LETTER, Raw(unfinished=True), {"thinking_unfinished", "unreadable"}),
    ],
)
def test_each_answer_is_counted_for_what_it_is(
    answer: str | None, form: Form | None, raw: Raw | None, expected: set[str]
) -> None:
    readability = read(answer, form, raw)
    assert counts(readability).keys() == expected
    assert set(readability.signs_of(KEY)) == expected - {"unreadable"}
    assert readability.signs_of(("other", 0, None)) == ()


def test_what_the_filter_withheld_is_not_unreadable() -> None:
    withheld = {"success": False, "error": openai_api.FILTERED_MESSAGE}
    assert counts(read("", result=withheld)) == {}


def test_nothing_may_be_the_right_answer() -> None:
    assert counts(read("", right=" ")) == {}
    assert counts(read("", request={"max_tokens": 0})) == {}
    assert counts(read("", request={})) == {"unreadable": 1}


GENERIC = "See a doctor, rest, and drink enough."


def read_all(form: Form | None, *asked: tuple[str, str], **state: Any) -> Readability:
    """Of (question, answer)."""
    readability = Readability(form, lambda _state: None)
    for number, (question, answer) in enumerate(asked):
        told = entry("gold", **state)
        told["instance"]["input"] = {"text": question}
        made = output.RequestState.model_validate(told)
        readability.add((f"id{number}", 0, state.get("perturbed")), made, answer)
    return readability


def test_answers_are_identical_that_other_questions_got_too() -> None:
    asked = [
        ("q1", GENERIC),
        ("q2", f" {GENERIC.upper()}\n"),
        ("q3", GENERIC.replace(" ", "  ")),
        ("q4", "Of q4 alone. " * 3),
    ]
    assert counts(read_all(None, *asked)) == {"identical": 3}
    assert counts(read_all(None, ("q1", GENERIC), ("q1", GENERIC))) == {}, "one question, asked twice"
    assert counts(read_all(None, ("q1", GENERIC), ("q1", GENERIC), ("q2", GENERIC))) == {"identical": 3}


def test_where_equal_answers_are_normal_they_are_not_counted() -> None:
    generic = ("q1", GENERIC), ("q2", GENERIC)
    assert "identical" not in counts(read_all(LETTER, *generic))
    assert counts(read_all(None, *generic, output_mapping={"A": "yes"})) == {}
    assert counts(read_all(None, *generic, perturbed="typos")) == {}
    assert counts(read_all(None, ("q1", "y" * 20), ("q2", "y" * 20))) == {}, "as long as a label may be"
    assert counts(read_all(None, ("q1", "y" * 21), ("q2", "y" * 21))) == {"identical": 2}


@pytest.mark.parametrize(
    ("identical", "answered", "failed", "said"),
    [(3, 20, 0, True), (2, 20, 0, False), (3, 29, 9, True), (19, 19, 0, False), (20, 28, 9, False), (0, 0, 0, False)],
)
def test_many_identical_answers_are_a_note(identical: int, answered: int, failed: int, said: bool) -> None:
    counted = Instances(answered, answered, failed, 0, 0, 0, identical=identical)
    notes = list(Readability(None, lambda _state: None).notes(plan(), counted, {}))
    text = f"{identical} of {answered - failed} answers are word for word the answer to another question too"
    assert [(note.importance, note.text.startswith(text)) for note in notes] == [(Importance.DOUBTFUL, True)] * said


@pytest.mark.parametrize("answer", ["A", None])
def test_prompts_that_were_cut_are_counted_whatever_came(answer: str | None) -> None:
    readability = read(answer, prompt_truncated=True)
    assert counts(readability) == {"prompt_truncated": 1}
    assert readability.signs_of(KEY) == ("prompt_truncated",)


@pytest.mark.parametrize(
    ("answer", "value"),
    [("B", 1.0), ("(B)", 1.0), ("A", 0.0), ("A.", 0.0), ("", 0.0), ("?", 0.0), ("I cannot answer B.", 0.0)],
)
def test_the_lenient_value(answer: str, value: float) -> None:
    assert read(answer).lenient == {KEY: value}


@pytest.mark.parametrize(
    ("answer", "value"), [("fever", 0.0), ("A", 0.0), ("cough.", 1.0), ("B. cough", 1.0), ("B. fever", 0.0)]
)
def test_the_texts_of_letters_are_those_that_the_prompt_lists(answer: str, value: float) -> None:
    letters = Form("a letter", lambda _state, answer: answer in ("A", "B"), lambda _state: {"A": "A", "B": "B"})
    readability = Readability(letters, lambda _state: None)
    asked = entry("B")
    asked["instance"]["input"] = {"text": "What is it?\nA. fever\nB. cough\n"}
    readability.add(KEY, output.RequestState.model_validate(asked), answer)
    assert readability.lenient == {KEY: value}


def test_there_is_none_of_failed_requests_and_of_other_forms() -> None:
    assert read(None).lenient == read("B", NUMBER).lenient == read("B", None).lenient == {}
    exact = [MetricValues("exact_match", "exact_match", 0.0, merged=False, values={KEY: 0.0})]
    assert read("B", None).metrics(exact) == []
    (lenient,) = read("B.").metrics(exact)
    assert lenient.values == {KEY: 1.0}


def model(endpoint_type: str = "chat") -> EndpointPlan:
    return plan({"target.api_endpoint.type": endpoint_type}).model


def chat(content: str | None, reason: str = "stop", **message: Any) -> dict[str, Any]:
    return {"choices": [{"message": {"content": content, **message}, "finish_reason": reason}]}


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        (chat("B"), Raw()),
        (chat(" B ", "length"), Raw()),
        (chat("<think>hm</think>B"), Raw(stripped=True)),
        (chat("<think>hm", "length"), Raw(stripped=True, unfinished=True)),
        (chat("<thi", "length"), Raw(stripped=True, unfinished=True)),
        (chat("<thi"), Raw()),
        (chat("", "length", reasoning_content="hm"), Raw(unfinished=True)),
        (chat(None, "length", reasoning_content="hm"), Raw(unfinished=True)),
        (chat("", "stop", reasoning_content="hm"), Raw()),
        (chat("", "length"), Raw()),
        (chat("B", "length", reasoning_content="hm"), Raw()),
        (chat("", refusal="No."), Raw(declined=True)),
        (chat("", "refusal"), Raw(declined=True)),
        ({"choices": []}, Raw()),
    ],
)
def test_what_an_answer_was_before(response: dict[str, Any], expected: Raw) -> None:
    assert raw_of(response, model())[0] == expected


def test_a_completion_has_no_message() -> None:
    response: dict[str, Any] = {"choices": [{"text": "<think>hm</think>B", "finish_reason": "stop"}]}
    assert raw_of(response, model("completions"))[0] == Raw(stripped=True)
    response["choices"][0]["message"] = "odd"
    assert raw_of(response, model("completions"))[0] == Raw(stripped=True)


def score(value: float, metric: str = "exact_match") -> Score:
    return Score(value, Stats(4, value, None, None, None, None, None), metric)


UNPARSED = "not in the form that the benchmark asks for (a letter): HELM's metrics read nothing from them"
OF_FOUR = Instances(requested=5, scored=4, failed=1, empty=0, truncated=0, filtered=0)


def texts(readability: Readability, **scores: Score) -> list[tuple[Importance, str]]:
    here = plan({"config.params.extra.max_length": 300})
    return [(note.importance, note.text) for note in readability.notes(here, OF_FOUR, scores)]


def test_each_count_is_told_by_its_own_note() -> None:
    assert texts(read("A")) == []
    told = {
        "unparsed": (
            read("B."),
            f"1 of 4 answers are {UNPARSED}; 1 of them state one option in other words or signs, which exact_match.lenient",
        ),
        "unfinished": (read("", raw=Raw(unfinished=True)), "1 of 4 answers were cut off while the model was thinking"),
        "cut": (read("A", prompt_truncated=True), "1 of 5 prompts were cut to max_length (300 tokens): the model saw"),
        "refused": (read(REFUSAL), "1 of 4 answers decline to answer; they count as HELM's metrics score them"),
        "stripped": (
            read("A", raw=Raw(stripped=True)),
            "thinking (<think> to </think>, or another model's markers) was taken out of 1 of 4 answers before they were",
        ),
    }
    for name, (readability, expected) in told.items():
        ((importance, text),) = texts(readability)
        assert text.startswith(expected)
        doubtful = name in ("refused", "stripped")
        assert importance is (Importance.DOUBTFUL if doubtful else Importance.INCOMPLETE)


def test_a_note_tells_of_what_no_reading_reads() -> None:
    ((_, text),) = texts(read("A or B"), **{"exact_match": score(0.0), "exact_match.lenient": score(0.0)})
    assert text.startswith(f"1 of 4 answers are {UNPARSED}; 0 of them state one option")
    ((_, number),) = texts(read("x", NUMBER))
    assert number.endswith("HELM's metrics read nothing from them")


def test_the_gap_between_both_values_is_told_where_there_is_one() -> None:
    lenient = score(0.75, "exact_match.lenient")
    ((importance, text),) = texts(read("A"), **{"exact_match@valid": score(0.25), "exact_match.lenient@valid": lenient})
    assert text.startswith("exact_match.lenient@valid is 0.7500, HELM's own value 0.2500: a gap of +0.5000 for answers")
    assert text.endswith('for answers that state the option in other words or signs ("B.", "(B)", "The answer is B")')
    assert importance is Importance.INCOMPLETE
    same = score(0.75)
    assert texts(read("A"), **{"exact_match": same, "exact_match.lenient": lenient}) == []
    assert texts(read("A"), **{"exact_match.lenient": lenient}) == []
