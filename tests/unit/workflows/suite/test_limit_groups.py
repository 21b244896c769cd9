from __future__ import annotations

from typing import Any

import pytest

from builders import endpoint_settings
from eval_factory.endpoint.endpoint_settings import EndpointLimits, EndpointSettings
from eval_factory.workflows.suite.planned_cells import limits_of

A = "https://a.example/v1"
B = "https://b.example/v1"


def judge(role: str, url: str, model_id: str, **numbers: int) -> EndpointSettings:
    return endpoint_settings(role=role, url=url, model_id=model_id, **numbers)


def run(
    url: str, *judges: EndpointSettings, group: str | None = None, **numbers: Any
) -> tuple[list[EndpointSettings], str | None]:
    return [endpoint_settings(url=url, **numbers), *judges], group


def test_each_address_and_each_judge_has_limits_of_its_own() -> None:
    numbers: dict[str, Any] = {"requests_per_minute": 30, "tokens_per_minute": 900}
    one = run(A, judge("gpt", B, "g", parallelism=3), parallelism=7, **numbers)
    limits, of_runs = limits_of([one, run(B, parallelism=2)])
    assert limits == {
        A: EndpointLimits(7, 30, 900),
        f"judge g at {B}": EndpointLimits(3),
        B: EndpointLimits(2),
    }
    assert of_runs == [{"model": A, "gpt": f"judge g at {B}"}, {"model": B}]


@pytest.mark.parametrize(
    "url",
    [
        A,
        f"{A}/",
        f"{A}/chat/completions",
        f"{A}/completions",
        f"{A}/chat/completions/",
        "https://A.Example/v1",
    ],
)
def test_an_address_is_the_same_however_it_is_written(url: str) -> None:
    assert limits_of([run(url)])[1] == [{"model": A}]


def test_other_addresses_are_others() -> None:
    urls = [
        "demo://baseline",
        "https://${HOST}/v1",
        f"{A}?api-version=1",
        f"{A}?api-version=2",
        "http://a.example/v1",
    ]
    _, of_runs = limits_of(map(run, urls))
    assert [run["model"] for run in of_runs] == urls


def test_the_smallest_number_counts_and_none_is_no_limit() -> None:
    many = run(A, parallelism=4, requests_per_minute=90, tokens_per_minute=5000)
    runs = [run(A, parallelism=8, requests_per_minute=60), many, run(A, parallelism=6)]
    assert limits_of(runs)[0] == limits_of(reversed(runs))[0] == {A: EndpointLimits(4, 60, 5000)}


def test_runs_share_a_judge_by_its_address_and_model_whatever_they_call_it() -> None:
    second = run(B, judge("first", A, "g", parallelism=5), judge("second", A, "h"))
    limits, of_runs = limits_of([run(A, judge("gpt", A, "g", parallelism=9)), second])
    assert of_runs[0]["gpt"] == of_runs[1]["first"] != of_runs[1]["second"]
    assert limits[of_runs[0]["gpt"]] == EndpointLimits(5)
    assert len(limits) == 4


def test_a_name_that_is_given_is_the_models_and_no_judges() -> None:
    judged = run(A, judge("gpt", A, "g"), parallelism=3, group="cluster")
    limits, of_runs = limits_of([judged, run(B, parallelism=2, group="cluster"), ([], None)])
    assert of_runs == [{"model": "cluster", "gpt": f"judge g at {A}"}, {"model": "cluster"}, {}]
    assert limits["cluster"] == EndpointLimits(2)


def test_each_of_several_servers_has_limits_of_its_own_and_all_have_the_number_at_once() -> None:
    several = run(B, servers=(B, A), parallelism=8, requests_per_minute=60)
    limits, of_runs = limits_of([several, run(A, parallelism=4)])
    both = f"{A}, {B}"
    assert of_runs == [
        {"model": both, "model at server 1": B, "model at server 2": A},
        {"model": A},
    ]
    assert limits == {both: EndpointLimits(8), B: EndpointLimits(8, 60), A: EndpointLimits(4, 60)}


def test_a_judge_at_several_servers() -> None:
    (groups,) = limits_of([([endpoint_settings(role="gpt", model_id="g", servers=(A, B))], None)])[
        1
    ]
    judges = [f"judge g at {A}", f"judge g at {B}"]
    assert groups == {
        "gpt": ", ".join(judges),
        "gpt at server 1": judges[0],
        "gpt at server 2": judges[1],
    }
