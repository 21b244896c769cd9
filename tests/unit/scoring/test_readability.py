"""What can be read from answers: the form that the benchmark asks for, refusals, answers with nothing in them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.core.results import Instances, Score, Stats
from eval_factory.endpoint import openai_api
from eval_factory.helm import output
from eval_factory.plan.run_plan import EndpointPlan
from eval_factory.scoring.notes import Importance
from eval_factory.scoring.readability import AnswerForm, Raw, Readability, answer_form_of, nothing_is_right, raw_of
from eval_factory.scoring.scores import InstanceKey, MetricValues
from eval_factory.scoring.words import is_refusal
from eval_factory.tasks.framework import HelmEntry, load_framework
from unit.builders import plan
from unit.scoring.known import there
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


def joint(tmp_path: Path, **adapter: Any) -> AnswerForm:
    joined = run(tmp_path / "r", entry("yes"), method="multiple_choice_joint", **adapter)
    return there(answer_form_of(helm(), joined, "exact_match"))


def of_task(name: str) -> AnswerForm:
    task = there(load_framework().task(name))
    form = answer_form_of(task.helm, None, "")  # type: ignore[arg-type]  # framework.yml says it, whatever ran
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
    form = there(answer_form_of(helm(), generation, "exact_match"))
    asked = state("B")
    assert form.about == "one of A, B, C, D, E alone"
    assert [form.reads(asked, answer) for answer in ("E", " A ", "F", "B.")] == [True, True, False, False]
    assert form.is_right(asked, "B")
    assert not form.is_right(asked, "A")
    assert answer_form_of(helm(), generation, "quasi_exact_match") is None


def test_few_letters_stand_for_four(tmp_path: Path) -> None:
    form = there(answer_form_of(helm(), run(tmp_path / "r", entry("B"), method="generation"), "exact_match"))
    assert list(form.labels(state("B"))) == ["A", "B", "C", "D"]


@pytest.mark.parametrize("texts", [("B", "Take it with food."), ("AB",), ("a",), ("1",), ()])
def test_open_text_has_no_form(texts: tuple[str, ...], tmp_path: Path) -> None:
    assert (
        answer_form_of(helm(), run(tmp_path / "r", entry("A"), entry(*texts), method="generation"), "exact_match")
        is None
    )


def test_where_helm_matches_nothing_exactly_there_is_no_form(tmp_path: Path) -> None:
    judged = run(tmp_path / "r", entry("A"), metric="accuracy", method="multiple_choice_joint")
    assert answer_form_of(helm(), judged, "exact_match") is None


@pytest.mark.parametrize(("gold", "read", "not_read"), [
    ("141.04", ["141", " 4.0\n", "-3", "1e2"], ["141 mL/min", "about 5", "nan", "inf", "1,000", "07/21/2024"]),
    ("07/21/2024", ["7/1/2024", "07/21/2024"], ["2024-07-21", "3", "21/07/2024"]),
    ("('14 weeks', '2 days')", ["('13 weeks', '0 days')", "13 weeks and 2 days", "13 weeks, 1 days"], [
        "93", "13 weeks",
    ]),
    ("moderate", ["anything"], []),
])  # fmt: skip
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


DECLINED = "I cannot provide medical advice."


@pytest.mark.parametrize("answer", [
    DECLINED, "I'm sorry, but I can't help with that.",
    "I\N{RIGHT SINGLE QUOTATION MARK}m sorry, but I can\N{RIGHT SINGLE QUOTATION MARK}t assist with that.",
    "Sorry, I can't answer this.", "I am unable to answer.", "I'm not able to determine this from the note.",
    "As an AI language model, I cannot diagnose.", "As a large language model, I am not able to provide this.",
    "Unfortunately, I will not do that.", "I must decline to answer this question.", "I won't comply.",
    " \"I can not give this.\"", "I apologize, but I am unable to fulfill this request.",
    "Es tut mir leid, aber ich kann diese Frage nicht beantworten.", "Ich kann Ihnen dabei nicht helfen.",
    "Leider kann ich keine medizinischen Ratschläge geben.", "Als KI-Sprachmodell kann ich keine Diagnose stellen.",
    "Entschuldigung, ich darf diese Frage nicht beantworten.", "Ich bin nicht in der Lage, das zu beantworten.",
    "Lo siento, no puedo responder a esta pregunta.", "Lo siento mucho, pero no puedo ayudarte con eso.",
    "No puedo proporcionar asesoramiento médico.", "Como modelo de lenguaje, no puedo dar un diagnóstico.",
    "Lamentablemente, no puedo contestar.", "No estoy en condiciones de responder a esta pregunta.",
    "Desculpe, não posso responder a esta pergunta.", "Sinto muito, mas não posso ajudar com isso.",
    "Não posso fornecer aconselhamento médico.", "Infelizmente, não consigo responder.",
    "Como um modelo de linguagem, não posso dar diagnósticos.",
    "Je suis désolé, mais je ne peux pas répondre à cette question.", "Désolée, je ne peux pas vous aider.",
    "En tant que modèle de langage, je ne peux pas donner de diagnostic.", "En tant qu'IA, je ne peux pas vous aider.",
    "Malheureusement, je ne suis pas en mesure de répondre.",
])  # fmt: skip
def test_an_answer_that_declines(answer: str) -> None:
    assert is_refusal(answer)


@pytest.mark.parametrize("answer", [
    "", "A", "B.", "CORRECT", "I", "I'm sorry to hear that. Please see a doctor.", "I can help with that.",
    "The patient says: I cannot answer.", "I cannot rule out an infarction; order troponin.", "Sorry, the answer is B.",
    "As an AI model I think it is B.", "Leider ist B falsch.", "Ich kann helfen.", "Es tut mir leid, das zu hören.",
    "Ich kann eine Pneumonie nicht ausschließen.", "Als Therapie ist B richtig.", "No.", "No es B.",
    "No puedo descartar un infarto; pida troponina.", "Lo siento, la respuesta es B.", "Como tratamiento, B.",
    "Não posso descartar B.", "Desculpe, a resposta é B.", "Je ne peux pas exclure un infarctus.",
    "Je suis désolé d'apprendre cela.", "Je peux vous aider.",
])  # fmt: skip
def test_an_answer_that_does_not(answer: str) -> None:
    assert not is_refusal(answer)


LETTER = AnswerForm("a letter", lambda _state, answer: answer in ("A", "B"), lambda _state: {"A": "yes", "B": "no"})
NUMBER = AnswerForm("a number", lambda _state, answer: answer.isdigit())
KEY: InstanceKey = ("id", 0, None)
REFUSAL = "I'm sorry, but I can't help with that."


def answered(told: dict[str, Any], answer: str | None) -> output.RequestState:
    """None: the request failed."""
    result = {"success": answer is not None, "completions": [{"text": answer or ""}], **(told.get("result") or {})}
    return output.RequestState.model_validate({**told, "result": result})


def read(
    answer: str | None, form: AnswerForm | None = LETTER, raw: Raw | None = None, right: str = "no", **state: Any
) -> Readability:
    readability = Readability(form, lambda _state: raw)
    readability.add(KEY, answered(entry(right, **state), answer))
    return readability


def counts(readability: Readability) -> dict[str, int]:
    """Those that are not 0."""
    nothing = Instances(requested=0, scored=0, failed=0, empty=0, truncated=0, filtered=0)
    return {name: count for name, count in vars(readability.counted(nothing)).items() if count}


@pytest.mark.parametrize(("answer", "form", "raw", "expected"), [
    ("A", LETTER, None, set()), ("B.", LETTER, None, {"unparsed", "unreadable"}),
    ("x", NUMBER, Raw(), {"unparsed", "unreadable"}), ("any text", None, None, set()),
    ("", LETTER, None, {"unreadable"}), (" ", None, None, {"unreadable"}), (None, LETTER, Raw(stripped=True), set()),
    (REFUSAL, LETTER, None, {"refused"}), (REFUSAL, None, None, {"refused"}),
    ("", None, Raw(declined=True), {"refused"}), ("A", LETTER, Raw(declined=True), set()),
    ("A", LETTER, Raw(stripped=True), {"thinking_stripped"}),
    ("A", LETTER, Raw(stripped=True, unfinished=True), {"thinking_stripped"}),
    ("", LETTER, Raw(stripped=True, unfinished=True), {"thinking_stripped", "thinking_unfinished", "unreadable"}),
    ("Well.", None, Raw(unfinished=True), {"thinking_unfinished", "unreadable"}),
    ("Well.", LETTER, Raw(unfinished=True), {"thinking_unfinished", "unreadable"}),
])  # fmt: skip
def test_each_answer_is_counted_for_what_it_is(
    answer: str | None, form: AnswerForm | None, raw: Raw | None, expected: set[str]
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


def read_all(form: AnswerForm | None, *asked: tuple[str, str], **state: Any) -> Readability:
    """Of (question, answer)."""
    readability = Readability(form, lambda _state: None)
    for number, (question, answer) in enumerate(asked):
        told = entry("gold", **state)
        told["instance"]["input"] = {"text": question}
        readability.add((f"id{number}", 0, state.get("perturbed")), answered(told, answer))
    return readability


def test_answers_are_identical_that_other_questions_got_too() -> None:
    asked = [
        ("q1", GENERIC), ("q2", f" {GENERIC.upper()}\n"), ("q3", GENERIC.replace(" ", "  ")),
        ("q4", "Of q4 alone. " * 3),
    ]  # fmt: skip
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


@pytest.mark.parametrize(("identical", "answered", "failed", "said"), [
    (3, 20, 0, True), (2, 20, 0, False), (3, 29, 9, True), (19, 19, 0, False), (20, 28, 9, False), (0, 0, 0, False),
])  # fmt: skip
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


@pytest.mark.parametrize(("answer", "value"), [
    ("B", 1.0), ("(B)", 1.0), ("A", 0.0), ("A.", 0.0), ("", 0.0), ("?", 0.0), ("I cannot answer B.", 0.0),
])  # fmt: skip
def test_the_lenient_value(answer: str, value: float) -> None:
    assert read(answer).lenient == {KEY: value}


@pytest.mark.parametrize(
    ("answer", "value"), [("fever", 0.0), ("A", 0.0), ("cough.", 1.0), ("B. cough", 1.0), ("B. fever", 0.0)]
)
def test_the_texts_of_letters_are_those_that_the_prompt_lists(answer: str, value: float) -> None:
    letters = AnswerForm("a letter", lambda _state, answer: answer in ("A", "B"), lambda _state: {"A": "A", "B": "B"})
    readability = Readability(letters, lambda _state: None)
    asked = entry("B")
    asked["instance"]["input"] = {"text": "What is it?\nA. fever\nB. cough\n"}
    readability.add(KEY, answered(asked, answer))
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


@pytest.mark.parametrize(("response", "expected"), [
    (chat("B"), Raw()), (chat(" B ", "length"), Raw()), (chat("<think>hm</think>B"), Raw(stripped=True)),
    (chat("<think>hm", "length"), Raw(stripped=True, unfinished=True)),
    (chat("<thi", "length"), Raw(stripped=True, unfinished=True)), (chat("<thi"), Raw()),
    (chat("", "length", reasoning_content="hm"), Raw(unfinished=True)),
    (chat(None, "length", reasoning_content="hm"), Raw(unfinished=True)),
    (chat("", "stop", reasoning_content="hm"), Raw()), (chat("", "length"), Raw()),
    (chat("B", "length", reasoning_content="hm"), Raw()), (chat("", refusal="No."), Raw(declined=True)),
    (chat("", "refusal"), Raw(declined=True)), ({"choices": []}, Raw()),
])  # fmt: skip
def test_what_an_answer_was_before(response: dict[str, Any], expected: Raw) -> None:
    assert raw_of(response, model())[0] == expected


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
