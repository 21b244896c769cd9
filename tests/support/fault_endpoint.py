"""An endpoint that misbehaves as it is told, prompt by prompt, for the first tries of each."""

from __future__ import annotations

import contextlib
import itertools
import json
import threading
import time
import zlib
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from email.utils import formatdate
from typing import Any

from loopback import Handler, Loopback

PROBE = "ping"
FOR_EVER = 10**9
STOP_HANGING_S = 8.0


@dataclass(frozen=True)
class Fault:
    """A fault of an endpoint. `kind` is a status, or one of the words in `Handler.misbehave`; it
    lasts for the first `tries` of a prompt.
    """

    kind: str | int
    tries: int = 1
    headers: dict[str, str] = field(default_factory=dict)


class FaultEndpoint(Loopback):
    """The n-th new prompt gets the n-th fault of the list; None is a good answer."""

    def __init__(self, faults: list[Fault | None], secret: str) -> None:
        self._faults = faults
        self.secret = secret
        self.good: Callable[[str], str] = lambda _prompt: "B"
        self.seen: Counter[str] = Counter()
        self.delay_s = 0.0
        self.faulty_probe = False
        self.room: int | None = None
        """The number of requests that it takes at once; more get a 429."""
        self.wide_after = FOR_EVER
        """The number of answers after which there is room for all."""
        self.arrivals: list[tuple[int, int]] = []
        """Two counts of each request, in order of arrival: answers given before it, and requests inside with it."""
        self._inside = self._answered = 0
        self._order: dict[str, int] = {}
        self._lock = threading.Lock()
        self.names = itertools.count()
        self.dead = False
        super().__init__(_handler(self))

    @property
    def url(self) -> str:
        return f"{self.origin}/v1"

    def die_after(self, answers: int) -> threading.Thread:
        """Wait for so many answers, then take no connection any more and answer on none that is open."""

        def wait() -> None:
            while self._answered < answers:
                time.sleep(0.01)
            self.dead = True
            self.__exit__()

        thread = threading.Thread(target=wait)
        thread.start()
        return thread

    def come_back(self) -> None:
        self.dead = False
        self.listen_again()

    def fault_of(self, prompt: str) -> Fault | None:
        """The fault of this try of the prompt, counted."""
        if prompt == PROBE and not self.faulty_probe:
            return None
        with self._lock:
            place = self._order.setdefault(prompt, len(self._order))
            self.seen[prompt] += 1
            fault = self._faults[place % len(self._faults)] if self._faults else None
            return fault if fault is not None and self.seen[prompt] <= fault.tries else None

    @contextmanager
    def inside(self, prompt: str) -> Iterator[bool]:
        """Return whether there is room for one more; it is inside until it is answered."""
        if prompt == PROBE:
            yield True
            return
        with self._lock:
            self._inside += 1
            self.arrivals.append((self._answered, self._inside))
            taken = (
                self.room is None or self._answered >= self.wide_after or self._inside <= self.room
            )
        try:
            yield taken
        finally:
            with self._lock:
                self._inside -= 1
                self._answered += taken

    def fault_for(self, prompt: str) -> Fault | None:
        """The fault that the prompt was given, in every try."""
        return self._faults[self._order[prompt] % len(self._faults)]


def answer(text: str | None, reason: str = "stop", **message: Any) -> dict[str, Any]:
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text, **message},
        "finish_reason": reason,
    }
    usage = {"prompt_tokens": 3, "completion_tokens": 1, "total_tokens": 4}
    return {"object": "chat.completion", "created": 1, "choices": [choice], "usage": usage}


ANSWERS: dict[str, dict[str, Any]] = {
    "null": answer(None),
    "reasoning only": answer(None, reasoning_content="B, I think"),
    "thinks": answer("<think>A? No, not A.</think>\n\nB"),
    "cut thinking": answer("<think>A? Perhaps", "length"),
    "cut off": answer("B", "length"),
    "filtered": answer("", "content_filter"),
    "aborted": answer("The", "abort"),
    "two megabytes": answer("B" + " " * 2_000_000),
    "error in 200": {"error": {"message": "overloaded", "code": 529}},
    "no choices": {"choices": []},
    "provider error": {
        "choices": [
            {
                "index": 0,
                "message": {"content": ""},
                "finish_reason": "error",
                "error": {"code": 502},
            }
        ]
    },
    "null message": {"choices": [{"index": 0, "message": None, "finish_reason": None}]},
    "no message": {"choices": [{"foo": 1}]},
    "half a surrogate pair": answer("B \ud83d", reasoning_content="\ud83d"),
    "not finite": {**answer("B"), "timings": [float("nan"), float("inf")]},
    "odd usage": {**answer("B"), "usage": {"prompt_tokens": 10**30, "completion_tokens": True}},
}


