"""A judge's prompt, found in the source of an annotator."""

from __future__ import annotations

from pathlib import Path

from eval_factory.helm.criterion_prompt import prompt_of_jury, prompt_of_rubric

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
