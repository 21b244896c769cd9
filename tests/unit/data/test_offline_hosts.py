"""Hosts of a run without a network."""

from __future__ import annotations

import pytest

from builders import plan
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.urls import SERVED_AT
from eval_factory.data.offline_hosts import offline_settings, urls_to_contact


def test_endpoints_judges_tokens_and_cloud_functions() -> None:
    judges = [
        {"name": "kind", "model_id": "j", "url": "http://judge.example:8080/v1", "use_nvcf": True}
    ]
    flags = {
        "config.type": "aci_bench",
        "config.params.extra.judges": judges,
        "target.api_endpoint.oauth": "openai",
    }
    env = {
        "OPENAI_TOKEN_URL": "https://token.example/t",
        "NVCF_STATUS_URL": "https://status.example/s",
    }
    asked = [
        "https://host.example/v1",
        "https://token.example/t",
        "http://judge.example:8080/v1",
        "https://status.example/s",
    ]
    assert urls_to_contact(plan(flags), env) == asked
    hosts = (
        ("host.example", 443),
        ("token.example", 443),
        ("judge.example", 8080),
        ("status.example", 443),
    )
    assert offline_settings(HelmRunSettings(), plan(flags), env).allowed == hosts


def test_the_embedded_endpoint_needs_no_host_and_a_served_one_its_server() -> None:
    this = plan({"target.api_endpoint.url": "demo://baseline"})
    told = offline_settings(
        HelmRunSettings(file_lists="/lists", library_variables={"A": "b"}), this, {}
    )
    libraries = {"A": "b", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"}
    assert told == HelmRunSettings(
        allowed=(), proxies={}, file_lists="/lists", library_variables=libraries
    )
    served = plan({"target.api_endpoint.url": "served://vllm-0a1b/v1"})
    assert offline_settings(
        HelmRunSettings(), served, {SERVED_AT: "http://127.0.0.1:20001"}
    ).allowed == (("127.0.0.1", 20001),)
    # a finished run is collected without it
    assert offline_settings(HelmRunSettings(), served, {}).allowed == ()


def test_a_proxy_leads_to_its_endpoint_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "proxy.example:3128")
    told = offline_settings(HelmRunSettings(), plan(), {})
    assert told.allowed == (("host.example", 443), ("proxy.example", 3128))
    assert told.proxies == {"https://host.example": "http://proxy.example:3128"}
    monkeypatch.setenv("NO_PROXY", "host.example")
    assert offline_settings(HelmRunSettings(), plan(), {}).proxies == {}
