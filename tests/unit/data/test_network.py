from __future__ import annotations

import pytest

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.urls import SERVED_AT
from eval_factory.data.run_data import offline, urls_of
from unit.builders import plan


def test_endpoints_judges_tokens_and_cloud_functions() -> None:
    judges = [{"name": "kind", "model_id": "j", "url": "http://judge.example:8080/v1", "use_nvcf": True}]
    flags = {"config.type": "aci_bench", "config.params.extra.judges": judges, "target.api_endpoint.oauth": "openai"}
    env = {"OPENAI_TOKEN_URL": "https://token.example/t", "NVCF_STATUS_URL": "https://status.example/s"}
    asked = [
        "https://host.example/v1", "https://token.example/t", "http://judge.example:8080/v1",
        "https://status.example/s",
    ]  # fmt: skip
    assert urls_of(plan(flags), env) == asked
    hosts = (("host.example", 443), ("token.example", 443), ("judge.example", 8080), ("status.example", 443))
    assert offline(HelmRunSettings(), plan(flags), env).allowed == hosts


def test_the_embedded_endpoint_needs_no_host() -> None:
    this = plan({"target.api_endpoint.url": "demo://baseline"})
    told = offline(HelmRunSettings(file_lists="/lists", libraries={"A": "b"}), this, {})
    libraries = {"A": "b", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    assert told == HelmRunSettings(allowed=(), proxies={}, file_lists="/lists", libraries=libraries)


def test_a_proxy_leads_to_its_endpoint_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    told = offline(HelmRunSettings(), plan(), {})
    assert told.allowed == (("host.example", 443), ("proxy.example", 3128))
    assert told.proxies == {"https://host.example": "http://proxy.example:3128"}
    monkeypatch.setenv("NO_PROXY", "host.example")
    assert offline(HelmRunSettings(), plan(), {}).proxies == {}


def test_a_served_model_is_where_its_server_is() -> None:
    this = plan({"target.api_endpoint.url": "served://vllm-0a1b/v1"})
    assert offline(HelmRunSettings(), this, {SERVED_AT: "http://127.0.0.1:20001"}).allowed == (("127.0.0.1", 20001),)
    assert offline(HelmRunSettings(), this, {}).allowed == ()  # a finished run is collected without it
