"""Which answers decline to answer."""

from __future__ import annotations

import pytest

from eval_factory.scoring.refusals import LONGEST_REFUSAL, is_refusal

REFUSAL = "I cannot provide medical advice."


@pytest.mark.parametrize(
    "answer",
    [
        REFUSAL, "I'm sorry, but I can't help with that.", "I\N{RIGHT SINGLE QUOTATION MARK}m sorry, but I can\N{RIGHT SINGLE QUOTATION MARK}t assist with that.",
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
    ],
)  # fmt: skip
def test_an_answer_that_declines(answer: str) -> None:
    assert is_refusal(answer)


@pytest.mark.parametrize(
    "answer",
    [
        "", "A", "B.", "CORRECT", "I", "I'm sorry to hear that. Please see a doctor.", "I can help with that.",
        "The patient says: I cannot answer.", "I cannot rule out an infarction; order troponin.",
        "Sorry, the answer is B.", "As an AI model I think it is B.",
        "Leider ist B falsch.", "Ich kann helfen.", "Es tut mir leid, das zu hören.", "Ich kann eine Pneumonie nicht ausschließen.",
        "Als Therapie ist B richtig.", "No.", "No es B.", "No puedo descartar un infarto; pida troponina.", "Lo siento, la respuesta es B.",
        "Como tratamiento, B.", "Não posso descartar B.", "Desculpe, a resposta é B.", "Je ne peux pas exclure un infarctus.",
        "Je suis désolé d'apprendre cela.", "Je peux vous aider.",
    ],
)  # fmt: skip
def test_an_answer_that_does_not(answer: str) -> None:
    assert not is_refusal(answer)


def test_what_goes_on_says_something_beside() -> None:
    assert is_refusal(REFUSAL.ljust(LONGEST_REFUSAL, "x"))
    assert not is_refusal(REFUSAL.ljust(LONGEST_REFUSAL + 1, "x"))
