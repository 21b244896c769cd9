from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from eval_factory.core.errors import PrerequisiteError
from eval_factory.endpoint import openai_api
from eval_factory.endpoint.endpoint_settings import EndpointSettings, LimitOf, OAuthSettings, RunEndpoints, limits_of
from unit.builders import endpoint_settings

GOLDEN = Path(__file__).resolve().parents[2] / "golden"
ADAPTER = openai_api.Adapter({"key": "${CANARY}", "seed": 7}, ["stop"], {"n": "count"}, "be brief", "<t>", "</t>")
OTHER_THAN_DEFAULT = endpoint_settings(
    key_names=("A", "B"), top_p=0.5, use_nvcf=True, requests_per_minute=3, tokens_per_minute=4, stop_after_failures=5,
    oauth=OAuthSettings("openai", "https://t", "s"), adapter=ADAPTER,
)  # fmt: skip
OLDEST_ARGS: dict[str, Any] = {
    "role": "gpt", "url": "https://h/v1", "model_id": "m", "endpoint_type": "chat", "key_names": ["A"],
    "request_timeout": 5, "max_retries": 1, "parallelism": 2,
    "adapter": {
        "params_to_add": {}, "params_to_remove": [], "params_to_rename": {}, "custom_system_prompt": None,
        "start_reasoning_token": "<think>", "end_reasoning_token": "</think>",
    },
}  # fmt: skip
"""What every version wrote."""


def test_what_is_written_is_read_again() -> None:
    written = yaml.safe_dump(OTHER_THAN_DEFAULT.to_args())
    assert EndpointSettings.from_args(yaml.safe_load(written)) == OTHER_THAN_DEFAULT


@pytest.mark.parametrize("name", ["pubmed_qa", "aci_bench"])
def test_the_files_of_the_version_before_are_read(name: str) -> None:
    document = yaml.safe_load((GOLDEN / f"model_deployments_{name}.yaml").read_text("utf-8"))
    for deployment in document["model_deployments"]:
        args = deployment["client_spec"]["args"]
        del args["cache_db"]
        settings = EndpointSettings.from_args(args)
        assert settings.to_args() == args
        assert list(settings.to_args()) == list(args)
        assert settings.key_names[-1] == "OPENAI_API_KEY"


def test_what_an_old_file_does_not_say_has_a_default() -> None:
    settings = EndpointSettings.from_args(OLDEST_ARGS)
    assert (settings.role, settings.key_names, settings.adapter.start_reasoning_token) == ("gpt", ("A",), "<think>")
    assert (settings.top_p, settings.use_nvcf, settings.oauth) == (None, False, None)
    assert (settings.requests_per_minute, settings.tokens_per_minute, settings.stop_after_failures) == (None, None, 0)


@pytest.mark.parametrize("change", ["missing", "unknown"])
def test_another_record_is_refused(change: str) -> None:
    args = dict(OLDEST_ARGS)
    if change == "missing":
        del args["model_id"]
    else:
        args["colour"] = "red"
    with pytest.raises(TypeError):
        EndpointSettings.from_args(args)


def test_secrets_are_sent_and_not_kept() -> None:
    settings = endpoint_settings(url="https://h/${PATH_SECRET}/v1", adapter=ADAPTER)
    assert settings.secret_variables == ["PATH_SECRET", "CANARY"]
    assert settings.secret_fields({"CANARY": "the-canary-0123456789"}) == {"key": "the-canary-0123456789"}
    assert settings.body_of({"prompt": "p", "max_tokens": 1, "temperature": 0})["key"] == "${CANARY}"
    with pytest.raises(PrerequisiteError, match="CANARY"):
        settings.secret_fields({})


def test_a_body_and_its_key_are_those_of_the_settings() -> None:
    settings = endpoint_settings(endpoint_type="completions", top_p=0.5, model_id="other")
    body = settings.body_of({"prompt": "p", "max_tokens": 1, "temperature": 0})
    assert body == {"model": "other", "prompt": "p", "max_tokens": 1, "temperature": 0, "top_p": 0.5}
    assert settings.key_of(body, "again") == openai_api.request_key("http://h/v1", body, "again")


A, B = "https://a.example/v1", "https://b.example/v1"


