"""Which hosts an offline run may contact.

Proxies are no way round: helm-run does not see the variables that name them, only which proxy leads to which endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.secrets import variable_of
from eval_factory.core.urls import SERVED_AT, place_of, reached
from eval_factory.data.hub import HF_OFFLINE
from eval_factory.plan.run_plan import Plan


def urls_of(plan: Plan, env: Mapping[str, str]) -> list[str]:
    """Everything that a run has to ask: endpoints, where their tokens come from, the cloud functions' status."""
    urls: list[str] = []
    for endpoint in plan.endpoints:
        for url in endpoint.urls:
            urls += reached(url, env) if env.get(SERVED_AT) else [url]
        if endpoint.oauth is not None:
            urls.append(env.get(variable_of(endpoint.oauth.service, "TOKEN_URL")) or endpoint.oauth.token_url or "")
        if endpoint.use_nvcf:
            from eval_factory.endpoint.retrying_client import NVCF_STATUS_URL, NVCF_STATUS_URL_VARIABLE

            urls.append(env.get(NVCF_STATUS_URL_VARIABLE) or NVCF_STATUS_URL)
    return [url for url in dict.fromkeys(urls) if place_of(url) is not None]


def offline(settings: HelmRunSettings, plan: Plan, env: Mapping[str, str]) -> HelmRunSettings:
    """The same, told that it is offline, and which proxy leads where."""
    from eval_factory.endpoint.http_wire import proxy_from_environment  # imports requests

    urls = urls_of(plan, env)
    proxies = {url: proxy for url in urls if (proxy := proxy_from_environment(url))}
    places = [place for url in (*urls, *proxies.values()) if (place := place_of(url)) is not None]
    leading = {f"{urlsplit(url).scheme}://{urlsplit(url).netloc}": proxy for url, proxy in proxies.items()}
    libraries = {**settings.libraries, **HF_OFFLINE}
    return replace(settings, allowed=tuple(dict.fromkeys(places)), proxies=leading, libraries=libraries)
