from __future__ import annotations

import json

import pytest

from eval_factory.data.network import urls_of, variables_for
from unit.builders import plan


def test_endpoints_judges_tokens_and_cloud_functions() -> None:
    judges = [{"name": "kind", "model_id": "j", "url": "http://judge.example:8080/v1", "use_nvcf": True}]
    this = plan(
        {
            "config.type": "aci_bench", "config.params.extra.judges": judges,
            "target.api_endpoint.oauth": "openai",
        }
    )  # fmt: skip
    env = {"OPENAI_TOKEN_URL": "https://token.example/t", "NVCF_STATUS_URL": "https://status.example/s"}
    urls = [
        "https://host.example/v1",
        "https://token.example/t",
        "http://judge.example:8080/v1",
        "https://status.example/s",
    ]
    assert urls_of(this, env) == urls
    places = json.loads(variables_for(this, env)["EVAL_FACTORY_OFFLINE"])
    assert places == [["host.example", 443], ["token.example", 443], ["judge.example", 8080], ["status.example", 443]]


def test_the_embedded_endpoint_needs_no_host() -> None:
    this = plan({"target.api_endpoint.url": "demo://baseline"})
    assert variables_for(this, {}) == {"EVAL_FACTORY_OFFLINE": "[]", "EVAL_FACTORY_PROXIES": "{}"}


def test_a_proxy_leads_to_its_endpoint_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    variables = variables_for(plan(), {})
    assert json.loads(variables["EVAL_FACTORY_OFFLINE"]) == [["host.example", 443], ["proxy.example", 3128]]
    assert json.loads(variables["EVAL_FACTORY_PROXIES"]) == {"https://host.example": "http://proxy.example:3128"}
    monkeypatch.setenv("NO_PROXY", "host.example")
    assert json.loads(variables_for(plan(), {})["EVAL_FACTORY_PROXIES"]) == {}
