"""The text of a translated configuration."""

from __future__ import annotations

import yaml

from eval_factory.config.foreign_configs.config_forms import Form
from eval_factory.config.foreign_configs.findings import Finding
from eval_factory.config.foreign_configs.translation import Translation
from eval_factory.config.foreign_configs.written_config import config_text

DOCUMENT = {"config": {"type": "medec", "note": "é: x"}, "target": {}}


def test_the_findings_are_comments_at_the_top() -> None:
    findings = (Finding("a", "b", "c"), Finding("d\nsuite: x", "e", "f"))
    text = config_text(Translation(Form.LAUNCHER, DOCUMENT, findings, unchanged=False))
    assert text.splitlines()[:4] == [
        "# Made by 'eval-factory import_config' of a configuration of nemo-evaluator-launcher.",
        "# What has no counterpart here, or another one:",
        "# - a: b; c",
        "# - d suite: x: e; f",
    ]
    assert yaml.safe_load(text) == DOCUMENT
    assert list(yaml.safe_load(text)["config"]) == ["type", "note"]
    assert "é" in text


def test_without_findings_there_is_one_comment() -> None:
    text = config_text(Translation(Form.RUN_CONFIG, DOCUMENT, (), unchanged=True))
    assert [line for line in text.splitlines() if line.startswith("#")] == [
        "# Made by 'eval-factory import_config' of a configuration of EvalFactory."
    ]
    assert text.endswith("}\n")
