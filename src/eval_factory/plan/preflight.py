"""One cheap question before helm-run starts: is the endpoint there, does the key work, is the model known."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.core.failure_causes import shortened
from eval_factory.core.redaction import Redactor
from eval_factory.core.results import MODEL_ROLE
from eval_factory.core.secrets import filled, first_secret
from eval_factory.endpoint import openai_api
from eval_factory.endpoint.retrying_client import RETRIED_STATUSES, Asker, RequestFailed, StopAsking
from eval_factory.endpoint.sign_in import sign_in
from eval_factory.endpoint.stop_messages import StopMessages, messages_of
from eval_factory.endpoint.transport import Transport
from eval_factory.plan.run_plan import EndpointPlan

PROMPT = "ping"
TIMEOUT_S = 10.0
FEW_TOKENS, MORE_TOKENS = 1, 512
"""One is the cheapest; models that think first, and gateways that have a least number, refuse so few."""
REFUSALS_OF_A_BODY = frozenset({400, 422})

_OF_TOKENS = re.compile(r"max_\w*tokens|output limit", re.IGNORECASE)


def probe(endpoint: EndpointPlan, env: Mapping[str, str], redactor: Redactor, say: Callable[[str], None]) -> str | None:
    """Ask for one token. Returns what was odd but need not stop a run: a slow or busy endpoint may answer later.

    `say` is told how a sign-in goes.

    Raises:
        PrerequisiteError: nobody answers, or the endpoint refuses the key, the model or the request: with any 4xx
            that another try cannot mend.
    """
    url = filled(endpoint.url, env)
    asked_url = openai_api.request_url(url, endpoint.type, use_nvcf=endpoint.use_nvcf)
    oauth = None if endpoint.oauth is None else asdict(endpoint.oauth)
    signed = sign_in(key=first_secret(env, endpoint.key_names), oauth=oauth, env=env, redactor=redactor, say=say)
    messages = messages_of(endpoint.role, redactor.text(asked_url), endpoint.model_id, endpoint.key_names, oauth, env)
    asker = Asker(
        Transport(url, timeout_s=min(TIMEOUT_S, endpoint.request_timeout), connections=1),
        url=asked_url,
        endpoint_type=endpoint.type,
        max_retries=0,
        parallelism=1,
        use_nvcf=endpoint.use_nvcf,
        redactor=redactor,
        sign_in=signed,
        messages=messages,
    )
    refusal = _asked(asker, _body(endpoint, env, FEW_TOKENS))
    if refusal is not None and refusal.status in REFUSALS_OF_A_BODY:
        refusal = _asked(asker, _body(endpoint, env, MORE_TOKENS))
    return None if refusal is None else _judged(refusal, messages, endpoint)


def _asked(asker: Asker, body: Mapping[str, Any]) -> RequestFailed | None:
    try:
        asker.ask(body, lambda *_: None)
    except StopAsking as error:
        raise PrerequisiteError(str(error)) from error
    except RequestFailed as error:
        return error
    return None


def _judged(refusal: RequestFailed, messages: StopMessages, endpoint: EndpointPlan) -> str:
    """A warning, where a benchmark's own requests may be answered all the same."""
    status = refusal.status or 0
    of_tokens = status in REFUSALS_OF_A_BODY and _OF_TOKENS.search(refusal.said)
    if 400 <= status < 500 and status not in RETRIED_STATUSES and not of_tokens:
        raise PrerequisiteError(messages.refused_probe(status, refusal.said))
    who = "" if endpoint.role == MODEL_ROLE else f"judge {endpoint.role}: "
    stop = endpoint.stop_after_failures
    after = f"; the run begins all the same, and stops where its first {stop} requests all fail" if stop else ""
    return f"{who}the probe was not answered: {shortened(refusal.cause)}{after}"


def _body(endpoint: EndpointPlan, env: Mapping[str, str], tokens: int) -> dict[str, Any]:
    adapter = {**endpoint.adapter, "params_to_add": filled(endpoint.adapter["params_to_add"], env)}
    return openai_api.request_body(
        {"prompt": PROMPT, "max_tokens": tokens, "temperature": 0.0}, model_id=endpoint.model_id,
        endpoint_type=endpoint.type, top_p=endpoint.top_p, adapter=openai_api.Adapter(**adapter),
    )  # fmt: skip
