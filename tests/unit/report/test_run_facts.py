"""What is known of a run, and what is not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from described_runs import CONFIG, ODD, TARGET, hostile, plain
from eval_factory.core.results import AskedEndpoint, TaskResult
from eval_factory.report.run_facts import RunFacts, counted, listed, number


def facts(result: TaskResult | None = None, **extra: Any) -> RunFacts:
    return RunFacts(result or plain(), {"params": {"extra": extra}}, TARGET)


def test_of_a_run_without_configuration_little_is_known() -> None:
    bare = RunFacts(plain(), {}, {})
    assert (bare.params, bare.extra, bare.adapter, bare.endpoint_type) == ({}, {}, {}, None)
    assert (bare.has_own_files, bare.parts) == (False, {})
    whole = RunFacts(plain(), CONFIG, TARGET)
    assert (whole.params["limit_samples"], whole.extra["on_failure"], whole.endpoint_type) == (20, "exclude", "chat")


@pytest.mark.parametrize("name", ["data_path", "benchmark"])
def test_own_files_are_known(name: str) -> None:
    assert facts(**{name: "/x"}).has_own_files
    assert not facts(**{name: None}).has_own_files


def test_parts_of_a_benchmark_are_named_on_one_line() -> None:
    assert facts(subset="a\nb", language=None, data_dir="x").parts == {"subset": "a b"}


def test_what_framework_yml_does_not_have_is_not_described() -> None:
    assert facts().task is not None
    assert facts().is_zero_shot
    other = facts(plain(task="custom.mine"))
    assert other.task is None
    assert not other.is_zero_shot


@pytest.mark.parametrize(
    ("host", "shown"),
    [
        ("api.example.org:8443", "api.example.org:8443"),
        ("127.0.0.1:80", ""),
        ("localhost", ""),
        ("[::1]:9", ""),
        ("", ""),
    ],
)
def test_the_machine_of_the_run_is_no_host_to_name(host: str, shown: str) -> None:
    result = plain()
    model = replace(result.provenance.endpoints["model"], host=host)
    found = facts(replace(result, provenance=replace(result.provenance, endpoints={"model": model})))
    assert found.host == shown
    assert facts(replace(result, provenance=replace(result.provenance, endpoints={}))).host == ""


@pytest.mark.parametrize(
    ("target", "asked", "demo"),
    [
        ("org/model", "org/model", False), ("demo baseline", "demo/baseline", True), ("demo baseline", None, True),
        ("demo baseline", "demo baseline", False), ("org/model", "org/other", False),
    ],
)  # fmt: skip
def test_the_demo_is_no_model(target: str, asked: str | None, demo: bool) -> None:
    endpoints = {} if asked is None else {"model": AskedEndpoint(asked, "h", (), 1, {}, 0, None)}
    result = plain()
    assert (
        facts(replace(result, provenance=replace(result.provenance, target=target, endpoints=endpoints))).is_demo
        is demo
    )


def test_judges_are_the_other_endpoints() -> None:
    odd = RunFacts(hostile(), {}, {})
    assert list(odd.judges) == [ODD]
    assert odd.name.isprintable()
    assert odd.model_name.isprintable()
    assert odd.helm.startswith("HELM ")
    assert odd.helm.isprintable()
    result = plain()
    assert facts(replace(result, provenance=replace(result.provenance, helm=None))).helm == "HELM"
    assert RunFacts(plain(main_metric="none"), {}, {}).main is None


def test_numbers_and_lists_read_well() -> None:
    assert number(0.71499) == "0.7150"
    assert [counted(count, "instance") for count in (0, 1, 1200)] == ["0 instances", "1 instance", "1,200 instances"]
    assert [listed(list(words)) for words in ("", "a", "ab", "abc")] == ["", "a", "a and b", "a, b and c"]
