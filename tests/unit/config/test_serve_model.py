from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from eval_factory.config import suite_model
from eval_factory.config.merge import with_defaults
from eval_factory.config.suite_model import ServeSection, command_words, server_lines
from eval_factory.core.errors import ConfigError
from eval_factory.core.rundir import SuiteDir
from eval_factory.plan.run_plan import make_plan
from eval_factory.tasks.framework import load_framework
from eval_factory.workflows.suite.planned_cells import checked_cells
from facts import says
from suites import suite

DEFAULTS = load_framework().defaults.serve
COMMAND = "vllm serve my/model --port {port}"


def served(**changes: Any) -> dict[str, Any]:
    return {
        "name": "small",
        "api_endpoint": {"model_id": "my/model"},
        "serve": {"command": COMMAND, **changes},
    }


def test_every_key_has_a_default_and_a_null_leaves_it() -> None:
    assert DEFAULTS.keys() == ServeSection.model_fields.keys()
    ServeSection.model_validate(DEFAULTS)
    assert with_defaults(DEFAULTS, {"health": None, "max_restarts": 0}) == {
        **DEFAULTS,
        "max_restarts": 0,
    }


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"command": "vllm 'serve"}, "a quote that does not end"),
        (
            {"command": "vllm --api-key=sk-0123456789abcdefghij01"},
            "looks like a key (it is not shown)",
        ),
        (
            {"machine_options": "--env A:nvapi-0123456789abcdefghij01"},
            "looks like a key (it is not shown)",
        ),
        ({"command": "cd x && vllm serve"}, "without a shell, which && needs"),
        (
            {"health": "health"},
            "must be a path, such as /health, or a URL such as http://127.0.0.1:{port}/health",
        ),
        ({"health": "http://example.org:{port}/health"}, "must be a path"),
        ({"base_path": "v1"}, "must be a path, such as /v1"),
        ({"env": ["A B"]}, "must be the NAME of an environment variable"),
        (
            {"env": ["MY_TOKEN=x"]},
            "has a value for MY_TOKEN, which is the name of a secret; write the NAME alone",
        ),
        (
            {"env": ["A=sk-0123456789abcdefghij01"]},
            "has what looks like a key as its value (it is not shown)",
        ),
        ({"replicas": 0}, "greater than or equal to 1"),
        ({"replicas": 65}, "less than or equal to 64"),
        ({"max_restarts": -1}, "greater than or equal to 0"),
        ({"stop_grace_s": 0}, "greater than 0"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_wrong_values(changes: dict[str, Any], said: str) -> None:
    with pytest.raises(ValidationError) as caught:
        ServeSection.model_validate(changes)
    assert said in str(caught.value).partition("[type=")[0]


def test_what_is_wrong_when_all_files_are_merged() -> None:
    env = {"MY_TOKEN": "a-secret-value-0123456", "WORD": "a-word-0123456789"}

    def problems(target: dict[str, Any]) -> list[str]:
        return list(suite_model.problems_of_serve(target, "t", env))

    assert (
        problems(served())
        == problems(served(command="x a-word-0123456789", machine_options="--port={port}"))
        == []
    )
    assert "t has no serve.command" in problems(served(command=None))[0]
    (port,) = problems(served(command="vllm serve x"))
    says(port, "t: serve.command", "write {port}")
    (secret,) = problems(served(command=f"{COMMAND} --api-key a-secret-value-0123456"))
    says(secret, "value of a variable", "secret")
    assert "a-secret" not in secret


def test_words_of_the_command_and_variables() -> None:
    serve = with_defaults(
        DEFAULTS, {"command": "a --json '{\"x\": 1}' --url=h:{port}", "machine_options": "--gpus 2"}
    )
    assert command_words(serve) == ("a", "--json", '{"x": 1}', "--url=h:{port}", "--gpus", "2")
    assert command_words({**serve, "machine_options": None})[-1] == "--url=h:{port}"
    assert suite_model.health_url(serve) == "http://127.0.0.1:{port}/health"
    assert (
        suite_model.health_url({**serve, "health": "http://localhost:{port}/x"})
        == "http://localhost:{port}/x"
    )
    named = ServeSection.model_validate(
        {"env": ["HF_TOKEN", "CUDA_VISIBLE_DEVICES={replica}", "X="]}
    ).model_dump()
    assert suite_model.inherited_variables(named) == ["HF_TOKEN"]
    assert suite_model.stated_variables(named) == {"CUDA_VISIBLE_DEVICES": "{replica}", "X": ""}


def test_a_dry_run_shows_it() -> None:
    assert list(server_lines({})) == []
    _, line = server_lines(
        {"small": with_defaults(DEFAULTS, {"command": "a {port}", "machine_options": "--b"})}
    )
    says(line, "small: a {port} --b", "/health", "200")
    _, line = server_lines(
        {"small": with_defaults(DEFAULTS, {"command": "a {port}", "replicas": 3})}
    )
    says(line, "(3 servers, {replica}: its", "{port}: a free port")


def identities(**changes: Any) -> set[str]:
    found = suite(targets=[served(**changes)])
    return {one.plan.identity for one in checked_cells(found, {}) if one.plan is not None}


def test_the_identity_of_a_run_is_of_the_command_and_neither_of_the_port_nor_of_how_it_is_started() -> (
    None
):
    usual = identities()
    assert len(usual) == 2
    how = {
        "machine_options": "--gpus 2",
        "health": "/x",
        "env": ["A"],
        "start_time_limit_s": 5,
        "max_restarts": 9,
    }
    assert identities() == identities(**how, replicas=3) == usual
    assert not identities(command=f"{COMMAND} --revision b") & usual
    assert not identities(base_path="/v2") & usual


def test_a_suite_with_a_served_target() -> None:
    found = suite(
        targets=[
            served(health="/x"),
            {"name": "b", "api_endpoint": {"url": "http://h/v1", "model_id": "b"}},
        ]
    )
    assert dict(found.serve) == {
        "small": with_defaults(DEFAULTS, {"command": COMMAND, "health": "/x"})
    }
    assert found.limit_groups == {"small": "server of small", "b": "h/v1"}
    (target, _) = found.document["suite"]["targets"]
    assert "url" not in target["api_endpoint"]  # suite_config.yml can be run again
    plans = {
        one.cell.target: one.plan
        for one in checked_cells(found, {"OPENAI_API_KEY": "k" * 20})
        if one.plan
    }
    assert plans["small"].model.url.startswith("served://vllm-")
    assert (plans["small"].model.key_names, plans["b"].model.key_names) == ((), ("OPENAI_API_KEY",))
    assert plans["small"].identity == make_plan(plans["small"].evaluation).identity
    assert SuiteDir(found.folder.root).server_log("small").name == "small.log"
    with_key = suite(
        targets=[{**served(), "api_endpoint": {"model_id": "m", "api_key": "OPENAI_API_KEY"}}]
    )
    assert {one.plan.model.key_names for one in checked_cells(with_key, {}) if one.plan} == {
        ("OPENAI_API_KEY",)
    }


URL = {"url": "http://h/v1", "model_id": "m"}


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (
            {**served(), "api_endpoint": URL},
            "small has both `serve` and api_endpoint.url; leave the URL out: the server's own is used",
        ),
        ({"name": "b", "api_endpoint": {"model_id": "m"}}, "b has no api_endpoint.url"),
        ({**served(), "api_endpoint": {}}, "small has no api_endpoint.model_id"),
    ],
)
def test_a_target_has_a_server_or_a_url(target: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        suite(targets=[target])
