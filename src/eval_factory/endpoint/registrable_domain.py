"""Decides from their names whether two hosts have the same owner.

Two hosts have the same owner if they are the same host, or have the same registrable domain.

A public suffix is a domain under which anybody may register a name. This module lists only those
suffixes of publicsuffix.org under which endpoints are seen. The complete list has 10,000 entries,
is under the MPL, and changes every week. Under a country's domain, every short label counts as a
suffix too (`co.uk`), unless that country registers names directly under its domain (`api.hub.de`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from urllib.parse import urlsplit

from eval_factory.endpoint.endpoint_settings import EndpointSettings, OAuthSettings

_SHARED_SUFFIXES = frozenset(
    {
        "aliyuncs.com",
        "amazonaws.com",
        "amplifyapp.com",
        "anyscaleuserdata.com",
        "appspot.com",
        "awsapprunner.com",
        "azure-api.net",
        "azure.com",
        "azurecontainerapps.io",
        "azuredatabricks.net",
        "azurestaticapps.net",
        "azurewebsites.net",
        "baseten.co",
        "beam.cloud",
        "blogspot.com",
        "bplaced.net",
        "cerebrium.ai",
        "cloud.goog",
        "cloudapp.net",
        "cloudfront.net",
        "cloudfunctions.net",
        "code.run",
        "databricks.com",
        "ddns.net",
        "deno.dev",
        "deno.net",
        "duckdns.org",
        "dyndns.org",
        "elasticbeanstalk.com",
        "firebaseapp.com",
        "fly.dev",
        "github.io",
        "gitlab.io",
        "glitch.me",
        "googleapis.com",
        "gradio.live",
        "herokuapp.com",
        "hf.space",
        "hosting.ovh.net",
        "huggingface.cloud",
        "koyeb.app",
        "lepton.run",
        "lhr.life",
        "loca.lt",
        "localtunnel.me",
        "modal.host",
        "modal.run",
        "myhuaweicloud.com",
        "netlify.app",
        "ngrok-free.app",
        "ngrok-free.dev",
        "ngrok.app",
        "ngrok.dev",
        "ngrok.io",
        "nip.io",
        "on.aws",
        "ondigitalocean.app",
        "onrender.com",
        "oraclecloud.com",
        "ovh.net",
        "pages.dev",
        "proxy.runpod.net",
        "r2.dev",
        "railway.app",
        "repl.co",
        "replit.app",
        "replit.dev",
        "run.app",
        "runpod.net",
        "scw.cloud",
        "serveo.net",
        "snowflakecomputing.com",
        "sslip.io",
        "streamlit.app",
        "supabase.co",
        "surge.sh",
        "trycloudflare.com",
        "ts.net",
        "vercel.app",
        "web.app",
        "windows.net",
        "workers.dev",
    }
)
"""Suffixes under which each customer of a provider gets a name.

Two hosts under such a suffix have the same owner only if the hosts are equal.
"""
_MAX_SECOND_LEVEL_LENGTH = 4  # letters of labels such as co, com, org, gov, ac and asso
_COUNTRIES_WITH_DIRECT_NAMES = frozenset(
    {"ai", "be", "ch", "cz", "de", "dk", "eu", "fi", "io", "li", "lu", "nl"}
)
"""Top-level domains under which anybody may register a short name.

Under them, only the usual labels (`_USUAL_SECOND_LEVELS`) count as suffixes.
"""
_USUAL_SECOND_LEVELS = frozenset(
    {"ac", "co", "com", "edu", "gov", "mil", "net", "nom", "off", "org"}
)


def host_of(url: str) -> str:
    """Return the host of a URL in lower case; other alphabets are encoded in Punycode."""
    host = (urlsplit(url).hostname or "").rstrip(".").lower()  # empty if the URL has no host
    try:
        return host.encode("idna").decode()
    except UnicodeError:  # the host is not a valid name
        return host


def registrable_domain(host: str) -> str | None:
    """Return the registrable domain of a host: the public suffix and one label before it.

    Return None for an IP address, a name without a dot, a public suffix, and a host under one of
    `_SHARED_SUFFIXES`.
    """
    labels = host.split(".")
    is_ip_address = ":" in host or re.fullmatch(r"[\d.]+", host) is not None
    if is_ip_address or len(labels) < 2:
        return None
    # The listed suffixes have two or three labels.
    if any(".".join(labels[-count:]) in _SHARED_SUFFIXES for count in (2, 3)):
        return None
    suffix_length = 1  # in labels
    if _is_public_suffix(labels[-2], labels[-1]):
        suffix_length = 2
    if len(labels) == suffix_length:  # the host itself is a public suffix
        return None
    domain_length = suffix_length + 1
    return ".".join(labels[-domain_length:])


def _is_public_suffix(second_level: str, top_level: str) -> bool:
    """Return True if `second_level.top_level` probably is a public suffix, such as `co.uk`."""
    if top_level in _COUNTRIES_WITH_DIRECT_NAMES:
        return second_level in _USUAL_SECOND_LEVELS
    is_country = len(top_level) == 2
    return is_country and len(second_level) <= _MAX_SECOND_LEVEL_LENGTH


def is_of_one_owner(url: str, other_url: str) -> bool:
    """Return True if the hosts of two URLs have the same owner."""
    host = host_of(url)
    other_host = host_of(other_url)
    if not host or not other_host:
        return False
    if host == other_host:
        return True
    domain = registrable_domain(host)
    return domain is not None and domain == registrable_domain(other_host)


def fallback_service(
    settings: EndpointSettings, services: Sequence[OAuthSettings]
) -> OAuthSettings | None:
    """Return the service whose tokens are sent after an endpoint has refused its key.

    Return the first service whose token URL has the same owner as all URLs of the endpoint. Return
    None if there is no such service, if the configuration says that no key is sent, or if the
    configuration names a service itself.
    """
    if settings.oauth is not None or not settings.key_names:
        return None
    for service in services:
        url = service.token_url
        if url and all(is_of_one_owner(asked_url, url) for asked_url in settings.urls):
            return service
    return None
