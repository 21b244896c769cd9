"""What was asked and answered where two results differ, read on demand."""

from __future__ import annotations

from collections.abc import Mapping

from eval_factory.analysis.comparison import Comparison
from eval_factory.core.results import InstanceRecord
from eval_factory.report.reader import load_result

Texts = Mapping[str, Mapping[str, str]]
"""Instance id -> `prompt`, `references`, and the answers, `A` and `B`."""


def texts_of_flips(comparison: Comparison) -> Texts:
    """Of the instances that flipped: first those that are right in a alone.

    Raises:
        PrerequisiteError: the files of instances cannot be read.
    """
    ids = [*comparison.flips.a_only, *comparison.flips.b_only]
    found: dict[str, dict[str, str]] = {key: {} for key in ids}
    for model in (comparison.a, comparison.b):
        result = load_result(model.folder).result
        score = result.scores[comparison.metric]
        for record in result.instances:
            if record.id in found and (record.split, record.perturbation) == (score.split or "", score.perturbation):
                said = found[record.id]
                said.setdefault("prompt", record.prompt)
                said.setdefault("references", _correct(record))
                trial = f" (trial {record.trial})" if record.trial else ""
                said[f"{model.label}{trial}"] = record.completion or ""
    return found


def _correct(record: InstanceRecord) -> str:
    return "; ".join(reference["text"] for reference in record.references if "correct" in reference["tags"])
