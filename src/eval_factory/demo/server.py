"""Serves an OpenAI-compatible demo endpoint on this machine during a run.

The answers follow from the prompt by fixed rules, so that repeated runs give identical results.
"""

from __future__ import annotations

import hashlib
import json
import re
import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from typing_extensions import Self

_CONVERSATION = re.compile(r"<conversation>\n(.*)\n</conversation>", re.DOTALL)
_ONE = re.compile(r"<criterion>\n\[\S+\] (.*?)\n</criterion>", re.DOTALL)
_SEVERAL = re.compile(r"<criteria>\n(.*?)\n</criteria>", re.DOTALL)
_NUMBERED = re.compile(r"^\d+\. \[\S+\] ", re.MULTILINE)
_LAST_TURN = "\n\nassistant: "
_WORD = re.compile(r"\w{5,}")
_MODEL = "demo/baseline"
_OPTION = re.compile(r"\(?([A-Z])[.)]\s+(\S.*)")


def baseline_answer(prompt: str) -> str:
    """Return the answer to a prompt by a simple rule.

    If the prompt has options, the answer is the letter of the longest option, or of the first of
    several longest options. If the prompt has several blocks of options, the last block counts, for
    it belongs to the question. Without options, the answer is the first 40 words of the last
    paragraph.
    """
    block: list[tuple[str, str]] = []
    last: list[tuple[str, str]] = []
    for line in prompt.splitlines():
        match = _OPTION.match(line.strip())
        if match and ord(match[1]) == ord("A") + len(block):
            block.append((match[1], match[2]))
            if len(block) >= 2:
                last = block
        elif match and match[1] == "A":
            block = [("A", match[2])]
        else:
            block = []
    if last:
        return max(last, key=lambda option: len(option[1]))[0]
    paragraphs = []
    for part in prompt.split("\n\n"):
        if part.strip():
            paragraphs.append(part)
    if not paragraphs:
        return ""
    return " ".join(paragraphs[-1].split()[:40])


def embedded_judgement(prompt: str) -> str | None:
    """Return a judgement about the criteria in a judge's prompt, as JSON text.

    Returns None if the prompt is not a judge's prompt. A criterion is met if the last turn of the
    conversation contains at least half of the criterion's words of five letters or more.
    """
    conversation = _CONVERSATION.search(prompt)
    if conversation is None:
        return None
    turn = conversation[1].rpartition(_LAST_TURN)[2]
    rest = prompt[conversation.end() :]
    criterion = _ONE.search(rest)
    several = _SEVERAL.search(rest)
    if criterion is not None:
        return json.dumps(_decision(criterion[1], turn))
    if several is None:
        return None
    criteria = _NUMBERED.split(several[1])[1:]
    judgements = []
    for number, text in enumerate(criteria, start=1):
        judgements.append({"criterion": number, **_decision(text, turn)})
    return json.dumps({"judgements": judgements})


def _decision(criterion: str, turn: str) -> dict[str, str | bool]:
    """Return whether the criterion is met by the turn, with an explanation."""
    words = {word.lower() for word in _WORD.findall(criterion)}
    common_words = words & {word.lower() for word in _WORD.findall(turn)}
    text = f"{len(common_words)} of its {len(words)} longer words stand in the answer"
    is_met = bool(words) and 2 * len(common_words) >= len(words)
    return {"explanation": text, "criteria_met": is_met}


class _Handler(BaseHTTPRequestHandler):
    """A handler for requests of eval-factory's own client, whose requests are always valid."""

    protocol_version = "HTTP/1.1"

    def setup(self) -> None:
        """Send each response without delay (TCP_NODELAY)."""
        super().setup()
        self.connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, True)

    def do_POST(self) -> None:
        """Answer a request for a completion."""
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        is_chat = "messages" in body
        prompt = body["messages"][-1]["content"] if is_chat else body["prompt"]
        if isinstance(prompt, str):
            self._send(200, _completion(body, prompt, is_chat=is_chat))
        else:
            self._send(
                400,
                {"error": {"message": "the embedded endpoint reads text, and no picture or sound"}},
            )

    def _send(self, status: int, body: dict[str, Any]) -> None:
        """Send a JSON response."""
        data = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class names it so
        """Log nothing: the output would disturb the user's screen."""


def _completion(body: dict[str, Any], prompt: str, *, is_chat: bool) -> dict[str, Any]:
    """Return the body of a chat completion or of a text completion.

    Each word counts as one token, both for the limit of the answer and for the usage.
    """
    words = (embedded_judgement(prompt) or baseline_answer(prompt)).split(" ")
    limit = body.get("max_completion_tokens") or body.get("max_tokens")
    is_cut = isinstance(limit, int) and len(words) > limit
    finish_reason = "stop"
    if is_cut:
        words = words[:limit]
        finish_reason = "length"
    text = " ".join(words)
    prompt_tokens = len(prompt.split())
    completion_tokens = len(words)
    choice: dict[str, Any] = {"index": 0, "finish_reason": finish_reason, "logprobs": None}
    if is_chat:
        id_prefix = "chatcmpl"
        kind = "chat.completion"
        choice["message"] = {"role": "assistant", "content": text}
    else:
        id_prefix = "cmpl"
        kind = "text_completion"
        choice["text"] = text
    digest = hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:24]
    return {
        "id": f"{id_prefix}-{digest}",
        "object": kind,
        "created": int(time.time()),
        "model": str(body.get("model") or _MODEL),
        "choices": [choice],
        "usage": {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": completion_tokens,
            "total_tokens": prompt_tokens + completion_tokens,
        },
    }


class DemoServer(ThreadingHTTPServer):
    """The embedded demo endpoint, which serves during its `with` block.

    `base_url` is known before the block.
    """

    daemon_threads = True
    request_queue_size = 256

    def __init__(self, handler: type[BaseHTTPRequestHandler] = _Handler) -> None:
        super().__init__(("127.0.0.1", 0), handler)

    @property
    def base_url(self) -> str:
        """The URL of the endpoint, which ends with `/v1`."""
        return f"http://127.0.0.1:{self.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self.serve_forever, name="loopback-endpoint", daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore the error: a client may close its connection at any time."""
