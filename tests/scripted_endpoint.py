"""An OpenAI-compatible endpoint for tests: answers come from a function, every request is kept."""

from __future__ import annotations

import json
import re
import threading
import zlib
from collections.abc import Callable
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from typing_extensions import Self

from loopback import serving

PROBE = "ping"
ADAPTER: dict[str, Any] = {
    "params_to_add": {}, "params_to_remove": [], "params_to_rename": {}, "custom_system_prompt": None,
    "start_reasoning_token": "<think>", "end_reasoning_token": "</think>",
}  # fmt: skip
"""What a run without settings of its own gives a client."""


class ScriptedEndpoint:
    """`answer(prompt)` gives the text; `status` and `body` take the place of an answer when they are set."""

    def __init__(self, answer: Callable[[str], str]) -> None:
        self.answer = answer
        self.status: int | None = None
        self.body: dict[str, Any] | None = None
        self.requests: list[dict[str, Any]] = []
        self.headers: list[dict[str, str]] = []
        self.paths: list[str] = []
        self.probes = 0
        self._lock = threading.Lock()
        self._server = _Server(("127.0.0.1", 0), _handler(self))

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        self._thread = serving(self._server)
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def listen_again(self) -> None:
        """At the same port, after its end."""
        self._server = _Server(self._server.server_address, _handler(self))
        self._thread = serving(self._server)

    def reply(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        chat = "messages" in body
        prompt = body["messages"][-1]["content"] if chat else body["prompt"]
        with self._lock:
            if prompt == PROBE:
                self.probes += 1
            else:
                self.requests.append(body)
                self.headers.append(headers)
                self.paths.append(path)
        if self.status is not None:
            return self.status, self.body or {"error": {"message": "as the test wants"}}
        if self.body is not None:
            return 200, self.body
        text, finish_reason = _no_longer_than_granted(self.answer(prompt), body)
        choice: dict[str, Any] = {"index": 0, "finish_reason": finish_reason, "logprobs": None}
        if chat:
            choice["message"] = {"role": "assistant", "content": text}
        else:
            choice["text"] = text
            choice["logprobs"] = {"tokens": [text], "token_logprobs": [-0.5], "top_logprobs": None}
        words = len(prompt.split()), len(text.split())
        usage = {"prompt_tokens": words[0], "completion_tokens": words[1], "total_tokens": sum(words)}
        kind = "chat.completion" if chat else "text_completion"
        return 200, {
            "id": f"chatcmpl-{zlib.crc32(json.dumps(body).encode()):08x}", "object": kind, "created": 1,
            "model": body["model"], "choices": [choice], "usage": usage,
        }  # fmt: skip


def _no_longer_than_granted(text: str, body: dict[str, Any]) -> tuple[str, str]:
    """As a model would: a word has a token at least."""
    granted = body.get("max_tokens") or body.get("max_completion_tokens")
    words = re.findall(r"\s*\S+", text)
    return (text, "stop") if granted is None or len(words) <= granted else ("".join(words[:granted]), "length")


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 256

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that was killed is part of some tests."""


def _handler(endpoint: ScriptedEndpoint) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, answer = endpoint.reply(self.path, dict(self.headers), body)
            data = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            self.end_headers()
            self.wfile.write(data)

        def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
            pass

    return Handler
