from __future__ import annotations

import re

import pytest

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.urls import SERVED_AT, is_at_a_server, is_served, reached, served_url


def test_it_names_the_command_and_not_where_it_runs() -> None:
    url = served_url("/opt/bin/vLLM serve 'my/model'  --port {port}", "/v1")
    assert re.fullmatch(r"served://vllm-[0-9a-f]{12}/v1", url)
    assert served_url('/opt/bin/vLLM serve my/model --port   "{port}"', "/v1") == url
    assert served_url("/opt/bin/vLLM serve my/model --seed 1 --port {port}", "/v1") != url
    assert served_url("a 'b c'", "") != served_url("a b c", "")
    assert served_url("/x/§ y", "").startswith("served://server-")
    assert len(served_url("p" * 90, "")) == len("served://") + 30 + 13


def test_where_it_is_reached() -> None:
    assert is_served("served://x/v1")
    assert not is_served("https://served.example/v1")
    one, two = "http://127.0.0.1:1", "http://127.0.0.1:2"
    assert reached("https://host.example/v1", {SERVED_AT: one}) == ("https://host.example/v1",)
    assert reached("served://x-1/api/v1", {SERVED_AT: one}) == (f"{one}/api/v1",)
    assert reached("served://x-1/v1", {SERVED_AT: f"{one} {two}"}) == (f"{one}/v1", f"{two}/v1")
    assert is_at_a_server(f"{two}/v1", {SERVED_AT: f"{one} {two}"})
    assert not is_at_a_server("http://127.0.0.1:3/v1", {SERVED_AT: one})
    assert not is_at_a_server("http://127.0.0.1:3/v1", {})
    with pytest.raises(PrerequisiteError, match=r"served://x-1/v1 is a model that its suite serves.*\n.*run_suite"):
        reached("served://x-1/v1", {SERVED_AT: ""})