def streamed(answer: bytes) -> bytes:
    """The answer as one chunk of an event stream."""
    document = json.loads(answer)
    for choice in document["choices"]:
        choice["delta"] = choice.pop("message")
    return f"data: {json.dumps(document)}\n\ndata: [DONE]\n\n".encode()


def _handler(endpoint: FaultEndpoint) -> type[Handler]:
    class Faulty(Handler):
        def reply(self) -> None:
            prompt = json.loads(self.body())["messages"][-1]["content"]
            if endpoint.dead:
                self.close_connection = True
                return
            with endpoint.inside(prompt) as taken:
                fault = endpoint.fault_of(prompt)
                time.sleep(endpoint.delay_s)
                self.name = f"chatcmpl-{zlib.crc32(prompt.encode()):08x}"
                self.good = self.named(answer(endpoint.good(prompt)))
                self.answer_with(fault if taken else Fault(429))

        def answer_with(self, fault: Fault | None) -> None:
            if fault is None:
                self.answer(200, self.good)
            elif isinstance(fault.kind, int):
                echo = {
                    "error": {"message": f"no: {self.headers['Authorization']} {endpoint.secret}"}
                }
                date = formatdate(time.time() + 1, usegmt=True)
                headers = {
                    name: date if value == "DATE" else value
                    for name, value in fault.headers.items()
                }
                self.answer(fault.kind, json.dumps(echo).encode(), headers)
            elif fault.kind in ANSWERS:
                self.answer(200, self.named(ANSWERS[fault.kind]))
            else:
                self.misbehave(fault.kind)

        def named(self, answer: dict[str, Any]) -> bytes:
            return json.dumps({"id": self.name, **answer}).encode()

        def misbehave(self, kind: str) -> None:
            good = self.good
            length = b"Content-Length: %d" % len(good)
            sized = b"HTTP/1.1 200 OK\r\n" + length + b"\r\n\r\n" + good
            chunks = b"%x\r\n%b\r\n0\r\n\r\n" % (len(good), good)
            sent: dict[str, tuple[int, bytes, dict[str, str]]] = {
                "not json": (200, good[:-5], {}),
                "deep": (200, b"[" * 200_000 + b"]" * 200_000, {}),
                "html": (
                    200,
                    b"<html><body>502 Bad Gateway</body></html>",
                    {"Content-Type": "text/html"},
                ),
                "429 as text": (429, endpoint.secret.encode(), {"Content-Type": "text/plain"}),
                "broken gzip": (200, b"\x1f\x8b\x08\x00" + good, {"Content-Encoding": "gzip"}),
                "a stream": (200, streamed(good), {"Content-Type": "text/event-stream"}),
                "wrong length": (200, good, {"Content-Length": str(len(good) + 50)}),
            }
            written = {
                "length and chunks": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nTransfer-Encoding: chunked\r\n\r\n"
                + chunks,
                "line feeds": b"HTTP/1.1 200 OK\n" + length + b"\n\n" + good,
                "two lengths": b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\nContent-Length: 8\r\n\r\n",
                "no http": b"SSH-2.0-OpenSSH_9.6\r\n",
                "twice": sized,
                "twice with another id": sized,
                "closes": b"",
                "hangs": b"",
            }
            slow = {
                "byte by byte": sized,
                "header byte by byte": b"HTTP/1.1 200 OK\r\nX-Slow: " + b"a" * 1000,
            }
            if kind in sent:
                self.answer(*sent[kind])
            for byte in slow.get(kind, b""):
                self.wfile.write(bytes([byte]))
                time.sleep(STOP_HANGING_S / len(slow[kind]))
            if kind not in sent | slow:
                self.wfile.write(written[kind])
            if kind == "twice":
                threading.Timer(0.01, self.again, [sized]).start()
            if kind == "twice with another id":
                name = f"chatcmpl-{next(endpoint.names):08x}"
                second = sized.replace(self.name.encode(), name.encode())
                threading.Timer(0.005, self.again, [second]).start()
            if kind == "hangs":
                time.sleep(STOP_HANGING_S)
            self.close_connection |= kind in (
                "no http",
                "closes",
                "wrong length",
                "hangs",
                "header byte by byte",
            )

        def again(self, sized: bytes) -> None:
            with contextlib.suppress(OSError, ValueError):  # the connection was closed
                self.wfile.write(sized)

    return Faulty
