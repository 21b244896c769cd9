from __future__ import annotations

import re
from typing import Any

from builders import plan
from eval_factory.plan.run_plan import (
    Plan,
    key_destination_lines,
    slug_of,
)
from facts import each_says

MODEL_IDS = (
    "gpt-4",
    "o3-mini",
    "gpt-5",
    "org/model",
    "a/b/c",
    "org/model:free",
    "a,b",
    "k=v",
    "with space",
    "модель",
    "模型",
    "Org/Model",
    "org-model",
    "x" * 300,
    "..",
    "-",
    "UPPER",
)


def test_slug_is_a_name_that_helm_and_file_systems_take() -> None:
    assert [
        one for one in MODEL_IDS if not re.fullmatch(r"[a-z0-9][a-z0-9.-]{0,79}", slug_of(one))
    ] == []


def test_a_parameter_goes_to_helm_under_helms_name_and_max_length_where_its_scenario_has_one() -> (
    None
):
    limit = {"config.params.extra.max_length": 2048}
    here = plan(limit)
    there = plan({"config.type": "medalign", "config.params.extra.data_path": "/d", **limit})
    assert (here.model.max_length, there.model.max_length) == (2048, None)
    assert "max_length" not in here.scenario_arguments
    assert there.scenario_arguments == {"data_path": "/d", "max_length": 2048}
    language = "config.params.extra.language"
    subject = {"config.params.extra.subject": "virology"}
    african = plan({"config.type": "mmlu_clinical_afr", language: "zu", **subject})
    assert african.scenario_arguments == {"lang": "zu", "subject": "virology"}
    assert plan({"config.type": "careqa", language: "es"}).scenario_arguments == {"language": "es"}


def with_judges(*judges: dict[str, Any], **flags: Any) -> Plan:
    return plan(
        {"config.type": "aci_bench", "config.params.extra.judges": list(judges) or None, **flags}
    )


LIMITS = {
    "target.api_endpoint.requests_per_minute": 20,
    "target.api_endpoint.tokens_per_minute": 9000,
}
ONE = {"name": "a", "model_id": "m"}
LIMITED = {**ONE, "requests_per_minute": 3, "tokens_per_minute": 4}


def test_each_ones_limits_are_its_own_and_leave_it_the_same_run() -> None:
    for here, of_model, of_judges in (
        (with_judges(**LIMITS), (20, 9000), (None, None)),
        (with_judges(LIMITED), (None, None), (3, 4)),
    ):
        assert (here.model.requests_per_minute, here.model.tokens_per_minute) == of_model
        assert {(judge.requests_per_minute, judge.tokens_per_minute) for judge in here.judges} == {
            of_judges
        }
    assert with_judges(ONE).identity == with_judges(LIMITED, **LIMITS).identity
    assert (
        plan().identity == plan({**LIMITS, "config.params.extra.stop_after_failures": 0}).identity
    )


def test_a_judges_own_sampling_is_added_to_its_requests_only() -> None:
    added = {"target.api_endpoint.adapter_config.params_to_add": {"seed": 7}}
    here = with_judges(
        {**ONE, "temperature": 0.3, "max_tokens": 9}, {"name": "b", "model_id": "m"}, **added
    )
    assert [judge.adapter.params_to_add for judge in here.judges] == [
        {"temperature": 0.3, "max_tokens": 9},
        {},
    ]
    assert here.model.adapter.params_to_add == {"seed": 7}
    assert {endpoint.adapter.start_reasoning_token for endpoint in here.endpoints} == {"<think>"}


def test_where_keys_go() -> None:
    judges: list[dict[str, Any]] = [
        {"name": "a", "model_id": "m", "api_key": "A_KEY"},
        {"name": "b", "model_id": "m", "oauth": "anthropic"},
        {"name": "c", "model_id": "m", "url": "https://other:81/v1"},
        {"name": "d", "model_id": "m", "api_key": None},
    ]
    each_says(
        key_destination_lines(with_judges(*judges).endpoints),
        ["model at https://host.example: OPENAI_API_KEY"],
        ["a at https://host.example: A_KEY", "or else OPENAI_API_KEY"],
        ["b at https://host.example: OAuth", "anthropic"],
        ["c at https://other:81: no", "no key"],
        ["d at https://host.example: no", "no key"],
    )


def test_headers_go_to_judges_at_the_targets_host_only() -> None:
    judges = [
        {"name": "near", "model_id": "j"},
        {"name": "own", "model_id": "j", "headers": {"x-a": "2"}},
        {"name": "far", "model_id": "j", "url": "https://elsewhere.example/v1", "api_key": "K"},
    ]
    here = plan(
        {
            "config.type": "aci_bench",
            "config.params.extra.judges": judges,
            "target.api_endpoint.headers": {"X-A": "1", "X-B": "3"},
        }
    )
    sent = {judge.role: dict(judge.headers) for judge in here.judges}
    assert dict(here.model.headers) == {"X-A": "1", "X-B": "3"}
    assert sent == {
        "near": {"X-A": "1", "X-B": "3"},
        "own": {"x-a": "2", "X-B": "3"},
        "far": {},
    }
