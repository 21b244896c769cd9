"""What a judge is asked about a criterion."""

from __future__ import annotations

from pathlib import Path

from eval_factory.helm.criterion_output import parse_decisions
from eval_factory.helm.criterion_prompt import criterion_prompt, prompt_of_jury, prompt_of_rubric, template
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


ANNOTATOR = '''
from x import LLMAsJuryAnnotator, Other

OTHER = "no"
PROMPT_TEMPLATE = """Judge \\\\"this\\\\":
{QUESTION} $x
"""

class OneAnnotator(LLMAsJuryAnnotator):
    pass
'''


def written(folder: Path, name: str, source: str) -> None:
    (folder / f"{name}_annotator.py").write_text(source, "utf-8")


def test_the_template_is_that_of_the_annotators_module(tmp_path: Path) -> None:
    written(tmp_path, "a", ANNOTATOR.replace("OneAnnotator", "AnotherOneAnnotator").replace("Judge", "Not this"))
    written(tmp_path, "one", ANNOTATOR)
    assert prompt_of_jury(["OneAnnotator"], tmp_path) == 'Judge \\"this\\":\n{QUESTION} $x\n'
    assert prompt_of_jury(["Unknown", "OneAnnotator"], tmp_path) == 'Judge \\"this\\":\n{QUESTION} $x\n'


def test_what_is_no_jury_has_none(tmp_path: Path) -> None:
    written(tmp_path, "one", ANNOTATOR.replace("(LLMAsJuryAnnotator)", "(Other)"))
    assert prompt_of_jury(["OneAnnotator"], tmp_path) is None
    assert prompt_of_jury([], tmp_path) is None
    written(tmp_path, "one", ANNOTATOR.replace("PROMPT_TEMPLATE", "SOMETHING"))
    assert prompt_of_jury(["OneAnnotator"], tmp_path) is None
    written(tmp_path, "one", ANNOTATOR.replace('"""Judge', 'f"""{OTHER}'))
    assert prompt_of_jury(["OneAnnotator"], tmp_path) is None


def test_a_rubrics_has_its_places_in_braces() -> None:
    prompt = prompt_of_rubric()
    assert all(place in prompt for place in ("{conversation}", "{reference}", "{criteria}", '"criteria_met": false'))
