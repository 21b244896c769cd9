"""An endpoint on loopback whose answers say the number of their question, and which sends more than it is asked for."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from random import Random
from typing import Any

from typing_extensions import Self

from builders import endpoint_settings
from eval_factory.core.secrets import Redactor
from eval_factory.endpoint.bridge import map_at_once
from eval_factory.endpoint.replies import RequestFailed
from eval_factory.endpoint.retrying_client import RetryingClient
from eval_factory.endpoint.servers import make_servers

AT_ONCE = 8
Send = Callable[[bytes], None]
Later = Callable[[float, bytes], None]
Give = Callable[[bytes, Send, Later, Random], None]


def the_answer_alone(answer: bytes, send: Send, later: Later, source: Random) -> None:
    send(answer)


class WireEndpoint:
    """An endpoint whose `give` sends the answer to a request, and whatever else; by default the
    answer alone.

    It is called as `give(answer, send, later, source)`: the bytes of the answer, what sends some at once and what does
    after so many seconds, and a source of chances.
    """

    def __init__(self, give: Give = the_answer_alone) -> None:
        self.give = give
        self.name: Callable[[int], str | None] = lambda number: f"chatcmpl-{number:08x}"
        """The id of the completion that is the n-th; None leaves it out."""
        self.requests = 0
        self.connections: list[_Connection] = []
        self.asked: list[int] = []
        self.source = Random(7)  # noqa: S311 - no secret
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=512)
        self.url = f"http://127.0.0.1:{self._socket.getsockname()[1]}/v1"
        self._begun = threading.Event()
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._begun.wait(60)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._ended.set_result, None)
        self._thread.join()

    def _serve(self) -> None:
        asyncio.run(self._answer_until_it_ends())

    async def _answer_until_it_ends(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._ended: asyncio.Future[None] = self._loop.create_future()
        server = await self._loop.create_server(
            lambda: _Connection(self, self._loop), sock=self._socket
        )
        self._begun.set()
        await self._ended
        server.close()
        for connection in self.connections:
            connection.end()
        await asyncio.sleep(0)

    def answer_to(self, body: dict[str, Any]) -> bytes:
        number = int(body["messages"][-1]["content"])
        self.asked.append(number)
        self.requests += 1
        name = self.name(self.requests)
        answer = {
            **({} if name is None else {"id": name}),
            "object": "chat.completion",
            "created": 1,
            "model": body["model"],
            "choices": [
                {
                    "index": 0,
                    "message": {"role": "assistant", "content": str(number)},
                    "finish_reason": "stop",
                }
            ],
        }
        return http(json.dumps(answer).encode())


def http(body: bytes, *lines: str) -> bytes:
    head = "\r\n".join(["HTTP/1.1 200 OK", *(lines or (f"Content-Length: {len(body)}",)), "", ""])
    return head.encode() + body


class _Connection(asyncio.Protocol):
    def __init__(self, endpoint: WireEndpoint, loop: asyncio.AbstractEventLoop) -> None:
        self._endpoint = endpoint
        self._loop = loop
        self._heard = b""
        endpoint.connections.append(self)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport

    def end(self) -> None:
        self._transport.abort()

    def data_received(self, data: bytes) -> None:
        self._heard += data
        while found := re.match(
            rb"(?s)(.*?\r\n)Content-Length: (\d+)\r\n(.*?\r\n\r\n|\r\n)", self._heard
        ):
            end = found.end() + int(found[2])
            if len(self._heard) < end:
                return
            body = self._heard[found.end() : end]
            self._heard = self._heard[end:]
            answer = self._endpoint.answer_to(json.loads(body))
            self._endpoint.give(answer, self._send, self._later, self._endpoint.source)

    def _send(self, data: bytes) -> None:
        if not self._transport.is_closing():
            self._transport.write(data)

    def _later(self, pause_s: float, data: bytes) -> None:
        self._loop.call_later(pause_s, self._send, data)


class Asker:
    """Asks an endpoint for numbers."""

    granted: Mapping[str, int] = {"max_tokens": 9}

    def __init__(self, url: str, at_once: int = AT_ONCE, **changes: Any) -> None:
        self.said: list[str] = []
        self.notes: list[str] = []
        self.at_once = at_once
        settings = endpoint_settings(
            **{
                "url": url,
                "parallelism": at_once,
                "max_retries": 5,
                "request_timeout": 60.0,
                **changes,
            }
        )
        servers = make_servers(
            settings,
            env={},
            redactor=Redactor(["a-key-that-is-known-0123"]),
            say=self.said.append,
            has_answered=True,
        )
        servers.all[0].is_patient = False
        self._client = RetryingClient(settings, servers)

    def ask(self, number: int) -> str:
        body = {
            "model": "m",
            "messages": [{"role": "user", "content": str(number)}],
            **self.granted,
        }
        return self._client.ask(body, self._note).completion.choices[0].text

    def _note(
        self, _number: int, outcome: str, error: RequestFailed, _started: float, _latency: float
    ) -> None:
        self.notes.append(f"{outcome}: {error}")

    def ask_all(self, numbers: list[int], way: str) -> list[str]:
        if way == "loop":
            return map_at_once(self.ask, numbers, self.at_once)
        with ThreadPoolExecutor(self.at_once) as threads:
            return list(threads.map(self.ask, numbers))
