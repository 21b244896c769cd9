"""Names the servers of each role, and stores these names in the output folder.

The role of an endpoint is `model` or the name of a judge.

Several servers may serve the same model. The stored answers of a folder belong to all servers of a
role together, so these servers have one name: the URL of the first server. The name stays when
servers are added or removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval_factory.config.resolved import Evaluation
from eval_factory.config.rules import prescribed_judges_by_role
from eval_factory.config.value_types import urls_in
from eval_factory.core.enums import MODEL_ROLE
from eval_factory.core.plain_yaml import YamlError, parse_own_text
from eval_factory.core.rundir import RunDir
from eval_factory.core.urls import base_of
from eval_factory.endpoint.endpoint_settings import EndpointSettings

SERVERS_SECTION = "answers_kept_by"
"""The section of run_config.yml that lists the servers whose answers are stored in the folder.

The section exists only if an endpoint has or had several servers.
"""


@dataclass(frozen=True)
class RoleServers:
    """The servers of a role, which serve the same model."""

    url: str  # the URL of the first server, which is the name of all servers together
    servers: tuple[str, ...]  # the URLs of all current and earlier servers


def read_earlier_servers(evaluation: Evaluation, rundir: RunDir) -> dict[str, RoleServers]:
    """Return the servers of the folder's last run, by role.

    Returns an empty dict if no endpoint has or had several servers, or if the folder has no
    run_config.yml that can be read.
    """
    judges = evaluation.extra.judges or []
    url_settings = [evaluation.endpoint.url, *(judge.url for judge in judges)]
    has_several = any(len(urls_in(setting)) > 1 for setting in url_settings)
    try:
        text = rundir.run_config.read_text(encoding="utf-8")
        # A search in the text is much faster than reading the YAML.
        if not has_several and f"\n{SERVERS_SECTION}:" not in text:
            return {}
        document = parse_own_text(text)
        if SERVERS_SECTION not in document:
            return _configured_servers(evaluation, document)
        servers = {}
        for role, entry in document[SERVERS_SECTION].items():
            servers[role] = RoleServers(entry["url"], tuple(entry["servers"]))
        return servers
    # The file may be damaged, or of a version with other keys.
    except (OSError, UnicodeDecodeError, YamlError, LookupError, TypeError, AttributeError):
        return {}


def _configured_servers(
    evaluation: Evaluation, document: Mapping[str, Any]
) -> dict[str, RoleServers]:
    """Return the servers that a run_config.yml without `SERVERS_SECTION` configures, by role."""
    helm = evaluation.task.helm
    target_urls = urls_in(document["target"]["api_endpoint"]["url"])
    urls_of_judges = {}
    for judge in document["config"]["params"]["extra"]["judges"] or ():
        urls_of_judges[judge["name"]] = urls_in(judge.get("url"))
    prescribed = prescribed_judges_by_role(helm.prescribed_judges)
    servers = {}
    for role in (MODEL_ROLE, *helm.judges, *prescribed, *urls_of_judges):
        urls = urls_of_judges.get(role) or target_urls  # a judge without a URL is at the target
        servers[role] = RoleServers(urls[0], urls)
    return servers


def named_servers(urls: Sequence[str], earlier: RoleServers | None) -> tuple[str, tuple[str, ...]]:
    """Return the name of a role's servers, which is a URL, and the URLs of the servers.

    The name is the URL of the first server. If at least one server was among the earlier servers,
    the earlier name stays. The URLs are empty if there is only one server, whose URL is the name.
    """
    name = urls[0]
    if earlier is not None:
        earlier_bases = set(map(base_of, earlier.servers))
        if not earlier_bases.isdisjoint(map(base_of, urls)):
            name = earlier.url
    servers = tuple(urls)
    if servers == (name,):
        servers = ()
    return name, servers


def servers_section(
    endpoints: Iterable[EndpointSettings], earlier_servers: Mapping[str, RoleServers]
) -> dict[str, Any]:
    """Return the section of run_config.yml about endpoints with several servers.

    The section maps the role of an endpoint to the fields of its `RoleServers`. It is empty if each
    endpoint has, and always had, only one server.

    Args:
        endpoints: the endpoints of this run.
        earlier_servers: the servers of the folder's last run, by role.
    """
    section = {}
    for endpoint in endpoints:
        servers = list(endpoint.urls)
        earlier = earlier_servers.get(endpoint.role)
        if earlier is not None and earlier.url == endpoint.url:
            servers = [*earlier.servers, *endpoint.urls]
        servers = list(dict.fromkeys(servers))
        if servers != [endpoint.url]:
            section[endpoint.role] = {"url": endpoint.url, "servers": servers}
    return section
