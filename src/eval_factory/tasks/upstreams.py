"""Lists the upstreams: the HELM distributions, each in one version, that eval-factory can run."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Upstream:
    """A HELM distribution that can be run, in one exact version.

    The patches, the errata and the index of run specs were checked with this version only.
    """

    name: str  # the value of `config.params.extra.upstream` (except for `HEIM`)
    package: str  # the distribution's name on PyPI
    version: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


HELM = Upstream("helm", "crfm-helm", "0.5.16")
"""Stanford's HELM, the default; installed in the same environment as eval-factory."""
MEDHELM = Upstream("medhelm", "medhelm", "0.8.0")
"""The medical successor of HELM, maintained by others. medhelm also has the import name `helm`, so
it needs an environment of its own.
"""
UPSTREAMS = {upstream.name: upstream for upstream in (HELM, MEDHELM)}
"""A dict from name to upstream: the upstreams that `config.params.extra.upstream` can choose."""
HEIM = Upstream("heim", HELM.package, HELM.version)
"""The same crfm-helm in an environment of its own, with the packages that its picture metrics
import (torch and more). A run config cannot name HEIM: if HEIM is installed, runs whose answers are
pictures use it.
"""
UPSTREAMS_WITH_HEIM = {**UPSTREAMS, HEIM.name: HEIM}
"""A dict from name to upstream, for the upstreams of `UPSTREAMS` and `HEIM`."""

DIFFERENCES_FROM_HELM = {
    "ehr_sql": (
        "medhelm leaves out the 950 questions that no query answers (1,959 of 2,909 are left), "
        "sets the time of asking in the gold query, and does not use stated values as results: "
        "a score cannot be compared with crfm-helm's"
    ),
    "shc_proxy_med": (
        "medhelm asks who wrote a message (A patient, B proxy, C unclear), where crfm-helm "
        "asks whether a proxy did (A yes, B no): the same letters mean something else, and a "
        "score cannot be compared with crfm-helm's"
    ),
    "vqa_rad": (
        "medhelm adds a sentence to the instruction (a short answer): a score cannot be compared "
        "with crfm-helm's"
    ),
}
"""A dict from a run spec that both upstreams have to the reason why its score by medhelm cannot be
compared with its score by crfm-helm.
"""
