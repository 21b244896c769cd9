"""A revision for what HELM reads from a branch that moves: the one in our table of sources, told by the environment."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

from eval_factory.mends import hub

VARIABLE = "EVAL_FACTORY_PINS"
"""JSON: {"files": {URL that HELM asks for: the same file at a commit}, "hub": {data set: revision}}."""


def variables(files: Mapping[str, str], datasets: Mapping[str, str]) -> dict[str, str]:
    """What tells helm-run; nothing where there is nothing to pin."""
    return {VARIABLE: json.dumps({"files": dict(files), "hub": dict(datasets)})} if files or datasets else {}


def take_pinned_revisions() -> None:
    """Before a scenario is imported: it takes HELM's function along."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    from helm.common import general

    pins = json.loads(text)
    download = general.ensure_file_downloaded

    def download_pinned(source_url: str, *args: Any, **kwargs: Any) -> Any:
        return download(pins["files"].get(source_url, source_url), *args, **kwargs)

    general.ensure_file_downloaded = download_pinned
    hub.pin(pins["hub"])
