"""What a process that was begun before its work was known is told at last: one message on a Unix socket."""

from __future__ import annotations

import json
import os
import socket
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_LENGTH = struct.Struct("!Q")
_PIECE = 1 << 16


@dataclass(frozen=True)
class HandedOver:
    """All that a program gets from whoever starts it, beside what every child has of its parent."""

    arguments: Sequence[str]
    """Without the program's own name."""
    environment: dict[str, str]
    """All of it: nothing is kept of what the process began with."""
    open_files: int | None = None
    """How many it may have open; None: as many as when it began."""

    def send(self, to: socket.socket, descriptor: int) -> None:
        """
        Args:
            descriptor: a file that the other process has open too from now on.

        Raises:
            OSError: nobody is there any more.
        """
        text = json.dumps(vars(self)).encode("utf-8", "surrogatepass")
        socket.send_fds(to, [_LENGTH.pack(len(text))], [descriptor])
        to.sendall(text)

    def take(self) -> None:
        """Have this process be as if it had been started so. Its arguments are left to the caller."""
        os.environ.clear()
        os.environ.update(self.environment)
        if self.open_files is not None:
            import resource

            hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
            resource.setrlimit(resource.RLIMIT_NOFILE, (self.open_files, hard))


def received(source: socket.socket) -> HandedOver | None:
    """Waits for the message, and leaves its descriptor open for as long as this process lives.

    Returns:
        None where nobody is there who would send it any more.
    """
    head, _descriptors, _, _ = socket.recv_fds(source, _LENGTH.size, 1)
    if len(head) < _LENGTH.size:
        return None
    text, whole = b"", _LENGTH.unpack(head)[0]
    while len(text) < whole:
        piece = source.recv(min(_PIECE, whole - len(text)))
        if not piece:
            return None
        text += piece
    told: dict[str, Any] = json.loads(text.decode("utf-8", "surrogatepass"))
    return HandedOver(**told)


def limit_of_open_files() -> int | None:
    """This process's own, which a child inherits when it is begun, and not later."""
    try:
        import resource
    except ImportError:
        return None
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]
