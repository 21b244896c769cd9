"""The upstreams: which HELM a run is of, by `config.params.extra.upstream`."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Upstream:
    """A HELM that can be run, in the one version that patches, errata and the index of run specs were checked with."""

    name: str
    """As a run config says it."""
    package: str
    version: str

    def __str__(self) -> str:
        return f"{self.package} {self.version}"


HELM = Upstream("helm", "crfm-helm", "0.5.16")
"""Stanford's, the default; it lives in the environment of eval-factory."""
MEDHELM = Upstream("medhelm", "medhelm", "0.8.0")
"""Its medical successor, under another owner. It installs the import name `helm` too, and so lives elsewhere."""
UPSTREAMS = {one.name: one for one in (HELM, MEDHELM)}
