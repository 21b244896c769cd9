"""Servers on loopback that end at once when a test does."""

from __future__ import annotations

import threading
from socketserver import BaseServer

POLL_S = 0.01
"""How long a server that is shut down may go on; Python's own half a second is most of what a short test takes."""


def serving(server: BaseServer) -> threading.Thread:
    """A thread, started, in which the server answers until it is shut down."""
    thread = threading.Thread(target=server.serve_forever, args=(POLL_S,), daemon=True)
    thread.start()
    return thread
