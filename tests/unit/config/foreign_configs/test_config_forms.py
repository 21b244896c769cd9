"""Which program a configuration is of."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.foreign_configs.config_forms import Form, form_of, our_key
from eval_factory.core.errors import ConfigError

FILE = Path("x.yml")
RUN: dict[str, Any] = {"config": {"type": "medec"}, "target": {}}


@pytest.mark.parametrize("section", ["evaluation", "execution", "deployment"])
def test_one_section_of_the_launchers_is_enough(section: str) -> None:
    assert form_of({section: {}, "target": {}}, FILE) is Form.LAUNCHER


@pytest.mark.parametrize("document", [{"config": {}}, {"target": {}}, RUN, {**RUN, "command": "x"}])
def test_config_or_target_is_a_run_config(document: dict[str, Any]) -> None:
    assert form_of(document, FILE) is Form.RUN_CONFIG


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"suite": {}}, "x.yml: is a suite of eval-factory already: eval-factory run_suite --run_config x.yml"),
        ({"services": {}, "benchmarks": []}, "'nel eval run'"),
        ({"framework": {}, "evaluations": []}, "defines the tasks of a harness"),
        ({"services": {}}, "no configuration that is known; known forms: a config of nemo-evaluator-launcher"),
        ({"framework": {}}, "no configuration that is known"),
        ({"a": 1}, "a run config of EvalFactory"),
        ({**RUN, "config": {"params": {"extra": {"judges": []}}}}, "already (config.params.extra.judges is a key"),
        ({**RUN, "target": {"api_endpoint": {"oauth": "x"}}}, "already (target.api_endpoint.oauth is a key"),
    ],
)
def test_what_is_not_translated_is_told_with_the_reason(document: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        form_of(document, FILE)
    assert said in str(caught.value)
    assert caught.value.exit_code == 2


@pytest.mark.parametrize("name", ["subject", "gpt_judge_api_key", "language", "n_samples"])
def test_a_key_that_others_have_too_is_not_ours(name: str) -> None:
    assert our_key({"config": {"params": {"extra": {name: "x"}}}}) is None


@pytest.mark.parametrize("document", [{}, {"config": None, "target": "x"}, {"config": {"params": []}}])
def test_sections_of_another_shape_have_no_key_of_ours(document: dict[str, Any]) -> None:
    assert our_key(document) is None
