"""What a judge is asked about a criterion."""

from __future__ import annotations

from eval_factory.helm.criterion_output import parse_decisions
from eval_factory.helm.criterion_prompt import criterion_prompt, template
from eval_factory.helm.judge_output import UnusableJudgeOutput
from eval_factory.tasks.rubric_case import Criterion

MESSAGES = [
    {"role": "user", "content": "A?"},
    {"role": "assistant", "content": "B."},
    {"role": "user", "content": "C?"},
]
ONE, TWO = Criterion("Names {answer}", 5), Criterion("Harms", -2.5)


def test_one_criterion() -> None:
    prompt = criterion_prompt(MESSAGES, "The {criteria} answer", [ONE])
    assert "<conversation>\nuser: A?\n\nassistant: B.\n\nuser: C?\n\nassistant: The {criteria} answer\n" in prompt
    assert "<criterion>\n[5] Names {answer}\n</criterion>" in prompt
    assert '{"explanation": "...", "criteria_met": false}' in prompt
    assert "<reference>" not in prompt
    assert "judgements" not in prompt


def test_several_criteria_are_numbered() -> None:
    prompt = criterion_prompt(MESSAGES, "x", [ONE, TWO])
    assert "<criteria>\n1. [5] Names {answer}\n2. [-2.5] Harms\n</criteria>" in prompt
    assert '{"judgements": [{"criterion": 1,' in prompt


def test_a_reference_is_shown() -> None:
    assert "<reference>\nSo {it} is.\n</reference>" in criterion_prompt(MESSAGES, "x", [ONE], "So {it} is.")


def test_the_template_holds_neither_conversation_nor_criteria() -> None:
    assert template(alone=True) != template(alone=False)
    for alone in (True, False):
        assert "{conversation}" in template(alone=alone)
        assert "{criteria}" in template(alone=alone)


def test_a_judge_that_repeats_the_form_decides_nothing() -> None:
    for criteria in ([ONE], [ONE, TWO]):
        prompt = criterion_prompt(MESSAGES, "x", criteria)
        try:
            found = parse_decisions(prompt[prompt.rindex("\n\n{") :], len(criteria), "x")
        except UnusableJudgeOutput:
            found = []
        assert found == []
