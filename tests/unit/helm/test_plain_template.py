"""What is rendered without Jinja is what Jinja makes of it; all else is left to it."""

from __future__ import annotations

from typing import Any

import pytest

from eval_factory.helm.command import rendered_by_jinja
from eval_factory.helm.plain_template import rendered
from eval_factory.tasks.framework import load_framework

VALUES: dict[str, Any] = {
    "word": "a b",
    "odd": "{{ word }}\n",
    "number": 3,
    "nothing": None,
    "empty": "",
    "config": {"params": {"trials": None, "items": 1, "on": False}},
}


def quoted(value: object) -> str:
    return rendered_by_jinja("{{ value }}", {"value": value})


@pytest.mark.parametrize(
    "template",
    [
        "",
        "plain } text",
        "{{ word }} --n {{ number }}\n--last {{ config.params.on }}\n",
        "{{ odd }} {{ word }}",
        "a {% if nothing is not none %}--x {{ nothing }}{% endif %} b",
        "{% if config.params.trials is not none %}--x {{ absent }}{% endif %}\n {{ nothing }}\n\n",
        "{% if empty is not none %}--e {{ empty }}{% endif %}{% if number is not none %}--n {{ number }}{% endif %}",
        "{% if word is not none %}{{ odd }}{% endif %}",
    ],
)
def test_a_plain_template_comes_to_what_jinja_makes_of_it(template: str) -> None:
    text = rendered(template, VALUES, quoted)
    assert text is not None
    assert text == rendered_by_jinja(template, VALUES)


@pytest.mark.parametrize(
    "template",
    [
        "{{ word | upper }}",
        "{{word}}",
        "{# a comment #}",
        "{{ word }} {% if number %}x{% endif %}",
        "{% if word is not none %}{% if number %}x{% endif %}{% endif %}",
        "{% if word is not none %}a\nb{% endif %}",
        "{% if word is not none %}a{% else %}b{% endif %}",
        "{{ absent }}",
        "{{ config.absent }}",
        "{{ word.upper }}",
        "{{ config.params.items }}",
        "{% if absent is not none %}x{% endif %}",
        "{{ word }}\r\nx",
    ],
)
def test_all_else_is_left_to_jinja(template: str) -> None:
    assert rendered(template, VALUES, quoted) is None


def test_the_command_of_the_framework_file_is_plain() -> None:
    values: dict[str, Any] = {name: f"the {name}" for name in ("helm_run", "run_entry", "suite", "max_eval_instances")}
    values |= {name: f"'{name}" for name in ("helm_dir", "model_configs_dir", "plugin", "runner_class")}
    for optional in (None, 5):
        params = {"parallelism": 4, "extra": {"num_train_trials": optional}}
        given = {**values, "config": {"params": params}, "log_config": optional}
        template = load_framework().defaults.command
        text = rendered(template, given, quoted)
        assert text == rendered_by_jinja(template, given)
        assert ("--log-config 5" in text) is ("--num-train-trials 5" in text) is (optional is not None)
