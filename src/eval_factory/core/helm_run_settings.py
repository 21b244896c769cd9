"""What helm-run is told by variables, kept in a file too: for the printed command, pasted into a shell.

eval-factory sets the variables itself and writes the file beside the model files. A helm-run that somebody else started
takes them from there, before any package looks at them: over those of the shell, as eval-factory does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, MutableMapping, Sequence
from itertools import pairwise
from pathlib import Path

from eval_factory.core.events import RUN_ID_VARIABLE
from eval_factory.endpoint.transport import PROXIES_VARIABLE, proxy_from_environment
from eval_factory.helm import names
from eval_factory.helm_plugin.network_guard import PROXY_VARIABLES


def text_of(settings: Mapping[str, str]) -> str:
    """The file's content. Of proxies it holds what they lead to: their URLs may hold passwords."""
    variables = {name: value for name, value in settings.items() if name != PROXIES_VARIABLE}
    document: dict[str, object] = {"variables": variables}
    if PROXIES_VARIABLE in settings:
        document["through_proxies"] = list(json.loads(settings[PROXIES_VARIABLE]))
    return json.dumps(document, indent=2) + "\n"


def take_those_of_the_file(argv: Sequence[str], env: MutableMapping[str, str]) -> None:
    """Set the variables in `env`, unless eval-factory itself started this process.

    Raises:
        ValueError: the file is not ours.
    """
    if RUN_ID_VARIABLE in env:
        return
    path = _local_path(argv) / names.SETTINGS
    try:
        document = json.loads(path.read_text(encoding="utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        return
    env.update(document["variables"])
    if "through_proxies" in document:
        _leave_proxies_to_endpoints(document["through_proxies"], env)


def _local_path(argv: Sequence[str]) -> Path:
    """Where helm-run reads model files."""
    found = "prod_env"
    for before, argument in pairwise(argv):
        if before == "--local-path":
            found = argument
    return Path(found)


def _leave_proxies_to_endpoints(urls: Sequence[str], env: MutableMapping[str, str]) -> None:
    """Offline, the shell's proxies lead to these URLs and nowhere else."""
    proxies = {url: proxy for url in urls if (proxy := proxy_from_environment(url))}
    env[PROXIES_VARIABLE] = json.dumps(proxies)
    for name in PROXY_VARIABLES:
        env.pop(name, None)
