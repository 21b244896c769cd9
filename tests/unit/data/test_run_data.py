"""Hosts of a run without a network; own files are known by content, and hashed once a change."""

from __future__ import annotations

import hashlib
import os
from pathlib import Path

import pytest

from builders import plan
from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.rundir import sha256_of
from eval_factory.core.urls import SERVED_AT
from eval_factory.data import run_data
from eval_factory.data.run_data import (
    hash_own_data,
    offline_settings,
    own_data_hashes_of,
    urls_to_contact,
)
from eval_factory.plan.run_plan import Plan


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


def mimic_rrs(tmp_path: Path) -> Plan:
    (tmp_path / "own").mkdir(exist_ok=True)
    for name in ("findings", "impression"):
        (tmp_path / "own" / f"test.{name}.tok").write_text(f"{name}\n")
    flags = {"config.type": "mimic_rrs", "config.params.extra.data_path": str(tmp_path / "own")}
    return plan({**flags, "config.output_dir": str(tmp_path / "out")})


def test_files_of_the_layout_by_name(tmp_path: Path) -> None:
    here = mimic_rrs(tmp_path)
    (tmp_path / "own" / "notes.txt").write_text("not read by HELM")
    found = hash_own_data(here, pytest.fail)
    assert found == own_data_hashes_of(here.rundir)
    assert list(found) == ["data_path/test.findings.tok", "data_path/test.impression.tok"]
    assert found["data_path/test.findings.tok"] == hashlib.sha256(b"findings\n").hexdigest()
    entry = f"helm:shc_bmt_med:data_path={tmp_path}/own/notes.txt"
    here = plan({"config.type": entry, "config.output_dir": str(tmp_path / "out")})
    assert hash_own_data(here, pytest.fail) == {
        "data_path": hashlib.sha256(b"not read by HELM").hexdigest()
    }


def test_only_what_changed_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = mimic_rrs(tmp_path)
    first = hash_own_data(here, pytest.fail)
    read: list[str] = []

    def noting(path: Path) -> str:
        read.append(path.name)
        return sha256_of(path)

    monkeypatch.setattr(run_data, "sha256_of", noting)
    assert hash_own_data(here, pytest.fail) == first
    assert read == []
    file = tmp_path / "own" / "test.findings.tok"
    before = file.stat()
    file.write_text("fiNdings\n")
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as an edit that hides itself
    second = hash_own_data(here, pytest.fail)
    assert read == ["test.findings.tok"]
    assert [name for name in first if second[name] != first[name]] == [
        "data_path/test.findings.tok"
    ]


def test_much_to_read_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run_data, "SLOW_SIZE", 10)
    said: list[str] = []
    hash_own_data(mimic_rrs(tmp_path), said.append)
    assert len(said) == 1
    assert "GB of data_path" in said[0]


@pytest.mark.parametrize("text", ["", "[]", '{"a": 1}', '{"a": {}}'])
def test_a_damaged_record_is_made_anew_and_other_tasks_have_none(text: str, tmp_path: Path) -> None:
    here = mimic_rrs(tmp_path)
    first = hash_own_data(here, pytest.fail)
    here.rundir.own_data.write_text(text)
    assert hash_own_data(here, pytest.fail) == first
    other = plan({"config.output_dir": str(tmp_path / "out")})
    assert hash_own_data(other, pytest.fail) == own_data_hashes_of(other.rundir) == {}
