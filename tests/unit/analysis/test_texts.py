"""What was asked and answered where two results differ."""

from __future__ import annotations

from pathlib import Path

from eval_factory.analysis.comparison import compare
from eval_factory.analysis.texts import texts_of_flips
from stored_results import instance, result, right_or_wrong, written


def test_prompt_reference_and_both_answers_of_each_flip(tmp_path: Path) -> None:
    a, b = right_or_wrong(tmp_path / "a", "101"), right_or_wrong(tmp_path / "b", "110")
    (one,) = compare([a, b]).comparisons
    texts = texts_of_flips(one)
    assert list(texts) == ["q2", "q1"]
    assert texts["q1"] == {
        "prompt": "What is q1?", "references": "yes", "A": "answer to q1", "B": "answer to q1",
    }  # fmt: skip


def test_each_trial_and_this_score_alone(tmp_path: Path) -> None:
    def rows(value: float) -> list[object]:
        return [
            instance("q0", value, completion="first"),
            instance("q0", value, trial=1, completion=None),
            instance("q0", value, split="valid", completion="elsewhere"),
            instance("q0", value, perturbation="typos", completion="perturbed"),
        ]

    folders = [written(tmp_path / name, result(rows(value))) for name, value in (("a", 1.0), ("b", 0.0))]  # type: ignore[arg-type]
    (one,) = compare(folders).comparisons
    said = texts_of_flips(one)["q0"]
    assert {name: value for name, value in said.items() if name not in ("prompt", "references")} == {
        "A": "first", "A (trial 1)": "", "B": "first", "B (trial 1)": "",
    }  # fmt: skip
