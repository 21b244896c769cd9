"""The check of a run config whose variables are not set."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from eval_factory.config.foreign_configs.stand_ins import check, check_suite, with_stand_ins
from eval_factory.core.errors import ConfigError
from eval_factory.tasks.framework import Task, load_framework

FILE = Path("x.yml")


def task(name: str) -> Task:
    found = load_framework().task(name)
    assert found is not None
    return found


def test_each_variable_has_a_value_that_is_valid_where_it_stands() -> None:
    tree = {
        "url": "${U}", "type": "${T}", "limit_samples": "${L}", "api_key": "${K}", "use_nvcf": "${N}", "subject": "${S}",
        "params_to_remove": ["${P}", 1], "half": "https://${H}/v1", "with": "${W:-7}", "plain": "x",
    }  # fmt: skip
    assert with_stand_ins(tree, task("ehrshot")) == {
        "url": "http://127.0.0.1/v1", "type": "chat", "limit_samples": 1, "api_key": "STANDIN", "use_nvcf": False,
        "subject": task("ehrshot").helm.parameters["subject"].allowed[0],
        "params_to_remove": ["STANDIN", 1], "half": "https://x/v1", "with": "${W:-7}", "plain": "x",
    }  # fmt: skip


def test_a_run_config_full_of_variables_is_loaded() -> None:
    names = ("limit_samples", "parallelism", "max_new_tokens", "max_retries", "request_timeout", "temperature", "top_p")
    extra = dict.fromkeys(("num_output_tokens", "max_length", "num_train_trials", "data_path", "subject"), "${V}")
    endpoint: dict[str, Any] = dict.fromkeys(("url", "model_id", "type", "api_key"), "${V}")
    params = {**dict.fromkeys(names, "${V}"), "extra": extra}
    document = {
        "config": {"type": "ehrshot", "output_dir": "${V}", "params": params},
        "target": {"api_endpoint": endpoint},
    }
    check(document, task("ehrshot"), load_framework(), FILE)
    with pytest.raises(ConfigError) as caught:
        check({**document, "config": {"type": "ehrshot"}}, task("ehrshot"), load_framework(), FILE)
    assert caught.value.problems[0] == "x.yml: cannot be run here as it is; change it there, and try again:"
    assert any(problem.startswith("  config.output_dir: is missing") for problem in caught.value.problems)


def test_a_suite_is_loaded_whatever_its_variables_hold() -> None:
    target = {"name": "a", "api_endpoint": {"url": "${U}", "model_id": "${M}", "api_key": "${K}"}}
    evaluation = {"type": "ehrshot", "params": {"extra": {"subject": "${S}"}}}
    suite = {
        "output_dir": "${O}/x",
        "params": {"limit_samples": "${L}"},
        "evaluations": [evaluation],
        "targets": [target],
    }
    check_suite({"suite": suite}, FILE)
    with pytest.raises(ConfigError) as caught:
        check_suite({"suite": {**suite, "evaluations": []}}, FILE)
    assert caught.value.problems[0] == "x.yml: cannot be run here as it is; change it there, and try again:"
    assert caught.value.problems[1].startswith("  suite.evaluations: ")
