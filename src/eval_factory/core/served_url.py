"""`served://...`: the URL of a model whose server is started for its cells, on another port each time.

What is served is what is run, not where: so the URL names the command, and who asks finds the address in a variable.
The identity of a run and the keys of its answers hold the URL, and never the address.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from pathlib import PurePath
from urllib.parse import urlsplit

from eval_factory.core.errors import PrerequisiteError

SERVED_SCHEME = "served"
SERVED_AT = "EVAL_FACTORY_SERVED_AT"
"""The variable that says where the server is: `http://127.0.0.1:PORT`. Only the processes of its cells have it."""
_UNSAFE = re.compile(r"[^a-z0-9]+")
_LONGEST_NAME = 30


def served_url(command: str, path: str) -> str:
    """The URL of what a command serves under `path`; another command has another one, but for the blanks in it."""
    words = shlex.split(command)
    digest = hashlib.sha256("\0".join(words).encode()).hexdigest()[:12]
    program = _UNSAFE.sub("-", PurePath(words[0]).name.lower()).strip("-")[:_LONGEST_NAME] or "server"
    return f"{SERVED_SCHEME}://{program}-{digest}{path}"


def is_served(url: str) -> bool:
    return url.startswith(f"{SERVED_SCHEME}:")


def reached(url: str, env: Mapping[str, str]) -> str:
    """Where a URL is reached: the server's own address for `served://`, else the URL itself.

    Raises:
        PrerequisiteError: no server is there.
    """
    if not is_served(url):
        return url
    address = env.get(SERVED_AT)
    if not address:
        raise PrerequisiteError(
            f"{url} is a model that its suite serves, and its server runs only while the suite does\n"
            "  run the suite: eval-factory run_suite --run_config suite_config.yml, in the suite's folder"
        )
    return address + urlsplit(url).path
