"""The prompts that are shown are those that HELM's annotators have."""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path

from helm.benchmark import annotation
from helm.benchmark.annotation.model_as_judge import LLMAsJuryAnnotator

from eval_factory.helm.criterion_prompt import prompt_of_jury
from eval_factory.tasks.framework import load_framework
from eval_factory.tasks.run_specs import load_index

MORE_THAN = 10


def test_each_jurys_prompt_is_its_annotators() -> None:
    run_specs = load_index().run_specs
    wanted = {name for task in load_framework().evaluations if task.helm.judges
              for name in (run_specs[task.helm.run_spec].annotators if task.helm.run_spec in run_specs else ())}  # fmt: skip
    for module in pkgutil.iter_modules(annotation.__path__):
        if module.name.endswith("_annotator") and _holds(module.name, wanted):
            importlib.import_module(f"{annotation.__name__}.{module.name}")
    juries = {one.__name__: one for one in LLMAsJuryAnnotator.__subclasses__()}
    assert len(wanted) > MORE_THAN
    for name in sorted(wanted):
        assert prompt_of_jury([name]) == juries[name](None, {})._prompt_template


def _holds(module: str, wanted: set[str]) -> bool:
    """Modules of other annotators import packages that need not be there."""
    (folder,) = annotation.__path__
    source = Path(folder, f"{module}.py").read_text("utf-8")
    return any(f"class {name}(" in source for name in wanted)
