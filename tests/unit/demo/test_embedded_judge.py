"""The rule by which the embedded endpoint judges criteria."""

from __future__ import annotations

import json

from eval_factory.demo.server import answer_chat, embedded_judgement
from eval_factory.helm.criterion_output import parse_decisions
from eval_factory.helm.criterion_prompt import criterion_prompt
from eval_factory.tasks.rubric_case import Criterion

MESSAGES = [
    {"role": "user", "content": "Aspirin?"},
    {"role": "assistant", "content": "Fever?"},
    {"role": "user", "content": "No"},
]
HALF, NONE = Criterion("Names aspirin", 5), Criterion("Recommends paracetamol instead", -3)


def test_half_of_the_longer_words_are_enough() -> None:
    told = json.loads(str(embedded_judgement(criterion_prompt(MESSAGES, "It is ASPIRIN.", [HALF]))))
    assert told == {"explanation": "1 of its 2 longer words stand in the answer", "criteria_met": True}
    told = json.loads(str(embedded_judgement(criterion_prompt(MESSAGES, "Paracetamol.", [NONE]))))
    assert told["criteria_met"] is False, "1 of 3"
    assert json.loads(str(embedded_judgement(criterion_prompt(MESSAGES, "x", [HALF]))))["criteria_met"] is False
    assert (
        json.loads(str(embedded_judgement(criterion_prompt(MESSAGES, "a", [Criterion("a b", 1)]))))["criteria_met"]
        is False
    )


def test_several_criteria() -> None:
    said = embedded_judgement(criterion_prompt(MESSAGES, "Aspirin names", [NONE, HALF]))
    assert [one.met for one in parse_decisions(str(said), 2, "Aspirin names")] == [False, True]


def test_other_prompts_are_answered_as_before() -> None:
    assert embedded_judgement("A. one\nB. another") is None
    assert embedded_judgement("<conversation>\nx\n</conversation>\n") is None


def test_the_endpoint_answers_with_it() -> None:
    prompt = criterion_prompt(MESSAGES, "aspirin", [HALF])
    body = answer_chat({"messages": [{"role": "user", "content": prompt}]})
    assert json.loads(body["choices"][0]["message"]["content"])["criteria_met"] is True
