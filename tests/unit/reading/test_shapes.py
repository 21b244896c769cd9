"""Shapes of answers, each with each option: where it is wrong, the answer is as wrong as it is."""

from __future__ import annotations

import re
from itertools import product

from eval_factory.reading import stated_option

OPTIONS = {
    "A": "Appendicitis",
    "B": "Acute cholecystitis",
    "C": "Colitis, infectious",
    "D": "Duodenal ulcer",
    "E": "Hepatitis B",
}
NEXT = {"A": "B", "B": "C", "C": "D", "D": "A"}

STATED = [
    "{x}",
    "{x}.",
    "({x})",
    "{x})",
    "[{x}]",
    "'{x}'",
    '"{x}"',
    "**{x}**",
    "_{x}_",
    "`{x}`",
    "**{x}.**",
    "# {x}",
    "> {x}",
    "- {x}",
    "{y}",
    "{y}.",
    "({y})",
    "{y})",
    "{w}",
    "({w})",
    "{x}\n",
    "```\n{x}\n```",
    "$\\boxed{{{x}}}$",
    "\\boxed{{\\text{{{x}}}}}",
    "\\({x}\\)",
    "<answer>{x}</answer>",
    # the label and the text, and what is said of other options
    "{x}. {t}",
    "{x}) {t}",
    "({x}) {t}",
    "{x}: {t}",
    "{x} - {t}",
    "{x} ({t})",
    "{x}, {t}",
    "{x} {t}",
    "**{x}**. {t}",
    "{x}\n{t}",
    "{y}) {t}",
    "{y}. {t}",
    "Option {x}",
    "Option {x}: {t}",
    "{t}",
    "{t}.",
    "{T}",
    "{t} ({x})",
    "**{x}. {t}**\n\nThis fits the pain. Option {o} is incorrect because the test is negative.",
    "{x}. {t}\n\nOption {o} ({u}) is less likely.",
    "{x}. The pain fits. A patient with fever needs surgery.",
    "{x}. {t}\n\nA patient with pain after meals needs an ultrasound. I would not operate.",
    "{x}\n\nExplanation: {o} would need a positive test.",
    "{x} because {o} is wrong",
    "{x}, because {o} is wrong",
    "{x}. {o} and E do not fit.",
    "{x}. {o}, E are wrong.",
    "{x} is correct. {o} is wrong.",
    "{t} is the best choice.",
    "{t}, because the test fits.",
    "The pain fits. Therefore, {x}.",
    "{o} is wrong.\n{x}",
    "It is not {o} but {x}",
    "{x} since {o} is contraindicated",
    "{x}.\n\nWhy not the others:\n{o}. {u}: no\nE. no",
    # JSON
    '{{"answer": "{x}", "explanation": "A patient with {o} is rare; I exclude {o}."}}',
    '{{"explanation": "Option {o} is tempting, E too", "answer": "{x}"}}',
    '```json\n{{\n  "answer": "{x}",\n  "explanation": "Not {o}: \\"{u}\\"."\n}}\n```',
    '{{"reasoning": "{o}?", "final_answer": "{x}. {t}"}}',
    '{{"answer": ["{x}"]}}',
    '{{"answer": {{"letter": "{x}", "text": "{t}"}}}}',
    '{{"answer": "{x}", "explanation": "the answer {o} is wr',
    '{{"answer": "{t}"}}',
    '{{"Answer": "({y})"}}',
    # statements
    "Answer: {x}",
    "ANSWER: {x}",
    "**Answer:** {x}",
    "Answer:\n{x}",
    "Final answer: {x}. {t}",
    "My answer is {x}",
    "The answer is {x}",
    "The answer is {y}.",
    "The correct answer is ({x}).",
    "The best choice is {x}.",
    "The correct option: {x}",
    "The answer is **{x}**. Option {o} is too small.",
    "The correct answer is option {x} because {o} is wrong.",
    "The answer to this question is {x}, not {o}.",
    "The answer is {t}.",
    "A patient with this pain has gallstones, so the answer is {x}.",
    "{o} is unlikely and E does not fit. The answer is {x}.",
    "{o} and E are wrong. The answer is {x}.",
    "Option {o} ({u}) is incorrect. The answer is {x}.",
    "It's not {u}, so the answer is {x}.",
    "Choice {o} would be correct if there were fever, but the answer is {x}.",
    "The most likely diagnosis is {x}.",
    "The pain fits. $\\boxed{{{x}}}$",
    "A {T} is likely, so the answer is {x}.",
    "I choose {x}.",
    "I would go with ({x}).",
    "The options are A to E. I'd choose {x}.",
    "Let me think. A patient has pain.\n\n{x}",
    "A. Appendicitis: fits or not.\nB. Acute cholecystitis: fits or not.\nC. Colitis\n\nThe answer is {x}.",
    "A. Appendicitis: fits or not.\nB. Acute cholecystitis: fits or not.\n\n{x}",
    # other languages
    "答案是{x}。",
    "正确答案是 {x}",
    "答案\N{FULLWIDTH COLON}{w}",
    "选{x}",
    "答えは{x}です",
    "Die richtige Antwort ist {x}.",
    "Antwort: {x}",
    "Die Antwort lautet {x}, weil {o} nicht passt.",
    "{x}, weil {o} falsch ist",
    "La respuesta correcta es la {x}.",
    "Respuesta: {x}",
    "La respuesta correcta es la opción {x}",
    "{x} porque {o} es incorrecta",
    "La bonne réponse est {x}.",
    "Réponse : {x}",
    "La réponse correcte est la {x}",
    "{x} parce que {o} est fausse",
    "A resposta correta é a letra {x}.",
    "Resposta: {x}",
]
NOT_STATED = [
    "",
    " ",
    "?",
    "F",
    "AB",
    "BB.",
    "1",
    "I am not sure",
    "I don't know.",
    "None of the above",
    "All of the above",
    "Not B",
    "B is wrong",
    # several
    "D, B",
    "B, D",
    "Both D and B",
    "A or C",
    "B and C",
    "B/C",
    "B & C",
    "B C",
    "B. C",
    "B oder C",
    "B y D",
    "B et D",
    "A, B, C, D",
    "(A) and (B)",
    "The answer is B or C",
    "The answers are B and D.",
    "Answer: B, D",
    "Answer: A\nAnswer: C",
    '{"answer": ["B", "D"]}',
    '{"answer": "B or D"}',
    "B. Acute cholecystitis\nD. Duodenal ulcer",
    "B. Duodenal ulcer",
    "B\nC",
    "B. It fits.\nD. It hurts.",
    "Acute cholecystitis, Duodenal ulcer",
    "It could be B, C or D.",
    "C or maybe D",
    "Options B and D",
    "Option B, option D",
    "Neither A nor B",
    # lists that break off, and values of each option
    "A. Appendicitis: no\nB. Acute cholecystitis",
    "Let us see:\nA. Appendicitis\nB. Acute chole",
    '{"A": 0.1, "B": 0.9}',
    "A. Appendicitis is incorrect.",
    "Option A (Appendicitis) is incorrect.",
    "Wrong options: A, C, D.",
    "A and B are wrong.",
    "A and B are clearly wrong.",
    # words
    "A patient with chest pain needs an ECG.",
    "A 45-year-old man has pain.",
    "A CT scan should be ordered.",
    "B12 deficiency",
    "C-section",
    "D-dimer",
    "Vitamin D deficiency",
    "E. coli",
    "The answer is E. coli",
    "Group B streptococcus",
    "The answer is Bupropion",
    "Answer: Digoxin",
    "Hepatitis",
    "A1c",
    "Crohn's",
    "Answer with A, B, C or D.",
    "C. difficile is likely",
    "D dimer",
    # no statement
    "I don't think it is B.",
    "I doubt that the answer is B",
    "It is not clear whether the answer is B",
    "The answer is not B",
    "I don't think it is Duodenal ulcer.",
    "Choice A would be correct if there were fever.",
    "Unless B",
    '{"answer": "I do not know", "explanation": "B or C"}',
    '{"answer": null, "options": {"A": "x"}}',
    # refusals
    "Lo siento, no puedo responder A esta pregunta.",
    "Je ne peux pas répondre.",
    "I'm sorry, but I can't help with that.",
]


