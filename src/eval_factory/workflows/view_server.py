"""A web server for a folder of files that hold patients' texts: for this machine, and for whoever knows the address.

helm-server listens on every interface and answers everybody. This one listens on 127.0.0.1 alone, where other users
of the machine, and pages of other sites in the same browser, could still ask it: what it serves stands behind a part
of the path that nobody can guess, and it answers no request that was meant for another name than its own.
"""

from __future__ import annotations

import secrets
import threading
from functools import partial
from http import HTTPStatus
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eval_factory.core.errors import PrerequisiteError
from eval_factory.workflows.view_site import POLICY

if TYPE_CHECKING:
    from typing_extensions import Self

HOST = "127.0.0.1"
SECRET_BYTES = 16
HEADERS = {
    "Content-Security-Policy": f"{POLICY}; frame-ancestors 'none'",
    "Cache-Control": "no-store",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
}
"""Nothing is kept in the browser's cache, and no link tells another site where it was followed."""


class PageServer:
    """Takes its port at once and answers from `start` on, until it is closed."""

    def __init__(self, port: int = 0) -> None:
        """
        Args:
            port: 0 for any that is free.

        Raises:
            PrerequisiteError: the port is not to be had.
        """
        self._prefix = f"/{secrets.token_urlsafe(SECRET_BYTES)}/"
        try:
            self._server = _Server((HOST, port), SimpleHTTPRequestHandler)
        except (OSError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise PrerequisiteError(
                f"port {port} of {HOST} cannot be used: {reason}\n  give another with --port, or none for a free one"
            ) from error
        self._thread = threading.Thread(target=self._server.serve_forever, name="view-server", daemon=True)

    @property
    def address(self) -> str:
        return f"http://{self._own_name}{self._prefix}"

    @property
    def _own_name(self) -> str:
        return f"{HOST}:{self._server.server_address[1]}"

    def start(self, site: Path) -> None:
        handler = partial(_Handler, directory=str(site), prefix=self._prefix, own_name=self._own_name)
        self._server.RequestHandlerClass = handler
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_args: object) -> None:
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    def handle_error(self, request: Any, client_address: Any) -> None:
        """A browser that goes away in the middle of an answer is nothing to report."""


class _Handler(SimpleHTTPRequestHandler):
    def __init__(self, *args: Any, directory: str, prefix: str, own_name: str) -> None:
        self._prefix, self._own_name = prefix, own_name  # the base class handles the request in its __init__
        super().__init__(*args, directory=directory)

    def send_head(self) -> Any:
        """For GET and HEAD: what stands behind the prefix, and nothing else."""
        is_known = secrets.compare_digest(self.path[: len(self._prefix)].encode(), self._prefix.encode())
        if self.headers.get("Host") != self._own_name or not is_known:
            self.send_error(HTTPStatus.NOT_FOUND)
            return None
        self.path = self.path[len(self._prefix) - 1 :]
        return super().send_head()

    def list_directory(self, path: Any) -> None:  # noqa: ARG002 - of the base class
        """Shows none: only what the page asks for."""
        self.send_error(HTTPStatus.NOT_FOUND)

    def end_headers(self) -> None:
        for name, value in HEADERS.items():
            self.send_header(name, value)
        super().end_headers()

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Says nothing: addresses name runs, and the screen is the user's."""