def judge(role: str, url: str, model_id: str, **numbers: int) -> EndpointSettings:
    return endpoint_settings(role=role, url=url, model_id=model_id, **numbers)


def test_each_address_and_each_judge_has_limits_of_its_own() -> None:
    numbers = {"requests_per_minute": 30, "tokens_per_minute": 900}
    one = RunEndpoints([endpoint_settings(url=A, parallelism=7, **numbers), judge("gpt", B, "g", parallelism=3)])
    other = RunEndpoints([endpoint_settings(url=B, parallelism=2)])
    found = limits_of([one, other])
    assert found.limits == {A: LimitOf(7, 30, 900), f"judge g at {B}": LimitOf(3), B: LimitOf(2)}
    assert found.of_runs == ({"model": A, "gpt": f"judge g at {B}"}, {"model": B})


@pytest.mark.parametrize(
    "url", [A, f"{A}/", f"{A}/chat/completions", f"{A}/completions", f"{A}/chat/completions/", "https://A.Example/v1"]
)  # fmt: skip
def test_an_address_is_the_same_however_it_is_written(url: str) -> None:
    assert limits_of([RunEndpoints([endpoint_settings(url=url)])]).of_runs == ({"model": A},)


def test_other_addresses_are_others() -> None:
    urls = ["demo://baseline", "https://${HOST}/v1", f"{A}?api-version=1", f"{A}?api-version=2", "http://a.example/v1"]
    found = limits_of(RunEndpoints([endpoint_settings(url=url)]) for url in urls)
    assert [run["model"] for run in found.of_runs] == urls


def test_the_smallest_number_counts_and_none_is_no_limit() -> None:
    runs = [
        RunEndpoints([endpoint_settings(url=A, parallelism=8, requests_per_minute=60)]),
        RunEndpoints([endpoint_settings(url=A, parallelism=4, requests_per_minute=90, tokens_per_minute=5000)]),
        RunEndpoints([endpoint_settings(url=A, parallelism=6)]),
    ]
    assert limits_of(runs).limits == limits_of(reversed(runs)).limits == {A: LimitOf(4, 60, 5000)}


def test_runs_share_a_judge_by_its_address_and_model_whatever_they_call_it() -> None:
    runs = [
        RunEndpoints([endpoint_settings(url=A), judge("gpt", A, "g", parallelism=9)]),
        RunEndpoints([endpoint_settings(url=B), judge("first", A, "g", parallelism=5), judge("second", A, "h")]),
    ]
    found = limits_of(runs)
    assert found.of_runs[0]["gpt"] == found.of_runs[1]["first"] != found.of_runs[1]["second"]
    assert found.limits[found.of_runs[0]["gpt"]] == LimitOf(5)
    assert len(found.limits) == 4


def test_a_name_that_is_given_is_the_models_and_no_judges() -> None:
    runs = [
        RunEndpoints([endpoint_settings(url=A, parallelism=3), judge("gpt", A, "g")], model_group="cluster"),
        RunEndpoints([endpoint_settings(url=B, parallelism=2)], model_group="cluster"),
        RunEndpoints([]),
    ]
    found = limits_of(runs)
    assert found.of_runs == ({"model": "cluster", "gpt": f"judge g at {A}"}, {"model": "cluster"}, {})
    assert found.limits["cluster"] == LimitOf(2)


def test_each_of_several_servers_has_limits_of_its_own_and_all_have_the_number_at_once() -> None:
    several = endpoint_settings(url=B, servers=(B, A), parallelism=8, requests_per_minute=60)
    alone = endpoint_settings(url=A, parallelism=4)
    found = limits_of([RunEndpoints([several]), RunEndpoints([alone])])
    both = f"{A}, {B}"
    assert found.of_runs == ({"model": both, "model at server 1": B, "model at server 2": A}, {"model": A})
    assert found.limits == {both: LimitOf(8), B: LimitOf(8, 60), A: LimitOf(4, 60)}


def test_a_judge_at_several_servers() -> None:
    (groups,) = limits_of([RunEndpoints([endpoint_settings(role="gpt", model_id="g", servers=(A, B))])]).of_runs
    judges = [f"judge g at {A}", f"judge g at {B}"]
    assert groups == {"gpt": ", ".join(judges), "gpt at server 1": judges[0], "gpt at server 2": judges[1]}