def written(shape: str, label: str) -> str:
    other = NEXT[label]
    return shape.format(
        x=label,
        y=label.lower(),
        w=chr(ord(label) + 0xFEE0),
        t=OPTIONS[label],
        T=OPTIONS[label].lower(),
        o=other,
        u=OPTIONS[other],
    )


def test_the_option_that_an_answer_states_right_or_wrong() -> None:
    expected = {(shape, label): label for shape, label in product(STATED, NEXT)}
    assert {one: stated_option(written(*one), OPTIONS) for one in expected} == expected


def test_several_options_or_none_are_none() -> None:
    assert {answer: stated_option(answer, OPTIONS) for answer in NOT_STATED} == dict.fromkeys(
        NOT_STATED
    )


def test_labels_are_read_where_the_texts_are_not_known() -> None:
    enough = [
        shape
        for shape in STATED
        if not {"{t}", "{T}"} & set(re.findall("{.}", shape.replace(". {t}", "")))
    ]
    expected = {(shape, label): label for shape, label in product(enough, NEXT)}
    assert {
        one: stated_option(written(*one), dict.fromkeys(OPTIONS, "")) for one in expected
    } == expected
    assert len(enough) > 80


def test_texts_that_look_like_labels() -> None:
    texts = {"A": "A", "B": "C. difficile", "C": "Hepatitis B", "D": "None of the above"}
    stated: dict[str, str | None] = {
        "C. difficile": "B",
        "The answer is C. difficile.": "B",
        "B. C. difficile": "B",
        "C. difficile because of the drug": "B",
        "C. Hepatitis B": "C",
        "hepatitis B": "C",
        "The answer is Hepatitis B": "C",
        "B": "B",
        "A. A": "A",
        "None of the above": "D",
        "D. None of the above": "D",
        "Hepatitis": None,
        "I. difficile": None,
        "C. Hepatitis": "C",
        "A. None of the above.": None,
    }
    assert {answer: stated_option(answer, texts) for answer in stated} == stated


def test_the_labels_are_the_questions_own() -> None:
    assert stated_option("The answer is E, not B", {"A": "", "B": ""}) is None
    digits = {"0": "", "1": ""}
    stated = {
        "1.": "1",
        "Label: 0": "0",
        "The answer is 1": "1",
        "10": None,
        "0.5": None,
        "1. First": None,
        "0 or 1": None,
    }
    assert {answer: stated_option(answer, digits) for answer in stated} == stated
    assert stated_option("Answer: 10", {"1": "", "10": ""}) == "10"
    assert stated_option("I am not sure", dict.fromkeys("ABCDEFGHIJ", "")) is None
    assert stated_option("B", {}) is None


def test_options_with_the_same_text_are_told_apart_by_their_labels_alone() -> None:
    same = {"A": "Aspirin", "B": "Aspirin", "C": "Heparin"}
    assert [stated_option(answer, same) for answer in ("Aspirin", "B. Aspirin", "Heparin")] == [
        None,
        "B",
        "C",
    ]
    longer = {"A": "Aspirin", "B": "Aspirin and clopidogrel"}
    assert [
        stated_option(text, longer) for text in ("Aspirin", "aspirin and clopidogrel", "B. Aspirin")
    ] == ["A", "B", None]
