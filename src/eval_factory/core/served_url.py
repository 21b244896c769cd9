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
"""The variable that says where the servers are: `http://127.0.0.1:PORT`, with blanks between several of one model.
Only the processes of their cells have it."""
PORT, REPLICA = "{port}", "{replica}"
"""What stands in a command for the port, and for the number, from 0, of one of several servers."""
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


def is_at_a_server(url: str, env: Mapping[str, str]) -> bool:
    """Whether it is the address of a server that was started for this run."""
    return url.startswith(tuple(env.get(SERVED_AT, "").split()))


def reached(url: str, env: Mapping[str, str]) -> tuple[str, ...]:
    """Where a URL is reached: the servers' own addresses for `served://`, else the URL itself.

    Raises:
        PrerequisiteError: no server is there.
    """
    if not is_served(url):
        return (url,)
    addresses = env.get(SERVED_AT, "").split()
    if not addresses:
        raise PrerequisiteError(
            f"{url} is a model that its suite serves, and its server runs only while the suite does\n"
            "  run the suite: eval-factory run_suite --run_config suite_config.yml, in the suite's folder"
        )
    return tuple(address + urlsplit(url).path for address in addresses)
