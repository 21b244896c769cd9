"""An OAuth token endpoint on loopback that can misbehave."""

from __future__ import annotations

import json
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs

from loopback import serving

CLIENT_ID = "client-id-canary-0123456789"
CLIENT_SECRET = "ssap-client-secret-canary-0123"


class TokenEndpoint:
    """Gives `token-canary-<n>` for the right client; `way` is what it does instead."""

    def __init__(self) -> None:
        self.way = "good"
        self.expires_in: Any = 3600
        self.delay_s = 0.0
        self.redirects: list[tuple[int, str]] = []
        """(status, where to) of the next answers."""
        self.asked = 0
        self.given: list[str] = []
        self.scopes: list[str | None] = []
        self._lock = threading.Lock()
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/token"

    def __enter__(self) -> TokenEndpoint:
        serving(self._server)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()

    def reply(self, form: dict[str, list[str]]) -> tuple[int, bytes]:
        time.sleep(self.delay_s)
        if self.way == "garbage":
            return 200, b"<html>welcome to the proxy</html>"
        if self.way == "no token":
            return 200, b'{"token_type": "bearer"}'
        if self.way == "odd token":
            return 200, json.dumps({"access_token": ["a"], "token_type": "bearer"}).encode()
        if self.way == "two lines":
            return 200, json.dumps({"access_token": "a\r\nX-Other: b", "token_type": "bearer"}).encode()
        if self.way == "error":
            return 500, f"broken: {CLIENT_SECRET}".encode()
        secret = form.get("client_secret", [None])[0]
        if self.way == "refuses" or secret != CLIENT_SECRET or form.get("grant_type") != ["client_credentials"]:
            text = f"no such client with {secret}"
            return 401, json.dumps({"error": "invalid_client", "error_description": text}).encode()
        with self._lock:
            self.given.append(f"token-canary-{len(self.given)}-0123456789")
            self.scopes.append(form.get("scope", [None])[0])
            document = {"access_token": self.given[-1], "token_type": "bearer", "expires_in": self.expires_in}
        return 200, json.dumps(document).encode()


def _handler(endpoint: TokenEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            form = parse_qs(self.rfile.read(int(self.headers["Content-Length"])).decode())
            basic = self.headers.get("Authorization", "")
            if basic.startswith("Basic "):
                import base64

                client, _, secret = base64.b64decode(basic.removeprefix("Basic ")).decode().partition(":")
                form.update(client_id=[client], client_secret=[secret])
            endpoint.asked += 1
            where = endpoint.redirects.pop() if endpoint.redirects else None
            status, data = endpoint.reply(form) if where is None else (where[0], b"")
            self.send_response(status)
            if where is not None:
                self.send_header("Location", where[1])
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    return Handler
