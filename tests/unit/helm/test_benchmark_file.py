"""What helm-run and the collector read of the benchmark.yaml that was made."""

from __future__ import annotations

from pathlib import Path

from eval_factory.core.jury_form import HELMS_FORM, form_of
from eval_factory.helm.judge_output import jury_form_in


def test_the_form_of_the_jury(tmp_path: Path) -> None:
    assert jury_form_in(tmp_path) is HELMS_FORM
    file = tmp_path / "benchmark.yaml"
    metrics = "metrics: [{name: exact_match}, {name: jury_score, scale: {min: 0, max: 3}}]\n"
    file.write_text(metrics, encoding="utf-8")
    assert jury_form_in(tmp_path) == form_of({"scale": {"min": 0, "max": 3}})
    file.write_text("metrics: [{name: exact_match}]\n", encoding="utf-8")
    assert jury_form_in(tmp_path) is HELMS_FORM
    file.write_text("metric: rubric_score\n", encoding="utf-8")
    assert jury_form_in(tmp_path) is HELMS_FORM
