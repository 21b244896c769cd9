"""What a download may end with; in a module of its own, because looking imports no HTTP."""

from __future__ import annotations


class FetchError(Exception):
    """A file is unavailable; the message says why. `unreachable`: the host itself did not answer."""

    def __init__(self, message: str, *, unreachable: bool = False) -> None:
        super().__init__(message)
        self.unreachable = unreachable
