"""A body's JSON, made once."""

from __future__ import annotations

import json

import pytest

from eval_factory.endpoint import openai_api
from eval_factory.endpoint.openai_api import JsonBody, json_text


def test_the_text_is_compact_and_keeps_order_and_letters() -> None:
    body = {"model": "m", "a": [1, {"b": 'ü\n"\ud800'}]}
    assert json_text(body) == json_text(JsonBody(body)) == '{"model":"m","a":[1,{"b":"ü\\n\\"\ud800"}]}'


def test_it_is_made_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def noted(value: object) -> str:
        made.append(value)
        return json.dumps(value)

    monkeypatch.setattr(openai_api, "_compact_json", noted)
    body = JsonBody(model="m")
    assert body.text() == json_text(body) == body.text() == '{"model": "m"}'
    assert len(made) == 1
    assert json_text({"model": "m"}) == '{"model": "m"}'
    assert len(made) == 2


def test_it_is_a_body_like_any_other() -> None:
    assert JsonBody(model="m") == {"model": "m"}
    assert json.loads(json.dumps({"body": JsonBody(model="m")})) == {"body": {"model": "m"}}
