"""The prompt that a judge gets, as the installed HELM's annotator has it: read from its source, importing nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path

from eval_factory.helm.criterion_prompt import template

ANNOTATIONS = Path("benchmark", "annotation")
_TEMPLATE = "PROMPT_TEMPLATE"


def prompt_of_rubric() -> str:
    """About one criterion; conversation, reference and criterion are in braces."""
    return template(alone=True)


def prompt_of_jury(annotators: Sequence[str], folder: Path | None = None) -> str | None:
    """The template, with HELM's places in braces; None where none of the annotators is a jury, or HELM is not here.

    Args:
        annotators: names of classes.
        folder: that HELM's annotators are in; of the installed HELM if not given.
    """
    folder = folder or _installed()
    if folder is None or not annotators:
        return None
    defined = re.compile(rf"^class (?:{'|'.join(map(re.escape, annotators))})\(LLMAsJuryAnnotator\):", re.MULTILINE)
    for file in sorted(folder.glob("*_annotator.py")):
        source = file.read_text(encoding="utf-8")
        if defined.search(source):
            return _template_in(source)
    return None


def _template_in(source: str) -> str | None:
    for node in ast.parse(source).body:
        if isinstance(node, ast.Assign) and any(ast.unparse(target) == _TEMPLATE for target in node.targets):
            value = node.value.value if isinstance(node.value, ast.Constant) else None
            return value if isinstance(value, str) else None
    return None


def _installed() -> Path | None:
    found = find_spec("helm")  # of the package itself: nothing of it is imported
    places = [] if found is None else list(found.submodule_search_locations or ())
    folders = [Path(place) / ANNOTATIONS for place in places]
    return next((folder for folder in folders if folder.is_dir()), None)
