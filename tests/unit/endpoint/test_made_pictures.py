"""Pictures as answers: what is asked, what is taken for one, where it is stored."""

from __future__ import annotations

import base64
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from builders import endpoint_settings, evaluation
from eval_factory.core.errors import ConfigError
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint import made_pictures, openai_answers, openai_api
from eval_factory.endpoint.http_wire import Reply
from eval_factory.endpoint.openai_answers import Completion, FinalAnswer, UnusableAnswer
from eval_factory.endpoint.refused_parameters import changes_asked_for
from eval_factory.endpoint.replies import ReplyReader
from seeing_endpoint import picture

PARAMS = "config.params"
TYPE = "target.api_endpoint.type"
RED = picture("red")
WEBP = picture("blue", kind="WEBP")


def in_base64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def read(body: Any) -> Completion:
    return ReplyReader(Redactor(), "images").answer(Reply(200, {}, json.dumps(body).encode()))


def test_what_is_asked() -> None:
    settings = endpoint_settings(endpoint_type="images", top_p=0.5)
    asked = {
        "prompt": "An x-ray of head",
        "num_completions": 4,
        "max_tokens": 0,
        "temperature": 1.0,
    }
    body = {"model": "m", "prompt": "An x-ray of head", "n": 4, "response_format": "b64_json"}
    assert (
        settings.body_of(asked)
        == settings.body_of({**asked, "image_generation_parameters": {}})
        == body
    )
    sides = {"output_image_width": 512, "output_image_height": 256}
    assert settings.body_of({**asked, "image_generation_parameters": sides}) == {
        **body,
        "size": "512x256",
    }
    more = endpoint_settings(
        endpoint_type="images",
        adapter=openai_api.Adapter(
            {"quality": "low"}, ["response_format"], {}, "a system prompt", "<think>", "</think>"
        ),
    )
    assert more.body_of({"prompt": "p"}) == {"model": "m", "prompt": "p", "n": 1, "quality": "low"}


def test_an_answer_names_its_pictures_which_are_files(tmp_path: Path) -> None:
    found = read(
        {
            "data": [
                {"b64_json": in_base64(RED), "revised_prompt": "r"},
                {"b64_json": in_base64(WEBP)},
            ]
        }
    )
    digest = hashlib.sha256(RED).hexdigest()
    named = f"sha256:{digest} image/png {len(RED)} bytes"
    assert found.body["data"][0] == {"b64_json": named, "revised_prompt": "r"}
    made_pictures.store_pictures(tmp_path / "made", found.pictures)
    again = openai_answers.completion_of(found.body, "images")
    files = [
        made_pictures.picture_path_and_type(tmp_path / "made", one.text) for one in again.choices
    ]
    assert files[0] == (tmp_path / "made" / f"{digest}.png", "image/png")
    assert [(file.read_bytes(), kind) for file, kind in files] == [
        (RED, "image/png"),
        (WEBP, "image/webp"),
    ]
    made_pictures.check_picture(tmp_path / "made", named)
    files[0][0].write_bytes(WEBP)
    for name, says in (
        (named, f"{digest}.png is not there any more, or was changed"),
        ("sha256:../x", "names no"),
    ):
        with pytest.raises(UnusableAnswer, match=says):
            made_pictures.check_picture(tmp_path / "made", name)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ({"data": [{"url": "https://h/1.png"}]}, "a picture at a URL is not fetched"),
        ({"data": [{"b64_json": in_base64(RED)}, {}]}, "a picture without b64_json"),
        ({"data": [{"b64_json": "sha256:" + "0" * 64 + " image/png 3 bytes"}]}, "not valid base64"),
        ({"data": [{"b64_json": in_base64(b"<svg/>")}]}, "no PNG, JPEG, GIF or WebP picture"),
    ],
)
def test_what_is_no_picture_is_not_asked_for_again(body: Any, says: str) -> None:
    with pytest.raises(FinalAnswer, match=says):
        read(body)


@pytest.mark.parametrize(
    "body", [{}, {"data": []}, {"data": None}, [], {"error": {"message": "busy"}, "data": []}]
)
def test_an_answer_without_pictures_may_bring_some_later(body: Any) -> None:
    with pytest.raises(UnusableAnswer) as caught:
        read(body)
    assert not isinstance(caught.value, FinalAnswer)


def test_the_form_of_pictures_is_left_out_where_it_is_refused() -> None:
    error = "Unknown parameter: 'response_format'."
    assert changes_asked_for(error, {"prompt": "x", "response_format": "b64_json"}) == {
        "response_format": None
    }
    assert (
        changes_asked_for(error, {"messages": [], "response_format": {"type": "json_object"}}) == {}
    )
    assert (
        changes_asked_for("moderation_blocked", {"prompt": "x", "response_format": "b64_json"})
        == {}
    )


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        ({}, "type: helm:radiology runs on images, not on chat"),
        (
            {"config.type": "pubmed_qa", TYPE: "images"},
            "pubmed_qa runs on chat or completions, not on images",
        ),
        (
            {"config.type": "pubmed_qa", f"{PARAMS}.extra.only_generate": True},
            "the answers of pubmed_qa are not pictures",
        ),
        ({TYPE: "images", f"{PARAMS}.temperature": 0.5}, "temperature: is for answers in text"),
        ({TYPE: "images", f"{PARAMS}.temperature": 0}, "temperature: is for answers in text"),
    ],
)
def test_what_makes_pictures_takes_an_endpoint_of_that_type(
    flags: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError, match=says):
        evaluation({"config.type": "helm:radiology", **flags})
