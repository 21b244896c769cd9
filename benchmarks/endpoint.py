#!/usr/bin/env python3
"""A fast OpenAI-compatible endpoint on loopback with a fixed latency, for benchmarks.

It runs in a process of its own, and prints its port. An answer states the name of the model that
was asked for, so that the score of a run is reportable. GET /stats returns the number of requests,
the seconds from the first request to the last answer, the greatest number of requests at the same
time, and with --different the number of different bodies. GET /reset sets these figures to 0.
"""

from __future__ import annotations

import argparse
import asyncio
import hashlib
import json
import re
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from itertools import count

CHAT = {
    "index": 0,
    "message": {"role": "assistant", "content": "A"},
    "finish_reason": "stop",
    "logprobs": None,
}
TEXT = {"index": 0, "text": "A", "finish_reason": "stop", "logprobs": None}
MODEL = re.compile(rb'"model"\s*:\s*"([^"\\]*)"')
PROMPT_TOKENS = 1_234_567
"""A placeholder with seven digits for the number of prompt tokens. The number must depend on the
prompt: a run takes a server whose number stays the same for longer prompts for a server that cuts
prompts.
"""
USAGE = {"prompt_tokens": PROMPT_TOKENS, "completion_tokens": 1}
BYTES_PER_TOKEN = 4


@lru_cache(maxsize=64)
def _answer(is_chat: bool, model: bytes) -> bytes:
    """Return an answer with placeholders for the id and the number of prompt tokens.

    The answer is cached, because the time of this process is missing for the measured program.
    """
    kind, choice = ("chat.completion", CHAT) if is_chat else ("text_completion", TEXT)
    body = {
        "id": f"{0:032d}",
        "object": kind,
        "created": 1,
        "model": model.decode(),
        "choices": [choice],
        "usage": USAGE,
    }
    return _http(json.dumps(body).encode())


def _http(body: bytes) -> bytes:
    head = (
        f"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _model_of(body: bytes) -> bytes:
    """Return the name of the model in a request's body.

    The body is searched and not parsed, to save time. A prompt cannot contain the pattern, because
    its quotation marks are escaped.
    """
    match = MODEL.search(body)
    return match[1] if match else b"m"


@dataclass
class Stats:
    """The figures of the endpoint, and its queue of requests."""

    requests: int = 0
    first: float = 0.0  # the time of the first request
    last: float = 0.0  # the time of the last answer
    now: int = 0  # the number of requests without an answer, including those that wait
    most: int = 0  # the greatest value of `now`
    at_once: int = 10**9  # the maximum number of requests that are worked on; others wait
    waiting: deque[Callable[[], object]] = field(default_factory=deque)
    different: set[bytes] | None = None  # hashes of all bodies; None: bodies are not compared

    def begin(self, work: Callable[[], object]) -> None:
        """Start the work for a request now, or when another request ends."""
        self.now += 1
        self.most = max(self.most, self.now)
        if self.now > self.at_once:
            self.waiting.append(work)
        else:
            work()

    def end(self) -> None:
        """Count a request as ended, and start the work for a waiting request."""
        self.now -= 1
        if self.waiting:
            self.waiting.popleft()()


_numbers = count(1)
"""The ids of answers. As with most servers, each answer has its own id."""


class Connection(asyncio.Protocol):
    """A connection. It only understands HTTP/1.1 with Content-Length bodies and keep-alive."""

    def __init__(self, stats: Stats, latency_s: float) -> None:
        self.stats = stats
        self.latency_s = latency_s
        self.buffer = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport

    def data_received(self, data: bytes) -> None:
        self.buffer += data
        while (end := self.buffer.find(b"\r\n\r\n")) >= 0:
            head = self.buffer[:end].lower()
            _, has_body, length_and_rest = head.partition(b"content-length:")
            length = int(length_and_rest.split(b"\r\n", 1)[0]) if has_body else 0
            if len(self.buffer) < end + 4 + length:
                return
            path = self.buffer.split(b" ", 2)[1]
            body = self.buffer[end + 4 : end + 4 + length]
            self.buffer = self.buffer[end + 4 + length :]
            self.request(path, body)

    def request(self, path: bytes, body: bytes) -> None:
        """Answer a request after the latency. A probe (`ping`) is not counted, and never waits."""
        stats = self.stats
        if path == b"/stats":
            figures = {
                "requests": stats.requests,
                "seconds": stats.last - stats.first,
                "first": stats.first,
                "last": stats.last,
                "most_at_once": stats.most,
                "different": len(stats.different or ()),
            }
            self.transport.write(_http(json.dumps(figures).encode()))
            return
        if path == b"/reset":
            # Set all figures to 0. Requests of other connections refer to this object too.
            stats.__init__(at_once=stats.at_once)  # type: ignore[misc]
            self.transport.write(_http(b"{}"))
            return
        is_probe = b'"ping"' in body
        if not is_probe:
            stats.first = stats.first or time.monotonic()
            stats.requests += 1
            if stats.different is not None:
                stats.different.add(hashlib.sha256(body).digest())
        answer = _answer(b"chat" in path, _model_of(body)).replace(
            b"%032d" % 0, b"%032d" % next(_numbers)
        )
        counted = len(body) // BYTES_PER_TOKEN
        answer = answer.replace(b"%7d" % PROMPT_TOKENS, b"%7d" % counted)
        if not self.latency_s:
            self.reply(answer, is_probe)
        elif is_probe:
            asyncio.get_running_loop().call_later(self.latency_s, self.reply, answer, is_probe)
        else:
            stats.begin(
                lambda: asyncio.get_running_loop().call_later(
                    self.latency_s, self.reply, answer, is_probe
                )
            )

    def reply(self, answer: bytes, is_probe: bool) -> None:
        if not is_probe:
            if self.latency_s:
                self.stats.end()
            self.stats.last = time.monotonic()
        self.transport.write(answer)


async def serve(latency_s: float, at_once: int, *, counts_different: bool = False) -> None:
    stats = Stats(at_once=at_once, different=set() if counts_different else None)
    server = await asyncio.get_running_loop().create_server(
        lambda: Connection(stats, latency_s), "127.0.0.1", 0, backlog=1024
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--latency-ms", type=float, default=0.0)
    parser.add_argument("--at-once", type=int, default=Stats.at_once)
    parser.add_argument("--different", action="store_true")
    arguments = parser.parse_args()
    asyncio.run(
        serve(arguments.latency_ms / 1000, arguments.at_once, counts_different=arguments.different)
    )
