"""The name that several servers of one model have together, by which their answers are kept.

It is the URL of the first that was asked. run_config.yml remembers it, and every server that was one of them: a list in
another order, with one more or one less, is the same target, and so is a single URL that others are put beside.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from eval_factory.config.evaluation import Evaluation
from eval_factory.config.model import urls_in
from eval_factory.core.nouns import MODEL_ROLE
from eval_factory.core.plain_yaml import YamlError, parse_own
from eval_factory.core.rundir import RunDir
from eval_factory.endpoint.endpoint_settings import EndpointSettings
from eval_factory.endpoint.openai_api import base_of

KEPT_BY = "answers_kept_by"
"""The section of run_config.yml; only where there were several servers."""


@dataclass(frozen=True)
class SameServers:
    """Of one role."""

    url: str
    """Their name."""
    servers: tuple[str, ...]
    """Every one that has been among them."""

    def has_one_of(self, urls: Iterable[str]) -> bool:
        known = set(map(base_of, self.servers))
        return any(base_of(url) in known for url in urls)


def servers_before(evaluation: Evaluation, rundir: RunDir) -> dict[str, SameServers]:
    """Role -> the servers of the folder's last run; nothing where neither this run nor that one has several."""
    endpoint, judges = evaluation.run.target.api_endpoint, evaluation.run.config.params.extra.judges or []
    several = any(len(urls_in(url)) > 1 for url in (endpoint.url, *(judge.url for judge in judges)))
    try:
        text = rundir.run_config.read_text(encoding="utf-8")
        if not several and f"\n{KEPT_BY}:" not in text:
            return {}
        document = parse_own(text)
        if KEPT_BY in document:
            return {role: SameServers(one["url"], tuple(one["servers"])) for role, one in document[KEPT_BY].items()}
        roles = [MODEL_ROLE, *evaluation.task.helm.judges, *evaluation.task.helm.prescribed_judges]
        asked = urls_in(document["target"]["api_endpoint"]["url"])
        judges_before = document["config"]["params"]["extra"]["judges"] or ()
        own = {judge["name"]: urls_in(judge.get("url")) for judge in judges_before}
        before = {**dict.fromkeys((*roles, *own), asked), **{role: urls for role, urls in own.items() if urls}}
        return {role: SameServers(urls[0], urls) for role, urls in before.items()}
    except (OSError, UnicodeDecodeError, YamlError, LookupError, TypeError, AttributeError):
        return {}


def named(urls: Sequence[str], before: SameServers | None) -> tuple[str, tuple[str, ...]]:
    """The name of these servers, and they themselves; none where they are one with its own name."""
    name = before.url if before is not None and before.has_one_of(urls) else urls[0]
    return name, () if tuple(urls) == (name,) else tuple(urls)


def kept_by(endpoints: Iterable[EndpointSettings], before: Mapping[str, SameServers]) -> dict[str, Any]:
    """The section of run_config.yml; empty where each endpoint is one server, as it always was."""
    found = {}
    for one in endpoints:
        known = before.get(one.role)
        earlier = known.servers if known is not None and known.url == one.url else ()
        servers = list(dict.fromkeys((*earlier, *one.urls)))
        if servers != [one.url]:
            found[one.role] = {"url": one.url, "servers": servers}
    return found
