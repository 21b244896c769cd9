"""Finds the hosts that an offline run may contact, and the proxies on the way to them.

An offline run may contact only the hosts of its endpoints. A proxy cannot bypass this rule:
helm-run gets no proxy variables, but only the proxy of each endpoint.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from urllib.parse import urlsplit

from eval_factory.core.helm_run_settings import HelmRunSettings
from eval_factory.core.secrets import variable_of
from eval_factory.core.urls import SERVED_AT, host_and_port_of, server_urls
from eval_factory.data.hub import HF_OFFLINE
from eval_factory.plan.run_plan import Plan

NO_URL = ""  # has no host; `urls_to_contact` leaves it out


def urls_to_contact(plan: Plan, env: Mapping[str, str]) -> list[str]:
    """Return all URLs that a run has to contact.

    These are the URLs of its endpoints, of their OAuth tokens, and of the status of NVIDIA's cloud
    functions (NVCF). URLs without a host are left out.
    """
    urls: list[str] = []
    for endpoint in plan.endpoints:
        for url in endpoint.urls:
            # A model that its suite serves has a URL of the scheme `served`. The variable
            # `SERVED_AT` has the addresses of the model's servers. It is set only for processes
            # that ask the model. Without this variable, the URL is left out below.
            urls += server_urls(url, env) if env.get(SERVED_AT) else [url]
        if endpoint.oauth is not None:
            token_url = env.get(variable_of(endpoint.oauth.service, "TOKEN_URL"))
            urls.append(token_url or endpoint.oauth.token_url or NO_URL)
        if endpoint.use_nvcf:
            # only here: most runs do not use NVCF
            from eval_factory.endpoint.retrying_client import (
                NVCF_STATUS_URL,
                NVCF_STATUS_URL_VARIABLE,
            )

            urls.append(env.get(NVCF_STATUS_URL_VARIABLE) or NVCF_STATUS_URL)
    reachable: list[str] = []
    for url in dict.fromkeys(urls):
        if host_and_port_of(url) is not None:
            reachable.append(url)
    return reachable


def offline_settings(
    settings: HelmRunSettings, plan: Plan, env: Mapping[str, str]
) -> HelmRunSettings:
    """Return the settings of an offline run: with the allowed hosts, and each origin's proxy."""
    from eval_factory.endpoint.proxies import proxy_from_environment  # imports requests

    urls = urls_to_contact(plan, env)
    proxy_of_origin = {}
    for url in urls:
        proxy = proxy_from_environment(url)
        if proxy:
            parts = urlsplit(url)
            proxy_of_origin[f"{parts.scheme}://{parts.netloc}"] = proxy
    allowed_hosts = []
    for url in (*urls, *proxy_of_origin.values()):
        host = host_and_port_of(url)
        if host is not None and host not in allowed_hosts:
            allowed_hosts.append(host)
    variables = {**settings.library_variables, **HF_OFFLINE}
    return replace(
        settings, allowed=tuple(allowed_hosts), proxies=proxy_of_origin, library_variables=variables
    )
