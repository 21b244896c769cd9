"""The settings of a run, for a helm-run that somebody starts by hand: taken from the file beside the model files."""

from __future__ import annotations

from collections.abc import MutableMapping, Sequence
from itertools import pairwise
from pathlib import Path

from eval_factory.core.helm_run_settings import PROXY_VARIABLES, HelmRunSettings, read_file
from eval_factory.endpoint.http_wire import proxy_from_environment
from eval_factory.helm import names


def take_settings_of_the_file(argv: Sequence[str], env: MutableMapping[str, str]) -> None:
    """Set the variables in `env`, over those of the shell, unless eval-factory itself started this process.

    Raises:
        ValueError: the file is not ours.
    """
    if HelmRunSettings.from_environment(env).run_id is not None:
        return
    try:
        found = read_file((_local_path(argv) / names.SETTINGS).read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return
    env.update(found.variables)
    if found.through_proxies is not None:
        proxies = {url: proxy for url in found.through_proxies if (proxy := proxy_from_environment(url))}
        env.update(HelmRunSettings(proxies=proxies).environment())
        for name in PROXY_VARIABLES:
            env.pop(name, None)


def _local_path(argv: Sequence[str]) -> Path:
    """Where helm-run reads model files."""
    found = "prod_env"
    for before, argument in pairwise(argv):
        if before == "--local-path":
            found = argument
    return Path(found)
