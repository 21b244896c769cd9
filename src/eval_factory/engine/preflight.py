"""One cheap question before helm-run starts: is the endpoint there, does the key work, is the model known."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict

from eval_factory.engine import wire
from eval_factory.engine.asking import Asker, RequestFailed, StopAsking
from eval_factory.engine.auth import sign_in
from eval_factory.engine.transport import Transport
from eval_factory.errors import PrerequisiteError
from eval_factory.plan import EndpointPlan
from eval_factory.results import MODEL_ROLE
from eval_factory.secrets import Redactor, filled, first_secret

PROMPT = "ping"
TIMEOUT_S = 10.0


def probe(endpoint: EndpointPlan, env: Mapping[str, str], redactor: Redactor, say: Callable[[str], None]) -> str | None:
    """Ask for one token. Returns what was odd but need not stop a run: a slow or busy endpoint may answer later.

    `say` is told how a sign-in goes.

    Raises:
        PrerequisiteError: nobody answers, the key or the model is refused.
    """
    key, url = first_secret(env, endpoint.key_names), filled(endpoint.url, env)
    oauth = None if endpoint.oauth is None else asdict(endpoint.oauth)
    asker = Asker(
        Transport(url, timeout_s=min(TIMEOUT_S, endpoint.request_timeout), connections=1),
        url=wire.request_url(url, endpoint.type, use_nvcf=endpoint.use_nvcf),
        endpoint_type=endpoint.type,
        model_id=endpoint.model_id,
        max_retries=0,
        parallelism=1,
        use_nvcf=endpoint.use_nvcf,
        redactor=redactor,
        sign_in=sign_in(key=key, oauth=oauth, env=env, redactor=redactor, say=say),
    )
    request = {"prompt": PROMPT, "max_tokens": 1, "temperature": 0.0}
    body = wire.request_body(
        request, model_id=endpoint.model_id, endpoint_type=endpoint.type, top_p=endpoint.top_p,
        adapter=wire.Adapter(**{**endpoint.adapter, "params_to_add": filled(endpoint.adapter["params_to_add"], env)}),
    )  # fmt: skip
    who = "" if endpoint.role == MODEL_ROLE else f"judge {endpoint.role}: "
    try:
        asker.ask(body, lambda *_: None)
    except StopAsking as error:
        raise PrerequisiteError(f"{who}{error}") from error
    except RequestFailed as error:
        return f"{who}the probe was not answered: {error}"
    return None
