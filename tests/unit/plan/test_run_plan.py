from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from builders import plan
from eval_factory.core.plain_yaml import to_yaml
from eval_factory.core.rundir import RunDir
from eval_factory.plan.run_plan import (
    SERVERS_SECTION,
    Plan,
    servers_section,
    slug_of,
    where_keys_go,
)
from eval_factory.report.documents import run_config
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
        where_keys_go(with_judges(*judges).endpoints),
        ["model at https://host.example: OPENAI_API_KEY"],
        ["a at https://host.example: A_KEY", "or else OPENAI_API_KEY"],
        ["b at https://host.example: OAuth", "anthropic"],
        ["c at https://other:81: no", "no key"],
        ["d at https://host.example: no", "no key"],
    )


A, B, C, D = (f"http://{name}.example/v1" for name in "abcd")
URL = "target.api_endpoint.url"


def planned(folder: Path, url: Any, **more: Any) -> Plan:
    """The plan of a run in the folder, which is then what the folder remembers."""
    made = plan({"config.output_dir": str(folder), URL: url, **more})
    same = servers_section(made.endpoints, made.earlier_servers)
    document = run_config(
        made.evaluation.as_dict(), "", "helm", "p", {SERVERS_SECTION: same} if same else None
    )
    RunDir(folder).run_config.write_text(to_yaml(document))
    return made


@pytest.mark.parametrize(
    "lists",
    [
        ([A], [A, B], [B, A], [C, B], [C], [A, C]),
        ([A, B], [B], [B, C], [A]),
        ([A], [B, A], [B]),
        ([A], [B, f"{A}/chat/completions/"]),
    ],
)
def test_a_list_with_one_in_common_is_the_same_target(
    lists: tuple[list[str], ...], tmp_path: Path
) -> None:
    plans = [planned(tmp_path, urls) for urls in lists]
    assert {one.identity for one in plans} == {plans[0].identity}
    assert {one.model.url for one in plans} == {A}
    assert [list(one.model.urls) for one in plans] == list(lists)


def test_a_single_url_is_what_it_always_was(tmp_path: Path) -> None:
    here = planned(tmp_path, A)
    assert here.identity == planned(tmp_path, [A]).identity == plan({URL: A}).identity
    assert "servers" not in here.model.to_args()
    assert SERVERS_SECTION not in RunDir(tmp_path).run_config.read_text()
    assert planned(tmp_path, B).identity == plan({URL: B}).identity != here.identity


def test_a_list_with_none_in_common_is_another_target(tmp_path: Path) -> None:
    here = planned(tmp_path, [A, B])
    there = planned(tmp_path, [C, D])
    assert (here.identity != there.identity, there.model.url) == (True, C)
    assert planned(tmp_path, [B, C]).model.url == C, "what the last run had"


def test_a_prescribed_judge_at_the_target_has_the_targets_earlier_server(tmp_path: Path) -> None:
    task = {"config.type": "helm:air_bench_2024"}
    planned(tmp_path, A, **task)
    (judge,) = planned(tmp_path, [B, A], **task).prescribed
    assert (judge.url, judge.urls) == (A, (B, A))


def test_a_judges_servers_are_its_own(tmp_path: Path) -> None:
    def jury(*urls: Any) -> dict[str, Any]:
        judges = [
            {"name": f"j{number}", "model_id": "m", "url": url} for number, url in enumerate(urls)
        ]
        return {"config.type": "aci_bench", "config.params.extra.judges": judges}

    first = planned(tmp_path, A, **jury(A, B, None))
    again = planned(tmp_path, [D, A], **jury([C, A], B, None))
    assert again.identity == first.identity
    assert [judge.url for judge in again.judges] == [A, B, A]
    assert [judge.urls for judge in again.judges] == [(C, A), (B,), (D, A)]
    other = planned(tmp_path, [D, A], **jury([C, A], [D], None))
    assert other.identity != first.identity
    asked = [line.partition(" at http:")[0] for line in where_keys_go(other.endpoints)]
    assert asked == ["model", "model", "j0", "j0", "j1", "j2", "j2"]


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
