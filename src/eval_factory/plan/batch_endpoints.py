"""Makes the object that asks an endpoint's batch API, and checks that the endpoint has one.

Also makes the error for a request that the batch API refuses.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.errors import EndpointRefusedError, EndpointUnreachableError
from eval_factory.core.secrets import Redactor, fill_variables
from eval_factory.core.urls import base_of, server_urls
from eval_factory.endpoint.batch_api import NO_SUCH_ADDRESS_STATUSES, BatchApi, BatchApiError
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.servers import make_servers
from eval_factory.tasks.oauth_services import oauth_services_in


def batch_api_of(
    endpoint: EndpointSettings,
    env: Mapping[str, str],
    redactor: Redactor,
    say: Callable[[str], None],
) -> BatchApi:
    """Return the object that asks the batch API of an endpoint.

    Args:
        endpoint: an endpoint with only one URL.
        env: the environment variables, with the key.
        redactor: gets the key, so that messages do not show it.
        say: gets messages about a sign-in.
    """
    servers = make_servers(
        endpoint, env=env, redactor=redactor, say=say, services=oauth_services_in(env)
    )
    # There is one URL, so there is one server.
    (address,) = server_urls(fill_variables(endpoint.url, env), env)
    return BatchApi(servers, base_of(address), redactor)


def check_batch_api(
    endpoint: EndpointSettings,
    env: Mapping[str, str],
    redactor: Redactor,
    say: Callable[[str], None],
) -> None:
    """Check that an endpoint has a batch API. The check costs no tokens.

    Args:
        endpoint: an endpoint with only one URL.
        env: the environment variables, with the key.
        redactor: gets the key, so that messages do not show it.
        say: gets messages about a sign-in.

    Raises:
        EndpointRefusedError: the endpoint has no batch API, or refuses the key.
        EndpointUnreachableError: the endpoint does not answer, or its answer is not JSON.
    """
    try:
        batch_api_of(endpoint, env, redactor, say).check()
    except BatchApiError as error:
        if error.status is None:
            raise EndpointUnreachableError(str(error)) from None
        raise batch_refusal(endpoint.role, error) from None


def batch_refusal(role: str, error: BatchApiError) -> EndpointRefusedError:
    """Return the error that explains why an endpoint refused a request of its batch API.

    The endpoint may have no batch API, or refuse the key or this request.
    """
    setting = "target.api_endpoint.batch"
    if role != MODEL_ROLE:
        setting = f"batch in the entry {role} of config.params.extra.judges"
    if error.status in NO_SUCH_ADDRESS_STATUSES:
        return EndpointRefusedError(f"{error}\n  the endpoint has no batches: leave out {setting}")
    if error.status in (401, 403):
        return EndpointRefusedError(
            f"Authentication error detected: {error}\n  check the key, and whether it may make "
            f"batches; or leave out {setting}"
        )
    return EndpointRefusedError(f"{error}\n  correct what the error names, or leave out {setting}")
