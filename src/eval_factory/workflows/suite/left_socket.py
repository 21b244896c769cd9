"""The socket of a suite's limits, which stands in a folder of its own outside of the suite's: a killed suite leaves it.

The suite's folder remembers where it is, and who works on the suite next takes it away.
"""

from __future__ import annotations

import contextlib
import json
import socket
from collections.abc import Iterator
from pathlib import Path

from eval_factory.core.atomic_files import write_atomic
from eval_factory.core.suite_dir import SuiteDir
from eval_factory.endpoint.shared_limits import PREFIX, SOCKET


@contextlib.contextmanager
def remembered(address: str, folder: SuiteDir) -> Iterator[None]:
    """Where the socket is, for as long as it is there; only who holds the suite's lock calls this."""
    with contextlib.suppress(OSError):  # a full disk: then nobody takes it away
        write_atomic(folder.socket, json.dumps({"host": socket.gethostname(), "address": address}))
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.socket.unlink()


def take_away(folder: SuiteDir) -> None:
    """What a killed invocation left; only who holds the suite's lock calls this, so that nobody uses it any more.

    Nothing but our own socket in a folder that is named as ours is touched, and nothing of another machine.
    """
    try:
        told = json.loads(folder.socket.read_text(encoding="utf-8"))
        host, left = told["host"], Path(told["address"])
    except (OSError, ValueError, TypeError, KeyError):
        return
    if host != socket.gethostname():
        return
    if left.name == SOCKET and left.parent.name.startswith(PREFIX) and (not left.exists() or left.is_socket()):
        with contextlib.suppress(OSError):
            left.unlink(missing_ok=True)
            left.parent.rmdir()
    with contextlib.suppress(OSError):
        folder.socket.unlink()
