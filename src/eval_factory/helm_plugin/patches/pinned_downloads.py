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


def read_pinned_revisions() -> None:
    """Of files and data sets. Before a scenario is imported: it takes HELM's function along."""
    from helm.common import general

    pins = HelmRunSettings.from_environment(os.environ).pins or Pins()
    download = general.ensure_file_downloaded

    def download_pinned(source_url: str, *args: Any, **kwargs: Any) -> Any:
        return download(pins.files.get(source_url, source_url), *args, **kwargs)

    general.ensure_file_downloaded = download_pinned
    hub_revisions.pin(pins.hub)


def name_failed_downloads() -> None:
    """A download that fails says which file it was, and where it belongs. Before a scenario is imported, too."""
    from helm.common import general

    download = general.ensure_file_downloaded

    def download_or_say(source_url: str, target_path: str, unpack: bool = False, **kwargs: Any) -> Any:
        try:
            return download(source_url, target_path, unpack, **kwargs)
        except Exception as error:
            if not isinstance(error, OSError) and _PROGRAM_FAILED not in str(error):
                raise
            how = "unpack it yourself as" if unpack else "put it yourself at"
            reason = str(error) if type(error) is Exception else f"{type(error).__name__}: {error}"
            raise DownloadError(
                f"{source_url} could not be downloaded ({reason}); to do without the network, {how} {target_path}"
            ) from None

    general.ensure_file_downloaded = download_or_say
