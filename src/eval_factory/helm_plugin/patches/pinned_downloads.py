"""HELM's downloads: at the revisions of our table of sources, and with file and place where they fail."""

from __future__ import annotations

import os
from typing import Any

from eval_factory.core.helm_run_settings import HelmRunSettings, Pins
from eval_factory.helm_plugin.patches import hub_revisions

_PROGRAM_FAILED = "Failed with exit code"
"""What HELM says, as a bare Exception, where wget or gdown failed."""


class DownloadError(Exception):
    """A file of a scenario could not be downloaded. The message names it; it holds no prompt."""


def download_as_told() -> None:
    """Before a scenario is imported: it takes HELM's function along."""
    from helm.common import general

    pins = HelmRunSettings.from_environment(os.environ).pins or Pins()
    download = general.ensure_file_downloaded

    def download_pinned(source_url: str, target_path: str, unpack: bool = False, **kwargs: Any) -> Any:
        url = pins.files.get(source_url, source_url)
        try:
            return download(url, target_path, unpack, **kwargs)
        except Exception as error:
            if not isinstance(error, OSError) and _PROGRAM_FAILED not in str(error):
                raise
            how = "unpack it yourself as" if unpack else "put it yourself at"
            reason = str(error) if type(error) is Exception else f"{type(error).__name__}: {error}"
            raise DownloadError(
                f"{url} could not be downloaded ({reason}); to do without the network, {how} {target_path}"
            ) from None

    general.ensure_file_downloaded = download_pinned
    hub_revisions.pin(pins.hub)
