"""Tests of what a user reads for each cause and finish reason, as recorded in tests/golden/remedies.txt.

EVAL_FACTORY_UPDATE_GOLDEN=1 records it anew.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from pathlib import Path

from builders import endpoint_settings
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.failure_causes import hint_for, is_permanent, remedies, remedy_for
from eval_factory.endpoint.openai_answers import cut_off_advice
from eval_factory.endpoint.replies import StopMessages
from eval_factory.scoring.reportable import Unreadable, unreadable_reasons

GOLDEN = Path(__file__).resolve().parents[2] / "golden" / "remedies.txt"
URL = "https://gateway.example/v1/chat/completions"
ERRORS = (
    "unusable judgement: it holds no JSON object",
    "HTTP 429: insufficient_quota",
    "HTTP 400: Your credit balance is too low; go to Plans & Billing",
    "HTTP 403: error code: 1010",
    "HTTP 403: Just a moment...",
    "HTTP 403: Access Denied You don't have permission to access on this server",
    "HTTP 403: Country, region, or territory not supported",
    "HTTP 400: This model only support stream mode",
    "HTTP 400: parameter.enable_thinking must be set to false",
    "HTTP 400: Conversation roles must alternate user/assistant",
    "HTTP 400: Developer instruction is not enabled for this model",
    "HTTP 429 (rate limit): slow down",
    "HTTP 400: Invalid 'max_output_tokens': Expected a value >= 16, but got 5 instead.",
    "HTTP 400: maximum context length is 8192 tokens",
    "HTTP 413: Payload Too Large",
    "HTTP 400: filtered due to the content management policy",
    "HTTP 400: Content Exists Risk",
    "no whole answer within 120 s",
    "HTTP 400: Unsupported value: 'seed'",
    "HTTP 401: no such key",
    "HTTP 404: no such model",
    "HTTP 405: Method Not Allowed",
    "HTTP 400: The provided model identifier is invalid",
    "the answer is not JSON",
    "the answer holds no choices",
    "the server interrupted its answer (finish_reason abort)",
    "the connection was closed before the whole answer came",
    "HTTP 503 (in an answer with status 200): the answer holds no choices: no healthy upstream",
    "HTTP 500: boom",
    "HTTP 404: Your organization must be verified to use the model",
    "HTTP 400: The model requires terms acceptance",
    "HTTP 404: This is not a chat model. Did you mean to use v1/completions?",
    "HTTP 400: default chat template is no longer allowed, so you must provide one",
    "HTTP 400: API key not valid. Please pass a valid API key.",
    "HTTP 400: User location is not supported for the API use.",
    "HTTP 404: No models loaded. Please load a model",
    "HTTP 400: The model has crashed without additional information",
    "HTTP 500: model requires more system memory (5.3 GiB) than is available",
    "HTTP 400: Function id 'x': DEGRADED function cannot be invoked",
    "HTTP 400: Expected last role User or Tool but got assistant",
    "HTTP 400: max_tokens must be at least 1, got -186.",
    "HTTP 400: Could not finish the message because max_tokens was reached: higher max_tokens",
    "HTTP 400: tokens to keep from the prompt is greater than the context length",
    "HTTP 422: `inputs` tokens + `max_new_tokens` must be <= 4096",
    "HTTP 400: After the (optional) system message(s), user and assistant roles should be alternating.",
    "HTTP 404: No endpoints found matching your data policy (Free model training)",
    "HTTP 403: Vertex AI API has not been used in project 123 before or it is disabled",
    "HTTP 403: The endpoint is disabled due to a rate limit set to 0",
    "HTTP 446: The guardrail checks defined in the config failed",
    "HTTP 400: Range of input length should be [1, 30720]",
    "HTTP 400: Prompt \u8d85\u957f",
    "HTTP 422: `top_p` must be > 0.0 and < 1.0",
    "HTTP 400: The model `x` has been decommissioned",
    "HTTP 400: on-demand throughput: use an inference profile",
    "HTTP 400: Unable to access non-serverless model x",
    "HTTP 400: \u6a21\u578b\u4e0d\u5b58\u5728",
    "the answer is not JSON but a web page: Sign in",
)


def of_errors() -> Iterator[str]:
    for error in ERRORS:
        yield f"{error}"
        yield f"  model: {hint_for(error, MODEL_ROLE)}"
        yield f"  judge: {hint_for(error, 'gpt')}"
        yield f"  the same command would fail again: {is_permanent(error)}"


def of_answers() -> Iterator[str]:
    for kind in Unreadable:
        (screen,) = unreadable_reasons(4, 10, 0.1, {kind: 4})
        yield f"{kind.value}: {screen}"
    yield f"length: {cut_off_advice(5, 5)}"
    yield f"length, window full: {cut_off_advice(4096, 900)}"


def of_stops() -> Iterator[str]:
    model = StopMessages.of(endpoint_settings(key_names=("MY_KEY",)), URL, {"MY_KEY": "x"})
    for status in (401, 403, 404):
        yield model.refused(status, "no")
    yield model.refused(403, "error code: 1010")
    yield model.refused(404, "No endpoints found matching your data policy")
    yield model.refused(
        403, "Vertex AI API has not been used in project 1 before or it is disabled"
    )
    yield model.refused_preflight(400, "roles must alternate")
    yield model.no_credit(402, "Insufficient Balance")
    yield model.long_limit(429, "Too many tokens per day", None)
    limit = model.long_limit(429, "tokens per day", 7200.0)
    yield re.sub(r"until .*", "until DATE", limit, count=1)
    yield model.none_answered(2, ["HTTP 400: odd"] * 2)


def test_each_cause_has_the_screen_that_is_recorded() -> None:
    text = "\n".join([*of_errors(), "", *of_answers(), "", *of_stops(), ""])
    if os.environ.get("EVAL_FACTORY_UPDATE_GOLDEN"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text("utf-8") == text


def test_each_row_of_the_table_is_on_a_screen() -> None:
    shown = {remedy_for(error) for error in ERRORS}
    for row in remedies():
        assert row in shown, row.judge
