"""No file ever holds a key; and what is scored is what the model said."""

from __future__ import annotations

import json
import stat
from typing import Any

import pytest
import yaml

from facts import says
from integration.test_run_eval import assert_nothing_leaked
from program_runs import Run, more_data
from scripted_endpoint import ScriptedEndpoint

TASK = "sample_medical_qa"
KEY = "9bQzCANARY7Kd0PLx2MnWv8RtYs4Hj6GfEe1"
LIMIT = {"limit_samples": 2}


class Echo(ScriptedEndpoint):
    """Says what it was asked with, as the name of a field and in its answer."""

    def reply(
        self, path: str, headers: dict[str, str], body: dict[str, Any]
    ) -> tuple[int, dict[str, Any]]:
        status, answer = super().reply(path, headers, body)
        return status, {**answer, headers["Authorization"]: {"url": path, "body": body}}


@pytest.mark.parametrize("arguments", [(), *more_data(("--no_preflight",))])
def test_a_key_of_a_windows_file_that_the_endpoint_echoes(
    arguments: tuple[str, ...], run_program: Run
) -> None:
    with Echo(lambda _prompt: f"B {KEY}") as endpoint:
        params = {**LIMIT, "extra": {"max_unreadable": 1.0}}  # a letter and a key are no letter
        outcome = run_program(
            TASK, endpoint.url, *arguments, params=params, env={"TEST_MODEL_KEY": f"{KEY}\r"}
        )
    assert outcome.returncode == 0, outcome.stderr
    assert {headers["Authorization"] for headers in endpoint.headers} == {f"Bearer {KEY}"}
    assert_nothing_leaked(outcome, KEY)


def test_a_placeholder_changes_no_answer(endpoint: Any, run_program: Run) -> None:
    key = "ollama"
    said = "ollama/llama3 says B"
    endpoint.answer = lambda _prompt: said
    params = {**LIMIT, "extra": {"num_output_tokens": 50, "max_unreadable": 1.0}}
    outcome = run_program(
        TASK, endpoint.url, params=params, env={"TEST_MODEL_KEY": key}, model_id="ollama/llama3"
    )
    assert outcome.returncode == 0, outcome.stderr
    lines = [
        json.loads(line)
        for line in (outcome.output_dir / "results.jsonl").read_text("utf-8").splitlines()
    ]
    assert [line["completion"] for line in lines] == [said, said]
    assert outcome.document()["target"]["api_endpoint"]["model_id"] == "ollama/llama3"
    assert str(outcome.output_dir) in outcome.stdout
    log = (outcome.output_dir / "logs" / "eval-factory.log").read_text("utf-8")
    assert "TEST_MODEL_KEY holds a placeholder" in log


def test_variables_of_a_url_and_of_requests_stand_in_no_file(
    endpoint: Any, run_program: Run
) -> None:
    url = endpoint.url + "?key=${GATEWAY_KEY}"
    fields = json.dumps({"user_token": "${USER_TOKEN}"})
    given = ("--overrides", f"target.api_endpoint.adapter_config.params_to_add={fields}")
    env = {"GATEWAY_KEY": f"gate-{KEY}\r", "USER_TOKEN": f"user-{KEY}"}
    shown = run_program(TASK, url, "--dry_run", *given, params=LIMIT, env=env)
    assert "${GATEWAY_KEY}" in shown.stdout
    assert KEY not in shown.stdout
    outcome = run_program(TASK, url, *given, params=LIMIT, env=env)
    assert outcome.returncode == 0, outcome.stderr
    assert endpoint.probes == 1
    assert set(endpoint.paths) == {f"/v1/chat/completions?key=gate-{KEY}"}
    assert {request["user_token"] for request in endpoint.requests} == {f"user-{KEY}"}
    assert_nothing_leaked(outcome, KEY)
    for folder in ("helm", "logs"):  # nobody else may read prompts
        assert stat.S_IMODE((outcome.output_dir / folder).stat().st_mode) == 0o700
    again = run_program(
        TASK, url, *given, params=LIMIT, env={**env, "USER_TOKEN": "another-token-0123"}
    )
    says(again.stderr, "complete already")
    written = yaml.safe_load((outcome.output_dir / "run_config.yml").read_text("utf-8"))
    assert written["target"]["api_endpoint"]["url"] == url


@pytest.mark.parametrize(
    ("arguments", "variable", "value", "said"),
    [
        (
            (),
            "ALL_PROXY",
            "socks5://127.0.0.1:1080",
            "ALL_PROXY: proxies with the scheme socks5://",
        ),
        (
            ("--no_preflight",),
            "SSL_CERT_FILE",
            "/nonexist.pem",
            "SSL_CERT_FILE: there is no file or folder /nonexist.pem",
        ),
        (("--no_preflight",), "TEST_MODEL_KEY", f"é{KEY}", "TEST_MODEL_KEY holds a character"),
    ],
)
def test_what_no_request_can_be_made_with_is_named(
    arguments: tuple[str, ...], variable: str, value: str, said: str, run_program: Run
) -> None:
    outcome = run_program(
        TASK, "https://host.invalid/v1", *arguments, params=LIMIT, env={variable: value}
    )
    assert outcome.returncode == 3, outcome.stderr
    assert said in outcome.stderr
    assert_nothing_leaked(outcome, KEY)
