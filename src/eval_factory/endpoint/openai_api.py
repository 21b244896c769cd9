"""Pure functions for requests to the OpenAI-compatible API: make the bodies and the cache keys.

All code that looks up an answer in the response cache makes the key with these functions.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval_factory.endpoint.thinking import AnswerAndThinking, split_thinking

KEY_VERSION = 1
CHAT = "chat"  # the endpoint type for messages
IMAGES = "images"  # the endpoint type for models that make pictures
BASE64_FIELD = "b64_json"  # the field with the content of a picture
RESPONSE_FORMAT = "response_format"  # the parameter with the form or the schema of the answer
_VERDICT = "verdict"  # the name of eval-factory's own schemas for verdicts


@dataclass(frozen=True)
class Adapter:
    """The user's changes to every request and answer (`target.api_endpoint.adapter_config`)."""

    params_to_add: Mapping[str, Any]
    params_to_remove: Sequence[str]
    params_to_rename: Mapping[str, str]
    custom_system_prompt: str | None
    start_reasoning_token: str
    end_reasoning_token: str

    def apply_to(self, body: dict[str, Any]) -> dict[str, Any]:
        """Return the body after fields were removed, renamed and added, in this order.

        A custom system prompt replaces all system messages of the body.
        """
        if self.custom_system_prompt is not None and "messages" in body:
            messages = []
            for message in body["messages"]:
                if message.get("role") != "system":
                    messages.append(message)
            system_message = {"role": "system", "content": self.custom_system_prompt}
            body = {**body, "messages": [system_message, *messages]}
        changed_body = {}
        for name, value in body.items():
            if name not in self.params_to_remove:
                new_name = self.params_to_rename.get(name, name)
                changed_body[new_name] = value
        return {**changed_body, **self.params_to_add}

    def split_reasoning(self, text: str, *, cut_off: bool = False) -> AnswerAndThinking:
        """Split a text into the answer and the model's thinking, by this adapter's markers."""
        return split_thinking(
            text, self.start_reasoning_token, self.end_reasoning_token, cut_off=cut_off
        )


def request_body(
    request: Mapping[str, Any],
    *,
    model_id: str,
    endpoint_type: str,
    top_p: float | None,
    adapter: Adapter | None = None,
) -> dict[str, Any]:
    """Return the JSON body for a request.

    The body of a request for text always states the sampling parameters, because servers have
    different defaults. Its other fields are left out if they have no effect, because many endpoints
    refuse unknown fields. The body of an `images` request has no sampling parameters.

    Args:
        request: the fields of the request by HELM's names: prompt or messages, max_tokens,
            temperature and others; `schema` is a JSON schema that the answer has to follow.
        model_id: the model's name at the endpoint.
        endpoint_type: `chat`, `completions` or `images`.
        top_p: replaces the request's own value; None: keep the request's value.
        adapter: the user's changes to every body.
    """
    if endpoint_type == IMAGES:
        body = _image_request_body(request, model_id)
    else:
        body = _text_request_body(request, model_id, endpoint_type, top_p)
    if adapter:
        return adapter.apply_to(body)
    return body


def _image_request_body(request: Mapping[str, Any], model_id: str) -> dict[str, Any]:
    """Return the JSON body for an `images` request, before the user's changes."""
    body: dict[str, Any] = {
        "model": model_id,
        "prompt": request.get("prompt") or "",
        "n": request.get("num_completions", 1),
        RESPONSE_FORMAT: BASE64_FIELD,
    }
    image_parameters = request.get("image_generation_parameters") or {}
    width = image_parameters.get("output_image_width")
    height = image_parameters.get("output_image_height")
    if width is not None and height is not None:
        body["size"] = f"{width}x{height}"
    return body


def _text_request_body(
    request: Mapping[str, Any], model_id: str, endpoint_type: str, top_p: float | None
) -> dict[str, Any]:
    """Return the JSON body for a request for text, before the user's changes."""
    prompt = request.get("prompt") or ""
    body: dict[str, Any] = {"model": model_id}
    if endpoint_type == CHAT:
        body["messages"] = request.get("messages") or [{"role": "user", "content": prompt}]
    else:
        body["prompt"] = prompt
        if request.get("echo_prompt"):
            body["echo"] = True
    body["max_tokens"] = request["max_tokens"]
    body["temperature"] = request["temperature"]
    body["top_p"] = request.get("top_p", 1) if top_p is None else top_p
    if request.get("num_completions", 1) != 1:
        body["n"] = request["num_completions"]
    if request.get("stop_sequences"):
        body["stop"] = list(request["stop_sequences"])
    for name in ("presence_penalty", "frequency_penalty"):
        if request.get(name):
            body[name] = request[name]
    if request.get("schema"):
        named = {"name": _VERDICT, "strict": True, "schema": dict(request["schema"])}
        body[RESPONSE_FORMAT] = {"type": "json_schema", "json_schema": named}
    return body


def has_verdict_schema(body: Mapping[str, Any]) -> bool:
    """Return True if a body asks for a verdict by eval-factory's schema, not by a user's schema."""
    answer_form = body.get(RESPONSE_FORMAT)
    if not isinstance(answer_form, Mapping):
        return False
    schema = answer_form.get("json_schema")
    return isinstance(schema, Mapping) and schema.get("name") == _VERDICT


@dataclass(frozen=True)
class SetTo:
    """A change of a request: the parameter is sent with another value."""

    value: float


Change = str | SetTo | None
"""A change of a parameter: its new name (a text), its new value (`SetTo`), or None to leave it out.
"""


def with_changes(body: Mapping[str, Any], changes: Mapping[str, Change]) -> dict[str, Any]:
    """Return a body with these changes of its fields; fields without a change stay as they are."""
    changed_body: dict[str, Any] = {}
    for name, value in body.items():
        if name not in changes:
            changed_body[name] = value
            continue
        change = changes[name]
        if isinstance(change, SetTo):
            changed_body[name] = change.value
        elif change is not None:
            changed_body[change] = value  # `change` is the new name
    return changed_body


_sorted_json = json.JSONEncoder(sort_keys=True, ensure_ascii=False, separators=(",", ":")).encode


def request_key(url: str, body: Mapping[str, Any], random: str | None) -> str:
    """Return the key of an answer: a hash of the endpoint and the complete body.

    Args:
        url: the URL of the endpoint.
        body: the body as it is stored, with the model's name.
        random: distinguishes equal requests that are sent repeatedly on purpose, so that each
            answer has its own key.
    """
    text = _sorted_json({"v": KEY_VERSION, "url": url, "body": body, "random": random})
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


json_text = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
"""Return a request's body as JSON without white space; halves of surrogate pairs stay as they are.
"""
