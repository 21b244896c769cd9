"""Why a request has no answer: of an attempt, of the request for good, of all requests to the endpoint."""

from __future__ import annotations

from collections.abc import Mapping

from eval_factory.endpoint.unsupported_params import Changes


class RequestFailed(Exception):
    """This request failed for good; others may not."""

    def __init__(self, message: str, status: int | None = None, said: str = "") -> None:
        """`said`: what the endpoint says of it, on one line."""
        super().__init__(message)
        self.status, self.said = status, said

    @property
    def cause(self) -> str:
        """The failure on one line, without the rest of an error object: that may hold a prompt."""
        return f"HTTP {self.status}: {self.said}" if self.said else str(self)


class EndpointUnusable(Exception):
    """No request can succeed: the key, the model or the address is wrong, or nobody is there."""


class EndpointGone(EndpointUnusable):
    """Nobody answers, or not any more; the next try may succeed once it is back."""


class NoneAnswered(EndpointUnusable):
    """The first requests were all refused: of this benchmark, or of any, nobody knows."""


class LimitReached(EndpointUnusable):
    """The run may ask no more; the message is the name of its limit."""


class TransientFailure(Exception):
    """This attempt failed; another may not."""

    def __init__(
        self, message: str, status: int | None, headers: Mapping[str, str], *, said: str = "", **how: bool
    ) -> None:
        """`how`: unreachable, silent, malformed or stray, as `TransportError` has it."""
        super().__init__(message)
        self.status, self.headers, self.said = status, headers, said
        self.unreachable, self.silent, self.malformed, self.stray = (
            how.get(name, False) for name in ("unreachable", "silent", "malformed", "stray")
        )


class ParamUnsupported(Exception):
    """The endpoint refuses a parameter of the body; without it, it may answer."""

    def __init__(self, changes: Changes) -> None:
        super().__init__()
        self.changes = changes
