"""Which hosts an offline run may contact.

Proxies are no way round: helm-run does not see the variables that name them, only which proxy leads to which endpoint.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from urllib.parse import urlsplit

from eval_factory.core.secrets import variable_of
from eval_factory.helm_plugin.network_guard import ALLOWED_VARIABLE, place_of
from eval_factory.plan.run_plan import Plan


def urls_of(plan: Plan, env: Mapping[str, str]) -> list[str]:
    """Everything that a run has to ask: endpoints, where their tokens come from, the cloud functions' status."""
    from eval_factory.endpoint.retrying_client import NVCF_STATUS_URL, NVCF_STATUS_URL_VARIABLE

    urls = []
    for endpoint in plan.endpoints:
        urls.append(endpoint.url)
        if endpoint.oauth is not None:
            urls.append(env.get(variable_of(endpoint.oauth.service, "TOKEN_URL")) or endpoint.oauth.token_url or "")
        if endpoint.use_nvcf:
            urls.append(env.get(NVCF_STATUS_URL_VARIABLE) or NVCF_STATUS_URL)
    return [url for url in dict.fromkeys(urls) if place_of(url) is not None]


def variables_for(plan: Plan, env: Mapping[str, str]) -> dict[str, str]:
    """What tells helm-run that it is offline, and which proxy leads where."""
    from eval_factory.endpoint.transport import PROXIES_VARIABLE, proxy_from_environment

    urls = urls_of(plan, env)
    proxies = {url: proxy for url in urls if (proxy := proxy_from_environment(url))}
    places = [place for url in (*urls, *proxies.values()) if (place := place_of(url)) is not None]
    leading = {f"{urlsplit(url).scheme}://{urlsplit(url).netloc}": proxy for url, proxy in proxies.items()}
    return {ALLOWED_VARIABLE: json.dumps(list(dict.fromkeys(places))), PROXIES_VARIABLE: json.dumps(leading)}
